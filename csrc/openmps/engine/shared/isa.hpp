// SPDX-License-Identifier: Apache-2.0
// MPSCNN_CLONES before a function compiles one copy of it per instruction set: for loops over numbers. In a clone, GCC
// splits wide vectors into numbers where they are compared or converted; loops over vectors are included once per
// instruction set instead [cpu/pointwise/vector_copies.inc]. Such a function must not contain a parallel region: the
// compiler outlines those into functions of the base instruction set.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define MPSCNN_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#define MPSCNN_HAS_CLONES 1
#else
#define MPSCNN_CLONES
#define MPSCNN_HAS_CLONES 0
#endif

// SPDX-License-Identifier: Apache-2.0
// Compiled for each element type that the program asks for, and within one file for two.
#include <metal_stdlib>
using namespace metal;

#ifndef SCALE
#define SCALE 2
#endif
#if SCALE > 3 && defined(OFFSET)
#define ADDEND (OFFSET)
#elif SCALE == 3
#define ADDEND 100
#else
#define ADDEND 0
#endif
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(base) JOIN(base, TYPE)
#define APPLY(f, ...) f(__VA_ARGS__)
#define LONGEST(a, b) \
    ((a) > (b) ?      \
     (a) : (b))

#define TYPE float
#define KERNEL_BODY                                                                        \
    kernel void NAME(affine)(device TYPE* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { \
        x[i] = APPLY(LONGEST, x[i] * SCALE + ADDEND, TYPE(1));                             \
    }
KERNEL_BODY
#undef TYPE
#define TYPE int
KERNEL_BODY
#undef TYPE

kernel void version(device int* out [[buffer(0)]]) {
#ifdef __METAL_VERSION__
    out[0] = __METAL_VERSION__ >= 200;
#else
    out[0] = 7;
#endif
}

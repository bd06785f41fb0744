// SPDX-License-Identifier: Apache-2.0
// For programs written for a Mac: the names, macros and functions that a Mac provides without an #include.
//
//     clang++-19 $(python -m mpscnn.config --objcflags) -include openmps/compat.h program.mm ...
//
// Included before everything else, so that the program needs no changes; a Mac does not need the option. Programs that
// use manual retain and release define OPENMPS_COMPAT_MANUAL_RETAIN, which omits the part for ARC.

#pragma once

// C headers that use __nonnull as a function-like macro must be read before it becomes _Nonnull.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>
#ifdef __cplusplus
#include <cmath>
#include <cstdlib>
#include <cwchar>
#endif

#include <Availability.h>
#include <TargetConditionals.h>

#ifdef __OBJC__

#import <Foundation/Foundation.h>

#import <CoreFoundation/CoreFoundation.h>
#import <dispatch/dispatch.h>

// GNUstep's nil is an object, Apple's a null pointer of any type, and in C++ also an integer, as options:nil needs.
#undef nil
#undef Nil
#ifdef __cplusplus
#define nil __null
#define Nil __null
#else
#define nil ((void *)0)
#define Nil ((void *)0)
#endif

#ifndef OPENMPS_COMPAT_MANUAL_RETAIN
// This runtime has no ARC. A program that relies on ARC retains nothing itself, so objects released by a pool would be
// freed too early: pools release nothing. The program leaks, but runs correctly.
#define autoreleasepool synchronized((id)0)
#undef __weak  // clang does not allow its own to be redefined
#define __weak
#endif

#undef __nonnull
#define __nonnull _Nonnull
#define __nullable _Nullable
#define __null_unspecified _Null_unspecified

#define NS_SWIFT_NAME(...)
#define NS_SWIFT_UNAVAILABLE(...)
#define NS_REFINED_FOR_SWIFT
#ifndef NS_NOESCAPE
#define NS_NOESCAPE __attribute__((noescape))
#endif
#ifndef NS_REQUIRES_SUPER
#define NS_REQUIRES_SUPER __attribute__((objc_requires_super))
#endif

// An outermost pool for objects autoreleased by file-scope initializers or by a main() without a pool: GNUstep prints a
// line for each if there is none. Made before all initializers (101 is the first priority that is not reserved).
__attribute__((weak, visibility("hidden"))) NSAutoreleasePool *openmps_outermost_pool;
__attribute__((weak, visibility("hidden"), constructor(101))) void openmps_open_outermost_pool(void) {
    if (!openmps_outermost_pool) openmps_outermost_pool = [[NSAutoreleasePool alloc] init];
}

#endif  // __OBJC__

#define OPENMPS_COMPAT_INLINE static inline __attribute__((unused))

// Fill `bytes` with a pattern of 4 bytes; the last copy may be cut off.
OPENMPS_COMPAT_INLINE void memset_pattern4(void *bytes, const void *pattern, size_t length) {
    for (size_t i = 0; i < length; i += 4)
        memcpy((char *)bytes + i, pattern, length - i < 4 ? length - i : 4);
}

// glibc has these from 2.38 on.
#if defined(__GLIBC__) && !(__GLIBC__ > 2 || __GLIBC_MINOR__ >= 38)
/// Copy as much of `source` as fits, with its terminator; return the length of `source`.
OPENMPS_COMPAT_INLINE size_t strlcpy(char *destination, const char *source, size_t size) {
    const size_t length = strlen(source);
    if (size != 0) {
        const size_t copied = length < size ? length : size - 1;
        memcpy(destination, source, copied);
        destination[copied] = 0;
    }
    return length;
}

OPENMPS_COMPAT_INLINE size_t strlcat(char *destination, const char *source, size_t size) {
    const size_t before = strnlen(destination, size);
    return before + strlcpy(destination + before, source, size - before);
}
#endif

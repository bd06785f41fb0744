// SPDX-License-Identifier: Apache-2.0
// The part of CoreFoundation that programs without CF objects use: integer types, byte order, the clock. GNUstep's
// Foundation includes this header if it finds it, so nothing of Foundation is used here.

#pragma once

#include <time.h>

typedef double CFTimeInterval;
typedef unsigned char UInt8;
typedef signed char SInt8;
typedef unsigned short UInt16;
typedef signed short SInt16;
typedef unsigned int UInt32;
typedef signed int SInt32;
typedef unsigned long long UInt64;
typedef signed long long SInt64;
typedef float Float32;
typedef double Float64;
typedef unsigned char Boolean;
typedef CFTimeInterval CFAbsoluteTime;

#define OPENMPS_CF_INLINE static inline __attribute__((unused))

OPENMPS_CF_INLINE UInt16 CFSwapInt16(UInt16 value) { return __builtin_bswap16(value); }
OPENMPS_CF_INLINE UInt32 CFSwapInt32(UInt32 value) { return __builtin_bswap32(value); }
OPENMPS_CF_INLINE UInt64 CFSwapInt64(UInt64 value) { return __builtin_bswap64(value); }
// The host is little-endian, like all machines that openmps supports.
OPENMPS_CF_INLINE UInt16 CFSwapInt16BigToHost(UInt16 value) { return CFSwapInt16(value); }
OPENMPS_CF_INLINE UInt32 CFSwapInt32BigToHost(UInt32 value) { return CFSwapInt32(value); }
OPENMPS_CF_INLINE UInt64 CFSwapInt64BigToHost(UInt64 value) { return CFSwapInt64(value); }
OPENMPS_CF_INLINE UInt16 CFSwapInt16LittleToHost(UInt16 value) { return value; }
OPENMPS_CF_INLINE UInt32 CFSwapInt32LittleToHost(UInt32 value) { return value; }
OPENMPS_CF_INLINE UInt64 CFSwapInt64LittleToHost(UInt64 value) { return value; }

/// Return the seconds since 2001-01-01 00:00 UTC, which is 978307200 s after the Unix epoch.
OPENMPS_CF_INLINE CFAbsoluteTime CFAbsoluteTimeGetCurrent(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (CFAbsoluteTime)(now.tv_sec - 978307200) + 1e-9 * (CFAbsoluteTime)now.tv_nsec;
}

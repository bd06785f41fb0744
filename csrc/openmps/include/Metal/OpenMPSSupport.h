// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

// Types that Apple's systems have and GNUstep lacks, and the linkage of C functions.

#pragma once

#import <Foundation/Foundation.h>

#ifdef __cplusplus
#define OPENMPS_EXTERN extern "C" __attribute__((visibility("default")))
#else
#define OPENMPS_EXTERN extern __attribute__((visibility("default")))
#endif
#define OPENMPS_INLINE static inline __attribute__((unused))

// GNUstep defines it as nothing. Methods that Apple marks as unavailable do not compile here either.
#undef NS_UNAVAILABLE
#define NS_UNAVAILABLE __attribute__((unavailable))

typedef double CFTimeInterval;
typedef NSString *NSErrorUserInfoKey;

// Spelled as libdispatch spells them, so that both can be included.
typedef struct dispatch_queue_s *dispatch_queue_t;
typedef struct dispatch_data_s *dispatch_data_t;
typedef struct CGColorConversionInfo *CGColorConversionInfoRef;  // CoreGraphics

typedef float vector_float2 __attribute__((ext_vector_type(2)));
typedef unsigned char vector_uchar16 __attribute__((ext_vector_type(16)));

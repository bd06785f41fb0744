// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSImage/MPSImageKernel.h>

NS_ASSUME_NONNULL_BEGIN

@interface MPSImageTranspose : MPSUnaryImageKernel  // macOS 10.13
@end

NS_ASSUME_NONNULL_END

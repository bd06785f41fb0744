// SPDX-License-Identifier: Apache-2.0
// Constants of MPSCore [MPSCoreTypes.h].

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

// Larger than any image: clipping to it changes nothing.
MTLRegion const MPSRectNoClip = {{0, 0, 0}, {NSUIntegerMax, NSUIntegerMax, NSUIntegerMax}};

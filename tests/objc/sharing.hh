// SPDX-License-Identifier: Apache-2.0
// openmps's extension of MPSImage: an image over the program's memory.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

@interface MPSImage (Sharing)
- (instancetype)initWithDevice:(id<MTLDevice>)device
               imageDescriptor:(const MPSImageDescriptor *)imageDescriptor
                   bytesNoCopy:(void *)bytes
                 bytesPerPixel:(NSUInteger)bytesPerPixel
                   bytesPerRow:(NSUInteger)bytesPerRow
                 bytesPerImage:(NSUInteger)bytesPerImage
                      readOnly:(BOOL)readOnly
                   deallocator:(void (^)(void))deallocator;
@end

// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSCore/MPSKernel.h>
#import <MPSMatrix/MPSMatrixTypes.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSMatrix, MPSVector;
@protocol MTLCommandBuffer, MTLDevice;

@interface MPSMatrixMultiplication : MPSKernel  // macOS 10.13

@property (nonatomic) MTLOrigin resultMatrixOrigin;
@property (nonatomic) MTLOrigin leftMatrixOrigin;
@property (nonatomic) MTLOrigin rightMatrixOrigin;
@property (nonatomic) NSUInteger batchStart;
@property (nonatomic) NSUInteger batchSize;

- (instancetype)initWithDevice:(id<MTLDevice>)device
                 transposeLeft:(BOOL)transposeLeft
                transposeRight:(BOOL)transposeRight
                    resultRows:(NSUInteger)resultRows
                 resultColumns:(NSUInteger)resultColumns
               interiorColumns:(NSUInteger)interiorColumns
                         alpha:(double)alpha
                          beta:(double)beta;
- (instancetype)initWithDevice:(id<MTLDevice>)device
                    resultRows:(NSUInteger)resultRows
                 resultColumns:(NSUInteger)resultColumns
               interiorColumns:(NSUInteger)interiorColumns;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                   leftMatrix:(MPSMatrix *)leftMatrix
                  rightMatrix:(MPSMatrix *)rightMatrix
                 resultMatrix:(MPSMatrix *)resultMatrix;

@end

@interface MPSMatrixVectorMultiplication : MPSMatrixBinaryKernel  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device
                     transpose:(BOOL)transpose
                          rows:(NSUInteger)rows
                       columns:(NSUInteger)columns
                         alpha:(double)alpha
                          beta:(double)beta;
- (instancetype)initWithDevice:(id<MTLDevice>)device rows:(NSUInteger)rows columns:(NSUInteger)columns;
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                  inputMatrix:(MPSMatrix *)inputMatrix
                  inputVector:(MPSVector *)inputVector
                 resultVector:(MPSVector *)resultVector;

@end

NS_ASSUME_NONNULL_END

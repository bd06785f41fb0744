// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>
#import <MPSNeuralNetwork/MPSCNNNeuronType.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSNNNeuronDescriptor;
@protocol MTLDevice;

@interface MPSCNNNeuron : MPSCNNKernel  // macOS 10.13

@property (nonatomic, readonly) MPSCNNNeuronType neuronType;
@property (nonatomic, readonly) float a;
@property (nonatomic, readonly) float b;
@property (nonatomic, readonly) float c;
@property (nonatomic, retain, readonly, nullable) NSData *data;

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;
- (instancetype)initWithDevice:(id<MTLDevice>)device
              neuronDescriptor:(MPSNNNeuronDescriptor *)neuronDescriptor;  // macOS 10.13.4
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;

@end

@interface MPSCNNNeuronAbsolute : MPSCNNNeuron  // macOS 10.13, deprecated 10.14

- (instancetype)initWithDevice:(id<MTLDevice>)device;  // deprecated 10.14

@end

@interface MPSCNNNeuronELU : MPSCNNNeuron  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(float)a;  // deprecated 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNNeuronExponential : MPSCNNNeuron  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(float)a b:(float)b c:(float)c;  // deprecated 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;  // macOS 10.13.4

@end

@interface MPSCNNNeuronGradient : MPSCNNGradientKernel  // macOS 10.13

@property (nonatomic, readonly) MPSCNNNeuronType neuronType;  // macOS 10.13.4
@property (nonatomic, readonly) float a;  // macOS 10.13.4
@property (nonatomic, readonly) float b;  // macOS 10.13.4
@property (nonatomic, readonly) float c;  // macOS 10.13.4
@property (nonatomic, retain, readonly, nullable) NSData *data;  // macOS 10.13.4

- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;  // macOS 10.13.4
- (instancetype)initWithDevice:(id<MTLDevice>)device
              neuronDescriptor:(MPSNNNeuronDescriptor *)neuronDescriptor;
- (nullable instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device;  // macOS 10.13.4

@end

@interface MPSCNNNeuronHardSigmoid : MPSCNNNeuron  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(float)a b:(float)b;  // deprecated 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNNeuronLinear : MPSCNNNeuron  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(float)a b:(float)b;  // deprecated 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNNeuronLogarithm : MPSCNNNeuron  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(float)a b:(float)b c:(float)c;  // deprecated 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;  // macOS 10.13.4

@end

@interface MPSCNNNeuronPReLU : MPSCNNNeuron  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(const float *)a count:(NSUInteger)count;  // deprecated 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNNeuronPower : MPSCNNNeuron  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(float)a b:(float)b c:(float)c;  // deprecated 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;  // macOS 10.13.4

@end

@interface MPSCNNNeuronReLU : MPSCNNNeuron  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(float)a;  // deprecated 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNNeuronReLUN : MPSCNNNeuron  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(float)a b:(float)b;  // deprecated 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNNeuronSigmoid : MPSCNNNeuron  // macOS 10.13, deprecated 10.14

- (instancetype)initWithDevice:(id<MTLDevice>)device;  // deprecated 10.14

@end

@interface MPSCNNNeuronSoftPlus : MPSCNNNeuron  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(float)a b:(float)b;  // deprecated 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSCNNNeuronSoftSign : MPSCNNNeuron  // macOS 10.13, deprecated 10.14

- (instancetype)initWithDevice:(id<MTLDevice>)device;  // deprecated 10.14

@end

@interface MPSCNNNeuronTanH : MPSCNNNeuron  // macOS 10.13

- (instancetype)initWithDevice:(id<MTLDevice>)device a:(float)a b:(float)b;  // deprecated 10.14
- (instancetype)initWithDevice:(id<MTLDevice>)device NS_UNAVAILABLE;

@end

@interface MPSNNNeuronDescriptor : NSObject <NSCopying, NSSecureCoding> {  // macOS 10.13.4
  @protected
    void *_Nullable _openmps;
}

@property (nonatomic) MPSCNNNeuronType neuronType;
@property (nonatomic) float a;
@property (nonatomic) float b;
@property (nonatomic) float c;
@property (nonatomic, retain, nullable) NSData *data;

- (instancetype)init NS_UNAVAILABLE;
+ (MPSNNNeuronDescriptor *)cnnNeuronDescriptorWithType:(MPSCNNNeuronType)neuronType;
+ (MPSNNNeuronDescriptor *)cnnNeuronDescriptorWithType:(MPSCNNNeuronType)neuronType a:(float)a;
+ (MPSNNNeuronDescriptor *)cnnNeuronDescriptorWithType:(MPSCNNNeuronType)neuronType a:(float)a b:(float)b;
+ (MPSNNNeuronDescriptor *)cnnNeuronDescriptorWithType:(MPSCNNNeuronType)neuronType
                                                     a:(float)a
                                                     b:(float)b
                                                     c:(float)c;
+ (MPSNNNeuronDescriptor *)cnnNeuronPReLUDescriptorWithData:(NSData *)data noCopy:(bool)noCopy;

@end

NS_ASSUME_NONNULL_END

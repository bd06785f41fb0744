// SPDX-License-Identifier: Apache-2.0
#include "core/data_source/data_source.hh"

#import <objc/runtime.h>

#include "core/data_source/objc_weights.hh"
#include "core/device/device_impl.hh"
#include "core/loss/update_call.hpp"

namespace mpscnn {

MPSNNNeuronDescriptor *objc_neuron(const NeuronDescriptor &neuron) {
  if (neuron.type == MPSCNNNeuronTypePReLU) {
    NSData *slopes = [NSData dataWithBytes:neuron.data.data() length:neuron.data.size() * sizeof(float)];
    return [MPSNNNeuronDescriptor cnnNeuronPReLUDescriptorWithData:slopes noCopy:false];
  }
  return [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:static_cast<MPSCNNNeuronType>(neuron.type)
                                                          a:neuron.a
                                                          b:neuron.b
                                                          c:neuron.c];
}

MPSCNNConvolutionDescriptor *objc_descriptor(const ConvolutionDescriptor &d) {
  Class kind = d.depthwise                    ? [MPSCNNDepthWiseConvolutionDescriptor class]
               : d.sub_pixel_scale_factor > 1 ? [MPSCNNSubPixelConvolutionDescriptor class]
                                              : [MPSCNNConvolutionDescriptor class];
  MPSCNNConvolutionDescriptor *descriptor = [kind cnnConvolutionDescriptorWithKernelWidth:d.kernel_size.w
                                                                             kernelHeight:d.kernel_size.h
                                                                     inputFeatureChannels:d.in_channels
                                                                    outputFeatureChannels:d.out_channels];
  descriptor.strideInPixelsX = d.stride.w;
  descriptor.strideInPixelsY = d.stride.h;
  descriptor.dilationRateX = d.dilation.w;
  descriptor.dilationRateY = d.dilation.h;
  descriptor.groups = d.groups;
  if (d.sub_pixel_scale_factor > 1)
    static_cast<MPSCNNSubPixelConvolutionDescriptor *>(descriptor).subPixelScaleFactor = d.sub_pixel_scale_factor;
  if (d.activation.type != MPSCNNNeuronTypeNone) descriptor.fusedNeuronDescriptor = objc_neuron(d.activation);
  if (d.batch_norm) {
    const auto &norm = *d.batch_norm;
    [descriptor setBatchNormalizationParametersForInferenceWithMean:norm.mean.data()
                                                           variance:norm.variance.data()
                                                              gamma:norm.gamma.data()
                                                               beta:norm.beta.data()
                                                            epsilon:norm.epsilon];
  }
  return descriptor;
}

MPSCNNConvolutionWeightsAndBiasesState *objc_weights(const ConvolutionWeightsAndBiasesState &weights) {
  return [[[MPSCNNConvolutionWeightsAndBiasesState alloc]
      initWithWeights:weights.weights->impl().buffer.get()
               biases:weights.biases ? weights.biases->impl().buffer.get() : nil] autorelease];
}

static MPSDataType objc_dtype(DType dtype) {
  switch (dtype) {
    case DType::float16: return MPSDataTypeFloat16;
    case DType::uint8: return MPSDataTypeUInt8;
    case DType::uint32: return MPSDataTypeUInt32;
    default: return MPSDataTypeFloat32;
  }
}

}  // namespace mpscnn

/// Owns a std::shared_ptr, which keeps `memory`.
@interface PyMPSSharedOwner : NSObject<PagesOwner> {
 @private
  std::shared_ptr<void> owner_;
  mpscnn::MemoryRange memory_;
}
- (instancetype)initWithOwner:(std::shared_ptr<void>)owner memory:(const mpscnn::MemoryRange &)memory;
@end

@implementation PyMPSSharedOwner

- (instancetype)initWithOwner:(std::shared_ptr<void>)owner memory:(const mpscnn::MemoryRange &)memory {
  if ((self = [super init])) {
    owner_ = std::move(owner);
    memory_ = memory;
  }
  return self;
}

- (void)releasePages {
  mpscnn::release_pages(memory_);
}

@end

@interface PyMPSArrayDataSource ()
/// Null for sources that compute no weights.
- (mpscnn::UpdatingSource *)updatingSource;
@end

@implementation PyMPSArrayDataSource

- (instancetype)initWithGuardedSource:(std::shared_ptr<mpscnn::GuardedSource>)source {
  if ((self = [super init])) source_ = std::move(source);
  return self;
}

- (BOOL)load {
  return source_->load();
}

- (void)purge {
  source_->purge();
}

- (MPSDataType)dataType {
  return mpscnn::objc_dtype(source_->dtype());
}

- (MPSCNNConvolutionDescriptor *)descriptor {
  return mpscnn::objc_descriptor(source_->descriptor());
}

- (void *)weights {
  return const_cast<void *>(source_->weights());
}

- (id)weightsOwner {
  if (!source_->weights_owner()) return nil;
  return [[[PyMPSSharedOwner alloc] initWithOwner:source_->weights_owner()
                                           memory:source_->weights_memory()] autorelease];
}

- (float *)biasTerms {
  return const_cast<float *>(source_->bias());
}

- (NSString *)label {
  return source_->label().empty() ? nil : [NSString stringWithUTF8String:source_->label().c_str()];
}

- (MPSCNNWeightsQuantizationType)weightsQuantizationType {
  return source_->ranges()         ? MPSCNNWeightsQuantizationTypeLinear
         : source_->lookup_table() ? MPSCNNWeightsQuantizationTypeLookupTable
                                   : MPSCNNWeightsQuantizationTypeNone;
}

- (vector_float2 *)rangesForUInt8Kernel {
  return reinterpret_cast<vector_float2 *>(const_cast<float *>(source_->ranges()));
}

- (float *)lookupTableForUInt8Kernel {
  return const_cast<float *>(source_->lookup_table());
}

- (MPSDataType)kernelWeightsDataType {
  return mpscnn::objc_dtype(source_->kernel_dtype());
}

- (BOOL)respondsToSelector:(SEL)selector {
  const auto *updating = [self updatingSource];
  if (sel_isEqual(selector, @selector(updateWithCommandBuffer:gradientState:sourceState:)))
    return updating != nullptr && updating->has_update();
  if (sel_isEqual(selector, @selector(updateWithGradientState:sourceState:)))
    return updating != nullptr && updating->has_update_on_cpu();
  return [super respondsToSelector:selector];
}

- (mpscnn::UpdatingSource *)updatingSource {
  return dynamic_cast<mpscnn::UpdatingSource *>(source_->source().get());
}

/// Called by an UpdateCall, which holds our counterparts of the arguments.
- (MPSCNNConvolutionWeightsAndBiasesState *)updateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                                      gradientState:(MPSCNNConvolutionGradientState *)gradientState
                                                        sourceState:
                                                            (MPSCNNConvolutionWeightsAndBiasesState *)sourceState {
  (void)commandBuffer, (void)gradientState, (void)sourceState;
  auto *call = mpscnn::UpdateCall::current();
  if (call == nullptr) return nil;
  call->update(*[self updatingSource]);
  if (!call->result) return nil;
  return mpscnn::objc_weights(*call->result);
}

- (BOOL)updateWithGradientState:(MPSCNNConvolutionGradientState *)gradientState
                    sourceState:(MPSCNNConvolutionWeightsAndBiasesState *)sourceState {
  (void)gradientState, (void)sourceState;
  auto *call = mpscnn::UpdateCall::current();
  if (call == nullptr) return NO;
  call->update_on_cpu(*[self updatingSource]);
  return call->has_changed;
}

- (id)copyWithZone:(NSZone *)zone {
  // The weights are shared, not copied.
  return [[[self class] allocWithZone:zone] initWithGuardedSource:source_];
}

@end

@implementation PyMPSNormalizationValues

- (instancetype)initWithGuardedNormalization:(std::shared_ptr<mpscnn::GuardedNormalization>)source {
  if ((self = [super init])) source_ = std::move(source);
  return self;
}

- (BOOL)load {
  return source_->load();
}

- (void)purge {
  source_->purge();
}

- (NSUInteger)numberOfFeatureChannels {
  return static_cast<NSUInteger>(source_->channels());
}

- (NSUInteger)numberOfGroups {
  return static_cast<NSUInteger>(source_->groups());
}

/// Declared settable by Apple; ignored, as the source provides the groups.
- (void)setNumberOfGroups:(NSUInteger)numberOfGroups {
  (void)numberOfGroups;
}

- (float *)gamma {
  return const_cast<float *>(source_->gamma());
}

- (float *)beta {
  return const_cast<float *>(source_->beta());
}

- (float *)mean {
  return const_cast<float *>(source_->mean());
}

- (float *)variance {
  return const_cast<float *>(source_->variance());
}

- (float)epsilon {
  return source_->epsilon();
}

- (NSString *)label {
  return source_->label().empty() ? nil : [NSString stringWithUTF8String:source_->label().c_str()];
}

- (id)copyWithZone:(NSZone *)zone {
  // The values are shared, not copied.
  return [[[self class] allocWithZone:zone] initWithGuardedNormalization:source_];
}

@end

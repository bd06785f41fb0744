// SPDX-License-Identifier: Apache-2.0
// Reading a convolution data source [MPSCNNConvolution.h, MPSCNNConvolutionDataSource].

#import "mps/DataSource.hh"
#import "mps/MPSCNNConvolution+Engine.hh"

namespace openmps {
namespace {

/// Read how uint8 weights are quantized.
void read_quantization(const ConvolutionState &state, id<MPSCNNConvolutionDataSource> source, WeightSource &weights) {
  const MPSCNNWeightsQuantizationType type = answers(source, @selector(weightsQuantizationType))
                                                 ? [source weightsQuantizationType]
                                                 : MPSCNNWeightsQuantizationTypeNone;
  if (type == MPSCNNWeightsQuantizationTypeLinear) {
    weights.type = WeightType::uint8_linear;
    if (answers(source, @selector(rangesForUInt8Kernel)))
      weights.ranges = reinterpret_cast<const float *>([source rangesForUInt8Kernel]);
    if (weights.ranges == nullptr) raise_for(state, @"The data source has no rangesForUInt8Kernel.");
  } else if (type == MPSCNNWeightsQuantizationTypeLookupTable) {
    weights.type = WeightType::uint8_table;
    if (answers(source, @selector(lookupTableForUInt8Kernel))) weights.table = [source lookupTableForUInt8Kernel];
    if (weights.table == nullptr) raise_for(state, @"The data source has no lookupTableForUInt8Kernel.");
  } else {
    raise_for(state,
              @"The data source has UInt8 weights and weightsQuantizationType (%u), which is neither Linear (1) nor "
              @"LookupTable (2).",
              (unsigned)type);
  }
}

/// Return whether to round weights to half: yes unless the data source requests float [MPSCNNConvolution.h].
bool read_round_to_half(const ConvolutionState &state, id<MPSCNNConvolutionDataSource> source, MPSDataType type) {
  if (!answers(source, @selector(kernelWeightsDataType))) return true;
  const MPSDataType kept = [source kernelWeightsDataType];
  if (kept == MPSDataTypeFloat16) return true;
  if (kept != MPSDataTypeFloat32)
    raise_for(state, @"The data source's kernelWeightsDataType (0x%x) is neither Float16 nor Float32.", (unsigned)kept);
  if (type != MPSDataTypeFloat32)
    raise_for(state, @"The data source's kernelWeightsDataType is Float32 and its dataType (0x%x) is not.",
              (unsigned)type);
  if (state.accumulator != MPSNNConvolutionAccumulatorPrecisionOptionFloat)
    raise_for(state,
              @"The data source's kernelWeightsDataType is Float32 and accumulatorPrecisionOption is not Float.");
  return false;
}

WeightSource read_weights(const ConvolutionState &state, id<MPSCNNConvolutionDataSource> source) {
  WeightSource weights;
  const MPSDataType type = [source dataType];
  if (!state.takes_type(type))
    raise_for(state, @"The data source's dataType (0x%x) is not one that the kernel takes.", (unsigned)type);
  if (answers(source, @selector(weightsLayout)) && [source weightsLayout] != MPSCNNConvolutionWeightsLayoutOHWI)
    raise_for(state, @"The data source's weightsLayout (%u) is not OHWI (0).", (unsigned)[source weightsLayout]);
  weights.round_to_half = read_round_to_half(state, source, type);
  weights.type = type == MPSDataTypeFloat16 ? WeightType::float16 : WeightType::float32;
  if (type == MPSDataTypeUInt8) read_quantization(state, source, weights);
  weights.weights = [source weights];
  if (weights.weights == nullptr) raise_for(state, @"The data source's weights are NULL.");
  weights.bias = [source biasTerms];
  if (!is_hidden(@selector(weightsOwner)) && answers(source, @selector(weightsOwner)))
    if (id owner = [static_cast<id<OpenMPSWeightsOwner>>(static_cast<id>(source)) weightsOwner]) {
      weights.owner = std::shared_ptr<const void>([owner retain], [](const void *held) { [(id)held release]; });
      if (answers(owner, @selector(releasePages)))
        weights.release_pages = [owner] { [static_cast<id<OpenMPSPagesOwner>>(owner) releasePages]; };
    }
  return weights;
}

/// Raise if the descriptor's shape is not the kernel's.
void check_same_shape(const ConvolutionState &state, MPSCNNConvolutionDescriptor *descriptor) {
  const ConvolutionDescriptorState &given = [descriptor openmps_state];
  if (given.kernel_width != state.source.kernel_width || given.kernel_height != state.source.kernel_height ||
      given.inputs != state.inputs || given.outputs != state.outputs || given.groups != state.groups)
    raise_for(
        state,
        @"The data source now has %lu x %lu x %lu x %lu weights (OHWI) in %lu groups, and the kernel %lu x %lu x %lu "
        @"x %lu in %lu.",
        (unsigned long)given.outputs, (unsigned long)given.kernel_height, (unsigned long)given.kernel_width,
        (unsigned long)given.inputs, (unsigned long)given.groups, (unsigned long)state.outputs,
        (unsigned long)state.source.kernel_height, (unsigned long)state.source.kernel_width,
        (unsigned long)state.inputs, (unsigned long)state.groups);
}

void build(ConvolutionState &state, WeightSource &weights, MPSCNNConvolutionDescriptor *descriptor) {
  const std::shared_ptr<const BatchNorm> norm = [descriptor openmps_state].batch_norm;
  if (norm) {
    for (const std::vector<float> *values : {&norm->mean, &norm->variance, &norm->gamma, &norm->beta})
      if (!values->empty() && values->size() != state.outputs)
        raise_for(state, @"The descriptor's batch normalization has %lu values and outputFeatureChannels is %lu.",
                  (unsigned long)values->size(), (unsigned long)state.outputs);
  }
  weights.shape = state.weight_shape();
  weights.norm = norm.get();
  const std::string error = build_weights(weights, state.weights);
  if (!error.empty()) raise_memory(@"%s: %s", state.title.c_str(), error.c_str());
  state.float_weights = !weights.round_to_half;
  state.weights_are_there = true;
}

}  // namespace

bool read_data_source(ConvolutionState &state, id<MPSCNNConvolutionDataSource> source, bool new_descriptor,
                      Ref<NSString *> *label) {
  if (source == nil) raise_for(state, @"weights, the data source, is nil.");
  if (![source load]) return false;
  Loaded loaded(source);
  MPSCNNConvolutionDescriptor *descriptor = [source descriptor];
  if (descriptor == nil) raise_for(state, @"The data source's descriptor is nil.");
  if (new_descriptor)
    state.set_descriptor(descriptor);
  else
    check_same_shape(state, descriptor);
  WeightSource weights = read_weights(state, source);
  build(state, weights, descriptor);
  if (label != nullptr) *label = Ref<NSString *>([source label]);
  loaded.purge();
  return true;
}

id init_convolution(MPSCNNKernel *kernel, id<MTLDevice> device, id<MPSCNNConvolutionDataSource> source) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  ConvolutionState &state = state_of<ConvolutionState>(kernel);
  Ref<NSString *> label;
  if (!read_data_source(state, source, true, &label)) return nil;  // unwind releases the kernel
  state.data_source = Ref<id<MPSCNNConvolutionDataSource>>(source);
  if (label) [kernel setLabel:label.get()];
  return unwind.done();
}

id init_convolution(MPSCNNKernel *kernel, id<MTLDevice> device, const MPSCNNConvolutionDescriptor *descriptor,
                    const float *weights, const float *bias, MPSCNNConvolutionFlags flags) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  ConvolutionState &state = state_of<ConvolutionState>(kernel);
  if (descriptor == nil) raise_for(state, @"convolutionDescriptor is nil.");
  if (weights == NULL) raise_for(state, @"kernelWeights is NULL.");
  if (flags != MPSCNNConvolutionFlagsNone) raise_for(state, @"flags (%lu) is not None (0).", (unsigned long)flags);
  MPSCNNConvolutionDescriptor *known = const_cast<MPSCNNConvolutionDescriptor *>(descriptor);
  state.set_descriptor(known);
  WeightSource source;
  source.weights = weights;
  source.bias = bias;
  build(state, source, known);
  return unwind.done();
}

void reload_weights(ConvolutionState &state, id<MPSCNNConvolutionDataSource> source) {
  if (source == nil) raise_for(state, @"The kernel has no data source to reload from.");
  if (!read_data_source(state, source, false, nullptr))
    raise_usage(@"%s: The data source did not load.", state.title.c_str());
}

}  // namespace openmps

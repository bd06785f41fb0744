// SPDX-License-Identifier: Apache-2.0
// Data sources of gamma, beta, mean and variance; the kernels and states that hold these values.

#import "mps/MPSCNNNormalizationWeights+Engine.hh"

#include <atomic>
#include <cfloat>

#include "engine/problem/problem.hpp"

#import "mps/DataSource.hh"

namespace openmps {
namespace {

/// The data sources of all classes have the same selectors; those that are optional or missing in some are tested.
using NormalizationSource = id<MPSCNNBatchNormalizationDataSource>;

constexpr NSUInteger kMaxChannels = NSUInteger{1} << 31;

/// Return values to be overwritten.
Values empty_values(const KernelState &state, NSUInteger count) {
  Values values = Values::adopt(new_buffer_of_mps(state.device.get(), count * sizeof(float)));
  if (!values)
    raise_memory(@"%s: There is no memory for the values of %lu channels.", state.title.c_str(), (unsigned long)count);
  return values;
}

/// Return a buffer of values that set(floats) stores. They are written through HostAccess: [buffer contents] would move
/// the buffer to the host for good, and kernels of a GPU would read it over the bus.
template <class Set>
Values new_values(const KernelState &state, NSUInteger count, const Set &set) {
  Values values = empty_values(state, count);
  const std::shared_ptr<Memory> memory = [buffer_of(values.get(), "values") openmps_memoryToFill];
  const HostAccess access(memory, 0, count * sizeof(float), HostAccess::Mode::write);
  set(reinterpret_cast<float *>(checked_data(access, memory, @"values of a normalization")));
  return values;
}

Values values_like(const KernelState &state, const float *from, NSUInteger count) {
  return new_values(state, count, [=](float *to) { std::copy(from, from + count, to); });
}

Values values_of(const KernelState &state, float value, NSUInteger count) {
  return new_values(state, count, [=](float *to) { std::fill_n(to, count, value); });
}

/// Call use(floats) with the values on the host.
template <class Use>
void read_values(const Values &values, NSUInteger count, const Use &use) {
  const std::shared_ptr<Memory> memory = [buffer_of(values.get(), "values") openmps_memory];
  const HostAccess access(memory, 0, count * sizeof(float), HostAccess::Mode::read);
  use(reinterpret_cast<const float *>(checked_data(access, memory, @"values of a normalization")));
}

void read_gamma_and_beta(NormalizationState &state, NormalizationSource source) {
  const float *gamma = [source gamma], *beta = [source beta];
  Values new_gamma = gamma ? values_like(state, gamma, state.channels) : values_of(state, 1, state.channels);
  Values new_beta = beta ? values_like(state, beta, state.channels) : values_of(state, 0, state.channels);
  state.gamma = std::move(new_gamma), state.beta = std::move(new_beta);
}

void read_mean_and_variance(NormalizationState &state, NormalizationSource source) {
  const float *mean = [source mean], *variance = [source variance];
  if ((mean == nullptr) != (variance == nullptr))
    raise_for(state, @"The data source's mean is %s, and its variance is %s.", mean ? "there" : "NULL",
              variance ? "there" : "NULL");
  if (mean == nullptr) {
    state.mean = state.variance = Values();
    return;
  }
  for (NSUInteger i = 0; i < state.channels; ++i)
    if (!(variance[i] >= 0))
      raise_for(state, @"The data source's variance[%lu] (%g) is less than 0.", (unsigned long)i, (double)variance[i]);
  Values new_mean = values_like(state, mean, state.channels);
  state.variance = values_like(state, variance, state.channels);
  state.mean = std::move(new_mean);
}

/// Load, read and purge a data source; also purge it on an exception. Return false, with nothing changed, if load
/// returns NO. `all` also takes channels, groups and epsilon; otherwise the channels must be the same.
bool read_source(NormalizationState &state, id given, SourceParts parts, Ref<NSString *> *label) {
  if (given == nil) raise_for(state, @"dataSource is nil.");
  NormalizationSource source = given;
  if (answers(source, @selector(load)) && ![source load]) return false;
  Loaded loaded(source);
  const NSUInteger channels = [source numberOfFeatureChannels];
  if (channels < 1 || channels > kMaxChannels)
    raise_for(state, @"The data source's numberOfFeatureChannels (%lu) is not between 1 and %lu.",
              (unsigned long)channels, (unsigned long)kMaxChannels);
  if (parts == SourceParts::all) {
    state.channels = channels;
    state.groups = state.read_groups(source);
    state.set_epsilon(answers(source, @selector(epsilon)) ? [source epsilon] : FLT_MIN);
  } else if (channels != state.channels) {
    raise_for(state, @"The data source's numberOfFeatureChannels (%lu) is not the kernel's (%lu).",
              (unsigned long)channels, (unsigned long)state.channels);
  }
  if (parts != SourceParts::mean_and_variance) read_gamma_and_beta(state, source);
  if (parts != SourceParts::gamma_and_beta && state.has_statistics()) read_mean_and_variance(state, source);
  if (label != nullptr) *label = Ref<NSString *>([source label]);
  loaded.purge();
  return true;
}

/// Return values that no one else uses, to be overwritten: replaced ones, if the oldest are free. Steps of a training
/// then alternate between the same few buffers, and an engine may launch them as it has before.
Values spare_values(NormalizationState &state) {
  constexpr std::size_t kMost = 8;
  if (!state.replaced.empty()) {
    Values oldest = state.replaced.front();
    const bool is_ours = [oldest.get() retainCount] == 2;  // of the list and of `oldest`
    if (is_ours && [buffer_of(oldest.get(), "values") openmps_memoryToFill].use_count() == 1) {
      std::atomic_thread_fence(std::memory_order_acquire);  // other threads' releases
      state.replaced.erase(state.replaced.begin());
      return oldest;
    }
    if (state.replaced.size() >= kMost) state.replaced.erase(state.replaced.begin());
  }
  return empty_values(state, state.channels);
}

/// Return the values that the buffer will have at this place of the command buffer.
Values copied(NormalizationState &state, Recorder &recorder, id<MTLBuffer> given, const char *name) {
  id<OpenMPSBuffer> known = buffer_of(given, name);
  const NSUInteger bytes = state.channels * sizeof(float);
  if ([known length] < bytes)
    raise_for(state, @"%s of the state has %lu bytes, expected %lu, a float for each feature channel.", name,
              (unsigned long)[known length], (unsigned long)bytes);
  Values values = spare_values(state);
  BufferCopyProblem problem;
  problem.src = [known openmps_memory];
  touch(problem.src, [NSString stringWithUTF8String:name]);
  problem.dst = [buffer_of(values.get(), name) openmps_memoryToFill];
  problem.bytes = bytes;
  recorder.append(std::move(problem), state.title);
  return values;
}

void replace(NormalizationState &state, Values &values, Values by) {
  if (values) state.replaced.push_back(std::move(values));
  values = std::move(by);
}

}  // namespace

ChannelValues channel_values(const Values &values) {
  ChannelValues result;
  result.memory = [buffer_of(values.get(), "MPSCNNNormalization: buffer") openmps_memory];
  return result;
}

// ------------------------------------------------------------------------------------------ the kernels' state

void NormalizationState::set_epsilon(float value) {
  if (!(value >= 0)) raise_for(*this, @"epsilon (%g) is less than 0.", (double)value);
  epsilon = value;
}

NSUInteger NormalizationState::output_channels(NSUInteger given) const {
  if (given != channels)
    raise_for(*this,
              @"The source has %lu feature channels (from sourceFeatureChannelOffset on, at most "
              @"sourceFeatureChannelMaxCount) and the data source's numberOfFeatureChannels is %lu.",
              (unsigned long)given, (unsigned long)channels);
  return channels;
}

Problem NormalizationState::make_problem(const Encode &encode) const {
  NormalizeProblem problem;
  problem.src = operand(source, encode.src[0]);
  problem.dst = encode.dst;
  problem.gamma = channel_values(gamma);
  problem.beta = channel_values(beta);
  problem.groups = static_cast<std::int64_t>(groups);
  problem.epsilon = epsilon;
  problem.neuron = fused.neuron;
  return problem;
}

void NormalizationState::archive(Archive &archive) {
  CNNKernelState::archive(archive);
  archive.field(@"MPSCNNNormalization.numberOfFeatureChannels", channels);
  archive.field(@"MPSCNNNormalization.numberOfGroups", groups);
  archive.field(@"MPSCNNNormalization.epsilon", epsilon);
  fused.archive(archive, @"MPSCNNNormalization.fusedNeuronDescriptor");
  if (archive.is_reading() && (channels < 1 || channels > kMaxChannels))
    raise_for(*this, @"The archive holds a number of channels (%lu) that is not between 1 and %lu.",
              (unsigned long)channels, (unsigned long)kMaxChannels);
  const auto field = [&](NSString *key, Values &values) {
    Ref<NSData *> data;
    if (!archive.is_reading() && values)
      read_values(values, channels, [&](const float *floats) {
        data = Ref<NSData *>([NSData dataWithBytes:floats length:channels * sizeof(float)]);
      });
    archive.object(key, [NSData class], data);
    if (!archive.is_reading() || !data) return;
    if ([data.get() length] != channels * sizeof(float))
      raise_for(*this, @"The archive holds %lu bytes of %@, expected %lu.", (unsigned long)[data.get() length], key,
                (unsigned long)(channels * sizeof(float)));
    values = values_like(*this, static_cast<const float *>([data.get() bytes]), channels);
  };
  field(@"MPSCNNNormalization.gamma", gamma);
  field(@"MPSCNNNormalization.beta", beta);
  field(@"MPSCNNNormalization.mean", mean);
  field(@"MPSCNNNormalization.variance", variance);
}

void NormalizationState::did_read(MPSKernel *kernel) {
  CNNKernelState::did_read(kernel);
  set_epsilon(epsilon);
  if (!groups_fit())
    raise_for(*this, @"The archive holds a number of groups (%lu) that does not belong to %lu channels.",
              (unsigned long)groups, (unsigned long)channels);
  if (!gamma || !beta || !mean != !variance || (mean && !has_statistics()))
    raise_for(*this, @"The archive lacks gamma, beta, or one of mean and variance.");
  if (fused.descriptor) {
    fused.did_read(*this);
    fused.check_channels(*this, channels);
  }
}

void NormalizationState::did_copy(id<OpenMPSDevice> target) {
  const bool moves = target != device.get();
  CNNKernelState::did_copy(target);
  data_source = Ref<id>::adopt(new_copy_of_source(data_source.get(), target));
  replaced.clear();
  if (!moves) return;
  for (Values *values : {&gamma, &beta, &mean, &variance})
    if (*values)
      read_values(*values, channels, [&](const float *floats) { *values = values_like(*this, floats, channels); });
}

Problem ImageNormalizationState::make_problem(const Encode &encode) const {
  Problem made = NormalizationState::make_problem(encode);
  if (encode.result_state == nil) return made;
  const NormalizationGradientData &data =
      normalization_data(*this, encode.result_state, state_class(), "destinationState");
  if (static_cast<std::int64_t>(data.images) < encode.src[0].n)
    raise_for(*this, @"destinationState was made for %lu images, and the source has %ld.", (unsigned long)data.images,
              (long)encode.src[0].n);
  NormalizeProblem &problem = std::get<NormalizeProblem>(made);
  problem.mean = resource_values(encode.result_state, kMean);
  problem.variance = resource_values(encode.result_state, kVariance);
  problem.exact = resource_values(encode.result_state, kExact);
  return made;
}

void ImageNormalizationState::did_encode(const Encode &encode) const {
  if (encode.result_state == nil) return;
  NormalizationGradientData &data = state_data(encode.result_state);
  data.gamma = gamma, data.beta = beta;
  data.epsilon = epsilon;
  data.known_images = static_cast<NSUInteger>(encode.src[0].n);
}

id init_normalization(MPSCNNKernel *kernel, id<MTLDevice> device, id source, MPSNNNeuronDescriptor *fused) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<NormalizationState>(kernel);
  Ref<NSString *> label;
  if (!read_source(state, source, SourceParts::all, &label)) return nil;  // unwind releases the kernel
  state.data_source = Ref<id>(source);
  if (fused != nil && [fused neuronType] != MPSCNNNeuronTypeNone) {
    state.fused.set(state, fused);
    state.fused.check_channels(state, state.channels);
  }
  if (label) [kernel setLabel:label.get()];
  return unwind.done();
}

void reload_normalization(MPSCNNKernel *kernel, id source, SourceParts parts) {
  auto &state = state_of<NormalizationState>(kernel);
  if (source == nil) raise_for(state, @"The kernel has no data source to reload from.");
  if (!read_source(state, source, parts, nullptr))
    raise_usage(@"%s: The data source did not load.", state.title.c_str());
  if (parts == SourceParts::all) state.data_source = Ref<id>(source);
}

void reload_normalization(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer,
                          MPSCNNNormalizationGammaAndBetaState *given) {
  auto &state = state_of<NormalizationState>(kernel);
  Recorder &recorder = begin_encode(state, buffer);
  if (given == nil) raise_for(state, @"gammaAndBetaState is nil.");
  [given openmps_willUseOn:buffer];
  Values gamma = copied(state, recorder, [given gamma], "gamma"), beta = copied(state, recorder, [given beta], "beta");
  replace(state, state.gamma, std::move(gamma));
  replace(state, state.beta, std::move(beta));
  [given openmps_didRead];
}

void reload_normalization(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer,
                          MPSCNNNormalizationMeanAndVarianceState *given) {
  auto &state = state_of<NormalizationState>(kernel);
  Recorder &recorder = begin_encode(state, buffer);
  if (given == nil) raise_for(state, @"meanAndVarianceState is nil.");
  [given openmps_willUseOn:buffer];
  Values mean = copied(state, recorder, [given mean], "mean"),
         variance = copied(state, recorder, [given variance], "variance");
  replace(state, state.mean, std::move(mean));
  replace(state, state.variance, std::move(variance));
  [given openmps_didRead];
}

// ------------------------------------------------------------------------------------------------- gradient states

ChannelValues resource_values(MPSState *state, NormalizationResource resource) {
  id<MTLBuffer> buffer = (id<MTLBuffer>)[state resourceAtIndex:resource allocateMemory:YES];
  ChannelValues values;
  values.memory = [buffer_of(buffer, "MPSCNNNormalization: buffer") openmps_memory];
  return values;
}

MPSState *new_normalization_state(Class kind, MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, MPSImage *source,
                                  std::unique_ptr<NormalizationGradientData> data) {
  const auto &state = state_of<NormalizationState>(kernel);
  if (buffer != nil) begin_encode(state, buffer);
  take_sources(*data, state, {&source, 1});
  state.output_channels(data->sources[0].channels);
  data->kernel = Ref<MPSCNNKernel *>(kernel);
  data->channels = state.channels, data->groups = state.groups;
  data->images = [source numberOfImages];
  data->gamma = state.gamma, data->beta = state.beta;
  data->epsilon = state.epsilon;
  const NSUInteger each = state.channels * sizeof(float);
  const NSUInteger statistics = state.groups == 0 ? each : data->images * state.groups * sizeof(float);
  MPSStateResourceList *buffers = [MPSStateResourceList resourceList];
  for (NSUInteger bytes : {statistics, statistics, each, each, statistics / sizeof(float) * 2 * sizeof(double)})
    [buffers appendBuffer:bytes];
  MPSState *made = buffer != nil ? [kind temporaryStateWithCommandBuffer:buffer resourceList:buffers]
                                 : [[[kind alloc] initWithDevice:state.device.get() resourceList:buffers] autorelease];
  [made openmps_setData:std::move(data)];
  return made;
}

NormalizationGradientData &normalization_data(const KernelState &state, MPSState *given, Class kind, const char *name) {
  if (given == nil) raise_for(state, @"%s is nil.", name);
  if (![given isKindOfClass:kind])
    raise_for(state, @"%s is an object of class %@, which is no %@.", name, [given class], kind);
  return static_cast<NormalizationGradientData &>(gradient_data(given));
}

NormalizationGradientData &normalization_data(const NormalizationState &state, MPSState *given, Class kind,
                                              const char *name) {
  NormalizationGradientData &data = normalization_data(static_cast<const KernelState &>(state), given, kind, name);
  if (data.channels != state.channels || data.groups != state.groups)
    raise_for(state, @"%s was made for %lu feature channels in %lu groups; the kernel has %lu in %lu.", name,
              (unsigned long)data.channels, (unsigned long)data.groups, (unsigned long)state.channels,
              (unsigned long)state.groups);
  return data;
}

// ------------------------------------------------------------------------------------------------ gradient kernels

void PixelGradientState::take_forward(const GradientData::Source &forward) {
  GradientKernelState::take_forward(forward);
  secondary().offset.x = secondary().offset.y = 0;
}

void PixelGradientState::check_sources() const {
  for (std::size_t i = 0; i < 2; ++i)
    if (sources[i].stride_x != 1 || sources[i].stride_y != 1)
      raise_for(*this, @"%s (%lu) and %s (%lu) are not 1.", names(i).property("strideInPixelsX").c_str(),
                (unsigned long)sources[i].stride_x, names(i).property("strideInPixelsY").c_str(),
                (unsigned long)sources[i].stride_y);
  if (primary().edge != MPSImageEdgeModeZero)
    raise_for(*this, @"primaryEdgeMode (%lu) is not MPSImageEdgeModeZero: beyond sourceGradient there is no gradient.",
              (unsigned long)primary().edge);
}

void PixelGradientState::check_encode(const Encode &, const Clip &) const { check_sources(); }

Operand PixelGradientState::incoming(const ImageView &view) const {
  Operand result = operand(primary(), view);
  result.start_h = first_row();
  result.start_w = first_column();
  return result;
}

void NormalizationGradientState::archive(Archive &archive) {
  PixelGradientState::archive(archive);
  fused.archive(archive, @"MPSCNNNormalizationGradient.fusedNeuronDescriptor");
}

void NormalizationGradientState::did_read(MPSKernel *kernel) {
  PixelGradientState::did_read(kernel);
  if (fused.descriptor) fused.did_read(*this);
}

Problem ImageNormalizationGradientState::make_problem(const Encode &encode) const {
  const NormalizationGradientData &data =
      normalization_data(static_cast<const KernelState &>(*this), encode.source_state, state_class(), "gradientState");
  const ImageView &src = encode.src[1];
  if (static_cast<std::int64_t>(data.channels) != src.c)
    raise_for(*this, @"The sources have %ld feature channels, and gradientState was made for %lu.", (long)src.c,
              (unsigned long)data.channels);
  if (static_cast<std::int64_t>(data.known_images) < src.n)
    raise_for(*this, @"gradientState holds mean and variance of %lu images, and the source has %ld.",
              (unsigned long)data.known_images, (long)src.n);
  NormalizeGradientProblem problem;
  problem.diff_dst = incoming(encode.src[0]);
  problem.src = source_operand(src);
  problem.diff_src = encode.dst;
  problem.gamma = channel_values(data.gamma);
  problem.beta = channel_values(data.beta);
  problem.groups = static_cast<std::int64_t>(data.groups);
  problem.mean = resource_values(encode.source_state, kMean);
  problem.variance = resource_values(encode.source_state, kVariance);
  problem.exact = resource_values(encode.source_state, kExact);
  problem.epsilon = data.epsilon;
  problem.neuron = fused.neuron;
  problem.diff_gamma = resource_values(encode.source_state, kGradientForGamma);
  problem.diff_beta = resource_values(encode.source_state, kGradientForBeta);
  return problem;
}

void ImageNormalizationGradientState::did_encode(const Encode &encode) const {
  state_data(encode.source_state).has_gradients = true;
}

// ------------------------------------------------------------------------------------------- states of two buffers

MPSStateResourceList *two_buffers(Class kind, NSUInteger channels) {
  if (channels < 1 || channels > kMaxChannels)
    raise_argument(@"%@: numberOfFeatureChannels (%lu) is not between 1 and %lu.", kind, (unsigned long)channels,
                   (unsigned long)kMaxChannels);
  MPSStateResourceList *list = [MPSStateResourceList resourceList];
  [list appendBuffer:channels * sizeof(float)];
  [list appendBuffer:channels * sizeof(float)];
  return list;
}

NSArray<id<MTLResource>> *two_resources(Class kind, id<MTLBuffer> first, const char *first_name, id<MTLBuffer> second,
                                        const char *second_name) {
  if (first == nil) raise_argument(@"%@: %s is nil.", kind, first_name);
  if (second == nil) raise_argument(@"%@: %s is nil.", kind, second_name);
  return [NSArray arrayWithObjects:first, second, nil];
}

}  // namespace openmps

// SPDX-License-Identifier: Apache-2.0
// MPSCNNBatchNormalization, MPSCNNInstanceNormalization and MPSCNNGroupNormalization, which take a data source, and
// MPSCNNBatchNormalizationStatistics.
#include "core/kernel/families/family.hh"

#include <algorithm>

#include <mpscnn/error.hpp>

#include "core/device/image_batch.hh"
#include "core/kernel/batch_normalization_state_impl.hh"

namespace mpscnn {
namespace {

/// Return the given data source, which provides all values, or one over the given arrays.
std::shared_ptr<NormalizationSource> source_of(const KernelRow &row, const Params &params) {
  const auto &given = params.find("gamma")->second;
  if (const auto *source = std::get_if<std::shared_ptr<NormalizationSource>>(&given)) {
    for (const char *name : {"beta", "mean", "variance", "groups", "epsilon"})
      check(!has(params, name), row.name, ": ", name, " was given together with a data source, which provides it.");
    return *source;
  }
  NormalizationArrays arrays{.gamma = std::get<ArrayView>(given),
                             .beta = array(params, "beta"),
                             .mean = array(params, "mean"),
                             .variance = array(params, "variance"),
                             .epsilon = real(params, "epsilon", 1e-5),
                             .label = text(params, "label", "")};
  check(arrays.mean.has_value() == arrays.variance.has_value(), row.name, ": ", arrays.mean ? "variance" : "mean",
        " (None) goes with ", arrays.mean ? "mean" : "variance", ", which is given.");
  if (row.is_own("groups")) {
    check(has(params, "groups"), row.name, ": groups (None) is needed with gamma in an array.");
    arrays.groups = integer(params, "groups", 1);
  }
  return normalization_arrays(row.name, std::move(arrays));
}

/// All three classes have this method.
void reload_gamma_and_beta(FamilyKernel &made, id<MTLCommandBuffer> commands, id<MTLBuffer> gamma, id<MTLBuffer> beta) {
  const auto state = Ref<MPSCNNNormalizationGammaAndBetaState *>::adopt(
      [[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:gamma beta:beta]);
  [static_cast<MPSCNNBatchNormalization *>(made.kernel.get()) reloadGammaAndBetaWithCommandBuffer:commands
                                                                                gammaAndBetaState:state.get()];
}

void reload_mean_and_variance(FamilyKernel &made, id<MTLCommandBuffer> commands, id<MTLBuffer> mean,
                              id<MTLBuffer> variance) {
  const auto state = Ref<MPSCNNNormalizationMeanAndVarianceState *>::adopt(
      [[MPSCNNNormalizationMeanAndVarianceState alloc] initWithMean:mean variance:variance]);
  [static_cast<MPSCNNBatchNormalization *>(made.kernel.get()) reloadMeanAndVarianceWithCommandBuffer:commands
                                                                                meanAndVarianceState:state.get()];
  made.has_statistics = true;
}

}  // namespace

std::shared_ptr<GuardedNormalization> normalization_of(const KernelRow &row, const Params &params) {
  GuardedNormalization::Wanted wanted{.groups = row.is_own("groups"), .statistics = row.is_own("mean")};
  if (std::holds_alternative<ArrayView>(params.find("gamma")->second)) wanted.who = row.name;
  return std::make_shared<GuardedNormalization>(source_of(row, params), wanted);
}

static FamilyKernel make_normalization(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  FamilyKernel made;
  const bool is_batch = row.is_own("mean");
  const auto source = normalization_of(row, params);
  made.source = source;
  // Load once before MPS does, to check the values: MPS would abort.
  if (!source->load()) source->rethrow();
  const auto unload = std::shared_ptr<void>(nullptr, [source](void *) { source->purge(); });
  source->keep_channels();
  const auto channels = source->channels();
  made.channels = channels;
  made.has_statistics = source->has_statistics();
  made.reload_gamma_and_beta = reload_gamma_and_beta;
  made.result_shape = [&row, channels](ImageShape shape) {
    check(shape.c == channels, row.name, ": x has ", shape.c, " channels to read; gamma has ", channels, ".");
    return shape;
  };
  made.neuron = activation(params, "activation");
  check(made.neuron.type != MPSCNNNeuronTypePReLU || static_cast<std::int64_t>(made.neuron.data.size()) == channels,
        row.name, ": activation has ", made.neuron.data.size(), " PReLU slopes for ", channels, " channels.");

  const auto values =
      Ref<PyMPSNormalizationValues *>::adopt([[PyMPSNormalizationValues alloc] initWithGuardedNormalization:source]);
  if (!is_batch) {
    // The initializers of both classes have the same selector.
    MPSCNNInstanceNormalization *kernel = [kind alloc];
    kernel = [kernel initWithDevice:device dataSource:values.get()];
    made.kernel = Ref<MPSKernel *>::adopt(kernel);
    made.state_values = {{"grad_gamma", @selector(gradientForGamma), {channels}},
                         {"grad_beta", @selector(gradientForBeta), {channels}}};
    made.read_again = [](FamilyKernel &given) {
      [static_cast<MPSCNNInstanceNormalization *>(given.kernel.get()) reloadGammaAndBetaFromDataSource];
    };
  } else {
    MPSCNNBatchNormalization *kernel = [kind alloc];
    kernel = made.neuron.type == MPSCNNNeuronTypeNone ? [kernel initWithDevice:device dataSource:values.get()]
                                                      : [kernel initWithDevice:device
                                                                       dataSource:values.get()
                                                            fusedNeuronDescriptor:objc_neuron(made.neuron)];
    made.kernel = Ref<MPSKernel *>::adopt(kernel);
    made.read_again = [source](FamilyKernel &given) {
      auto *kernel = static_cast<MPSCNNBatchNormalization *>(given.kernel.get());
      [kernel reloadGammaAndBetaFromDataSource];
      [kernel reloadMeanAndVarianceFromDataSource];
      given.has_statistics = source->has_statistics();
    };
    made.reload_mean_and_variance = reload_mean_and_variance;
    made.encode = [&row](FamilyKernel &given, id<MTLCommandBuffer> commands, MPSImage *from, MPSImage *to,
                         BatchNormalizationState *state) {
      auto *kernel = static_cast<MPSCNNBatchNormalization *>(given.kernel.get());
      if (state == nullptr) {
        check(given.has_statistics, row.name, ": the kernel has no mean and variance, and no state was given.");
        return [kernel encodeToCommandBuffer:commands sourceImage:from destinationImage:to];
      }
      auto &impl = state->impl();
      const std::scoped_lock lock(impl.mutex);
      const auto own = static_cast<std::int64_t>(kernel.numberOfFeatureChannels);
      check(impl.channels == own, row.name, ": state has ", impl.channels, " channels; gamma has ", own, ".");
      check<std::runtime_error>(impl.count > 0, row.name, ": no statistics have been encoded to state.");
      const MTLRegion clip = kernel.clipRect;
      const NSUInteger count = std::min(to.numberOfImages - clip.origin.z, clip.size.depth);
      if (count == 1 || has_states_of_several_images(kernel.device)) {
        [kernel encodeToCommandBuffer:commands
                          sourceImage:from
              batchNormalizationState:impl.state.get()
                     destinationImage:to];
      } else {
        MPSOffset offset = kernel.offset;
        const ImageBatch sources(from, static_cast<NSUInteger>(offset.z), count), results(to, clip.origin.z, count);
        offset.z = 0;
        kernel.offset = offset;
        kernel.clipRect = clip_of_single_images(clip);
        [kernel encodeBatchToCommandBuffer:commands
                              sourceImages:sources.images()
                   batchNormalizationState:impl.state.get()
                         destinationImages:results.images()];
        sources.did_read();
        kernel.clipRect = clip;
      }
      impl.is_used = true;
    };
  }
  source->rethrow();
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  return made;
}

static FamilyKernel make_batch_statistics(id<MTLDevice> device, const KernelRow &row, const Params &) {
  const Class kind = class_of(row);
  FamilyKernel made;
  MPSCNNBatchNormalizationStatistics *kernel = [kind alloc];
  kernel = [kernel initWithDevice:device];
  made.kernel = Ref<MPSKernel *>::adopt(kernel);
  check<std::runtime_error>(kernel != nil, row.name, ": the device refused the kernel.");
  made.encode = [&row](FamilyKernel &given, id<MTLCommandBuffer> commands, MPSImage *source, MPSImage *,
                       BatchNormalizationState *state) {
    auto *kernel = static_cast<MPSCNNBatchNormalizationStatistics *>(given.kernel.get());
    auto &impl = state->impl();
    const std::scoped_lock lock(impl.mutex);
    const auto channels =
        std::min(source.featureChannels - kernel.sourceFeatureChannelOffset, kernel.sourceFeatureChannelMaxCount);
    check(static_cast<std::int64_t>(channels) == impl.channels, row.name, ": x has ", channels,
          " channels to read; state has ", impl.channels, ".");
    if (impl.is_used) {
      [impl.state.get() reset];
      impl.count = 0;
      impl.is_used = impl.has_gradients = false;
    }
    const NSUInteger images = source.numberOfImages;
    if (has_states_of_several_images(kernel.device)) {
      [static_cast<id<StatisticsOfSeveralImages>>(kernel) encodeToCommandBuffer:commands
                                                                    sourceImage:source
                                                        batchNormalizationState:impl.state.get()];
    } else {
      const ImageBatch batch(source, 0, images);
      [kernel encodeBatchToCommandBuffer:commands sourceImages:batch.images() batchNormalizationState:impl.state.get()];
      batch.did_read();
    }
    impl.count += static_cast<std::int64_t>(images * source.height * source.width);
    impl.note_write(commands);
  };
  return made;
}

static FamilyKernel make_image_normalization_gradient(id<MTLDevice> device, const KernelRow &row, const FamilyKernel &,
                                                      std::size_t) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNKernel *>([kind alloc]) initWithDevice:device]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  made.needs_encoded_state = true;  // mean and variance
  made.parts = {.source = true, .parameters = true};
  made.set_parts = [](FamilyKernel &, GradientParts) {};  // always computes both
  return made;
}

namespace {

/// Return the locked state; throw unless it has statistics of the source's channels.
std::pair<BatchNormalizationState::Impl &, std::unique_lock<std::mutex>> complete(const KernelRow &row,
                                                                                  BatchNormalizationState *state,
                                                                                  MPSImage *source) {
  check<TypeError>(state != nullptr, row.name, ": state is missing.");
  auto &impl = state->impl();
  std::unique_lock lock(impl.mutex);
  const auto channels = static_cast<std::int64_t>(source.featureChannels);
  check(impl.channels == channels, row.name, ": x has ", channels, " channels; state has ", impl.channels, ".");
  check<std::runtime_error>(impl.count > 0, row.name, ": no statistics have been encoded to state.");
  return {impl, std::move(lock)};
}

}  // namespace

static FamilyKernel make_batch_normalization_gradient(id<MTLDevice> device, const KernelRow &row,
                                                      const Params &params) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.neuron = activation(params, "activation");
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNBatchNormalizationGradient *>([kind alloc])
             initWithDevice:device
      fusedNeuronDescriptor:made.neuron.type == MPSCNNNeuronTypeNone ? nil : objc_neuron(made.neuron)]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  if (!row.has_image()) {
    made.encode_gradient = [&row](FamilyKernel &given, id<MTLCommandBuffer> commands, MPSImage *gradient,
                                  MPSImage *source, MPSImage *, BatchNormalizationState *state) {
      auto [impl, lock] = complete(row, state, source);
      auto *kernel = static_cast<MPSCNNBatchNormalizationStatisticsGradient *>(given.kernel.get());
      if (has_states_of_several_images(kernel.device)) {
        [static_cast<id<StatisticsOfSeveralImages>>(kernel) encodeToCommandBuffer:commands
                                                                   sourceGradient:gradient
                                                                      sourceImage:source
                                                          batchNormalizationState:impl.state.get()];
      } else {
        const ImageBatch gradients(gradient, 0, gradient.numberOfImages), images(source, 0, source.numberOfImages);
        [kernel encodeBatchToCommandBuffer:commands
                           sourceGradients:gradients.images()
                              sourceImages:images.images()
                   batchNormalizationState:impl.state.get()];
        gradients.did_read();
        images.did_read();
      }
      impl.has_gradients = true;
      impl.note_write(commands);
    };
    return made;
  }
  made.encode_gradient = [&row](FamilyKernel &given, id<MTLCommandBuffer> commands, MPSImage *gradient,
                                MPSImage *source, MPSImage *destination, BatchNormalizationState *state) {
    auto [impl, lock] = complete(row, state, source);
    check<std::runtime_error>(impl.has_gradients, row.name,
                              ": no gradients of the statistics have been encoded to state "
                              "(BatchNormalizationStatisticsGradient).");
    auto *kernel = static_cast<MPSCNNBatchNormalizationGradient *>(given.kernel.get());
    const MTLRegion clip = kernel.clipRect;
    const NSUInteger count = std::min(destination.numberOfImages - clip.origin.z, clip.size.depth);
    if (count == 1 || has_states_of_several_images(kernel.device)) {
      [kernel encodeToCommandBuffer:commands
                     sourceGradient:gradient
                        sourceImage:source
            batchNormalizationState:impl.state.get()
                destinationGradient:destination];
    } else {
      MPSOffset primary = kernel.primaryOffset, secondary = kernel.secondaryOffset;
      const ImageBatch gradients(gradient, static_cast<NSUInteger>(primary.z), count),
          images(source, static_cast<NSUInteger>(secondary.z), count), results(destination, clip.origin.z, count);
      primary.z = secondary.z = 0;
      kernel.primaryOffset = primary;
      kernel.secondaryOffset = secondary;
      kernel.clipRect = clip_of_single_images(clip);
      [kernel encodeBatchToCommandBuffer:commands
                         sourceGradients:gradients.images()
                            sourceImages:images.images()
                 batchNormalizationState:impl.state.get()
                    destinationGradients:results.images()];
      gradients.did_read();
      images.did_read();
      kernel.clipRect = clip;
    }
    impl.is_used = true;
  };
  return made;
}

static const RegisteredFamily kNormalization("normalization", {.make = &make_normalization});
static const RegisteredFamily kBatchStatistics("batch_statistics", {.make = &make_batch_statistics});
static const RegisteredFamily kImageNormalizationGradient("image_normalization_gradient",
                                                          {.make_gradient = &make_image_normalization_gradient});
static const RegisteredFamily kBatchNormalizationGradient("batch_normalization_gradient",
                                                          {.make = &make_batch_normalization_gradient});

}  // namespace mpscnn

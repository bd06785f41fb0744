// SPDX-License-Identifier: Apache-2.0
// MPSCNNConvolution, MPSCNNConvolutionTranspose and MPSCNNFullyConnected, which take a data source.
#include "core/kernel/families/family.hh"

#include <mpscnn/error.hpp>

#include "core/kernel/convolution_params.hpp"

namespace mpscnn {
namespace {

void check_family(const KernelRow &row, const ConvolutionDescriptor &d, Pair output_padding) {
  if (row.family == "fully_connected") {
    check(d.stride == Pair{1, 1} && d.dilation == Pair{1, 1} && d.groups == 1 && !d.depthwise &&
              d.sub_pixel_scale_factor == 1,
          row.name, ": the descriptor has a stride, dilation, groups or sub_pixel_scale_factor that is not 1.");
  }
  if (row.family == "convolution_transpose") {
    check(!d.depthwise && d.sub_pixel_scale_factor == 1 && d.dilation == Pair{1, 1}, row.name,
          ": the descriptor is depth-wise, sub-pixel or dilated, which a transposed convolution cannot be.");
    check(output_padding.h < d.stride.h && output_padding.w < d.stride.w, row.name, ": output_padding (",
          output_padding.h, ", ", output_padding.w, ") is not less than stride (", d.stride.h, ", ", d.stride.w, ").");
  }
}

/// MPSCNNConvolutionTranspose and the gradients have the same method.
void read_again(FamilyKernel &given) {
  [static_cast<MPSCNNConvolution *>(given.kernel.get()) reloadWeightsAndBiasesFromDataSource];
}

}  // namespace

Extents weights_shape(const ConvolutionDescriptor &d) {
  return {d.out_channels, d.kernel_size.h, d.kernel_size.w, d.depthwise ? 1 : d.in_channels / d.groups};
}

static FamilyKernel make_convolution(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.padding = padding(params, "padding");
  made.output_padding = pair(params, "output_padding", {0, 0});
  const auto source = std::make_shared<GuardedSource>(convolution_source(row, params));
  made.source = source;
  // Load once before MPS does, to check the values: MPS would abort.
  if (!source->load()) source->rethrow();
  made.descriptor = source->descriptor();
  const auto unload = std::shared_ptr<void>(nullptr, [source](void *) { source->purge(); });
  check_family(row, *made.descriptor, made.output_padding);
  if (row.family == "convolution")
    made.window = {made.descriptor->kernel_size, made.descriptor->stride, made.descriptor->dilation};
  check(row.family != "convolution_transpose" || source->dtype() == DType::float32, row.name, ": weight.dtype (",
        name_of(source->dtype()), ") is not float32, the only type MPS takes here.");

  auto objc_source = Ref<PyMPSArrayDataSource *>::adopt([[PyMPSArrayDataSource alloc] initWithGuardedSource:source]);
  made.kernel = Ref<MPSKernel *>::adopt([[kind alloc] initWithDevice:device weights:objc_source.get()]);
  source->rethrow();
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  // float32 kernel weights require it [MPSCNNConvolution.h, kernelWeightsDataType], and the headers disagree about the
  // default. MPSCNNConvolutionTranspose has the same property.
  if ([made.kernel.get() respondsToSelector:@selector(setAccumulatorPrecisionOption:)])
    static_cast<MPSCNNConvolution *>(made.kernel.get()).accumulatorPrecisionOption =
        MPSNNConvolutionAccumulatorPrecisionOptionFloat;
  if ([made.kernel.get() respondsToSelector:@selector(reloadWeightsAndBiasesFromDataSource)])
    made.read_again = read_again;
  const ConvolutionDescriptor &d = *made.descriptor;
  made.state_values = {{"grad_weight", @selector(gradientForWeights), weights_shape(d)},
                       {"grad_bias", @selector(gradientForBiases), {d.out_channels}}};
  return made;
}

static FamilyKernel make_convolution_gradient(id<MTLDevice> device, const KernelRow &row, const FamilyKernel &forward,
                                              std::size_t) {
  const Class kind = class_of(row);
  const ConvolutionDescriptor &d = *forward.descriptor;
  check<NotImplementedError>(d.activation.type == MPSCNNNeuronTypeNone && !d.batch_norm, row.name,
                             ": the forward kernel applies an activation or batch normalization itself, which MPS does "
                             "not differentiate: give it a kernel of its own.");
  check<NotImplementedError>(d.sub_pixel_scale_factor == 1, row.name, ": sub_pixel_scale_factor (",
                             d.sub_pixel_scale_factor, ") is not 1, and MPS has no gradient of it.");
  check<NotImplementedError>(forward.source != nullptr, row.name,
                             ": the forward kernel is of an archive, which has weights and no data source.");
  FamilyKernel made;
  made.descriptor = d;
  made.source = forward.source;
  const auto &source = forward.source;
  if (!source->load()) source->rethrow();
  const auto unload = std::shared_ptr<void>(nullptr, [source](void *) { source->purge(); });
  // MPSCNNConvolutionTranspose has the same property.
  id<MPSCNNConvolutionDataSource> values = [static_cast<MPSCNNConvolution *>(forward.kernel.get()) dataSource];
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNConvolutionGradient *>([kind alloc]) initWithDevice:device
                                                                                                       weights:values]);
  source->rethrow();
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  made.read_again = read_again;
  made.parts = {.source = true, .parameters = true};
  made.set_parts = [](FamilyKernel &given, GradientParts parts) {
    static_cast<MPSCNNConvolutionGradient *>(given.kernel.get()).gradientOption =
        !parts.parameters ? MPSCNNConvolutionGradientOptionGradientWithData
        : !parts.source   ? MPSCNNConvolutionGradientOptionGradientWithWeightsAndBias
                          : MPSCNNConvolutionGradientOptionAll;
  };
  return made;
}

static const RegisteredFamily kConvolution("convolution", {.make = &make_convolution});
static const RegisteredFamily kConvolutionTranspose("convolution_transpose", {.make = &make_convolution});
static const RegisteredFamily kFullyConnected("fully_connected", {.make = &make_convolution});
static const RegisteredFamily kConvolutionGradient("convolution_gradient",
                                                   {.make_gradient = &make_convolution_gradient});

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
// MPSCNNConvolution, MPSCNNConvolutionTranspose, MPSCNNFullyConnected: all three take a data source.
#include "families/family.hh"

#include <mpscnn/error.hpp>

#include "convolution_params.hpp"

namespace mpscnn {
namespace {

void check_family(const KernelRow &row, const ConvolutionDescriptor &d, Pair output_padding) {
  if (row.family == Family::fully_connected) {
    check(d.stride == Pair{1, 1} && d.dilation == Pair{1, 1} && d.groups == 1 && !d.depthwise &&
              d.sub_pixel_scale_factor == 1,
          row.name, ": the descriptor has a stride, dilation, groups or sub_pixel_scale_factor that is not 1.");
  }
  if (row.family == Family::convolution_transpose) {
    check(!d.depthwise && d.sub_pixel_scale_factor == 1 && d.dilation == Pair{1, 1}, row.name,
          ": the descriptor is depth-wise, sub-pixel or dilated, which a transposed convolution cannot be.");
    check(output_padding.h < d.stride.h && output_padding.w < d.stride.w, row.name, ": output_padding (",
          output_padding.h, ", ", output_padding.w, ") is not less than stride (", d.stride.h, ", ", d.stride.w, ").");
  }
}

}  // namespace

Made make_convolution(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  Made made;
  made.padding = padding(params, "padding");
  made.output_padding = pair(params, "output_padding", {0, 0});
  const auto source = std::make_shared<GuardedSource>(convolution_source(row, params));
  made.source = source;
  // Loaded here once more than MPS does, so that everything is checked before MPS, which would abort, sees it.
  if (!source->load()) source->rethrow();
  made.descriptor = source->descriptor();
  const auto unload = std::shared_ptr<void>(nullptr, [source](void *) { source->purge(); });
  check_family(row, *made.descriptor, made.output_padding);
  if (row.family == Family::convolution)
    made.window = {made.descriptor->kernel_size, made.descriptor->stride, made.descriptor->dilation};
  check(row.family != Family::convolution_transpose || source->dtype() == DType::float32, row.name, ": weight.dtype (",
        name_of(source->dtype()), ") is not float32, the only type MPS takes here.");

  auto objc_source = Ref<MPSCNNArrayDataSource *>::adopt([[MPSCNNArrayDataSource alloc] initWithGuardedSource:source]);
  made.kernel = Ref<MPSKernel *>::adopt([[kind alloc] initWithDevice:device weights:objc_source.get()]);
  source->rethrow();
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  if ([made.kernel.get() respondsToSelector:@selector(reloadWeightsAndBiasesFromDataSource)])
    made.read_again = [](Made &given) {
      [static_cast<MPSCNNConvolution *>(given.kernel.get()) reloadWeightsAndBiasesFromDataSource];
    };
  return made;
}

}  // namespace mpscnn

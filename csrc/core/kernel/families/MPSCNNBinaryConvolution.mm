// SPDX-License-Identifier: Apache-2.0
// MPSCNNBinaryConvolution, MPSCNNBinaryFullyConnected.
#include "core/kernel/families/family.hh"

#include <mpscnn/error.hpp>

#include "core/kernel/convolution_params.hpp"

namespace mpscnn {
namespace {

/// Return one value per channel, with a single value broadcast to `count`; empty if absent.
std::vector<float> terms(const KernelRow &row, const Params &params, const char *name, std::int64_t count) {
  const auto given = array(params, name);
  if (!given) return {};
  auto values = to_floats(*given, say(row.name, ": ", name));
  if (values.size() == 1) values.assign(static_cast<std::size_t>(count), values[0]);
  check(static_cast<std::int64_t>(values.size()) == count, row.name, ": ", name, ".shape (", values.size(),
        ",) is not (", count, ",) or (1,).");
  return values;
}

const float *or_null(const std::vector<float> &values) { return values.empty() ? nullptr : values.data(); }

}  // namespace

static FamilyKernel make_binary_convolution(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.padding = padding(params, "padding");
  const auto source = std::make_shared<GuardedSource>(binary_source(row, params), GuardedSource::Takes::bits);
  made.source = source;
  // Load once before MPS does, to check the values: MPS would abort.
  if (!source->load()) source->rethrow();
  made.descriptor = source->descriptor();
  const auto unload = std::shared_ptr<void>(nullptr, [source](void *) { source->purge(); });
  const auto &d = *made.descriptor;
  check(d.groups == 1 && !d.depthwise && d.sub_pixel_scale_factor == 1 && !d.batch_norm, row.name,
        ": the descriptor has groups, sub_pixel_scale_factor or batch_norm, which weights of one bit cannot have.");
  if (row.shape == ShapeRule::fully_connected)
    check(d.stride == Pair{1, 1} && d.dilation == Pair{1, 1}, row.name,
          ": the descriptor has a stride or dilation that is not 1.");
  else
    made.window = {d.kernel_size, d.stride, d.dilation};

  const auto scale = terms(row, params, "scale", d.out_channels);
  const auto input_bias = terms(row, params, "input_bias", d.in_channels);
  const auto input_scale = terms(row, params, "input_scale", d.in_channels);
  const auto type = text(params, "type", "xnor");
  auto objc_source = Ref<PyMPSArrayDataSource *>::adopt([[PyMPSArrayDataSource alloc] initWithGuardedSource:source]);
  MPSCNNBinaryConvolution *kernel = [kind alloc];
  kernel = [kernel initWithDevice:device
                  convolutionData:objc_source.get()
                  outputBiasTerms:source->bias()
                 outputScaleTerms:or_null(scale)
                   inputBiasTerms:or_null(input_bias)
                  inputScaleTerms:or_null(input_scale)
                             type:type == "xnor"  ? MPSCNNBinaryConvolutionTypeXNOR
                                  : type == "and" ? MPSCNNBinaryConvolutionTypeAND
                                                  : MPSCNNBinaryConvolutionTypeBinaryWeights
                            flags:boolean(params, "beta_scaling", false) ? MPSCNNBinaryConvolutionFlagsUseBetaScaling
                                                                         : MPSCNNBinaryConvolutionFlagsNone];
  made.kernel = Ref<MPSKernel *>::adopt(kernel);
  source->rethrow();
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  return made;
}

static const RegisteredFamily kBinaryConvolution("binary_convolution", {.make = &make_binary_convolution});

}  // namespace mpscnn

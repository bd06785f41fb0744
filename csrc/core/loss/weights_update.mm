// SPDX-License-Identifier: Apache-2.0
// Weights update of a trained convolution through its data source, as in MPS's graphs.
#include <mpscnn/weights_update.hpp>

#include "core/data_source/objc_weights.hh"
#include "core/kernel/encode_checks.hh"
#include "core/kernel/gradient_state_impl.hh"
#include "core/kernel/kernel_impl.hh"
#include "core/loss/update_call.hpp"

namespace mpscnn {
namespace {

/// Return the kernel's MPS data source; throw unless it has the method.
id<MPSCNNConvolutionDataSource> source_with(const Kernel::Impl &impl, SEL method, const char *name) {
  const auto &row = *impl.row;
  check<TypeError>(row.family == "convolution_gradient" && impl.made.forward, row.name,
                   ": the kernel computes no gradients of weights.");
  // Other convolution classes have the same property.
  id<MPSCNNConvolutionDataSource> source =
      [static_cast<MPSCNNConvolution *>(impl.made.forward->impl().made.kernel.get()) dataSource];
  check<TypeError>([source respondsToSelector:method], row.name, ": the data source has no ", name, "().");
  return source;
}

/// Return the MPS state of the gradients; throw unless all are encoded and, if `finished`, computed.
Ref<MPSCNNConvolutionGradientState *> gradient_of(const Kernel::Impl &impl, const GradientState &state, bool finished) {
  const auto &name = impl.row->name;
  check_same_device(*impl.device, *state.device(), "state");
  check(state.is_of(*impl.made.forward), name, ": state is that of another ", state.maker(),
        ", not of the kernel that this is the gradient of.");
  auto &left = state.impl();
  const std::scoped_lock lock(left.mutex);
  check_complete(left, name.data(), "grad_weight", "state");
  if (finished)
    for (auto &writer : left.writers) check_written(writer, name.data());
  return Ref<MPSCNNConvolutionGradientState *>::retain(
      static_cast<MPSCNNConvolutionGradientState *>(left.distinct().front()));
}

}  // namespace

void update_weights(Kernel &gradient, const std::shared_ptr<CommandBuffer> &buffer,
                    const std::shared_ptr<GradientState> &state) {
  guard([&] {
    const auto &impl = gradient.impl();
    const SEL method = @selector(updateWithCommandBuffer:gradientState:sourceState:);
    id<MPSCNNConvolutionDataSource> source = source_with(impl, method, "update");
    check_open(*buffer, *impl.device, impl.row->name.data());
    const auto given = gradient_of(impl, *state, /*finished=*/false);
    const auto weights = impl.made.forward->export_weights(*buffer);
    UpdateCall call(buffer, state, weights);
    MPSCNNConvolutionWeightsAndBiasesState *next = [source updateWithCommandBuffer:buffer->impl().buffer.get()
                                                                     gradientState:given.get()
                                                                       sourceState:objc_weights(*weights)];
    call.rethrow();
    if (next == nil) return;
    impl.made.forward->reload(*buffer, *call.result);
    gradient.reload(*buffer, *call.result);
  });
}

void update_weights_on_cpu(Kernel &gradient, const std::shared_ptr<GradientState> &state) {
  guard([&] {
    const auto &impl = gradient.impl();
    const SEL method = @selector(updateWithGradientState:sourceState:);
    id<MPSCNNConvolutionDataSource> source = source_with(impl, method, "update_on_cpu");
    const auto given = gradient_of(impl, *state, /*finished=*/true);
    const auto buffer = CommandBuffer::make(impl.device);
    const auto weights = impl.made.forward->export_weights(*buffer);
    buffer->run();
    UpdateCall call(nullptr, state, weights);
    const BOOL changed = [source updateWithGradientState:given.get() sourceState:objc_weights(*weights)];
    call.rethrow();
    if (!changed) return;
    impl.made.forward->reload();
    gradient.reload();
  });
}

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
// One call of a data source by way of Apple's protocol, which knows MPS's objects alone: ours go beside it, as does
// what the source throws. Plain C++, since a .mm cannot catch.
#pragma once

#include <exception>
#include <memory>

#include <mpscnn/source.hpp>
#include <mpscnn/weights_update.hpp>

namespace mpscnn {

class UpdateCall {
 public:
  UpdateCall(std::shared_ptr<CommandBuffer> buffer, std::shared_ptr<GradientState> gradient,
             std::shared_ptr<ConvolutionWeightsAndBiasesState> source);
  ~UpdateCall();
  UpdateCall(const UpdateCall&) = delete;
  UpdateCall& operator=(const UpdateCall&) = delete;

  /// The innermost one of this thread; null where nobody of ours calls.
  static UpdateCall* current();

  /// Of the data source's methods. What they throw is kept.
  void update(UpdatingSource& source) noexcept;
  void update_on_cpu(UpdatingSource& source) noexcept;
  /// To be called when the method has returned: throws what was kept.
  void rethrow();

  std::shared_ptr<ConvolutionWeightsAndBiasesState> result;  ///< by update()
  bool has_changed = false;                                  ///< by update_on_cpu()

 private:
  std::shared_ptr<CommandBuffer> buffer_;
  std::shared_ptr<GradientState> gradient_;
  std::shared_ptr<ConvolutionWeightsAndBiasesState> source_;
  std::exception_ptr failure_;
  UpdateCall* outer_;
};

}  // namespace mpscnn

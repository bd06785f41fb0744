// SPDX-License-Identifier: Apache-2.0
// A call of a data source through Apple's protocol, which takes only MPS objects. Our objects and the source's
// exceptions are passed beside it. Plain C++, since a .mm cannot catch.
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

  /// Return the innermost call of this thread; null outside of one.
  static UpdateCall* current();

  /// Call the data source's method and keep its exception.
  void update(UpdatingSource& source) noexcept;
  void update_on_cpu(UpdatingSource& source) noexcept;
  /// Rethrow the kept exception, if any; to be called after the method has returned.
  void rethrow();

  std::shared_ptr<ConvolutionWeightsAndBiasesState> result;  ///< set by update()
  bool has_changed = false;                                  ///< set by update_on_cpu()

 private:
  std::shared_ptr<CommandBuffer> buffer_;
  std::shared_ptr<GradientState> gradient_;
  std::shared_ptr<ConvolutionWeightsAndBiasesState> source_;
  std::exception_ptr failure_;
  UpdateCall* outer_;
};

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
// A data source as MPS may call it: nothing is thrown into MPS's frames, the first failure is kept for the code that
// made the kernel. Plain C++, since a .mm cannot catch.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

#include <mpscnn/data_source.hpp>

namespace mpscnn {

class GuardedSource {
 public:
  /// Numbers, or words of 32 weights of one bit each.
  enum class Takes : std::uint8_t { numbers, bits };
  explicit GuardedSource(std::shared_ptr<DataSource> source, Takes takes = Takes::numbers)
      : source_(std::move(source)), takes_(takes) {}

  /// False when the source declines or throws. Reads everything MPS may ask for until purge().
  bool load() noexcept;
  void purge() noexcept;

  const ConvolutionDescriptor& descriptor() const { return descriptor_; }
  const std::shared_ptr<DataSource>& source() const { return source_; }
  const void* weights() const { return weights_.data; }
  DType dtype() const { return weights_.dtype; }
  DType kernel_dtype() const { return kernel_dtype_; }
  const float* bias() const { return bias_ ? static_cast<const float*>(bias_->data) : nullptr; }
  const float* ranges() const { return ranges_ ? static_cast<const float*>(ranges_->data) : nullptr; }
  const float* lookup_table() const { return table_ ? static_cast<const float*>(table_->data) : nullptr; }
  const std::string& label() const { return label_; }

  /// Throws what a callback threw since the last call, if any did.
  void rethrow();

 private:
  void read();

  std::shared_ptr<DataSource> source_;
  const Takes takes_;
  std::mutex mutex_;
  int loads_ = 0;
  ConvolutionDescriptor descriptor_;
  ArrayView weights_;
  std::optional<ArrayView> bias_, ranges_, table_;
  DType kernel_dtype_ = DType::float32;
  std::string label_;
  std::exception_ptr failure_;
};

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
// Data sources that MPS can call: no exception enters MPS's frames; the first failure is kept for the code that made
// the kernel. Plain C++, since a .mm cannot catch.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <mpscnn/data_source.hpp>
#include <mpscnn/normalization_source.hpp>
#include <mpscnn/watched_memory.hpp>

namespace mpscnn {

class Guarded {
 public:
  explicit Guarded(std::shared_ptr<Source> source) : source_(std::move(source)) {}
  virtual ~Guarded() = default;

  /// Read everything that MPS may request until purge(). Return false if the source declines or throws.
  bool load() noexcept;
  void purge() noexcept;

  const std::shared_ptr<Source>& source() const { return source_; }
  /// Return the weights that kernels read while they run, possibly from a mapped file; empty if they were copied.
  const MemoryRange& borrowed() const { return borrowed_; }

  /// Call another method of the source, `f`, and keep its exception. Return whether it has returned.
  bool run(const std::function<void()>& f) noexcept;
  /// Rethrow the first exception of a callback since the last call, if any.
  void rethrow();

 private:
  /// Read all values from the source; throw if they are invalid.
  virtual void read() = 0;
  /// Drop the values that were read.
  virtual void forget() = 0;
  /// Throw if MPS read pages that are no longer in the file: see WatchedMemory.
  virtual void check_read() const {}

  std::shared_ptr<Source> source_;
  std::mutex mutex_;
  int loads_ = 0;
  std::exception_ptr failure_;

 protected:
  MemoryRange borrowed_;
};

/// Guarded source of weights.
class GuardedSource final : public Guarded {
 public:
  /// Numbers, or words of 32 1-bit weights.
  enum class Takes : std::uint8_t { numbers, bits };
  explicit GuardedSource(std::shared_ptr<DataSource> source, Takes takes = Takes::numbers)
      : Guarded(source), source_(*source), takes_(takes) {}

  const ConvolutionDescriptor& descriptor() const { return descriptor_; }
  const void* weights() const { return weights_.data; }
  MemoryRange weights_memory() const { return memory_of(weights_); }
  const std::shared_ptr<void>& weights_owner() const { return weights_owner_; }
  DType dtype() const { return weights_.dtype; }
  DType kernel_dtype() const { return kernel_dtype_; }
  const float* bias() const { return bias_ ? static_cast<const float*>(bias_->data) : nullptr; }
  const float* ranges() const { return ranges_ ? static_cast<const float*>(ranges_->data) : nullptr; }
  const float* lookup_table() const { return table_ ? static_cast<const float*>(table_->data) : nullptr; }
  const std::string& label() const { return label_; }

 private:
  void read() override;
  void forget() override;
  void check_read() const override;

  DataSource& source_;
  const Takes takes_;
  ConvolutionDescriptor descriptor_;
  ArrayView weights_;
  std::shared_ptr<void> weights_owner_;
  std::optional<ArrayView> bias_, ranges_, table_;
  DType kernel_dtype_ = DType::float32;
  std::string label_;
};

/// Guarded source of normalization values. Missing values get their default, since Apple does not document NULL; only
/// beta may be NULL, and mean and variance of kernels without them.
class GuardedNormalization final : public Guarded {
 public:
  struct Wanted {
    std::string who = "data source";  ///< names the source in errors
    bool groups = false, statistics = false;
  };
  GuardedNormalization(std::shared_ptr<NormalizationSource> source, Wanted wanted)
      : Guarded(source), source_(*source), wanted_(std::move(wanted)) {}

  std::int64_t channels() const { return channels_; }
  std::int64_t groups() const { return groups_; }
  float epsilon() const { return epsilon_; }
  const float* gamma() const { return gamma_.data(); }
  const float* beta() const { return beta_ ? static_cast<const float*>(beta_->data) : nullptr; }
  const float* mean() const { return mean_.data(); }
  const float* variance() const { return variance_.data(); }
  /// Return whether the source has mean and variance.
  bool has_statistics() const { return has_statistics_; }
  const std::string& label() const { return label_; }

  /// Require the current number of channels in later loads.
  void keep_channels() { kept_channels_ = channels_; }

 private:
  /// Values of the source, or a default for each channel.
  class Values {
   public:
    void set(std::optional<ArrayView> array, std::int64_t channels, float fallback);
    void clear() { *this = {}; }
    void check_read() const {
      if (array_) check_whole(*array_);
    }
    const float* data() const { return array_ ? static_cast<const float*>(array_->data) : defaults_.data(); }

   private:
    std::optional<ArrayView> array_;
    std::vector<float> defaults_;
  };

  void read() override;
  void forget() override;
  void check_read() const override;

  NormalizationSource& source_;
  const Wanted wanted_;
  std::int64_t channels_ = 0, groups_ = 0;
  std::optional<std::int64_t> kept_channels_;
  float epsilon_ = 0;
  Values gamma_, mean_, variance_;
  std::optional<ArrayView> beta_;
  bool has_statistics_ = false;
  std::string label_;
};

}  // namespace mpscnn

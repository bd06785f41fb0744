// SPDX-License-Identifier: Apache-2.0
#include "engine/null/null_engine.hpp"

#include <atomic>
#include <cstring>

#include "engine/shared/block_allocator.hpp"
#include "engine/shared/machine.hpp"

namespace openmps {
namespace {

class NullEngine final : public Engine {
 public:
  const char* name() const override { return "null"; }
  std::string device_name() const override { return "null device"; }
  std::uint64_t working_set_limit() const override { return machine_memory_bytes(); }

  std::byte* allocate(std::size_t bytes) override {
    std::byte* data = allocator_.allocate(bytes);
    std::memset(data, 0, bytes);
    return data;
  }
  void deallocate(std::byte* data, std::size_t bytes) noexcept override { allocator_.deallocate(data, bytes); }
  std::uint64_t allocated_bytes() const override { return allocator_.used_bytes(); }
  std::uint64_t peak_bytes() const override { return allocator_.peak_bytes(); }
  void reset_peak_bytes() override { allocator_.reset_peak_bytes(); }
  std::uint64_t cached_bytes() const override { return allocator_.cached_bytes(); }
  void free_cached_bytes() override { allocator_.trim(0); }
  std::int64_t channel_stride(Format, std::int64_t channels) const override { return channels; }

  void convolve(const ConvProblem&) override {}
  void convolve_gradient(const ConvGradientProblem&) override {}
  void convolve_transpose(const TransposeProblem&) override {}
  void convolve_transpose_gradient(const TransposeGradientProblem&) override {}
  void convolve_binary(const BinaryConvProblem&) override {}
  void pool(const PoolProblem&) override {}
  void pool_gradient(const PoolGradientProblem&) override {}
  void neuron(const NeuronProblem&) override {}
  void neuron_gradient(const NeuronGradientProblem&) override {}
  void binary(const BinaryProblem&) override {}
  void binary_gradient(const BinaryGradientProblem&) override {}
  void normalize_locally(const LocalNormProblem&) override {}
  void normalize(const NormalizeProblem&) override {}
  void find_statistics(const StatisticsProblem&) override {}
  void normalize_locally_gradient(const LocalNormGradientProblem&) override {}
  void statistics_gradient(const StatisticsGradientProblem&) override {}
  void normalize_gradient(const NormalizeGradientProblem&) override {}
  void softmax(const SoftmaxProblem&) override {}
  void softmax_gradient(const SoftmaxGradientProblem&) override {}
  void reduce(const ReduceProblem&) override {}
  void resample(const ResampleProblem&) override {}
  void resample_gradient(const ResampleGradientProblem&) override {}
  void reshape(const ReshapeProblem&) override {}
  void pad(const PadProblem&) override {}
  void pad_gradient(const PadGradientProblem&) override {}
  void dropout(const DropoutProblem&) override {}
  void find_loss(const LossProblem&) override {}
  void optimize(const OptimizeProblem&) override {}
  void copy(const CopyProblem&) override {}
  void copy_buffer(const BufferCopyProblem& problem) override {
    std::memmove(problem.dst->data() + problem.dst_offset, problem.src->data() + problem.src_offset, problem.bytes);
  }
  void fill_buffer(const BufferFillProblem& problem) override {
    std::memset(problem.dst->data() + problem.offset, problem.value, problem.bytes);
  }
  void synchronize() override {}

 private:
  BlockAllocator allocator_{machine_memory_bytes(), 64u << 20};
};

}  // namespace

std::shared_ptr<Engine> make_null_engine() { return std::make_shared<NullEngine>(); }

}  // namespace openmps

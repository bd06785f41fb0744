// SPDX-License-Identifier: Apache-2.0
#include "engine/onednn/onednn_engine.hpp"

#include "engine/onednn/binary_conv.hpp"
#include "engine/onednn/conv_gradient.hpp"
#include "engine/onednn/convolution.hpp"
#include "engine/onednn/elementwise.hpp"
#include "engine/onednn/local_norm.hpp"
#include "engine/onednn/loss.hpp"
#include "engine/onednn/normalization.hpp"
#include "engine/onednn/normalization_gradient.hpp"
#include "engine/onednn/optimize.hpp"
#include "engine/onednn/pointwise.hpp"
#include "engine/onednn/pooling.hpp"
#include "engine/onednn/pooling_gradient.hpp"
#include "engine/onednn/reduce.hpp"
#include "engine/onednn/resample.hpp"
#include "engine/onednn/resample_gradient.hpp"
#include "engine/onednn/reshape.hpp"
#include "engine/onednn/runtime.hpp"
#include "engine/onednn/softmax.hpp"
#include "engine/shared/machine.hpp"

namespace openmps {
namespace {

class OneDnnEngine final : public Engine {
 public:
  OneDnnEngine() { onednn::keep_statics(); }

  const char* name() const override { return "onednn"; }
  std::string device_name() const override { return machine_cpu_name() + " (oneDNN " + onednn::version() + ")"; }
  std::uint64_t working_set_limit() const override { return machine_memory_bytes(); }

  std::byte* allocate(std::size_t bytes) override { return onednn::blocks().allocate(bytes); }
  void deallocate(std::byte* data, std::size_t bytes) noexcept override { onednn::blocks().deallocate(data, bytes); }
  std::uint64_t allocated_bytes() const override { return onednn::blocks().used_bytes(); }
  std::uint64_t peak_bytes() const override { return onednn::blocks().peak_bytes(); }
  void reset_peak_bytes() override { onednn::blocks().reset_peak_bytes(); }
  std::uint64_t cached_bytes() const override { return onednn::blocks().cached_bytes(); }
  void free_cached_bytes() override { onednn::blocks().trim(0); }
  std::int64_t channel_stride(Format, std::int64_t channels) const override { return channels; }

  void convolve(const ConvProblem& problem) override { onednn::convolve(problem); }
  void convolve_gradient(const ConvGradientProblem& problem) override { onednn::convolve_gradient(problem); }
  void convolve_transpose(const TransposeProblem& problem) override { onednn::convolve_transpose(problem); }
  void convolve_transpose_gradient(const TransposeGradientProblem& problem) override {
    onednn::convolve_transpose_gradient(problem);
  }
  void convolve_binary(const BinaryConvProblem& problem) override { onednn::convolve_binary(problem); }
  void pool(const PoolProblem& problem) override { onednn::pool(problem); }
  void pool_gradient(const PoolGradientProblem& problem) override { onednn::pool_gradient(problem); }
  void neuron(const NeuronProblem& problem) override {
    onednn::activate(tensor_of(problem.src), tensor_of(problem.dst), problem.neuron);
  }
  void neuron_gradient(const NeuronGradientProblem& problem) override { onednn::neuron_gradient(problem); }
  void binary(const BinaryProblem& problem) override { onednn::binary(problem); }
  void binary_gradient(const BinaryGradientProblem& problem) override { onednn::binary_gradient(problem); }
  void normalize_locally(const LocalNormProblem& problem) override { onednn::normalize_locally(problem); }
  void normalize(const NormalizeProblem& problem) override { onednn::normalize(problem); }
  void find_statistics(const StatisticsProblem& problem) override { onednn::find_statistics(problem); }
  void normalize_locally_gradient(const LocalNormGradientProblem& problem) override {
    onednn::normalize_locally_gradient(problem);
  }
  void statistics_gradient(const StatisticsGradientProblem& problem) override { onednn::statistics_gradient(problem); }
  void normalize_gradient(const NormalizeGradientProblem& problem) override { onednn::normalize_gradient(problem); }
  void softmax(const SoftmaxProblem& problem) override { onednn::softmax(problem); }
  void softmax_gradient(const SoftmaxGradientProblem& problem) override { onednn::softmax_gradient(problem); }
  void reduce(const ReduceProblem& problem) override { onednn::reduce(problem); }
  void resample(const ResampleProblem& problem) override { onednn::resample(problem); }
  void resample_gradient(const ResampleGradientProblem& problem) override { onednn::resample_gradient(problem); }
  void reshape(const ReshapeProblem& problem) override { onednn::reshape(problem); }
  void pad(const PadProblem& problem) override { onednn::pad(problem); }
  void pad_gradient(const PadGradientProblem& problem) override { onednn::pad_gradient(problem); }
  void dropout(const DropoutProblem& problem) override { onednn::dropout(problem); }
  void find_loss(const LossProblem& problem) override { onednn::find_loss(problem); }
  void optimize(const OptimizeProblem& problem) override { onednn::optimize(problem); }
  void copy(const CopyProblem& problem) override { onednn::copy(tensor_of(problem.src), tensor_of(problem.dst)); }
  void copy_buffer(const BufferCopyProblem& problem) override {
    onednn::copy_bytes(problem.src->data() + problem.src_offset, problem.dst->data() + problem.dst_offset,
                       problem.bytes);
  }
  void fill_buffer(const BufferFillProblem& problem) override {
    onednn::fill_bytes(problem.dst->data() + problem.offset, problem.value, problem.bytes);
  }
  void synchronize() override {}
};

}  // namespace

std::shared_ptr<Engine> make_onednn_engine() { return std::make_shared<OneDnnEngine>(); }

}  // namespace openmps

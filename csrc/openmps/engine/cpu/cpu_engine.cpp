// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/cpu_engine.hpp"

#include <algorithm>
#include <type_traits>

#include "engine/cpu/convolution/bands.hpp"
#include "engine/cpu/convolution/binary_conv.hpp"
#include "engine/cpu/convolution/conv_gradient.hpp"
#include "engine/cpu/convolution/conv_pool.hpp"
#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/convolution/gated.hpp"
#include "engine/cpu/convolution/separable.hpp"
#include "engine/cpu/function/function.hpp"
#include "engine/cpu/loss/loss.hpp"
#include "engine/cpu/normalization/lrn.hpp"
#include "engine/cpu/normalization/normalization.hpp"
#include "engine/cpu/normalization/normalization_gradient.hpp"
#include "engine/cpu/normalization/sums.hpp"
#include "engine/cpu/optimizer/optimize.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/pointwise/pointwise.hpp"
#include "engine/cpu/pooling/pooling.hpp"
#include "engine/cpu/pooling/pooling_gradient.hpp"
#include "engine/cpu/product/product.hpp"
#include "engine/cpu/quantized/quantized.hpp"
#include "engine/cpu/random/random.hpp"
#include "engine/cpu/reduction/reduce.hpp"
#include "engine/cpu/resampling/resample.hpp"
#include "engine/cpu/resampling/resample_gradient.hpp"
#include "engine/cpu/reshape/reshape.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/cpu/softmax/softmax.hpp"
#include "engine/problem/problem.hpp"
#include "engine/shared/machine.hpp"
#include "engine/shared/subnormals.hpp"

namespace openmps {
namespace {

/// Whether a problem's results are sums of products: a term that is subnormal, or has such a factor, hardly changes
/// them.
template <class Each>
constexpr bool kSumsProducts =
    std::is_same_v<Each, ConvProblem> || std::is_same_v<Each, ConvGradientProblem> ||
    std::is_same_v<Each, TransposeProblem> || std::is_same_v<Each, TransposeGradientProblem> ||
    std::is_same_v<Each, ConvPoolProblem> || std::is_same_v<Each, ProductProblem>;

struct Nothing {};

class CpuEngine final : public Engine {
 public:
  const char* name() const override { return "cpu"; }
  std::string device_name() const override { return machine_cpu_name() + " (oneDNN " + cpu::onednn_version() + ")"; }
  std::uint64_t working_set_limit() const override { return machine_memory_bytes(); }

  std::byte* allocate(std::size_t bytes, Storage) override { return cpu::blocks().allocate(bytes); }
  void deallocate(std::byte* data, std::size_t bytes, Storage) noexcept override {
    cpu::blocks().deallocate(data, bytes);
  }
  MemoryUse memory_use() const override { return memory_use_of(cpu::blocks()); }
  void reset_peak_bytes() override { cpu::blocks().reset_peak_bytes(); }
  void free_cached_bytes() override { cpu::blocks().trim(0); }

  bool try_run(const Problem& problem) override {
    std::visit(
        [](const auto& each) {
          using Each = std::decay_t<decltype(each)>;
          if constexpr (Described<Each>) {
            [[maybe_unused]] const std::conditional_t<kSumsProducts<Each>, ZeroSubnormals, Nothing> zero{};
            cpu::run(each);
          }
        },
        problem);
    return true;
  }
  void synchronize() override {}
  using Engine::fuses;
  bool fuses(const NormalizeProblem&) const override { return true; }
  bool fuses(const NormalizeAddProblem& problem) const override { return cpu::fuses(problem); }
  bool fuses(const MaskedSumProblem& problem) const override { return cpu::fuses(problem); }
  bool fuses(const MaskedSumMomentsProblem& problem) const override { return cpu::fuses(problem); }
  bool sums_pixels() const override { return true; }
  bool recomputes() const override { return true; }
  bool masks_by_results() const override { return true; }
  bool narrows() const override { return cpu::multiplies_bfloat16(); }
  bool quantizes() const override { return cpu::multiplies_bytes(); }
  bool computes_on_threads() const override { return true; }
  bool keeps_lists() const override { return true; }
  bool moves_operands() const override { return true; }
  bool may_group(const Problem& first) const override {
    return std::holds_alternative<ConvProblem>(first) || cpu::may_gate(first);
  }
  StepGroup group(const std::function<const Problem*(std::size_t)>& problem,
                  const std::function<bool(const ImageView&, std::size_t)>& ends) const override {
    const std::size_t count = std::max(cpu::chain_length(problem, ends), cpu::gated_length(problem, ends));
    if (count > 1) return {count};
    return {cpu::bands_length(problem, ends), false};
  }
  bool try_run_group(std::span<const Problem* const> problems) override {
    const ZeroSubnormals zero;
    return cpu::try_chain(problems) || cpu::try_gated(problems) || cpu::try_bands(problems);
  }
};

}  // namespace

std::shared_ptr<Engine> make_cpu_engine() { return std::make_shared<CpuEngine>(); }

}  // namespace openmps

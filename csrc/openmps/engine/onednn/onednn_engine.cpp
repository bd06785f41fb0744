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

  bool try_run(const Problem& problem) override {
    std::visit(
        [](const auto& each) {
          if constexpr (Described<std::decay_t<decltype(each)>>) onednn::run(each);
        },
        problem);
    return true;
  }
  void synchronize() override {}
};

}  // namespace

std::shared_ptr<Engine> make_onednn_engine() { return std::make_shared<OneDnnEngine>(); }

}  // namespace openmps

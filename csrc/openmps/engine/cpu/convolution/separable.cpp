// SPDX-License-Identifier: Apache-2.0
// Chains of convolutions in one pass: a convolution of one pixel that expands the channels, a depth-wise
// one, and one of one pixel that projects them; the first or the last may be missing. The images between them stay in
// the second-level cache.
#include "engine/cpu/convolution/separable.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/cpu/choices.hpp"
#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/convolution/depthwise_rows.hpp"
#include "engine/cpu/convolution/pointwise_kernels.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/problem/print.hpp"
#include "engine/problem/problem.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

namespace {

using pointwise::i64;

/// Return the pixels of a row of an image.
template <class Value>
Value* row_of(const Tensor& image, i64 n, i64 y) {
  return reinterpret_cast<Value*>(image.at(n, y));
}

constexpr i64 kGrain = 64 * 1024;            // min multiplications per thread
constexpr i64 kStripPixels = 112;            // min pixels of a strip: each reads all weights
constexpr i64 kPanelBytes = 256 * 1024;      // max size of an expanded panel of an image
constexpr i64 kStripBytes = 384 * 1024;      // max size of the expanded rows of a strip, if it has more than one row
constexpr i64 kRingBytes = 2 * 1024 * 1024;  // max size of the expanded rows of a strip of one row
constexpr i64 kMinRowsOfWindow = 4;          // rows of a thread's part per row that two parts both expand

bool is_depthwise(const ConvProblem& conv) {
  const ConvWeights& weights = *conv.weights;
  const Window& w = conv.window;
  return weights.in_channels_per_group == 1 && weights.groups == weights.out_channels && weights.groups > 1 &&
         conv.subpixel <= 1 && w.kernel_h == w.kernel_w && (w.kernel_h == 3 || w.kernel_h == 5) &&
         w.stride_h == w.stride_w && w.stride_h <= 2 && w.dilation_h == 1 && w.dilation_w == 1 && w.edge == Edge::zero;
}

/// The convolutions of a chain; null if missing.
struct Chain {
  const ConvProblem *expand = nullptr, *depthwise = nullptr, *project = nullptr;

  std::size_t length() const { return std::size_t{1} + (expand != nullptr) + (project != nullptr); }
};

/// Return a chain of at least two convolutions, without looking at the readers of the images between them.
template <class ProblemAt>
std::optional<Chain> chain_of(const ProblemAt& problem) {
  const auto conv_at = [&](std::size_t i) -> const ConvProblem* {
    const Problem* const found = problem(i);
    return found ? std::get_if<ConvProblem>(found) : nullptr;
  };
  Chain chain;
  const ConvProblem* first = conv_at(0);
  if (!first || !pointwise::may_be_fused(*first) || first->addend.memory) return std::nullopt;
  std::size_t next = 1;
  if (pointwise::is_one_pixel(*first)) {
    chain.expand = first, chain.depthwise = conv_at(next++);
    if (!chain.depthwise || !pointwise::same_pixels(chain.depthwise->src, first->dst)) return std::nullopt;
  } else {
    chain.depthwise = first;
  }
  const ConvProblem& depthwise = *chain.depthwise;
  if (!is_depthwise(depthwise) || !pointwise::may_be_fused(depthwise) || depthwise.addend.memory) return std::nullopt;
  const ConvProblem* const last = conv_at(next);
  if (last && pointwise::may_fuse(*last) && pointwise::same_pixels(last->src, depthwise.dst) &&
      last->addend.memory != depthwise.dst.memory && (!chain.expand || last->addend.memory != chain.expand->dst.memory))
    chain.project = last;
  if (chain.length() == 1) return std::nullopt;
  return chain;
}

namespace with_avx512 {
namespace windows = depthwise::with_avx512;
namespace products = pointwise::with_avx512;
}  // namespace with_avx512
namespace with_avx2 {
namespace windows = depthwise::with_avx2;
namespace products = pointwise::with_avx2;
}  // namespace with_avx2
#define MPSCNN_LOOPS "engine/cpu/convolution/separable.inc"
#include "engine/cpu/pointwise/vector_copies.inc"

const char* separable(const Chain& chain) {
  bool are_floats = true, are_bfloats = true, are_even = true;
  for (const ConvProblem* const conv : {chain.expand, chain.depthwise, chain.project}) {
    if (!conv) continue;
    const bool is_source = conv == chain.depthwise ? !chain.expand : conv == chain.expand;
    const bool is_result = conv == chain.depthwise ? !chain.project : conv == chain.project;
    if (is_source)
      are_floats &= conv->src.format == Format::float32, are_bfloats &= conv->src.format == Format::bfloat16;
    if (is_result)
      are_floats &= conv->dst.format == Format::float32, are_bfloats &= conv->dst.format == Format::bfloat16;
    if (conv != chain.depthwise) are_even &= conv->weights->in_channels_per_group % 2 == 0;
    are_floats &= !(conv->reduced_precision && multiplies_bfloat16());
  }
  if (are_floats) return has_avx512() ? with_avx512::in_one_pass<float>(chain) : with_avx2::in_one_pass<float>(chain);
  if (!are_bfloats) return "products and images are of several formats";
  if (!are_even) return "an odd number of inputs";
  return with_avx512::in_one_pass<std::uint16_t>(chain);
}

const char* one_by_one(const Chain& chain) {
  for (const ConvProblem* const conv : {chain.expand, chain.depthwise, chain.project})
    if (conv) run(*conv);
  return nullptr;
}

constexpr Implementation<Chain> kChains[] = {
    {"separable", separable},
    {"one_by_one", one_by_one},
};
const ImplementationNames kChainsNames(kChains);

template <class Visit>
void for_each_convolution(const Chain& chain, const Visit& visit) {
  for (const ConvProblem* const conv : {chain.expand, chain.depthwise, chain.project})
    if (conv) visit(*conv);
}

Digest digest_of_chain(const Chain& chain) {
  Digest digest;
  for_each_convolution(chain, [&](const ConvProblem& conv) {
    const Digest part = digest_of(conv);
    digest.add({static_cast<std::int64_t>(part.first), static_cast<std::int64_t>(part.second)});
  });
  return digest;
}

/// Run the chain in one pass or one by one, if it can be run in one pass.
void time_chain(const Chain& chain) {
  const Digest digest = digest_of_chain(chain);
  const auto& [together, apart] = kChains;
  if (!choices::is_known(digest)) {
    if (together.run(chain)) {
      apart.run(chain);
      return;
    }
    std::vector<Digest> parts;
    std::string description;
    for_each_convolution(chain, [&](const ConvProblem& conv) {
      parts.push_back(digest_of(conv));
      description += (description.empty() ? "" : "; ") + description_of(conv);
    });
    choices::add_group(digest, "chain", description, together.name, apart.name, parts);
    return;
  }
  const bool is_together = choices::current(digest) == together.name;
  const double begin = choices::now();
  if (is_together && !together.run(chain))
    choices::record(digest, together.name, choices::now() - begin);
  else
    apart.run(chain);  // which times its parts
}

}  // namespace

std::size_t chain_length(const std::function<const Problem*(std::size_t)>& problem,
                         const std::function<bool(const ImageView&, std::size_t)>& ends) {
  if (!has_avx512() && !has_avx2()) return 1;
  std::optional<Chain> chain = chain_of(problem);
  if (!chain) return 1;
  if (chain->project && !ends(chain->depthwise->dst, chain->length())) chain->project = nullptr;
  if (chain->expand && !ends(chain->expand->dst, chain->length())) return 1;
  return chain->length();
}

bool try_chain(std::span<const Problem* const> problems) {
  const auto chain = chain_of([&](std::size_t i) { return i < problems.size() ? problems[i] : nullptr; });
  if (!chain || chain->length() != problems.size()) return false;
  for (const Problem* const problem : problems) trace_problem(*problem);
  if (choices::are_asked()) {
    if (choices::are_timed()) return time_chain(*chain), true;
    if (const char* const name = choices::find(digest_of_chain(*chain));
        name && name == std::string_view("one_by_one")) {
      trace_dispatch("chain, chosen by times", name, nullptr);
      one_by_one(*chain);
      return true;
    }
  }
  run_first("chain", kChains, *chain);
  return true;
}

#else

std::size_t chain_length(const std::function<const Problem*(std::size_t)>&,
                         const std::function<bool(const ImageView&, std::size_t)>&) {
  return 1;
}
bool try_chain(std::span<const Problem* const>) { return false; }

#endif

}  // namespace openmps::cpu

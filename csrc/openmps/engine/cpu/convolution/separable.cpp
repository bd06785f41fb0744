// SPDX-License-Identifier: Apache-2.0
// Chains of convolutions in one pass, for AVX-512: a convolution of one pixel that expands the channels, a depth-wise
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

using pointwise::i64, pointwise::kLanes, pointwise::is_one_row;

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

/// Arguments of a chain, whose images have this type. Expanded rows are of float32, for which the depth-wise
/// convolution needs no conversion.
template <class Value>
struct ChainCall {
  const Chain& chain;
  Tensor src, dst;
  Activation after_expand, after_depthwise, after_project, after_sum;
  Tensor addend = {};
  int threads = 1;
  std::shared_ptr<const pointwise::Panels<Value>> expand, project;
  std::shared_ptr<const depthwise::PackedFilters> filters;

  explicit ChainCall(const Chain& of)
      : chain(of),
        src(tensor_of((of.expand ? of.expand : of.depthwise)->src)),
        dst(tensor_of((of.project ? of.project : of.depthwise)->dst)) {
    after_depthwise = *activation_of(of.depthwise->neuron);
    i64 work = hidden() * window().kernel_h * window().kernel_w * result_pixels();
    if (of.expand) {
      after_expand = *activation_of(of.expand->neuron);
      work += src.size() * hidden();
    }
    if (of.project) {
      after_project = *activation_of(of.project->neuron);
      if (of.project->addend.memory) {
        addend = tensor_of(of.project->addend);
        after_sum = *activation_of(of.project->after);
      }
      work += dst.size() * hidden();
    }
    threads = threads_for(work, kGrain);
  }

  /// Pack the weights, which may have been packed before.
  void pack() {
    using Packed = pointwise::Panels<Value>;
    if (chain.expand) expand = Packed::of(*chain.expand->weights);
    if (chain.project) project = Packed::of(*chain.project->weights);
    filters = depthwise::PackedFilters::of(*chain.depthwise->weights);
  }

  const Window& window() const { return chain.depthwise->window; }
  i64 hidden() const { return chain.depthwise->src.c; }
  i64 vectors() const { return (hidden() + kLanes - 1) / kLanes; }
  i64 padded() const { return vectors() * kLanes; }  ///< hidden channels
  i64 width() const { return chain.depthwise->dst.w; }
  i64 result_pixels() const { return dst.n * dst.h * dst.w; }
};

/// Expand some pixels of adjacent rows for one panel.
template <class Value>
void expand_pixels(const ChainCall<Value>& call, i64 panel, i64 n, i64 row, i64 rows, float* to) {
  pointwise::BlockCall<Value, float> block;
  block.src = row_of<Value>(call.src, n, row), block.src_step = call.src.w_stride, block.inputs = call.src.c;
  block.panel = call.expand->panel(panel), block.bias = call.expand->bias(panel);
  block.dst = to, block.dst_step = call.expand->width(panel) * kLanes, block.outputs = block.dst_step;
  block.activation = &call.after_expand;
  pointwise::panel_results(block, call.expand->width(panel), rows * call.src.w);
}

/// Compute a row of the depth-wise convolution for some vectors of channels. `source(y)`: row y of the source at the
/// first of these channels, whose pixels are `step` apart.
template <int kernel, int stride, class Value, class Source>
void depthwise_row(const ChainCall<Value>& call, i64 y, i64 first, i64 count, const Source& source, i64 step,
                   Value* dst, i64 dst_step, i64 channels) {
  const Window& w = call.window();
  constexpr i64 taps = kernel * kernel;
  depthwise::RowCall<kernel, std::remove_cvref_t<decltype(*source(0))>, Value> row;
  row.step = step, row.columns = call.src.w, row.dst_step = dst_step, row.activation = &call.after_depthwise;
  for (i64 v = 0; v < count; ++v) {
    for (i64 p = 0; p < kernel; ++p) {
      const i64 at = w.start_h + y * stride + p;
      row.rows[static_cast<std::size_t>(p)] = at < 0 || at >= call.src.h ? nullptr : source(at) + v * kLanes;
    }
    const i64 channel = (first + v) * kLanes, left = channels - channel;
    row.taps = call.filters->taps.data() + (first + v) * taps * kLanes, row.bias = call.filters->bias.data() + channel;
    row.lanes = static_cast<__mmask16>(left >= kLanes ? 0xffff : (1 << left) - 1);
    row.dst = dst + channel;
    depthwise::row_results<kernel, stride>(row, w.start_w, call.width());
  }
}

/// Project the pixels of some rows of the result, which were convolved to `from`.
template <class Value>
void project_rows(const ChainCall<Value>& call, i64 n, i64 y, i64 rows, const Value* from) {
  for (i64 panel = 0; panel < call.project->panels; ++panel) {
    const i64 first = call.project->first(panel) * kLanes;
    pointwise::BlockCall<Value> block;
    block.src = from, block.src_step = call.padded(), block.inputs = call.hidden();
    block.panel = call.project->panel(panel), block.bias = call.project->bias(panel);
    block.dst = row_of<Value>(call.dst, n, y) + first, block.dst_step = call.dst.w_stride,
    block.outputs = call.dst.c - first;
    block.activation = &call.after_project;
    if (call.addend.data) {
      block.addend = row_of<Value>(call.addend, n, y) + first, block.addend_step = call.addend.w_stride;
      block.after = &call.after_sum;
    }
    pointwise::panel_results(block, call.project->width(panel), rows * call.dst.w);
  }
}

/// Memory of a thread: a ring of expanded rows, by panels, and the rows of a strip after the depth-wise convolution.
struct Strips {
  i64 rows, ring;                   ///< of a strip; of the ring
  i64 expanded = 0, convolved = 0;  ///< bytes

  template <class Value>
  explicit Strips(const ChainCall<Value>& call) {
    const Window& w = call.window();
    const i64 row_bytes = call.src.w * call.padded() * static_cast<i64>(sizeof(float));
    const i64 fitting = (kStripBytes / row_bytes - w.kernel_h) / w.stride_h + 1;
    rows = std::clamp<i64>((kStripPixels + call.width() - 1) / call.width(), 1, std::max<i64>(1, fitting));
    rows = std::min(rows, call.dst.h);
    ring = (rows - 1) * w.stride_h + w.kernel_h;
    if (call.chain.expand) expanded = ring * row_bytes;
    if (call.chain.project) convolved = rows * call.width() * call.padded() * static_cast<i64>(sizeof(Value));
  }
  i64 bytes() const { return expanded + convolved; }
};

/// Compute the rows [begin, end) of the results of one image, strip by strip.
template <int kernel, int stride, class Value>
void run_strips(const ChainCall<Value>& call, const Strips& strips, std::byte* memory, i64 n, i64 begin, i64 end) {
  const Window& w = call.window();
  Value* const convolved = reinterpret_cast<Value*>(memory + strips.expanded);
  const bool projects = call.chain.project != nullptr;
  const i64 dst_step = projects ? call.padded() : call.dst.w_stride,
            channels = projects ? call.padded() : call.hidden();
  i64 expanded = std::max<i64>(0, w.start_h + begin * stride);  // rows before this one are in the ring, or not needed
  for (i64 y = begin; y < end; y += strips.rows) {
    const i64 rows = std::min(strips.rows, end - y);
    const i64 needed = std::min(call.src.h, w.start_h + (y + rows - 1) * stride + kernel);
    const auto dst_row = [&](i64 row) {
      return projects ? convolved + (row - y) * call.width() * call.padded() : row_of<Value>(call.dst, n, row);
    };
    if (call.chain.expand) {
      for (i64 panel = 0; panel < call.expand->panels; ++panel) {
        const i64 first = call.expand->first(panel), width = call.expand->width(panel), step = width * kLanes;
        float* const ring = reinterpret_cast<float*>(memory) + first * kLanes * strips.ring * call.src.w;
        const auto ring_row = [&](i64 row) { return ring + row % strips.ring * call.src.w * step; };
        for (i64 row = expanded; row < needed;) {
          const i64 count = std::min(needed - row, strips.ring - row % strips.ring);
          expand_pixels(call, panel, n, row, count, ring_row(row));
          row += count;
        }
        for (i64 row = y; row < y + rows; ++row)
          depthwise_row<kernel, stride>(call, row, first, width, ring_row, step, dst_row(row), dst_step, channels);
      }
      expanded = std::max(expanded, needed);
    } else {
      for (i64 row = y; row < y + rows; ++row)
        for (i64 v = 0; v < call.vectors(); ++v) {
          const auto source = [&](i64 at) { return row_of<const Value>(call.src, n, at) + v * kLanes; };
          depthwise_row<kernel, stride>(call, row, v, 1, source, call.src.w_stride, dst_row(row), dst_step, channels);
        }
    }
    if (projects) project_rows(call, n, y, rows, convolved);
  }
}

/// Threads have rows of results. Neighbours both expand the rows that their windows share.
template <int kernel, int stride, class Value>
void by_rows(const ChainCall<Value>& call) {
  const Strips strips(call);
  const Scratch memory(static_cast<std::uint64_t>(call.threads * strips.bytes()));
  parallel_ranges(call.dst.n * call.dst.h, call.threads, [&](i64 begin, i64 end) {
    std::byte* const own = memory.data() + thread_number() * strips.bytes();
    while (begin < end) {
      const i64 n = begin / call.dst.h, y = begin % call.dst.h, count = std::min(end - begin, call.dst.h - y);
      run_strips<kernel, stride>(call, strips, own, n, y, y + count);
      begin += count;
    }
  });
}

/// Threads have panels of hidden channels; then, if the chain has a projection, chunks of its results.
template <int kernel, int stride, class Value>
void by_channels(const ChainCall<Value>& call) {
  const i64 pixels = call.dst.n * call.dst.h * call.width();
  const i64 panel_floats = call.src.h * call.src.w * pointwise::kVectors * kLanes;
  const bool projects = call.chain.project != nullptr;
  const i64 step = projects ? call.padded() : call.dst.w_stride, channels = projects ? call.padded() : call.hidden();
  const i64 panels_bytes = call.threads * panel_floats * static_cast<i64>(sizeof(float));
  const i64 between_bytes = projects ? pixels * step * static_cast<i64>(sizeof(Value)) : 0;
  const Scratch memory(static_cast<std::uint64_t>(panels_bytes + between_bytes));
  Value* const between = reinterpret_cast<Value*>(memory.data() + panels_bytes);
  const i64 panels = call.expand->panels;
  parallel_ranges(call.dst.n * panels, call.threads, [&](i64 begin, i64 end) {
    float* const own = reinterpret_cast<float*>(memory.data()) + thread_number() * panel_floats;
    for (i64 task = begin; task < end; ++task) {
      const i64 n = task / panels, panel = task % panels;
      const i64 first = call.expand->first(panel), width = call.expand->width(panel);
      expand_pixels(call, panel, n, 0, call.src.h, own);
      const auto source = [&](i64 at) { return own + at * call.src.w * width * kLanes; };
      for (i64 y = 0; y < call.chain.depthwise->dst.h; ++y) {
        Value* const dst =
            projects ? between + (n * call.dst.h + y) * call.width() * step : row_of<Value>(call.dst, n, y);
        depthwise_row<kernel, stride>(call, y, first, width, source, width * kLanes, dst, step, channels);
      }
    }
  });
  if (!projects) return;
  const ConvProblem& conv = *call.chain.project;
  ConvCall project = {dense_tensor(between, call.dst.format, call.dst.n, call.dst.h, call.width(), step),
                      call.dst,
                      conv.weights.get(),
                      conv.window,
                      &conv.neuron,
                      false};
  project.src.c = call.hidden(), project.addend = call.addend;
  pointwise::convolve(project, *call.project, call.after_project, call.after_sum);
}

template <class Value>
using Run = void (*)(const ChainCall<Value>& call);

template <int kernel, int stride, class Value>
Run<Value> way_of(const ChainCall<Value>& call) {
  // Each thread's part expands the rows of the windows at its ends, too.
  const i64 rows = call.dst.n * call.dst.h / call.threads * stride;
  if (call.dst.n >= call.threads || !call.chain.expand || rows >= kMinRowsOfWindow * (kernel - 1))
    return by_rows<kernel, stride, Value>;
  const i64 panel_bytes = call.src.h * call.src.w * pointwise::kVectors * kLanes * static_cast<i64>(sizeof(float));
  return panel_bytes <= kPanelBytes ? by_channels<kernel, stride, Value> : nullptr;
}

template <class Value>
const char* in_one_pass(const Chain& chain) {
  ChainCall<Value> call(chain);
  if (!is_one_row(call.src) || !is_one_row(call.dst)) return "gaps between rows";
  if (call.addend.data && !is_one_row(call.addend)) return "gaps between rows of the addend";
  // Other threads read rows of the source later.
  if (pointwise::overlap(call.src, call.dst)) return "the result overlaps the source";
  const bool is_strided = call.window().stride_h == 2, is_small = call.window().kernel_h == 3;
  const Run<Value> run = is_small ? (is_strided ? way_of<3, 2>(call) : way_of<3, 1>(call))
                                  : (is_strided ? way_of<5, 2>(call) : way_of<5, 1>(call));
  if (!run) return "threads have too few rows";
  if (Strips(call).expanded > kRingBytes) return "expanded rows are larger than the caches";
  call.pack();
  run(call);
  return nullptr;
}

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
  if (are_floats) return in_one_pass<float>(chain);
  if (!are_bfloats) return "products and images are of several formats";
  if (!are_even) return "an odd number of inputs";
  return in_one_pass<std::uint16_t>(chain);
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

bool may_chain(const Problem& first) { return has_avx512() && std::holds_alternative<ConvProblem>(first); }

std::size_t chain_length(const std::function<const Problem*(std::size_t)>& problem,
                         const std::function<bool(const ImageView&, std::size_t)>& ends) {
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

bool may_chain(const Problem&) { return false; }
std::size_t chain_length(const std::function<const Problem*(std::size_t)>&,
                         const std::function<bool(const ImageView&, std::size_t)>&) {
  return 1;
}
bool try_chain(std::span<const Problem* const>) { return false; }

#endif

}  // namespace openmps::cpu

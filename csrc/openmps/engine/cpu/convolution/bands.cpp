// SPDX-License-Identifier: Apache-2.0
// Convolutions and poolings of large images one after the other, a band of rows at a time: rows between two of them are
// read while they are in the caches, and then overwritten. Whole images would be written to memory and read from it.
#include "engine/cpu/convolution/bands.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/convolution/separable.hpp"
#include "engine/cpu/pooling/pooling.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/problem/print.hpp"
#include "engine/problem/problem.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/team.hpp"

namespace openmps::cpu {
namespace {

using i64 = std::int64_t;

constexpr i64 kMinBytes = 32 * 1024 * 1024;       // of an image between two layers
constexpr i64 kThreadBytes = 8 * 1024 * 1024;     // of a band's rows between all layers, per thread
constexpr i64 kMaxWeightBytes = 2 * 1024 * 1024;  // of a layer: each band reads them
constexpr i64 kRows = 4;                          // a band has a multiple of them: rows of Winograd's tiles

i64 row_bytes(const ImageView& image) { return image.w * image.c * static_cast<i64>(size_of(image.format)); }

/// Rows of an image from `first` on.
struct Rows {
  ImageView view;
  i64 first = 0;

  ImageView between(i64 begin, i64 end) const { return view.region(begin - first, 0, end - begin, view.w); }
};

/// A convolution or a pooling. Its rows are those before `subpixel` makes several of each.
class Layer {
 public:
  /// Return nothing for problems that are not computed in bands.
  static std::optional<Layer> of(const Problem* problem) {
    const auto* const conv = problem ? std::get_if<ConvProblem>(problem) : nullptr;
    const auto* const pool = problem ? std::get_if<PoolProblem>(problem) : nullptr;
    if (conv && (conv->weights->in_place || conv->weights->values.size() * sizeof(float) > kMaxWeightBytes))
      return std::nullopt;
    std::optional<Layer> layer;
    if (conv) layer.emplace(Layer(*conv));
    if (pool) layer.emplace(Layer(*pool));
    return layer && layer->sees_source() ? std::move(layer) : std::nullopt;
  }

  const ImageView& src() const {
    return std::visit([](const auto& problem) -> const ImageView& { return problem.src; }, problem_);
  }
  const ImageView& dst() const {
    return std::visit([](const auto& problem) -> const ImageView& { return problem.dst; }, problem_);
  }
  /// Return the image that is added to the result, null if there is none.
  const ImageView* addend() const {
    const auto* const conv = std::get_if<ConvProblem>(&problem_);
    return conv && conv->addend.memory ? &conv->addend : nullptr;
  }
  bool has_subpixels() const { return subpixel() > 1; }
  i64 rows() const { return (dst().h + subpixel() - 1) / subpixel(); }
  /// Return the first row of the source that rows from `begin` on read.
  i64 reads_from(i64 begin) const {
    const Window& w = window();
    return std::clamp(begin * w.stride_h + w.start_h, i64{0}, src().h);
  }
  /// Return the end of the rows of the source that rows before `end` read.
  i64 reads_to(i64 end) const {
    const Window& w = window();
    return std::clamp((end - 1) * w.stride_h + w.start_h + reach_h(w), i64{0}, src().h);
  }

  void run() const {
    std::visit([](const auto& problem) { cpu::run(problem); }, problem_);
  }
  /// Compute rows [begin, end) of image n.
  void run(i64 n, i64 begin, i64 end, const Rows& from, const Rows& to) const {
    std::visit(
        [&](auto problem) {
          const i64 source = reads_from(begin), top = begin * subpixel(), bottom = std::min(end * subpixel(), dst().h);
          problem.src = from.between(source, reads_to(end));
          problem.dst = to.between(top, bottom);
          problem.window.start_h += begin * problem.window.stride_h - source;
          if constexpr (requires { problem.addend; })
            if (problem.addend.memory) problem.addend = Rows{problem.addend.images(n, 1)}.between(top, bottom);
          cpu::run(problem);
        },
        problem_);
  }

 private:
  template <class P>
  explicit Layer(const P& problem) : problem_(problem) {}

  const Window& window() const {
    return std::visit([](const auto& problem) -> const Window& { return problem.window; }, problem_);
  }
  i64 subpixel() const {
    const auto* const conv = std::get_if<ConvProblem>(&problem_);
    return conv ? std::max<i64>(conv->subpixel, 1) : 1;
  }
  /// Return whether all windows overlap the source.
  bool sees_source() const { return reads_to(1) > 0 && reads_from(rows() - 1) < src().h; }

  std::variant<ConvProblem, PoolProblem> problem_;
};

using Layers = std::vector<Layer>;

/// The rows between two layers, in scratch memory.
struct Buffer : Rows {
  Scratch memory;

  Buffer(const ImageView& image, i64 count) : memory(static_cast<std::uint64_t>(count * row_bytes(image))) {
    view.format = image.format, view.h = count, view.w = image.w, view.c = image.c;
    view.w_stride = view.c, view.h_stride = view.w * view.c, view.n_stride = count * view.h_stride;
    view.memory = Memory::wrap(memory.data(), static_cast<std::size_t>(count * row_bytes(view)), nullptr);
  }
  /// Move rows [begin, end) to the front.
  void keep(i64 begin, i64 end) {
    std::memmove(memory.data(), memory.data() + (begin - first) * row_bytes(view),
                 static_cast<std::size_t>((end - begin) * row_bytes(view)));
    first = begin;
  }
};

class Bands {
 public:
  explicit Bands(const Layers& layers) : layers_(layers), last_(layers.size() - 1) {
    i64 bytes = 0;
    for (std::size_t i = 0; i < last_; ++i) bytes += row_bytes(layers_[i].dst()) * layers_[i].rows();
    const i64 of_row = std::max<i64>(bytes / layers_[last_].rows(), 1);
    const i64 of_band = is_forced("bands") ? 0 : kThreadBytes * max_threads();  // small ones for tests
    rows_ = std::max<i64>(of_band / of_row / kRows, 1) * kRows;
    std::vector<i64> counts(last_);
    for_each_band([&](const Ends& begin, const Ends& end) {
      for (std::size_t i = 0; i < last_; ++i) counts[i] = std::max(counts[i], end[i] - kept_from(i, begin));
    });
    for (std::size_t i = 0; i < last_; ++i) buffers_.emplace_back(layers_[i].dst(), counts[i]);
  }

  /// Return whether no band reads rows of the source where results of bands before it are.
  bool reads_ahead() const {
    bool result = true;
    for_each_band([&](const Ends& begin, const Ends&) { result &= layers_[0].reads_from(begin[0]) >= begin[last_]; });
    return result;
  }

  void run() {
    for (i64 n = 0; n < layers_[0].src().n; ++n) {
      const Rows source{layers_[0].src().images(n, 1)}, result{layers_[last_].dst().images(n, 1)};
      for_each_band([&](const Ends& begin, const Ends& end) {
        for (std::size_t i = 0; i <= last_; ++i) {
          if (i < last_) buffers_[i].keep(kept_from(i, begin), begin[i]);
          if (begin[i] == end[i]) continue;
          layers_[i].run(n, begin[i], end[i], i > 0 ? buffers_[i - 1] : source, i < last_ ? buffers_[i] : result);
        }
      });
    }
  }

 private:
  using Ends = std::vector<i64>;  // of rows, one per layer

  /// Visit the rows that each band adds to the results.
  template <class Visit>
  void for_each_band(const Visit& visit) const {
    Ends begin(layers_.size()), end(layers_.size());
    for (const i64 rows = layers_[last_].rows(); end[last_] < rows; begin = end) {
      end[last_] = std::min(end[last_] + rows_, rows);
      for (std::size_t i = last_; i > 0; --i) end[i - 1] = std::max(begin[i - 1], layers_[i].reads_to(end[i]));
      visit(begin, end);
    }
  }
  /// Return the first row of a result that a band reads, of those before its own.
  i64 kept_from(std::size_t i, const Ends& begin) const {
    return std::min(begin[i], layers_[i + 1].reads_from(begin[i + 1]));
  }

  const Layers& layers_;
  const std::size_t last_;
  i64 rows_;  ///< of a band of the last result
  std::vector<Buffer> buffers_;
};

const char* bands(const Layers& layers) {
  const Tensor src = tensor_of(layers.front().src()), dst = tensor_of(layers.back().dst());
  Bands bands(layers);
  // The sum of a residual block may take the place of the source.
  if (overlap(src, dst) && !(src == dst && bands.reads_ahead())) return "the result overlaps the source";
  for (const Layer& layer : layers)
    if (&layer != &layers.back() && layer.addend() && overlap(tensor_of(*layer.addend()), dst))
      return "the result overlaps an addend";
  bands.run();
  return nullptr;
}

const char* whole_images(const Layers& layers) {
  for (const Layer& layer : layers) layer.run();
  return nullptr;
}

constexpr Implementation<Layers> kBands[] = {
    {"bands", bands},
    {"whole_images", whole_images},
};
const ImplementationNames kBandsNames(kBands);

/// Return whether a layer reads the result of the last of some layers, and all may be computed in bands.
bool continues(const Layers& layers, const Layer& next) {
  const ImageView& image = layers.back().dst();
  return image == next.src() && !layers.back().has_subpixels() &&
         (is_forced("bands") || image.h * row_bytes(image) >= kMinBytes) &&
         std::ranges::none_of(
             layers, [&](const Layer& layer) { return next.addend() && next.addend()->memory == layer.dst().memory; });
}

}  // namespace

std::size_t bands_length(const std::function<const Problem*(std::size_t)>& problem,
                         const std::function<bool(const ImageView&, std::size_t)>& ends) {
  if (!dispatch().allows("bands")) return 1;
  Layers layers;
  for (;;) {
    const std::size_t at = layers.size();
    std::optional<Layer> next = Layer::of(problem(at));
    if (!next || (at > 0 && !continues(layers, *next))) break;
    const auto behind = [&](std::size_t i) { return problem(at + i); };
    if (chain_length(behind, [&](const ImageView& image, std::size_t count) { return ends(image, at + count); }) > 1)
      break;
    layers.push_back(std::move(*next));
  }
  const auto end_inside = [&](std::size_t count) {
    return std::all_of(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(count) - 1,
                       [&](const Layer& layer) { return ends(layer.dst(), count); });
  };
  std::size_t count = layers.size();
  while (count > 1 && !end_inside(count)) --count;
  return std::max<std::size_t>(count, 1);
}

bool try_bands(std::span<const Problem* const> problems) {
  Layers layers;
  for (const Problem* const problem : problems) {
    std::optional<Layer> layer = Layer::of(problem);
    if (!layer || (!layers.empty() && !(layers.back().dst() == layer->src()))) return false;
    layers.push_back(std::move(*layer));
  }
  for (const Problem* const problem : problems) trace_problem(*problem);
  run_first("bands", kBands, layers);
  return true;
}

}  // namespace openmps::cpu

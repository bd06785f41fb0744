// SPDX-License-Identifier: Apache-2.0
// Reordering of weights at memory speed. A permutation of at most four axes is reduced to its simplest form (a copy,
// rows, a batch of two-dimensional transposes, or single words), divided into tiles that fit the caches, and run in
// parallel. Elements are moved as raw words, which preserves every bit pattern (NaN payloads too).
#include <mpscnn/weights.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include <mpscnn/error.hpp>

#include "core/device/helper_threads.hpp"
#include "core/reorder/weights_transpose.hpp"
#include "core/reorder/weights_words.hpp"

namespace mpscnn {
namespace {

struct LayoutNames {
  Layout layout;
  const char* name;
  const char* axes;
};

constexpr std::array<LayoutNames, 5> kLayouts{{{Layout::OIHW, "OIHW", "OIHW"},
                                               {Layout::OHWI, "OHWI", "OHWI"},
                                               {Layout::HWIO, "HWIO", "HWIO"},
                                               {Layout::IOHW, "IOHW", "IOHW"},
                                               {Layout::C1HW, "C1HW", "OIHW"}}};

// ---- the plan

struct Axis {
  std::int64_t n = 1, src = 0, dst = 0;  ///< extent, steps in bytes
};

/// Loop around the tiles, outermost first. Loops over blocks of p or q also determine the tile's size.
struct Loop {
  std::int64_t n = 1, src = 0, dst = 0;
  enum Over : std::uint8_t { kOuter, kP, kQ } over = kOuter;
};

struct Plan {
  const char* src;
  const char* src_end;
  char* dst;
  int word;          ///< bytes moved as one
  std::int64_t run;  ///< bytes that are contiguous on both sides
  Axis p, q;         ///< inner axis of the target; inner axis of the source (n = 1: none)
  std::array<Axis, 4> outer;
  int outers = 0;
  enum Kind : std::uint8_t { kCopy, kRows, kTranspose, kWords } kind;
};

std::int64_t magnitude(std::int64_t step) { return step < 0 ? -step : step; }

Plan make_plan(const char* src, char* dst, int word, std::array<Axis, 4> axes, int count) {
  Plan plan{};
  // Sort the axes, and make the target's addresses ascend.
  const char* low = src;
  const char* high = src + word;
  int used = 0;
  for (int i = 0; i < count; ++i) {
    Axis axis = axes[i];
    if (axis.n == 1) continue;
    (axis.src < 0 ? low : high) += (axis.n - 1) * axis.src;
    if (axis.dst < 0) {
      src += (axis.n - 1) * axis.src;
      dst += (axis.n - 1) * axis.dst;
      axis.src = -axis.src;
      axis.dst = -axis.dst;
    }
    int at = used++;
    for (; at > 0 && axes[at - 1].dst < axis.dst; --at) axes[at] = axes[at - 1];
    axes[at] = axis;
  }
  // Merge adjacent axes that are contiguous with each other on both sides.
  int merged = 0;
  for (int i = 0; i < used; ++i) {
    if (merged > 0) {
      Axis& before = axes[merged - 1];
      if (before.dst == axes[i].dst * axes[i].n && before.src == axes[i].src * axes[i].n) {
        before = {before.n * axes[i].n, axes[i].src, axes[i].dst};
        continue;
      }
    }
    axes[merged++] = axes[i];
  }
  plan.word = word;
  plan.run = word;
  if (merged > 0 && axes[merged - 1].src == word && axes[merged - 1].dst == word) {
    plan.run = axes[--merged].n * word;
    if (plan.run == 2 || plan.run == 4 || plan.run == 8) plan.word = static_cast<int>(plan.run);
  }
  plan.src_end = high;
  if (merged == 0) {
    plan.kind = Plan::kCopy;
  } else {
    plan.p = axes[--merged];
    int q = -1;
    for (int i = 0; i < merged; ++i) {
      if (axes[i].src == 0) continue;
      if (q < 0 || magnitude(axes[i].src) < magnitude(axes[q].src)) q = i;
    }
    const bool words = plan.run == plan.word;
    if (q >= 0 && (magnitude(axes[q].src) < magnitude(plan.p.src) || plan.p.src == 0)) {
      plan.q = axes[q];
      for (int i = q; i + 1 < merged; ++i) axes[i] = axes[i + 1];
      --merged;
    }
    plan.kind = words ? Plan::kWords : Plan::kRows;
    if (words && plan.p.dst == plan.word && plan.q.n > 1 && magnitude(plan.q.src) == plan.word) {
      plan.kind = Plan::kTranspose;
      if (plan.q.src < 0) {
        src += (plan.q.n - 1) * plan.q.src;
        dst += (plan.q.n - 1) * plan.q.dst;
        plan.q.src = -plan.q.src;
        plan.q.dst = -plan.q.dst;
      }
    }
  }
  plan.outers = merged;
  for (int i = 0; i < merged; ++i) plan.outer[i] = axes[i];
  plan.src = src;
  plan.dst = dst;
  (void)low;
  return plan;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Return the block size that divides n about equally, at most `limit` and a multiple of `unit`.
std::int64_t even_block(std::int64_t n, std::int64_t limit, std::int64_t unit) {
  if (n <= limit) return n;
  const std::int64_t block = ceil_div(n, ceil_div(n, limit));
  return std::min(ceil_div(block, unit) * unit, std::max(limit, unit));
}

void words_tile(int word, const char* src, char* dst, const Axis& p, const Axis& q) {
  const auto move = [&]<int kWord>() {
    for (std::int64_t i = 0; i < q.n; ++i) {
      const char* from = src + i * q.src;
      char* to = dst + i * q.dst;
      for (std::int64_t j = 0; j < p.n; ++j, from += p.src, to += p.dst) move_word<kWord>(to, from);
    }
  };
  switch (word) {
    case 1: return move.operator()<1>();
    case 2: return move.operator()<2>();
    case 4: return move.operator()<4>();
    default: return move.operator()<8>();
  }
}

void rows_tile(std::int64_t run, const char* src, char* dst, const Axis& p, const Axis& q) {
  for (std::int64_t i = 0; i < q.n; ++i) {
    const char* from = src + i * q.src;
    char* to = dst + i * q.dst;
    for (std::int64_t j = 0; j < p.n; ++j, from += p.src, to += p.dst) copy_row(to, from, run);
  }
}

constexpr std::int64_t kStage = 128 << 10;  // bytes of a tile assembled in the second-level cache

void run_plan(const Plan& plan, std::int64_t bytes, int threads) {
  threads = threads_for(bytes, threads);
  const bool big = bytes >= stream_threshold();

  if (plan.kind == Plan::kCopy) {
    const bool far = bytes >= 2 * stream_threshold();  // below this, libc's memcpy is faster
    if (threads == 1 && !far) {
      std::memcpy(plan.dst, plan.src, static_cast<std::size_t>(plan.run));
      return;
    }
    const std::int64_t piece = std::min<std::int64_t>(8 << 20, (plan.run / threads + 63) & ~std::int64_t{63});
    in_parallel(ceil_div(plan.run, piece), threads, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t from = begin * piece;
      const auto length = static_cast<std::size_t>(std::min(plan.run, end * piece) - from);
      if (far)
        stream_copy(plan.dst + from, plan.src + from, length);
      else
        std::memcpy(plan.dst + from, plan.src + from, length);
      if (far) stream_fence();
    });
    return;
  }

  const Axis &p = plan.p, &q = plan.q;
  const std::int64_t unit = plan.kind == Plan::kRows ? plan.run : plan.word;  // bytes per (p, q)
  std::int64_t block_p = p.n, block_q = q.n;
  bool stream = false, stage = false;
  const std::int64_t wide = 64 / plan.word;  // words per cache line
  if (plan.kind == Plan::kTranspose) {
    if (q.n <= 64) {
      block_p = even_block(p.n, std::max<std::int64_t>(512, 4 * wide), wide);
    } else if (p.n <= 64) {
      block_q = even_block(q.n, std::max<std::int64_t>(512, 4 * wide), wide);
    } else {
      block_p = even_block(p.n, std::max<std::int64_t>(64, 2 * wide), wide);
      block_q = even_block(q.n, std::max<std::int64_t>(64, 2 * wide), wide);
    }
  } else {
    const std::int64_t side = std::clamp<std::int64_t>(2048 / unit, 1, 64);
    if (q.n > 1) {
      block_p = even_block(p.n, side, 1);
      block_q = even_block(q.n, side, 1);
    } else {
      block_p = even_block(p.n, std::max<std::int64_t>(1, (64 << 10) / unit), 1);
    }
  }

  // Outer axes with smaller steps than p (source) or q (target) go inside of the loop over their blocks.
  const auto inside = [&](const Axis& axis) {
    return (p.n > 64 && magnitude(axis.src) < magnitude(p.src)) || (q.n > 64 && magnitude(axis.dst) < magnitude(q.dst));
  };
  bool any_inside = false;
  for (int i = 0; i < plan.outers; ++i) any_inside |= q.n > 1 && inside(plan.outer[i]);
  if (plan.kind == Plan::kTranspose) {
    if (any_inside) {
      block_p = even_block(p.n, std::max<std::int64_t>(64, wide), wide);
      block_q = even_block(q.n, std::max<std::int64_t>(64, wide), wide);
    }
    if (big) {
      // Stream whole aligned lines to memory. If unaligned, tiles that are contiguous in the target are assembled in
      // the cache and then streamed.
      const std::int64_t row = p.n * plan.word;
      bool aligned =
          ((reinterpret_cast<std::uintptr_t>(plan.dst) | static_cast<std::uintptr_t>(q.dst | row)) & 63) == 0;
      for (int i = 0; i < plan.outers; ++i) aligned &= (plan.outer[i].dst & 63) == 0;
      stream = aligned && widest_lanes() == 4 && block_p >= wide;
      stage = !stream && !any_inside && q.dst == row && row * std::min<std::int64_t>(q.n, 16) <= kStage;
      if (stage) {
        block_p = p.n;
        block_q = even_block(q.n, kStage / row, wide);
        if (block_q * row > kStage) block_q = even_block(q.n, kStage / row, 1);
      }
    }
  }

  std::array<Loop, 6> loops{};
  int count = 0;
  const auto add = [&](std::int64_t n, std::int64_t src, std::int64_t dst, Loop::Over over) {
    if (n > 1) loops[count++] = {n, src, dst, over};
  };
  for (int i = 0; i < plan.outers; ++i) {
    const Axis& axis = plan.outer[i];
    if (!(q.n > 1 && inside(axis))) add(axis.n, axis.src, axis.dst, Loop::kOuter);
  }
  add(ceil_div(p.n, block_p), block_p * p.src, block_p * p.dst, Loop::kP);
  add(ceil_div(q.n, block_q), block_q * q.src, block_q * q.dst, Loop::kQ);
  for (int i = 0; i < plan.outers; ++i) {
    const Axis& axis = plan.outer[i];
    if (q.n > 1 && inside(axis)) add(axis.n, axis.src, axis.dst, Loop::kOuter);
  }
  std::int64_t tiles = 1;
  for (int i = 0; i < count; ++i) tiles *= loops[i].n;

  const Transpose whole = plan.kind == Plan::kTranspose
                              ? choose_transpose(plan.word, block_p, block_q, stream, p.src == block_q * plan.word)
                              : nullptr;

  const bool prefetch = bytes >= 2 * kBytesPerThread && p.src > 0 && p.src <= 2 * q.n * plan.word;

  in_parallel(tiles, threads, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) char staged[kStage];
    std::array<std::int64_t, 6> at{};
    const char* src = plan.src;
    char* dst = plan.dst;
    std::int64_t rest = begin;
    for (int i = count; i-- > 0;) {
      at[i] = rest % loops[i].n;
      rest /= loops[i].n;
      src += at[i] * loops[i].src;
      dst += at[i] * loops[i].dst;
    }
    for (std::int64_t tile = begin; tile < end; ++tile) {
      Axis tp = p, tq = q;
      tp.n = block_p;
      tq.n = block_q;
      for (int i = 0; i < count; ++i) {
        if (loops[i].over == Loop::kP) tp.n = std::min(block_p, p.n - at[i] * block_p);
        if (loops[i].over == Loop::kQ) tq.n = std::min(block_q, q.n - at[i] * block_q);
      }
      const char* const from = src;
      char* const to = dst;
      for (int i = count; i-- > 0;) {
        src += loops[i].src;
        dst += loops[i].dst;
        if (++at[i] < loops[i].n) break;
        src -= loops[i].n * loops[i].src;
        dst -= loops[i].n * loops[i].dst;
        at[i] = 0;
      }
      if (plan.kind == Plan::kTranspose) {
        const Transpose transpose = tp.n == block_p && tq.n == block_q
                                        ? whole
                                        : choose_transpose(plan.word, tp.n, tq.n, stream, tp.src == tq.n * plan.word);
        if (stage) {
          transpose({from, plan.src_end, staged, tp.n, tq.n, tp.src, tp.n * plan.word, prefetch});
          stream_copy(to, staged, static_cast<std::size_t>(tp.n * tq.n * plan.word));
        } else {
          transpose({from, plan.src_end, to, tp.n, tq.n, tp.src, tq.dst, prefetch});
        }
      } else if (plan.kind == Plan::kRows) {
        rows_tile(plan.run, from, to, tp, tq);
      } else {
        words_tile(plan.word, from, to, tp, tq);
      }
    }
    if (stream || stage) stream_fence();
  });
}

/// Return the address range [low, high) of the view's elements.
std::array<std::uintptr_t, 2> addresses_of(const ArrayView& view) {
  auto low = reinterpret_cast<std::uintptr_t>(view.data), high = low + size_of(view.dtype);
  for (std::size_t i = 0; i < view.ndim(); ++i) {
    const auto reach = static_cast<std::uintptr_t>((view.shape[i] - 1) * view.strides[i]);
    (view.strides[i] < 0 ? low : high) += reach;
  }
  return {low, high};
}

void check_c1hw(Layout layout, const Extents& shape, const char* name) {
  check(layout != Layout::C1HW || shape[1] == 1, "reorder: ", name, ".shape ", as_tuple(shape), " has ", shape[1],
        ", not 1, as its second extent, which C1HW asks for.");
}

}  // namespace

Layout layout_from_name(std::string_view name, const char* what) {
  for (const auto& entry : kLayouts)
    if (name == entry.name) return entry.layout;
  throw std::invalid_argument(say(what, " ('", name, "') is not one of OIHW, OHWI, HWIO, IOHW, C1HW."));
}

const char* name_of(Layout layout) { return kLayouts[static_cast<std::size_t>(layout)].name; }

std::array<std::uint8_t, 4> axes_from(Layout source, Layout target) {
  static constexpr auto kTable = [] {
    std::array<std::array<std::array<std::uint8_t, 4>, 5>, 5> table{};
    for (std::size_t s = 0; s < 5; ++s)
      for (std::size_t t = 0; t < 5; ++t)
        for (std::size_t i = 0; i < 4; ++i)
          for (std::uint8_t k = 0; k < 4; ++k)
            if (kLayouts[s].axes[k] == kLayouts[t].axes[i]) table[s][t][i] = k;
    return table;
  }();
  return kTable[static_cast<std::size_t>(source)][static_cast<std::size_t>(target)];
}

Extents reordered_shape(const Extents& shape, Layout source, Layout target, const char* source_name,
                        const char* target_name) {
  check(shape.size() == 4, "reorder: shape ", as_tuple(shape), " has ", shape.size(), " axes, not 4.");
  check_c1hw(source, shape, source_name);
  const auto from = axes_from(source, target);
  Extents reordered{shape[from[0]], shape[from[1]], shape[from[2]], shape[from[3]]};
  check_c1hw(target, reordered, target_name);
  return reordered;
}

bool is_in_order(const std::int64_t* shape, const std::int64_t* strides, Layout source_layout, Layout target_layout,
                 std::size_t word) {
  const auto from = axes_from(source_layout, target_layout);
  auto step = static_cast<std::int64_t>(word);
  for (int i = 4; i-- > 0;) {
    if (shape[from[i]] == 1) continue;
    if (strides[from[i]] != step || __builtin_mul_overflow(step, shape[from[i]], &step)) return false;
  }
  return step != 0;
}

void reorder_unchecked(const void* source, const std::int64_t* shape, const std::int64_t* strides, Layout source_layout,
                       void* target, Layout target_layout, std::size_t word, int threads) {
  const auto from = axes_from(source_layout, target_layout);
  std::array<Axis, 4> axes;
  auto bytes = static_cast<std::int64_t>(word);
  for (int i = 4; i-- > 0;) {
    axes[i] = {shape[from[i]], strides[from[i]], bytes};
    bytes *= axes[i].n;
  }
  if (bytes == 0) return;
  run_plan(make_plan(static_cast<const char*>(source), static_cast<char*>(target), static_cast<int>(word), axes, 4),
           bytes, threads);
}

void reorder(const ArrayView& source, Layout source_layout, const ArrayView& target, Layout target_layout, int threads,
             const char* source_name, const char* target_name) {
  check(source.ndim() == 4, "reorder: ", source_name, ".ndim (", source.ndim(), ") is not 4.");
  check(target.ndim() == 4, "reorder: ", target_name, ".ndim (", target.ndim(), ") is not 4.");
  check<TypeError>(source.dtype == target.dtype, "reorder: ", target_name, ".dtype (", name_of(target.dtype),
                   ") is not ", source_name, ".dtype (", name_of(source.dtype), ").");
  check(threads >= 0, "reorder: threads (", threads, ") is less than the minimum 0.");
  check(!target.read_only, "reorder: ", target_name, " is read-only.");
  check_c1hw(source_layout, source.shape, source_name);
  check_c1hw(target_layout, target.shape, target_name);
  const auto from = axes_from(source_layout, target_layout);
  std::array<Axis, 4> axes;
  std::int64_t bytes = static_cast<std::int64_t>(size_of(source.dtype));
  for (int i = 0; i < 4; ++i) {
    axes[i] = {target.shape[i], source.strides[from[i]], target.strides[i]};
    if (source.shape[from[i]] != axes[i].n) {
      throw std::invalid_argument(say("reorder: ", target_name, ".shape ", as_tuple(target.shape), " is not ",
                                      as_tuple(reordered_shape(source.shape, source_layout, target_layout)), ": ",
                                      source_name, " ", as_tuple(source.shape), " in ", name_of(source_layout),
                                      " order, written in ", name_of(target_layout), " order."));
    }
    bytes *= axes[i].n;
  }
  if (bytes == 0) return;
  const auto read = addresses_of(source), written = addresses_of(target);
  check(read[1] <= written[0] || written[1] <= read[0], "reorder: the memory of ", target_name, " overlaps that of ",
        source_name, ".");
  for (const Axis& axis : axes)
    check(axis.n == 1 || axis.dst != 0, "reorder: ", target_name, ".strides ", as_tuple(target.strides),
          " name the same element twice.");
  run_plan(make_plan(static_cast<const char*>(source.data), static_cast<char*>(target.data),
                     static_cast<int>(size_of(source.dtype)), axes, 4),
           bytes, threads);
}

ArrayView unflatten(const ArrayView& source, const Extents& feature_map_chw, Layout layout, const char* source_name) {
  check(source.ndim() == 2, "reorder: ", source_name, ".ndim (", source.ndim(), ") is not 2, as feature_map asks for.");
  check(feature_map_chw.size() == 3, "reorder: feature_map ", as_tuple(feature_map_chw), " is not (C, H, W).");
  check(layout != Layout::IOHW && layout != Layout::C1HW, "reorder: the layout (", name_of(layout),
        ") of flattened weights is not OIHW, OHWI or HWIO.");
  std::int64_t features = 1;
  for (const auto extent : feature_map_chw) {
    check(extent >= 0 && !__builtin_mul_overflow(features, extent, &features), "reorder: feature_map ",
          as_tuple(feature_map_chw), " has an extent that is negative or too large.");
  }
  const std::size_t flat = layout == Layout::HWIO ? 0 : 1;
  check(source.shape[flat] == features, "reorder: ", source_name, ".shape[", flat, "] (", source.shape[flat],
        ") is not the size of feature_map ", as_tuple(feature_map_chw), ", ", features, ".");
  const std::int64_t c = feature_map_chw[0], h = feature_map_chw[1], w = feature_map_chw[2];
  const std::int64_t step = source.strides[flat];
  const bool channels_first = layout == Layout::OIHW;
  const Extents shape = channels_first ? Extents{c, h, w} : Extents{h, w, c};
  const Extents strides{shape[1] * shape[2] * step, shape[2] * step, step};
  ArrayView view = source;
  view.shape = shape;
  view.strides = strides;
  const auto at = flat == 0 ? 3 : 0;
  view.shape.insert(view.shape.begin() + at, source.shape[1 - flat]);
  view.strides.insert(view.strides.begin() + at, source.strides[1 - flat]);
  return view;
}

void reorder_linear(const ArrayView& source, const Extents& feature_map_chw, const ArrayView& target, int threads,
                    const char* source_name, const char* target_name) {
  reorder(unflatten(source, feature_map_chw, Layout::OIHW, source_name), Layout::OIHW, target, Layout::OHWI, threads,
          source_name, target_name);
}

void copy_threads(void* target, const void* source, std::size_t bytes, int threads) {
  threads = std::clamp(threads, 1, kMaxThreads);
  const std::size_t part = (bytes / static_cast<std::size_t>(threads) + 63) & ~std::size_t{63};
  in_parallel(threads, threads, [&](std::int64_t begin, std::int64_t end) {
    const std::size_t from = std::min(bytes, static_cast<std::size_t>(begin) * part);
    const std::size_t to = end == threads ? bytes : std::min(bytes, static_cast<std::size_t>(end) * part);
    std::memcpy(static_cast<char*>(target) + from, static_cast<const char*>(source) + from, to - from);
  });
}

}  // namespace mpscnn

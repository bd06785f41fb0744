// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/pooling/pooling_gradient.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/cpu/resampling/adjoint.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/taps.hpp"

namespace openmps::cpu {
namespace {

using i64 = std::int64_t;

/// A position along an axis that a window reads, and how often.
struct Place {
  std::int64_t at;
  float times;
};

/// Positions that the windows of one axis read, in increasing order.
struct Axis {
  std::vector<std::size_t> begins{0};
  std::vector<Place> places;
  std::vector<std::int64_t> taps;  ///< divisors of averages
  std::vector<char> is_outside;    ///< whether the window has out-of-bounds taps

  Axis(std::int64_t start, std::int64_t kernel, std::int64_t stride, std::int64_t dilation, std::int64_t size,
       std::int64_t windows, std::int64_t zero_pad, const PoolGradientProblem& problem) {
    const bool average = problem.type == PoolType::average, zero = problem.window.edge == Edge::zero;
    for (std::int64_t v = 0; v < windows; ++v, start += stride) {
      const Span span = span_of(start, kernel, dilation, size);
      const auto first = places.size();
      const auto add = [&](std::int64_t at, std::int64_t times) {
        if (places.size() > first && places.back().at == at) {
          places.back().times += static_cast<float>(times);
        } else {
          places.push_back({at, static_cast<float>(times)});
        }
      };
      const bool clamps = !zero && !average;
      if (clamps && span.before > 0) add(0, span.before);
      for (std::int64_t i = 0; i < span.count; ++i) add(span.first + i * dilation, 1);
      if (clamps && span.after > 0) add(size - 1, span.after);
      begins.push_back(places.size());
      is_outside.push_back(span.before + span.after > 0);
      taps.push_back(zero ? kernel : span_of(start + zero_pad, kernel, dilation, size + 2 * zero_pad).count);
    }
  }
  std::span<const Place> of(std::int64_t v) const {
    const auto at = static_cast<std::size_t>(v);
    return std::span(places).subspan(begins[at], begins[at + 1] - begins[at]);
  }
  /// Return the max extent from a window's first position to its last.
  std::int64_t reach() const {
    std::int64_t most = 1;
    for (std::size_t v = 0; v + 1 < begins.size(); ++v) {
      const auto seen = of(static_cast<std::int64_t>(v));
      if (!seen.empty()) most = std::max(most, seen.back().at - seen.front().at + 1);
    }
    return most;
  }
  /// Return the max extent from the first position that a window or a later one reads to the last position that it or
  /// an earlier one reads. More than reach() if later windows begin before earlier ones, as dilated windows at an edge
  /// do.
  std::int64_t overlap() const {
    std::int64_t most = 1, front = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int64_t> backs;
    for (std::size_t v = 0; v + 1 < begins.size(); ++v) {
      const auto seen = of(static_cast<std::int64_t>(v));
      const std::int64_t before = backs.empty() ? -1 : backs.back();
      backs.push_back(seen.empty() ? before : std::max(before, seen.back().at));
    }
    for (std::size_t v = backs.size(); v-- > 0;) {
      const auto seen = of(static_cast<std::int64_t>(v));
      if (!seen.empty()) front = std::min(front, seen.front().at);
      if (front <= backs[v]) most = std::max(most, backs[v] - front + 1);
    }
    return most;
  }
  Shares shares(std::int64_t first, std::int64_t count, PoolType type) const {
    return {first, count, static_cast<std::int64_t>(taps.size()), [&](std::int64_t v, const auto& add) {
              for (const Place& place : of(v)) {
                if (type == PoolType::average) {
                  add(place.at,
                      1.0f / static_cast<float>(std::max<std::int64_t>(taps[static_cast<std::size_t>(v)], 1)));
                } else {
                  add(place.at, type == PoolType::max ? 1.0f : place.times);
                }
              }
            }};
  }
};

// --------------------------------------------------------------------------------------------------------- maxima

/// A row of windows. rows[j] + columns[i].at * step is a pixel of a window, to[j] + columns[i].at * to_step receives
/// its part of the gradient; diff + v * diff_step is the gradient of window v.
struct MaxRow {
  const float* const* rows;
  std::int64_t row_count, step;
  const Place* columns;
  const std::size_t* begins;  ///< of each window's columns
  const char* is_outside;     ///< the window has out-of-bounds zeros
  std::int64_t windows, channels;
  const float* diff;
  std::int64_t diff_step;
  float* const* to;  ///< null: not stored
  std::int64_t to_step;
  bool adds;  ///< accumulate; else windows do not overlap, and pixels other than the max get 0
};

/// Give gradients to the max of each window, channels from `first` on one at a time. Supports NaN.
void give_one_by_one(const MaxRow& row, std::int64_t first) {
  for (std::int64_t v = 0; v < row.windows; ++v) {
    const std::size_t begin = row.begins[v], end = row.begins[v + 1];
    for (std::int64_t k = first; k < row.channels && begin < end; ++k) {
      float best = row.rows[0][row.columns[begin].at * row.step + k];
      std::int64_t at = 0, tap = 0;
      for (std::int64_t j = 0; j < row.row_count; ++j) {
        for (std::size_t i = begin; i < end; ++i, ++tap) {
          const float x = row.rows[j][row.columns[i].at * row.step + k];
          if (x > best || (std::isnan(x) && !std::isnan(best))) best = x, at = tap;
        }
      }
      if (row.is_outside[v] && best < 0) at = -1;
      const float given = row.diff[v * row.diff_step + k];
      tap = 0;
      for (std::int64_t j = 0; j < row.row_count; ++j) {
        for (std::size_t i = begin; i < end; ++i, ++tap) {
          if (!row.to[j]) continue;
          float& to = row.to[j][row.columns[i].at * row.to_step + k];
          to = (row.adds ? to : 0.0f) + (tap == at ? given : 0.0f);
        }
      }
    }
  }
}

#define MPSCNN_LOOPS "engine/cpu/pooling/max_gradient_row.inc"
#define MPSCNN_ANY_PROCESSOR
#include "engine/cpu/pointwise/vector_copies.inc"

/// Arguments of the implementations: the problem, and which windows read which pixels.
struct PoolGradientCall {
  const PoolGradientProblem& problem;
  Axis down, across;
  Shares rows, columns;

  explicit PoolGradientCall(const PoolGradientProblem& p)
      : problem(p),
        down(p.window.start_h, p.window.kernel_h, p.window.stride_h, p.window.dilation_h, p.src.h, p.diff_dst.h,
             p.zero_pad_h, p),
        across(p.window.start_w, p.window.kernel_w, p.window.stride_w, p.window.dilation_w, p.src.w, p.diff_dst.w,
               p.zero_pad_w, p),
        rows(down.shares(p.first_h, p.diff_src.h, p.type)),
        columns(across.shares(p.first_w, p.diff_src.w, p.type)) {}

  /// Return whether sums can be made in the result: it is float32 and has the source's columns. Otherwise rows of sums
  /// are stored once they are complete.
  bool is_direct() const {
    const ImageView& dst = problem.diff_src;
    return dst.format == Format::float32 && problem.first_w == 0 && dst.w == problem.src.w;
  }
};

/// Visit windows in order, so that each pixel's sum has one order with any number of threads. `adds`: accumulate,
/// required if windows overlap.
void max_gradient(const PoolGradientCall& call, bool adds) {
  const PoolGradientProblem& problem = call.problem;
  const Axis &down = call.down, &across = call.across;
  const Shares &rows = call.rows, &columns = call.columns;
  const Tensor src = tensor_of(problem.src), diff = tensor_of(problem.diff_dst), dst = tensor_of(problem.diff_src);
  const bool floats = src.format == Format::float32 && diff.format == Format::float32 && dst.format == Format::float32;
  const Partition work = partition(dst, rows.reach(), floats);
  const bool direct = call.is_direct();
  const std::int64_t c = dst.c, lines = dst.n * dst.h, overlap = down.overlap();
  std::size_t window_rows = 0;
  for (std::int64_t v = 0; v < diff.h; ++v) window_rows = std::max(window_rows, down.of(v).size());
  struct Own {
    FloatRows source, diff;
    std::vector<const float*> rows;
    std::vector<float*> to;
    std::vector<char> is_outside;
    std::vector<float> sums, result;
  };
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  std::vector<Own> own(size(work.threads), {FloatRows(src, std::min(down.reach(), src.h)), FloatRows(diff, 1),
                                            std::vector<const float*>(window_rows), std::vector<float*>(window_rows),
                                            std::vector<char>(size(diff.w)),
                                            std::vector<float>(size(direct ? 0 : overlap * src.w * work.part)),
                                            std::vector<float>(size(direct ? 0 : dst.w * work.part))});
  const bool zero = problem.window.edge == Edge::zero;
  std::vector<std::int64_t> bare;  // columns that no window reads
  for (std::int64_t x = 0; !adds && x < dst.w; ++x)
    if (columns.of(x).empty()) bare.push_back(x);

  // Compute rows [first, last) of an image's result. Return false if there is a NaN and not `one_by_one`.
  const auto make_rows = [&](Own& my, std::int64_t part, std::int64_t n, std::int64_t first, std::int64_t last,
                             bool one_by_one) {
    const std::int64_t c0 = part * work.part, channels = std::min(work.part, c - c0);
    const std::int64_t to_step = direct ? dst.w_stride : channels;
    const auto sums = [&](std::int64_t y) {
      return direct ? dst.floats(n, y) + c0 : my.sums.data() + y % overlap * src.w * channels;
    };
    const auto store = [&](std::int64_t y) {
      const std::int64_t from = std::clamp<std::int64_t>(-problem.first_w, 0, dst.w);
      const std::int64_t to = std::clamp<std::int64_t>(src.w - problem.first_w, from, dst.w);
      float* const result = my.result.data();
      std::fill_n(result, from * channels, 0.0f);
      std::copy_n(sums(y) + (problem.first_w + from) * channels, (to - from) * channels, result + from * channels);
      std::fill_n(result + to * channels, (dst.w - to) * channels, 0.0f);
      if (channels == c) return store_pixels(result, dst.at(n, y), dst, dst.w);
      for (std::int64_t x = 0; x < dst.w; ++x)  // split channels are floats
        std::copy_n(result + x * channels, channels, dst.floats(n, y, x) + c0);
    };
    std::int64_t ready = first;  // rows before this one can be added to, or are done
    const auto make_ready = [&](std::int64_t until) {
      for (; ready < until; ++ready) {
        if (!direct && ready - overlap >= first) store(ready - overlap);
        float* const row = sums(ready);
        if (!adds && !rows.of(ready).empty()) {
          for (const std::int64_t x : bare) std::fill_n(row + x * to_step, channels, 0.0f);
        } else if (to_step == channels) {
          std::fill_n(row, src.w * channels, 0.0f);
        } else {
          for (std::int64_t x = 0; x < src.w; ++x) std::fill_n(row + x * to_step, channels, 0.0f);
        }
      }
    };

    std::int64_t begin = diff.h, end = 0;  // rows of windows that read [first, last)
    for (std::int64_t y = first; y < last; ++y) {
      const auto seers = rows.of(y);
      if (seers.empty()) continue;
      begin = std::min(begin, seers.front().result);
      end = std::max(end, seers.back().result + 1);
    }
    bool is_nan = false;
    for (std::int64_t v = begin; v < end; ++v) {
      const auto places = down.of(v);
      if (places.empty()) continue;
      make_ready(std::min(last, places.back().at - problem.first_h + 1));
      for (std::size_t j = 0; j < places.size(); ++j) {
        const std::int64_t y = places[j].at - problem.first_h;
        my.rows[j] = my.source.row(n, places[j].at) + c0;
        my.to[j] = y >= first && y < last ? sums(y) : nullptr;
      }
      for (std::size_t u = 0; u < my.is_outside.size(); ++u)
        my.is_outside[u] = zero && (down.is_outside[size(v)] || across.is_outside[u]);
      const MaxRow row{my.rows.data(),
                       static_cast<std::int64_t>(places.size()),
                       my.source.pixel_stride(),
                       across.places.data(),
                       across.begins.data(),
                       my.is_outside.data(),
                       diff.w,
                       channels,
                       my.diff.row(n, v) + c0,
                       my.diff.pixel_stride(),
                       my.to.data(),
                       to_step,
                       adds};
      give_one_by_one(row, one_by_one ? 0 : MPSCNN_COPY(give_to_max)(row, is_nan));
      if (is_nan) return false;
    }
    make_ready(last);
    for (std::int64_t y = std::max(first, last - overlap); !direct && y < last; ++y) store(y);
    return true;
  };
  parallel_ranges(lines * work.parts, work.threads, [&](std::int64_t begin, std::int64_t end) {
    Own& my = own[size(thread_number())];
    for (std::int64_t item = begin, next; item < end; item = next) {
      const std::int64_t part = item / lines, n = item % lines / dst.h, first = item % lines % dst.h;
      next = std::min(end, item - first + dst.h);
      if (!make_rows(my, part, n, first, first + next - item, false))
        make_rows(my, part, n, first, first + next - item, true);
    }
  });
}

// --------------------------------------------------------------------------------------------------------- norms

/// diff / sqrt(sum times * x^2) of one window, 0 where the root is 0.
MPSCNN_CLONES void quotients(const float* const* rows, const Place* row_places, std::int64_t row_count,
                             std::int64_t step, const Place* columns, std::int64_t column_count, const float* diff,
                             float* dst, std::int64_t channels) {
  std::fill_n(dst, channels, 0.0f);
  for (std::int64_t j = 0; j < row_count; ++j) {
    for (std::int64_t i = 0; i < column_count; ++i) {
      const float* const pixel = rows[j] + columns[i].at * step;
      const float times = row_places[j].times * columns[i].times;
#pragma omp simd
      for (std::int64_t k = 0; k < channels; ++k) dst[k] += times * (pixel[k] * pixel[k]);
    }
  }
#pragma omp simd
  for (std::int64_t k = 0; k < channels; ++k) dst[k] = dst[k] == 0 ? 0.0f : diff[k] / std::sqrt(dst[k]);
}

void norm_gradient(const PoolGradientCall& call) {
  const PoolGradientProblem& problem = call.problem;
  const Axis &down = call.down, &across = call.across;
  const Shares &rows = call.rows, &columns = call.columns;
  const Tensor src = tensor_of(problem.src), diff = tensor_of(problem.diff_dst), dst = tensor_of(problem.diff_src);
  const bool splits = src.format == Format::float32 && diff.format == Format::float32 && dst.format == Format::float32;
  const Partition work = partition(dst, rows.reach(), splits);
  struct Own {
    FloatRows source, factors;
    std::vector<const float*> pointers;
    std::vector<float> quotients;
  };
  std::vector<Own> own(static_cast<std::size_t>(work.threads),
                       {FloatRows(src, std::min(down.reach(), src.h)),
                        FloatRows(src, 1),
                        {},
                        std::vector<float>(static_cast<std::size_t>(diff.w * work.part))});
  DiffRows diff_rows(diff, work.threads);
  const auto make_row = [&](int thread, std::int64_t n, std::int64_t v, std::int64_t c0, std::int64_t channels) {
    Own& my = own[static_cast<std::size_t>(thread)];
    const auto places = down.of(v);
    my.pointers.clear();
    for (const Place& place : places) my.pointers.push_back(my.source.row(n, place.at) + c0);
    const PixelRow from = diff_rows(thread, n, v, c0);
    for (std::int64_t u = 0; u < diff.w; ++u) {
      const auto seen = across.of(u);
      quotients(my.pointers.data(), places.data(), static_cast<std::int64_t>(places.size()), my.source.pixel_stride(),
                seen.data(), static_cast<std::int64_t>(seen.size()), from.data + u * from.step,
                my.quotients.data() + u * channels, channels);
    }
    return PixelRow{my.quotients.data(), channels};
  };
  const auto factor = [&](int thread, std::int64_t n, std::int64_t y, std::int64_t c0) {
    FloatRows& mine = own[static_cast<std::size_t>(thread)].factors;
    return PixelRow{mine.row(n, problem.first_h + y) + problem.first_w * mine.pixel_stride() + c0, mine.pixel_stride()};
  };
  gather_separable(dst, diff.h, rows, columns, work, make_row, factor);
}

void average_gradient(const PoolGradientCall& call) {
  const Tensor result = tensor_of(call.problem.diff_src), from = tensor_of(call.problem.diff_dst);
  const Partition work = partition(result, 1, false);
  DiffRows diff_rows(from, work.threads);
  gather_separable(result, from.h, call.rows, call.columns, work, std::ref(diff_rows), no_factor);
}

const char* pool_gradient_disjoint(const PoolGradientCall& call) {
  if (call.problem.type != PoolType::max) return "no maxima";
  if (call.rows.most() > 1 || call.columns.most() > 1) return "windows overlap";
  if (!call.is_direct()) return "the result is not float32 or has other columns than the source";
  max_gradient(call, false);
  return nullptr;
}

const char* pool_gradient_sums(const PoolGradientCall& call) {
  switch (call.problem.type) {
    case PoolType::max: max_gradient(call, true); break;
    case PoolType::l2_norm: norm_gradient(call); break;
    case PoolType::average: average_gradient(call); break;
  }
  return nullptr;
}

constexpr Implementation<PoolGradientCall> kPoolGradients[] = {
    {"pool_gradient_disjoint", pool_gradient_disjoint},
    {"pool_gradient_sums", pool_gradient_sums},
};
const ImplementationNames kPoolGradientNames(kPoolGradients);

}  // namespace

void run(const PoolGradientProblem& problem) { run_first("pool_gradient", kPoolGradients, PoolGradientCall(problem)); }

}  // namespace openmps::cpu

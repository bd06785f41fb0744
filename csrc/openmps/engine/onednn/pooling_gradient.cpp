// SPDX-License-Identifier: Apache-2.0
#include "engine/onednn/pooling_gradient.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/onednn/adjoint.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/taps.hpp"

namespace openmps::onednn {
namespace {

/// Sixteen values, in as many registers as the instruction set takes for them.
typedef float Floats __attribute__((vector_size(64)));
typedef std::int32_t Numbers __attribute__((vector_size(64)));
typedef float FloatsAnywhere __attribute__((vector_size(64), aligned(4)));
typedef std::int32_t NumbersAnywhere __attribute__((vector_size(64), aligned(4)));

#define MPSCNN_LOAD(pointer) (*reinterpret_cast<const FloatsAnywhere*>(pointer))
#define MPSCNN_LOAD_NUMBERS(pointer) (*reinterpret_cast<const NumbersAnywhere*>(pointer))
#define MPSCNN_STORE(pointer, value) (*reinterpret_cast<FloatsAnywhere*>(pointer) = (value))
#define MPSCNN_STORE_NUMBERS(pointer, value) (*reinterpret_cast<NumbersAnywhere*>(pointer) = (value))

/// A place along an axis that a window reads, and how often.
struct Place {
  std::int64_t at;
  float times;
};

/// What the windows of one axis read, in increasing order.
struct Axis {
  std::vector<std::size_t> begins{0};
  std::vector<Place> places;
  std::vector<std::int64_t> taps;  ///< an average divides by
  std::vector<char> is_outside;    ///< some of the window is

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
  /// From the first place to the last one, both included.
  std::int64_t reach() const {
    std::int64_t most = 1;
    for (std::size_t v = 0; v + 1 < begins.size(); ++v) {
      const auto seen = of(static_cast<std::int64_t>(v));
      if (!seen.empty()) most = std::max(most, seen.back().at - seen.front().at + 1);
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

// ----------------------------------------------------------------------------------------------- greatest pixels

/// The windows of a row: rows[j] + columns[i].at * step is a pixel, row_numbers[j] + columns[i].at its number.
struct MaxRow {
  const float* const* rows;
  const std::int32_t* row_numbers;
  std::int64_t row_count, step;
  const Place* columns;
  const std::size_t* begins;  ///< of each window's columns
  const char* is_outside;     ///< zeros in the window
  std::int64_t windows, channels;
};

/// The number of each window's greatest pixel, -1 for none. Returns whether there is NaN.
MPSCNN_CLONES bool find_greatest(const MaxRow& row, std::int32_t* found) {
  const std::int64_t channels = row.channels;
  Numbers nan{};
  bool is_nan = false;
  for (std::int64_t v = 0; v < row.windows; ++v, found += channels) {
    const Place* const columns = row.columns + row.begins[v];
    const auto count = static_cast<std::int64_t>(row.begins[v + 1] - row.begins[v]);
    if (count == 0 || row.row_count == 0) {
      std::fill_n(found, channels, -1);
      continue;
    }
    const bool outside = row.is_outside[v] != 0;
    std::int64_t k = 0;
    for (; k + 16 <= channels; k += 16) {
      Floats best = MPSCNN_LOAD(row.rows[0] + columns[0].at * row.step + k);
      Numbers at = static_cast<std::int32_t>(row.row_numbers[0] + columns[0].at) - Numbers{};
      nan |= best != best;
      for (std::int64_t j = 0; j < row.row_count; ++j) {
        const float* const pixels = row.rows[j] + k;
        for (std::int64_t i = j == 0; i < count; ++i) {
          const Floats x = MPSCNN_LOAD(pixels + columns[i].at * row.step);
          const Numbers number = static_cast<std::int32_t>(row.row_numbers[j] + columns[i].at) - Numbers{};
          at = x > best ? number : at;
          best = x > best ? x : best;
          nan |= x != x;
        }
      }
      if (outside) at = best < Floats{} ? Numbers{} - 1 : at;
      MPSCNN_STORE_NUMBERS(found + k, at);
    }
    for (; k < channels; ++k) {
      float best = row.rows[0][columns[0].at * row.step + k];
      auto at = static_cast<std::int32_t>(row.row_numbers[0] + columns[0].at);
      is_nan |= best != best;
      for (std::int64_t j = 0; j < row.row_count; ++j) {
        for (std::int64_t i = j == 0; i < count; ++i) {
          const float x = row.rows[j][columns[i].at * row.step + k];
          at = x > best ? static_cast<std::int32_t>(row.row_numbers[j] + columns[i].at) : at;
          best = x > best ? x : best;
          is_nan |= x != x;
        }
      }
      found[k] = outside && best < 0 ? -1 : at;
    }
  }
  for (int i = 0; i < 16; ++i) is_nan |= nan[i] != 0;
  return is_nan;
}

/// Windows with NaN: the first one.
void find_nan(const MaxRow& row, std::int32_t* found) {
  for (std::int64_t v = 0; v < row.windows; ++v, found += row.channels) {
    for (std::int64_t k = 0; k < row.channels; ++k) {
      bool is_found = false;
      for (std::int64_t j = 0; j < row.row_count && !is_found; ++j) {
        for (std::size_t i = row.begins[v]; i < row.begins[v + 1] && !is_found; ++i) {
          if (!std::isnan(row.rows[j][row.columns[i].at * row.step + k])) continue;
          found[k] = static_cast<std::int32_t>(row.row_numbers[j] + row.columns[i].at);
          is_found = true;
        }
      }
    }
  }
}

/// A row of pixels of the result: what they get of the windows that see them. Window row i found found[i] and has the
/// gradient diff[i], `diff_step` from one window to the next.
struct TakenRow {
  const std::int32_t* const* found;
  const float* const* diff;
  std::int64_t row_count, diff_step;
  const Shares::Share* shares;  ///< of the columns
  const std::size_t* begins;
  std::int32_t number;  ///< of the first pixel
  std::int64_t pixels, channels;
};

MPSCNN_CLONES void take_shares(const TakenRow& row, float* dst, std::int64_t step) {
  const std::int64_t channels = row.channels;
  for (std::int64_t x = 0; x < row.pixels; ++x, dst += step) {
    const Shares::Share* const begin = row.shares + row.begins[x];
    const Shares::Share* const end = row.shares + row.begins[x + 1];
    const auto number = static_cast<std::int32_t>(row.number + x);
    const Numbers own = number - Numbers{};
    std::int64_t k = 0;
    for (; k + 16 <= channels; k += 16) {
      Floats sum{};
      for (std::int64_t i = 0; i < row.row_count; ++i) {
        for (const Shares::Share* share = begin; share != end; ++share) {
          const Numbers found = MPSCNN_LOAD_NUMBERS(row.found[i] + share->result * channels + k);
          const Floats diff = MPSCNN_LOAD(row.diff[i] + share->result * row.diff_step + k);
          sum += found == own ? diff : Floats{};
        }
      }
      MPSCNN_STORE(dst + k, sum);
    }
    for (; k < channels; ++k) {
      float sum = 0;
      for (std::int64_t i = 0; i < row.row_count; ++i)
        for (const Shares::Share* share = begin; share != end; ++share)
          sum += row.found[i][share->result * channels + k] == number ? row.diff[i][share->result * row.diff_step + k]
                                                                      : 0.0f;
      dst[k] = sum;
    }
  }
}

/// The same where each pixel is in one window at most: the windows give to all their pixels at once, found or not.
/// to[j] is where row j of the windows goes, null: nowhere. Returns whether there is NaN, which is not looked after.
MPSCNN_CLONES bool give_to_greatest(const MaxRow& row, const float* diff, std::int64_t diff_step, float* const* to,
                                    std::int64_t step) {
  Numbers nan{};
  bool is_nan = false;
  for (std::int64_t v = 0; v < row.windows; ++v, diff += diff_step) {
    const Place* const columns = row.columns + row.begins[v];
    const auto count = static_cast<std::int64_t>(row.begins[v + 1] - row.begins[v]);
    const bool outside = row.is_outside[v] != 0;
    if (count == 0) continue;
    std::int64_t k = 0;
    for (; k + 16 <= row.channels; k += 16) {
      Floats best = MPSCNN_LOAD(row.rows[0] + columns[0].at * row.step + k);
      Numbers at{};
      for (std::int64_t j = 0, tap = 0; j < row.row_count; ++j) {
        for (std::int64_t i = 0; i < count; ++i, ++tap) {
          const Floats x = MPSCNN_LOAD(row.rows[j] + columns[i].at * row.step + k);
          at = x > best ? static_cast<std::int32_t>(tap) - Numbers{} : at;
          best = x > best ? x : best;
          nan |= x != x;
        }
      }
      if (outside) at = best < Floats{} ? Numbers{} - 1 : at;
      const Floats given = MPSCNN_LOAD(diff + k);
      for (std::int64_t j = 0, tap = 0; j < row.row_count; ++j) {
        for (std::int64_t i = 0; i < count; ++i, ++tap) {
          if (to[j])
            MPSCNN_STORE(to[j] + columns[i].at * step + k,
                         at == static_cast<std::int32_t>(tap) - Numbers{} ? given : Floats{});
        }
      }
    }
    for (; k < row.channels; ++k) {
      float best = row.rows[0][columns[0].at * row.step + k];
      std::int64_t at = 0;
      for (std::int64_t j = 0, tap = 0; j < row.row_count; ++j) {
        for (std::int64_t i = 0; i < count; ++i, ++tap) {
          const float x = row.rows[j][columns[i].at * row.step + k];
          at = x > best ? tap : at;
          best = x > best ? x : best;
          is_nan |= x != x;
        }
      }
      if (outside && best < 0) at = -1;
      for (std::int64_t j = 0, tap = 0; j < row.row_count; ++j)
        for (std::int64_t i = 0; i < count; ++i, ++tap)
          if (to[j]) to[j][columns[i].at * step + k] = at == tap ? diff[k] : 0.0f;
    }
  }
  for (int i = 0; i < 16; ++i) is_nan |= nan[i] != 0;
  return is_nan;
}

void max_gradient(const PoolGradientProblem& problem, const Axis& down, const Axis& across, const Shares& rows,
                  const Shares& columns) {
  const Tensor src = tensor_of(problem.src), diff = tensor_of(problem.diff_dst), dst = tensor_of(problem.diff_src);
  const bool floats = src.format == Format::float32 && diff.format == Format::float32 && dst.format == Format::float32;
  const Partition work = partition(dst, rows.reach(), floats);
  struct Own {
    FloatRows source, diff;
    RowRing<std::int32_t> found;
    std::vector<const float*> pointers, diff_rows;
    std::vector<const std::int32_t*> found_rows;
    std::vector<std::int32_t> numbers;
    std::vector<char> is_outside;
    std::vector<float*> to;
    std::vector<float> result;
  };
  const bool zero = problem.window.edge == Edge::zero;
  const std::int64_t c = dst.c, w = dst.w, lines = dst.n * dst.h;
  const auto most_rows = static_cast<std::size_t>(rows.most());
  std::size_t window_rows = 0;
  for (std::int64_t v = 0; v < diff.h; ++v) window_rows = std::max(window_rows, down.of(v).size());
  std::vector<Own> own;
  for (int i = 0; i < work.threads; ++i)
    own.push_back({FloatRows(src, std::min(down.reach(), src.h)), FloatRows(diff, std::min(rows.reach(), diff.h)),
                   RowRing<std::int32_t>(rows.reach(), diff.w * work.part), std::vector<const float*>(window_rows),
                   std::vector<const float*>(most_rows), std::vector<const std::int32_t*>(most_rows),
                   std::vector<std::int32_t>(window_rows), std::vector<char>(static_cast<std::size_t>(diff.w)),
                   std::vector<float*>(window_rows), std::vector<float>(static_cast<std::size_t>(floats ? 0 : w * c))});
  // No pixel is in two windows, and the windows' columns are the result's.
  const bool apart = floats && rows.most() <= 1 && columns.most() <= 1 && problem.first_w == 0 && w == src.w;
  std::vector<std::int64_t> bare;  // columns that no window sees
  for (std::int64_t x = 0; apart && x < w; ++x)
    if (columns.of(x).empty()) bare.push_back(x);

  parallel_ranges(lines * work.parts, work.threads, [&](std::int64_t begin, std::int64_t end) {
    Own& my = own[static_cast<std::size_t>(thread_number())];
    const std::int64_t diff_step = my.diff.pixel_stride();
    std::int64_t done = -1;  // row of windows that has given already
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t part = item / lines, n = item % lines / dst.h, y = item % lines % dst.h;
      const std::int64_t c0 = part * work.part, channels = std::min(work.part, c - c0);
      const auto row_shares = rows.of(y);
      const auto windows_of = [&](std::int64_t v) {
        const auto places = down.of(v);
        for (std::size_t j = 0; j < places.size(); ++j) {
          my.pointers[j] = my.source.row(n, places[j].at) + c0;
          my.numbers[j] = static_cast<std::int32_t>(places[j].at * src.w);
        }
        for (std::size_t u = 0; u < my.is_outside.size(); ++u)
          my.is_outside[u] = zero && (down.is_outside[static_cast<std::size_t>(v)] || across.is_outside[u]);
        return MaxRow{my.pointers.data(),
                      my.numbers.data(),
                      static_cast<std::int64_t>(places.size()),
                      my.source.pixel_stride(),
                      across.places.data(),
                      across.begins.data(),
                      my.is_outside.data(),
                      diff.w,
                      channels};
      };
      if (apart && row_shares.size() == 1) {
        const std::int64_t v = row_shares[0].result, line = item / dst.h * diff.h + v;
        if (done == line) continue;
        const auto places = down.of(v);
        for (std::size_t j = 0; j < places.size(); ++j) {
          const std::int64_t row = places[j].at - problem.first_h, other = item + row - y;
          // Rows before this one are done, or another thread's.
          const bool is_mine = row >= y && row < dst.h && other < end;
          my.to[j] = is_mine ? dst.floats(n, row) + c0 : nullptr;
          for (const std::int64_t x : bare)
            if (is_mine) std::fill_n(my.to[j] + x * dst.w_stride, channels, 0.0f);
        }
        if (!give_to_greatest(windows_of(v), my.diff.row(n, v) + c0, diff_step, my.to.data(), dst.w_stride)) {
          done = line;
          continue;
        }
      }
      for (std::size_t i = 0; i < row_shares.size(); ++i) {
        const std::int64_t v = row_shares[i].result;
        my.diff_rows[i] = my.diff.row(n, v) + c0;
        my.found_rows[i] = my.found.row((part * dst.n + n) * diff.h + v, [&](std::int32_t* found) {
          const MaxRow row = windows_of(v);
          if (find_greatest(row, found)) find_nan(row, found);
        });
      }
      const TakenRow row{my.found_rows.data(),
                         my.diff_rows.data(),
                         static_cast<std::int64_t>(row_shares.size()),
                         diff_step,
                         columns.all(),
                         columns.begins(),
                         static_cast<std::int32_t>((problem.first_h + y) * src.w + problem.first_w),
                         w,
                         channels};
      if (floats) {
        take_shares(row, dst.floats(n, y) + c0, dst.w_stride);
      } else {
        take_shares(row, my.result.data(), c);
        store_pixels(my.result.data(), dst.at(n, y), dst, w);
      }
    }
  });
}

// --------------------------------------------------------------------------------------------------------- norms

/// One window: diff / sqrt(sum times * x^2), 0 where that is 0.
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

void norm_gradient(const PoolGradientProblem& problem, const Axis& down, const Axis& across, const Shares& rows,
                   const Shares& columns) {
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

}  // namespace

void pool_gradient(const PoolGradientProblem& problem) {
  const Window& w = problem.window;
  const ImageView &diff = problem.diff_dst, &src = problem.src, &dst = problem.diff_src;
  const Axis down(w.start_h, w.kernel_h, w.stride_h, w.dilation_h, src.h, diff.h, problem.zero_pad_h, problem);
  const Axis across(w.start_w, w.kernel_w, w.stride_w, w.dilation_w, src.w, diff.w, problem.zero_pad_w, problem);
  const Shares rows = down.shares(problem.first_h, dst.h, problem.type);
  const Shares columns = across.shares(problem.first_w, dst.w, problem.type);
  switch (problem.type) {
    case PoolType::max: return max_gradient(problem, down, across, rows, columns);
    case PoolType::l2_norm: return norm_gradient(problem, down, across, rows, columns);
    case PoolType::average: {
      const Tensor result = tensor_of(dst), from = tensor_of(diff);
      const Partition work = partition(result, 1, false);
      DiffRows diff_rows(from, work.threads);
      return gather_separable(result, from.h, rows, columns, work, std::ref(diff_rows), no_factor);
    }
  }
}

}  // namespace openmps::onednn

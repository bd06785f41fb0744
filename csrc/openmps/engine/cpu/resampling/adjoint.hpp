// SPDX-License-Identifier: Apache-2.0
// Gradients of separable kernels: pooling, resampling, padding. Every value of the result gathers its terms in one
// order, so the bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/shared/float_rows.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

/// For each source position ("place") along one axis: the results that read it, with their weights.
class Shares {
 public:
  struct Share {
    std::int64_t result;
    float weight;
  };

  /// For places first ... first + count - 1. each(result, add) calls add(place, weight) for each place it reads; it
  /// is called for the results in order, twice.
  template <class Each>
  Shares(std::int64_t first, std::int64_t count, std::int64_t results, const Each& each)
      : begins_(static_cast<std::size_t>(count) + 1, 0) {
    const auto visit = [&](const auto& take) {
      for (std::int64_t result = 0; result < results; ++result)
        each(result, [&](std::int64_t place, float weight) {
          if (place >= first && place < first + count) take(static_cast<std::size_t>(place - first), result, weight);
        });
    };
    visit([&](std::size_t place, std::int64_t, float) { ++begins_[place + 1]; });
    for (std::size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
    shares_.resize(begins_.back());
    std::vector<std::size_t> next(begins_.begin(), begins_.end() - 1);
    visit([&](std::size_t place, std::int64_t result, float weight) { shares_[next[place]++] = {result, weight}; });
    for (std::int64_t i = 0; i < count; ++i) {
      const auto some = of(i);
      if (some.empty()) continue;
      most_ = std::max(most_, static_cast<std::int64_t>(some.size()));
      reach_ = std::max(reach_, some.back().result - some.front().result + 1);
    }
  }

  /// Return the results that read a place, in increasing order.
  std::span<const Share> of(std::int64_t place) const {
    const auto at = static_cast<std::size_t>(place);
    return std::span(shares_).subspan(begins_[at], begins_[at + 1] - begins_[at]);
  }
  /// For loops over many places: of(place) is [all()[begins()[place]], all()[begins()[place + 1]]).
  const Share* all() const { return shares_.data(); }
  const std::size_t* begins() const { return begins_.data(); }
  std::int64_t most() const { return most_; }    ///< max shares of a place
  std::int64_t reach() const { return reach_; }  ///< max extent of a place's results, first to last

 private:
  std::vector<std::size_t> begins_;
  std::vector<Share> shares_;
  std::int64_t most_ = 0, reach_ = 1;
};

/// Rows that are computed on first use and kept while the row in use advances. One object per thread.
template <class Value>
class RowRing {
 public:
  RowRing(std::int64_t rows, std::int64_t length)
      : length_(length), held_(static_cast<std::size_t>(rows), -1), values_(static_cast<std::size_t>(rows * length)) {}

  /// Return row `row`, counted through all images; make(values) computes it.
  template <class Make>
  Value* row(std::int64_t row, const Make& make) {
    const std::int64_t slot = row % static_cast<std::int64_t>(held_.size());
    Value* const values = values_.data() + slot * length_;
    if (std::exchange(held_[static_cast<std::size_t>(slot)], row) != row) make(values);
    return values;
  }

 private:
  const std::int64_t length_;
  std::vector<std::int64_t> held_;
  std::vector<Value> values_;
};

/// A row of pixels as floats; `step` is the distance between pixels.
struct PixelRow {
  const float* data;
  std::int64_t step;
};

/// Split of the work: each thread takes rows, or all rows of ranges of channels.
struct Partition {
  int threads;
  std::int64_t parts, part;  ///< number of channel ranges, channels of each
};

/// Return the split. `reach` rows of a result need the same row of the source: threads that share the rows of an image
/// compute it twice. `splits`: channels may be split.
Partition partition(const Tensor& diff_src, std::int64_t reach, bool splits);

/// diff_src(y, x) = factor * sum of weights over `rows` of y and `columns` of x times row(n, v)[u]. make_row(thread, n,
/// v, c0, channels) returns a row that is valid until its next call; factor(thread, n, y, c0) returns a row of factors,
/// or data == nullptr for 1.
template <class MakeRow, class Factor>
void gather_separable(const Tensor& diff_src, std::int64_t results, const Shares& rows, const Shares& columns,
                      const Partition& work, const MakeRow& make_row, const Factor& factor);

// Inner loops, one copy per instruction set.
void gather_columns(PixelRow row, const Shares& columns, std::int64_t count, std::int64_t channels, float* dst);
void gather_rows(const float* const* rows, const float* weights, std::int64_t count, float* dst, std::int64_t length);
void multiply_pixels(PixelRow factors, float* dst, std::int64_t step, std::int64_t pixels, std::int64_t channels);

template <class MakeRow, class Factor>
void gather_separable(const Tensor& diff_src, std::int64_t results, const Shares& rows, const Shares& columns,
                      const Partition& work, const MakeRow& make_row, const Factor& factor) {
  struct Own {
    RowRing<float> sums;
    std::vector<const float*> pointers;
    std::vector<float> weights, result;
  };
  const std::int64_t w = diff_src.w, c = diff_src.c, lines = diff_src.n * diff_src.h;
  std::vector<Own> own;
  for (int i = 0; i < work.threads; ++i)
    own.push_back({RowRing<float>(rows.reach(), w * work.part),
                   std::vector<const float*>(static_cast<std::size_t>(rows.most())),
                   std::vector<float>(static_cast<std::size_t>(rows.most())),
                   std::vector<float>(static_cast<std::size_t>(w * work.part))});

  parallel_ranges(lines * work.parts, work.threads, [&](std::int64_t begin, std::int64_t end) {
    const int thread = thread_number();
    Own& my = own[static_cast<std::size_t>(thread)];
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t part = item / lines, n = item % lines / diff_src.h, y = item % lines % diff_src.h;
      const std::int64_t c0 = part * work.part, channels = std::min(work.part, c - c0);
      const bool adjacent = w == 1 || diff_src.w_stride == channels;
      const bool direct = diff_src.format == Format::float32 && adjacent;
      float* const result = direct ? diff_src.floats(n, y) + c0 : my.result.data();
      std::size_t count = 0;
      for (const Shares::Share& share : rows.of(y)) {
        const std::int64_t v = share.result;
        my.pointers[count] = my.sums.row((part * diff_src.n + n) * results + v, [&](float* sums) {
          gather_columns(make_row(thread, n, v, c0, channels), columns, w, channels, sums);
        });
        my.weights[count++] = share.weight;
      }
      gather_rows(my.pointers.data(), my.weights.data(), static_cast<std::int64_t>(count), result, w * channels);
      const PixelRow factors = factor(thread, n, y, c0);
      if (factors.data) multiply_pixels(factors, result, channels, w, channels);
      if (direct) continue;
      if (channels == c) {
        store_pixels(result, diff_src.at(n, y), diff_src, w);
      } else {  // split channels are floats
        for (std::int64_t x = 0; x < w; ++x)
          std::copy_n(result + x * channels, channels, diff_src.floats(n, y, x) + c0);
      }
    }
  });
}

/// Rows of an incoming gradient, for make_row.
class DiffRows {
 public:
  DiffRows(const Tensor& diff_dst, int threads) : rows_(static_cast<std::size_t>(threads), FloatRows(diff_dst, 1)) {}
  PixelRow operator()(int thread, std::int64_t n, std::int64_t v, std::int64_t c0, std::int64_t = 0) {
    FloatRows& mine = rows_[static_cast<std::size_t>(thread)];
    return {mine.row(n, v) + c0, mine.pixel_stride()};
  }

 private:
  std::vector<FloatRows> rows_;
};

inline PixelRow no_factor(int, std::int64_t, std::int64_t, std::int64_t) { return {nullptr, 0}; }

}  // namespace openmps::cpu

// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/reshape/reshape.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/resampling/adjoint.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/pad_place.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;  // min values per thread

/// Copy `count` adjacent values, converted if the formats differ.
void copy_values(const std::byte* from, Format from_format, std::byte* to, Format to_format, std::int64_t count) {
  if (from_format == to_format) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(to_format));
  } else if (to_format == Format::float32) {
    row_to_float(from, from_format, reinterpret_cast<float*>(to), count);
  } else if (from_format == Format::float32) {
    row_from_float(reinterpret_cast<const float*>(from), to, to_format, count);
  } else {
    float values[kOperandChunk];
    for (std::int64_t i = 0; i < count; i += kOperandChunk) {
      const std::int64_t part = std::min(kOperandChunk, count - i);
      row_to_float(from + i * static_cast<std::int64_t>(size_of(from_format)), from_format, values, part);
      row_from_float(values, to + i * static_cast<std::int64_t>(size_of(to_format)), to_format, part);
    }
  }
}

/// Iterates over the values of one image in order.
class Cursor {
 public:
  Cursor(const Tensor& tensor, std::int64_t n, std::int64_t value)
      : tensor_(tensor), n_(n), run_(tensor.w == 1 || tensor.w_stride == tensor.c ? tensor.w * tensor.c : tensor.c) {
    line_ = value / run_, at_ = value % run_;
  }
  /// Return the number of values from here on that are adjacent in memory.
  std::int64_t adjacent() const { return run_ - at_; }
  std::byte* data() const {
    const std::int64_t lines_per_row = tensor_.w * tensor_.c / run_;
    return tensor_.at(n_, line_ / lines_per_row, line_ % lines_per_row) +
           at_ * static_cast<std::int64_t>(size_of(tensor_.format));
  }
  void advance(std::int64_t values) {
    at_ += values;
    if (at_ == run_) at_ = 0, ++line_;
  }

 private:
  const Tensor& tensor_;
  const std::int64_t n_, run_;  ///< values per line of adjacent ones: a row or a pixel
  std::int64_t line_, at_;
};

std::vector<std::int64_t> places(std::int64_t start, std::int64_t count, std::int64_t size, PadEdge edge) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < count; ++i) result.push_back(pad_place(start + i, size, edge));
  return result;
}

/// A run of a result along an axis that is adjacent in the source too, or that is the constant (from == -1).
struct Run {
  std::int64_t from, to, count;
};

std::vector<Run> runs_of(const std::vector<std::int64_t>& places) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!runs.empty()) {
      Run& last = runs.back();
      if (places[i] == (last.from < 0 ? -1 : last.from + last.count)) {
        ++last.count;
        continue;
      }
    }
    runs.push_back({places[i], static_cast<std::int64_t>(i), 1});
  }
  return runs;
}

const char* reshape_dense(const ReshapeProblem& problem) {
  Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  if (!src.is_dense() || !dst.is_dense()) return "gaps between the values";
  for (Tensor* const tensor : {&src, &dst}) {
    tensor->w = tensor->size();
    tensor->n = tensor->h = tensor->c = tensor->w_stride = 1;
  }
  copy(src, dst);
  return nullptr;
}

const char* reshape_runs(const ReshapeProblem& problem) {
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  const std::int64_t values = src.h * src.w * src.c;
  parallel_ranges(src.n * values, threads_for(src.n * values, kGrain), [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t n = begin / values, first = begin % values;
      const std::int64_t last = std::min(values, first + end - begin);
      Cursor from(src, n, first), to(dst, n, first);
      for (std::int64_t at = first; at < last;) {
        const std::int64_t count = std::min({from.adjacent(), to.adjacent(), last - at});
        copy_values(from.data(), src.format, to.data(), dst.format, count);
        from.advance(count), to.advance(count);
        at += count;
      }
      begin += last - first;
    }
  });
  return nullptr;
}

constexpr Implementation<ReshapeProblem> kReshapes[] = {
    {"reshape_dense", reshape_dense},
    {"reshape_runs", reshape_runs},
};
const ImplementationNames kReshapeNames(kReshapes);

/// Return whether runs of whole pixels can be copied.
bool pads_whole_rows(const PadProblem& problem) {
  const ImageView &src = problem.src, &dst = problem.dst;
  return problem.start_c == 0 && src.c == dst.c && (src.w == 1 || src.w_stride == src.c) &&
         (dst.w == 1 || dst.w_stride == dst.c);
}

void pad_image(const PadProblem& problem, bool by_rows) {
  const Tensor src = tensor_of(problem.src), dst = tensor_of(problem.dst);
  const std::int64_t c = dst.c;
  // A constant pixel in dst's format.
  std::vector<float> fill(static_cast<std::size_t>(c), problem.fill);
  if (problem.fill_per_channel) fill = *problem.fill_per_channel;
  const auto from_size = static_cast<std::int64_t>(size_of(src.format)),
             size = static_cast<std::int64_t>(size_of(dst.format));
  std::vector<std::byte> constant(static_cast<std::size_t>(c * size));
  row_from_float(fill.data(), constant.data(), dst.format, c);

  const std::vector<std::int64_t> columns = places(problem.start_w, dst.w, src.w, problem.edge);
  const std::vector<Run> channels = runs_of(places(problem.start_c, c, src.c, problem.edge));
  const std::vector<Run> pixels = runs_of(columns);

  const auto fill_pixels = [&](std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(dst.at(n, y, x + i), constant.data(), constant.size());
  };
  parallel_ranges(dst.n * dst.h, threads_for(dst.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const std::int64_t n = line / dst.h, y = line % dst.h, row = pad_place(problem.start_h + y, src.h, problem.edge);
      if (row < 0) {
        fill_pixels(n, y, 0, dst.w);
        continue;
      }
      for (const Run& run : pixels) {
        if (run.from < 0) {
          fill_pixels(n, y, run.to, run.count);
        } else if (by_rows) {
          copy_values(src.at(n, row, run.from), src.format, dst.at(n, y, run.to), dst.format, run.count * c);
        } else {
          for (std::int64_t i = 0; i < run.count; ++i) {
            const std::byte* const from = src.at(n, row, run.from + i);
            std::byte* const to = dst.at(n, y, run.to + i);
            for (const Run& part : channels) {
              if (part.from < 0) {
                std::memcpy(to + part.to * size, constant.data() + part.to * size,
                            static_cast<std::size_t>(part.count * size));
              } else {
                copy_values(from + part.from * from_size, src.format, to + part.to * size, dst.format, part.count);
              }
            }
          }
        }
      }
    }
  });
}

const char* pad_rows(const PadProblem& problem) {
  if (!pads_whole_rows(problem)) return "channels are padded, or pixels are not adjacent";
  pad_image(problem, true);
  return nullptr;
}

const char* pad_pixels(const PadProblem& problem) {
  pad_image(problem, false);
  return nullptr;
}

constexpr Implementation<PadProblem> kPads[] = {
    {"pad_rows", pad_rows},
    {"pad_pixels", pad_pixels},
};
const ImplementationNames kPadNames(kPads);

void pad_gradient(const PadGradientProblem& problem, bool as_they_are) {
  const Tensor diff = tensor_of(problem.diff_dst), dst = tensor_of(problem.diff_src);
  const auto shares = [&](std::int64_t start, std::int64_t size, std::int64_t results, std::int64_t first,
                          std::int64_t count) {
    return Shares(first, count, results, [&](std::int64_t i, const auto& add) {
      const std::int64_t at = pad_place(start + i, size, problem.edge);
      if (at >= 0) add(at, 1.0f);
    });
  };
  const Shares rows = shares(problem.start_h, problem.src_h, diff.h, problem.first_h, dst.h),
               columns = shares(problem.start_w, problem.src_w, diff.w, problem.first_w, dst.w);
  const std::vector<std::int64_t> channels = places(problem.start_c, diff.c, dst.c, problem.edge);
  const Partition work = partition(dst, rows.reach(), false);
  DiffRows diff_rows(diff, work.threads);
  std::vector<std::vector<float>> lines(static_cast<std::size_t>(work.threads));
  for (auto& line : lines) line.resize(static_cast<std::size_t>(as_they_are ? 0 : diff.w * dst.c));
  const auto make_row = [&](int thread, std::int64_t n, std::int64_t v, std::int64_t, std::int64_t c) {
    const PixelRow row = diff_rows(thread, n, v, 0);
    if (as_they_are) return row;
    float* const line = lines[static_cast<std::size_t>(thread)].data();
    std::fill_n(line, diff.w * c, 0.0f);
    for (std::int64_t u = 0; u < diff.w; ++u) {
      const float* const from = row.data + u * row.step;
      float* const to = line + u * c;
      for (std::size_t k = 0; k < channels.size(); ++k)
        if (channels[k] >= 0) to[channels[k]] += from[k];
    }
    return PixelRow{line, c};
  };
  gather_separable(dst, diff.h, rows, columns, work, make_row, no_factor);
}

const char* pad_gradient_rows(const PadGradientProblem& problem) {
  if (problem.start_c != 0 || problem.diff_dst.c != problem.diff_src.c) return "channels are padded";
  pad_gradient(problem, true);
  return nullptr;
}

const char* pad_gradient_channels(const PadGradientProblem& problem) {
  pad_gradient(problem, false);
  return nullptr;
}

constexpr Implementation<PadGradientProblem> kPadGradients[] = {
    {"pad_gradient_rows", pad_gradient_rows},
    {"pad_gradient_channels", pad_gradient_channels},
};
const ImplementationNames kPadGradientNames(kPadGradients);

}  // namespace

void run(const ReshapeProblem& problem) { run_first("reshape", kReshapes, problem); }
void run(const PadProblem& problem) { run_first("pad", kPads, problem); }
void run(const PadGradientProblem& problem) { run_first("pad_gradient", kPadGradients, problem); }

}  // namespace openmps::cpu

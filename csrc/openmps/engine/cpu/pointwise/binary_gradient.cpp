// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "engine/cpu/pointwise/gradients.hpp"
#include "engine/cpu/pointwise/pointwise.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/operands.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;  // min values per thread
constexpr std::int64_t kPart = 16 * 1024;   // about; values per partial sum, the same for every number of threads
constexpr std::int64_t kLeastRows = 8;      // min rows per partial sum, to limit their number

/// scale * diff * other where the mask is not 0, else 0; a null array is 1.
MPSCNN_CLONES void products(float scale, const float* diff, const float* other, const float* mask, float* dst,
                            std::int64_t count) {
  if (other) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) dst[i] = scale * diff[i] * other[i];
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) dst[i] = scale * diff[i];
  }
  if (!mask) return;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dst[i] = mask[i] != 0 ? dst[i] : 0.0f;
}

MPSCNN_CLONES void add_to(const float* values, double* sums, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sums[i] += values[i];
}

MPSCNN_CLONES float sum_of(const float* values, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += values[i];
  return sum;
}

/// Add up the pixels of a run, channel by channel.
MPSCNN_CLONES void sum_pixels(const float* values, std::int64_t pixels, std::int64_t channels, float* sums) {
  std::copy_n(values, channels, sums);
  for (std::int64_t p = 1; p < pixels; ++p) {
#pragma omp simd
    for (std::int64_t k = 0; k < channels; ++k) sums[k] += values[p * channels + k];
  }
}

/// products() of operands of `c` channels: the gradient, then the other source and the mask if there are any.
template <std::size_t count>
auto products_of(const BinaryGradientProblem& problem, std::int64_t c) {
  return [c, scale = problem.scale, has_other = problem.other.view.memory != nullptr,
          has_mask = problem.mask.view.memory != nullptr](const std::array<const float*, count>& src, float* dst,
                                                          std::int64_t, std::int64_t pixels) {
    products(scale, src[0], has_other ? src[count > 1] : nullptr, has_mask ? src[count - 1] : nullptr, dst, pixels * c);
  };
}

template <std::size_t count>
void without_sums(const BinaryGradientProblem& problem, const std::array<const Operand*, count>& operands) {
  for_operands<count>(operands, problem.diff_src, kGrain, /*across_images=*/true,
                      products_of<count>(problem, problem.diff_src.c));
}

/// Gradient of a source that clamped to its edge. Axes with sums are those that the source repeats.
template <std::size_t count>
void of_clamped_source(const BinaryGradientProblem& problem, const std::array<const Operand*, count>& operands) {
  const bool sums_h = problem.sum_h > 1, sums_w = problem.sum_w > 1;
  const Operand& diff = problem.diff_dst;
  const std::int64_t c = std::max(problem.diff_src.c, problem.sum_c);
  std::array<Operand, count> seen;
  for (std::size_t i = 0; i < count; ++i)
    seen[i] = moved(*operands[i], sums_h ? 0 : -diff.start_h, sums_w ? 0 : -diff.start_w);
  for_results<count>(seen, sums_h ? repeated_results(problem.sum_h) : result_rows(problem.source, diff),
                     sums_w ? repeated_results(problem.sum_w) : result_columns(problem.source, diff), c,
                     problem.diff_src, kGrain, products_of<count>(problem, c));
}

/// Computes products over extents of their own and sums them into the result.
class Summation {
 public:
  Summation(const BinaryGradientProblem& problem, const std::vector<const Operand*>& operands)
      : problem_(problem),
        dst_(tensor_of(problem.diff_src)),
        h_(std::max(dst_.h, problem.sum_h)),
        w_(std::max(dst_.w, problem.sum_w)),
        c_(std::max(dst_.c, problem.sum_c)),
        length_(dst_.w * dst_.c),
        room_(std::max(kOperandChunk, c_)) {
    for (const Operand* operand : operands) sources_.emplace_back(*operand);
  }

  void run() {
    const bool sums_rows = problem_.sum_h > 1;
    const std::int64_t rows = sums_rows ? std::max(kLeastRows, kPart / (w_ * c_)) : 1, parts = (h_ + rows - 1) / rows;
    const int threads = threads_for(dst_.n * h_ * w_ * c_, kGrain);
    std::vector<double> sums(static_cast<std::size_t>(dst_.n * parts * length_), 0.0);
    std::vector<std::vector<float>> buffers(static_cast<std::size_t>(threads));
    for (auto& buffer : buffers) buffer.resize(static_cast<std::size_t>(kBuffers * room_));
    parallel_ranges(dst_.n * parts, threads, [&](std::int64_t begin, std::int64_t end) {
      float* const buffer = buffers[static_cast<std::size_t>(thread_number())].data();
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t first = task % parts * rows, last = std::min(first + rows, h_);
        sum_rows(task / parts, first, last, sums.data() + task * length_, buffer);
      }
    });
    std::vector<float> line(static_cast<std::size_t>(length_));
    for (std::int64_t n = 0; n < dst_.n; ++n) {
      for (std::int64_t y = 0; y < dst_.h; ++y) {
        double* const whole = sums.data() + (n * parts + y) * length_;
        for (std::int64_t part = 1; sums_rows && part < parts; ++part)
          for (std::int64_t i = 0; i < length_; ++i) whole[i] += whole[part * length_ + i];
        for (std::int64_t i = 0; i < length_; ++i)
          line[static_cast<std::size_t>(i)] = static_cast<float>(whole[i] * problem_.scale);
        store_pixels(line.data(), dst_.at(n, y), dst_, dst_.w);
      }
    }
  }

 private:
  static constexpr std::int64_t kBuffers = 5;  ///< three operands, products, sums of a run

  void sum_rows(std::int64_t n, std::int64_t first, std::int64_t last, double* sums, float* buffer) const {
    const bool has_other = problem_.other.view.memory != nullptr, has_mask = problem_.mask.view.memory != nullptr;
    std::vector<OperandReader> readers;
    readers.reserve(sources_.size());
    for (std::size_t i = 0; i < sources_.size(); ++i)
      readers.emplace_back(sources_[i], c_, buffer + static_cast<std::int64_t>(i) * room_);
    float* const values = buffer + 3 * room_;
    float* const run_sums = buffer + 4 * room_;
    const std::int64_t run = std::max<std::int64_t>(1, kOperandChunk / c_);
    for (std::int64_t y = first; y < last; ++y) {
      for (std::int64_t x = 0; x < w_; x += run) {
        const std::int64_t pixels = std::min(run, w_ - x);
        const float* const diff = readers[0].read(n, y, x, pixels);
        const float* const other = has_other ? readers[1].read(n, y, x, pixels) : nullptr;
        const float* const mask = has_mask ? readers.back().read(n, y, x, pixels) : nullptr;
        const float* from = diff;
        if (other || mask) products(1, diff, other, mask, values, pixels * c_), from = values;
        add_run(from, x, pixels, sums, run_sums);
      }
    }
  }

  void add_run(const float* values, std::int64_t x, std::int64_t pixels, double* sums, float* run_sums) const {
    const bool sums_w = problem_.sum_w > 1, sums_c = problem_.sum_c > 1;
    if (sums_w && sums_c) {
      sums[0] += sum_of(values, pixels * c_);
    } else if (sums_w) {
      sum_pixels(values, pixels, c_, run_sums);
      add_to(run_sums, sums, c_);
    } else if (sums_c) {
      for (std::int64_t p = 0; p < pixels; ++p) sums[x + p] += sum_of(values + p * c_, c_);
    } else {
      add_to(values, sums + x * c_, pixels * c_);
    }
  }

  const BinaryGradientProblem& problem_;
  const Tensor dst_;
  const std::int64_t h_, w_, c_;
  const std::int64_t length_;  ///< values per row of the result
  const std::int64_t room_;    ///< values per buffer
  std::vector<OperandSource> sources_;
};

struct BinaryGradientCall {
  const BinaryGradientProblem& problem;
  std::vector<const Operand*> operands;  ///< the gradient, then the other source and the mask if there are any

  explicit BinaryGradientCall(const BinaryGradientProblem& p) : problem(p), operands{&p.diff_dst} {
    for (const Operand* operand : {&p.other, &p.mask})
      if (operand->view.memory) operands.push_back(operand);
  }
  bool is_seen_twice() const {
    return (problem.sum_h == 1 && result_rows(problem.source, problem.diff_dst).is_seen_twice()) ||
           (problem.sum_w == 1 && result_columns(problem.source, problem.diff_dst).is_seen_twice());
  }
};

const char* binary_gradient_by_value(const BinaryGradientCall& call) {
  const BinaryGradientProblem& problem = call.problem;
  const auto& operands = call.operands;
  if (problem.sum_h > 1 || problem.sum_w > 1 || problem.sum_c > 1) return "sums over repeated axes";
  if (call.is_seen_twice()) return "several results saw one pixel";
  if (operands.size() == 1) {
    without_sums<1>(problem, {operands[0]});
  } else if (operands.size() == 2) {
    without_sums<2>(problem, {operands[0], operands[1]});
  } else {
    without_sums<3>(problem, {operands[0], operands[1], operands[2]});
  }
  return nullptr;
}

const char* binary_gradient_sums(const BinaryGradientCall& call) {
  const BinaryGradientProblem& problem = call.problem;
  const auto& operands = call.operands;
  if (!call.is_seen_twice()) {
    Summation(problem, operands).run();
  } else if (operands.size() == 1) {
    of_clamped_source<1>(problem, {operands[0]});
  } else if (operands.size() == 2) {
    of_clamped_source<2>(problem, {operands[0], operands[1]});
  } else {
    of_clamped_source<3>(problem, {operands[0], operands[1], operands[2]});
  }
  return nullptr;
}

constexpr Implementation<BinaryGradientCall> kBinaryGradients[] = {
    {"binary_gradient_by_value", binary_gradient_by_value},
    {"binary_gradient_sums", binary_gradient_sums},
};
const ImplementationNames kBinaryGradientNames(kBinaryGradients);

}  // namespace

void run(const BinaryGradientProblem& problem) {
  run_first("binary_gradient", kBinaryGradients, BinaryGradientCall(problem));
}

}  // namespace openmps::cpu

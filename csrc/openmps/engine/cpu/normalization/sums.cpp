// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/normalization/sums.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "engine/cpu/normalization/normalization.hpp"
#include "engine/cpu/normalization/normalization_gradient.hpp"
#include "engine/cpu/normalization/normalization_parts.hpp"
#include "engine/cpu/pointwise/pointwise.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/isa.hpp"
#include "engine/shared/operands.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;  // min values per thread
constexpr std::int64_t kBlock = 2048;       // values that stay in the first-level cache for their next use
constexpr const char* kNotDense = "not all are images of float32 without gaps";

/// Return whether the image is dense; plans may store float32 as bfloat16.
bool is_dense(const ImageView& image) {
  return (image.format == Format::float32 || image.format == Format::bfloat16) && image.is_dense();
}

/// Return whether the operand has the pixels of `dst`, without gaps.
bool has_pixels_of(const Operand& operand, const ImageView& dst) {
  const ImageView& view = operand.view;
  return view.is_dense() && !operand.repeat_h && !operand.repeat_w && !operand.repeat_c && operand.start_h == 0 &&
         operand.start_w == 0 && view.n == dst.n && view.h == dst.h && view.w == dst.w && view.c == dst.c;
}

bool are_dense(const ImageView& dst, std::initializer_list<const Operand*> operands) {
  return is_dense(dst) && std::all_of(operands.begin(), operands.end(), [&](const Operand* operand) {
           return is_dense(operand->view) && has_pixels_of(*operand, dst);
         });
}

/// Masks are bytes, or the results of the sums that they belong to.
bool is_mask(const Operand& mask, const ImageView& dst) {
  return !mask.view.memory || ((mask.view.format == Format::unorm8 || is_dense(mask.view)) && has_pixels_of(mask, dst));
}

/// An image of float32 with the extents of another one.
class Between {
 public:
  explicit Between(const ImageView& like) : scratch_(static_cast<std::size_t>(like.size()) * sizeof(float)) {
    view_.n = like.n, view_.h = like.h, view_.w = like.w, view_.c = like.c;
    view_.w_stride = like.c, view_.h_stride = like.w * like.c, view_.n_stride = like.h * view_.h_stride;
    view_.memory = Memory::wrap(scratch_.data(), static_cast<std::size_t>(like.size()) * sizeof(float), nullptr);
  }
  const ImageView& view() const { return view_; }

 private:
  Scratch scratch_;
  ImageView view_;
};

/// Return whether the mask has a bit per value of `dst` [NormalizeAddProblem].
bool is_packed(const ImageView& mask, const ImageView& dst) { return mask.memory && mask.c != dst.c; }

/// A mask of bytes in place of a packed one, which other engines write.
class UnpackedMask {
 public:
  UnpackedMask(const ImageView& packed, const ImageView& dst)
      : packed_(tensor_of(packed).data),
        values_(static_cast<std::size_t>(dst.c / packed.c)),
        bytes_of_pixel_(static_cast<std::size_t>(packed.c)),
        bytes_(static_cast<std::size_t>(dst.size())) {
    view_ = dst;
    view_.format = Format::unorm8, view_.offset = 0;
    view_.w_stride = dst.c, view_.h_stride = dst.w * dst.c, view_.n_stride = dst.h * view_.h_stride;
    view_.memory = Memory::wrap(bytes_.data(), bytes_.size(), nullptr);
  }
  const ImageView& view() const { return view_; }
  void unpack() {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      bytes_[i] = (std::to_integer<int>(packed_[place_of(i / values_)]) >> (i % values_) & 1) != 0 ? 255 : 0;
  }
  void pack() const {
    for (std::size_t i = 0; i < bytes_.size(); i += values_) {
      int bits = 0;
      for (std::size_t j = 0; j < values_; ++j) bits |= (bytes_[i + j] != 0 ? 1 : 0) << j;
      packed_[place_of(i / values_)] = static_cast<std::byte>(bits);
    }
  }

 private:
  /// Return where byte i in the order of the values is.
  std::size_t place_of(std::size_t i) const {
    const std::size_t pixels = bytes_.size() / values_ / bytes_of_pixel_, pixel = i / bytes_of_pixel_,
                      byte = i % bytes_of_pixel_;
    return (byte / 8 * pixels + pixel) * 8 + byte % 8;
  }

  std::byte* const packed_;
  const std::size_t values_, bytes_of_pixel_;
  std::vector<std::uint8_t> bytes_;
  ImageView view_;
};

/// to = min(max(to + addend, low), high); NaN stays NaN. The mask, if any, is 1 where the sum is between the bounds.
MPSCNN_CLONES void add_within(const float* addend, float* to, std::uint8_t* mask, std::int64_t count, float low,
                              float high) {
  if (mask) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      const float sum = to[i] + addend[i];
      mask[i] = sum > low && sum < high ? 255 : 0;
    }
  }
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = to[i] + addend[i];
    const float raised = sum < low ? low : sum;
    to[i] = raised > high ? high : raised;
  }
}

const char* normalize_add_at_once(const NormalizeAddProblem& p) {
  if (!fuses(p)) return kNotDense;
  const std::int64_t c = p.dst.c, block = std::max<std::int64_t>(1, kBlock / c);
  Coefficients coefficients(1, c);
  const StoredStatistics stored(p.mean, p.variance, p.exact);
  const float *gamma = values_of(p.gamma), *beta = values_of(p.beta);
  for (std::size_t k = 0; k < coefficients.channels; ++k)
    coefficients.set(0, k, stored.mean(k), stored.variance(k), p.epsilon, gamma[k], beta[k]);
  std::uint8_t* const mask = p.mask.memory ? reinterpret_cast<std::uint8_t*>(tensor_of(p.mask).data) : nullptr;
  for_operands<2>({&p.src, &p.addend}, p.dst, kGrain, /*across_images=*/true,
                  [&](const std::array<const float*, 2>& from, float* to, std::int64_t first, std::int64_t pixels) {
                    for (std::int64_t i = 0; i < pixels; i += block) {
                      const std::int64_t at = i * c, part = std::min(block, pixels - i);
                      coefficients.apply(from[0] + at, to + at, part, 0, scale_pixels);
                      add_within(from[1] + at, to + at, mask ? mask + first * c + at : nullptr, part * c, p.min, p.max);
                    }
                  });
  return nullptr;
}

const char* normalize_then_add(const NormalizeAddProblem& p) {
  const Between between(p.dst);
  NormalizeProblem first;
  first.src = p.src, first.dst = between.view();
  first.gamma = p.gamma, first.beta = p.beta;
  first.mean = p.mean, first.variance = p.variance, first.exact = p.exact;
  first.epsilon = p.epsilon;
  run(first);
  BinaryProblem sum;
  sum.src0.view = between.view(), sum.src1 = p.addend;
  sum.dst = p.dst, sum.mask = p.mask;
  sum.function.min = p.min, sum.function.max = p.max;
  run(sum);
  return nullptr;
}

constexpr Implementation<NormalizeAddProblem> kNormalizeAdds[] = {
    {"normalize_add_at_once", normalize_add_at_once},
    {"normalize_then_add", normalize_then_add},
};
const ImplementationNames kNormalizeAddNames(kNormalizeAdds);

/// to = scale * (a + b) where the mask is not 0, else 0; without mask everywhere.
MPSCNN_CLONES void add_masked(const float* a, const float* b, const float* mask, float scale, float* to,
                              std::int64_t count) {
  if (!mask) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) to[i] = scale * (a[i] + b[i]);
    return;
  }
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = scale * (a[i] + b[i]);
    to[i] = mask[i] != 0 ? sum : 0.0f;
  }
}

const char* masked_sum_at_once(const MaskedSumProblem& p) {
  if (!fuses(p)) return kNotDense;
  const auto add = [&, c = p.dst.c](const auto& from, float* to, std::int64_t, std::int64_t pixels) {
    add_masked(from[0], from[1], from.size() > 2 ? from.back() : nullptr, p.scale, to, pixels * c);
  };
  if (p.mask.view.memory)
    for_operands<3>({&p.src0, &p.src1, &p.mask}, p.dst, kGrain, /*across_images=*/true, add);
  else
    for_operands<2>({&p.src0, &p.src1}, p.dst, kGrain, /*across_images=*/true, add);
  return nullptr;
}

const char* sum_then_mask(const MaskedSumProblem& p) {
  const Between between(p.dst);
  BinaryProblem sum;
  sum.src0 = p.src0, sum.src1 = p.src1, sum.dst = between.view();
  run(sum);
  BinaryGradientProblem masked;
  masked.diff_dst.view = between.view(), masked.mask = p.mask;
  masked.diff_src = p.dst;
  masked.scale = p.scale;
  run(masked);
  return nullptr;
}

constexpr Implementation<MaskedSumProblem> kMaskedSums[] = {
    {"masked_sum_at_once", masked_sum_at_once},
    {"sum_then_mask", sum_then_mask},
};
const ImplementationNames kMaskedSumNames(kMaskedSums);

const char* masked_sum_moments_at_once(const MaskedSumMomentsProblem& p) {
  if (!fuses(p)) return kNotDense;
  if (p.dst.format != Format::float32) return "the sums are of rounded values";
  const std::int64_t c = p.dst.c, block = std::max<std::int64_t>(1, kBlock / c);
  const bool has_mask = p.mask.view.memory != nullptr;
  store_sums_of_gradients(p.moments(), threads_for(p.dst.size(), kGrain), [&](const auto& sums_of_thread) {
    const auto add = [&](const auto& from, float* to, std::int64_t, std::int64_t pixels) {
      const GradientSums sums = sums_of_thread();
      for (std::int64_t i = 0; i < pixels; i += block) {
        const std::int64_t at = i * c, part = std::min(block, pixels - i);
        add_masked(from[0] + at, from[1] + at, has_mask ? from.back() + at : nullptr, p.scale, to + at, part * c);
        sums.add(to + at, from[2] + at, part);
      }
    };
    if (has_mask)
      for_operands<4>({&p.src0, &p.src1, &p.src, &p.mask}, p.dst, kGrain, /*across_images=*/true, add);
    else
      for_operands<3>({&p.src0, &p.src1, &p.src}, p.dst, kGrain, /*across_images=*/true, add);
  });
  return nullptr;
}

const char* masked_sum_then_moments(const MaskedSumMomentsProblem& problem) {
  run(problem.sum());
  run(problem.moments());
  return nullptr;
}

constexpr Implementation<MaskedSumMomentsProblem> kMaskedSumMoments[] = {
    {"masked_sum_moments_at_once", masked_sum_moments_at_once},
    {"masked_sum_then_moments", masked_sum_then_moments},
};
const ImplementationNames kMaskedSumMomentsNames(kMaskedSumMoments);

}  // namespace

bool fuses(const NormalizeAddProblem& p) {
  if (p.mask.memory && !(p.mask.format == Format::unorm8 && p.mask.is_dense())) return false;
  return are_dense(p.dst, {&p.src, &p.addend});
}
bool fuses(const MaskedSumProblem& p) { return is_mask(p.mask, p.dst) && are_dense(p.dst, {&p.src0, &p.src1}); }
bool fuses(const MaskedSumMomentsProblem& p) {
  return is_mask(p.mask, p.dst) && are_dense(p.dst, {&p.src0, &p.src1, &p.src});
}

void run(const NormalizeAddProblem& problem) {
  if (!is_packed(problem.mask, problem.dst)) return run_first("normalize_add", kNormalizeAdds, problem);
  NormalizeAddProblem unpacked = problem;
  const UnpackedMask mask(problem.mask, problem.dst);
  unpacked.mask = mask.view();
  run(unpacked);
  mask.pack();
}
void run(const MaskedSumProblem& problem) { run_first("masked_sum", kMaskedSums, problem); }
void run(const MaskedSumMomentsProblem& problem) {
  if (!is_packed(problem.mask.view, problem.dst)) return run_first("masked_sum_moments", kMaskedSumMoments, problem);
  MaskedSumMomentsProblem unpacked = problem;
  UnpackedMask mask(problem.mask.view, problem.dst);
  mask.unpack();
  unpacked.mask.view = mask.view();
  run(unpacked);
}

}  // namespace openmps::cpu

// SPDX-License-Identifier: Apache-2.0
// One problem after the other: this engine does not fuse them, and solves them for engines that decline.
#include "engine/cpu/pointwise/sums.hpp"

#include "engine/cpu/normalization/normalization.hpp"
#include "engine/cpu/normalization/normalization_gradient.hpp"
#include "engine/cpu/pointwise/pointwise.hpp"
#include "engine/cpu/runtime.hpp"

namespace openmps::cpu {
namespace {

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

}  // namespace

void run(const NormalizeAddProblem& problem) {
  const NormalizeAddProblem& p = problem;
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
}

void run(const MaskedSumProblem& problem) {
  const MaskedSumProblem& p = problem;
  const Between between(p.dst);
  BinaryProblem sum;
  sum.src0 = p.src0, sum.src1 = p.src1, sum.dst = between.view();
  run(sum);
  BinaryGradientProblem masked;
  masked.diff_dst.view = between.view(), masked.mask = p.mask;
  masked.diff_src = p.dst;
  masked.scale = p.scale;
  run(masked);
}

void run(const MaskedSumMomentsProblem& problem) {
  run(problem.sum());
  run(problem.moments());
}

}  // namespace openmps::cpu

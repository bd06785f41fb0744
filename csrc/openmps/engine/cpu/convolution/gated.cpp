// SPDX-License-Identifier: Apache-2.0
// A gate per channel and the convolution of one pixel behind it, for AVX-512 and AVX2: chunks of pixels are multiplied
// by their gates in the second-level cache.
#include "engine/cpu/convolution/gated.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "engine/cpu/convolution/convolution.hpp"
#include "engine/cpu/convolution/pointwise_kernels.hpp"
#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/pointwise/pointwise.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/problem/print.hpp"
#include "engine/problem/problem.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {

#if defined(__x86_64__)

namespace {

using pointwise::i64;

constexpr i64 kChunkBytes = 256 * 1024;  // max size of a chunk behind the gates

struct Gated {
  const BinaryProblem& product;
  const ConvProblem& conv;
  const ImageView &image, &gates;
};

bool is_whole(const Operand& operand, const ImageView& dst) {
  return !operand.repeat_h && !operand.repeat_w && !operand.repeat_c && operand.start_h == 0 && operand.start_w == 0 &&
         operand.view.n == dst.n && operand.view.h == dst.h && operand.view.w == dst.w && operand.view.c == dst.c;
}

bool is_pixel(const Operand& operand, const ImageView& dst) {
  return (operand.repeat_h || dst.h == 1) && (operand.repeat_w || dst.w == 1) && !operand.repeat_c &&
         operand.start_h == 0 && operand.start_w == 0 && operand.view.n == dst.n && operand.view.h == 1 &&
         operand.view.w == 1 && operand.view.c == dst.c;
}

bool is_plain_product(const Arithmetic& f) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return f.operation == BinaryOperation::multiply && f.scale0 == 1 && f.scale1 == 1 && f.bias == 0 &&
         f.min == -kInfinity && f.max == kInfinity;
}

/// Of images in a plan, which may become images of bfloat16.
bool is_float(const ImageView& view) { return view.format == Format::float32 || view.format == Format::bfloat16; }

/// Return both, without looking at the readers of the product.
std::optional<Gated> gated_of(const Problem* first, const Problem* second) {
  const auto* const product = first ? std::get_if<BinaryProblem>(first) : nullptr;
  const auto* const conv = second ? std::get_if<ConvProblem>(second) : nullptr;
  if (!product || !conv || product->mask.memory || !is_plain_product(product->function)) return std::nullopt;
  const bool is_second = is_pixel(product->src1, product->dst);
  const Operand& image = is_second ? product->src0 : product->src1;
  const Operand& gates = is_second ? product->src1 : product->src0;
  if (!is_pixel(gates, product->dst) || !is_whole(image, product->dst)) return std::nullopt;
  if (!is_float(image.view) || !is_float(gates.view) || !is_float(product->dst)) return std::nullopt;
  if (!pointwise::may_fuse(*conv) || !pointwise::same_pixels(conv->src, product->dst)) return std::nullopt;
  if (conv->addend.memory == product->dst.memory) return std::nullopt;
  return Gated{*product, *conv, image.view, gates.view};
}

namespace with_avx512 {
using namespace pointwise::with_avx512;
}
namespace with_avx2 {
using namespace pointwise::with_avx2;
}
#define MPSCNN_LOOPS "engine/cpu/convolution/gated.inc"
#include "engine/cpu/pointwise/vector_copies.inc"

const char* gated_pointwise(const Gated& gated) {
  const ConvProblem& conv = gated.conv;
  const Tensor src = tensor_of(gated.image), dst = tensor_of(conv.dst);
  const Tensor addend = conv.addend.memory ? tensor_of(conv.addend) : Tensor();
  if (src.format != dst.format) return "images are of several formats";
  if (!is_one_row(src) || !is_one_row(dst) || (addend.data && !is_one_row(addend))) return "gaps between rows";
  // Other threads read pixels of the source later.
  if (overlap(src, dst)) return "the result overlaps the source";
  Scratch memory;
  const Tensor gates = dense(tensor_of(gated.gates), Format::float32, memory);
  if (overlap(gates, dst)) return "the result overlaps the gates";
  if (src.format == Format::float32) {
    has_avx512() ? with_avx512::convolve<float>(conv, src, gates, addend, dst)
                 : with_avx2::convolve<float>(conv, src, gates, addend, dst);
    return nullptr;
  }
  if (src.c % 2 != 0) return "an odd number of inputs";
  with_avx512::convolve<std::uint16_t>(conv, src, gates, addend, dst);
  return nullptr;
}

const char* product_then_convolution(const Gated& gated) {
  run(gated.product);
  run(gated.conv);
  return nullptr;
}

constexpr Implementation<Gated> kGated[] = {
    {"gated_pointwise", gated_pointwise},
    {"product_then_convolution", product_then_convolution},
};
const ImplementationNames kGatedNames(kGated);

}  // namespace

bool may_gate(const Problem& first) {
  return (has_avx512() || has_avx2()) && std::holds_alternative<BinaryProblem>(first);
}

std::size_t gated_length(const std::function<const Problem*(std::size_t)>& problem,
                         const std::function<bool(const ImageView&, std::size_t)>& ends) {
  const auto gated = gated_of(problem(0), problem(1));
  return gated && ends(gated->product.dst, 2) ? 2 : 1;
}

bool try_gated(std::span<const Problem* const> problems) {
  if (problems.size() != 2) return false;
  const auto gated = gated_of(problems[0], problems[1]);
  if (!gated) return false;
  for (const Problem* const problem : problems) trace_problem(*problem);
  run_first("gated", kGated, *gated);
  return true;
}

#else

bool may_gate(const Problem&) { return false; }
std::size_t gated_length(const std::function<const Problem*(std::size_t)>&,
                         const std::function<bool(const ImageView&, std::size_t)>&) {
  return 1;
}
bool try_gated(std::span<const Problem* const>) { return false; }

#endif

}  // namespace openmps::cpu

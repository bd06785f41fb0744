// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cpu/function/known.hpp"
#include "engine/function/function.hpp"
#include "engine/shared/strided.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::cpu {
namespace {

constexpr std::size_t kFixedValues = 10;  ///< parameters before the axes
constexpr std::size_t kMaxAxes = 16;

using Values = std::array<std::int64_t, 3>;
using Stride = std::int64_t CopyAxis::*;

/// Values counted along three axes, the last one the fastest, and how far apart these are in memory.
struct Order {
  Values extents, strides;
  std::int64_t step(int axis) const { return axis == 2 ? 1 : axis == 1 ? extents[2] : extents[1] * extents[2]; }
};

ElementType type_of(Format format) {
  switch (format) {
    case Format::unorm8: return ElementType::unorm8;
    case Format::unorm16: return ElementType::unorm16;
    case Format::float16: return ElementType::float16;
    case Format::bfloat16: return ElementType::bfloat16;
    default: return ElementType::float32;
  }
}

/// Turn strides that count values into bytes. An axis that runs over the end of an axis of `order` becomes two. Return
/// false if there is a carry that no division avoids.
bool place(std::vector<CopyAxis>& axes, Stride stride, std::int64_t first, const Order& order, std::int64_t& offset) {
  Values last = {};  // the highest index along each axis
  offset = 0;
  for (int axis = 0; axis < 3; ++axis) {
    last[axis] = first / order.step(axis);
    first %= order.step(axis);
    offset += last[axis] * order.strides[axis];
  }
  std::vector<CopyAxis> placed;
  while (!axes.empty()) {
    CopyAxis each = axes.back();
    axes.pop_back();
    if (each.length == 1) continue;
    int axis = 0;
    while (axis < 2 && each.*stride % order.step(axis) != 0) ++axis;
    const std::int64_t step = each.*stride / order.step(axis), room = order.extents[axis];
    if (axis > 0 && (each.length - 1) * step >= room) {
      const std::int64_t inside = step > 0 ? room / step : 0;
      if (inside < 2 || room % step != 0 || each.length % inside != 0) return false;
      CopyAxis outside = each;
      outside.length = each.length / inside;
      outside.*stride = order.step(axis - 1);
      // The other stride goes on where the inner axis ends.
      const Stride other = stride == &CopyAxis::src_stride ? &CopyAxis::dst_stride : &CopyAxis::src_stride;
      outside.*other = each.*other * inside;
      each.length = inside;
      axes.push_back(outside);
    }
    last[axis] += (each.length - 1) * step;
    each.*stride = step * order.strides[axis];
    placed.push_back(each);
  }
  axes = std::move(placed);
  return last[0] < order.extents[0] && last[1] < order.extents[1] && last[2] < order.extents[2];
}

/// Return the parameters, empty if they are not of this form.
std::vector<std::int64_t> parameters_of(const FunctionProblem& problem) {
  if (problem.bytes.size() != 1) return {};
  const std::vector<std::uint8_t>& bytes = problem.bytes[0].bytes;
  std::vector<std::uint32_t> values(bytes.size() / sizeof(std::uint32_t));
  if (values.size() < kFixedValues) return {};
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(std::uint32_t));
  const std::size_t axes = values[0];
  if (axes < 1 || axes > kMaxAxes || values.size() < kFixedValues + 2 * axes) return {};
  return {values.begin(), values.end()};
}

Values bytes_apart(const ImageView& view) {
  const auto element = static_cast<std::int64_t>(size_of(view.format));
  return {view.h_stride * element, view.w_stride * element, element};
}

/// Return the order in which the places of `p` count the values of the source; nothing if the extents are not its own.
std::optional<Order> source_order(const std::vector<std::int64_t>& p, const ImageView& view) {
  const Values extents = {view.h, view.w, view.c}, strides = bytes_apart(view);
  Order order{};
  unsigned seen = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto axis = static_cast<std::size_t>(p[6 + i]);
    if (axis > 2 || p[3 + i] != extents[axis]) return std::nullopt;
    seen |= 1u << axis;
    order.extents[i] = extents[axis];
    order.strides[i] = strides[axis];
  }
  return seen == 7 ? std::optional(order) : std::nullopt;
}

}  // namespace

const char* function_permutation(const FunctionProblem& problem) {
  if (problem.function->kernel().meaning != function::Meaning::permutation) return "the function is not a permutation";
  if (problem.sources.size() != 1 || problem.results.size() != 1 || !problem.inputs.empty() || !problem.outputs.empty())
    return "the arguments are not a source, a result and parameters";
  const FunctionTexture &from = problem.sources[0], &to = problem.results[0];
  if (!covers(problem.threads, to, 1)) return "the threads are not those of one image";
  if (from.view.n != 1) return "the source has several images";
  const std::vector<std::int64_t> p = parameters_of(problem);
  if (p.empty() || p[1] != to.view.w || p[2] != to.view.c) return "the parameters are not those of a permutation";
  const std::optional<Order> order = source_order(p, from.view);
  if (!order) return "the extents are not those of the source";

  const auto count = static_cast<std::size_t>(p[0]);
  std::vector<CopyAxis> axes(count);
  std::int64_t values = 1;
  for (std::size_t i = count; i-- > 0;) {
    const std::int64_t length = p[kFixedValues + i];
    axes[i] = {length, p[kFixedValues + count + i], values};
    if (length < 1 || length > to.view.h * to.view.w * to.view.c / values)
      return "the axes are not those of the result";
    values *= length;
  }
  if (values != to.view.h * to.view.w * to.view.c) return "the axes are not those of the result";
  std::int64_t src_offset = 0, dst_offset = 0;
  const Order dense = {{to.view.h, to.view.w, to.view.c}, bytes_apart(to.view)};
  if (!place(axes, &CopyAxis::src_stride, p[9], *order, src_offset) ||
      !place(axes, &CopyAxis::dst_stride, 0, dense, dst_offset))
    return "an axis has no stride of its own";
  copy_strided(tensor_of(to.view).data + dst_offset, type_of(to.view.format), tensor_of(from.view).data + src_offset,
               type_of(from.view.format), std::move(axes));
  return nullptr;
}

}  // namespace openmps::cpu

// SPDX-License-Identifier: Apache-2.0
// MPSNNReshape, which takes its extents from the destination, and MPSNNPad.
#include "core/kernel/families/family.hh"

#include <vector>

#include <mpscnn/error.hpp>

namespace mpscnn {
namespace {

using Extents = std::vector<std::int64_t>;

/// Return (height, width, channels) with -1 resolved.
ImageShape reshaped(const KernelRow &row, const Extents &shape, ImageShape read) {
  std::int64_t values = 0;
  check<MemoryError>(
      !__builtin_mul_overflow(read.h, read.w, &values) && !__builtin_mul_overflow(values, read.c, &values), row.name,
      ": an image of x, (", read.h, ", ", read.w, ", ", read.c, "), has too many values.");
  Extents extents = shape;
  std::int64_t known = 1;
  for (const auto extent : shape)
    if (extent > 0) known *= extent;
  for (auto &extent : extents)
    if (extent < 0) extent = values / known;
  const ImageShape result{read.n, extents[0], extents[1], extents[2]};
  check(result.h * result.w * result.c == values, row.name, ": shape ", as_tuple(shape), " does not hold the ", values,
        " values of an image of x, (", read.h, ", ", read.w, ", ", read.c, ").");
  return result;
}

MPSImageCoordinate coordinate(std::int64_t y, std::int64_t x, std::int64_t channel) {
  return {
      .x = static_cast<NSUInteger>(x), .y = static_cast<NSUInteger>(y), .channel = static_cast<NSUInteger>(channel)};
}

}  // namespace

static FamilyKernel make_reshape(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  const auto &shape = std::get<Extents>(params.find("shape")->second);
  int open = 0;
  for (const auto extent : shape) {
    check(extent != 0, row.name, ": shape ", as_tuple(shape), " has an extent (0) that is neither -1 nor 1 or more.");
    open += extent < 0 ? 1 : 0;
  }
  check(open <= 1, row.name, ": shape ", as_tuple(shape), " has more than one extent (-1) to be found.");
  FamilyKernel made;
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSNNReshape *>([kind alloc]) initWithDevice:device]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  made.result_shape = [&row, shape](ImageShape read) { return reshaped(row, shape, read); };
  return made;
}

static FamilyKernel make_pad(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  const Padding around = padding(params, "padding");
  check(around.kind == Padding::Kind::pixels, row.name, ": padding is a number of pixels here, not a policy.");
  const auto before = integer(params, "channels_before", 0), after = integer(params, "channels_after", 0);
  const auto values = array(params, "channel_values");
  const bool constant = text(params, "edge_mode", "constant") == "constant";
  check(constant || !(has(params, "value") || values), row.name,
        ": value and channel_values need edge_mode \"constant\"; it is \"", text(params, "edge_mode", ""), "\".");
  check(!(has(params, "value") && values), row.name, ": value and channel_values exclude each other.");
  const auto fill = values ? to_floats(*values, say(row.name, ": channel_values")) : std::vector<float>();
  check(!values || !fill.empty(), row.name, ": the number of channel_values (0) is less than the minimum (1).");

  FamilyKernel made;
  MPSNNPad *kernel = [kind alloc];
  const auto first = coordinate(around.top, around.left, before), last = coordinate(around.bottom, around.right, after);
  if (values) {
    kernel = [kernel initWithDevice:device
                  paddingSizeBefore:first
                   paddingSizeAfter:last
                     fillValueArray:[NSData dataWithBytes:fill.data() length:fill.size() * sizeof(float)]];
  } else {
    kernel = [kernel initWithDevice:device paddingSizeBefore:first paddingSizeAfter:last];
  }
  made.kernel = Ref<MPSKernel *>::adopt(kernel);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  if (has(params, "value")) kernel.fillValue = static_cast<float>(real(params, "value", 0));
  made.attributes["edge_mode"] = std::string("constant");
  made.source_channel_step = 1;
  made.offset = {-around.top, -around.left, 0};
  made.result_shape = [&row, around, before, after, count = static_cast<std::int64_t>(fill.size())](ImageShape read) {
    const ImageShape result{read.n, read.h + around.top + around.bottom, read.w + around.left + around.right,
                            read.c + before + after};
    check(count == 0 || count == result.c, row.name, ": the result has ", result.c, " channels; there are ", count,
          " channel_values.");
    return result;
  };
  return made;
}

static FamilyKernel make_reshape_gradient(id<MTLDevice> device, const KernelRow &row, const FamilyKernel &,
                                          std::size_t) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSNNReshapeGradient *>([kind alloc]) initWithDevice:device]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  return made;
}

static const RegisteredFamily kReshape("reshape", {.make = &make_reshape});
static const RegisteredFamily kPad("pad", {.make = &make_pad});
static const RegisteredFamily kReshapeGradient("reshape_gradient", {.make_gradient = &make_reshape_gradient});
static const RegisteredFamily kPadGradient("pad_gradient", {.make_gradient = &make_reshape_gradient});

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
#include "engine/function/arguments.hpp"

#include <algorithm>

#include "engine/function/function.hpp"

namespace openmps::function {
namespace {

namespace abi = function_abi;

abi::Texture texture_of(const FunctionTexture& texture, unsigned char* memory) {
  const ImageView& view = texture.view;
  const auto element = static_cast<std::int64_t>(size_of(view.format));
  abi::Texture result{};
  result.data = memory + view.offset;
  result.pixel = view.w_stride * element;
  result.row = view.h_stride * element;
  result.image = view.n_stride * element;
  result.width = static_cast<unsigned>(view.w);
  result.height = static_cast<unsigned>(view.h);
  result.slices = texture.slices;
  result.slices_per_image = static_cast<unsigned>((view.c + texture.lanes - 1) / texture.lanes);
  result.channels = static_cast<unsigned>(view.c);
  result.lanes = texture.lanes;
  result.format = static_cast<int>(view.format);
  return result;
}

unsigned groups_of(unsigned threads, unsigned group) { return threads / group + (threads % group != 0); }

}  // namespace

Arguments::Arguments(const FunctionProblem& problem, const std::function<unsigned char*(Memory&)>& address_of)
    : values(std::max<std::size_t>(1, problem.function->code()->bindings().size())) {
  call.format = -1;
  for (const auto* list : {&problem.sources, &problem.results})
    for (const FunctionTexture& each : *list) add(each, address_of(*each.view.memory));
  if (call.format < 0) call.format = abi::kAnyFormat;
  for (const auto* list : {&problem.inputs, &problem.outputs})
    for (const FunctionBuffer& each : *list) values[each.argument].pointer = address_of(*each.memory) + each.offset;
  for (const FunctionMemory& each : problem.memory) {
    values[each.argument].offset = group_bytes;
    group_bytes += each.bytes;
  }
  for (const FunctionSampler& each : problem.samplers)
    values[each.argument].sampler = {each.is_pixel, each.is_linear, each.across, each.down, each.border};
  call.arguments = values.data();
  const FunctionExtent &threads = problem.threads, &group = problem.group;
  call.grid = {{threads.x, threads.y, threads.z},
               {group.x, group.y, group.z},
               {groups_of(threads.x, group.x), groups_of(threads.y, group.y), groups_of(threads.z, group.z)}};
}

void Arguments::add(const FunctionTexture& texture, unsigned char* memory) {
  abi::Texture& added = values[texture.argument].texture;
  added = texture_of(texture, memory);
  const bool is_full = texture.lanes == 4 && texture.view.c == 4 * std::int64_t{texture.slices};
  const int format = is_full ? added.format : static_cast<int>(abi::kAnyFormat);
  const bool is_first = call.format < 0;
  call.format = is_first || call.format == format ? format : static_cast<int>(abi::kAnyFormat);
  const unsigned extents[] = {added.width, added.height, added.slices};
  for (int axis = 0; axis < 3; ++axis)
    call.inside[axis] = is_first ? extents[axis] : std::min(call.inside[axis], extents[axis]);
}

}  // namespace openmps::function

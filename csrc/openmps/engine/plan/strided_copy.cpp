// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/strided_copy.hpp"

#include <algorithm>
#include <vector>

#include "engine/engine.hpp"
#include "engine/plan/execution.hpp"
#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

using Axes = std::array<std::int64_t, 4>;

/// Return a view of three of the axes, in order, at an index of the fourth.
ImageView slice(const std::shared_ptr<Memory>& memory, std::size_t offset, Format format, const Axes& extents,
                const Axes& strides, std::size_t axis, std::int64_t index) {
  std::array<std::size_t, 3> others{};
  for (std::size_t i = 0, other = 0; i < 4; ++i)
    if (i != axis) others[other++] = i;
  return {.memory = memory,
          .offset = offset + static_cast<std::size_t>(index * strides[axis]) * size_of(format),
          .format = format,
          .n = extents[others[0]],
          .h = extents[others[1]],
          .w = extents[others[2]],
          .c = 1,
          .n_stride = strides[others[0]],
          .h_stride = strides[others[1]],
          .w_stride = strides[others[2]]};
}

/// A view has three strides: copies are divided along the axis with the fewest values.
std::vector<Command> copies(const ImageView& image, const std::shared_ptr<Memory>& memory, const Axes& strides,
                            bool into_image) {
  std::vector<Command> commands;
  const auto append = [&](const ImageView& inside, const ImageView& outside) {
    commands.push_back({into_image ? CopyProblem{outside, inside} : CopyProblem{inside, outside}, "MPSImage"});
  };
  const Axes extents{image.n, image.h, image.w, image.c};
  const Axes own{image.n_stride, image.h_stride, image.w_stride, 1};
  if (image.c == 1 || strides[3] == 1) {
    ImageView outside = image;
    outside.memory = memory;
    outside.offset = 0;
    outside.n_stride = strides[0], outside.h_stride = strides[1], outside.w_stride = strides[2];
    append(image, outside);
    return commands;
  }
  const auto axis = static_cast<std::size_t>(std::min_element(extents.begin(), extents.end()) - extents.begin());
  for (std::int64_t i = 0; i < extents[axis]; ++i)
    append(slice(image.memory, image.offset, image.format, extents, own, axis, i),
           slice(memory, 0, image.format, extents, strides, axis, i));
  return commands;
}

}  // namespace

Failure copy_strided(Engine& engine, const ImageView& image, const std::shared_ptr<Memory>& memory,
                     const std::array<std::int64_t, 4>& strides, bool into_image) noexcept {
  try {
    return execute(engine, copies(image, memory, strides, into_image));
  } catch (...) {
    return {FailureCode::out_of_memory, "out of memory"};
  }
}

void wait_at_release(Memory& memory, const std::shared_ptr<Engine>& engine) {
  struct Wait {
    explicit Wait(std::shared_ptr<Engine> given) : engine(std::move(given)) {}
    ~Wait() {
      try {
        engine->wait_for_stream(1);  // DLPack: the legacy default stream
      } catch (...) {                // the device is lost, and its memory with it
      }
    }
    const std::shared_ptr<Engine> engine;
  };
  memory.root().derived([&](std::byte*) { return std::make_shared<Wait>(engine); });
}

}  // namespace openmps

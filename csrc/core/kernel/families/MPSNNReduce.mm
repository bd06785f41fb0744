// SPDX-License-Identifier: Apache-2.0
// MPSNNReduceUnary, MPSNNReduceBinary and their subclasses, which have a clip rectangle per source and no offsets.
#include "core/kernel/families/family.hh"

#include <algorithm>
#include <vector>

#include <mpscnn/error.hpp>

namespace mpscnn {
namespace {

/// Return the intersection of a source and a rectangle, which may extend beyond it.
ImageShape part_of(const KernelRow &row, std::string_view name, const Region3 &rect, ImageShape source) {
  const auto left = [&](std::int64_t origin, std::int64_t extent, std::int64_t size, const char *axis) {
    check(origin < size, row.name, ": ", name, " begins at ", origin, " along the ", axis, " of ", size,
          ": nothing is left.");
    return std::min(extent, size - origin);
  };
  return {left(rect.origin.image, rect.images, source.n, "images"),
          left(rect.origin.y, rect.height, source.h, "height"), left(rect.origin.x, rect.width, source.w, "width"),
          source.c};
}

ImageShape reduced(ShapeRule rule, ImageShape read) {
  if (rule == ShapeRule::row) read.w = 1;
  if (rule == ShapeRule::column) read.h = 1;
  if (rule == ShapeRule::channels) read.c = 1;
  return read;
}

}  // namespace

static FamilyKernel make_reduction(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  const bool binary = row.sources.size() == 2;
  FamilyKernel made;
  if (row.is_own("by_nonzero_weights")) {
    made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSNNReduceFeatureChannelsAndWeightsSum *>([kind alloc])
                       initWithDevice:device
        doWeightedSumByNonZeroWeights:boolean(params, "by_nonzero_weights", false)]);
  } else {
    // Declared unavailable on MPSNNReduceUnary and MPSNNReduceBinary, available on their subclasses
    // [MPSNNReduce.h]; all inherit the declaration from MPSKernel.
    made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSKernel *>([kind alloc]) initWithDevice:device]);
  }
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  if (row.is_own("weight"))
    static_cast<MPSNNReduceFeatureChannelsSum *>(made.kernel.get()).weight =
        static_cast<float>(real(params, "weight", 1));

  std::vector<std::string_view> names{"clip_rect_source"};
  if (binary) names = {"primary_source_clip_rect", "secondary_source_clip_rect"};
  std::vector<std::optional<Region3>> rects;
  for (const auto name : names) {
    const auto given = params.find(name);
    rects.push_back(given == params.end() ? std::nullopt : to_region(given->second));
    if (!rects.back()) continue;
    constexpr std::int64_t kAll = 1 << 30;  // all images: see the parameter
    if (rects.back()->origin.image != 0 || rects.back()->images < kAll) made.image_by_image = false;
    const MTLRegion rect = mtl_region(*rects.back());
    if (!binary)
      static_cast<MPSNNReduceUnary *>(made.kernel.get()).clipRectSource = rect;
    else if (rects.size() == 1)
      static_cast<MPSNNReduceBinary *>(made.kernel.get()).primarySourceClipRect = rect;
    else
      static_cast<MPSNNReduceBinary *>(made.kernel.get()).secondarySourceClipRect = rect;
  }
  made.read_shape = [&row, names, rects](std::size_t source, ImageShape shape) {
    return rects[source] ? part_of(row, names[source], *rects[source], shape) : shape;
  };
  made.result_shape = [rule = row.shape](ImageShape read) { return reduced(rule, read); };
  return made;
}

static const RegisteredFamily kReduction("reduction", {.make = &make_reduction});

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
// MPSNNResizeBilinear, MPSNNCropAndResizeBilinear.
#include "core/kernel/families/family.hh"

#include <cmath>
#include <vector>

#include <mpscnn/error.hpp>

namespace mpscnn {
namespace {

constexpr float kMostRegion = 1e6f;  // far outside of any image

/// Return the regions of rows (y, x, height, width).
std::vector<MPSRegion> regions_of(const KernelRow &row, const ArrayView &array) {
  check(array.ndim() == 2 && array.shape[1] == 4, row.name, ": regions.shape ", as_tuple(array.shape),
        " is not (R, 4): y, x, height, width.");
  check(array.shape[0] >= 1, row.name, ": the number of regions (0) is less than the minimum (1).");
  std::vector<MPSRegion> regions;
  for (std::int64_t i = 0; i < array.shape[0]; ++i) {
    ArrayView one = array;
    one.data = static_cast<std::byte *>(one.data) + i * array.strides[0];
    one.shape = {4};
    one.strides = {array.strides[1]};
    const auto numbers = to_floats(one, say(row.name, ": regions"));
    for (const float number : numbers)
      check(std::fabs(number) <= kMostRegion, row.name, ": regions[", i, "] has a number (", number,
            ") that is not between ", -kMostRegion, " and ", kMostRegion, ".");
    regions.push_back({.origin = {.x = numbers[1], .y = numbers[0], .z = 0},
                       .size = {.width = numbers[3], .height = numbers[2], .depth = 1}});
  }
  return regions;
}

FamilyKernel make_crop(id<MTLDevice> device, const KernelRow &row, Pair size, const std::vector<MPSRegion> &regions) {
  FamilyKernel made;
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSNNCropAndResizeBilinear *>([class_of(row) alloc])
       initWithDevice:device
          resizeWidth:static_cast<NSUInteger>(size.w)
         resizeHeight:static_cast<NSUInteger>(size.h)
      numberOfRegions:regions.size()
              regions:regions.data()]);
  made.results_per_image = static_cast<std::int64_t>(regions.size());
  made.result_shape = [size, count = made.results_per_image](ImageShape read) {
    return ImageShape{read.n * count, size.h, size.w, read.c};
  };
  const auto kept = Ref<id<MTLDevice>>::retain(device);
  made.some_results = [kept, &row, size, regions](std::int64_t first, std::int64_t count) {
    return make_crop(kept.get(), row, size, {regions.begin() + first, regions.begin() + first + count});
  };
  return made;
}

}  // namespace

static FamilyKernel make_resize(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Pair size = pair(params, "size", {1, 1});
  FamilyKernel made;
  if (row.is_own("regions")) {
    made = make_crop(device, row, size, regions_of(row, *array(params, "regions")));
  } else {
    made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSNNResizeBilinear *>([class_of(row) alloc])
        initWithDevice:device
           resizeWidth:static_cast<NSUInteger>(size.w)
          resizeHeight:static_cast<NSUInteger>(size.h)
          alignCorners:boolean(params, "align_corners", false)]);
    made.attributes["edge_mode"] = std::string("clamp");
    made.result_shape = [size](ImageShape read) { return ImageShape{read.n, size.h, size.w, read.c}; };
  }
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  return made;
}

static const RegisteredFamily kResize("resize", {.make = &make_resize});

}  // namespace mpscnn

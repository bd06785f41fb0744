// SPDX-License-Identifier: Apache-2.0
#include "mps/Geometry.hpp"

namespace openmps {
namespace {

/// First and one-past-last byte of a view, counted from `base`.
struct Span {
  std::intptr_t first, last;
};

Span span_of(const ImageView &view, std::intptr_t base) {
  const std::int64_t elements =
      (view.n - 1) * view.n_stride + (view.h - 1) * view.h_stride + (view.w - 1) * view.w_stride + view.c;
  const std::intptr_t first = base + static_cast<std::intptr_t>(view.offset);
  return {first, first + static_cast<std::intptr_t>(elements * static_cast<std::int64_t>(size_of(view.format)))};
}

bool ranges_meet(std::int64_t distance, std::int64_t a, std::int64_t b) { return distance < a && -distance < b; }

/// Return whether two parts of one image overlap, b beginning `delta` elements after a. Splits `delta` into images,
/// rows and columns. A carry to the next row or image is ambiguous (one row more, or many columns more), so both are
/// tried.
bool parts_meet(const ImageView &a, const ImageView &b, std::int64_t delta) {
  const std::int64_t strides[] = {a.n_stride, a.h_stride, a.w_stride};
  const std::int64_t extents_a[] = {a.n, a.h, a.w}, extents_b[] = {b.n, b.h, b.w};
  for (int carries = 0; carries < 8; ++carries) {
    std::int64_t rest = delta;
    bool meet = true;
    for (int axis = 0; axis < 3 && meet; ++axis) {
      if (extents_a[axis] == 1 && extents_b[axis] == 1) continue;
      const std::int64_t stride = std::max<std::int64_t>(strides[axis], 1);
      std::int64_t steps = rest / stride - (rest % stride < 0 ? 1 : 0);  // floor
      steps += carries >> axis & 1;
      rest -= steps * stride;
      meet = ranges_meet(steps, extents_a[axis], extents_b[axis]);
    }
    if (meet && ranges_meet(rest, a.c, b.c)) return true;
  }
  return false;
}

}  // namespace

bool overlap(const ImageView &a, const ImageView &b) {
  std::intptr_t base_a = 0, base_b = 0;
  if (a.memory != b.memory) {
    // Memory that is not allocated cannot be shared; address() of allocated memory does not allocate.
    if (!a.memory->is_allocated() || !b.memory->is_allocated()) return false;
    base_a = reinterpret_cast<std::intptr_t>(a.memory->address());
    base_b = reinterpret_cast<std::intptr_t>(b.memory->address());
  }
  const Span span_a = span_of(a, base_a), span_b = span_of(b, base_b);
  if (span_a.last <= span_b.first || span_b.last <= span_a.first) return false;

  const std::intptr_t distance = span_b.first - span_a.first;
  const std::intptr_t element = static_cast<std::intptr_t>(size_of(a.format));
  const bool same_grid = a.format == b.format && a.w_stride == b.w_stride && a.h_stride == b.h_stride &&
                         (a.n_stride == b.n_stride || (a.n == 1 && b.n == 1)) && distance % element == 0;
  return !same_grid || parts_meet(a, b, distance / element);
}

bool append_images(ImageView &run, const ImageView &next) {
  if (run.memory != next.memory || run.format != next.format || run.h != next.h || run.w != next.w || run.c != next.c ||
      run.h_stride != next.h_stride || run.w_stride != next.w_stride || next.n != 1)
    return false;
  const std::int64_t element = static_cast<std::int64_t>(size_of(run.format));
  const std::int64_t bytes = static_cast<std::int64_t>(next.offset) - static_cast<std::int64_t>(run.offset);
  if (bytes <= 0 || bytes % element != 0) return false;
  const std::int64_t step = bytes / element;
  if (run.n == 1) {
    // A stride shorter than an image would make the images overlap.
    if (step < (run.h - 1) * run.h_stride + (run.w - 1) * run.w_stride + run.c) return false;
    run.n_stride = step;
  } else if (step != run.n * run.n_stride) {
    return false;
  }
  ++run.n;
  return true;
}

}  // namespace openmps

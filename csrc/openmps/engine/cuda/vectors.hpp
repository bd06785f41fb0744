// SPDX-License-Identifier: Apache-2.0
// Which images suit kernels that read and write 16 bytes of channels per thread.
#pragma once

#include <initializer_list>

#include "engine/cuda/kernels/device.hpp"

namespace openmps::cuda {

inline i64 lanes_in_vector(const View& view) { return view.format == Format::float16 ? 8 : 4; }

/// Return null if such kernels can read and write the images, otherwise why not. Images without memory do not count.
inline const char* why_no_vectors(std::initializer_list<const View*> views) {
  const View* first = nullptr;
  for (const View* view : views) {
    if (!*view) continue;
    if (!first) first = view;
    if (view->format != first->format) return "formats differ";
    if (view->format != Format::float16 && view->format != Format::float32) return "neither float16 nor float32";
    const i64 lanes = lanes_in_vector(*view);
    if (view->c % lanes != 0) return "channels are no multiple of 16 bytes";
    if (view->data.address % 16 != 0 || view->n_stride % lanes != 0 || view->h_stride % lanes != 0 ||
        view->w_stride % lanes != 0)
      return "pixels are not aligned to 16 bytes";
  }
  return nullptr;
}

/// Return the image as one row of pixels, or as one row per image, if its pixels lie so; otherwise as it is.
inline View flattened(View view, bool across_images) {
  if (view.h != 1 && view.w != 1 && view.h_stride != view.w * view.w_stride) return view;
  if (view.w == 1) view.w_stride = view.h_stride;
  view.w *= view.h, view.h = 1;
  if (!across_images || view.n == 1) return view;
  if (view.w != 1 && view.n_stride != view.w * view.w_stride) return view;
  if (view.w == 1) view.w_stride = view.n_stride;
  view.w *= view.n, view.n = 1;
  return view;
}

}  // namespace openmps::cuda

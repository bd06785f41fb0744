// SPDX-License-Identifier: Apache-2.0
// Images of the arrays of a row, and comparison of results.
#pragma once

#import "row_objects.hh"

inline MPSImageFeatureChannelFormat format_of(const std::string &dtype) {
  return dtype == "float16"  ? MPSImageFeatureChannelFormatFloat16
         : dtype == "uint8"  ? MPSImageFeatureChannelFormatUnorm8
         : dtype == "uint16" ? MPSImageFeatureChannelFormatUnorm16
                             : MPSImageFeatureChannelFormatFloat32;
}

using Shape = std::vector<long>;

inline MPSImage *image_of(const Shape &shape, const std::string &dtype, const std::byte *values) {
  MPSImageDescriptor *descriptor = describe(shape[0], shape[1], shape[2], shape[3], format_of(dtype));
  MPSImage *image = [[[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor] autorelease];
  const auto size = static_cast<std::size_t>(shape[1] * shape[2] * shape[3]) * rows::element_size(dtype);
  for (long i = 0; i < shape[0]; ++i)
    [image writeBytes:values + static_cast<std::size_t>(i) * size
           dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels
           imageIndex:static_cast<NSUInteger>(i)];
  return image;
}

/// How images are passed: in one object, as single images, or as a batch of views of one object.
enum class As { one, batch, views };

inline id images_of(const Shape &shape, const std::string &dtype, const std::byte *values, As as) {
  if (as == As::one) return image_of(shape, dtype, values);
  if (as == As::views) return [image_of(shape, dtype, values) batchRepresentation];
  NSMutableArray *all = [NSMutableArray array];
  const auto size = static_cast<std::size_t>(shape[1] * shape[2] * shape[3]) * rows::element_size(dtype);
  for (long i = 0; i < shape[0]; ++i)
    [all addObject:image_of({1, shape[1], shape[2], shape[3]}, dtype, values + static_cast<std::size_t>(i) * size)];
  return all;
}

inline id source_images(const Row &row, const std::string &key, As as) {
  const Array &values = row.arrays.at(key);
  return images_of(values.shape, values.dtype, values.bytes.data(), as);
}

/// Make images of bytes 0x7f: NaN in half precision, a large number in float32.
inline id filled_images(const Shape &shape, const std::string &dtype, As as) {
  std::size_t count = rows::element_size(dtype);
  for (const long extent : shape) count *= static_cast<std::size_t>(extent);
  const std::vector<std::byte> values(count, std::byte{0x7f});
  return images_of(shape, dtype, values.data(), as);
}

template <class T>
void read_as(MPSImage *image, Tensor &all, double scale) {
  Tensor one = read_image_of<T>(image);
  for (double &value : one.values) value /= scale;
  if (all.values.empty()) all = Tensor(0, one.h, one.w, one.c);
  all.n += one.n;
  all.values.insert(all.values.end(), one.values.begin(), one.values.end());
}

/// Read an image or a batch.
inline Tensor read_images(id images, const std::string &dtype) {
  Tensor all;
  NSArray *batch = [images isKindOfClass:[NSArray class]] ? images : [NSArray arrayWithObject:images];
  for (MPSImage *image in batch) {
    if (dtype == "float16")
      read_as<_Float16>(image, all, 1);
    else if (dtype == "uint8")
      read_as<std::uint8_t>(image, all, 255);
    else if (dtype == "uint16")
      read_as<std::uint16_t>(image, all, 65535);
    else
      read_as<float>(image, all, 1);
  }
  return all;
}

/// Check that the values at `first` are within their bounds, and the others as filled_images() left them.
inline void compare(const std::string &what, const Tensor &got, const Shape &shape, const Shape &first,
                    const Array &expected, const Array &bound, const std::string &dtype) {
  if (Shape{got.n, got.h, got.w, got.c} != shape) return check(false, what + ": the result has other extents");
  const double untouched = dtype == "uint8"     ? 0x7f / 255.0
                           : dtype == "uint16"  ? 0x7f7f / 65535.0
                           : dtype == "float16" ? NAN
                                                : std::ldexp(0xff7f7f, 104);
  const auto &part = expected.shape;
  long wrong = 0;
  std::string worst;
  std::size_t at = 0;
  for (long n = 0; n < got.n; ++n)
    for (long y = 0; y < got.h; ++y)
      for (long x = 0; x < got.w; ++x)
        for (long c = 0; c < got.c; ++c, ++at) {
          const long i[] = {n - first[0], y - first[1], x - first[2], c - first[3]};
          bool inside = true;
          for (std::size_t axis = 0; axis < 4; ++axis) inside = inside && i[axis] >= 0 && i[axis] < part[axis];
          double right = untouched, off = 0;
          if (inside) {
            const auto k = static_cast<std::size_t>(((i[0] * part[1] + i[1]) * part[2] + i[2]) * part[3] + i[3]);
            right = expected[k], off = bound[k];
          }
          const double value = got.values[at];
          const bool good = std::isfinite(right) ? std::fabs(value - right) <= off
                                                 : value == right || (std::isnan(value) && std::isnan(right));
          if (good || wrong++ > 0) continue;
          worst = " at (" + std::to_string(n) + ", " + std::to_string(y) + ", " + std::to_string(x) + ", " +
                  std::to_string(c) + "): " + std::to_string(value) + ", expected " + std::to_string(right) + " +- " +
                  std::to_string(off);
        }
  check(wrong == 0, what + ": " + std::to_string(wrong) + " values are wrong, the first" + worst);
}

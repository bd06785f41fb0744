// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/array_call.hpp>

#include <algorithm>
#include <array>

#include <mpscnn/boundary.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/pages.hpp>
#include <mpscnn/pool_scope.hpp>
#include "core/call/image_pool.hpp"

namespace mpscnn {

ArrayCall::ArrayCall(std::shared_ptr<Device> device, std::shared_ptr<ImagePool> pool)
    : device_(std::move(device)), pool_(std::move(pool)) {
  images_.reserve(4);  // few calls have more
}

std::shared_ptr<Image> ArrayCall::new_image(const ArrayView& array) {
  return pool_ ? pool_->take(shape_of(array), array.dtype) : Image::make(device_, shape_of(array), array.dtype);
}

std::shared_ptr<Image> ArrayCall::source(const ArrayView& array) {
  if (!array.space.is_host())
    if (auto image = shared_result(array)) return image;
  if (!pool_) return images_.emplace_back(image_of(device_, array));
  images_.push_back(new_image(array));
  write_image(*images_.back(), array);
  return images_.back();
}

std::shared_ptr<Image> ArrayCall::shared_result(const ArrayView& array) {
  auto image = Image::over_array(device_, array);
  if (image) shared_.push_back(image);
  return image;
}

std::shared_ptr<Image> ArrayCall::copied_result(const ArrayView& array, bool is_partial) {
  images_.push_back(new_image(array));
  if (is_partial) write_image(*images_.back(), array);
  copies_.emplace_back(images_.back(), array);
  return images_.back();
}

void ArrayCall::run(CommandBuffer& buffer) {
  buffer.run();
  copy_results();
}

void ArrayCall::copy_results() {
  for (const auto& [image, array] : copies_) read_image(*image, array);
  copies_.clear();
  if (pool_)
    for (auto& image : images_) pool_->give(std::move(image));
  images_.clear();
  shared_.clear();
}

std::shared_ptr<Image> make_visible_image(const std::shared_ptr<Device>& device, ImageShape shape, DType dtype) {
  if (!device->shares_images()) return Image::make(device, shape, dtype);
  Image::bytes(*device, shape, dtype);  // throws if the shape is invalid
  return Image::from_array(device, make_array(shape.nhwc(), dtype), ImageLayout::NHWC, false);
}

std::shared_ptr<Image> make_image(const std::shared_ptr<Device>& device, const ArrayView& array, ImageLayout layout,
                                  CopyMode copy) {
  check(array.ndim() == 4, "Image: x.ndim (", array.ndim(), ") is not 4.");
  const bool shares = !copy.value_or(false) && Image::why_not_shared(*device, array, layout).empty();
  if (shares || copy == false) return Image::from_array(device, array, layout, copy);
  const auto& s = array.shape;
  const auto shape = layout == ImageLayout::NHWC ? shape_of(array) : ImageShape{s[0], s[2], s[3], s[1]};
  const auto image = make_visible_image(device, shape, array.dtype);
  image->write(array, layout);
  return image;
}

ArrayView make_array(const Extents& shape, DType dtype) {
  ArrayView array{.data = nullptr, .dtype = dtype, .shape = shape, .strides = contiguous_strides(shape, dtype)};
  array.owner = allocate_pages(static_cast<std::size_t>(array.size()) * size_of(dtype));
  array.data = array.owner.get();
  return array;
}

ArrayView make_device_array(const std::shared_ptr<Device>& device, ImageShape shape, DType dtype) {
  if (shape.n > 0) return Image::device_array(Image::make(device, shape, dtype));
  const auto extents = shape.nhwc();
  return {
      .dtype = dtype, .shape = extents, .strides = contiguous_strides(extents, dtype), .space = device->memory_space()};
}

ArrayView make_device_result(const std::shared_ptr<Device>& device, ImageShape shape, DType dtype,
                             const BoundaryLayout& layout, const std::optional<Extents>& flat) {
  const auto images = make_device_array(device, shape, dtype);
  auto view = images;
  view.shape = flat ? *flat : layout.extents(shape);
  view.strides = contiguous_strides(view.shape, dtype);
  if (flat) return view;
  for (std::size_t i = 0; i < 4; ++i)
    if (layout.axis(i) >= 0) view.strides[static_cast<std::size_t>(layout.axis(i))] = images.strides[i];
  return view;
}

bool has_device_array(std::span<const ArrayView> arrays) {
  return std::ranges::any_of(arrays, [](const ArrayView& array) { return !array.space.is_host(); });
}

// --------------------------------------------------------------------------------------------------------------
// kernels

namespace {

bool has_clip(const Kernel& kernel) { return !std::holds_alternative<std::monostate>(kernel.get("clip_rect")); }

void check_no_clip(const Kernel& kernel) {
  check(!has_clip(kernel), kernel.row().name, ": clip_rect needs a destination (out) whose other pixels are kept.");
}

template <class Sequence>
PerSource<ImageShape> shapes_of(const Kernel& kernel, const Sequence& arrays) {
  PerSource<ImageShape> shapes;
  for (const auto& array : arrays) {
    shapes.push_back(shape_of(array));
    Image::bytes(*kernel.device(), shape_of(array), array.dtype);  // throws if it is invalid as images
  }
  return shapes;
}

/// Return whether a call keeps some pixels or channels of its destination.
bool is_partial(const Kernel& kernel, std::span<const ImageShape> sources, const EncodeStates& states,
                std::int64_t channels) {
  if (has_clip(kernel)) return true;
  // Do not call a policy here: it is called once per encode.
  const auto forward = kernel.forward();
  if (kernel.padding_policy() || (forward && forward->padding_policy())) return true;
  const auto first = kernel.get("destination_feature_channel_offset");
  if (const auto* offset = std::get_if<std::int64_t>(&first); offset && *offset != 0) return true;
  return kernel.result_shape(sources, states).c != channels;
}

void encode(Kernel& kernel, CommandBuffer& buffer, ArrayCall& call, std::span<const ArrayView> arrays,
            const EncodeStates& states, const ArrayView& out) {
  PerSource<std::shared_ptr<Image>> images;
  PerSource<const Image*> sources;
  PerSource<ImageShape> shapes;
  for (const auto& array : arrays) {
    images.push_back(call.source(array));
    sources.push_back(images[images.size() - 1].get());
    shapes.push_back(shape_of(array));
  }
  const auto result = call.result(out, [&] { return is_partial(kernel, shapes, states, out.shape[3]); });
  kernel.encode(buffer, sources, result, false, std::nullopt, states);
}

void run_once(Kernel& kernel, std::span<const ArrayView> arrays, const EncodeStates& states, const ArrayView& out) {
  ArrayCall call(kernel.device());
  const auto buffer = CommandBuffer::make(kernel.device());
  encode(kernel, *buffer, call, arrays, states, out);
  call.run(*buffer);
}

/// Return whether the batch cannot be divided: the kernel or a state refers to image indices or to the whole batch.
bool takes_batch_together(const Kernel& kernel, const EncodeStates& states) {
  bool together = has_clip(kernel) || !kernel.works_image_by_image() || states.gradient || states.left;
  const auto forward = kernel.forward();
  for (const Kernel* each : {&kernel, static_cast<const Kernel*>(forward.get())}) {
    if (each == nullptr) continue;
    for (const auto* spec : common_params(each->row()))
      if (spec->type == ParamType::offset) together |= !std::holds_alternative<std::monostate>(each->get(spec->name));
  }
  return together;
}

}  // namespace

std::shared_ptr<Image> encode(Kernel& kernel, CommandBuffer& buffer, SharedImages sources, const EncodeStates& states,
                              std::shared_ptr<Image> out, bool temporary, std::optional<DType> dtype) {
  const PoolScope pool;
  PerSource<const Image*> images;
  PerSource<ImageShape> shapes;
  for (const auto& source : sources) {
    images.push_back(source.get());
    shapes.push_back(source->shape());
  }
  if (out || temporary) return kernel.encode(buffer, images, std::move(out), temporary, dtype, states);
  check_no_clip(kernel);
  out = make_visible_image(kernel.device(), kernel.result_shape(shapes, states), dtype.value_or(sources[0]->dtype()));
  return kernel.encode(buffer, images, std::move(out), false, std::nullopt, states);
}

std::shared_ptr<BatchNormalizationState> encode(Kernel& kernel, CommandBuffer& buffer, SharedImages sources,
                                                std::shared_ptr<BatchNormalizationState> state) {
  PerSource<const Image*> images;
  for (const auto& source : sources) images.push_back(source.get());
  return kernel.encode_state(buffer, images, std::move(state));
}

std::shared_ptr<Image> run(Kernel& kernel, SharedImages sources, const EncodeStates& states, std::shared_ptr<Image> out,
                           std::optional<DType> dtype) {
  const auto buffer = CommandBuffer::make(kernel.device());
  out = encode(kernel, *buffer, sources, states, std::move(out), false, dtype);
  buffer->run();
  return out;
}

ArrayView run(Kernel& kernel, std::span<const ArrayView> sources, const EncodeStates& states,
              std::optional<ArrayView> out, std::optional<DType> dtype) {
  const PoolScope pool;
  const auto shapes = shapes_of(kernel, sources);
  const bool together = takes_batch_together(kernel, states);
  if (!out) check_no_clip(kernel);
  // The number of images differs only where a source has a single image, which goes into every chunk.
  std::int64_t n = 0;
  for (const auto& shape : shapes) n = std::max(n, shape.n);
  auto chunk = shapes;
  if (!together)
    // Limit to the images that one Image holds; the result's other extents do not depend on their number.
    for (auto& shape : chunk)
      if (shape.n == n) shape.n = std::min(n, std::max<std::int64_t>(1, Image::most_images(shape.c)));
  auto shape = kernel.result_shape(chunk, states);
  const auto results = kernel.results_per_image();
  if (!together) shape.n = n * results;
  if (!out) {
    const auto type = dtype.value_or(sources[0].dtype);
    Image::bytes(*kernel.device(), shape, type);  // throws if it is invalid
    out = has_device_array(sources) ? make_device_array(kernel.device(), shape, type) : make_array(shape.nhwc(), type);
  }
  std::int64_t channels = out->shape[3];
  for (const auto& source : sources) channels = std::max(channels, source.shape[3]);
  const auto most_images = std::max<std::int64_t>(1, Image::most_images(channels));
  const auto most = together ? n : std::max<std::int64_t>(1, most_images / results);
  if (n <= most && (together || results <= most_images)) {
    run_once(kernel, sources, states, *out);
    return *out;
  }
  check(out->shape[0] == n * results, kernel.row().name, ": out.shape ", as_tuple(out->shape), " is not the result's ",
        shape, ".");
  if (results > most_images) {  // divide the results of each image
    for (std::int64_t i = 0; i < n; ++i)
      for_each_chunk(results, most_images, [&](std::int64_t first, std::int64_t count) {
        const PoolScope pool_of_chunk;
        const std::array source = {images_of(sources[0], i, 1)};
        run_once(*kernel.some_results(first, count), source, {}, images_of(*out, i * results + first, count));
      });
    return *out;
  }
  constexpr std::int64_t kChunks = 32;  // per command buffer: copies live until it completes
  for_each_chunk(n, kChunks * most, [&](std::int64_t begin, std::int64_t images) {
    const PoolScope pool_of_chunk;
    ArrayCall call(kernel.device());
    const auto buffer = CommandBuffer::make(kernel.device());
    for_each_chunk(images, most, [&](std::int64_t first, std::int64_t count) {
      first += begin;
      PerSource<ArrayView> part;
      for (const auto& source : sources)
        part.push_back(source.shape[0] == n ? images_of(source, first, count) : source);
      encode(kernel, *buffer, call, part, states, images_of(*out, first * results, count * results));
    });
    call.run(*buffer);
  });
  return *out;
}

std::shared_ptr<BatchNormalizationState> run(Kernel& kernel, SharedImages sources,
                                             std::shared_ptr<BatchNormalizationState> state) {
  const auto buffer = CommandBuffer::make(kernel.device());
  state = encode(kernel, *buffer, sources, std::move(state));
  buffer->run();
  return state;
}

std::shared_ptr<BatchNormalizationState> run(Kernel& kernel, std::span<const ArrayView> sources,
                                             std::shared_ptr<BatchNormalizationState> state) {
  const auto shapes = shapes_of(kernel, sources);
  const auto& shape = shapes[0];
  for (std::size_t i = 1; i < shapes.size(); ++i)
    check(shapes[i] == shape, kernel.row().name, ": ", kernel.row().sources[0], ".shape ", shape, " is not that of ",
          kernel.row().sources[i], " ", shapes[i], ".");
  ArrayCall call(kernel.device());
  const auto buffer = CommandBuffer::make(kernel.device());
  for_each_chunk(shape.n, std::max<std::int64_t>(1, Image::most_images(shape.c)),
                 [&](std::int64_t first, std::int64_t count) {
                   PerSource<const Image*> images;
                   for (const auto& source : sources)
                     images.push_back(call.source(images_of(source, first, count)).get());
                   state = kernel.encode_state(*buffer, images, std::move(state));
                 });
  call.run(*buffer);
  return state;
}

// --------------------------------------------------------------------------------------------- losses and conversions

std::shared_ptr<Image> encode(const LossKernel& kernel, CommandBuffer& buffer, const std::shared_ptr<Image>& x,
                              LossLabels& labels, std::shared_ptr<Image> out, bool temporary) {
  check(!out || !temporary, kernel.name(), ": temporary (True) was given together with out.");
  if (!out && !temporary) {
    kernel.check_labels(x->shape(), labels);
    out = make_visible_image(kernel.device(), x->shape(), gradient_dtype(x->dtype()));
  }
  return kernel.encode(buffer, x, labels, std::move(out), temporary);
}

std::shared_ptr<Image> run(const LossKernel& kernel, const std::shared_ptr<Image>& x, LossLabels& labels,
                           std::shared_ptr<Image> out) {
  const auto buffer = CommandBuffer::make(kernel.device());
  out = encode(kernel, *buffer, x, labels, std::move(out), false);
  buffer->run();
  return out;
}

void run(const LossKernel& kernel, const ArrayView& x, LossLabels& labels, const ArrayView& out) {
  ArrayCall call(kernel.device());
  std::vector<std::shared_ptr<Image>> sources, results;
  for_each_chunk(x.shape[0], std::max<std::int64_t>(1, Image::most_images(x.shape[3])),
                 [&](std::int64_t first, std::int64_t count) {
                   sources.push_back(call.source(images_of(x, first, count)));
                   results.push_back(call.result(images_of(out, first, count)));
                 });
  const auto buffer = CommandBuffer::make(kernel.device());
  kernel.encode(*buffer, sources, labels, results);
  call.run(*buffer);
}

std::shared_ptr<Image> encode(const ImageConversion& kernel, CommandBuffer& buffer, const Image& x,
                              std::shared_ptr<Image> out, bool temporary) {
  check(!out || !temporary, ImageConversion::row().name, ": temporary (True) was given together with out.");
  if (!out && !temporary) {
    kernel.check_channels(x.shape().c);
    kernel.check_no_clip();
    out = make_visible_image(kernel.device(), kernel.result_shape(x.shape()), kernel.dtype());
  }
  return kernel.encode(buffer, x, std::move(out), temporary);
}

std::shared_ptr<Image> run(const ImageConversion& kernel, const Image& x, std::shared_ptr<Image> out) {
  const auto buffer = CommandBuffer::make(kernel.device());
  out = encode(kernel, *buffer, x, std::move(out), false);
  buffer->run();
  return out;
}

ArrayView run(const ImageConversion& kernel, const ArrayView& x, std::optional<ArrayView> out) {
  const auto name = ImageConversion::row().name;
  check(x.ndim() == 4, name, ": x.ndim (", x.ndim(), ") is not 4 (N, H, W, C).");
  kernel.check_channels(x.shape[3]);
  const auto shape = shape_of(x);
  Image::bytes(*kernel.device(), shape, x.dtype);  // throws if it is invalid
  if (!out) {
    kernel.check_no_clip();
    const auto result = kernel.result_shape(shape);
    out = x.space.is_host() ? make_array(result.nhwc(), kernel.dtype())
                            : make_device_array(kernel.device(), result, kernel.dtype());
  }
  check(out->ndim() == 4, name, ": out.ndim (", out->ndim(), ") is not 4 (N, H, W, C).");
  kernel.check_destination(shape, shape_of(*out));
  check<TypeError>(out->dtype == kernel.dtype(), name, ": out.dtype (", name_of(out->dtype), ") is not dtype (",
                   name_of(kernel.dtype()), ").");
  const bool together = !kernel.works_image_by_image();
  const auto most = together ? x.shape[0] : std::max<std::int64_t>(1, Image::most_images(x.shape[3]));
  for_each_chunk(x.shape[0], most, [&](std::int64_t first, std::int64_t count) {
    ArrayCall call(kernel.device());
    const auto buffer = CommandBuffer::make(kernel.device());
    const auto source = call.source(images_of(x, first, count));
    kernel.encode(*buffer, *source,
                  call.result(together ? *out : images_of(*out, first, count), [&] { return kernel.has_clip(); }));
    call.run(*buffer);
  });
  return *out;
}

}  // namespace mpscnn

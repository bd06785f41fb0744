// SPDX-License-Identifier: Apache-2.0
// Built-in data source over an array, used in place if its memory order allows it.
#include <mpscnn/data_source.hpp>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include <mpscnn/error.hpp>
#include <mpscnn/watched_memory.hpp>

#include "core/kernel/params.hpp"

namespace mpscnn {
namespace {

ArrayView owned_array(const Extents& shape, DType dtype) {
  std::int64_t count = 1;
  for (auto extent : shape) count *= extent;
  std::shared_ptr<std::byte[]> bytes(new std::byte[static_cast<std::size_t>(count) * size_of(dtype)]);
  return {
      .data = bytes.get(), .dtype = dtype, .shape = shape, .strides = contiguous_strides(shape, dtype), .owner = bytes};
}

ArrayView float_array(const std::vector<float>& values, Extents shape) {
  auto array = owned_array(shape, DType::float32);
  std::memcpy(array.data, values.data(), values.size() * sizeof(float));
  return array;
}

/// Return a view with both spatial axes reversed.
ArrayView rotated(ArrayView view, int h_axis, int w_axis) {
  for (int axis : {h_axis, w_axis}) {
    view.data = static_cast<std::byte*>(view.data) + (view.shape[axis] - 1) * view.strides[axis];
    view.strides[axis] = -view.strides[axis];
  }
  return view;
}

class ArraySource final : public DataSource {
 public:
  ArraySource(ConvolutionDescriptor descriptor, ArrayView source, ArrayDataSourceOptions options)
      : descriptor_(std::move(descriptor)), source_(std::move(source)), options_(std::move(options)) {}

  bool load() override {
    const std::scoped_lock lock(mutex_);
    if (loads_ == 0 && !in_place()) {
      auto loaded = reordered();
      check_whole(source_);
      release_pages(memory_of(source_));
      loaded_ = std::move(loaded);
    }
    ++loads_;
    return true;
  }

  void purge() override {
    const std::scoped_lock lock(mutex_);
    if (loads_ > 0 && --loads_ == 0) loaded_.reset();
  }

  ConvolutionDescriptor descriptor() override { return descriptor_; }

  ArrayView weights() override {
    const std::scoped_lock lock(mutex_);
    check<std::runtime_error>(loads_ > 0, "ArrayDataSource: weights were asked for outside of load() and purge().");
    return loaded_ ? *loaded_ : *in_place();
  }
  /// Return the owner of memory that never changes: the reordered copy, or a source marked constant; else null.
  std::shared_ptr<void> weights_owner() override {
    const std::scoped_lock lock(mutex_);
    if (loaded_) return loaded_->owner;
    return source_.is_constant && in_place() ? source_.owner : nullptr;
  }

  std::optional<ArrayView> bias() override { return options_.bias; }
  std::optional<ArrayView> ranges() override { return options_.ranges; }
  std::optional<ArrayView> lookup_table() override { return options_.lookup_table; }
  std::string label() override { return options_.label; }
  DType kernel_dtype() override {
    if (options_.kernel_dtype) return *options_.kernel_dtype;
    return source_.dtype == DType::float32 || source_.dtype == DType::bfloat16 ? DType::float32 : DType::float16;
  }

 private:
  /// Return the source as OHWI if its memory has that order, regardless of its layout.
  std::optional<ArrayView> in_place() const {
    if (options_.rotate || source_.dtype == DType::bfloat16) return std::nullopt;
    auto seen = source_;
    if (options_.layout == Layout::OIHW && source_.ndim() == 4)
      for (auto* axes : {&seen.shape, &seen.strides}) *axes = {(*axes)[0], (*axes)[2], (*axes)[3], (*axes)[1]};
    else if (options_.layout != Layout::OHWI)
      return std::nullopt;
    if (!seen.is_contiguous()) return std::nullopt;
    seen.strides = contiguous_strides(seen.shape, seen.dtype);  // axes of extent 1 may have any stride
    return seen;
  }

  ArrayView reordered() const {
    const auto i_per_group = descriptor_.depthwise ? 1 : descriptor_.in_channels / descriptor_.groups;
    auto target = owned_array(
        {descriptor_.out_channels, descriptor_.kernel_size.h, descriptor_.kernel_size.w, i_per_group}, source_.dtype);
    if (options_.layout == Layout::IOHW) {
      reorder_transposed(target);
    } else {
      const int h_axis = options_.layout == Layout::OHWI ? 1 : options_.layout == Layout::HWIO ? 0 : 2;
      reorder(options_.rotate ? rotated(source_, h_axis, h_axis + 1) : source_, options_.layout, target, Layout::OHWI);
    }
    return source_.dtype == DType::bfloat16 ? widened(target) : target;
  }

  /// Reorder PyTorch's weights of a transposed convolution, (groups * I, O / groups, h, w).
  void reorder_transposed(const ArrayView& target) const {
    const auto groups = descriptor_.groups;
    for (std::int64_t g = 0; g < groups; ++g) {
      auto from = options_.rotate ? rotated(source_, 2, 3) : source_;
      from.shape[0] /= groups;
      from.data = static_cast<std::byte*>(from.data) + g * from.shape[0] * from.strides[0];
      auto to = target;
      to.shape[0] /= groups;
      to.data = static_cast<std::byte*>(to.data) + g * to.shape[0] * to.strides[0];
      reorder(from, Layout::IOHW, to, Layout::OHWI);
    }
  }

  static ArrayView widened(const ArrayView& from) {
    auto to = owned_array(from.shape, DType::float32);
    const auto* words = static_cast<const std::uint16_t*>(from.data);
    auto* floats = static_cast<std::uint32_t*>(to.data);
    for (std::int64_t i = 0, n = from.size(); i < n; ++i) floats[i] = std::uint32_t{words[i]} << 16;
    return to;
  }

  const ConvolutionDescriptor descriptor_;
  const ArrayView source_;
  const ArrayDataSourceOptions options_;
  std::mutex mutex_;
  int loads_ = 0;
  std::optional<ArrayView> loaded_;
};

/// Return the array as contiguous float32, copied only if needed; throw unless it has `shape`.
ArrayView float_parameter(const ArrayView& given, const Extents& shape, const char* what) {
  check(given.shape == shape, what, ".shape ", as_tuple(given.shape), " is not ", as_tuple(shape), ".");
  if (given.dtype == DType::float32 && given.is_contiguous()) return given;
  std::vector<float> values;
  auto row = given;
  if (shape.size() == 1) return float_array(to_floats(given, what), shape);
  row.shape = {given.shape[1]};
  row.strides = {given.strides[1]};
  for (std::int64_t o = 0; o < shape[0]; ++o) {
    row.data = static_cast<std::byte*>(given.data) + o * given.strides[0];
    const auto part = to_floats(row, what);
    values.insert(values.end(), part.begin(), part.end());
  }
  return float_array(values, shape);
}

}  // namespace

std::shared_ptr<DataSource> array_data_source(ConvolutionDescriptor descriptor, ArrayView weights,
                                              ArrayDataSourceOptions options) {
  const bool is_uint8 = weights.dtype == DType::uint8;
  check<TypeError>(is_uint8 || weights.dtype == DType::float32 || weights.dtype == DType::float16 ||
                       weights.dtype == DType::bfloat16 ||
                       (weights.dtype == DType::uint32 && options.layout == Layout::OHWI && weights.is_contiguous()),
                   "weight.dtype (", name_of(weights.dtype), ") is not float32, float16, bfloat16 or uint8.");
  check(is_uint8 == (options.ranges || options.lookup_table),
        is_uint8 ? "weight.dtype (uint8) needs ranges or lookup_table."
                 : "ranges and lookup_table are for weight.dtype (uint8) only.");
  check(!(options.ranges && options.lookup_table),
        "ranges and lookup_table were both given; a kernel takes one of them.");
  const auto out = descriptor.out_channels;
  if (options.bias) options.bias = float_parameter(*options.bias, {out}, "bias");
  if (options.ranges) options.ranges = float_parameter(*options.ranges, {out, 2}, "ranges");
  if (options.lookup_table) options.lookup_table = float_parameter(*options.lookup_table, {256}, "lookup_table");
  check(!(options.kernel_dtype == DType::float32 && (is_uint8 || weights.dtype == DType::float16)),
        "kernel_dtype (\"float32\") needs float32 or bfloat16 weights; weight.dtype is ", name_of(weights.dtype), ".");
  return std::make_shared<ArraySource>(std::move(descriptor), std::move(weights), std::move(options));
}

}  // namespace mpscnn

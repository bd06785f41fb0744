// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/error.hpp>
#include <mpscnn/function_layer.hpp>

#include <algorithm>

#include "core/device/device_impl.hh"
#include "core/device/objc_scope.hh"

namespace mpscnn {
namespace {

using Kind = FunctionArgument::Kind;
using Access = FunctionArgument::Access;

/// Move bytes that are too many for -setBytes:length:atIndex: to a buffer, so that encodes need not copy them.
void move_to_buffer(FunctionValue &value, const std::shared_ptr<Device> &device) {
  if (value.bytes.size() <= MetalFunction::kMostBytes) return;
  value.buffer = Buffer::make(device, value.bytes.size());
  value.buffer->write(value.bytes.data());
  value.bytes.clear();
}

}  // namespace

std::shared_ptr<FunctionLayer> FunctionLayer::make(std::shared_ptr<MetalFunction> function,
                                                   std::vector<FunctionValue> constants, Options options) {
  return std::make_shared<FunctionLayer>(std::move(function), std::move(constants), std::move(options));
}

FunctionLayer::FunctionLayer(std::shared_ptr<MetalFunction> function, std::vector<FunctionValue> constants,
                             Options options)
    : function_(std::move(function)), values_(std::move(constants)), options_(std::move(options)) {
  const auto &arguments = function_->arguments();
  for (auto &value : values_) move_to_buffer(value, device());
  std::size_t results = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const FunctionArgument &argument = arguments[i];
    const auto is_given = std::ranges::find(values_, i, &FunctionValue::argument) != values_.end();
    if (argument.kind != Kind::texture) {
      check<TypeError>(is_given, name(), ": the argument ", argument.name, " is missing.");
      check<TypeError>(argument.access == Access::read || argument.kind != Kind::buffer, name(), ": ", argument.name,
                       " is a buffer that the function writes; the only result of a network's function is a texture.");
      continue;
    }
    check<TypeError>(argument.access != Access::read_write, name(), ": ", argument.name,
                     " is a read_write texture; a network's function reads its sources and writes one result.");
    if (argument.access == Access::write)
      result_ = values_.size(), ++results;
    else
      sources_.push_back(values_.size());
    values_.push_back({.argument = i});
  }
  check<TypeError>(results == 1, name(), ": the number of textures with access::write (", results,
                   ") is not 1, as a network's function has.");
  check<TypeError>(!sources_.empty(), name(), ": no texture is read; a network's function has at least one source.");
}

ImageShape FunctionLayer::result_shape(std::span<const ImageShape> sources) const {
  const auto shape = options_.out_shape ? options_.out_shape(sources) : sources[0];
  check(shape.n == sources[0].n, name(), ": out_shape returned ", shape, " for ", sources[0].n,
        " images; it must keep their number.");
  const auto fits = [&](std::int64_t extent, std::int64_t most, const char *what) {
    check(extent >= 1 && extent <= most, name(), ": out_shape returned ", shape, ", whose ", what, " is not from 1 to ",
          most, ".");
  };
  fits(shape.h, Image::kMostPixels, "height");
  fits(shape.w, Image::kMostPixels, "width");
  fits(shape.c, Image::kMostChannels, "number of channels");
  return shape;
}

FunctionLayer::Size FunctionLayer::threads(ImageShape result) const {
  result.n = 1;
  return options_.grid ? options_.grid(result) : MetalFunction::threads_for(result);
}

void FunctionLayer::encode(CommandBuffer &buffer, std::span<const std::shared_ptr<Image>> sources,
                           const std::shared_ptr<Image> &destination, Size threads) const {
  const auto &out = destination->impl();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto &source = sources[i]->impl();
    check(source.writer != out.writer || source.first_channel != out.first_channel || source.shape != out.shape, name(),
          ": ", function_->arguments()[values_[sources_[i]].argument].name,
          " and out are the same image; they share memory.");
  }
  auto values = values_;
  for (std::size_t i = 0; i < sources.size(); ++i) values[sources_[i]].image = sources[i];
  values[result_].image = destination;
  const auto group = options_.threadgroup.value_or(function_->group_for(threads));
  const auto images = destination->shape().n;
  for (std::int64_t image = 0; image < images; ++image) {
    for (auto &value : values)
      if (value.image) value.only_image = image;
    function_->encode(buffer, values, threads, group);
  }
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (sources[i]->is_temporary() && std::ranges::find(sources, sources[i]) == sources.begin() + std::ptrdiff_t(i))
      sources[i]->set_read_count(sources[i]->read_count() - 1);
  const auto shape = destination->shape();
  buffer.impl().note_work(static_cast<std::uint64_t>(shape.n * shape.h * shape.w * shape.c));
}

}  // namespace mpscnn

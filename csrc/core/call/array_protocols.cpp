// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/array_protocols.hpp>

#include <exception>
#include <memory>
#include <string>
#include <type_traits>

#include <mpscnn/device.hpp>
#include <mpscnn/error.hpp>

namespace mpscnn {
namespace {

enum : std::uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4 };

DLDataType dlpack_of(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::uint8:
    case DType::uint16:
    case DType::uint32: return {kUInt, bits, 1};
    case DType::int32:
    case DType::int64: return {kInt, bits, 1};
    case DType::bfloat16: return {kBfloat, bits, 1};
    case DType::float16:
    case DType::float32:
    case DType::float64: break;
  }
  return {kFloat, bits, 1};
}

/// A tensor, and the array whose memory it refers to.
template <class Managed>
struct Held {
  Managed managed{};
  ArrayView view;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const MemorySpace& space) {
  if (space.is_host()) return out << "the CPU";
  if (space.type != MemorySpace::kCuda) return out << "DLPack device " << space.type;
  if (space.number == MemorySpace::kUnknown) return out << "a CUDA device";
  return out << "CUDA device " << space.number;
}

MemorySpace memory_space_of(const DLDevice& device) {
  constexpr std::int32_t kCudaHost = 3, kRocmHost = 11;  // kDLCUDAHost, kDLROCMHost
  if (device.type == kCudaHost || device.type == kRocmHost || device.type == MemorySpace::kHost) return {};
  return {device.type, device.id};
}

std::optional<DType> dtype_of(const DLDataType& type) {
  if (type.lanes != 1) return std::nullopt;
  switch (type.code << 8 | type.bits) {
    case kUInt << 8 | 8: return DType::uint8;
    case kUInt << 8 | 16: return DType::uint16;
    case kUInt << 8 | 32: return DType::uint32;
    case kInt << 8 | 32: return DType::int32;
    case kInt << 8 | 64: return DType::int64;
    case kFloat << 8 | 16: return DType::float16;
    case kFloat << 8 | 32: return DType::float32;
    case kFloat << 8 | 64: return DType::float64;
    case kBfloat << 8 | 16: return DType::bfloat16;
    default: return std::nullopt;
  }
}

ArrayView view_of_tensor(const DLTensor& tensor, const std::string& what, const char* name) {
  constexpr std::int32_t kMostAxes = 64;  // limit of PyTorch's tensors and NumPy's arrays
  check(tensor.ndim >= 0 && tensor.ndim <= kMostAxes, what, ": ndim (", tensor.ndim,
        ") of its DLPack capsule is not within 0 to ", kMostAxes, ".");
  check(tensor.shape || tensor.ndim == 0, what, ": shape of its DLPack capsule is NULL.");
  const auto dtype = dtype_of(tensor.dtype);
  if (!dtype)
    refuse_dtype(say("DLPack code ", int{tensor.dtype.code}, ", ", int{tensor.dtype.bits}, " bits, ",
                     tensor.dtype.lanes, " lanes"),
                 name);
  ArrayView view;
  view.dtype = *dtype;
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.space = memory_space_of(tensor.device);
  view.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  bytes_of(view.shape, *dtype, name);
  check(tensor.data || view.size() == 0, what, " has no memory: its address is NULL.");
  if (tensor.strides) {
    view.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
    for (auto& stride : view.strides) stride *= static_cast<std::int64_t>(size_of(*dtype));
  } else {
    view.strides = contiguous_strides(view.shape, *dtype);
  }
  return view;
}

/// The element type of a format such as "f", "<f4" or "|u1".
std::optional<DType> dtype_of_format(std::string_view format, std::size_t bytes) {
  if (!format.empty() && std::string_view("@=<>|!").find(format[0]) != std::string_view::npos) {
    if ((format[0] == '>' || format[0] == '!') && bytes > 1) return std::nullopt;
    format.remove_prefix(1);
  }
  if (format.empty()) return std::nullopt;
  const bool typestr = format.size() > 1;  // "f4" (array interface) against "f" (struct)
  const char kind = format[0];
  if (typestr && format.substr(1) != std::to_string(bytes)) return std::nullopt;
  const bool is_unsigned = typestr ? kind == 'u' : std::string_view("BHILQNc").find(kind) < 6;
  const bool is_signed = typestr ? kind == 'i' : std::string_view("bhilqn").find(kind) != std::string_view::npos;
  const bool is_float = typestr ? kind == 'f' : std::string_view("efd").find(kind) != std::string_view::npos;
  if (is_unsigned && bytes == 1) return DType::uint8;
  if (is_unsigned && bytes == 2) return DType::uint16;
  if (is_unsigned && bytes == 4) return DType::uint32;
  if (is_signed && bytes == 4) return DType::int32;
  if (is_signed && bytes == 8) return DType::int64;
  if (is_float && bytes == 2) return DType::float16;
  if (is_float && bytes == 4) return DType::float32;
  if (is_float && bytes == 8) return DType::float64;
  return std::nullopt;
}

[[noreturn]] void refuse_dtype(const std::string& given, const char* name) {
  throw TypeError(say(name, ".dtype (", given, ") is not ", kKnownTypes, "."));
}

std::size_t bytes_of(const Extents& shape, DType dtype, const char* what) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  bool empty = false;
  for (const auto extent : shape) {
    check(extent >= 0, what, as_tuple(shape), " has a negative extent.");
    empty |= extent == 0;
  }
  for (const auto extent : shape)
    check<MemoryError>(empty || !__builtin_mul_overflow(bytes, extent, &bytes), what, as_tuple(shape), " of ",
                       name_of(dtype), " is more than 2^63 bytes.");
  return empty ? 0 : static_cast<std::size_t>(bytes);
}

template <class Managed>
Managed* new_tensor(const ArrayView& view) {
  constexpr bool is_versioned = std::is_same_v<Managed, DLManagedTensorVersioned>;
  check<BufferError>(is_versioned || !view.read_only,
                     "__dlpack__: the memory is read-only, which DLPack says from version 1 on: pass max_version.");
  auto held = std::make_unique<Held<Managed>>();
  held->view = view;
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  for (auto& stride : held->view.strides) {
    check(stride % size == 0, "__dlpack__: stride ", stride, " is not a multiple of ", size, " bytes.");
    stride /= size;
  }
  auto& managed = held->managed;
  if constexpr (is_versioned) {
    managed.version = {1, 0};
    managed.flags = view.read_only ? kDLReadOnly : 0;
  }
  managed.tensor = {.data = view.data,
                    .device = {view.space.type, view.space.number},
                    .ndim = static_cast<std::int32_t>(view.ndim()),
                    .dtype = dlpack_of(view.dtype),
                    .shape = held->view.shape.data(),
                    .strides = held->view.strides.data(),
                    .byte_offset = 0};
  managed.context = held.get();
  managed.deleter = [](Managed* tensor) { delete static_cast<Held<Managed>*>(tensor->context); };
  return &held.release()->managed;
}

template DLManagedTensor* new_tensor(const ArrayView& view);
template DLManagedTensorVersioned* new_tensor(const ArrayView& view);

ArrayView lend(ArrayView view, std::shared_ptr<const Device> device, std::uintptr_t stream) {
  view.owner = std::shared_ptr<void>(view.data, [owner = view.owner, device = std::move(device), stream](void*) {
    try {
      device->wait_for_stream(stream);
    } catch (const std::exception&) {  // the device is lost, and its memory with it
    }
  });
  return view;
}

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
// Arrays of other libraries: element types by their names, and DLPack's structs,
// https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <mpscnn/array.hpp>

namespace mpscnn {

struct DLDevice {
  std::int32_t type;
  std::int32_t id;
};

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< elements; null: C-contiguous
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};

struct DLManagedTensorVersioned {
  struct {
    std::uint32_t major, minor;
  } version;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  DLTensor tensor;
};

constexpr std::uint64_t kDLReadOnly = 1;

/// Return the memory of a device; page-locked memory of the host is the host's.
MemorySpace memory_space_of(const DLDevice& device);
/// Return the element type, or nullopt if DType lacks it.
std::optional<DType> dtype_of(const DLDataType& type);

/// Return the view of a tensor, without an owner; `what` is the argument in messages, and `name` its name. Throw for
/// wrong descriptions and for element types that DType lacks.
ArrayView view_of_tensor(const DLTensor& tensor, const std::string& what, const char* name);

/// Return a new tensor that holds a copy of the view; its deleter frees it, on any thread. Throw std::invalid_argument
/// if a stride is not a multiple of the element size, and BufferError if the view is read-only and `Managed` cannot say
/// so.
template <class Managed>
Managed* new_tensor(const ArrayView& view);

/// Return the element type of a format such as "f", "<f4" or "|u1", with elements of `bytes`.
std::optional<DType> dtype_of_format(std::string_view format, std::size_t bytes);

/// DType's types in words.
inline constexpr const char* kKnownTypes =
    "uint8, uint16, int32, uint32, int64, float16, bfloat16, float32 or float64 in native byte order";

/// Throw TypeError "x.dtype (complex64) is not uint8, …".
[[noreturn]] void refuse_dtype(const std::string& given, const char* name);

/// Return the size of an array in bytes. Throw std::invalid_argument or MemoryError on a negative extent or overflow.
std::size_t bytes_of(const Extents& shape, DType dtype, const char* what);

}  // namespace mpscnn

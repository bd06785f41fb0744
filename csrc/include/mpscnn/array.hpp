// SPDX-License-Identifier: Apache-2.0
// ArrayView: data type, shape and strides of an array in memory. Does not convert the elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <mpscnn/dtype.hpp>

namespace mpscnn {

using Extents = std::vector<std::int64_t>;

/// The memory that an address belongs to: type and number of a device [dlpack.h, DLDevice].
struct MemorySpace {
  static constexpr std::int32_t kHost = 1, kCuda = 2;  ///< kDLCPU, kDLCUDA
  static constexpr std::int32_t kUnknown = -1;         ///< number of a device that only its driver knows

  std::int32_t type = kHost, number = 0;

  bool is_host() const { return type == kHost; }
  bool operator==(const MemorySpace&) const = default;
};
std::ostream& operator<<(std::ostream& out, const MemorySpace& space);

struct ArrayView {
  void* data = nullptr;
  DType dtype = DType::float32;
  Extents shape;    ///< elements
  Extents strides;  ///< bytes, may be negative or zero
  bool read_only = false;
  std::shared_ptr<void> owner = {};  ///< keeps `data` alive; may be empty when the caller does
  bool is_constant = false;          ///< the elements do not change while `owner` is held
  MemorySpace space = {};            ///< the host may use `data` only if this is the host's

  std::size_t ndim() const { return shape.size(); }
  std::int64_t size() const {
    std::int64_t n = 1;
    for (auto extent : shape) n *= extent;
    return n;
  }
  /// C order, no gaps (extents of 1 may have any stride).
  bool is_contiguous() const {
    auto step = static_cast<std::int64_t>(size_of(dtype));
    for (std::size_t i = shape.size(); i-- > 0;) {
      if (shape[i] != 1 && strides[i] != step) return size() == 0;
      step *= shape[i];
    }
    return true;
  }
};

/// Return the strides of a C-contiguous array, in bytes.
inline Extents contiguous_strides(const Extents& shape, DType dtype) {
  Extents strides(shape.size());
  auto step = static_cast<std::int64_t>(size_of(dtype));
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

/// Formats extents as Python prints a shape: "(2, 3, 4)". Formatting is deferred until an error is built; `E` may be a
/// reference, which must outlive it.
template <class E>
struct AsTuple {
  E extents;
};
inline AsTuple<const Extents&> as_tuple(const Extents& extents) { return {extents}; }
inline AsTuple<Extents> as_tuple(Extents&& extents) { return {std::move(extents)}; }
template <class E>
std::ostream& operator<<(std::ostream& out, const AsTuple<E>& tuple) {
  const auto& extents = tuple.extents;
  out << '(';
  for (std::size_t i = 0; i < extents.size(); ++i) out << (i ? ", " : "") << extents[i];
  return out << (extents.size() == 1 ? ",)" : ")");
}

}  // namespace mpscnn

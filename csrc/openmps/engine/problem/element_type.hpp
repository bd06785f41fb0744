// SPDX-License-Identifier: Apache-2.0
// Types of elements of arrays. Kernels for GPUs include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace openmps {

/// Type of an array's elements.
enum class ElementType : std::uint8_t {
  uint8,
  uint16,
  uint32,
  uint64,
  int8,
  int16,
  int32,
  int64,
  boolean,  ///< of one byte
  unorm8,   ///< the integer / 255
  unorm16,  ///< the integer / 65535
  float16,
  bfloat16,
  float32,
  complex_float16,  ///< complex numbers are not converted
  complex_bfloat16,
  complex_float32,
};

/// Return the bytes of an element.
constexpr std::size_t size_of(ElementType type) {
  switch (type) {
    case ElementType::uint8:
    case ElementType::int8:
    case ElementType::boolean:
    case ElementType::unorm8: return 1;
    case ElementType::uint16:
    case ElementType::int16:
    case ElementType::unorm16:
    case ElementType::float16:
    case ElementType::bfloat16: return 2;
    case ElementType::uint64:
    case ElementType::int64:
    case ElementType::complex_float32: return 8;
    default: return 4;
  }
}
constexpr bool is_complex(ElementType type) { return type >= ElementType::complex_float16; }

}  // namespace openmps

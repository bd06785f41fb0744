// SPDX-License-Identifier: Apache-2.0
// Element types of arrays, images and data sources.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mpscnn {

/// 32 bits, like all enums of the public interface: g++ leaves the upper bits of the register undefined when it passes
/// narrower ones, and clang's code for .mm files reads these bits.
enum class DType : std::uint32_t { uint8, uint16, int32, uint32, int64, float16, bfloat16, float32, float64 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::uint8: return 1;
    case DType::uint16:
    case DType::float16:
    case DType::bfloat16: return 2;
    case DType::int32:
    case DType::uint32:
    case DType::float32: return 4;
    case DType::int64:
    case DType::float64: return 8;
  }
  return 0;
}

/// NumPy's name of the type ("bfloat16" is ml_dtypes').
constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::uint8: return "uint8";
    case DType::uint16: return "uint16";
    case DType::int32: return "int32";
    case DType::uint32: return "uint32";
    case DType::int64: return "int64";
    case DType::float16: return "float16";
    case DType::bfloat16: return "bfloat16";
    case DType::float32: return "float32";
    case DType::float64: return "float64";
  }
  return "?";
}

}  // namespace mpscnn

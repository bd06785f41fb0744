// SPDX-License-Identifier: Apache-2.0
// Calls of functions that a program has written in the Metal Shading Language.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/problem/fields.hpp"

namespace openmps {

namespace function {
class Function;
}

/// A texture. The channels of an image are its slices: `lanes` each, the last slice may have fewer.
struct FunctionTexture {
  std::uint32_t argument = 0;  ///< position among the function's arguments
  ImageView view;
  std::uint32_t lanes = 4;   ///< of the texture's format: 1, 2 or 4
  std::uint32_t slices = 1;  ///< of all images

  static constexpr auto fields() {
    using P = FunctionTexture;
    using namespace roles;
    return std::tuple(shape("argument", &P::argument), inout("view", &P::view), shape("lanes", &P::lanes),
                      shape("slices", &P::slices));
  }
};

struct FunctionBuffer {
  std::uint32_t argument = 0;
  std::shared_ptr<Memory> memory;
  std::size_t offset = 0;  ///< bytes

  static constexpr auto fields() {
    using P = FunctionBuffer;
    using namespace roles;
    return std::tuple(shape("argument", &P::argument), inout("memory", &P::memory), shape("offset", &P::offset));
  }
};

/// The contents of a small buffer that no other command sees.
struct FunctionBytes {
  std::uint32_t argument = 0;
  std::vector<std::uint8_t> bytes;

  static constexpr auto fields() {
    using P = FunctionBytes;
    using namespace roles;
    return std::tuple(shape("argument", &P::argument), roles::value("bytes", &P::bytes));
  }
};

/// Memory of each threadgroup; `bytes` is a multiple of 16.
struct FunctionMemory {
  std::uint32_t argument = 0;
  std::uint32_t bytes = 0;

  static constexpr auto fields() {
    using P = FunctionMemory;
    using namespace roles;
    return std::tuple(shape("argument", &P::argument), shape("bytes", &P::bytes));
  }
};

/// A sampler: function_abi::Sampler.
struct FunctionSampler {
  std::uint32_t argument = 0;
  bool is_pixel = false, is_linear = false;
  std::uint8_t across = 0, down = 0, border = 0;

  static constexpr auto fields() {
    using P = FunctionSampler;
    using namespace roles;
    return std::tuple(shape("argument", &P::argument), shape("is_pixel", &P::is_pixel),
                      shape("is_linear", &P::is_linear), shape("across", &P::across), shape("down", &P::down),
                      shape("border", &P::border));
  }
};

struct FunctionExtent {
  std::uint32_t x = 1, y = 1, z = 1;

  static constexpr auto fields() {
    using P = FunctionExtent;
    using namespace roles;
    return std::tuple(shape("x", &P::x), shape("y", &P::y), shape("z", &P::z));
  }
};

/// Run the function once for each of `threads` threads, in groups of `group` threads; groups at the end of an axis may
/// have fewer. Arguments that are not listed have no value: their function constant is false. A written texture or
/// buffer keeps what the function does not write, so it is read too.
struct FunctionProblem {
  std::shared_ptr<const function::Function> function;
  std::vector<FunctionTexture> sources, results;
  std::vector<FunctionBuffer> inputs, outputs;
  std::vector<FunctionBytes> bytes;
  std::vector<FunctionMemory> memory;
  std::vector<FunctionSampler> samplers;
  FunctionExtent threads, group;

  static constexpr auto fields() {
    using P = FunctionProblem;
    using namespace roles;
    return std::tuple(shape("function", &P::function), in("sources", &P::sources), inout("results", &P::results),
                      in("inputs", &P::inputs), inout("outputs", &P::outputs), roles::value("bytes", &P::bytes),
                      shape("memory", &P::memory), shape("samplers", &P::samplers), shape("threads", &P::threads),
                      shape("group", &P::group));
  }
};

}  // namespace openmps

// SPDX-License-Identifier: Apache-2.0
// MetalFunction: a compute function in Metal's language, compiled when it is made.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mpscnn/buffer.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/device.hpp>
#include <mpscnn/image.hpp>

namespace mpscnn {

/// An argument that the caller sets [MTLArgument.h, MTLBinding].
struct FunctionArgument {
  enum class Kind : std::uint32_t { buffer, threadgroup, texture, sampler };
  enum class Access : std::uint32_t { read, read_write, write };
  std::string name;
  Kind kind = Kind::buffer;
  Access access = Access::read;
  std::uint64_t index = 0;  ///< among those of its kind
  std::uint64_t bytes = 0;  ///< of a value, or an element of an array; 0 for textures
  std::string scalar = {};  ///< dtype of a value, or of texels: "float32"; empty for structs and vectors
  bool is_array = false;    ///< of a texture: texture2d_array
};
const char* name_of(FunctionArgument::Kind kind);
const char* name_of(FunctionArgument::Access access);

/// A number by its dtype: "bool", "int16", "float32", ...
struct FunctionConstant {
  std::string dtype;
  std::string bytes;
};

/// How a function reads textures between and outside of their pixels [MTLSampler.h].
struct FunctionSampler {
  bool in_pixels = false;                 ///< coordinates; otherwise from 0 to 1
  bool is_linear = false;                 ///< interpolation; otherwise the nearest pixel
  std::array<std::uint8_t, 2> address{};  ///< MTLSamplerAddressMode of x and y
  std::uint8_t border = 0;                ///< MTLSamplerBorderColor
};

/// The value of one argument: exactly one of image, buffer, bytes, threadgroup and sampler is set.
struct FunctionValue {
  std::size_t argument = 0;  ///< its place in arguments()
  std::shared_ptr<Image> image = {};
  std::optional<std::int64_t> only_image = {};  ///< with `image`: the texture has the slices of this image alone
  std::shared_ptr<Buffer> buffer = {};
  std::string bytes = {};         ///< copied
  std::uint64_t threadgroup = 0;  ///< bytes of threadgroup memory
  std::optional<FunctionSampler> sampler = {};
};

/// A source, the values of its function constants by name, and its macros.
struct FunctionSource {
  std::string text;
  std::map<std::string, FunctionConstant> constants;
  std::map<std::string, std::string> macros;
  bool fast_math = true;
};

class MetalFunction {
 public:
  struct Impl;
  using Size = std::array<std::uint64_t, 3>;  ///< x, y, z
  /// Max bytes of a value that is not copied to a buffer [MTLComputeCommandEncoder.h, setBytes:length:atIndex:].
  static constexpr std::uint64_t kMostBytes = 4096;
  /// Compile `source` and its function of that name. Throw std::invalid_argument with the compiler's words, or if there
  /// is no such function.
  static std::shared_ptr<MetalFunction> make(std::shared_ptr<Device> device, FunctionSource source,
                                             const std::string& name);
  explicit MetalFunction(std::unique_ptr<Impl> impl);
  ~MetalFunction();

  const std::string& name() const;
  /// Return the arguments: textures, then buffers, threadgroup memory and samplers, each by index.
  const std::vector<FunctionArgument>& arguments() const;
  std::uint64_t max_threads_per_threadgroup() const;
  std::uint64_t thread_execution_width() const;
  std::shared_ptr<Device> device() const;
  /// Return the default number of threads: one for each pixel and slice of the result.
  static Size threads_for(ImageShape result);
  /// Return the default threadgroup: full rows of thread_execution_width() threads.
  Size group_for(Size threads) const;
  /// Return what `make` was called with.
  const FunctionSource& source() const;

  /// Encode one call for each of `threads`, in threadgroups of `group`. Throw unless every argument has a value that
  /// fits it. Thread-safe on different command buffers.
  void encode(CommandBuffer& buffer, std::span<const FunctionValue> values, Size threads, Size group) const;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn

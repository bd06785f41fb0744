// SPDX-License-Identifier: Apache-2.0
// Libraries and functions of Metal programs, for the MTL classes and the engines. No call throws.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/function/host_compiler.hpp"
#include "engine/function/translate.hpp"

namespace openmps::function {

/// Values of MTLLibraryError.
enum class ErrorCode : std::uint8_t { none = 0, unsupported = 1, internal = 2, compile = 3, function_not_found = 5 };

struct Error {
  ErrorCode code = ErrorCode::none;
  std::string sentence;
};

struct Options {
  std::map<std::string, std::string> macros;
  bool fast_math = true;
};

/// A checked program.
class Library {
 public:
  /// Return null and set `error` if the program does not compile.
  static std::shared_ptr<const Library> make(const std::string& source, const Options& options, Error& error);

  const Program& program() const { return program_; }
  const Options& options() const { return options_; }

 private:
  Library(Program program, Options options) : program_(std::move(program)), options_(std::move(options)) {}
  const Program program_;
  const Options options_;
};

/// Value of a function constant: a type of the language, "ushort" or "float4", and its bytes.
struct Value {
  std::string type;
  std::vector<std::uint8_t> bytes;
};
struct Values {
  std::map<unsigned, Value> by_index;
  std::map<std::string, Value> by_name;
};

/// A kernel function with values for its function constants. Compiled once, when prepare() is first called.
class Function {
 public:
  /// Return null and set `error` if there is no such function, or a function constant has no value.
  static std::shared_ptr<const Function> make(std::shared_ptr<const Library> library, const std::string& name,
                                              const Values& values, Error& error);

  const std::string& name() const { return kernel_.name; }
  const Kernel& kernel() const { return kernel_; }
  bool uses_group() const { return kernel_.uses_group; }
  bool has_fast_math() const { return library_->options().fast_math; }
  std::string cpp() const { return library_->program().cpp(values_, &kernel_); }
  /// Compile for the processor. Return false and set `error` if that fails.
  bool prepare(Error& error) const;
  /// The result of prepare(), which was called; null if it failed.
  const HostCode* code() const { return code_.get(); }
  /// Return what an engine keeps for the function, by the engine's own key; `make` makes it on the first call.
  void* kept(const void* key, const std::function<void*()>& make) const;

 private:
  Function(std::shared_ptr<const Library> library, Kernel kernel, ConstantValues values)
      : library_(std::move(library)), kernel_(std::move(kernel)), values_(std::move(values)) {}
  const std::shared_ptr<const Library> library_;
  const Kernel kernel_;
  const ConstantValues values_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<const HostCode> code_;
  mutable std::map<const void*, void*> kept_;
};

}  // namespace openmps::function

// SPDX-License-Identifier: Apache-2.0
// Machine code of Metal functions for the processor, made by a C++ compiler of the machine and kept on disk.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/function/library/abi.hpp"

namespace openmps::function {

/// There is no compiler, or it fails on the program (has_log: the text is its log).
struct CompileError : std::runtime_error {
  CompileError(const std::string& text, bool has_log) : std::runtime_error(text), has_log(has_log) {}
  bool has_log;
};

/// Machine code in this process.
class HostCode {
 public:
  /// Compile a C++ text, or load the result of an earlier process. Throws CompileError.
  HostCode(const std::string& text, bool fast_math, bool uses_group);
  ~HostCode();
  HostCode(const HostCode&) = delete;
  HostCode& operator=(const HostCode&) = delete;

  using Boxes = void(const function_abi::Call* call, const function_abi::Box* box);
  using Thread = void(const function_abi::Group* group, unsigned index);
  Boxes* box() const { return box_; }         ///< null if the function uses its group
  Thread* thread() const { return thread_; }  ///< null if it does not
  const std::vector<function_abi::Binding>& bindings() const { return bindings_; }
  /// Bytes of the threadgroup variables of the function.
  std::size_t static_group_bytes() const { return static_group_bytes_; }

 private:
  void load(const std::string& code, bool uses_group);

  int file_ = -1;  ///< open as long as it is loaded: the loader knows libraries by their names
  void* handle_ = nullptr;
  Boxes* box_ = nullptr;
  Thread* thread_ = nullptr;
  std::vector<function_abi::Binding> bindings_;
  std::size_t static_group_bytes_ = 0;
};

/// Check the syntax and types of a C++ text. Throws CompileError.
void check_on_host(const std::string& text);

}  // namespace openmps::function

// SPDX-License-Identifier: Apache-2.0
// NVIDIA's libraries, opened at run time: from the packages of mpscnn[cuda], or where the dynamic linker finds them.
#pragma once

#include <string>
#include <string_view>

namespace openmps::cuda {

enum class LibraryName { nvrtc, cublaslt, cudnn };

/// A library that is never closed.
class Library {
 public:
  /// Return the library, opened on the first call. Throws EngineError with a sentence that names the package.
  static const Library& of(LibraryName name);
  /// The same; null if it cannot be opened.
  static const Library* find(LibraryName name, std::string* reason = nullptr);
  /// The same for a driver: one that computes on the host takes libraries of MPSCNN_CUDA_PATH that do, too.
  static const Library* find_for(LibraryName name, bool on_host);

  /// Return the file that was opened, with its folder if it was found in a known one.
  const std::string& file() const { return file_; }

  /// Set `function` to the symbol. Throws EngineError if there is none.
  template <class F>
  void get(F& function, const char* symbol) const {
    function = reinterpret_cast<F>(address_of(symbol));
  }

 private:
  void* address_of(const char* symbol) const;

  void* handle_ = nullptr;
  std::string file_;
};

}  // namespace openmps::cuda

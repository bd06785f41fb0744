// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/libraries.hpp"

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <mutex>
#include <vector>

#include "engine/cuda/host_stream.hpp"
#include "engine/failure.hpp"
#include "engine/shared/env.hpp"
#include "engine/shared/site_packages.hpp"

namespace openmps::cuda {
namespace {

struct Row {
  std::array<const char*, 2> files;    ///< by preference: for CUDA 13, for CUDA 12
  const char* package;                 ///< of PyPI
  std::array<const char*, 3> folders;  ///< below site-packages
  const char* companion = nullptr;     ///< start of the name of a library that it opens by name, beside it
};

/// In the order of LibraryName.
constexpr std::array kRows = {
    Row{{"libnvrtc.so.13", "libnvrtc.so.12"},
        "nvidia-cuda-nvrtc",
        {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", ""},
        "libnvrtc-builtins.so"},
    Row{{"libcublasLt.so.13", "libcublasLt.so.12"}, "nvidia-cublas", {"nvidia/cu13/lib", "nvidia/cublas/lib", ""}},
    Row{{"libcudnn.so.9", "libcudnn.so.9"}, "nvidia-cudnn-cu13", {"nvidia/cudnn/lib", "", ""}},
};

/// Return the folders to look in: those of MPSCNN_CUDA_PATH, then that of the package.
std::vector<std::string> roots() {
  std::vector<std::string> result;
  std::string_view rest = env::value_of(env::Variable::cuda_path);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) result.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (std::string own = site_packages(); !own.empty()) result.push_back(std::move(own));
  return result;
}

/// Open the companion in a folder: the dynamic linker then finds it by name.
void open_companion(const Row& row, const std::string& folder) {
  if (!row.companion) return;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with(row.companion))
      dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL);
}

void* open(const Row& row, std::string* file) {
  // A library that the program has loaded, PyTorch's for example, is used as it is: two of them take twice the memory.
  for (const char* name : row.files)
    if (void* const handle = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return *file = name, handle;
  for (const std::string& root : roots())
    for (const char* folder : row.folders)
      for (const char* name : row.files) {
        *file = root + '/' + folder + '/' + name;
        if (void* const handle = dlopen(file->c_str(), RTLD_NOW | RTLD_LOCAL)) {
          open_companion(row, root + '/' + folder);
          return handle;
        }
      }
  for (const char* name : row.files)
    if (void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return *file = name, handle;
  return nullptr;
}

}  // namespace

const Library* Library::find(LibraryName name, std::string* reason) {
  static std::mutex mutex;
  static auto* const opened = new std::array<Library, kRows.size()>;
  const auto index = static_cast<std::size_t>(name);
  Library& library = (*opened)[index];
  const std::lock_guard lock(mutex);
  if (!library.handle_) library.handle_ = open(kRows[index], &library.file_);
  if (library.handle_) return &library;
  if (reason)
    *reason = std::string(kRows[index].files[0]) + " cannot be opened. It is in the package " + kRows[index].package +
              ": install the extra mpscnn[cuda], or set " + env::name_of(env::Variable::cuda_path) +
              " to the folder that contains it.";
  return nullptr;
}

const Library* Library::find_for(LibraryName name, bool on_host) {
  if (on_host && env::value_of(env::Variable::cuda_path).empty()) return nullptr;
  const Library* const library = find(name);
  const bool is_for_host = library && dlsym(library->handle_, kHostLibraryMark);
  return is_for_host == on_host ? library : nullptr;
}

const Library& Library::of(LibraryName name) {
  std::string reason;
  if (const Library* const library = find(name, &reason)) return *library;
  throw EngineError(FailureCode::internal, reason);
}

void* Library::address_of(const char* symbol) const {
  if (void* const address = dlsym(handle_, symbol)) return address;
  throw EngineError(FailureCode::internal, file_ + " has no " + symbol + ": its version is not supported.");
}

}  // namespace openmps::cuda

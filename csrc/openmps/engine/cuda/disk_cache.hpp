// SPDX-License-Identifier: Apache-2.0
// Files that save time in later processes: compiled kernels, and choices of implementations.
#pragma once

#include <optional>
#include <string>

namespace openmps::cuda {

/// Return the folder: $XDG_CACHE_HOME/mpscnn/cuda, or ~/.cache/mpscnn/cuda; "" if neither is known.
const std::string& cache_folder();

/// Return the contents that were written for this kind and key, if the file is whole. The key has everything that the
/// contents depend on.
std::optional<std::string> read_cached(const char* kind, const std::string& key);

/// Keep the contents, in place of old files if the folder has more than 256 MB. Does nothing if the folder cannot be
/// written to.
void write_cached(const char* kind, const std::string& key, const std::string& contents);

}  // namespace openmps::cuda

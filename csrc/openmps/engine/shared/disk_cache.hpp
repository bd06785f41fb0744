// SPDX-License-Identifier: Apache-2.0
// Files that save time in later processes: compiled kernels, and choices of implementations. Each engine has a folder.
#pragma once

#include <optional>
#include <string>

namespace openmps {

/// Return the folder of an engine: $XDG_CACHE_HOME/mpscnn/<engine>, or ~/.cache/mpscnn/<engine>; "" if neither is
/// known.
std::string cache_folder(const char* engine);

/// Return the contents that were written for this kind and key, if the file is whole. The key has everything that the
/// contents depend on.
std::optional<std::string> read_cached(const char* engine, const char* kind, const std::string& key);

/// Keep the contents, in place of old files if the folder has more than 256 MB. Return whether they are kept: not if
/// the folder cannot be written to.
bool write_cached(const char* engine, const char* kind, const std::string& key, const std::string& contents);

}  // namespace openmps

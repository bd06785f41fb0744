// SPDX-License-Identifier: Apache-2.0
#include "engine/shared/disk_cache.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

namespace openmps {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxBytes = std::uintmax_t{256} << 20;
constexpr const char* kMagic = "mpscnn 1\n";

/// FNV-1a with 64 bits [Fowler, Noll, Vo].
std::uint64_t hash_of(const std::string& text, std::uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// Return 128 bits of the key; the file repeats them and the length, with the hash of its contents.
std::string digest_of(const std::string& key) {
  return hex(hash_of(key, 14695981039346656037u)) + hex(hash_of(key, 1));
}

std::string header_of(const std::string& key, const std::string& contents) {
  return kMagic + digest_of(key) + ' ' + std::to_string(key.size()) + ' ' + std::to_string(contents.size()) + ' ' +
         hex(hash_of(contents, 14695981039346656037u)) + '\n';
}

fs::path path_of(const std::string& folder, const char* kind, const std::string& key) {
  return fs::path(folder) / (std::string(kind) + '-' + digest_of(key));
}

/// Remove the oldest files until the folder is at most half full.
void shrink(const std::string& folder) {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::directory_entry>> files;
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_regular_file(error)) continue;
    bytes += entry.file_size(error);
    files.emplace_back(entry.last_write_time(error), entry);
  }
  if (bytes <= kMaxBytes) return;
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [time, entry] : files) {
    if (bytes <= kMaxBytes / 2) return;
    bytes -= std::min(bytes, entry.file_size(error));
    fs::remove(entry.path(), error);
  }
}

}  // namespace

std::string cache_folder(const char* engine) {
  static const auto* const parent = [] {
    if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
      return new std::string(std::string(cache) + "/mpscnn/");
    if (const char* const home = std::getenv("HOME"); home && *home)
      return new std::string(std::string(home) + "/.cache/mpscnn/");
    return new std::string;
  }();
  return parent->empty() ? *parent : *parent + engine;
}

std::optional<std::string> read_cached(const char* engine, const char* kind, const std::string& key) {
  const std::string folder = cache_folder(engine);
  if (folder.empty()) return std::nullopt;
  std::ifstream file(path_of(folder, kind, key), std::ios::binary);
  if (!file) return std::nullopt;
  const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t magic = std::string(kMagic).size();
  const std::size_t end = all.find('\n', magic);
  if (end == std::string::npos) return std::nullopt;
  std::string contents = all.substr(end + 1);
  if (all.compare(0, end + 1, header_of(key, contents)) != 0) return std::nullopt;
  return contents;
}

bool write_cached(const char* engine, const char* kind, const std::string& key, const std::string& contents) {
  const std::string folder = cache_folder(engine);
  if (folder.empty()) return false;
  std::error_code error;
  fs::create_directories(folder, error);
  // Written under another name first: a reader sees a whole file or none.
  const fs::path path = path_of(folder, kind, key), part = path.string() + '.' + std::to_string(::getpid());
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file << header_of(key, contents) << contents;
    file.close();  // writes the last bytes
    if (!file) {
      fs::remove(part, error);
      return false;
    }
  }
  fs::rename(part, path, error);
  const bool is_written = !error;
  if (!is_written) fs::remove(part, error);
  shrink(folder);
  return is_written;
}

}  // namespace openmps

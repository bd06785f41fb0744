// SPDX-License-Identifier: Apache-2.0
#include "engine/shared/site_packages.hpp"

#include <dlfcn.h>

#include <filesystem>

namespace openmps {

std::string site_packages() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void*>(&site_packages), &info) || !info.dli_fname) return {};
  std::error_code error;
  const auto file = std::filesystem::canonical(info.dli_fname, error);
  if (error) return {};
  return file.parent_path().parent_path().parent_path().parent_path().string();
}

}  // namespace openmps

// SPDX-License-Identifier: Apache-2.0
#include "engine/failure.hpp"

#include <cinttypes>
#include <cstdio>

namespace openmps {

OutOfMemory::OutOfMemory(std::uint64_t requested, std::uint64_t in_use) noexcept {
  std::snprintf(sentence_.data(), sentence_.size(),
                "the device is out of memory: %" PRIu64 " bytes were requested, %" PRIu64 " bytes are in use.",
                requested, in_use);
}

const char* sentence_of(const std::bad_alloc& error) noexcept {
  const auto* const known = dynamic_cast<const OutOfMemory*>(&error);
  return known ? known->what() : "the device is out of memory.";
}

}  // namespace openmps

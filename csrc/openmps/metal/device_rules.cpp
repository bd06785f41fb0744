// SPDX-License-Identifier: Apache-2.0
#include "metal/device_rules.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "engine/shared/env.hpp"

namespace openmps {
namespace {

DeviceRules read_rules() {
  if (env::value_of(env::Variable::device) == "apple")
    return {.has_extensions = false,
            .copies_managed_storage = true,
            .counts_open_command_buffers = true,
            .asserts_reads_of_freed_temporaries = true,
            .calls_handlers_apart = true,
            .has_states_of_several_images = false,
            .writes_in_place = false,
            .page_size = 16384};
  return {.has_extensions = true,
          .copies_managed_storage = false,
          .counts_open_command_buffers = false,
          .asserts_reads_of_freed_temporaries = false,
          .calls_handlers_apart = false,
          .has_states_of_several_images = true,
          .writes_in_place = true,
          .page_size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE))};
}

struct Breaches {
  std::mutex mutex;
  std::vector<std::string> sentences;
};

Breaches& breaches() {
  static auto* const all = [] {
    std::atexit([] {
      const std::string sentence = take_breach();
      if (sentence.empty()) return;
      std::fprintf(stderr, "openmps: %s\n", sentence.c_str());
      _exit(1);
    });
    return new Breaches;
  }();
  return *all;
}

}  // namespace

const DeviceRules& device_rules() noexcept {
  static const DeviceRules rules = read_rules();
  return rules;
}

void note_breach(std::string sentence) noexcept {
  const std::lock_guard<std::mutex> lock(breaches().mutex);
  breaches().sentences.push_back(std::move(sentence));
}

std::string take_breach() noexcept {
  if (!device_rules().asserts_reads_of_freed_temporaries) return {};
  const std::lock_guard<std::mutex> lock(breaches().mutex);
  auto& sentences = breaches().sentences;
  if (sentences.empty()) return {};
  std::string first = std::move(sentences.front());
  sentences.erase(sentences.begin());
  return first;
}

}  // namespace openmps

// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/runtime.hpp"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <set>
#include <stdexcept>
#include <string>

#include "engine/shared/env.hpp"
#include "engine/shared/machine.hpp"

namespace openmps::cpu {
namespace {

constexpr std::uint64_t kCachedBytes = 256u << 20;

std::uint64_t float_bytes(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(n, h, &bytes) || __builtin_mul_overflow(bytes, w, &bytes) ||
      __builtin_mul_overflow(bytes, c, &bytes) || __builtin_mul_overflow(bytes, 4, &bytes)) {
    throw std::bad_alloc();
  }
  return bytes;
}

}  // namespace

BlockAllocator& blocks() {
  static auto* const allocator = [] {
    pthread_atfork([] { blocks().before_fork(); }, [] { blocks().after_fork(); }, [] { blocks().after_fork(); });
    return new BlockAllocator(machine_memory_bytes(), kCachedBytes);
  }();
  return *allocator;
}

ScratchTensor::ScratchTensor(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c)
    : memory(float_bytes(n, h, w, c)), tensor(dense_tensor(memory.data(), Format::float32, n, h, w, c)) {}

std::vector<std::string>& implementation_names() {
  static auto* const names = new std::vector<std::string>;
  return *names;
}

const Dispatch& read_dispatch() {
  static const auto* const settings = [] {
    const std::string& only = env::value_of(env::Variable::impl);
    const std::set<std::string> known(implementation_names().begin(), implementation_names().end());
    if (!only.empty() && !known.contains(only)) {
      std::string list;
      for (const auto& one : known) list += (list.empty() ? "" : ", ") + one;
      throw std::runtime_error(std::string(env::name_of(env::Variable::impl)) + " (" + only +
                               ") names no implementation (" + list + ").");
    }
    const bool traces = env::has_word(env::Variable::trace, "dispatch");
    return new Dispatch{only, traces, only.empty() && !traces};
  }();
  return *settings;
}

void trace_dispatch(const char* entry, const char* implementation, const char* why_not) {
  if (!dispatch().traces) return;
  if (why_not) {
    std::fprintf(stderr, "mpscnn dispatch: %s: %s declines: %s\n", entry, implementation, why_not);
  } else {
    std::fprintf(stderr, "mpscnn dispatch: %s: %s\n", entry, implementation);
  }
}

}  // namespace openmps::cpu

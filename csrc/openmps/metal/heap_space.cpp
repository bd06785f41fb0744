// SPDX-License-Identifier: Apache-2.0
#include "metal/heap_space.hpp"

#include <algorithm>

namespace openmps {
namespace {

std::uint64_t align_up(std::uint64_t offset, std::uint64_t alignment) {
  return (offset + alignment - 1) & ~(alignment - 1);
}

/// Call visit(first, end) for each gap between the taken ranges until it returns true.
template <class Visit>
void for_each_gap(const std::map<std::uint64_t, std::uint64_t>& taken, std::uint64_t size, Visit visit) {
  std::uint64_t begin = 0;
  for (const auto& [offset, bytes] : taken) {
    if (begin < offset && visit(begin, offset)) return;
    begin = std::max(begin, offset + bytes);
  }
  if (begin < size) visit(begin, size);
}

}  // namespace

std::uint64_t HeapSpace::used() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& range : taken_) sum += range.second;
  return sum;
}

std::optional<std::uint64_t> HeapSpace::take(std::uint64_t bytes, std::uint64_t alignment) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::optional<std::uint64_t> found;
  for_each_gap(taken_, size_, [&](std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t first = align_up(begin, alignment);
    if (first > end || bytes > end - first) return false;
    found = first;
    return true;
  });
  if (found) taken_.emplace(*found, bytes);
  return found;
}

void HeapSpace::give_back(std::uint64_t offset) {
  std::lock_guard<std::mutex> lock(mutex_);
  taken_.erase(offset);
}

std::uint64_t HeapSpace::largest(std::uint64_t alignment) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::uint64_t best = 0;
  for_each_gap(taken_, size_, [&](std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t first = align_up(begin, alignment);
    if (first < end) best = std::max(best, end - first);
    return false;
  });
  return best;
}

}  // namespace openmps

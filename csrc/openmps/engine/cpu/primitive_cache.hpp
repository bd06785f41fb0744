// SPDX-License-Identifier: Apache-2.0
// Kinds of oneDNN's primitives, and those that do not depend on weights, compiled once per shape.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include <dnnl.hpp>

namespace openmps::cpu {

/// Return whether oneDNN would use its reference, which is slower than any loop.
template <class PrimitiveDesc>
bool is_reference(const PrimitiveDesc& pd) {
  return std::string(pd.impl_info_str()).find("ref") != std::string::npos;
}

/// Evicts the least recently used. Keeps null for primitives that could not be made.
template <class Key, class Primitive>
class PrimitiveCache {
 public:
  static PrimitiveCache& instance() {
    static auto* const cache = new PrimitiveCache;  // never destroyed: queues may outlive this file's statics
    return *cache;
  }
  template <class Make>
  std::shared_ptr<const Primitive> find(const Key& key, const Make& make) {
    const std::lock_guard lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->key != key) continue;
      entries_.splice(entries_.begin(), entries_, entry);
      return entries_.front().primitive;
    }
    std::shared_ptr<const Primitive> made;
    try {
      made = make();
    } catch (const dnnl::error& error) {
      if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    }
    entries_.push_front({key, made});
    if (entries_.size() > kMost) entries_.pop_back();
    return made;
  }

 private:
  static constexpr std::size_t kMost = 256;
  struct Entry {
    Key key;
    std::shared_ptr<const Primitive> primitive;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;
};

}  // namespace openmps::cpu

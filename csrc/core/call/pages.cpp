// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/pages.hpp>

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace mpscnn {

namespace {

/// Return the host's page size, at least that of Apple silicon, so that devices behave alike on every host. The padding
/// of small arrays costs nothing: untouched pages take no memory.
std::size_t page_size() {
  static const auto size = std::max<std::size_t>(static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), 16384);
  return size;
}

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// As in openmps' BlockAllocator: AddressSanitizer reports accesses beyond the requested bytes and to free pages. Each
// array is followed by such a guard page.
#if defined(__SANITIZE_ADDRESS__)
std::size_t guard() { return page_size(); }
void forbid(void* data, std::size_t bytes) { ASAN_POISON_MEMORY_REGION(data, bytes); }
void permit(void* data, std::size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(data, bytes); }
#else
std::size_t guard() { return 0; }
void forbid(void*, std::size_t) {}
void permit(void*, std::size_t) {}
#endif

Pages map_pages(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : page_size();
  const std::size_t slack = alignment - static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (bytes > SIZE_MAX - slack) throw std::bad_alloc();
  Pages pages;
  pages.bytes = bytes;
  pages.mapped = bytes + slack;
  pages.mapping = mmap(nullptr, pages.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages.mapping == MAP_FAILED) throw std::bad_alloc();
  const auto at = (reinterpret_cast<std::uintptr_t>(pages.mapping) + alignment - 1) & ~(alignment - 1);
#if defined(MADV_HUGEPAGE)
  // Only whole huge pages: otherwise the remainder would grow to a huge page too.
  if (bytes >= kHugePage) madvise(reinterpret_cast<void*>(at), bytes & ~(kHugePage - 1), MADV_HUGEPAGE);
#endif
  pages.data = reinterpret_cast<void*>(at);
  return pages;
}

/// Cache of freed pages. Never destroyed: arrays may outlive static objects.
class PageCache {
 public:
  static PageCache& instance() {
    static auto* cache = [] {
      // A forked child frees arrays too: no other thread may hold the mutex during fork().
      pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                     [] { instance().mutex_.unlock(); });
      return new PageCache;
    }();
    return *cache;
  }

  Pages take(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t i = free_.size(); i-- > 0;) {
        if (free_[i].bytes < bytes || free_[i].bytes - bytes > bytes / 8) continue;
        const Pages pages = free_[i];
        free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
        held_ -= pages.bytes;
        return pages;
      }
    }
    return map_pages(bytes);
  }

  void give(const Pages& pages) {
    std::vector<Pages> dropped;
    forbid(pages.data, pages.bytes);
    if (pages.bytes > kMost) {
      dropped.push_back(pages);
    } else {
      const std::lock_guard lock(mutex_);
      free_.push_back(pages);
      held_ += pages.bytes;
      while (held_ > kMost || free_.size() > kEntries) {
        dropped.push_back(free_.front());
        held_ -= free_.front().bytes;
        free_.erase(free_.begin());
      }
    }
    for (const Pages& each : dropped) {
      permit(each.data, each.bytes);
      munmap(each.mapping, each.mapped);
    }
  }

 private:
  static constexpr std::size_t kMost = std::size_t{64} << 20;
  static constexpr std::size_t kEntries = 32;
  std::mutex mutex_;
  std::vector<Pages> free_;
  std::size_t held_ = 0;
};

}  // namespace

Pages take_pages(std::size_t bytes) {
  const std::size_t page = page_size();
  if (bytes > SIZE_MAX - page - guard()) throw std::bad_alloc();
  const Pages pages = PageCache::instance().take((std::max<std::size_t>(bytes, 1) + page - 1) / page * page + guard());
  permit(pages.data, bytes);
  forbid(static_cast<char*>(pages.data) + bytes, pages.bytes - bytes);
  return pages;
}

void give_pages(const Pages& pages) { PageCache::instance().give(pages); }

std::shared_ptr<void> allocate_pages(std::size_t bytes) {
  const Pages pages = take_pages(bytes);
  return {pages.data, [pages](void*) { give_pages(pages); }};
}

}  // namespace mpscnn

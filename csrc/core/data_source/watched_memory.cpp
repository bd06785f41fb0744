// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/watched_memory.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include <mpscnn/error.hpp>

namespace mpscnn {

/// Node of the list that the handler walks. Never freed, since the handler takes no lock.
struct WatchedMemory::Range {
  std::atomic<std::uintptr_t> first{UINTPTR_MAX}, last{0};  ///< [first, last); empty while the node is free
  std::atomic<bool> is_mapping{false};
  Range* next = nullptr;
};

namespace {

using Range = WatchedMemory::Range;

/// Pages of a file that were replaced by zeros.
struct Loss {
  std::uintptr_t first = 0, last = 0;
  std::array<char, 512> file{};
  bool is_anonymous = false;  ///< replaced without a descriptor of kZeros
};

constexpr const char* kZeros = "/dev/zero";
constexpr std::size_t kReleasedTogether = 16 << 20;  ///< bytes; a release interrupts all processors
constexpr std::uintptr_t kGap = 64 * 1024;           ///< that a fault maps around it

std::atomic<Range*> ranges{nullptr};
std::array<Loss, 1024> losses;  ///< one for each file that became shorter
std::atomic<int> loss_count{0};
std::atomic<int> watches{0};
std::atomic_flag handling = ATOMIC_FLAG_INIT;
struct sigaction previous{};
std::atomic<bool> gave_way{false};

/// Call `visit(first, last, path)` for each mapping of the process until it returns true. Async-signal-safe. Visits
/// nothing where /proc/self/maps does not exist. Return false if no descriptor is left to read it.
template <class Visit>
bool each_mapping(const Visit& visit) {
  const int list = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (list < 0) return errno != EMFILE && errno != ENFILE;
  std::array<char, 4096> chunk;
  std::array<char, 512> path;
  std::uintptr_t bounds[2] = {0, 0};
  std::size_t length = 0;
  int field = 0;  // of "first-last access offset device inode path"
  bool done = false;
  for (ssize_t count; !done && (count = read(list, chunk.data(), chunk.size())) != 0;) {
    if (count < 0) {
      if (errno == EINTR) continue;
      break;
    }
    for (ssize_t i = 0; i < count && !done; ++i) {
      const char c = chunk[static_cast<std::size_t>(i)];
      if (c == '\n') {
        path[length] = '\0';
        done = visit(bounds[0], bounds[1], path.data());
        bounds[0] = bounds[1] = 0;
        length = 0;
        field = 0;
      } else if (field < 2) {
        if (c == '-' || c == ' ')
          ++field;
        else
          bounds[field] = bounds[field] << 4 | static_cast<std::uintptr_t>(c <= '9' ? c - '0' : c - 'a' + 10);
      } else if (field < 6) {
        if (c == ' ') ++field;
      } else if (length + 1 < path.size() && (c != ' ' || length > 0)) {
        path[length++] = c;
      }
    }
  }
  close(list);
  return true;
}

/// Replace the faulting page and the later ones of its mapping, since a file is truncated at its end. Return whether
/// the fault was in a watched range and the page is now readable.
bool repair(std::uintptr_t address) {
  static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);
  const auto page_size = static_cast<std::uintptr_t>(getpagesize());
  const auto page = address & ~(page_size - 1);
  auto end = page;
  for (const Range* range = ranges.load(); range; range = range->next)
    if (const auto last = range->last.load(); range->first.load() < page + page_size && page < last)
      end = std::max(end, last);
  const int index = loss_count.load();
  if (end == page || index == static_cast<int>(losses.size())) return false;
  auto& loss = losses[static_cast<std::size_t>(index)];
  loss = {page, (end + page_size - 1) & ~(page_size - 1), {}, false};
  each_mapping([&](std::uintptr_t first, std::uintptr_t last, const char* path) {
    if (page < first || page >= last) return false;
    loss.last = last;
    std::memcpy(loss.file.data(), path, std::min(std::strlen(path), loss.file.size() - 1));
    return true;
  });
  if (std::strcmp(loss.file.data(), kZeros) == 0) return true;  // another thread replaced it first
  const int zeros = open(kZeros, O_RDONLY | O_CLOEXEC);
  const void* made = mmap(reinterpret_cast<void*>(page), loss.last - page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_FIXED | (zeros < 0 ? MAP_ANONYMOUS : 0), zeros, 0);
  loss.is_anonymous = zeros < 0;
  if (zeros >= 0) close(zeros);
  if (made == MAP_FAILED) return false;
  loss_count.store(index + 1);
  return true;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool is_fault = info->si_code > 0;  // not sent by a program
  bool repaired = false;
  if (is_fault) {
    while (handling.test_and_set(std::memory_order_acquire)) {
    }
    repaired = repair(reinterpret_cast<std::uintptr_t>(info->si_addr));
    handling.clear(std::memory_order_release);
  }
  if (!repaired && (previous.sa_flags & SA_SIGINFO)) {
    previous.sa_sigaction(signal, info, context);
  } else if (!repaired) {
    // The instruction faults again, and the previous handler gets the signal. A later handler that passes the signal
    // back to this one (Python's faulthandler) gets it once.
    struct sigaction next = previous;
    if (gave_way.exchange(true)) next.sa_handler = SIG_DFL;
    sigaction(signal, &next, nullptr);
    if (!is_fault) raise(signal);
  }
  errno = error;
}

/// Return whether the pages are still replaced, or may be: they may have been unmapped and the addresses reused.
bool still_replaced(const Loss& loss, std::uintptr_t first, std::uintptr_t last) {
  const char* const wanted = loss.is_anonymous ? "" : kZeros;
  bool replaced = false;
  const bool is_known = each_mapping([&](std::uintptr_t from, std::uintptr_t to, const char* path) {
    replaced = from < last && first < to && std::strcmp(path, wanted) == 0;
    return replaced;
  });
  return replaced || !is_known;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == on_bus_error;
}

/// Free ranges and the installed handler.
class Registry {
 public:
  static Registry& instance() {
    static auto* const registry = new Registry;
    return *registry;
  }

  Range* take(std::uintptr_t first, std::uintptr_t last, bool is_mapping) {
    const std::scoped_lock lock(mutex_);
    install();
    if (free_.empty()) {
      free_.reserve(++made_);  // so that give() needs no memory
      auto* range = new Range;
      range->next = ranges.load();
      ranges.store(range);
      free_.push_back(range);
    }
    auto* range = free_.back();
    free_.pop_back();
    range->is_mapping.store(is_mapping);
    range->last.store(last);
    range->first.store(first);
    watches.fetch_add(1, std::memory_order_relaxed);
    return range;
  }

  void give(Range* range) noexcept {
    const std::scoped_lock lock(mutex_);
    range->is_mapping.store(false);
    range->first.store(UINTPTR_MAX);
    range->last.store(0);
    free_.push_back(range);
    watches.fetch_sub(1, std::memory_order_relaxed);
  }

  void release(std::uintptr_t first, std::uintptr_t last) {
    const std::scoped_lock lock(mutex_);
    unreleased_.push_back({first, last});
    unreleased_bytes_ += last - first;
    if (unreleased_bytes_ >= kReleasedTogether) flush_locked();
  }

  void flush() noexcept {
    if (unreleased_bytes_.load(std::memory_order_relaxed) == 0) return;
    const std::scoped_lock lock(mutex_);
    flush_locked();
  }

 private:
  struct Pages {
    std::uintptr_t first, last;
  };

  /// Release adjacent pages together, those that were not asked for in small gaps between them as well.
  void flush_locked() noexcept {
    std::sort(unreleased_.begin(), unreleased_.end(), [](const Pages& a, const Pages& b) { return a.first < b.first; });
    for (std::size_t i = 0; i < unreleased_.size();) {
      const Range* const range = mapping_of(unreleased_[i]);
      Pages all = unreleased_[i];
      while (++i < unreleased_.size() && unreleased_[i].first <= all.last + kGap && range &&
             unreleased_[i].last <= range->last.load())
        all.last = std::max(all.last, unreleased_[i].last);
      if (!range) continue;
      const auto page_size = static_cast<std::uintptr_t>(getpagesize());
      all.first = std::max(range->first.load(), all.first & ~(page_size - 1));           // a mapping begins with a page
      madvise(reinterpret_cast<void*>(all.first), all.last - all.first, MADV_DONTNEED);  // a hint: may fail
    }
    unreleased_.clear();
    unreleased_bytes_ = 0;
  }

  /// Return null if the pages are not, or no more, part of a read-only mapping. The mapping stays while the lock is
  /// held.
  static const Range* mapping_of(const Pages& pages) {
    for (const Range* range = ranges.load(); range; range = range->next)
      if (range->is_mapping.load() && range->first.load() <= pages.first && pages.last <= range->last.load())
        return range;
    return nullptr;
  }

  Registry() {
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                     instance().mutex_.unlock();
                     handling.clear();
                   });
  }

  /// Install the handler, again if another one has replaced it since.
  void install() {
    struct sigaction now{};
    if (sigaction(SIGBUS, nullptr, &now) != 0 || is_ours(now)) return;
    struct sigaction ours{};
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_RESTART;
    sigfillset(&ours.sa_mask);
    previous = now;
    gave_way.store(false);
    sigaction(SIGBUS, &ours, nullptr);
  }

  std::mutex mutex_;
  std::vector<Pages> unreleased_;
  std::atomic<std::size_t> unreleased_bytes_{0};
  std::vector<Range*> free_;
  std::size_t made_ = 0;
};

}  // namespace

MemoryRange memory_of(const ArrayView& array) {
  const auto *low = static_cast<const std::byte*>(array.data), *high = low + size_of(array.dtype);
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    if (array.shape[i] == 0) return {};
    (array.strides[i] < 0 ? low : high) += (array.shape[i] - 1) * array.strides[i];
  }
  return {low, static_cast<std::size_t>(high - low)};
}

WatchedMemory::WatchedMemory(const MemoryRange& memory, Kind kind) : memory_(memory) {
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data);
  range_ = Registry::instance().take(first, first + memory.bytes, kind == Kind::mapping);
}

WatchedMemory::~WatchedMemory() { Registry::instance().give(range_); }

bool WatchedMemory::is_any() noexcept { return watches.load(std::memory_order_relaxed) > 0; }

bool WatchedMemory::has_losses() noexcept { return loss_count.load(std::memory_order_relaxed) > 0; }

std::string loss_in(const MemoryRange& memory) {
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data), last = first + memory.bytes;
  for (int i = loss_count.load(); i-- > 0;) {
    const auto& loss = losses[static_cast<std::size_t>(i)];
    if (loss.first < last && first < loss.last &&
        still_replaced(loss, std::max(first, loss.first), std::min(last, loss.last)))
      return say("the file \"", loss.file.data(),
                 "\" became shorter while it was mapped: replace files by rename, or load with mapped=False.");
  }
  return {};
}

void check_whole(const MemoryRange& memory) {
  if (const auto loss = loss_in(memory); !loss.empty()) throw std::runtime_error(loss);
}

void check_whole(const ArrayView& array) {
  if (loss_count.load() > 0) check_whole(memory_of(array));
}

void release_pages(const MemoryRange& memory) noexcept {
  if (memory.bytes == 0 || !WatchedMemory::is_any()) return;
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data);
  try {
    Registry::instance().release(first, first + memory.bytes);
  } catch (const std::bad_alloc&) {  // the pages stay
  }
}

void flush_released_pages() noexcept { Registry::instance().flush(); }

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
#include "core/device/helper_threads.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "common/available_threads.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#endif

namespace mpscnn {
namespace {

/// Min bytes for which an isolated call wakes helpers: waking a thread on an idle processor costs the caller up to
/// 70 us on a virtual machine.
constexpr std::int64_t kWorthWaking = 8 << 20;

/// Threads that help the caller. The caller does all work that no helper has taken, and waits only for helpers that
/// have started: on a busy machine a helper may start milliseconds late, and an OpenMP region would wait for it.
class Helpers {
 public:
  using Work = void (*)(void* context, int thread);

  static Helpers& instance() {
    static auto* helpers = new Helpers;  // never destroyed: its threads end with the process
    return *helpers;
  }

  /// Return whether another call came shortly before this one: the helpers are then awake, or worth waking.
  bool stay_awake() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const auto last = std::chrono::steady_clock::duration(last_call_.exchange(now.count(), std::memory_order_relaxed));
    return now - last < std::chrono::milliseconds(1);
  }

  /// Run work(context, 0) here and on up to `count` helpers at once; return when all that began have ended.
  void run(Work work, void* context, int count) {
    const std::unique_lock only(callers_, std::try_to_lock);
    if (!only || forked_)
      return work(context, 0);  // the helpers are busy for another caller, or did not survive a fork
    {
      const std::lock_guard lock(mutex_);
      grow(count);
      if (asleep_ > 0) place_elsewhere();
      work_ = work;
      context_ = context;
      open_ = count;
    }
    if (count == 1)
      wake_.notify_one();
    else
      wake_.notify_all();
    work(context, 0);
    {
      const std::lock_guard lock(mutex_);
      open_ = 0;
    }
    spin_until([&] { return active_ == 0; });
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return active_ == 0; });
  }

 private:
  Helpers() {
#if defined(__unix__) || defined(__APPLE__)
    pthread_atfork(nullptr, nullptr, [] { forked_ = true; });
#endif
  }

  /// Spin before sleeping: waking takes about 50 us, as long as moving a megabyte, and the next call or the others'
  /// last chunks often come sooner. Yields, since the awaited thread may share this processor.
  template <class Condition>
  static void spin_until(const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
    while (!condition() && std::chrono::steady_clock::now() < end) {
      for (int i = 0; i < 16; ++i) {
#if defined(__x86_64__)
        _mm_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
      }
      std::this_thread::yield();
    }
  }

  /// Keep the helpers off this processor. When every processor is busy (another library's spinning threads suffice), a
  /// woken thread is placed on the waker's processor and cannot run while the waker does.
  void place_elsewhere() {
#if defined(CPU_CLR)  // sched.h declares cpu_set_t
    cpu_set_t processors;
    if (pthread_getaffinity_np(pthread_self(), sizeof processors, &processors) != 0) return;
    const int here = sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || CPU_COUNT(&processors) < 2) return;
    CPU_CLR(here, &processors);
    for (int i = 0; i < size_; ++i) pthread_setaffinity_np(handles_[i], sizeof processors, &processors);
#endif
  }

  void grow(int count) {
    for (; size_ < count; ++size_) {
      try {
        std::thread helper([this, number = size_ + 1] { help(number); });
        handles_[size_] = helper.native_handle();
        helper.detach();
      } catch (const std::exception&) {  // no thread or no memory
        return;                          // fewer helpers, same result
      }
    }
  }

  [[noreturn]] void help(int number) {
#if defined(__unix__) || defined(__APPLE__)
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGBUS, SIGSEGV, SIGILL, SIGFPE}) sigdelset(&all, fault);  // raised by this thread itself
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // other signals are for the program's threads
#endif
    std::unique_lock lock(mutex_);
    for (;;) {
      lock.unlock();
      spin_until([&] { return open_ > 0; });
      lock.lock();
      if (open_ == 0) {
        ++asleep_;
        wake_.wait(lock);
        --asleep_;
      }
      if (open_ == 0) continue;  // woken too late for this call; awake for the next one
      --open_;
      ++active_;
      const Work work = work_;
      void* const context = context_;
      lock.unlock();
      work(context, number);
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  static inline std::atomic<bool> forked_{false};
  std::atomic<std::chrono::steady_clock::rep> last_call_{
      std::chrono::steady_clock::duration(-std::chrono::hours(1)).count()};
  std::mutex callers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Work work_ = nullptr;
  void* context_ = nullptr;
  std::atomic<int> open_{0}, active_{0};  ///< written under the mutex, so that waiting threads see them in order
  std::array<std::thread::native_handle_type, kMaxThreads> handles_{};  ///< of the first size_
  int size_ = 0, asleep_ = 0;
};

}  // namespace

int threads_for(std::int64_t bytes, int threads) {
  if (bytes < 2 * kBytesPerThread) return 1;
  const std::int64_t wanted = std::min<std::int64_t>(threads > 0 ? threads : available_threads(), kMaxThreads);
  if (wanted > 1 && bytes < kWorthWaking && !Helpers::instance().stay_awake()) return 1;
  return static_cast<int>(std::min(wanted, bytes / kBytesPerThread));
}

void run_with_helpers(void (*work)(void* context, int thread), void* context, int count) {
  Helpers::instance().run(work, context, count);
}

}  // namespace mpscnn

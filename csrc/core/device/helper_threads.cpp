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

/// To wake a thread on an idle processor costs the waking one up to 70 us on a virtual machine: a call that comes alone
/// wakes nobody for less than this.
constexpr std::int64_t kWorthWaking = 8 << 20;

/// Threads that help the calling one. Whoever calls does all the work that no helper got to, and waits only for those
/// that began: on a busy machine a helper may be scheduled milliseconds late, and an OpenMP region would wait for it.
class Helpers {
 public:
  using Work = void (*)(void* context, int thread);

  static Helpers& instance() {
    static auto* helpers = new Helpers;  // never destroyed: its threads end with the process
    return *helpers;
  }

  /// Whether another call came shortly before this one: then the helpers are awake, or worth waking for the next.
  bool stay_awake() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const auto last = std::chrono::steady_clock::duration(last_call_.exchange(now.count(), std::memory_order_relaxed));
    return now - last < std::chrono::milliseconds(1);
  }

  /// work(context, 0) here and on up to `count` helpers at once; returns when all that began have ended.
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

  /// A sleeping thread takes some 50 us to wake, as long as a megabyte takes to move: the next call, or the others'
  /// last chunks, are often nearer than that. Whoever is waited for may share this thread's processor: hence the yield.
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

  /// A woken thread is put beside the one that woke it when every processor has something to do (another library's
  /// waiting threads are enough), and then it is of no use for as long as this one runs.
  void place_elsewhere() {
#if defined(CPU_CLR)  // sched.h knows sets of processors
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
    for (const int fault : {SIGBUS, SIGSEGV, SIGILL, SIGFPE}) sigdelset(&all, fault);  // these are this thread's own
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the program's own threads' business
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
      if (open_ == 0) continue;  // woken too late for this call: awake for the next one
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

// SPDX-License-Identifier: Apache-2.0
#include "helper_threads.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <signal.h>
#endif

namespace mpscnn {
namespace {

/// Threads that help the calling one. Whoever calls does all the work that no helper got to, and waits only for those
/// that began: on a busy machine a helper may be scheduled milliseconds late, and an OpenMP region would wait for it.
class Helpers {
 public:
  using Work = void (*)(void* context);

  static Helpers& instance() {
    static auto* helpers = new Helpers;  // never destroyed: its threads end with the process
    return *helpers;
  }

  /// work(context) here and on up to `count` helpers at once; returns when all that began have ended.
  void run(Work work, void* context, int count) {
    const std::unique_lock only(callers_, std::try_to_lock);
    if (!only || forked_) return work(context);  // the helpers are busy for another caller, or did not survive a fork
    {
      const std::lock_guard lock(mutex_);
      grow(count);
      work_ = work;
      context_ = context;
      open_ = count;
    }
    if (count == 1)
      wake_.notify_one();
    else
      wake_.notify_all();
    work(context);
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
  /// last chunks, are often nearer than that.
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
    }
  }

  void grow(int count) {
    for (; size_ < count; ++size_) {
      try {
        std::thread([this] { help(); }).detach();
      } catch (const std::system_error&) {
        return;  // fewer helpers, same result
      }
    }
  }

  [[noreturn]] void help() {
#if defined(__unix__) || defined(__APPLE__)
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the program's own threads' business
#endif
    std::unique_lock lock(mutex_);
    for (;;) {
      lock.unlock();
      spin_until([&] { return open_ > 0; });
      lock.lock();
      wake_.wait(lock, [&] { return open_ > 0; });
      --open_;
      ++active_;
      const Work work = work_;
      void* const context = context_;
      lock.unlock();
      work(context);
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  static inline std::atomic<bool> forked_{false};
  std::mutex callers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Work work_ = nullptr;
  void* context_ = nullptr;
  std::atomic<int> open_{0}, active_{0};  ///< written under the mutex, so that waiting threads see them in order
  int size_ = 0;
};

}  // namespace

int threads_for(std::int64_t bytes, int threads) {
  if (bytes < 2 * kBytesPerThread) return 1;
#if defined(_OPENMP)
  static const int available = omp_get_max_threads();  // knows OMP_NUM_THREADS and the process' share of the machine
#else
  static const int available = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
#endif
  const std::int64_t wanted = threads > 0 ? threads : available;
  return static_cast<int>(std::min({wanted, bytes / kBytesPerThread, std::int64_t{64}}));
}

void run_with_helpers(void (*work)(void* context), void* context, int count) {
  Helpers::instance().run(work, context, count);
}

}  // namespace mpscnn

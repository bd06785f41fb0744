// SPDX-License-Identifier: Apache-2.0
// Why not OpenMP alone: GNU's keeps threads for each thread that ever began a team. As soon as all of these together
// are more than the processors, they sleep after every team instead of waiting for the next, which costs 50 us for each
// layer of a network. A command queue's thread beside a main thread that also computes is enough for that. And a team
// waits for threads that others keep from their processors.
//
// So we have a pool of our own. But where PyTorch, say, brings a GNU OpenMP that the whole process sees, the main
// thread, which computes in turn with it, shares its threads: they spin for milliseconds after their work, on the
// processors that threads of ours would need.
#include "engine/shared/team.hpp"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

namespace openmps {
namespace {

// A sleeping thread takes 50 us to wake on a virtual machine. Teams of one command buffer follow each other at once,
// and command buffers of a stream within this time.
constexpr auto kIdleSpin = std::chrono::microseconds(300);
// Whoever is waited for may have lost its processor to a thread that would run here.
constexpr auto kJoinSpin = std::chrono::microseconds(100);

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// OMP_WAIT_POLICY=PASSIVE: threads that wait leave the processor to others at once.
bool spins() {
  static const bool value = [] {
    const char* const policy = std::getenv("OMP_WAIT_POLICY");
    return !policy || strcasecmp(policy, "passive") != 0;
  }();
  return value;
}

/// True as soon as the condition holds, false when the time is up.
template <class Condition>
bool spin_until(std::chrono::microseconds time, Condition condition) {
  if (!spins()) return condition();
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < 64; ++i) {
      if (condition()) return true;
      relax();
    }
    std::this_thread::yield();  // to a thread that encodes, say: there may be more of them than processors
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

/// The calling thread's part of a team of ours; size 0: it is in none.
struct Place {
  int number = 0, size = 0;
};
thread_local Place place;
thread_local std::vector<Place> outer;  // places in teams around that

/// One team at a time. Its parts are claimed: a thread that wakes too late finds that the one that began the team has
/// done its part. That one claims nothing before its own part has ended, so where parts wait for each other, each gets
/// a thread: as many threads as parts take part, and one that waits holds one part.
class Pool {
 public:
  static Pool& instance() { return *current().load(std::memory_order_acquire); }

  void begin(int size, void (*body)(void*), void* context) {
    outer.push_back(place);
    turns_.lock();
    size = grow(size);
    body_ = body, context_ = context;
    unfinished_.store(size, std::memory_order_relaxed);
    const auto team = static_cast<std::uint32_t>(calls_.load(std::memory_order_relaxed) + 1);
    claims_.store(pack(team, size, 1), std::memory_order_release);
    calls_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) calls_.notify_all();
    place = {0, size};
  }

  void end() {
    finish_part();
    while (run_part()) {
    }
    if (!spin_until(kJoinSpin, [&] { return unfinished_.load(std::memory_order_acquire) == 0; })) {
      for (int left = unfinished_.load(std::memory_order_acquire); left != 0;
           left = unfinished_.load(std::memory_order_acquire))
        unfinished_.wait(left, std::memory_order_acquire);
    }
    place = outer.back();
    outer.pop_back();
    turns_.unlock();
  }

  void barrier(int size) noexcept {
    const int round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      round_.notify_all();
      return;
    }
    if (spin_until(kJoinSpin, [&] { return round_.load(std::memory_order_acquire) != round; })) return;
    round_.wait(round, std::memory_order_acquire);
  }

 private:
  static constexpr int kMostThreads = 1 << 15;

  /// Threads do not survive a fork: the child has a new pool.
  static std::atomic<Pool*>& current() {
    static std::atomic<Pool*> pool = [] {
      pthread_atfork(nullptr, nullptr, [] { current().store(new Pool, std::memory_order_release); });
      return new Pool;  // never destroyed: its threads end with the process
    }();
    return pool;
  }

  static std::uint64_t pack(std::uint32_t team, int size, int next) {
    return std::uint64_t{team} << 32 | static_cast<std::uint64_t>(size) << 16 | static_cast<std::uint64_t>(next);
  }

  /// Threads for a team of so many; returns the size that can be had.
  int grow(int size) {
    for (; threads_ + 1 < size && threads_ + 1 < kMostThreads; ++threads_) {
      try {
        std::thread([this] { work(); }).detach();
      } catch (const std::system_error&) {
        break;
      }
    }
    return std::min(size, threads_ + 1);
  }

  /// Does a part of the present team that nobody has claimed, if there is one.
  bool run_part() {
    auto seen = claims_.load(std::memory_order_acquire);
    for (;;) {
      const int size = static_cast<int>(seen >> 16 & 0xffff), next = static_cast<int>(seen & 0xffff);
      if (next >= size) return false;
      if (!claims_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      // The team does not end before this part has: body_ and context_ are those of the claim.
      place = {next, size};
      body_(context_);
      finish_part();
      return true;
    }
  }

  void finish_part() {
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_all();
  }

  [[noreturn]] void work() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the program's own threads
    for (;;) {
      const int seen = calls_.load(std::memory_order_acquire);
      while (run_part()) {
      }
      if (spin_until(kIdleSpin, [&] { return calls_.load(std::memory_order_acquire) != seen; })) continue;
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      calls_.wait(seen, std::memory_order_seq_cst);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  std::mutex turns_;
  void (*body_)(void*) = nullptr;
  void* context_ = nullptr;
  int threads_ = 0;
  alignas(64) std::atomic<std::uint64_t> claims_{0};  ///< team, its size, the first part without a thread
  alignas(64) std::atomic<int> calls_{0};             ///< teams begun
  std::atomic<int> sleepers_{0};
  alignas(64) std::atomic<int> unfinished_{0};          ///< parts
  alignas(64) std::atomic<int> arrived_{0}, round_{0};  ///< at the barrier
};

/// Functions of the OpenMP library that is visible to the whole process.
struct OpenMP {
  void (*parallel_start)(void (*body)(void*), void* context, unsigned threads);
  void (*parallel_end)();
  void (*barrier)();
  int (*thread_num)();
  int (*num_threads)();
  int (*in_parallel)();

  bool find() {
    const auto look = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    return look(parallel_start, "GOMP_parallel_start") && look(parallel_end, "GOMP_parallel_end") &&
           look(barrier, "GOMP_barrier") && look(thread_num, "omp_get_thread_num") &&
           look(num_threads, "omp_get_num_threads") && look(in_parallel, "omp_in_parallel");
  }
};
std::atomic<const OpenMP*> shared_openmp{nullptr};

bool is_main_thread() {
  thread_local const bool value = getpid() == gettid();
  return value;
}

/// The library whose team the calling thread is in or would begin; none: ours.
const OpenMP* openmp() {
  if (place.size != 0) return nullptr;
  const OpenMP* const shared = shared_openmp.load(std::memory_order_acquire);
  return shared && (is_main_thread() || shared->in_parallel()) ? shared : nullptr;
}

}  // namespace

void share_openmp() noexcept {
  if (shared_openmp.load(std::memory_order_acquire) || !is_main_thread()) return;
  static OpenMP found;
  if (found.find()) shared_openmp.store(&found, std::memory_order_release);
}

int max_threads() noexcept { return omp_get_max_threads(); }
void set_max_threads(int threads) noexcept { omp_set_num_threads(threads); }

int thread_number() noexcept {
  const OpenMP* const theirs = openmp();
  return theirs ? theirs->thread_num() : place.number;
}
int team_size() noexcept {
  const OpenMP* const theirs = openmp();
  return theirs ? theirs->num_threads() : std::max(1, place.size);
}
bool in_team() noexcept {
  const OpenMP* const theirs = openmp();
  return theirs ? theirs->in_parallel() : place.size > 1;
}

void begin_team(int threads, void (*body)(void*), void* context) {
  if (threads <= 0) threads = max_threads();
  if (const OpenMP* const theirs = openmp())
    return theirs->parallel_start(body, context, static_cast<unsigned>(threads));
  if (place.size == 0 && threads > 1) return Pool::instance().begin(threads, body, context);
  outer.push_back(place);
  place = {0, 1};
}

void end_team() {
  if (const OpenMP* const theirs = openmp()) return theirs->parallel_end();
  if (place.size > 1) return Pool::instance().end();
  place = outer.back();
  outer.pop_back();
}

void run_team(int threads, void (*body)(void*), void* context) {
  begin_team(threads, body, context);
  body(context);
  end_team();
}

void team_barrier() noexcept {
  if (const OpenMP* const theirs = openmp()) return theirs->barrier();
  if (place.size > 1) Pool::instance().barrier(place.size);
}

}  // namespace openmps

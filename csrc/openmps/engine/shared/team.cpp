// SPDX-License-Identifier: Apache-2.0
// Why not an OpenMP library: GNU's keeps threads for each thread that ever began a team, and ends the process if it
// cannot start one. Once its threads outnumber the processors, they sleep after every team instead of waiting for the
// next, which costs 50 us per layer of a network; until then they spin for milliseconds on processors that other
// programs need. And a team waits for threads that have no processor.
#include "engine/shared/team.hpp"

#include <pthread.h>
#include <signal.h>
#include <strings.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "common/available_threads.hpp"

namespace openmps {
namespace {

using Clock = std::chrono::steady_clock;

// A sleeping thread takes 50 us to wake on a virtual machine. Teams of one command buffer follow each other at once,
// command buffers of a stream within this time.
constexpr auto kIdleSpin = std::chrono::microseconds(300);
// Then sleep: the awaited thread may itself wait for a processor.
constexpr auto kJoinSpin = std::chrono::microseconds(100);
// Time after a failure to start a thread before the next attempt.
constexpr Clock::duration kRetryInterval = std::chrono::seconds(1);

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

Clock::rep now() { return Clock::now().time_since_epoch().count(); }

/// Return false with OMP_WAIT_POLICY=PASSIVE: waiting threads then leave the processor to others at once.
bool spins() {
  static const bool value = [] {
    const char* const policy = std::getenv("OMP_WAIT_POLICY");
    return !policy || strcasecmp(policy, "passive") != 0;
  }();
  return value;
}

/// Return true as soon as the condition holds, false after the time is up.
template <class Condition>
bool spin_until(std::chrono::microseconds time, Condition condition) {
  if (!spins()) return condition();
  const auto end = Clock::now() + time;
  do {
    for (int i = 0; i < 64; ++i) {
      if (condition()) return true;
      relax();
    }
    std::this_thread::yield();  // e.g. to a thread that encodes: threads may outnumber processors
  } while (Clock::now() < end);
  return false;
}

/// Rank and size of the calling thread's team; size 0 outside of one.
struct Place {
  int number = 0, size = 0;
};
thread_local Place place;
thread_local int nested = 0;  // teams of one thread begun within that team
thread_local int limit = 0;   // set_max_threads(); 0: none
thread_local int usual = 0;   // mpscnn::available_threads() at its last start_threads()
thread_local int ready = 0;   // max size of its teams with the threads started so far

// Teams of oneDNN have one part per thread. More parts do not help: a thread that loses its processor does so within a
// part, and the others wait for it. Measured with twice and four times as many (batch 1, ResNet-18, ResNet-50, VGG-16
// and MobileNetV2, AMD Zen 3, two cores): beside one and two busy programs at most 3 % faster and up to 58 % slower, on
// a quiet machine up to 13 % slower.
/// Runs one team at a time. Threads claim parts: one that wakes too late finds that the thread that began the team has
/// done its part. The latter claims nothing before its own part has ended, so parts that wait for each other get a
/// thread each: as many threads as parts take part, and a waiting thread holds one part.
class Pool {
 public:
  static Pool& instance() { return *current().load(std::memory_order_acquire); }

  /// Start threads for teams of `size`; return the available size. Starts none inside of a team.
  int prepare(int size) noexcept {
    const int ready = threads_.load(std::memory_order_acquire) + 1;
    if (ready >= size || place.size != 0 || now() < retry_at_.load(std::memory_order_relaxed))
      return std::min(size, ready);
    const std::lock_guard lock(turns_);
    return grow(size);
  }

  void begin(int size, void (*body)(void*), void* context) noexcept {
    turns_.lock();
    grow(size);
    body_ = body, context_ = context;
    unfinished_.store(size, std::memory_order_relaxed);
    place = {0, size};
    const auto team = static_cast<std::uint32_t>(calls_.load(std::memory_order_relaxed) + 1);
    claims_.store(pack(team, size, 1), std::memory_order_release);
    calls_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) calls_.notify_all();
  }

  void end() noexcept {
    finish_part();
    while (run_part()) {
    }
    if (!spin_until(kJoinSpin, [&] { return unfinished_.load(std::memory_order_acquire) == 0; })) {
      for (int left = unfinished_.load(std::memory_order_acquire); left != 0;
           left = unfinished_.load(std::memory_order_acquire))
        unfinished_.wait(left, std::memory_order_acquire);
    }
    place = {};
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
  static constexpr int kMaxThreads = 1 << 15;

  /// Threads do not survive a fork: the child gets a new pool.
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

  /// Start threads for teams of `size`, under the lock; return the available size. Fewer threads also do all parts.
  int grow(int size) noexcept {
    int threads = threads_.load(std::memory_order_relaxed);
    for (; threads + 1 < size && threads + 1 < kMaxThreads && now() >= retry_at_.load(std::memory_order_relaxed);
         ++threads) {
      try {
        std::thread([this] { work(); }).detach();
      } catch (const std::exception&) {  // no thread (EAGAIN) or no memory
        retry_at_.store(now() + kRetryInterval.count(), std::memory_order_relaxed);
        break;
      }
    }
    threads_.store(threads, std::memory_order_release);
    return std::min(size, threads + 1);
  }

  /// Run an unclaimed part of the current team, if there is one.
  bool run_part() noexcept {
    auto seen = claims_.load(std::memory_order_acquire);
    for (;;) {
      const int size = static_cast<int>(seen >> 16 & 0xffff), next = static_cast<int>(seen & 0xffff);
      if (next >= size) return false;
      if (!claims_.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      // The team cannot end before this part, so body_ and context_ are those of the claim.
      place = {next, size};
      body_(context_);
      finish_part();
      return true;
    }
  }

  void finish_part() noexcept {
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_all();
  }

  [[noreturn]] void work() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGBUS, SIGSEGV, SIGILL, SIGFPE}) sigdelset(&all, fault);  // this thread's own faults
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // other signals are for the program's threads
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
  std::atomic<int> threads_{0};
  std::atomic<Clock::rep> retry_at_{0};
  alignas(64) std::atomic<std::uint64_t> claims_{0};  ///< team, its size, the next unclaimed part
  alignas(64) std::atomic<int> calls_{0};             ///< teams begun
  std::atomic<int> sleepers_{0};
  alignas(64) std::atomic<int> unfinished_{0};          ///< parts
  alignas(64) std::atomic<int> arrived_{0}, round_{0};  ///< at the barrier
};

}  // namespace

namespace {

void prepare_threads() noexcept {
  const int wanted = std::max(limit, usual);
  ready = wanted > 1 ? Pool::instance().prepare(wanted) : 1;
}

}  // namespace

int process_threads() noexcept { return mpscnn::available_threads(); }
void set_process_threads(int threads) noexcept { mpscnn::set_available_threads(threads); }

void start_threads() noexcept {
  usual = mpscnn::available_threads();
  prepare_threads();
}

int max_threads() noexcept {
  if (ready == 0) start_threads();
  return std::min(limit > 0 ? limit : usual, ready);
}
int set_max_threads(int threads) noexcept {
  const int before = std::exchange(limit, threads);
  if (limit > ready) usual == 0 ? start_threads() : prepare_threads();
  return before;
}

int thread_number() noexcept { return nested ? 0 : place.number; }
int team_size() noexcept { return nested ? 1 : std::max(1, place.size); }
bool in_team() noexcept { return team_size() > 1; }

void begin_team(int threads, void (*body)(void*), void* context) {
  if (threads <= 0) threads = max_threads();
  if (place.size != 0) {
    ++nested;
  } else if (threads > 1) {
    Pool::instance().begin(threads, body, context);
  } else {
    place = {0, 1};
  }
}

void end_team() {
  if (nested) {
    --nested;
  } else if (place.size > 1) {
    Pool::instance().end();
  } else {
    place = {};
  }
}

void run_team(int threads, void (*body)(void*), void* context) {
  begin_team(threads, body, context);
  body(context);
  end_team();
}

void team_barrier() noexcept {
  if (team_size() > 1) Pool::instance().barrier(place.size);
}

}  // namespace openmps

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
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "common/available_threads.hpp"
#include "engine/shared/subnormals.hpp"
#include "engine/shared/yield_history.hpp"

namespace openmps {
namespace {

using Clock = YieldHistory::Clock;

// A sleeping thread takes 50 us to wake on a virtual machine. Teams of one command buffer follow each other at once,
// command buffers of a stream within this time.
constexpr auto kIdleSpin = std::chrono::microseconds(300);
// Then sleep: the awaited thread may itself wait for a processor.
constexpr auto kJoinSpin = std::chrono::microseconds(100);
// Beside busy programs, wait longer: the awaited thread may have lost its processor for a time slice (4 ms on Linux at
// 250 Hz), and a thread that sleeps loses its own for another one.
constexpr auto kBusyJoinSpin = std::chrono::milliseconds(10);
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

thread_local YieldHistory yields;

/// Return true as soon as the condition holds, false after the time is up: `busy_time` beside busy programs.
template <class Condition>
bool spin_until(Clock::duration time, Clock::duration busy_time, Condition condition) {
  if (!spins()) return condition();
  auto at = Clock::now();
  const auto begin = at;
  do {
    for (int i = 0; i < 64; ++i) {
      if (condition()) return true;
      relax();
    }
    if (const auto before = at; !yields.are_paused(at)) {
      std::this_thread::yield();  // e.g. to a thread that encodes: threads may outnumber processors
      yields.add(before, at = Clock::now());
    } else {
      at = Clock::now();
    }
  } while (at - begin < (yields.are_paused(at) ? busy_time : time));
  return false;
}

/// A slot for the team of a share. Slots are reused, never freed: a thread may look at one after its team has ended.
struct Team {
  static constexpr int kMaxSize = 1 << 15;

  void (*body)(void*) = nullptr;
  void* context = nullptr;
  FloatControl floats{};                              ///< of the thread that began the team, for all parts
  alignas(64) std::atomic<std::uint64_t> claims{0};   ///< number of the team, its size, the next unclaimed part
  alignas(64) std::atomic<int> unfinished{0};         ///< parts
  alignas(64) std::atomic<int> arrived{0}, round{0};  ///< at the barrier
  bool is_taken = false;                              ///< guarded by the pool's mutex

  void open(int size, void (*new_body)(void*), void* new_context) noexcept {
    body = new_body, context = new_context, floats = float_control();
    unfinished.store(size, std::memory_order_relaxed);
    const auto number = (claims.load(std::memory_order_relaxed) >> 32) + 1;
    claims.store(number << 32 | static_cast<std::uint64_t>(size) << 16 | 1, std::memory_order_seq_cst);
  }
  static int size_of(std::uint64_t claims) { return static_cast<int>(claims >> 16 & 0xffff); }
  static int next_of(std::uint64_t claims) { return static_cast<int>(claims & 0xffff); }
  bool has_part() const noexcept {
    const auto seen = claims.load(std::memory_order_seq_cst);
    return next_of(seen) < size_of(seen);
  }
  /// Run an unclaimed part, if there is one.
  bool run_part() noexcept;
  void finish_part() noexcept {
    if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_all();
  }
};

/// Rank and size of the calling thread's team; size 0 outside of one.
struct Place {
  int number = 0, size = 0;
  Team* team = nullptr;
};
thread_local Place place;
thread_local int nested = 0;  // teams of one thread begun within that team
thread_local int limit = 0;   // set_max_threads(); 0: none
thread_local int usual = 0;   // mpscnn::available_threads() at its last start_threads()
thread_local int ready = 0;   // max size of its teams with the threads started so far

bool Team::run_part() noexcept {
  auto seen = claims.load(std::memory_order_acquire);
  for (;;) {
    const int size = size_of(seen), next = next_of(seen);
    if (next >= size) return false;
    if (!claims.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    // The team cannot end before this part, so body, context and floats are those of the claim.
    place = {next, size, this};
    set_float_control(floats);
    body(context);
    place = {};
    finish_part();
    return true;
  }
}

class Pool;

/// The share of the calling thread.
struct Share {
  Pool* pool = nullptr;  ///< null: none
  Team* team = nullptr;
  int threads = 0;
  int processors = 0;  ///< counted for it: less than `threads` if there are fewer
  bool is_for_one_team = false;
};
thread_local Share share;
std::atomic<int> share_limit{0};  // set_share_limit()

// Teams of oneDNN have one part per thread. More parts do not help: a thread that loses its processor does so within a
// part, and the others wait for it. Measured with twice and four times as many (batch 1, ResNet-18, ResNet-50, VGG-16
// and MobileNetV2, AMD Zen 3, two cores): beside one and two busy programs at most 3 % faster and up to 58 % slower, on
// a quiet machine up to 13 % slower.
/// Runs the teams of all shares, each of one thread that begins it and of workers, which serve any team. Threads claim
/// parts: one that wakes too late finds that the thread that began the team has done its part. The latter claims
/// nothing before its own part has ended, so parts that wait for each other get a thread each: there are as many
/// workers as all shares have threads besides those that begin teams, and a waiting thread holds one part.
class Pool {
 public:
  static Pool& instance() { return *current().load(std::memory_order_acquire); }

  /// Start workers for teams of `size`; return the available size. Starts none inside of a team.
  int prepare(int size) noexcept {
    const int available = workers_.load(std::memory_order_acquire) + 1;
    if (available >= size || place.size != 0 || now() < retry_at_.load(std::memory_order_relaxed))
      return std::min(size, available);
    const std::lock_guard lock(mutex_);
    grow(size);
    return std::min(size, workers_.load(std::memory_order_relaxed) + 1);
  }

  /// Wait until a share of that many threads fits beside the others; in order, so that large ones get their turn.
  Share take_share(int threads) noexcept {
    threads = std::clamp(threads, 1, Team::kMaxSize);
    std::unique_lock lock(mutex_);
    const std::uint64_t ticket = last_ticket_++;
    grow(wanted_.load(std::memory_order_relaxed) + threads);
    Share taken;
    const auto fits = [&] {
      if (ticket != next_ticket_) return false;
      const int processors = share_limit > 0 ? share_limit.load() : mpscnn::available_threads();
      const int wanted = wanted_.load(std::memory_order_relaxed);
      taken.processors = std::min(threads, processors);
      processors_.store(processors, std::memory_order_relaxed);
      if (used_ + taken.processors > processors) return false;
      // Alone, a team has its parts run by the workers that there are.
      if (wanted > 0 && wanted + threads - 1 > workers_.load(std::memory_order_relaxed)) return false;
      const auto found = std::ranges::find(teams_, false, &Team::is_taken);
      taken.team = found == teams_.end() ? nullptr : &*found;
      return taken.team != nullptr;
    };
    changed_.wait(lock, fits);
    ++next_ticket_;
    taken.pool = this;
    taken.threads = threads;
    taken.team->is_taken = true;
    used_ += taken.processors;
    used_teams_.store(
        std::max<int>(used_teams_.load(std::memory_order_relaxed), static_cast<int>(taken.team - teams_.data()) + 1),
        std::memory_order_seq_cst);
    callers_.fetch_add(1, std::memory_order_relaxed);
    wanted_.fetch_add(threads - 1, std::memory_order_relaxed);
    const bool others_wait = last_ticket_ != next_ticket_;
    lock.unlock();
    if (others_wait) changed_.notify_all();
    return taken;
  }

  void give_back(const Share& given) noexcept {
    {
      const std::lock_guard lock(mutex_);
      given.team->is_taken = false;
      used_ -= given.processors;
      callers_.fetch_sub(1, std::memory_order_relaxed);
      wanted_.fetch_sub(given.threads - 1, std::memory_order_relaxed);
      if (last_ticket_ == next_ticket_) return;
    }
    changed_.notify_all();
  }

  void begin(int size, void (*body)(void*), void* context) noexcept {
    if (share.pool != this) {
      share = take_share(size);
      share.is_for_one_team = true;
    }
    place = {0, size, share.team};
    share.team->open(size, body, context);
    calls_.fetch_add(1, std::memory_order_seq_cst);
    wake(std::max(size - 1, wanted_.load(std::memory_order_relaxed)));
  }

  void end() noexcept {
    Team& team = *place.team;
    team.finish_part();
    while (team.run_part()) {
    }
    if (!join([&] { return team.unfinished.load(std::memory_order_acquire) == 0; })) {
      for (int left = team.unfinished.load(std::memory_order_acquire); left != 0;
           left = team.unfinished.load(std::memory_order_acquire))
        team.unfinished.wait(left, std::memory_order_acquire);
    }
    place = {};
    if (share.is_for_one_team) give_back(std::exchange(share, Share()));
  }

  void barrier(Team& team, int size) noexcept {
    const int round = team.round.load(std::memory_order_acquire);
    if (team.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
      team.arrived.store(0, std::memory_order_relaxed);
      team.round.store(round + 1, std::memory_order_release);
      team.round.notify_all();
      return;
    }
    if (join([&] { return team.round.load(std::memory_order_acquire) != round; })) return;
    team.round.wait(round, std::memory_order_acquire);
  }

 private:
  // Shares at once. Each has a processor of its own.
  static constexpr std::size_t kMaxTeams = 256;

  /// Threads do not survive a fork: the child gets a new pool.
  static std::atomic<Pool*>& current() {
    static std::atomic<Pool*> pool = [] {
      pthread_atfork(nullptr, nullptr, [] { current().store(new Pool, std::memory_order_release); });
      return new Pool;  // never destroyed: its threads end with the process
    }();
    return pool;
  }

  /// Start workers for a team of `size`, with the mutex, as far as the system allows.
  void grow(int size) noexcept {
    int workers = workers_.load(std::memory_order_relaxed);
    for (; workers + 1 < size && workers + 1 < Team::kMaxSize && now() >= retry_at_.load(std::memory_order_relaxed);
         ++workers) {
      awake_.fetch_add(1, std::memory_order_seq_cst);
      try {
        std::thread([this] { work(); }).detach();
      } catch (const std::exception&) {  // no thread (EAGAIN) or no memory
        awake_.fetch_sub(1, std::memory_order_seq_cst);
        retry_at_.store(now() + kRetryInterval.count(), std::memory_order_relaxed);
        break;
      }
    }
    workers_.store(workers, std::memory_order_release);
  }

  /// Wake sleeping workers so that `wanted` are awake. One that is falling asleep has seen the team, or is counted as
  /// asleep here: both sides first write, then read.
  void wake(int wanted) noexcept {
    const int missing =
        std::min(wanted, workers_.load(std::memory_order_relaxed)) - awake_.load(std::memory_order_seq_cst);
    if (missing <= 0) return;
    wakes_.fetch_add(1, std::memory_order_seq_cst);
    if (missing == 1)
      wakes_.notify_one();
    else
      wakes_.notify_all();
  }

  bool run_part() noexcept {
    const int count = used_teams_.load(std::memory_order_acquire);
    for (int i = 0; i < count; ++i)
      if (teams_[static_cast<std::size_t>(i)].run_part()) return true;
    return false;
  }
  bool has_part() const noexcept {
    const int count = used_teams_.load(std::memory_order_seq_cst);
    for (int i = 0; i < count; ++i)
      if (teams_[static_cast<std::size_t>(i)].has_part()) return true;
    return false;
  }

  /// Return whether more threads are awake than there are processors. Those that wait then leave them to the others.
  bool is_crowded() const noexcept {
    return awake_.load(std::memory_order_relaxed) + callers_.load(std::memory_order_relaxed) >
           processors_.load(std::memory_order_relaxed);
  }

  /// Spin until the condition holds, which other threads of the team bring about; false: sleep.
  template <class Condition>
  bool join(Condition condition) const noexcept {
    return spin_until(kJoinSpin, is_crowded() ? Clock::duration(kJoinSpin) : kBusyJoinSpin, condition);
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
      const auto is_called = [&] { return calls_.load(std::memory_order_acquire) != seen; };
      if (is_crowded() ? is_called() : spin_until(kIdleSpin, kIdleSpin, is_called)) continue;
      const int wakes = wakes_.load(std::memory_order_seq_cst);
      awake_.fetch_sub(1, std::memory_order_seq_cst);
      if (!has_part()) wakes_.wait(wakes, std::memory_order_seq_cst);
      awake_.fetch_add(1, std::memory_order_seq_cst);
    }
  }

  std::mutex mutex_;  ///< of the shares
  std::condition_variable changed_;
  std::uint64_t last_ticket_ = 0, next_ticket_ = 0;  ///< of the queue for shares
  int used_ = 0;                                     ///< processors of all shares
  std::atomic<int> processors_{1};                   ///< when the last share was asked for
  std::atomic<int> callers_{0};                      ///< shares
  std::atomic<int> wanted_{0};                       ///< workers that the shares need at most
  std::atomic<int> workers_{0};
  std::atomic<Clock::rep> retry_at_{0};
  std::atomic<int> used_teams_{0};  ///< the others have never been used
  std::array<Team, kMaxTeams> teams_;
  alignas(64) std::atomic<int> calls_{0};  ///< teams begun
  alignas(64) std::atomic<int> awake_{0};  ///< workers
  std::atomic<int> wakes_{0};
};

void set_share(int threads) noexcept { share = Pool::instance().take_share(threads); }

int drop_share() noexcept {
  const Share given = std::exchange(share, Share());
  if (given.pool != &Pool::instance()) return 0;  // none, or of the process that was forked
  given.pool->give_back(given);
  return given.threads;
}

void prepare_threads() noexcept {
  const int wanted = limit > 0 ? limit : usual;
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
  if (limit == 0 && usual > ready) ready = 0;  // threads that the limit did not need are started when they are
  return before;
}

TeamShare::TeamShare() noexcept : is_outer_(share.pool != &Pool::instance()) {
  if (is_outer_) set_share(max_threads());
}
TeamShare::~TeamShare() {
  if (is_outer_) drop_share();
}

void set_share_limit(int threads) noexcept { share_limit = threads; }

TeamSharePause::TeamSharePause() noexcept : threads_(drop_share()) {}
TeamSharePause::~TeamSharePause() {
  if (threads_ > 0) set_share(threads_);
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
    place = {0, 1, nullptr};
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
  if (team_size() > 1) Pool::instance().barrier(*place.team, place.size);
}

}  // namespace openmps

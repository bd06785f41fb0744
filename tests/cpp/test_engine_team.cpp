// SPDX-License-Identifier: Apache-2.0
// Teams of threads: each part runs once, whichever thread begins the team, and oneDNN's OpenMP functions use them.
//
//   test_engine_team [seed offset]      prints "N passed, N failed"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "common/available_threads.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/team.hpp"
#include "engine/shared/yield_history.hpp"
#include "engine_test.hpp"

extern "C" {
void openmps_GOMP_parallel_start(void (*body)(void*), void* context, unsigned threads);
void openmps_GOMP_parallel_end();
void openmps_GOMP_barrier();
bool openmps_GOMP_loop_static_start(long start, long end, long step, long chunk, long* first, long* last);
bool openmps_GOMP_loop_static_next(long* first, long* last);
void openmps_GOMP_loop_end_nowait();
int openmps_omp_get_max_threads();
int openmps_omp_get_num_threads();
int openmps_omp_get_thread_num();
int openmps_omp_in_parallel();
}

namespace {

void on_other_thread(const std::function<void()>& action) { std::thread(action).join(); }

/// run_team() for a lambda.
template <class Body>
void team(int threads, const Body& body) {
  run_team(threads, [](void* pointer) { (*static_cast<const Body*>(pointer))(); }, const_cast<Body*>(&body));
}

bool each_part_once(int size) {
  std::vector<std::atomic<int>> counts(static_cast<std::size_t>(size));
  std::atomic<bool> ok{true};
  team(size, [&] {
    if (team_size() != size || in_team() != (size > 1)) ok = false;
    ++counts.at(static_cast<std::size_t>(thread_number()));
  });
  for (const auto& count : counts) ok = ok && count == 1;
  return ok && thread_number() == 0 && team_size() == 1 && !in_team();
}

void test_parts() {
  on_other_thread([] {
    for (int round = 0; round < 200; ++round)
      for (int size = 1; size <= 9; ++size) report(each_part_once(size), "%d parts, once each", size);
  });
  for (int size = 1; size <= 4; ++size) report(each_part_once(size), "%d parts on the main thread", size);
}

void test_thread_that_comes_late() {
  // The thread that begins a team does not wait for threads that have not started.
  on_other_thread([] {
    const auto me = std::this_thread::get_id();
    std::atomic<int> mine{0};
    std::set<std::thread::id> threads;
    std::mutex mutex;
    // On a busy machine the others may take all parts before this thread gets a processor: then try again.
    for (int round = 0; round < 50 && mine <= 1; ++round) {
      std::atomic<int> done{0};
      mine = 0, threads.clear();
      team(64, [&] {
        if (thread_number() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++done;
        mine += std::this_thread::get_id() == me;
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
      });
      report(done == 64, "64 parts");
    }
    report(mine > 1, "%d of 64 parts by the thread that began them", mine.load());
    report(threads.size() > 1, "64 parts on %zu threads", threads.size());
  });
}

void test_threads_are_at_work_together() {
  on_other_thread([] {
    // Each part waits for all others: a team that ran its parts one after the other would deadlock.
    for (int size = 2; size <= 6; ++size) {
      std::atomic<int> arrived{0};
      team(size, [&] {
        ++arrived;
        while (arrived < size) std::this_thread::yield();
      });
      report(arrived == size, "%d parts that wait for each other", size);
    }
  });
}

void test_barrier() {
  const auto check = [](int size) {
    std::vector<int> written(static_cast<std::size_t>(size));
    std::atomic<int> wrong{0};
    team(size, [&] {
      const auto me = static_cast<std::size_t>(thread_number());
      for (int round = 1; round <= 100; ++round) {
        written[me] = round;
        team_barrier();
        for (const int other : written) wrong += other != round;
        team_barrier();
      }
    });
    report(wrong == 0, "a barrier of %d: %d were elsewhere", size, wrong.load());
  };
  on_other_thread([&] {
    for (int size = 1; size <= 5; ++size) check(size);
  });
  check(2);
}

void test_inside() {
  const auto check = [](const char* where) {
    std::atomic<int> inner{0}, wrong{0};
    team(3, [&] {
      const int me = thread_number();
      team(4, [&] {
        wrong += team_size() != 1 || thread_number() != 0;
        team(4, [&] { ++inner; });
      });
      wrong += thread_number() != me || team_size() != 3;
    });
    report(inner == 3 && wrong == 0, "a team inside of another has one thread, %s", where);
  };
  on_other_thread([&] { check("of ours"); });
  check("on the main thread");
}

void test_several_at_once() {
  std::vector<std::thread> threads;
  std::atomic<i64> total{0};
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 300; ++round)
        parallel_ranges(100, 3, [&](i64 begin, i64 end) { total += end - begin; });
    });
  for (auto& thread : threads) thread.join();
  report(total == 6 * 300 * 100, "six threads begin teams at once: %lld", static_cast<long long>(total));
}

void test_wakes() {
  on_other_thread([] {
    for (int round = 0; round < 20; ++round) {
      report(each_part_once(2), "a team after a rest");
      std::this_thread::sleep_for(std::chrono::milliseconds(round % 3));
    }
  });
}

[[maybe_unused]] void test_fork() {
  on_other_thread([] {
    report(each_part_once(3), "a team before a fork");
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // instead of a deadlock
      bool ok = each_part_once(3);
      std::thread([&] { ok = ok && each_part_once(4); }).join();
      _exit(ok ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    report(WIFEXITED(status) && WEXITSTATUS(status) == 0, "teams in the child of a fork: status %d", status);
    report(each_part_once(3), "a team after a fork");
  });
}

void test_limit() {
  const auto check = [] {
    const int most = max_threads();
    {
      const ThreadLimit limit(3);
      report(max_threads() == 3 && openmps_omp_get_max_threads() == 3, "a limit of threads");
      report(threads_for(1000, 10) == 3, "threads for work, limited");
    }
    report(max_threads() == most, "a limit ends");
  };
  check();
  on_other_thread(check);
}

void test_number_set() {
  const int before = mpscnn::available_threads();
  const auto check = [&](int set, int wanted) {
    const int earlier = max_threads();
    mpscnn::set_available_threads(set);
    report(max_threads() == earlier, "%d threads before start_threads(): %d", set, max_threads());
    {
      const ThreadLimit limit(3);
      report(max_threads() == 3, "a limit within it: %d", max_threads());
    }
    report(max_threads() == earlier, "%d threads after a limit: %d", set, max_threads());
    start_threads();
    report(max_threads() == wanted && mpscnn::available_threads() == wanted, "%d threads: %d", set, max_threads());
    report(threads_for(1000, 10) == wanted, "%d threads for work: %d", set, threads_for(1000, 10));
  };
  const int processors =
      std::min<int>(static_cast<int>(std::thread::hardware_concurrency()), mpscnn::quota_processors());
  if (processors < 2 || before < 2) return;
  for (const int set : {1, 2, 1}) check(set, set);
  mpscnn::set_available_threads(1 << 20);
  report(mpscnn::available_threads() <= processors, "more than the processors: %d", mpscnn::available_threads());
  mpscnn::set_available_threads(before);
  start_threads();
}

/// The number of threads that shares add up to, while this lives.
struct ShareLimit {
  explicit ShareLimit(int threads) { set_share_limit(threads); }
  ~ShareLimit() { set_share_limit(0); }
};

void test_shares_side_by_side() {
  // All parts of both teams wait for each other: teams that took turns would deadlock.
  const ShareLimit processors(4);
  constexpr int kRounds = 100;
  std::array<std::atomic<int>, kRounds> arrived{};
  std::atomic<int> wrong{0};
  const auto work = [&] {
    const ThreadLimit limit(2);
    for (int round = 0; round < kRounds; ++round) {
      const TeamShare share;
      team(2, [&] {
        wrong += team_size() != 2;
        ++arrived.at(static_cast<std::size_t>(round));
        while (arrived.at(static_cast<std::size_t>(round)) < 4) std::this_thread::yield();
        team_barrier();
        team_barrier();
      });
    }
  };
  std::thread other(work);
  on_other_thread(work);
  other.join();
  report(wrong == 0, "two teams of two side by side: %d wrong", wrong.load());
}

void test_shares_fit() {
  const ShareLimit processors(4);
  std::atomic<int> used{0}, most{0}, excess{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, size = 1 + i % 4] {
      const ThreadLimit limit(size);
      for (int round = 0; round < 50; ++round) {
        const TeamShare share, inner;  // the second changes nothing
        const int now = used += size;
        if (now > 4) ++excess;
        for (int before = most; before < now && !most.compare_exchange_weak(before, now);) {
        }
        each_part_once(size);
        if (round % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        used -= size;
      }
    });
  for (auto& thread : threads) thread.join();
  report(excess == 0 && most == 4, "shares of 1 to 4 threads add up to %d of 4, %d too many", most.load(), excess.load());
}

void test_share_of_more_than_all() {
  const ShareLimit processors(2);
  on_other_thread([] {
    const ThreadLimit limit(5);
    const TeamShare share;
    report(each_part_once(5), "a share of 5 threads for 2 processors");
  });
  const TeamShare share;
  report(true, "a share after it");
}

void test_pause() {
  const ShareLimit processors(2);
  const ThreadLimit limit(2);
  const TeamShare share;
  {
    const TeamSharePause pause;
    on_other_thread([] {  // deadlocks if the share is still taken
      const ThreadLimit all(2);
      const TeamShare other;
      report(each_part_once(2), "a share while another one pauses");
    });
  }
  report(each_part_once(2), "a team after a pause");
}

void test_openmp_names() {
  const auto check = [](const char* where) {
    struct Context {
      std::atomic<int> calls{0}, wrong{0};
      std::atomic<i64> covered{0};
      long start = 0, end = 0, step = 1, chunk = 0;
    };
    for (const auto& [start, end, step, chunk] : {std::array<long, 4>{0, 10, 1, 0},
                                                  {0, 10, 1, 3},
                                                  {5, 5, 1, 0},
                                                  {3, 100, 7, 2},
                                                  {20, -3, -2, 4},
                                                  {0, 2, 1, 0}}) {
      Context context;
      context.start = start, context.end = end, context.step = step, context.chunk = chunk;
      const auto body = [](void* pointer) {
        auto& c = *static_cast<Context*>(pointer);
        ++c.calls;
        c.wrong += openmps_omp_get_num_threads() != 3 || !openmps_omp_in_parallel();
        long first = 0, last = 0;
        if (openmps_GOMP_loop_static_start(c.start, c.end, c.step, c.chunk, &first, &last)) {
          do {
            for (long i = first; c.step > 0 ? i < last : i > last; i += c.step) c.covered += 1 + i * i;
          } while (openmps_GOMP_loop_static_next(&first, &last));
        }
        openmps_GOMP_loop_end_nowait();
        openmps_GOMP_barrier();
        c.wrong += c.calls != 3;
      };
      openmps_GOMP_parallel_start(body, &context, 3);
      body(&context);
      openmps_GOMP_parallel_end();
      i64 wanted = 0;
      for (long i = start; step > 0 ? i < end : i > end; i += step) wanted += 1 + i * i;
      report(context.covered == wanted && context.calls == 3 && context.wrong == 0,
             "a loop from %ld to %ld by %ld in chunks of %ld, %s: %lld of %lld", start, end, step, chunk, where,
             static_cast<long long>(context.covered), static_cast<long long>(wanted));
    }
    report(openmps_omp_in_parallel() == 0 && openmps_omp_get_thread_num() == 0, "outside of teams, %s", where);
  };
  on_other_thread([&] { check("of ours"); });
  check("on the main thread");
}

/// Run `action` in a child process that cannot start threads; report whether it ends, and its status.
template <class Action>
void without_threads(const char* what, const Action& action) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);                                                                   // instead of a deadlock
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(3);  // root has no such limit
    const rlimit none{0, 0};
    setrlimit(RLIMIT_NPROC, &none);
    bool has_limit = false;
    try {
      std::thread([] {}).join();
    } catch (const std::system_error&) {
      has_limit = true;
    }
    _exit(!has_limit ? 2 : action() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  report(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %d", what, status);
}

[[maybe_unused]] void test_no_thread_can_be_started() {
  without_threads("teams without threads", [] {
    start_threads();
    bool ok = max_threads() == 1;
    for (int round = 0; round < 3; ++round)
      for (int size = 1; size <= 4; ++size) ok = each_part_once(size) && ok;
    std::atomic<i64> total{0};
    parallel_ranges(100, max_threads(), [&](i64 begin, i64 end) { total += end - begin; });
    const ThreadLimit limit(8);
    return ok && total == 100 && max_threads() == 1;
  });
}

void test_yields() {
  using std::chrono::microseconds;
  YieldHistory yields;
  YieldHistory::Clock::time_point at(std::chrono::hours(1));
  /// Add `times` yields of so many microseconds; return whether they are paused then.
  const auto add = [&](int times, int duration) {
    for (int i = 0; i < times; ++i) {
      yields.add(at, at + microseconds(duration));
      at += microseconds(duration);
    }
    return yields.are_paused(at);
  };
  report(!yields.are_paused(at) && !add(100, 900), "short yields are not paused");
  report(!add(31, 4000) && !add(4, 2) && !add(31, 4000), "a series that four short yields end");
  report(!add(3, 2) && add(1, 4000), "three short yields do not");
  at += microseconds(3'999'999);
  report(yields.are_paused(at), "the pause takes four seconds");
  at += microseconds(1);
  report(!yields.are_paused(at) && !add(31, 4000) && add(1, 4000), "another series after the pause");
}

void test_quota() {
  const auto folder = std::filesystem::temp_directory_path() / ("mpscnn_quota_" + std::to_string(getpid()));
  const auto write = [&](const std::string& path, const std::string& text) {
    const auto file = folder / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  };
  const auto check = [&](int wanted, const char* what) {
    const int found = mpscnn::quota_processors(folder);
    report(found == wanted, "%s: %d processors, not %d", what, found, wanted);
    std::filesystem::remove_all(folder);
  };
  check(INT_MAX, "no files");
  write("proc/self/cgroup", "0::/");
  write("sys/fs/cgroup/cpu.max", "max 100000");
  check(INT_MAX, "version 2 without a limit");
  write("proc/self/cgroup", "0::/");
  write("sys/fs/cgroup/cpu.max", "150000 100000");
  check(2, "version 2, 1.5 processors");
  write("proc/self/cgroup", "0::/a/b");
  write("sys/fs/cgroup/a/cpu.max", "100000 100000");
  write("sys/fs/cgroup/a/b/cpu.max", "400000 100000");
  check(1, "version 2, a group's parent");
  write("proc/self/cgroup", "0::/not/mounted");
  write("sys/fs/cgroup/cpu.max", "10000 100000");
  check(1, "version 2, a path outside of the container");
  write("proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/x\n0::/");
  write("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "250000");
  write("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000");
  check(3, "version 1, 2.5 processors");
  write("proc/self/cgroup", "1:cpu:/");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  check(INT_MAX, "version 1 without a limit");
  write("proc/self/cgroup", "1:cpu:/\nnonsense\n:\n0::");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "0");
  write("sys/fs/cgroup/cpu.max", "what this is");
  check(INT_MAX, "files that are none");
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(
      argc, argv,
      {test_parts, test_thread_that_comes_late, test_threads_are_at_work_together, test_barrier, test_inside,
       test_several_at_once, test_shares_side_by_side,
       test_shares_fit, test_share_of_more_than_all, test_pause, test_wakes, test_limit, test_number_set, test_openmp_names, test_yields, test_quota,
#if !defined(__SANITIZE_THREAD__)  // it ends forked processes that start threads
       test_fork, test_no_thread_can_be_started
#endif
      });
}

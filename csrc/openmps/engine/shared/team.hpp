// SPDX-License-Identifier: Apache-2.0
// Thread pool, shared by all threads that compute.
#pragma once

namespace openmps {

/// mpscnn::available_threads(), for files that do not see csrc/common.
int process_threads() noexcept;
void set_process_threads(int threads) noexcept;

/// Start the pool's threads as far as the system allows, mpscnn::available_threads() of them, which may have changed.
/// max_threads() of the calling thread changes only here and in set_max_threads(), so memory allocated for that many
/// threads stays large enough.
void start_threads() noexcept;

/// Return the max number of threads of the calling thread's teams: mpscnn::available_threads() or set_max_threads(),
/// but no more than could be started.
int max_threads() noexcept;
/// Set that limit for the calling thread, 0 for none; return the previous limit.
int set_max_threads(int threads) noexcept;

/// The right of the calling thread to compute on max_threads() threads, for a list of commands. The shares of all
/// threads together are at most mpscnn::available_threads(), so the constructor may wait for the ends of others, which
/// are served in order. Teams of different shares run side by side. A share within another one changes nothing.
class TeamShare {
 public:
  TeamShare() noexcept;
  ~TeamShare();
  TeamShare(const TeamShare&) = delete;
  TeamShare& operator=(const TeamShare&) = delete;

 private:
  bool is_outer_;
};

/// Set the number of threads that shares add up to, 0 for available_threads(). For tests on machines with few
/// processors.
void set_share_limit(int threads) noexcept;

/// Gives up the share of the calling thread while this lives, for work that may wait for other lists.
class TeamSharePause {
 public:
  TeamSharePause() noexcept;
  ~TeamSharePause();
  TeamSharePause(const TeamSharePause&) = delete;
  TeamSharePause& operator=(const TeamSharePause&) = delete;

 private:
  int threads_;
};

/// Run body(context) once for each of `threads` parts and return when all have ended. The body must not throw. If
/// threads lack a processor, one thread runs several parts; a body that calls team_barrier() gets one thread per part
/// if `threads` is at most max_threads(). A team inside of another has one part. Without a TeamShare, the team is one.
void run_team(int threads, void (*body)(void* context), void* context);

/// Rank and size of the caller's team; 0 and 1 outside of one.
int thread_number() noexcept;
int team_size() noexcept;

/// run_team() in two halves, for callers that run the first part themselves in between.
void begin_team(int threads, void (*body)(void* context), void* context);
void end_team();

bool in_team() noexcept;

/// Wait until all threads of the team have arrived.
void team_barrier() noexcept;

}  // namespace openmps

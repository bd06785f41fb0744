// SPDX-License-Identifier: Apache-2.0
// The threads that share a computation: one pool, whichever thread computes.
#pragma once

namespace openmps {

/// Start the pool's threads as far as the system lets it. max_threads() of the calling thread changes here and in
/// set_max_threads() only, so that memory that was allocated for as many threads stays large enough.
void start_threads() noexcept;

/// Return the max number of threads of a team that the calling thread begins: mpscnn::available_threads() or
/// set_max_threads(), but no more than could be started.
int max_threads() noexcept;
/// Limit it for the calling thread, 0 for no limit; return the former limit.
int set_max_threads(int threads) noexcept;

/// Run body(context) once for each of `threads` parts and return when all have ended. It must not throw. Where threads
/// have no processor, one thread does several parts; a body that calls team_barrier() gets as many as it has parts, if
/// `threads` is at most max_threads(). A team inside of another has one part.
void run_team(int threads, void (*body)(void* context), void* context);

/// Rank and size of the caller's team; 0 and 1 outside of one.
int thread_number() noexcept;
int team_size() noexcept;

/// run_team() for callers that run the body's first part themselves, between the two.
void begin_team(int threads, void (*body)(void* context), void* context);
void end_team();

bool in_team() noexcept;

/// Return when all threads of the team have come here.
void team_barrier() noexcept;

}  // namespace openmps

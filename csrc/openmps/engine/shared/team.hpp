// SPDX-License-Identifier: Apache-2.0
// The threads that share a computation: a pool of ours, or on the main thread those of the process' OpenMP library.
#pragma once

namespace openmps {

/// Most threads of a team that the calling thread asks for: OMP_NUM_THREADS, the process' share of the machine,
/// set_max_threads().
int max_threads() noexcept;
void set_max_threads(int threads) noexcept;

/// On the main thread: from now on its teams have the threads of the OpenMP library that is visible to the whole
/// process, if there is one by now.
void share_openmp() noexcept;

/// body(context) on each of `threads` threads; returns when all have ended. It must not throw. One team inside of
/// another has one thread.
void run_team(int threads, void (*body)(void* context), void* context);

/// Of the calling thread in its team, from 0, and how many these are; 0 of 1 where there is none.
int thread_number() noexcept;
int team_size() noexcept;

/// For those who call the body on the first thread themselves: all others begin; then all have ended.
void begin_team(int threads, void (*body)(void* context), void* context);
void end_team();

bool in_team() noexcept;

/// Returns when all threads of the team have come here.
void team_barrier() noexcept;

}  // namespace openmps

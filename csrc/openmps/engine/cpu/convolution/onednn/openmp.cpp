// SPDX-License-Identifier: Apache-2.0
// Replaces the functions of GNU OpenMP that oneDNN calls: the build renames them in its copy of the library
// (cmake/OneDNN.cmake). [gcc.gnu.org/onlinedocs/libgomp, "The libgomp ABI"]
#include <algorithm>

#include "engine/shared/team.hpp"

#define OPENMPS_ABI extern "C" __attribute__((visibility("default")))

namespace {

/// The calling thread's position in a loop whose chunks are assigned round-robin.
struct Loop {
  long start = 0, count = 0, step = 1, chunk = 1, next = 0;  // count and chunk in iterations, next in chunks
};
thread_local Loop loop;

bool next_chunk(long* first, long* end) {
  const long begin = loop.next * loop.chunk;
  if (begin >= loop.count) return false;
  *first = loop.start + begin * loop.step;
  *end = loop.start + std::min(begin + loop.chunk, loop.count) * loop.step;
  loop.next += openmps::team_size();
  return true;
}

}  // namespace

OPENMPS_ABI void openmps_GOMP_parallel_start(void (*body)(void*), void* context, unsigned threads) {
  openmps::begin_team(static_cast<int>(threads), body, context);
}
OPENMPS_ABI void openmps_GOMP_parallel_end() { openmps::end_team(); }
OPENMPS_ABI void openmps_GOMP_barrier() { openmps::team_barrier(); }

/// for (i = start; i < end; i += step), or >, with schedule(static, chunk); chunk 0 is schedule(static).
OPENMPS_ABI bool openmps_GOMP_loop_static_start(long start, long end, long step, long chunk, long* first, long* last) {
  const long count = std::max(0L, step > 0 ? (end - start + step - 1) / step : (start - end - step - 1) / -step);
  const long team = openmps::team_size();
  if (chunk <= 0) chunk = std::max(1L, (count + team - 1) / team);
  loop = {start, count, step, chunk, openmps::thread_number()};
  return next_chunk(first, last);
}
OPENMPS_ABI bool openmps_GOMP_loop_static_next(long* first, long* last) { return next_chunk(first, last); }
OPENMPS_ABI void openmps_GOMP_loop_end_nowait() {}

OPENMPS_ABI int openmps_omp_get_max_threads() { return openmps::max_threads(); }
OPENMPS_ABI int openmps_omp_get_num_threads() { return openmps::team_size(); }
OPENMPS_ABI int openmps_omp_get_thread_num() { return openmps::thread_number(); }
OPENMPS_ABI int openmps_omp_in_parallel() { return openmps::in_team(); }

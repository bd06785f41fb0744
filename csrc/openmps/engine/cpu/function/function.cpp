// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/function/function.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>
#include <vector>

#include "engine/cpu/function/fibers.hpp"
#include "engine/cpu/function/known.hpp"
#include "engine/failure.hpp"
#include "engine/function/arguments.hpp"
#include "engine/function/function.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

namespace abi = function_abi;

constexpr std::int64_t kGrain = 4096;  // threads of the grid

/// Arguments with pointers to the bytes that the problem holds.
struct HostArguments : function::Arguments {
  explicit HostArguments(const FunctionProblem& problem)
      : Arguments(problem, [](Memory& memory) { return reinterpret_cast<unsigned char*>(memory.data()); }) {
    for (const FunctionBytes& each : problem.bytes)
      values[each.argument].pointer = const_cast<std::uint8_t*>(each.bytes.data());
  }
};

/// Return the axis that is divided among threads: rows, unless these are few.
int divided_axis(const abi::Grid& grid, int threads) {
  if (grid.threads[1] >= 4 * static_cast<unsigned>(threads)) return 1;
  return static_cast<int>(std::max_element(grid.threads, grid.threads + 3) - grid.threads);
}

const char* function_threads(const FunctionProblem& problem) {
  const auto run_box = problem.function->code()->box();
  const HostArguments prepared(problem);
  const abi::Grid& grid = prepared.call.grid;
  const int threads = threads_for(std::int64_t{grid.threads[0]} * grid.threads[1] * grid.threads[2], kGrain);
  const int axis = divided_axis(grid, threads);
  parallel_ranges(grid.threads[axis], threads, [&](std::int64_t begin, std::int64_t end) {
    abi::Box box = {{0, 0, 0}, {grid.threads[0], grid.threads[1], grid.threads[2]}};
    box.begin[axis] = static_cast<unsigned>(begin), box.end[axis] = static_cast<unsigned>(end);
    run_box(&prepared.call, &box);
  });
  return nullptr;
}

const char* function_groups(const FunctionProblem& problem) {
  const auto thread = problem.function->code()->thread();
  const HostArguments prepared(problem);
  const abi::Grid& grid = prepared.call.grid;
  const std::int64_t count = std::int64_t{grid.groups[0]} * grid.groups[1] * grid.groups[2];
  const std::int64_t work = std::int64_t{grid.threads[0]} * grid.threads[1] * grid.threads[2];
  const int threads = threads_for(work, kGrain);
  const std::size_t bytes = (prepared.group_bytes + 63) / 64 * 64;
  std::vector<std::max_align_t> memory(
      (bytes * static_cast<std::size_t>(std::max(1, threads)) + 64) / sizeof(std::max_align_t) + 1);
  std::atomic<bool> has_failed = false;
  parallel_ranges(count, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto index = static_cast<std::uint64_t>(i);
      abi::Group group = {
          &prepared.call,
          {static_cast<unsigned>(index % grid.groups[0]),
           static_cast<unsigned>(index / grid.groups[0] % grid.groups[1]),
           static_cast<unsigned>(index / grid.groups[0] / grid.groups[1])},
          {},
          reinterpret_cast<unsigned char*>(memory.data()) + bytes * static_cast<std::size_t>(thread_number()),
          nullptr};
      unsigned size = 1;
      for (int axis = 0; axis < 3; ++axis) {
        group.size[axis] = std::min(grid.group[axis], grid.threads[axis] - group.position[axis] * grid.group[axis]);
        size *= group.size[axis];
      }
      if (!run_group(thread, group, size)) has_failed = true;
    }
  });
  if (has_failed) throw std::bad_alloc();
  return nullptr;
}

constexpr Implementation<FunctionProblem> kThreads[] = {{"function_product", function_product},
                                                        {"function_permutation", function_permutation},
                                                        {"function_threads", function_threads}};
const ImplementationNames kThreadsNames(kThreads);
constexpr Implementation<FunctionProblem> kGroups[] = {{"function_groups", function_groups}};
const ImplementationNames kGroupsNames(kGroups);

}  // namespace

void run(const FunctionProblem& problem) {
  // Engines other than the processor's may not have compiled it for the processor.
  function::Error error;
  if (!problem.function->prepare(error)) throw EngineError(FailureCode::internal, error.sentence);
  // Each function has one of the two forms.
  if (problem.function->uses_group())
    run_first("function_groups", kGroups, problem);
  else
    run_first("function_threads", kThreads, problem);
}

}  // namespace openmps::cpu

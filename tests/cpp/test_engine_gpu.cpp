// SPDX-License-Identifier: Apache-2.0
// The CUDA engine when its driver fails: memory runs out, launches fail, the GPU is lost. And the files that it keeps.
//
// The driver is that of cuda-host, except that it has a limited memory and fails on demand.
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>

#include "engine/cuda/cuda_engine.hpp"
#include "engine/cuda/driver.hpp"
#include "engine/plan/execution.hpp"
#include "engine/shared/disk_cache.hpp"
#include "engine_test.hpp"

namespace {

namespace fs = std::filesystem;
using namespace openmps::cuda;
using Stream = openmps::cuda::Stream;

constexpr std::size_t MB = 1 << 20;
constexpr int kLost = 700, kInvalidValue = 1, kInvalidatedCapture = 901;

// ------------------------------------------------------------------------------------------------------- the driver

struct Faults {
  std::mutex mutex;
  std::size_t left = std::size_t{1} << 40;  ///< bytes that can be allocated
  std::map<Address, std::size_t> blocks;
  std::atomic<int> launch = 0, launch_graph = 0, instantiate = 0, update = 0, end_capture = 0;  ///< status codes
  std::atomic<int> query = kNotReady;                                                           ///< of streams
  std::atomic<int> launches = 0, graphs = 0, waits = 0;                                         ///< calls
};
Faults& faults() {
  static auto* const all = new Faults;
  return *all;
}

/// Return the status that was asked for, otherwise that of `call`.
template <class Call>
int or_status(int status, const Call& call) {
  return status ? status : call();
}

const Driver& failing_driver() {
  static const Driver driver = [] {
    Driver made = host_driver();
    made.get_error_name = [](int status, const char** name) -> int {
      *name = status == kLost ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
      return kSuccess;
    };
    made.get_error_string = [](int, const char** text) -> int { return *text = "some words", kSuccess; };
    made.allocate = [](Address* address, std::size_t bytes) -> int {
      Faults& f = faults();
      const std::lock_guard lock(f.mutex);
      if (bytes > f.left) return kOutOfMemory;
      const int status = host_driver().allocate(address, bytes);
      if (status == kSuccess) f.left -= bytes, f.blocks[*address] = bytes;
      return status;
    };
    made.free = [](Address address) -> int {
      Faults& f = faults();
      const std::lock_guard lock(f.mutex);
      report(f.blocks.count(address) == 1, "a block is freed that was not allocated");
      f.left += f.blocks[address];
      f.blocks.erase(address);
      return host_driver().free(address);
    };
    made.launch = [](Function function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y,
                     unsigned block_z, unsigned shared, Stream stream, void** arguments, void** extra) -> int {
      ++faults().launches;
      return or_status(faults().launch, [&] {
        return host_driver().launch(function, x, y, z, block_x, block_y, block_z, shared, stream, arguments, extra);
      });
    };
    made.wait_for_event = [](Stream, Event, unsigned) -> int { return ++faults().waits, kSuccess; };
    made.query_stream = [](Stream) -> int { return faults().query; };
    made.launch_graph = [](GraphExec executable, Stream stream) -> int {
      ++faults().graphs;
      return or_status(faults().launch_graph, [&] { return host_driver().launch_graph(executable, stream); });
    };
    made.instantiate = [](GraphExec* executable, Graph graph, unsigned long long flags) -> int {
      return or_status(faults().instantiate, [&] { return host_driver().instantiate(executable, graph, flags); });
    };
    made.update_executable = [](GraphExec executable, Graph graph, UpdateResult* result) -> int {
      return or_status(faults().update, [&] { return host_driver().update_executable(executable, graph, result); });
    };
    made.end_capture = [](Stream stream, Graph* graph) -> int {
      const int status = host_driver().end_capture(stream, graph);
      if (!faults().end_capture) return status;
      host_driver().destroy_graph(*graph);
      return *graph = nullptr, faults().end_capture.load();
    };
    return made;
  }();
  return driver;
}

/// Return an engine of its own for each test, which lives as long as the process.
Engine& new_engine() {
  faults().left = std::size_t{1} << 40;
  return **new std::shared_ptr<Engine>(make_cuda_engine("cuda-test", failing_driver()));
}

// ------------------------------------------------------------------------------------------------------------- lists

std::shared_ptr<Memory> block(Engine& engine, std::size_t bytes) {
  return Memory::lazy(engine.shared_from_this(), bytes, engine.image_storage());
}

ImageView view_of(std::shared_ptr<Memory> memory, i64 w) {
  ImageView view;
  view.memory = std::move(memory);
  view.format = Format::float32;
  view.n = view.h = view.c = 1, view.w = w;
  view.w_stride = 1, view.h_stride = view.n_stride = w;
  return view;
}

/// A list of two activations: dst = max(src, 0), then dst = max(dst, 0).
struct List {
  static constexpr i64 kCount = 1000;
  std::shared_ptr<Memory> src, dst;
  std::vector<Command> commands;

  explicit List(Engine& engine) : src(block(engine, 4 * kCount)), dst(block(engine, 4 * kCount)) {
    NeuronProblem first, second;
    first.src = view_of(src, kCount), first.dst = second.src = second.dst = view_of(dst, kCount);
    first.neuron.type = second.neuron.type = NeuronType::relu;
    commands = {{first, "relu"}, {second, "again"}};
    const std::vector<float> values(kCount, 3.0f);
    src->upload(0, 4 * kCount, values.data());
  }
  /// Return whether the results are right, and forget them.
  bool is_right() {
    std::vector<float> values(kCount);
    dst->download(0, 4 * kCount, values.data());
    const bool all = std::all_of(values.begin(), values.end(), [](float value) { return value == 3.0f; });
    std::fill(values.begin(), values.end(), NAN);
    dst->upload(0, 4 * kCount, values.data());
    return all;
  }
};

template <class Call>
bool runs_out(const Call& call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

std::string no_memory_for(const std::string& label, std::uint64_t bytes, std::uint64_t in_use) {
  return label + ": the device is out of memory: " + std::to_string(bytes) + " bytes were requested, " +
         std::to_string(in_use) + " bytes are in use.";
}

void expect(const Failure& failure, FailureCode code, const std::string& sentence, const char* what) {
  report(failure.code == code && failure.sentence == sentence, "%s: %d, \"%s\"", what, static_cast<int>(failure.code),
         failure.sentence.c_str());
}

// ------------------------------------------------------------------------------------------------------------- memory

void kept_blocks_are_freed_when_memory_runs_out() {
  Engine& engine = new_engine();
  faults().left = 10 * MB;
  const auto used = block(engine, 4 * MB);
  used->address();
  block(engine, 4 * MB)->address();
  report(engine.memory_use().cached == 4 * MB, "a free block is not kept");
  report(faults().left == 2 * MB, "%zu bytes left", faults().left);
  const auto large = block(engine, 6 * MB);  // fits only without the free block
  report(!runs_out([&] { large->address(); }), "no second attempt");
  report(engine.memory_use().cached == 0 && engine.memory_use().allocated == 10 * MB, "%llu bytes in use",
         static_cast<unsigned long long>(engine.memory_use().allocated));
  const auto more = block(engine, MB);
  report(runs_out([&] { more->address(); }), "more than the memory");
  report(runs_out([&] { block(engine, std::size_t{1} << 63)->address(); }), "an immense block");
  report(engine.memory_use().allocated == 10 * MB && engine.memory_use().peak == 10 * MB, "a failed block is counted");
}

void lists_name_the_command_that_found_no_memory() {
  Engine& engine = new_engine();
  List list(engine);
  report(!execute(engine, list.commands) && list.is_right(), "the list fails");
  faults().left = 0;
  NeuronProblem problem;
  problem.src = view_of(list.src, List::kCount), problem.dst = view_of(block(engine, MB), List::kCount);
  const std::vector<Command> commands = {list.commands[0], {problem, "large"}};
  expect(execute(engine, commands), FailureCode::out_of_memory,
         no_memory_for("large", MB, engine.memory_use().allocated), "no memory");
  faults().left = 2 * MB;
  report(!execute(engine, commands), "the list fails with enough memory");
  report(!execute(engine, list.commands) && list.is_right(), "a later list fails");
}

void scratch_memory_runs_out() {
  Engine& engine = new_engine();
  constexpr i64 kMany = 1 << 18, kPartials = 1 << 17;
  const auto src = block(engine, 4 * kMany), dst = block(engine, 64);
  src->address(), dst->address();
  PoolProblem pool;  // a large window: partial results need memory of their own
  pool.src = view_of(src, kMany), pool.dst = view_of(dst, 1);
  pool.window.kernel_h = 1, pool.window.kernel_w = kMany;
  const std::vector<Command> commands = {{pool, "pool"}};
  std::vector<float> values(kMany, -1.0f);
  values[kMany / 3] = 7;
  src->upload(0, 4 * kMany, values.data());
  faults().left = 0;
  for (int run = 0; run < 3; ++run)
    expect(execute(engine, commands), FailureCode::out_of_memory, no_memory_for("pool", kPartials, 4 * kMany + 512),
           "no scratch");
  faults().left = 64 * MB;
  for (int run = 0; run < 3; ++run) {
    float result = 0;
    report(!execute(engine, commands), "the pooling fails with enough memory");
    dst->download(0, 4, &result);
    report(result == 7, "the max is %g", static_cast<double>(result));
    result = 0;
    dst->upload(0, 4, &result);
  }
}

// ----------------------------------------------------------------------------------------------------------- failures

void a_lost_gpu_is_named() {
  Engine& engine = new_engine();
  List list(engine);
  list.dst->address();
  // Without a graph, while one is recorded, and twice with it.
  for (int run = 0; run < 4; ++run) {
    const bool by_graph = run > 1;
    std::atomic<int>& status = by_graph ? faults().launch_graph : faults().launch;
    for (const auto& [code, failure, name] : {std::tuple{kLost, FailureCode::device_lost, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                              std::tuple{kInvalidValue, FailureCode::internal, "CUDA_ERROR_OTHER"}}) {
      if (run == 1) break;  // a failed recording is tried below
      status = code;
      const Failure found = execute(engine, list.commands);
      const std::string end = std::string(": ") + name + ", some words.";
      report(found.code == failure && found.sentence.starts_with("relu: ") && found.sentence.ends_with(end),
             "run %d, status %d: %d, \"%s\"", run, code, static_cast<int>(found.code), found.sentence.c_str());
      status = 0;
    }
    const int graphs = faults().graphs;
    report(!execute(engine, list.commands) && list.is_right(), "run %d fails after a failure", run);
    if (by_graph) report(faults().graphs == graphs + 1, "run %d uses no graph", run);
  }
}

void a_failure_while_recording_is_the_lists() {
  for (const int status : {kLost, kInvalidValue}) {
    Engine& engine = new_engine();
    List list(engine);
    report(!execute(engine, list.commands) && list.is_right(), "the first run fails");
    faults().launch = status;
    const Failure found = execute(engine, list.commands);
    faults().launch = 0;
    report(found.code == (status == kLost ? FailureCode::device_lost : FailureCode::internal), "status %d: %d", status,
           static_cast<int>(found.code));
    for (int run = 0; run < 3; ++run)
      report(!execute(engine, list.commands) && list.is_right(), "run %d fails after a failed recording", run);
  }
}

/// A list that cannot become a graph runs without one.
void lists_run_without_a_graph() {
  for (std::atomic<int>* const status : {&faults().end_capture, &faults().instantiate})
    for (const int code : {kInvalidatedCapture, static_cast<int>(kOutOfMemory)}) {
      Engine& engine = new_engine();
      List list(engine);
      *status = code;
      const int graphs = faults().graphs;
      for (int run = 0; run < 4; ++run) {
        const Failure found = execute(engine, list.commands);
        report(!found && list.is_right(), "run %d, status %d: %s", run, code, found.sentence.c_str());
      }
      report(faults().graphs == graphs, "a graph that was not made is launched");
      *status = 0;
    }
}

/// The third run and later ones launch a graph, and no kernel.
void third_runs_launch_a_graph() {
  Engine& engine = new_engine();
  List list(engine), other(engine);
  for (int run = 0; run < 5; ++run)
    for (List* const each : {&list, &other}) {
      const int launches = faults().launches, graphs = faults().graphs;
      report(!execute(engine, each->commands) && each->is_right(), "run %d", run);
      report(faults().launches - launches == (run < 2 ? 2 : 0), "run %d: %d launches", run,
             faults().launches - launches);
      report(faults().graphs - graphs == (run < 1 ? 0 : 1), "run %d: %d graphs", run, faults().graphs - graphs);
    }
}

/// Long lists of one structure share a graph from the 4th on, if each has other addresses.
void lists_with_other_addresses_share_a_graph() {
  Engine& engine = new_engine();
  std::vector<std::unique_ptr<List>> lists;
  const auto run_another = [&](int length) {
    List& list = *lists.emplace_back(std::make_unique<List>(engine));
    for (int i = 2; i < length; ++i) list.commands.push_back(list.commands.back());
    const int graphs = faults().graphs;
    report(!execute(engine, list.commands) && list.is_right(), "list %zu", lists.size());
    return faults().graphs - graphs;
  };
  for (int run = 0; run < 6; ++run) report(run_another(40) == (run < 3 ? 0 : 1), "run %d", run);
  for (int run = 0; run < 5; ++run) report(run_another(20) == 0, "a short list becomes a graph");
  for (int run = 0; run < 4; ++run) report(run_another(50) == (run < 3 ? 0 : 1), "run %d of another structure", run);
  report(run_another(40) == 1, "the graph of the first structure is gone");
  faults().query = kSuccess;
  report(run_another(40) == 0, "a list is recorded though its stream is idle");
  faults().query = kNotReady;
  report(run_another(40) == 1, "the graph of a stream that was idle is gone");
  faults().update = kInvalidValue;
  report(run_another(40) == 0, "a graph that cannot be changed is launched");
  faults().update = 0;
  for (int run = 0; run < 5; ++run)
    report(run_another(40) == (run < 3 ? 0 : 1), "run %d after a graph that could not be changed", run);
}

/// A stream waits for the marker of another one, without the host; a marker of another kind is refused.
void streams_wait_for_markers() {
  Engine &engine = new_engine(), &other = new_engine();
  bool is_done = false;
  const std::shared_ptr<Marker> marker = engine.mark([&] { is_done = true; });
  report(marker && is_done, "work that is done does not call");
  const int waits = faults().waits;
  report(other.wait_for(*marker) && faults().waits == waits + 1, "another GPU of the driver does not wait");
  struct Foreign final : Marker {};
  report(!engine.wait_for(Foreign()) && faults().waits == waits + 1, "a foreign marker is accepted");
  const auto processor = engine_of("cpu");
  report(!processor->mark([&] { is_done = false; }) && is_done && !processor->wait_for(*marker), "the CPU has markers");

  List list(engine);
  std::vector<Command> commands = list.commands;
  int ran = 0;
  commands.insert(commands.begin() + 1,
                  {HostTask{[&] { ran += 100; }, [&](Engine& of) { return &of == &engine && ++ran; }}, ""});
  for (int run = 0; run < 4; ++run) report(!execute(engine, commands) && list.is_right(), "run %d", run);
  report(ran == 4, "an engine's task ran on the host (%d)", ran);
  commands[1].problem = HostTask{[&] { ran += 100; }, [](Engine&) { return false; }};
  report(!execute(engine, commands) && list.is_right() && ran == 104, "a refused task does not run on the host (%d)",
         ran);
}

// ------------------------------------------------------------------------------------------------------ repeated lists

/// Two activations with a block between them that nothing else refers to.
struct Chain {
  static constexpr i64 kCount = 1 << 18;
  static constexpr std::size_t kBytes = sizeof(float) * kCount;
  std::shared_ptr<Memory> src, dst;
  std::unique_ptr<RepeatedList> list;
  std::shared_ptr<void> stream;

  explicit Chain(Engine& engine) : Chain(engine, block(engine, kBytes)) {}
  Chain(Engine& engine, std::shared_ptr<Memory> source) : src(std::move(source)), dst(block(engine, kBytes)) {
    NeuronProblem first, second;
    first.src = view_of(src, kCount), first.dst = second.src = view_of(block(engine, kBytes), kCount);
    second.dst = view_of(dst, kCount);
    first.neuron.type = second.neuron.type = NeuronType::relu;
    std::vector<Command> commands = {{std::move(first), "first"}, {std::move(second), "second"}};
    list = std::make_unique<RepeatedList>(std::move(commands));
    dst->address();
  }
  Failure run(Engine& engine, float value) {
    const std::vector<float> values(kCount, value);
    src->upload(0, kBytes, values.data());
    return Execution::start(engine, *list, {}, stream).wait();
  }
  float result() {
    float values[2] = {};
    dst->download(0, 4, &values[0]);
    dst->download(kBytes - 4, 4, &values[1]);
    return values[0] == values[1] ? values[0] : NAN;
  }
};

/// The first run is plain, the second is recorded, and the memory between the commands stays the list's.
void repeated_lists_become_graphs() {
  Engine& engine = new_engine();
  Chain chain(engine);
  report(!chain.list->starts_at_once(), "a list that never ran starts at once");
  for (int run = 0; run < 5; ++run) {
    const int launches = faults().launches, graphs = faults().graphs;
    const Failure found = chain.run(engine, static_cast<float>(run + 1));
    report(!found && chain.result() == static_cast<float>(run + 1), "run %d: %s", run, found.sentence.c_str());
    report(faults().launches - launches == (run < 2 ? 2 : 0), "run %d: %d launches", run, faults().launches - launches);
    report(faults().graphs - graphs == (run < 1 ? 0 : 1), "run %d: %d graphs", run, faults().graphs - graphs);
    report(chain.list->starts_at_once() == (run > 0), "run %d: starts at once", run);
    report(engine.memory_use().allocated == 3 * Chain::kBytes, "run %d: %llu bytes", run,
           static_cast<unsigned long long>(engine.memory_use().allocated));
  }
  faults().launch_graph = kLost;
  expect(chain.run(engine, 9), FailureCode::device_lost,
         "first: cuGraphLaunch: CUDA_ERROR_ILLEGAL_ADDRESS, some words.", "a lost GPU");
  faults().launch_graph = 0;
  report(!chain.run(engine, 7) && chain.result() == 7, "a run after a failure");
  chain.list = nullptr;
  report(engine.memory_use().allocated == 2 * Chain::kBytes, "the list's memory is not freed");
}

void repeated_lists_run_without_a_graph() {
  for (std::atomic<int>* const status : {&faults().end_capture, &faults().instantiate}) {
    Engine& engine = new_engine();
    Chain chain(engine);
    *status = kInvalidatedCapture;
    for (int run = 0; run < 4; ++run) {
      report(!chain.run(engine, static_cast<float>(run + 1)) && chain.result() == static_cast<float>(run + 1), "run %d",
             run);
      report(!chain.list->starts_at_once(), "a list without a graph starts at once");
    }
    *status = 0;
  }
}

/// Lists that do not run give their memory to others, and get new memory when they run again.
void idle_lists_are_freed_when_memory_runs_out() {
  Engine& engine = new_engine();
  Chain chain(engine);
  for (int run = 0; run < 3; ++run) chain.run(engine, 1);
  faults().left = 0;
  const auto other = block(engine, Chain::kBytes);
  report(!runs_out([&] { other->address(); }), "an idle list keeps its memory");
  expect(chain.run(engine, 2), FailureCode::out_of_memory, no_memory_for("first", Chain::kBytes, 3 * Chain::kBytes),
         "no memory is left");
  faults().left = 2 * Chain::kBytes;
  for (int run = 0; run < 4; ++run)
    report(!chain.run(engine, static_cast<float>(run + 3)) && chain.result() == static_cast<float>(run + 3),
           "run %d with new memory", run);
  engine.free_cached_bytes();
  report(engine.memory_use().allocated == 3 * Chain::kBytes, "free_cached_bytes() keeps the memory of idle lists");
  report(!chain.run(engine, 8) && chain.result() == 8, "a run after free_cached_bytes()");
}

/// A graph has addresses: a list whose buffer has moved to the host is recorded again.
void lists_are_recorded_again_when_a_buffer_moves() {
  Engine& engine = new_engine();
  Chain chain(engine, Memory::lazy_buffer(engine.shared_from_this(), Chain::kBytes));
  for (int run = 0; run < 3; ++run) chain.run(engine, 1);
  const std::byte* const before = chain.src->address();
  report(chain.src->data() != before && chain.src->storage() == Storage::host, "the buffer does not move");
  for (int run = 0; run < 3; ++run) {
    const int graphs = faults().graphs;
    const float value = static_cast<float>(run + 5);
    report(!chain.run(engine, value) && chain.result() == value, "run %d after a buffer moved", run);
    report(faults().graphs == graphs + 1, "run %d launches no graph", run);
  }
}

/// Lists under way keep their memory when another thread frees that of idle ones.
void running_lists_keep_their_memory() {
  Engine& engine = new_engine();
  Chain chain(engine), idle(engine);
  for (int run = 0; run < 3; ++run) chain.run(engine, 1), idle.run(engine, 1);
  Execution running = Execution::start(engine, *chain.list, {}, chain.stream);
  RepeatedList::free_idle(engine);
  report(engine.memory_use().allocated == 5 * Chain::kBytes, "%llu bytes with a list under way",
         static_cast<unsigned long long>(engine.memory_use().allocated));
  report(chain.list->starts_at_once() && !idle.list->starts_at_once(), "the wrong list is freed");
  report(!running.wait() && chain.result() == 1, "the list under way fails");
  running = {};
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) RepeatedList::free_idle(engine);
  });
  for (int run = 0; run < 300; ++run)
    report(!chain.run(engine, static_cast<float>(run)) && chain.result() == static_cast<float>(run), "run %d", run);
  stop = true;
  other.join();
}

// ------------------------------------------------------------------------------------------ problems that are gathered

/// Small copies and updates of a list are computed together, but not those that depend on each other.
void gathered_problems_keep_their_order() {
  Engine& engine = new_engine();
  constexpr i64 kValues = 3000;
  const auto made = [&] { return block(engine, kValues * sizeof(float)); };
  const std::shared_ptr<Memory> a = made(), b = made(), c = made(), d = made();
  const auto fill = [&](const std::shared_ptr<Memory>& memory, float value) {
    const std::vector<float> values(kValues, value);
    memory->upload(0, kValues * sizeof(float), values.data());
  };
  const auto first_and_last = [&](const std::shared_ptr<Memory>& memory) {
    float values[2] = {};
    memory->download(0, 4, &values[0]), memory->download((kValues - 1) * 4, 4, &values[1]);
    return values[0] == values[1] ? values[0] : NAN;
  };
  const auto copy = [&](const std::shared_ptr<Memory>& from, const std::shared_ptr<Memory>& to) {
    return Command{BufferCopyProblem{.src = from, .dst = to, .bytes = kValues * sizeof(float)}, "copy"};
  };
  const auto update = [&](const std::shared_ptr<Memory>& gradient, const std::shared_ptr<Memory>& values, double rate) {
    OptimizeProblem p;
    p.columns = kValues, p.rate = rate;
    p.gradient.memory = gradient, p.values.memory = p.result.memory = values;
    return Command{std::move(p), "update"};
  };
  const auto launches_of = [&](const std::vector<Command>& list) {
    const int before = faults().launches;
    report(!execute(engine, list), "gathered problems fail");
    return faults().launches - before;
  };
  fill(a, 1), fill(b, 2), fill(c, 3), fill(d, 4);
  report(launches_of({copy(a, b), copy(c, d)}) == 1 && first_and_last(b) == 1 && first_and_last(d) == 3,
         "independent copies are not one launch");
  fill(b, 2), fill(d, 4);
  report(launches_of({copy(a, b), copy(b, c), copy(d, b)}) == 3 && first_and_last(c) == 1 && first_and_last(b) == 4,
         "dependent copies are one launch");
  fill(a, 1), fill(b, 2), fill(c, 3), fill(d, 4);
  report(launches_of({update(a, b, 1), update(c, d, 1)}) == 1 && first_and_last(b) == 1 && first_and_last(d) == 1,
         "independent updates are not one launch");
  fill(a, 1), fill(b, 2), fill(c, 3);
  report(launches_of({update(a, b, 1), update(b, c, 1), update(a, b, 1)}) == 3 && first_and_last(c) == 2 &&
             first_and_last(b) == 0,
         "dependent updates are one launch");
  fill(b, 2), fill(d, 4);
  report(launches_of({update(a, b, 1), update(c, d, 2)}) == 2 && first_and_last(b) == 1 && first_and_last(d) == 0,
         "updates of two rates are one launch");
  fill(b, 2), fill(c, 0);
  report(launches_of({update(a, b, 1), copy(b, c)}) == 2 && first_and_last(c) == 1,
         "a copy before its source is there");
  std::vector<Command> many;
  std::vector<std::shared_ptr<Memory>> values;
  for (int i = 0; i < 130; ++i) {
    values.push_back(made());
    fill(values.back(), static_cast<float>(i));
    many.push_back(update(a, values.back(), 1));
  }
  report(launches_of(many) == 3, "130 updates are not three launches");
  for (int i = 0; i < 130; ++i) report(first_and_last(values[static_cast<std::size_t>(i)]) == i - 1, "update %d", i);
}

// -------------------------------------------------------------------------------------------------------------- files

std::string contents_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void overwrite(const fs::path& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
}
std::vector<fs::path> files_of_cache() {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(cache_folder("cuda"), error)) files.push_back(entry.path());
  return files;
}

void files_are_read_back() {
  const std::string contents("some\0code\n", 10);
  report(!read_cached("cuda", "kernel", "key"), "a file that was not written");
  write_cached("cuda", "kernel", "key", contents);
  write_cached("cuda", "choice", "key", "other kind");
  write_cached("cuda", "kernel", "empty", "");
  report(read_cached("cuda", "kernel", "key") == contents, "other contents");
  report(read_cached("cuda", "choice", "key") == "other kind", "other contents of another kind");
  report(read_cached("cuda", "kernel", "empty") == "", "no contents");
  report(!read_cached("cuda", "kernel", "key "), "another key");
  report(files_of_cache().size() == 3, "%zu files for 3 keys", files_of_cache().size());
  fs::remove_all(cache_folder("cuda"));
}

void damaged_files_are_ignored() {
  const std::string contents = "0123456789\nabcdef";
  write_cached("cuda", "kernel", "key", contents);
  const fs::path path = files_of_cache().front();
  const std::string whole = contents_of(path);
  report(whole.size() > contents.size(), "no header");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    overwrite(path, whole.substr(0, length));
    report(!read_cached("cuda", "kernel", "key"), "a file of %zu of %zu bytes is read", length, whole.size());
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    overwrite(path, changed);
    report(!read_cached("cuda", "kernel", "key"), "a file with another byte %zu is read", i);
  }
  overwrite(path, whole + "x");
  report(!read_cached("cuda", "kernel", "key"), "a file with one more byte is read");
  write_cached("cuda", "kernel", "key", contents);
  report(read_cached("cuda", "kernel", "key") == contents, "a damaged file is not replaced");
  fs::remove_all(cache_folder("cuda"));
}

void files_are_replaced_as_a_whole() {
  write_cached("cuda", "kernel", "key", "old");
  const fs::path path = files_of_cache().front(), link = fs::path(cache_folder("cuda")).parent_path() / "link";
  const std::string old = contents_of(path);
  fs::create_hard_link(path, link);
  write_cached("cuda", "kernel", "key", "new contents");
  report(contents_of(link) == old, "the old file is written to");
  report(read_cached("cuda", "kernel", "key") == "new contents", "the new file is not in its place");
  report(files_of_cache().size() == 1, "another file is left");
  fs::remove(link);

  // A full disk: files have at most 100 bytes, which the first part of the new file exceeds.
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100, limit.rlim_max};
  for (const std::size_t size : {std::size_t{200}, 4 * MB}) {
    setrlimit(RLIMIT_FSIZE, &small);
    write_cached("cuda", "kernel", "key", std::string(size, 'x'));
    setrlimit(RLIMIT_FSIZE, &limit);
    report(read_cached("cuda", "kernel", "key") == "new contents", "a file that could not be written replaces another");
    report(files_of_cache().size() == 1, "a part of %zu bytes is left", size);
  }
  fs::remove_all(cache_folder("cuda"));

  overwrite(cache_folder("cuda"), "a file where the folder should be");
  write_cached("cuda", "kernel", "key", "contents");
  report(!read_cached("cuda", "kernel", "key"), "a folder that is not there");
  fs::remove(cache_folder("cuda"));
}

void the_oldest_files_go_first() {
  fs::create_directories(cache_folder("cuda"));
  const auto now = fs::file_time_type::clock::now();
  const auto path_of = [](int i) { return fs::path(cache_folder("cuda")) / ("file" + std::to_string(i)); };
  for (int i = 0; i < 5; ++i) {
    overwrite(path_of(i), "");
    fs::resize_file(path_of(i), 50 * MB);  // takes no space on the disk
    fs::last_write_time(path_of(i), now - std::chrono::hours(i == 0 ? 1 : 10 - i));
  }
  write_cached("cuda", "kernel", "first", "contents");
  report(files_of_cache().size() == 6, "files are removed although they have less than 256 MB");
  fs::resize_file(path_of(4), 60 * MB);
  fs::last_write_time(path_of(4), now - std::chrono::hours(6));
  write_cached("cuda", "kernel", "second", "contents");
  // The oldest are 1, 2, 3 and 4; half of 256 MB may stay.
  for (int i = 0; i < 5; ++i) report(fs::exists(path_of(i)) == (i == 0 || i == 4), "file %d", i);
  report(read_cached("cuda", "kernel", "first") && read_cached("cuda", "kernel", "second"),
         "the newest files are removed");
  fs::remove_all(cache_folder("cuda"));
}

}  // namespace

int main(int argc, char** argv) {
  char folder[] = "/tmp/mpscnn-cache-XXXXXX";
  if (!mkdtemp(folder)) return 2;
  setenv("XDG_CACHE_HOME", folder, 1);
  const int status = run_tests(
      argc, argv,
      {kept_blocks_are_freed_when_memory_runs_out, lists_name_the_command_that_found_no_memory, scratch_memory_runs_out,
       a_lost_gpu_is_named, a_failure_while_recording_is_the_lists, lists_run_without_a_graph,
       third_runs_launch_a_graph, lists_with_other_addresses_share_a_graph, repeated_lists_become_graphs,
       repeated_lists_run_without_a_graph, idle_lists_are_freed_when_memory_runs_out,
       lists_are_recorded_again_when_a_buffer_moves, streams_wait_for_markers, running_lists_keep_their_memory,
       gathered_problems_keep_their_order, files_are_read_back, damaged_files_are_ignored,
       files_are_replaced_as_a_whole, the_oldest_files_go_first});
  fs::remove_all(folder);
  return status;
}

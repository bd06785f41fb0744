// SPDX-License-Identifier: Apache-2.0
// The split engine: memory that the host cannot reach, and lists that run on a thread of the engine.
//
//   test_engine_split [seed offset]      prints "N passed, N failed"
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <numeric>

#include "engine/plan/staging.hpp"
#include "engine_test.hpp"

namespace {

Engine& split() { return *engine_of("split"); }

std::shared_ptr<Memory> device_memory(std::size_t bytes) {
  return Memory::lazy(split().shared_from_this(), bytes, Storage::device);
}

std::vector<float> floats_in(const std::shared_ptr<Memory>& memory) {
  std::vector<float> values(memory->size() / sizeof(float));
  memory->download(0, memory->size(), values.data());
  return values;
}

ImageView image(std::shared_ptr<Memory> memory, i64 n, i64 h, i64 w, i64 c, std::size_t offset = 0) {
  ImageView view;
  view.memory = std::move(memory), view.offset = offset;
  view.n = n, view.h = h, view.w = w, view.c = c;
  view.w_stride = c, view.h_stride = w * c, view.n_stride = h * w * c;
  return view;
}

void test_access() {
  const auto memory = device_memory(1000);
  bool refused = false;
  try {
    memory->data();
  } catch (const std::logic_error&) {
    refused = true;
  }
  report(refused && !memory->is_allocated(), "memory of a device has no pointer for the host");
  {
    const HostAccess all(memory, HostAccess::Mode::write);
    std::memset(all.data(), 7, 1000);
    report(all.data() != memory->address(), "the host has a copy");
  }
  {
    const HostAccess some(memory, 100, 50, HostAccess::Mode::update);
    report(some.data()[49] == std::byte{7}, "what is updated is read before");
    some.data()[0] = std::byte{9};
  }
  {
    const HostAccess all(memory, HostAccess::Mode::read);
    report(all.data()[99] == std::byte{7} && all.data()[100] == std::byte{9} && all.data()[101] == std::byte{7},
           "a range is written back where it belongs");
    all.data()[0] = std::byte{1};
  }
  report(HostAccess(memory, HostAccess::Mode::read).data()[0] == std::byte{7}, "what is only read is not written back");
  const auto part = Memory::part(memory, 100, 10);
  report(part->storage() == Storage::device && part->address() == memory->address() + 100, "parts are the device's");
  report(HostAccess(part, HostAccess::Mode::read).data()[0] == std::byte{9}, "parts are read at their place");
  const auto huge = device_memory(split().working_set_limit() + 1);
  report(!HostAccess(huge, 0, 10, HostAccess::Mode::write).data(), "no memory, no pointer");
}

/// The host faults when it uses a device address.
void test_fault() {
  const auto memory = device_memory(64);
  volatile const std::byte* const address = memory->address();
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGBUS, SIG_DFL);
    _exit(std::to_integer<int>(address[3]) & 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
#if defined(__SANITIZE_ADDRESS__)
  report(!WIFEXITED(status) || WEXITSTATUS(status) > 1, "a sanitizer reports the access");
#else
  report(WIFSIGNALED(status), "the host cannot read memory of the device");
#endif
}

/// Overlapping blocks share one copy, so that a problem in place stays in place.
void test_staging() {
  const auto whole = device_memory(16 * sizeof(float));
  std::vector<float> values(16);
  std::iota(values.begin(), values.end(), -8.0f);
  whole->upload(0, whole->size(), values.data());
  const auto half = Memory::part(whole, 4 * sizeof(float), 8 * sizeof(float));
  NeuronProblem problem;
  problem.neuron.type = NeuronType::absolute;
  problem.src = image(whole, 1, 1, 2, 4, 4 * sizeof(float));
  problem.dst = image(half, 1, 1, 2, 4);
  run_on_processor(problem);
  for (std::size_t i = 4; i < 12; ++i) values[i] = std::fabs(values[i]);
  report(floats_in(whole) == values, "the processor works on one copy of blocks that overlap");

  // Results in both: with separate copies, the later one would restore old values of the other.
  const auto block = device_memory(256), inside = Memory::part(block, 64, 128);
  BinaryProblem sum;
  sum.function.min = -100, sum.function.max = 100;
  sum.src0.view = sum.src1.view = image(whole, 1, 1, 2, 4);
  sum.dst = image(block, 1, 1, 2, 4, 64);
  sum.mask = image(inside, 1, 1, 2, 4, 64);
  sum.mask.format = Format::unorm8;
  run_on_processor(sum);
  bool is_kept = true;
  for (std::size_t i = 0; i < 8; ++i) is_kept = is_kept && floats_in(block)[16 + i] == 2 * values[i];
  report(is_kept, "results in blocks that overlap");
}

/// Problems are run or declined by their kind's number: adjacent commands are solved in different places.
void test_lists() {
  const auto a = device_memory(64 * sizeof(float)), b = device_memory(64 * sizeof(float));
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), -32.0f);
  a->upload(0, a->size(), values.data());
  std::vector<Command> commands;
  for (int i = 0; i < 20; ++i) {
    NeuronProblem linear;
    linear.neuron.type = NeuronType::linear, linear.neuron.a = i % 2 ? 2.0f : 0.5f;
    linear.src = image(i % 2 ? b : a, 1, 4, 4, 4), linear.dst = image(i % 2 ? a : b, 1, 4, 4, 4);
    commands.push_back({linear, "linear"});
    commands.push_back({BufferCopyProblem{i % 2 ? a : b, i % 2 ? b : a, 0, 0, 64 * sizeof(float)}, "copy"});
  }
  const Failure failure = execute(split(), commands);
  report(!failure && floats_in(a) == values && floats_in(b) == values, "lists: %s", failure.sentence.c_str());
}

/// A started list runs while the thread that started it goes on.
void test_two_phases() {
  const auto memory = device_memory(64), other = device_memory(64);
  const std::vector<Command> first = {{BufferFillProblem{memory, 0, 64, 1}, "fill"}};
  const std::vector<Command> second = {{BufferCopyProblem{memory, other, 0, 0, 64}, "copy"}};
  std::shared_ptr<void> stream;
  Execution one = Execution::start(split(), first, stream);
  Execution two = Execution::start(split(), second, stream);
  report(!one.is_done() && !two.is_done(), "start() returns before the work is done");
  report(!two.wait() && two.is_done() && !one.wait(), "wait() ends both");
  report(HostAccess(other, HostAccess::Mode::read).data()[63] == std::byte{1}, "lists run in order");
  bool was_there = false;
  const std::vector<Command> with_task = {
      {BufferFillProblem{memory, 0, 64, 2}, "fill"},
      {HostTask{[&] { was_there = HostAccess(memory, HostAccess::Mode::read).data()[0] == std::byte{2}; }}, "task"},
      {BufferFillProblem{memory, 0, 64, 3}, "fill"}};
  report(!execute(split(), with_task) && was_there, "the host sees what came before its task");
}

void test_failures() {
  const auto huge = device_memory(split().working_set_limit() + 1);
  const auto memory = device_memory(64);
  HostAccess(memory, HostAccess::Mode::write).data()[0] = std::byte{5};
  const Failure failure = execute(split(), {{BufferCopyProblem{memory, memory, 0, 32, 32}, "first"},
                                            {BufferFillProblem{huge, 0, 1, 0}, "second"},
                                            {BufferFillProblem{memory, 0, 64, 9}, "third"}});
  report(failure.code == FailureCode::out_of_memory &&
             failure.sentence.starts_with("second: the device is out of memory: " + std::to_string(huge->size()) +
                                          " bytes were requested, "),
         "the failed command is named: '%s'", failure.sentence.c_str());
  report(HostAccess(memory, HostAccess::Mode::read).data()[0] == std::byte{5}, "commands behind it are not run");
  report(!execute(split(), {{BufferFillProblem{memory, 0, 64, 9}, "later"}}), "later lists run");
}

/// A plan's memory is the device's, and is freed when the list has ended.
void test_arena() {
  const auto before = split().memory_use().allocated;
  Random random(1);
  std::vector<Command> commands;
  const auto in = device_memory(64 * sizeof(float)), out = device_memory(64 * sizeof(float));
  std::vector<float> values(64, 1.0f);
  in->upload(0, in->size(), values.data());
  {
    const auto between = device_memory(64 * sizeof(float));
    NeuronProblem first, second;
    first.neuron.type = second.neuron.type = NeuronType::linear;
    first.neuron.a = 2, second.neuron.a = 3;
    first.src = image(in, 1, 4, 4, 4), first.dst = image(between, 1, 4, 4, 4);
    second.src = first.dst, second.dst = image(out, 1, 4, 4, 4);
    commands = {{first, "first"}, {second, "second"}};
  }
  report(plan_for(split(), commands)->arena_bytes > 0, "temporary memory is placed");
  std::shared_ptr<void> stream;
  Execution execution = Execution::start(split(), commands, stream);
  report(!execution.wait(), "a list with temporary memory");
  values.assign(64, 6.0f);
  report(floats_in(out) == values, "its result");
  commands.clear();
  const auto held = split().memory_use().allocated;
  report(held - before <= 2 * 4096, "%llu bytes are in use then", static_cast<unsigned long long>(held - before));
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv,
                   {test_access, test_fault, test_staging, test_lists, test_two_phases, test_failures, test_arena});
}

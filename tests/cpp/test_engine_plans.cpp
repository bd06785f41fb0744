// SPDX-License-Identifier: Apache-2.0
// Memory of images, the null engine, and plans: what is fused, kept and cached.
//
//   test_engine_plans [seed offset]      prints "N passed, N failed"
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "engine_test.hpp"

namespace {

void test_memory() {
  const auto engine = cpu().shared_from_this();
  const auto before = engine->allocated_bytes();
  {
    const auto lazy = Memory::lazy(engine, 100000);
    const auto part = Memory::part(lazy, 4096, 100);
    report(!lazy->is_allocated() && !part->is_allocated() && engine->allocated_bytes() == before,
           "lazy memory is lazy");
    std::byte* data = part->data();
    report(lazy->is_allocated() && part->is_allocated() && data == lazy->data() + 4096, "a part allocates its parent");
    report(reinterpret_cast<std::uintptr_t>(lazy->data()) % 4096 == 0, "blocks are page-aligned");
    report(engine->allocated_bytes() >= before + 100000, "blocks in use are counted");
  }
  report(engine->allocated_bytes() == before, "blocks are given back");
  int released = 0;
  char mine[64];
  {
    auto wrapped = Memory::wrap(mine, sizeof(mine), [&] { ++released; });
    const auto part = Memory::part(wrapped, 8, 8);
    wrapped.reset();
    report(released == 0 && part->data() == reinterpret_cast<std::byte*>(mine) + 8, "a part keeps its parent alive");
  }
  report(released == 1, "release ran %d times", released);
  std::byte* first = engine->allocate(3000000);
  engine->deallocate(first, 3000000);
  std::byte* second = engine->allocate(2999000);
  report(first == second, "blocks are recycled");
  engine->deallocate(second, 2999000);
  int refused = 0;
  for (const std::uint64_t bytes :
       {engine->working_set_limit() + 1, std::uint64_t{1} << 62, ~std::uint64_t{0}, ~std::uint64_t{0} - 4095}) {
    try {
      engine->allocate(bytes);
    } catch (const std::bad_alloc&) {
      ++refused;
    }
  }
  report(refused == 4, "%d of 4 requests beyond the machine's memory are refused", refused);

  const auto huge = Memory::lazy(engine, engine->working_set_limit() + 1);
  const std::string error = execute(*engine, {{BufferFillProblem{huge, 0, 1, 0}, "Fill \"x\""}});
  report(error == "Fill \"x\": the device is out of memory.", "sentence for memory is '%s'", error.c_str());
  bool later = false;
  execute(*engine, {{BufferFillProblem{huge, 0, 1, 0}, ""}, {HostTask{[&] { later = true; }}, ""}});
  report(!later, "commands behind a failure are not run");
}

/// Other threads may hold the allocator's lock when the process is forked.
void test_fork() {
  Engine& engine = cpu();
  std::atomic<bool> ends = false;
  std::array<std::thread, 3> threads;
  for (auto& thread : threads) {
    thread = std::thread([&] {
      constexpr std::size_t kBytes = 300u << 20;  // more than is kept: mapped and unmapped under the lock
      while (!ends) engine.deallocate(engine.allocate(kBytes), kBytes);
    });
  }
  int good = 0, forks = 0;
  for (; forks < 200 && good == forks; ++forks) {
    std::byte* const block = engine.allocate(4096);
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);  // instead of waiting for ever
      engine.deallocate(block, 4096);
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    engine.deallocate(block, 4096);
  }
  ends = true;
  for (auto& thread : threads) thread.join();
  report(good == forks, "memory is freed in the child of fork %d", forks);
}

void test_null() {
  const auto null = engines().back();
  report(std::string(null->name()) == "null", "the null engine stands last");
  const auto memory = Memory::lazy(null, 5000);
  bool zero = true;
  for (std::size_t i = 0; i < 5000; ++i) zero = zero && memory->data()[i] == std::byte{0};
  report(zero, "the null engine's memory is zero");
}

void test_plans() {
  Random random(5);
  const auto make = [&](i64 stride, float slope, bool same) {
    const auto engine = cpu().shared_from_this();
    ImageView a;
    a.memory = Memory::lazy(engine, 4096), a.h = a.w = 4, a.c = 4, a.w_stride = 4, a.h_stride = 16, a.n_stride = 64;
    ImageView b = a;
    if (!same) b.memory = Memory::lazy(engine, 4096);
    b.offset = 1024;
    Window w;
    w.stride_h = stride;
    Neuron f;
    f.type = NeuronType::relu, f.a = slope;
    return std::vector<Command>{{ConvProblem{a, b, random_weights(random, 4, 1, 1, 4, 1, false), w, f, 1, false}, "x"}};
  };
  const auto key = structure_key(make(1, 0, false));
  report(key == structure_key(make(1, 0, false)), "equal structures have equal keys");
  report(key != structure_key(make(2, 0, false)), "the stride is part of the key");
  report(key != structure_key(make(1, 0.5f, false)), "the slope is part of the key");
  report(key != structure_key(make(1, 0, true)), "sharing memory is part of the key");
  const auto commands = make(1, 0, false);
  report(plan_for(commands) == plan_for(make(1, 0, false)), "plans are shared");
  const auto first = plan_for(commands);
  for (i64 i = 0; i < 300; ++i) plan_for(make(10 + i, 0, false));
  report(plan_for(commands) != first && plan_for(commands)->steps.size() == 1, "the cache of plans is bounded");
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv, {test_memory, test_fork, test_null, test_plans}); }

// SPDX-License-Identifier: Apache-2.0
// Memory of images, the null engine, and plans: fusion, placement and caching.
//
//   test_engine_plans [seed offset]      prints "N passed, N failed"
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>

#include "engine/plan/structure.hpp"
#include "engine_test.hpp"

namespace {

void test_memory() {
  const auto engine = cpu_engine().shared_from_this();
  const auto before = engine->memory_use().allocated;
  {
    const auto lazy = Memory::lazy(engine, 100000);
    const auto part = Memory::part(lazy, 4096, 100);
    report(!lazy->is_allocated() && !part->is_allocated() && engine->memory_use().allocated == before,
           "lazy memory is lazy");
    std::byte* data = part->data();
    report(lazy->is_allocated() && part->is_allocated() && data == lazy->data() + 4096, "a part allocates its parent");
    report(reinterpret_cast<std::uintptr_t>(lazy->data()) % 4096 == 0, "blocks are page-aligned");
    report(engine->memory_use().allocated >= before + 100000, "blocks in use are counted");
  }
  report(engine->memory_use().allocated == before, "blocks are given back");
  int released = 0;
  char mine[64];
  {
    auto wrapped = Memory::wrap(mine, sizeof(mine), [&] { ++released; });
    const auto part = Memory::part(wrapped, 8, 8);
    wrapped.reset();
    report(released == 0 && part->data() == reinterpret_cast<std::byte*>(mine) + 8, "a part keeps its parent alive");
  }
  report(released == 1, "release ran %d times", released);
  std::byte* first = engine->allocate(3000000, Storage::host);
  engine->deallocate(first, 3000000, Storage::host);
  std::byte* second = engine->allocate(2999000, Storage::host);
  report(first == second, "blocks are recycled");
  engine->deallocate(second, 2999000, Storage::host);
  int refused = 0;
  for (const std::uint64_t bytes :
       {engine->working_set_limit() + 1, std::uint64_t{1} << 62, ~std::uint64_t{0}, ~std::uint64_t{0} - 4095}) {
    try {
      engine->allocate(bytes, Storage::host);
    } catch (const std::bad_alloc&) {
      ++refused;
    }
  }
  report(refused == 4, "%d of 4 requests beyond the machine's memory are refused", refused);

  const auto huge = Memory::lazy(engine, engine->working_set_limit() + 1);
  const Failure failure = execute(*engine, {{BufferFillProblem{huge, 0, 1, 0}, "Fill \"x\""}});
  report(failure.sentence == "Fill \"x\": the device is out of memory: " + std::to_string(huge->size()) +
                                 " bytes were requested, " + std::to_string(engine->memory_use().allocated) +
                                 " bytes are in use.",
         "sentence for memory is '%s'", failure.sentence.c_str());
  report(failure.code == FailureCode::out_of_memory, "the code of that failure");
  bool later = false;
  execute(*engine, {{BufferFillProblem{huge, 0, 1, 0}, ""}, {HostTask{[&] { later = true; }}, ""}});
  report(!later, "commands behind a failure are not run");
}

/// Other threads may hold the allocator's lock when the process forks.
void test_fork() {
  Engine& engine = cpu_engine();
  std::atomic<bool> ends = false;
  std::array<std::thread, 3> threads;
  for (auto& thread : threads) {
    thread = std::thread([&] {
      constexpr std::size_t kBytes = 300u << 20;  // more than the cache keeps: mapped and unmapped under the lock
      while (!ends) engine.deallocate(engine.allocate(kBytes, Storage::host), kBytes, Storage::host);
    });
  }
  int good = 0, forks = 0;
  for (; forks < 200 && good == forks; ++forks) {
    std::byte* const block = engine.allocate(4096, Storage::host);
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);  // instead of waiting forever
      engine.deallocate(block, 4096, Storage::host);
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    engine.deallocate(block, 4096, Storage::host);
  }
  ends = true;
  for (auto& thread : threads) thread.join();
  report(good == forks, "memory is freed in the child of fork %d", forks);
}

void test_null() {
  const auto null = engine_of("null");
  report(null == engine_of("null") && engine_of("zz") == nullptr, "engines are made once");
  const auto memory = Memory::lazy(null, 5000);
  bool zero = true;
  for (std::size_t i = 0; i < 5000; ++i) zero = zero && memory->data()[i] == std::byte{0};
  report(zero, "the null engine's memory is zero");
}

struct Undescribed {
  ImageView src, dst;
  float forgotten = 0;

  static constexpr auto fields() {
    using P = Undescribed;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst));
  }
};
// field_list<Undescribed>() would not compile.
static_assert(detail::member_count<Undescribed>() == 3 && std::tuple_size_v<decltype(Undescribed::fields())> == 2);

std::string key_of(const Problem& problem) {
  std::vector<Command> commands(1);
  commands[0].problem = problem;
  return structure_key(commands);
}

/// Every problem describes all of its members, and those that are written are results.
void test_fields() {
  const auto names = [](const auto& problem) {
    std::string all;
    for_each_field(problem, [&](const auto& field, const auto&) {
      if (field.role == FieldRole::out || field.role == FieldRole::inout) all.append(field.name).append(" ");
    });
    return all;
  };
  const auto count_described = []<std::size_t... I>(std::index_sequence<I...>) {
    return (std::size_t{0} + ... + [] {
      using P = std::variant_alternative_t<I, Problem>;
      if constexpr (Described<P>) {
        const P problem;
        for_each_field(problem, [](const auto&, const auto&) {});
        return std::size_t{1};
      } else {
        return std::size_t{0};
      }
    }());
  };
  constexpr auto kinds = std::variant_size_v<Problem>;
  report(count_described(std::make_index_sequence<kinds>{}) == kinds - 1, "all problems but HostTask are described");
  report(names(NormalizeProblem{}) == "dst mean variance exact ", "statistics of a normalization are results");
  report(names(BinaryProblem{}) == "dst mask ", "the mask of an arithmetic is a result");

  const auto engine = cpu_engine().shared_from_this();
  const auto image = [&] { return ImageView{.memory = Memory::lazy(engine, 64)}; };
  const auto results = [](const auto& problem) {
    std::vector<const Memory*> all;
    for_each_result(problem, [&](const std::shared_ptr<Memory>& memory) {
      if (memory) all.push_back(memory.get());
    });
    return all;
  };
  LRNGradientProblem local;
  local.forward.src = image(), local.forward.dst = image(), local.diff_src = image();
  report(results(local) == std::vector<const Memory*>{local.diff_src.memory.get()},
         "the forward problem of a gradient is read only");
  LossProblem loss;
  loss.parts.resize(2);
  for (auto& part : loss.parts) part.src.view = image(), part.gradient = image(), part.loss = image();
  report(
      results(loss) == std::vector<const Memory*>{loss.parts[0].gradient.memory.get(), loss.parts[0].loss.memory.get(),
                                                  loss.parts[1].gradient.memory.get(), loss.parts[1].loss.memory.get()},
      "gradients and losses of all parts are results");

  LossProblem other = loss;
  report(other == loss, "copies of a problem are equal");
  other.parts[1].labels.start_h = 1;
  report(!(other == loss), "a nested value makes problems differ");
  ResampleProblem a, b;
  a.regions.resize(1), b.regions.resize(1);
  report(a == b && key_of(a) == key_of(b), "equal problems have equal keys");
  b.regions[0].h.start = 1;
  report(!(a == b) && key_of(a) == key_of(b), "values are no part of the key");
}

/// An engine that solves only convolutions: the processor solves everything else.
class Declining : public Engine {
 public:
  const char* name() const override { return "declining"; }
  std::string device_name() const override { return "declining device"; }
  std::uint64_t working_set_limit() const override { return cpu_engine().working_set_limit(); }
  std::byte* allocate(std::size_t bytes, Storage storage) override { return cpu_engine().allocate(bytes, storage); }
  void deallocate(std::byte* data, std::size_t bytes, Storage storage) noexcept override {
    cpu_engine().deallocate(data, bytes, storage);
  }
  MemoryUse memory_use() const override { return cpu_engine().memory_use(); }
  void reset_peak_bytes() override { cpu_engine().reset_peak_bytes(); }
  void free_cached_bytes() override { cpu_engine().free_cached_bytes(); }
  bool try_run(const Problem& problem) override {
    if (!std::holds_alternative<ConvProblem>(problem)) return false;
    ++solved;
    return cpu_engine().try_run(problem);
  }
  void synchronize() override { ++waits; }

  int solved = 0, waits = 0;
};

void test_declined_problems() {
  Random random(3);
  const auto engine = std::make_shared<Declining>();
  const auto image = [&] {
    return ImageView{
        .memory = Memory::lazy(engine, 1024), .h = 4, .w = 4, .c = 4, .n_stride = 64, .h_stride = 16, .w_stride = 4};
  };
  const ImageView src = image(), middle = image(), dst = image();
  auto* const values = reinterpret_cast<float*>(src.memory->data());
  for (i64 i = 0; i < 64; ++i) values[i] = static_cast<float>(i) - 32;
  Neuron relu;
  relu.type = NeuronType::relu;
  PoolProblem pool;
  pool.src = src, pool.dst = middle;
  ConvProblem conv{middle, dst, random_weights(random, 4, 1, 1, 4, 1, false), {}, {}, 1, false};
  NeuronProblem activation;
  activation.src = activation.dst = dst, activation.neuron = relu;
  std::vector<Command> commands(3);
  commands[0].problem = pool, commands[1].problem = conv, commands[2].problem = activation;
  const std::string error = execute(*engine, commands, make_plan(*engine, commands, /*fused=*/false)).sentence;
  float expected = 0;  // of the first pixel, which a 1 x 1 window leaves unchanged
  for (std::size_t i = 0; i < 4; ++i) expected += conv.weights->values[i] * values[i];
  const float found = *reinterpret_cast<const float*>(dst.memory->data());
  report(error.empty() && engine->solved == 1 && engine->waits >= 2, "an engine may decline problems: %s",
         error.c_str());
  report(std::fabs(found - std::max(expected, 0.0f)) < 1e-4f, "the processor solves them in their place: %g, not %g",
         found, expected);
}

void test_plans() {
  Random random(5);
  const auto make = [&](i64 stride, float slope, bool same) {
    const auto engine = cpu_engine().shared_from_this();
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
  report(plan_for(engine(), commands) == plan_for(engine(), make(1, 0, false)), "plans are shared");
  const auto first = plan_for(engine(), commands);
  for (i64 i = 0; i < 300; ++i) plan_for(engine(), make(10 + i, 0, false));
  report(plan_for(engine(), commands) != first && plan_for(engine(), commands)->steps.size() == 1,
         "the cache of plans is bounded");
}

/// Return a float32 image without gaps, of equal extents.
ImageView cube(const std::shared_ptr<Engine>& engine, i64 side) {
  return {.memory = Memory::lazy(engine, static_cast<std::size_t>(side * side * side) * sizeof(float)),
          .h = side,
          .w = side,
          .c = side,
          .n_stride = side * side * side,
          .h_stride = side * side,
          .w_stride = side};
}

/// An engine that computes results again for late readers, or does not.
class Recomputing final : public Declining {
 public:
  explicit Recomputing(bool again = true) : again_(again) {}
  bool recomputes() const override { return again_; }
  bool try_run(const Problem& problem) override { return cpu_engine().try_run(problem); }

 private:
  const bool again_;
};

enum class Between : std::uint8_t { nothing, write, host_task };

/// Two activations in a row whose results are read at once and, like their source, after many others.
std::vector<Command> late_readers(const std::shared_ptr<Engine>& engine, const ImageView& input,
                                  const ImageView& output, Between between) {
  const auto image = [&] {
    ImageView view = input;
    view.memory = Memory::lazy(engine, input.memory->size());
    return view;
  };
  const auto neuron = [](NeuronType type) {
    Neuron result;
    result.type = type, result.a = result.b = 1;
    return result;
  };
  std::vector<Command> commands;
  const auto add = [&](Problem problem) { commands.push_back({std::move(problem), ""}); };
  const ImageView first = image(), second = image(), start = image();
  add(NeuronProblem{input, first, neuron(NeuronType::tanh)});
  add(NeuronProblem{first, second, neuron(NeuronType::relu)});
  add(NeuronProblem{second, start, neuron(NeuronType::sigmoid)});
  if (between == Between::host_task) add(HostTask{[] {}});
  std::vector<ImageView> terms;
  for (int i = 0; i < 5; ++i) {
    terms.push_back(image());
    add(NeuronProblem{start, terms.back(), neuron(i % 2 ? NeuronType::absolute : NeuronType::tanh)});
  }
  while (terms.size() > 1) {
    const ImageView sum = image();
    add(BinaryProblem{{terms[0]}, {terms[1]}, sum, {}});
    terms.erase(terms.begin(), terms.begin() + 2);
    terms.push_back(sum);
  }
  const ImageView gradient = image();
  if (between == Between::write) add(NeuronProblem{terms[0], input, {}});
  add(NeuronGradientProblem{{terms[0]}, {second}, gradient, neuron(NeuronType::sigmoid)});
  add(NeuronGradientProblem{{gradient}, {first}, output, neuron(NeuronType::relu)});
  return commands;
}

/// Recomputed results: the memory that they save, and lists that have none.
void test_recomputation() {
  const auto engine = std::make_shared<Recomputing>();
  constexpr i64 kSide = 64;
  constexpr std::size_t kBytes = kSide * kSide * kSide * sizeof(float);
  const auto image = [&] { return cube(engine, kSide); };
  const auto again = [](const Plan& plan) {
    std::vector<std::uint32_t> commands;
    for (const auto& step : plan.steps)
      if (step.is_again) commands.push_back(step.commands.front());
    return commands;
  };
  const auto fill = [](const ImageView& view) {
    Random random(8);
    auto* const values = reinterpret_cast<float*>(view.memory->data());
    for (i64 i = 0; i < view.size(); ++i) values[i] = random.real(-2, 2);
  };
  for (const Between between : {Between::nothing, Between::write, Between::host_task}) {
    const ImageView input = image(), output = image(), expected = image();
    fill(input);
    const auto plain = late_readers(engine, input, expected, between);
    const auto without = make_plan(Recomputing(false), plain, /*fused=*/false);
    const std::string first_error = execute(*engine, plain, without).sentence;
    fill(input);
    const auto commands = late_readers(engine, input, output, between);
    const auto plan = make_plan(*engine, commands, /*fused=*/false);
    const std::string error = execute(*engine, commands, plan).sentence;
    report(error.empty() && first_error.empty(), "lists with late readers run: %s", error.c_str());
    report(std::memcmp(output.memory->data(), expected.memory->data(), kBytes) == 0,
           "results that are computed again are equal to the last bit");
    report(again(*without).empty(), "other engines compute once");
    report(again(*make_plan(cpu_engine(), plain, /*fused=*/false)) == again(*plan), "the CPU engine computes again");
    const auto found = again(*plan);
    using Commands = std::vector<std::uint32_t>;
    switch (between) {
      case Between::nothing:
        report(found == Commands{0, 1}, "both activations run again, in order: %zu", found.size());
        report(without->arena_bytes == 8 * kBytes && plan->arena_bytes == 6 * kBytes, "their memory is free: %zu, %zu",
               without->arena_bytes / kBytes, plan->arena_bytes / kBytes);
        break;
      case Between::write:
        report(found == Commands{1}, "a source that is written in between is not read again: %zu", found.size());
        break;
      case Between::host_task: report(found.empty(), "a host task may write anything: %zu", found.size()); break;
    }
  }
}

/// An engine whose gradients read rectified sums in place of masks.
class Masking final : public Declining {
 public:
  bool masks_by_results() const override { return true; }
  bool try_run(const Problem& problem) override {
    if (const auto* const p = std::get_if<BinaryGradientProblem>(&problem)) masks.push_back(p->mask.view.format);
    return cpu_engine().try_run(problem);
  }
  std::vector<Format> masks;
};

enum class MaskUse : std::uint8_t { gradient, copy_too, result_is_written, bounded_sum };

/// Masks of rectified sums that need no memory, and those that stay.
void test_masks() {
  constexpr i64 kSide = 16;
  const auto list = [&](const std::shared_ptr<Engine>& engine, MaskUse use, const ImageView& src,
                        const ImageView& out) {
    const auto image = [&](Format format) {
      ImageView view = src;
      view.format = format, view.memory = Memory::lazy(engine, static_cast<std::size_t>(src.size()) * size_of(format));
      return view;
    };
    const ImageView sum = image(Format::float32), mask = image(Format::unorm8), other = image(Format::float32);
    std::vector<Command> commands;
    const auto add = [&](Problem problem) { commands.push_back({std::move(problem), ""}); };
    Arithmetic rectified;
    rectified.min = 0;
    if (use == MaskUse::bounded_sum) rectified.max = 1;
    Neuron tanh;
    tanh.type = NeuronType::tanh, tanh.a = tanh.b = 1;
    add(BinaryProblem{{src}, {src}, sum, rectified, mask});
    add(NeuronProblem{sum, other, tanh});
    if (use == MaskUse::copy_too) add(CopyProblem{mask, image(Format::float32)});
    if (use == MaskUse::result_is_written) add(NeuronProblem{other, sum, tanh});
    BinaryGradientProblem gradient;
    gradient.diff_dst = {other}, gradient.mask = {mask}, gradient.diff_src = out;
    add(gradient);
    return commands;
  };
  for (const MaskUse use : {MaskUse::gradient, MaskUse::copy_too, MaskUse::result_is_written, MaskUse::bounded_sum}) {
    const auto engine = std::make_shared<Masking>();
    const auto image = [&] { return cube(engine, kSide); };
    const ImageView src = image(), found = image(), expected = image();
    Random random(11);
    for (i64 i = 0; i < src.size(); ++i)
      reinterpret_cast<float*>(src.memory->data())[i] = i % 5 ? random.real(-1, 1) : 0.0f;
    const auto plain = list(engine, use, src, expected), commands = list(engine, use, src, found);
    const auto without = make_plan(*engine, plain, /*fused=*/false),
               plan = make_plan(*engine, commands, /*fused=*/true);
    const std::string first_error = execute(*engine, plain, without).sentence;
    engine->masks.clear();
    const std::string error = execute(*engine, commands, plan).sentence;
    report(error.empty() && first_error.empty(), "lists with masks run: %s", error.c_str());
    report(std::memcmp(found.memory->data(), expected.memory->data(), found.memory->size()) == 0,
           "gradients are equal whatever masks them: %d", static_cast<int>(use));
    const bool is_dropped = use == MaskUse::gradient;
    report(engine->masks == std::vector<Format>{is_dropped ? Format::float32 : Format::unorm8},
           "the gradient's mask is the sum only if nothing else may read or write them: %d", static_cast<int>(use));
    if (is_dropped)
      report(plan->arena_bytes + static_cast<std::size_t>(src.size()) <= without->arena_bytes + 256,
             "the mask has no memory: %zu, %zu", plan->arena_bytes, without->arena_bytes);
  }
}

/// An engine that stores results between convolutions as bfloat16.
class Narrowing final : public Declining {
 public:
  bool narrows() const override { return true; }
  bool fuses(const ConvProblem&, const Problem&) const override { return false; }
  bool try_run(const Problem& problem) override { return cpu_engine().try_run(problem); }
};

/// Lists of kernels, one after the other, and which of the results between them are narrow. Letters: c and C are
/// convolutions, the second one allows reduced precision; A is like C, and adds the result before; b and B are gradients
/// of convolutions by their source, likewise; d is the one of a depth-wise convolution that allows it; m, a: max and
/// average pooling; n: instance normalization; s: a normalization, and the sum with the image before its source; t: tanh;
/// g: its gradient; i: tanh of the list's input; r: ReLU; p: padding with ones; l: local response normalization, which
/// needs float32.
void test_narrowing() {
  constexpr i64 kSide = 16;
  Random random(17);
  const auto weights = random_weights(random, kSide, 1, 1, kSide, 1, true);
  const auto depthwise = random_weights(random, kSide, 1, 1, 1, kSide, false);
  const auto engine = std::make_shared<Narrowing>();
  const auto image = [&] { return cube(engine, kSide); };
  const ChannelValues ones{Memory::lazy(engine, kSide * sizeof(float))};
  std::fill_n(reinterpret_cast<float*>(ones.memory->data()), kSide, 1.0f);
  const auto make = [&](const std::string& letters, const ImageView& input, const ImageView& output) {
    std::vector<Command> commands;
    std::vector<ImageView> images = {input};
    Neuron tanh, relu;
    tanh.type = NeuronType::tanh, tanh.a = tanh.b = 1;
    relu.type = NeuronType::relu;
    const auto add = [&](Problem problem) { commands.push_back({std::move(problem), ""}); };
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const ImageView src = images.back(), dst = i + 1 == letters.size() ? output : image();
      ConvProblem conv{src, dst, weights, {}, {}, 1, letters[i] != 'c'};
      PoolProblem pool{src, dst, letters[i] == 'm' ? PoolType::max : PoolType::average, {}};
      PadProblem pad{src, dst, -1, 0, 0, PadEdge::constant, 1.0f};
      if (letters[i] == 'A') conv.addend = images[images.size() - 2];
      switch (letters[i]) {
        case 'm':
        case 'a': add(pool); break;
        case 't': add(NeuronProblem{src, dst, tanh}); break;
        case 'i': add(NeuronProblem{input, dst, tanh}); break;
        case 'r': add(NeuronProblem{src, dst, relu}); break;
        case 'p': add(pad); break;
        case 'n': add(NormalizeProblem{.src = {src}, .dst = dst, .gamma = ones, .beta = ones, .groups = kSide}); break;
        case 's': {
          NormalizeAddProblem sum;
          sum.src.view = src, sum.addend.view = images[images.size() - 2], sum.dst = dst;
          sum.gamma = sum.beta = sum.mean = sum.variance = ones;
          add(sum);
          break;
        }
        case 'g': add(NeuronGradientProblem{{src}, {src}, dst, tanh}); break;
        case 'l': add(LRNProblem{.src = src, .dst = dst}); break;
        case 'b':
        case 'B':
        case 'd': {
          ConvGradientProblem gradient;
          gradient.diff_dst = gradient.src = src, gradient.diff_src = dst, gradient.src.memory = nullptr;
          gradient.weights = letters[i] == 'd' ? depthwise : weights;
          gradient.reduced_precision = letters[i] != 'b';
          add(gradient);
          break;
        }
        default: add(conv);
      }
      images.push_back(dst);
    }
    return commands;
  };
  struct Case {
    const char *letters, *narrow, *why;  ///< 1: the result of this kernel is narrow
  };
  const Case cases[] = {
      {"CC", "10", "the result of a convolution"},
      {"cC", "10", "its reader rounds it anyway"},
      {"Cc", "10", "its writer may round it"},
      {"cc", "00", "nothing allows it"},
      {"tC", "10", "read by a convolution alone"},
      {"tA", "10", "what is added is an input of the list, which stays float32"},
      {"ttA", "010", "what is added is read by another kernel, too"},
      {"tiA", "010", "what is added is not rounded by the convolution"},
      {"CtA", "110", "what is added may be rounded by its writer"},
      {"Ct", "10", "converted by its reader"},
      {"tmC", "110", "selected values, rounded by the reader"},
      {"Cmt", "110", "selected values, rounded by the writer"},
      {"Crt", "110", "the same"},
      {"tmtC", "0010", "selected values of a result that is not rounded"},
      {"Cat", "110", "the average of rounded values is rounded, too"},
      {"taC", "010", "an average that its reader rounds; its source keeps its digits"},
      {"tat", "000", "nothing allows it"},
      {"CaC", "110", "read by a convolution alone"},
      {"CnC", "110", "the same"},
      {"Cpt", "100", "the padding may have digits of its own"},
      {"CgC", "110", "read and written by the gradient of an activation"},
      {"tBt", "110", "read and written by the gradient of a convolution"},
      {"tbt", "000", "nothing allows it"},
      {"Ctb", "100", "read by the gradient of a convolution that does not allow it"},
      {"Cdt", "100", "the gradient of a depth-wise convolution rounds nothing"},
      {"CCst", "1110", "a residual sum is rounded as its source"},
      {"tCst", "0110", "what is added is not rounded by the sum"},
      {"ttst", "0000", "nothing allows it"},
      {"ClC", "000", "read by a kernel that needs float32, and written by it"},
  };
  for (const Case& each : cases) {
    const std::string letters = each.letters;
    const ImageView input = image(), output = image(), expected = image();
    for (i64 i = 0; i < input.size(); ++i) reinterpret_cast<float*>(input.memory->data())[i] = random.real(-1, 1);
    std::string found;
    const auto commands = make(letters, input, output);
    const auto plan = make_plan(*engine, commands, /*fused=*/true);
    const Structure structure = describe(commands);
    const BlockIndex index(structure);
    for (const Command& command : commands)
      std::visit(
          [&](const auto& problem) {
            if constexpr (Described<std::decay_t<decltype(problem)>>)
              for_each_result(problem, [&](const std::shared_ptr<Memory>& memory) {
                if (memory) found += std::ranges::count(plan->narrowed, index.of(memory.get())) ? '1' : '0';
              });
          },
          command.problem);
    report(found == each.narrow, "%s: narrow are %s, not %s: %s", each.letters, found.c_str(), each.narrow, each.why);
    const auto plain = make(letters, input, expected);
    const std::string error = execute(*engine, commands, plan).sentence +
                              execute(*engine, plain, make_plan(*engine, plain, /*fused=*/false)).sentence;
    report(error.empty(), "%s runs: %s", each.letters, error.c_str());
    const auto value = [](const ImageView& view, i64 i) { return reinterpret_cast<float*>(view.memory->data())[i]; };
    float size = 0, difference = 0;
    for (i64 i = 0; i < output.size(); ++i) {
      size = std::fmax(size, std::fabs(value(expected, i)));
      difference = std::fmax(difference, std::fabs(value(output, i) - value(expected, i)));
    }
    report(difference <= 0.03f * size, "%s: %g of %g", each.letters, static_cast<double>(difference),
           static_cast<double>(size));
    if (letters != "CC") continue;
    const auto arena = make_plan(*engine, plain, /*fused=*/false)->arena_bytes;
    report(plan->arena_bytes == arena / 2, "narrow results take half of the memory: %zu, %zu", plan->arena_bytes, arena);
    // Memory that others read, that was written before, or that is part of another block.
    std::get<ConvProblem>(commands[0].problem).dst.memory->data();
    report(make_plan(*engine, commands, /*fused=*/true)->narrowed.empty(), "memory with contents stays float32");
    const auto again = make(letters, input, output);
    const std::shared_ptr<Memory> kept = std::get<ConvProblem>(again[0].problem).dst.memory;
    report(make_plan(*engine, again, /*fused=*/true)->narrowed.empty(), "memory that the program keeps stays float32");
    report(make_plan(cpu_engine(), make(letters, input, output), /*fused=*/false)->narrowed.empty(),
           "nothing is narrow without fusion");
  }
}

/// An engine that notes which gradients of convolutions are asked for.
class Noting final : public Declining {
 public:
  bool try_run(const Problem& problem) override {
    if (const auto* const p = std::get_if<ConvGradientProblem>(&problem)) note(*p);
    if (const auto* const p = std::get_if<TransposeGradientProblem>(&problem)) note(*p);
    return cpu_engine().try_run(problem);
  }
  std::vector<bool> with_bias;  ///< of each

 private:
  void note(const ConvGradientProblem& p) {
    with_bias.push_back(p.diff_bias.memory != nullptr);
    report(p.diff_weights.memory != nullptr, "gradients of weights are kept");
  }
};

enum class Reader : std::uint8_t { nothing, program, command, next_list };

/// Gradients of biases that nothing reads are not computed.
void test_unread_gradients() {
  constexpr i64 kSide = 3, kChannels = 4;
  Random random(9);
  const auto weights = random_weights(random, kChannels, 1, 1, kChannels, 1, false);
  const auto run_list = [&](Reader reader, bool is_transpose, bool fused) {
    const auto engine = std::make_shared<Noting>();
    const auto memory = [&](std::size_t floats) { return Memory::lazy(engine, floats * sizeof(float)); };
    const auto image = [&] {
      ImageView view{.memory = memory(kSide * kSide * kChannels),
                     .h = kSide,
                     .w = kSide,
                     .c = kChannels,
                     .n_stride = kSide * kSide * kChannels,
                     .h_stride = kSide * kChannels,
                     .w_stride = kChannels};
      for (i64 i = 0; i < view.size(); ++i) reinterpret_cast<float*>(view.memory->data())[i] = 1;
      return view;
    };
    TransposeGradientProblem p;
    p.diff_dst = image(), p.src = image();
    p.weights = weights;
    p.diff_weights.memory = memory(kChannels * kChannels);
    p.diff_bias.memory = memory(kChannels);
    const std::shared_ptr<Memory> sums = memory(kChannels),
                                  kept = reader == Reader::program ? p.diff_bias.memory : sums;
    std::vector<Command> commands;
    for (const bool again : {false, true}) {  // the second adds to the sums of the first
      p.accumulates = again;
      commands.push_back({is_transpose ? Problem(p) : Problem(static_cast<const ConvGradientProblem&>(p)), ""});
    }
    if (reader == Reader::command)
      commands.push_back({BufferCopyProblem{p.diff_bias.memory, sums, 0, 0, kChannels * sizeof(float)}, ""});
    std::vector<Command> next;
    if (reader == Reader::next_list) {
      next.push_back({BufferCopyProblem{p.diff_bias.memory, sums, 0, 0, kChannels * sizeof(float)}, ""});
    }
    p = {};
    const std::string error = execute(*engine, commands, make_plan(*engine, commands, fused)).sentence;
    commands.clear();
    const std::string next_error = execute(*engine, next).sentence;
    report(error.empty() && next_error.empty(), "lists with gradients run: %s%s", error.c_str(), next_error.c_str());
    if (reader != Reader::nothing)
      for (i64 i = 0; i < kChannels; ++i)
        report(reinterpret_cast<const float*>(kept->data())[i] == 2 * kSide * kSide,
               "gradients of biases that are read");
    return engine->with_bias;
  };
  using Both = std::vector<bool>;
  for (const bool is_transpose : {false, true}) {
    report(run_list(Reader::nothing, is_transpose, true) == Both{false, false}, "nothing reads them");
    report(run_list(Reader::nothing, is_transpose, false) == Both{true, true}, "each command alone");
    for (const Reader reader : {Reader::program, Reader::command, Reader::next_list})
      report(run_list(reader, is_transpose, true) == Both{true, true}, "something reads them");
  }
}

/// A repeated list with other operands in each run; a run that fails gives its memory back, and the next one computes.
void test_operands() {
  constexpr i64 kValues = 4 * 4 * 8;
  const auto engine = openmps::engine_of("cpu");
  const auto view = [](std::shared_ptr<Memory> memory) {
    ImageView image;
    image.memory = std::move(memory);
    image.format = Format::float32;
    image.n = 1, image.h = 4, image.w = 4, image.c = 8;
    image.w_stride = 8, image.h_stride = 32, image.n_stride = kValues;
    return image;
  };
  const auto wrapped = [](std::vector<float>& values) { return Memory::wrap(values.data(), values.size() * 4, {}); };
  const auto weights = std::make_shared<ConvWeights>();
  weights->out_channels = 8, weights->kernel_h = weights->kernel_w = 1, weights->in_channels_per_group = 8;
  weights->values = Floats::await(64);
  bool fails = true;
  weights->values.leave([&](float* values) {
    if (fails) throw std::runtime_error("no weights yet");
    for (int i = 0; i < 64; ++i) values[i] = i % 9 == 0 ? 2.0f : 0.0f;
  });

  std::vector<float> first(kValues, -1), second(kValues, 3), results[2];
  for (auto& each : results) each.assign(kValues, 0);
  RepeatedList::Operands operands = {wrapped(first), wrapped(results[0])};
  std::vector<Command> commands;
  {
    const ImageView middle = view(Memory::lazy(engine, kValues * 4));
    NeuronProblem neuron{view(operands[0]), middle, {}};
    neuron.neuron.type = NeuronType::relu;
    ConvProblem conv;
    conv.src = middle, conv.dst = view(operands[1]), conv.weights = weights;
    commands = {{neuron, "neuron"}, {conv, "conv"}};
  }
  RepeatedList list(std::move(commands), engine.get(), operands);
  std::shared_ptr<void> stream;
  auto before = engine->memory_use().allocated;
  const std::string error = Execution::start(*engine, list, operands, stream).wait().sentence;
  report(error.find("no weights yet") != std::string::npos, "the first run fails: %s", error.c_str());
  report(engine->memory_use().allocated == before, "it gives its memory back");
  fails = false;
  for (int run = 0; run < 4; ++run) {
    operands = {wrapped(run % 2 ? second : first), wrapped(results[run % 2])};
    const std::string none = Execution::start(*engine, list, operands, stream).wait().sentence;
    if (run == 0) before = engine->memory_use().allocated;  // with packed weights
    report(none.empty() && engine->memory_use().allocated == before, "run %d: %s", run, none.c_str());
  }
  report(results[0] == std::vector<float>(kValues, 0) && results[1] == std::vector<float>(kValues, 6), "results");
  const auto given = list.commands(operands);
  report(std::get<NeuronProblem>(given[0].problem).src.memory == operands[0] &&
             std::get<ConvProblem>(given[1].problem).dst.memory == operands[1],
         "commands with operands");
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv,
                   {test_memory, test_fork, test_null, test_fields, test_declined_problems, test_plans,
                    test_recomputation, test_masks, test_narrowing, test_unread_gradients, test_operands});
}

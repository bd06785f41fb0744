// SPDX-License-Identifier: Apache-2.0
// Fusion and placement in plans: each list is run by its plan, by a plan without fusion, and with all of its memory
// held by the test, so that nothing may be fused or placed.
//
//   test_engine_fusion [seed offset]      prints "N passed, N failed"
#include <array>
#include <cstring>
#include <functional>
#include <limits>

#include "engine_test.hpp"

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

ImageView dense_view(std::shared_ptr<Memory> memory, i64 n, i64 h, i64 w, i64 c, Format format = Format::float32) {
  ImageView view;
  view.memory = std::move(memory);
  view.format = format;
  view.n = n, view.h = h, view.w = w, view.c = c;
  view.w_stride = c, view.h_stride = w * c, view.n_stride = h * w * c;
  return view;
}

ImageView temporary(i64 n, i64 h, i64 w, i64 c, Format format = Format::float32) {
  const auto bytes = static_cast<std::size_t>(n * h * w * c) * size_of(format);
  return dense_view(Memory::lazy(engine().shared_from_this(), bytes, engine().image_storage()), n, h, w, c, format);
}

Arithmetic bounded(float min, float max) {
  Arithmetic f;
  f.min = min, f.max = max;
  return f;
}

Neuron relu() {
  Neuron f;
  f.type = NeuronType::relu;
  return f;
}

// ---------------------------------------------------------------------------------------------------------- structure

constexpr i64 kSide = 6, kChannels = 16;

/// source -> conv 0 -> t0 -> conv 1 -> t1; t1 + addend -> result. Each case changes one thing.
struct Parts {
  ImageView source = temporary(1, kSide, kSide, kChannels), t0 = temporary(1, kSide, kSide, kChannels);
  ImageView t1 = temporary(1, kSide, kSide, kChannels), result = temporary(1, kSide, kSide, kChannels);
  ConvProblem first, second;
  BinaryProblem sum;
  std::vector<Command> between, after;
  std::vector<std::shared_ptr<Memory>> held;

  Parts() {
    Random random(1);
    first.src = source, first.dst = t0;
    second.src = t0, second.dst = t1;
    // Separate weights: convolutions with the same weights may be parts of a batch.
    first.weights = random_weights(random, kChannels, 1, 1, kChannels, 1, true);
    second.weights = random_weights(random, kChannels, 1, 1, kChannels, 1, true);
    sum.src0.view = t1, sum.src1.view = t0;
    sum.dst = result;
    held = {source.memory, result.memory};
  }
};

/// Only the commands keep the memory, except for `held`.
std::vector<Command> commands_of(Parts& parts) {
  std::vector<Command> commands = {{parts.first, "first"}, {parts.second, "second"}};
  for (Command& command : parts.between) commands.push_back(std::move(command));
  commands.push_back({parts.sum, "sum"});
  for (Command& command : parts.after) commands.push_back(std::move(command));
  const auto held = std::move(parts.held);
  parts = Parts();
  parts.held = held;
  return commands;
}

NeuronProblem neuron_problem(const ImageView& src, const ImageView& dst, NeuronType type) {
  NeuronProblem problem{src, dst, {}};
  problem.neuron.type = type;
  return problem;
}

void expect(const char* what, const std::function<void(Parts&)>& change, const std::vector<std::uint32_t>& fused) {
  Parts parts;
  change(parts);
  const auto commands = commands_of(parts);
  const auto plan = make_plan(engine(), commands, true);
  std::vector<std::uint32_t> longest, all;
  for (const auto& step : plan->steps) {
    if (step.commands.size() > longest.size()) longest = step.commands;
    all.insert(all.end(), step.commands.begin(), step.commands.end());
  }
  std::string text;
  for (const auto command : longest) text += " " + std::to_string(command);
  report(fused.size() > 1 ? longest == fused : longest.size() == 1, "%s: fused are%s", what, text.c_str());
  report(all.size() == commands.size(), "%s: %zu of %zu commands are in the plan", what, all.size(), commands.size());
  report(make_plan(engine(), commands, false)->steps.size() == commands.size(), "%s: without fusion", what);
}

void test_what_is_fused() {
  const std::vector<std::uint32_t> both = {1, 2}, none = {};
  expect("sum", [](Parts&) {}, both);
  expect("sum, operands swapped", [](Parts& p) { std::swap(p.sum.src0, p.sum.src1); }, both);
  expect("ReLU behind", [](Parts& p) { p.sum.function = bounded(0, kInfinity); }, both);
  expect("ReLU6 behind", [](Parts& p) { p.sum.function = bounded(0, 6); }, both);
  expect("ReLU before", [](Parts& p) { p.second.neuron = relu(); }, both);
  expect("result that others know", [](Parts& p) { p.held.push_back(p.result.memory); }, both);
  expect(
      "addend that others know",
      [](Parts& p) {
        p.sum.src1.view = temporary(1, kSide, kSide, kChannels);
        p.held.push_back(p.sum.src1.view.memory);
      },
      both);
  expect("addend made between, as by a projection",
         [](Parts& p) {
           ConvProblem projection = p.first;
           projection.src = p.source;
           projection.dst = p.sum.src1.view = temporary(1, kSide, kSide, kChannels);
           p.between.push_back({projection, "projection"});
         },
         {1, 3});
  expect("neuron behind the sum",
         [](Parts& p) {
           const ImageView end = temporary(1, kSide, kSide, kChannels);
           p.held = {p.source.memory, end.memory};
           p.after.push_back({neuron_problem(p.result, end, NeuronType::tanh), "neuron"});
         },
         {1, 2, 3});

  expect(
      "slopes by channel behind the sum",
      [](Parts& p) {
        const ImageView end = temporary(1, kSide, kSide, kChannels);
        p.held = {p.source.memory, end.memory};
        auto problem = neuron_problem(p.result, end, NeuronType::prelu);
        problem.neuron.a_per_channel = std::make_shared<const std::vector<float>>(kChannels, 0.5f);
        p.after.push_back({problem, "neuron"});
      },
      both);

  expect("other bounds", [](Parts& p) { p.sum.function = bounded(-1, kInfinity); }, none);
  expect("upper bound alone", [](Parts& p) { p.sum.function = bounded(-kInfinity, 6); }, none);
  expect("scale", [](Parts& p) { p.sum.function.scale1 = 2; }, none);
  expect("bias", [](Parts& p) { p.sum.function.bias = 1; }, none);
  expect("difference", [](Parts& p) { p.sum.function.operation = BinaryOperation::subtract; }, none);
  expect("intermediate that others know", [](Parts& p) { p.held.push_back(p.t1.memory); }, none);
  expect("intermediate read twice by the sum", [](Parts& p) { p.sum.src1.view = p.t1; }, none);
  expect(
      "intermediate read by a later command",
      [](Parts& p) {
        p.after.push_back({neuron_problem(p.t1, temporary(1, kSide, kSide, kChannels), NeuronType::tanh), "later"});
      },
      none);
  expect(
      "intermediate read by a command between",
      [](Parts& p) {
        p.between.push_back({neuron_problem(p.t1, temporary(1, kSide, kSide, kChannels), NeuronType::tanh), "between"});
      },
      none);
  expect(
      "intermediate that holds more than is read",
      [](Parts& p) {
        p.sum.src0.view = p.t1.region(1, 0, kSide - 1, kSide);
        p.sum.src1.view = p.t0.region(0, 0, kSide - 1, kSide);
        p.sum.dst = p.result.region(0, 0, kSide - 1, kSide);
      },
      none);
  expect(
      "sum of a part of the intermediate",
      [](Parts& p) {
        p.sum.src0.start_h = 1;
        p.sum.dst = p.result.region(0, 0, kSide - 1, kSide);
      },
      none);
  expect(
      "intermediate of halves",
      [](Parts& p) {
        p.t1 = temporary(1, kSide, kSide, kChannels, Format::float16);
        p.second.dst = p.sum.src0.view = p.t1;
      },
      none);
  expect(
      "addend of halves", [](Parts& p) { p.sum.src1.view = temporary(1, kSide, kSide, kChannels, Format::float16); },
      none);
  expect(
      "addend repeated",
      [](Parts& p) {
        p.sum.src1.view = temporary(1, 1, kSide, kChannels);
        p.sum.src1.repeat_h = true;
      },
      none);
  expect(
      "intermediate repeated",
      [](Parts& p) {
        p.t1 = temporary(1, 1, kSide, kChannels);
        p.second.src = p.t0.region(0, 0, 1, kSide);
        p.second.dst = p.sum.src0.view = p.t1;
        p.sum.src0.repeat_h = true;
      },
      none);
  expect(
      "addend of which a part is read",
      [](Parts& p) {
        p.sum.src1.view = temporary(1, kSide + 1, kSide, kChannels);
        p.sum.src1.start_h = 1;
      },
      none);
  expect(
      "result in the convolution's source",
      [](Parts& p) {
        p.second.src = p.sum.dst = temporary(1, kSide, kSide, kChannels);
        p.sum.src1.view = temporary(1, kSide, kSide, kChannels);
        p.held = {p.sum.dst.memory};
      },
      none);
  expect("host between", [](Parts& p) { p.between.push_back({HostTask{}, "host"}); }, none);
  expect(
      "source changed between",
      [](Parts& p) {
        p.between.push_back({CopyProblem{p.source, p.t0}, "copy"});
        p.sum.src1.view = temporary(1, kSide, kSide, kChannels);
      },
      none);
  expect(
      "pixels rearranged by the convolution",
      [](Parts& p) {
        Random random(2);
        p.second.weights = random_weights(random, 4 * kChannels, 1, 1, kChannels, 1, false);
        p.second.src = temporary(1, kSide / 2, kSide / 2, kChannels);
        p.second.subpixel = 2;
      },
      none);
  // Two images of one array are different blocks with the same bytes.
  static std::vector<float> array(kSide * kSide * kChannels);
  expect(
      "source and result that may be one array",
      [](Parts& p) {
        const auto wrapped = [] {
          return dense_view(Memory::wrap(array.data(), array.size() * 4, {}), 1, kSide, kSide, kChannels);
        };
        p.second.src = wrapped();
        p.sum.dst = wrapped();
      },
      none);

  // Without the sum: neurons that may follow alone.
  const auto expect_neuron = [&](const char* what, const Neuron& before, const std::vector<std::uint32_t>& fused) {
    std::vector<Command> commands;
    {
      Parts parts;
      parts.second.neuron = before;
      commands = {{parts.first, ""}, {parts.second, ""}};
      commands.push_back({neuron_problem(parts.t1, parts.result, NeuronType::sigmoid), ""});
    }
    const auto steps = make_plan(engine(), commands, true)->steps;
    report(steps.back().commands == fused, "%s", what);
  };
  expect_neuron("a neuron is fused", {}, {1, 2});
  expect_neuron("a neuron behind another is not", relu(), {2});
}

// -------------------------------------------------------------------------------------------------------------- gates

/// source -> convolution -> made -> gate; made * gate -> result, x * f(x). Without the convolution, `made` is the source.
struct Gate {
  ImageView source, made, gate, result;
  ConvProblem conv;
  NeuronProblem neuron;
  BinaryProblem product;
  bool has_convolution = true;
  std::vector<Command> between, after;
  std::vector<std::shared_ptr<Memory>> held;
};

constexpr i64 kGateChannels = 24;

ImageView on(const std::shared_ptr<Engine>& engine, Format format = Format::float32) {
  const auto bytes = static_cast<std::size_t>(2 * 5 * 7 * kGateChannels) * size_of(format);
  return dense_view(Memory::lazy(engine, bytes, engine->image_storage()), 2, 5, 7, kGateChannels, format);
}

/// Compare the number of steps, and the results with those of a plan without fusion, on both engines.
void expect_gate(const char* what, const std::function<void(Gate&)>& change, std::size_t steps) {
  for (const char* const name : {"cpu", "cuda-host"}) {
    const std::shared_ptr<Engine> on_engine = engine_of(name);
    std::vector<float> results[2];
    for (const bool fused : {true, false}) {
      Random random(4);
      Gate parts;
      parts.source = on(on_engine), parts.made = on(on_engine), parts.gate = on(on_engine);
      parts.result = on(on_engine);
      {
        const HostAccess access(parts.source.memory, HostAccess::Mode::write);
        auto* const values = reinterpret_cast<float*>(access.data());
        for (i64 i = 0; i < parts.source.size(); ++i) values[i] = random.real(-3, 3) * (i % 7 == 0 ? 40.0f : 1.0f);
      }
      const auto weights = random_weights(random, kGateChannels, 1, 1, kGateChannels, 1, true);
      parts.conv.src = parts.source, parts.conv.dst = parts.made, parts.conv.weights = weights;
      parts.neuron = neuron_problem(parts.made, parts.gate, NeuronType::sigmoid);
      parts.product.src0.view = parts.made, parts.product.src1.view = parts.gate, parts.product.dst = parts.result;
      parts.product.function.operation = BinaryOperation::multiply;
      change(parts);
      const ImageView copy = on(on_engine);
      std::vector<Command> list;
      if (parts.has_convolution) list.push_back({parts.conv, "conv"});
      list.push_back({parts.neuron, "neuron"});
      for (Command& command : parts.between) list.push_back(std::move(command));
      list.push_back({parts.product, "product"});
      for (Command& command : parts.after) list.push_back(std::move(command));
      list.push_back({CopyProblem{parts.result, copy}, "copy"});
      const auto held = std::move(parts.held);
      parts = {};  // only the list refers to the images
      const auto plan = make_plan(*on_engine, list, fused);
      if (fused)
        report(plan->steps.size() == steps + 1, "%s, %s: %zu commands are %zu steps", name, what, list.size(),
               plan->steps.size());
      const std::string error = execute(*on_engine, list, plan).sentence;
      report(error.empty(), "%s, %s: %s", name, what, error.c_str());
      const HostAccess access(copy.memory, HostAccess::Mode::read);
      const auto* const values = reinterpret_cast<const float*>(access.data());
      results[fused].assign(values, values + copy.size());
    }
    float worst = 0;
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      const float x = results[0][i], y = results[1][i];
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      const float off = std::fabs(x - y) / std::fmax(1.0f, std::fabs(x));
      worst = std::isnan(off) ? kInfinity : std::fmax(worst, off);
    }
    // Sums in another order, and another exp: 3.2e-6 for swish with AVX2.
    report(worst <= 4e-6f, "%s, %s: fused and unfused results differ by %g", name, what, double{worst});
  }
}

void test_gates() {
  const auto hard = [](Gate& p) {
    p.neuron.neuron.type = NeuronType::hard_sigmoid;
    p.neuron.neuron.a = 1.0f / 6, p.neuron.neuron.b = 0.5f;
  };
  const auto alone = [](Gate& p) {
    p.has_convolution = false;
    p.neuron.src = p.product.src0.view = p.source;
  };
  const auto image = [](const Gate& p) { return on(engine_of(p.source.memory->owner()->name())); };
  expect_gate("swish", [](Gate&) {}, 1);
  expect_gate("hard swish", hard, 1);
  expect_gate("operands swapped", [](Gate& p) { std::swap(p.product.src0, p.product.src1); }, 1);
  expect_gate("swish of an image", alone, 1);
  expect_gate("hard swish of an image", [&](Gate& p) { alone(p), hard(p); }, 1);
  expect_gate("a sum behind",
              [&](Gate& p) {
                BinaryProblem sum;
                const ImageView end = image(p);
                sum.src0.view = p.result, sum.src1.view = p.source, sum.dst = end;
                p.after.push_back({sum, "sum"});
                p.result = end;
              },
              1);
  expect_gate("infinities and NaN",
              [&](Gate& p) {
                alone(p);
                const HostAccess access(p.source.memory, HostAccess::Mode::update);
                auto* const values = reinterpret_cast<float*>(access.data());
                values[0] = kInfinity, values[1] = -kInfinity, values[2] = NAN, values[3] = -1e30f, values[4] = 1e30f;
              },
              1);

  expect_gate("a convolution with an activation", [](Gate& p) { p.conv.neuron = relu(); }, 2);
  expect_gate("a convolution's result that others know", [](Gate& p) { p.held.push_back(p.made.memory); }, 2);
  expect_gate("a convolution's result with a later reader",
              [&](Gate& p) { p.after.push_back({neuron_problem(p.made, image(p), NeuronType::tanh), "later"}); }, 3);
  expect_gate("a convolution's result with a reader in between",
              [&](Gate& p) { p.between.push_back({neuron_problem(p.made, image(p), NeuronType::tanh), "between"}); },
              3);
  expect_gate("a gate of another image",
              [&](Gate& p) {
                alone(p);
                p.product.src0.view = image(p);
                const HostAccess access(p.product.src0.view.memory, HostAccess::Mode::write);
                std::memset(access.data(), 0x3f, p.product.src0.view.memory->size());  // floats of 0.747
              },
              2);
  expect_gate("a gate that others know", [](Gate& p) { p.held.push_back(p.gate.memory); }, 3);
  expect_gate("a gate with another reader",
              [&](Gate& p) { p.after.push_back({neuron_problem(p.gate, image(p), NeuronType::tanh), "later"}); }, 4);
  expect_gate("tanh", [](Gate& p) { p.neuron.neuron.type = NeuronType::tanh; }, 3);
  expect_gate("a scale", [](Gate& p) { p.product.function.scale0 = 2; }, 3);
  expect_gate("a bias", [](Gate& p) { p.product.function.bias = 1; }, 3);
  expect_gate("a bound", [](Gate& p) { p.product.function.max = 1; }, 3);
  expect_gate("a difference", [](Gate& p) { p.product.function.operation = BinaryOperation::subtract; }, 3);
  expect_gate("a square of the gate", [](Gate& p) { p.product.src0.view = p.gate; }, 2);
  expect_gate("a product with another image", [](Gate& p) { p.product.src0.view = p.source; }, 2);
  expect_gate("a host task in between", [](Gate& p) { p.between.push_back({HostTask{[] {}, nullptr}, "task"}); }, 4);
  expect_gate("a write to the image in between",
              [&](Gate& p) {
                alone(p);
                p.between.push_back({BufferFillProblem{.dst = p.source.memory, .bytes = 64, .value = 0}, "fill"});
              },
              3);
}

void test_keys() {
  Parts mine;
  Parts theirs;
  theirs.held.push_back(theirs.t1.memory);
  const auto a = commands_of(mine), b = commands_of(theirs);
  report(structure_key(a) != structure_key(b), "who knows the memory is part of the key");
  report(plan_for(engine(), a)->steps.size() == 2 && plan_for(engine(), b)->steps.size() == 3,
         "plans differ where others know the memory");
}

// ------------------------------------------------------------------------------------------------------------- values

/// A random network on images of one size: convolutions, sums, neurons and pools of earlier results. If `held` is
/// given, the caller keeps a reference to each block.
std::vector<Command> random_network(unsigned seed, const ImageView& input, const std::vector<ImageView>& outputs,
                                    std::vector<std::shared_ptr<Memory>>* held) {
  Random random(seed);
  const i64 n = input.n, h = input.h, w = input.w, c = input.c;
  std::vector<ImageView> values = {input};
  std::vector<int> reads = {1};
  std::vector<Command> commands;
  const auto result = [&] {
    ImageView view = temporary(n, h, w, c);
    if (held) held->push_back(view.memory);
    values.push_back(view), reads.push_back(0);
    return view;
  };
  const auto any = [&] {
    const auto min = values.size() > 4 ? static_cast<i64>(values.size()) - 4 : 0;
    const auto i = static_cast<std::size_t>(random.whole(min, static_cast<i64>(values.size()) - 1));
    ++reads[i];
    return values[i];
  };
  const auto convolution = [&](const ImageView& src, const ImageView& dst, NeuronType type) {
    ConvProblem conv;
    const bool depthwise = random.one_in(3);
    const i64 k = random.pick({1, 1, 3});
    const auto weights = random_weights(random, c, k, k, depthwise ? 1 : c, depthwise ? c : 1, !random.one_in(4));
    conv.weights = weights;
    // Keeps the magnitude of results from layer to layer.
    const float size = 1.0f / std::sqrt(static_cast<float>(k * k * (depthwise ? 1 : c)));
    for (float& value : weights->values.own()) value *= size;
    conv.window.kernel_h = conv.window.kernel_w = k;
    conv.window.start_h = conv.window.start_w = -(k / 2);
    if (random.one_in(6)) conv.window.edge = Edge::clamp;
    conv.neuron.type = type;
    conv.src = src, conv.dst = dst;
    commands.push_back({conv, "conv"});
  };
  const auto sum = [&](const ImageView& a, const ImageView& b, const ImageView& dst) {
    BinaryProblem add;
    add.src0.view = a, add.src1.view = b, add.dst = dst;
    if (random.one_in(2)) std::swap(add.src0, add.src1);
    add.function = random.pick({bounded(-kInfinity, kInfinity), bounded(0, kInfinity), bounded(0, 1), bounded(-1, 1)});
    commands.push_back({add, "sum"});
  };
  const auto type = [&] {
    return random.pick({NeuronType::none, NeuronType::none, NeuronType::relu, NeuronType::softsign});
  };
  for (i64 i = random.whole(2, 12); i > 0; --i) {
    switch (random.whole(0, 5)) {
      case 0: {
        const ImageView src = any();
        convolution(src, result(), type());
        break;
      }
      case 1: {  // a block with its residual sum
        const ImageView src = any(), addend = any();
        const ImageView inner = result();
        convolution(src, inner, type());
        ++reads.back();
        if (random.one_in(4)) commands.push_back({neuron_problem(input, result(), NeuronType::relu), "between"});
        sum(inner, addend, result());
        break;
      }
      case 2: {
        const ImageView a = any(), b = any();
        sum(a, b, result());
        break;
      }
      case 3: {
        const ImageView src = any();
        commands.push_back({neuron_problem(src, result(), type()), "neuron"});
        break;
      }
      case 4: {  // a convolution with swish, or swish of an earlier result
        const ImageView src = any();
        ImageView inner = src;
        if (random.one_in(2)) inner = result(), convolution(src, inner, NeuronType::none);
        const ImageView gate = result();
        commands.push_back({neuron_problem(inner, gate, NeuronType::sigmoid), "gate"});
        BinaryProblem product;
        product.src0.view = inner, product.src1.view = gate, product.dst = result();
        product.function.operation = BinaryOperation::multiply;
        commands.push_back({product, "product"});
        break;
      }
      default: {
        PoolProblem pool;
        pool.src = any();
        pool.dst = result();
        pool.window.kernel_h = pool.window.kernel_w = 3;
        pool.window.start_h = pool.window.start_w = -1;
        commands.push_back({pool, "pool"});
      }
    }
  }
  // Every result is read, and the last ones are outputs.
  std::size_t output = 0;
  for (std::size_t i = values.size(); i-- > 0 && output < outputs.size();) {
    if (reads[i] == 0 || i + 1 == values.size()) {
      const ImageView src = values[i], addend = any();
      ImageView inner = temporary(n, h, w, c);
      if (held) held->push_back(inner.memory);
      convolution(src, inner, NeuronType::none);
      sum(inner, addend, outputs[output++]);
    }
  }
  return commands;
}

void test_networks() {
  Random random(20);
  int fused = 0, placed = 0;
  for (unsigned round = 0; round < 300; ++round) {
    const i64 n = random.whole(1, 2), h = random.whole(1, 9), w = random.whole(1, 9);
    const i64 c = random.pick({1, 3, 4, 8, 16, 17, 32, 64});
    const Format format = random.one_in(4) ? Format::float16 : Format::float32;
    Image input(random, Format::float32, n, h, w, c, random.one_in(2));
    input.randomize(random, -1, 1);
    const bool dense = random.one_in(2);
    const auto run = [&](bool hold, bool fuse) {
      std::vector<Image> outputs;
      Random places(100 + round);
      for (int i = 0; i < 3; ++i) outputs.emplace_back(places, format, n, h, w, c, dense);
      for (Image& output : outputs) output.snapshot();
      std::vector<std::shared_ptr<Memory>> held;
      const auto run_list = [&] {
        const auto commands = random_network(
            1000 + round, input.view, {outputs[0].view, outputs[1].view, outputs[2].view}, hold ? &held : nullptr);
        const auto plan = make_plan(engine(), commands, fuse);
        if (fuse && !hold) fused += plan->steps.size() < commands.size(), placed += plan->arena_bytes > 0;
        if (hold) report(plan->arena_bytes == 0, "round %u: memory that others know is not placed", round);
        for (int times = 0; times < 2; ++times) {  // a list may run again
          const std::string error = ::run(commands, plan);
          report(error.empty(), "round %u: %s", round, error.c_str());
        }
      };
      // Of a GPU, a stream's scratch memory grows to what the plans of cuDNN need: not again with the same list.
      std::size_t before = engine().memory_use().allocated;
      run_list();
      if (!hold && engine().memory_use().allocated != before) {
        before = engine().memory_use().allocated;
        run_list();
      }
      if (!hold) report(engine().memory_use().allocated == before, "round %u: memory is given back", round);
      for (const Image& output : outputs) {
        report(output.surroundings_unchanged(), "round %u: wrote beside a result", round);
      }
      return outputs;
    };
    const auto expected = run(true, false), unfused = run(false, false), both = run(false, true);
    report(input.unchanged(), "round %u: wrote to the input", round);
    double worst = 0, size = 1;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i].for_each([&](i64 b, i64 y, i64 x, i64 k) {
        const double want = expected[i].value(b, y, x, k);
        if (std::isnan(want) && std::isnan(both[i].value(b, y, x, k))) return;  // fewer results than images
        size = std::fmax(size, std::fabs(want));
        worst = std::fmax(worst, std::fabs(unfused[i].value(b, y, x, k) - want));
        worst = std::fmax(worst, std::fabs(both[i].value(b, y, x, k) - want));
        if (std::isnan(both[i].value(b, y, x, k))) worst = 1e30;
      });
    }
    const double allowed = (format == Format::float16 ? 0x1p-9 : 2e-5) * size;
    report(worst <= allowed, "round %u: off by %g, allowed %g", round, worst, allowed);
  }
  report(fused > 200 && placed > 200, "%d of 300 networks had something fused, %d something placed", fused, placed);
}

// -------------------------------------------------------------------------------------------------------- max pooling

/// source -> first layer -> middle -> max pooling -> result, on the CUDA engine.
struct FirstLayer {
  std::shared_ptr<Engine> cuda = engine_of("cuda-host");
  ImageView source = image(2, 40, 38, 3), middle = image(2, 20, 19, 64), result = image(2, 10, 10, 64);
  ConvProblem conv;
  PoolProblem pool;
  std::vector<Command> between;
  std::vector<std::shared_ptr<Memory>> held;

  FirstLayer() {
    Random random(3);
    conv.src = source, conv.dst = middle;
    conv.weights = random_weights(random, 64, 7, 7, 3, 1, true);
    conv.window = {.kernel_h = 7, .kernel_w = 7, .stride_h = 2, .stride_w = 2, .start_h = -3, .start_w = -3};
    conv.neuron = relu();
    pool.src = middle, pool.dst = result;
    pool.window = {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .start_h = -1, .start_w = -1};
    held = {result.memory};
    std::vector<std::uint16_t> values(static_cast<std::size_t>(source.size()));
    for (auto& value : values) value = float_to_half(static_cast<float>(random.real(-1, 1)));
    const HostAccess access(source.memory, HostAccess::Mode::write);
    std::memcpy(access.data(), values.data(), values.size() * sizeof(std::uint16_t));
  }

  ImageView image(i64 n, i64 h, i64 w, i64 c) const {
    const auto bytes = static_cast<std::size_t>(n * h * w * c) * 2;
    return dense_view(Memory::lazy(cuda, bytes, cuda->image_storage()), n, h, w, c, Format::float16);
  }
  /// Hand the memory that is not held over to the commands.
  std::vector<Command> commands() {
    std::vector<Command> list = {{conv, "conv"}};
    for (Command& command : between) list.push_back(std::move(command));
    list.push_back({pool, "pool"});
    source = middle = result = {}, conv = {}, pool = {};
    return list;
  }
};

void expect_pooled(const char* what, const std::function<void(FirstLayer&)>& change, bool is_fused) {
  FirstLayer parts;
  change(parts);
  const auto list = parts.commands();
  const auto plan = make_plan(*parts.cuda, list, true);
  bool has_both = false;
  for (const auto& step : plan->steps) has_both = has_both || step.commands.size() == 2;
  report(has_both == is_fused, "%s: pooling is %s", what, has_both ? "fused" : "not fused");
  report(make_plan(cpu_engine(), list, true)->steps.size() == list.size(), "%s: the CPU engine fuses no pooling", what);
}

std::vector<float> results_of(bool is_fused) {
  FirstLayer parts;
  const auto result = parts.result.memory, middle = is_fused ? nullptr : parts.middle.memory;
  const auto count = static_cast<std::size_t>(parts.result.size());
  const auto list = parts.commands();
  const std::string error = execute(*parts.cuda, list).sentence;
  report(error.empty(), "first layer: %s", error.c_str());
  const HostAccess access(result, HostAccess::Mode::read);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = half_to_float(reinterpret_cast<const std::uint16_t*>(access.data())[i]);
  return values;
}

void test_pooling() {
  expect_pooled("first layer", [](FirstLayer&) {}, true);
  expect_pooled("a middle that others know", [](FirstLayer& p) { p.held.push_back(p.middle.memory); }, false);
  expect_pooled(
      "source and result that may be one array", [](FirstLayer& p) { p.held.push_back(p.source.memory); }, false);
  expect_pooled("no activation", [](FirstLayer& p) { p.conv.neuron = {}; }, false);
  expect_pooled("a slope", [](FirstLayer& p) { p.conv.neuron.a = 0.1f; }, false);
  expect_pooled("a mean", [](FirstLayer& p) { p.pool.type = PoolType::average; }, false);
  expect_pooled("another window of the pooling", [](FirstLayer& p) { p.pool.window.kernel_h = 2; }, false);
  expect_pooled("another stride", [](FirstLayer& p) { p.conv.window.stride_w = 1; }, false);
  expect_pooled("windows outside", [](FirstLayer& p) { p.pool.window.start_h = -3; }, false);
  expect_pooled(
      "a part of the middle",
      [](FirstLayer& p) { p.pool.src = p.middle.region(0, 0, 19, 19), p.pool.dst = p.result.region(0, 0, 9, 10); },
      false);
  expect_pooled(
      "a source that changes before",
      [](FirstLayer& p) {
        const ImageView other = p.image(2, 40, 38, 3);
        p.between.push_back({NeuronProblem{other, p.source, relu()}, "overwrites"});
      },
      false);
  const std::vector<float> fused = results_of(true), apart = results_of(false);
  float worst = 0, most = 0;
  for (std::size_t i = 0; i < fused.size(); ++i) {
    worst = std::fmax(worst, std::fabs(fused[i] - apart[i]));
    most = std::fmax(most, apart[i]);
  }
  report(most > 1 && worst <= most * 0x1p-10f, "first layer: off by %g of %g", worst, most);
}

// --------------------------------------------------------------------------------------------------------------- sums

/// source -> sum along one axis -> middle -> sum along the other -> result, with plans of both engines.
void expect_summed(const char* what, const std::function<void(ReduceProblem&, ReduceProblem&)>& change, bool is_fused) {
  const std::shared_ptr<Engine> cuda = engine_of("cuda-host");
  const auto image = [&](i64 h, i64 w) {
    return dense_view(Memory::lazy(cuda, static_cast<std::size_t>(2 * h * w * 16) * 4, cuda->image_storage()), 2, h, w,
                      16);
  };
  ReduceProblem first, next;
  first.src = image(5, 7), first.dst = image(5, 1), first.axis = ReduceAxis::row;
  next.dst = image(1, 1), next.axis = ReduceAxis::column;
  first.type = next.type = ReduceType::sum;
  first.scale = 0.5, next.scale = 0.25;
  next.src = first.dst;
  change(first, next);
  std::vector<Command> list = {{first, "first"}, {next, "next"}};
  first = next = {};
  const auto plan = make_plan(*cuda, list, true);
  report((plan->steps.size() == 1) == is_fused, "%s: sums are %zu steps", what, plan->steps.size());
  report((make_plan(cpu_engine(), list, true)->steps.size() == 1) == is_fused, "%s: the CPU engine likewise", what);
  if (!is_fused) return;
  const auto result = std::get<ReduceProblem>(list[1].problem).dst.memory;
  {
    const HostAccess access(std::get<ReduceProblem>(list[0].problem).src.memory, HostAccess::Mode::write);
    for (std::size_t i = 0; i < 2 * 5 * 7 * 16; ++i)
      reinterpret_cast<float*>(access.data())[i] = static_cast<float>(i % 16 + i / (5 * 7 * 16));
  }
  const std::string error = execute(*cuda, list).sentence;
  report(error.empty(), "%s: %s", what, error.c_str());
  const HostAccess access(result, HostAccess::Mode::read);
  for (std::size_t i = 0; i < 2 * 16; ++i) {
    const float found = reinterpret_cast<const float*>(access.data())[i];
    const float wanted = 0.125f * 35 * static_cast<float>(i % 16 + i / 16);
    report(found == wanted, "%s: sum %zu is %g, not %g", what, i, double{found}, double{wanted});
  }
}

void test_sums() {
  using P = ReduceProblem;
  expect_summed("rows, then columns", [](P&, P&) {}, true);
  expect_summed(
      "columns, then rows",
      [](P& first, P& next) {
        first.dst.h = 1, first.dst.w = 7, first.dst.h_stride = first.dst.n_stride = 7 * 16;
        first.dst.memory =
            Memory::lazy(engine_of("cuda-host"), 2 * 7 * 16 * 4, engine_of("cuda-host")->image_storage());
        first.axis = ReduceAxis::column, next.axis = ReduceAxis::row, next.src = first.dst;
      },
      true);
  expect_summed("a max", [](P& first, P&) { first.type = ReduceType::max; }, false);
  expect_summed("a part of the rows", [](P& first, P& next) { first.dst.h = next.src.h = 4; }, false);
  expect_summed("a part of the sums", [](P&, P& next) { next.src.h = 4; }, false);
  std::shared_ptr<Memory> known;
  expect_summed("a middle that others know", [&](P& first, P&) { known = first.dst.memory; }, false);
}

// ---------------------------------------------------------------------- pairs of normalizations, sums and gradients

/// source -> normalization -> middle, then middle + other -> result or ReLU; or source + other -> middle -> gradient,
/// and the sums of the gradient's values.
struct Pair {
  NormalizeProblem normalize;
  NeuronProblem neuron;
  BinaryProblem sum;
  BinaryGradientProblem gradient;
  BatchMomentsGradientProblem moments;
  std::vector<Command> between, before_moments;
};

constexpr i64 kRows = 5, kColumns = 7, kPairChannels = 24;

std::string pair_engine;  ///< the name of the engine that the pairs are made for

ImageView pair_image(Format format = Format::float32) {
  const std::shared_ptr<Engine> engine = engine_of(pair_engine);
  const auto bytes = static_cast<std::size_t>(2 * kRows * kColumns * kPairChannels) * size_of(format);
  return dense_view(Memory::lazy(engine, bytes, engine->image_storage()), 2, kRows, kColumns, kPairChannels, format);
}

enum class Second : std::uint8_t { neuron, sum, gradient, moments };

/// Compare the plan, and the result with that of a plan without fusion.
void expect_pair(const char* what, Second second, const std::function<void(Pair&)>& change, bool is_fused) {
  const std::shared_ptr<Engine> engine = engine_of(pair_engine);
  std::vector<float> results[2];
  for (const bool fused : {true, false}) {
    Random random(3);
    const auto filled = [&](const ImageView& view) {
      const HostAccess access(view.memory, HostAccess::Mode::write);
      for (i64 i = 0; i < view.size(); ++i) reinterpret_cast<float*>(access.data())[i] = random.real(-2, 2);
      return view;
    };
    const auto channels = [&](float low, float high) {
      const auto memory = Memory::lazy(engine, kPairChannels * sizeof(float), engine->buffer_storage());
      const HostAccess access(memory, HostAccess::Mode::write);
      for (i64 i = 0; i < kPairChannels; ++i) reinterpret_cast<float*>(access.data())[i] = random.real(low, high);
      return ChannelValues{memory, 0};
    };
    const ImageView copy = pair_image();
    ImageView source = filled(pair_image()), other = filled(pair_image()), middle = pair_image(), result = pair_image();
    Pair pair;
    auto& [normalize, neuron, sum, gradient, moments, between, before_moments] = pair;
    normalize.src.view = source, normalize.dst = middle;
    normalize.gamma = channels(-2, 2), normalize.beta = channels(-1, 1);
    normalize.mean = channels(-1, 1), normalize.variance = channels(1, 2);
    neuron.src = middle, neuron.dst = result, neuron.neuron = relu();
    const bool is_gradient = second == Second::gradient || second == Second::moments;
    sum.src0.view = is_gradient ? source : middle, sum.src1.view = other;
    sum.dst = is_gradient ? middle : result;
    if (second == Second::sum) {
      sum.function = bounded(0, kInfinity);
      sum.mask = pair_image(Format::unorm8);
    } else {
      gradient.mask.view = pair_image(Format::unorm8);
      const HostAccess access(gradient.mask.view.memory, HostAccess::Mode::write);
      for (i64 i = 0; i < result.size(); ++i) access.data()[i] = std::byte(i % 3 ? 255 : 0);
    }
    gradient.diff_dst.view = middle, gradient.diff_src = result, gradient.scale = 0.5f;
    moments.diff_dst = result, moments.src.view = filled(pair_image());
    moments.gamma = normalize.gamma, moments.beta = normalize.beta;
    moments.mean = normalize.mean, moments.variance = normalize.variance;
    moments.diff_gamma = channels(-1, 1), moments.diff_beta = channels(-1, 1), moments.adds = true;
    const std::array sums{moments.diff_gamma.memory, moments.diff_beta.memory};
    change(pair);
    std::vector<Command> list;
    if (is_gradient)
      list = {{sum, "sum"}, {gradient, "gradient"}};
    else if (second == Second::sum)
      list = {{normalize, "normalize"}, {sum, "sum"}};
    else
      list = {{normalize, "normalize"}, {neuron, "neuron"}};
    list.insert(list.begin() + 1, between.begin(), between.end());
    if (second == Second::moments) {
      list.insert(list.end(), before_moments.begin(), before_moments.end());
      list.push_back({moments, "moments"});
    }
    // Memory that the test knows may be a view of the same bytes as another one.
    list.push_back({CopyProblem{second == Second::sum ? sum.dst : result, copy}, "copy"});
    pair = {};  // only the list refers to the images
    source = other = middle = result = {};
    const auto plan = make_plan(*engine, list, fused);
    const std::size_t least = second == Second::moments ? 2 : 1;  // commands of the list that need no step
    if (fused)
      report((plan->steps.size() + least <= list.size()) == is_fused, "%s, %s: %zu commands are %zu steps",
             pair_engine.c_str(), what, list.size(), plan->steps.size());
    const std::string error = execute(*engine, list, plan).sentence;
    report(error.empty(), "%s, %s: %s", pair_engine.c_str(), what, error.c_str());
    const HostAccess access(copy.memory, HostAccess::Mode::read);
    const auto* const values = reinterpret_cast<const float*>(access.data());
    results[fused].assign(values, values + copy.size());
    for (const auto& each : sums) {
      const HostAccess read(each, HostAccess::Mode::read);
      const auto* const of_channels = reinterpret_cast<const float*>(read.data());
      results[fused].insert(results[fused].end(), of_channels, of_channels + kPairChannels);
    }
  }
  float worst = 0;
  for (std::size_t i = 0; i < results[0].size(); ++i)
    worst = std::fmax(worst, std::fabs(results[0][i] - results[1][i]));
  report(worst <= 2e-6f, "%s, %s: fused and unfused results differ by %g", pair_engine.c_str(), what, double{worst});
}

void test_pairs_of(const std::string& engine) {
  pair_engine = engine;
  const auto nothing = [](Pair&) {};
  expect_pair("normalize, relu", Second::neuron, nothing, true);
  expect_pair("normalize, add", Second::sum, nothing, true);
  expect_pair("add, gradient", Second::gradient, nothing, true);
  expect_pair("normalize, tanh", Second::neuron, [](Pair& p) { p.neuron.neuron.type = NeuronType::tanh; },
              engine == "cpu");
  expect_pair("relu, relu", Second::neuron, [](Pair& p) { p.normalize.neuron = relu(); }, false);
  expect_pair("relu, add", Second::sum, [](Pair& p) { p.normalize.neuron = relu(); }, false);
  expect_pair("a scale", Second::sum, [](Pair& p) { p.sum.function.scale1 = 2; }, false);
  expect_pair("a bias", Second::gradient, [](Pair& p) { p.sum.function.bias = 1; }, false);
  expect_pair("bounds before a gradient", Second::gradient, [](Pair& p) { p.sum.function = bounded(0, 1); }, false);
  expect_pair("a product", Second::gradient, [](Pair& p) { p.gradient.other.view = p.sum.src0.view; }, false);
  expect_pair("another format", Second::sum, [](Pair& p) { p.sum.dst = pair_image(Format::float16); p.sum.mask = {}; },
              false);
  for (const Second second : {Second::neuron, Second::sum, Second::gradient}) {
    expect_pair("a middle that others know", second,
                [&](Pair& p) {
                  static std::vector<std::shared_ptr<Memory>> known;
                  known.push_back(second == Second::gradient ? p.sum.dst.memory : p.normalize.dst.memory);
                },
                false);
    expect_pair("a write to the source in between", second,
                [&](Pair& p) {
                  const ImageView source = second == Second::gradient ? p.sum.src0.view : p.normalize.src.view;
                  p.between.push_back({BufferFillProblem{.dst = source.memory, .bytes = 64, .value = 0}, "fill"});
                },
                false);
    expect_pair("a host task in between", second,
                [](Pair& p) { p.between.push_back({HostTask{[] {}, nullptr}, "task"}); }, false);
  }
  expect_pair("add, gradient, sums", Second::moments, nothing, true);
  expect_pair("sums without a mask", Second::moments, [](Pair& p) { p.gradient.mask = {}; }, true);
  expect_pair("sums behind a neuron", Second::moments, [](Pair& p) { p.moments.neuron = relu(); }, false);
  expect_pair("sums of another image", Second::moments, [](Pair& p) { p.moments.diff_dst = p.sum.src1.view; }, false);
  expect_pair(
      "sums with a source that is written", Second::moments,
      [](Pair& p) { p.moments.diff_beta = {p.sum.src0.view.memory, 0}; }, false);
  expect_pair(
      "sums later", Second::moments,
      [](Pair& p) {
        p.before_moments.push_back({BufferFillProblem{.dst = p.sum.src0.view.memory, .bytes = 64, .value = 0}, "fill"});
      },
      false);
  expect_pair("a write to gamma in between", Second::sum,
              [](Pair& p) {
                p.between.push_back(
                    {BufferFillProblem{.dst = p.normalize.gamma.memory, .bytes = 16, .value = 0}, "fill"});
              },
              false);
}

void test_pairs() {
  for (const char* engine : {"cpu", "cuda-host"}) test_pairs_of(engine);
}

/// The CPU engine solves such problems for engines that decline them, whatever their images are.
void test_pairs_with_gaps() {
  pair_engine = "cpu";
  constexpr i64 kFew = kPairChannels / 2;
  Random random(5);
  const auto part = [&] {
    ImageView view = pair_image();
    const HostAccess access(view.memory, HostAccess::Mode::write);
    for (i64 i = 0; i < view.size(); ++i) reinterpret_cast<float*>(access.data())[i] = random.real(-2, 2);
    view.c = kFew;
    return view;
  };
  const auto channels = [&](float low, float high) {
    const auto memory = Memory::lazy(engine_of("cpu"), kFew * sizeof(float), Storage::host);
    for (i64 i = 0; i < kFew; ++i) reinterpret_cast<float*>(memory->data())[i] = random.real(low, high);
    return ChannelValues{memory, 0};
  };
  const auto at = [](const ImageView& view, i64 pixel, i64 k) {
    return reinterpret_cast<const float*>(view.memory->data())[pixel * kPairChannels + k];
  };
  const auto of = [](const ChannelValues& values, i64 k) {
    return reinterpret_cast<const float*>(values.memory->data())[k];
  };
  NormalizeAddProblem add;
  add.src.view = part(), add.addend.view = part(), add.dst = part();
  add.gamma = channels(-2, 2), add.beta = channels(-1, 1), add.mean = channels(-1, 1), add.variance = channels(1, 2);
  add.min = 0;
  cpu_engine().try_run(add);
  MaskedSumMomentsProblem sum;
  sum.src0.view = part(), sum.src1.view = part(), sum.mask.view = add.dst, sum.dst = part(), sum.src.view = part();
  sum.gamma = add.gamma, sum.beta = add.beta, sum.mean = add.mean, sum.variance = add.variance;
  sum.diff_gamma = channels(0, 0), sum.diff_beta = channels(0, 0);
  cpu_engine().try_run(sum);
  float worst = 0;
  const auto compare = [&](float found, float wanted) { worst = std::fmax(worst, std::fabs(found - wanted)); };
  for (i64 k = 0; k < kFew; ++k) {
    float diff_gamma = 0, diff_beta = 0;
    for (i64 pixel = 0; pixel < 2 * kRows * kColumns; ++pixel) {
      const float scale = 1 / std::sqrt(of(add.variance, k) + add.epsilon), distance = -of(add.mean, k);
      const float normal = (at(add.src.view, pixel, k) + distance) * scale * of(add.gamma, k) + of(add.beta, k);
      const float rectified = std::fmax(normal + at(add.addend.view, pixel, k), 0.0f);
      compare(at(add.dst, pixel, k), rectified);
      const float total = at(sum.src0.view, pixel, k) + at(sum.src1.view, pixel, k);
      const float masked = at(add.dst, pixel, k) != 0 ? total : 0;
      compare(at(sum.dst, pixel, k), masked);
      diff_beta += masked, diff_gamma += masked * (at(sum.src.view, pixel, k) + distance) * scale;
    }
    compare(of(sum.diff_gamma, k), diff_gamma), compare(of(sum.diff_beta, k), diff_beta);
  }
  report(worst <= 2e-4f, "images with gaps: off by %g", double{worst});
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv, {test_what_is_fused, test_gates, test_keys, test_networks, test_pooling, test_sums, test_pairs,
                                 test_pairs_with_gaps});
}

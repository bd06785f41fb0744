// SPDX-License-Identifier: Apache-2.0
// Batches in parts: what is one call, and that its values are those of one call for each part.
//
//   test_engine_parts [seed offset]      prints "N passed, N failed"
#include <functional>

#include "engine/plan/parts.hpp"
#include "engine/plan/structure.hpp"
#include "engine_test.hpp"

namespace {

ImageView dense_view(std::shared_ptr<Memory> memory, i64 n, i64 h, i64 w, i64 c) {
  ImageView view;
  view.memory = std::move(memory);
  view.n = n, view.h = h, view.w = w, view.c = c;
  view.w_stride = c, view.h_stride = w * c, view.n_stride = h * w * c;
  return view;
}

ImageView temporary(i64 n, i64 h, i64 w, i64 c) {
  return dense_view(Memory::lazy(cpu_engine().shared_from_this(), static_cast<std::size_t>(n * h * w * c) * 4), n, h, w,
                    c);
}

/// Float32 values that somebody holds.
struct Values {
  std::shared_ptr<Memory> memory;
  explicit Values(i64 count)
      : memory(Memory::lazy(cpu_engine().shared_from_this(), static_cast<std::size_t>(count) * 4)) {
    std::memset(memory->data(), 0, memory->size());
  }
  Values(Random& random, i64 count, float low, float high) : Values(count) {
    for (i64 i = 0; i < count; ++i) data()[i] = random.real(low, high);
  }
  float* data() const { return reinterpret_cast<float*>(memory->data()); }
  i64 count() const { return static_cast<i64>(memory->size() / 4); }
  ChannelValues view() const { return {memory, 0}; }
};

// ------------------------------------------------------------------------------------------------- what is joined

/// A source and a result of 3 + 2 images, side by side in a block of each.
struct Pair {
  std::shared_ptr<Memory> source, result;
  std::vector<Problem> parts;

  Pair() {
    Random random(1);
    source = Memory::lazy(cpu_engine().shared_from_this(), 4096),
    result = Memory::lazy(cpu_engine().shared_from_this(), 4096);
    const auto weights = random_weights(random, 4, 1, 1, 4, 1, true);
    for (const auto& [first, count] : {std::pair<i64, i64>{0, 3}, {3, 2}}) {
      ConvProblem conv;
      conv.src = dense_view(source, 5, 2, 3, 4).images(first, count);
      conv.dst = dense_view(result, 5, 2, 3, 4).images(first, count);
      conv.weights = weights;
      parts.push_back(conv);
    }
  }
  ConvProblem& second() { return std::get<ConvProblem>(parts[1]); }
};

void test_what_is_joined() {
  const auto expect = [](const char* what, bool is_joined, const std::function<void(Pair&)>& change) {
    Pair pair;
    change(pair);
    const auto whole = joined(pair.parts);
    report(whole.has_value() == is_joined, "%s: %s", what, is_joined ? "is not joined" : "is joined");
    if (!whole || !is_joined) return;
    const auto& conv = std::get<ConvProblem>(*whole);
    report(conv.src.n == 5 && conv.dst.n == 5 && conv.src.offset == 0 && conv.dst.offset == 0, "%s: its images", what);
  };
  Random random(2);
  const std::size_t image = 2 * 3 * 4 * 4;
  expect("parts side by side", true, [](Pair&) {});
  expect("a gap", false, [&](Pair& p) { p.second().src.offset += image; });
  expect("another order", false, [](Pair& p) { std::swap(p.parts[0], p.parts[1]); });
  expect("other weights", false, [&](Pair& p) { p.second().weights = random_weights(random, 4, 1, 1, 4, 1, true); });
  expect("another neuron", false, [](Pair& p) { p.second().neuron.type = NeuronType::relu; });
  expect("another window", false, [](Pair& p) { p.second().window.start_w = -1; });
  expect("another problem", false, [](Pair& p) { p.parts[1] = NeuronProblem{p.second().src, p.second().dst, {}}; });
  expect("fewer rows", false, [](Pair& p) { p.second().dst.h = 1; });
  expect("something that is added", false, [](Pair& p) { p.second().addend = p.second().dst; });
  expect("the second reads what the first has stored", false, [&](Pair& p) {
    for (Problem& part : p.parts) {
      auto& conv = std::get<ConvProblem>(part);
      conv.src.memory = conv.dst.memory;
      conv.src.offset = conv.dst.offset, conv.dst.offset += image;
    }
  });
  {
    Pair pair;
    for (Problem& part : pair.parts) {
      const auto conv = std::get<ConvProblem>(part);
      part = NeuronProblem{conv.dst, conv.dst, {}};
    }
    report(joined(pair.parts).has_value(), "in place: is not joined");
  }
  {
    Pair pair;
    auto& second = pair.second();
    second.src = std::get<ConvProblem>(pair.parts[0]).dst, second.dst.n = 3;
    report(!are_parts(pair.parts), "two layers are parts of a batch");
    second.src = std::get<ConvProblem>(pair.parts[0]).src;
    report(!are_parts(pair.parts), "two readers of an image are parts of a batch");
  }
  // What the second part adds to.
  BatchMomentsProblem first;
  first.src = std::get<ConvProblem>(Pair().parts[0]).src;
  BatchMomentsProblem second = first;
  second.src.offset = 3 * image, second.src.n = 2;
  for (const i64 count : {18, 0, 12}) {
    second.count = count;
    report(are_parts(std::vector<Problem>{first, second}) == (count == 18), "statistics of %d pixels before",
           int(count));
  }
  const Values sums(4);
  ConvGradientProblem gradient;
  gradient.diff_dst = gradient.src = first.src, gradient.diff_weights = sums.view();
  ConvGradientProblem next = gradient;
  next.diff_dst = next.src = second.src;
  report(!are_parts(std::vector<Problem>{gradient, next}), "a gradient that starts anew is joined");
  next.accumulates = true;
  report(are_parts(std::vector<Problem>{gradient, next}), "a gradient that adds is not joined");
}

// ---------------------------------------------------------------------------------------------------------- values

/// Everything a step of training does with images, in parts. Results are `seen` images and `values`.
struct Training {
  std::vector<Command> commands;
  std::vector<ImageView> seen;
  std::vector<std::pair<const char*, Values>> values;
  std::vector<std::shared_ptr<Memory>> held;
  std::vector<std::uint32_t> results_of_convolution;  ///< commands
  bool holds;

  std::vector<ImageView> images(const std::vector<i64>& parts, i64 h, i64 w, i64 c) {
    std::vector<ImageView> result;
    for (const i64 n : parts) {
      result.push_back(temporary(n, h, w, c));
      if (holds) held.push_back(result.back().memory);
    }
    return result;
  }
  const Values& value(const char* name, Values made) {
    values.emplace_back(name, std::move(made));
    return values.back().second;
  }

  Training(unsigned seed, bool hold) : holds(hold) {
    Random random(seed);
    std::vector<i64> parts;
    for (i64 i = random.whole(2, 4); i > 0; --i) parts.push_back(random.whole(1, 3));
    const i64 h = random.whole(2, 8), w = random.whole(2, 8), c = random.pick<i64>({3, 16, 20, 64});
    const i64 outputs = random.pick<i64>({c, c, 32}), side = random.pick<i64>({1, 3});
    const auto weights = random_weights(random, outputs, side, side, c, 1, random.one_in(2));
    for (float& value : weights->values.own()) value /= std::sqrt(static_cast<float>(c * side * side));
    Window window;
    window.kernel_h = window.kernel_w = side, window.start_h = window.start_w = -(side / 2);
    Neuron relu;
    relu.type = NeuronType::relu;
    values.reserve(32);
    const Values &mean = value("mean", Values(outputs)), &variance = value("variance", Values(outputs));
    const Values exact(4 * outputs);
    held.push_back(exact.memory);
    const Values gamma(random, outputs, 0.5f, 1.5f), beta(random, outputs, -1, 1);
    const Values &diff_gamma = value("diff_gamma", Values(outputs)), &diff_beta = value("diff_beta", Values(outputs));
    const Values& diff_weights = value("diff_weights", Values(outputs * c * side * side));
    const Values& diff_bias = value("diff_bias", Values(outputs));

    const auto x = images(parts, h, w, c), result = images(parts, h, w, outputs);
    const auto normal = images(parts, h, w, outputs), pooled = images(parts, h, w, outputs);
    const auto flat = images(parts, 1, 1, h * w * outputs), sums = images(parts, 1, 1, h * w * outputs);
    const auto active = images(parts, 1, 1, h * w * outputs), before = images(parts, 1, 1, h * w * outputs);
    const auto scaled = images(parts, 1, 1, h * w * outputs), pixels = images(parts, h, w, outputs);
    const auto of_pool = images(parts, h, w, outputs), of_norm = images(parts, h, w, outputs);
    const auto of_source = images(parts, h, w, c);
    const auto again = images(parts, h, w, outputs), both = images(parts, h, w, outputs);
    const auto each = [&](const char* label, const auto& make) {
      for (std::size_t i = 0; i < parts.size(); ++i) commands.push_back({make(i), label});
    };
    i64 images_before = 0;
    const auto first = [&](std::size_t i) {
      if (i == 0) images_before = 0;
      const i64 result_count = images_before;
      images_before += parts[i];
      return result_count;
    };
    // Sources are written inside the list: nobody else knows their memory then.
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Image given = [&] {
        Image image(random, Format::float32, parts[i], h, w, c, true);
        image.randomize(random);
        return image;
      }();
      held.push_back(given.view.memory);
      commands.push_back({CopyProblem{given.view, x[i]}, "source"});
    }
    each("conv", [&](std::size_t i) {
      ConvProblem p;
      p.src = x[i], p.dst = result[i], p.weights = weights, p.window = window;
      results_of_convolution.push_back(static_cast<std::uint32_t>(commands.size()));
      return p;
    });
    each("statistics", [&](std::size_t i) {
      return BatchMomentsProblem{result[i], mean.view(), variance.view(), first(i) * h * w, {exact.memory, 0}};
    });
    each("normalize", [&](std::size_t i) {
      NormalizeProblem p;
      p.src.view = result[i], p.dst = normal[i], p.gamma = gamma.view(), p.beta = beta.view();
      p.mean = mean.view(), p.variance = variance.view(), p.exact = {exact.memory, 0}, p.epsilon = 1e-3f;
      p.neuron = relu;
      return p;
    });
    PoolProblem pool;
    pool.type = random.pick({PoolType::max, PoolType::average});
    pool.window.kernel_h = pool.window.kernel_w = 3, pool.window.start_h = pool.window.start_w = -1;
    each("pool", [&](std::size_t i) {
      pool.src = normal[i], pool.dst = pooled[i];
      return pool;
    });
    each("reshape", [&](std::size_t i) { return ReshapeProblem{pooled[i], flat[i]}; });
    each("sum", [&](std::size_t i) {
      BinaryProblem p;
      p.src0.view = p.src1.view = flat[i], p.dst = sums[i];
      p.function.scale1 = -0.25f;
      return p;
    });
    each("neuron", [&](std::size_t i) { return NeuronProblem{sums[i], active[i], relu}; });
    each("neuron gradient", [&](std::size_t i) {
      NeuronGradientProblem p;
      p.diff_dst.view = active[i], p.src.view = sums[i], p.diff_src = before[i], p.neuron = relu;
      return p;
    });
    each("sum gradient", [&](std::size_t i) {
      BinaryGradientProblem p;
      p.diff_dst.view = before[i], p.diff_src = scaled[i], p.scale = 0.75f;
      return p;
    });
    each("reshape gradient", [&](std::size_t i) { return ReshapeProblem{scaled[i], pixels[i]}; });
    each("pool gradient", [&](std::size_t i) {
      PoolGradientProblem p;
      p.diff_dst = pixels[i], p.src = normal[i], p.diff_src = of_pool[i], p.type = pool.type, p.window = pool.window;
      if (pool.type == PoolType::average) p.src.memory = nullptr;
      return p;
    });
    each("statistics gradient", [&](std::size_t i) {
      BatchMomentsGradientProblem p;
      p.diff_dst = of_pool[i], p.src.view = result[i], p.gamma = gamma.view(), p.beta = beta.view();
      p.mean = mean.view(), p.variance = variance.view(), p.exact = {exact.memory, 0}, p.epsilon = 1e-3f;
      p.neuron = relu, p.diff_gamma = diff_gamma.view(), p.diff_beta = diff_beta.view(), p.adds = i > 0;
      return p;
    });
    i64 all = 0;
    for (const i64 n : parts) all += n * h * w;
    each("normalize gradient", [&](std::size_t i) {
      NormalizeGradientProblem p;
      p.diff_dst.view = of_pool[i], p.src.view = result[i], p.diff_src = of_norm[i];
      p.gamma = gamma.view(), p.beta = beta.view(), p.mean = mean.view(), p.variance = variance.view();
      p.exact = {exact.memory, 0}, p.epsilon = 1e-3f, p.neuron = relu;
      p.diff_gamma = diff_gamma.view(), p.diff_beta = diff_beta.view(), p.count = all;
      return p;
    });
    each("conv gradient", [&](std::size_t i) {
      ConvGradientProblem p;
      p.diff_dst = of_norm[i], p.src = x[i], p.diff_src = of_source[i], p.weights = weights, p.window = window;
      p.diff_weights = diff_weights.view(), p.diff_bias = diff_bias.view(), p.accumulates = i > 0;
      return p;
    });
    // Convolution and sum are fused, and then joined.
    each("conv", [&](std::size_t i) {
      ConvProblem p;
      p.src = x[i], p.dst = again[i], p.weights = weights, p.window = window;
      return p;
    });
    each("sum", [&](std::size_t i) {
      BinaryProblem p;
      p.src0.view = again[i], p.src1.view = of_norm[i], p.dst = both[i];
      return p;
    });
    for (const auto* const list : {&both, &of_source}) {
      for (const ImageView& view : *list) {
        seen.push_back(temporary(view.n, view.h, view.w, view.c));
        commands.push_back({CopyProblem{view, seen.back()}, "seen"});
      }
    }
  }
};

void test_training() {
  for (unsigned round = 0; round < 120; ++round) {
    Training expected(round, true), parts(round, false);
    const std::string first = execute(cpu_engine(), expected.commands, make_plan(expected.commands, false));
    const auto plan = make_plan(parts.commands, true);
    std::size_t joined_steps = 0;
    for (const auto& step : plan->steps) joined_steps += step.parts > 1;
    report(joined_steps == 15, "round %u: %zu of 15 kinds are joined", round, joined_steps);
    // The results of the first convolution lie side by side.
    const Structure structure = describe(parts.commands);
    const BlockIndex index(structure);
    std::size_t end = 0;
    bool in_a_row = true;
    for (const std::uint32_t command : parts.results_of_convolution) {
      Memory* const memory = std::get<ConvProblem>(parts.commands[command].problem).dst.memory.get();
      for (const auto& placement : plan->placements) {
        if (placement.block != index.of(memory)) continue;
        in_a_row = in_a_row && (end == 0 || placement.offset == end);
        end = placement.offset + memory->size();
      }
    }
    report(in_a_row && end > 0, "round %u: parts do not lie in a row", round);
    for (int times = 0; times < 2; ++times) {  // a list may be run again
      const std::string second = execute(cpu_engine(), parts.commands, plan);
      report(first.empty() && second.empty(), "round %u: %s%s", round, first.c_str(), second.c_str());
    }
    const auto compare = [&](const char* what, const float* got, const float* want, i64 count, double size = 1e-3) {
      double worst = 0;
      for (i64 i = 0; i < count; ++i) {
        size = std::fmax(size, std::fabs(want[i]));
        worst = std::isnan(got[i]) ? 1e30 : std::fmax(worst, std::fabs(double{got[i]} - want[i]));
      }
      report(worst <= 2e-5 * size, "round %u: %s is off by %g, its size %g", round, what, worst, size);
    };
    for (std::size_t i = 0; i < parts.seen.size(); ++i)
      compare("an image", reinterpret_cast<const float*>(parts.seen[i].memory->data()),
              reinterpret_cast<const float*>(expected.seen[i].memory->data()), parts.seen[i].size());
    // Behind a batch normalization, gradients of biases are sums that come to 0.
    for (std::size_t i = 0; i < parts.values.size(); ++i)
      compare(parts.values[i].first, parts.values[i].second.data(), expected.values[i].second.data(),
              parts.values[i].second.count(), parts.values[i].first == std::string("diff_bias") ? 100 : 1e-3);
  }
}

/// Memory that others know stays where it is: then each part is a call of its own.
void test_memory_elsewhere() {
  for (unsigned round = 0; round < 20; ++round) {
    Training expected(500 + round, true), held(500 + round, true);
    execute(cpu_engine(), expected.commands, make_plan(expected.commands, false));
    const std::string error = execute(cpu_engine(), held.commands, make_plan(held.commands, true));
    report(error.empty(), "held memory, round %u: %s", round, error.c_str());
    for (std::size_t i = 0; i < held.values.size(); ++i) {
      const Values &got = held.values[i].second, &want = expected.values[i].second;
      report(std::memcmp(got.data(), want.data(), got.memory->size()) == 0, "held memory, round %u: %s", round,
             held.values[i].first);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv, {test_what_is_joined, test_training, test_memory_elsewhere});
}

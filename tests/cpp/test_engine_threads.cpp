// SPDX-License-Identifier: Apache-2.0
// Work large enough for several threads: bits depend neither on the number of threads nor on the run.
//
//   test_engine_threads [seed offset]      prints "N passed, N failed"
#include "engine/shared/team.hpp"
#include "engine_test.hpp"

namespace {

/// Return a dense image of NaN, which shows values that are not written.
Image image(Random& random, i64 n, i64 h, i64 w, i64 c) { return {random, Format::float32, n, h, w, c, true}; }

Image filled(Random& random, i64 n, i64 h, i64 w, i64 c) {
  Image result = image(random, n, h, w, c);
  result.randomize(random);
  return result;
}

ChannelValues values(Random& random, i64 count) {
  ChannelValues result;
  result.memory = Memory::lazy(cpu_engine().shared_from_this(), static_cast<std::size_t>(count) * 4);
  auto* const floats = reinterpret_cast<float*>(result.memory->data());
  for (i64 i = 0; i < count; ++i) floats[i] = random.real(0.5f, 1);
  return result;
}

/// Run the problem several times; `same_for_any`: the bits also equal those of one thread.
void check(const std::string& name, const Problem& problem, bool same_for_any = true) {
  std::vector<std::shared_ptr<Memory>> results;
  std::visit(
      [&](const auto& one) {
        if constexpr (Described<std::decay_t<decltype(one)>>)
          for_each_result(one, [&](const std::shared_ptr<Memory>& memory) {
            if (memory) results.push_back(memory);
          });
      },
      problem);
  std::vector<std::vector<std::byte>> before, first;
  const auto bytes_of = [](const std::shared_ptr<Memory>& memory) {
    std::vector<std::byte> bytes(memory->size());
    memory->download(0, bytes.size(), bytes.data());
    return bytes;
  };
  Mirrors::upload();
  for (const auto& memory : results) before.push_back(bytes_of(memory));
  const int threads = max_threads();
  for (const int count : same_for_any ? std::vector<int>{1, 2, 3, 2} : std::vector<int>{2, 2}) {
    set_max_threads(count);
    std::vector<std::vector<std::byte>> now;
    for (std::size_t i = 0; i < results.size(); ++i) results[i]->upload(0, before[i].size(), before[i].data());
    const bool ran = !execute(engine(), {{problem, name}});
    for (const auto& memory : results) now.push_back(bytes_of(memory));
    if (first.empty()) first = now;
    report(ran && now == first && now != before, "%s: other bits with %d threads", name.c_str(), count);
  }
  set_max_threads(threads);
  Mirrors::download();
}

void test_convolution_gradient() {
  const struct {
    i64 n, e, size, groups, inputs, outputs, kernel, stride;
    Edge edge;
  } cases[] = {{4, 16, 16, 1, 32, 64, 3, 1, Edge::zero},  {4, 16, 16, 1, 32, 64, 3, 1, Edge::clamp},
               {8, 2, 2, 1, 128, 96, 3, 1, Edge::zero},   {4, 16, 32, 1, 3, 32, 7, 2, Edge::zero},
               {4, 16, 32, 96, 1, 1, 3, 2, Edge::zero},   {4, 16, 32, 96, 1, 1, 3, 2, Edge::clamp},
               {2, 24, 24, 3, 12, 20, 3, 1, Edge::clamp}, {64, 1, 4, 1, 64, 100, 4, 1, Edge::zero}};
  for (const auto& s : cases) {
    Random random(5);
    const i64 outputs = s.groups * s.outputs, inputs = s.groups * s.inputs;
    Image e = filled(random, s.n, s.e, s.e, outputs), src = filled(random, s.n, s.size, s.size, inputs);
    Image diff_src = image(random, s.n, s.size, s.size, inputs);
    ConvGradientProblem p;
    p.diff_dst = e.view, p.src = src.view, p.diff_src = diff_src.view;
    const i64 start = s.e == 1 ? 0 : -(s.kernel / 2);
    p.window = {s.kernel, s.kernel, s.stride, s.stride, 1, 1, start, start, s.edge};
    p.weights = random_weights(random, outputs, s.kernel, s.kernel, s.inputs, s.groups, false);
    p.diff_weights = values(random, static_cast<i64>(p.weights->values.size()));
    p.diff_bias = values(random, outputs);
    check("convolution gradient", p, false);
  }
}

void test_pooling_gradient() {
  for (const PoolType type : {PoolType::max, PoolType::average, PoolType::l2_norm})
    for (const i64 kernel : {2, 3, 40})
      for (const i64 images : {1, 3}) {
        Random random(640000);
        const i64 size = kernel == 40 ? 1 : 20;
        Image src = filled(random, images, 40, 40, 64), diff = filled(random, images, size, size, 64);
        Image dst = image(random, images, 40, 40, 64);
        PoolGradientProblem p;
        p.src = src.view, p.diff_dst = diff.view, p.diff_src = dst.view, p.type = type;
        p.window.kernel_h = p.window.kernel_w = kernel, p.window.stride_h = p.window.stride_w = 2;
        p.window.start_h = p.window.start_w = kernel == 3 ? -1 : 0;
        check("pooling gradient", p);
      }
}

void test_pointwise_gradients() {
  for (const bool clamps : {false, true}) {
    Random random(760000);
    const Image diff = filled(random, 2, 60, 50, 40), other = filled(random, 2, 60, 50, 40);
    const ClampedSource source = clamps ? ClampedSource{60, 50, 7, -9} : ClampedSource{60, 50, 0, 0};
    const Image dst = image(random, 2, 60, 50, 40);
    Operand a, b;
    a.view = diff.view, b.view = other.view;
    check("softmax gradient", SoftmaxGradientProblem{a, b, dst.view, false, source});
    DropoutProblem dropout;
    dropout.src = a, dropout.dst = dst.view, dropout.source = source;
    dropout.mask.h = 60, dropout.mask.w = 50, dropout.mask.c = 40;
    check("dropout", dropout);
    BinaryGradientProblem binary;
    binary.diff_dst = a, binary.other = b, binary.diff_src = dst.view;
    if (clamps) binary.source = source;
    check("arithmetic gradient", binary);
    NeuronGradientProblem neuron;
    neuron.diff_dst = a, neuron.src = b, neuron.diff_src = dst.view;
    neuron.neuron = {NeuronType::tanh, 1, 1, 0, nullptr};
    if (clamps) neuron.src.start_h = 7, neuron.src.start_w = -9, neuron.src.edge = Edge::clamp;
    check("neuron gradient", neuron);
  }
  for (const int axes : {1, 2, 3, 7}) {  // sums along height, width, channels
    Random random(760001);
    const Image diff = filled(random, 2, 60, 50, 40), other = filled(random, 2, 60, 50, 40);
    const Image dst = image(random, 2, axes & 1 ? 1 : 60, axes & 2 ? 1 : 50, axes & 4 ? 1 : 40);
    BinaryGradientProblem p;
    p.diff_dst.view = diff.view, p.other.view = other.view, p.diff_src = dst.view;
    p.sum_h = axes & 1 ? 60 : 1, p.sum_w = axes & 2 ? 50 : 1, p.sum_c = axes & 4 ? 40 : 1;
    check("sums of arithmetic gradient", p);
  }
}

void test_gradients_of_places() {
  Random random(830000);
  const Image diff = filled(random, 2, 80, 80, 24), dst = image(random, 2, 40, 40, 24);
  PadGradientProblem pad;
  pad.diff_dst = diff.view, pad.diff_src = dst.view, pad.src_h = pad.src_w = 40, pad.start_h = pad.start_w = -20;
  pad.edge = PadEdge::mirror;
  check("pad gradient", pad);
  ResampleGradientProblem resample;
  resample.diff_dst = diff.view, resample.diff_src = dst.view, resample.src_h = resample.src_w = 40;
  resample.type = ResampleType::bilinear, resample.region.h.denominator = resample.region.w.denominator = 2;
  check("resample gradient", resample);
}

/// Sums are split into parts for threads: their bits are the same for the same number of threads.
void test_statistics() {
  Random random(960000);
  const i64 c = 40;
  const Image src = filled(random, 8, 32, 31, c), diff = filled(random, 8, 32, 31, c);
  const ChannelValues gamma = values(random, c), beta = values(random, c), mean = values(random, c),
                      variance = values(random, c), diff_gamma = values(random, c), diff_beta = values(random, c);
  check("moments", BatchMomentsProblem{src.view, mean, variance, 0, {}}, false);
  BatchMomentsGradientProblem p;
  p.diff_dst = diff.view, p.src.view = src.view, p.gamma = gamma, p.beta = beta, p.mean = mean, p.variance = variance;
  p.epsilon = 1e-5f, p.diff_gamma = diff_gamma, p.diff_beta = diff_beta;
  check("gradient of moments", p, false);
}

void test_loss() {
  Random random(9);
  const Image y = filled(random, 3, 1, 5000, 12), t = filled(random, 3, 1, 5000, 12);
  const Image gradient = image(random, 3, 1, 5000, 12), loss = image(random, 3, 1, 1, 1);
  LossProblem p;
  LossProblem::Part part;
  part.n = 3, part.w = 5000, part.c = 12, part.src.view = y.view, part.labels.view = t.view;
  part.gradient = gradient.view, part.loss = loss.view;
  p.parts.push_back(part), p.function.type = LossType::softmax;
  check("loss", p, false);
  const int threads = max_threads();
  const double two = loss.value(2, 0, 0, 0);
  set_max_threads(1);
  failures_of({{p, ""}});
  set_max_threads(threads);
  report(std::fabs(loss.value(2, 0, 0, 0) - two) <= 1e-6 * std::fabs(two), "the loss of one thread or two");
}

void test_optimizer() {
  Random random(77);
  OptimizeProblem p;
  p.columns = 300001, p.type = OptimizerType::adam, p.decay = 0.9, p.beta2 = 0.999, p.epsilon = 1e-8;
  for (FloatMatrices* each : {&p.gradient, &p.values, &p.result, &p.momentum, &p.second_moment})
    each->memory = values(random, p.columns).memory;
  check("optimizer", p);
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv,
                   {test_convolution_gradient, test_pooling_gradient, test_pointwise_gradients,
                    test_gradients_of_places, test_statistics, test_loss, test_optimizer});
}

// SPDX-License-Identifier: Apache-2.0
// Gradients of convolutions larger than the rows of tests/test_engine_rows.py, against the forward problems: both maps
// are linear, so a scalar product shows whether one is the adjoint of the other. Sums over commands.
//
//   test_engine_convolution_gradient [seed offset]      prints "N passed, N failed"
#include "engine/cpu/convolution/conv_gradient.hpp"
#include "engine_test.hpp"

namespace {

struct Shape {
  i64 n, e_h, e_w, h, w, groups, inputs, outputs;  ///< channels per group
};

ChannelValues values_of(std::size_t count) {
  ChannelValues values;
  values.memory = Memory::lazy(cpu_engine().shared_from_this(), count * 4);
  std::memset(values.memory->data(), 0xff, count * 4);
  return values;
}
const float* floats(const ChannelValues& values) { return reinterpret_cast<const float*>(values.memory->data()); }

/// <diff_src, D> is <diff_dst, forward(D)>, and likewise for the weights.
void check(Random& random, const Shape& s, const Window& window, bool is_transpose, const char* why) {
  const i64 outputs = s.groups * s.outputs, inputs = s.groups * s.inputs;
  const auto image = [&](i64 h, i64 w, i64 c) { return Image(random, Format::float32, s.n, h, w, c, true); };
  const auto weights = [&] {
    return random_weights(random, outputs, window.kernel_h, window.kernel_w, s.inputs, s.groups, false);
  };
  Image e = image(s.e_h, s.e_w, outputs), src = image(s.h, s.w, inputs);
  Image direction = image(s.h, s.w, inputs), diff_src = image(s.h, s.w, inputs);
  e.randomize(random), src.randomize(random), direction.randomize(random);
  TransposeGradientProblem p;
  p.diff_dst = e.view, p.src = src.view, p.diff_src = diff_src.view, p.window = window, p.weights = weights();
  p.diff_weights = values_of(p.weights->values.size()), p.diff_bias = values_of(static_cast<std::size_t>(outputs));
  const auto errors = failures_of({is_transpose ? Command{p, ""} : Command{static_cast<ConvGradientProblem&>(p), ""}});
  report(errors.empty(), "%s: %s", why, errors.empty() ? "" : errors[0].c_str());

  struct Sum {
    double value = 0, square = 0;
    void add(double term) { value += term, square += term * term; }
  };
  const auto near = [&](const char* name, const Sum& got, const Sum& want) {
    // Terms are off by up to 2e-6 each; errors of many terms grow like the root of the sum of their squares.
    const double allowed = 1e-5 * (std::sqrt(got.square) + std::sqrt(want.square)) + 1e-6;
    report(std::fabs(got.value - want.value) <= allowed, "%s, %s: %.9g, not %.9g (+- %.3g)", why, name, got.value,
           want.value, allowed);
  };
  const auto forward = [&](const Image& x, const std::shared_ptr<const ConvWeights>& filters) {
    const Image y = image(s.e_h, s.e_w, outputs);
    if (is_transpose)
      failures_of({{TransposeProblem{x.view, y.view, filters, window, {}, false}, ""}});
    else
      failures_of({{ConvProblem{x.view, y.view, filters, window, {}, 1, false, {}, {}}, ""}});
    Sum sum;
    e.for_each([&](i64 n, i64 v, i64 u, i64 o) { sum.add(e.value(n, v, u, o) * y.value(n, v, u, o)); });
    return sum;
  };
  Sum by_source, by_weights, by_bias, biases;
  direction.for_each(
      [&](i64 n, i64 y, i64 x, i64 c) { by_source.add(direction.value(n, y, x, c) * diff_src.value(n, y, x, c)); });
  near("the source", by_source, forward(direction, p.weights));
  const auto other = weights();
  for (std::size_t i = 0; i < other->values.size(); ++i)
    by_weights.add(double{other->values[i]} * double{floats(p.diff_weights)[i]});
  near("the weights", by_weights, forward(src, other));
  for (i64 o = 0; o < outputs; ++o) biases.add(double{floats(p.diff_bias)[o]});
  e.for_each([&](i64 n, i64 v, i64 u, i64 o) { by_bias.add(e.value(n, v, u, o)); });
  near("the biases", biases, by_bias);
}

void test_against_the_forward_entries() {
  Random random(4);
  for (const Edge edge : {Edge::zero, Edge::clamp}) {
    const char* const clamps = edge == Edge::clamp ? "clamped" : "";
    const auto window = [&](i64 kernel, i64 stride, i64 start) {
      return Window{kernel, kernel, stride, stride, 1, 1, start, start, edge};
    };
    // One image whose patches are computed in bands.
    check(random, {1, 97, 90, 97, 91, 1, 25, 2}, window(9, 1, -4), false, clamps);
    for (int round = 0; round < 12; ++round) {
      const i64 kernel = random.pick<i64>({1, 2, 3, 5, 7}), stride = random.whole(1, 2);
      Shape s = {random.whole(1, 4), 0, 0, random.whole(7, 12), random.whole(7, 12), 1, 0, 0};
      s.inputs = random.pick<i64>({1, 3, 16, 64, 72, 256}), s.outputs = random.pick<i64>({10, 64, 80, 512});
      if (random.one_in(3)) s.h = s.w = random.whole(2, 4);
      if (random.one_in(5)) s.groups = 2;
      if (random.one_in(5)) s.groups = 96, s.inputs = s.outputs = 1;
      s.e_h = (s.h + stride - 1) / stride, s.e_w = (s.w + stride - 1) / stride;
      check(random, s, window(kernel, stride, -(kernel / 2)), false, clamps);
      if (edge == Edge::clamp) continue;
      s.e_h = (s.h - 1) * stride + kernel, s.e_w = (s.w - 1) * stride + kernel;
      check(random, s, window(kernel, stride, 1 - kernel), true, "transpose");
    }
  }
}

/// The second command adds to the sums that the first one left in a buffer.
void test_sums_over_commands() {
  Random random(6);
  Window w;
  w.kernel_h = w.kernel_w = 3, w.start_h = w.start_w = -1;
  Image e(random, Format::float32, 5, 6, 6, 8, true), src(random, Format::float32, 5, 6, 6, 4, true);
  e.randomize(random), src.randomize(random);
  ConvGradientProblem whole;
  whole.diff_dst = e.view, whole.src = src.view, whole.weights = random_weights(random, 8, 3, 3, 4, 1, false);
  whole.window = w, whole.diff_weights = values_of(8 * 9 * 4), whole.diff_bias = values_of(8);
  ConvGradientProblem first = whole;
  first.diff_weights = values_of(8 * 9 * 4), first.diff_bias = values_of(8);
  ConvGradientProblem rest = first;
  first.diff_dst = e.view.images(0, 2), first.src = src.view.images(0, 2);
  rest.diff_dst = e.view.images(2, 3), rest.src = src.view.images(2, 3), rest.accumulates = true;
  failures_of({{whole, ""}, {first, ""}, {rest, ""}});
  double worst = 0;
  for (int i = 0; i < 8 * 9 * 4; ++i)
    worst = std::fmax(worst, double{std::fabs(floats(whole.diff_weights)[i] - floats(first.diff_weights)[i])});
  for (int i = 0; i < 8; ++i)
    worst = std::fmax(worst, double{std::fabs(floats(whole.diff_bias)[i] - floats(first.diff_bias)[i])});
  report(worst < 1e-3, "a batch in two parts is off by %g", worst);
}

/// oneDNN's kernel for 1 x 1 with a stride writes past its scratch memory if there are fewer channels than in a vector.
/// No result shows that, so check that it is not used.
void test_few_channels_with_a_stride() {
  Random random(8);
  for (const i64 inputs : {1, 3, 7, 8, 15, 16, 64}) {
    Image src(random, Format::float32, 1, 32, 32, inputs, true), e(random, Format::float32, 1, 16, 16, 48, true);
    src.randomize(random), e.randomize(random);
    Window w;
    w.kernel_h = w.kernel_w = 1, w.stride_h = w.stride_w = 2;
    std::vector<float> to(static_cast<std::size_t>(48 * inputs));
    const char* why_not = cpu::weights_gradient_primitive(
        {tensor_of(e.view, e.data()), tensor_of(src.view, src.data()), 1, w, to.data(), false});
    report((why_not != nullptr) == (inputs < 16), "1 x 1 with stride 2, %d channels: %s", int(inputs),
           why_not ? why_not : "taken");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv,
                   {test_against_the_forward_entries, test_sums_over_commands, test_few_channels_with_a_stride});
}

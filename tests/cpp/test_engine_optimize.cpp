// SPDX-License-Identifier: Apache-2.0
// Optimizers of the engine, several steps of each, against plain double loops written from the formulas in engine.hpp:
// every type and regularization, bounds, matrices with gaps between rows, results in place and apart, one and two
// threads.
//
//   test_engine_optimize [seed offset]      prints "N passed, N failed"
#include <algorithm>

#include "engine/shared/team.hpp"
#include "engine_test.hpp"

namespace {

const char* const kNames[] = {"descent", "momentum", "nesterov", "rms", "adam", "amsgrad"};

/// Matrices of floats with gaps of NaN between rows and matrices.
struct Matrices {
  FloatMatrices view;
  i64 matrices, rows, columns;
  std::vector<std::byte> before;

  Matrices(Random& random, i64 matrices, i64 rows, i64 columns, bool dense)
      : matrices(matrices), rows(rows), columns(columns) {
    view.row_stride = dense ? columns : columns + random.whole(0, 5);
    view.matrix_stride = dense ? rows * columns : rows * view.row_stride + random.whole(0, 7);
    const i64 lead = random.whole(0, 9);
    view.offset = static_cast<std::size_t>(lead) * 4;
    view.memory = Memory::lazy(cpu_engine().shared_from_this(),
                               static_cast<std::size_t>(lead + matrices * view.matrix_stride + 16) * 4);
    std::memset(view.memory->data(), 0xff, view.memory->size());
  }
  float* at(i64 m, i64 r, i64 c) const {
    return reinterpret_cast<float*>(view.memory->data() + view.offset) + m * view.matrix_stride + r * view.row_stride +
           c;
  }
  template <class F>
  void for_each(const F& f) const {
    i64 index = 0;
    for (i64 m = 0; m < matrices; ++m)
      for (i64 r = 0; r < rows; ++r)
        for (i64 c = 0; c < columns; ++c) f(*at(m, r, c), index++);
  }
  std::vector<double> values() const {
    std::vector<double> values;
    for_each([&](float v, i64) { values.push_back(static_cast<double>(v)); });
    return values;
  }
  void fill(Random& random, float low, float high) {
    for_each([&](float& v, i64) { v = random.real(low, high); });
  }
  void snapshot() { before.assign(view.memory->data(), view.memory->data() + view.memory->size()); }
  bool gaps_unchanged() const {
    std::vector<std::byte> now(view.memory->data(), view.memory->data() + view.memory->size());
    for_each([&](float& v, i64) {
      const auto offset = static_cast<std::size_t>(reinterpret_cast<std::byte*>(&v) - view.memory->data());
      std::memcpy(now.data() + offset, before.data() + offset, 4);
    });
    return now == before;
  }
};

/// One step in double, from Apple's sentences rather than from the engine's names.
struct Reference {
  std::vector<double> m, s, most;

  double step(const OptimizeProblem& p, std::size_t i, double value, double gradient) {
    double g = gradient;
    if (g < static_cast<double>(p.min)) g = static_cast<double>(p.min);
    if (g > static_cast<double>(p.max)) g = static_cast<double>(p.max);
    g *= static_cast<double>(p.rescale);
    const auto scale = static_cast<double>(p.regularization_scale);
    if (p.regularization == Regularization::absolute) g += scale * (value > 0 ? 1 : value < 0 ? -1 : 0);
    if (p.regularization == Regularization::square) g += scale * value;
    switch (p.type) {
      case OptimizerType::descent: return value - p.rate * g;
      case OptimizerType::momentum: return value - (m[i] = p.decay * m[i] + p.rate * g);
      case OptimizerType::nesterov: m[i] = p.decay * m[i] + g; return value - p.rate * (g + p.decay * m[i]);
      case OptimizerType::rms:
        s[i] = p.beta2 * s[i] + (1 - p.beta2) * g * g;
        return value - p.rate * g / (std::sqrt(s[i]) + p.epsilon);
      case OptimizerType::adam:
      case OptimizerType::amsgrad:
        m[i] = p.decay * m[i] + (1 - p.decay) * g;
        s[i] = p.beta2 * s[i] + (1 - p.beta2) * g * g;
        most[i] = p.type == OptimizerType::adam ? s[i] : std::max(most[i], s[i]);
        return value - p.rate * m[i] / (std::sqrt(most[i]) + p.epsilon);
    }
    return NAN;
  }
};

double worst(const Matrices& got, const std::vector<double>& want) {
  double most = 0;
  got.for_each([&](float v, i64 i) {
    const double w = want[static_cast<std::size_t>(i)];
    const double off = std::fabs(static_cast<double>(v) - w) / (1 + std::fabs(w));
    most = std::isnan(off) ? INFINITY : std::max(most, off);
  });
  return most;
}

void test_steps() {
  for (int type = 0; type < 6; ++type) {
    for (unsigned seed = 0; seed < 60; ++seed) {
      Random random(700000 + seed * 6 + static_cast<unsigned>(type));
      const bool dense = random.one_in(2), large = seed % 15 == 0;
      const i64 matrices = random.whole(1, 3), rows = large ? 60 : random.whole(1, 5);
      const i64 columns = large ? 1201 : random.pick({1, 3, 8, 17, 100});
      Matrices gradient(random, matrices, rows, columns, dense), values(random, matrices, rows, columns, dense);
      Matrices apart(random, matrices, rows, columns, dense), momentum(random, matrices, rows, columns, dense);
      Matrices second_moment(random, matrices, rows, columns, dense), max(random, matrices, rows, columns, dense);
      const bool in_place = random.one_in(2);
      Matrices& result = in_place ? values : apart;

      OptimizeProblem p;
      p.matrices = matrices, p.rows = rows, p.columns = columns;
      p.type = static_cast<OptimizerType>(type);
      p.regularization = static_cast<Regularization>(seed % 3);
      p.regularization_scale = random.real(-0.5f, 0.5f);
      p.rate = static_cast<double>(random.real(0.01f, 0.2f));
      p.decay = random.pick({0.0, 0.5, 0.9}), p.beta2 = random.pick({0.5, 0.9, 0.999});
      p.epsilon = random.pick({1e-8, 1e-3, 0.1});
      p.rescale = random.pick({1.0f, 0.25f, -2.0f});
      if (random.one_in(2)) p.min = -0.75f, p.max = 0.5f;
      p.gradient = gradient.view, p.values = values.view, p.result = result.view;
      if (p.type != OptimizerType::descent && p.type != OptimizerType::rms) p.momentum = momentum.view;
      if (type >= 3) p.second_moment = second_moment.view;
      if (p.type == OptimizerType::amsgrad) p.max_second_moment = max.view;

      values.fill(random, -2, 2), apart.fill(random, -2, 2), momentum.fill(random, -1, 1);
      if (random.one_in(4)) *values.at(0, 0, 0) = 0;  // the sign of 0 is 0
      second_moment.fill(random, 0, 1), max.fill(random, 0, 1);
      Reference reference{momentum.values(), second_moment.values(), max.values()};
      std::vector<double> want = values.values();
      for (Matrices* array : {&gradient, &values, &apart, &momentum, &second_moment, &max}) array->snapshot();
      bool good = true;
      std::string error;
      for (int step = 0; step < 3 && good; ++step) {
        gradient.fill(random, -2, 2);
        const std::vector<double> g = gradient.values();
        const std::vector<double> start = in_place ? want : values.values();
        for (std::size_t i = 0; i < want.size(); ++i) want[i] = reference.step(p, i, start[i], g[i]);
        const auto errors = failures_of({{p, "optimize"}});
        if (!errors.empty()) error = errors[0];
        const double off = std::max({worst(result, want), p.momentum.memory ? worst(momentum, reference.m) : 0,
                                     p.second_moment.memory ? worst(second_moment, reference.s) : 0,
                                     p.max_second_moment.memory ? worst(max, reference.most) : 0});
        good = errors.empty() && off < 4e-6;
        if (!good) error += " off by " + std::to_string(off) + " in step " + std::to_string(step);
      }
      for (Matrices* array : {&gradient, &values, &apart, &momentum, &second_moment, &max})
        good = good && array->gaps_unchanged();
      report(good, "%s seed %u: %s", kNames[type], seed, error.c_str());
    }
  }
}

/// Values are 0 or NaN where they have to be.
void test_ends() {
  float g[] = {NAN, 1, 5, -5, 0, INFINITY}, v[] = {0, NAN, 0, 0, INFINITY, 0}, result[6];
  OptimizeProblem p;
  p.columns = 6;
  const auto wrap = [](float* data) {
    FloatMatrices view;
    view.memory = Memory::wrap(data, 24, {});
    return view;
  };
  p.gradient = wrap(g), p.values = wrap(v), p.result = wrap(result);
  p.rate = 1, p.min = -2, p.max = 3;
  cpu_engine().try_run(p);
  report(std::isnan(result[0]) && std::isnan(result[1]), "NaN stays NaN");
  report(result[2] == -3 && result[3] == 2 && result[5] == -3, "bounds");
  report(std::isinf(result[4]), "no regularization leaves an infinite value alone");
}

/// Same bits with any number of threads: every value is by itself.
void test_threads() {
  Random random(77);
  Matrices g(random, 1, 1, 300001, true), v(random, 1, 1, 300001, true), m(random, 1, 1, 300001, true),
      s(random, 1, 1, 300001, true), a(random, 1, 1, 300001, true), b(random, 1, 1, 300001, true);
  g.fill(random, -1, 1), v.fill(random, -1, 1);
  OptimizeProblem p;
  p.columns = 300001, p.type = OptimizerType::adam, p.decay = 0.9, p.beta2 = 0.999, p.epsilon = 1e-8;
  p.gradient = g.view, p.values = v.view, p.momentum = m.view, p.second_moment = s.view;
  for (Matrices* result : {&a, &b}) {
    m.for_each([](float& x, i64) { x = 0; });
    s.for_each([](float& x, i64) { x = 0; });
    p.result = result->view;
    const int before = max_threads();
    set_max_threads(result == &a ? 1 : 2);
    cpu_engine().try_run(p);
    set_max_threads(before);
  }
  report(a.values() == b.values(), "threads");
}

void test_keys() {
  Random random(5);
  Matrices g(random, 1, 2, 8, true);
  OptimizeProblem p;
  p.rows = 2, p.columns = 8, p.type = OptimizerType::adam;
  p.gradient = p.values = p.result = p.momentum = p.second_moment = g.view;
  const std::string key = structure_key({{p, ""}});
  const auto differs = [&](const auto& change) {
    OptimizeProblem other = p;
    change(other);
    return structure_key({{other, ""}}) != key;
  };
  report(differs([](OptimizeProblem& q) { q.rows = 1; }) && differs([](OptimizeProblem& q) { q.columns = 4; }) &&
             differs([](OptimizeProblem& q) { q.values.offset += 4; }) &&
             differs([](OptimizeProblem& q) { q.second_moment = {}; }) &&
             differs([](OptimizeProblem& q) { q.type = OptimizerType::rms; }) &&
             differs([](OptimizeProblem& q) { q.result.row_stride += 1; }),
         "keys tell problems apart");
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv, {test_steps, test_ends, test_threads, test_keys}); }

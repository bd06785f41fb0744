// SPDX-License-Identifier: Apache-2.0
// Losses and their gradients, against plain double code written from the formulas in engine.hpp; gradients are
// differences of that code's losses, and of the engine's own. Random placement inside, outside and across the borders,
// slices of larger images, every format, several parts, one and two threads; and the loss of boxes.
//
//   test_engine_loss [seed offset]      prints "N passed, N failed"
#include <algorithm>
#include <functional>

#include "engine/shared/team.hpp"
#include "engine_test.hpp"

namespace {

const char* const kNames[] = {"absolute", "square", "softmax", "sigmoid", "categorical",
                              "hinge",    "huber",  "cosine",  "log",     "kullback_leibler"};

/// A source for a destination of these extents, somewhere under it.
struct Placed {
  Image image;
  Operand operand;

  Placed(Random& random, Format format, i64 n, i64 h, i64 w, i64 c, bool dense)
      : image(random, format, n, h, w, c, dense) {
    operand.view = image.view;
  }
  double seen(i64 n, i64 y, i64 x, i64 c) const {
    i64 row = operand.start_h + (operand.repeat_h ? 0 : y), column = operand.start_w + (operand.repeat_w ? 0 : x);
    if (operand.edge == Edge::clamp) {
      row = std::clamp<i64>(row, 0, image.view.h - 1);
      column = std::clamp<i64>(column, 0, image.view.w - 1);
    } else if (row < 0 || row >= image.view.h || column < 0 || column >= image.view.w) {
      return 0;
    }
    return static_cast<double>(static_cast<float>(image.value(n, row, column, operand.repeat_c ? 0 : c)));
  }
};

using Values = std::vector<double>;

double times(double x, double y) { return x == 0 && std::isinf(y) ? 0 : x * y; }

/// The losses of a pixel's values, without weights.
Values losses_of(const LossFunction& f, const Values& y, const Values& given) {
  const double eps = static_cast<double>(f.epsilon), delta = static_cast<double>(f.delta);
  const double smoothing = static_cast<double>(f.smoothing);
  Values t = given, l(y.size());
  if (smoothing > 0 && (f.type == LossType::softmax || f.type == LossType::sigmoid))
    for (double& v : t)
      v = v * (1 - smoothing) + smoothing / (f.type == LossType::softmax ? static_cast<double>(f.classes) : 2);
  double log_sum = 0;
  if (f.type == LossType::softmax) {
    double most = y[0], sum = 0;
    for (const double v : y) most = std::max(most, v);
    for (const double v : y) sum += std::exp(v - most);
    log_sum = most + std::log(sum);
  }
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double d = y[i] - t[i];
    switch (f.type) {
      case LossType::absolute: l[i] = std::fabs(d); break;
      case LossType::square: l[i] = d * d; break;
      case LossType::softmax: l[i] = -times(t[i], y[i] - log_sum); break;
      case LossType::sigmoid: l[i] = std::fmax(y[i], 0) - y[i] * t[i] + std::log1p(std::exp(-std::fabs(y[i]))); break;
      case LossType::categorical: l[i] = -times(t[i], std::log(y[i])); break;
      case LossType::hinge: l[i] = std::fmax(1 - (2 * t[i] - 1) * y[i], 0); break;
      case LossType::huber:
        l[i] = std::fabs(d) <= delta ? 0.5 * d * d : 0.5 * delta * delta + delta * (std::fabs(d) - delta);
        break;
      case LossType::cosine: l[i] = -y[i] * t[i]; break;
      case LossType::log: l[i] = -times(t[i], std::log(y[i] + eps)) - times(1 - t[i], std::log(1 - y[i] + eps)); break;
      case LossType::kullback_leibler: l[i] = times(t[i], std::log(t[i]) - y[i]); break;
    }
  }
  return l;
}

double weighted(const LossFunction& f, const Values& y, const Values& t, const Values& a) {
  const Values l = losses_of(f, y, t);
  double sum = 0;
  for (std::size_t i = 0; i < l.size(); ++i) sum += a[i] * l[i];
  return sum;
}

/// d weighted / d y_i (or t_i) as a difference.
double slope_of(const LossFunction& f, Values y, Values t, const Values& a, std::size_t i, bool by_labels) {
  constexpr double kStep = 1e-5;
  Values& x = by_labels ? t : y;
  const double middle = x[i];
  x[i] = middle + kStep;
  const double after = weighted(f, y, t, a);
  x[i] = middle - kStep;
  return (after - weighted(f, y, t, a)) / (2 * kStep);
}

/// Where the formulas have a kink or an end that a difference may not step over.
bool is_smooth(const LossFunction& f, double y, double t) {
  constexpr double kNear = 1e-4;
  const double d = y - t;
  switch (f.type) {
    case LossType::absolute: return std::fabs(d) > kNear;
    case LossType::hinge: return std::fabs(1 - (2 * t - 1) * y) > kNear;
    case LossType::huber: return std::fabs(std::fabs(d) - static_cast<double>(f.delta)) > kNear;
    case LossType::sigmoid: return std::fabs(y) > kNear;
    case LossType::categorical: return y > 0.01;
    case LossType::log: return y > 0.01 && y < 0.99;
    case LossType::kullback_leibler: return t > 0.01;
    default: return true;
  }
}

/// Predictions, labels and weights that the function takes.
void randomize(Random& random, const LossFunction& f, Placed& y, Placed& t, Placed& w) {
  const bool probabilities = f.type == LossType::categorical || f.type == LossType::log;
  y.image.randomize(random, probabilities ? 0.05f : -3, probabilities ? 0.95f : 3);
  t.image.randomize(random, f.type == LossType::kullback_leibler ? 0.05f : 0, 1);
  w.image.randomize(random, -1, 2);
}

std::string check_part(const LossProblem& p, const LossProblem::Part& part, const Placed& y, const Placed& t,
                       const Placed* w, const Placed* up, const Image* gradient, const Image* losses, Values* sums,
                       std::vector<i64>* nonzero) {
  std::string wrong;
  const auto note = [&](const char* what, i64 n, i64 row, i64 x, i64 c, double got, double want) {
    char text[160];
    std::snprintf(text, sizeof text, "%s (%d, %d, %d, %d) is %.9g, not %.9g", what, int(n), int(row), int(x), int(c),
                  got, want);
    if (wrong.empty()) wrong = text;
  };
  for (i64 n = 0; n < part.n; ++n) {
    double sum = 0;
    i64 count = 0;
    for (i64 row = 0; row < part.h; ++row) {
      for (i64 x = 0; x < part.w; ++x) {
        Values py, pt, pa, own;
        for (i64 c = 0; c < part.c; ++c) {
          py.push_back(y.seen(n, row, x, c)), pt.push_back(t.seen(n, row, x, c));
          own.push_back(w ? w->seen(n, row, x, c) : static_cast<double>(p.function.weight));
          pa.push_back(own.back() * (up ? up->seen(n, row, x, c) : 1));
          count += own.back() != 0;
        }
        const Values l = losses_of(p.function, py, pt);
        double mass = 0;
        for (const double a : pa) mass += std::fabs(a);
        for (i64 c = 0; c < part.c; ++c) {
          const auto i = static_cast<std::size_t>(c);
          sum += own[i] * l[i];
          if (losses) {
            const double want = own[i] * l[i], got = losses->value(n, row, x, c);
            const double allowed = 4e-6 * (1 + std::fabs(want)) + format_error(losses->view.format, want);
            if (!(std::fabs(got - want) <= allowed)) note("loss", n, row, x, c, got, want);
          }
          if (gradient && is_smooth(p.function, py[i], pt[i])) {
            const double want = slope_of(p.function, py, pt, pa, i, p.by_labels), got = gradient->value(n, row, x, c);
            const double allowed =
                1e-5 * (0.1 + std::fabs(want) + 0.1 * mass) + format_error(gradient->view.format, want);
            if (!(std::fabs(got - want) <= allowed)) note("gradient", n, row, x, c, got, want);
          }
        }
      }
    }
    sums->push_back(sum), nonzero->push_back(count);
  }
  return wrong;
}

void test_functions() {
  for (int type = 0; type < 10; ++type) {
    for (unsigned seed = 0; seed < 48; ++seed) {
      Random random(800000 + seed * 10 + static_cast<unsigned>(type));
      LossProblem p;
      LossFunction& f = p.function;
      f.type = static_cast<LossType>(type);
      f.weight = random.pick({1.0f, 0.25f, -2.0f});
      if (random.one_in(3)) f.smoothing = 0.2f, f.classes = random.whole(1, 12);
      f.epsilon = random.pick({1e-7f, 0.05f}), f.delta = random.pick({0.5f, 1.0f, 2.0f});
      p.by_labels = random.one_in(4);
      p.reduction = random.pick(
          {LossReduction::none, LossReduction::sum, LossReduction::mean, LossReduction::mean_of_nonzero_weights});
      if (f.type == LossType::cosine) p.reduction = LossReduction::sum;
      const bool none = p.reduction == LossReduction::none, plain = seed % 2 == 0, large = seed % 12 == 0;
      p.across_images = !none && random.one_in(3);
      const bool weights = random.one_in(2), incoming = random.one_in(3);
      const bool wants_gradient = !random.one_in(5), wants_loss = !wants_gradient || !random.one_in(4);
      const i64 c = large && type == 2 ? 1500 : random.pick({1, 3, 4, 10, 37, 100});
      const i64 h = large && c < 40 ? 40 : random.whole(1, 4), w = large && c < 40 ? 30 : random.whole(1, 5);
      const auto format = [&] { return seed % 3 ? Format::float32 : random.pick({Format::float32, Format::float16}); };

      struct All {
        Placed y, t, w, up;
        Image gradient, loss;
      };
      std::vector<std::unique_ptr<All>> all;
      for (i64 parts = random.whole(1, 3); parts > 0; --parts) {
        const i64 n = random.whole(1, 3);
        const bool dense = random.one_in(2);
        all.push_back(std::make_unique<All>(All{
            {random, format(), n, h, w, c, dense},
            {random, format(), n, h, w, c, dense},
            {random, format(), n, h, w, c, dense},
            {random, format(), n, h, w, c, dense},
            {random, format(), n, h, w, c, dense},
            {random, format(), n, none ? h : 1, none ? w : 1, none ? c : 1, dense},
        }));
        All& a = *all.back();
        randomize(random, f, a.y, a.t, a.w);
        a.up.image.randomize(random);
        if (random.one_in(3))
          a.w.image.for_each([&](i64 i, i64 row, i64 x, i64 k) {
            if (k % 2) std::memset(a.w.image.at(i, row, x, k), 0, size_of(a.w.image.view.format));
          });
        a.w.image.snapshot();
        a.gradient.snapshot(), a.loss.snapshot();
        LossProblem::Part part;
        part.n = n, part.h = h, part.w = w, part.c = c;
        if (!plain && f.type != LossType::categorical && f.type != LossType::log) {
          const i64 start_h = random.whole(-2, 2), start_w = random.whole(-2, 2);
          for (Operand* operand : {&a.y.operand, &a.t.operand, &a.w.operand})
            operand->start_h = start_h, operand->start_w = start_w,
            operand->edge = seed % 4 == 1 ? Edge::zero : Edge::clamp;
        }
        if (random.one_in(2)) a.up.operand.repeat_h = a.up.operand.repeat_w = a.up.operand.repeat_c = true;
        part.src = a.y.operand, part.labels = a.t.operand;
        if (weights) part.weights = a.w.operand;
        if (incoming) part.incoming = a.up.operand;
        if (wants_gradient) part.gradient = a.gradient.view;
        if (wants_loss) part.loss = a.loss.view;
        p.parts.push_back(part);
      }
      const int before = max_threads();
      set_max_threads(seed % 2 ? 1 : 2);
      const auto errors = failures_of({{p, "loss"}});
      set_max_threads(before);
      std::string wrong = errors.empty() ? "" : errors[0];
      Values sums;
      std::vector<i64> nonzero;
      // With an incoming gradient the losses are those without it.
      for (std::size_t i = 0; i < all.size() && wrong.empty(); ++i) {
        All& a = *all[i];
        wrong =
            check_part(p, p.parts[i], a.y, a.t, weights ? &a.w : nullptr, nullptr, nullptr, nullptr, &sums, &nonzero);
        Values skipped;
        std::vector<i64> skipped_counts;
        if (wrong.empty())
          wrong = check_part(p, p.parts[i], a.y, a.t, weights ? &a.w : nullptr, incoming ? &a.up : nullptr,
                             wants_gradient ? &a.gradient : nullptr,
                             wants_loss && none && !incoming ? &a.loss : nullptr, &skipped, &skipped_counts);
        for (const Image* image : {&a.y.image, &a.t.image, &a.w.image, &a.up.image})
          if (!image->unchanged()) wrong = "a source was written";
        if (!a.gradient.surroundings_unchanged() || !a.loss.surroundings_unchanged())
          wrong = "something was written outside";
        if (!wants_gradient && !a.gradient.unchanged()) wrong = "a gradient was written";
      }
      if (wrong.empty() && wants_loss && !none && !incoming) {
        const double values = static_cast<double>(h * w * (f.type == LossType::softmax ? 1 : c));
        const auto divisor = [&](std::size_t i) {
          return p.reduction == LossReduction::sum    ? 1
                 : p.reduction == LossReduction::mean ? values
                                                      : static_cast<double>(nonzero[i]);
        };
        double total = 0, of_all = 0, magnitude = 0;
        for (std::size_t i = 0; i < sums.size(); ++i) {
          if (f.type == LossType::cosine) sums[i] += weights ? 1 : static_cast<double>(f.weight);
          total += sums[i], of_all += divisor(i), magnitude += std::fabs(sums[i]);
        }
        if (p.reduction == LossReduction::sum) of_all = 1;
        std::size_t index = 0;
        for (const auto& a : all) {
          for (i64 n = 0; n < a->loss.view.n; ++n, ++index) {
            const double own = divisor(index) > 0 ? sums[index] / divisor(index) : sums[index];
            const double want = !p.across_images ? own : index > 0 ? 0 : of_all > 0 ? total / of_all : total;
            const double got = a->loss.value(n, 0, 0, 0);
            const double scale = p.across_images ? magnitude : std::fabs(own);
            if (std::fabs(got - want) > 2e-5 * (1 + scale) + format_error(a->loss.view.format, want))
              wrong = "the loss of image " + std::to_string(index) + " is " + std::to_string(got) + ", not " +
                      std::to_string(want);
          }
        }
      }
      report(wrong.empty(), "%s seed %u: %s", kNames[type], seed, wrong.c_str());
    }
  }
}

/// A dense problem over vectors of floats.
struct Plain {
  std::vector<float> y, t, gradient, loss;
  LossProblem problem;

  Plain(LossType type, i64 n, i64 hw, i64 c, std::vector<float> y_, std::vector<float> t_)
      : y(std::move(y_)), t(std::move(t_)), gradient(y.size()), loss(static_cast<std::size_t>(n)) {
    LossProblem::Part part;
    part.n = n, part.h = 1, part.w = hw, part.c = c;
    const auto view = [&](std::vector<float>& values, i64 w, i64 k) {
      ImageView v;
      v.memory = Memory::wrap(values.data(), values.size() * 4, {});
      v.n = n, v.w = w, v.c = k;
      v.w_stride = k, v.h_stride = v.n_stride = w * k;
      return v;
    };
    part.src.view = view(y, hw, c), part.labels.view = view(t, hw, c);
    part.gradient = view(gradient, hw, c), part.loss = view(loss, 1, 1);
    problem.parts.push_back(part);
    problem.function.type = type;
  }
  void run() { cpu_engine().try_run(problem); }
};

/// The engine's gradients are the differences of the engine's losses.
void test_own_differences() {
  for (int type = 0; type < 10; ++type) {
    Random random(4000 + static_cast<unsigned>(type));
    const bool probabilities = type == 4 || type == 8;
    for (const i64 c : {3, 40}) {
      std::vector<float> y, t;
      for (i64 i = 0; i < c; ++i) {
        t.push_back(random.real(0.1f, 1));
        y.push_back(probabilities ? random.real(0.2f, 0.8f) : random.real(-2, 2));
      }
      Plain p(static_cast<LossType>(type), 1, 1, c, y, t);
      p.problem.function.delta = 0.7f;
      p.run();
      const std::vector<float> gradient = p.gradient;
      double worst = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (!is_smooth(p.problem.function, static_cast<double>(y[i]), static_cast<double>(t[i]))) continue;
        constexpr float kStep = 1.0f / 256;
        p.y[i] = y[i] + kStep;
        p.run();
        const auto after = static_cast<double>(p.loss[0]);
        p.y[i] = y[i] - kStep;
        p.run();
        const double difference = (after - static_cast<double>(p.loss[0])) / (2 * static_cast<double>(kStep));
        p.y[i] = y[i];
        worst = std::max(worst, std::fabs(difference - static_cast<double>(gradient[i])) / (1 + std::fabs(difference)));
      }
      report(worst < 4e-3, "%s, %d channels: differences of the losses are off by %g", kNames[type], int(c), worst);
    }
  }
}

/// NaN is told by every function, wherever it stands; what is infinite where no label is costs nothing.
void test_ends() {
  for (int type = 0; type < 10; ++type) {
    for (const i64 c : {5, 40}) {
      for (const bool in_labels : {false, true}) {
        for (const i64 place : {i64{0}, c - 1}) {
          std::vector<float> y(static_cast<std::size_t>(c), 0.5f), t(static_cast<std::size_t>(c), 0.25f);
          (in_labels ? t : y)[static_cast<std::size_t>(place)] = NAN;
          Plain p(static_cast<LossType>(type), 1, 1, c, y, t);
          p.run();
          report(std::isnan(p.loss[0]), "%s: NaN in the %s is lost", kNames[type], in_labels ? "labels" : "source");
        }
      }
    }
  }
  for (const i64 c : {4, 40}) {
    std::vector<float> y(static_cast<std::size_t>(c), 0), t(static_cast<std::size_t>(c), 0);
    y[0] = 300, y[1] = -INFINITY, y[2] = -300, t[0] = 1;
    Plain p(LossType::softmax, 1, 1, c, y, t);
    p.run();
    report(p.loss[0] == 0 && p.gradient[0] == 0 && p.gradient[1] == 0, "softmax of a sure prediction, %d channels",
           int(c));
    p.t[0] = 0, p.t[2] = 1;
    p.run();
    report(p.loss[0] == 600 && p.gradient[0] == 1 && p.gradient[2] == -1, "softmax of a wrong prediction, %d channels",
           int(c));
  }
  Plain none(LossType::categorical, 1, 1, 2, {0, 0.5f}, {0, 1});
  none.run();
  report(none.gradient[0] == 0 && std::fabs(none.loss[0] - std::log(2.0f)) < 1e-6f, "no label, no probability");
  Plain divergence(LossType::kullback_leibler, 1, 1, 2, {-INFINITY, std::log(0.5f)}, {0, 1});
  divergence.run();
  report(divergence.gradient[0] == 0 && std::fabs(divergence.loss[0] - std::log(2.0f)) < 1e-6f,
         "nothing there, nothing seen");
  Plain same(LossType::absolute, 1, 1, 1, {2}, {2});
  same.run();
  report(same.gradient[0] == 0 && same.loss[0] == 0, "no difference, no slope");
  Plain edge(LossType::hinge, 1, 1, 1, {1}, {1});
  edge.run();
  report(edge.gradient[0] == 0 && edge.loss[0] == 0, "the end of the hinge has no slope");
  Plain far(LossType::sigmoid, 1, 1, 2, {1000, -1000}, {0, 1});
  far.run();
  report(far.loss[0] == 2000 && far.gradient[0] == 1 && far.gradient[1] == -1, "sigmoid far out");
}

/// Same bits on every run; with other numbers of threads nearly the same.
void test_threads() {
  Random random(9);
  std::vector<float> y, t;
  for (i64 i = 0; i < 3 * 5000 * 12; ++i) y.push_back(random.real(-2, 2)), t.push_back(random.real(0, 1));
  Plain p(LossType::softmax, 3, 5000, 12, y, t);
  const int before = max_threads();
  std::vector<std::vector<float>> losses;
  for (const int threads : {2, 2, 1}) {
    set_max_threads(threads);
    p.run();
    losses.push_back(p.loss);
  }
  set_max_threads(before);
  report(losses[0] == losses[1], "two runs");
  for (std::size_t i = 0; i < 3; ++i)
    report(std::fabs(losses[0][i] - losses[2][i]) <= 1e-6f * losses[0][i], "one thread or two");
}

// ---------------------------------------------------------------------------------------------------------- boxes

double overlap_of(const double* a, const double* b) {
  const double left = std::max(a[0] - a[2] / 2, b[0] - b[2] / 2), right = std::min(a[0] + a[2] / 2, b[0] + b[2] / 2);
  const double top = std::max(a[1] - a[3] / 2, b[1] - b[3] / 2), bottom = std::min(a[1] + a[3] / 2, b[1] + b[3] / 2);
  if (right <= left || bottom <= top) return 0;
  const double both = (right - left) * (bottom - top);
  return both / (a[2] * a[3] + b[2] * b[3] - both);
}

/// The loss of a cell; `given` are the IoUs of object and prediction to take as constants, or what they are.
double loss_of_cell(const BoxLoss& f, const Values& y, const Values& t, const Values& w, Values& ious, bool given) {
  const std::size_t anchors = f.anchors.size() / 2, each = y.size() / anchors;
  const auto term = [&](const LossFunction& loss, std::size_t at, const Values& py, const Values& pt) {
    Values a(w.begin() + static_cast<i64>(at), w.begin() + static_cast<i64>(at + py.size()));
    return static_cast<double>(loss.weight) * weighted(loss, py, pt, a);
  };
  Values fits;
  for (std::size_t k = 0; k < anchors; ++k) {
    const double anchor[] = {0, 0, static_cast<double>(f.anchors[2 * k]), static_cast<double>(f.anchors[2 * k + 1])};
    const double label[] = {0, 0, t[k * each + 2], t[k * each + 3]};
    fits.push_back(overlap_of(anchor, label));
  }
  double sum = 0;
  if (!given) ious.clear();
  for (std::size_t k = 0; k < anchors; ++k) {
    const std::size_t b = k * each;
    const double aw = static_cast<double>(f.anchors[2 * k]), ah = static_cast<double>(f.anchors[2 * k + 1]);
    const double sx = 1 / (1 + std::exp(-y[b])), sy = 1 / (1 + std::exp(-y[b + 1]));
    const double box[] = {sx, sy, std::exp(y[b + 2]) * aw, std::exp(y[b + 3]) * ah};
    if (!given) ious.push_back(overlap_of(box, &t[b]));
    const bool best = fits[k] == *std::max_element(fits.begin(), fits.end());
    const bool object = t[b + 4] > 0 && (best || fits[k] > static_cast<double>(f.min_iou));
    const bool absent = !object && fits[k] < static_cast<double>(f.max_iou);
    if (object) {
      sum += term(f.xy, b, {sx, sy}, {t[b], t[b + 1]});
      sum += term(f.wh, b + 2, {y[b + 2], y[b + 3]}, {std::log(t[b + 2] / aw + 1e-5), std::log(t[b + 3] / ah + 1e-5)});
      sum += term(f.classes, b + 5, Values(y.begin() + static_cast<i64>(b + 5), y.begin() + static_cast<i64>(b + each)),
                  Values(t.begin() + static_cast<i64>(b + 5), t.begin() + static_cast<i64>(b + each)));
    }
    const double scale = object   ? static_cast<double>(f.scale_object)
                         : absent ? static_cast<double>(f.scale_no_object)
                                  : 0;
    sum += scale * term(f.confidence, b + 4, {y[b + 4]}, {object ? f.rescore ? ious[k] : 1 : 0});
  }
  return sum;
}

void test_boxes() {
  for (unsigned seed = 0; seed < 40; ++seed) {
    Random random(910000 + seed);
    auto boxes = std::make_shared<BoxLoss>();
    const i64 anchors = random.whole(1, 4), classes = random.whole(1, 6), c = anchors * (5 + classes);
    const i64 n = random.whole(1, 2), h = random.whole(1, 4), w = random.whole(1, 4);
    for (i64 k = 0; k < 2 * anchors; ++k) boxes->anchors.push_back(random.real(0.5f, 3));
    boxes->xy.type = LossType::square, boxes->wh.type = LossType::huber;
    boxes->confidence.type = LossType::sigmoid;
    boxes->classes.type = seed % 2 ? LossType::softmax : LossType::sigmoid;
    boxes->xy.weight = 10, boxes->wh.weight = 4, boxes->classes.weight = 2;
    boxes->confidence.weight = 0.5f;
    boxes->scale_object = 3, boxes->scale_no_object = 0.7f;
    boxes->rescore = seed % 3 != 0;
    LossProblem p;
    p.boxes = boxes;
    const bool weights = random.one_in(2);
    Placed y(random, Format::float32, n, h, w, c, random.one_in(2)),
        t(random, Format::float32, n, h, w, c, random.one_in(2));
    Placed a(random, Format::float32, n, h, w, c, random.one_in(2));
    Image gradient(random, Format::float32, n, h, w, c, random.one_in(2)),
        loss(random, Format::float32, n, 1, 1, 1, true);
    y.image.randomize(random, -1.5f, 1.5f), t.image.randomize(random, 0.1f, 1), a.image.randomize(random, 0, 2);
    // One box in a cell, for all anchors alike; in some cells none.
    for (i64 i = 0; i < n; ++i)
      for (i64 row = 0; row < h; ++row)
        for (i64 x = 0; x < w; ++x) {
          const bool object = !random.one_in(3);
          const float size[] = {object ? random.real(0.4f, 3.5f) : 0.0f, object ? random.real(0.4f, 3.5f) : 0.0f};
          const float there = object ? 1.0f : 0.0f;
          for (i64 k = 0; k < anchors; ++k) {
            for (int axis = 0; axis < 2; ++axis)
              std::memcpy(t.image.at(i, row, x, k * (5 + classes) + 2 + axis), &size[axis], 4);
            std::memcpy(t.image.at(i, row, x, k * (5 + classes) + 4), &there, 4);
          }
        }
    LossProblem::Part part;
    part.n = n, part.h = h, part.w = w, part.c = c;
    part.src = y.operand, part.labels = t.operand, part.gradient = gradient.view, part.loss = loss.view;
    if (weights) part.weights = a.operand;
    p.parts.push_back(part);
    const auto errors = failures_of({{p, "boxes"}});
    double worst = 0, worst_loss = 0;
    for (i64 i = 0; i < n; ++i) {
      double sum = 0;
      for (i64 row = 0; row < h; ++row)
        for (i64 x = 0; x < w; ++x) {
          Values py, pt, pw, ious;
          for (i64 k = 0; k < c; ++k) {
            py.push_back(y.seen(i, row, x, k)), pt.push_back(t.seen(i, row, x, k));
            pw.push_back(weights ? a.seen(i, row, x, k) : 1);
          }
          sum += loss_of_cell(*boxes, py, pt, pw, ious, false);
          for (std::size_t k = 0; k < py.size(); ++k) {
            Values moved = py;
            moved[k] += 1e-5;
            const double after = loss_of_cell(*boxes, moved, pt, pw, ious, true);
            moved[k] -= 2e-5;
            const double want = (after - loss_of_cell(*boxes, moved, pt, pw, ious, true)) / 2e-5;
            worst = std::max(worst,
                             std::fabs(gradient.value(i, row, x, static_cast<i64>(k)) - want) / (1 + std::fabs(want)));
          }
        }
      worst_loss = std::max(worst_loss, std::fabs(loss.value(i, 0, 0, 0) - sum) / (1 + std::fabs(sum)));
    }
    report(errors.empty() && worst < 2e-5 && worst_loss < 2e-6, "boxes seed %u: gradient off by %g, loss by %g", seed,
           worst, worst_loss);
  }
}

void test_keys() {
  Plain plain(LossType::softmax, 2, 3, 4, std::vector<float>(24), std::vector<float>(24));
  const LossProblem p = plain.problem;
  const std::string key = structure_key({{p, ""}});
  const auto differs = [&](const auto& change) {
    LossProblem other = p;
    change(other);
    return structure_key({{other, ""}}) != key;
  };
  report(differs([](LossProblem& q) { q.parts.push_back(q.parts[0]); }) &&
             differs([](LossProblem& q) { q.parts[0].weights = q.parts[0].src; }) &&
             differs([](LossProblem& q) { q.parts[0].gradient = {}; }) &&
             differs([](LossProblem& q) { q.parts[0].labels.start_h = 1; }) &&
             differs([](LossProblem& q) { q.function.type = LossType::log; }) &&
             differs([](LossProblem& q) { q.across_images = true; }),
         "keys tell problems apart");
}

}  // namespace

int main(int argc, char** argv) {
  return run_tests(argc, argv, {test_functions, test_own_differences, test_ends, test_threads, test_boxes, test_keys});
}

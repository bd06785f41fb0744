// SPDX-License-Identifier: Apache-2.0
// Losses and their gradients in one pass. A block sums the losses of some values of an image, in double.
#pragma once

#include "engine/cuda/kernels/device.hpp"
#include "engine/problem/loss.hpp"
#include "engine/shared/loss.hpp"

namespace openmps::cuda::loss {

inline constexpr const char* kFile = "engine/cuda/kernels/loss.hpp";

constexpr i64 kValuesOfBlock = 2048;  ///< of functions of single values
constexpr i64 kPixelsOfBlock = 256;   ///< of softmax with few channels
constexpr i64 kBoxesOfBlock = 256;

/// Loss, and number of nonzero weights or what else the loss is divided by.
struct Sums {
  double loss = 0, divisor = 0;
};
/// An object: g++ does not always inline a passed function, and refuses to compile one that must be inlined.
struct Added {
  MPSCNN_HOST_DEVICE Sums operator()(const Sums& a, const Sums& b) const {
    return {a.loss + b.loss, a.divisor + b.divisor};
  }
};

/// A LossFunction on the device.
struct Function {
  LossType type = LossType::square;
  float weight = 1;
  LossNumbers numbers;
};

struct PartArgs {
  Source src, labels, weights, incoming;  ///< weights, incoming: without data the function's weight, and 1
  View gradient, losses;                  ///< losses: of values. Without data: not wanted
  i64 h = 1, w = 1, c = 1;
  Function function;
  bool by_labels = false;
  i64 blocks = 1;      ///< per image
  Pointer<Sums> sums;  ///< [image][blocks]; null: not wanted

  // Of boxes.
  Function xy, wh, confidence, classes;
  float scale_object = 1, scale_no_object = 1, min_iou = 0, max_iou = 0;
  bool rescore = true;
  Pointer<const float> anchors;
  i64 count_of_anchors = 0;

  /// Return the value's weight as given, and times the incoming gradient.
  MPSCNN_HOST_DEVICE float own_weight(const Place& at) const {
    return weights.view ? load(weights, at) : function.weight;
  }
  MPSCNN_HOST_DEVICE float weight(const Place& at, float own) const {
    return incoming.view ? own * load(incoming, at) : own;
  }
  MPSCNN_HOST_DEVICE void store_value(const Place& at, float slope, float value) const {
    if (gradient) store(gradient, at, slope);
    if (losses) store(losses, at, value);
  }
};

MPSCNN_HOST_DEVICE LossValue value_of(const Function& f, float y, float t) {
  switch (f.type) {
    case LossType::absolute: return loss_of<LossType::absolute, DeviceMath>(f.numbers, y, t);
    case LossType::square: return loss_of<LossType::square, DeviceMath>(f.numbers, y, t);
    case LossType::sigmoid: return loss_of<LossType::sigmoid, DeviceMath>(f.numbers, y, t);
    case LossType::categorical: return loss_of<LossType::categorical, DeviceMath>(f.numbers, y, t);
    case LossType::hinge: return loss_of<LossType::hinge, DeviceMath>(f.numbers, y, t);
    case LossType::huber: return loss_of<LossType::huber, DeviceMath>(f.numbers, y, t);
    case LossType::cosine: return loss_of<LossType::cosine, DeviceMath>(f.numbers, y, t);
    case LossType::log: return loss_of<LossType::log, DeviceMath>(f.numbers, y, t);
    case LossType::kullback_leibler: return loss_of<LossType::kullback_leibler, DeviceMath>(f.numbers, y, t);
    case LossType::softmax: break;
  }
  return {};
}

/// ln(sum exp(x)) as high + low: (x - high) - low is exact near the max of x, also where the logarithm is lost beside
/// the max. `sum` is that of exp(x - most).
struct LogOfSum {
  float high, low;
  MPSCNN_HOST_DEVICE LogOfSum(float most, double sum) {
    const double log = ::log(sum);
    high = static_cast<float>(most + log);
    low = static_cast<float>((static_cast<double>(most) - high) + log);
  }
};

/// Softmax of one value, given the max and the sums over its pixel: `mass` is that of weight * label.
struct Softmax {
  LossNumbers numbers;
  bool by_labels;
  float most;
  LogOfSum whole;
  float scale;

  MPSCNN_HOST_DEVICE Softmax(const LossNumbers& numbers, bool by_labels, float most, double sum, double mass)
      : numbers(numbers), by_labels(by_labels), most(most), whole(most, sum), scale(static_cast<float>(mass / sum)) {}

  /// Return the loss of a value with weight `a`, and its slope.
  MPSCNN_HOST_DEVICE float loss(float y, float t, float a, float& slope) const {
    const float label = t * numbers.keep + numbers.add, log = (y - whole.high) - whole.low;
    slope = by_labels ? -(a * numbers.keep) * log : ::expf(y - most) * scale - a * label;
    return -(a * product_or_0(label, log));
  }
};

MPSCNN_HOST_DEVICE float larger(float value, float most) { return value > most ? value : most; }

/// Compute a softmax loss of `count` values by one thread; emit(i, slope, loss). Return the sum.
template <class Y, class T, class A, class Emit>
MPSCNN_HOST_DEVICE double softmax_loss(const LossNumbers& numbers, bool by_labels, i64 count, const Y& y, const T& t,
                                       const A& a, const Emit& emit) {
  float most = y(0);
  for (i64 i = 1; i < count; ++i) most = larger(y(i), most);
  double sum = 0, mass = 0, total = 0;
  for (i64 i = 0; i < count; ++i) {
    sum += ::expf(y(i) - most);
    mass += a(i) * (t(i) * numbers.keep + numbers.add);
  }
  const Softmax softmax(numbers, by_labels, most, sum, mass);
  for (i64 i = 0; i < count; ++i) {
    float slope;
    const float loss = softmax.loss(y(i), t(i), a(i), slope);
    emit(i, slope, loss);
    total += loss;
  }
  return total;
}

/// Functions of single values.
MPSCNN_BLOCK_KERNEL(loss_values, PartArgs) {
  const i64 image = index / args.blocks, first = (index - image * args.blocks) * kValuesOfBlock;
  const i64 rest = args.h * args.w * args.c - first;
  const Sums sums = block.reduce(
      rest < kValuesOfBlock ? rest : kValuesOfBlock, Sums{},
      [&](i64 i) {
        Place at = place_of(first + i, args.h, args.w, args.c);
        at.n = image;
        const float own = args.own_weight(at), a = args.weight(at, own);
        const LossValue value = value_of(args.function, load(args.src, at), load(args.labels, at));
        const float loss = a * value.loss;
        args.store_value(at, a * (args.by_labels ? value.by_label : value.by_prediction), loss);
        return Sums{loss, own != 0 ? 1.0 : 0.0};
      },
      Added{});
  block.for_each(1, [&](i64) {
    if (args.sums) args.sums[index] = sums;
  });
}

/// Softmax with few channels: a thread per pixel.
MPSCNN_BLOCK_KERNEL(loss_softmax_pixels, PartArgs) {
  const i64 image = index / args.blocks, first = (index - image * args.blocks) * kPixelsOfBlock;
  const i64 rest = args.h * args.w - first;
  const Sums sums = block.reduce(
      rest < kPixelsOfBlock ? rest : kPixelsOfBlock, Sums{},
      [&](i64 i) {
        Place at = place_of(first + i, args.h, args.w, 1);
        at.n = image;
        const auto place = [&](i64 k) { return Place{at.n, at.y, at.x, k}; };
        Sums of_pixel;
        of_pixel.loss = softmax_loss(
            args.function.numbers, args.by_labels, args.c, [&](i64 k) { return load(args.src, place(k)); },
            [&](i64 k) { return load(args.labels, place(k)); },
            [&](i64 k) { return args.weight(place(k), args.own_weight(place(k))); },
            [&](i64 k, float slope, float loss) {
              if (args.sums && args.own_weight(place(k)) != 0) of_pixel.divisor += 1;
              args.store_value(place(k), slope, loss);
            });
        return of_pixel;
      },
      Added{});
  block.for_each(1, [&](i64) {
    if (args.sums) args.sums[index] = sums;
  });
}

/// Softmax with many channels: a block per pixel.
MPSCNN_BLOCK_KERNEL(loss_softmax_channels, PartArgs) {
  const Place at = place_of(index, args.h, args.w, 1);
  const auto place = [&](i64 k) { return Place{at.n, at.y, at.x, k}; };
  const LossNumbers numbers = args.function.numbers;
  const float most = block.reduce(
      args.c, -std::numeric_limits<float>::infinity(), [&](i64 k) { return load(args.src, place(k)); },
      [](float a, float b) { return larger(b, a); });
  const Sums whole = block.reduce(  // of exponentials, and of weight * label
      args.c, Sums{},
      [&](i64 k) {
        const float a = args.weight(place(k), args.own_weight(place(k)));
        return Sums{::expf(load(args.src, place(k)) - most),
                    a * (load(args.labels, place(k)) * numbers.keep + numbers.add)};
      },
      Added{});
  const Softmax softmax(numbers, args.by_labels, most, whole.loss, whole.divisor);
  const Sums sums = block.reduce(
      args.c, Sums{},
      [&](i64 k) {
        const float own = args.own_weight(place(k)), a = args.weight(place(k), own);
        float slope;
        const float loss = softmax.loss(load(args.src, place(k)), load(args.labels, place(k)), a, slope);
        args.store_value(place(k), slope, loss);
        return Sums{loss, own != 0 ? 1.0 : 0.0};
      },
      Added{});
  block.for_each(1, [&](i64) {
    if (args.sums) args.sums[index] = sums;
  });
}

// -------------------------------------------------------------------------------------------------------------- boxes

/// Compute a term of a box, times `factor` and the weights; emit(i, slope, loss). A factor of 0 adds no loss, but NaN
/// stays NaN.
template <class Y, class T, class A, class Emit>
MPSCNN_HOST_DEVICE double box_term(const Function& f, double factor, i64 count, const Y& y, const T& t, const A& a,
                                   const Emit& emit) {
  const auto scale = static_cast<float>(f.weight * factor);
  double sum = 0;
  const auto scaled = [&](i64 i, float slope, float loss) {
    const float value = loss * scale;
    emit(i, slope * scale, value);
    sum += value;
  };
  if (f.type == LossType::softmax) {
    softmax_loss(f.numbers, false, count, y, t, a, scaled);
    return sum;
  }
  for (i64 i = 0; i < count; ++i) {
    const LossValue value = value_of(f, y(i), t(i));
    scaled(i, a(i) * value.by_prediction, a(i) * value.loss);
  }
  return sum;
}

MPSCNN_HOST_DEVICE double sigmoid(float x) { return 1 / (1 + ::exp(-static_cast<double>(x))); }

/// A thread per box: cells, then anchors.
MPSCNN_BLOCK_KERNEL(loss_boxes, PartArgs) {
  const i64 anchors = args.count_of_anchors, each = args.c / anchors;
  const i64 image = index / args.blocks, first = (index - image * args.blocks) * kBoxesOfBlock;
  const i64 rest = args.h * args.w * anchors - first;
  const Sums sums = block.reduce(
      rest < kBoxesOfBlock ? rest : kBoxesOfBlock, Sums{},
      [&](i64 i) {
        Place cell = place_of(first + i, args.h, args.w, anchors);
        cell.n = image;
        const i64 own = cell.k, base = own * each;
        const auto place = [&](i64 k) { return Place{cell.n, cell.y, cell.x, k}; };
        const auto y = [&](i64 k) { return load(args.src, place(base + k)); };
        const auto t = [&](i64 k) { return load(args.labels, place(base + k)); };
        const auto a = [&](i64 k) { return args.weight(place(base + k), args.own_weight(place(base + k))); };
        const auto fit_of = [&](i64 anchor) {
          const LossBox size = {0, 0, args.anchors[2 * anchor], args.anchors[2 * anchor + 1]};
          const LossBox label = {0, 0, load(args.labels, place(anchor * each + 2)),
                                 load(args.labels, place(anchor * each + 3))};
          return intersection_over_union(size, label);
        };
        double best = 0;
        for (i64 k = 0; k < anchors; ++k) best = std::max(best, fit_of(k));
        const double fit = fit_of(own), width = args.anchors[2 * own], height = args.anchors[2 * own + 1];
        const float there = t(4);
        const bool object = there > 0 && (fit >= best || fit > args.min_iou);
        const bool absent = !object && fit < args.max_iou;
        const double seen = object ? 1 : 0;
        const double centre[] = {sigmoid(y(0)), sigmoid(y(1))};
        Sums of_box;
        of_box.loss += box_term(
            args.xy, seen, 2, [&](i64 k) { return static_cast<float>(centre[k]); }, t, a,
            [&](i64 k, float slope, float loss) {
              args.store_value(place(base + k), slope * static_cast<float>(centre[k] * (1 - centre[k])), loss);
            });
        // Without a box there is no size to take a logarithm of.
        of_box.loss += box_term(
            args.wh, seen, 2, [&](i64 k) { return y(2 + k); },
            [&](i64 k) {
              return object ? static_cast<float>(::log(t(2 + k) / (k == 0 ? width : height) + 1e-5)) : 0.0f;
            },
            [&](i64 k) { return a(2 + k); },
            [&](i64 k, float slope, float loss) { args.store_value(place(base + 2 + k), slope, loss); });
        float label = there == there ? 0.0f : there;
        if (object) {
          const LossBox predicted = {centre[0], centre[1], ::exp(static_cast<double>(y(2))) * width,
                                     ::exp(static_cast<double>(y(3))) * height};
          const LossBox wanted = {t(0), t(1), t(2), t(3)};
          label = args.rescore ? static_cast<float>(intersection_over_union(predicted, wanted)) : 1.0f;
        }
        of_box.loss += box_term(
            args.confidence,
            object   ? args.scale_object
            : absent ? args.scale_no_object
                     : 0.0f,
            1, [&](i64) { return y(4); }, [&](i64) { return label; }, [&](i64) { return a(4); },
            [&](i64, float slope, float loss) { args.store_value(place(base + 4), slope, loss); });
        if (each > 5)
          of_box.loss += box_term(
              args.classes, seen, each - 5, [&](i64 k) { return y(5 + k); }, [&](i64 k) { return t(5 + k); },
              [&](i64 k) { return a(5 + k); },
              [&](i64 k, float slope, float loss) { args.store_value(place(base + 5 + k), slope, loss); });
        if (args.sums)
          for (i64 k = 0; k < each; ++k) of_box.divisor += args.own_weight(place(base + k)) != 0 ? 1 : 0;
        return of_box;
      },
      Added{});
  block.for_each(1, [&](i64) {
    if (args.sums) args.sums[index] = sums;
  });
}

// ---------------------------------------------------------------------------------------------------------- reductions

/// Sum the blocks of each image.
struct ImageArgs {
  Pointer<const Sums> sums;  ///< [image][blocks]
  i64 blocks = 1;
  double added = 0;             ///< to the loss of an image
  bool counts_weights = false;  ///< divide by the number of nonzero weights, otherwise by `divisor`
  double divisor = 1;
  View losses;           ///< n x 1 x 1 x 1
  Pointer<Sums> images;  ///< if it is not null: losses and divisors of images go there instead
};
MPSCNN_BLOCK_KERNEL(loss_images, ImageArgs) {
  Sums sums =
      block.reduce(args.blocks, Sums{}, [&](i64 i) -> Sums { return args.sums[index * args.blocks + i]; }, Added{});
  sums.loss += args.added;
  if (!args.counts_weights) sums.divisor = args.divisor;
  block.for_each(1, [&](i64) {
    if (args.images)
      args.images[index] = sums;
    else
      store(args.losses, index, 0, 0, 0, static_cast<float>(sums.divisor > 0 ? sums.loss / sums.divisor : sums.loss));
  });
}

/// Store the loss of all images in the first one, 0 in the others.
struct AcrossArgs {
  Pointer<const Sums> images;
  i64 count = 0;         ///< of images of all parts
  bool divides = false;  ///< otherwise the sum
  View losses;           ///< of this part
  bool is_first = false;
};
MPSCNN_BLOCK_KERNEL(loss_across_images, AcrossArgs) {
  const Sums sums = block.reduce(args.count, Sums{}, [&](i64 i) -> Sums { return args.images[i]; }, Added{});
  block.for_each(args.losses.n, [&](i64 n) {
    const double whole = args.divides && sums.divisor > 0 ? sums.loss / sums.divisor : sums.loss;
    store(args.losses, n, 0, 0, 0, args.is_first && n == 0 ? static_cast<float>(whole) : 0.0f);
  });
}

}  // namespace openmps::cuda::loss

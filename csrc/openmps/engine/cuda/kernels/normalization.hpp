// SPDX-License-Identifier: Apache-2.0
// Normalization by mean and variance, and its gradients. Statistics and sums are found in two passes: each thread sums
// a part of the pixels of its channels, then a block adds the parts.
#pragma once

#include "engine/cuda/kernels/vectors.hpp"
#include "engine/cuda/kernels/windows.hpp"
#include "engine/problem/normalize.hpp"

namespace openmps::cuda::normalization {

inline constexpr const char* kFile = "engine/cuda/kernels/normalization.hpp";

struct Pair {
  double a, b;
};
MPSCNN_HOST_DEVICE Pair added(const Pair& x, const Pair& y) { return {x.a + y.a, x.b + y.b}; }

/// Means and variances in memory: float32, pairs of doubles, or both. If both, a pair counts only if it rounds to the
/// floats: they may have been written since.
struct Statistics {
  Pointer<float> mean, variance;
  Pointer<Pair> exact;

  MPSCNN_HOST_DEVICE Pair get(i64 i) const {
    if (exact) {
      const Pair pair = exact[i];
      if (!mean || (static_cast<float>(pair.a) == mean[i] && static_cast<float>(pair.b) == variance[i])) return pair;
    }
    return {mean[i], variance[i]};
  }
  /// Store each value that has memory.
  MPSCNN_HOST_DEVICE void set(i64 i, const Pair& pair) const {
    if (mean) mean[i] = static_cast<float>(pair.a);
    if (variance) variance[i] = static_cast<float>(pair.b);
    if (exact) exact[i] = pair;
  }
};

/// Which of the statistics each channel of each image has.
struct Groups {
  i64 channels;
  i64 count;  ///< per image; 0: one set for all images, one of each channel

  MPSCNN_HOST_DEVICE i64 index(i64 image, i64 k) const {
    return count == 0 ? k : image * count + k / (channels / count);
  }
  MPSCNN_HOST_DEVICE i64 channels_of_each() const { return channels / count; }
};

/// y = (x - mean) * scale + shift for each channel, of each image or of all images together. The shift includes the
/// rounding of the mean.
struct Coefficients {
  Pointer<float> mean, scale, shift;
};

struct CoefficientsArgs {
  Statistics statistics;
  Groups groups;
  Pointer<const float> gamma, beta;
  double epsilon;
  Coefficients result;
};
MPSCNN_VALUE_KERNEL(normalization_coefficients, CoefficientsArgs) {
  const i64 c = args.groups.channels, image = index / c, k = index - image * c;
  const Pair statistics = args.statistics.get(args.groups.index(image, k));
  const double factor = args.gamma[k] / ::sqrt(statistics.b + args.epsilon);
  const auto rounded = static_cast<float>(statistics.a);
  args.result.mean[index] = rounded;
  args.result.scale[index] = static_cast<float>(factor);
  args.result.shift[index] = static_cast<float>(args.beta[k] + (rounded - statistics.a) * factor);
}

// --------------------------------------------------------------------------------------------------------- statistics

constexpr int kTogether = 8;  ///< pixels summed in float, which loses no more than rounding a distance does

/// Pixels whose channels are summed, of each image or of all images together.
struct PartsArgs {
  View pixels;  ///< source, or gradient of the result
  bool is_per_image;
  i64 parts;
  Pointer<Pair> partial;  ///< of each image if per image, part and channel

  // Moments.
  Pointer<float> pivots;  ///< of each image if per image, and channel: mean of the first pixels

  // Gradients.
  Source src;  ///< of the pixels
  Coefficients forward;
  Activation neuron;

  MPSCNN_HOST_DEVICE i64 count() const { return (is_per_image ? 1 : pixels.n) * pixels.h * pixels.w; }
  MPSCNN_HOST_DEVICE Place place(i64 image, i64 pixel, i64 k) const {
    if (pixels.h == 1 && (is_per_image || pixels.n == 1)) return {image, 0, pixel, k};
    Place at = place_of(pixel, pixels.h, pixels.w, 1);
    if (is_per_image) at.n = image;
    at.k = k;
    return at;
  }
};

/// Image (0 if not per image), part and first channel of a thread.
struct PartOfThread {
  i64 image, part, k;
  MPSCNN_HOST_DEVICE PartOfThread(const PartsArgs& args, i64 index, int lanes) {
    const i64 c = args.pixels.c / lanes, row = index / c;
    k = (index - row * c) * lanes;
    image = row / args.parts;
    part = row - image * args.parts;
  }
};

/// Call add(at, a, b) for each pixel of a part, and store the sums of a and b.
template <class Add>
MPSCNN_HOST_DEVICE void sum_part(const PartsArgs& args, const PartOfThread& mine, int lanes, const Add& add) {
  const i64 pixels = args.count();
  double sums[2][kMostLanes];
  for (int i = 0; i < lanes; ++i) sums[0][i] = sums[1][i] = 0;
  for (i64 pixel = mine.part; pixel < pixels;) {
    float a[kMostLanes], b[kMostLanes];
    for (int i = 0; i < lanes; ++i) a[i] = b[i] = 0;
    if (pixel + (kTogether - 1) * args.parts < pixels) {  // a loop of fixed length has many loads under way
      for (int j = 0; j < kTogether; ++j, pixel += args.parts) add(args.place(mine.image, pixel, mine.k), a, b);
    } else {
      for (; pixel < pixels; pixel += args.parts) add(args.place(mine.image, pixel, mine.k), a, b);
    }
    for (int i = 0; i < lanes; ++i) sums[0][i] += a[i], sums[1][i] += b[i];
  }
  const i64 to = (mine.image * args.parts + mine.part) * args.pixels.c + mine.k;
  for (int i = 0; i < lanes; ++i) args.partial[to + i] = {sums[0][i], sums[1][i]};
}

/// Sum distances from the pivot, and their squares. The closer the pivot is to the mean, the less is lost when the
/// square of their distance is subtracted.
template <bool by_vectors>
MPSCNN_HOST_DEVICE void sum_moments(const PartsArgs& args, i64 index) {
  const int lanes = lanes_of<by_vectors>(args.pixels);
  const PartOfThread mine(args, index, lanes);
  const i64 pixels = args.count(), first_pixels = pixels < kTogether ? pixels : kTogether;
  float pivot[kMostLanes], x[kMostLanes];
  for (int i = 0; i < lanes; ++i) pivot[i] = 0;
  for (i64 pixel = 0; pixel < first_pixels; ++pixel) {
    load_lanes<by_vectors>(args.pixels, args.place(mine.image, pixel, mine.k), x);
    for (int i = 0; i < lanes; ++i) pivot[i] += x[i] / static_cast<float>(first_pixels);
  }
  if (mine.part == 0)
    for (int i = 0; i < lanes; ++i) args.pivots[mine.image * args.pixels.c + mine.k + i] = pivot[i];
  sum_part(args, mine, lanes, [&](const Place& at, float (&a)[kMostLanes], float (&b)[kMostLanes]) {
    float values[kMostLanes];
    load_lanes<by_vectors>(args.pixels, at, values);
    for (int i = 0; i < lanes; ++i) {
      const float distance = values[i] - pivot[i];
      a[i] += distance;
      b[i] += distance * distance;
    }
  });
}
MPSCNN_VALUE_KERNEL(moments_parts, PartsArgs) { sum_moments<false>(args, index); }
MPSCNN_VALUE_KERNEL(moments_parts_vectors, PartsArgs) { sum_moments<true>(args, index); }

struct MomentsArgs {
  i64 channels, parts, pixels;  ///< pixels that each part-sum together covers
  Pointer<const Pair> partial;
  Pointer<const float> pivots;
  Statistics result;
  i64 before;  ///< batches: pixels that `result` already covers

  // Images: statistics of each image's groups of channels, also stored as pairs.
  Groups groups;
  Pointer<Pair> pairs;
};

/// Moments of channel `index` over all images.
MPSCNN_BLOCK_KERNEL(moments_of_batch, MomentsArgs) {
  const Pair sums = block.reduce(
      args.parts, Pair{0, 0}, [&](i64 part) { return args.partial[part * args.channels + index]; },
      [](const Pair& x, const Pair& y) { return added(x, y); });
  block.for_each(1, [&](i64) {
    const auto pixels = static_cast<double>(args.pixels), before = static_cast<double>(args.before);
    double mean = args.pivots[index] + sums.a / pixels, spread = sums.b - sums.a * (sums.a / pixels);
    if (spread < 0) spread = 0;  // by rounding
    if (args.before > 0) {
      const Pair known = args.result.get(index);
      const double distance = mean - known.a;
      spread += known.b * before + distance * distance * before * pixels / (before + pixels);
      mean = known.a + distance * pixels / (before + pixels);
    }
    args.result.set(index, {mean, spread / (before + pixels)});
  });
}

/// Moments of group `index` of all images.
MPSCNN_BLOCK_KERNEL(moments_of_groups, MomentsArgs) {
  const i64 each = args.groups.channels_of_each(), image = index / args.groups.count;
  const i64 first = (index - image * args.groups.count) * each, parts = args.parts;
  const auto pixels = static_cast<double>(args.pixels), count = pixels * static_cast<double>(each);
  const auto channel_of = [&](i64 i) { return image * args.channels + first + i / parts; };
  const auto sums_of = [&](i64 i) {
    const i64 k = i / parts, part = i - k * parts;
    return args.partial[(image * parts + part) * args.channels + first + k];
  };
  const auto add = [](double x, double y) { return x + y; };
  const double mean = block.reduce(
                          each * parts, 0.0,
                          [&](i64 i) {
                            const double pivot = i % parts == 0 ? pixels * args.pivots[channel_of(i)] : 0.0;
                            return pivot + sums_of(i).a;
                          },
                          add) /
                      count;
  // The sum of (x - mean)^2 with x - mean = (x - pivot) + (pivot - mean).
  const double spread = block.reduce(
      each * parts, 0.0,
      [&](i64 i) {
        const double distance = args.pivots[channel_of(i)] - mean;
        const Pair sums = sums_of(i);
        return sums.b + 2 * distance * sums.a + (i % parts == 0 ? pixels * distance * distance : 0.0);
      },
      add);
  block.for_each(1, [&](i64) {
    const Pair found{mean, spread < 0 ? 0.0 : spread / count};
    args.result.set(index, found);
    args.pairs[index] = found;
  });
}

// ------------------------------------------------------------------------------------------------------ normalization

struct NormalizeArgs {
  Source src;
  View dst;
  Coefficients coefficients;
  bool is_per_image;
  Activation neuron;  ///< by vectors: none or relu
};

template <bool by_vectors>
MPSCNN_HOST_DEVICE void normalize_lanes(const NormalizeArgs& args, i64 index) {
  const int lanes = lanes_of<by_vectors>(args.dst);
  const Place at = first_place_of(index, args.dst, lanes);
  const i64 from = (args.is_per_image ? at.n * args.dst.c : 0) + at.k;
  float values[kMostLanes], mean[kMostLanes], scale[kMostLanes], shift[kMostLanes];
  load_lanes<by_vectors>(args.src, at, values);
  load_words<by_vectors>(args.coefficients.mean, from, lanes, mean);
  load_words<by_vectors>(args.coefficients.scale, from, lanes, scale);
  load_words<by_vectors>(args.coefficients.shift, from, lanes, shift);
  for (int i = 0; i < lanes; ++i) {
    const float y = (values[i] - mean[i]) * scale[i] + shift[i];
    if constexpr (by_vectors) {
      values[i] = args.neuron.type == NeuronType::relu ? NeuronFormulas<DeviceMath>::relu(y, args.neuron.a) : y;
    } else {
      values[i] = activate(args.neuron, y, at.k);
    }
  }
  store_lanes<by_vectors>(args.dst, at, values);
}
MPSCNN_VALUE_KERNEL(normalize, NormalizeArgs) { normalize_lanes<false>(args, index); }
MPSCNN_VALUE_KERNEL(normalize_vectors, NormalizeArgs) { normalize_lanes<true>(args, index); }

// ---------------------------------------------------------------------------------------------------------- gradients

/// Return gradient * f'(y). A rectifier gives 0 below 0, also for a gradient that is infinite.
template <bool by_vectors>
MPSCNN_HOST_DEVICE float slope_times(const Activation& f, float gradient, float y, i64 k) {
  if (f.type == NeuronType::none) return gradient;
  if (f.type == NeuronType::relu) return y >= 0 ? gradient : f.a == 0 ? 0.0f : f.a * gradient;
  return by_vectors ? gradient : activate_gradient(f, gradient, y, k);
}

/// Sum G and G * (x - the mean rounded to float).
template <bool by_vectors>
MPSCNN_HOST_DEVICE void sum_gradients(const PartsArgs& args, i64 index) {
  const int lanes = lanes_of<by_vectors>(args.pixels);
  const PartOfThread mine(args, index, lanes);
  const i64 from = mine.image * args.pixels.c + mine.k;
  float mean[kMostLanes], scale[kMostLanes], shift[kMostLanes];
  load_words<by_vectors>(args.forward.mean, from, lanes, mean);
  load_words<by_vectors>(args.forward.scale, from, lanes, scale);
  load_words<by_vectors>(args.forward.shift, from, lanes, shift);
  sum_part(args, mine, lanes, [&](const Place& at, float (&a)[kMostLanes], float (&b)[kMostLanes]) {
    float gradient[kMostLanes], x[kMostLanes];
    load_lanes<by_vectors>(args.pixels, at, gradient);
    load_lanes<by_vectors>(args.src, at, x);
    for (int i = 0; i < lanes; ++i) {
      const float distance = x[i] - mean[i];
      const float g = slope_times<by_vectors>(args.neuron, gradient[i], distance * scale[i] + shift[i], at.k);
      a[i] += g;
      b[i] += g * distance;
    }
  });
}
MPSCNN_VALUE_KERNEL(normalization_gradient_parts, PartsArgs) { sum_gradients<false>(args, index); }
MPSCNN_VALUE_KERNEL(normalization_gradient_parts_vectors, PartsArgs) { sum_gradients<true>(args, index); }

struct GradientSumsArgs {
  i64 parts;
  Pointer<const Pair> partial;
  Statistics statistics;
  Groups groups;
  Pointer<const float> gamma;
  double epsilon;
  i64 images, count;  ///< of pixels; 0: mean and variance are constants

  // Batches.
  Pointer<float> diff_gamma, diff_beta;
  bool adds;

  // Images.
  Pointer<Pair> of_channels;  ///< sum G and sum G * z of each image and channel
  Pointer<Pair> of_groups;    ///< the same times gamma, of each image and group

  // Coefficients: diff_src = own * G + slope * (x - mean) + constant.
  Pointer<float> own, slope, constant;

  /// Return sum G and sum G * z of channel `index` (image * channels + channel), z = (x - mean) / deviation.
  MPSCNN_HOST_DEVICE Pair sums(i64 index, const Block& block) const {
    const i64 c = groups.channels, image = index / c, k = index - image * c, all_parts = parts;
    const Pointer<const Pair> from = partial;
    const Pair found = block.reduce(
        all_parts, Pair{0, 0}, [&](i64 part) { return from[(image * all_parts + part) * c + k]; },
        [](const Pair& x, const Pair& y) { return added(x, y); });
    const Pair known = statistics.get(groups.index(image, k));
    const double product = found.b + (static_cast<float>(known.a) - known.a) * found.a;
    return {found.a, product / ::sqrt(known.b + epsilon)};
  }
};

MPSCNN_BLOCK_KERNEL(normalization_gradient_of_batch, GradientSumsArgs) {
  const Pair sums = args.sums(index, block);
  block.for_each(1, [&](i64) {
    args.diff_gamma[index] = static_cast<float>(sums.b + (args.adds ? args.diff_gamma[index] : 0.0));
    args.diff_beta[index] = static_cast<float>(sums.a + (args.adds ? args.diff_beta[index] : 0.0));
  });
}

MPSCNN_BLOCK_KERNEL(normalization_gradient_of_images, GradientSumsArgs) {
  const Pair sums = args.sums(index, block);
  block.for_each(1, [&](i64) { args.of_channels[index] = sums; });
}
MPSCNN_BLOCK_KERNEL(normalization_gradient_of_groups, GradientSumsArgs) {
  const i64 each = args.groups.channels_of_each(), image = index / args.groups.count;
  const i64 first = (index - image * args.groups.count) * each;
  const Pair sums = block.reduce(
      each, Pair{0, 0},
      [&](i64 i) {
        const Pair own = args.of_channels[image * args.groups.channels + first + i];
        const double gamma = args.gamma[first + i];
        return Pair{gamma * own.a, gamma * own.b};
      },
      [](const Pair& x, const Pair& y) { return added(x, y); });
  block.for_each(1, [&](i64) { args.of_groups[index] = sums; });
}
MPSCNN_VALUE_KERNEL(normalization_gradient_over_images, GradientSumsArgs) {
  Pair sums{0, 0};
  for (i64 image = 0; image < args.images; ++image)
    sums = added(sums, args.of_channels[image * args.groups.channels + index]);
  args.diff_beta[index] = static_cast<float>(sums.a);
  args.diff_gamma[index] = static_cast<float>(sums.b);
}

MPSCNN_VALUE_KERNEL(normalization_gradient_coefficients, GradientSumsArgs) {
  const i64 c = args.groups.channels, image = index / c, k = index - image * c, group = args.groups.index(image, k);
  const double gamma = args.gamma[k];
  Pair sums{0, 0};
  if (args.groups.count > 0) {
    sums = args.of_groups[group];
  } else if (args.count > 0) {
    sums = {gamma * args.diff_beta[k], gamma * args.diff_gamma[k]};
  }
  const double count = args.count > 0 ? static_cast<double>(args.count) : 1.0;
  const Pair statistics = args.statistics.get(group);
  const double inverse = 1 / ::sqrt(statistics.b + args.epsilon), slope = -inverse * inverse * (sums.b / count);
  args.own[index] = static_cast<float>(gamma * inverse);
  args.slope[index] = static_cast<float>(slope);
  // Includes the rounding of the mean.
  args.constant[index] =
      static_cast<float>(slope * (static_cast<float>(statistics.a) - statistics.a) - inverse * (sums.a / count));
}

struct NormalizeGradientArgs {
  Source diff_dst, src;
  View diff_src;
  bool is_per_image;
  Coefficients forward;
  Pointer<float> own, slope, constant;
  Activation neuron;  ///< by vectors: none or relu
  bool is_read_twice;
  WindowAxis rows, columns;  ///< if a pixel is read twice: the results that read each pixel of the source
};

template <bool by_vectors>
MPSCNN_HOST_DEVICE void find_gradients(const NormalizeGradientArgs& args, i64 index) {
  const int lanes = lanes_of<by_vectors>(args.diff_src);
  const Place at = first_place_of(index, args.diff_src, lanes);
  const i64 y = args.src.start_h + at.y, x = args.src.start_w + at.x;
  float gradient[kMostLanes], value[kMostLanes];
  if (y < 0 || y >= args.src.view.h || x < 0 || x >= args.src.view.w) {
    for (int i = 0; i < lanes; ++i) gradient[i] = 0;
    return store_lanes<by_vectors>(args.diff_src, at, gradient);
  }
  if (!by_vectors && args.is_read_twice) {
    i64 first_row, last_row, first_column, last_column;
    args.rows.find_readers(y, first_row, last_row);
    args.columns.find_readers(x, first_column, last_column);
    double sum = 0;
    for (i64 v = first_row; v <= last_row; ++v)
      for (i64 u = first_column; u <= last_column; ++u) sum += load(args.diff_dst.view, at.n, v, u, at.k);
    gradient[0] = static_cast<float>(sum);
  } else {
    load_lanes<by_vectors>(args.diff_dst, at, gradient);
  }
  load_lanes<by_vectors>(args.src.view, {at.n, y, x, at.k}, value);
  const i64 from = (args.is_per_image ? at.n * args.diff_src.c : 0) + at.k;
  float mean[kMostLanes], scale[kMostLanes], shift[kMostLanes];
  load_words<by_vectors>(args.forward.mean, from, lanes, mean);
  for (int i = 0; i < lanes; ++i) value[i] -= mean[i];
  if (args.neuron.type != NeuronType::none) {
    load_words<by_vectors>(args.forward.scale, from, lanes, scale);
    load_words<by_vectors>(args.forward.shift, from, lanes, shift);
    for (int i = 0; i < lanes; ++i)
      gradient[i] = slope_times<by_vectors>(args.neuron, gradient[i], value[i] * scale[i] + shift[i], at.k);
  }
  float own[kMostLanes], slope[kMostLanes], constant[kMostLanes];
  load_words<by_vectors>(args.own, from, lanes, own);
  load_words<by_vectors>(args.slope, from, lanes, slope);
  load_words<by_vectors>(args.constant, from, lanes, constant);
  for (int i = 0; i < lanes; ++i) gradient[i] = own[i] * gradient[i] + (slope[i] * value[i] + constant[i]);
  store_lanes<by_vectors>(args.diff_src, at, gradient);
}
MPSCNN_VALUE_KERNEL(normalize_gradient, NormalizeGradientArgs) { find_gradients<false>(args, index); }
MPSCNN_VALUE_KERNEL(normalize_gradient_vectors, NormalizeGradientArgs) { find_gradients<true>(args, index); }

}  // namespace openmps::cuda::normalization

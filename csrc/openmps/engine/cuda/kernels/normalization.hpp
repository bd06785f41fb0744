// SPDX-License-Identifier: Apache-2.0
// Normalization by mean and variance, and its gradients. Statistics and sums are found in two passes: each thread sums
// a part of the pixels of its channels, then a block adds the parts.
#pragma once

#include "engine/cuda/kernels/lanes.hpp"
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
  bool is_row;  ///< the pixels of each sum are one row, in `src` too
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

/// Call add(value, x, a, b) for kTogether pixels of a row from `pixel` on, as sum_part() does. All loads of a turn are
/// under way before the first one is used.
template <bool has_src, class Add>
MPSCNN_HOST_DEVICE void add_together(const PartsArgs& args, const PartOfThread& mine, i64 pixel, float (&a)[kMostLanes],
                                     float (&b)[kMostLanes], const Add& add) {
  constexpr int kLoaded = has_src ? kTogether / 2 : kTogether;
  const View &pixels = args.pixels, &src = args.src.view;
  const i64 first = mine.image * pixels.n_stride + mine.k, first_src = mine.image * src.n_stride + mine.k;
  for (int turn = 0; turn < kTogether; turn += kLoaded) {
    Vector values[kLoaded], seen[has_src ? kLoaded : 1];
    MPSCNN_UNROLL
    for (int j = 0; j < kLoaded; ++j) {
      const i64 at = pixel + (turn + j) * args.parts;
      values[j] = load_vector(pixels, first + at * pixels.w_stride);
      if constexpr (has_src) seen[j] = load_vector(src, first_src + at * src.w_stride);
    }
    MPSCNN_UNROLL
    for (int j = 0; j < kLoaded; ++j) {
      float value[kMostLanes], x[kMostLanes];
      unpack(pixels, values[j], value);
      if constexpr (has_src) unpack(src, seen[j], x);
      add(value, x, a, b);
    }
  }
}

/// Call add(value, x, a, b) for the values of each pixel of a part, x those of `src`, and store the sums of a and b.
template <bool by_vectors, bool has_src, class Add>
MPSCNN_HOST_DEVICE void sum_part(const PartsArgs& args, const PartOfThread& mine, int lanes, const Add& add) {
  const i64 pixels = args.count();
  double sums[2][kMostLanes];
  for (int i = 0; i < lanes; ++i) sums[0][i] = sums[1][i] = 0;
  for (i64 pixel = mine.part; pixel < pixels;) {
    float a[kMostLanes], b[kMostLanes];
    for (int i = 0; i < lanes; ++i) a[i] = b[i] = 0;
    if (by_vectors && args.is_row && pixel + (kTogether - 1) * args.parts < pixels) {
      add_together<has_src>(args, mine, pixel, a, b, add);
      pixel += kTogether * args.parts;
    } else {
      for (int j = 0; j < kTogether && pixel < pixels; ++j, pixel += args.parts) {
        const Place at = args.place(mine.image, pixel, mine.k);
        float value[kMostLanes], x[kMostLanes];
        load_lanes<by_vectors>(args.pixels, at, value);
        if constexpr (has_src) load_lanes<by_vectors>(args.src, at, x);
        add(value, x, a, b);
      }
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
  const auto add = [&](const float (&value)[kMostLanes], const float (&)[kMostLanes], float (&a)[kMostLanes],
                       float (&b)[kMostLanes]) {
    for (int i = 0; i < lanes; ++i) {
      const float distance = value[i] - pivot[i];
      a[i] += distance;
      b[i] += distance * distance;
    }
  };
  sum_part<by_vectors, false>(args, mine, lanes, add);
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

/// Pixels of a thread that computes the same channels of several pixels of a row: `first`, `first` + `step`, ...
struct PixelsOfThread {
  static constexpr int kCount = 4, kTurns = 2;
  i64 first, k;
  MPSCNN_HOST_DEVICE PixelsOfThread(i64 index, const View& row) {
    const int lanes = lanes_of<true>(row);
    first = index / (row.c / lanes);
    k = (index - first * (row.c / lanes)) * lanes;
  }
};

struct NormalizeArgs {
  Source src;
  View dst;
  Coefficients coefficients;
  bool is_per_image;
  Activation neuron;  ///< by vectors: none or relu
  i64 step;           ///< of rows: between the pixels of a thread
};

/// Normalize the values of channel `k` and the following ones.
template <bool by_vectors>
MPSCNN_HOST_DEVICE void normalize_values(const NormalizeArgs& args, i64 k, const float (&mean)[kMostLanes],
                                         const float (&scale)[kMostLanes], const float (&shift)[kMostLanes],
                                         float (&values)[kMostLanes]) {
  for (int i = 0; i < lanes_of<by_vectors>(args.dst); ++i) {
    const float y = (values[i] - mean[i]) * scale[i] + shift[i];
    if constexpr (by_vectors) {
      values[i] = args.neuron.type == NeuronType::relu ? NeuronFormulas<DeviceMath>::relu(y, args.neuron.a) : y;
    } else {
      values[i] = activate(args.neuron, y, k);
    }
  }
}

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
  normalize_values<by_vectors>(args, at.k, mean, scale, shift, values);
  store_lanes<by_vectors>(args.dst, at, values);
}
MPSCNN_VALUE_KERNEL(normalize, NormalizeArgs) { normalize_lanes<false>(args, index); }
MPSCNN_VALUE_KERNEL(normalize_vectors, NormalizeArgs) { normalize_lanes<true>(args, index); }

/// The same for source and result that are one row of pixels each. The coefficients are loaded once per thread.
MPSCNN_VALUE_KERNEL(normalize_rows, NormalizeArgs) {
  const View &src = args.src.view, &dst = args.dst;
  const PixelsOfThread mine(index, dst);
  const int lanes = lanes_of<true>(dst);
  float mean[kMostLanes], scale[kMostLanes], shift[kMostLanes];
  load_words<true>(args.coefficients.mean, mine.k, lanes, mean);
  load_words<true>(args.coefficients.scale, mine.k, lanes, scale);
  load_words<true>(args.coefficients.shift, mine.k, lanes, shift);
  constexpr int kCount = PixelsOfThread::kCount;
  for (i64 pixel = mine.first; pixel < dst.w; pixel += kCount * args.step) {
    Vector loaded[kCount] = {};
    MPSCNN_UNROLL
    for (int j = 0; j < kCount; ++j)
      if (const i64 x = pixel + j * args.step; x < dst.w) loaded[j] = load_vector(src, x * src.w_stride + mine.k);
    MPSCNN_UNROLL
    for (int j = 0; j < kCount; ++j) {
      float values[kMostLanes];
      unpack(src, loaded[j], values);
      normalize_values<true>(args, mine.k, mean, scale, shift, values);
      if (const i64 x = pixel + j * args.step; x < dst.w) store_lanes<true>(dst, {0, 0, x, mine.k}, values);
    }
  }
}

/// The same for dense images, of three unorm8 channels and of float16. One thread per 4 pixels.
MPSCNN_VALUE_KERNEL(normalize_three_bytes, NormalizeArgs) {
  const FourPixelsOfBytes from(args.src.view.data.get() + 12 * index);
  float mean[3], scale[3], shift[3];
  for (int k = 0; k < 3; ++k) {
    mean[k] = args.coefficients.mean[k];
    scale[k] = args.coefficients.scale[k];
    shift[k] = args.coefficients.shift[k];
  }
  for (int part = 0; part < 3; ++part) {
    Words<8> words = {};
    for (int j = 0; j < 4; ++j) {
      const int i = 4 * part + j, k = i % 3;
      float y = (from.value(i) - mean[k]) * scale[k] + shift[k];
      if (args.neuron.type == NeuronType::relu) y = NeuronFormulas<DeviceMath>::relu(y, args.neuron.a);
      words.word[j / 2] |= static_cast<std::uint32_t>(half_bits(y)) << (j % 2 * 16);
    }
    store_words(args.dst.data.get() + 24 * index + 8 * part, words);
  }
}

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
  const auto add = [&](const float (&gradient)[kMostLanes], const float (&x)[kMostLanes], float (&a)[kMostLanes],
                       float (&b)[kMostLanes]) {
    for (int i = 0; i < lanes; ++i) {
      const float distance = x[i] - mean[i];
      const float g = slope_times<by_vectors>(args.neuron, gradient[i], distance * scale[i] + shift[i], mine.k);
      a[i] += g;
      b[i] += g * distance;
    }
  };
  sum_part<by_vectors, true>(args, mine, lanes, add);
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
  i64 step;           ///< of rows: between the pixels of a thread
  bool is_read_twice;
  WindowAxis rows, columns;  ///< if a pixel is read twice: the results that read each pixel of the source
};

/// Coefficients of the channels of a thread, from index `from` on.
template <bool by_vectors>
struct GradientCoefficients {
  float mean[kMostLanes], scale[kMostLanes], shift[kMostLanes];  ///< scale and shift only with a neuron
  float own[kMostLanes], slope[kMostLanes], constant[kMostLanes];

  MPSCNN_HOST_DEVICE GradientCoefficients(const NormalizeGradientArgs& args, i64 from, int lanes) {
    load_words<by_vectors>(args.forward.mean, from, lanes, mean);
    load_words<by_vectors>(args.own, from, lanes, own);
    load_words<by_vectors>(args.slope, from, lanes, slope);
    load_words<by_vectors>(args.constant, from, lanes, constant);
    if (args.neuron.type == NeuronType::none) return;
    load_words<by_vectors>(args.forward.scale, from, lanes, scale);
    load_words<by_vectors>(args.forward.shift, from, lanes, shift);
  }

  /// Replace the gradients of results by those of the values of the source.
  MPSCNN_HOST_DEVICE void apply(const Activation& neuron, i64 k, int lanes, const float (&value)[kMostLanes],
                                float (&gradient)[kMostLanes]) const {
    for (int i = 0; i < lanes; ++i) {
      const float distance = value[i] - mean[i];
      float g = gradient[i];
      if (neuron.type != NeuronType::none) g = slope_times<by_vectors>(neuron, g, distance * scale[i] + shift[i], k);
      gradient[i] = own[i] * g + (slope[i] * distance + constant[i]);
    }
  }
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
  const GradientCoefficients<by_vectors> coefficients(args, from, lanes);
  coefficients.apply(args.neuron, at.k, lanes, value, gradient);
  store_lanes<by_vectors>(args.diff_src, at, gradient);
}
MPSCNN_VALUE_KERNEL(normalize_gradient, NormalizeGradientArgs) { find_gradients<false>(args, index); }
MPSCNN_VALUE_KERNEL(normalize_gradient_vectors, NormalizeGradientArgs) { find_gradients<true>(args, index); }

/// The same for images that are one row of pixels each. The coefficients are loaded once per thread.
MPSCNN_VALUE_KERNEL(normalize_gradient_rows, NormalizeGradientArgs) {
  const View &diff_dst = args.diff_dst.view, &src = args.src.view, &diff_src = args.diff_src;
  const PixelsOfThread mine(index, diff_src);
  const int lanes = lanes_of<true>(diff_src);
  const GradientCoefficients<true> coefficients(args, mine.k, lanes);
  constexpr int kCount = PixelsOfThread::kCount;
  for (i64 pixel = mine.first; pixel < diff_src.w; pixel += kCount * args.step) {
    Vector gradients[kCount] = {}, seen[kCount] = {};
    MPSCNN_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const i64 x = pixel + j * args.step;
      if (x >= diff_src.w) continue;
      gradients[j] = load_vector(diff_dst, x * diff_dst.w_stride + mine.k);
      seen[j] = load_vector(src, x * src.w_stride + mine.k);
    }
    MPSCNN_UNROLL
    for (int j = 0; j < kCount; ++j) {
      float gradient[kMostLanes], value[kMostLanes];
      unpack(diff_dst, gradients[j], gradient);
      unpack(src, seen[j], value);
      coefficients.apply(args.neuron, mine.k, lanes, value, gradient);
      if (const i64 x = pixel + j * args.step; x < diff_src.w) store_lanes<true>(diff_src, {0, 0, x, mine.k}, gradient);
    }
  }
}

// ------------------------------------------------------------------------------------------- and the sum behind it

struct NormalizeAddArgs {
  Source src, addend;
  View dst, mask;
  Coefficients coefficients;
  float min, max;
  i64 step;  ///< of rows: between the pixels of a thread
};

MPSCNN_HOST_DEVICE float bounded(const NormalizeAddArgs& args, float value, bool& is_within) {
  is_within = value > args.min && value < args.max;
  value = value < args.min ? args.min : value;
  return value > args.max ? args.max : value;
}

MPSCNN_VALUE_KERNEL(normalize_add, NormalizeAddArgs) {
  const Place at = place_of(index, args.dst);
  const Coefficients& f = args.coefficients;
  const float normalized = (load(args.src, at) - f.mean[at.k]) * f.scale[at.k] + f.shift[at.k];
  bool is_within = false;
  store(args.dst, at, bounded(args, normalized + load(args.addend, at), is_within));
  if (args.mask) store(args.mask, at, is_within ? 1.0f : 0.0f);
}

/// The same for images that are one row of pixels each. The mask is unorm8.
MPSCNN_VALUE_KERNEL(normalize_add_rows, NormalizeAddArgs) {
  const View &src = args.src.view, &addend = args.addend.view, &dst = args.dst;
  const PixelsOfThread mine(index, dst);
  const int lanes = lanes_of<true>(dst);
  float mean[kMostLanes], scale[kMostLanes], shift[kMostLanes];
  load_words<true>(args.coefficients.mean, mine.k, lanes, mean);
  load_words<true>(args.coefficients.scale, mine.k, lanes, scale);
  load_words<true>(args.coefficients.shift, mine.k, lanes, shift);
  constexpr int kCount = PixelsOfThread::kCount;
  for (i64 pixel = mine.first; pixel < dst.w; pixel += kCount * args.step) {
    Vector loaded[kCount] = {}, added[kCount] = {};
    MPSCNN_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const i64 x = pixel + j * args.step;
      if (x >= dst.w) continue;
      loaded[j] = load_vector(src, x * src.w_stride + mine.k);
      added[j] = load_vector(addend, x * addend.w_stride + mine.k);
    }
    MPSCNN_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const i64 x = pixel + j * args.step;
      if (x >= dst.w) continue;
      float values[kMostLanes], others[kMostLanes];
      unpack(src, loaded[j], values);
      unpack(addend, added[j], others);
      Words<8> mask = {};
      for (int i = 0; i < lanes; ++i) {
        bool is_within = false;
        values[i] = bounded(args, (values[i] - mean[i]) * scale[i] + shift[i] + others[i], is_within);
        if (is_within) mask.word[i / 4] |= 0xffu << (i % 4 * 8);
      }
      store_lanes<true>(dst, {0, 0, x, mine.k}, values);
      if (!args.mask) continue;
      unsigned char* const to = args.mask.data.get() + x * args.mask.w_stride + mine.k;
      if (lanes == 8)
        store_words(to, mask);
      else
        store_words(to, Words<4>{{mask.word[0]}});
    }
  }
}

}  // namespace openmps::cuda::normalization

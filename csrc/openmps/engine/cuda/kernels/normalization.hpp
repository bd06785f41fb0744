// SPDX-License-Identifier: Apache-2.0
// Normalization by mean and variance, and its gradients. Statistics and sums are found in two passes: each block sums
// a part of the pixels of its channels, then the parts are added: those of a batch, and statistics of single channels
// of an image, by the last block of these channels, others by a second kernel.
#pragma once

#include "engine/cuda/kernels/clusters.hpp"
#include "engine/cuda/kernels/exact_divisor.hpp"
#include "engine/cuda/kernels/lanes.hpp"
#include "engine/cuda/kernels/statistics.hpp"
#include "engine/cuda/kernels/vectors.hpp"
#include "engine/cuda/kernels/windows.hpp"
#include "engine/problem/normalize.hpp"

namespace openmps::cuda::normalization {

inline constexpr const char* kFile = "engine/cuda/kernels/normalization.hpp";

struct CoefficientsArgs {
  Forward forward;
  StoredCoefficients result;
};
MPSCNN_VALUE_KERNEL(normalization_coefficients, CoefficientsArgs) {
  const i64 c = args.forward.groups.channels, image = index / c;
  args.result.store(index, args.forward.find(image, index - image * c));
}

// ------------------------------------------------------------------------------------------------- blocks of threads

/// How the threads of a block are divided: each has a run of adjacent channels (16 bytes, or one channel) of some
/// pixels. 8 runs of 16 bytes are a line of the caches.
struct Division {
  static constexpr int kMostRuns = 8, kMostSingleRuns = 32, kMostChannels = kMostRuns * kMostLanes;
  int runs;     ///< of a pixel
  int columns;  ///< adjacent runs of a block
  int turns;    ///< of kernels whose threads compute PixelsOfThread

  MPSCNN_HOST_DEVICE int rows() const { return kThreads / columns; }  ///< pixels at a time
  MPSCNN_HOST_DEVICE int blocks() const { return (runs + columns - 1) / columns; }
};

/// Place of block `index`: blocks are counted through all runs, then through pixels.
struct BlockPlace {
  int first_run;
  i64 pixels;  ///< index of its pixels

  MPSCNN_HOST_DEVICE BlockPlace(const Division& division, i64 index) {
    const auto blocks = static_cast<std::uint32_t>(division.blocks()), i = static_cast<std::uint32_t>(index);
    pixels = i / blocks;
    first_run = static_cast<int>(i % blocks) * division.columns;
  }
};

struct ThreadPlace {
  int row, column;
  bool is_in_block, has_run;

  MPSCNN_HOST_DEVICE ThreadPlace(const Division& division, const BlockPlace& place, i64 thread) {
    row = static_cast<int>(thread) / division.columns;
    column = static_cast<int>(thread) % division.columns;
    is_in_block = row < division.rows();
    has_run = is_in_block && place.first_run + column < division.runs;
  }
};

/// T of each channel of a block.
template <class T>
struct ChannelsOfBlock {
  T of[Division::kMostChannels];

  /// Store find(k) for each channel k.
  template <class Find>
  MPSCNN_HOST_DEVICE void fill(const Division& division, const BlockPlace& place, int lanes, const Block& block,
                               const Find& find) {
    const i64 first = static_cast<i64>(place.first_run) * lanes, end = static_cast<i64>(division.runs) * lanes;
    block.for_each(division.columns * lanes, [&](i64 i) {
      if (first + i < end) of[i] = find(first + i);
    });
  }
  MPSCNN_HOST_DEVICE void load(const ThreadPlace& thread, int lanes, T (&to)[kMostLanes]) const {
    for (int i = 0; i < lanes; ++i) to[i] = of[thread.column * lanes + i];
  }
};

// --------------------------------------------------------------------------------------------------------- statistics

constexpr int kTogether = 8;   ///< pixels summed in float, which loses no more than rounding a distance does
constexpr int kSumBlocks = 2;  ///< per multiprocessor, which keep enough loads under way

/// Pixels whose channels are summed, of each image or of all images together.
struct PartsArgs {
  View pixels;  ///< source, or gradient of the result
  bool is_per_image;
  bool is_row;  ///< the pixels of each sum are one row, in `src` too
  Division division;
  i64 parts;
  Pointer<Pair> partial;       ///< of each image if per image, channel and part
  Pointer<unsigned> counters;  ///< of each run of blocks, of each image if per image: its last block adds the parts

  // Moments.
  Pointer<float> pivots;  ///< of each image if per image, and channel: mean of the first pixels

  // Gradients.
  Source src;  ///< of the pixels
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

/// Pixels `first`, `first` + `step`, ... of channel k and the following ones; image 0 if not per image.
struct PartOfThread {
  i64 image, k, first, step;
};

/// Call add(value, x, a, b) for up to kTogether pixels of a row from `pixel` on, as sum_pixels() does. All loads of a
/// turn are under way before the first one is used.
template <bool has_src, class Add>
MPSCNN_HOST_DEVICE void add_together(const PartsArgs& args, const PartOfThread& mine, i64 pixel, i64 pixels,
                                     float (&a)[kMostLanes], float (&b)[kMostLanes], const Add& add) {
  constexpr int kLoaded = has_src ? kTogether / 2 : kTogether;
  const View &view = args.pixels, &src = args.src.view;
  const i64 first = mine.image * view.n_stride + mine.k, first_src = mine.image * src.n_stride + mine.k;
  for (int turn = 0; turn < kTogether; turn += kLoaded) {
    Vector values[kLoaded] = {}, seen[has_src ? kLoaded : 1] = {};
    MPSCNN_UNROLL
    for (int j = 0; j < kLoaded; ++j) {
      const i64 at = pixel + (turn + j) * mine.step;
      if (at >= pixels) continue;
      values[j] = load_vector(view, first + at * view.w_stride);
      if constexpr (has_src) seen[j] = load_vector(src, first_src + at * src.w_stride);
    }
    MPSCNN_UNROLL
    for (int j = 0; j < kLoaded; ++j) {
      if (pixel + (turn + j) * mine.step >= pixels) continue;
      float value[kMostLanes], x[kMostLanes];
      unpack(view, values[j], value);
      if constexpr (has_src) unpack(src, seen[j], x);
      add(value, x, a, b);
    }
  }
}

/// Sums of a thread for each lane, in its block's memory: in registers, they would leave room for fewer loads.
struct SumsOfThread {
  Pair* first;
  int step;

  MPSCNN_HOST_DEVICE void add(int lane, float a, float b) const {
    Pair& sums = first[lane * step];
    sums = added(sums, {a, b});
  }
};

/// Call add(value, x, a, b) for the values of each pixel of a thread, x those of `src`; add the sums of a and b to
/// `sums`.
template <bool by_vectors, bool has_src, class Add>
MPSCNN_HOST_DEVICE void sum_pixels(const PartsArgs& args, const PartOfThread& mine, int lanes, const Add& add,
                                   const SumsOfThread& sums) {
  const i64 pixels = args.count();
  for (i64 pixel = mine.first; pixel < pixels; pixel += kTogether * mine.step) {
    float a[kMostLanes], b[kMostLanes];
    for (int i = 0; i < lanes; ++i) a[i] = b[i] = 0;
    if (by_vectors && args.is_row) {
      add_together<has_src>(args, mine, pixel, pixels, a, b, add);
    } else {
      for (int j = 0; j < kTogether && pixel + j * mine.step < pixels; ++j) {
        const Place at = args.place(mine.image, pixel + j * mine.step, mine.k);
        float value[kMostLanes], x[kMostLanes];
        load_lanes<by_vectors>(args.pixels, at, value);
        if constexpr (has_src) load_lanes<by_vectors>(args.src, at, x);
        add(value, x, a, b);
      }
    }
    for (int i = 0; i < lanes; ++i) sums.add(i, a[i], b[i]);
  }
}

/// Sums of the threads of a block: of each row, lane and column, so that adjacent threads store adjacent values.
template <bool by_vectors>
struct SumsOfBlock {
  Pair of[kThreads * (by_vectors ? kMostLanes : 1)];
};

/// Add the parts of each channel of a block and call finish(image, channel, sums). `of` has kThreads sums. Adjacent
/// threads read adjacent parts.
template <class Finish>
MPSCNN_HOST_DEVICE void add_parts(const PartsArgs& args, i64 image, i64 first, int channels, const Block& block,
                                  Pair* of, const Finish& finish) {
  const int step = kThreads / channels;  // threads of a channel
  block.for_each(static_cast<i64>(channels) * step, [&](i64 i) {
    const i64 channel = first + static_cast<int>(i) / step;
    if (channel >= args.pixels.c) return;
    const Pair* const parts = args.partial.get() + (image * args.pixels.c + channel) * args.parts;
    Pair sums{0, 0};
    for (i64 part = static_cast<int>(i) % step; part < args.parts; part += kTogether * step) {
      Pair loaded[kTogether];
      MPSCNN_UNROLL
      for (int j = 0; j < kTogether; ++j)
        loaded[j] = part + j * step < args.parts ? parts[part + j * step] : Pair{0, 0};
      MPSCNN_UNROLL
      for (int j = 0; j < kTogether; ++j) sums = added(sums, loaded[j]);
    }
    of[i] = sums;
  });
  block.for_each(channels, [&](i64 i) {
    if (first + i >= args.pixels.c) return;
    Pair sums = of[i * step];
    for (int j = 1; j < step; ++j) sums = added(sums, of[i * step + j]);
    finish(image, first + i, sums);
  });
}

/// Call sum(thread, mine, sums) in each thread, the sums initially 0; add the sums of all rows and store them. If there
/// are counters, the last block calls finish(image, channel, sums) for each of its channels.
template <bool by_vectors, class Sum, class Finish>
MPSCNN_HOST_DEVICE void sum_part(const PartsArgs& args, const BlockPlace& place, const Block& block, const Sum& sum,
                                 const Finish& finish) {
  MPSCNN_SHARED(SumsOfBlock<by_vectors>, shared, 1);
  Pair* const of = shared.own(0).of;
  const int lanes = lanes_of<by_vectors>(args.pixels), columns = args.division.columns, rows = args.division.rows();
  const i64 image = place.pixels / args.parts, part = place.pixels - image * args.parts;
  block.for_each(kThreads, [&](i64 index) {
    const ThreadPlace thread(args.division, place, index);
    if (!thread.is_in_block) return;
    const SumsOfThread sums{of + thread.row * lanes * columns + thread.column, columns};
    for (int i = 0; i < lanes; ++i) sums.first[i * columns] = {0, 0};
    if (!thread.has_run) return;
    const i64 k = static_cast<i64>(place.first_run + thread.column) * lanes;
    sum(thread, PartOfThread{image, k, part * rows + thread.row, args.parts * rows}, sums);
  });
  const int width = lanes * columns;
  const auto add_rows = [&](int slot, int first, int step, int end) {
    Pair total = of[first * width + slot];
    for (int row = first + step; row < end; row += step) total = added(total, of[row * width + slot]);
    return total;
  };
  // First those of kTogether rows each: few threads have many rows otherwise.
  block.for_each((rows + kTogether - 1) / kTogether * width, [&](i64 i) {
    const int first = static_cast<int>(i) / width * kTogether, slot = static_cast<int>(i) % width;
    of[first * width + slot] = add_rows(slot, first, 1, first + kTogether < rows ? first + kTogether : rows);
  });
  block.for_each(width, [&](i64 i) {
    const int slot = static_cast<int>(i), lane = slot / columns, run = place.first_run + slot % columns;
    if (run >= args.division.runs) return;
    const i64 channel = image * args.pixels.c + static_cast<i64>(run) * lanes + lane;
    args.partial[channel * args.parts + part] = add_rows(slot, 0, kTogether, rows);
  });
  if (!args.counters) return;
  unsigned* const counter = args.counters.get() + image * args.division.blocks() + place.first_run / columns;
  if (block.is_last(counter, static_cast<unsigned>(args.parts)))
    add_parts(args, image, static_cast<i64>(place.first_run) * lanes, width, block, of, finish);
}

/// Return the mean of the first pixels.
template <bool by_vectors>
MPSCNN_HOST_DEVICE void find_pivot(const PartsArgs& args, const PartOfThread& mine, int lanes,
                                   float (&pivot)[kMostLanes]) {
  const i64 last = args.count() - 1;
  float x[kTogether][kMostLanes];
  MPSCNN_UNROLL
  for (int j = 0; j < kTogether; ++j)
    load_lanes<by_vectors>(args.pixels, args.place(mine.image, j < last ? j : last, mine.k), x[j]);
  for (int i = 0; i < lanes; ++i) {
    pivot[i] = 0;
    MPSCNN_UNROLL
    for (int j = 0; j < kTogether; ++j) pivot[i] += x[j][i] / kTogether;
  }
}

/// Store the moments of channel k of a batch: mean and sum of squared distances from it of some pixels, with what the
/// result already has of `known_pixels`.
MPSCNN_HOST_DEVICE void store_moments(const Statistics& result, i64 k, double mean, double spread, double pixels,
                                      double known_pixels) {
  if (spread < 0) spread = 0;  // by rounding
  if (known_pixels > 0) {
    const Pair known = result.get(k);
    const double distance = mean - known.a;
    spread += known.b * known_pixels + distance * distance * known_pixels * pixels / (known_pixels + pixels);
    mean = known.a + distance * pixels / (known_pixels + pixels);
  }
  result.set(k, {mean, spread / (known_pixels + pixels)});
}

struct MomentsArgs {
  PartsArgs parts;
  Statistics result;
  i64 before;  ///< batches: pixels that `result` already covers

  // Images: statistics of each image's groups of channels, also stored as pairs.
  Groups groups;
  Pointer<Pair> pairs;

  // Images with a group for each channel: its coefficients.
  Forward forward;
  StoredCoefficients coefficients;

  /// Store the moments of channel k, over all images or of one, of sums of distances from its pivot.
  MPSCNN_HOST_DEVICE void store(i64 image, i64 k, const Pair& sums) const {
    if (parts.is_per_image)
      store_of_image(image, k, sums);
    else
      store_of_batch(k, sums);
  }

 private:
  MPSCNN_HOST_DEVICE void store_of_image(i64 image, i64 k, const Pair& sums) const {
    const i64 i = image * groups.channels + k;
    const double pixels = static_cast<double>(parts.count()), mean = sums.a / pixels, spread = sums.b - sums.a * mean;
    const Pair found{parts.pivots[i] + mean, spread < 0 ? 0.0 : spread / pixels};  // below 0 by rounding
    result.set(i, found);
    coefficients.store(i, forward.of(found, k));
  }
  MPSCNN_HOST_DEVICE void store_of_batch(i64 k, const Pair& sums) const {
    const auto pixels = static_cast<double>(parts.count());
    const double spread = sums.b - sums.a * (sums.a / pixels);
    store_moments(result, k, parts.pivots[k] + sums.a / pixels, spread, pixels, static_cast<double>(before));
  }
};

/// Sum distances from the pivot, and their squares. The closer the pivot is to the mean, the less is lost when the
/// square of their distance is subtracted.
template <bool by_vectors>
MPSCNN_HOST_DEVICE void sum_moments(const MomentsArgs& moments, i64 index, const Block& block) {
  const PartsArgs& args = moments.parts;
  const int lanes = lanes_of<by_vectors>(args.pixels);
  const auto sum = [&](const ThreadPlace&, const PartOfThread& mine, const SumsOfThread& sums) {
    float pivot[kMostLanes];
    find_pivot<by_vectors>(args, mine, lanes, pivot);
    if (mine.first == 0)
      for (int i = 0; i < lanes; ++i) args.pivots[mine.image * args.pixels.c + mine.k + i] = pivot[i];
    const auto add = [&](const float (&value)[kMostLanes], const float (&)[kMostLanes], float (&a)[kMostLanes],
                         float (&b)[kMostLanes]) {
      for (int i = 0; i < lanes; ++i) {
        const float distance = value[i] - pivot[i];
        a[i] += distance;
        b[i] += distance * distance;
      }
    };
    sum_pixels<by_vectors, false>(args, mine, lanes, add, sums);
  };
  sum_part<by_vectors>(args, BlockPlace(args.division, index), block, sum,
                       [&](i64 image, i64 k, const Pair& sums) { moments.store(image, k, sums); });
}
MPSCNN_BLOCK_KERNEL(sum_moments_values, MomentsArgs) { sum_moments<false>(args, index, block); }
MPSCNN_BLOCK_KERNEL(sum_moments_vectors, MomentsArgs, kSumBlocks) { sum_moments<true>(args, index, block); }

struct MomentsOfSumsArgs {
  View pixels;  ///< one row
  Pointer<const float> sums, squares;
  Statistics result;
  i64 before;
};
/// Store the moments of channel `index` of a batch. If the sum of squares has lost digits of the variance, sum the
/// distances from the mean.
MPSCNN_WARP_KERNEL(moments_of_sums, MomentsOfSumsArgs) {
  constexpr double kLost = 1.0 / 64;  // float sums of squares are exact to some 1e-5 [seen on an H200]
  const auto pixels = static_cast<double>(args.pixels.w);
  const double sum = args.sums[index], squares = args.squares[index];
  double mean = sum / pixels, spread = squares - sum * mean;
  if (spread < kLost * squares) {
    const double pivot = mean;
    const Pair exact = warp.reduce(
        args.pixels.w, Pair{0, 0},
        [&](i64 i) {
          const double distance = load(args.pixels, 0, 0, i, index) - pivot;
          return Pair{distance, distance * distance};
        },
        [](const Pair& x, const Pair& y) { return added(x, y); });
    mean = pivot + exact.a / pixels, spread = exact.b - exact.a * (exact.a / pixels);
  }
  warp.for_each(
      1, [&](i64) { store_moments(args.result, index, mean, spread, pixels, static_cast<double>(args.before)); });
}

/// Moments of group `index` of all images.
MPSCNN_BLOCK_KERNEL(moments_of_groups, MomentsArgs) {
  const i64 each = args.groups.channels_of_each(), image = index / args.groups.count;
  const i64 first = (index - image * args.groups.count) * each, parts = args.parts.parts;
  const auto pixels = static_cast<double>(args.parts.count()), count = pixels * static_cast<double>(each);
  const i64 first_channel = image * args.groups.channels + first;
  const auto channel_of = [&](i64 i) { return first_channel + i / parts; };
  const auto sums_of = [&](i64 i) { return args.parts.partial[first_channel * parts + i]; };
  const auto add = [](double x, double y) { return x + y; };
  const double mean = block.reduce(
                          each * parts, 0.0,
                          [&](i64 i) {
                            const double pivot = i % parts == 0 ? pixels * args.parts.pivots[channel_of(i)] : 0.0;
                            return pivot + sums_of(i).a;
                          },
                          add) /
                      count;
  // The sum of (x - mean)^2 with x - mean = (x - pivot) + (pivot - mean).
  const double spread = block.reduce(
      each * parts, 0.0,
      [&](i64 i) {
        const double distance = args.parts.pivots[channel_of(i)] - mean;
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

/// Pixels of a thread that computes the same channels of several pixels of a row.
struct PixelsOfThread {
  static constexpr int kCount = 4;  ///< pixels at a time

  i64 k, first, step, end;
  MPSCNN_HOST_DEVICE PixelsOfThread(const Division& division, const BlockPlace& place, const ThreadPlace& thread,
                                    const View& row) {
    const int rows = division.rows();
    k = static_cast<i64>(place.first_run + thread.column) * lanes_of<true>(row);
    const i64 pixels = static_cast<i64>(rows) * (kCount * division.turns);
    first = place.pixels * pixels + thread.row;
    step = rows;
    end = first + pixels;
    if (end > row.w) end = row.w;
  }
};

struct NormalizeArgs {
  Source src;
  View dst;
  Forward forward;
  StoredCoefficients coefficients;  ///< not of rows
  bool is_per_image;
  Activation neuron;  ///< by vectors: none or relu
  Division division;  ///< of rows
};

/// Normalize the values of channel `k` and the following ones.
template <bool by_vectors>
MPSCNN_HOST_DEVICE void normalize_values(const NormalizeArgs& args, i64 k, const Coefficients (&known)[kMostLanes],
                                         float (&values)[kMostLanes]) {
  for (int i = 0; i < lanes_of<by_vectors>(args.dst); ++i) {
    const float y = (values[i] - known[i].mean) * known[i].scale + known[i].shift;
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
  float values[kMostLanes];
  Coefficients known[kMostLanes];
  load_lanes<by_vectors>(args.src, at, values);
  args.coefficients.load<by_vectors>((args.is_per_image ? at.n * args.dst.c : 0) + at.k, lanes, known);
  normalize_values<by_vectors>(args, at.k, known, values);
  store_lanes<by_vectors>(args.dst, at, values);
}
MPSCNN_VALUE_KERNEL(normalize, NormalizeArgs) { normalize_lanes<false>(args, index); }
MPSCNN_VALUE_KERNEL(normalize_vectors, NormalizeArgs) { normalize_lanes<true>(args, index); }

/// The same for source and result that are one row of pixels each. Each block finds the coefficients of its channels:
/// another kernel would take longer.
MPSCNN_BLOCK_KERNEL(normalize_rows, NormalizeArgs, 4) {
  const View &src = args.src.view, &dst = args.dst;
  const int lanes = lanes_of<true>(dst);
  const BlockPlace place(args.division, index);
  MPSCNN_SHARED(ChannelsOfBlock<Coefficients>, shared, 1);
  ChannelsOfBlock<Coefficients>& of_block = shared.own(0);
  of_block.fill(args.division, place, lanes, block, [&](i64 k) { return args.forward.find(0, k); });
  block.for_each(kThreads, [&](i64 i) {
    const ThreadPlace thread(args.division, place, i);
    if (!thread.has_run) return;
    const PixelsOfThread mine(args.division, place, thread, dst);
    Coefficients known[kMostLanes];
    of_block.load(thread, lanes, known);
    constexpr int kCount = PixelsOfThread::kCount;
    for (i64 pixel = mine.first; pixel < mine.end; pixel += kCount * mine.step) {
      Vector loaded[kCount] = {};
      MPSCNN_UNROLL
      for (int j = 0; j < kCount; ++j)
        if (const i64 x = pixel + j * mine.step; x < mine.end) loaded[j] = load_vector(src, x * src.w_stride + mine.k);
      MPSCNN_UNROLL
      for (int j = 0; j < kCount; ++j) {
        float values[kMostLanes];
        unpack(src, loaded[j], values);
        normalize_values<true>(args, mine.k, known, values);
        if (const i64 x = pixel + j * mine.step; x < mine.end) store_lanes<true>(dst, {0, 0, x, mine.k}, values);
      }
    }
  });
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

struct GradientPartsArgs {
  PartsArgs parts;
  GradientSumsArgs totals;
};

/// Sum G and G * (x - the mean rounded to float).
template <bool by_vectors>
MPSCNN_HOST_DEVICE void sum_gradients(const GradientPartsArgs& gradients, i64 index, const Block& block) {
  const PartsArgs& args = gradients.parts;
  const int lanes = lanes_of<by_vectors>(args.pixels);
  const BlockPlace place(args.division, index);
  const i64 image = place.pixels / args.parts;
  MPSCNN_SHARED(ChannelsOfBlock<Coefficients>, shared, 1);
  ChannelsOfBlock<Coefficients>& of_block = shared.own(0);
  of_block.fill(args.division, place, lanes, block, [&](i64 k) { return gradients.totals.forward.find(image, k); });
  const auto sum = [&](const ThreadPlace& thread, const PartOfThread& mine, const SumsOfThread& sums) {
    Coefficients known[kMostLanes];
    of_block.load(thread, lanes, known);
    const auto add = [&](const float (&gradient)[kMostLanes], const float (&x)[kMostLanes], float (&a)[kMostLanes],
                         float (&b)[kMostLanes]) {
      for (int i = 0; i < lanes; ++i) {
        const float distance = x[i] - known[i].mean, y = distance * known[i].scale + known[i].shift;
        const float g = slope_times<by_vectors>(args.neuron, gradient[i], y, mine.k);
        a[i] += g;
        b[i] += g * distance;
      }
    };
    sum_pixels<by_vectors, true>(args, mine, lanes, add, sums);
  };
  sum_part<by_vectors>(args, place, block, sum, [&](i64, i64 k, const Pair& sums) { gradients.totals.store(k, sums); });
}
MPSCNN_BLOCK_KERNEL(sum_gradients_values, GradientPartsArgs) { sum_gradients<false>(args, index, block); }
MPSCNN_BLOCK_KERNEL(sum_gradients_vectors, GradientPartsArgs, kSumBlocks) { sum_gradients<true>(args, index, block); }

/// Index: image * channels + channel.
MPSCNN_WARP_KERNEL(normalization_gradient_of_images, GradientPartsArgs) {
  const i64 parts = args.parts.parts, c = args.parts.pixels.c, image = index / c;
  const Pair* const from = args.parts.partial.get() + index * parts;
  const Pair sums = warp.reduce(
      parts, Pair{0, 0}, [&](i64 part) { return from[part]; },
      [](const Pair& x, const Pair& y) { return added(x, y); });
  warp.for_each(1, [&](i64) { args.totals.of_channels[index] = args.totals.scaled(image, index - image * c, sums); });
}
MPSCNN_BLOCK_KERNEL(normalization_gradient_of_groups, GradientSumsArgs) {
  const i64 each = args.forward.groups.channels_of_each(), image = index / args.forward.groups.count;
  const i64 first = (index - image * args.forward.groups.count) * each;
  const Pair sums = block.reduce(
      each, Pair{0, 0},
      [&](i64 i) {
        const Pair own = args.of_channels[image * args.forward.groups.channels + first + i];
        const double gamma = args.forward.gamma[first + i];
        return Pair{gamma * own.a, gamma * own.b};
      },
      [](const Pair& x, const Pair& y) { return added(x, y); });
  block.for_each(1, [&](i64) { args.of_groups[index] = sums; });
}
MPSCNN_VALUE_KERNEL(normalization_gradient_over_images, GradientSumsArgs) {
  Pair sums{0, 0};
  for (i64 image = 0; image < args.images; ++image)
    sums = added(sums, args.of_channels[image * args.forward.groups.channels + index]);
  args.diff_beta[index] = static_cast<float>(sums.a);
  args.diff_gamma[index] = static_cast<float>(sums.b);
}

MPSCNN_VALUE_KERNEL(normalization_gradient_coefficients, GradientSumsArgs) {
  const i64 c = args.forward.groups.channels, image = index / c;
  const GradientCoefficients found = args.find(image, index - image * c);
  args.own[index] = found.own;
  args.slope[index] = found.slope;
  args.constant[index] = found.constant;
}

// -------------------------------------------------------------------------------------- and the sum in front of them

/// Return whether a mask is packed: a byte has a bit for each value of 16 bytes of the other image.
MPSCNN_HOST_DEVICE bool is_packed(const View& mask, const View& other) { return mask.c != other.c; }
/// Return the offset of a byte of a packed mask: those of 8 adjacent bytes of all pixels come before the next 8, so
/// that a warp, which has these 8 of 4 pixels, stores 32 bytes. `row`: the mask as one row of pixels.
MPSCNN_HOST_DEVICE i64 packed_offset(const View& row, i64 pixel, i64 byte) {
  return (byte / 8 * row.w + pixel) * 8 + byte % 8;
}

struct MaskedSumMomentsArgs {
  GradientPartsArgs gradients;  ///< its pixels are the masked sum
  View src0, src1, mask;        ///< the mask is unorm8, which may be packed, or has the other images' format
  float scale;
};

/// Pixels of an image that another one has: every stride-th of its rows and columns, from the first on.
struct SampledPixels {
  std::uint32_t h = 0, w = 0, stride_h = 1, stride_w = 1;  ///< of the image
  std::uint32_t sampled_h = 0, sampled_w = 0;
  ExactDivisor by_w, by_h, by_stride_h, by_stride_w;

  /// Return the number of a pixel among the sampled ones of all images; below 0 if it is none of them.
  MPSCNN_HOST_DEVICE i64 find(i64 pixel) const {
    const auto number = static_cast<std::uint32_t>(pixel);
    const std::uint32_t row = by_w(number), x = number - row * w, image = by_h(row), y = row - image * h;
    const std::uint32_t at_y = by_stride_h(y), at_x = by_stride_w(x);
    const bool is_sampled = at_y * stride_h == y && at_x * stride_w == x && at_y < sampled_h && at_x < sampled_w;
    return is_sampled ? (static_cast<i64>(image) * sampled_h + at_y) * sampled_w + at_x : -1;
  }
};

struct SampledSumArgs {
  MaskedSumMomentsArgs sum;  ///< its src1 has the sampled pixels; the others are 0
  SampledPixels pixels;
};

/// Store the masked sum and sum its values as sum_gradients() does, for images that are one row of pixels each.
/// `sampled`: the pixels of src1; null: it has all of them.
template <bool is_sampled>
MPSCNN_HOST_DEVICE void sum_masked(const MaskedSumMomentsArgs& args, const SampledPixels* sampled, i64 index,
                                   const Block& block) {
  const PartsArgs& parts = args.gradients.parts;
  const View &dst = parts.pixels, &src = parts.src.view;
  const int lanes = lanes_of<true>(dst);
  const bool is_masked = static_cast<bool>(args.mask), has_bytes = is_masked && args.mask.format == Format::unorm8;
  const bool has_bits = has_bytes && is_packed(args.mask, dst);
  const BlockPlace place(parts.division, index);
  MPSCNN_SHARED(ChannelsOfBlock<float>, shared, 1);
  ChannelsOfBlock<float>& means = shared.own(0);
  means.fill(parts.division, place, lanes, block,
             [&](i64 k) { return static_cast<float>(args.gradients.totals.forward.statistics.get(k).a); });
  const auto sum = [&](const ThreadPlace& thread, const PartOfThread& mine, const SumsOfThread& sums) {
    float mean[kMostLanes];
    means.load(thread, lanes, mean);
    for (i64 first = mine.first; first < dst.w; first += kTogether * mine.step) {
      float a[kMostLanes], b[kMostLanes];
      for (int i = 0; i < lanes; ++i) a[i] = b[i] = 0;
      constexpr int kLoaded = 4;  // of three images and a mask
      for (int turn = 0; turn < kTogether; turn += kLoaded) {
        Vector ones[kLoaded] = {}, others[kLoaded] = {}, masks[kLoaded] = {}, seen[kLoaded] = {};
        MPSCNN_UNROLL
        for (int j = 0; j < kLoaded; ++j) {
          const i64 pixel = first + (turn + j) * mine.step;
          if (pixel >= dst.w) continue;
          ones[j] = load_vector(args.src0, pixel * args.src0.w_stride + mine.k);
          i64 other = pixel;
          if constexpr (is_sampled) other = sampled->find(pixel);
          if (other >= 0) others[j] = load_vector(args.src1, other * args.src1.w_stride + mine.k);
          seen[j] = load_vector(src, pixel * src.w_stride + mine.k);
          if (!is_masked) continue;
          const i64 at = pixel * args.mask.w_stride + mine.k;
          if (has_bits) {
            masks[j].words[0] = args.mask.data[packed_offset(args.mask, pixel, mine.k / lanes)];
          } else if (!has_bytes) {
            masks[j] = load_vector(args.mask, at);
          } else if (lanes == 8) {
            const Words<8> bytes = load_words<8>(args.mask.data.get() + at);
            masks[j].words[0] = bytes.word[0], masks[j].words[1] = bytes.word[1];
          } else {
            masks[j].words[0] = load_words<4>(args.mask.data.get() + at).word[0];
          }
        }
        MPSCNN_UNROLL
        for (int j = 0; j < kLoaded; ++j) {
          const i64 pixel = first + (turn + j) * mine.step;
          if (pixel >= dst.w) continue;
          float value[kMostLanes], other[kMostLanes], mask[kMostLanes], x[kMostLanes];
          unpack(dst, ones[j], value);
          unpack(dst, others[j], other);
          unpack(dst, masks[j], mask);
          unpack(dst, seen[j], x);
          for (int i = 0; i < lanes; ++i) {
            const bool passes = !is_masked || (has_bits    ? (masks[j].words[0] >> i & 1) != 0
                                               : has_bytes ? (masks[j].words[i / 4] >> (i % 4 * 8) & 0xffu) != 0
                                                           : mask[i] != 0);
            value[i] = passes ? args.scale * (value[i] + other[i]) : 0.0f;
            if (format_of(dst) == Format::float16) value[i] = half_value(half_bits(value[i]));  // as it is stored
            a[i] += value[i];
            b[i] += value[i] * (x[i] - mean[i]);
          }
          store_lanes<true>(dst, {0, 0, pixel, mine.k}, value);
        }
      }
      for (int i = 0; i < lanes; ++i) sums.add(i, a[i], b[i]);
    }
  };
  sum_part<true>(parts, place, block, sum, [&](i64, i64 k, const Pair& sums) { args.gradients.totals.store(k, sums); });
}
MPSCNN_BLOCK_KERNEL(sum_masked_gradients, MaskedSumMomentsArgs, kSumBlocks) {
  sum_masked<false>(args, nullptr, index, block);
}
MPSCNN_BLOCK_KERNEL(sum_sampled_gradients, SampledSumArgs, kSumBlocks) {
  sum_masked<true>(args.sum, &args.pixels, index, block);
}

struct NormalizeGradientArgs {
  Source diff_dst, src;
  View diff_src;
  bool is_per_image;
  GradientSumsArgs sums;
  StoredCoefficients forward;  ///< not of rows
  Activation neuron;           ///< by vectors: none or relu
  Division division;           ///< of rows
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
  Coefficients forward[kMostLanes];
  args.forward.load<by_vectors>(from, lanes, forward);
  float own[3][kMostLanes];
  load_words<by_vectors>(args.sums.own, from, lanes, own[0]);
  load_words<by_vectors>(args.sums.slope, from, lanes, own[1]);
  load_words<by_vectors>(args.sums.constant, from, lanes, own[2]);
  for (int i = 0; i < lanes; ++i)
    gradient[i] = gradient_of<by_vectors>(args.neuron, at.k, forward[i], {own[0][i], own[1][i], own[2][i]}, value[i],
                                          gradient[i]);
  store_lanes<by_vectors>(args.diff_src, at, gradient);
}
MPSCNN_VALUE_KERNEL(normalize_gradient, NormalizeGradientArgs) { find_gradients<false>(args, index); }
MPSCNN_VALUE_KERNEL(normalize_gradient_vectors, NormalizeGradientArgs) { find_gradients<true>(args, index); }

/// The same for images that are one row of pixels each, as normalize_rows. The coefficients stay in the block's memory:
/// in registers, those of 8 channels would leave room for two blocks instead of three.
MPSCNN_BLOCK_KERNEL(normalize_gradient_rows, NormalizeGradientArgs, 3) {
  const View &diff_dst = args.diff_dst.view, &src = args.src.view, &diff_src = args.diff_src;
  const int lanes = lanes_of<true>(diff_src);
  const BlockPlace place(args.division, index);
  MPSCNN_SHARED(ChannelsOfBlock<Coefficients>, forward, 1);
  MPSCNN_SHARED(ChannelsOfBlock<GradientCoefficients>, own, 1);
  forward.own(0).fill(args.division, place, lanes, block, [&](i64 k) { return args.sums.forward.find(0, k); });
  own.own(0).fill(args.division, place, lanes, block, [&](i64 k) { return args.sums.find(0, k); });
  block.for_each(kThreads, [&](i64 i) {
    const ThreadPlace thread(args.division, place, i);
    if (!thread.has_run) return;
    const PixelsOfThread mine(args.division, place, thread, diff_src);
    const Coefficients* const known = forward.own(0).of + thread.column * lanes;
    const GradientCoefficients* const known_own = own.own(0).of + thread.column * lanes;
    constexpr int kCount = PixelsOfThread::kCount;
    for (i64 pixel = mine.first; pixel < mine.end; pixel += kCount * mine.step) {
      Vector gradients[kCount] = {}, seen[kCount] = {};
      MPSCNN_UNROLL
      for (int j = 0; j < kCount; ++j) {
        const i64 x = pixel + j * mine.step;
        if (x >= mine.end) continue;
        gradients[j] = load_vector(diff_dst, x * diff_dst.w_stride + mine.k);
        seen[j] = load_vector(src, x * src.w_stride + mine.k);
      }
      MPSCNN_UNROLL
      for (int i = 0; i < lanes; ++i) {
        const Coefficients of_lane = known[i];
        const GradientCoefficients own_of_lane = known_own[i];
        MPSCNN_UNROLL
        for (int j = 0; j < kCount; ++j)
          set_lane(diff_src, gradients[j], i,
                   gradient_of<true>(args.neuron, mine.k, of_lane, own_of_lane, lane_of(src, seen[j], i),
                                     lane_of(diff_dst, gradients[j], i)));
      }
      MPSCNN_UNROLL
      for (int j = 0; j < kCount; ++j)
        if (const i64 x = pixel + j * mine.step; x < mine.end)
          store_vector(diff_src, x * diff_src.w_stride + mine.k, gradients[j]);
    }
  });
}

// ------------------------------------------------------------------------------------------- and the sum behind it

struct NormalizeAddArgs {
  Source src, addend;
  View dst, mask;
  Forward forward;
  float min, max;
  Division division;  ///< of rows
};

MPSCNN_HOST_DEVICE float normalized(const Coefficients& known, float value) {
  return (value - known.mean) * known.scale + known.shift;
}
MPSCNN_HOST_DEVICE float bounded(const NormalizeAddArgs& args, float value, bool& is_within) {
  is_within = value > args.min && value < args.max;
  value = value < args.min ? args.min : value;
  return value > args.max ? args.max : value;
}

/// One thread per value or, with a packed mask, per byte of it.
MPSCNN_VALUE_KERNEL(normalize_add, NormalizeAddArgs) {
  const bool has_bits = args.mask && is_packed(args.mask, args.dst);
  const i64 values = has_bits ? args.dst.c / args.mask.c : 1;
  unsigned bits = 0;
  for (i64 i = 0; i < values; ++i) {
    const Place at = place_of(index * values + i, args.dst);
    const float value = normalized(args.forward.find(0, at.k), load(args.src, at)) + load(args.addend, at);
    bool is_within = false;
    store(args.dst, at, bounded(args, value, is_within));
    if (is_within) bits |= 1u << i;
    if (args.mask && !has_bits) store(args.mask, at, is_within ? 1.0f : 0.0f);
  }
  if (!has_bits) return;
  View row = args.mask;
  row.w *= row.n * row.h;
  const i64 pixel = index / row.c;
  args.mask.data[packed_offset(row, pixel, index - pixel * row.c)] = static_cast<unsigned char>(bits);
}

/// Two normalizations and their sum.
struct NormalizeBothAddArgs {
  NormalizeAddArgs sum;
  Forward addend;  ///< normalizes the addend
};

/// The same for images that are one row of pixels each. The mask is unorm8. `of_addend` normalizes the addend, which is
/// then rounded to the format of the images; null: it is added as it is.
template <bool normalizes_addend>
MPSCNN_HOST_DEVICE void normalize_add_row(const NormalizeAddArgs& args, [[maybe_unused]] const Forward* of_addend,
                                          i64 index, const Block& block) {
  const bool has_bits = args.mask && is_packed(args.mask, args.dst);
  const View &src = args.src.view, &addend = args.addend.view, &dst = args.dst;
  const int lanes = lanes_of<true>(dst);
  const BlockPlace place(args.division, index);
  MPSCNN_SHARED(ChannelsOfBlock<Coefficients>, shared, 1);
  MPSCNN_SHARED(ChannelsOfBlock<Coefficients>, shared_addend, 1);
  ChannelsOfBlock<Coefficients>&of_block = shared.own(0), &addend_of_block = shared_addend.own(0);
  of_block.fill(args.division, place, lanes, block, [&](i64 k) { return args.forward.find(0, k); });
  if constexpr (normalizes_addend)
    addend_of_block.fill(args.division, place, lanes, block, [&](i64 k) { return of_addend->find(0, k); });
  block.for_each(kThreads, [&](i64 i) {
    const ThreadPlace thread(args.division, place, i);
    if (!thread.has_run) return;
    const PixelsOfThread mine(args.division, place, thread, dst);
    Coefficients known[kMostLanes];
    of_block.load(thread, lanes, known);
    const Coefficients* const known_addend = addend_of_block.of + thread.column * lanes;
    constexpr int kCount = PixelsOfThread::kCount;
    for (i64 pixel = mine.first; pixel < mine.end; pixel += kCount * mine.step) {
      Vector loaded[kCount] = {}, added[kCount] = {};
      MPSCNN_UNROLL
      for (int j = 0; j < kCount; ++j) {
        const i64 x = pixel + j * mine.step;
        if (x >= mine.end) continue;
        loaded[j] = load_vector(src, x * src.w_stride + mine.k);
        added[j] = load_vector(addend, x * addend.w_stride + mine.k);
      }
      MPSCNN_UNROLL
      for (int j = 0; j < kCount; ++j) {
        const i64 x = pixel + j * mine.step;
        if (x >= mine.end) continue;
        float values[kMostLanes], others[kMostLanes];
        unpack(src, loaded[j], values);
        unpack(addend, added[j], others);
        Words<8> mask = {};
        unsigned bits = 0;
        for (int lane = 0; lane < lanes; ++lane) {
          if constexpr (normalizes_addend) {
            others[lane] = normalized(known_addend[lane], others[lane]);
            if (format_of(dst) == Format::float16) others[lane] = half_value(half_bits(others[lane]));
          }
          bool is_within = false;
          values[lane] = bounded(args, normalized(known[lane], values[lane]) + others[lane], is_within);
          if (is_within) mask.word[lane / 4] |= 0xffu << (lane % 4 * 8), bits |= 1u << lane;
        }
        store_lanes<true>(dst, {0, 0, x, mine.k}, values);
        if (!args.mask) continue;
        if (has_bits) {
          args.mask.data[packed_offset(args.mask, x, mine.k / lanes)] = static_cast<unsigned char>(bits);
          continue;
        }
        unsigned char* const to = args.mask.data.get() + x * args.mask.w_stride + mine.k;
        if (lanes == 8)
          store_words(to, mask);
        else
          store_words(to, Words<4>{{mask.word[0]}});
      }
    }
  });
}
MPSCNN_BLOCK_KERNEL(normalize_add_rows, NormalizeAddArgs) { normalize_add_row<false>(args, nullptr, index, block); }
MPSCNN_BLOCK_KERNEL(normalize_both_add_rows, NormalizeBothAddArgs) {
  normalize_add_row<true>(args.sum, &args.addend, index, block);
}

}  // namespace openmps::cuda::normalization

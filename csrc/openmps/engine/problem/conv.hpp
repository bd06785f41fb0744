// SPDX-License-Identifier: Apache-2.0
// Convolutions: forward, gradients, transposed, binary; and their weights.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/problem/common.hpp"

namespace openmps {

/// An array of floats, owned, borrowed or awaited. Borrowed floats do not change while `owner` is held. Awaited floats
/// are written once, by a LoadWeightsProblem, before anyone reads them.
class Floats {
 public:
  Floats() = default;
  Floats(std::vector<float> values) : own_(std::move(values)) {}  // NOLINT: a list of floats is one
  /// `release_pages` may be null; release_pages() calls it, on any thread.
  static Floats borrow(const float* data, std::size_t count, std::shared_ptr<const void> owner,
                       std::function<void()> release_pages = nullptr) {
    Floats floats;
    floats.data_ = data, floats.count_ = count;
    floats.owner_ = std::move(owner);
    floats.release_pages_ = std::move(release_pages);
    return floats;
  }
  static Floats await(std::size_t count) {
    Floats floats;
    floats.count_ = count;
    floats.awaited_ = std::make_shared<Awaited>();
    return floats;
  }

  /// Awaited floats of a device are copied when they are first read, which may throw.
  const float* data() const { return awaited_ ? awaited_->read(count_) : owner_ ? data_ : own_.data(); }
  std::size_t size() const { return awaited_ || owner_ ? count_ : own_.size(); }
  bool empty() const { return size() == 0; }
  const float& operator[](std::size_t index) const { return data()[index]; }
  /// The caller has derived from all values what it needs: pages of borrowed floats that the system can read again from
  /// a file may leave memory. The values stay valid.
  void release_pages() const {
    if (release_pages_) release_pages_();
  }

  /// Mutable storage; only if owned.
  std::vector<float>& own() { return own_; }
  /// Room for awaited floats, to be filled by the caller.
  float* room() const { return awaited_->room(count_); }
  /// Let awaited floats stay on a device until someone reads them here. `download` copies all of them.
  void leave(std::function<void(float*)> download) const { awaited_->download = std::move(download); }

 private:
  struct Awaited {
    std::mutex mutex;
    std::function<void(float*)> download;  ///< null: they are in `values`
    std::unique_ptr<float[]> values;

    float* room(std::size_t count) {
      if (!values) values.reset(new float[count]);  // uninitialized: the threads that fill it touch it first
      return values.get();
    }
    const float* read(std::size_t count) {
      const std::lock_guard lock(mutex);
      if (!values && download) {
        std::unique_ptr<float[]> read(new float[count]);
        download(read.get());  // if it throws, the next read tries again
        values = std::move(read);
      }
      return room(count);
    }
  };

  std::vector<float> own_;
  std::shared_ptr<const void> owner_;  ///< of borrowed floats
  std::function<void()> release_pages_;
  const float* data_ = nullptr;
  std::size_t count_ = 0;
  std::shared_ptr<Awaited> awaited_;
};

/// Weights of a kernel: float32 OHWI, already rounded to half unless the data source requests float, with batch
/// normalization folded in. Immutable, unless they are `in_place`: a reload makes a new object.
struct ConvWeights {
  std::int64_t out_channels = 0, kernel_h = 0, kernel_w = 0, in_channels_per_group = 0, groups = 1;
  Floats values;  ///< [O][kH][kW][I/groups]; depth-wise: groups == O, I/groups == 1
  Floats bias;    ///< O values, or empty for none
  /// The values are those of a buffer, which a command changes after the last one that uses these weights. Each command
  /// of a training step uses its weights once, so copies in other layouts are not worth their memory.
  bool in_place = false;

  /// The weights that these replace. Engines prepare what was derived from them.
  std::weak_ptr<const ConvWeights> replaced;

  /// Data that an engine derives from the weights (packed copies, compiled primitives), by the engine's keys; destroyed
  /// with the weights.
  struct Cache {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<void>> entries;
  };
  mutable Cache cache;

  /// Return what make() derives from all values, a shared pointer, as the cache's entry for `key`; made once.
  template <class Derived, class Make>
  std::shared_ptr<Derived> derived(const char* key, const Make& make) const {
    const std::lock_guard lock(cache.mutex);
    std::shared_ptr<void>& entry = cache.entries[key];
    if (!entry) {
      entry = std::const_pointer_cast<std::remove_const_t<Derived>>(std::shared_ptr<Derived>(make()));
      values.release_pages();
    }
    return std::static_pointer_cast<Derived>(entry);
  }

  /// References that lists under way hold. All their work has been enqueued: they use the weights no more.
  struct Enqueued {
    std::mutex mutex;
    std::int64_t references = 0;
    const void* stream = nullptr;  ///< of all of them; null if they have several
  };
  mutable Enqueued enqueued;
};

/// weights->values = values, weights->bias = bias, which weights await. Commands that use the weights come later.
struct LoadWeightsProblem {
  ChannelValues values, bias;  ///< bias: null if there is none
  std::shared_ptr<const ConvWeights> weights;
  bool round_to_half = false;  ///< the values, not the bias

  static constexpr auto fields() {
    using P = LoadWeightsProblem;
    using namespace roles;
    return std::tuple(in("values", &P::values), in("bias", &P::bias), roles::weights("weights", &P::weights),
                      shape("round_to_half", &P::round_to_half));
  }
};

/// dst[n][y][x][o] = neuron(bias[o] + sum w[o][p][q][i] * src[n][window(y, x, p, q)][group(o) * I/groups + i]).
/// src.c == in_channels_per_group * groups. With subpixel r > 1 the convolution has h/r x w/r pixels of r*r*dst.c
/// channels (rounded up) and dst[y][x][c] = result[y/r][x/r][(r * (y % r) + x % r) * dst.c + c]. src and dst have the
/// same n and do not overlap. Fully connected layers are windows that cover the whole source, dst 1 x 1.
/// If `addend` has memory, it has dst's extents, subpixel is 1 and dst = after(neuron(...) + addend). The addend is
/// either the same view as dst or does not overlap it. Only plans make such problems.
struct ConvProblem {
  ImageView src, dst;
  std::shared_ptr<const ConvWeights> weights;
  Window window;
  Neuron neuron;
  std::int64_t subpixel = 1;
  bool reduced_precision = false;  ///< MPSKernelOptionsAllowReducedPrecision: bfloat16 products are allowed
  ImageView addend;
  Neuron after;  ///< without slopes per channel

  static constexpr auto fields() {
    using P = ConvProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), roles::weights("weights", &P::weights),
                      shape("window", &P::window), shape("neuron", &P::neuron), shape("subpixel", &P::subpixel),
                      shape("reduced_precision", &P::reduced_precision), in("addend", &P::addend),
                      shape("after", &P::after));
  }
};

/// Gradients of a ConvProblem without neuron, addend and subpixel; diff_dst is the gradient of its result. A gradient
/// is computed if it has memory. (v, u) reads window(v, u, p, q) of the forward problem. Sums are over images, pixels
/// (v, u) of diff_dst and taps (p, q), and for diff_src over the outputs o of i's group:
///   diff_src[n][y][x][i] = sum w[o][p][q][i % (I/groups)] * diff_dst[n][v][u][o] where (v, u) reads source pixel
///                          (first_h + y, first_w + x)
///   diff_weights[o][p][q][i] = sum diff_dst[n][v][u][o] * src[n][pixel read by (v, u)][group(o) * I/groups + i]
///   diff_bias[o] = sum diff_dst[n][v][u][o]
/// Edge::zero: diff_src continues beyond the source as if the source were larger. Edge::clamp: out-of-bounds taps clamp
/// to the edge, and diff_src is 0 beyond the source.
struct ConvGradientProblem {
  ImageView diff_dst;
  ImageView src;       ///< has memory only if diff_weights has
  ImageView diff_src;  ///< shares no memory with the sources
  std::int64_t first_h = 0, first_w = 0;
  std::shared_ptr<const ConvWeights> weights;
  Window window;
  ChannelValues diff_weights;  ///< in the order of ConvWeights::values
  ChannelValues diff_bias;     ///< one per output
  bool accumulates = false;    ///< add to diff_weights and diff_bias instead of overwriting them
  bool reduced_precision = false;

  static constexpr auto fields() {
    using P = ConvGradientProblem;
    using namespace roles;
    return std::tuple(in("diff_dst", &P::diff_dst), in("src", &P::src), out("diff_src", &P::diff_src),
                      shape("first_h", &P::first_h), shape("first_w", &P::first_w),
                      roles::weights("weights", &P::weights), shape("window", &P::window),
                      inout("diff_weights", &P::diff_weights), inout("diff_bias", &P::diff_bias),
                      shape("accumulates", &P::accumulates), shape("reduced_precision", &P::reduced_precision));
  }
};

/// Transposed convolution. Z is the source with stride - 1 zeros between pixels, (h - 1) * stride_h + 1 rows:
/// dst[n][y][x][o] = bias[o] + sum w[o][p][q][i] * Z[start_h + y + p * dilation_h][start_w + x + q * dilation_w][...].
/// The kernel is not rotated. Outside of Z is zero.
struct TransposeProblem {
  ImageView src, dst;
  std::shared_ptr<const ConvWeights> weights;
  Window window;  ///< stride is the up-sampling factor; start counts pixels of Z; edge is zero
  Neuron neuron;
  bool reduced_precision = false;

  static constexpr auto fields() {
    using P = TransposeProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), roles::weights("weights", &P::weights),
                      shape("window", &P::window), shape("neuron", &P::neuron),
                      shape("reduced_precision", &P::reduced_precision));
  }
};

/// Gradients of a TransposeProblem without neuron, as in ConvGradientProblem; `window` is its window. With tap (p, q),
/// result pixel (v, u) reads pixel (start_h + v + p * dilation_h, start_w + u + q * dilation_w) of Z:
///   diff_src[n][y][x][i] = sum w[o][p][q][i % (I/groups)] * diff_dst[n][v][u][o] where (v, u) reads pixel
///                          ((first_h + y) * stride_h, (first_w + x) * stride_w) of Z
///   diff_weights[o][p][q][i] = sum diff_dst[n][v][u][o] * Z[n][pixel read by (v, u)][group(o) * I/groups + i]
struct TransposeGradientProblem : ConvGradientProblem {};

/// Values of MPSCNNBinaryConvolutionType.
enum class BinaryConvType : std::int32_t { binary_weights = 0, xnor, logical_and };

/// Weights of one bit each, 32 channels in a word, lowest bit first; immutable. Empty scales are 1, empty biases 0.
struct BinaryWeights {
  static constexpr std::int64_t kLanes = 16;

  BinaryConvType type = BinaryConvType::binary_weights;
  bool uses_beta = false;
  std::int64_t out_channels = 0, kernel_h = 0, kernel_w = 0, in_channels = 0;
  std::vector<std::uint32_t> words;            ///< [O][kH][kW][words_per_pixel()], 0 beyond the last channel
  std::vector<float> scale, bias;              ///< O values
  std::vector<float> input_scale, input_bias;  ///< I values

  // Derived for the engine. binary_weights: weights of +-scale, with the bias unless beta comes between. Otherwise: the
  // words as [kH][kW][words_per_pixel()][O rounded up to kLanes], and the number of set bits per output.
  std::shared_ptr<const ConvWeights> signs;
  std::vector<std::uint32_t> by_word;
  std::vector<std::int32_t> ones;

  std::int64_t words_per_pixel() const { return (in_channels + 31) / 32; }
  bool scales_inputs() const { return !input_scale.empty() || !input_bias.empty(); }
};

/// With u = (src + input_bias) * input_scale and w a bit: dst = neuron(scale * beta * sum + bias), the sum over the
/// taps and channels of
///   binary_weights: u * (w ? 1 : -1);  xnor: (u < 0 ? -1 : 1) * (w ? 1 : -1);  logical_and: !(u < 0) && w ? 1 : 0
/// and beta = 1 or, with uses_beta, the mean over taps and channels of |u|. With Edge::zero, u is 0 outside of src.
struct BinaryConvProblem {
  ImageView src, dst;
  std::shared_ptr<const BinaryWeights> weights;
  Window window;
  Neuron neuron;

  static constexpr auto fields() {
    using P = BinaryConvProblem;
    using namespace roles;
    return std::tuple(in("src", &P::src), out("dst", &P::dst), roles::weights("weights", &P::weights),
                      shape("window", &P::window), shape("neuron", &P::neuron));
  }
};

}  // namespace openmps

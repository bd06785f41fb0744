// SPDX-License-Identifier: Apache-2.0
// The seam between the MPS classes and what computes: plain C++ problems and the Engine that solves them.
// The MPS classes validate and resolve Apple's rules (offset, clipRect, channel offsets, image ranges, padding
// policies) into views and window starts; behind this line everything is assumed to be valid.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "engine/memory.hpp"

namespace openmps {

/// Values of MPSCNNNeuronType.
enum class NeuronType : std::int32_t {
  none = 0,
  relu,
  linear,
  sigmoid,
  hard_sigmoid,
  tanh,
  absolute,
  softplus,
  softsign,
  elu,
  prelu,
  relun,
  power,
  exponential,
  logarithm,
  gelu,
};

/// An activation function with Apple's parameters; formulas in engine/shared/neuron.hpp.
struct Neuron {
  NeuronType type = NeuronType::none;
  float a = 0, b = 0, c = 0;
  std::shared_ptr<const std::vector<float>> a_per_channel;  ///< prelu: one value per channel of the result

  bool operator==(const Neuron&) const = default;
};

/// Pixels outside of the source: zero, or the nearest pixel.
enum class Edge : std::uint8_t { zero, clamp };

/// Which source pixels a destination pixel sees. Tap (p, q) of destination (y, x) is source row
/// start_h + y * stride_h + p * dilation_h, column likewise.
struct Window {
  std::int64_t kernel_h = 1, kernel_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t start_h = 0, start_w = 0;
  Edge edge = Edge::zero;

  bool operator==(const Window&) const = default;
};

/// Floats of one's own, or lent by somebody: those stay what they are as long as the owner is held.
class Floats {
 public:
  Floats() = default;
  static Floats lent(const float* data, std::size_t count, std::shared_ptr<const void> owner) {
    Floats floats;
    floats.data_ = data, floats.count_ = count;
    floats.owner_ = std::move(owner);
    return floats;
  }

  const float* data() const { return owner_ ? data_ : own_.data(); }
  std::size_t size() const { return owner_ ? count_ : own_.size(); }
  const float& operator[](std::size_t index) const { return data()[index]; }

  /// For whoever fills them in. Not of lent ones.
  std::vector<float>& own() { return own_; }

 private:
  std::vector<float> own_;
  std::shared_ptr<const void> owner_;  ///< of what is lent
  const float* data_ = nullptr;
  std::size_t count_ = 0;
};

/// Weights as a kernel keeps them: float32 OHWI with the rounding to half already done if the data source wants
/// it, and batch normalization folded in. Immutable: a reload makes a new object.
struct ConvWeights {
  std::int64_t out_channels = 0, kernel_h = 0, kernel_w = 0, in_channels_per_group = 0, groups = 1;
  Floats values;            ///< [O][kH][kW][I/groups]; depth-wise: groups == O, I/groups == 1
  std::vector<float> bias;  ///< O values, or empty for none

  /// What an engine derived from the weights (packed copies, compiled primitives), by the engine's own key;
  /// dies with the weights.
  struct Cache {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<void>> entries;
  };
  mutable Cache cache;
};

/// dst[n][y][x][o] = neuron(bias[o] + sum w[o][p][q][i] * src[n][window(y, x, p, q)][group(o) * I/groups + i]).
/// src.c == in_channels_per_group * groups. With subpixel r > 1 the convolution has h/r x w/r pixels of r*r*dst.c
/// channels (rounded up) and dst[y][x][c] = result[y/r][x/r][(r * (y % r) + x % r) * dst.c + c]. src and dst have the
/// same n and do not overlap. Fully connected layers are windows that cover the whole source, dst 1 x 1.
/// With memory in `addend`, which has dst's extents, dst = after(neuron(...) + addend) and subpixel is 1. The addend
/// may be the very view of dst; else they do not overlap. Plans make such problems, command buffers do not.
struct ConvProblem {
  ImageView src, dst;
  std::shared_ptr<const ConvWeights> weights;
  Window window;
  Neuron neuron;
  std::int64_t subpixel = 1;
  bool reduced_precision = false;  ///< MPSKernelOptionsAllowReducedPrecision: bfloat16 products are allowed
  ImageView addend;
  Neuron after;  ///< without slopes per channel

  bool operator==(const ConvProblem&) const = default;
};

/// Float32 values in a buffer, one per channel unless something else is said.
struct ChannelValues {
  std::shared_ptr<Memory> memory;  ///< none: there are no values
  std::size_t offset = 0;          ///< bytes to the first one, a multiple of 4

  bool operator==(const ChannelValues&) const = default;
};

/// Gradients of a ConvProblem without neuron, addend and subpixel; diff_dst is that of its result. Wanted are those
/// that have memory. "Looks at": window(v, u, p, q) of the forward problem. Sums over images, pixels (v, u) of diff_dst
/// and taps (p, q), and for diff_src over the outputs o of i's group:
///   diff_src[n][y][x][i] = sum w[o][p][q][i % (I/groups)] * diff_dst[n][v][u][o] where (v, u) looks at source pixel
///                          (first_h + y, first_w + x)
///   diff_weights[o][p][q][i] = sum diff_dst[n][v][u][o] * src[n][what (v, u) looks at][group(o) * I/groups + i]
///   diff_bias[o] = sum diff_dst[n][v][u][o]
/// Edge::zero: diff_src goes on beyond the source as if that were larger. Edge::clamp: what looks outside looks at the
/// nearest pixel, and diff_src is 0 beyond the source.
struct ConvGradientProblem {
  ImageView diff_dst;
  ImageView src;       ///< memory only where diff_weights has some
  ImageView diff_src;  ///< shares no memory with the sources
  std::int64_t first_h = 0, first_w = 0;
  std::shared_ptr<const ConvWeights> weights;
  Window window;
  ChannelValues diff_weights;  ///< in the order of ConvWeights::values
  ChannelValues diff_bias;     ///< one per output
  bool accumulates = false;    ///< diff_weights and diff_bias are added to what is there
  bool reduced_precision = false;

  bool operator==(const ConvGradientProblem&) const = default;
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
};

/// The same of a TransposeProblem without neuron; `window` is its window. With tap (p, q), result pixel (v, u) looks
/// at pixel (start_h + v + p * dilation_h, start_w + u + q * dilation_w) of Z; diff_src is that of the source:
///   diff_src[n][y][x][i] = sum w[o][p][q][i % (I/groups)] * diff_dst[n][v][u][o] where (v, u) looks at pixel
///                          ((first_h + y) * stride_h, (first_w + x) * stride_w) of Z
///   diff_weights[o][p][q][i] = sum diff_dst[n][v][u][o] * Z[n][what (v, u) looks at][group(o) * I/groups + i]
struct TransposeGradientProblem : ConvGradientProblem {};

/// Values of MPSCNNBinaryConvolutionType.
enum class BinaryConvType : std::int32_t { binary_weights = 0, xnor, logical_and };

/// Weights of one bit each, 32 channels in a word, lowest bit first; immutable. What is empty of the scales is 1, of
/// the biases 0.
struct BinaryWeights {
  static constexpr std::int64_t kLanes = 16;

  BinaryConvType type = BinaryConvType::binary_weights;
  bool uses_beta = false;
  std::int64_t out_channels = 0, kernel_h = 0, kernel_w = 0, in_channels = 0;
  std::vector<std::uint32_t> words;            ///< [O][kH][kW][words_per_pixel()], 0 beyond the last channel
  std::vector<float> scale, bias;              ///< O values
  std::vector<float> input_scale, input_bias;  ///< I values

  // For the engine: binary_weights as +-scale, with the bias unless beta comes between; else the words with the outputs
  // side by side, [kH][kW][words_per_pixel()][O rounded up to kLanes], and how many bits of each output are set.
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
};

enum class PoolType : std::uint8_t { max, average, l2_norm };

/// dst[n][y][x][c] over the taps of window(y, x): the greatest; their sum divided by their number; the root of the sum
/// of squares. Taps outside of the source are zeros or the nearest pixels; an average takes as many taps as the window
/// has with Edge::zero, and with Edge::clamp only those within the source grown by zero_pad pixels of 0 on each side
/// (none: 0).
struct PoolProblem {
  ImageView src, dst;
  PoolType type = PoolType::max;
  Window window;
  std::int64_t zero_pad_h = 0, zero_pad_w = 0;  ///< average

  bool operator==(const PoolProblem&) const = default;
};

/// diff_src(y, x) is the gradient of pixel (first_h + y, first_w + x) of src: the sum over the windows v of diff_dst(v)
/// * (slope of pool(v) at that pixel), windows and pool() as in PoolProblem; diff_dst has all windows there are.
///   max: the whole of diff_dst(v) goes to the greatest pixel of the window, of equal ones to the first (rows, then
///        columns), of NaN to the first NaN; to none when zeros outside are greater.
///   l2_norm: src / pool(v) for each tap, 0 where pool(v) is 0.
struct PoolGradientProblem {
  ImageView diff_dst;
  ImageView src;       ///< average: extents alone, without memory
  ImageView diff_src;  ///< shares no memory with the sources
  std::int64_t first_h = 0, first_w = 0;
  PoolType type = PoolType::max;
  Window window;
  std::int64_t zero_pad_h = 0, zero_pad_w = 0;  ///< average

  bool operator==(const PoolGradientProblem&) const = default;
};

/// dst = neuron(src), same extents. src and dst may be the same view.
struct NeuronProblem {
  ImageView src, dst;
  Neuron neuron;

  bool operator==(const NeuronProblem&) const = default;
};

/// A source of a problem that works value by value. Value (y, x, k) of the destination sees value (start_h + y, start_w
/// + x, k) of the view; along an axis that repeats, the one at the start, k = 0 for channels. The view has as many
/// images as the destination, and as many channels unless they repeat.
struct Operand {
  ImageView view;
  std::int64_t start_h = 0, start_w = 0;
  bool repeat_h = false, repeat_w = false, repeat_c = false;
  Edge edge = Edge::zero;

  bool operator==(const Operand&) const = default;
};

/// Of a gradient, the forward kernel's source of h x w pixels, when results that looked beyond it saw its nearest
/// pixel: each pixel of diff_src is the sum over all results that saw it, and 0 beyond the source. Pixel (0, 0) of
/// diff_src is the source's pixel (start_h, start_w). The pixels of diff_dst are all results there are. h == 0: no
/// results see the nearest pixel.
struct ClampedSource {
  std::int64_t h = 0, w = 0;
  std::int64_t start_h = 0, start_w = 0;

  bool operator==(const ClampedSource&) const = default;
};

/// diff_src = diff_dst * f'(src), f the neuron: slopes in engine/shared/neuron.hpp.
struct NeuronGradientProblem {
  /// With Edge::clamp of src, it is a ClampedSource that repeats nothing, and diff_dst has Edge::zero.
  Operand diff_dst, src;
  ImageView diff_src;  ///< shares no memory with the sources
  Neuron neuron;

  bool operator==(const NeuronGradientProblem&) const = default;
};

enum class BinaryOperation : std::uint8_t { add, subtract, multiply, divide };

/// min(max((scale0 * a) op (scale1 * b) + bias, least), greatest); NaN stays NaN. Infinite bounds do nothing.
struct Arithmetic {
  BinaryOperation operation = BinaryOperation::add;
  float scale0 = 1, scale1 = 1, bias = 0;
  float least = -std::numeric_limits<float>::infinity(), greatest = std::numeric_limits<float>::infinity();

  bool operator==(const Arithmetic&) const = default;
};

/// dst = function(src0, src1). With memory in `mask`, which has dst's extents, that is 1 where the value before the
/// bounds was strictly between them, else 0.
struct BinaryProblem {
  Operand src0, src1;
  ImageView dst;  ///< shares no memory with the sources
  Arithmetic function;
  ImageView mask = {};

  bool operator==(const BinaryProblem&) const = default;
};

/// diff_src = scale * diff_dst * other * mask, value by value over extents of their own, those of diff_src except along
/// axes along which it has extent 1 and `sum` more: there so many values are summed. Operands look as they do for a
/// destination of these extents; other and mask without memory are 1.
struct BinaryGradientProblem {
  Operand diff_dst, other, mask;
  ImageView diff_src;  ///< shares no memory with the sources
  std::int64_t sum_h = 1, sum_w = 1, sum_c = 1;
  float scale = 1;
  ClampedSource source = {};  ///< of extent 1 and start 0 along axes that it repeats

  bool operator==(const BinaryGradientProblem&) const = default;
};

/// Normalization of x by what surrounds it: dst = pm + ps * (x - p0 * M) / (delta + alpha * V)^beta.
///   channels: V is the sum of the squares of channels k - size / 2 ... k + (size - 1) / 2 of the pixel, those that
///             exist, divided by size; M is 0
///   pixels:   V is the mean of the squares in a window of the channel; M is 0
///   contrast: M is the mean and V the variance in the window
/// x is the value under tap (kernel / 2) of the window. Taps outside of the source are zeros or the nearest pixels, and
/// a mean divides by all of them.
enum class LocalNormType : std::uint8_t { channels, pixels, contrast };

struct LocalNormProblem {
  ImageView src, dst;  ///< share no memory
  LocalNormType type = LocalNormType::channels;
  Window window;          ///< stride and dilation 1; channels: kernel 1 x 1
  std::int64_t size = 1;  ///< channels
  float alpha = 1, beta = 5, delta = 1;
  float p0 = 0, pm = 0, ps = 1;  ///< contrast
};

/// The derivative of a LocalNormProblem: value u of diff_src is the sum over all values v of the forward problem's dst,
/// which hold the gradient of its result here and are read, of v times the derivative of v's formula by value u of src.
/// Pixel (0, 0) of diff_src is pixel (start_h, start_w) of src; 0 beyond src.
struct LocalNormGradientProblem {
  LocalNormProblem forward;  ///< dst has any extents: of as many images and channels as src
  ImageView diff_src;        ///< shares no memory with the others
  std::int64_t start_h = 0, start_w = 0;
};

/// dst = neuron((x - mean) * gamma / sqrt(variance + epsilon) + beta).
struct NormalizeProblem {
  Operand src;  ///< without repeated axes
  ImageView dst;
  ChannelValues gamma, beta;
  /// 0: mean and variance are given. Otherwise they are those of each image: over all pixels of src.view and each of so
  /// many groups of c / groups neighbouring channels; images x groups values, stored where there is memory for them.
  std::int64_t groups = 0;
  ChannelValues mean, variance;
  /// With memory: the same in double, in pairs (mean, variance), at an offset that is a multiple of 8. Where mean and
  /// variance are given, a pair counts as long as it rounds to them: somebody may have written others since.
  ChannelValues exact;
  float epsilon = 0;
  Neuron neuron;

  bool operator==(const NormalizeProblem&) const = default;
};

/// mean and variance (the mean square of the distance from the mean) of each channel over all pixels and images.
struct StatisticsProblem {
  ImageView src;
  ChannelValues mean, variance;
  std::int64_t count = 0;  ///< pixels of which they hold the values already, which the new ones join
  ChannelValues exact;     ///< as in NormalizeProblem

  bool operator==(const StatisticsProblem&) const = default;
};

/// With G = diff_dst * f'(y), y what NormalizeProblem hands to its neuron f, and z = (x - mean) / sqrt(variance +
/// epsilon): for each channel diff_beta = sum G and diff_gamma = sum G * z over all pixels and images of diff_dst.
struct StatisticsGradientProblem {
  ImageView diff_dst;
  Operand src;  ///< what the pixels of diff_dst were made of; without repeated axes
  ChannelValues gamma, beta, mean, variance, exact;
  float epsilon = 0;
  Neuron neuron;
  ChannelValues diff_gamma, diff_beta;
  bool adds = false;  ///< to what these hold already

  bool operator==(const StatisticsGradientProblem&) const = default;
};

/// diff_src = (gamma * G - (sum(gamma * G) + z * sum(gamma * G * z)) / count) / sqrt(variance + epsilon), G and z as
/// above, the sums over all values that share a mean.
struct NormalizeGradientProblem {
  /// Without repeated axes, diff_dst with Edge::zero. With Edge::clamp, what pixels of diff_dst outside of src are the
  /// gradients of belongs to the nearest one.
  Operand diff_dst, src;
  ImageView diff_src;  ///< shares no memory with the sources; 0 beyond src
  ChannelValues gamma, beta;
  /// 0: the sums are those in diff_gamma and diff_beta, which hold what StatisticsGradientProblem stores, and `count`
  /// the pixels that made mean and variance; with a count of 0 these are constants and nothing is subtracted. Otherwise
  /// mean, variance and sums are those of each image and of so many groups of channels, and diff_gamma and diff_beta
  /// are stored: of each channel over all images, all pixels of diff_dst.view.
  std::int64_t groups = 0;
  ChannelValues mean, variance, exact;
  float epsilon = 0;
  Neuron neuron;
  ChannelValues diff_gamma, diff_beta;
  std::int64_t count = 0;

  bool operator==(const NormalizeGradientProblem&) const = default;
};

/// dst[n][y][x][k] = exp(x_k) / sum exp(x_q), or with `log` its natural logarithm, x_k - ln(sum exp(x_q)), over the
/// channels q of the pixel that src has there. src repeats nothing and shares no memory with dst.
struct SoftmaxProblem {
  Operand src;
  ImageView dst;
  bool log = false;
};

/// The gradient of softmax's source from its result: diff_src = dst * (diff_dst - sum diff_dst * dst), or with `log`
/// diff_dst - exp(dst) * sum diff_dst, the sums over the channels of the pixel.
struct SoftmaxGradientProblem {
  Operand diff_dst, dst;  ///< repeat nothing
  ImageView diff_src;     ///< shares no memory with them
  bool log = false;
  ClampedSource source = {};
};

enum class ReduceAxis : std::uint8_t { row, column, channels };
enum class ReduceType : std::uint8_t { max, min, sum, argument_max, argument_min };

/// One value of dst for each row (dst.w == 1), column (dst.h == 1) or pixel (dst.c == 1) of src, whose other extents
/// dst has or cuts off: the greatest, the least, `scale` times the sum, or the index from 0 of the first extreme
/// (channels only). NaN is greater and less than anything.
struct ReduceProblem {
  ImageView src, dst;
  ReduceAxis axis = ReduceAxis::row;
  ReduceType type = ReduceType::max;
  double scale = 1;
  ImageView weights;  ///< with memory, sums over channels only: products with it are summed; extents of src
  bool by_nonzero_weights = false;  ///< and divided by how many weights of the pixel are not 0, if there is one
};

/// Where the results along an axis look: result i at source position start + i * numerator / denominator, in pixels,
/// pixel 0 at 0.
struct Positions {
  double start = 0, numerator = 1, denominator = 1;
};

enum class ResampleType : std::uint8_t { nearest, bilinear };
/// What a sample takes from beyond the source: zeros, the nearest pixel; or a sample beyond the first or the last pixel
/// is 0 altogether, however near they are.
enum class ResampleEdge : std::uint8_t { zero, clamp, zero_samples };

/// Image n of dst is image n / R of src seen through region n % R of the R regions. nearest: the pixel at the position
/// rounded down; bilinear: the pixels on both sides of it, each counted by how near it is.
struct ResampleProblem {
  struct Region {
    Positions h, w;
  };
  ImageView src, dst;
  ResampleType type = ResampleType::nearest;
  ResampleEdge edge = ResampleEdge::zero;
  std::vector<Region> regions;
};

/// The adjoint of a ResampleProblem with one region and a source of src_h x src_w pixels: diff_src(y, x) is the sum
/// over the pixels of diff_dst, each times what pixel (first_h + y, first_w + x) of the source counts in it.
struct ResampleGradientProblem {
  ImageView diff_dst, diff_src;  ///< share no memory
  std::int64_t src_h = 1, src_w = 1, first_h = 0, first_w = 0;
  ResampleType type = ResampleType::nearest;
  ResampleEdge edge = ResampleEdge::zero;
  ResampleProblem::Region region;
};

/// Every image of dst has the values of the same image of src in the same order: channels, then columns, then rows.
/// As many values in both.
struct ReshapeProblem {
  ImageView src, dst;

  bool operator==(const ReshapeProblem&) const = default;
};

/// What stands beyond the source: the nearest value; the source mirrored at the middle of its outermost values (these
/// stand there once) or at their outer side (twice); a constant.
enum class PadEdge : std::uint8_t { clamp, mirror, mirror_with_edge, constant };

/// dst[n][y][x][k] = src[n][start_h + y][start_w + x][start_c + k], `edge` along all three axes.
struct PadProblem {
  ImageView src, dst;
  std::int64_t start_h = 0, start_w = 0, start_c = 0;
  PadEdge edge = PadEdge::constant;
  float fill = 0;                                              ///< the constant
  std::shared_ptr<const std::vector<float>> fill_per_channel;  ///< or one for each channel of dst
};

/// The adjoint of a PadProblem with a source of src_h x src_w x diff_src.c: diff_src(y, x, k) is the sum of all values
/// of diff_dst which are copies of value (first_h + y, first_w + x, k) of the source.
struct PadGradientProblem {
  ImageView diff_dst, diff_src;  ///< share no memory
  std::int64_t src_h = 1, src_w = 1, first_h = 0, first_w = 0;
  std::int64_t start_h = 0, start_w = 0, start_c = 0;
  PadEdge edge = PadEdge::constant;
};

/// Which values are kept: engine/shared/dropout.hpp. A mask has extent 1 along axes on which all values share theirs.
struct DropoutMask {
  std::uint64_t seed = 0, image = 0;  ///< of the first image; image + 1 of the second
  std::int64_t h = 1, w = 1, c = 1;
  float keep = 0.5f;  ///< probability
};

/// dst = src / mask.keep where the mask keeps the value, else 0. Value (y, x, k) has the place (start_h + y, start_w +
/// x, k) in the mask and is 0 beyond it. src repeats nothing and shares no memory with dst.
struct DropoutProblem {
  Operand src;
  ImageView dst;
  DropoutMask mask;
  std::int64_t start_h = 0, start_w = 0;  ///< 0 along axes on which the mask has extent 1
  ClampedSource source = {};              ///< of a gradient: src is diff_dst and dst diff_src
};

/// Values of MPSCNNLossType.
enum class LossType : std::uint8_t {
  absolute = 0,
  square,
  softmax,
  sigmoid,
  categorical,
  hinge,
  huber,
  cosine,
  log,
  kullback_leibler,
};

/// The loss of a prediction y against a label t. With s = smoothing > 0, t below is t * (1 - s) + s / classes (softmax)
/// or t * (1 - s) + s / 2 (sigmoid). 0 * log(0) is 0. Without per-value weights each value is multiplied by `weight`.
///   absolute: |y - t|                       square: (y - t)^2
///   softmax: -t * (y - ln(sum exp(y_q))), the sum over the channels q of the pixel
///   sigmoid: max(y, 0) - y * t + ln(1 + exp(-|y|))
///   categorical: -t * ln(y)                 hinge: max(1 - (2 * t - 1) * y, 0)
///   huber: d * d / 2 where |d| <= delta, else delta * (|d| - delta / 2), with d = y - t
///   cosine: -y * t, and the sum over an image has `weight` added (1 with per-value weights)
///   log: -t * ln(y + epsilon) - (1 - t) * ln(1 - y + epsilon)
///   kullback_leibler: t * (ln(t) - y)
struct LossFunction {
  LossType type = LossType::square;
  float weight = 1, smoothing = 0;
  std::int64_t classes = 1;
  float epsilon = 1e-7f, delta = 1;
};

/// The loss of predictions of boxes. Each pixel is a cell and has for each anchor X Y W H C F0 ... of the prediction,
/// and x y w h c f0 ... of the label: the box's centre in the cell and its size in cells, c > 0 where there is a box.
///   t_w = ln(w / anchor's + 1e-5), t_h likewise; fit = IoU of anchor and label, both centred at one point
///   iou = IoU of the label and the box (sigmoid(X), sigmoid(Y), exp(W) * anchor's, exp(H) * anchor's), a constant
///   object = c > 0 and (no other anchor of the cell fits better, or fit > least_iou)
///   absent = fit < greatest_iou and not object
///   l = object * (xy(sigmoid(X), x) + xy(sigmoid(Y), y) + wh(W, t_w) + wh(H, t_h) + classes(F, f))
///       + (object * scale_object + absent * scale_no_object) * confidence(C, object * (rescore ? iou : 1))
/// The functions have the scales of their terms in `weight`, `confidence` has its own.
struct BoxLoss {
  LossFunction xy, wh, confidence, classes;
  float scale_object = 1, scale_no_object = 1;
  float least_iou = 0.7f, greatest_iou = 0.3f;
  bool rescore = true;
  std::vector<float> anchors;  ///< width and height of each, in cells
};

/// none: loss has the value of each element. The others give one value for each image, at its pixel (0, 0), channel 0:
/// the sum; divided by the number of pixels (softmax) or values; divided by the number of weights that are not 0, if
/// there is one.
enum class LossReduction : std::uint8_t { none, sum, mean, mean_of_nonzero_weights };

/// l_i = weight_i * incoming_i * function(src_i, label_i) of all values of some images, reduced, and the derivatives of
/// the sum of all l_i by src (or by the labels), which no reduction divides.
struct LossProblem {
  /// Images that lie in memory alike. What has no memory of the optional ones is: weights, the function's; incoming, 1;
  /// gradient and loss, not wanted.
  struct Part {
    std::int64_t n = 1, h = 1, w = 1, c = 1;
    Operand src, labels, weights, incoming;
    ImageView gradient;  ///< n x h x w x c; shares no memory with the rest
    ImageView loss;      ///< as large, or with a reduction n x 1 x 1 x 1
  };
  std::vector<Part> parts;
  LossFunction function;
  std::shared_ptr<const BoxLoss> boxes;  ///< in the place of the function
  LossReduction reduction = LossReduction::sum;
  bool across_images = false;  ///< the loss of all images together for the first one, 0 for the others
  bool by_labels = false;      ///< the gradient; not of boxes
};

/// Float32 values in a buffer, rows of them in matrices.
struct FloatMatrices {
  std::shared_ptr<Memory> memory;
  std::size_t offset = 0;                          ///< bytes to the first one, a multiple of 4
  std::int64_t matrix_stride = 0, row_stride = 0;  ///< values
};

enum class OptimizerType : std::uint8_t { descent, momentum, nesterov, rms, adam, adam_greatest };
enum class Regularization : std::uint8_t { none, absolute, square };

/// v = values and their gradient, each value by itself. First g = min(max(gradient, least), greatest) * rescale +
/// regularization_scale * (absolute: the sign of v; square: v); NaN stays NaN. Then with m = momentum, s = squares:
///   descent:  result = v - rate * g
///   momentum: m = decay * m + rate * g; result = v - m
///   nesterov: m = decay * m + g; result = v - rate * (g + decay * m)
///   rms:      s = decay_of_squares * s + (1 - decay_of_squares) * g^2; result = v - rate * g / (sqrt(s) + epsilon)
///   adam:     m = decay * m + (1 - decay) * g; s as rms; result = v - rate * m / (sqrt(s) + epsilon)
///   adam_greatest: the same with greatest_squares = max(greatest_squares, s) under the root
struct OptimizeProblem {
  std::int64_t matrices = 1, rows = 1, columns = 1;
  FloatMatrices gradient, values;
  FloatMatrices result;                               ///< may be values, or the gradient; else shares no memory
  FloatMatrices momentum, squares, greatest_squares;  ///< those that the type needs; share no memory
  OptimizerType type = OptimizerType::descent;
  Regularization regularization = Regularization::none;
  double rate = 0.001, decay = 0, decay_of_squares = 0, epsilon = 0;
  float rescale = 1, regularization_scale = 0;
  float least = -std::numeric_limits<float>::infinity(), greatest = std::numeric_limits<float>::infinity();
};

/// dst = src, same extents, formats may differ (converted through float, rounded to nearest even once, unorm clamped to
/// [0, 1]).
struct CopyProblem {
  ImageView src, dst;
};

/// Bytes of one buffer to another (may be the same block when the ranges do not overlap).
struct BufferCopyProblem {
  std::shared_ptr<Memory> src, dst;
  std::size_t src_offset = 0, dst_offset = 0, bytes = 0;
};

struct BufferFillProblem {
  std::shared_ptr<Memory> dst;
  std::size_t offset = 0, bytes = 0;
  std::uint8_t value = 0;
};

/// Anything that has to happen at this place of the command buffer on the host: events, and work that is
/// not worth an entry of its own. Must not throw.
struct HostTask {
  std::function<void()> run;
};

using Problem =
    std::variant<ConvProblem, ConvGradientProblem, TransposeProblem, TransposeGradientProblem, BinaryConvProblem,
                 PoolProblem, PoolGradientProblem, NeuronProblem, NeuronGradientProblem, BinaryProblem,
                 BinaryGradientProblem, LocalNormProblem, NormalizeProblem, StatisticsProblem, LocalNormGradientProblem,
                 StatisticsGradientProblem, NormalizeGradientProblem, SoftmaxProblem, SoftmaxGradientProblem,
                 ReduceProblem, ResampleProblem, ResampleGradientProblem, ReshapeProblem, PadProblem,
                 PadGradientProblem, DropoutProblem, LossProblem, OptimizeProblem, CopyProblem, BufferCopyProblem,
                 BufferFillProblem, HostTask>;

/// One recorded encode.
struct Command {
  Problem problem;
  std::string label;  ///< class and label of the kernel, for errors and traces
};

/// What computes. Entries are called by one queue thread at a time per queue, several queues may call at once.
/// They may return before the work is done (then in order); synchronize() waits for the calling thread's work.
/// Each entry throws std::bad_alloc or std::runtime_error with a sentence when the device fails, never for a shape.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  virtual ~Engine() = default;

  virtual const char* name() const = 0;                 ///< "onednn", "null", ...
  virtual std::string device_name() const = 0;          ///< what MTLDevice.name answers
  virtual std::uint64_t working_set_limit() const = 0;  ///< bytes the device should not exceed

  /// Page-aligned block of at least `bytes` (> 0), host-visible, contents undefined. Throws std::bad_alloc.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void deallocate(std::byte* data, std::size_t bytes) noexcept = 0;
  virtual std::uint64_t allocated_bytes() const = 0;  ///< in blocks that are in use
  virtual std::uint64_t peak_bytes() const = 0;       ///< the most that was since reset_peak_bytes()
  virtual void reset_peak_bytes() = 0;
  virtual std::uint64_t cached_bytes() const = 0;  ///< in free blocks that are kept
  virtual void free_cached_bytes() = 0;

  /// Step between neighbouring pixels of an image made by the engine, elements, >= channels.
  virtual std::int64_t channel_stride(Format format, std::int64_t channels) const = 0;

  virtual void convolve(const ConvProblem& problem) = 0;
  virtual void convolve_gradient(const ConvGradientProblem& problem) = 0;
  virtual void convolve_transpose(const TransposeProblem& problem) = 0;
  virtual void convolve_transpose_gradient(const TransposeGradientProblem& problem) = 0;
  virtual void convolve_binary(const BinaryConvProblem& problem) = 0;
  virtual void pool(const PoolProblem& problem) = 0;
  virtual void pool_gradient(const PoolGradientProblem& problem) = 0;
  virtual void neuron(const NeuronProblem& problem) = 0;
  virtual void neuron_gradient(const NeuronGradientProblem& problem) = 0;
  virtual void binary(const BinaryProblem& problem) = 0;
  virtual void binary_gradient(const BinaryGradientProblem& problem) = 0;
  virtual void normalize_locally(const LocalNormProblem& problem) = 0;
  virtual void normalize(const NormalizeProblem& problem) = 0;
  virtual void find_statistics(const StatisticsProblem& problem) = 0;
  virtual void normalize_locally_gradient(const LocalNormGradientProblem& problem) = 0;
  virtual void statistics_gradient(const StatisticsGradientProblem& problem) = 0;
  virtual void normalize_gradient(const NormalizeGradientProblem& problem) = 0;
  virtual void softmax(const SoftmaxProblem& problem) = 0;
  virtual void softmax_gradient(const SoftmaxGradientProblem& problem) = 0;
  virtual void reduce(const ReduceProblem& problem) = 0;
  virtual void resample(const ResampleProblem& problem) = 0;
  virtual void resample_gradient(const ResampleGradientProblem& problem) = 0;
  virtual void reshape(const ReshapeProblem& problem) = 0;
  virtual void pad(const PadProblem& problem) = 0;
  virtual void pad_gradient(const PadGradientProblem& problem) = 0;
  virtual void dropout(const DropoutProblem& problem) = 0;
  virtual void find_loss(const LossProblem& problem) = 0;
  virtual void optimize(const OptimizeProblem& problem) = 0;
  virtual void copy(const CopyProblem& problem) = 0;
  virtual void copy_buffer(const BufferCopyProblem& problem) = 0;
  virtual void fill_buffer(const BufferFillProblem& problem) = 0;
  virtual void synchronize() = 0;
};

/// The engines built into this library, the default first, the null engine last; made once per process.
/// MPSCNN_ENGINE=<name> in the environment moves that one to the front.
const std::vector<std::shared_ptr<Engine>>& engines();

}  // namespace openmps

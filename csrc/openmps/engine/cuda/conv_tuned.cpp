// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN and cuBLASLt. Candidates for a shape are timed once; the choice is kept on disk.
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "engine/cuda/blaslt.hpp"
#include "engine/cuda/conv_weights.hpp"
#include "engine/cuda/convolution.hpp"
#include "engine/cuda/cudnn.hpp"
#include "engine/cuda/disk_cache.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/cuda/kernels/pointwise.hpp"
#include "engine/failure.hpp"

namespace openmps::cuda {
namespace {

constexpr std::size_t kDnnCandidates = 8, kProductCandidates = 8;
constexpr int kTimedRuns = 5;
constexpr i64 kFewProducts = 1 << 20;  ///< a loop takes some microseconds, a plan of cuDNN up to a second to compile
constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// One of the plans.
struct Choice {
  std::shared_ptr<const CudnnPlan> dnn;
  std::shared_ptr<const ProductPlan> product;

  std::size_t workspace_bytes() const { return dnn ? dnn->workspace_bytes() : product->workspace_bytes(); }
  std::string saved() const { return dnn ? 'd' + dnn->saved() : 'p' + product->saved(); }
};

void run(Work& work, const Choice& choice, const ConvAddresses& at, Address workspace) {
  if (choice.dnn)
    choice.dnn->run(work, at, workspace);
  else
    choice.product->run(work, {at.x, at.w, at.bias, at.addend, at.y}, workspace);
}

/// Return the product that equals the graph, if there is one: 1 x 1 pixels, no strides, a single row of pixels.
std::optional<Product> product_of(const ConvGraph& g) {
  if (g.kind != ConvGraph::Kind::forward) return std::nullopt;
  const auto is_one = [](const auto& pair) { return pair[0] == 1 && pair[1] == 1; };
  if (g.w[2] != 1 || g.w[3] != 1 || g.w[1] != g.x[1] || !is_one(g.stride)) return std::nullopt;
  if (g.pad_before[0] || g.pad_before[1] || g.pad_after[0] || g.pad_after[1]) return std::nullopt;
  const auto rows = [&](const ConvGraph::Extents& strides) {
    return (g.y[2] == 1 || strides[2] == g.y[3] * strides[3]) &&
           (g.y[0] == 1 || strides[0] == g.y[2] * g.y[3] * strides[3]);
  };
  if (!rows(g.x_strides) || !rows(g.y_strides) || (g.has_addend && !rows(g.addend_strides))) return std::nullopt;
  const auto is_relu = [](NeuronType type, float a) { return type == NeuronType::relu && a == 0; };
  const bool after = is_relu(g.after, g.after_a), before = is_relu(g.neuron, g.neuron_a);
  if ((g.after != NeuronType::none && !after) || (g.neuron != NeuronType::none && !before)) return std::nullopt;
  if (before && g.has_addend) return std::nullopt;
  return Product{.format = g.format,
                 .reduced_precision = g.reduced_precision,
                 .m = g.y[0] * g.y[2] * g.y[3],
                 .n = g.w[0],
                 .k = g.w[1],
                 .a_stride = g.x_strides[3],
                 .b_stride = g.w[1],
                 .c_stride = g.has_addend ? g.addend_strides[3] : 0,
                 .d_stride = g.y_strides[3],
                 .has_bias = g.has_bias,
                 .has_relu = before || after};
}

/// Return milliseconds of a run, the min of a few; infinity if it fails.
float time_of(Work& work, const Choice& choice, const ConvAddresses& operands, Address workspace) {
  const Driver& driver = work.gpu().driver();
  Event start = nullptr, end = nullptr;
  float best = std::numeric_limits<float>::infinity();
  driver.check(driver.create_event(&start, kTimingEvent), "cuEventCreate");
  driver.check(driver.create_event(&end, kTimingEvent), "cuEventCreate");
  try {
    run(work, choice, operands, workspace);  // kernels are loaded on their first run
    for (int i = 0; i < kTimedRuns; ++i) {
      driver.check(driver.record_event(start, work.stream()), "cuEventRecord");
      run(work, choice, operands, workspace);
      driver.check(driver.record_event(end, work.stream()), "cuEventRecord");
      driver.check(driver.synchronize_event(end), "cuEventSynchronize");
      float milliseconds = 0;
      driver.check(driver.elapsed_time(&milliseconds, start, end), "cuEventElapsedTime");
      best = std::min(best, milliseconds);
    }
  } catch (const EngineError& error) {
    if (error.code() == FailureCode::device_lost) throw;
    best = std::numeric_limits<float>::infinity();
  }
  driver.destroy_event(start);
  driver.destroy_event(end);
  return best;
}

/// The choices of one process.
class Choices {
 public:
  /// Return the choice for a graph; null if no plan supports it. Uses the scratch memory beyond `staged` bytes.
  std::shared_ptr<const Choice> of(Work& work, const ConvGraph& graph, std::size_t staged,
                                   const std::function<ConvAddresses()>& operands) {
    const std::string key = work.gpu().name() + ' ' + graph.key();
    const std::lock_guard lock(mutex_);  // timing on two streams at once would disturb both
    if (const auto found = all_.find(key); found != all_.end()) return found->second;
    if (work.is_recording()) throw EngineError(FailureCode::internal, "a recorded convolution has not run before.");
    auto choice = read(work, graph, key);
    if (!choice) choice = choose(work, graph, key, staged, operands);
    return all_.emplace(key, choice).first->second;
  }

 private:
  static std::string disk_key(const std::string& key) {
    return "cuDNN " + cudnn_version() + ' ' + (has_cublaslt() ? cublaslt_version() : "") + ' ' + key;
  }

  static std::shared_ptr<const Choice> read(Work& work, const ConvGraph& graph, const std::string& key) {
    const auto saved = read_cached("plan", disk_key(key));
    if (!saved || saved->empty()) return nullptr;
    auto choice = std::make_shared<Choice>();
    const std::string rest = saved->substr(1);
    if (saved->front() == 'd') {
      choice->dnn = restore_plan(work, graph, rest);
    } else if (const auto product = product_of(graph); product && has_cublaslt()) {
      choice->product = restore_product(*product, rest);
    }
    return choice->dnn || choice->product ? choice : nullptr;
  }

  static std::shared_ptr<const Choice> choose(Work& work, const ConvGraph& graph, const std::string& key,
                                              std::size_t staged, const std::function<ConvAddresses()>& operands) {
    std::vector<Choice> candidates;
    if (const auto product = product_of(graph); product && has_cublaslt())
      for (auto& plan : product_plans(*product, kProductCandidates)) candidates.push_back({nullptr, std::move(plan)});
    for (auto& plan : cudnn_plans(work, graph, kDnnCandidates)) candidates.push_back({std::move(plan), nullptr});
    if (candidates.empty()) return nullptr;
    std::size_t bytes = 0;
    for (const Choice& each : candidates) bytes = std::max(bytes, each.workspace_bytes());
    const Address workspace = work.scratch(staged + bytes + 1) + staged;
    const ConvAddresses at = operands();
    const Choice* best = nullptr;
    float least = std::numeric_limits<float>::infinity();
    for (const Choice& each : candidates) {
      const float time = time_of(work, each, at, workspace);
      if (dispatch().traces)
        std::fprintf(stderr, "mpscnn dispatch: %s %.4f ms\n", each.dnn ? "cuDNN" : "cuBLASLt", time);
      if (time < least) least = time, best = &each;
    }
    if (!best) return nullptr;
    auto choice = std::make_shared<Choice>(*best);
    write_cached("plan", disk_key(key), choice->saved());
    return choice;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Choice>> all_;
};

Choices& choices() {
  static auto* const all = new Choices;
  return *all;
}

ConvGraph::Extents extents_of(const ImageView& v) { return {v.n, v.c, v.h, v.w}; }
ConvGraph::Extents strides_of(const ImageView& v) {
  // Strides along axes of extent 1 are what cuDNN takes for channels last.
  const std::int64_t w = v.w > 1 ? v.w_stride : std::max(v.w_stride, v.c), h = v.h > 1 ? v.h_stride : v.w * w;
  return {v.n > 1 ? v.n_stride : v.h * h, 1, h, w};
}
bool is_float(Format format) { return format == Format::float16 || format == Format::float32; }

/// Return why no library is asked. `size`: values of the result, each the sum of as many products as a window has.
const char* why_not(Work& work, const ConvWeights& weights, i64 size) {
  const i64 window = weights.kernel_h * weights.kernel_w * weights.in_channels_per_group;
  if (size <= kFewProducts / window) return "few products";
  if (work.gpu().driver().is_host) return "no cuDNN on the host";
  if (!has_cudnn()) return "cuDNN is not installed";
  return nullptr;
}

/// Fill in window and weights. `image` and `result` are the two sides of the forward convolution.
void set_window(ConvGraph& graph, const Window& window, const ConvWeights& weights, const ImageView& image,
                const ImageView& result, std::int64_t channels) {
  graph.w = {weights.out_channels, channels, weights.kernel_h, weights.kernel_w};
  graph.w_strides = {weights.kernel_h * weights.kernel_w * channels, 1, weights.kernel_w * channels, channels};
  graph.stride = {window.stride_h, window.stride_w};
  graph.dilation = {window.dilation_h, window.dilation_w};
  graph.pad_before = {-window.start_h, -window.start_w};
  const auto after = [](std::int64_t size, std::int64_t results, std::int64_t start, std::int64_t stride,
                        std::int64_t dilation, std::int64_t kernel) {
    return start + (results - 1) * stride + dilation * (kernel - 1) + 1 - size;
  };
  graph.pad_after = {after(image.h, result.h, window.start_h, window.stride_h, window.dilation_h, weights.kernel_h),
                     after(image.w, result.w, window.start_w, window.stride_w, window.dilation_w, weights.kernel_w)};
}

/// Remove rows and columns that no window reads, so that no padding is negative. Return why that cannot be done.
const char* crop(ImageView& image, Window& window, const ConvWeights& weights, const ImageView& result) {
  const auto one = [](std::int64_t& size, std::int64_t& start, std::int64_t results, std::int64_t stride,
                      std::int64_t dilation, std::int64_t kernel) {
    const std::int64_t skipped = std::max<std::int64_t>(0, start), reach = dilation * (kernel - 1) + 1;
    start -= skipped;
    size = std::min(size - skipped, start + (results - 1) * stride + reach);
    return std::pair(skipped, size > 0 && -start < reach);
  };
  const auto [top, has_rows] =
      one(image.h, window.start_h, result.h, window.stride_h, window.dilation_h, weights.kernel_h);
  const auto [left, has_columns] =
      one(image.w, window.start_w, result.w, window.stride_w, window.dilation_w, weights.kernel_w);
  if (!has_rows || !has_columns) return "windows outside of the source";
  image.offset += static_cast<std::size_t>(top * image.h_stride + left * image.w_stride) * size_of(image.format);
  return nullptr;
}

bool pads_after(const ConvGraph& graph) {
  return graph.pad_after[0] < graph.dilation[0] * (graph.w[2] - 1) + 1 &&
         graph.pad_after[1] < graph.dilation[1] * (graph.w[3] - 1) + 1;
}

void set_neuron(ConvGraph& graph, const Neuron& neuron) {
  graph.neuron = neuron_is_identity(neuron) ? NeuronType::none : neuron.type;
  graph.neuron_a = neuron.a, graph.neuron_b = neuron.b;
}

/// Copy an image to `to`, with the graph's format and channels.
void stage(Work& work, const ImageView& src, const ConvGraph& graph, Address to) {
  const auto part = static_cast<i64>(sizeof(layout::Bytes16) / size_of(src.format));
  const Address from = work.view(src).data.address;
  const auto is_whole = [&](i64 values) { return values % part == 0; };
  if (src.format == graph.format && src.c == graph.x[1] && is_whole(src.c) && is_whole(src.w_stride) &&
      is_whole(src.h_stride) && is_whole(src.n_stride) && from % sizeof(layout::Bytes16) == 0) {
    const layout::GatherPixelsArgs args{.src = {from},
                                        .dst = {to},
                                        .h = src.h,
                                        .w = src.w,
                                        .parts = src.c / part,
                                        .n_stride = src.n_stride / part,
                                        .h_stride = src.h_stride / part,
                                        .w_stride = src.w_stride / part};
    return work.launch(layout::gather_pixels, args, src.size() / part);
  }
  if (src.format == Format::float16 && graph.format == Format::float16 && src.c == 3 && graph.x[1] == 4 &&
      src.is_dense())
    return work.launch(layout::pad_three, {{from}, {to}}, src.n * src.h * src.w);
  const View staged{.data = {to},
                    .format = graph.format,
                    .n = graph.x[0],
                    .h = graph.x[2],
                    .w = graph.x[3],
                    .c = graph.x[1],
                    .n_stride = graph.x_strides[0],
                    .h_stride = graph.x_strides[2],
                    .w_stride = graph.x_strides[3]};
  work.launch(layout::pad_channels, {work.view(src), staged}, src.n * src.h * src.w);
}

const char* why_not_gradient(const ConvGradientProblem& p, const ImageView& image, Work& work) {
  if (const char* const reason = why_not(work, *p.weights, p.diff_dst.size())) return reason;
  if (p.window.edge != Edge::zero) return "clamped edges";
  if (!is_float(p.diff_dst.format)) return "neither float16 nor float32";
  if (image.format != p.diff_dst.format) return "two formats";
  return nullptr;
}

/// Let the last windows end before the image does, which cuDNN takes as no padding.
const char* why_not_paddings(ConvGraph& graph) {
  for (std::size_t i = 0; i < 2; ++i) {
    if (graph.pad_before[i] < 0 || graph.pad_after[i] <= -graph.stride[i]) return "pixels that no window reads";
    graph.pad_after[i] = std::max<std::int64_t>(graph.pad_after[i], 0);
  }
  return pads_after(graph) ? nullptr : "windows outside of the source";
}

/// Apply the activation to an image in place.
void activate(Work& work, const ImageView& dst, const Neuron& neuron) { solve(NeuronProblem{dst, dst, neuron}, work); }

}  // namespace

const char* run_conv_tuned(const Call<ConvProblem>& call) {
  const auto& [p, work] = call;
  if (const char* const reason = why_not(work, *p.weights, p.dst.size())) return reason;
  if (p.window.edge != Edge::zero) return "clamped edges";
  if (p.subpixel > 1) return "sub-pixel";
  if (!is_float(p.dst.format)) return "neither float16 nor float32";
  if (p.addend.memory && p.addend.format != p.dst.format) return "an addend of another format";
  const ConvWeights& weights = *p.weights;
  ImageView src = p.src;
  Window window = p.window;
  if (const char* const reason = crop(src, window, weights, p.dst)) return reason;
  // 1 x 1 with strides is a product of some of the pixels, once they are together.
  const bool is_sampled = weights.kernel_h * weights.kernel_w == 1 && weights.groups == 1 && src.c % 4 == 0 &&
                          window.stride_h * window.stride_w > 1 && window.start_h == 0 && window.start_w == 0;
  if (is_sampled) {
    src.h_stride *= window.stride_h, src.w_stride *= window.stride_w;
    src.h = p.dst.h, src.w = p.dst.w;
    window.stride_h = window.stride_w = 1;
  }

  // Tensor cores take 16 bytes of channels at once; 4 channels of float16 are faster than 8 [measured on an H200].
  const Format format = p.dst.format;
  std::int64_t channels = weights.in_channels_per_group;
  if (weights.groups == 1 && channels < 4) channels = 4;
  const bool is_staged = channels != weights.in_channels_per_group || src.format != format || is_sampled;
  ConvGraph graph;
  graph.format = format;
  graph.reduced_precision = p.reduced_precision;
  set_window(graph, window, weights, src, p.dst, channels);
  if (!pads_after(graph)) return "windows outside of the source";
  if (is_staged && weights.groups > 1) channels *= weights.groups;
  const std::size_t staged =
      is_staged ? aligned(static_cast<std::size_t>(src.n * src.h * src.w * channels) * size_of(format)) : 0;
  graph.x = {src.n, is_staged ? channels : src.c, src.h, src.w};
  graph.x_strides =
      is_staged ? ConvGraph::Extents{src.h * src.w * channels, 1, src.w * channels, channels} : strides_of(src);
  graph.y = extents_of(p.dst), graph.y_strides = strides_of(p.dst);
  graph.has_bias = !weights.bias.empty();
  graph.has_addend = p.addend.memory != nullptr;
  if (graph.has_addend) graph.addend_strides = strides_of(p.addend);
  const bool has_neuron = cudnn_has(p.neuron, format) || neuron_is_identity(p.neuron);
  if (!has_neuron && graph.has_addend) return "an activation before the sum";
  if (has_neuron) set_neuron(graph, p.neuron);
  const bool has_after = cudnn_has(p.after, format);
  if (has_after) graph.after = p.after.type, graph.after_a = p.after.a, graph.after_b = p.after.b;

  GpuWeights& copies = GpuWeights::of(work.gpu(), weights);
  const auto operands = [&] {
    ConvAddresses result;
    result.x = is_staged ? work.scratch(staged) : work.view(src).data.address;
    result.w = copies.padded(weights, graph.w[1], format);
    result.bias = format == Format::float16 ? copies.half_bias(weights).address : copies.bias(weights).address;
    result.addend = graph.has_addend ? work.view(p.addend).data.address : 0;
    result.y = work.view(p.dst).data.address;
    return result;
  };
  const auto choice = choices().of(work, graph, staged, operands);
  if (!choice) return "no library supports it";
  const Address scratch = work.scratch(staged + choice->workspace_bytes() + 1);
  if (is_staged) stage(work, src, graph, scratch);
  run(work, *choice, operands(), scratch + staged);
  if (!has_neuron) activate(work, p.dst, p.neuron);
  if (!has_after) activate(work, p.dst, p.after);
  return nullptr;
}

const char* run_conv_data_tuned(const DataCall<ConvGradientProblem>& call) {
  const auto& [p, work] = call;
  if (const char* const reason = why_not_gradient(p, p.diff_src, work)) return reason;
  const ConvWeights& weights = *p.weights;
  Window window = p.window;
  window.start_h -= p.first_h, window.start_w -= p.first_w;
  ConvGraph graph;
  graph.kind = ConvGraph::Kind::data;
  graph.format = p.diff_dst.format;
  graph.reduced_precision = p.reduced_precision;
  set_window(graph, window, weights, p.diff_src, p.diff_dst, weights.in_channels_per_group);
  if (const char* const reason = why_not_paddings(graph)) return reason;
  graph.x = extents_of(p.diff_src), graph.x_strides = strides_of(p.diff_src);
  graph.y = extents_of(p.diff_dst), graph.y_strides = strides_of(p.diff_dst);
  GpuWeights& copies = GpuWeights::of(work.gpu(), weights);
  const auto operands = [&] {
    ConvAddresses result;
    result.x = work.view(p.diff_src).data.address;
    result.w = copies.padded(weights, weights.in_channels_per_group, graph.format);
    result.y = work.view(p.diff_dst).data.address;
    return result;
  };
  const auto choice = choices().of(work, graph, 0, operands);
  if (!choice) return "no library supports it";
  const Address workspace = work.scratch(choice->workspace_bytes() + 1);
  run(work, *choice, operands(), workspace);
  return nullptr;
}

const char* run_conv_weights_tuned(const WeightsCall<ConvGradientProblem>& call) {
  const auto& [p, work] = call;
  if (!p.diff_weights.memory) return "only the gradient of the bias";
  if (const char* const reason = why_not_gradient(p, p.src, work)) return reason;
  const ConvWeights& weights = *p.weights;
  ImageView src = p.src;
  Window window = p.window;
  if (const char* const reason = crop(src, window, weights, p.diff_dst)) return reason;
  const Format format = p.diff_dst.format;
  const std::int64_t own = weights.in_channels_per_group;
  const std::int64_t channels = weights.groups == 1 && own < 4 ? 4 : own;
  const bool is_staged = channels != own;
  ConvGraph graph;
  graph.kind = ConvGraph::Kind::weights;
  graph.format = format;
  graph.weights_format = Format::float32;  // a float16 would lose digits of the sums
  graph.reduced_precision = p.reduced_precision;
  set_window(graph, window, weights, src, p.diff_dst, channels);
  if (const char* const reason = why_not_paddings(graph)) return reason;
  graph.x = {src.n, is_staged ? channels : src.c, src.h, src.w};
  graph.x_strides =
      is_staged ? ConvGraph::Extents{src.h * src.w * channels, 1, src.w * channels, channels} : strides_of(src);
  graph.y = extents_of(p.diff_dst), graph.y_strides = strides_of(p.diff_dst);
  const std::size_t image_bytes =
      is_staged ? aligned(static_cast<std::size_t>(src.n * src.h * src.w * channels) * size_of(format)) : 0;
  const auto count = static_cast<i64>(weights.values.size());
  const std::size_t result_bytes = aligned(static_cast<std::size_t>(count / own * channels) * sizeof(float));
  const std::size_t staged = image_bytes + result_bytes;
  const auto operands = [&] {
    ConvAddresses result;
    const Address scratch = work.scratch(staged);
    result.x = is_staged ? scratch : work.view(src).data.address;
    result.w = scratch + image_bytes;
    result.y = work.view(p.diff_dst).data.address;
    return result;
  };
  const auto choice = choices().of(work, graph, staged, operands);
  if (!choice) return "no library supports it";
  const Address scratch = work.scratch(staged + choice->workspace_bytes() + 1);
  if (is_staged) stage(work, src, graph, scratch);
  run(work, *choice, operands(), scratch + staged);
  work.launch(layout::add_gradient,
              {.from = {scratch + image_bytes},
               .to = work.values(p.diff_weights),
               .format = graph.weights_format,
               .channels = own,
               .all_channels = channels,
               .accumulates = p.accumulates},
              count);
  if (!p.diff_bias.memory) return nullptr;
  ConvGradientProblem bias = p;
  bias.diff_weights = {};
  return run_conv_weights_loop({bias, work});
}

}  // namespace openmps::cuda

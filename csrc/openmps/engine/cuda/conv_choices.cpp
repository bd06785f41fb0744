// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/conv_choices.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <utility>

#include "engine/cuda/compiler.hpp"
#include "engine/cuda/graphs.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/cuda/lanes.hpp"
#include "engine/cuda/vectors.hpp"
#include "engine/cuda/work.hpp"
#include "engine/failure.hpp"
#include "engine/shared/disk_cache.hpp"
#include "engine/shared/implementations.hpp"

namespace openmps::cuda {
namespace {

constexpr std::size_t kDnnCandidates = 16, kDenseCandidates = 6, kProductCandidates = 24;
constexpr int kTimedRuns = 10, kTimedLaunches = 3;    ///< runs of a graph, launches of it
constexpr float kMayWin = 1.5f, kEnqueueing = 0.02f;  ///< candidates below kMayWin * best + kEnqueueing may be the best

/// Return the product that equals the graph, if there is one: 1 x 1 pixels, no strides, a single row of pixels.
std::optional<Product> product_of(const ConvGraph& g) {
  if (g.alignment < 16 || g.has_sums) return std::nullopt;
  const auto is_one = [](const auto& pair) { return pair[0] == 1 && pair[1] == 1; };
  if (g.w[2] != 1 || g.w[3] != 1 || g.w[1] != g.x[1] || !is_one(g.stride)) return std::nullopt;
  if (g.pad_before[0] || g.pad_before[1] || g.pad_after[0] || g.pad_after[1]) return std::nullopt;
  const auto rows = [&](const ConvGraph::Extents& strides) {
    return (g.y[2] == 1 || strides[2] == g.y[3] * strides[3]) &&
           (g.y[0] == 1 || strides[0] == g.y[2] * g.y[3] * strides[3]);
  };
  if (g.kind == ConvGraph::Kind::data) {
    if (!rows(g.x_strides) || !rows(g.y_strides)) return std::nullopt;
    return Product{.format = g.format,
                   .reduced_precision = g.reduced_precision,
                   .m = g.y[0] * g.y[2] * g.y[3],
                   .n = g.w[1],
                   .k = g.w[0],
                   .a_stride = g.y_strides[3],
                   .b_stride = g.w[0],
                   .c_stride = 0,
                   .d_stride = g.x_strides[3]};
  }
  if (g.kind == ConvGraph::Kind::weights) {
    if (!rows(g.x_strides) || !rows(g.y_strides) || g.weights_format != Format::float32) return std::nullopt;
    return Product{.format = g.format,
                   .reduced_precision = g.reduced_precision,
                   .m = g.w[0],
                   .n = g.w[1],
                   .k = g.y[0] * g.y[2] * g.y[3],
                   .a_stride = g.y_strides[3],
                   .b_stride = g.x_strides[3],
                   .c_stride = 0,
                   .d_stride = g.w[1],
                   .sums_rows = true};
  }
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

/// Return the forward convolution that equals the gradient by the source of an exact float32 graph, if there is one: y
/// is its source, x its result, and the weights are ConvAddresses::turned_w. For such graphs cuDNN's forward kernels
/// are up to three times faster [measured on an H200]; those of tensor cores are not, and the weights are copied once
/// more.
std::optional<ConvGraph> turned(const ConvGraph& g) {
  if (g.kind != ConvGraph::Kind::data || g.format != Format::float32 || g.reduced_precision) return std::nullopt;
  if (g.w[1] != g.x[1] || g.stride[0] != 1 || g.stride[1] != 1 || g.w[2] * g.w[3] == 1) return std::nullopt;
  ConvGraph result = g;
  result.kind = ConvGraph::Kind::forward;
  std::swap(result.x, result.y), std::swap(result.x_strides, result.y_strides);
  const std::int64_t inputs = g.w[0];
  result.w = {g.w[1], inputs, g.w[2], g.w[3]};
  result.w_strides = {g.w[2] * g.w[3] * inputs, 1, g.w[3] * inputs, inputs};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t most = g.dilation[i] * (g.w[2 + i] - 1);
    result.pad_before[i] = most - g.pad_before[i], result.pad_after[i] = most - g.pad_after[i];
    if (result.pad_before[i] < 0 || result.pad_after[i] < 0) return std::nullopt;
  }
  return result;
}

/// Return the same graph with a dense result, if its result has gaps between the pixels: many plans of cuDNN do not
/// write those but copy their result twice [seen on an H100].
std::optional<ConvGraph> with_dense_result(const ConvGraph& g) {
  const ConvGraph::Extents dense{g.y[1] * g.y[2] * g.y[3], 1, g.y[1] * g.y[3], g.y[1]};
  if (g.kind != ConvGraph::Kind::forward || g.has_addend || g.has_sums || g.y_strides == dense) return std::nullopt;
  ConvGraph result = g;
  result.y_strides = dense;
  return result;
}
std::size_t bytes_of_result(const ConvGraph& g) {
  return static_cast<std::size_t>(g.y[0] * g.y_strides[0]) * size_of(g.format);
}

/// Round up to a multiple of the alignment of results.
std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

constexpr float kNever = std::numeric_limits<float>::infinity();

/// Times what a stream does.
class Stopwatch {
 public:
  explicit Stopwatch(Work& work) : work_(work), driver_(work.gpu().driver()) {
    driver_.check(driver_.create_event(&start_, kTimingEvent), "cuEventCreate");
    driver_.check(driver_.create_event(&end_, kTimingEvent), "cuEventCreate");
  }
  ~Stopwatch() {
    driver_.destroy_event(start_);
    driver_.destroy_event(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Return the milliseconds of what `body` enqueues; kNever if it fails.
  template <class Body>
  float time(const Body& body) const {
    float milliseconds = kNever;
    try {
      driver_.check(driver_.record_event(start_, work_.stream()), "cuEventRecord");
      body();
      driver_.check(driver_.record_event(end_, work_.stream()), "cuEventRecord");
      driver_.check(driver_.synchronize_event(end_), "cuEventSynchronize");
      driver_.check(driver_.elapsed_time(&milliseconds, start_, end_), "cuEventElapsedTime");
    } catch (const EngineError& error) {
      if (error.code() == FailureCode::device_lost) throw;
      milliseconds = kNever;
    }
    return milliseconds;
  }

 private:
  Work& work_;
  const Driver& driver_;
  Event start_ = nullptr, end_ = nullptr;
};

/// Return the milliseconds of `body`, with the time that the host takes to enqueue it: an upper bound.
template <class Body>
float coarse_time(Work& work, const Stopwatch& watch, const Body& body) {
  const float first = watch.time(body);  // loads kernels
  if (first == kNever || work.gpu().driver().is_host) return first;
  return std::min(watch.time(body), watch.time(body));
}

/// Return the milliseconds of `body` alone: those of a graph with several runs, divided by their number.
template <class Body>
float fine_time(Work& work, const Stopwatch& watch, const Body& body) {
  const bool is_host = work.gpu().driver().is_host;  // whose times do not vary
  const int runs = is_host ? 1 : kTimedRuns, launches = is_host ? 1 : kTimedLaunches;
  const auto graph = record(work, [&] {
    for (int i = 0; i < runs; ++i) body();
    return true;
  });
  if (!graph) return coarse_time(work, watch, body);
  float least = kNever;
  for (int i = 0; i < launches; ++i) least = std::min(least, watch.time([&] { graph->launch(work); }));
  return least / static_cast<float>(runs);
}

/// Return everything that the times depend on besides the shape.
std::string disk_key(const Gpu& gpu, const std::string& key, const Tunable& tunable) {
  std::string text = "cuDNN " + cudnn_version() + ' ' + (has_cublaslt(gpu) ? cublaslt_version() : "") + ' ' + key;
  if (tunable.own.empty()) return text;
  for (const KernelSource& source : kernel_sources())
    if (std::string(source.name).find("/conv_") != std::string::npos ||
        std::string(source.name).ends_with("/tensor_cores.hpp"))
      text += source.text;
  return text;
}

/// Return the choice of an earlier process, if it can still be made.
std::shared_ptr<const Choice> read(Work& work, const Tunable& tunable, const std::string& key) {
  const auto saved = read_cached("cuda", "plan", disk_key(work.gpu(), key, tunable));
  if (!saved || saved->empty()) return nullptr;
  auto choice = std::make_shared<Choice>();
  const std::string rest = saved->substr(1);
  if (saved->front() == 'd') {
    choice->dnn = restore_plan(work, tunable.graph, rest);
  } else if (const auto dense = with_dense_result(tunable.graph); dense && saved->front() == 'c') {
    choice->dnn = restore_plan(work, *dense, rest), choice->result_bytes = bytes_of_result(*dense);
  } else if (const auto other = turned(tunable.graph); other && saved->front() == 't') {
    choice->dnn = restore_plan(work, *other, rest), choice->is_turned = true;
  } else if (saved->front() == 'o') {
    const auto is_it = [&](const OwnKernel& kernel) { return kernel.name == rest; };
    if (std::any_of(tunable.own.begin(), tunable.own.end(), is_it)) choice->own = rest;
  } else if (const auto product = product_of(tunable.graph); product && has_cublaslt(work.gpu())) {
    choice->product = restore_product(work.gpu(), *product, rest);
  }
  return choice->dnn || choice->product || !choice->own.empty() ? choice : nullptr;
}

std::vector<Choice> candidates_for(Work& work, const Tunable& tunable) {
  std::vector<Choice> candidates;
  if (const auto product = product_of(tunable.graph); product && has_cublaslt(work.gpu()))
    for (auto& plan : product_plans(work.gpu(), *product, kProductCandidates))
      candidates.push_back({nullptr, std::move(plan), {}});
  for (auto& plan : cudnn_plans(work, tunable.graph, kDnnCandidates))
    candidates.push_back({std::move(plan), nullptr, {}});
  if (const auto other = turned(tunable.graph))
    for (auto& plan : cudnn_plans(work, *other, kDnnCandidates))
      candidates.push_back({std::move(plan), nullptr, {}, true});
  if (const auto dense = with_dense_result(tunable.graph))
    for (auto& plan : cudnn_plans(work, *dense, kDenseCandidates)) {
      candidates.push_back({std::move(plan), nullptr, {}});
      candidates.back().result_bytes = bytes_of_result(*dense);
    }
  for (const OwnKernel& kernel : tunable.own) candidates.push_back({nullptr, nullptr, kernel.name});
  return candidates;
}

/// Print the shape whose candidates follow, with its operations and the least bytes that move.
void trace_shape(const ConvGraph& g) {
  if (!dispatch().traces) return;
  const auto size = [](const ConvGraph::Extents& e) { return static_cast<double>(e[0] * e[1] * e[2] * e[3]); };
  const double operations = 2 * size(g.y) * static_cast<double>(g.w[1] * g.w[2] * g.w[3]);
  const double values = size(g.x) + size(g.w) + size(g.y) * (g.has_addend ? 2 : 1);
  const auto text = [](const ConvGraph::Extents& e) {
    return std::to_string(e[0]) + 'x' + std::to_string(e[2]) + 'x' + std::to_string(e[3]) + 'x' + std::to_string(e[1]);
  };
  std::fprintf(stderr, "mpscnn dispatch: candidates for %s -> %s, %lldx%lld%s%s: %.0f operations, %.0f bytes\n",
               text(g.x).c_str(), text(g.y).c_str(), static_cast<long long>(g.w[2]), static_cast<long long>(g.w[3]),
               g.stride[0] * g.stride[1] > 1 ? " with strides" : "",
               g.has_addend ? " and a sum"
               : g.has_sums ? " and sums of channels"
                            : "",
               operations, values * static_cast<double>(size_of(g.format)));
}

/// Print a candidate's milliseconds; those that a graph does not confirm are an upper bound.
void trace(const Choice& choice, float milliseconds, const char* how) {
  if (!dispatch().traces) return;
  const char* const name = choice.is_turned          ? "cuDNN/turned"
                           : choice.result_bytes > 0 ? "cuDNN/copied"
                           : choice.dnn              ? "cuDNN"
                           : choice.product          ? "cuBLASLt"
                                                     : choice.own.c_str();
  std::fprintf(stderr, "mpscnn dispatch: candidate %s: %.4f ms%s\n", name, double{milliseconds}, how);
}

/// Return the result of a graph, without its address.
View view_of_result(const ConvGraph& graph) {
  const bool is_data = graph.kind == ConvGraph::Kind::data;
  const ConvGraph::Extents &extents = is_data ? graph.x : graph.y,
                           &strides = is_data ? graph.x_strides : graph.y_strides;
  return {.data = {},
          .format = graph.format,
          .n = extents[0],
          .h = extents[2],
          .w = extents[3],
          .c = extents[1],
          .n_stride = strides[0],
          .h_stride = strides[2],
          .w_stride = strides[3]};
}

/// Memory like that of a graph's result that has gaps between its pixels.
class Gaps {
 public:
  static bool has(const ConvGraph& graph) {
    return graph.kind != ConvGraph::Kind::weights && !is_dense(view_of_result(graph));
  }

  Gaps(Work& work, const Tunable& tunable)
      : work_(work),
        tunable_(tunable),
        view_(view_of_result(tunable.graph)),
        found_(work.gpu(), sizeof(std::uint32_t)) {
    const i64 last = view_.offset(view_.n - 1, view_.h - 1, view_.w - 1, 0) + view_.c;
    result_.emplace(work.gpu(), static_cast<std::size_t>(last + layout::kBehind) * size_of(view_.format));
    view_.data = {result_->address()};
  }

  /// Return whether a candidate leaves the gaps as they are: some plans of cuDNN fill them [seen on an H200].
  bool keeps(const Choice& choice, Address scratch) const {
    const Driver& driver = work_.gpu().driver();
    try {
      work_.fill(result_->address(), layout::kUnwritten, result_->bytes());
      work_.fill(found_.address(), 0, found_.bytes());
      tunable_.run_graph(work_, choice, scratch, result_->address());
      work_.launch(layout::find_writes_between, {view_, {found_.address()}}, view_.n * view_.h * view_.w);
      work_.synchronize();
      std::uint32_t found = 0;
      driver.check(driver.copy_to_host(&found, found_.address(), sizeof found), "cuMemcpyDtoH");
      return found == 0;
    } catch (const EngineError& error) {
      if (error.code() == FailureCode::device_lost) throw;
      return false;
    }
  }

 private:
  Work& work_;
  const Tunable& tunable_;
  View view_;
  GpuBlock found_;
  std::optional<GpuBlock> result_;
};

std::shared_ptr<const Choice> choose(Work& work, const Tunable& tunable, const std::string& key) {
  const std::vector<Choice> candidates = candidates_for(work, tunable);
  if (candidates.empty()) return nullptr;
  trace_shape(tunable.graph);
  std::size_t bytes = 0;
  for (const Choice& each : candidates) bytes = std::max(bytes, each.workspace_bytes());
  const GpuBlock own_scratch(work.gpu(), tunable.staged + bytes + 1);  // the stream's grows only to the choices' needs
  const Address scratch = own_scratch.address();
  const Stopwatch watch(work);
  std::optional<Gaps> gaps;
  if (Gaps::has(tunable.graph)) gaps.emplace(work, tunable);
  std::vector<float> times;
  for (const Choice& each : candidates) {
    const bool may_run = !gaps || !each.own.empty() || each.result_bytes > 0 || gaps->keeps(each, scratch);
    if (!may_run) trace(each, kNever, ", because it writes between the pixels or fails");
    times.push_back(may_run ? coarse_time(work, watch, [&] { tunable.run(work, each, scratch); }) : kNever);
  }
  const float limit = kMayWin * *std::min_element(times.begin(), times.end()) + kEnqueueing;
  const Choice* best = nullptr;
  float least = kNever;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Choice& each = candidates[i];
    if (times[i] == kNever) continue;
    if (times[i] > limit) {
      trace(each, times[i], " at most");
      continue;
    }
    const float time = fine_time(work, watch, [&] { tunable.run(work, each, scratch); });
    trace(each, time, "");
    if (time < least) least = time, best = &each;
  }
  if (!best) return nullptr;
  work.synchronize();  // own_scratch ends
  auto choice = std::make_shared<Choice>(*best);
  write_cached("cuda", "plan", disk_key(work.gpu(), key, tunable), choice->saved());
  return choice;
}

}  // namespace

std::size_t Choice::workspace_bytes() const {
  return result_bytes > 0 ? aligned(plan_bytes()) + result_bytes : plan_bytes();
}

void Tunable::run(Work& work, const Choice& choice, Address scratch) const {
  if (!choice.own.empty()) {
    for (const OwnKernel& kernel : own)
      if (kernel.name == choice.own) return kernel.run();
    throw EngineError(FailureCode::internal, "a convolution has no kernel " + choice.own + ".");
  }
  prepare(scratch);
  run_at(work, choice, operands(scratch), scratch + staged);
  if (finish) finish();
}

void Tunable::run_graph(Work& work, const Choice& choice, Address scratch, Address result) const {
  prepare(scratch);
  ConvAddresses at = operands(scratch);
  (graph.kind == ConvGraph::Kind::data ? at.x : at.y) = result;
  run_at(work, choice, at, scratch + staged);
}

void Tunable::run_at(Work& work, const Choice& choice, ConvAddresses at, Address workspace) const {
  if (choice.is_turned) at.w = at.turned_w(), std::swap(at.x, at.y);
  if (choice.result_bytes > 0) {
    layout::SpreadPixelsArgs copy{view_of_result(*with_dense_result(graph)), view_of_result(graph), 1, 1};
    copy.to.data = {at.y};
    at.y = workspace + aligned(choice.plan_bytes());
    copy.from.data = {at.y};
    choice.dnn->run(work, at, workspace);
    const bool by_vectors = !why_no_vectors({&copy.from, &copy.to});
    return work.launch(by_vectors ? layout::spread_vectors : layout::spread_pixels, copy,
                       copy.to.size() / (by_vectors ? lanes_in_vector(copy.to) : 1), {&copy.from, &copy.to});
  }
  if (choice.dnn)
    choice.dnn->run(work, at, workspace);
  else if (at.writes_w)
    choice.product->run(work, {at.y, at.x, 0, 0, at.w}, workspace);
  else if (at.turned_w)
    choice.product->run(work, {at.y, at.turned_w(), 0, 0, at.x}, workspace);
  else
    choice.product->run(work, {at.x, at.w, at.bias, at.addend, at.y}, workspace);
}

Choices& Choices::all() {
  static auto* const all = new Choices;
  return *all;
}

std::shared_ptr<const Choice> Choices::of(Work& work, const Tunable& tunable) {
  std::string key = work.gpu().name() + ' ' + tunable.graph.key() + ' ' + std::to_string(tunable.staged);
  if (turned(tunable.graph)) key += " turned";
  if (Gaps::has(tunable.graph)) key += " gaps";
  if (tunable.finish) key += " finish";
  for (const OwnKernel& kernel : tunable.own) key += std::string(" ") + kernel.name;
  const std::lock_guard lock(mutex_);  // timing on two streams at once would disturb both
  const std::pair own_key(work.gpu().ordinal(), key);
  if (const auto found = choices_.find(own_key); found != choices_.end()) return found->second;
  if (work.is_recording()) throw EngineError(FailureCode::internal, "a recorded convolution has not run before.");
  auto choice = read(work, tunable, key);
  if (!choice) choice = choose(work, tunable, key);
  return choices_.emplace(own_key, choice).first->second;
}

}  // namespace openmps::cuda

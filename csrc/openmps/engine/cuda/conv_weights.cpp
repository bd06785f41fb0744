// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/conv_weights.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>
#include <utility>

#include "engine/cuda/families.hpp"
#include "engine/cuda/kernels/conv_product.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/cuda/many_copies.hpp"
#include "engine/failure.hpp"

namespace openmps::cuda {
namespace {

/// Return a copy on the GPU that has arrived there: cuMemcpyHtoD may return earlier, and other streams do not wait for
/// its stream, the default one [CUDA Driver API, API synchronization behavior]. Waiting for the whole context would
/// fail while a thread records a graph.
template <class T>
std::unique_ptr<GpuBlock> copied(Gpu& gpu, const T* values, std::size_t count) {
  auto block = std::make_unique<GpuBlock>(gpu, count * sizeof(T));
  const Driver& driver = gpu.current();
  driver.check(driver.copy_to_device(block->address(), values, count * sizeof(T)), "cuMemcpyHtoD");
  driver.check(driver.synchronize_stream(nullptr), "cuStreamSynchronize");
  return block;
}

}  // namespace

/// A block that a stream fills. Other threads wait for it before they use it.
class GpuWeights::Copy {
 public:
  /// `is_enqueued`: the stream's work fills the block; otherwise call enqueued() when it does. No stream: it is filled.
  Copy(Gpu& gpu, std::unique_ptr<GpuBlock> block, Stream stream, bool is_enqueued = true)
      : gpu_(gpu), block_(std::move(block)), stream_(stream), is_enqueued_(is_enqueued) {
    if (!stream_) return;
    const Driver& driver = gpu_.driver();
    driver.check(driver.create_event(&filled_, kPlainEvent), "cuEventCreate");
    if (is_enqueued) driver.check(driver.record_event(filled_, stream_), "cuEventRecord");
  }
  ~Copy() {
    if (filled_) gpu_.driver().destroy_event(filled_);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  Address address() const { return block_->address(); }
  void enqueued() noexcept {
    gpu_.driver().record_event(filled_, stream_);  // fails only if the context is lost, as the wait does
    is_enqueued_ = true;
    is_enqueued_.notify_all();
  }
  /// Wait for the block, unless `stream` fills it.
  void wait(Stream stream) const {
    if (!filled_ || stream == stream_) return;
    is_enqueued_.wait(false);
    gpu_.driver().check(gpu_.driver().synchronize_event(filled_), "cuEventSynchronize");
  }
  void download(float* to, std::size_t count) const {
    const Driver& driver = gpu_.current();
    wait(nullptr);
    driver.check(driver.copy_to_host(to, address(), count * sizeof(float)), "cuMemcpyDtoH");
  }

 private:
  Gpu& gpu_;
  const std::unique_ptr<GpuBlock> block_;
  const Stream stream_;
  Event filled_ = nullptr;
  std::atomic<bool> is_enqueued_;
};

GpuWeights& GpuWeights::of(Gpu& gpu, const ConvWeights& weights) {
  const std::string key = "cuda " + std::to_string(reinterpret_cast<std::uintptr_t>(&gpu));
  const std::lock_guard lock(weights.cache.mutex);
  std::shared_ptr<void>& entry = weights.cache.entries[key];
  if (!entry) entry = std::make_shared<GpuWeights>(gpu);
  return *static_cast<GpuWeights*>(entry.get());
}

GpuWeights::Key GpuWeights::key_of_values(const ConvWeights& weights) {
  return {Form::weights, weights.in_channels_per_group, Format::float32};
}

layout::ArrangeWeightsArgs GpuWeights::arrangement(const ConvWeights& weights, const Key& key) {
  const i64 inputs = weights.in_channels_per_group, taps = weights.kernel_h * weights.kernel_w;
  const i64 outputs = weights.out_channels, of_group = outputs / weights.groups;
  layout::ArrangeWeightsArgs args{.from = {}, .to = {}, .format = key.format};
  switch (key.form) {
    case Form::weights:
      args.values = taps * outputs * key.channels;
      args.extents = {1, 1, key.channels}, args.known = inputs, args.strides = {inputs, 0, 0, 1};
      break;
    case Form::outputs_last:
      args.values = taps * outputs * inputs;
      args.extents = {1, 1, outputs}, args.known = outputs, args.strides = {1, 0, 0, taps * inputs};
      break;
    case Form::transposed:
      args.values = taps * outputs * inputs;
      args.extents = {inputs, taps, of_group}, args.known = of_group;
      args.first = (taps - 1) * inputs, args.strides = {of_group * taps * inputs, 1, -inputs, taps * inputs};
      break;
    case Form::bias:
      args.values = outputs;
      args.extents = {1, 1, outputs}, args.known = outputs, args.strides = {0, 0, 0, 1};
      break;
    case Form::packed:
    case Form::packed_shifted: break;  // another kernel's
  }
  return args;
}

/// Fill a copy on the calling thread's stream from float32 values in the order of ConvWeights.
std::shared_ptr<GpuWeights::Copy> GpuWeights::made(Work& work, const ConvWeights& weights, const Key& key,
                                                   Address from) {
  if (key.is_packed()) {
    const auto divided_up = [](i64 a, i64 b) { return (a + b - 1) / b; };
    product::PackWeightsArgs args{.from = {from},
                                  .to = {},
                                  .outputs = weights.out_channels,
                                  .rows = weights.kernel_h,
                                  .own = weights.kernel_w * weights.in_channels_per_group,
                                  .row_terms = key.channels,
                                  .before = key.form == Form::packed_shifted ? 1 : 0,
                                  .chunks = divided_up(weights.kernel_h * key.channels, product::kTerms)};
    const i64 vectors = divided_up(weights.out_channels, product::kOutputs) * args.chunks * product::kColumnTiles * 32;
    auto block = std::make_unique<GpuBlock>(gpu_, static_cast<std::size_t>(vectors) * sizeof(product::Halves8));
    args.to = {block->address()};
    work.launch(product::pack_weights, args, vectors);
    return std::make_shared<Copy>(gpu_, std::move(block), work.stream());
  }
  layout::ArrangeWeightsArgs args = arrangement(weights, key);
  auto block = std::make_unique<GpuBlock>(gpu_, static_cast<std::size_t>(args.values) * size_of(key.format));
  args.from = {from}, args.to = {block->address()};
  work.launch(layout::arrange_weights, args, args.values);
  return std::make_shared<Copy>(gpu_, std::move(block), work.stream());
}

Address GpuWeights::copy(const ConvWeights& weights, const Key& key) {
  Work& work = gpu_.work();
  std::unique_lock lock(mutex_);
  asked_.insert(key);
  const auto known = [&](const Key& wanted) {
    const auto found = copies_.find(wanted);
    return found == copies_.end() ? nullptr : found->second;
  };
  // Without the lock: the thread that has to enqueue a copy may load weights that replace these.
  const auto wait_for = [&](const Copy& copy) {
    lock.unlock();
    copy.wait(work.stream());
    lock.lock();
  };
  if (const auto found = known(key)) {
    wait_for(*found);
    return found->address();
  }
  if (work.is_recording()) throw EngineError(FailureCode::internal, "a recorded convolution has not run before.");
  const bool is_bias = key.form == Form::bias;
  const Floats& floats = is_bias ? weights.bias : weights.values;
  const Key as_given = is_bias ? Key{Form::bias, 0, Format::float32} : key_of_values(weights);
  const auto given = known(as_given);
  if (given) wait_for(*given);
  if (const auto made_meanwhile = known(key)) {
    wait_for(*made_meanwhile);
    return made_meanwhile->address();
  }
  std::shared_ptr<Copy> result;
  if (given) {
    result = made(work, weights, key, given->address());
  } else if (key == as_given) {
    result = std::make_shared<Copy>(gpu_, copied(gpu_, floats.data(), floats.size()), nullptr);
  } else {
    const std::unique_ptr<GpuBlock> values = copied(gpu_, floats.data(), floats.size());
    result = made(work, weights, key, values->address());
    work.synchronize();
  }
  copies_[key] = result;
  return result->address();
}

void GpuWeights::load(const ConvWeights& weights, Pointer<const float> values, Pointer<const float> bias,
                      bool round_to_half) {
  Work& work = gpu_.work();
  const Key of_values = key_of_values(weights), of_bias{Form::bias, 0, Format::float32};
  std::set<Key> keys{of_values};
  if (!weights.bias.empty()) keys.insert(of_bias);
  if (const auto replaced = weights.replaced.lock()) {  // which will be asked for, too
    GpuWeights& other = of(gpu_, *replaced);
    const std::lock_guard lock(other.mutex_);
    std::copy_if(other.asked_.begin(), other.asked_.end(), std::inserter(keys, keys.end()),
                 [&](const Key& key) { return !key.is_packed() && (key.form != Form::bias || bias); });
  }
  const std::lock_guard lock(mutex_);
  for (const Key& key : keys) {
    const bool is_bias = key.form == Form::bias;
    layout::ArrangeWeightsArgs args = arrangement(weights, key);
    auto block = std::make_unique<GpuBlock>(gpu_, static_cast<std::size_t>(args.values) * size_of(key.format));
    args.from = is_bias ? bias : values, args.to = {block->address()}, args.rounds = round_to_half && !is_bias;
    const Span from{args.from.address, (is_bias ? weights.bias : weights.values).size() * sizeof(float)},
        to{block->address(), block->bytes()};
    const auto copy = std::make_shared<Copy>(gpu_, std::move(block), work.stream(), /*is_enqueued=*/false);
    copies_[key] = copy;
    ManyCopies::add(work, from, to, [&](ManyCopies& many) {
      many.arrange(args);
      many.then([copy] { copy->enqueued(); });
    });
    const auto leave = [&](const Floats& floats) {
      floats.leave([copy, count = floats.size()](float* host) { copy->download(host, count); });
    };
    if (key == of_values) leave(weights.values);
    if (key == of_bias) leave(weights.bias);
  }
}

Pointer<const float> GpuWeights::values(const ConvWeights& weights) { return {copy(weights, key_of_values(weights))}; }
Pointer<const std::uint16_t> GpuWeights::halves(const ConvWeights& weights) {
  return {padded(weights, weights.in_channels_per_group, Format::float16)};
}
Pointer<const float> GpuWeights::outputs_last(const ConvWeights& weights) {
  return {copy(weights, {Form::outputs_last, 0, Format::float32})};
}
Address GpuWeights::padded(const ConvWeights& weights, std::int64_t channels, Format format) {
  return copy(weights, {Form::weights, channels, format});
}
Address GpuWeights::transposed(const ConvWeights& weights, Format format) {
  return copy(weights, {Form::transposed, 0, format});
}
Address GpuWeights::packed(const ConvWeights& weights, std::int64_t row_terms, bool shifted) {
  return copy(weights, {shifted ? Form::packed_shifted : Form::packed, row_terms, Format::float16});
}
Pointer<const float> GpuWeights::bias(const ConvWeights& weights) {
  return {weights.bias.empty() ? 0 : copy(weights, {Form::bias, 0, Format::float32})};
}
Pointer<const std::uint16_t> GpuWeights::half_bias(const ConvWeights& weights) {
  return {weights.bias.empty() ? 0 : copy(weights, {Form::bias, 0, Format::float16})};
}

namespace {

const char* run_load_weights(const Call<LoadWeightsProblem>& call) {
  const auto& [p, work] = call;
  GpuWeights::of(work.gpu(), *p.weights)
      .load(*p.weights, {work.values(p.values).address}, {work.values(p.bias).address}, p.round_to_half);
  return nullptr;
}
constexpr Implementation<Call<LoadWeightsProblem>> kLoads[] = {{"cuda_load_weights", run_load_weights}};
const ImplementationNames kLoadNames(kLoads);

}  // namespace

bool solve(const LoadWeightsProblem& problem, Work& work) {
  return try_first("load_weights", kLoads, Call<LoadWeightsProblem>{problem, work});
}

Pointer<const std::uint32_t> constant_words(Gpu& gpu, const std::shared_ptr<const std::vector<std::uint32_t>>& words) {
  struct Copy {
    std::weak_ptr<const std::vector<std::uint32_t>> words;
    std::unique_ptr<GpuBlock> block;
  };
  static std::mutex mutex;
  static auto* const all = new std::map<std::pair<const Gpu*, const void*>, Copy>;
  const std::lock_guard lock(mutex);
  std::erase_if(*all, [](const auto& each) { return each.second.words.expired(); });
  Copy& copy = (*all)[{&gpu, words.get()}];
  if (!copy.block) copy = {words, copied(gpu, words->data(), words->size())};
  return {copy.block->address()};
}

}  // namespace openmps::cuda

// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/conv_weights.hpp"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "engine/cuda/families.hpp"
#include "engine/cuda/kernels/conv_product.hpp"
#include "engine/cuda/kernels/conv_stem_pool.hpp"
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

/// A block with one form of the weights.
struct GpuWeights::Copy {
  std::shared_ptr<GpuBlock> block;
  std::shared_ptr<const Filled> filled;  ///< null: it is filled
};

struct GpuWeights::Forms {
  std::mutex mutex;  ///< guards the following
  std::map<Key, Copy> copies;
  std::set<Key> asked;      ///< for which someone has asked since the last load
  std::uint64_t freed = 0;  ///< number of copies
};

GpuWeights::GpuWeights(Gpu& gpu) : gpu_(gpu), forms_(std::make_shared<Forms>()) {}

std::shared_ptr<GpuWeights::Forms> GpuWeights::forms() {
  const std::lock_guard lock(mutex_);
  return forms_;
}

void GpuWeights::describe(Forms& forms, bool with_addresses, std::string& text) {
  const auto append = [&](const auto& value) { text.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const std::lock_guard lock(forms.mutex);
  append(forms.freed);
  if (!with_addresses) return;
  append(forms.copies.size());
  for (const auto& [key, copy] : forms.copies)
    append(key.form), append(key.channels), append(key.format), append(copy.block->address());
}

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
GpuWeights::Key GpuWeights::key_of_bias() { return {Form::bias, 0, Format::float32}; }

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
      args.extents = {taps * inputs, 1, outputs}, args.known = outputs, args.strides = {0, 1, 0, taps * inputs};
      break;
    case Form::transposed:
      args.values = taps * outputs * inputs;
      args.extents = {inputs, taps, of_group}, args.known = of_group;
      args.first = (taps - 1) * inputs, args.strides = {of_group * taps * inputs, 1, -inputs, taps * inputs};
      break;
    case Form::bias:
      args.values = outputs;
      args.extents = {1, 1, outputs}, args.known = outputs, args.strides = {outputs, 0, 0, 1};
      break;
    case Form::packed:
    case Form::packed_shifted:
    case Form::packed_columns:
    case Form::packed_squares:
    case Form::stem: break;  // kernels of their own
  }
  return args;
}

/// How the values are packed.
struct GpuWeights::Packing {
  /// Without addresses.
  static product::PackWeightsArgs of(const ConvWeights& weights, const Key& key) {
    const i64 inputs = weights.in_channels_per_group;
    product::PackWeightsArgs args{.from = {},
                                  .to = {},
                                  .outputs = weights.out_channels,
                                  .rows = weights.kernel_h,
                                  .own = weights.kernel_w * inputs,
                                  .columns = 1,
                                  .reversed = false,
                                  .row_terms = key.channels,
                                  .before = key.form == Form::packed_shifted ? 1 : 0,
                                  .chunks = 0};
    if (key.form == Form::packed_columns) args.own = inputs, args.columns = weights.kernel_w;
    if (key.form == Form::packed_squares)
      args.rows = 1, args.own = inputs, args.columns = weights.kernel_h * weights.kernel_w, args.reversed = true;
    args.chunks = (args.rows * args.row_terms + product::kTerms - 1) / product::kTerms;
    return args;
  }
};

namespace {

i64 vectors_of(const product::PackWeightsArgs& args) {
  const i64 groups = (args.outputs * args.columns + product::kOutputs - 1) / product::kOutputs;
  return groups * args.chunks * product::kColumnTiles * 32;
}

i64 stem_vectors(Format format) {
  using product::stem_pool::Shape, product::stem_pool::Pairs, product::stem_pool::Singles;
  return format == Format::float16 ? Shape<Pairs>::kPackedVectors : Shape<Singles>::kPackedVectors;
}

}  // namespace

std::size_t GpuWeights::bytes(const ConvWeights& weights, const Key& key) {
  if (key.is_stem()) return static_cast<std::size_t>(stem_vectors(key.format)) * sizeof(Halves8);
  if (key.is_packed()) return static_cast<std::size_t>(vectors_of(Packing::of(weights, key))) * sizeof(Halves8);
  return static_cast<std::size_t>(arrangement(weights, key).values) * size_of(key.format);
}

void GpuWeights::fill(Work& work, const ConvWeights& weights, const Key& key, Address from, Address to) {
  if (key.is_packed()) {
    product::PackWeightsArgs args = Packing::of(weights, key);
    args.from = {from}, args.to = {to};
    work.launch(product::pack_weights, args, vectors_of(args));
  } else if (key.is_stem()) {
    work.launch(key.format == Format::float16 ? product::stem_pool::pack_stem_weights
                                              : product::stem_pool::pack_stem_weights_tf32,
                {{from}, {to}, weights.out_channels}, stem_vectors(key.format));
  } else {
    layout::ArrangeWeightsArgs args = arrangement(weights, key);
    args.from = {from}, args.to = {to};
    ManyCopies copies;
    copies.arrange(args);
    copies.launch(work);
  }
}

Address GpuWeights::copy(const ConvWeights& weights, const Key& key) {
  Work& work = gpu_.work();
  const std::shared_ptr<Forms> forms = this->forms();
  std::unique_lock lock(forms->mutex);
  forms->asked.insert(key);
  const auto known = [&](const Key& wanted) {
    const auto found = forms->copies.find(wanted);
    if (found == forms->copies.end()) return Address{0};
    const Copy copy = found->second;
    if (!copy.filled) return copy.block->address();
    // Without the lock: the thread that has to enqueue the work may load weights that replace these.
    lock.unlock();
    copy.filled->wait(work.stream());
    lock.lock();
    return copy.block->address();
  };
  if (const Address address = known(key)) return address;
  if (work.is_recording()) throw EngineError(FailureCode::internal, "a recorded convolution has not run before.");
  const bool is_bias = key.form == Form::bias;
  const Floats& floats = is_bias ? weights.bias : weights.values;
  const Key as_given = is_bias ? key_of_bias() : key_of_values(weights);
  const Address given = known(as_given);
  if (const Address made_meanwhile = known(key)) return made_meanwhile;
  Copy copy;
  const auto uploaded = [&] {
    auto block = copied(gpu_, floats.data(), floats.size());
    floats.release_pages();
    return block;
  };
  if (!given && key == as_given) {
    copy.block = uploaded();
  } else {
    const std::unique_ptr<GpuBlock> values = given ? nullptr : uploaded();
    copy.block = std::make_shared<GpuBlock>(gpu_, bytes(weights, key));
    fill(work, weights, key, values ? values->address() : given, copy.block->address());
    const auto filled = std::make_shared<Filled>(gpu_.driver(), work.stream());
    filled->enqueued();
    copy.filled = filled;
    if (values) work.synchronize();
  }
  forms->copies[key] = copy;
  return copy.block->address();
}

bool GpuWeights::prepare(Work& work, const ConvWeights& weights, bool may_take) {
  const auto replaced = weights.replaced.lock();
  if (!replaced || !may_take || replaced->bias.empty() != weights.bias.empty()) return false;
  GpuWeights &own = of(work.gpu(), weights), &other = of(work.gpu(), *replaced);
  const std::shared_ptr<Forms> forms = other.forms();
  {
    const std::lock_guard lock(other.mutex_);
    if (std::exchange(other.are_taken_, true)) return false;
  }
  {
    const std::lock_guard lock(forms->mutex);
    if (!forms->copies.contains(key_of_values(weights)) ||
        (!weights.bias.empty() && !forms->copies.contains(key_of_bias())))
      return false;
    for (auto& [key, copy] : forms->copies) copy.filled = work.filled();
  }
  {
    const std::lock_guard lock(own.mutex_);
    own.forms_ = forms;
  }
  own.leave(weights, forms);
  return true;
}

void GpuWeights::load(const ConvWeights& weights, Pointer<const float> values, Pointer<const float> bias,
                      bool round_to_half) {
  Work& work = gpu_.work();
  const std::shared_ptr<Forms> forms = this->forms();
  const std::unique_lock lock(forms->mutex);
  std::set<Key> keys = std::exchange(forms->asked, {});
  if (forms->copies.empty())
    if (const auto replaced = weights.replaced.lock()) {  // someone will ask for the same forms
      const std::shared_ptr<Forms> others = of(gpu_, *replaced).forms();
      const std::lock_guard lock_of_others(others->mutex);
      keys.insert(others->asked.begin(), others->asked.end());
    }
  keys.insert(key_of_values(weights));
  if (!weights.bias.empty()) keys.insert(key_of_bias());
  if (!bias) std::erase_if(keys, [](const Key& key) { return key.form == Form::bias; });
  if (work.is_recording()) {
    for (const auto& [key, copy] : forms->copies) keys.insert(key);
  } else {
    std::erase_if(forms->copies, [&](const auto& each) {
      if (keys.contains(each.first)) return false;
      work.keep(each.second.block);
      ++forms->freed;
      return true;
    });
  }
  for (const Key& key : keys) {
    Copy& copy = forms->copies[key];
    if (!copy.block) copy.block = std::make_shared<GpuBlock>(gpu_, bytes(weights, key));
    copy.filled = work.filled();
    const Pointer<const float> from = key.form == Form::bias ? bias : values;
    const Address to = copy.block->address();
    if (key.is_packed() || key.is_stem()) {
      fill(work, weights, key, from.address, to);
      continue;
    }
    const std::size_t count = (key.form == Form::bias ? weights.bias : weights.values).size();
    layout::ArrangeWeightsArgs args = arrangement(weights, key);
    args.from = from, args.to = {to}, args.rounds = round_to_half && key.form != Form::bias;
    ManyCopies::add(work, {from.address, count * sizeof(float)}, {to, copy.block->bytes()},
                    [&](ManyCopies& many) { many.arrange(args); });
  }
  leave(weights, forms);
  if (!work.gathers()) work.end_list();
}

void GpuWeights::leave(const ConvWeights& weights, const std::shared_ptr<Forms>& forms) {
  const auto leave_floats = [&](const Floats& floats, const Key& key) {
    if (floats.empty()) return;
    floats.leave([&gpu = gpu_, forms, key, count = floats.size()](float* host) {
      Copy copy;
      {
        const std::lock_guard lock(forms->mutex);
        copy = forms->copies.at(key);
      }
      const Driver& driver = gpu.current();
      if (copy.filled) copy.filled->wait(nullptr);
      driver.check(driver.copy_to_host(host, copy.block->address(), count * sizeof(float)), "cuMemcpyDtoH");
    });
  };
  leave_floats(weights.values, key_of_values(weights));
  leave_floats(weights.bias, key_of_bias());
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
Address GpuWeights::packed_columns(const ConvWeights& weights, std::int64_t row_terms) {
  return copy(weights, {Form::packed_columns, row_terms, Format::float16});
}
Address GpuWeights::packed_squares(const ConvWeights& weights) {
  return copy(weights, {Form::packed_squares, weights.in_channels_per_group, Format::float16});
}
Address GpuWeights::stem(const ConvWeights& weights, Format format) { return copy(weights, {Form::stem, 0, format}); }
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

// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/convolution/onednn/compiled.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstring>

#include "engine/cpu/convolution/onednn/filter_layout.hpp"
#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

void check(dnnl_status_t status, const char* what) {
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  if (status != dnnl_success) {
    throw std::runtime_error(std::string("oneDNN could not ") + what + " (status " + std::to_string(status) + ").");
  }
}

/// Return whether the processor has an instruction set, and ONEDNN_MAX_CPU_ISA does not exclude it.
bool allows(dnnl::cpu_isa isa) {
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

#if defined(__x86_64__)
/// Return the family of an AMD processor with AVX-512, 0 for others.
unsigned amd_family() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!has_avx512() || !__builtin_cpu_is("amd") || !__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return 0;
  return ((eax >> 8) & 15) + ((eax >> 20) & 255);
}

/// Return whether the processor is Intel's Sapphire Rapids or later: those with AVX512_FP16. There, an instruction of
/// vectors of bfloat16 takes as long as four of float32 (docs/performance.md); those of tiles are fast.
bool has_slow_pairs() { return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512fp16"); }
#else
bool has_slow_pairs() { return false; }
#endif

std::shared_ptr<void> owned(Scratch scratch) {
  auto holder = std::make_shared<Scratch>(std::move(scratch));
  return {holder, holder->data()};
}

}  // namespace

dnnl::engine& onednn_engine() {
  static auto* const engine = [] {
    // Make oneDNN's cache of primitives here, before threads use it: ThreadSanitizer does not see the guard of a static
    // variable in a library that is not instrumented.
    dnnl::get_primitive_cache_capacity();
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *engine;
}

const std::string& onednn_version() {
  static const auto* const text = [] {
    const dnnl_version_t* v = dnnl_version();
    return new std::string(std::to_string(v->major) + "." + std::to_string(v->minor));
  }();
  return *text;
}

bool multiplies_tiles() {
  static const bool result = allows(dnnl::cpu_isa::avx512_core_amx);
  return result;
}

bool multiplies_bfloat16() {
  static const bool result = allows(dnnl::cpu_isa::avx512_core_bf16) && (multiplies_tiles() || !has_slow_pairs());
  return result;
}

bool multiplies_bytes() {
  static const bool result = allows(dnnl::cpu_isa::avx512_core_vnni);
  return result;
}

#if defined(__x86_64__)
bool has_avx512() {
  static const bool result = allows(dnnl::cpu_isa::avx512_core);
  return result;
}

bool is_zen4() {
  static const bool result = amd_family() == 25;  // the only ones of this family with AVX-512
  return result;
}

bool is_zen5() {
  static const bool result = amd_family() == 26;
  return result;
}

bool has_avx2() {
  static const bool result = allows(dnnl::cpu_isa::avx2) && __builtin_cpu_supports("fma");
  return result;
}
#endif

Compiled::Compiled(dnnl::primitive primitive, dnnl::memory::desc src, dnnl::memory::desc dst,
                   dnnl::memory::desc scratchpad, std::vector<Fixed> fixed, std::vector<Borrowed> borrowed, int threads,
                   std::shared_ptr<void> owner)
    : primitive_(std::move(primitive)),
      src_(std::move(src)),
      dst_(std::move(dst)),
      scratchpad_(std::move(scratchpad)),
      fixed_(std::move(fixed)),
      borrowed_(std::move(borrowed)),
      threads_(threads),
      scratchpad_bytes_(scratchpad_.get_size()),
      owner_(std::move(owner)) {}

Compiled::~Compiled() = default;

std::unique_ptr<Compiled::Context> Compiled::make_context() const {
  auto context = std::make_unique<Context>();
  context->stream = dnnl::stream(onednn_engine());
  const auto add = [&](int argument, const dnnl::memory::desc& desc, const void* data) {
    dnnl::memory memory(desc, onednn_engine(), const_cast<void*>(data));
    context->arguments.push_back({argument, memory.get()});
    return memory;
  };
  context->src = add(DNNL_ARG_SRC, src_, nullptr);
  context->dst = add(DNNL_ARG_DST, dst_, nullptr);
  if (scratchpad_bytes_) context->scratchpad = add(DNNL_ARG_SCRATCHPAD, scratchpad_, nullptr);
  for (const Borrowed& borrowed : borrowed_)
    context->borrowed.push_back(add(borrowed.argument, borrowed.desc, nullptr));
  for (const Fixed& fixed : fixed_) context->fixed.push_back(add(fixed.argument, fixed.desc, fixed.data));
  return context;
}

void Compiled::run(const CallArguments& arguments) {
  std::unique_ptr<Context> context;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      context = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!context) context = make_context();
  const Scratch scratchpad(scratchpad_bytes_);
  context->src.set_data_handle(arguments.src);
  context->dst.set_data_handle(arguments.dst);
  if (scratchpad_bytes_) context->scratchpad.set_data_handle(scratchpad.data());
  for (std::size_t i = 0; i < borrowed_.size(); ++i) {
    const void* data = borrowed_[i].what == Borrowed::slopes ? arguments.slopes : arguments.addend;
    context->borrowed[i].set_data_handle(const_cast<void*>(data));
  }
  {
    const ThreadLimit limit(threads_);
    check(dnnl_primitive_execute(primitive_.get(), context->stream.get(), static_cast<int>(context->arguments.size()),
                                 context->arguments.data()),
          "run a primitive");
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(context));
}

WeightsCache& WeightsCache::of(const ConvWeights& weights) {
  const std::lock_guard lock(weights.cache.mutex);
  std::shared_ptr<void>& entry = weights.cache.entries["onednn"];
  if (!entry) entry = std::make_shared<WeightsCache>(weights.in_place);
  return *static_cast<WeightsCache*>(entry.get());
}

std::shared_ptr<void> WeightsCache::packed(const ConvWeights& weights, const dnnl::memory::desc& wanted,
                                           bool with_groups, bool rotated) {
  std::erase_if(packed_, [](const Packed& p) { return p.data.expired(); });
  for (const Packed& p : packed_) {
    if (p.rotated != rotated || p.desc != wanted) continue;
    if (auto data = p.data.lock()) return data;
  }
  const std::int64_t g = weights.groups, o = weights.out_channels / g, i = weights.in_channels_per_group;
  const std::int64_t kh = weights.kernel_h, kw = weights.kernel_w;
  using dnnl::memory;
  const auto type = memory::data_type::f32;
  const std::int64_t per_output = kh * kw * i;
  // OHWI in oneDNN's logical order: (group,) output, input, row, column.
  const memory::desc given =
      with_groups ? memory::desc({g, o, i, kh, kw}, type, memory::dims{o * per_output, per_output, 1, kw * i, i})
                  : memory::desc({g * o, i, kh, kw}, type, memory::dims{per_output, 1, kw * i, i});
  Scratch block = weights_are_in_place_ ? Scratch(wanted.get_size()) : Scratch::to_keep(wanted.get_size());
  const float* values = weights.values.data();
  const auto keep = [&] {
    weights.values.release_pages();
    auto data = owned(std::move(block));
    packed_.push_back({wanted, rotated, data});
    return data;
  };
  const auto pack = with_groups ? pack_depthwise_filter : pack_filter;
  if (!rotated && pack(values, block.data(), wanted)) return keep();
  Scratch turned;
  if (rotated) {
    turned = Scratch(weights.values.size() * 4);
    auto* to = reinterpret_cast<float*>(turned.data());
    for (std::int64_t f = 0; f < g * o; ++f) {
      for (std::int64_t tap = 0; tap < kh * kw; ++tap) {
        std::memcpy(to + f * per_output + tap * i, values + f * per_output + (kh * kw - 1 - tap) * i,
                    static_cast<std::size_t>(i) * 4);
      }
    }
    values = to;
  }
  memory from(given, onednn_engine(), const_cast<float*>(values)), to(wanted, onednn_engine(), block.data());
  dnnl::stream stream(onednn_engine());
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
  return keep();
}

std::shared_ptr<void> WeightsCache::kept(const ConvWeights& weights, const dnnl::memory::desc& wanted,
                                         bool with_groups) {
  constexpr std::size_t kMost = 4;
  const std::lock_guard lock(mutex_);
  auto data = packed(weights, wanted, with_groups, false);
  if (weights_are_in_place_) return data;
  std::erase(kept_, data);
  kept_.insert(kept_.begin(), data);
  if (kept_.size() > kMost) kept_.pop_back();
  return data;
}

}  // namespace openmps::cpu

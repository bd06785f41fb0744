// SPDX-License-Identifier: Apache-2.0
// A oneDNN primitive ready to run: memory objects are made once and borrowed by one caller at a time, so that a call
// costs a lock, a few pointers and the primitive itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <dnnl.hpp>

#include "engine/cpu/runtime.hpp"
#include "engine/problem/conv.hpp"

namespace openmps::cpu {

dnnl::engine& onednn_engine();

/// Arguments of all primitives here; unused ones are null.
struct CallArguments {
  void* src = nullptr;
  void* dst = nullptr;
  const void* slopes = nullptr;  ///< of a prelu post-op
  const void* addend = nullptr;  ///< of a binary post-op
};

class Compiled {
 public:
  struct Fixed {
    int argument;
    dnnl::memory::desc desc;
    const void* data;
  };
  /// Input of a post-op, passed with each call.
  struct Borrowed {
    int argument;
    dnnl::memory::desc desc;
    enum What : std::uint8_t { slopes, addend } what;
  };
  /// `fixed`: weights and bias, which live as long as `owner`.
  Compiled(dnnl::primitive primitive, dnnl::memory::desc src, dnnl::memory::desc dst, dnnl::memory::desc scratchpad,
           std::vector<Fixed> fixed, std::vector<Borrowed> borrowed, int threads, std::shared_ptr<void> owner);
  ~Compiled();
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  /// Safe from several threads at once.
  void run(const CallArguments& arguments);

  Format src_format() const { return format_of(src_); }
  Format dst_format() const { return format_of(dst_); }
  Format addend_format = Format::float32;
  bool neuron_is_fused = false;  ///< otherwise the caller applies it, and the bias unless that is fused
  bool bias_is_fused = true;

 private:
  static Format format_of(const dnnl::memory::desc& desc) {
    switch (desc.get_data_type()) {
      case dnnl::memory::data_type::bf16: return Format::bfloat16;
      case dnnl::memory::data_type::u8: return Format::unorm8;
      default: return Format::float32;
    }
  }

  struct Context {
    dnnl::stream stream;
    dnnl::memory src, dst, scratchpad;
    std::vector<dnnl::memory> fixed, borrowed;
    std::vector<dnnl_exec_arg_t> arguments;
  };
  std::unique_ptr<Context> make_context() const;

  const dnnl::primitive primitive_;
  const dnnl::memory::desc src_, dst_, scratchpad_;
  const std::vector<Fixed> fixed_;
  const std::vector<Borrowed> borrowed_;
  const int threads_;
  const std::size_t scratchpad_bytes_;
  const std::shared_ptr<void> owner_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Context>> idle_;
};

/// Data derived from one set of weights; kept in ConvWeights::cache.
class WeightsCache {
 public:
  static constexpr std::size_t kKeyWords = 24;
  static constexpr std::size_t kMaxEntries = 16;
  using Key = std::array<std::int64_t, kKeyWords>;

  explicit WeightsCache(bool weights_are_in_place) : weights_are_in_place_(weights_are_in_place) {}
  static WeightsCache& of(const ConvWeights& weights);

  /// Return the entry for a key; make it with `make` if it is missing. Also keeps a null result of `make`. Weights that
  /// are in place have no entries: the caller frees the packed copy with the result.
  template <class Make>
  std::shared_ptr<Compiled> find(const Key& key, const Make& make) {
    const std::lock_guard lock(mutex_);
    if (weights_are_in_place_) return make();
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].key != key) continue;
      if (i > 0)
        std::rotate(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(i),
                    entries_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return entries_.front().compiled;
    }
    std::shared_ptr<Compiled> compiled = make();
    entries_.insert(entries_.begin(), {key, compiled});
    if (entries_.size() > kMaxEntries) entries_.pop_back();
    return compiled;
  }

  /// Return the weights in the layout `wanted`, shared by all entries with that layout. Call only from find()'s `make`.
  /// `rotated`: both kernel axes are reversed.
  std::shared_ptr<void> packed(const ConvWeights& weights, const dnnl::memory::desc& wanted, bool with_groups,
                               bool rotated);
  /// The same for callers outside of find(), not rotated; kept for the next call unless the weights are in place.
  std::shared_ptr<void> kept(const ConvWeights& weights, const dnnl::memory::desc& wanted, bool with_groups);

 private:
  struct Entry {
    Key key;
    std::shared_ptr<Compiled> compiled;
  };
  struct Packed {
    dnnl::memory::desc desc;
    bool rotated;
    std::weak_ptr<void> data;
  };
  const bool weights_are_in_place_;
  std::mutex mutex_;
  std::vector<Entry> entries_;  ///< most recently used first
  std::vector<Packed> packed_;
  std::vector<std::shared_ptr<void>> kept_;  ///< most recently used first
};

}  // namespace openmps::cpu

// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/structure.hpp"

#include <atomic>
#include <cstring>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

constexpr std::size_t kBytesPerCommand = 512;  // estimate

template <class T>
constexpr bool is_shared = false;
template <class T>
constexpr bool is_shared<std::shared_ptr<T>> = true;

/// Serializes the fields of a list. Memory blocks become indices in order of first appearance. Each reference is put
/// once: a reference that is not a field makes its block look shared.
class KeyWriter {
 public:
  explicit KeyWriter(std::size_t commands) {
    result_.key.resize(kBytesPerCommand * commands);
    result_.blocks.reserve(2 * commands);
    result_.uses.reserve(4 * commands);
    result_.uses_ends.reserve(commands);
  }

  template <class T>
  void put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      put_bytes(&value, sizeof(value));
    } else if constexpr (is_vector<T>) {
      put(value.size());
      for (const auto& each : value) put(each);
    } else if constexpr (is_shared<T>) {
      put(value != nullptr);
    } else {
      for_each_field(value, [&](const auto& field, const auto& member) {
        if (field.role != FieldRole::value) put(member);
      });
    }
  }
  void put(const std::shared_ptr<Memory>& memory) {
    constexpr std::uint32_t kNone = 0xffffffff;
    const std::uint32_t index = memory ? index_of(memory) : kNone;
    put(index);
    if (index == kNone) return;
    ++result_.blocks[index].references;
    result_.uses.push_back(index);
  }
  void put(const ImageView& view) {
    put(view.memory);
    put(view.format);
    const std::int64_t values[] = {static_cast<std::int64_t>(view.offset),
                                   view.n,
                                   view.h,
                                   view.w,
                                   view.c,
                                   view.n_stride,
                                   view.h_stride,
                                   view.w_stride};
    put_bytes(values, sizeof(values));
  }
  void put(const std::shared_ptr<const ConvWeights>& weights) {
    put(weights->out_channels), put(weights->in_channels_per_group), put(weights->groups), put(weights->bias.empty());
  }
  void put(const std::shared_ptr<const BinaryWeights>& weights) {
    put(weights->type), put(weights->in_channels), put(weights->uses_beta);
  }
  void put(const HostTask&) {}

  /// Call after the last field of a command.
  void end_command() { result_.uses_ends.push_back(static_cast<std::uint32_t>(result_.uses.size())); }

  Structure take() {
    std::unordered_set<const Memory*> roots;  // of parts
    for (const Structure::Block& block : result_.blocks)
      if (&block.memory->root() != block.memory) roots.insert(&block.memory->root());
    for (std::size_t i = 0; i < shared_.size(); ++i) {
      Structure::Block& block = result_.blocks[i];
      block.is_apart = block.memory->is_allocated_by_owner() && !roots.contains(block.memory);
      block.is_private = block.memory->owner() && shared_[i]->use_count() == static_cast<long>(block.references);
      block.is_fresh = block.is_private && !block.memory->is_allocated();
      put(block.is_private);
      put(block.is_fresh);
      put(block.is_apart);
      put(block.memory->storage());
      put(block.memory->size());
    }
    // Pairs with the release of references that other threads dropped.
    std::atomic_thread_fence(std::memory_order_acquire);
    result_.key.resize(length_);
    return std::move(result_);
  }

 private:
  std::uint32_t index_of(const std::shared_ptr<Memory>& memory) {
    const auto last = result_.blocks.size();
    const std::size_t recent = last < kRecent ? last : kRecent;  // usually the result of the previous command
    for (std::size_t i = 1; i <= recent; ++i) {
      if (result_.blocks[last - i].memory == memory.get()) return static_cast<std::uint32_t>(last - i);
    }
    const auto [found, is_new] = order_.try_emplace(memory.get(), static_cast<std::uint32_t>(last));
    if (is_new) {
      result_.blocks.push_back({memory.get()});
      shared_.push_back(&memory);
    }
    return found->second;
  }

  void put_bytes(const void* bytes, std::size_t count) {
    if (result_.key.size() - length_ < count) result_.key.resize(2 * result_.key.size() + count);
    std::memcpy(result_.key.data() + length_, bytes, count);
    length_ += count;
  }

  static constexpr std::size_t kRecent = 4;
  Structure result_;
  std::size_t length_ = 0;  ///< used bytes of the key, whose buffer is larger
  std::vector<const std::shared_ptr<Memory>*> shared_;
  std::unordered_map<const Memory*, std::uint32_t> order_;
};

}  // namespace

Structure describe(const std::vector<Command>& commands) {
  KeyWriter writer(commands.size());
  for (const Command& command : commands) {
    writer.put(static_cast<std::uint8_t>(command.problem.index()));
    std::visit([&](const auto& problem) { writer.put(problem); }, command.problem);
    writer.end_command();
  }
  return writer.take();
}

}  // namespace openmps

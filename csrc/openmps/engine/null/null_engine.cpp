// SPDX-License-Identifier: Apache-2.0
#include "engine/null/null_engine.hpp"

#include <atomic>
#include <cstring>

#include "engine/problem/problem.hpp"
#include "engine/shared/block_allocator.hpp"
#include "engine/shared/machine.hpp"
#include "engine/shared/pixels.hpp"
#include "engine/shared/strided.hpp"

namespace openmps {
namespace {

class NullEngine final : public Engine {
 public:
  const char* name() const override { return "null"; }
  std::string device_name() const override { return "null device"; }
  std::uint64_t working_set_limit() const override { return machine_memory_bytes(); }

  std::byte* allocate(std::size_t bytes, Storage) override {
    std::byte* data = allocator_.allocate(bytes);
    std::memset(data, 0, bytes);
    return data;
  }
  void deallocate(std::byte* data, std::size_t bytes, Storage) noexcept override { allocator_.deallocate(data, bytes); }
  MemoryUse memory_use() const override { return memory_use_of(allocator_); }
  void reset_peak_bytes() override { allocator_.reset_peak_bytes(); }
  void free_cached_bytes() override { allocator_.trim(0); }

  /// Copy between buffers, textures and arrays; ignore all other problems.
  bool try_run(const Problem& problem) override {
    if (const auto* copy = std::get_if<BufferCopyProblem>(&problem))
      std::memmove(copy->dst->data() + copy->dst_offset, copy->src->data() + copy->src_offset, copy->bytes);
    else if (const auto* fill = std::get_if<BufferFillProblem>(&problem))
      std::memset(fill->dst->data() + fill->offset, fill->value, fill->bytes);
    else if (const auto* pixels = std::get_if<PixelCopyProblem>(&problem))
      copy_pixels(*pixels);
    else if (const auto* elements = std::get_if<StridedCopyProblem>(&problem))
      copy_strided(*elements);
    return true;
  }
  void synchronize() override {}

 private:
  BlockAllocator allocator_{machine_memory_bytes(), 64u << 20};
};

}  // namespace

std::shared_ptr<Engine> make_null_engine() { return std::make_shared<NullEngine>(); }

}  // namespace openmps

// SPDX-License-Identifier: Apache-2.0
#include "metal/block.hpp"

#include <Block.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace openmps {
namespace {

// Block Implementation Specification (Clang documentation, "Block-ABI-Apple").
struct Descriptor {
  unsigned long reserved, size;
  void (*copy_helper)(void* dst, const void* src);  ///< with kHasCopyDispose
  void (*dispose_helper)(const void* src);
};
struct Layout {
  void* isa;
  std::int32_t flags, reserved;
  void (*invoke)(void*, ...);
  Descriptor* descriptor;
};
constexpr std::int32_t kNeedsFree = 1 << 24, kHasCopyDispose = 1 << 25, kIsGlobal = 1 << 28;

}  // namespace

std::shared_ptr<const void> copy_block(const void* block) {
  if (!block) return {};
  const auto* layout = static_cast<const Layout*>(block);
  if (const void* copy = _Block_copy(block); copy != block || (layout->flags & (kNeedsFree | kIsGlobal))) {
    return {copy, [](const void* pointer) { _Block_release(pointer); }};
  }
  auto* copy = static_cast<Layout*>(std::malloc(layout->descriptor->size));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, block, layout->descriptor->size);
  copy->flags |= kNeedsFree | 2;  // a reference count of 1, in steps of 2
  if (copy->flags & kHasCopyDispose) copy->descriptor->copy_helper(copy, block);
  return {copy, [](const void* pointer) {
            const auto* dying = static_cast<const Layout*>(pointer);
            if (dying->flags & kHasCopyDispose) dying->descriptor->dispose_helper(pointer);
            std::free(const_cast<void*>(pointer));
          }};
}

}  // namespace openmps

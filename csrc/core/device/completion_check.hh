// SPDX-License-Identifier: Apache-2.0
// Command buffers that fail when a file that they read became shorter. Where the device copies weights and arrays, the
// copy reports it; where memory is shared, the platform offers the method below.
#pragma once

#include <mpscnn/watched_memory.hpp>

#include <initializer_list>
#include <memory>

#include "core/device/device_impl.hh"
#include "core/device/objc_scope.hh"

@protocol UsedMemory
/// Register a check before commit. It runs when the work is done: the message it returns makes the command buffer
/// fail; nil: the memory is intact.
- (void)useMemory:(nonnull const void *)memory
           length:(NSUInteger)length
            check:(nonnull NSString *_Nullable (*)(const void *_Nonnull, NSUInteger))check;
@end

namespace mpscnn {

/// Return why work that read the memory has failed, or nil. Kernels have packed their weights by then.
inline NSString *loss_at(const void *memory, NSUInteger length) {
  flush_released_pages();
  const auto loss = loss_in({memory, length});
  return loss.empty() ? nil : ns(loss);
}

/// Check `memory`, which work encoded to `commands` reads or writes, on completion. `owner` is kept until then.
inline void check_file_of(id<MTLCommandBuffer> commands, const MemoryRange &memory, std::shared_ptr<void> owner) {
  if (memory.bytes == 0 || ![commands respondsToSelector:@selector(useMemory:length:check:)]) return;
  [static_cast<id<UsedMemory>>(static_cast<id>(commands)) useMemory:memory.data length:memory.bytes check:loss_at];
  [commands addCompletedHandler:^(id<MTLCommandBuffer>) {
    (void)owner;
  }];
}

/// Same as check_file_of() for the arrays that the images share.
inline void check_files_of(id<MTLCommandBuffer> commands, std::initializer_list<const Image *> images) {
  if (!WatchedMemory::is_any()) return;
  for (const Image *image : images)
    if (const auto &shared = image->impl().shared) check_file_of(commands, memory_of(*shared), shared->owner);
}

}  // namespace mpscnn

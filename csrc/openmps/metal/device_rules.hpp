// SPDX-License-Identifier: Apache-2.0
// Rules that devices enforce besides computing: openmps's own, or Apple's with MPSCNN_DEVICE=apple.
#pragma once

#include <cstddef>
#include <string>

namespace openmps {

struct DeviceRules {
  /// Objects respond to selectors beyond Apple's interface: images over the program's memory, borrowed weights, ...
  bool has_extensions;
  /// Managed storage has separate copies for the CPU and the GPU, and is the default of images, textures and states
  /// [MTLResource.h, MPSImage.h]. False: memory is unified, and shared storage is the default.
  bool copies_managed_storage;
  /// A command buffer counts toward the queue's max when it is made [MTLDevice.h]. False: when it is committed.
  bool counts_open_command_buffers;
  /// Freeing a temporary with a readCount above 0 is a breach, as under Metal's validation [MPSImage.h]. False: commit
  /// raises while there is one.
  bool asserts_reads_of_freed_temporaries;
  /// Completion handlers run on their own thread, and -waitUntilCompleted does not wait for them. False: they run on
  /// the thread that did the work, before -waitUntilCompleted returns.
  bool calls_handlers_apart;
  /// A state for a gradient kernel may describe an MPSImage with several images. False: kernels make one state for each
  /// image of a batch [MPSCNNKernel.h], and refuse others.
  bool has_states_of_several_images;
  /// Element-wise kernels may write to their source. False: no kernel does [MPSCNNKernel.h].
  bool writes_in_place;
  /// Bytes; alignment of memory that buffers share with the program.
  std::size_t page_size;
};

/// Return the rules of all devices of the process (MPSCNN_DEVICE).
const DeviceRules& device_rules() noexcept;

/// Keep a breach that cannot be raised where it happens, in -dealloc. Metal's validation aborts; here it is raised when
/// the next command buffer is made or committed, and a process that ends before that has status 1.
void note_breach(std::string sentence) noexcept;
/// Remove and return the first kept breach; "" if there is none.
std::string take_breach() noexcept;

}  // namespace openmps

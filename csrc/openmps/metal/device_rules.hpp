// SPDX-License-Identifier: Apache-2.0
// What devices offer and enforce beyond computing: openmps' own rules, or Apple's with MPSCNN_DEVICE=apple.
#pragma once

#include <cstddef>
#include <string>

namespace openmps {

struct DeviceRules {
  /// Objects answer to selectors beyond Apple's interface: images over the program's memory, borrowed weights, ...
  bool has_extensions;
  /// Managed storage is one block for the CPU and one for the GPU, and the default of images, textures and states
  /// [MTLResource.h, MPSImage.h]. False: memory is one, and shared storage the default.
  bool copies_managed_storage;
  /// A command buffer takes one of the queue's places when it is made [MTLDevice.h]. False: when it is committed.
  bool counts_open_command_buffers;
  /// Temporaries that are freed with a readCount above 0 fail, as under Metal's validation [MPSImage.h]. False: commit
  /// refuses while there are any.
  bool asserts_reads_of_freed_temporaries;
  /// Completion handlers run on a thread of their own, and -waitUntilCompleted does not wait for them. False: on the
  /// thread that did the work, before -waitUntilCompleted returns.
  bool calls_handlers_apart;
  /// A state for a gradient kernel may be of an MPSImage with several images. False: kernels leave one for each image
  /// of a batch [MPSCNNKernel.h], and refuse others.
  bool has_states_of_several_images;
  /// Bytes; for memory that buffers share with the program.
  std::size_t page_size;
};

/// Of all devices of the process: MPSCNN_DEVICE.
const DeviceRules& device_rules() noexcept;

/// A breach that cannot be raised where it happens, in -dealloc. Metal's validation aborts; here the next command
/// buffer that is made or committed raises the sentence, and a process that ends before has status 1.
void note_breach(std::string sentence) noexcept;
/// The first breach that has not been taken, or "".
std::string take_breach() noexcept;

}  // namespace openmps

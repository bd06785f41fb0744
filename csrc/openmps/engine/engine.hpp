// SPDX-License-Identifier: Apache-2.0
// Engine: solves problems and owns the memory of images.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/problem/problem.hpp"

namespace openmps {

/// Solves problems. try_run() is called by one thread at a time per queue; several queues may call at once. It may
/// return before the work is done (then work is done in order); synchronize() waits for the calling thread's work. It
/// throws std::bad_alloc, or std::runtime_error with a sentence, when the device fails, never for a shape.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  virtual ~Engine() = default;

  virtual const char* name() const = 0;                 ///< "cpu", "null", ...
  virtual std::string device_name() const = 0;          ///< what MTLDevice.name answers
  virtual std::uint64_t working_set_limit() const = 0;  ///< bytes the device should not exceed

  /// Page-aligned block of at least `bytes` (> 0), host-visible, contents undefined. Throws std::bad_alloc.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void deallocate(std::byte* data, std::size_t bytes) noexcept = 0;
  virtual std::uint64_t allocated_bytes() const = 0;  ///< in blocks that are in use
  virtual std::uint64_t peak_bytes() const = 0;       ///< the most that was since reset_peak_bytes()
  virtual void reset_peak_bytes() = 0;
  virtual std::uint64_t cached_bytes() const = 0;  ///< in free blocks that are kept
  virtual void free_cached_bytes() = 0;

  /// Step between neighbouring pixels of an image made by the engine, elements, >= channels.
  virtual std::int64_t channel_stride(Format format, std::int64_t channels) const = 0;

  /// Solve the problem, or return false and do nothing: the processor's engine solves it then. HostTask is not for
  /// engines.
  virtual bool try_run(const Problem& problem) = 0;
  virtual void synchronize() = 0;
};

/// The engines built into this library, the default first, the null engine last; made once per process.
/// MPSCNN_ENGINE=<name> in the environment moves that one to the front.
const std::vector<std::shared_ptr<Engine>>& engines();

/// The engine that solves every problem and whose memory every engine's problems may use.
const std::shared_ptr<Engine>& processor_engine();

}  // namespace openmps

// SPDX-License-Identifier: Apache-2.0
// Engine: solves problems and owns the memory of images.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps {

class Steps;

/// A list that an engine has begun and not finished.
class Run {
 public:
  virtual ~Run() = default;
  /// Wait until all steps have ended. Throws what the first failed step threw.
  virtual void wait() = 0;
  /// The step that failed; known after wait().
  virtual std::size_t failed_step() const = 0;
};

/// Solves problems. start() and try_run() are called by one thread at a time per queue; several queues may call at
/// once. Failures throw std::bad_alloc or EngineError with a sentence, never for a shape.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  virtual ~Engine() = default;

  virtual const char* name() const = 0;                 ///< "cpu", "null", ...
  virtual std::string device_name() const = 0;          ///< MTLDevice.name
  virtual std::uint64_t working_set_limit() const = 0;  ///< bytes the device should not exceed

  /// Where images and private buffers lie. With Storage::device, images cannot use memory of the program.
  virtual Storage image_storage() const { return Storage::host; }
  /// Page-aligned block of at least `bytes` (> 0), contents undefined. Throws std::bad_alloc.
  virtual std::byte* allocate(std::size_t bytes, Storage storage) = 0;
  virtual void deallocate(std::byte* address, std::size_t bytes, Storage storage) noexcept = 0;
  virtual MemoryUse memory_use() const = 0;
  virtual void reset_peak_bytes() = 0;
  virtual void free_cached_bytes() = 0;
  /// Copy between the host and memory of Storage::device that no work uses; return when it is done.
  virtual void download(void* to, const std::byte* from, std::size_t bytes);
  virtual void upload(std::byte* to, const void* from, std::size_t bytes);

  /// Step between neighbouring pixels of an image made by the engine, elements, >= channels.
  virtual std::int64_t channel_stride(Format, std::int64_t channels) const { return channels; }

  /// Whether `next`, which reads the result of `conv` alone, may be computed in the same call.
  virtual bool fuses(const ConvProblem& conv, const Problem& next) const;
  /// Whether a convolution that adds an image may store its result over that image.
  virtual bool adds_in_place() const { return true; }

  /// Solve the problem, or return false and do nothing: the processor's engine solves it then. May return before the
  /// work is done; work is done in order. HostTask is not for engines.
  virtual bool try_run(const Problem& problem) = 0;
  /// Wait until the work of the calling thread is done.
  virtual void synchronize() = 0;
  /// Run the steps of a list, or begin to: the result is null if they are done.
  virtual std::unique_ptr<Run> start(Steps& steps);
};

/// The engine of that name: "cpu", "null" or "split". Made once per process, when it is first asked for. Null: there
/// is none.
std::shared_ptr<Engine> engine_of(const std::string& name);

/// Names of the engines built into this library, the default first: the one that MPSCNN_ENGINE names, or "cpu". Throws
/// std::runtime_error if MPSCNN_ENGINE names none.
std::vector<std::string> engine_names();

/// The engine that solves every problem.
const std::shared_ptr<Engine>& processor_engine();

}  // namespace openmps

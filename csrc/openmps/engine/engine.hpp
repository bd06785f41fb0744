// SPDX-License-Identifier: Apache-2.0
// Engine: solves problems and owns the memory of images.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/memory.hpp"
#include "engine/problem/fwd.hpp"

namespace openmps {

class Steps;

/// Type and number of a device [dlpack.h, DLDevice].
struct DLPackDevice {
  std::int32_t type = 1, number = 0;  ///< 1: kDLCPU
};

/// A list that an engine has started and not finished.
class Run {
 public:
  virtual ~Run() = default;
  /// Wait until all steps have ended. Throws the exception of the first failed step. Several threads may wait.
  virtual void wait() = 0;
  /// Return the failed step; known after wait().
  virtual std::size_t failed_step() const = 0;
  /// Return how long the device worked, in seconds, by its own clock; known after wait(). Nothing if it has none.
  virtual std::optional<double> device_seconds() const { return std::nullopt; }
};

/// A point in the work of an engine, for which the work of others can wait.
class Marker {
 public:
  virtual ~Marker() = default;
};

/// Adjacent steps of a list, from one on.
struct StepGroup {
  std::size_t count = 1;
  bool stores_images = true;  ///< between the steps; if not, the plan places none of them in its arena
};

/// Solves problems. start() and try_run() are called by one thread at a time per queue; several queues may call at
/// once. Failures throw std::bad_alloc or EngineError with a sentence; no shape is refused.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  virtual ~Engine() = default;

  virtual const char* name() const = 0;                 ///< "cpu", "null", ...
  virtual std::string device_name() const = 0;          ///< MTLDevice.name
  virtual std::uint64_t working_set_limit() const = 0;  ///< bytes the device should not exceed

  /// Storage of images and private buffers. With Storage::device, images cannot use memory of the program.
  virtual Storage image_storage() const { return Storage::host; }
  /// Storage of shared buffers whose address the program has not asked for.
  virtual Storage buffer_storage() const { return Storage::host; }
  /// Allocate a page-aligned block of at least `bytes` (> 0), contents undefined. Throws std::bad_alloc.
  virtual std::byte* allocate(std::size_t bytes, Storage storage) = 0;
  virtual void deallocate(std::byte* address, std::size_t bytes, Storage storage) noexcept = 0;
  /// Return memory for the private blocks of a list that is about to start; it is freed with its last owner, once the
  /// list has ended. Lists whose work is done one after the other may share it. `stream`: see start().
  virtual std::shared_ptr<std::byte> arena(std::size_t bytes, std::shared_ptr<void>& stream);
  virtual MemoryUse memory_use() const = 0;
  virtual void reset_peak_bytes() = 0;
  virtual void free_cached_bytes() = 0;
  /// Copy between the host and memory of Storage::device that no work uses. Synchronous.
  virtual void download(void* to, const std::byte* from, std::size_t bytes);
  virtual void upload(std::byte* to, const void* from, std::size_t bytes);
  /// Set bytes of memory of Storage::device to zero, likewise.
  virtual void clear(std::byte* to, std::size_t bytes);
  /// Call `use` while no block moves from the device to the host, or `move` while no work runs and none is started.
  /// Neither calls the other.
  virtual void while_placed(const std::function<void()>& use) { use(); }
  virtual void while_idle(const std::function<void()>& move) { move(); }

  /// Return the number of the device among those of its kind, with which other libraries name it.
  virtual DLPackDevice dlpack_device() const { return {}; }
  /// Return the number of the device in whose memory an address lies, -1 for other addresses.
  virtual std::int32_t device_number_of([[maybe_unused]] const void* address) const { return -1; }
  /// Wait until a stream of another library has done its work, as DLPack numbers streams.
  virtual void wait_for_stream([[maybe_unused]] std::uintptr_t stream) {}

  /// Return the stride between adjacent pixels of the engine's images, in elements; >= channels.
  virtual std::int64_t channel_stride(Format, std::int64_t channels) const { return channels; }

  /// Return whether `next`, the only reader of the result of `conv`, may be computed in the same call.
  virtual bool fuses(const ConvProblem& conv, const Problem& next) const;
  /// Return whether the problem, of two or three commands, may be solved in one call.
  virtual bool fuses(const NormalizeProblem&) const { return false; }
  virtual bool fuses(const NormalizeAddProblem&) const { return false; }
  virtual bool fuses(const MaskedSumProblem&) const { return false; }
  virtual bool fuses(const MaskedSumMomentsProblem&) const { return false; }
  virtual bool fuses(const NeuronProblem&) const { return true; }
  /// Return whether sums along rows and columns, one after the other, may be computed in one call.
  virtual bool sums_pixels() const { return false; }
  /// Return whether results that cost little are computed again for late readers, which saves their memory.
  virtual bool recomputes() const { return false; }
  /// Return whether gradients of rectified sums may read the sums in place of masks, which saves the masks' memory.
  virtual bool masks_by_results() const { return false; }
  /// Return whether results between convolutions that allow reduced precision are stored as bfloat16.
  virtual bool narrows() const { return false; }
  /// Return whether convolutions of 8-bit numbers are faster than those of floats.
  virtual bool quantizes() const { return false; }
  /// Return whether a convolution with an addend may store its result over the addend.
  virtual bool adds_in_place() const { return true; }

  /// Solve the problem, or return false and do nothing: the processor's engine then solves it. May return before the
  /// work is done; work is done in order. Never called with a HostTask.
  virtual bool try_run(const Problem& problem) = 0;
  /// Return whether the processor's engine may solve problems that this one declines.
  virtual bool falls_back() const { return true; }
  /// Wait until the calling thread's work is done.
  virtual void synchronize() = 0;
  /// Return a marker after the work that the calling thread has given so far, and call `then`, which may not call the
  /// engine, once that work is done. Null, and nothing is called, if the engine has no markers.
  virtual std::shared_ptr<Marker> mark([[maybe_unused]] std::function<void()> then) { return nullptr; }
  /// Let later work of the calling thread wait for a marker. Return false if it cannot wait for markers of its kind.
  virtual bool wait_for([[maybe_unused]] const Marker& marker) { return false; }
  /// Run the steps of a list, or start to; the result is null if they are done. `stream`: what the lists of one queue
  /// share, null until an engine sets it.
  virtual std::unique_ptr<Run> start(Steps& steps, std::shared_ptr<void>& stream);
  /// Return whether lists run on the calling thread and its team: lists of several queues then run side by side.
  virtual bool computes_on_threads() const { return false; }
  /// Return whether lists that run repeatedly are better kept than encoded again.
  virtual bool keeps_lists() const { return false; }
  /// Return whether the runs of such a list may have different operands: what the engine keeps holds no addresses, and
  /// start() returns when the list has run.
  virtual bool moves_operands() const { return false; }
  /// Return the bytes from which on results are computed again for late readers, if the largest one has that many.
  virtual std::size_t min_recomputed(std::size_t /*largest*/) const { return 0; }
  /// Return whether masks between normalizations with sums and the gradients of these may have a bit per value.
  virtual bool packs_masks() const { return false; }
  /// Return whether group() may return more than 1 for a command that starts a step.
  virtual bool may_group(const Problem&) const { return false; }
  /// Solve a group of steps together, or return false and do nothing: each is then solved by itself.
  virtual bool try_run_group(std::span<const Problem* const>) { return false; }
  /// Return which adjacent steps may be solved together. problem(i) is that of step i, or null beyond the last one;
  /// ends(image, count): whether nothing behind the first `count` steps reads the values that the image has there.
  virtual StepGroup group(const std::function<const Problem*(std::size_t)>& /*problem*/,
                          const std::function<bool(const ImageView&, std::size_t)>& /*ends*/) const {
    return {};
  }
};

/// Return the engine of that name: "cpu", "null", "split", "cuda:0", ...; null if there is none. Each is made once per
/// process, on first use. Throws std::runtime_error if it cannot be made.
std::shared_ptr<Engine> engine_of(const std::string& name);

/// Return the names of engines, the default first: the one that MPSCNN_ENGINE names, or "cpu". With `all`, those of
/// NVIDIA's GPUs too, which opens the driver. Throws std::runtime_error if MPSCNN_ENGINE names no engine.
std::vector<std::string> engine_names(bool all = false);

/// Return the engine that solves every problem.
const std::shared_ptr<Engine>& processor_engine();

}  // namespace openmps

// SPDX-License-Identifier: Apache-2.0
// Work: a thread's stream on a GPU, and what problems become there.
#pragma once

#include <array>
#include <atomic>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/gpu.hpp"
#include "engine/cuda/kernels/device.hpp"
#include "engine/problem/problem.hpp"

namespace openmps::cuda {

class Graphs;

/// Thrown if the GPU cannot reach memory of the program; the processor's engine then solves the problem.
struct UnreachableMemory {};

class Work;

/// Small problems of one kind that wait for more, so that one launch computes them.
class Gathered {
 public:
  virtual ~Gathered() = default;
  virtual void launch(Work& work) = 0;
};

/// Marks the end of work on a stream, for other threads. They may learn of it before the work is enqueued.
class Filled {
 public:
  Filled(const Driver& driver, Stream stream);
  ~Filled();
  Filled(const Filled&) = delete;
  Filled& operator=(const Filled&) = delete;

  /// All work has been enqueued, or has failed.
  void enqueued() noexcept;
  /// Wait for the work, unless `stream` has it, too.
  void wait(Stream stream) const;

 private:
  const Driver& driver_;
  const Stream stream_;
  Event event_ = nullptr;
  std::atomic<bool> is_enqueued_ = false;
};

/// A kernel of a graph whose arguments may change between two launches.
struct VaryingLaunch {
  GraphNode node = nullptr;
  Function function = nullptr;
  unsigned blocks = 0;
  std::vector<std::byte> args;
  i64 count = 0;
};

class Work {
 public:
  explicit Work(Gpu& gpu);
  ~Work();

  Gpu& gpu() { return gpu_; }
  Stream stream() const { return stream_; }

  /// Return the GPU's address of a block. Locks pages of the program's own memory, until the block is released.
  Address address(Memory& memory);
  View view(const ImageView& view);
  Source source(const Operand& operand);
  Pointer<float> values(const ChannelValues& values) { return {values_address(values.memory, values.offset)}; }
  Pointer<double> doubles(const ChannelValues& values) { return {values_address(values.memory, values.offset)}; }
  Address values_address(const std::shared_ptr<Memory>& memory, std::size_t offset);
  Activation activation(const Neuron& neuron);
  /// Return a copy on the GPU of values that never change; it lives until they do not.
  Pointer<const float> constants(const std::shared_ptr<const std::vector<float>>& values);

  /// Return memory for the current problem; contents undefined. A second call overwrites the first one's.
  Address scratch(std::size_t bytes);
  /// Return memory for the private blocks of a list. Lists of one stream share it, because their work is done in order.
  std::shared_ptr<std::byte> arena(std::size_t bytes);
  /// Return at least `count` counters of 32 bits that are 0; each kernel that uses them leaves them so.
  Address counters(i64 count);
  /// Return the blocks behind scratch() and counters(), for graphs that use them.
  std::array<std::shared_ptr<const GpuBlock>, 2> own_blocks() const { return {scratch_, counters_}; }

  /// Run a kernel for indices 0 ... count - 1. If all `images` have the same format, float16 or float32, it is compiled
  /// for that format.
  template <class Args>
  void launch(const Kernel<Args>& kernel, const Args& args, i64 count, std::initializer_list<const View*> images = {}) {
    launch_bytes(kernel.file, kernel.name, kernel.threads, &args, count, images);
  }
  template <class Args>
  void launch(const LargeKernel<Args>& kernel, const Args& args, i64 count,
              std::initializer_list<const View*> images = {}) {
    launch_large(kernel.file, kernel.name, kernel.threads, &args, count, images, 0, kernel.shared_bytes);
  }
  /// The same for a kernel whose arguments other than addresses and extents may change from one run of a list to the
  /// next: a graph is launched again with other ones [graphs.hpp, varies()].
  template <class Args>
  void launch_varying(const Kernel<Args>& kernel, const Args& args, i64 count,
                      std::initializer_list<const View*> images = {}) {
    launch_bytes(kernel.file, kernel.name, kernel.threads, &args, count, images, sizeof args);
  }
  /// Run a function of a program: blocks of threads, with one argument by value.
  void launch_function(Function function, const unsigned (&blocks)[3], const unsigned (&threads)[3],
                       unsigned shared_bytes, const void* argument);
  void copy(Address to, Address from, std::size_t bytes);
  void fill(Address to, unsigned char value, std::size_t bytes);
  /// Handle of cuDNN for the stream; null before its first use.
  void* cudnn_handle() const { return cudnn_handle_; }
  void set_cudnn_handle(void* handle) { cudnn_handle_ = handle; }
  Graphs& graphs() { return *graphs_; }
  /// Problems wait for others between start_gathering() and end_gathering(). No other problem may be enqueued while
  /// some wait: call launch_gathered() before.
  void start_gathering() { gathers_ = true; }
  bool gathers() const { return gathers_; }
  void end_gathering();
  /// Return the problems that wait; null if none do.
  std::unique_ptr<Gathered>& gathered() { return gathered_; }
  void launch_gathered();
  /// Return the mark of the list under way, or of a problem that is none of a list.
  const std::shared_ptr<Filled>& filled();
  /// Keep a block as long as enqueued work may use it.
  void keep(std::shared_ptr<const void> block) { kept_.push_back(std::move(block)); }
  std::vector<std::shared_ptr<const void>> take_kept() { return std::exchange(kept_, {}); }
  /// The list has been enqueued, or has failed.
  void end_list() noexcept;
  /// Whether calls are recorded into a graph instead of run.
  bool is_recording() const { return is_recording_; }
  void set_recording(bool value) {
    is_recording_ = value;
    blocks_before_ = std::numeric_limits<i64>::max();  // the first kernel of a graph overlaps with none
  }
  /// Return the kernels of launch_varying() that have been recorded.
  std::vector<VaryingLaunch> take_varying() { return std::exchange(varying_, {}); }
  /// Until end_change(), calls of launch_varying() change the arguments of these kernels, in order, and launch nothing.
  void start_change(GraphExec executable, std::vector<VaryingLaunch>& launches);
  /// Return whether all have been changed. If not, the graph cannot be used any more.
  bool end_change();
  /// Let the stream wait for uploads that it does not wait for yet. Not while calls are recorded: the work is then
  /// joined before.
  void join_uploads();
  /// Wait until the stream is empty.
  void synchronize();
  bool is_idle() { return gpu_.current().query_stream(stream_) == kSuccess; }

 private:
  /// `varying_bytes`: size of arguments that may change; 0: they may not.
  void launch_bytes(const char* file, const char* name, int threads, const void* args, i64 count,
                    std::initializer_list<const View*> images, std::size_t varying_bytes = 0);
  void launch_large(const char* file, const char* name, int threads, const void* args, i64 count,
                    std::initializer_list<const View*> images, std::size_t varying_bytes, unsigned shared_bytes);
  /// Return whether a kernel of that many blocks overlaps with the one before.
  bool may_overlap(i64 blocks);
  void note_varying(VaryingLaunch launch);
  bool change(VaryingLaunch launch);

  /// Replace a block by one of at least `bytes`. Its contents are undefined.
  void replace(std::shared_ptr<GpuBlock>& block, std::size_t bytes);

  Gpu& gpu_;
  Stream stream_ = nullptr;
  std::shared_ptr<GpuBlock> scratch_, counters_;
  std::weak_ptr<GpuBlock> arena_;  ///< of lists under way
  void* cudnn_handle_ = nullptr;
  std::unique_ptr<Graphs> graphs_;
  bool is_recording_ = false, gathers_ = false;
  std::unique_ptr<Gathered> gathered_;
  std::vector<VaryingLaunch> varying_;
  struct Change {
    GraphExec executable;
    std::vector<VaryingLaunch>* launches;
    std::size_t done;
    bool fits;
  };
  std::optional<Change> change_;
  std::shared_ptr<Filled> filled_;
  std::vector<std::shared_ptr<const void>> kept_;
  std::uint64_t joined_uploads_ = 0;
  i64 blocks_before_ = 0;  ///< of the kernel that launch_bytes() launched last
};

}  // namespace openmps::cuda

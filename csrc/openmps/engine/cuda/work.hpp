// SPDX-License-Identifier: Apache-2.0
// Work: a thread's stream on a GPU, and what problems become there.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
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
  /// Return the block behind scratch(), for graphs that use it.
  const std::shared_ptr<GpuBlock>& scratch_block() const { return scratch_; }

  /// Run a kernel for indices 0 ... count - 1. If all `images` have the same format, float16 or float32, it is compiled
  /// for that format.
  template <class Args>
  void launch(const Kernel<Args>& kernel, const Args& args, i64 count, std::initializer_list<const View*> images = {}) {
    launch_bytes(kernel.file, kernel.name, kernel.threads, &args, count, images);
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
  /// Whether calls are recorded into a graph instead of run.
  bool is_recording() const { return is_recording_; }
  void set_recording(bool value) { is_recording_ = value; }
  /// Let the stream wait for uploads that it does not wait for yet. Not while calls are recorded: the work is then
  /// joined before.
  void join_uploads();
  /// Wait until the stream is empty.
  void synchronize();

 private:
  void launch_bytes(const char* file, const char* name, int threads, const void* args, i64 count,
                    std::initializer_list<const View*> images);

  Gpu& gpu_;
  Stream stream_ = nullptr;
  std::shared_ptr<GpuBlock> scratch_;
  std::weak_ptr<GpuBlock> arena_;  ///< of lists under way
  void* cudnn_handle_ = nullptr;
  std::unique_ptr<Graphs> graphs_;
  bool is_recording_ = false, gathers_ = false;
  std::unique_ptr<Gathered> gathered_;
  std::uint64_t joined_uploads_ = 0;
};

}  // namespace openmps::cuda

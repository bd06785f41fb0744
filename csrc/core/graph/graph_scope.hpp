// SPDX-License-Identifier: Apache-2.0
// A call of MPSNNGraph on this thread. MPS calls data sources, policies and allocators back; their first exception is
// kept, since none may pass through MPS's frames. Plain C++, since a .mm cannot catch.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include <mpscnn/command_buffer.hpp>
#include <mpscnn/image.hpp>

namespace mpscnn {

class Guarded;

class GraphScope {
 public:
  explicit GraphScope(std::shared_ptr<CommandBuffer> buffer = nullptr);
  ~GraphScope();
  GraphScope(const GraphScope&) = delete;
  GraphScope& operator=(const GraphScope&) = delete;

  /// Return the innermost call of this thread; null outside of one.
  static GraphScope* current();
  /// Return the call around this one; null if there is none.
  GraphScope* outer() const { return outer_; }

  /// Call `f`, and keep its exception. Return whether it has returned.
  bool run(const std::function<void()>& f) noexcept;
  void keep(std::exception_ptr failure) noexcept;
  bool has_failed() const { return failure_ != nullptr; }
  /// Rethrow the kept exception, if any; to be called after MPS has returned.
  void rethrow();

  /// Null while the graph is made.
  const std::shared_ptr<CommandBuffer>& buffer() const { return buffer_; }
  /// The graph that is called, if it exists yet.
  const void* graph = nullptr;
  /// Whether weights were updated on the command buffer.
  bool has_updated = false;
  /// Whether a function of the program was called, which may answer differently next time.
  bool has_asked = false;
  /// Images of each source; 0 while the graph is made.
  std::int64_t batch = 0;
  /// The sources.
  std::vector<std::shared_ptr<Image>> inputs;
  /// Images that allocators made.
  std::vector<std::shared_ptr<Image>> images;
  /// Data sources with updates that were loaded.
  std::vector<std::shared_ptr<Guarded>> sources;

 private:
  std::shared_ptr<CommandBuffer> buffer_;
  std::exception_ptr failure_;
  GraphScope* outer_;
};

}  // namespace mpscnn

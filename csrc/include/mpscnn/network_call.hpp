// SPDX-License-Identifier: Apache-2.0
// NetworkCall: runs a network on arrays, in chunks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <mpscnn/array_call.hpp>
#include <mpscnn/network.hpp>

namespace mpscnn {

/// One batch: set_results(), then either run() or commit() and wait().
class NetworkCall {
 public:
  /// `inputs` are N, H, W, C, in the order of the network's inputs. Throw for wrong shapes.
  NetworkCall(std::shared_ptr<Network> network, std::vector<ArrayView> inputs);

  const std::vector<ImageShape>& result_shapes() const { return result_shapes_; }
  /// Set the result arrays: N, H, W, C, with result_shapes().
  void set_results(std::vector<ArrayView> results) { results_ = std::move(results); }

  /// Compute the results and wait.
  void run();
  /// Encode and commit all chunks. `handler` (may be empty) is called when all results are in the arrays.
  void commit(const std::function<void()>& handler);
  /// Wait for the results. Each call throws if the work has failed.
  void wait();
  bool is_done();

 private:
  struct Arrays : ArrayCall {
    using ArrayCall::ArrayCall;
    std::mutex mutex;  ///< a handler and wait() may call finish() concurrently
    void finish() {
      const std::scoped_lock lock(mutex);
      copy_results();
    }
  };
  struct Chunk {
    std::shared_ptr<CommandBuffer> buffer;
    std::shared_ptr<Arrays> arrays;
  };

  std::int64_t chunk_count() const;
  void encode(std::int64_t chunk);

  std::shared_ptr<Network> network_;
  std::shared_ptr<const NetworkPlan> plan_;
  std::shared_ptr<SideQueue> queue_;  ///< while it is used
  std::vector<ArrayView> inputs_, results_;
  std::vector<ImageShape> result_shapes_;
  std::int64_t n_ = 0, max_ = 0;  ///< images in total; max per chunk
  std::mutex mutex_;
  std::vector<Chunk> chunks_;
};

}  // namespace mpscnn

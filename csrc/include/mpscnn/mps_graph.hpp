// SPDX-License-Identifier: Apache-2.0
// MPSNNGraph: a graph that MPS makes of nodes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mpscnn/array.hpp>
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/graph_object.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/loss.hpp>

namespace mpscnn {

class MpsGraph {
 public:
  struct Impl;
  /// `results` are image nodes. Exceptions of data sources are thrown.
  static std::shared_ptr<MpsGraph> make(std::shared_ptr<Device> device,
                                        std::span<const std::shared_ptr<GraphObject>> results,
                                        const std::vector<bool>& needed);
  explicit MpsGraph(std::unique_ptr<Impl> impl);
  ~MpsGraph();

  /// Labels of handles, nullopt for objects without one.
  using Labels = std::vector<std::optional<std::string>>;
  Labels handles(const char* property) const;  ///< "sourceImageHandles", ...

  struct Results {
    std::shared_ptr<Image> result;                      ///< null if it is not needed
    std::vector<std::shared_ptr<Image>> intermediates;  ///< of intermediateImageHandles
    std::vector<std::shared_ptr<GraphObject>> states;   ///< of resultStateHandles: the state of the first image
    bool has_updated = false;  ///< weights were updated: the next encode's command buffer is to be committed later
  };
  /// Encode a batch; all sources have the same number of images. Not thread-safe with property changes.
  Results encode(const std::shared_ptr<CommandBuffer>& buffer, std::span<const std::shared_ptr<Image>> sources,
                 std::span<const std::shared_ptr<LossLabels>> labels) const;
  /// Run on arrays, N, H, W, C, without labels, and wait. Return the images of the results.
  std::vector<std::shared_ptr<Image>> run(std::span<const ArrayView> sources) const;
  /// Rethrow the first exception of a data source's update, if any: those in encode(), and those on the CPU of work
  /// that has completed.
  void check_updates() const;
  /// Read all data sources again.
  void reload() const;
  std::int64_t read_count(std::int64_t source) const;

  /// The object, for its properties.
  const std::shared_ptr<GraphObject>& object() const;
  std::shared_ptr<Device> device() const;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mpscnn

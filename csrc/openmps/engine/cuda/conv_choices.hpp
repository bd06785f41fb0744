// SPDX-License-Identifier: Apache-2.0
// The fastest way to compute a convolution. Candidates for a shape are timed once; the choice is kept on disk.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/blaslt.hpp"
#include "engine/cuda/cudnn.hpp"

namespace openmps::cuda {

/// A kernel of ours that computes a convolution with its activations, from and to the images.
struct OwnKernel {
  const char* name;
  std::function<void()> run;
};

/// One of the ways to compute a convolution: a plan of cuDNN, one of cuBLASLt, or the name of a kernel of ours.
struct Choice {
  std::shared_ptr<const CudnnPlan> dnn;
  std::shared_ptr<const ProductPlan> product;
  std::string own;
  bool is_turned = false;        ///< dnn is a forward convolution that equals a gradient by the source
  std::size_t result_bytes = 0;  ///< above 0: dnn's result is dense, in scratch memory, and then copied

  std::size_t plan_bytes() const { return dnn ? dnn->workspace_bytes() : product ? product->workspace_bytes() : 0; }
  std::size_t workspace_bytes() const;
  std::string saved() const {
    if (dnn) return (is_turned ? 't' : result_bytes > 0 ? 'c' : 'd') + dnn->saved();
    return product ? 'p' + product->saved() : 'o' + own;
  }
};

/// A convolution as a graph of the libraries, with what they need before and after, or as a kernel of ours.
struct Tunable {
  const ConvGraph& graph;
  std::size_t staged = 0;  ///< bytes of scratch memory for operands
  /// Return the operands; some of them may be in scratch memory, from an address on. From 0: only the images.
  std::function<ConvAddresses(Address scratch)> operands;
  std::function<void(Address scratch)> prepare = [](Address) {};  ///< fill the operands in scratch memory
  std::function<void()> finish = {};  ///< apply activations that the graph does not have; may run repeatedly
  std::vector<OwnKernel> own = {};

  void run(Work& work, const Choice& choice, Address scratch) const;
  /// Compute only the graph, with its result at an address.
  void run_graph(Work& work, const Choice& choice, Address scratch, Address result) const;

 private:
  void run_at(Work& work, const Choice& choice, ConvAddresses at, Address workspace) const;
};

/// The choices of one process.
class Choices {
 public:
  static Choices& all();

  /// Return the choice for a convolution; null if nothing computes it.
  std::shared_ptr<const Choice> of(Work& work, const Tunable& tunable);

 private:
  std::mutex mutex_;
  /// By the GPU: plans belong to the device of the handle that made them, also if another device has its name.
  std::map<std::pair<int, std::string>, std::shared_ptr<const Choice>> choices_;
};

}  // namespace openmps::cuda

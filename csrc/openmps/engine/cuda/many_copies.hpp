// SPDX-License-Identifier: Apache-2.0
// Small copies and arrangements of weights that wait for more, so that few launches compute them.
#pragma once

#include <functional>
#include <vector>

#include "engine/cuda/kernels/layout.hpp"
#include "engine/cuda/kernels/pointwise.hpp"
#include "engine/cuda/work.hpp"

namespace openmps::cuda {

/// Bytes of memory.
struct Span {
  Address first;
  std::size_t bytes;

  bool meets(const Span& other) const { return first < other.first + other.bytes && other.first < first + bytes; }
};

/// Copies of which none reads or writes memory that another one writes.
class ManyCopies final : public Gathered {
 public:
  /// Call `add` with the copies that wait. If a copy from and to these spans cannot be one of them, launch them first
  /// and call it with new ones. Unless the list gathers, launch them at once.
  static void add(Work& work, const Span& from, const Span& to, const std::function<void(ManyCopies&)>& add);

  void copy(const pointwise::CopyManyArgs::Range& range) { ranges_.push_back(range); }
  void arrange(const layout::ArrangeWeightsArgs& args) { parts_.push_back({args, 0}); }

  void launch(Work& work) override;

 private:
  bool can_add(const Span& from, const Span& to) const;

  std::vector<Span> reads_, writes_;
  std::vector<pointwise::CopyManyArgs::Range> ranges_;
  std::vector<layout::ArrangeManyArgs::Part> parts_;
};

}  // namespace openmps::cuda

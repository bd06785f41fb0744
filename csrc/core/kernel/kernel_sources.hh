// SPDX-License-Identifier: Apache-2.0
// Properties of one source of a kernel; binary kernels have each twice, with the prefixes "primary" and "secondary".
#pragma once

#include "core/kernel/kernel_impl.hh"

namespace mpscnn {

inline void set_offset(const Kernel::Impl &impl, std::size_t source, MPSOffset offset) {
  if (!is_binary(impl))
    unary(impl).offset = offset;
  else if (source == 0)
    binary(impl).primaryOffset = offset;
  else
    binary(impl).secondaryOffset = offset;
}

inline void set_edge_mode(const Kernel::Impl &impl, std::size_t source, MPSImageEdgeMode mode) {
  if (!is_binary(impl))
    unary(impl).edgeMode = mode;
  else if (source == 0)
    binary(impl).primaryEdgeMode = mode;
  else
    binary(impl).secondaryEdgeMode = mode;
}

inline NSUInteger first_channel(const Kernel::Impl &impl, std::size_t source) {
  return !is_binary(impl) ? unary(impl).sourceFeatureChannelOffset
         : source == 0    ? binary(impl).primarySourceFeatureChannelOffset
                          : binary(impl).secondarySourceFeatureChannelOffset;
}

inline void set_first_channel(const Kernel::Impl &impl, std::size_t source, NSUInteger channel) {
  if (!is_binary(impl))
    unary(impl).sourceFeatureChannelOffset = channel;
  else if (source == 0)
    binary(impl).primarySourceFeatureChannelOffset = channel;
  else
    binary(impl).secondarySourceFeatureChannelOffset = channel;
}

inline NSUInteger most_channels(const Kernel::Impl &impl, std::size_t source) {
  return !is_binary(impl) ? unary(impl).sourceFeatureChannelMaxCount
         : source == 0    ? binary(impl).primarySourceFeatureChannelMaxCount
                          : binary(impl).secondarySourceFeatureChannelMaxCount;
}

inline void set_most_channels(const Kernel::Impl &impl, std::size_t source, NSUInteger count) {
  if (!is_binary(impl))
    unary(impl).sourceFeatureChannelMaxCount = count;
  else if (source == 0)
    binary(impl).primarySourceFeatureChannelMaxCount = count;
  else
    binary(impl).secondarySourceFeatureChannelMaxCount = count;
}

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
// Parameters of local normalization (across channels, spatial, contrast), forward and gradient. Apple's names are the
// same in all classes; the defaults differ.
#pragma once

#include "engine/problem/normalize.hpp"
#import "mps/MPSCNNKernel+Engine.hh"

namespace openmps {

struct LRNParameters {
  LRNType type;         ///< fixed by the class
  NSUInteger size = 1;  ///< cross-channel: kernelSize
  float alpha = 1, beta = 5, delta = 1;
  float p0 = 1, pm = 0, ps = 1;

  explicit LRNParameters(LRNType own) : type(own) {
    if (type == LRNType::contrast) alpha = 0, beta = 0.5f, delta = 1.0f / 1024;
  }

  /// Raise for an unsupported size, or an unsupported window of `slot`.
  void check(const KernelState &state, const SourceSlot &slot, const SourceNames &names) const;
  /// Raise for values that no initialiser sets.
  void did_read(const KernelState &state, const SourceSlot &slot, const SourceNames &names) const;
  void archive(Archive &archive);
  LRNProblem problem(const ImageView &src, const ImageView &dst, const Window &window) const;
};

}  // namespace openmps

/// Methods of all classes.
#define OPENMPS_LOCAL_NORM_PROPERTIES(STATE)                        \
  OPENMPS_INIT_WITH_CODER                                           \
  OPENMPS_PROPERTY(STATE, float, alpha, setAlpha, parameters.alpha) \
  OPENMPS_PROPERTY(STATE, float, beta, setBeta, parameters.beta)    \
  OPENMPS_PROPERTY(STATE, float, delta, setDelta, parameters.delta)

#define OPENMPS_CROSS_CHANNEL_NORM(STATE, INIT)                                               \
  OPENMPS_LOCAL_NORM_PROPERTIES(STATE)                                                        \
  OPENMPS_GETTER(STATE, NSUInteger, kernelSize, parameters.size)                              \
  -(instancetype)initWithDevice : (id<MTLDevice>)device {                                     \
    (void)device;                                                                             \
    openmps::UnwindRelease unwind(self);                                                      \
    openmps::raise_unavailable(self, _cmd, "-initWithDevice:kernelSize:");                    \
  }                                                                                           \
  -(instancetype)initWithDevice : (id<MTLDevice>)device kernelSize : (NSUInteger)kernelSize { \
    return INIT(self, device, 1, 1, kernelSize);                                              \
  }

#define OPENMPS_WINDOW_NORM(STATE, INIT)                                                                   \
  OPENMPS_LOCAL_NORM_PROPERTIES(STATE)                                                                     \
  -(instancetype)initWithDevice : (id<MTLDevice>)device {                                                  \
    (void)device;                                                                                          \
    openmps::UnwindRelease unwind(self);                                                                   \
    openmps::raise_unavailable(self, _cmd, "-initWithDevice:kernelWidth:kernelHeight:");                   \
  }                                                                                                        \
  -(instancetype)initWithDevice : (id<MTLDevice>)device kernelWidth : (NSUInteger)kernelWidth kernelHeight \
      : (NSUInteger)kernelHeight {                                                                         \
    return INIT(self, device, kernelWidth, kernelHeight, 1);                                               \
  }

#define OPENMPS_CONTRAST_NORM(STATE, INIT)                 \
  OPENMPS_WINDOW_NORM(STATE, INIT)                         \
  OPENMPS_PROPERTY(STATE, float, p0, setP0, parameters.p0) \
  OPENMPS_PROPERTY(STATE, float, pm, setPm, parameters.pm) \
  OPENMPS_PROPERTY(STATE, float, ps, setPs, parameters.ps)

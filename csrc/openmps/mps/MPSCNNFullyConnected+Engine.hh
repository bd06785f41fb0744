// SPDX-License-Identifier: Apache-2.0
// Base of the fully connected kernels, for any kind of weights: the window covers the whole source.
#pragma once

#import "mps/MPSCNNConvolution+Engine.hh"

namespace openmps {

template <class Self, class Base>
struct CoversSource : Extends<Self, Base> {
  using Base::source;

  CoversSource() {
    this->destination.padding = Ref<id<MPSNNPadding>>(default_padding(MPSNNPaddingMethodSizeValidOnly));
  }

  void check_descriptor(MPSCNNConvolutionDescriptor *descriptor) const override {
    Base::check_descriptor(descriptor);
    if (source.stride_x != 1 || source.stride_y != 1)
      raise_for(*this, @"strideInPixelsX (%lu) and strideInPixelsY (%lu) are not 1.", (unsigned long)source.stride_x,
                (unsigned long)source.stride_y);
    if (source.dilation_x != 1 || source.dilation_y != 1)
      raise_for(*this, @"dilationRateX (%lu) and dilationRateY (%lu) are not 1.", (unsigned long)source.dilation_x,
                (unsigned long)source.dilation_y);
    if (this->groups != 1 || this->channel_multiplier != 0 || this->subpixel != 1)
      raise_for(*this, @"A fully connected kernel has neither groups nor a depth-wise or sub-pixel descriptor.");
  }

  /// The offset is ignored: the window covers the source.
  Window window() const override {
    Window window = Base::window();
    window.start_h = window.start_w = 0;
    return window;
  }

  void check_geometry(const ImageView &src, const Clip &clip) const override {
    if (src.w != static_cast<std::int64_t>(source.kernel_width) ||
        src.h != static_cast<std::int64_t>(source.kernel_height))
      raise_for(*this, @"The source has %ld x %ld pixels (width x height) and the kernel %lu x %lu.", (long)src.w,
                (long)src.h, (unsigned long)source.kernel_width, (unsigned long)source.kernel_height);
    if (clip.width != 1 || clip.height != 1)
      raise_for(*this, @"clipRect selects %ld x %ld pixels (width x height) of the destination, expected 1 x 1.",
                (long)clip.width, (long)clip.height);
  }
};

}  // namespace openmps

// SPDX-License-Identifier: Apache-2.0
// MPSCNNFullyConnected: a convolution whose kernel covers the whole source and whose result is one pixel
// [MPSCNNConvolution.h].

#import "mps/MPSCNNConvolution+Engine.hh"

namespace {

struct FullyConnectedState : openmps::Extends<FullyConnectedState, openmps::ConvolutionState> {
  FullyConnectedState() {
    destination.padding = openmps::Ref<id<MPSNNPadding>>(openmps::default_padding(MPSNNPaddingMethodSizeValidOnly));
  }

  void check_descriptor(MPSCNNConvolutionDescriptor *) const override {
    if (source.stride_x != 1 || source.stride_y != 1)
      openmps::raise_for(*this, @"strideInPixelsX (%lu) and strideInPixelsY (%lu) are not 1.",
                         (unsigned long)source.stride_x, (unsigned long)source.stride_y);
    if (source.dilation_x != 1 || source.dilation_y != 1)
      openmps::raise_for(*this, @"dilationRateX (%lu) and dilationRateY (%lu) are not 1.",
                         (unsigned long)source.dilation_x, (unsigned long)source.dilation_y);
    if (groups != 1 || channel_multiplier != 0 || subpixel != 1)
      openmps::raise_for(*this,
                         @"A fully connected kernel has neither groups nor a depth-wise or sub-pixel descriptor.");
  }

  /// The offset is ignored: the window stands on the source.
  openmps::Window window() const override {
    openmps::Window window = ConvolutionState::window();
    window.start_h = window.start_w = 0;
    return window;
  }

  void check_geometry(const openmps::ImageView &src, const openmps::Clip &clip) const override {
    if (src.w != static_cast<std::int64_t>(source.kernel_width) ||
        src.h != static_cast<std::int64_t>(source.kernel_height))
      openmps::raise_for(*this, @"The source has %ld x %ld pixels (width x height) and the kernel %lu x %lu.",
                         (long)src.w, (long)src.h, (unsigned long)source.kernel_width,
                         (unsigned long)source.kernel_height);
    if (clip.width != 1 || clip.height != 1)
      openmps::raise_for(*this,
                         @"clipRect selects %ld x %ld pixels (width x height) of the destination, expected 1 x 1.",
                         (long)clip.width, (long)clip.height);
  }
};

}  // namespace

@implementation MPSCNNFullyConnected

+ (openmps::KernelState *)openmps_newState {
  return new FullyConnectedState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device weights:(id<MPSCNNConvolutionDataSource>)weights {
  return [super initWithDevice:device weights:weights];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
         convolutionDescriptor:(const MPSCNNConvolutionDescriptor *)convolutionDescriptor
                 kernelWeights:(const float *)kernelWeights
                     biasTerms:(const float *)biasTerms
                         flags:(MPSCNNConvolutionFlags)flags {
  return [super initWithDevice:device
         convolutionDescriptor:convolutionDescriptor
                 kernelWeights:kernelWeights
                     biasTerms:biasTerms
                         flags:flags];
}

OPENMPS_INIT_WITH_CODER

@end

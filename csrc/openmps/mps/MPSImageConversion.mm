// SPDX-License-Identifier: Apache-2.0
// Conversion of images to other formats and alpha conventions [MPSImageConversion.h].

#include "engine/problem/problem.hpp"
#import "mps/MPSImageKernel+Engine.hh"
#include "mps/TexelConversion.hpp"

namespace openmps {
namespace {

struct ConversionState : Extends<ConversionState, UnaryImageKernelState> {
  MPSAlphaType src_alpha = MPSAlphaTypeAlphaIsOne, dst_alpha = MPSAlphaTypeAlphaIsOne;
  std::vector<double> background = {0, 0, 0};

  void check_alpha() const {
    const auto check = [this](const char *name, MPSAlphaType type) {
      if (type > MPSAlphaTypePremultiplied)
        raise_for(*this, @"%s (%lu) is not one of 0 to 2.", name, (unsigned long)type);
    };
    check("srcAlpha", src_alpha);
    check("destAlpha", dst_alpha);
  }

  /// Channels are equal, or 3 and 4: a texture of four lanes shows an image of three channels.
  ImageView view_of_destination(const ImageView &image, const Clip &clip,
                                std::span<const NSUInteger> channels) const override {
    const auto given = channels[0], wanted = static_cast<NSUInteger>(image.c);
    const auto is_colour = [](NSUInteger count) { return count == 3 || count == 4; };
    if (given != wanted && !(is_colour(given) && is_colour(wanted)))
      raise_for(*this, @"sourceImage has %lu feature channels and destinationImage %lu; they are as many, or 3 and 4.",
                (unsigned long)given, (unsigned long)wanted);
    return destination_view(*this, destination, image, clip, wanted);
  }

  void check_encode(const Encode &encode, const Clip &) const override {
    if (encode.src[0].c <= 4 || (src_alpha == dst_alpha && dst_alpha != MPSAlphaTypeAlphaIsOne)) return;
    raise_for(*this,
              @"srcAlpha (%lu) and destAlpha (%lu) ask for a change of alpha, which images of %ld feature channels "
              @"have not; without one they are equal, 0 or 2.",
              (unsigned long)src_alpha, (unsigned long)dst_alpha, (long)encode.src[0].c);
  }

  Problem make_problem(const Encode &encode) const override {
    const ImageView &src = encode.src[0], &dst = encode.dst;
    const bool keeps_alpha = src.c != 4 || (src_alpha == dst_alpha && dst_alpha != MPSAlphaTypeAlphaIsOne);
    const Window window = source.window();
    if (src.c != dst.c || !keeps_alpha) {
      TexelConversion conversion;
      conversion.src = src, conversion.dst = dst;
      conversion.start_h = window.start_h, conversion.start_w = window.start_w;
      conversion.edge = window.edge;
      conversion.src_alpha = static_cast<Alpha>(src_alpha), conversion.dst_alpha = static_cast<Alpha>(dst_alpha);
      for (std::size_t k = 0; k < 3; ++k) conversion.background[k] = static_cast<float>(background[k]);
      touch(src.memory, @"MPSImageConversion");
      touch(dst.memory, @"MPSImageConversion");
      return HostTask{[conversion] { convert_texels(conversion); }};
    }
    if (is_inside(window, src, dst)) return CopyProblem{src.region(window.start_h, window.start_w, dst.h, dst.w), dst};
    PadProblem problem;
    problem.src = src, problem.dst = dst;
    problem.start_h = window.start_h, problem.start_w = window.start_w;
    problem.edge = window.edge == Edge::clamp ? PadEdge::clamp : PadEdge::constant;
    return problem;
  }

  void archive(Archive &archive) override {
    UnaryImageKernelState::archive(archive);
    archive.field(@"MPSImageConversion.sourceAlpha", src_alpha);
    archive.field(@"MPSImageConversion.destinationAlpha", dst_alpha);
    archive.field(@"MPSImageConversion.backgroundColor", background);
  }
  void did_read(MPSKernel *kernel) override {
    UnaryImageKernelState::did_read(kernel);
    check_alpha();
    if (background.size() != 3)
      raise_for(*this, @"The archive holds %lu values of backgroundColor, expected 3.",
                (unsigned long)background.size());
  }
};

}  // namespace
}  // namespace openmps

using openmps::ConversionState;

@implementation MPSImageConversion

+ (openmps::KernelState *)openmps_newState {
  return new ConversionState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                      srcAlpha:(MPSAlphaType)srcAlpha
                     destAlpha:(MPSAlphaType)destAlpha
               backgroundColor:(CGFloat *)backgroundColor
                conversionInfo:(CGColorConversionInfoRef)conversionInfo {
  if (!(self = [super openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  if (conversionInfo != NULL)
    [NSException raise:MPSNotImplementedException
                format:@"MPSImageConversion: conversionInfo (%p) is not NULL; openmps has no colour spaces.",
                       static_cast<void *>(conversionInfo)];
  auto &state = openmps::state_of<ConversionState>(self);
  state.src_alpha = srcAlpha;
  state.dst_alpha = destAlpha;
  state.check_alpha();
  // backgroundColor, an array of the source's colours, is only read if alpha is flattened.
  if (backgroundColor != NULL && destAlpha == MPSAlphaTypeAlphaIsOne && srcAlpha != MPSAlphaTypeAlphaIsOne)
    state.background.assign(backgroundColor, backgroundColor + 3);
  return unwind.done();
}

OPENMPS_GETTER(ConversionState, MPSAlphaType, sourceAlpha, src_alpha)
OPENMPS_GETTER(ConversionState, MPSAlphaType, destinationAlpha, dst_alpha)

@end

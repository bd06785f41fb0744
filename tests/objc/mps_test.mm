// SPDX-License-Identifier: Apache-2.0
// The MPS kernel classes against naive loops in double: convolution, transpose, fully connected, neurons, padding
// policies, batches. Prints "N passed, N failed". mps_sources_test.mm has data sources, copies, archives and what is
// refused.

#import "mps_test.hh"

/// Custom bit alone: the suggestion is ValidOnly, and this one adds 2 * pad / stride as turicreate's does.
@interface GrowingPadding : NSObject<MPSNNPadding> {
 @public
  NSInteger pad;
  NSUInteger seen_width;
}
@end
@implementation GrowingPadding
- (MPSNNPaddingMethod)paddingMethod {
  return MPSNNPaddingMethodCustom;
}
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor {
  (void)sourceImages, (void)sourceStates;
  MPSCNNKernel *cnn = (MPSCNNKernel *)kernel;
  seen_width = [inDescriptor width];
  const NSInteger more_x = 2 * pad / static_cast<NSInteger>([cnn strideInPixelsX]);
  const NSInteger more_y = 2 * pad / static_cast<NSInteger>([cnn strideInPixelsY]);
  [inDescriptor setWidth:static_cast<NSUInteger>(static_cast<NSInteger>([inDescriptor width]) + more_x)];
  [inDescriptor setHeight:static_cast<NSUInteger>(static_cast<NSInteger>([inDescriptor height]) + more_y)];
  MPSOffset offset = {static_cast<NSInteger>([cnn kernelWidth] / 2) - pad,
                      static_cast<NSInteger>([cnn kernelHeight] / 2) - pad, 0};
  [cnn setOffset:offset];
  return inDescriptor;
}
+ (BOOL)supportsSecureCoding {
  return YES;
}
- (void)encodeWithCoder:(NSCoder *)coder {
  [coder encodeInt64:pad forKey:@"pad"];
}
- (id)initWithCoder:(NSCoder *)coder {
  if ((self = [super init])) pad = [coder decodeInt64ForKey:@"pad"];
  return self;
}
@end

namespace {

// ----------------------------------------------------------------------------------------- convolution

struct ConvCase {
  const char *why;
  long n = 1, h = 7, w = 9, ic = 5, oc = 6;
  long kh = 3, kw = 3, sy = 1, sx = 1, dy = 1, dx = 1, groups = 1;
  long off_y = 0, off_x = 0;
  long dst_h = 7, dst_w = 9;
  bool clamp = false, depthwise = false, bias = true;
  // Where in the images: origin and size of the clip (0: all), channel offsets and spare channels.
  long clip_y = 0, clip_x = 0, clip_h = 0, clip_w = 0;
  long src_c0 = 0, src_more = 0, dst_c0 = 0, dst_more = 0;
};

MPSCNNConvolutionDescriptor *descriptor_of(const ConvCase &c) {
  Class cls = c.depthwise ? [MPSCNNDepthWiseConvolutionDescriptor class] : [MPSCNNConvolutionDescriptor class];
  MPSCNNConvolutionDescriptor *d = [cls cnnConvolutionDescriptorWithKernelWidth:static_cast<NSUInteger>(c.kw)
                                                                   kernelHeight:static_cast<NSUInteger>(c.kh)
                                                           inputFeatureChannels:static_cast<NSUInteger>(c.ic)
                                                          outputFeatureChannels:static_cast<NSUInteger>(c.oc)];
  [d setStrideInPixelsX:static_cast<NSUInteger>(c.sx)];
  [d setStrideInPixelsY:static_cast<NSUInteger>(c.sy)];
  [d setDilationRateX:static_cast<NSUInteger>(c.dx)];
  [d setDilationRateY:static_cast<NSUInteger>(c.dy)];
  [d setGroups:static_cast<NSUInteger>(c.groups)];
  return d;
}

Geometry geometry_of(const ConvCase &c) {
  Geometry g;
  g.kh = c.kh, g.kw = c.kw, g.sy = c.sy, g.sx = c.sx, g.dy = c.dy, g.dx = c.dx;
  g.groups = c.depthwise ? c.oc : c.groups;
  g.clamp = c.clamp;
  g.start_y = c.off_y - ((c.kh - 1) * c.dy + 1) / 2;
  g.start_x = c.off_x - ((c.kw - 1) * c.dx + 1) / 2;
  return g;
}

std::size_t weight_count(const ConvCase &c) {
  return static_cast<std::size_t>(c.oc * c.kh * c.kw * (c.depthwise ? 1 : c.ic / c.groups));
}

void test_convolutions() {
  const ConvCase cases[] = {
      {.why = "the window's centre is on the first pixel"},
      {.why = "offset, batch of images in one object", .n = 3, .off_y = 1, .off_x = 2},
      {.why = "even kernel: the lower right of the middle taps is the centre", .kh = 2, .kw = 4},
      {.why = "strides with a remainder", .sy = 2, .sx = 3, .off_y = 1, .off_x = 1, .dst_h = 3, .dst_w = 3},
      {.why = "dilation: centred on the dilated size", .kh = 3, .kw = 2, .dy = 2, .dx = 3},
      {.why = "clamp", .off_y = -2, .off_x = 3, .clamp = true},
      {.why = "a destination larger than useful", .dst_h = 11, .dst_w = 13},
      {.why = "one pixel", .h = 1, .w = 1, .dst_h = 1, .dst_w = 1},
      {.why = "no bias", .bias = false},
      {.why = "groups", .ic = 8, .oc = 16, .groups = 2},
      {.why = "depth-wise", .ic = 7, .oc = 7, .depthwise = true},
      {.why = "depth-wise, stride 2",
       .ic = 8,
       .oc = 8,
       .sy = 2,
       .sx = 2,
       .off_y = 1,
       .dst_h = 4,
       .dst_w = 5,
       .depthwise = true},
      {.why = "clip: source pixels do not move with it",
       .off_y = 1,
       .clip_y = 2,
       .clip_x = 3,
       .clip_h = 4,
       .clip_w = 2},
      {.why = "clip beyond the destination is cut", .clip_y = 5, .clip_x = 6, .clip_h = 1000, .clip_w = 1000},
      {.why = "channel offsets on both sides",
       .ic = 6,
       .oc = 4,
       .src_c0 = 4,
       .src_more = 3,
       .dst_c0 = 8,
       .dst_more = 2},
      {.why = "1 x 1, channels no multiple of 4", .ic = 3, .oc = 1, .kh = 1, .kw = 1},
      {.why = "far away: nothing but bias", .off_y = -50, .off_x = 50},
  };
  unsigned seed = 1;
  for (const ConvCase &c : cases) {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    seed += 3;
    const Tensor source = Tensor::random(c.n, c.h, c.w, c.src_c0 + c.ic + c.src_more, seed);
    const std::vector<double> w = random_values(weight_count(c), seed + 1);
    const std::vector<double> b =
        c.bias ? random_values(static_cast<std::size_t>(c.oc), seed + 2) : std::vector<double>();
    MPSCNNConvolution *kernel =
        [[[MPSCNNConvolution alloc] initWithDevice:device weights:make_source(descriptor_of(c), w, b)] autorelease];
    [kernel setOffset:MPSOffset{c.off_x, c.off_y, 0}];
    if (c.clamp) [kernel setEdgeMode:MPSImageEdgeModeClamp];
    if (c.clip_h > 0)
      [kernel setClipRect:MTLRegionMake3D(static_cast<NSUInteger>(c.clip_x), static_cast<NSUInteger>(c.clip_y), 0,
                                          static_cast<NSUInteger>(c.clip_w), static_cast<NSUInteger>(c.clip_h), 1000)];
    [kernel setSourceFeatureChannelOffset:static_cast<NSUInteger>(c.src_c0)];
    [kernel setSourceFeatureChannelMaxCount:static_cast<NSUInteger>(c.ic)];
    [kernel setDestinationFeatureChannelOffset:static_cast<NSUInteger>(c.dst_c0)];
    MPSImage *dst = make_nan_image(c.n, c.dst_h, c.dst_w, c.dst_c0 + c.oc + c.dst_more);
    id<MTLCommandBuffer> buffer = command_buffer();
    [kernel encodeToCommandBuffer:buffer sourceImage:make_image(source) destinationImage:dst];
    [kernel setOffset:MPSOffset{100, 100, 0}];  // what is encoded stays as it is
    run(buffer);

    const long h = c.clip_h > 0 ? std::min(c.clip_h, c.dst_h - c.clip_y) : c.dst_h;
    const long wd = c.clip_w > 0 ? std::min(c.clip_w, c.dst_w - c.clip_x) : c.dst_w;
    Tensor expected(c.n, c.dst_h, c.dst_w, c.dst_c0 + c.oc + c.dst_more, NAN);
    paste(expected, convolve(source.channels(c.src_c0, c.ic), w, b, c.oc, geometry_of(c), h, wd), 0, c.clip_y, c.clip_x,
          c.dst_c0);
    check_equal(std::string("convolution: ") + c.why, read_image(dst), expected);
    [pool drain];
  }
}

/// Image ranges: offset.z is the first source image, clipRect's z the destination's.
void test_image_ranges() {
  const ConvCase c{.why = "ranges"};
  const std::vector<double> w = random_values(weight_count(c), 5);
  MPSCNNConvolution *kernel =
      [[[MPSCNNConvolution alloc] initWithDevice:device weights:make_source(descriptor_of(c), w, {})] autorelease];
  const Tensor source = Tensor::random(5, c.h, c.w, c.ic, 6);
  MPSImage *dst = make_nan_image(4, c.h, c.w, c.oc);
  [kernel setOffset:MPSOffset{0, 0, 2}];
  [kernel setClipRect:MTLRegionMake3D(0, 0, 1, 100, 100, 2)];
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(source) destinationImage:dst];
  run(buffer);
  const Tensor all = convolve(source, w, {}, c.oc, geometry_of(c), c.h, c.w);
  Tensor expected(4, c.h, c.w, c.oc, NAN);
  paste(expected, all.image(2), 1, 0, 0, 0);
  paste(expected, all.image(3), 2, 0, 0, 0);
  check_equal("image ranges", read_image(dst), expected);
}

void test_subpixel() {
  MPSCNNSubPixelConvolutionDescriptor *d =
      [MPSCNNSubPixelConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:3
                                                                      kernelHeight:3
                                                              inputFeatureChannels:5
                                                             outputFeatureChannels:12];
  [d setSubPixelScaleFactor:2];
  const std::vector<double> w = random_values(12 * 9 * 5, 1), b = random_values(12, 2);
  MPSCNNConvolution *kernel = [[[MPSCNNConvolution alloc] initWithDevice:device
                                                                 weights:make_source(d, w, b)] autorelease];
  check([kernel subPixelScaleFactor] == 2, "subPixelScaleFactor");
  const Tensor x = Tensor::random(1, 4, 5, 5, 3);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSImage *dst = [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x)];
  run(buffer);
  Geometry g;
  g.kh = g.kw = 3, g.start_y = g.start_x = -1;
  const Tensor low = convolve(x, w, b, 12, g, 4, 5);
  Tensor expected(1, 8, 10, 3);
  for (long y = 0; y < 8; ++y)
    for (long i = 0; i < 10; ++i)
      for (long c = 0; c < 3; ++c) expected.at(0, y, i, c) = low.at(0, y / 2, i / 2, 3 * (2 * (y % 2) + i % 2) + c);
  check_equal("sub-pixel", read_image(dst), expected);
}

void test_batch_norm_and_neurons() {
  const ConvCase c{.why = "batch norm", .h = 4, .w = 5, .dst_h = 4, .dst_w = 5};
  const std::vector<double> w = random_values(weight_count(c), 1), b = random_values(6, 2);
  const float mean[] = {0.5f, -1, 0.25f, 0, 2, 1}, variance[] = {1, 4, 0.25f, 9, 2, 0.5f},
              gamma[] = {1, 2, -1, 0.5f, 3, 1}, beta[] = {0, 1, -0.5f, 0.25f, 2, -2};
  const Tensor x = Tensor::random(1, c.h, c.w, c.ic, 3);
  MPSCNNConvolutionDescriptor *d = descriptor_of(c);
  [d setBatchNormalizationParametersForInferenceWithMean:mean variance:variance gamma:gamma beta:beta epsilon:1e-3f];
  const float slopes[] = {0.5f, -1, 2, 0, 0.25f, 3};
  [d setNeuronToPReLUWithParametersA:[NSData dataWithBytes:slopes length:sizeof slopes]];
  check([d neuronType] == MPSCNNNeuronTypePReLU, "neuronType of the descriptor");
  FullTestSource *source = make_source<FullTestSource>(d, w, b);
  source->kept = MPSDataTypeFloat32;
  MPSCNNConvolution *kernel = [[[MPSCNNConvolution alloc] initWithDevice:device weights:source] autorelease];
  MPSImage *dst = make_nan_image(1, c.h, c.w, c.oc);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:dst];
  run(buffer);
  Tensor expected = convolve(x, w, b, c.oc, geometry_of(c), c.h, c.w);
  for (long y = 0; y < c.h; ++y)
    for (long i = 0; i < c.w; ++i)
      for (long o = 0; o < c.oc; ++o) {
        double value = expected.at(0, y, i, o);
        value = (value - mean[o]) * gamma[o] / std::sqrt(variance[o] + double{1e-3f}) + beta[o];
        expected.at(0, y, i, o) = value >= 0 ? value : slopes[o] * value;
      }
  check_equal("batch norm, then PReLU", read_image(dst), expected, 5e-5);
}

struct NeuronCase {
  MPSCNNNeuronType type;
  float a, b, c;
};

const NeuronCase kNeurons[] = {
    {MPSCNNNeuronTypeNone, 0, 0, 0},           {MPSCNNNeuronTypeReLU, 0, 0, 0},
    {MPSCNNNeuronTypeReLU, 0.25f, 0, 0},       {MPSCNNNeuronTypeLinear, 2, -1, 0},
    {MPSCNNNeuronTypeSigmoid, 0, 0, 0},        {MPSCNNNeuronTypeHardSigmoid, 0.5f, 0.4f, 0},
    {MPSCNNNeuronTypeTanH, 3, 0.5f, 0},        {MPSCNNNeuronTypeAbsolute, 0, 0, 0},
    {MPSCNNNeuronTypeSoftPlus, 2, 3, 0},       {MPSCNNNeuronTypeSoftSign, 0, 0, 0},
    {MPSCNNNeuronTypeELU, 0.5f, 0, 0},         {MPSCNNNeuronTypeReLUN, 0.5f, 0.75f, 0},
    {MPSCNNNeuronTypePower, 0.5f, 2, 3},       {MPSCNNNeuronTypeExponential, 1, 0.5f, -1},
    {MPSCNNNeuronTypeExponential, 0.5f, 1, 2}, {MPSCNNNeuronTypeLogarithm, 1, 2, -1},
    {MPSCNNNeuronTypeLogarithm, 1, 2, 10},     {MPSCNNNeuronTypeGeLU, 0, 0, 0},
};

void test_neurons() {
  const Tensor x = Tensor::random(2, 5, 6, 7, 11);
  for (const NeuronCase &n : kNeurons) {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    MPSNNNeuronDescriptor *d = [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:n.type a:n.a b:n.b c:n.c];
    MPSCNNNeuron *kernel = [[[MPSCNNNeuron alloc] initWithDevice:device neuronDescriptor:d] autorelease];
    check([kernel neuronType] == n.type && [kernel a] == n.a && [kernel b] == n.b && [kernel c] == n.c,
          "a, b, c of a neuron");
    MPSImage *dst = make_nan_image(2, 5, 6, 7);
    id<MTLCommandBuffer> buffer = command_buffer();
    [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:dst];
    run(buffer);
    check_equal("neuron " + std::to_string(n.type), read_image(dst), activate(x, n.type, n.a, n.b, n.c), 1e-5);

    ConvCase c{.why = "fused", .n = 2, .h = 5, .w = 6, .ic = 7, .oc = 4, .kh = 1, .kw = 1, .dst_h = 5, .dst_w = 6};
    MPSCNNConvolutionDescriptor *cd = descriptor_of(c);
    [cd setFusedNeuronDescriptor:d];
    const std::vector<double> w = random_values(weight_count(c), 4);
    std::vector<double> small = w;
    for (double &value : small) value /= 8;  // keeps logarithms defined
    MPSCNNConvolution *conv = [[[MPSCNNConvolution alloc] initWithDevice:device
                                                                 weights:make_source(cd, small, {})] autorelease];
    dst = make_nan_image(2, 5, 6, 4);
    buffer = command_buffer();
    [conv encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:dst];
    run(buffer);
    const Tensor y = convolve(x, small, {}, 4, geometry_of(c), 5, 6);
    check_equal("fused neuron " + std::to_string(n.type), read_image(dst), activate(y, n.type, n.a, n.b, n.c), 3e-5);
    [pool drain];
  }
}

void check_shorthand(MPSCNNNeuron *kernel, MPSCNNNeuronType type, float a, float b, float c) {
  [kernel autorelease];
  check([kernel neuronType] == type && [kernel a] == a && [kernel b] == b && [kernel c] == c,
        std::string("shorthand ") + [NSStringFromClass([kernel class]) UTF8String]);
}

void test_neuron_shorthands() {
  check_shorthand([[MPSCNNNeuronAbsolute alloc] initWithDevice:device], MPSCNNNeuronTypeAbsolute, 0, 0, 0);
  check_shorthand([[MPSCNNNeuronELU alloc] initWithDevice:device a:2], MPSCNNNeuronTypeELU, 2, 0, 0);
  check_shorthand([[MPSCNNNeuronExponential alloc] initWithDevice:device a:1 b:2 c:3], MPSCNNNeuronTypeExponential, 1,
                  2, 3);
  check_shorthand([[MPSCNNNeuronHardSigmoid alloc] initWithDevice:device a:1 b:2], MPSCNNNeuronTypeHardSigmoid, 1, 2,
                  0);
  check_shorthand([[MPSCNNNeuronLinear alloc] initWithDevice:device a:1 b:2], MPSCNNNeuronTypeLinear, 1, 2, 0);
  check_shorthand([[MPSCNNNeuronLogarithm alloc] initWithDevice:device a:1 b:2 c:3], MPSCNNNeuronTypeLogarithm, 1, 2,
                  3);
  check_shorthand([[MPSCNNNeuronPower alloc] initWithDevice:device a:1 b:2 c:3], MPSCNNNeuronTypePower, 1, 2, 3);
  check_shorthand([[MPSCNNNeuronReLU alloc] initWithDevice:device a:0], MPSCNNNeuronTypeReLU, 0, 0, 0);
  check_shorthand([[MPSCNNNeuronReLUN alloc] initWithDevice:device a:0 b:6], MPSCNNNeuronTypeReLUN, 0, 6, 0);
  check_shorthand([[MPSCNNNeuronSigmoid alloc] initWithDevice:device], MPSCNNNeuronTypeSigmoid, 0, 0, 0);
  check_shorthand([[MPSCNNNeuronSoftPlus alloc] initWithDevice:device a:1 b:2], MPSCNNNeuronTypeSoftPlus, 1, 2, 0);
  check_shorthand([[MPSCNNNeuronSoftSign alloc] initWithDevice:device], MPSCNNNeuronTypeSoftSign, 0, 0, 0);
  check_shorthand([[MPSCNNNeuronTanH alloc] initWithDevice:device a:1 b:2], MPSCNNNeuronTypeTanH, 1, 2, 0);

  const float slopes[] = {0.5f, -1, 2, 0, 0.25f};
  MPSCNNNeuronPReLU *prelu = [[[MPSCNNNeuronPReLU alloc] initWithDevice:device a:slopes count:5] autorelease];
  check([[prelu data] length] == sizeof slopes, "data of a PReLU");
  const Tensor x = Tensor::random(1, 3, 4, 5, 12);
  MPSImage *dst = make_nan_image(1, 3, 4, 5);
  id<MTLCommandBuffer> buffer = command_buffer();
  [prelu encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:dst];
  run(buffer);
  Tensor expected = x;
  for (std::size_t i = 0; i < expected.values.size(); ++i)
    if (expected.values[i] < 0) expected.values[i] *= slopes[i % 5];
  check_equal("PReLU", read_image(dst), expected);
}

/// y[clip + (j, i)] = f(x[offset + (j, i)]), edge pixels outside.
void test_neuron_offset() {
  const Tensor x = Tensor::random(1, 5, 6, 3, 13);
  MPSCNNNeuronLinear *kernel = [[[MPSCNNNeuronLinear alloc] initWithDevice:device a:2 b:1] autorelease];
  for (int clamp = 0; clamp < 2; ++clamp) {
    [kernel setEdgeMode:clamp ? MPSImageEdgeModeClamp : MPSImageEdgeModeZero];
    for (long offset : {2l, -1l, 30l}) {
      [kernel setOffset:MPSOffset{offset, 1, 0}];
      [kernel setClipRect:MTLRegionMake3D(1, 2, 0, 3, 2, 1)];
      MPSImage *dst = make_nan_image(1, 7, 8, 3);
      id<MTLCommandBuffer> buffer = command_buffer();
      [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:dst];
      run(buffer);
      Geometry g;
      g.start_y = 1, g.start_x = offset, g.clamp = clamp;
      g.groups = 3;
      Tensor expected(1, 7, 8, 3, NAN);
      paste(expected, activate(convolve(x, {1, 1, 1}, {}, 3, g, 2, 3), MPSCNNNeuronTypeLinear, 2, 1, 0), 0, 2, 1, 0);
      check_equal("neuron with offset " + std::to_string(offset), read_image(dst), expected);
    }
  }
}

// ------------------------------------------------------------------------------------------ padding policies

struct PaddingCase {
  const char *why;
  MPSNNPaddingMethod method;
  long size, kernel, stride, dilation;
  long result, start;  ///< expected pixels and first tap
};

void test_padding() {
  const MPSNNPaddingMethod same = MPSNNPaddingMethodSizeSame, full = MPSNNPaddingMethodSizeFull,
                           last = MPSNNPaddingMethodAddRemainderToBottomRight;
  const PaddingCase cases[] = {
      {"same, odd kernel", same, 7, 3, 1, 1, 7, -1},
      {"same, stride 2, even size: the extra pixel is first", same, 8, 3, 2, 1, 4, -1},
      {"same, stride 2, even size, remainder last: TensorFlow", same | last, 8, 3, 2, 1, 4, 0},
      {"same, even kernel", same, 5, 2, 1, 1, 5, -1},
      {"same, even kernel, remainder last", same | last, 5, 2, 1, 1, 5, 0},
      {"same, top left", same | MPSNNPaddingMethodAlignTopLeft, 8, 5, 1, 1, 8, -4},
      {"same, bottom right", same | MPSNNPaddingMethodAlignBottomRight, 8, 5, 1, 1, 8, 0},
      {"valid", MPSNNPaddingMethodSizeValidOnly, 8, 3, 1, 1, 6, 0},
      {"valid, unused pixels are shared out", MPSNNPaddingMethodSizeValidOnly, 13, 2, 4, 1, 3, 1},
      {"full", full, 6, 3, 1, 1, 8, -2},
      {"same, dilated", same, 9, 3, 1, 2, 9, -2},
      {"valid, dilated", MPSNNPaddingMethodSizeValidOnly, 9, 3, 1, 3, 3, 0},
  };
  for (const PaddingCase &p : cases) {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    // The case on one axis, something plain on the other; both ways.
    for (int vertical = 0; vertical < 2; ++vertical) {
      ConvCase c{.why = p.why, .ic = 3, .oc = 2};
      c.h = vertical ? p.size : 1, c.w = vertical ? 1 : p.size;
      c.kh = vertical ? p.kernel : 1, c.kw = vertical ? 1 : p.kernel;
      c.sy = vertical ? p.stride : 1, c.sx = vertical ? 1 : p.stride;
      c.dy = vertical ? p.dilation : 1, c.dx = vertical ? 1 : p.dilation;
      const std::vector<double> w = random_values(weight_count(c), 21);
      MPSCNNConvolution *kernel =
          [[[MPSCNNConvolution alloc] initWithDevice:device weights:make_source(descriptor_of(c), w, {})] autorelease];
      [kernel setPadding:[MPSNNDefaultPadding paddingWithMethod:p.method]];
      [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
      [kernel setOffset:MPSOffset{77, 77, 0}];
      const Tensor x = Tensor::random(1, c.h, c.w, c.ic, 22);
      id<MTLCommandBuffer> buffer = command_buffer();
      MPSImage *dst = [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x)];
      run(buffer);
      const MPSOffset offset = [kernel offset];
      const long extent = (p.kernel - 1) * p.dilation + 1;
      check((vertical ? offset.y : offset.x) == p.start + extent / 2 && offset.z == 0,
            std::string("padding offset: ") + p.why + ", got " + std::to_string(vertical ? offset.y : offset.x));
      Geometry g = geometry_of(c);
      g.start_y = vertical ? p.start : 0, g.start_x = vertical ? 0 : p.start;
      check_equal(std::string("padding: ") + p.why, read_image(dst),
                  convolve(x, w, {}, c.oc, g, vertical ? p.result : 1, vertical ? 1 : p.result));
    }
    [pool drain];
  }

  // The factory default, and one axis not like the other.
  const ConvCase c{.why = "padding"};
  const std::vector<double> w = random_values(weight_count(c), 23);
  MPSCNNConvolution *kernel =
      [[[MPSCNNConvolution alloc] initWithDevice:device weights:make_source(descriptor_of(c), w, {})] autorelease];
  check([[kernel padding] paddingMethod] == MPSNNPaddingMethodSizeSame, "default padding");
  GrowingPadding *growing = [[[GrowingPadding alloc] init] autorelease];
  growing->pad = 1;
  [kernel setPadding:growing];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  for (long size : {6l, 1l}) {  // 1: the suggestion has -1 pixels
    const Tensor x = Tensor::random(1, size, size, c.ic, 24);
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSImage *dst = [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x)];
    run(buffer);
    check(growing->seen_width == static_cast<NSUInteger>(size - 2), "the suggestion of a custom policy is ValidOnly");
    check_equal("custom padding", read_image(dst),
                convolve(x, w, {}, c.oc, geometry_of({.why = "", .off_y = 0}), size, size));
  }
  MPSNNDefaultPadding *full_padding = [MPSNNDefaultPadding paddingWithMethod:full];
  check([[full_padding inverse] paddingMethod] == MPSNNPaddingMethodSizeValidOnly, "inverse of full");
  check(([[MPSNNDefaultPadding paddingForTensorflowAveragePooling] paddingMethod] & MPSNNPaddingMethodCustom) != 0,
        "TensorFlow's average pooling is a custom policy");
  check([full_padding label] != nil, "label of a padding policy");
}

// ------------------------------------------------------------------------- transpose and fully connected

std::vector<double> rotated(const std::vector<double> &w, long outputs, long kh, long kw, long inputs) {
  std::vector<double> r(w.size());
  for (long o = 0; o < outputs; ++o)
    for (long t = 0; t < kh * kw; ++t)
      for (long i = 0; i < inputs; ++i)
        r[static_cast<std::size_t>((o * kh * kw + kh * kw - 1 - t) * inputs + i)] =
            w[static_cast<std::size_t>((o * kh * kw + t) * inputs + i)];
  return r;
}

void test_transpose() {
  struct Case {
    long h, w, ic, oc, kh, kw, sy, sx, pad;
  } cases[] = {{4, 5, 3, 2, 3, 3, 1, 1, 1},
               {4, 5, 3, 6, 3, 2, 2, 3, 0},
               {3, 4, 5, 4, 4, 4, 2, 2, 1},
               {1, 1, 2, 3, 5, 2, 2, 1, 0}};
  for (const auto &c : cases) {
    const ConvCase shape{.why = "transpose", .ic = c.ic, .oc = c.oc, .kh = c.kh, .kw = c.kw, .sy = c.sy, .sx = c.sx};
    const std::vector<double> w = random_values(weight_count(shape), 31),
                              b = random_values(static_cast<std::size_t>(c.oc), 32);
    TestSource *source = make_source(descriptor_of(shape), rotated(w, c.oc, c.kh, c.kw, c.ic), b);
    MPSCNNConvolutionTranspose *kernel = [[[MPSCNNConvolutionTranspose alloc] initWithDevice:device
                                                                                     weights:source] autorelease];
    check([kernel isBackwards] && [kernel kernelOffsetX] == 0 && [kernel kernelOffsetY] == 0,
          "properties of a transpose");
    [kernel setKernelOffsetX:c.kw / 2 - c.kw + 1 + c.pad];
    [kernel setKernelOffsetY:c.kh / 2 - c.kh + 1 + c.pad];
    const long h = (c.h - 1) * c.sy + c.kh - 2 * c.pad, wd = (c.w - 1) * c.sx + c.kw - 2 * c.pad;
    const Tensor x = Tensor::random(2, c.h, c.w, c.ic, 33);
    MPSImage *dst = make_nan_image(2, h, wd, c.oc);
    id<MTLCommandBuffer> buffer = command_buffer();
    [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:dst];
    run(buffer);
    check_equal("transpose", read_image(dst), scatter(x, w, b, c.oc, c.kh, c.kw, c.sy, c.sx, c.pad, c.pad, h, wd));
  }

  // Sizes by the policy: the reverse formulas. Full is everything that sees the source.
  const ConvCase shape{.why = "transpose", .ic = 3, .oc = 2, .kh = 3, .kw = 4, .sy = 2, .sx = 3};
  const std::vector<double> w = random_values(weight_count(shape), 34);
  TestSource *source = make_source(descriptor_of(shape), rotated(w, 2, 3, 4, 3), {});
  MPSCNNConvolutionTranspose *kernel = [[[MPSCNNConvolutionTranspose alloc] initWithDevice:device
                                                                                   weights:source] autorelease];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  [kernel setPadding:[MPSNNDefaultPadding paddingWithMethod:MPSNNPaddingMethodSizeFull]];
  const Tensor x = Tensor::random(1, 4, 5, 3, 35);
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *dst = [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x)];
  run(buffer);
  check_equal("transpose, full", read_image(dst), scatter(x, w, {}, 2, 3, 4, 2, 3, 0, 0, 3 * 2 + 3, 4 * 3 + 4));

  // Undoing a convolution: the transpose is its adjoint, so <conv(x), y> == <x, transpose(y)>.
  const ConvCase forward{.why = "undone", .h = 8, .w = 7, .ic = 3, .oc = 4, .kh = 3, .kw = 2, .sy = 2, .sx = 2};
  const std::vector<double> fw = random_values(weight_count(forward), 36);
  MPSCNNConvolution *conv =
      [[[MPSCNNConvolution alloc] initWithDevice:device
                                         weights:make_source(descriptor_of(forward), fw, {})] autorelease];
  std::vector<double> swapped(fw.size());  // [I][kh][kw][O], rotated
  for (long o = 0; o < 4; ++o)
    for (long t = 0; t < 6; ++t)
      for (long i = 0; i < 3; ++i)
        swapped[static_cast<std::size_t>((i * 6 + 5 - t) * 4 + o)] = fw[static_cast<std::size_t>((o * 6 + t) * 3 + i)];
  ConvCase backward = forward;
  backward.ic = 4, backward.oc = 3;
  MPSCNNConvolutionTranspose *undo = [[[MPSCNNConvolutionTranspose alloc]
      initWithDevice:device
             weights:make_source(descriptor_of(backward), swapped, {})] autorelease];
  [conv setDestinationImageAllocator:[MPSImage defaultAllocator]];
  [undo setDestinationImageAllocator:[MPSImage defaultAllocator]];
  const Tensor fx = Tensor::random(1, 8, 7, 3, 37);
  MPSState *state = nil;
  buffer = command_buffer();
  MPSImage *fy = [conv encodeToCommandBuffer:buffer
                                 sourceImage:make_image(fx)
                            destinationState:&state
                 destinationStateIsTemporary:NO];
  MPSCNNConvolutionGradientState *gradient = (MPSCNNConvolutionGradientState *)state;
  check([gradient isKindOfClass:[MPSCNNConvolutionGradientState class]] && [gradient sourceWidth] == 7 &&
            [gradient sourceHeight] == 8 && [gradient convolution] == conv,
        "the state of a convolution");
  check([[gradient gradientForWeights] length] == 4 * 6 * 3 * 4 && [[gradient gradientForBiases] length] == 16,
        "lengths of the gradients");
  const Tensor y = Tensor::random(1, static_cast<long>([fy height]), static_cast<long>([fy width]), 4, 38);
  MPSCNNConvolutionTransposeGradientState *undone = nil;
  MPSImage *back = [undo encodeToCommandBuffer:buffer
                                   sourceImage:make_image(y)
                      convolutionGradientState:gradient
                              destinationState:&undone
                   destinationStateIsTemporary:NO];
  run(buffer);
  check([undone convolutionTranspose] == undo && [undone convolution] == conv, "the state of a transpose");
  const Tensor conv_x = read_image(fy), trans_y = read_image(back);
  check(trans_y.h == 8 && trans_y.w == 7 && trans_y.c == 3, "the transpose is as large as the convolution's source");
  double left = 0, right = 0;
  for (std::size_t i = 0; i < y.values.size(); ++i) left += conv_x.values[i] * y.values[i];
  for (std::size_t i = 0; i < std::min(fx.values.size(), trans_y.values.size()); ++i)
    right += fx.values[i] * trans_y.values[i];
  check(std::fabs(left - right) < 1e-3, "the transpose is the adjoint of the convolution");
}

void test_fully_connected() {
  const ConvCase c{.why = "W != H", .n = 2, .h = 3, .w = 5, .ic = 6, .oc = 7, .kh = 3, .kw = 5};
  const std::vector<double> w = random_values(weight_count(c), 41), b = random_values(7, 42);
  MPSCNNFullyConnected *kernel =
      [[[MPSCNNFullyConnected alloc] initWithDevice:device weights:make_source(descriptor_of(c), w, b)] autorelease];
  check([[kernel padding] paddingMethod] == MPSNNPaddingMethodSizeValidOnly, "padding of a fully connected kernel");
  const Tensor x = Tensor::random(2, 3, 5, 6, 43);
  MPSImage *dst = make_nan_image(2, 1, 1, 7);
  [kernel setOffset:MPSOffset{3, -4, 0}];  // ignored
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:dst];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSImage *returned = [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x)];
  run(buffer);
  Tensor expected(2, 1, 1, 7);
  for (long n = 0; n < 2; ++n)
    for (long o = 0; o < 7; ++o) {
      double sum = b[static_cast<std::size_t>(o)];
      for (long i = 0; i < 90; ++i)
        sum += w[static_cast<std::size_t>(o * 90 + i)] * x.values[static_cast<std::size_t>(n * 90 + i)];
      expected.at(n, 0, 0, o) = sum;
    }
  check_equal("fully connected: OHWI", read_image(dst), expected, 5e-5);
  check_equal("fully connected, returned", read_image(returned), expected, 5e-5);
}

// --------------------------------------------------------------------------- batches and temporary images

void test_batches() {
  const ConvCase c{.why = "batch"};
  const std::vector<double> w = random_values(weight_count(c), 51);
  MPSCNNConvolution *kernel =
      [[[MPSCNNConvolution alloc] initWithDevice:device weights:make_source(descriptor_of(c), w, {})] autorelease];
  const Tensor x = Tensor::random(4, c.h, c.w, c.ic, 52);
  const Tensor expected = convolve(x, w, {}, c.oc, geometry_of(c), c.h, c.w);

  // Views of one object, separate objects, and one object in reverse order.
  MPSImage *whole = make_image(x), *whole_dst = make_nan_image(4, c.h, c.w, c.oc),
           *reverse_dst = make_nan_image(4, c.h, c.w, c.oc);
  NSMutableArray *apart = [NSMutableArray array], *apart_dst = [NSMutableArray array];
  for (long i = 0; i < 4; ++i) {
    [apart addObject:make_image(x.image(i))];
    [apart_dst addObject:make_nan_image(1, c.h, c.w, c.oc)];
  }
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeBatchToCommandBuffer:buffer
                        sourceImages:[whole batchRepresentation]
                   destinationImages:[whole_dst batchRepresentation]];
  [kernel encodeBatchToCommandBuffer:buffer sourceImages:apart destinationImages:apart_dst];
  NSArray *reverse = [[[reverse_dst batchRepresentation] reverseObjectEnumerator] allObjects];
  [kernel encodeBatchToCommandBuffer:buffer sourceImages:apart destinationImages:reverse];
  MPSStateBatch *states = nil;
  MPSImageBatch *returned = [kernel encodeBatchToCommandBuffer:buffer
                                                  sourceImages:apart
                                             destinationStates:&states
                                   destinationStateIsTemporary:NO];
  check([states count] == 4 && [states objectAtIndex:0] == [states objectAtIndex:3], "one state for the whole batch");
  check([returned count] == 4 && [[returned objectAtIndex:0] isKindOfClass:[MPSTemporaryImage class]],
        "results are temporary images");
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSCNNNeuronReLU *relu = [[[MPSCNNNeuronReLU alloc] initWithDevice:device a:0] autorelease];
  [relu setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSImageBatch *final_batch = [relu encodeBatchToCommandBuffer:buffer sourceImages:returned];
  check([(MPSTemporaryImage *)[returned objectAtIndex:0] readCount] == 0, "reading takes the readCount");
  run(buffer);
  check_equal("batch of views", read_image(whole_dst), expected);
  const Tensor reversed = read_image(reverse_dst);
  for (long i = 0; i < 4; ++i) {
    check_equal("batch of objects", read_image([apart_dst objectAtIndex:static_cast<NSUInteger>(i)]),
                expected.image(i));
    check_equal("batch in reverse", reversed.image(3 - i), expected.image(i));
    check_equal("chain of batches", read_image([final_batch objectAtIndex:static_cast<NSUInteger>(i)]),
                activate(expected.image(i), MPSCNNNeuronTypeReLU, 0, 0, 0));
  }
}

void test_read_counts() {
  MPSCNNNeuronAbsolute *kernel = [[[MPSCNNNeuronAbsolute alloc] initWithDevice:device] autorelease];
  const Tensor x = Tensor::random(1, 3, 3, 4, 61);
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSTemporaryImage *t = (MPSTemporaryImage *)[kernel encodeToCommandBuffer:buffer sourceImage:make_image(x)];
  check([t readCount] == 1, "a result may be read once");
  MPSImage *a = make_nan_image(1, 3, 3, 4), *b = make_nan_image(1, 3, 3, 4);
  // The same source twice in a batch counts once.
  [kernel encodeBatchToCommandBuffer:buffer sourceImages:@[ t, t ] destinationImages:@[ a, b ]];
  check([t readCount] == 0, "one readCount for each distinct image of a batch");
  check_raises("a temporary image is read once too often", @"MPSUsageException", "readCount",
               [&] { [kernel encodeToCommandBuffer:buffer sourceImage:t destinationImage:a]; });
  run(buffer);
  check_equal("the same source twice", read_image(b), activate(x, MPSCNNNeuronTypeAbsolute, 0, 0, 0));
}

}  // namespace

int main() {
  return run_tests({test_convolutions, test_image_ranges, test_subpixel, test_batch_norm_and_neurons, test_neurons,
                    test_neuron_shorthands, test_neuron_offset, test_padding, test_transpose, test_fully_connected,
                    test_batches, test_read_counts});
}

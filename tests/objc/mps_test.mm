// SPDX-License-Identifier: Apache-2.0
// Padding policies, states of a transpose, batches, read counts. Values of the kernels are in tests/cases,
// data sources and refused calls in mps_sources_test.mm. Prints "N passed, N failed".

#import "mps_test.hh"

/// Custom bit only: the suggestion is ValidOnly, and this one adds 2 * pad / stride as turicreate's does.
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
  long kh = 3, kw = 3, sy = 1, sx = 1, dy = 1, dx = 1;
};

MPSCNNConvolutionDescriptor *descriptor_of(const ConvCase &c) {
  MPSCNNConvolutionDescriptor *d =
      [MPSCNNConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:static_cast<NSUInteger>(c.kw)
                                                              kernelHeight:static_cast<NSUInteger>(c.kh)
                                                      inputFeatureChannels:static_cast<NSUInteger>(c.ic)
                                                     outputFeatureChannels:static_cast<NSUInteger>(c.oc)];
  [d setStrideInPixelsX:static_cast<NSUInteger>(c.sx)];
  [d setStrideInPixelsY:static_cast<NSUInteger>(c.sy)];
  [d setDilationRateX:static_cast<NSUInteger>(c.dx)];
  [d setDilationRateY:static_cast<NSUInteger>(c.dy)];
  return d;
}

Geometry geometry_of(const ConvCase &c) {
  Geometry g;
  g.kh = c.kh, g.kw = c.kw, g.sy = c.sy, g.sx = c.sx, g.dy = c.dy, g.dx = c.dx;
  g.start_y = -((c.kh - 1) * c.dy + 1) / 2;
  g.start_x = -((c.kw - 1) * c.dx + 1) / 2;
  return g;
}

std::size_t weight_count(const ConvCase &c) { return static_cast<std::size_t>(c.oc * c.kh * c.kw * c.ic); }

void test_subpixel() {
  MPSCNNSubPixelConvolutionDescriptor *d =
      [MPSCNNSubPixelConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:3
                                                                      kernelHeight:3
                                                              inputFeatureChannels:5
                                                             outputFeatureChannels:12];
  [d setSubPixelScaleFactor:2];
  MPSCNNConvolution *kernel =
      [[[MPSCNNConvolution alloc] initWithDevice:device
                                         weights:make_source(d, random_values(12 * 9 * 5, 1), {})] autorelease];
  check([kernel subPixelScaleFactor] == 2, "subPixelScaleFactor");
  const Tensor y = result_of(kernel, make_image(Tensor::random(1, 4, 5, 5, 3)));
  check(y.h == 8 && y.w == 10 && y.c == 3, "sub-pixel");
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
    // The case on one axis, a plain one on the other; both ways.
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

  // The factory default, and axes that differ.
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
    check_equal("custom padding", read_image(dst), convolve(x, w, {}, c.oc, geometry_of({.why = ""}), size, size));
  }
  MPSNNDefaultPadding *full_padding = [MPSNNDefaultPadding paddingWithMethod:full];
  check([[full_padding inverse] paddingMethod] == MPSNNPaddingMethodSizeValidOnly, "inverse of full");
  check(([[MPSNNDefaultPadding paddingForTensorflowAveragePooling] paddingMethod] & MPSNNPaddingMethodCustom) != 0,
        "TensorFlow's average pooling is a custom policy");
  check([full_padding label] != nil, "label of a padding policy");
}

// ------------------------------------------------------------------------- transpose and fully connected

void test_transpose() {
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
  id<MTLCommandBuffer> buffer = command_buffer();
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
  MPSCNNFullyConnected *kernel = [[[MPSCNNFullyConnected alloc]
      initWithDevice:device
             weights:make_source(descriptor_of(c), random_values(weight_count(c), 41), random_values(7, 42))]
      autorelease];
  check([[kernel padding] paddingMethod] == MPSNNPaddingMethodSizeValidOnly, "padding of a fully connected kernel");
  MPSImage *image = make_image(Tensor::random(2, 3, 5, 6, 43));
  const Tensor expected = result_of(kernel, image);
  [kernel setOffset:MPSOffset{3, -4, 0}];
  MPSImage *moved = make_nan_image(2, 1, 1, 7);
  encode(kernel, image, moved);
  check_equal("the offset is ignored", read_image(moved), expected, 0);
}

// --------------------------------------------------------------------------- batches and temporary images

void test_batches() {
  const ConvCase c{.why = "batch"};
  const std::vector<double> w = random_values(weight_count(c), 51);
  MPSCNNConvolution *kernel =
      [[[MPSCNNConvolution alloc] initWithDevice:device weights:make_source(descriptor_of(c), w, {})] autorelease];
  const Tensor x = Tensor::random(4, c.h, c.w, c.ic, 52);
  const Tensor expected = convolve(x, w, {}, c.oc, geometry_of(c), c.h, c.w);

  MPSImage *reverse_dst = make_nan_image(4, c.h, c.w, c.oc);
  MPSImageBatch *apart = make_batch(x);
  id<MTLCommandBuffer> buffer = command_buffer();
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
  const Tensor reversed = read_image(reverse_dst);
  Tensor rectified = expected;
  for (double &value : rectified.values) value = std::max(value, 0.0);
  for (long i = 0; i < 4; ++i) {
    check_equal("batch in reverse", reversed.image(3 - i), expected.image(i));
    check_equal("chain of batches", read_image([final_batch objectAtIndex:static_cast<NSUInteger>(i)]),
                rectified.image(i));
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
  Tensor expected = x;
  for (double &value : expected.values) value = std::fabs(value);
  check_equal("the same source twice", read_image(b), expected, 0);
}

}  // namespace

int main() {
  return run_tests({test_subpixel, test_neuron_shorthands, test_padding, test_transpose, test_fully_connected,
                    test_batches, test_read_counts});
}

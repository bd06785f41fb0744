// SPDX-License-Identifier: Apache-2.0
// Data sources, copies and archives of the MPS kernels, and refused calls. Prints "N passed, N failed".

#import "mps_test.hh"

/// Values that become NaN when they are released.
@interface Lender : NSObject {
 @public
  std::vector<float> values;
  bool *ended;
}
@end

@implementation Lender
- (void)dealloc {
  std::fill(values.begin(), values.end(), NAN);
  *ended = true;
  [super dealloc];
}
@end

/// Releases its values when it is purged.
@interface LendingSource : FullTestSource {
 @public
  Lender *lender;
}
- (id)weightsOwner;
@end

@implementation LendingSource
- (void *)weights {
  return lender->values.data();
}
- (id)weightsOwner {
  return lender;
}
- (void)purge {
  [super purge];
  [lender release];
  lender = nil;
}
@end

namespace {

MPSCNNConvolution *make_convolution(id<MPSCNNConvolutionDataSource> source) {
  return [[[MPSCNNConvolution alloc] initWithDevice:device weights:source] autorelease];
}

MPSCNNConvolution *plain_convolution(NSUInteger kh, NSUInteger kw, NSUInteger inputs, NSUInteger outputs) {
  return make_convolution(
      make_source(descriptor_of(kh, kw, inputs, outputs), random_values(kh * kw * inputs * outputs, 9), {}));
}

/// Return the kernel's weights, [O][I]: one-hot pixels through a 1 x 1 convolution.
std::vector<double> weights_of(MPSCNNConvolution *kernel) {
  const long inputs = static_cast<long>([kernel inputFeatureChannels]),
             outputs = static_cast<long>([kernel outputFeatureChannels]);
  Tensor x(inputs, 1, 1, inputs);
  for (long i = 0; i < inputs; ++i) x.at(i, 0, 0, i) = 1;
  MPSImage *dst = make_nan_image(inputs, 1, 1, outputs);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:dst];
  run(buffer);
  const Tensor y = read_image(dst);
  std::vector<double> result;
  for (long o = 0; o < outputs; ++o)
    for (long i = 0; i < inputs; ++i) result.push_back(y.at(i, 0, 0, o));
  return result;
}

void check_weights(const std::string &what, MPSCNNConvolution *kernel, const std::vector<double> &expected,
                   double tolerance) {
  const std::vector<double> got = weights_of(kernel);
  double worst = got.size() == expected.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i)
    worst = std::max(worst, std::fabs(got[i] - expected[i]));
  check(worst <= tolerance, what + ", largest difference " + std::to_string(worst));
}

// --------------------------------------------------------------------------------------- kinds of weights

void test_kinds_of_weights() {
  // 1 + 2^-11 is halfway between two halves and rounds to the even one; 1 + 3 * 2^-11 to the other.
  const std::vector<double> exact = {1 + std::ldexp(1, -11), 1 + 3 * std::ldexp(1, -11), -1.0 / 3, 1e-6, 70000,
                                     std::ldexp(1, -26)};
  const std::vector<double> halves = {1, 1 + std::ldexp(1, -9), -0.333251953125, 17 * std::ldexp(1, -24), INFINITY, 0};
  std::vector<double> finite = exact, finite_halves = halves;
  finite[4] = finite_halves[4] = 65504;
  TestSource *source = make_source(descriptor_of(1, 1, 3, 2), finite, {});
  check_weights("weights are rounded to half", make_convolution(source), finite_halves, 0);
  FullTestSource *full = make_source<FullTestSource>(descriptor_of(1, 1, 3, 2), finite, {});
  full->kept = MPSDataTypeFloat16;
  check_weights("kernelWeightsDataType Float16", make_convolution(full), finite_halves, 0);
  full->kept = MPSDataTypeFloat32;
  std::vector<double> floats(finite.size());
  for (std::size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(finite[i]);
  check_weights("kernelWeightsDataType Float32", make_convolution(full), floats, 0);

  const float raw[] = {1, 2, 3, 4, 5, 6};
  MPSCNNConvolution *kernel = [[[MPSCNNConvolution alloc] initWithDevice:device
                                                   convolutionDescriptor:descriptor_of(1, 1, 3, 2)
                                                           kernelWeights:raw
                                                               biasTerms:NULL
                                                                   flags:MPSCNNConvolutionFlagsNone] autorelease];
  check_weights("raw weights", kernel, {1, 2, 3, 4, 5, 6}, 0);
  check([kernel dataSource] == nil, "raw weights have no data source");

  // Folding comes before rounding: 1.001 / sqrt(4) is rounded once.
  MPSCNNConvolutionDescriptor *d = descriptor_of(1, 1, 1, 1);
  const float variance = 4;
  [d setBatchNormalizationParametersForInferenceWithMean:NULL variance:&variance gamma:NULL beta:NULL epsilon:0];
  check_weights("batch norm is folded before rounding", make_convolution(make_source(d, {1.001}, {})), {0.50048828125},
                0);
}

void test_life_cycle() {
  const std::vector<double> w = random_values(6, 3);
  TestSource *source = make_source(descriptor_of(1, 1, 3, 2), w, {});
  const NSUInteger references = [source retainCount];
  {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    MPSCNNConvolution *kernel = make_convolution(source);
    check(source->loads == 1 && source->purges == 1, "load and purge once");
    check([kernel dataSource] == source && [[kernel label] isEqual:@"test source"], "dataSource and label");
    check([kernel inputFeatureChannels] == 3 && [kernel outputFeatureChannels] == 2 && [kernel groups] == 1 &&
              [kernel channelMultiplier] == 0 && [kernel subPixelScaleFactor] == 1 &&
              [kernel neuronType] == MPSCNNNeuronTypeNone &&
              [kernel accumulatorPrecisionOption] == MPSNNConvolutionAccumulatorPrecisionOptionFloat,
          "properties of a convolution");

    // Encoded work keeps the old weights; later work uses the new ones.
    std::vector<float> doubled(w.begin(), w.end());
    for (float &value : doubled) value *= 2;
    std::memcpy(source->bytes.data(), doubled.data(), source->bytes.size());
    const Tensor x = Tensor::random(1, 1, 1, 3, 4);
    MPSImage *before = make_nan_image(1, 1, 1, 2), *after = make_nan_image(1, 1, 1, 2);
    id<MTLCommandBuffer> buffer = command_buffer();
    [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:before];
    [kernel reloadWeightsAndBiasesFromDataSource];
    [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:after];
    run(buffer);
    check(source->loads == 2 && source->purges == 2, "reload loads and purges");
    const Tensor once = convolve(x, w, {}, 2, Geometry(), 1, 1);
    Tensor twice = once;
    for (double &value : twice.values) value *= 2;
    check_equal("encoded before the reload", read_image(before), once);
    check_equal("encoded after the reload", read_image(after), twice);

    MPSCNNConvolution *copy = [[kernel copy] autorelease];
    check(source->copies == 1 && [copy dataSource] == source, "a copy copies the data source");
    check(source->loads == 2, "a copy shares the weights");
    [pool drain];
  }
  check([source retainCount] == references, "the kernel lets go of its data source");

  source->refuses_load = YES;
  check([[MPSCNNConvolution alloc] initWithDevice:device weights:source] == nil, "load NO makes the initialiser fail");
  check(source->loads == source->purges, "no purge without load");
  source->refuses_load = NO;

  const auto refused = [&](const char *what, NSString *name, const char *part) {
    check_raises(what, name, part, [&] { [[MPSCNNConvolution alloc] initWithDevice:device weights:source]; });
    check(source->loads == source->purges, std::string("purge balances load: ") + what);
  };
  source->raises_in_weights = YES;
  refused("an exception of the data source passes through", @"TestException", "from the data source");
  source->raises_in_weights = NO;
  source->has_no_weights = YES;
  refused("no weights", kArgument, "weights are NULL");
  source->has_no_weights = NO;
  source->type = MPSDataTypeInt32;
  refused("unknown data type", kArgument, "0x20000020");
  source->type = MPSDataTypeUInt8;
  refused("uint8 without a quantization", kArgument, "weightsQuantizationType");
  source->type = MPSDataTypeFloat32;
  MPSCNNConvolutionDescriptor *descriptor = source->descriptor;
  source->descriptor = nil;
  refused("no descriptor", kArgument, "descriptor is nil");
  source->descriptor = descriptor;
  check([source retainCount] == references, "failed initialisers keep no data source");

  FullTestSource *full = make_source<FullTestSource>(descriptor_of(1, 1, 3, 2), w, {});
  const auto full_refused = [&](const char *what, const char *part) {
    check_raises(what, kArgument, part, [&] { [[MPSCNNConvolution alloc] initWithDevice:device weights:full]; });
  };
  full->kept = MPSDataTypeFloat32;
  full->type = MPSDataTypeFloat16;
  full_refused("Float32 kernel weights from a Float16 source", "kernelWeightsDataType is Float32");
  full->kept = MPSDataTypeInt8;
  full_refused("Int8 kernel weights", "neither Float16 nor Float32");
  full->kept = MPSDataTypeFloat16;
  full->type = MPSDataTypeUInt8;
  full->quantization = MPSCNNWeightsQuantizationTypeLinear;
  full_refused("no ranges", "rangesForUInt8Kernel");
  full->quantization = MPSCNNWeightsQuantizationTypeLookupTable;
  full_refused("no table", "lookupTableForUInt8Kernel");
  full->type = MPSDataTypeFloat16;
  check_raises("a transpose takes float only", kArgument, "dataType",
               [&] { [[MPSCNNConvolutionTranspose alloc] initWithDevice:device weights:full]; });
  check_raises("no data source", kArgument, "nil", [&] {
    id<MPSCNNConvolutionDataSource> none = nil;
    [[MPSCNNConvolution alloc] initWithDevice:device weights:none];
  });
}

/// Weights pass from one kernel to another in the order of the command buffer; earlier encodes keep theirs.
void test_export_and_reload() {
  MPSCNNConvolutionDescriptor *d = descriptor_of(3, 2, 4, 8);
  const std::vector<double> w = random_values(24 * 8, 21), b = random_values(8, 22);
  MPSCNNConvolution *from = make_convolution(make_source(d, w, b)),
                    *to = make_convolution(make_source(d, random_values(192, 23), {}));
  const Tensor x = Tensor::random(1, 4, 5, 4, 24);
  for (BOOL temporary : {NO, YES}) {
    MPSImage *a = make_nan_image(1, 4, 5, 8), *before = make_nan_image(1, 4, 5, 8), *after = make_nan_image(1, 4, 5, 8);
    MPSCNNConvolution *target = [[to copy] autorelease];
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSCNNConvolutionWeightsAndBiasesState *state = [from exportWeightsAndBiasesWithCommandBuffer:buffer
                                                                        resultStateCanBeTemporary:temporary];
    check([[state weights] length] >= 192 * 4 && [[state biases] length] >= 8 * 4, "lengths of exported buffers");
    [target encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:before];
    [target reloadWeightsAndBiasesWithCommandBuffer:buffer state:state];
    check([state isTemporary] == temporary && [state readCount] == 0, "a reload reads the state");
    [from encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:a];
    [target encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:after];
    run(buffer);
    check_equal("weights after an export and a reload", read_image(after), read_image(a), 0);
    check(distance(read_image(before), read_image(a)) > 0.1, "weights before the reload");
  }
  MPSCNNConvolution *other = plain_convolution(3, 3, 4, 8);
  check_raises("buffers of another shape", kArgument, "expected 1152", [&] {
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSCNNConvolutionWeightsAndBiasesState *state = [from exportWeightsAndBiasesWithCommandBuffer:buffer
                                                                        resultStateCanBeTemporary:NO];
    [other reloadWeightsAndBiasesWithCommandBuffer:buffer state:state];
  });
  MPSCNNConvolutionWeightsAndBiasesState *empty =
      [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithDevice:device cnnConvolutionDescriptor:d] autorelease];
  check([[empty weights] length] >= 192 * 4 && [empty weightsOffset] == 0, "a state made from a descriptor");
}

// ------------------------------------------------------------------------------------ copies and archives

void test_copies_and_archives() {
  MPSCNNConvolutionDescriptor *d = descriptor_of(3, 2, 8, 16);
  [d setStrideInPixelsX:2];
  [d setDilationRateY:2];
  [d setGroups:2];
  const float variance[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7};
  [d setBatchNormalizationParametersForInferenceWithMean:NULL variance:variance gamma:NULL beta:variance epsilon:1e-3f];
  [d setFusedNeuronDescriptor:[MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeTanH a:2 b:0.5f]];
  MPSCNNConvolution *kernel = make_convolution(make_source(d, random_values(16 * 6 * 4, 1), random_values(16, 2)));
  [kernel setOffset:MPSOffset{1, -2, 0}];
  [kernel setEdgeMode:MPSImageEdgeModeClamp];
  [kernel setLabel:@"conv \"1\""];
  [kernel setOptions:MPSKernelOptionsVerbose];
  [kernel setPadding:[MPSNNDefaultPadding paddingWithMethod:MPSNNPaddingMethodSizeFull]];
  const Tensor x = Tensor::random(2, 6, 7, 8, 3);
  check_twins("convolution", kernel, x, 5, 4, 16);
  MPSCNNConvolution *read = archived(kernel);
  check([[read label] isEqual:@"conv \"1\""] && [read options] == MPSKernelOptionsVerbose && [read offset].x == 1 &&
            [read offset].y == -2 && [read edgeMode] == MPSImageEdgeModeClamp &&
            [read clipRect].size.depth == NSUIntegerMax && [read sourceFeatureChannelMaxCount] == NSUIntegerMax &&
            [read strideInPixelsX] == 2 && [read dilationRateY] == 2 && [read groups] == 2 &&
            [[read padding] paddingMethod] == MPSNNPaddingMethodSizeFull &&
            [[read fusedNeuronDescriptor] neuronType] == MPSCNNNeuronTypeTanH &&
            [[read fusedNeuronDescriptor] b] == 0.5f,
        "properties out of an archive");
  MPSCNNConvolution *copy = [[kernel copy] autorelease];
  [copy setOffset:MPSOffset{9, 9, 9}];
  [copy setLabel:@"other"];
  check([kernel offset].x == 1 && [[kernel label] isEqual:@"conv \"1\""], "a copy has properties of its own");

  MPSCNNDepthWiseConvolutionDescriptor *depthwise =
      [MPSCNNDepthWiseConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:3
                                                                       kernelHeight:3
                                                               inputFeatureChannels:8
                                                              outputFeatureChannels:8];
  check([depthwise channelMultiplier] == 1, "channelMultiplier of the descriptor");
  kernel = make_convolution(make_source(depthwise, random_values(8 * 9, 4), {}));
  check([kernel channelMultiplier] == 1 && [kernel groups] == 1, "a depth-wise kernel");
  // Descriptors.
  MPSCNNConvolutionDescriptor *twin = [[d copy] autorelease];
  [twin setKernelWidth:5];
  check([d kernelWidth] == 2 && [twin groups] == 2 && [[twin fusedNeuronDescriptor] a] == 2, "a descriptor's copy");
  MPSCNNConvolutionDescriptor *unarchived =
      [NSKeyedUnarchiver unarchiveObjectWithData:[NSKeyedArchiver archivedDataWithRootObject:d]];
  check([unarchived kernelHeight] == 3 && [unarchived strideInPixelsX] == 2 &&
            [unarchived outputFeatureChannels] == 16 && [[unarchived fusedNeuronDescriptor] b] == 0.5f,
        "a descriptor's archive");
  MPSCNNConvolution *folded =
      make_convolution(make_source(unarchived, random_values(16 * 6 * 4, 1), random_values(16, 2)));
  [folded setOffset:MPSOffset{1, -2, 0}];
  [folded setEdgeMode:MPSImageEdgeModeClamp];
  MPSImage *a = make_nan_image(2, 5, 4, 16), *b = make_nan_image(2, 5, 4, 16);
  id<MTLCommandBuffer> buffer = command_buffer();
  [folded encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:a];
  [read encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:b];
  run(buffer);
  check_equal("batch norm parameters in an archive", read_image(a), read_image(b), 0);
  MPSNNDefaultPadding *padding = [MPSNNDefaultPadding paddingForTensorflowAveragePooling];
  MPSNNDefaultPadding *again =
      [NSKeyedUnarchiver unarchiveObjectWithData:[NSKeyedArchiver archivedDataWithRootObject:padding]];
  check([again isEqual:padding] && [again paddingMethod] == [padding paddingMethod], "a padding policy's archive");

  NSError *error = nil;
  NSData *data = [NSKeyedArchiver archivedDataWithRootObject:d];
  check([MPSKeyedUnarchiver unarchivedObjectOfClass:[MPSCNNConvolution class]
                                           fromData:data
                                             device:device
                                              error:&error] == nil &&
            error != nil,
        "an archive of something else is an error");
  error = nil;
  check([MPSKeyedUnarchiver unarchivedObjectOfClass:[MPSCNNConvolution class]
                                           fromData:[NSData dataWithBytes:"nonsense" length:8]
                                             device:device
                                              error:&error] == nil &&
            error != nil,
        "nonsense is an error");
}

// ---------------------------------------------------------------------------------------------- refusals

void test_descriptor_errors() {
  check_raises("kernelWidth 0", kArgument, "kernelWidth (0)", [] { descriptor_of(1, 0, 1, 1); });
  check_raises("kernelHeight 0", kArgument, "kernelHeight (0)", [] { descriptor_of(0, 1, 1, 1); });
  check_raises("no input channels", kArgument, "inputFeatureChannels (0)", [] { descriptor_of(1, 1, 0, 1); });
  check_raises("no output channels", kArgument, "outputFeatureChannels (0)", [] { descriptor_of(1, 1, 1, 0); });
  MPSCNNConvolutionDescriptor *d = descriptor_of(1, 1, 12, 12);
  check([d strideInPixelsX] == 1 && [d dilationRateY] == 1 && [d groups] == 1 &&
            [d neuronType] == MPSCNNNeuronTypeNone && [d fusedNeuronDescriptor] != nil && [d neuron] == nil,
        "defaults of a descriptor");
  check_raises("stride 0", kArgument, "strideInPixelsX (0)", [&] { [d setStrideInPixelsX:0]; });
  check_raises("dilation 0", kArgument, "dilationRateY (0)", [&] { [d setDilationRateY:0]; });
  check_raises("groups 0", kArgument, "groups (0)", [&] { [d setGroups:0]; });
  check_raises("PReLU by type", kArgument, "PReLU",
               [&] { [d setNeuronType:MPSCNNNeuronTypePReLU parameterA:1 parameterB:1]; });
  check_raises("PReLU of the wrong length", kArgument, "expected 48",
               [&] { [d setNeuronToPReLUWithParametersA:[NSData dataWithBytes:"1234" length:4]]; });
  check_raises("unknown neuron", kArgument, "neuronType (16)",
               [] { [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:static_cast<MPSCNNNeuronType>(16)]; });
  check_raises("negative variance", kArgument, "variance[0]", [&] {
    const float variance[12] = {-1};
    [d setBatchNormalizationParametersForInferenceWithMean:NULL variance:variance gamma:NULL beta:NULL epsilon:0];
  });
  const auto refused = [&](const char *what, const char *part, Class cls) {
    check_raises(what, kArgument, part,
                 [&] { [[cls alloc] initWithDevice:device weights:make_source(d, random_values(144, 1), {})]; });
  };
  Class conv = [MPSCNNConvolution class], full = [MPSCNNFullyConnected class],
        transpose = [MPSCNNConvolutionTranspose class];
  [d setGroups:2];
  refused("6 channels per group", "groups (2)", conv);
  [d setGroups:5];
  refused("groups that do not divide", "groups (5)", conv);
  [d setGroups:3];
  refused("a fully connected kernel has no groups", "groups", full);
  [d setGroups:1];
  [d setStrideInPixelsY:2];
  refused("a fully connected kernel has no stride", "strideInPixelsY (2)", full);
  d = [MPSCNNSubPixelConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:1
                                                                      kernelHeight:1
                                                              inputFeatureChannels:12
                                                             outputFeatureChannels:12];
  [(MPSCNNSubPixelConvolutionDescriptor *)d setSubPixelScaleFactor:3];
  refused("12 channels for 9 positions", "subPixelScaleFactor (3)", conv);
  [(MPSCNNSubPixelConvolutionDescriptor *)d setSubPixelScaleFactor:2];
  refused("a transpose has no sub-pixels", "sub-pixel", transpose);
  d = [MPSCNNDepthWiseConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:1
                                                                       kernelHeight:1
                                                               inputFeatureChannels:6
                                                              outputFeatureChannels:12];
  refused("channel multiplier 2", "channelMultiplier", conv);
  d = [MPSCNNDepthWiseConvolutionDescriptor cnnConvolutionDescriptorWithKernelWidth:1
                                                                       kernelHeight:1
                                                               inputFeatureChannels:12
                                                              outputFeatureChannels:12];
  [d setGroups:2];
  refused("depth-wise with groups", "groups (2)", conv);
}

void test_encode_errors() {
  MPSCNNConvolution *kernel = plain_convolution(3, 3, 4, 8);
  [kernel setLabel:@"the label"];
  MPSImage *src = make_image(Tensor::random(2, 5, 6, 4, 1)), *dst = make_nan_image(2, 5, 6, 8);
  MPSImage *none = nil;
  id<MTLCommandBuffer> buffer = command_buffer();
  const auto refused = [&](const char *what, const char *part, MPSImage *from, MPSImage *to) {
    check_raises(what, kArgument, part,
                 [&] { [kernel encodeToCommandBuffer:buffer sourceImage:from destinationImage:to]; });
  };
  refused("no source", "sourceImage is nil", none, dst);
  refused("no destination", "destinationImage is nil", src, none);
  refused("the sentence has class and label", "MPSCNNConvolution \"the label\":", src, none);
  refused("wrong source channels", "inputFeatureChannels is 4", dst, dst);
  refused("too few destination channels", "the destination has 4", make_image(Tensor(2, 5, 6, 4)), src);
  refused("more images than the source has", "images of sourceImage", make_image(Tensor(1, 5, 6, 4)), dst);
  check_raises("no command buffer", kArgument, "nil", [&] {
    id<MTLCommandBuffer> nothing = nil;
    [kernel encodeToCommandBuffer:nothing sourceImage:src destinationImage:dst];
  });
  [kernel setOffset:MPSOffset{0, 0, 1}];
  refused("offset.z beyond", "offset.z (1)", src, dst);
  [kernel setOffset:MPSOffset{0, 0, -1}];
  refused("offset.z below 0", "offset.z (-1)", src, dst);
  [kernel setOffset:MPSOffset{NSIntegerMax, 0, 0}];
  refused("an absurd offset", "farther", src, dst);
  [kernel setOffset:MPSOffset{0, 0, 0}];
  [kernel setClipRect:MTLRegionMake3D(6, 0, 0, 1, 1, 1)];
  refused("clip outside", "clipRect", src, dst);
  [kernel setClipRect:MTLRegionMake3D(0, 0, 0, 1, 0, 1)];
  refused("empty clip", "clipRect", src, dst);
  [kernel setClipRect:MTLRegionMake3D(0, 0, 2, 1, 1, 1)];
  refused("clip behind the last image", "clipRect", src, dst);
  [kernel setClipRect:MPSRectNoClip];
  [kernel setSourceFeatureChannelOffset:2];
  refused("source channel offset 2", "sourceFeatureChannelOffset (2) is not a multiple of 4", src, dst);
  [kernel setSourceFeatureChannelOffset:4];
  refused("source channel offset beyond", "sourceFeatureChannelOffset (4)", src, dst);
  [kernel setSourceFeatureChannelOffset:0];
  [kernel setSourceFeatureChannelMaxCount:0];
  refused("no source channels", "sourceFeatureChannelMaxCount (0)", src, dst);
  [kernel setSourceFeatureChannelMaxCount:NSUIntegerMax];
  [kernel setDestinationFeatureChannelOffset:6];
  refused("destination channel offset 6", "destinationFeatureChannelOffset (6) is not a multiple of 4", src, dst);
  [kernel setDestinationFeatureChannelOffset:4];
  refused("destination channels beyond", "destinationFeatureChannelOffset (4)", src, dst);
  [kernel setDestinationFeatureChannelOffset:0];
  [kernel setEdgeMode:MPSImageEdgeModeMirror];
  refused("mirror", "edgeMode (2)", src, dst);
  [kernel setEdgeMode:MPSImageEdgeModeZero];
  check_raises("no padding", kArgument, "padding is nil", [&] {
    id<MPSNNPadding> nothing = nil;
    [kernel setPadding:nothing];
  });
  check_raises("bits without a meaning", kArgument, "0x3", [] { [MPSNNDefaultPadding paddingWithMethod:3]; });
  [kernel setPadding:[MPSNNDefaultPadding paddingWithMethod:MPSNNPaddingMethodSizeValidOnly]];
  check_raises("a source smaller than the kernel", kArgument, "0 x 0",
               [&] { [kernel encodeToCommandBuffer:buffer sourceImage:make_image(Tensor(1, 2, 2, 4))]; });
  check_raises("Half and float weights", kArgument, "accumulatorPrecisionOption", [&] {
    FullTestSource *source = make_source<FullTestSource>(descriptor_of(1, 1, 1, 1), {1}, {});
    source->kept = MPSDataTypeFloat32;
    [make_convolution(source) setAccumulatorPrecisionOption:MPSNNConvolutionAccumulatorPrecisionOptionHalf];
  });

  // Memory: the same image, overlapping channels of it; other channels of it are fine.
  MPSCNNNeuronReLU *relu = [[[MPSCNNNeuronReLU alloc] initWithDevice:device a:0] autorelease];
  MPSImage *image = make_image(Tensor::random(1, 4, 5, 8, 2));
  check_raises("in place", kArgument, "share memory", [&] {
    MPSCNNPoolingMax *pool = [[[MPSCNNPoolingMax alloc] initWithDevice:device kernelWidth:1
                                                          kernelHeight:1] autorelease];
    [pool encodeToCommandBuffer:buffer sourceImage:image destinationImage:image];
  });
  [relu setSourceFeatureChannelMaxCount:4];
  [relu setDestinationFeatureChannelOffset:4];
  [relu encodeToCommandBuffer:buffer sourceImage:image destinationImage:image];
  [relu setDestinationFeatureChannelOffset:0];
  [relu setOffset:{0, 1, 0}];
  check_raises("in place, the same channels", kArgument, "share memory",
               [&] { [relu encodeToCommandBuffer:buffer sourceImage:image destinationImage:image]; });
  const float slopes[3] = {1, 2, 3};
  MPSCNNNeuronPReLU *prelu = [[[MPSCNNNeuronPReLU alloc] initWithDevice:device a:slopes count:3] autorelease];
  check_raises("PReLU of other channels", kArgument, "3 values", [&] {
    [prelu encodeToCommandBuffer:buffer sourceImage:image destinationImage:make_nan_image(1, 4, 5, 8)];
  });

  // Batches.
  NSArray *one = @[ make_image(Tensor(1, 5, 6, 4)) ],
          *two = @[ make_nan_image(1, 5, 6, 8), make_nan_image(1, 5, 6, 8) ];
  const auto batch_refused = [&](const char *what, const char *part, NSArray *from, NSArray *to) {
    check_raises(what, kArgument, part,
                 [&] { [kernel encodeBatchToCommandBuffer:buffer sourceImages:from destinationImages:to]; });
  };
  batch_refused("batches of different lengths", "destinationImages has 2", one, two);
  batch_refused("an empty batch", "at least 1", @[], @[]);
  batch_refused("images of several images", "numberOfImages (2)", @[ src ], @[ dst ]);
  batch_refused("images of two sizes", "mixes", @[ [one objectAtIndex:0], make_image(Tensor(1, 5, 7, 4)) ], two);

  MPSCNNFullyConnected *full = [[[MPSCNNFullyConnected alloc]
      initWithDevice:device
             weights:make_source(descriptor_of(5, 6, 4, 8), random_values(960, 1), {})] autorelease];
  check_raises("fully connected: source size", kArgument, "the kernel 6 x 5", [&] {
    [full encodeToCommandBuffer:buffer
                    sourceImage:make_image(Tensor(1, 6, 5, 4))
               destinationImage:make_nan_image(1, 1, 1, 8)];
  });
  check_raises("fully connected: destination size", kArgument, "expected 1 x 1", [&] {
    [full encodeToCommandBuffer:buffer
                    sourceImage:make_image(Tensor(1, 5, 6, 4))
               destinationImage:make_nan_image(1, 2, 1, 8)];
  });

  // A refused encode has no effect on the buffer, which still runs.
  run(buffer);
  check_raises("a committed command buffer", kUsage, "commit",
               [&] { [kernel encodeToCommandBuffer:buffer sourceImage:src destinationImage:dst]; });
  check_raises("initWithDevice: of a convolution", kArgument, "unavailable",
               [] { [(id)[MPSCNNConvolution alloc] initWithDevice:device]; });
  check_raises("no device", kArgument, "nil", [] {
    id<MTLDevice> nothing = nil;
    [[MPSCNNNeuronReLU alloc] initWithDevice:nothing a:0];
  });
  check_raises("the abstract class", kArgument, "subclasses", [&] {
    MPSCNNKernel *abstract = [[[MPSCNNKernel alloc] initWithDevice:device] autorelease];
    [abstract encodeToCommandBuffer:command_buffer() sourceImage:src destinationImage:make_nan_image(2, 5, 6, 4)];
  });
  check_raises("a selector nobody has", @"MPSNotImplementedException", "-[MPSCNNConvolution frobnicate]",
               [&] { [kernel performSelector:NSSelectorFromString(@"frobnicate")]; });
}

/// A source with a weightsOwner: the kernel uses the weights in place, and retains the owner.
void test_borrowed_weights() {
  const auto lend = [](MPSDataType kept, bool normalized, bool *ended, float **values) {
    MPSCNNConvolutionDescriptor *descriptor = descriptor_of(1, 1, 3, 2);
    const float ones[] = {1, 1}, zeros[] = {0, 0};
    if (normalized)
      [descriptor setBatchNormalizationParametersForInferenceWithMean:zeros
                                                             variance:ones
                                                                gamma:ones
                                                                 beta:zeros
                                                              epsilon:0];
    LendingSource *source = make_source<LendingSource>(descriptor, {}, {});
    source->kept = kept;
    source->lender = [[Lender alloc] init];
    source->lender->values = {1, 2, 3, 4, 5, 6};
    source->lender->ended = ended;
    *values = source->lender->values.data();
    return [[MPSCNNConvolution alloc] initWithDevice:device weights:source];
  };
  bool ended = false;
  float *values = nullptr;
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  MPSCNNConvolution *kernel = lend(MPSDataTypeFloat32, false, &ended, &values);
  [pool drain];
  check(!ended, "lent weights are held beyond purge");
  if (!ended) values[0] = 7;  // before the engine has read any
  pool = [[NSAutoreleasePool alloc] init];
  check_weights("lent weights are not copied", kernel, {7, 2, 3, 4, 5, 6}, 0);
  MPSCNNConvolution *copy = [kernel copyWithZone:NULL device:device];
  [kernel release];
  check_weights("a copy has the same", copy, {7, 2, 3, 4, 5, 6}, 0);
  check(!ended, "lent weights are held by a copy");
  [copy release];
  [pool drain];
  check(ended, "lent weights are let go with the last kernel");

  for (const bool normalized : {false, true}) {
    pool = [[NSAutoreleasePool alloc] init];
    ended = false;
    kernel = lend(normalized ? MPSDataTypeFloat32 : MPSDataTypeFloat16, normalized, &ended, &values);
    check(ended, normalized ? "weights to be normalized are copied" : "weights to be rounded are copied");
    check_weights("copied weights", kernel, {1, 2, 3, 4, 5, 6}, 0);
    [kernel release];
    [pool drain];
  }
}

/// Failed encodes that return an image must not leave unread temporary images.
void test_failed_encode_leaves_no_temporaries() {
  MPSCNNConvolution *kernel = plain_convolution(1, 1, 4, 4);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel setClipRect:MTLRegionMake3D(100, 100, 0, 1, 1, 1)];
  check_raises("clip outside of the returned image", kArgument, "clipRect",
               [&] { [kernel encodeToCommandBuffer:buffer sourceImage:make_image(Tensor(1, 3, 3, 4))]; });
  check_raises("clip outside of the returned images", kArgument, "clipRect",
               [&] { [kernel encodeBatchToCommandBuffer:buffer sourceImages:@[ make_image(Tensor(1, 3, 3, 4)) ]]; });
  run(buffer);
}

}  // namespace

int main() {
  return run_tests({test_kinds_of_weights, test_life_cycle, test_export_and_reload, test_copies_and_archives,
                    test_borrowed_weights, test_descriptor_errors, test_encode_errors,
                    test_failed_encode_leaves_no_temporaries});
}

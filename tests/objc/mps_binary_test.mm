// SPDX-License-Identifier: Apache-2.0
// Kernels with two sources: properties, encode forms, states, copies, archives, and refused calls. Prints "N passed, N
// failed".

#import "mps_test.hh"

namespace {

bool is_offset(MPSOffset offset, NSInteger x, NSInteger y, NSInteger z) {
  return offset.x == x && offset.y == y && offset.z == z;
}

void test_defaults() {
  MPSCNNBinaryKernel *kernel = [[[MPSCNNBinaryKernel alloc] initWithDevice:device] autorelease];
  check(is_offset([kernel primaryOffset], 0, 0, 0) && is_offset([kernel secondaryOffset], 0, 0, 0), "offsets are 0");
  check([kernel primarySourceFeatureChannelOffset] == 0 && [kernel secondarySourceFeatureChannelOffset] == 0 &&
            [kernel destinationFeatureChannelOffset] == 0,
        "channel offsets are 0");
  check([kernel primarySourceFeatureChannelMaxCount] == NSUIntegerMax &&
            [kernel secondarySourceFeatureChannelMaxCount] == NSUIntegerMax,
        "all channels are read");
  check([kernel primaryEdgeMode] == MPSImageEdgeModeZero && [kernel secondaryEdgeMode] == MPSImageEdgeModeZero,
        "the edge modes are zero");
  const NSUInteger ones[] = {
      [kernel primaryKernelWidth],       [kernel primaryKernelHeight],      [kernel secondaryKernelWidth],
      [kernel secondaryKernelHeight],    [kernel primaryStrideInPixelsX],   [kernel primaryStrideInPixelsY],
      [kernel secondaryStrideInPixelsX], [kernel secondaryStrideInPixelsY], [kernel primaryDilationRateX],
      [kernel primaryDilationRateY],     [kernel secondaryDilationRateX],   [kernel secondaryDilationRateY]};
  for (NSUInteger one : ones) check(one == 1, "kernel sizes, strides and dilation rates are 1");
  check([kernel clipRect].size.width == MPSRectNoClip.size.width, "clipRect is no clip");
  check(![kernel isBackwards] && ![kernel isStateModified] && ![kernel isResultStateReusedAcrossBatch] &&
            ![kernel appendBatchBarrier],
        "flags of a forward kernel are off");
  check([[kernel padding] paddingMethod] == MPSNNPaddingMethodSizeSame, "the padding policy keeps the size");
  check([kernel destinationImageAllocator] == [MPSTemporaryImage defaultAllocator], "results are temporary images");

  MPSCNNGradientKernel *gradient = [[[MPSCNNGradientKernel alloc] initWithDevice:device] autorelease];
  check([gradient isBackwards] && [gradient kernelOffsetX] == 0 && [gradient kernelOffsetY] == 0,
        "a gradient kernel runs backwards, its kernel offset is 0");
}

void set_everything(MPSCNNBinaryKernel *kernel) {
  [kernel setLabel:@"two sources"];
  [kernel setPrimaryOffset:MPSOffset{1, -2, 3}];
  [kernel setSecondaryOffset:MPSOffset{-4, 5, 6}];
  [kernel setClipRect:MTLRegionMake3D(1, 2, 3, 4, 5, 6)];
  [kernel setDestinationFeatureChannelOffset:8];
  [kernel setPrimarySourceFeatureChannelOffset:12];
  [kernel setSecondarySourceFeatureChannelOffset:16];
  [kernel setPrimarySourceFeatureChannelMaxCount:20];
  [kernel setSecondarySourceFeatureChannelMaxCount:24];
  [kernel setPrimaryEdgeMode:MPSImageEdgeModeClamp];
  [kernel setPrimaryStrideInPixelsX:2];
  [kernel setPrimaryStrideInPixelsY:3];
  [kernel setSecondaryStrideInPixelsX:4];
  [kernel setSecondaryStrideInPixelsY:5];
  [kernel setPadding:[MPSNNDefaultPadding paddingWithMethod:MPSNNPaddingMethodSizeFull]];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
}

void check_everything(const std::string &what, MPSCNNBinaryKernel *kernel) {
  check([[kernel label] isEqual:@"two sources"], what + ": label");
  check(is_offset([kernel primaryOffset], 1, -2, 3) && is_offset([kernel secondaryOffset], -4, 5, 6),
        what + ": offsets");
  const MTLRegion clip = [kernel clipRect];
  check(clip.origin.x == 1 && clip.origin.y == 2 && clip.origin.z == 3 && clip.size.width == 4 &&
            clip.size.height == 5 && clip.size.depth == 6,
        what + ": clipRect");
  check([kernel destinationFeatureChannelOffset] == 8 && [kernel primarySourceFeatureChannelOffset] == 12 &&
            [kernel secondarySourceFeatureChannelOffset] == 16 && [kernel primarySourceFeatureChannelMaxCount] == 20 &&
            [kernel secondarySourceFeatureChannelMaxCount] == 24,
        what + ": channels");
  check([kernel primaryEdgeMode] == MPSImageEdgeModeClamp && [kernel secondaryEdgeMode] == MPSImageEdgeModeZero,
        what + ": edge modes");
  check([kernel primaryStrideInPixelsX] == 2 && [kernel primaryStrideInPixelsY] == 3 &&
            [kernel secondaryStrideInPixelsX] == 4 && [kernel secondaryStrideInPixelsY] == 5,
        what + ": strides");
  check([[kernel padding] paddingMethod] == MPSNNPaddingMethodSizeFull, what + ": padding");
  check([(id)[kernel destinationImageAllocator] class] == [(id)[MPSImage defaultAllocator] class],
        what + ": allocator");
}

void test_properties_are_kept() {
  MPSCNNGradientKernel *kernel = [[[MPSCNNGradientKernel alloc] initWithDevice:device] autorelease];
  set_everything(kernel);
  [kernel setKernelOffsetX:7];
  [kernel setKernelOffsetY:-9];
  MPSCNNGradientKernel *copy = [[kernel copyWithZone:NULL device:device] autorelease];
  [kernel setKernelOffsetX:0];
  check_everything("the kernel", kernel);
  check_everything("its copy", copy);
  check([copy kernelOffsetX] == 7 && [copy kernelOffsetY] == -9, "a copy is independent");

  NSData *data = [NSKeyedArchiver archivedDataWithRootObject:copy];
  check([[copy class] supportsSecureCoding] && [data length] > 0, "kernels can be archived");
  MPSCNNGradientKernel *read = archived(copy);
  check_everything("what its archive gives", read);
  check([read kernelOffsetX] == 7 && [read kernelOffsetY] == -9, "kernel offsets are archived");
}

void test_base_classes_cannot_be_encoded() {
  MPSCNNBinaryKernel *kernel = [[[MPSCNNBinaryKernel alloc] initWithDevice:device] autorelease];
  MPSImage *image = make_nan_image(1, 2, 2, 4), *result = make_nan_image(1, 2, 2, 4);
  check_raises("MPSCNNBinaryKernel", kArgument, "cannot be encoded", [&] {
    [kernel encodeToCommandBuffer:command_buffer() primaryImage:image secondaryImage:image destinationImage:result];
  });
  check([kernel resultStateForPrimaryImage:image secondaryImage:image sourceStates:nil destinationImage:result] == nil,
        "MPSCNNBinaryKernel leaves no state");
}

// ------------------------------------------------------------------------------------------- arithmetic

template <class Kernel>
Kernel *make() {
  return [[[Kernel alloc] initWithDevice:device] autorelease];
}

/// Return f of both, element by element.
Tensor combine(const Tensor &a, const Tensor &b, const std::function<double(double, double)> &f) {
  Tensor r = a;
  for (std::size_t i = 0; i < r.values.size(); ++i) r.values[i] = f(a.values[i], b.values[i]);
  return r;
}

void test_bounds_of_the_start() {
  for (MPSCNNArithmetic *kernel in [NSArray arrayWithObjects:make<MPSCNNAdd>(), make<MPSCNNSubtract>(),
                                                             make<MPSCNNMultiply>(), make<MPSCNNDivide>(), nil])
    check([kernel primaryScale] == 1 && [kernel secondaryScale] == 1 && [kernel bias] == 0 &&
              [kernel primaryStrideInFeatureChannels] == 1 && [kernel secondaryStrideInFeatureChannels] == 1 &&
              [kernel minimumValue] == -std::numeric_limits<float>::max() &&
              [kernel maximumValue] == std::numeric_limits<float>::max(),
          std::string([NSStringFromClass([kernel class]) UTF8String]) + ": defaults");
}

void test_formats() {
  MPSImage *half = make_half_image(Tensor(1, 4, 5, 6)), *other = make_image(Tensor(1, 4, 5, 6));
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *same = [make<MPSCNNAdd>() encodeToCommandBuffer:buffer primaryImage:half secondaryImage:other];
  check([same featureChannelFormat] == MPSImageFeatureChannelFormatFloat16, "a new result has the primary's format");
  [(MPSTemporaryImage *)same setReadCount:0];
  run(buffer);
}

// ------------------------------------------------------------------------------------------ encode forms

MPSImageBatch *split(MPSImage *image) { return [image batchRepresentation]; }

void test_encode_forms() {
  const Tensor a = Tensor::random(3, 4, 5, 8, 20), b = Tensor::random(1, 4, 5, 8, 21);
  MPSCNNAdd *kernel = make<MPSCNNAdd>();
  MPSImage *whole = make_image(a), *single = make_image(b), *shared = make_nan_image(3, 4, 5, 8);
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImageBatch *same = [NSArray arrayWithObjects:single, single, single, nil];
  MPSStateBatch *states = nil;
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  [kernel encodeBatchToCommandBuffer:buffer
                       primaryImages:split(whole)
                     secondaryImages:same
                   destinationStates:&states
         destinationStateIsTemporary:NO];
  check([states count] == 3 && [states objectAtIndex:0] != [states objectAtIndex:1] &&
            [[states objectAtIndex:0] isKindOfClass:[MPSCNNArithmeticGradientState class]],
        "a state for each image");
  [kernel encodeBatchToCommandBuffer:buffer
                       primaryImages:split(whole)
                     secondaryImages:same
                   destinationStates:(MPSCNNArithmeticGradientStateBatch *)states
                   destinationImages:split(shared)];
  run(buffer);
  for (long i = 0; i < 3; ++i)
    check_equal("one image for all of a batch", read_image(shared).image(i),
                combine(a.image(i), b, [](double x, double y) { return x + y; }), 1e-6);
}

void test_read_counts() {
  const Tensor x = Tensor::random(1, 3, 4, 4, 22);
  MPSCNNNeuronReLU *relu = [[[MPSCNNNeuronReLU alloc] initWithDevice:device a:0.5f] autorelease];
  MPSCNNMultiply *square = make<MPSCNNMultiply>();
  [square setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *temporary = [relu encodeToCommandBuffer:buffer sourceImage:make_image(x)];
  check([(MPSTemporaryImage *)temporary readCount] == 1, "a temporary image is to be read once");
  MPSImage *result = [square encodeToCommandBuffer:buffer primaryImage:temporary secondaryImage:temporary];
  check([(MPSTemporaryImage *)temporary readCount] == 0, "an image that is both sources is read once");
  check_raises("a temporary image that was read", kUsage, "readCount of 0",
               [&] { [square encodeToCommandBuffer:buffer primaryImage:make_image(x) secondaryImage:temporary]; });
  run(buffer);
  check_equal("a square", read_image(result),
              combine(x, x,
                      [](double v, double) {
                        const double r = v >= 0 ? v : 0.5 * v;
                        return r * r;
                      }),
              1e-6);
}

// ---------------------------------------------------------------------------------------- neuron gradient

MPSCNNNeuronGradient *make_gradient() {
  MPSNNNeuronDescriptor *d = [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeReLU a:0.25f];
  return [[[MPSCNNNeuronGradient alloc] initWithDevice:device neuronDescriptor:d] autorelease];
}

void test_gradient_encode_forms() {
  MPSCNNNeuronReLU *forward = [[[MPSCNNNeuronReLU alloc] initWithDevice:device a:0.25f] autorelease];
  [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSCNNNeuronGradient *kernel = archived([[make_gradient() copy] autorelease]);
  check([kernel neuronType] == MPSCNNNeuronTypeReLU && [kernel a] == 0.25f, "a copy's archive keeps the neuron");
  MPSImage *whole_e = make_image(Tensor(2, 4, 5, 6)), *whole_x = make_image(Tensor(2, 4, 5, 6));
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSState *state = nil;
  [forward encodeToCommandBuffer:buffer sourceImage:whole_x destinationState:&state destinationStateIsTemporary:YES];
  check([state isKindOfClass:[MPSNNGradientState class]], "a neuron leaves a state");
  [state setReadCount:0];
  MPSStateBatch *states = nil;
  [forward encodeBatchToCommandBuffer:buffer
                         sourceImages:split(whole_x)
                    destinationStates:&states
          destinationStateIsTemporary:NO];
  check_raises("a state too few", kArgument, "gradientStates has 1 states, expected one for each of 2 images", [&] {
    [kernel encodeBatchToCommandBuffer:buffer
                       sourceGradients:split(whole_e)
                          sourceImages:split(whole_x)
                        gradientStates:[states subarrayWithRange:NSMakeRange(0, 1)]];
  });
  run(buffer);
}

/// The state passes on the forward kernel's offset and channels: pixel y of the source became pixel y - offset.
void test_gradient_takes_the_forward_properties() {
  const Tensor x = Tensor::random(1, 6, 7, 12, 32), e = Tensor::random(1, 4, 5, 4, 33);
  MPSCNNNeuronReLU *forward = [[[MPSCNNNeuronReLU alloc] initWithDevice:device a:0.25f] autorelease];
  [forward setOffset:MPSOffset{1, 2, 0}];
  [forward setSourceFeatureChannelOffset:4];
  [forward setSourceFeatureChannelMaxCount:4];
  MPSImage *source = make_image(x), *result = make_nan_image(1, 4, 5, 4);
  MPSState *state = [forward resultStateForSourceImage:source sourceStates:nil destinationImage:result];
  MPSCNNNeuronGradient *kernel = make_gradient();
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  [forward encodeToCommandBuffer:buffer sourceImage:source destinationState:state destinationImage:result];
  [forward setOffset:MPSOffset{-3, -3, 0}];  // the state keeps the old offset
  [kernel encodeToCommandBuffer:buffer sourceGradient:make_image(e) sourceImage:source gradientState:state];
  run(buffer);
  check([kernel kernelOffsetX] == -1 && [kernel kernelOffsetY] == -2, "kernelOffset is the forward offset, negated");
  // Properties set by the last state do not affect the next one.
  MPSImage *few = make_image(x.channels(0, 4));
  [forward setOffset:MPSOffset{0, 0, 0}];
  [forward setSourceFeatureChannelOffset:0];
  buffer = command_buffer();
  MPSImage *gradient = [kernel encodeToCommandBuffer:buffer
                                      sourceGradient:few
                                         sourceImage:few
                                       gradientState:[forward resultStateForSourceImage:few
                                                                           sourceStates:nil
                                                                       destinationImage:result]];
  run(buffer);
  check_equal("a second state", read_image(gradient),
              combine(x.channels(0, 4), x.channels(0, 4), [](double g, double v) { return v >= 0 ? g : g / 4; }), 1e-6);
  check_raises("a source of another size", kArgument, "sourceImage has 5 x 5 pixels (width x height); the forward",
               [&] {
                 [kernel encodeToCommandBuffer:command_buffer()
                                sourceGradient:make_image(e)
                                   sourceImage:make_nan_image(1, 5, 5, 12)
                                 gradientState:state];
               });
}

void test_gradient_of_prelu() {
  const float slopes[] = {0.5f, -2, 3};
  MPSNNNeuronDescriptor *d =
      [MPSNNNeuronDescriptor cnnNeuronPReLUDescriptorWithData:[NSData dataWithBytes:slopes length:sizeof slopes]
                                                       noCopy:false];
  MPSCNNNeuronGradient *kernel = [[[MPSCNNNeuronGradient alloc] initWithDevice:device neuronDescriptor:d] autorelease];
  MPSImage *result = make_nan_image(1, 3, 4, 3);
  check_raises("four channels for three slopes", kArgument, "data has 3 values", [&] {
    MPSImage *four = make_nan_image(1, 3, 4, 4);
    [kernel encodeToCommandBuffer:command_buffer() primaryImage:four secondaryImage:four destinationImage:result];
  });
}

// ---------------------------------------------------------------------------------------------- refusals

void refuse(const std::string &what, const char *part, const std::function<void(MPSCNNAdd *)> &change, long other_c = 8,
            bool small_result = false) {
  MPSCNNAdd *kernel = make<MPSCNNAdd>();
  change(kernel);
  MPSImage *a = make_nan_image(1, 4, 5, 8), *b = make_nan_image(1, 4, 5, other_c);
  MPSImage *result = make_nan_image(1, 4, 5, small_result ? 4 : 8);
  check_raises(what, kArgument, part, [&] {
    [kernel encodeToCommandBuffer:command_buffer() primaryImage:a secondaryImage:b destinationImage:result];
  });
}

void test_refusals() {
  const auto nothing = [](MPSCNNAdd *) {};
  refuse("channels that differ", "The kernel reads 8 feature channels of primaryImage and 4 of secondaryImage", nothing,
         4);
  refuse("a destination with few channels", "writes 8 feature channels", nothing, 8, true);
  refuse("a stride of 2", "primaryStrideInPixelsX (2) is neither 0 nor 1",
         [](MPSCNNAdd *k) { [k setPrimaryStrideInPixelsX:2]; });
  refuse("a channel stride of 3", "secondaryStrideInFeatureChannels (3) is neither 0 nor 1",
         [](MPSCNNAdd *k) { [k setSecondaryStrideInFeatureChannels:3]; });
  refuse("an odd channel offset", "secondarySourceFeatureChannelOffset (2) is not a multiple of 4",
         [](MPSCNNAdd *k) { [k setSecondarySourceFeatureChannelOffset:2]; });
  refuse("a channel offset beyond",
         "primarySourceFeatureChannelOffset (8) is not less than the 8 feature channels of "
         "primaryImage",
         [](MPSCNNAdd *k) { [k setPrimarySourceFeatureChannelOffset:8]; });
  refuse("no channels", "primarySourceFeatureChannelMaxCount (0) is less than 1",
         [](MPSCNNAdd *k) { [k setPrimarySourceFeatureChannelMaxCount:0]; });
  refuse("an edge mode of MPSNNPad", "secondaryEdgeMode (2) is not one that the kernel has",
         [](MPSCNNAdd *k) { [k setSecondaryEdgeMode:MPSImageEdgeModeMirror]; });
  refuse("an image beyond", "secondaryOffset.z (1) and the 1 images",
         [](MPSCNNAdd *k) { [k setSecondaryOffset:MPSOffset{0, 0, 1}]; });
  refuse("an offset far away", "primaryOffset (4294967296, 0) is farther than",
         [](MPSCNNAdd *k) { [k setPrimaryOffset:MPSOffset{NSInteger{1} << 32, 0, 0}]; });
  refuse("an empty clip", "clipRect", [](MPSCNNAdd *k) { [k setClipRect:MTLRegionMake3D(9, 0, 0, 1, 1, 1)]; });

  MPSCNNAdd *kernel = make<MPSCNNAdd>();
  MPSImage *a = make_nan_image(1, 4, 5, 8), *b = make_nan_image(1, 4, 5, 8);
  [kernel setSecondaryOffset:{1, 0, 0}];
  check_raises("in place, moved", kArgument, "secondaryImage and the destination share memory", [&] {
    [kernel encodeToCommandBuffer:command_buffer() primaryImage:a secondaryImage:b destinationImage:b];
  });
  [kernel setSecondaryOffset:{0, 0, 0}];
  [kernel setSecondaryStrideInPixelsX:0];
  check_raises("in place, repeated", kArgument, "secondaryImage and the destination share memory", [&] {
    [kernel encodeToCommandBuffer:command_buffer() primaryImage:a secondaryImage:b destinationImage:b];
  });
  [kernel setSecondaryStrideInPixelsX:1];
  MPSImage *none = nil;
  check_raises("no image", kArgument, "secondaryImage is nil", [&] {
    [kernel encodeToCommandBuffer:command_buffer() primaryImage:a secondaryImage:none destinationImage:b];
  });
  MPSImageBatch *two = [NSArray arrayWithObjects:a, a, nil], *one = [NSArray arrayWithObject:b];
  check_raises("batches of two lengths", kArgument, "secondaryImages has 1 images, expected 2", [&] {
    [kernel encodeBatchToCommandBuffer:command_buffer() primaryImages:two secondaryImages:one destinationImages:two];
  });
  check_raises("a strided gradient", kArgument, "secondaryStrideInPixelsX (2) and secondaryStrideInPixelsY (1)", [&] {
    MPSCNNNeuronGradient *gradient = make_gradient();
    [gradient setSecondaryStrideInPixelsX:2];
    [gradient encodeToCommandBuffer:command_buffer() primaryImage:a secondaryImage:a destinationImage:b];
  });
  check_raises("the base class", kArgument, "is unavailable",
               [&] { [[(id)[MPSCNNArithmetic alloc] initWithDevice:device] autorelease]; });
  check_raises("a gradient without a neuron", kArgument, "is unavailable",
               [&] { [[(id)[MPSCNNNeuronGradient alloc] initWithDevice:device] autorelease]; });
}

}  // namespace

int main() {
  return run_tests({test_defaults, test_properties_are_kept, test_base_classes_cannot_be_encoded,
                    test_bounds_of_the_start, test_formats, test_encode_forms, test_read_counts,
                    test_gradient_encode_forms, test_gradient_takes_the_forward_properties, test_gradient_of_prelu,
                    test_refusals});
}

// SPDX-License-Identifier: Apache-2.0
// Kernels that move values: upsampling, resizing, reshaping, slicing, padding; and dropout. The forms with a shape,
// states, properties, refused calls; values are in tests/cases. Prints "N passed, N failed".

#import "mps_test.hh"

namespace {

// ------------------------------------------------------------------------------------------------ upsampling

MPSCNNUpsampling *nearest(NSUInteger x, NSUInteger y) {
  return [[[MPSCNNUpsamplingNearest alloc] initWithDevice:device integerScaleFactorX:x
                                      integerScaleFactorY:y] autorelease];
}

MPSCNNUpsampling *bilinear(NSUInteger x, NSUInteger y, BOOL align = NO) {
  return [[[MPSCNNUpsamplingBilinear alloc] initWithDevice:device
                                       integerScaleFactorX:x
                                       integerScaleFactorY:y
                                              alignCorners:align] autorelease];
}

void test_upsampling_refusals() {
  check_raises("a factor of 0", kArgument, "integerScaleFactorX (0) is not between 1 and", [] { nearest(0, 2); });
  check_raises("a factor of 0", kArgument, "integerScaleFactorY (0) is not between 1 and", [] { bilinear(2, 0); });
  check_raises("the base class", kArgument, "unavailable",
               [] { [[(id)[MPSCNNUpsampling alloc] initWithDevice:device] autorelease]; });
  check_raises("a result that is no image", kArgument, "(16384)",
               [] { result_of(nearest(8192, 1), make_image(Tensor(1, 1, 3, 1))); });
}

// -------------------------------------------------------------------------------------------------- resizing

MPSNNResizeBilinear *resize(NSUInteger width, NSUInteger height, BOOL align) {
  return [[[MPSNNResizeBilinear alloc] initWithDevice:device resizeWidth:width resizeHeight:height
                                         alignCorners:align] autorelease];
}

void test_resize() {
  MPSNNResizeBilinear *kernel = archived(resize(4, 9, YES));
  check([kernel resizeWidth] == 4 && [kernel resizeHeight] == 9 && [kernel alignCorners], "an archive keeps the size");
  check_raises("width 0", kArgument, "resizeWidth (0) is not between 1 and", [] { resize(0, 2, NO); });
  check_raises("height 0", kArgument, "resizeHeight (0) is not between 1 and", [] { resize(2, 0, NO); });
}

MPSNNCropAndResizeBilinear *crop(NSUInteger width, NSUInteger height, const std::vector<MPSRegion> &regions) {
  return [[[MPSNNCropAndResizeBilinear alloc] initWithDevice:device
                                                 resizeWidth:width
                                                resizeHeight:height
                                             numberOfRegions:regions.size()
                                                     regions:regions.data()] autorelease];
}

void test_crop() {
  const Tensor x = Tensor::random(2, 6, 7, 5, 6);
  const std::vector<MPSRegion> regions = {{{0, 0, 0}, {1, 1, 1}},
                                          {{0.5, 0.25, 0}, {0.25, 0.5, 1}},
                                          {{0.5, -0.5, 0}, {1.25, 1, 1}},
                                          {{1, 1, 0}, {-1, -1, 1}}};
  MPSNNCropAndResizeBilinear *kernel = crop(5, 3, regions);
  check([kernel numberOfRegions] == 4 && [kernel regions][1].origin.x == 0.5 && [kernel resizeWidth] == 5 &&
            [kernel resizeHeight] == 3,
        "regions are kept");
  [kernel setOffset:MPSOffset{0, 0, 1}];
  [kernel setClipRect:MTLRegionMake3D(0, 0, 0, 5, 3, 3)];
  check_raises("three images for four regions", kArgument, "3 images of the destination, which is no multiple",
               [&] { encode(kernel, make_image(x), make_nan_image(8, 3, 5, 5)); });
  [kernel setClipRect:MTLRegionMake3D(0, 0, 2, 5, 3, 4)];
  check_raises("four images from the third region on", kArgument, "clipRect.origin.z (2) is no multiple",
               [&] { encode(kernel, make_image(x), make_nan_image(8, 3, 5, 5)); });
  check_raises("no region", kArgument, "numberOfRegions (0) is less than 1.", [&] {
    [[[MPSNNCropAndResizeBilinear alloc] initWithDevice:device
                                            resizeWidth:2
                                           resizeHeight:2
                                        numberOfRegions:0
                                                regions:regions.data()] autorelease];
  });
  check_raises("a region without a place", kArgument, "regions[0], origin (nan, 0)",
               [] { crop(2, 2, {{{NAN, 0, 0}, {1, 1, 1}}}); });
}

// --------------------------------------------------------------------------------------- reshaping, slicing

void test_reshape() {
  const Tensor x = Tensor::random(2, 2, 3, 8, 7);
  Tensor other(2, 6, 1, 8), flat(2, 1, 1, 48);
  other.values = flat.values = x.values;
  MPSNNReshape *kernel = [[[MPSNNReshape alloc] initWithDevice:device] autorelease];
  MPSImage *destination = make_nan_image(2, 6, 1, 8);
  encode(kernel, make_image(x), destination);
  check_equal("reshaped into a given image", read_image(destination), other, 0);
  check_equal("without a shape it is a copy", result_of(kernel, make_image(x)), x, 0);

  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *result = [kernel encodeToCommandBuffer:buffer
                                       sourceImage:make_image(x)
                                     reshapedWidth:1
                                    reshapedHeight:1
                           reshapedFeatureChannels:48];
  MPSState *state = nil;
  MPSImage *with_state = [kernel encodeToCommandBuffer:buffer
                                           sourceImage:make_image(x)
                                      destinationState:&state
                           destinationStateIsTemporary:NO
                                         reshapedWidth:1
                                        reshapedHeight:1
                               reshapedFeatureChannels:48];
  MPSImageBatch *batch = [kernel encodeBatchToCommandBuffer:buffer
                                               sourceImages:make_batch(x)
                                              reshapedWidth:1
                                             reshapedHeight:6
                                    reshapedFeatureChannels:8];
  MPSStateBatch *states = nil;
  MPSImageBatch *batch_with_states = [kernel encodeBatchToCommandBuffer:buffer
                                                           sourceImages:make_batch(x)
                                                      destinationStates:&states
                                            destinationStateIsTemporary:NO
                                                          reshapedWidth:1
                                                         reshapedHeight:6
                                                reshapedFeatureChannels:8];
  run(buffer);
  check_equal("reshaped by arguments", read_image(result), flat, 0);
  check_equal("reshaped by arguments, with a state", read_image(with_state), flat, 0);
  check([state isKindOfClass:[MPSNNGradientState class]] && [states count] == 2, "a reshape leaves gradient states");
  for (long i = 0; i < 2; ++i) {
    check_equal("a batch reshaped", read_image([batch objectAtIndex:static_cast<NSUInteger>(i)]), other.image(i), 0);
    check_equal("a batch reshaped, with states",
                read_image([batch_with_states objectAtIndex:static_cast<NSUInteger>(i)]), other.image(i), 0);
  }
  check_equal("the shape does not stay", result_of(kernel, make_image(x)), x, 0);

  MPSNNReshape *plain = [[[MPSNNReshape alloc] initWithDevice:device] autorelease];
  check_raises("another number of values", kArgument,
               "The 48 values of the source, 3 x 2 x 8 (width x height x channels), "
               "are not the 40 of the destination, 5 x 1 x 8",
               [&] { encode(plain, make_image(x), make_nan_image(2, 1, 5, 8)); });
  check_raises("another number of values by arguments", kArgument,
               "reshapedWidth (5), reshapedHeight (1) and reshapedFeatureChannels (8) do not make the 48 values", [&] {
                 [plain encodeToCommandBuffer:command_buffer()
                                  sourceImage:make_image(x)
                                reshapedWidth:5
                               reshapedHeight:1
                      reshapedFeatureChannels:8];
               });
  check_raises("a width of 0", kArgument, "reshapedWidth (0)", [&] {
    [plain encodeToCommandBuffer:command_buffer()
                     sourceImage:make_image(x)
                   reshapedWidth:0
                  reshapedHeight:1
         reshapedFeatureChannels:8];
  });
  [plain setOffset:MPSOffset{1, 0, 0}];
  check_raises("a reshape of a part of the pixels", kArgument, "offset (1, 0) is not (0, 0)",
               [&] { encode(plain, make_image(x), make_nan_image(2, 6, 1, 8)); });
}

void test_slice() {
  const Tensor x = Tensor::random(2, 4, 5, 12, 8);
  MPSNNSlice *kernel = [[[MPSNNSlice alloc] initWithDevice:device] autorelease];
  [kernel setSourceFeatureChannelOffset:2];
  check_raises("channels from 2 on", kArgument, "sourceFeatureChannelOffset (2) is not a multiple of 4",
               [&] { encode(kernel, make_image(x), make_nan_image(1, 6, 6, 12)); });
}

// --------------------------------------------------------------------------------------------------- padding

void test_pad() {
  const Tensor x = Tensor::random(2, 3, 4, 5, 9);
  const float three[] = {1, 2, 3};
  MPSNNPad *odd = [[[MPSNNPad alloc] initWithDevice:device
                                  paddingSizeBefore:MPSImageCoordinate{0, 0, 0}
                                   paddingSizeAfter:MPSImageCoordinate{0, 0, 0}
                                     fillValueArray:[NSData dataWithBytes:three length:sizeof three]] autorelease];
  check_raises("fill values for other channels", kArgument, "fillValueArray has 3 values, and the kernel writes 5",
               [&] { result_of(odd, make_image(x)); });
}

// --------------------------------------------------------------------------------------------------- dropout

MPSCNNDropout *dropout(float keep, NSUInteger seed, MTLSize stride = {1, 1, 1}) {
  return [[[MPSCNNDropout alloc] initWithDevice:device keepProbability:keep seed:seed
                             maskStrideInPixels:stride] autorelease];
}

void test_dropout_state() {
  const Tensor x(2, 3, 4, 5, 1);
  for (const bool wide : {false, true}) {
    MPSCNNDropout *kernel = dropout(0.5f, 6, wide ? MTLSize{1, 1, 0} : MTLSize{1, 1, 1});
    [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSState *state = nil;
    MPSImage *result = [kernel encodeToCommandBuffer:buffer
                                         sourceImage:make_image(x)
                                    destinationState:&state
                         destinationStateIsTemporary:wide];
    MPSStateBatch *states = nil;
    MPSImageBatch *results = [kernel encodeBatchToCommandBuffer:buffer
                                                   sourceImages:make_batch(x)
                                              destinationStates:&states
                                    destinationStateIsTemporary:wide];
    run(buffer);
    const auto check_mask = [&](MPSState *filled, const Tensor &y) {
      check([filled isKindOfClass:[MPSCNNDropoutGradientState class]], "the state is a dropout's");
      NSData *mask = [(MPSCNNDropoutGradientState *)filled maskData];
      const auto *bytes = static_cast<const unsigned char *>([mask bytes]);
      bool same = [mask length] == static_cast<NSUInteger>(y.n) * 12 * (wide ? 1 : 5);
      for (std::size_t i = 0; same && i < y.values.size(); ++i)
        same = bytes[wide ? i / 5 : i] == (y.values[i] != 0) && bytes[wide ? i / 5 : i] <= 1;
      check(same, "maskData is 1 where a value is kept");
    };
    check_mask(state, read_image(result));
    check([states count] == 2 && [states objectAtIndex:0] != [states objectAtIndex:1], "each image has a state");
    for (NSUInteger i = 0; i < 2; ++i) check_mask([states objectAtIndex:i], read_image([results objectAtIndex:i]));
  }
  MPSCNNDropout *kernel = dropout(0.5f, 6);
  MPSImage *image = make_image(x), *one = make_image(x.image(0)), *other = make_image(x.image(1));
  MPSCNNDropoutGradientState *state = [kernel resultStateForSourceImage:image sourceStates:nil destinationImage:image];
  check_raises("a mask before the encode", @"MPSUsageException", "No encode has filled the state",
               [&] { [state maskData]; });
  NSArray *twice = [NSArray arrayWithObjects:state, state, nil];
  check_raises("one state for two images", kArgument, "one state for several images", [&] {
    [kernel encodeBatchToCommandBuffer:command_buffer()
                          sourceImages:[NSArray arrayWithObjects:one, other, nil]
                     destinationStates:twice
                     destinationImages:[NSArray arrayWithObjects:make_image(x.image(0)), make_image(x.image(0)), nil]];
  });
  MPSNNReshape *reshape = [[[MPSNNReshape alloc] initWithDevice:device] autorelease];
  MPSState *strange = [reshape resultStateForSourceImage:image sourceStates:nil destinationImage:image];
  check_raises("another kernel's state", kArgument, "destinationState is an object of class MPSNNGradientState", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                      sourceImage:image
                 destinationState:strange
                 destinationImage:make_image(x)];
  });
}

void test_dropout_refusals() {
  for (const float keep : {0.0f, 1.0f, -0.5f, NAN})
    check_raises("a probability out of range", kArgument, "is not between 0 and 1", [&] { dropout(keep, 1); });
  check_raises("a mask stride of 2", kArgument, "maskStrideInPixels (1, 2, 1)", [] { dropout(0.5f, 1, {1, 2, 1}); });
  check_raises("no parameters", kArgument, "unavailable",
               [] { [[(id)[MPSCNNDropout alloc] initWithDevice:device] autorelease]; });
}

}  // namespace

int main() {
  return run_tests({test_upsampling_refusals, test_resize, test_crop, test_reshape, test_slice, test_pad,
                    test_dropout_state, test_dropout_refusals});
}

// SPDX-License-Identifier: Apache-2.0
// Gradients of the arithmetic of two images: properties without a state, bounds, repeated sources read from
// outside, refused calls. Values are in tests/rows/objc_gradients.py. Prints "N passed, N failed".

#import "mps_test.hh"

namespace {

struct Operation {
  std::string name;
  MPSCNNArithmetic *forward;
  Class gradient;
};

template <class Forward, class Gradient>
Operation operation(const char *name) {
  return {name, [[[Forward alloc] initWithDevice:device] autorelease], [Gradient class]};
}

std::vector<Operation> operations() {
  return {operation<MPSCNNAdd, MPSCNNAddGradient>("add"), operation<MPSCNNSubtract, MPSCNNSubtractGradient>("subtract"),
          operation<MPSCNNMultiply, MPSCNNMultiplyGradient>("multiply")};
}

MPSCNNArithmeticGradient *new_gradient(Class kind, BOOL is_secondary) {
  MPSCNNArithmeticGradient *kernel = [[(MPSCNNAddGradient *)[kind alloc] initWithDevice:device
                                                                isSecondarySourceFilter:is_secondary] autorelease];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  return kernel;
}

/// The gradient is 0 where a bound was met.
void test_bounds() {
  // A value equal to a bound counts as cut off.
  MPSCNNAdd *forward = [[[MPSCNNAdd alloc] initWithDevice:device] autorelease];
  [forward setMaximumValue:1];
  MPSImage *half = make_image(Tensor(1, 1, 1, 4, 0.5)), *result = make_nan_image(1, 1, 1, 4);
  MPSCNNArithmeticGradientState *state = (MPSCNNArithmeticGradientState *)[forward resultStateForPrimaryImage:half
                                                                                               secondaryImage:half
                                                                                                 sourceStates:nil
                                                                                             destinationImage:result];
  id<MTLCommandBuffer> buffer = command_buffer();
  [forward encodeToCommandBuffer:buffer
                    primaryImage:half
                  secondaryImage:half
                destinationState:state
                destinationImage:result];
  MPSCNNArithmeticGradient *kernel = new_gradient([MPSCNNAddGradient class], NO);
  MPSImage *made = [kernel encodeToCommandBuffer:buffer sourceGradient:half sourceImage:half gradientState:state];
  run(buffer);
  check_equal("a value at the bound", read_image(made), Tensor(1, 1, 1, 4), 0);
}

/// The properties alone, set by hand.
void test_without_a_state() {
  const Tensor e = Tensor::random(1, 3, 4, 5, 10), y = Tensor::random(1, 3, 4, 5, 11);
  const auto gradient_of = [&](MPSCNNArithmeticGradient *kernel, const Tensor &seen, long h, long w, long c) {
    MPSImage *result = make_nan_image(1, h, w, c);
    id<MTLCommandBuffer> buffer = command_buffer();
    [kernel encodeToCommandBuffer:buffer
                     primaryImage:make_image(e)
                   secondaryImage:make_image(seen)
                 destinationImage:result];
    run(buffer);
    return read_image(result);
  };
  MPSCNNArithmeticGradient *add = new_gradient([MPSCNNAddGradient class], YES);
  check([add primaryScale] == 1 && [add secondaryScale] == 1 && [add bias] == 0 &&
            [add secondaryStrideInFeatureChannels] == 1 && [add minimumValue] == -std::numeric_limits<float>::max() &&
            [add maximumValue] == std::numeric_limits<float>::max() && [add isBackwards],
        "defaults");
  [add setPrimaryScale:3];
  [add setSecondaryScale:-2];
  [add setBias:100];
  Tensor sums(1, 1, 1, 5), scaled = e;
  for (double &value : scaled.values) value *= -2;
  for (long j = 0; j < 3; ++j)
    for (long i = 0; i < 4; ++i)
      for (long k = 0; k < 5; ++k) sums.at(0, 0, 0, k) += scaled.at(0, j, i, k);
  check_equal("a sum's second source", gradient_of(add, y, 3, 4, 5), scaled, 1e-6);
  [add setSecondaryStrideInPixelsX:0];
  [add setSecondaryStrideInPixelsY:0];
  check_equal("strides of 0 sum", gradient_of(add, y, 1, 1, 5), sums, 1e-5);

  MPSCNNArithmeticGradient *subtract = new_gradient([MPSCNNSubtractGradient class], YES);
  [subtract setPrimaryScale:-1];
  for (std::size_t i = 0; i < e.values.size(); ++i) scaled.values[i] = -e.values[i];
  check_equal("a difference's second source", gradient_of(subtract, y, 3, 4, 5), scaled, 1e-6);

  MPSCNNArithmeticGradient *multiply = new_gradient([MPSCNNMultiplyGradient class], NO);
  [multiply setPrimaryScale:0.5f];
  Tensor products = e, channels(1, 3, 4, 1), all(1, 1, 1, 1);
  for (long j = 0; j < 3; ++j)
    for (long i = 0; i < 4; ++i)
      for (long k = 0; k < 5; ++k) {
        const double value = 0.5 * e.at(0, j, i, k) * y.at(0, j, i, k);
        products.at(0, j, i, k) = value, channels.at(0, j, i, 0) += value, all.at(0, 0, 0, 0) += value;
      }
  check_equal("a product", gradient_of(multiply, y, 3, 4, 5), products, 1e-6);
  check_equal("a product for one channel", gradient_of(multiply, y, 3, 4, 1), channels, 1e-5);
  check_equal("a product for one value", gradient_of(multiply, y, 1, 1, 1), all, 1e-5);
  [multiply setClipRect:MTLRegionMake3D(0, 1, 0, 4, 1, 1)];
  [multiply setPrimaryOffset:MPSOffset{0, 2, 0}];
  [multiply setSecondaryOffset:MPSOffset{0, 2, 0}];
  const Tensor row = gradient_of(multiply, y, 3, 4, 5);
  check(std::fabs(row.at(0, 1, 3, 4) - products.at(0, 2, 3, 4)) < 1e-6 && std::isnan(row.at(0, 0, 0, 0)) &&
            std::isnan(row.at(0, 2, 0, 0)),
        "clipRect of one row sums nothing");
}

/// A sum's properties, set by hand instead of by a state: the secondary image is the source.
void test_clamped_without_a_state() {
  const Tensor x = Tensor::random(1, 3, 4, 5, 21), e = Tensor::random(1, 5, 6, 5, 22);
  MPSCNNAddGradient *kernel = (MPSCNNAddGradient *)new_gradient([MPSCNNAddGradient class], NO);
  [kernel setKernelOffsetX:2];  // the forward offset is (-2, 1)
  [kernel setKernelOffsetY:-1];
  [kernel setSecondaryEdgeMode:MPSImageEdgeModeClamp];
  MPSImage *result = make_nan_image(1, 3, 4, 5);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer primaryImage:make_image(e) secondaryImage:make_image(x) destinationImage:result];
  run(buffer);
  Tensor expected(1, 3, 4, 5);
  for (long j = 0; j < 5; ++j)
    for (long i = 0; i < 6; ++i)
      for (long c = 0; c < 5; ++c)
        expected.at(0, std::min(j + 1, 2l), std::clamp(i - 2, 0l, 3l), c) += e.at(0, j, i, c);
  check_equal("a sum's clamped source without a state", read_image(result), expected, 1e-6);
}

/// A source with strides of 0 that is read from outside is 0, whatever it holds; inside, or clamped to the edge, it is
/// read.
void test_repeated_from_outside() {
  const Tensor a = Tensor::random(1, 3, 4, 5, 15), b = Tensor::random(1, 1, 1, 5, 16);
  Tensor e = Tensor::random(1, 3, 4, 5, 17);
  struct Place {
    const char *name;
    MPSOffset offset;
    MPSImageEdgeMode edge;
    bool is_read;
  };
  const Place places[] = {{"both outside", {5, 5, 0}, MPSImageEdgeModeZero, false},
                          {"rows outside", {0, 1, 0}, MPSImageEdgeModeZero, false},
                          {"columns before", {-1, 0, 0}, MPSImageEdgeModeZero, false},
                          {"inside", {0, 0, 0}, MPSImageEdgeModeZero, true},
                          {"clamped", {5, -5, 0}, MPSImageEdgeModeClamp, true}};
  for (const Operation &one : operations()) {
    [one.forward setSecondaryStrideInPixelsX:0];
    [one.forward setSecondaryStrideInPixelsY:0];
    for (const Place &place : places) {
      [one.forward setSecondaryOffset:place.offset];
      [one.forward setSecondaryEdgeMode:place.edge];
      const std::string name = one.name + ", " + place.name;
      MPSImage *images[] = {make_image(a), make_image(b)}, *result = make_nan_image(1, 3, 4, 5);
      MPSState *state = [one.forward resultStateForPrimaryImage:images[0]
                                                 secondaryImage:images[1]
                                                   sourceStates:nil
                                               destinationImage:result];
      const double sign = one.name == "subtract" ? -1 : 1;
      Tensor expected(1, 1, 1, 5);
      for (long y = 0; place.is_read && y < 3; ++y)
        for (long x = 0; x < 4; ++x)
          for (long c = 0; c < 5; ++c)
            expected.at(0, 0, 0, c) += sign * e.at(0, y, x, c) * (one.name == "multiply" ? a.at(0, y, x, c) : 1);
      Tensor diff = e;
      if (!place.is_read) diff.at(0, 1, 2, 3) = std::numeric_limits<float>::infinity();
      MPSImage *seen = images[one.name != "multiply"];
      MPSCNNArithmeticGradient *kernel = new_gradient(one.gradient, YES);
      MPSImage *from_archive = make_nan_image(1, 1, 1, 5);
      id<MTLCommandBuffer> buffer = command_buffer();
      MPSImage *made = [kernel encodeToCommandBuffer:buffer
                                      sourceGradient:make_image(diff)
                                         sourceImage:seen
                                       gradientState:state];
      [archived([[kernel copy] autorelease]) encodeToCommandBuffer:buffer
                                                    sourceGradient:make_image(diff)
                                                       sourceImage:seen
                                                     gradientState:state
                                               destinationGradient:from_archive];
      run(buffer);
      check_equal(name, read_image(made), expected, place.is_read ? 1e-5 : 0);
      check_equal(name + ", out of a copy's archive", read_image(from_archive), read_image(made), 0);
    }
  }
}

void test_refusals() {
  check_raises("the base class", kArgument, "unavailable",
               [] { [[(id)[MPSCNNArithmeticGradient alloc] initWithDevice:device] autorelease]; });
  check_raises("no filter", kArgument, "unavailable",
               [] { [[(id)[MPSCNNAddGradient alloc] initWithDevice:device] autorelease]; });
  MPSImage *e = make_nan_image(1, 3, 4, 8), *y = make_nan_image(1, 3, 4, 8), *to = make_nan_image(1, 3, 4, 8);
  const auto refuse = [&](const char *what, Class kind, const char *part, auto set) {
    MPSCNNArithmeticGradient *kernel = new_gradient(kind, NO);
    set(kernel);
    check_raises(what, kArgument, part, [&] {
      [kernel encodeToCommandBuffer:command_buffer() primaryImage:e secondaryImage:y destinationImage:to];
    });
  };
  refuse("a stride of 2", [MPSCNNAddGradient class], "secondaryStrideInPixelsX (2) is neither 0 nor 1",
         [](id k) { [k setSecondaryStrideInPixelsX:2]; });
  refuse("a repeated gradient", [MPSCNNAddGradient class], "primaryStrideInPixelsX (0) and primaryStrideInPixelsY (1)",
         [](id k) { [k setPrimaryStrideInPixelsX:0]; });
  refuse("a sum with rows", [MPSCNNAddGradient class],
         "repeated its source along the rows, so its gradient has 1 of them",
         [](id k) { [k setSecondaryStrideInPixelsY:0]; });
  refuse("channels that differ", [MPSCNNMultiplyGradient class],
         "8 feature channels of sourceGradient and 4 of sourceImage",
         [](id k) { [k setSecondarySourceFeatureChannelMaxCount:4]; });

  MPSCNNAdd *forward = [[[MPSCNNAdd alloc] initWithDevice:device] autorelease];
  MPSNNReshape *reshape = [[[MPSNNReshape alloc] initWithDevice:device] autorelease];
  MPSState *strange = [reshape resultStateForSourceImage:e sourceStates:nil destinationImage:to];
  check_raises("another kernel's state", kArgument, "destinationState is an object of class MPSNNGradientState", [&] {
    [forward encodeToCommandBuffer:command_buffer()
                      primaryImage:e
                    secondaryImage:y
                  destinationState:(MPSCNNArithmeticGradientState *)strange
                  destinationImage:to];
  });
  MPSCNNArithmeticGradient *kernel = new_gradient([MPSCNNAddGradient class], NO);
  check_raises("another state", kArgument, "gradientState is an object of class MPSNNGradientState", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                   sourceGradient:e
                      sourceImage:y
                    gradientState:strange
              destinationGradient:to];
  });
  // A mask of one image is not enough for two.
  [forward setMaximumValue:1];
  MPSState *state = nil;
  id<MTLCommandBuffer> buffer = command_buffer();
  [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
  [forward encodeToCommandBuffer:buffer
                     primaryImage:e
                   secondaryImage:y
                 destinationState:&state
      destinationStateIsTemporary:NO];
  run(buffer);
  check_raises("a mask of fewer images", kArgument, "gradientState is that of an encode of 1 images with 8", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                   sourceGradient:make_nan_image(2, 3, 4, 8)
                      sourceImage:make_nan_image(2, 3, 4, 8)
                    gradientState:state
              destinationGradient:make_nan_image(2, 3, 4, 8)];
  });
  MPSStateBatch *twice = [NSArray arrayWithObjects:state, state, nil];
  check_raises("one mask for two images", kArgument, "one state for several images", [&] {
    [forward encodeBatchToCommandBuffer:command_buffer()
                          primaryImages:[NSArray arrayWithObjects:e, e, nil]
                        secondaryImages:[NSArray arrayWithObjects:y, y, nil]
                      destinationStates:(MPSCNNArithmeticGradientStateBatch *)twice
                      destinationImages:[NSArray arrayWithObjects:to, make_nan_image(1, 3, 4, 8), nil]];
  });
}

}  // namespace

int main() {
  return run_tests(
      {test_bounds, test_without_a_state, test_clamped_without_a_state, test_repeated_from_outside, test_refusals});
}

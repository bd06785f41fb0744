// SPDX-License-Identifier: Apache-2.0
// Gradients of the arithmetic of two images: against small steps of the forward kernels, with repeated sources, scales,
// offsets and bounds, in every encode form; copies, archives, and what they refuse. Prints "N passed, N failed".

#import "gradient_test.hh"

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

/// n images, each the one image of t.
Tensor repeated(const Tensor &t, long n) {
  Tensor all(n, t.h, t.w, t.c);
  for (long i = 0; i < n; ++i)
    std::copy(t.values.begin(), t.values.end(), all.values.begin() + i * static_cast<long>(t.values.size()));
  return all;
}

/// The gradients of both sources in every form; the kernel's properties are set, a and b have two images.
void check_both(const Operation &one, const std::string &what, const Tensor &a, const Tensor &b) {
  MPSCNNArithmetic *forward = one.forward;
  [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
  const Tensor *const sources[] = {&a, &b};
  MPSImage *images[] = {make_image(a), make_image(b)};
  MPSState *state = nil;
  MPSStateBatch *states = nil;
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *result = [forward encodeToCommandBuffer:buffer
                                       primaryImage:images[0]
                                     secondaryImage:images[1]
                                   destinationState:&state
                        destinationStateIsTemporary:NO];
  [forward encodeBatchToCommandBuffer:buffer
                        primaryImages:make_batch(a)
                      secondaryImages:make_batch(b)
                    destinationStates:&states
          destinationStateIsTemporary:YES];
  run(buffer);
  check([state isKindOfClass:[MPSCNNArithmeticGradientState class]], one.name + " leaves a state");
  const Tensor y = read_image(result), e = Tensor::random(y.n, y.h, y.w, y.c, 5);
  for (const BOOL is_secondary : {NO, YES}) {
    const std::string name = one.name + ", " + what + (is_secondary ? ", secondary" : ", primary");
    const Tensor &own = *sources[is_secondary], &other = *sources[!is_secondary];
    const Tensor &seen = one.name == "multiply" ? other : own;
    Tensor expected = own;
    for (long n = 0; n < own.n; ++n) {
      const Tensor gradient = by_steps(own.image(n), e.image(n), 1.0 / 64, [&](const Tensor &several) {
        const Tensor fixed = repeated(other.image(n), several.n);
        MPSImage *destination = make_nan_image(several.n, y.h, y.w, y.c);
        id<MTLCommandBuffer> inner = command_buffer();
        [forward encodeToCommandBuffer:inner
                          primaryImage:make_image(is_secondary ? fixed : several)
                        secondaryImage:make_image(is_secondary ? several : fixed)
                      destinationImage:destination];
        run(inner);
        return read_image(destination);
      });
      std::copy(gradient.values.begin(), gradient.values.end(),
                expected.values.begin() + n * static_cast<long>(gradient.values.size()));
    }
    MPSCNNArithmeticGradient *kernel = new_gradient(one.gradient, is_secondary);
    check([kernel isSecondarySourceFilter] == is_secondary, name + ": which source");
    buffer = command_buffer();
    MPSImage *diff = make_image(e), *given = make_nan_image(own.n, own.h, own.w, own.c),
             *from_archive = make_nan_image(own.n, own.h, own.w, own.c);
    MPSImage *made = [kernel encodeToCommandBuffer:buffer
                                    sourceGradient:diff
                                       sourceImage:make_image(seen)
                                     gradientState:state];
    [kernel encodeToCommandBuffer:buffer
                   sourceGradient:diff
                      sourceImage:make_image(seen)
                    gradientState:state
              destinationGradient:given];
    [archived([[kernel copy] autorelease]) encodeToCommandBuffer:buffer
                                                  sourceGradient:diff
                                                     sourceImage:make_image(seen)
                                                   gradientState:state
                                             destinationGradient:from_archive];
    MPSImageBatch *batch = [kernel encodeBatchToCommandBuffer:buffer
                                              sourceGradients:make_batch(e)
                                                 sourceImages:make_batch(seen)
                                               gradientStates:states];
    run(buffer);
    check_equal(name + ", made", read_image(made), expected, 1e-3);
    check_equal(name + ", given", read_image(given), read_image(made), 0);
    check_equal(name + ", out of a copy's archive", read_image(from_archive), read_image(made), 0);
    for (long n = 0; n < own.n; ++n)
      check_equal(name + ", batch", read_image([batch objectAtIndex:static_cast<NSUInteger>(n)]), expected.image(n),
                  1e-3);
  }
}

void test_same_extents() {
  const Tensor a = Tensor::random(2, 3, 4, 5, 1), b = Tensor::random(2, 3, 4, 5, 2);
  for (const Operation &one : operations()) {
    check_both(one, "plain", a, b);
    [one.forward setPrimaryScale:0.5f];
    [one.forward setSecondaryScale:-2];
    [one.forward setBias:0.25f];
    check_both(one, "scales", a, b);
  }
}

void test_repeated_sources() {
  const struct {
    long h, w, c;
  } shapes[] = {{1, 4, 5}, {3, 1, 5}, {3, 4, 1}, {1, 1, 5}, {1, 1, 1}};
  for (const Operation &one : operations()) {
    MPSCNNArithmetic *kernel = one.forward;
    [kernel setPrimaryScale:0.5f];
    for (const auto &shape : shapes) {
      const std::string name = std::to_string(shape.h) + "x" + std::to_string(shape.w) + "x" + std::to_string(shape.c);
      const Tensor whole = Tensor::random(2, 3, 4, 5, 3), small = Tensor::random(2, shape.h, shape.w, shape.c, 4);
      [kernel setSecondaryStrideInPixelsX:shape.w != 1];
      [kernel setSecondaryStrideInPixelsY:shape.h != 1];
      [kernel setSecondaryStrideInFeatureChannels:shape.c != 1];
      check_both(one, "secondary " + name, whole, small);
      [kernel setSecondaryStrideInPixelsX:1];
      [kernel setSecondaryStrideInPixelsY:1];
      [kernel setSecondaryStrideInFeatureChannels:1];
      [kernel setPrimaryStrideInPixelsX:shape.w != 1];
      [kernel setPrimaryStrideInPixelsY:shape.h != 1];
      [kernel setPrimaryStrideInFeatureChannels:shape.c != 1];
      check_both(one, "primary " + name, small, whole);
      [kernel setPrimaryStrideInPixelsX:1];
      [kernel setPrimaryStrideInPixelsY:1];
      [kernel setPrimaryStrideInFeatureChannels:1];
    }
    // Each is repeated along another axis.
    [kernel setPrimaryStrideInPixelsX:0];
    [kernel setSecondaryStrideInPixelsY:0];
    check_both(one, "both", Tensor::random(2, 3, 1, 5, 6), Tensor::random(2, 1, 4, 5, 7));
  }
}

/// Where a bound was met the gradient is 0.
void test_bounds() {
  Tensor a = distinct(2, 3, 4, 5, 8), b = distinct(2, 3, 4, 5, 9, 0.0625);
  for (double &value : a.values) value /= 8;
  for (double &value : b.values) value = value / 8 + (value < 0 ? -0.25 : 0.25);
  for (const Operation &one : operations()) {
    [one.forward setMinimumValue:-0.757f];
    [one.forward setMaximumValue:1.003f];
    // Steps that cross a bound give half: values are far enough from it.
    const auto near = [&](double x, double y) {
      const double r = one.name == "add" ? x + y : one.name == "subtract" ? x - y : x * y;
      return std::fabs(r + 0.757) < 0.05 || std::fabs(r - 1.003) < 0.05;
    };
    Tensor first = a;
    for (std::size_t i = 0; i < first.values.size(); ++i)
      while (near(first.values[i], b.values[i])) first.values[i] += 0.11;
    check_both(one, "bounds", first, b);
  }
  // A value that is a bound was cut off.
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

/// The properties alone, as they are set by hand.
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

/// The forward kernel read its sources from different pixels on.
void test_offsets() {
  const Tensor a = Tensor::random(1, 4, 5, 4, 12), b = Tensor::random(1, 5, 6, 4, 13),
               e = Tensor::random(1, 3, 4, 4, 14);
  MPSCNNMultiply *forward = [[[MPSCNNMultiply alloc] initWithDevice:device] autorelease];
  [forward setPrimaryOffset:MPSOffset{1, 0, 0}];
  [forward setSecondaryOffset:MPSOffset{0, 2, 0}];
  MPSImage *images[] = {make_image(a), make_image(b)}, *result = make_nan_image(1, 3, 4, 4);
  MPSState *state = [forward resultStateForPrimaryImage:images[0]
                                         secondaryImage:images[1]
                                           sourceStates:nil
                                       destinationImage:result];
  Tensor expected[] = {Tensor(1, 4, 5, 4), Tensor(1, 5, 6, 4)};
  for (long y = 0; y < 3; ++y)
    for (long x = 0; x < 4; ++x)
      for (long c = 0; c < 4; ++c) {
        expected[0].at(0, y, x + 1, c) = e.at(0, y, x, c) * b.at(0, y + 2, x, c);
        expected[1].at(0, y + 2, x, c) = e.at(0, y, x, c) * a.at(0, y, x + 1, c);
      }
  for (const BOOL is_secondary : {NO, YES}) {
    MPSCNNArithmeticGradient *kernel = new_gradient([MPSCNNMultiplyGradient class], is_secondary);
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSImage *made = [kernel encodeToCommandBuffer:buffer
                                    sourceGradient:make_image(e)
                                       sourceImage:images[!is_secondary]
                                     gradientState:state];
    run(buffer);
    check_equal(is_secondary ? "offsets, secondary" : "offsets, primary", read_image(made), expected[is_secondary],
                1e-6);
  }
}

/// Edge mode Clamp: a pixel of a source gets what all pixels that saw it from beyond the source give back.
void test_clamped_sources() {
  struct Places {
    const char *name;
    MPSOffset offsets[2];
    long width;                ///< of the secondary source
    NSUInteger strides[2][2];  ///< in pixels, in channels
  };
  const Places places[] = {{"clamped", {{-1, 2, 0}, {2, -3, 0}}, 3, {{1, 1}, {1, 1}}},
                           {"all of it beyond", {{9, -9, 0}, {-7, 8, 0}}, 3, {{1, 1}, {1, 1}}},
                           {"clamped rows of one column", {{1, -1, 0}, {4, -2, 0}}, 1, {{1, 1}, {0, 1}}},
                           {"clamped rows of one value", {{1, -1, 0}, {-4, 1, 0}}, 1, {{1, 1}, {0, 0}}}};
  for (const Places &place : places) {
    const long channels = place.strides[1][1] == 0 ? 1 : 5;
    const Tensor sources[] = {Tensor::random(1, 3, 4, 5, 18), Tensor::random(1, 2, place.width, channels, 19)};
    const Tensor e = Tensor::random(1, 4, 6, 5, 20);
    for (const Operation &one : operations()) {
      [one.forward setPrimaryOffset:place.offsets[0]];
      [one.forward setSecondaryOffset:place.offsets[1]];
      [one.forward setPrimaryEdgeMode:MPSImageEdgeModeClamp];
      [one.forward setSecondaryEdgeMode:MPSImageEdgeModeClamp];
      [one.forward setSecondaryStrideInPixelsX:place.strides[1][0]];
      [one.forward setSecondaryStrideInFeatureChannels:place.strides[1][1]];
      [one.forward setSecondaryScale:-2];
      MPSImage *images[] = {make_image(sources[0]), make_image(sources[1])}, *result = make_nan_image(1, 4, 6, 5);
      MPSState *state = [one.forward resultStateForPrimaryImage:images[0]
                                                 secondaryImage:images[1]
                                                   sourceStates:nil
                                               destinationImage:result];
      for (const BOOL is_secondary : {NO, YES}) {
        const std::string name = one.name + ", " + place.name + (is_secondary ? ", secondary" : ", primary");
        const Tensor &own = sources[is_secondary], &other = sources[!is_secondary];
        const Tensor expected = by_steps(own, e, 1.0 / 64, [&](const Tensor &several) {
          const Tensor fixed = repeated(other, several.n);
          MPSImage *destination = make_nan_image(several.n, 4, 6, 5);
          id<MTLCommandBuffer> inner = command_buffer();
          [one.forward encodeToCommandBuffer:inner
                                primaryImage:make_image(is_secondary ? fixed : several)
                              secondaryImage:make_image(is_secondary ? several : fixed)
                            destinationImage:destination];
          run(inner);
          return read_image(destination);
        });
        MPSCNNArithmeticGradient *kernel = new_gradient(one.gradient, is_secondary);
        MPSImage *from_archive = make_nan_image(1, own.h, own.w, own.c);
        MPSImage *seen = images[one.name == "multiply" ? !is_secondary : is_secondary];
        id<MTLCommandBuffer> buffer = command_buffer();
        MPSImage *made = [kernel encodeToCommandBuffer:buffer
                                        sourceGradient:make_image(e)
                                           sourceImage:seen
                                         gradientState:state];
        [archived([[kernel copy] autorelease]) encodeToCommandBuffer:buffer
                                                      sourceGradient:make_image(e)
                                                         sourceImage:seen
                                                       gradientState:state
                                                 destinationGradient:from_archive];
        run(buffer);
        check_equal(name, read_image(made), expected, 2e-3);
        check_equal(name + ", out of a copy's archive", read_image(from_archive), read_image(made), 0);
      }
    }
  }
}

/// What a state would have brought of a sum, set by hand: the secondary image is the source.
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

/// A source with strides of 0 that was read outside of itself was a 0, whatever it holds; inside, or at the nearest
/// pixel, it was read.
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
  // The mask of one image does not serve two.
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
      {test_same_extents, test_repeated_sources, test_bounds, test_without_a_state, test_offsets,
       test_clamped_sources, test_clamped_without_a_state, test_repeated_from_outside, test_refusals});
}

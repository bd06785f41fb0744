// SPDX-License-Identifier: Apache-2.0
// What the tests of gradient kernels share: the gradient by small steps of the forward kernel, and every way to ask for
// it.
#pragma once

#import "mps_test.hh"

/// Values 1/8 apart in any order: none is the greatest together with another, nor becomes so by a small step.
inline Tensor distinct(long n, long h, long w, long c, unsigned seed, double middle = 0) {
  Tensor t(n, h, w, c);
  Random random(seed);
  const auto count = static_cast<long>(t.values.size());
  for (long i = 0; i < count; ++i)
    t.values[static_cast<std::size_t>(i)] = (static_cast<double>(i - count / 2)) / 8 + middle;
  for (long i = count - 1; i > 0; --i)
    std::swap(t.values[static_cast<std::size_t>(i)],
              t.values[static_cast<std::size_t>(std::fabs(random.next()) * 0.999 * static_cast<double>(i + 1))]);
  return t;
}

/// sum e * (forward(x + step) - forward(x - step)) / (2 * step) for each value of one image x. forward(n images) gives
/// as many results.
inline Tensor by_steps(const Tensor &x, const Tensor &e, double step,
                       const std::function<Tensor(const Tensor &)> &forward) {
  const std::size_t count = x.values.size(), length = e.values.size();
  Tensor moved(static_cast<long>(2 * count), x.h, x.w, x.c);
  for (std::size_t i = 0; i < 2 * count; ++i) {
    std::copy(x.values.begin(), x.values.end(), moved.values.begin() + static_cast<long>(i * count));
    moved.values[i * count + i / 2] += i % 2 == 0 ? step : -step;
  }
  const Tensor results = forward(moved);
  Tensor gradient = x;
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < length; ++j)
      sum += e.values[j] * (results.values[2 * i * length + j] - results.values[(2 * i + 1) * length + j]);
    gradient.values[i] = sum / (2 * step);
  }
  return gradient;
}

/// A forward kernel with one source and its gradient kernel.
struct Pair {
  std::string name;
  MPSCNNKernel *forward;
  MPSCNNGradientKernel *gradient;
  double step = 1.0 / 64, tolerance = 1e-3;
  bool from_result = false;  ///< the secondary image is the forward result
};

/// Every way to ask for the gradient gives what small steps give. x has two images.
inline void check_pair(const Pair &pair, const Tensor &x) {
  MPSCNNKernel *forward = pair.forward;
  MPSCNNGradientKernel *gradient = pair.gradient;
  [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
  [gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSImage *source = make_image(x);
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSState *state = nil;
  MPSImage *result =
      [forward encodeToCommandBuffer:buffer sourceImage:source destinationState:&state destinationStateIsTemporary:NO];
  run(buffer);
  check([state isKindOfClass:[MPSNNGradientState class]], pair.name + " leaves a state");
  const Tensor y = read_image(result);
  Tensor e = Tensor::random(y.n, y.h, y.w, y.c, 77);
  const auto run_forward = [&](const Tensor &several) {
    MPSImage *destination = make_nan_image(several.n, y.h, y.w, y.c);
    encode(forward, make_image(several), destination);
    return read_image(destination);
  };
  // Only the channels that the forward kernel reads have a gradient.
  const long first = static_cast<long>([forward sourceFeatureChannelOffset]);
  Tensor expected(x.n, x.h, x.w, x.c);
  for (long n = 0; n < x.n; ++n) {
    const Tensor one = by_steps(x.image(n), e.image(n), pair.step, run_forward);
    std::copy(one.values.begin(), one.values.end(), expected.values.begin() + n * static_cast<long>(one.values.size()));
  }
  const long read = static_cast<long>(
      std::min<NSUInteger>([forward sourceFeatureChannelMaxCount], static_cast<NSUInteger>(x.c - first)));
  expected = expected.channels(first, read);

  MPSImage *diff = make_image(e), *seen = pair.from_result ? result : source;
  buffer = command_buffer();
  MPSImage *made = [gradient encodeToCommandBuffer:buffer sourceGradient:diff sourceImage:seen gradientState:state];
  // With the properties that are set now.
  MPSImage *given = make_nan_image(x.n, x.h, x.w, read), *from_archive = make_nan_image(x.n, x.h, x.w, read);
  [gradient encodeToCommandBuffer:buffer
                   sourceGradient:diff
                      sourceImage:seen
                    gradientState:state
              destinationGradient:given];
  MPSCNNGradientKernel *twin = archived([[gradient copy] autorelease]);
  [twin encodeToCommandBuffer:buffer
               sourceGradient:diff
                  sourceImage:seen
                gradientState:state
          destinationGradient:from_archive];
  MPSImage *half = [[[MPSImage alloc] initWithDevice:device
                                     imageDescriptor:describe(x.n, x.h, x.w, read, MPSImageFeatureChannelFormatFloat16)]
      autorelease];
  [gradient encodeToCommandBuffer:buffer
                   sourceGradient:make_half_image(e)
                      sourceImage:seen
                    gradientState:state
              destinationGradient:half];
  // In front of and behind other channels.
  MPSImage *wide = make_nan_image(x.n, x.h, x.w, read + 8);
  [gradient setDestinationFeatureChannelOffset:4];
  [gradient encodeToCommandBuffer:buffer
                   sourceGradient:diff
                      sourceImage:seen
                    gradientState:state
              destinationGradient:wide];
  [gradient setDestinationFeatureChannelOffset:0];

  MPSStateBatch *states = nil;
  MPSImageBatch *results = [forward encodeBatchToCommandBuffer:buffer
                                                  sourceImages:make_batch(x)
                                             destinationStates:&states
                                   destinationStateIsTemporary:YES];
  MPSImageBatch *seen_batch = pair.from_result ? results : make_batch(x), *batch_given = nil;
  MPSImageBatch *batch = [gradient encodeBatchToCommandBuffer:buffer
                                              sourceGradients:make_batch(e)
                                                 sourceImages:seen_batch
                                               gradientStates:states];
  [forward encodeBatchToCommandBuffer:buffer
                         sourceImages:make_batch(x)
                    destinationStates:&states
          destinationStateIsTemporary:NO];
  batch_given = make_batch(Tensor(x.n, x.h, x.w, read, NAN));
  [gradient encodeBatchToCommandBuffer:buffer
                       sourceGradients:make_batch(e)
                          sourceImages:seen_batch
                        gradientStates:states
                  destinationGradients:batch_given];
  run(buffer);
  const double worst = pair.tolerance;
  check_equal(pair.name + ", destination made", read_image(made), expected, worst);
  check_equal(pair.name + ", destination given", read_image(given), expected, worst);
  check_equal(pair.name + ", out of a copy's archive", read_image(from_archive), read_image(given), 0);
  double largest = 1;
  for (const double value : expected.values) largest = std::max(largest, std::fabs(value));
  check_equal(pair.name + ", half precision", read_half_image(half), expected, worst + largest / 1024);
  check_equal(pair.name + ", channels", read_image(wide).channels(4, read), read_image(given), 0);
  check(std::isnan(read_image(wide).at(0, 0, 0, 0)) && std::isnan(read_image(wide).at(0, 0, 0, read + 4)),
        pair.name + " writes its channels alone");
  for (long n = 0; n < x.n; ++n) {
    const auto at = static_cast<NSUInteger>(n);
    check_equal(pair.name + ", batch made", read_image([batch objectAtIndex:at]), expected.image(n), worst);
    check_equal(pair.name + ", batch given", read_image([batch_given objectAtIndex:at]), expected.image(n), worst);
  }
}

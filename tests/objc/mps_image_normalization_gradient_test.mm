// SPDX-License-Identifier: Apache-2.0
// The gradients of instance and group normalization: numbers against the formulas written out in double, a state for
// each image, encode forms, copies, and what the kernels refuse. Prints "N passed, N failed".

#import "norm_test.hh"

namespace {

constexpr double kEpsilon = 0.001953125;  // exact in float

struct Gradients {
  Tensor x;
  std::vector<Numbers> gamma, beta;  ///< of each image
};

Gradients gradients_of(const Tensor &e, const Tensor &x, long groups, const Affine &a) {
  Gradients r{Tensor(x.n, x.h, x.w, x.c), {}, {}};
  const long each = x.c / groups;
  for (long n = 0; n < x.n; ++n) {
    Numbers gamma(static_cast<std::size_t>(x.c)), beta(gamma);
    for (long g = 0; g < groups; ++g) {
      const Moments m = moments_of(x, n, 1, g * each, each);
      const double inverse = 1 / std::sqrt(m.variance + kEpsilon), count = static_cast<double>(x.h * x.w * each);
      double sum = 0, product = 0;
      const auto all = [&](const auto &f) {
        for (long j = 0; j < x.h; ++j)
          for (long i = 0; i < x.w; ++i)
            for (long k = g * each; k < (g + 1) * each; ++k)
              f(static_cast<std::size_t>(k), e.at(n, j, i, k), (x.at(n, j, i, k) - m.mean) * inverse,
                r.x.at(n, j, i, k));
      };
      all([&](std::size_t k, double d, double z, double &) {
        beta[k] += d, gamma[k] += d * z;
        sum += a.gamma[k] * d, product += a.gamma[k] * d * z;
      });
      all([&](std::size_t k, double d, double z, double &result) {
        result = inverse * (a.gamma[k] * d - sum / count - z * product / count);
      });
    }
    r.gamma.push_back(gamma), r.beta.push_back(beta);
  }
  return r;
}

template <class Forward, class Gradient, class State>
void check_class(Forward *forward, long groups, const Affine &values) {
  const std::string name = [NSStringFromClass([Gradient class]) UTF8String];
  [forward setEpsilon:static_cast<float>(kEpsilon)];
  [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
  const Tensor x = Tensor::random(3, 4, 5, 8, 1), e = Tensor::random(3, 4, 5, 8, 2);
  const Gradients expected = gradients_of(e, x, groups, values);
  Gradient *kernel = archived([[[[[Gradient alloc] initWithDevice:device] autorelease] copy] autorelease]);
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  check([kernel isStateModified], name + ": writes the state");

  // A batch: a state for each image.
  MPSImageBatch *images = make_batch(x), *gradients = make_batch(e);
  MPSStateBatch *states = nil;
  id<MTLCommandBuffer> buffer = command_buffer();
  [forward encodeBatchToCommandBuffer:buffer
                         sourceImages:images
                    destinationStates:&states
          destinationStateIsTemporary:NO];
  MPSImageBatch *made = [kernel encodeBatchToCommandBuffer:buffer
                                           sourceGradients:gradients
                                              sourceImages:images
                                            gradientStates:states];
  MPSImageBatch *given = nan_batch(3, 4, 5, 8);
  [kernel encodeBatchToCommandBuffer:buffer
                     sourceGradients:gradients
                        sourceImages:images
                      gradientStates:states
                destinationGradients:given];
  run(buffer);
  check_equal(name + ", batch, destinations made", read_batch(made), expected.x, 5e-6);
  check_equal(name + ", batch, destinations given", read_batch(given), expected.x, 5e-6);
  for (NSUInteger i = 0; i < 3; ++i) {
    State *state = (State *)[states objectAtIndex:i];
    check_numbers(name + ", gamma of an image", floats_in([state gradientForGamma]), expected.gamma[i], 1e-5);
    check_numbers(name + ", beta of an image", floats_in([state gradientForBeta]), expected.beta[i], 1e-5);
  }

  // One image of three: the gradients of gamma and beta are sums.
  MPSImage *whole_x = make_image(x), *whole_e = make_image(e), *result = make_nan_image(3, 4, 5, 8);
  MPSState *state = nil;
  buffer = command_buffer();
  [forward encodeToCommandBuffer:buffer sourceImage:whole_x destinationState:&state destinationStateIsTemporary:NO];
  [kernel encodeToCommandBuffer:buffer
                 sourceGradient:whole_e
                    sourceImage:whole_x
                  gradientState:state
            destinationGradient:result];
  MPSState *temporary = nil;
  [forward encodeToCommandBuffer:buffer
                      sourceImage:whole_x
                 destinationState:&temporary
      destinationStateIsTemporary:YES];
  MPSImage *returned = [kernel encodeToCommandBuffer:buffer
                                      sourceGradient:whole_e
                                         sourceImage:whole_x
                                       gradientState:temporary];
  check([temporary readCount] == 0, name + ": reads the state");
  run(buffer);
  check_equal(name + ", destination given", read_image(result), expected.x, 5e-6);
  check_equal(name + ", destination made", read_image(returned), expected.x, 5e-6);
  Numbers gamma(8), beta(8);
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t k = 0; k < 8; ++k) gamma[k] += expected.gamma[i][k], beta[k] += expected.beta[i][k];
  check_numbers(name + ", gamma of three images", floats_in([(State *)state gradientForGamma]), gamma, 2e-5);
  check_numbers(name + ", beta of three images", floats_in([(State *)state gradientForBeta]), beta, 2e-5);

  State *unused = [forward resultStateForSourceImage:whole_x sourceStates:nil destinationImage:whole_x];
  check_raises(name + ", a state of no encode", kArgument, "holds mean and variance of 0 images, and the source has 3",
               [&] {
                 [kernel encodeToCommandBuffer:command_buffer()
                                sourceGradient:whole_e
                                   sourceImage:whole_x
                                 gradientState:unused
                           destinationGradient:result];
               });
  check_raises(name + ", no state", kArgument, "gradientState is nil", [&] {
    [kernel encodeToCommandBuffer:command_buffer() primaryImage:whole_e secondaryImage:whole_x destinationImage:result];
  });
  check_raises(name + ", other channels", kArgument, "have 4 feature channels, and gradientState was made for 8", [&] {
    MPSImage *few = make_image(x.channels(0, 4));
    [kernel encodeToCommandBuffer:command_buffer()
                   sourceGradient:few
                      sourceImage:few
                    gradientState:state
              destinationGradient:make_nan_image(3, 4, 5, 4)];
  });
}

void test_instance_normalization() {
  const Affine values(8, 3);
  check_class<MPSCNNInstanceNormalization, MPSCNNInstanceNormalizationGradient,
              MPSCNNInstanceNormalizationGradientState>(
      make_norm<MPSCNNInstanceNormalization>(make_norm_source<PlainNormSource>(values)), 8, values);
}

void test_group_normalization() {
  const Affine values(8, 4);
  for (const NSUInteger groups : {1, 2, 4}) {
    GroupSource *source = make_norm_source<GroupSource>(values);
    source->groups = groups;
    check_class<MPSCNNGroupNormalization, MPSCNNGroupNormalizationGradient, MPSCNNGroupNormalizationGradientState>(
        make_norm<MPSCNNGroupNormalization>(source), static_cast<long>(groups), values);
  }
}

/// The state of the one class is none of the other, and what was reloaded later does not count.
void test_states() {
  const Affine values(4, 5), later(4, 6);
  const Tensor x = Tensor::random(1, 3, 4, 4, 7), e = Tensor::random(1, 3, 4, 4, 8);
  PlainNormSource *source = make_norm_source<PlainNormSource>(values);
  MPSCNNInstanceNormalization *forward = make_norm<MPSCNNInstanceNormalization>(source);
  [forward setEpsilon:static_cast<float>(kEpsilon)];
  [forward setDestinationImageAllocator:[MPSImage defaultAllocator]];
  MPSImage *image = make_image(x), *result = make_nan_image(1, 3, 4, 4);
  MPSState *state = nil;
  id<MTLCommandBuffer> buffer = command_buffer();
  [forward encodeToCommandBuffer:buffer sourceImage:image destinationState:&state destinationStateIsTemporary:NO];
  source->gammas = floats(later.gamma);
  [forward reloadGammaAndBetaFromDataSource];
  [forward setEpsilon:1];
  MPSCNNInstanceNormalizationGradient *kernel =
      [[[MPSCNNInstanceNormalizationGradient alloc] initWithDevice:device] autorelease];
  [kernel encodeToCommandBuffer:buffer
                 sourceGradient:make_image(e)
                    sourceImage:image
                  gradientState:state
            destinationGradient:result];
  MPSCNNGroupNormalizationGradient *group =
      [[[MPSCNNGroupNormalizationGradient alloc] initWithDevice:device] autorelease];
  check_raises("a state of another class", kArgument, "is no MPSCNNGroupNormalizationGradientState", [&] {
    [group encodeToCommandBuffer:buffer
                  sourceGradient:make_image(e)
                     sourceImage:image
                   gradientState:state
             destinationGradient:result];
  });
  run(buffer);
  check_equal("gamma and epsilon as they were", read_image(result), gradients_of(e, x, 4, values).x, 5e-6);
}

}  // namespace

int main() { return run_tests({test_instance_normalization, test_group_normalization, test_states}); }

// SPDX-License-Identifier: Apache-2.0
// Optimizers: descriptors, every encode form with vectors, matrices and states, time steps, readCounts, what is
// refused, copies and archives; values against plain double code. Prints "N passed, N failed".

#import "norm_test.hh"

/// A state of batch normalization whose gradients the test brings.
@interface GradientBatchState : MPSCNNBatchNormalizationState
@end

namespace {

id<MTLBuffer> gamma_gradient, beta_gradient;

}  // namespace

@implementation GradientBatchState
- (id<MTLBuffer>)gradientForGamma {
  return gamma_gradient;
}
- (id<MTLBuffer>)gradientForBeta {
  return beta_gradient;
}
@end

namespace {

NSString *const kUsage = @"MPSUsageException";
using Values = std::vector<double>;

id<MTLBuffer> make_buffer(const Values &values) {
  const std::vector<float> floats(values.begin(), values.end());
  return [[device newBufferWithBytes:floats.data()
                              length:floats.size() * sizeof(float)
                             options:MTLResourceStorageModeShared] autorelease];
}

Values values_in(id<MTLBuffer> buffer, std::size_t count, std::size_t first = 0) {
  const float *floats = static_cast<const float *>([buffer contents]) + first;
  return Values(floats, floats + count);
}

MPSVector *make_vector(const Values &values) {
  return [[[MPSVector alloc] initWithBuffer:make_buffer(values)
                                 descriptor:[MPSVectorDescriptor vectorDescriptorWithLength:values.size()
                                                                                   dataType:MPSDataTypeFloat32]]
      autorelease];
}

Values values_of(MPSVector *vector) { return values_in([vector data], [vector length], [vector offset] / 4); }

Values random_of(std::size_t count, unsigned seed, double least = -1) {
  Values values = random_values(count, seed);
  for (double &value : values) value = least < 0 ? value : std::fabs(value) + least;
  return values;
}

void check_values(const std::string &what, const Values &got, const Values &want, double tolerance = 2e-6) {
  double worst = got.size() == want.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < want.size() && i < got.size(); ++i) {
    const double off = std::fabs(got[i] - want[i]) / (1 + std::fabs(want[i]));
    if (!(off <= worst)) worst = std::isnan(off) ? INFINITY : off;
  }
  check(worst <= tolerance, what + ": off by " + std::to_string(worst));
}

// ------------------------------------------------------------------------------------------- the formulas

struct Settings {
  double rate = 0.1, rescale = 1, least = -INFINITY, greatest = INFINITY, l1 = 0, l2 = 0;
  double gradient(double g, double v) const {
    g = std::min(std::max(g, least), greatest) * rescale;
    return g + l1 * (v > 0 ? 1 : v < 0 ? -1 : 0) + l2 * v;
  }
};

void descend(const Settings &s, double mu, bool nesterov, const Values &g, Values &v, Values *m) {
  for (std::size_t i = 0; i < v.size(); ++i) {
    const double d = s.gradient(g[i], v[i]);
    if (m == nullptr) {
      v[i] -= s.rate * d;
    } else if (nesterov) {
      (*m)[i] = mu * (*m)[i] + d;
      v[i] -= s.rate * (d + mu * (*m)[i]);
    } else {
      (*m)[i] = mu * (*m)[i] + s.rate * d;
      v[i] -= (*m)[i];
    }
  }
}

void rms(const Settings &s, double decay, double epsilon, const Values &g, Values &v, Values &squares) {
  for (std::size_t i = 0; i < v.size(); ++i) {
    const double d = s.gradient(g[i], v[i]);
    squares[i] = decay * squares[i] + (1 - decay) * d * d;
    v[i] -= s.rate * d / (std::sqrt(squares[i]) + epsilon);
  }
}

void adam(const Settings &s, double beta1, double beta2, double epsilon, double t, const Values &g, Values &v,
          Values &m, Values &squares, Values *most) {
  const double rate = s.rate * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
  for (std::size_t i = 0; i < v.size(); ++i) {
    const double d = s.gradient(g[i], v[i]);
    m[i] = beta1 * m[i] + (1 - beta1) * d;
    squares[i] = beta2 * squares[i] + (1 - beta2) * d * d;
    if (most != nullptr) (*most)[i] = std::max((*most)[i], squares[i]);
    v[i] -= rate * m[i] / (std::sqrt(most != nullptr ? (*most)[i] : squares[i]) + epsilon);
  }
}

MPSNNOptimizerDescriptor *describe_optimizer(const Settings &s) {
  const bool absolute = s.l1 != 0, square = s.l2 != 0;
  return [MPSNNOptimizerDescriptor optimizerDescriptorWithLearningRate:static_cast<float>(s.rate)
                                                       gradientRescale:static_cast<float>(s.rescale)
                                                 applyGradientClipping:std::isfinite(s.least)
                                                       gradientClipMax:static_cast<float>(s.greatest)
                                                       gradientClipMin:static_cast<float>(s.least)
                                                    regularizationType:absolute ? MPSNNRegularizationTypeL1
                                                                       : square ? MPSNNRegularizationTypeL2
                                                                                : MPSNNRegularizationTypeNone
                                                   regularizationScale:static_cast<float>(absolute ? s.l1 : s.l2)];
}

MPSNNOptimizerStochasticGradientDescent *make_descent(const Settings &s, float mu = 0, bool nesterov = false) {
  return [[[MPSNNOptimizerStochasticGradientDescent alloc] initWithDevice:device
                                                            momentumScale:mu
                                                      useNesterovMomentum:nesterov
                                                      optimizerDescriptor:describe_optimizer(s)] autorelease];
}

MPSNNOptimizerAdam *make_adam(const Settings &s, NSUInteger time_step = 0, float epsilon = 1e-3f) {
  return [[[MPSNNOptimizerAdam alloc] initWithDevice:device
                                               beta1:0.8
                                               beta2:0.95
                                             epsilon:epsilon
                                            timeStep:time_step
                                 optimizerDescriptor:describe_optimizer(s)] autorelease];
}

MPSNNOptimizerRMSProp *make_rms(const Settings &s) {
  return [[[MPSNNOptimizerRMSProp alloc] initWithDevice:device
                                                  decay:0.7
                                                epsilon:0.01f
                                    optimizerDescriptor:describe_optimizer(s)] autorelease];
}

// ------------------------------------------------------------------------------------------------- tests

void test_descriptors() {
  MPSNNOptimizerDescriptor *plain = [[[MPSNNOptimizerDescriptor alloc] init] autorelease];
  check([plain learningRate] == 0.001f && [plain gradientRescale] == 1 && ![plain applyGradientClipping] &&
            [plain regularizationType] == MPSNNRegularizationTypeNone && [plain regularizationScale] == 0,
        "what a descriptor starts with");
  check([plain gradientClipMax] == INFINITY && [plain gradientClipMin] == -INFINITY, "bounds that cut nothing");
  MPSNNOptimizerDescriptor *four =
      [MPSNNOptimizerDescriptor optimizerDescriptorWithLearningRate:0.5f
                                                    gradientRescale:2
                                                 regularizationType:MPSNNRegularizationTypeL1
                                                regularizationScale:0.25f];
  check([four learningRate] == 0.5f && [four gradientRescale] == 2 && ![four applyGradientClipping] &&
            [four regularizationType] == MPSNNRegularizationTypeL1 && [four regularizationScale] == 0.25f,
        "a descriptor of four numbers");
  MPSNNOptimizerDescriptor *seven = [[[MPSNNOptimizerDescriptor alloc] initWithLearningRate:1
                                                                            gradientRescale:3
                                                                      applyGradientClipping:YES
                                                                            gradientClipMax:4
                                                                            gradientClipMin:-5
                                                                         regularizationType:MPSNNRegularizationTypeL2
                                                                        regularizationScale:6] autorelease];
  MPSNNOptimizerAdam *kernel = [[[MPSNNOptimizerAdam alloc] initWithDevice:device
                                                                     beta1:0.5
                                                                     beta2:0.25
                                                                   epsilon:0.125f
                                                                  timeStep:7
                                                       optimizerDescriptor:seven] autorelease];
  for (MPSNNOptimizerAdam *twin : {kernel, (MPSNNOptimizerAdam *)[[kernel copy] autorelease], archived(kernel)}) {
    check([twin learningRate] == 1 && [twin gradientRescale] == 3 && [twin applyGradientClipping] &&
              [twin gradientClipMax] == 4 && [twin gradientClipMin] == -5 &&
              [twin regularizationType] == MPSNNRegularizationTypeL2 && [twin regularizationScale] == 6,
          "a twin has the descriptor's numbers");
    check([twin beta1] == 0.5 && [twin beta2] == 0.25 && [twin epsilon] == 0.125f && [twin timeStep] == 7,
          "a twin of Adam");
  }
  MPSNNOptimizerAdam *simple = [[[MPSNNOptimizerAdam alloc] initWithDevice:device learningRate:0.5f] autorelease];
  check([simple beta1] == 0.9 && [simple beta2] == 0.999 && [simple epsilon] == 1e-8f && [simple timeStep] == 0 &&
            [simple learningRate] == 0.5f && [simple gradientRescale] == 1,
        "what Adam starts with");
  MPSNNOptimizerRMSProp *root = [[[MPSNNOptimizerRMSProp alloc] initWithDevice:device learningRate:0.5f] autorelease];
  check([root decay] == 0.9 && [root epsilon] == 1e-8f, "what RMSProp starts with");
  root = archived(make_rms({}));
  check([root decay] == 0.7 && [root epsilon] == 0.01f, "a twin of RMSProp");
  MPSNNOptimizerStochasticGradientDescent *descent =
      [[[MPSNNOptimizerStochasticGradientDescent alloc] initWithDevice:device learningRate:0.5f] autorelease];
  check([descent momentumScale] == 0 && ![descent useNesterovMomentum], "what descent starts with");
  descent = [[[MPSNNOptimizerStochasticGradientDescent alloc] initWithDevice:device
                                                               momentumScale:0.5f
                                                          useNestrovMomentum:YES
                                                         optimizerDescriptor:plain] autorelease];
  descent = archived(descent);
  check([descent momentumScale] == 0.5f && [descent useNesterovMomentum] && [descent useNestrovMomentum],
        "both spellings");
  [descent setLearningRate:2];
  [descent setApplyGradientClipping:YES];
  check([descent learningRate] == 2 && [descent applyGradientClipping], "what may be changed");
  // The kernel has a copy of the numbers.
  [plain setLearningRate:9];
  check([descent learningRate] == 2, "a descriptor that is changed afterwards");
}

void test_vectors() {
  const Values gradient = random_of(13, 1), start = random_of(13, 2);
  for (const bool in_place : {false, true}) {
    for (int variant = 0; variant < 6; ++variant) {
      Settings s;
      s.rate = 0.25;
      if (variant == 1) s.least = -0.25, s.greatest = 0.5, s.rescale = 2;
      if (variant == 2) s.l1 = 0.125;
      if (variant == 3) s.l2 = 0.125;
      MPSNNOptimizerStochasticGradientDescent *kernel = make_descent(s, 0.5f, variant == 5);
      MPSVector *g = make_vector(gradient), *v = make_vector(start), *r = in_place ? v : make_vector(start);
      MPSVector *m = variant >= 3 ? make_vector(random_of(13, 3)) : nil;
      Values momentum = random_of(13, 3), want = start;
      for (int step = 0; step < 3; ++step) {
        if (step == 2) [kernel setLearningRate:0.5f], s.rate = 0.5;
        id<MTLCommandBuffer> buffer = command_buffer();
        [kernel encodeToCommandBuffer:buffer
                  inputGradientVector:g
                    inputValuesVector:v
                  inputMomentumVector:m
                   resultValuesVector:r];
        [kernel setLearningRate:100];  // too late for what has been encoded
        run(buffer);
        [kernel setLearningRate:static_cast<float>(s.rate)];
        Values from = in_place ? want : start;
        descend(s, 0.5, variant == 5, gradient, from, m ? &momentum : nullptr);
        want = from;
      }
      const std::string what = "descent " + std::to_string(variant) + (in_place ? " in place" : "");
      check_values(what, values_of(r), want);
      if (!in_place) check_values(what + ", the values", values_of(v), start, 0);
      if (m) check_values(what + ", the momentum", values_of(m), momentum);
    }
  }
  // Clipping comes before the rescaling, and regularization behind it.
  Settings s;
  s.rate = 1, s.least = -1, s.greatest = 1, s.rescale = 4, s.l2 = 0.5;
  MPSVector *v = make_vector({2});
  id<MTLCommandBuffer> buffer = command_buffer();
  [make_descent(s) encodeToCommandBuffer:buffer
                     inputGradientVector:make_vector({10})
                       inputValuesVector:v
                     inputMomentumVector:nil
                      resultValuesVector:v];
  run(buffer);
  check_values("order of clipping, rescaling and regularization", values_of(v), {2 - (4 + 1)}, 0);
  // sign(0) is 0.
  s = {};
  s.rate = 1, s.l1 = 3;
  v = make_vector({0, -2, 2});
  buffer = command_buffer();
  [make_descent(s) encodeToCommandBuffer:buffer
                     inputGradientVector:make_vector({0, 0, 0})
                       inputValuesVector:v
                     inputMomentumVector:nil
                      resultValuesVector:v];
  run(buffer);
  check_values("L1 goes towards 0", values_of(v), {0, 1, -1}, 0);
}

void test_squares_and_time() {
  const Values gradient = random_of(9, 11), start = random_of(9, 12);
  Settings s;
  s.rate = 0.125, s.rescale = 0.5, s.l2 = 0.25;
  {
    MPSNNOptimizerRMSProp *kernel = make_rms(s);
    MPSVector *v = make_vector(start), *squares = make_vector(random_of(9, 13, 0));
    Values want = start, sums = random_of(9, 13, 0);
    for (int step = 0; step < 3; ++step) {
      id<MTLCommandBuffer> buffer = command_buffer();
      [kernel encodeToCommandBuffer:buffer
                inputGradientVector:make_vector(gradient)
                  inputValuesVector:v
            inputSumOfSquaresVector:squares
                 resultValuesVector:v];
      run(buffer);
      rms(s, 0.7, 0.01, gradient, want, sums);
    }
    check_values("RMSProp", values_of(v), want);
    check_values("RMSProp, the squares", values_of(squares), sums);
  }
  for (const bool greatest : {false, true}) {
    MPSNNOptimizerAdam *kernel = make_adam(s, 3);
    MPSVector *v = make_vector(start), *m = make_vector(random_of(9, 14)), *squares = make_vector(random_of(9, 15, 0));
    MPSVector *most = greatest ? make_vector(random_of(9, 16, 0)) : nil;
    Values want = start, momentum = random_of(9, 14), sums = random_of(9, 15, 0), maxima = random_of(9, 16, 0);
    // Two steps on one command buffer: the time step is that of the encode, not of the run.
    for (int pair = 0; pair < 2; ++pair) {
      id<MTLCommandBuffer> buffer = command_buffer();
      for (int step = 0; step < 2; ++step) {
        [kernel encodeToCommandBuffer:buffer
                  inputGradientVector:make_vector(gradient)
                    inputValuesVector:v
                  inputMomentumVector:m
                  inputVelocityVector:squares
                maximumVelocityVector:most
                   resultValuesVector:v];
        adam(s, 0.8, 0.95, 1e-3, 4 + 2 * pair + step, gradient, want, momentum, sums, greatest ? &maxima : nullptr);
        check([kernel timeStep] == static_cast<NSUInteger>(4 + 2 * pair + step), "an encode is a time step");
      }
      run(buffer);
    }
    check_values("Adam", values_of(v), want);
    check_values("Adam, the momentum", values_of(m), momentum);
    check_values("Adam, the velocity", values_of(squares), sums);
    if (greatest) check_values("Adam, the greatest velocity", values_of(most), maxima);
    // A copy goes on where the kernel stands; the step may be set.
    MPSNNOptimizerAdam *copy = [[kernel copy] autorelease];
    check([copy timeStep] == 7, "the time step of a copy");
    [copy setTimeStep:1];
    id<MTLCommandBuffer> buffer = command_buffer();
    [copy encodeToCommandBuffer:buffer
            inputGradientVector:make_vector(gradient)
              inputValuesVector:v
            inputMomentumVector:m
            inputVelocityVector:squares
             resultValuesVector:v];
    run(buffer);
    adam(s, 0.8, 0.95, 1e-3, 2, gradient, want, momentum, sums, nullptr);
    check_values("Adam at another time", values_of(v), want);
    check([copy timeStep] == 2 && [kernel timeStep] == 7, "each kernel has its own time");
  }
}

MPSMatrix *make_matrix_of(const Values &values, NSUInteger rows, NSUInteger columns, NSUInteger row_floats) {
  Values padded(rows * row_floats, NAN);
  for (NSUInteger r = 0; r < rows; ++r)
    for (NSUInteger c = 0; c < columns; ++c) padded[r * row_floats + c] = values[r * columns + c];
  return [[[MPSMatrix alloc] initWithBuffer:make_buffer(padded)
                                 descriptor:[MPSMatrixDescriptor matrixDescriptorWithRows:rows
                                                                                  columns:columns
                                                                                 rowBytes:row_floats * 4
                                                                                 dataType:MPSDataTypeFloat32]]
      autorelease];
}

Values values_of_matrix(MPSMatrix *matrix) {
  Values values;
  for (NSUInteger r = 0; r < [matrix rows]; ++r)
    for (const double v : values_in([matrix data], [matrix columns], r * [matrix rowBytes] / 4)) values.push_back(v);
  return values;
}

void test_matrices() {
  const Values gradient = random_of(15, 21), start = random_of(15, 22);
  const Values aux = random_of(15, 23), squares = random_of(15, 24, 0), maxima = random_of(15, 25, 0);
  Settings s;
  MPSMatrix *g = make_matrix_of(gradient, 3, 5, 8);
  const auto matrix = [](const Values &values, NSUInteger row) { return make_matrix_of(values, 3, 5, row); };
  {
    MPSMatrix *v = matrix(start, 5), *m = matrix(aux, 6), *r = matrix(start, 9);
    Values want = start, momentum = aux;
    id<MTLCommandBuffer> buffer = command_buffer();
    [make_descent(s, 0.5f) encodeToCommandBuffer:buffer
                             inputGradientMatrix:g
                               inputValuesMatrix:v
                             inputMomentumMatrix:m
                              resultValuesMatrix:r];
    run(buffer);
    descend(s, 0.5, false, gradient, want, &momentum);
    check_values("descent of a matrix", values_of_matrix(r), want);
    check_values("momentum of a matrix", values_of_matrix(m), momentum);
  }
  {
    MPSMatrix *v = matrix(start, 7), *q = matrix(squares, 5);
    Values want = start, sums = squares;
    id<MTLCommandBuffer> buffer = command_buffer();
    [make_rms(s) encodeToCommandBuffer:buffer
                   inputGradientMatrix:g
                     inputValuesMatrix:v
               inputSumOfSquaresMatrix:q
                    resultValuesMatrix:v];
    run(buffer);
    rms(s, 0.7, 0.01, gradient, want, sums);
    check_values("RMSProp of a matrix", values_of_matrix(v), want);
  }
  for (const bool greatest : {false, true}) {
    MPSNNOptimizerAdam *kernel = make_adam(s);
    MPSMatrix *v = matrix(start, 7), *m = matrix(aux, 5), *q = matrix(squares, 5), *most = matrix(maxima, 6);
    Values want = start, momentum = aux, sums = squares, top = maxima;
    id<MTLCommandBuffer> buffer = command_buffer();
    if (greatest)
      [kernel encodeToCommandBuffer:buffer
                inputGradientMatrix:g
                  inputValuesMatrix:v
                inputMomentumMatrix:m
                inputVelocityMatrix:q
              maximumVelocityMatrix:most
                 resultValuesMatrix:v];
    else
      [kernel encodeToCommandBuffer:buffer
                inputGradientMatrix:g
                  inputValuesMatrix:v
                inputMomentumMatrix:m
                inputVelocityMatrix:q
                 resultValuesMatrix:v];
    run(buffer);
    adam(s, 0.8, 0.95, 1e-3, 1, gradient, want, momentum, sums, greatest ? &top : nullptr);
    check_values("Adam of a matrix", values_of_matrix(v), want);
    check_values("the greatest velocity of a matrix", values_of_matrix(most), top);
  }
}

// ------------------------------------------------------------------------------------------------- states

/// A convolution of 2 x 3 x 3 inputs to 4 outputs, the gradients of its state, and a state of its weights.
struct Layer {
  Values weights = random_of(72, 31), biases = random_of(4, 32);
  Values weight_gradients = random_of(72, 33), bias_gradients = random_of(4, 34);
  MPSCNNConvolution *kernel;
  MPSCNNConvolutionGradientState *gradient;
  MPSCNNConvolutionWeightsAndBiasesState *source;

  explicit Layer(id<MTLCommandBuffer> buffer = nil) {
    TestSource *data = make_source(descriptor_of(3, 3, 2, 4), weights, biases);
    kernel = [[[MPSCNNConvolution alloc] initWithDevice:device weights:data] autorelease];
    MPSImage *image = make_image(Tensor(1, 4, 4, 2));
    gradient = [kernel resultStateForSourceImage:image sourceStates:nil destinationImage:image];
    fill([gradient gradientForWeights], weight_gradients);
    fill([gradient gradientForBiases], bias_gradients);
    (void)buffer;
    source = [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:make_buffer(weights)
                                                                       biases:make_buffer(biases)] autorelease];
  }
  static void fill(id<MTLBuffer> buffer, const Values &values) {
    const std::vector<float> floats(values.begin(), values.end());
    std::memcpy([buffer contents], floats.data(), floats.size() * sizeof(float));
  }
  static MPSCNNConvolutionWeightsAndBiasesState *result() {
    return [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithDevice:device
                                                  cnnConvolutionDescriptor:descriptor_of(3, 3, 2, 4)] autorelease];
  }
};

NSArray<MPSVector *> *two(MPSVector *a, MPSVector *b) { return [NSArray arrayWithObjects:a, b, nil]; }

void test_convolution_states() {
  Settings s;
  s.l2 = 0.25;
  {
    Layer layer;
    MPSCNNConvolutionWeightsAndBiasesState *result = Layer::result();
    MPSVector *m = make_vector(random_of(72, 35)), *mb = make_vector(random_of(4, 36));
    Values want = layer.weights, want_b = layer.biases, momentum = random_of(72, 35), momentum_b = random_of(4, 36);
    id<MTLCommandBuffer> buffer = command_buffer();
    [make_descent(s, 0.5f, true) encodeToCommandBuffer:buffer
                              convolutionGradientState:layer.gradient
                                convolutionSourceState:layer.source
                                  inputMomentumVectors:two(m, mb)
                                           resultState:result];
    run(buffer);
    descend(s, 0.5, true, layer.weight_gradients, want, &momentum);
    descend(s, 0.5, true, layer.bias_gradients, want_b, &momentum_b);
    check_values("weights", values_in([result weights], 72), want);
    check_values("biases", values_in([result biases], 4), want_b);
    check_values("momentum of weights", values_of(m), momentum);
    check_values("momentum of biases", values_of(mb), momentum_b);
    check_values("the source's weights", values_in([layer.source weights], 72), layer.weights, 0);
    // Back into the kernel.
    buffer = command_buffer();
    [layer.kernel reloadWeightsAndBiasesWithCommandBuffer:buffer state:result];
    MPSCNNConvolutionWeightsAndBiasesState *exported = [layer.kernel exportWeightsAndBiasesWithCommandBuffer:buffer
                                                                                   resultStateCanBeTemporary:NO];
    run(buffer);
    // The kernel keeps its weights in half precision.
    check_values("reloaded weights", values_in([exported weights], 72), want, 5e-4);
  }
  {
    Layer layer;  // no momentum: both are updated, here in place
    Values want = layer.weights, want_b = layer.biases;
    id<MTLCommandBuffer> buffer = command_buffer();
    [make_descent(s, 0.5f) encodeToCommandBuffer:buffer
                        convolutionGradientState:layer.gradient
                          convolutionSourceState:layer.source
                            inputMomentumVectors:nil
                                     resultState:layer.source];
    run(buffer);
    descend(s, 0, false, layer.weight_gradients, want, nullptr);
    descend(s, 0, false, layer.bias_gradients, want_b, nullptr);
    check_values("weights in place", values_in([layer.source weights], 72), want);
    check_values("biases in place", values_in([layer.source biases], 4), want_b);
  }
  {
    Layer layer;  // one vector: the biases stay
    MPSCNNConvolutionWeightsAndBiasesState *result = Layer::result();
    Values want = layer.weights, sums(72, 0);
    id<MTLCommandBuffer> buffer = command_buffer();
    [make_rms(s) encodeToCommandBuffer:buffer
              convolutionGradientState:layer.gradient
                convolutionSourceState:layer.source
              inputSumOfSquaresVectors:[NSArray arrayWithObject:make_vector(Values(72, 0))]
                           resultState:result];
    run(buffer);
    rms(s, 0.7, 0.01, layer.weight_gradients, want, sums);
    check_values("weights alone", values_in([result weights], 72), want);
    check_values("biases that stay", values_in([result biases], 4), layer.biases, 0);
  }
  for (const bool greatest : {false, true}) {
    Layer layer;
    MPSNNOptimizerAdam *kernel = make_adam(s);
    // One state over parts of larger buffers.
    Values block = layer.weights;
    block.insert(block.begin(), 5, 1000);
    block.insert(block.end(), layer.biases.begin(), layer.biases.end());
    id<MTLBuffer> shared = make_buffer(block);
    MPSCNNConvolutionWeightsAndBiasesState *state =
        [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:shared
                                                           weightsOffset:20
                                                                  biases:shared
                                                            biasesOffset:308
                                                cnnConvolutionDescriptor:descriptor_of(3, 3, 2, 4)] autorelease];
    MPSVector *most = make_vector(random_of(72, 37, 0)), *most_b = make_vector(random_of(4, 38, 0));
    NSArray *momentum = two(make_vector(Values(72, 0)), make_vector(Values(4, 0)));
    NSArray *velocity = two(make_vector(Values(72, 0)), make_vector(Values(4, 0)));
    Values want = layer.weights, want_b = layer.biases, m(72, 0), q(72, 0), mb(4, 0), qb(4, 0);
    Values top = random_of(72, 37, 0), top_b = random_of(4, 38, 0);
    for (int step = 1; step <= 2; ++step) {
      id<MTLCommandBuffer> buffer = command_buffer();
      if (greatest)
        [kernel encodeToCommandBuffer:buffer
             convolutionGradientState:layer.gradient
               convolutionSourceState:state
                 inputMomentumVectors:momentum
                 inputVelocityVectors:velocity
               maximumVelocityVectors:two(most, most_b)
                          resultState:state];
      else
        [kernel encodeToCommandBuffer:buffer
             convolutionGradientState:layer.gradient
               convolutionSourceState:state
                 inputMomentumVectors:momentum
                 inputVelocityVectors:velocity
                          resultState:state];
      run(buffer);
      check([kernel timeStep] == static_cast<NSUInteger>(step), "weights and biases are one time step");
      adam(s, 0.8, 0.95, 1e-3, step, layer.weight_gradients, want, m, q, greatest ? &top : nullptr);
      adam(s, 0.8, 0.95, 1e-3, step, layer.bias_gradients, want_b, mb, qb, greatest ? &top_b : nullptr);
    }
    check_values("weights within a buffer", values_in(shared, 72, 5), want);
    check_values("biases within a buffer", values_in(shared, 4, 77), want_b);
    check_values("what lies before them", values_in(shared, 5), Values(5, 1000), 0);
    check_values("the greatest velocities", values_of(most_b), top_b);
  }
  {
    Layer layer;  // a layer without biases
    MPSCNNConvolutionWeightsAndBiasesState *source =
        [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:make_buffer(layer.weights)
                                                                  biases:nil] autorelease];
    Values want = layer.weights;
    id<MTLCommandBuffer> buffer = command_buffer();
    [make_descent(s) encodeToCommandBuffer:buffer
                  convolutionGradientState:layer.gradient
                    convolutionSourceState:source
                      inputMomentumVectors:nil
                               resultState:source];
    run(buffer);
    descend(s, 0, false, layer.weight_gradients, want, nullptr);
    check_values("weights without biases", values_in([source weights], 72), want);
  }
}

MPSCNNBatchNormalizationState *batch_state_of(const Affine &values) {
  MPSCNNBatchNormalization *kernel = make_norm<MPSCNNBatchNormalization>(make_norm_source<NormSource>(values));
  MPSImage *image = make_image(Tensor(1, 2, 2, 5));
  MPSCNNBatchNormalizationState *state = [kernel resultStateForSourceImage:image
                                                              sourceStates:nil
                                                          destinationImage:image];
  return state;
}

void test_batch_normalization_states() {
  Settings s;
  const Affine values(5, 41), others(5, 42);
  const Values g = random_of(5, 43), b = random_of(5, 44);
  gamma_gradient = make_buffer(g), beta_gradient = make_buffer(b);
  MPSCNNBatchNormalizationState *state = batch_state_of(values), *other = batch_state_of(others);
  const auto result = [] {
    return [[[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:make_buffer(Values(5, NAN))
                                                                   beta:make_buffer(Values(5, NAN))] autorelease];
  };
  check_raises("no gradient has been computed", kArgument, "The gradient state has no gradient of gamma", [&] {
    [make_descent(s) encodeToCommandBuffer:command_buffer()
                   batchNormalizationState:state
                      inputMomentumVectors:nil
                               resultState:result()];
  });
  object_setClass(state, [GradientBatchState class]);
  const auto check_result = [&](const std::string &what, MPSCNNNormalizationGammaAndBetaState *got, const Values &gamma,
                                const Values &beta) {
    check_values(what + ", gamma", values_in([got gamma], 5), gamma);
    check_values(what + ", beta", values_in([got beta], 5), beta);
  };
  const Values zeros(5, 0);
  for (const bool apart : {false, true}) {
    const Affine &start = apart ? others : values;
    const std::string suffix = apart ? " of another state" : "";
    {
      MPSCNNNormalizationGammaAndBetaState *got = result();
      NSArray *vectors = two(make_vector(zeros), make_vector(zeros));
      Values gamma = start.gamma, beta = start.beta, m = zeros, mb = zeros;
      id<MTLCommandBuffer> buffer = command_buffer();
      if (apart)
        [make_descent(s, 0.5f) encodeToCommandBuffer:buffer
                     batchNormalizationGradientState:state
                       batchNormalizationSourceState:other
                                inputMomentumVectors:vectors
                                         resultState:got];
      else
        [make_descent(s, 0.5f) encodeToCommandBuffer:buffer
                             batchNormalizationState:state
                                inputMomentumVectors:vectors
                                         resultState:got];
      run(buffer);
      descend(s, 0.5, false, g, gamma, &m), descend(s, 0.5, false, b, beta, &mb);
      check_result("descent" + suffix, got, gamma, beta);
    }
    {
      MPSCNNNormalizationGammaAndBetaState *got = result();
      NSArray *vectors = two(make_vector(zeros), make_vector(zeros));
      Values gamma = start.gamma, beta = start.beta, m = zeros, mb = zeros;
      id<MTLCommandBuffer> buffer = command_buffer();
      if (apart)
        [make_rms(s) encodeToCommandBuffer:buffer
            batchNormalizationGradientState:state
              batchNormalizationSourceState:other
                   inputSumOfSquaresVectors:vectors
                                resultState:got];
      else
        [make_rms(s) encodeToCommandBuffer:buffer
                   batchNormalizationState:state
                  inputSumOfSquaresVectors:vectors
                               resultState:got];
      run(buffer);
      rms(s, 0.7, 0.01, g, gamma, m), rms(s, 0.7, 0.01, b, beta, mb);
      check_result("RMSProp" + suffix, got, gamma, beta);
    }
    for (const bool greatest : {false, true}) {
      MPSCNNNormalizationGammaAndBetaState *got = result();
      MPSNNOptimizerAdam *kernel = make_adam(s);
      NSArray *m = two(make_vector(zeros), make_vector(zeros)), *q = two(make_vector(zeros), make_vector(zeros));
      NSArray *most = two(make_vector(Values(5, 4)), make_vector(zeros));
      id<MTLCommandBuffer> buffer = command_buffer();
      if (apart && greatest)
        [kernel encodeToCommandBuffer:buffer
            batchNormalizationGradientState:state
              batchNormalizationSourceState:other
                       inputMomentumVectors:m
                       inputVelocityVectors:q
                     maximumVelocityVectors:most
                                resultState:got];
      else if (apart)
        [kernel encodeToCommandBuffer:buffer
            batchNormalizationGradientState:state
              batchNormalizationSourceState:other
                       inputMomentumVectors:m
                       inputVelocityVectors:q
                                resultState:got];
      else if (greatest)
        [kernel encodeToCommandBuffer:buffer
              batchNormalizationState:state
                 inputMomentumVectors:m
                 inputVelocityVectors:q
               maximumVelocityVectors:most
                          resultState:got];
      else
        [kernel encodeToCommandBuffer:buffer
              batchNormalizationState:state
                 inputMomentumVectors:m
                 inputVelocityVectors:q
                          resultState:got];
      run(buffer);
      Values gamma = start.gamma, beta = start.beta, vm = zeros, vq = zeros, vmb = zeros, vqb = zeros;
      Values top(5, 4), top_b = zeros;
      adam(s, 0.8, 0.95, 1e-3, 1, g, gamma, vm, vq, greatest ? &top : nullptr);
      adam(s, 0.8, 0.95, 1e-3, 1, b, beta, vmb, vqb, greatest ? &top_b : nullptr);
      check_result("Adam" + suffix, got, gamma, beta);
      check([kernel timeStep] == 1, "gamma and beta are one time step");
    }
  }
}

void test_read_counts() {
  const auto temporary = [](id<MTLCommandBuffer> buffer) {
    return [MPSTemporaryVector
        temporaryVectorWithCommandBuffer:buffer
                              descriptor:[MPSVectorDescriptor vectorDescriptorWithLength:4
                                                                                dataType:MPSDataTypeFloat32]];
  };
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSTemporaryVector *g = temporary(buffer), *v = temporary(buffer), *m = temporary(buffer);
  [v setReadCount:2];
  MPSVector *ones = make_vector({1, 1, 1, 1}), *result = make_vector({0, 0, 0, 0});
  // Something has to stand in them: results of a first step.
  MPSNNOptimizerStochasticGradientDescent *kernel = make_descent({});
  for (MPSVector *to : {(MPSVector *)g, (MPSVector *)v, (MPSVector *)m})
    [kernel encodeToCommandBuffer:buffer
              inputGradientVector:ones
                inputValuesVector:ones
              inputMomentumVector:nil
               resultValuesVector:to];
  check([g readCount] == 1 && [v readCount] == 2 && [m readCount] == 1, "a result is not read");
  [make_descent({}, 1) encodeToCommandBuffer:buffer
                         inputGradientVector:g
                           inputValuesVector:v
                         inputMomentumVector:m
                          resultValuesVector:v];
  check([g readCount] == 0 && [v readCount] == 1 && [m readCount] == 0, "what is read is counted once");
  [kernel encodeToCommandBuffer:buffer
            inputGradientVector:ones
              inputValuesVector:v
            inputMomentumVector:nil
             resultValuesVector:result];
  check([v readCount] == 0, "a temporary vector has been read");
  check_raises("a recycled vector", kUsage, "readCount of 0", [&] {
    [kernel encodeToCommandBuffer:buffer
              inputGradientVector:ones
                inputValuesVector:v
              inputMomentumVector:nil
               resultValuesVector:result];
  });
  run(buffer);
  // 0.9, then 0.9 - (0.9 + 0.1 * 0.9), then 0.1 less
  check_values("temporary vectors", values_of(result), Values(4, 0.9 - (0.9 + 0.09) - 0.1));

  buffer = command_buffer();
  Layer layer;
  MPSImage *image = make_image(Tensor(1, 4, 4, 2));
  MPSCNNConvolutionGradientState *gradient = [layer.kernel temporaryResultStateForCommandBuffer:buffer
                                                                                    sourceImage:image
                                                                                   sourceStates:nil
                                                                               destinationImage:image];
  MPSCNNConvolutionWeightsAndBiasesState *source = [layer.kernel exportWeightsAndBiasesWithCommandBuffer:buffer
                                                                               resultStateCanBeTemporary:YES];
  MPSCNNConvolutionWeightsAndBiasesState *updated = [MPSCNNConvolutionWeightsAndBiasesState
      temporaryCNNConvolutionWeightsAndBiasesStateWithCommandBuffer:buffer
                                           cnnConvolutionDescriptor:descriptor_of(3, 3, 2, 4)];
  check([gradient readCount] == 1 && [updated readCount] == 1, "temporary states");
  const NSUInteger before = [source readCount];
  [kernel encodeToCommandBuffer:buffer
       convolutionGradientState:gradient
         convolutionSourceState:source
           inputMomentumVectors:nil
                    resultState:updated];
  check([gradient readCount] == 0 && (before == 0 || [source readCount] == before - 1) && [updated readCount] == 1,
        "states that are read, and one that is written");
  [layer.kernel reloadWeightsAndBiasesWithCommandBuffer:buffer state:updated];
  check([updated readCount] == 0, "the result is read by the kernel");
  run(buffer);
}

void test_refusals() {
  MPSVector *g = make_vector(random_of(6, 51)), *v = make_vector(random_of(6, 52)), *m = make_vector(random_of(6, 53));
  MPSVector *r = make_vector(random_of(6, 54));
  MPSNNOptimizerStochasticGradientDescent *kernel = make_descent({}, 0.5f);
  id<MTLCommandBuffer> buffer = command_buffer();
  const auto refused = [&](const char *part) {
    check_raises(part, kArgument, part, [&] {
      [kernel encodeToCommandBuffer:buffer
                inputGradientVector:g
                  inputValuesVector:v
                inputMomentumVector:m
                 resultValuesVector:r];
    });
  };
  MPSVector *const all[] = {g, v, m, r};
  const auto restore = [&] { g = all[0], v = all[1], m = all[2], r = all[3]; };
  g = nil, refused("inputGradientVector is nil"), restore();
  v = nil, refused("inputValuesVector is nil"), restore();
  r = nil, refused("resultValuesVector is nil"), restore();
  v = make_vector({1, 2}), refused("inputValuesVector has 1 x 1 x 2 values"), restore();
  m = make_vector({1, 2}), refused("inputMomentumVector has 1 x 1 x 2 values"), restore();
  r = m, refused("resultValuesVector and inputMomentumVector share memory"), restore();
  m = g, refused("inputMomentumVector and inputGradientVector share memory"), restore();
  m = v, refused("inputMomentumVector and inputValuesVector share memory"), restore();
  id<MTLBuffer> block = make_buffer(random_of(8, 55));
  const auto part_of = [&](NSUInteger offset) {
    return [[[MPSVector alloc]
        initWithBuffer:block
                offset:offset
            descriptor:[MPSVectorDescriptor vectorDescriptorWithLength:6 dataType:MPSDataTypeFloat32]] autorelease];
  };
  v = part_of(0), r = part_of(8), refused("resultValuesVector and inputValuesVector share memory"), restore();
  g = [[[MPSVector alloc] initWithDevice:device
                              descriptor:[MPSVectorDescriptor vectorDescriptorWithLength:6 dataType:MPSDataTypeFloat16]]
      autorelease];
  refused("inputGradientVector has the dataType 0x10000010, expected MPSDataTypeFloat32");
  restore();
  // Two vectors over the same memory, one of them the result, are a result in place; so is the gradient's place.
  v = part_of(0), r = part_of(0);
  [kernel encodeToCommandBuffer:buffer
            inputGradientVector:g
              inputValuesVector:v
            inputMomentumVector:m
             resultValuesVector:r];
  restore();
  r = g;
  [kernel encodeToCommandBuffer:buffer
            inputGradientVector:g
              inputValuesVector:v
            inputMomentumVector:m
             resultValuesVector:r];
  restore();
  run(buffer);
  check_raises("a committed buffer", kUsage, "committed", [&] {
    [kernel encodeToCommandBuffer:buffer
              inputGradientVector:g
                inputValuesVector:v
              inputMomentumVector:m
               resultValuesVector:r];
  });

  buffer = command_buffer();
  Layer layer;
  MPSNNOptimizerAdam *timed = make_adam({});
  NSArray *momentum = two(make_vector(Values(72, 0)), make_vector(Values(4, 0)));
  NSArray *velocity = two(make_vector(Values(72, 0)), make_vector(Values(4, 0)));
  MPSCNNConvolutionWeightsAndBiasesState *result = Layer::result();
  const auto refused_states = [&](const char *part) {
    check_raises(part, kArgument, part, [&] {
      [timed encodeToCommandBuffer:buffer
          convolutionGradientState:layer.gradient
            convolutionSourceState:layer.source
              inputMomentumVectors:momentum
              inputVelocityVectors:velocity
                       resultState:result];
    });
  };
  NSArray *const good = momentum, *const good_velocity = velocity;
  momentum = nil, refused_states("inputMomentumVectors is nil"), momentum = good;
  velocity = nil, refused_states("inputVelocityVectors is nil"), velocity = good_velocity;
  momentum = [NSArray array], refused_states("inputMomentumVectors has 0 vectors, expected 1 or 2"), momentum = good;
  velocity = [NSArray arrayWithObject:[good_velocity objectAtIndex:0]];
  refused_states("inputVelocityVectors has 1 vectors and inputMomentumVectors 2"), velocity = good_velocity;
  momentum = two([good objectAtIndex:1], [good objectAtIndex:0]);
  refused_states("inputMomentumVectors[0] has 1 vectors of length 4, expected one of 72, as many as weights");
  momentum = good;
  result = nil, refused_states("resultState is nil"), result = Layer::result();
  result = [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:make_buffer(Values(72, 0))
                                                                     biases:nil] autorelease];
  refused_states("resultState has no biases, and the source state has");
  result = [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:make_buffer(Values(71, 0))
                                                                     biases:nil] autorelease];
  refused_states("resultState's weights has 284 bytes, expected 288");
  check([timed timeStep] == 0, "what is refused is no time step");

  const auto refused_numbers = [](const char *part, const std::function<void(MPSNNOptimizerDescriptor *)> &change) {
    check_raises(part, kArgument, part, [&] {
      MPSNNOptimizerDescriptor *descriptor = [[[MPSNNOptimizerDescriptor alloc] init] autorelease];
      change(descriptor);
      [[MPSNNOptimizerAdam alloc] initWithDevice:device
                                           beta1:0.9
                                           beta2:0.999
                                         epsilon:1e-8f
                                        timeStep:0
                             optimizerDescriptor:descriptor];
    });
  };
  refused_numbers("learningRate (nan) is not a finite number", [](auto *d) { [d setLearningRate:NAN]; });
  refused_numbers("gradientRescale (inf) is not a finite number", [](auto *d) { [d setGradientRescale:INFINITY]; });
  refused_numbers("gradientClipMin (2) is not at most gradientClipMax (1)",
                  [](auto *d) { [d setGradientClipMin:2], [d setGradientClipMax:1]; });
  refused_numbers("regularizationType (3) is not between 0 and 2",
                  [](auto *d) { [d setRegularizationType:static_cast<MPSNNRegularizationType>(3)]; });
  check_raises("beta1", kArgument, "beta1 (1) is not at least 0 and less than 1", [] {
    [[MPSNNOptimizerAdam alloc] initWithDevice:device
                                         beta1:1
                                         beta2:0.999
                                       epsilon:1e-8f
                                      timeStep:0
                           optimizerDescriptor:[[[MPSNNOptimizerDescriptor alloc] init] autorelease]];
  });
  check_raises("epsilon", kArgument, "epsilon (-1) is less than 0", [] {
    [[MPSNNOptimizerRMSProp alloc] initWithDevice:device
                                            decay:0.5
                                          epsilon:-1
                              optimizerDescriptor:[[[MPSNNOptimizerDescriptor alloc] init] autorelease]];
  });
  check_raises("no descriptor", kArgument, "optimizerDescriptor is nil", [] {
    MPSNNOptimizerDescriptor *none = nil;
    [[MPSNNOptimizerRMSProp alloc] initWithDevice:device decay:0.5 epsilon:1 optimizerDescriptor:none];
  });
  check_raises("learningRate", kArgument, "learningRate (inf) is not a finite number",
               [&] { [kernel setLearningRate:INFINITY]; });
  check_raises("initWithDevice", kArgument, "is unavailable",
               [] { [(MPSKernel *)[MPSNNOptimizerAdam alloc] initWithDevice:device]; });
}

}  // namespace

int main() {
  return run_tests({test_descriptors, test_vectors, test_squares_and_time, test_matrices, test_convolution_states,
                    test_batch_normalization_states, test_read_counts, test_refusals});
}

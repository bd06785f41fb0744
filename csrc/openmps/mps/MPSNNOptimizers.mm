// SPDX-License-Identifier: Apache-2.0
// Optimizers: values, their gradients and what is remembered of these, to the next values [MPSNNOptimizers.h]. Rates
// and the time step are those of the moment of the encode.

#include <array>
#include <cmath>

#import "mps/MPSKernel+Engine.hh"
#import "mps/MPSMatrix+Engine.hh"
#import "mps/MPSState+Engine.hh"

namespace openmps {
namespace {

/// NSInvalidArgumentException, the sentence opened by the kernel's class and label.
[[noreturn]] void raise_in(const KernelState &state, NSString *format, ...) NS_FORMAT_FUNCTION(2, 3);
void raise_in(const KernelState &state, NSString *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  NSString *sentence = [[[NSString alloc] initWithFormat:format arguments:arguments] autorelease];
  va_end(arguments);
  raise_argument(@"%s: %@", state.title.c_str(), sentence);
}

/// What MPSNNOptimizerDescriptor holds. unverified: the bounds that clipping has until they are set; these cut nothing.
struct OptimizerSettings {
  float rate = 0.001f, rescale = 1;
  BOOL clips = NO;
  float clip_max = std::numeric_limits<float>::infinity(), clip_min = -std::numeric_limits<float>::infinity();
  float regularization_scale = 0;
  MPSNNRegularizationType regularization = MPSNNRegularizationTypeNone;
};

/// The data of an MPSNNOptimizer.
struct OptimizerState : Extends<OptimizerState, KernelState> {
  OptimizerSettings settings;

  void check_finite(const char *name, double value) const {
    if (!std::isfinite(value)) raise_in(*this, @"%s (%g) is not a finite number.", name, value);
  }
  void check_between(const char *name, double value, double least, double below) const {
    if (!(value >= least && value < below))
      raise_in(*this, @"%s (%g) is not at least %g and less than %g.", name, value, least, below);
  }
  void check_epsilon(float epsilon) const {
    if (!(epsilon >= 0)) raise_in(*this, @"epsilon (%g) is less than 0.", (double)epsilon);
  }
  virtual void check_settings() const {
    check_finite("learningRate", settings.rate);
    check_finite("gradientRescale", settings.rescale);
    check_finite("regularizationScale", settings.regularization_scale);
    if (settings.regularization > MPSNNRegularizationTypeL2)
      raise_in(*this, @"regularizationType (%lu) is not between 0 and 2.", (unsigned long)settings.regularization);
    if (!(settings.clip_min <= settings.clip_max))
      raise_in(*this, @"gradientClipMin (%g) is not at most gradientClipMax (%g).", (double)settings.clip_min,
               (double)settings.clip_max);
  }

  /// Type and numbers of one step; the arrays are there.
  virtual void fill(OptimizeProblem &) const {
    raise_in(*this, @"The class cannot be encoded; use one of its subclasses.");
  }
  /// Once for each encode.
  virtual void did_encode() {}

  OptimizeProblem begin_problem() const {
    OptimizeProblem problem;
    problem.rate = settings.rate;
    problem.rescale = settings.rescale;
    if (settings.clips) problem.least = settings.clip_min, problem.greatest = settings.clip_max;
    problem.regularization = static_cast<Regularization>(settings.regularization);
    problem.regularization_scale = settings.regularization_scale;
    return problem;
  }

  void archive(Archive &archive) override {
    KernelState::archive(archive);
    archive.field(@"MPSNNOptimizer.learningRate", settings.rate);
    archive.field(@"MPSNNOptimizer.gradientRescale", settings.rescale);
    archive.field(@"MPSNNOptimizer.applyGradientClipping", settings.clips);
    archive.field(@"MPSNNOptimizer.gradientClipMax", settings.clip_max);
    archive.field(@"MPSNNOptimizer.gradientClipMin", settings.clip_min);
    archive.field(@"MPSNNOptimizer.regularizationScale", settings.regularization_scale);
    archive.field(@"MPSNNOptimizer.regularizationType", settings.regularization);
  }
  void did_read(MPSKernel *kernel) override {
    KernelState::did_read(kernel);
    check_settings();
  }

 protected:
  static void field(Archive &archive, NSString *key, double &value) {
    std::vector<double> list = {value};
    archive.field(key, list);
    if (list.size() == 1) value = list[0];
  }
};

struct DescentState : Extends<DescentState, OptimizerState> {
  float momentum_scale = 0;
  BOOL nesterov = NO;

  void check_settings() const override {
    OptimizerState::check_settings();
    check_finite("momentumScale", momentum_scale);
  }
  /// Without a momentum vector there is none, whatever its scale [MPSNNOptimizers.h].
  void fill(OptimizeProblem &problem) const override {
    problem.type = !problem.momentum.memory ? OptimizerType::descent
                   : nesterov               ? OptimizerType::nesterov
                                            : OptimizerType::momentum;
    problem.decay = momentum_scale;
  }
  void archive(Archive &archive) override {
    OptimizerState::archive(archive);
    archive.field(@"MPSNNOptimizerStochasticGradientDescent.momentumScale", momentum_scale);
    archive.field(@"MPSNNOptimizerStochasticGradientDescent.useNesterovMomentum", nesterov);
  }
};

struct RMSPropState : Extends<RMSPropState, OptimizerState> {
  double decay = 0.9;
  float epsilon = 1e-8f;

  void check_settings() const override {
    OptimizerState::check_settings();
    check_between("decay", decay, 0, std::nextafter(1, 2));
    check_epsilon(epsilon);
  }
  void fill(OptimizeProblem &problem) const override {
    problem.type = OptimizerType::rms;
    problem.decay_of_squares = decay;
    problem.epsilon = epsilon;
  }
  void archive(Archive &archive) override {
    OptimizerState::archive(archive);
    field(archive, @"MPSNNOptimizerRMSProp.decay", decay);
    archive.field(@"MPSNNOptimizerRMSProp.epsilon", epsilon);
  }
};

struct AdamState : Extends<AdamState, OptimizerState> {
  double beta1 = 0.9, beta2 = 0.999;
  float epsilon = 1e-8f;
  NSUInteger time_step = 0;

  void check_settings() const override {
    OptimizerState::check_settings();
    check_between("beta1", beta1, 0, 1);
    check_between("beta2", beta2, 0, 1);
    check_epsilon(epsilon);
  }
  void fill(OptimizeProblem &problem) const override {
    problem.type = problem.greatest_squares.memory ? OptimizerType::adam_greatest : OptimizerType::adam;
    const double t = static_cast<double>(time_step) + 1;
    problem.rate *= std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
    problem.decay = beta1, problem.decay_of_squares = beta2;
    problem.epsilon = epsilon;
  }
  void did_encode() override { ++time_step; }
  void archive(Archive &archive) override {
    OptimizerState::archive(archive);
    field(archive, @"MPSNNOptimizerAdam.beta1", beta1);
    field(archive, @"MPSNNOptimizerAdam.beta2", beta2);
    archive.field(@"MPSNNOptimizerAdam.epsilon", epsilon);
    archive.field(@"MPSNNOptimizerAdam.timeStep", time_step);
  }
};

// ------------------------------------------------------------------------------------- the arrays of an encode

/// Which array of a problem; also their order in lists.
enum Role : std::size_t { kGradient, kValues, kMomentum, kSquares, kGreatest, kResult, kRoles };
constexpr FloatMatrices OptimizeProblem::*kMembers[kRoles] = {
    &OptimizeProblem::gradient, &OptimizeProblem::values,           &OptimizeProblem::momentum,
    &OptimizeProblem::squares,  &OptimizeProblem::greatest_squares, &OptimizeProblem::result};

/// One array: where it lies, and its name for errors.
struct Array {
  FloatMatrices view;
  NSUInteger matrices = 0, rows = 0, columns = 0;
  std::string name;

  NSUInteger count() const { return matrices * rows * columns; }
  /// Bytes from the first value to behind the last.
  std::size_t bytes() const {
    const auto steps = static_cast<std::int64_t>(matrices - 1) * view.matrix_stride +
                       static_cast<std::int64_t>(rows - 1) * view.row_stride + static_cast<std::int64_t>(columns);
    return static_cast<std::size_t>(steps) * sizeof(float);
  }
};
using Arrays = std::array<Array, kRoles>;

std::uintptr_t address(const Array &array) {
  return reinterpret_cast<std::uintptr_t>(array.view.memory->data()) + array.view.offset;
}

/// Memory that is not there yet cannot be shared.
bool share_memory(const Array &a, const Array &b) {
  std::uintptr_t first_a = a.view.offset, first_b = b.view.offset;
  if (a.view.memory != b.view.memory) {
    if (!a.view.memory->is_allocated() || !b.view.memory->is_allocated()) return false;
    first_a = address(a), first_b = address(b);
  }
  return first_a < first_b + b.bytes() && first_b < first_a + a.bytes();
}

bool are_the_same(const Array &a, const Array &b) {
  const bool same_start =
      a.view.memory == b.view.memory
          ? a.view.offset == b.view.offset
          : a.view.memory->is_allocated() && b.view.memory->is_allocated() && address(a) == address(b);
  return same_start && (a.rows == 1 || a.view.row_stride == b.view.row_stride) &&
         (a.matrices == 1 || a.view.matrix_stride == b.view.matrix_stride);
}

/// All checks of one step; no side effects.
OptimizeProblem resolve(const OptimizerState &state, const Arrays &arrays) {
  OptimizeProblem problem = state.begin_problem();
  const Array &first = arrays[kGradient];
  problem.matrices = static_cast<std::int64_t>(first.matrices);
  problem.rows = static_cast<std::int64_t>(first.rows);
  problem.columns = static_cast<std::int64_t>(first.columns);
  for (std::size_t role = 0; role < kRoles; ++role) {
    const Array &array = arrays[role];
    if (!array.view.memory) continue;
    if (array.columns != first.columns || array.rows != first.rows || array.matrices != first.matrices)
      raise_in(state, @"%s has %lu x %lu x %lu values (matrices x rows x columns) and %s %lu x %lu x %lu.",
               array.name.c_str(), (unsigned long)array.matrices, (unsigned long)array.rows,
               (unsigned long)array.columns, first.name.c_str(), (unsigned long)first.matrices,
               (unsigned long)first.rows, (unsigned long)first.columns);
    problem.*kMembers[role] = array.view;
  }
  // What is written has memory of its own, but the result may take the place of what is only read.
  for (std::size_t written = kMomentum; written < kRoles; ++written) {
    const Array &a = arrays[written];
    if (!a.view.memory) continue;
    for (std::size_t other = 0; other < written; ++other) {
      const Array &b = arrays[other];
      if (!b.view.memory || !share_memory(a, b)) continue;
      if (written == kResult && other < kMomentum && are_the_same(a, b)) continue;
      raise_in(state, @"%s and %s share memory.", a.name.c_str(), b.name.c_str());
    }
  }
  state.fill(problem);
  return problem;
}

Recorder &begin(const KernelState &state, id<MTLCommandBuffer> buffer) {
  id<OpenMPSCommandBuffer> known = command_buffer_of(buffer, state.title.c_str());
  if ([known device] != state.device.get())
    raise_in(state, @"commandBuffer belongs to another device than the kernel.");
  return [known openmps_recorder];
}

/// Objects that an encode uses: MPSVector, MPSMatrix and MPSState answer the same two messages.
struct Used {
  std::vector<id<OpenMPSRows>> read, written;

  void will_use(id<MTLCommandBuffer> buffer) const {
    for (id<OpenMPSRows> object : read) [object openmps_willUseOn:buffer];
    for (id<OpenMPSRows> object : written) [object openmps_willUseOn:buffer];
  }
  void did_read() const {
    for (auto object = read.begin(); object != read.end(); ++object)
      if (std::find(read.begin(), object, *object) == object) [*object openmps_didRead];
  }
};

void record(OptimizerState &state, Recorder &recorder, id<MTLCommandBuffer> buffer, const Used &used,
            std::vector<Problem> problems) {
  used.will_use(buffer);
  for (Problem &problem : problems) recorder.append(std::move(problem), state.title);
  state.did_encode();
  used.did_read();
}

/// A vector or a matrix that a form is given.
struct Given {
  id<OpenMPSRows> rows;
  const char *name;
  bool is_optional = false;
};

Array array_of(const OptimizerState &state, const RowNames &names, id<OpenMPSRows> rows, std::string name) {
  if (rows == nil) raise_in(state, @"%s is nil.", name.c_str());
  const RowState &row_state = [rows openmps_state];
  const RowLayout &layout = row_state.layout;
  if (layout.type != MPSDataTypeFloat32)
    raise_in(state, @"%s has the dataType 0x%lx, expected MPSDataTypeFloat32 (0x%lx).", name.c_str(),
             (unsigned long)layout.type, (unsigned long)MPSDataTypeFloat32);
  if (row_state.device.get() != state.device.get())
    raise_in(state, @"%s belongs to another device than the kernel.", name.c_str());
  Array array;
  array.view.memory = [buffer_of(names, row_state) openmps_memory];
  array.view.offset = row_state.offset;
  array.view.row_stride = static_cast<std::int64_t>(layout.row_bytes / sizeof(float));
  array.view.matrix_stride = static_cast<std::int64_t>(layout.matrix_bytes / sizeof(float));
  array.matrices = layout.matrices, array.rows = layout.rows, array.columns = layout.columns;
  array.name = std::move(name);
  return array;
}

/// The forms with vectors or matrices, in the order of Role.
void encode_rows(MPSNNOptimizer *kernel, id<MTLCommandBuffer> buffer, const RowNames &names,
                 const std::array<Given, kRoles> &given) {
  auto &state = state_of<OptimizerState>(kernel);
  Recorder &recorder = begin(state, buffer);
  Arrays arrays;
  Used used;
  for (std::size_t role = 0; role < kRoles; ++role) {
    if (given[role].rows == nil && given[role].is_optional) continue;
    arrays[role] = array_of(state, names, given[role].rows, given[role].name);
    (role == kResult ? used.written : used.read).push_back(given[role].rows);
  }
  record(state, recorder, buffer, used, {resolve(state, arrays)});
}

/// A list of vectors, the first for weights or gamma, the second, if there is one, for biases or beta.
struct Lists {
  NSArray<MPSVector *> *vectors;
  const char *name;
  bool is_optional = false;
};

/// Buffers of a state.
struct Buffer {
  id<MTLBuffer> buffer;
  NSUInteger offset = 0;
};
/// What is updated: the weights and the biases, or gamma and beta.
struct Parameter {
  const char *name;
  Buffer gradient, values, result;
};

Array array_of(const OptimizerState &state, const Buffer &given, NSUInteger count, std::string name) {
  id<OpenMPSBuffer> known = buffer_of(given.buffer, name.c_str());
  const NSUInteger available = [known length], bytes = count * sizeof(float);
  if (given.offset > available || bytes > available - given.offset)
    raise_in(state, @"%s has %lu bytes, expected %lu from offset %lu on, %lu floats.", name.c_str(),
             (unsigned long)available, (unsigned long)bytes, (unsigned long)given.offset, (unsigned long)count);
  Array array;
  array.view.memory = [known openmps_memory];
  array.view.offset = given.offset;
  array.matrices = array.rows = 1;
  array.columns = count;
  array.name = std::move(name);
  return array;
}

/// Adds the problems of one parameter; index is its place in the lists, which have so many vectors.
void add_problems(const OptimizerState &state, const Parameter &parameter, NSUInteger index,
                  const std::array<Lists, 3> &lists, NSUInteger vectors, std::vector<Problem> &problems) {
  const std::string name = parameter.name;
  if (parameter.values.buffer == nil) {
    if (index == 0) raise_in(state, @"The source state has no %s.", parameter.name);
    return;  // a layer without biases
  }
  if (parameter.gradient.buffer == nil)
    raise_in(state, @"The gradient state has no gradient of %s: no gradient kernel has been encoded with it.",
             parameter.name);
  const NSUInteger count = [parameter.gradient.buffer length] / sizeof(float);
  Arrays arrays;
  arrays[kGradient] = array_of(state, parameter.gradient, count, "the gradient of " + name);
  arrays[kValues] = array_of(state, parameter.values, count, "the source state's " + name);
  // unverified: what is not updated is in the result as it was.
  const bool is_updated = index < vectors;
  if (parameter.result.buffer == nil) {
    if (is_updated) raise_in(state, @"resultState has no %s, and the source state has.", parameter.name);
    return;
  }
  arrays[kResult] = array_of(state, parameter.result, count, "resultState's " + name);
  if (!is_updated) {
    if (are_the_same(arrays[kValues], arrays[kResult])) return;
    if (share_memory(arrays[kValues], arrays[kResult]))
      raise_in(state, @"%s and %s share memory.", arrays[kValues].name.c_str(), arrays[kResult].name.c_str());
    BufferCopyProblem copy;
    copy.src = arrays[kValues].view.memory, copy.src_offset = arrays[kValues].view.offset;
    copy.dst = arrays[kResult].view.memory, copy.dst_offset = arrays[kResult].view.offset;
    copy.bytes = count * sizeof(float);
    problems.push_back(std::move(copy));
    return;
  }
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].vectors == nil) continue;
    Array array = array_of(state, kVectorNames, [lists[i].vectors objectAtIndex:index],
                           std::string(lists[i].name) + "[" + std::to_string(index) + "]");
    if (array.count() != count || array.rows != 1)
      raise_in(state, @"%s has %lu vectors of length %lu, expected one of %lu, as many as %s.", array.name.c_str(),
               (unsigned long)array.rows, (unsigned long)array.columns, (unsigned long)count, parameter.name);
    arrays[kMomentum + i] = std::move(array);
  }
  problems.push_back(resolve(state, arrays));
}

/// The forms with states. The lists stand in the order momentum, squares, greatest squares.
void encode_states(MPSNNOptimizer *kernel, id<MTLCommandBuffer> buffer, const std::vector<MPSState *> &read,
                   MPSState *result, const std::array<Parameter, 2> &parameters, const std::array<Lists, 3> &lists) {
  auto &state = state_of<OptimizerState>(kernel);
  Recorder &recorder = begin(state, buffer);
  Used used;
  NSArray *first = nil;
  const char *first_name = "";
  for (const Lists &list : lists) {
    if (list.vectors == nil) {
      if (!list.is_optional) raise_in(state, @"%s is nil.", list.name);
      continue;
    }
    if ([list.vectors count] < 1 || [list.vectors count] > 2)
      raise_in(state, @"%s has %lu vectors, expected 1 or 2.", list.name, (unsigned long)[list.vectors count]);
    if (first == nil) first = list.vectors, first_name = list.name;
    if ([list.vectors count] != [first count])
      raise_in(state, @"%s has %lu vectors and %s %lu.", list.name, (unsigned long)[list.vectors count], first_name,
               (unsigned long)[first count]);
  }
  std::vector<Problem> problems;
  for (NSUInteger i = 0; i < 2; ++i)
    add_problems(state, parameters[i], i, lists, first == nil ? 2 : [first count], problems);
  for (MPSState *object : read) used.read.push_back((id<OpenMPSRows>)object);
  for (const Lists &list : lists)
    for (MPSVector *vector in list.vectors) used.read.push_back(vector);
  used.written.push_back((id<OpenMPSRows>)result);
  record(state, recorder, buffer, used, std::move(problems));
}

void check_state(MPSNNOptimizer *kernel, MPSState *given, Class kind, const char *name) {
  const auto &state = state_of<OptimizerState>(kernel);
  if (given == nil) raise_in(state, @"%s is nil.", name);
  if (![given isKindOfClass:kind])
    raise_in(state, @"%s is an object of class %@, which is no %@.", name, [given class], kind);
}

void encode_convolution(MPSNNOptimizer *kernel, id<MTLCommandBuffer> buffer, MPSCNNConvolutionGradientState *gradient,
                        MPSCNNConvolutionWeightsAndBiasesState *source, MPSCNNConvolutionWeightsAndBiasesState *result,
                        const std::array<Lists, 3> &lists) {
  check_state(kernel, gradient, [MPSCNNConvolutionGradientState class], "convolutionGradientState");
  check_state(kernel, source, [MPSCNNConvolutionWeightsAndBiasesState class], "convolutionSourceState");
  check_state(kernel, result, [MPSCNNConvolutionWeightsAndBiasesState class], "resultState");
  const std::array<Parameter, 2> parameters = {{{"weights",
                                                 {[gradient gradientForWeights]},
                                                 {[source weights], [source weightsOffset]},
                                                 {[result weights], [result weightsOffset]}},
                                                {"biases",
                                                 {[gradient gradientForBiases]},
                                                 {[source biases], [source biasesOffset]},
                                                 {[result biases], [result biasesOffset]}}}};
  encode_states(kernel, buffer, {gradient, source}, result, parameters, lists);
}

/// Gamma and beta are those that the normalization was last encoded with.
void encode_normalization(MPSNNOptimizer *kernel, id<MTLCommandBuffer> buffer, MPSCNNBatchNormalizationState *gradient,
                          const char *gradient_name, MPSCNNBatchNormalizationState *source, const char *source_name,
                          MPSCNNNormalizationGammaAndBetaState *result, const std::array<Lists, 3> &lists) {
  check_state(kernel, gradient, [MPSCNNBatchNormalizationState class], gradient_name);
  check_state(kernel, source, [MPSCNNBatchNormalizationState class], source_name);
  check_state(kernel, result, [MPSCNNNormalizationGammaAndBetaState class], "resultState");
  const std::array<Parameter, 2> parameters = {
      {{"gamma", {[gradient gradientForGamma]}, {[source gamma]}, {[result gamma]}},
       {"beta", {[gradient gradientForBeta]}, {[source beta]}, {[result beta]}}}};
  encode_states(kernel, buffer, {gradient, source}, result, parameters, lists);
}

Lists momentum_list(NSArray<MPSVector *> *vectors, bool is_optional = false) {
  return {vectors, "inputMomentumVectors", is_optional};
}
const Lists kNoList = {nil, "", true};

std::array<Lists, 3> adam_lists(NSArray<MPSVector *> *momentum, NSArray<MPSVector *> *velocity,
                                NSArray<MPSVector *> *maximum) {
  return {momentum_list(momentum), Lists{velocity, "inputVelocityVectors"},
          Lists{maximum, "maximumVelocityVectors", true}};
}

std::array<Lists, 3> squares_lists(NSArray<MPSVector *> *squares) {
  return {kNoList, Lists{squares, "inputSumOfSquaresVectors"}, kNoList};
}

OptimizerSettings &settings_of(void *opaque) { return *static_cast<OptimizerSettings *>(opaque); }

}  // namespace
}  // namespace openmps

@interface MPSNNOptimizerDescriptor (Engine)
- (const openmps::OptimizerSettings &)openmps_settings;
@end

namespace openmps {
namespace {

/// The initialiser of all optimizers; `set` has put their own numbers into the state.
template <class State, class Set>
id init_optimizer(MPSNNOptimizer *kernel, id<MTLDevice> device, const OptimizerSettings &settings, const Set &set) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<State>(kernel);
  state.settings = settings;
  set(state);
  state.check_settings();
  return unwind.done();
}

OptimizerSettings settings_with(float learning_rate) {
  OptimizerSettings settings;
  settings.rate = learning_rate;
  return settings;
}

const OptimizerSettings &settings_of(MPSNNOptimizer *kernel, MPSNNOptimizerDescriptor *descriptor) {
  if (descriptor == nil) {
    UnwindRelease unwind(kernel);
    raise_argument(@"%@: optimizerDescriptor is nil.", [kernel class]);
  }
  return [descriptor openmps_settings];
}

}  // namespace
}  // namespace openmps

using openmps::AdamState;
using openmps::DescentState;
using openmps::kMatrixNames;
using openmps::kVectorNames;
using openmps::OptimizerState;
using openmps::RMSPropState;

@implementation MPSNNOptimizerDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new openmps::OptimizerSettings;
  return self;
}

- (instancetype)initWithLearningRate:(float)learningRate
                     gradientRescale:(float)gradientRescale
                  regularizationType:(MPSNNRegularizationType)regularizationType
                 regularizationScale:(float)regularizationScale {
  if ((self = [self init])) {
    openmps::UnwindRelease unwind(self);
    [self setLearningRate:learningRate];
    [self setGradientRescale:gradientRescale];
    [self setRegularizationType:regularizationType];
    [self setRegularizationScale:regularizationScale];
    unwind.done();
  }
  return self;
}

- (instancetype)initWithLearningRate:(float)learningRate
                     gradientRescale:(float)gradientRescale
               applyGradientClipping:(BOOL)applyGradientClipping
                     gradientClipMax:(float)gradientClipMax
                     gradientClipMin:(float)gradientClipMin
                  regularizationType:(MPSNNRegularizationType)regularizationType
                 regularizationScale:(float)regularizationScale {
  if ((self = [self initWithLearningRate:learningRate
                         gradientRescale:gradientRescale
                      regularizationType:regularizationType
                     regularizationScale:regularizationScale])) {
    [self setApplyGradientClipping:applyGradientClipping];
    [self setGradientClipMax:gradientClipMax];
    [self setGradientClipMin:gradientClipMin];
  }
  return self;
}

- (void)dealloc {
  delete static_cast<openmps::OptimizerSettings *>(_openmps);
  [super dealloc];
}

+ (instancetype)optimizerDescriptorWithLearningRate:(float)learningRate
                                    gradientRescale:(float)gradientRescale
                                 regularizationType:(MPSNNRegularizationType)regularizationType
                                regularizationScale:(float)regularizationScale {
  return [[[self alloc] initWithLearningRate:learningRate
                             gradientRescale:gradientRescale
                          regularizationType:regularizationType
                         regularizationScale:regularizationScale] autorelease];
}

+ (instancetype)optimizerDescriptorWithLearningRate:(float)learningRate
                                    gradientRescale:(float)gradientRescale
                              applyGradientClipping:(BOOL)applyGradientClipping
                                    gradientClipMax:(float)gradientClipMax
                                    gradientClipMin:(float)gradientClipMin
                                 regularizationType:(MPSNNRegularizationType)regularizationType
                                regularizationScale:(float)regularizationScale {
  return [[[self alloc] initWithLearningRate:learningRate
                             gradientRescale:gradientRescale
                       applyGradientClipping:applyGradientClipping
                             gradientClipMax:gradientClipMax
                             gradientClipMin:gradientClipMin
                          regularizationType:regularizationType
                         regularizationScale:regularizationScale] autorelease];
}

#define OPENMPS_SETTING(TYPE, NAME, SETTER, FIELD) \
  -(TYPE)NAME {                                    \
    return openmps::settings_of(_openmps).FIELD;   \
  }                                                \
  -(void)SETTER : (TYPE)value {                    \
    openmps::settings_of(_openmps).FIELD = value;  \
  }
OPENMPS_SETTING(float, learningRate, setLearningRate, rate)
OPENMPS_SETTING(float, gradientRescale, setGradientRescale, rescale)
OPENMPS_SETTING(BOOL, applyGradientClipping, setApplyGradientClipping, clips)
OPENMPS_SETTING(float, gradientClipMax, setGradientClipMax, clip_max)
OPENMPS_SETTING(float, gradientClipMin, setGradientClipMin, clip_min)
OPENMPS_SETTING(float, regularizationScale, setRegularizationScale, regularization_scale)

- (MPSNNRegularizationType)regularizationType {
  return openmps::settings_of(_openmps).regularization;
}

- (void)setRegularizationType:(MPSNNRegularizationType)regularizationType {
  if (regularizationType > MPSNNRegularizationTypeL2)
    openmps::raise_argument(@"MPSNNOptimizerDescriptor: regularizationType (%lu) is not between 0 and 2.",
                            (unsigned long)regularizationType);
  openmps::settings_of(_openmps).regularization = regularizationType;
}

- (const openmps::OptimizerSettings &)openmps_settings {
  return openmps::settings_of(_openmps);
}

@end

@implementation MPSNNOptimizer

+ (openmps::KernelState *)openmps_newState {
  return new OptimizerState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:learningRate: of a subclass");
}

OPENMPS_GETTER(OptimizerState, float, learningRate, settings.rate)
OPENMPS_GETTER(OptimizerState, float, gradientRescale, settings.rescale)
OPENMPS_PROPERTY(OptimizerState, BOOL, applyGradientClipping, setApplyGradientClipping, settings.clips)
OPENMPS_GETTER(OptimizerState, float, gradientClipMax, settings.clip_max)
OPENMPS_GETTER(OptimizerState, float, gradientClipMin, settings.clip_min)
OPENMPS_GETTER(OptimizerState, float, regularizationScale, settings.regularization_scale)
OPENMPS_GETTER(OptimizerState, MPSNNRegularizationType, regularizationType, settings.regularization)

- (void)setLearningRate:(float)newLearningRate {
  auto &state = openmps::state_of<OptimizerState>(self);
  state.check_finite("learningRate", newLearningRate);
  state.settings.rate = newLearningRate;
}

@end

// ------------------------------------------------------------------------------------------------------- descent

@implementation MPSNNOptimizerStochasticGradientDescent

+ (openmps::KernelState *)openmps_newState {
  return new DescentState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device learningRate:(float)learningRate {
  return openmps::init_optimizer<DescentState>(self, device, openmps::settings_with(learningRate),
                                               [](DescentState &) {});
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                 momentumScale:(float)momentumScale
           useNesterovMomentum:(BOOL)useNesterovMomentum
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor {
  return openmps::init_optimizer<DescentState>(self, device, openmps::settings_of(self, optimizerDescriptor),
                                               [&](DescentState &state) {
                                                 state.momentum_scale = momentumScale;
                                                 state.nesterov = useNesterovMomentum;
                                               });
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                 momentumScale:(float)momentumScale
            useNestrovMomentum:(BOOL)useNestrovMomentum
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor {
  return [self initWithDevice:device
                momentumScale:momentumScale
          useNesterovMomentum:useNestrovMomentum
          optimizerDescriptor:optimizerDescriptor];
}

OPENMPS_GETTER(DescentState, float, momentumScale, momentum_scale)
OPENMPS_GETTER(DescentState, BOOL, useNesterovMomentum, nesterov)
OPENMPS_GETTER(DescentState, BOOL, useNestrovMomentum, nesterov)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
          inputMomentumVector:(MPSVector *)inputMomentumVector
           resultValuesVector:(MPSVector *)resultValuesVector {
  openmps::encode_rows(self, commandBuffer, kVectorNames,
                       {{{inputGradientVector, "inputGradientVector"},
                         {inputValuesVector, "inputValuesVector"},
                         {inputMomentumVector, "inputMomentumVector", true},
                         {nil, "", true},
                         {nil, "", true},
                         {resultValuesVector, "resultValuesVector"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
          inputMomentumMatrix:(MPSMatrix *)inputMomentumMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix {
  openmps::encode_rows(self, commandBuffer, kMatrixNames,
                       {{{inputGradientMatrix, "inputGradientMatrix"},
                         {inputValuesMatrix, "inputValuesMatrix"},
                         {inputMomentumMatrix, "inputMomentumMatrix", true},
                         {nil, "", true},
                         {nil, "", true},
                         {resultValuesMatrix, "resultValuesMatrix"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState {
  openmps::encode_convolution(self, commandBuffer, convolutionGradientState, convolutionSourceState, resultState,
                              {openmps::momentum_list(inputMomentumVectors, true), openmps::kNoList, openmps::kNoList});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(
      self, commandBuffer, batchNormalizationState, "batchNormalizationState", batchNormalizationState,
      "batchNormalizationState", resultState,
      {openmps::momentum_list(inputMomentumVectors, true), openmps::kNoList, openmps::kNoList});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
      batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
               inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
                        resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(
      self, commandBuffer, batchNormalizationGradientState, "batchNormalizationGradientState",
      batchNormalizationSourceState, "batchNormalizationSourceState", resultState,
      {openmps::momentum_list(inputMomentumVectors, true), openmps::kNoList, openmps::kNoList});
}

@end

// ------------------------------------------------------------------------------------------------------- RMSProp

@implementation MPSNNOptimizerRMSProp

+ (openmps::KernelState *)openmps_newState {
  return new RMSPropState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device learningRate:(float)learningRate {
  return openmps::init_optimizer<RMSPropState>(self, device, openmps::settings_with(learningRate),
                                               [](RMSPropState &) {});
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                         decay:(double)decay
                       epsilon:(float)epsilon
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor {
  return openmps::init_optimizer<RMSPropState>(self, device, openmps::settings_of(self, optimizerDescriptor),
                                               [&](RMSPropState &state) {
                                                 state.decay = decay;
                                                 state.epsilon = epsilon;
                                               });
}

OPENMPS_GETTER(RMSPropState, double, decay, decay)
OPENMPS_GETTER(RMSPropState, float, epsilon, epsilon)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
      inputSumOfSquaresVector:(MPSVector *)inputSumOfSquaresVector
           resultValuesVector:(MPSVector *)resultValuesVector {
  openmps::encode_rows(self, commandBuffer, kVectorNames,
                       {{{inputGradientVector, "inputGradientVector"},
                         {inputValuesVector, "inputValuesVector"},
                         {nil, "", true},
                         {inputSumOfSquaresVector, "inputSumOfSquaresVector"},
                         {nil, "", true},
                         {resultValuesVector, "resultValuesVector"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
      inputSumOfSquaresMatrix:(MPSMatrix *)inputSumOfSquaresMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix {
  openmps::encode_rows(self, commandBuffer, kMatrixNames,
                       {{{inputGradientMatrix, "inputGradientMatrix"},
                         {inputValuesMatrix, "inputValuesMatrix"},
                         {nil, "", true},
                         {inputSumOfSquaresMatrix, "inputSumOfSquaresMatrix"},
                         {nil, "", true},
                         {resultValuesMatrix, "resultValuesMatrix"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
     inputSumOfSquaresVectors:(NSArray<MPSVector *> *)inputSumOfSquaresVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState {
  openmps::encode_convolution(self, commandBuffer, convolutionGradientState, convolutionSourceState, resultState,
                              openmps::squares_lists(inputSumOfSquaresVectors));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
     inputSumOfSquaresVectors:(NSArray<MPSVector *> *)inputSumOfSquaresVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(self, commandBuffer, batchNormalizationState, "batchNormalizationState",
                                batchNormalizationState, "batchNormalizationState", resultState,
                                openmps::squares_lists(inputSumOfSquaresVectors));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
      batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
           inputSumOfSquaresVectors:(NSArray<MPSVector *> *)inputSumOfSquaresVectors
                        resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(self, commandBuffer, batchNormalizationGradientState, "batchNormalizationGradientState",
                                batchNormalizationSourceState, "batchNormalizationSourceState", resultState,
                                openmps::squares_lists(inputSumOfSquaresVectors));
}

@end

// ---------------------------------------------------------------------------------------------------------- Adam

@implementation MPSNNOptimizerAdam

+ (openmps::KernelState *)openmps_newState {
  return new AdamState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device learningRate:(float)learningRate {
  return openmps::init_optimizer<AdamState>(self, device, openmps::settings_with(learningRate), [](AdamState &) {});
}

- (instancetype)initWithDevice:(id<MTLDevice>)device
                         beta1:(double)beta1
                         beta2:(double)beta2
                       epsilon:(float)epsilon
                      timeStep:(NSUInteger)timeStep
           optimizerDescriptor:(MPSNNOptimizerDescriptor *)optimizerDescriptor {
  return openmps::init_optimizer<AdamState>(self, device, openmps::settings_of(self, optimizerDescriptor),
                                            [&](AdamState &state) {
                                              state.beta1 = beta1, state.beta2 = beta2;
                                              state.epsilon = epsilon;
                                              state.time_step = timeStep;
                                            });
}

OPENMPS_GETTER(AdamState, double, beta1, beta1)
OPENMPS_GETTER(AdamState, double, beta2, beta2)
OPENMPS_GETTER(AdamState, float, epsilon, epsilon)
OPENMPS_PROPERTY(AdamState, NSUInteger, timeStep, setTimeStep, time_step)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
          inputMomentumVector:(MPSVector *)inputMomentumVector
          inputVelocityVector:(MPSVector *)inputVelocityVector
           resultValuesVector:(MPSVector *)resultValuesVector {
  [self encodeToCommandBuffer:commandBuffer
          inputGradientVector:inputGradientVector
            inputValuesVector:inputValuesVector
          inputMomentumVector:inputMomentumVector
          inputVelocityVector:inputVelocityVector
        maximumVelocityVector:nil
           resultValuesVector:resultValuesVector];
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientVector:(MPSVector *)inputGradientVector
            inputValuesVector:(MPSVector *)inputValuesVector
          inputMomentumVector:(MPSVector *)inputMomentumVector
          inputVelocityVector:(MPSVector *)inputVelocityVector
        maximumVelocityVector:(MPSVector *)maximumVelocityVector
           resultValuesVector:(MPSVector *)resultValuesVector {
  openmps::encode_rows(self, commandBuffer, kVectorNames,
                       {{{inputGradientVector, "inputGradientVector"},
                         {inputValuesVector, "inputValuesVector"},
                         {inputMomentumVector, "inputMomentumVector"},
                         {inputVelocityVector, "inputVelocityVector"},
                         {maximumVelocityVector, "maximumVelocityVector", true},
                         {resultValuesVector, "resultValuesVector"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
          inputMomentumMatrix:(MPSMatrix *)inputMomentumMatrix
          inputVelocityMatrix:(MPSMatrix *)inputVelocityMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix {
  [self encodeToCommandBuffer:commandBuffer
          inputGradientMatrix:inputGradientMatrix
            inputValuesMatrix:inputValuesMatrix
          inputMomentumMatrix:inputMomentumMatrix
          inputVelocityMatrix:inputVelocityMatrix
        maximumVelocityMatrix:nil
           resultValuesMatrix:resultValuesMatrix];
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
          inputGradientMatrix:(MPSMatrix *)inputGradientMatrix
            inputValuesMatrix:(MPSMatrix *)inputValuesMatrix
          inputMomentumMatrix:(MPSMatrix *)inputMomentumMatrix
          inputVelocityMatrix:(MPSMatrix *)inputVelocityMatrix
        maximumVelocityMatrix:(MPSMatrix *)maximumVelocityMatrix
           resultValuesMatrix:(MPSMatrix *)resultValuesMatrix {
  openmps::encode_rows(self, commandBuffer, kMatrixNames,
                       {{{inputGradientMatrix, "inputGradientMatrix"},
                         {inputValuesMatrix, "inputValuesMatrix"},
                         {inputMomentumMatrix, "inputMomentumMatrix"},
                         {inputVelocityMatrix, "inputVelocityMatrix"},
                         {maximumVelocityMatrix, "maximumVelocityMatrix", true},
                         {resultValuesMatrix, "resultValuesMatrix"}}});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState {
  openmps::encode_convolution(self, commandBuffer, convolutionGradientState, convolutionSourceState, resultState,
                              openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, nil));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
     convolutionGradientState:(MPSCNNConvolutionGradientState *)convolutionGradientState
       convolutionSourceState:(MPSCNNConvolutionWeightsAndBiasesState *)convolutionSourceState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
       maximumVelocityVectors:(NSArray<MPSVector *> *)maximumVelocityVectors
                  resultState:(MPSCNNConvolutionWeightsAndBiasesState *)resultState {
  openmps::encode_convolution(self, commandBuffer, convolutionGradientState, convolutionSourceState, resultState,
                              openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, maximumVelocityVectors));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(self, commandBuffer, batchNormalizationState, "batchNormalizationState",
                                batchNormalizationState, "batchNormalizationState", resultState,
                                openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, nil));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
      batchNormalizationState:(MPSCNNBatchNormalizationState *)batchNormalizationState
         inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
         inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
       maximumVelocityVectors:(NSArray<MPSVector *> *)maximumVelocityVectors
                  resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(
      self, commandBuffer, batchNormalizationState, "batchNormalizationState", batchNormalizationState,
      "batchNormalizationState", resultState,
      openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, maximumVelocityVectors));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
      batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
               inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
               inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
                        resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(self, commandBuffer, batchNormalizationGradientState, "batchNormalizationGradientState",
                                batchNormalizationSourceState, "batchNormalizationSourceState", resultState,
                                openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, nil));
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
    batchNormalizationGradientState:(MPSCNNBatchNormalizationState *)batchNormalizationGradientState
      batchNormalizationSourceState:(MPSCNNBatchNormalizationState *)batchNormalizationSourceState
               inputMomentumVectors:(NSArray<MPSVector *> *)inputMomentumVectors
               inputVelocityVectors:(NSArray<MPSVector *> *)inputVelocityVectors
             maximumVelocityVectors:(NSArray<MPSVector *> *)maximumVelocityVectors
                        resultState:(MPSCNNNormalizationGammaAndBetaState *)resultState {
  openmps::encode_normalization(
      self, commandBuffer, batchNormalizationGradientState, "batchNormalizationGradientState",
      batchNormalizationSourceState, "batchNormalizationSourceState", resultState,
      openmps::adam_lists(inputMomentumVectors, inputVelocityVectors, maximumVelocityVectors));
}

@end

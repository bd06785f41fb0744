// SPDX-License-Identifier: Apache-2.0
// From the arrays of an optimizer's encode to its problem.

#import "mps/MPSNNOptimizer+Engine.hh"
#import "mps/MPSState+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

constexpr FloatMatrices OptimizeProblem::*kMembers[kRoles] = {
    &OptimizeProblem::gradient,          &OptimizeProblem::values,
    &OptimizeProblem::momentum,          &OptimizeProblem::second_moment,
    &OptimizeProblem::max_second_moment, &OptimizeProblem::result};

/// One array, and its name for errors.
struct Array {
  FloatMatrices view;
  NSUInteger matrices = 0, rows = 0, columns = 0;
  std::string name;

  NSUInteger count() const { return matrices * rows * columns; }
  /// Return the bytes from the first value to the end of the last one.
  std::size_t bytes() const {
    const auto steps = static_cast<std::int64_t>(matrices - 1) * view.matrix_stride +
                       static_cast<std::int64_t>(rows - 1) * view.row_stride + static_cast<std::int64_t>(columns);
    return static_cast<std::size_t>(steps) * sizeof(float);
  }
};
using Arrays = std::array<Array, kRoles>;

std::uintptr_t address(const Array &array) {
  return reinterpret_cast<std::uintptr_t>(array.view.memory->address()) + array.view.offset;
}

/// Return whether the arrays overlap. Memory that is not allocated cannot be shared.
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

/// Check one step. No side effects.
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
      raise_for(state, @"%s has %lu x %lu x %lu values (matrices x rows x columns) and %s %lu x %lu x %lu.",
                array.name.c_str(), (unsigned long)array.matrices, (unsigned long)array.rows,
                (unsigned long)array.columns, first.name.c_str(), (unsigned long)first.matrices,
                (unsigned long)first.rows, (unsigned long)first.columns);
    problem.*kMembers[role] = array.view;
  }
  // Written arrays have their own memory, but the result may replace an array that is only read.
  for (std::size_t written = kMomentum; written < kRoles; ++written) {
    const Array &a = arrays[written];
    if (!a.view.memory) continue;
    for (std::size_t other = 0; other < written; ++other) {
      const Array &b = arrays[other];
      if (!b.view.memory || !share_memory(a, b)) continue;
      if (written == kResult && other < kMomentum && are_the_same(a, b)) continue;
      raise_for(state, @"%s and %s share memory.", a.name.c_str(), b.name.c_str());
    }
  }
  state.fill(problem);
  return problem;
}

/// The objects that an encode uses: MPSVector, MPSMatrix and MPSState respond to the same two messages.
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

Array array_of(const OptimizerState &state, const RowNames &names, id<OpenMPSRows> rows, std::string name) {
  if (rows == nil) raise_for(state, @"%s is nil.", name.c_str());
  const RowState &row_state = [rows openmps_state];
  const RowLayout &layout = row_state.layout;
  if (layout.type != MPSDataTypeFloat32)
    raise_for(state, @"%s has the dataType 0x%lx, expected MPSDataTypeFloat32 (0x%lx).", name.c_str(),
              (unsigned long)layout.type, (unsigned long)MPSDataTypeFloat32);
  if (row_state.device.get() != state.device.get())
    raise_for(state, @"%s belongs to another device than the kernel.", name.c_str());
  Array array;
  array.view.memory = [buffer_of(names, row_state) openmps_memory];
  array.view.offset = row_state.offset;
  array.view.row_stride = static_cast<std::int64_t>(layout.row_bytes / sizeof(float));
  array.view.matrix_stride = static_cast<std::int64_t>(layout.matrix_bytes / sizeof(float));
  array.matrices = layout.matrices, array.rows = layout.rows, array.columns = layout.columns;
  array.name = std::move(name);
  return array;
}

}  // namespace

void encode_rows(MPSNNOptimizer *kernel, id<MTLCommandBuffer> buffer, const RowNames &names,
                 const std::array<Given, kRoles> &given) {
  auto &state = state_of<OptimizerState>(kernel);
  Recorder &recorder = begin_encode(state, buffer);
  Arrays arrays;
  Used used;
  for (std::size_t role = 0; role < kRoles; ++role) {
    if (given[role].rows == nil && given[role].is_optional) continue;
    arrays[role] = array_of(state, names, given[role].rows, given[role].name);
    (role == kResult ? used.written : used.read).push_back(given[role].rows);
  }
  record(state, recorder, buffer, used, {resolve(state, arrays)});
}

namespace {

/// A buffer of a state.
struct Buffer {
  id<MTLBuffer> buffer;
  NSUInteger offset = 0;
};
/// A parameter to be updated: weights, biases, gamma or beta.
struct Parameter {
  const char *name;
  Buffer gradient, values, result;
};

Array array_of(const OptimizerState &state, const Buffer &given, NSUInteger count, std::string name) {
  id<OpenMPSBuffer> known = buffer_of(given.buffer, name.c_str());
  const NSUInteger available = [known length], bytes = count * sizeof(float);
  if (given.offset > available || bytes > available - given.offset)
    raise_for(state, @"%s has %lu bytes, expected %lu from offset %lu on, %lu floats.", name.c_str(),
              (unsigned long)available, (unsigned long)bytes, (unsigned long)given.offset, (unsigned long)count);
  Array array;
  array.view.memory = [known openmps_memory];
  array.view.offset = given.offset;
  array.matrices = array.rows = 1;
  array.columns = count;
  array.name = std::move(name);
  return array;
}

/// Add the problems of one parameter. `index`: its place in the lists, which have `vectors` vectors.
void add_problems(const OptimizerState &state, const Parameter &parameter, NSUInteger index,
                  const std::array<Lists, 3> &lists, NSUInteger vectors, std::vector<Problem> &problems) {
  const std::string name = parameter.name;
  if (parameter.values.buffer == nil) {
    if (index == 0) raise_for(state, @"The source state has no %s.", parameter.name);
    return;  // a layer without biases
  }
  if (parameter.gradient.buffer == nil)
    raise_for(state, @"The gradient state has no gradient of %s: no gradient kernel has been encoded with it.",
              parameter.name);
  const NSUInteger count = [parameter.gradient.buffer length] / sizeof(float);
  Arrays arrays;
  arrays[kGradient] = array_of(state, parameter.gradient, count, "the gradient of " + name);
  arrays[kValues] = array_of(state, parameter.values, count, "the source state's " + name);
  // unverified: a parameter that is not updated is copied to the result.
  const bool is_updated = index < vectors;
  if (parameter.result.buffer == nil) {
    if (is_updated) raise_for(state, @"resultState has no %s, and the source state has.", parameter.name);
    return;
  }
  arrays[kResult] = array_of(state, parameter.result, count, "resultState's " + name);
  if (!is_updated) {
    if (are_the_same(arrays[kValues], arrays[kResult])) return;
    if (share_memory(arrays[kValues], arrays[kResult]))
      raise_for(state, @"%s and %s share memory.", arrays[kValues].name.c_str(), arrays[kResult].name.c_str());
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
      raise_for(state, @"%s has %lu vectors of length %lu, expected one of %lu, as many as %s.", array.name.c_str(),
                (unsigned long)array.rows, (unsigned long)array.columns, (unsigned long)count, parameter.name);
    arrays[kMomentum + i] = std::move(array);
  }
  problems.push_back(resolve(state, arrays));
}

/// Encode the forms with states. Order of the lists: momentum, second moment, max second moment.
void encode_states(MPSNNOptimizer *kernel, id<MTLCommandBuffer> buffer, const std::vector<MPSState *> &read,
                   MPSState *result, const std::array<Parameter, 2> &parameters, const std::array<Lists, 3> &lists) {
  auto &state = state_of<OptimizerState>(kernel);
  Recorder &recorder = begin_encode(state, buffer);
  Used used;
  NSArray *first = nil;
  const char *first_name = "";
  for (const Lists &list : lists) {
    if (list.vectors == nil) {
      if (!list.is_optional) raise_for(state, @"%s is nil.", list.name);
      continue;
    }
    if ([list.vectors count] < 1 || [list.vectors count] > 2)
      raise_for(state, @"%s has %lu vectors, expected 1 or 2.", list.name, (unsigned long)[list.vectors count]);
    if (first == nil) first = list.vectors, first_name = list.name;
    if ([list.vectors count] != [first count])
      raise_for(state, @"%s has %lu vectors and %s %lu.", list.name, (unsigned long)[list.vectors count], first_name,
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
  if (given == nil) raise_for(state, @"%s is nil.", name);
  if (![given isKindOfClass:kind])
    raise_for(state, @"%s is an object of class %@, which is no %@.", name, [given class], kind);
}

}  // namespace

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

}  // namespace openmps

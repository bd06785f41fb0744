// SPDX-License-Identifier: Apache-2.0
// Common parts of the optimizers: their state, and the functions that turn vectors, matrices and states into problems.
#pragma once

#include <array>
#include <cmath>

#include "engine/problem/optimize.hpp"
#import "mps/MPSKernel+Engine.hh"
#import "mps/MPSMatrix+Engine.hh"

namespace openmps {

/// Values of MPSNNOptimizerDescriptor. unverified: the default clipping bounds; these clip nothing.
struct OptimizerSettings {
  float rate = 0.001f, rescale = 1;
  BOOL clips = NO;
  float clip_max = std::numeric_limits<float>::infinity(), clip_min = -std::numeric_limits<float>::infinity();
  float regularization_scale = 0;
  MPSNNRegularizationType regularization = MPSNNRegularizationTypeNone;
};

/// State of an MPSNNOptimizer.
struct OptimizerState : Extends<OptimizerState, KernelState> {
  OptimizerSettings settings;

  void check_finite(const char *name, double value) const {
    if (!std::isfinite(value)) raise_for(*this, @"%s (%g) is not a finite number.", name, value);
  }
  void check_between(const char *name, double value, double min, double below) const {
    if (!(value >= min && value < below))
      raise_for(*this, @"%s (%g) is not at least %g and less than %g.", name, value, min, below);
  }
  void check_epsilon(float epsilon) const {
    if (!(epsilon >= 0)) raise_for(*this, @"epsilon (%g) is less than 0.", (double)epsilon);
  }
  virtual void check_settings() const {
    check_finite("learningRate", settings.rate);
    check_finite("gradientRescale", settings.rescale);
    check_finite("regularizationScale", settings.regularization_scale);
    if (settings.regularization > MPSNNRegularizationTypeL2)
      raise_for(*this, @"regularizationType (%lu) is not between 0 and 2.", (unsigned long)settings.regularization);
    if (!(settings.clip_min <= settings.clip_max))
      raise_for(*this, @"gradientClipMin (%g) is not at most gradientClipMax (%g).", (double)settings.clip_min,
                (double)settings.clip_max);
  }

  /// Set the type and the numbers of one step; the arrays are set already.
  virtual void fill(OptimizeProblem &) const {
    raise_for(*this, @"The class cannot be encoded; use one of its subclasses.");
  }
  /// Called once per encode.
  virtual void did_encode() {}

  OptimizeProblem begin_problem() const {
    OptimizeProblem problem;
    problem.rate = settings.rate;
    problem.rescale = settings.rescale;
    if (settings.clips) problem.min = settings.clip_min, problem.max = settings.clip_max;
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
  /// Without a momentum vector there is no momentum, regardless of its scale [MPSNNOptimizers.h].
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
    problem.beta2 = decay;
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
    problem.type = problem.max_second_moment.memory ? OptimizerType::amsgrad : OptimizerType::adam;
    const double t = static_cast<double>(time_step) + 1;
    problem.rate *= std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
    problem.decay = beta1, problem.beta2 = beta2;
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

/// The arrays of a problem, in their order in lists.
enum Role : std::size_t { kGradient, kValues, kMomentum, kSecondMoment, kMaxSecondMoment, kResult, kRoles };

/// A vector or a matrix passed to an encode form.
struct Given {
  id<OpenMPSRows> rows;
  const char *name;
  bool is_optional = false;
};

/// Encode the forms with vectors or matrices, which are in the order of Role.
void encode_rows(MPSNNOptimizer *kernel, id<MTLCommandBuffer> buffer, const RowNames &names,
                 const std::array<Given, kRoles> &given);

/// A list of vectors: the first for weights or gamma, the second, which is optional, for biases or beta.
struct Lists {
  NSArray<MPSVector *> *vectors;
  const char *name;
  bool is_optional = false;
};

// Encode the forms with states. Order of the lists: momentum, second moment, max second moment.
void encode_convolution(MPSNNOptimizer *kernel, id<MTLCommandBuffer> buffer, MPSCNNConvolutionGradientState *gradient,
                        MPSCNNConvolutionWeightsAndBiasesState *source, MPSCNNConvolutionWeightsAndBiasesState *result,
                        const std::array<Lists, 3> &lists);
/// Gamma and beta are those of the normalization's last encode.
void encode_normalization(MPSNNOptimizer *kernel, id<MTLCommandBuffer> buffer, MPSCNNBatchNormalizationState *gradient,
                          const char *gradient_name, MPSCNNBatchNormalizationState *source, const char *source_name,
                          MPSCNNNormalizationGammaAndBetaState *result, const std::array<Lists, 3> &lists);

}  // namespace openmps

@interface MPSNNOptimizerDescriptor (Engine)
- (const openmps::OptimizerSettings &)openmps_settings;
@end

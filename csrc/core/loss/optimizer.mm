// SPDX-License-Identifier: Apache-2.0
// Each parameter is a separate vector [MPSNNOptimizers.h, the methods with vectors]. The methods with states advance
// the time step with every encode, so Adam's would advance with every layer; they do not support instance or group
// normalization.
#include <mpscnn/error.hpp>
#include <mpscnn/kernel.hpp>
#include <mpscnn/optimizer.hpp>

#include <algorithm>
#include <functional>
#include <mutex>
#include <type_traits>

#include "core/device/forked.hpp"
#include "core/device/objc_scope.hh"
#include "core/kernel/batch_normalization_state_impl.hh"
#include "core/kernel/encode_checks.hh"
#include "core/kernel/gradient_state_impl.hh"
#include "core/kernel/params.hpp"

namespace mpscnn {
namespace {

/// A buffer and an MPSVector over it.
struct Vector {
  std::shared_ptr<Buffer> buffer;
  Ref<MPSVector *> vector;
};

/// An optimized array.
struct Parameter {
  const char *name;  ///< empty if it is the only one
  Extents shape;
  Vector values;
  std::vector<Vector> remembered;  ///< in the order of Optimizer::Impl::remembers
  Vector sum = {};                 ///< sum of gradients in several parts; created on first use
};

/// One step of one array; `remembered` in the same order, `step`: number of previous steps.
using Step = std::function<void(MPSNNOptimizer *, id<MTLCommandBuffer>, MPSVector *gradient, MPSVector *values,
                                const std::vector<Vector> &remembered, std::int64_t step)>;

}  // namespace

struct Optimizer::Impl {
  const char *name;
  std::shared_ptr<Device> device;
  Params options;
  Ref<MPSNNOptimizer *> kernel = {};
  std::vector<const char *> remembers = {};  ///< names of the state arrays
  Step step = {};
  Ref<MPSNNOptimizerStochasticGradientDescent *> adder = {};  ///< created for the first gradients in several parts
  mutable ForkChecked<std::mutex> mutex = {};                 ///< guards the rate and the MPS object's properties
};

struct OptimizerState::Impl {
  std::shared_ptr<Optimizer> optimizer;
  OptimizedValues values;
  std::vector<Parameter> parameters = {};
  std::int64_t time_step = 0;
  mutable Writer writer = {};
  mutable ForkChecked<std::mutex> mutex = {};
};

namespace {

constexpr const char *kRegularizations[] = {nullptr, "l1", "l2"};  // in the order of MPSNNRegularizationType

MPSNNOptimizerDescriptor *descriptor_of(const char *name, const Options &options) {
  const auto clip = options.limits("gradient_clip");
  const auto [min, max] = clip.value_or(std::array<double, 2>{0, 0});
  const auto regularization = options.choice("regularization", kRegularizations);
  const auto scale = options.real("regularization_scale");
  check(regularization != MPSNNRegularizationTypeNone || scale == 0, name, ": regularization_scale (", scale,
        ") was given without regularization.");
  return
      [MPSNNOptimizerDescriptor optimizerDescriptorWithLearningRate:static_cast<float>(options.real("learning_rate"))
                                                    gradientRescale:static_cast<float>(options.real("gradient_rescale"))
                                              applyGradientClipping:clip.has_value()
                                                    gradientClipMax:static_cast<float>(max)
                                                    gradientClipMin:static_cast<float>(min)
                                                 regularizationType:static_cast<MPSNNRegularizationType>(regularization)
                                                regularizationScale:static_cast<float>(scale)];
}

MPSVector *vector_at(const std::vector<Vector> &remembered, std::size_t index) {
  return index < remembered.size() ? remembered[index].vector.get() : nil;
}

/// Set kernel, remembers and step.
using Make = void (*)(Optimizer::Impl &, id<MTLDevice>, const Options &, MPSNNOptimizerDescriptor *);

void make_descent(Optimizer::Impl &made, id<MTLDevice> device, const Options &options,
                  MPSNNOptimizerDescriptor *descriptor) {
  const auto momentum = options.real("momentum_scale");
  made.kernel = Ref<MPSNNOptimizer *>::adopt([[MPSNNOptimizerStochasticGradientDescent alloc]
           initWithDevice:device
            momentumScale:static_cast<float>(momentum)
      useNesterovMomentum:options.boolean("use_nesterov_momentum")
      optimizerDescriptor:descriptor]);
  if (momentum != 0) made.remembers = {"momentum"};
  made.step = [](MPSNNOptimizer *given, id<MTLCommandBuffer> commands, MPSVector *gradient, MPSVector *values,
                 const std::vector<Vector> &remembered, std::int64_t) {
    [static_cast<MPSNNOptimizerStochasticGradientDescent *>(given) encodeToCommandBuffer:commands
                                                                     inputGradientVector:gradient
                                                                       inputValuesVector:values
                                                                     inputMomentumVector:vector_at(remembered, 0)
                                                                      resultValuesVector:values];
  };
}

void make_rms_prop(Optimizer::Impl &made, id<MTLDevice> device, const Options &options,
                   MPSNNOptimizerDescriptor *descriptor) {
  const auto decay = options.real("decay");
  check(decay >= 0 && decay <= 1, made.name, ": decay (", decay, ") is not between 0 and 1.");
  made.kernel = Ref<MPSNNOptimizer *>::adopt([[MPSNNOptimizerRMSProp alloc]
           initWithDevice:device
                    decay:decay
                  epsilon:static_cast<float>(options.real("epsilon", 0))
      optimizerDescriptor:descriptor]);
  made.remembers = {"sum_of_squares"};
  made.step = [](MPSNNOptimizer *given, id<MTLCommandBuffer> commands, MPSVector *gradient, MPSVector *values,
                 const std::vector<Vector> &remembered, std::int64_t) {
    [static_cast<MPSNNOptimizerRMSProp *>(given) encodeToCommandBuffer:commands
                                                   inputGradientVector:gradient
                                                     inputValuesVector:values
                                               inputSumOfSquaresVector:vector_at(remembered, 0)
                                                    resultValuesVector:values];
  };
}

void make_adam(Optimizer::Impl &made, id<MTLDevice> device, const Options &options,
               MPSNNOptimizerDescriptor *descriptor) {
  const auto beta = [&](const char *which) {
    const auto value = options.real(which);
    check(value >= 0 && value < 1, made.name, ": ", which, " (", value, ") is not at least 0 and less than 1.");
    return value;
  };
  made.kernel = Ref<MPSNNOptimizer *>::adopt([[MPSNNOptimizerAdam alloc]
           initWithDevice:device
                    beta1:beta("beta1")
                    beta2:beta("beta2")
                  epsilon:static_cast<float>(options.real("epsilon", 0))
                 timeStep:0
      optimizerDescriptor:descriptor]);
  made.remembers = {"momentum", "velocity"};
  if (options.boolean("amsgrad")) made.remembers.push_back("maximum_velocity");  // divide by the max so far
  made.step = [](MPSNNOptimizer *given, id<MTLCommandBuffer> commands, MPSVector *gradient, MPSVector *values,
                 const std::vector<Vector> &remembered, std::int64_t count) {
    auto *adam = static_cast<MPSNNOptimizerAdam *>(given);
    adam.timeStep = static_cast<NSUInteger>(count);
    [adam encodeToCommandBuffer:commands
            inputGradientVector:gradient
              inputValuesVector:values
            inputMomentumVector:vector_at(remembered, 0)
            inputVelocityVector:vector_at(remembered, 1)
          maximumVelocityVector:vector_at(remembered, 2)
             resultValuesVector:values];
  };
}

constexpr std::pair<const char *, Make> kOptimizers[] = {
    {"OptimizerAdam", make_adam},
    {"OptimizerRMSProp", make_rms_prop},
    {"OptimizerStochasticGradientDescent", make_descent},
};

}  // namespace

std::shared_ptr<Optimizer> Optimizer::make(std::shared_ptr<Device> device, std::string_view name,
                                           const Params &params) {
  const auto *found = std::ranges::find(kOptimizers, name, [](const auto &one) { return std::string_view(one.first); });
  check<KeyError>(found != std::end(kOptimizers), "there is no optimizer \"", name, "\".");
  return guard([&] {
    auto impl = std::unique_ptr<Impl>(new Impl{found->first, device, params});
    const Options options(impl->name, params);
    found->second(*impl, device->impl().device.get(), options, descriptor_of(impl->name, options));
    check<NotImplementedError>(static_cast<bool>(impl->kernel), name, ": the device has no such optimizer.");
    return std::make_shared<Optimizer>(std::move(impl));
  });
}

Optimizer::Optimizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Optimizer::~Optimizer() {
  Pool pool;
  impl_.reset();
}

const char *Optimizer::name() const { return impl_->name; }
std::shared_ptr<Device> Optimizer::device() const { return impl_->device; }

double Optimizer::learning_rate() const {
  const std::scoped_lock lock(impl_->mutex);
  return Options(impl_->name, impl_->options).real("learning_rate");
}

void Optimizer::set_learning_rate(double rate) {
  const Params set = {{"learning_rate", rate}};
  Options(impl_->name, set).real("learning_rate");
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    [impl_->kernel.get() setLearningRate:static_cast<float>(rate)];
    impl_->options["learning_rate"] = rate;
  });
}

namespace {

std::int64_t elements(const Extents &shape) {
  std::int64_t count = 1;
  for (auto extent : shape) count *= extent;
  return count;
}

Ref<MPSVector *> vector_on(id<MTLBuffer> buffer, std::int64_t count) {
  auto *descriptor = [MPSVectorDescriptor vectorDescriptorWithLength:static_cast<NSUInteger>(count)
                                                            dataType:MPSDataTypeFloat32];
  auto vector = Ref<MPSVector *>::adopt([[MPSVector alloc] initWithBuffer:buffer descriptor:descriptor]);
  check<std::runtime_error>(static_cast<bool>(vector), "Optimizer: the device cannot make a vector of ", count,
                            " float32.");
  return vector;
}

Vector vector_of(std::shared_ptr<Buffer> buffer, const Extents &shape) {
  auto vector = vector_on(buffer->impl().buffer.get(), elements(shape));
  return {std::move(buffer), std::move(vector)};
}

/// Return a parameter over the buffer with `shape`; without one, over the whole buffer.
Parameter parameter(const Optimizer &optimizer, const char *name, const std::shared_ptr<Buffer> &values,
                    Extents shape = {}) {
  const auto &device = *optimizer.device();
  const char *const shown = *name ? name : "values";
  check_same_device(*values->impl().device, device, shown);
  check(values->bytes() % sizeof(float) == 0, optimizer.name(), ": ", shown, " has ", values->bytes(),
        " bytes, not a multiple of ", sizeof(float), ".");
  if (shape.empty()) shape = {static_cast<std::int64_t>(values->bytes() / sizeof(float))};
  Parameter made{name, shape, vector_of(values, shape), {}};
  for (std::size_t i = 0; i < optimizer.impl().remembers.size(); ++i) {
    const auto bytes = static_cast<std::uint64_t>(elements(shape)) * sizeof(float);
    made.remembered.push_back(vector_of(Buffer::make(optimizer.device(), bytes), shape));
  }
  return made;
}

/// Gradient of one parameter, or a part of it.
struct Gradient {
  id<MTLBuffer> buffer;
  std::int64_t count;
  std::string name;
};

/// Return one part per MPS state; their sum is the gradient.
std::vector<Gradient> gradient_of(const Optimizer &optimizer, const GradientState::Impl &state, std::string_view name) {
  const auto found = std::ranges::find(state.values, name, &StateValues::name);
  check<TypeError>(found != state.values.end(), optimizer.name(), ": gradient is the state of ", state.maker,
                   ", which has no ", name, ".");
  check_complete(state, optimizer.name(), name, "gradient");
  std::vector<Gradient> parts;
  for (MPSState *one : state.distinct())
    parts.push_back({[one performSelector:found->selector], elements(found->shape), say(name, " of gradient")});
  return parts;
}

/// Parts of each parameter's gradient, to be summed.
using Parts = std::vector<std::vector<Gradient>>;

/// Return the gradients of weights and biases, or of gamma and beta.
Parts gradients_of(const Optimizer &optimizer, const GradientState &state, std::array<std::string_view, 2> names,
                   std::size_t count) {
  check_same_device(*state.device(), *optimizer.device(), "gradient");
  const auto &impl = state.impl();
  const std::scoped_lock lock(impl.mutex);
  Parts gradients;
  for (std::size_t i = 0; i < count; ++i) gradients.push_back(gradient_of(optimizer, impl, names[i]));
  return gradients;
}

Parts gradients_of(const Optimizer &optimizer, const BatchNormalizationState &state) {
  check_same_device(*state.device(), *optimizer.device(), "gradient");
  const auto &impl = state.impl();
  const std::scoped_lock lock(impl.mutex);
  check<std::runtime_error>(impl.has_gradients, optimizer.name(),
                            ": no gradients of the statistics have been encoded to gradient.");
  check<std::runtime_error>(!impl.has_ended, optimizer.name(),
                            ": gradient is temporary, of an update() that has returned.");
  return {{{[impl.state.get() gradientForGamma], impl.channels, "grad_gamma of gradient"}},
          {{[impl.state.get() gradientForBeta], impl.channels, "grad_beta of gradient"}}};
}

Parts gradients_of(const Optimizer &optimizer, const Gradients &given, const OptimizerState::Impl &state) {
  const std::size_t count = state.parameters.size();
  const auto *gradient = std::get_if<std::shared_ptr<GradientState>>(&given);
  if (std::holds_alternative<std::shared_ptr<Buffer>>(state.values)) {
    const auto *buffer = std::get_if<std::shared_ptr<Buffer>>(&given);
    check<TypeError>(buffer, optimizer.name(), ": gradient is not a Buffer, and the values of state are one.");
    check_same_device(*(*buffer)->impl().device, *optimizer.device(), "gradient");
    const auto count = static_cast<std::int64_t>((*buffer)->bytes() / sizeof(float));
    return {{{(*buffer)->impl().buffer.get(), count, "gradient"}}};
  }
  if (std::holds_alternative<std::shared_ptr<ConvolutionWeightsAndBiasesState>>(state.values)) {
    check<TypeError>(gradient, optimizer.name(),
                     ": gradient is not a GradientState, and the values of state are those of a convolution.");
    return gradients_of(optimizer, **gradient, {"grad_weight", "grad_bias"}, count);
  }
  if (gradient) return gradients_of(optimizer, **gradient, {"grad_gamma", "grad_beta"}, count);
  const auto *batch = std::get_if<std::shared_ptr<BatchNormalizationState>>(&given);
  check<TypeError>(batch, optimizer.name(),
                   ": gradient is neither a GradientState nor a BatchNormalizationState, and the values of state are "
                   "gamma and beta.");
  return gradients_of(optimizer, **batch);
}

/// Return the kernel that adds vectors: gradient descent with a learning rate of -1, the only kernel of vectors in MPS.
MPSNNOptimizerStochasticGradientDescent *adder_of(const Optimizer &optimizer) {
  auto &adder = optimizer.impl().adder;
  if (adder) return adder.get();
  adder = Ref<MPSNNOptimizerStochasticGradientDescent *>::adopt([[MPSNNOptimizerStochasticGradientDescent alloc]
      initWithDevice:optimizer.device()->impl().device.get()
        learningRate:-1.0F]);
  check<NotImplementedError>(static_cast<bool>(adder), optimizer.name(), ": the device cannot add gradients.");
  return adder.get();
}

/// Add `values` and `more` into `sum`, which may already hold `values`.
Gradient sum_of(const Optimizer &optimizer, id<MTLCommandBuffer> commands, Vector &sum, const Gradient &values,
                const Gradient &more) {
  if (!sum.buffer) {
    const auto bytes = static_cast<std::uint64_t>(values.count) * sizeof(float);
    sum = vector_of(Buffer::make(optimizer.device(), bytes), {values.count});
  }
  [adder_of(optimizer) encodeToCommandBuffer:commands
                         inputGradientVector:vector_on(more.buffer, more.count).get()
                           inputValuesVector:vector_on(values.buffer, values.count).get()
                         inputMomentumVector:nil
                          resultValuesVector:sum.vector.get()];
  return {sum.buffer->impl().buffer.get(), values.count, values.name};
}

}  // namespace

std::shared_ptr<OptimizerState> Optimizer::state_for(const OptimizedValues &values) {
  return guard([&] {
    auto impl = std::unique_ptr<OptimizerState::Impl>(new OptimizerState::Impl{shared_from_this(), values});
    auto &parameters = impl->parameters;
    std::visit(
        [&](const auto &given) {
          using Given = std::decay_t<decltype(*given)>;
          if constexpr (std::is_same_v<Given, Buffer>) {
            parameters.push_back(parameter(*this, "", given));
          } else if constexpr (std::is_same_v<Given, ConvolutionWeightsAndBiasesState>) {
            parameters.push_back(parameter(*this, "weights", given->weights, given->shape));
            if (given->biases) parameters.push_back(parameter(*this, "biases", given->biases));
          } else {
            parameters.push_back(parameter(*this, "gamma", given->gamma));
            parameters.push_back(parameter(*this, "beta", given->beta));
          }
        },
        values);
    return std::make_shared<OptimizerState>(std::move(impl));
  });
}

void Optimizer::encode(CommandBuffer &buffer, const Gradients &gradients, OptimizerState &state) const {
  const char *const name = impl_->name;
  auto &to = state.impl();
  check_open(buffer, *impl_->device, name);
  check(to.optimizer.get() == this, name, ": state is that of another optimizer (", to.optimizer->name(), ").");
  guard([&] {
    Parts parts(to.parameters.size());
    const auto add = [&](const Parts &given) {
      for (std::size_t i = 0; i < parts.size(); ++i) parts[i].insert(parts[i].end(), given[i].begin(), given[i].end());
    };
    if (const auto *states = std::get_if<std::vector<std::shared_ptr<GradientState>>>(&gradients)) {
      check(!states->empty(), name, ": gradient is an empty sequence.");
      for (auto one = states->begin(); one != states->end(); ++one) {
        check(std::find(states->begin(), one, *one) == one, name, ": gradient has the same state twice.");
        add(gradients_of(*this, *one, to));
      }
    } else {
      add(gradients_of(*this, gradients, to));
    }
    for (std::size_t i = 0; i < parts.size(); ++i)
      for (const auto &[values, count, shown] : parts[i]) {
        const auto &parameter = to.parameters[i];
        check(count == elements(parameter.shape), name, ": ", shown, " has ", count, " elements; ",
              *parameter.name ? parameter.name : "values", " of state has ", elements(parameter.shape), ".");
        check(values != parameter.values.buffer->impl().buffer.get(), name, ": gradient is the buffer of the values.");
      }
    const std::scoped_lock lock(impl_->mutex, to.mutex);
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      auto &parameter = to.parameters[i];
      Gradient gradient = parts[i][0];
      for (std::size_t part = 1; part < parts[i].size(); ++part)
        gradient = sum_of(*this, commands, parameter.sum, gradient, parts[i][part]);
      impl_->step(impl_->kernel.get(), commands, vector_on(gradient.buffer, gradient.count).get(),
                  parameter.values.vector.get(), parameter.remembered, to.time_step);
      synchronize(parameter.values.vector.get(), commands);  // the device chooses the storage mode of a state's buffers
    }
    ++to.time_step;
    to.writer.set(commands);
  });
}

OptimizerState::OptimizerState(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OptimizerState::~OptimizerState() {
  Pool pool;
  impl_.reset();
}

std::int64_t OptimizerState::time_step() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->time_step;
}

void OptimizerState::set_time_step(std::int64_t step) {
  constexpr std::int64_t most = std::int64_t{1} << 53;  // integers up to here are exact in a double
  check(step >= 0, "OptimizerState: time_step (", step, ") is less than the minimum (0).");
  check(step <= most, "OptimizerState: time_step (", step, ") is greater than the maximum (", most, ").");
  const std::scoped_lock lock(impl_->mutex);
  impl_->time_step = step;
}

std::vector<OptimizerState::Remembered> OptimizerState::remembered() const {
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    check_written(impl_->writer, "OptimizerState");
    std::vector<Remembered> all;
    const auto &names = impl_->optimizer->impl().remembers;
    for (const auto &parameter : impl_->parameters)
      for (std::size_t i = 0; i < names.size(); ++i)
        all.push_back({say(parameter.name, *parameter.name ? "." : "", names[i]), parameter.remembered[i].buffer,
                       parameter.shape});
    return all;
  });
}

std::shared_ptr<Optimizer> OptimizerState::optimizer() const { return impl_->optimizer; }
OptimizedValues OptimizerState::values() const { return impl_->values; }

}  // namespace mpscnn

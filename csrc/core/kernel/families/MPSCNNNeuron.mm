// SPDX-License-Identifier: Apache-2.0
// MPSCNNNeuron, its subclasses and MPSCNNNeuronGradient.
#include "core/kernel/families/family.hh"

#include <locale>
#include <sstream>

#include <mpscnn/error.hpp>

namespace mpscnn {
namespace {

/// Return the row's default of a number, 0 without such a parameter. Locale-independent.
double fallback(const KernelRow &row, const char *name) {
  const auto *spec = find_param(row, name);
  if (spec == nullptr) return 0;
  std::istringstream digits{std::string(spec->fallback)};
  digits.imbue(std::locale::classic());
  double value = 0;
  digits >> value;
  return value;
}

NeuronDescriptor describe(const KernelRow &row, const Params &params) {
  NeuronDescriptor neuron;
  // The general class has no defaults; they come from the named type.
  const auto *named = row.variant >= 0 ? nullptr : find_neuron(text(params, "type", ""));
  neuron.type = named ? named->type : row.variant;
  const bool is_prelu = neuron.type == MPSCNNNeuronTypePReLU;
  if (const auto slopes = array(params, row.variant >= 0 && is_prelu ? "a" : "data"); slopes && is_prelu) {
    neuron.data = to_floats(*slopes, say(row.name, ": slopes"));
    check(!neuron.data.empty(), row.name, ": the number of slopes (0) is less than the minimum (1).");
    return neuron;
  }
  check(!is_prelu, row.name, ": data (None) is missing for type \"prelu\".");
  check(!has(params, "data"), row.name, ": data was given for a type other than \"prelu\".");
  const auto parameter = [&](const char *name, float NeuronName::*by_name) {
    return static_cast<float>(real(params, name, named ? named->*by_name : fallback(row, name)));
  };
  neuron.a = parameter("a", &NeuronName::a);
  neuron.b = parameter("b", &NeuronName::b);
  neuron.c = parameter("c", &NeuronName::c);
  return neuron;
}

}  // namespace

static FamilyKernel make_neuron(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.neuron = describe(row, params);
  made.kernel =
      Ref<MPSKernel *>::adopt([static_cast<MPSCNNNeuron *>([kind alloc]) initWithDevice:device
                                                                       neuronDescriptor:objc_neuron(made.neuron)]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  return made;
}

namespace {

FamilyKernel make_neuron_gradient(id<MTLDevice> device, const KernelRow &row, const NeuronDescriptor &neuron) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.neuron = neuron;
  made.kernel = Ref<MPSKernel *>::adopt([static_cast<MPSCNNNeuronGradient *>([kind alloc])
        initWithDevice:device
      neuronDescriptor:objc_neuron(made.neuron)]);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  return made;
}

}  // namespace

static FamilyKernel make_neuron_gradient(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  return make_neuron_gradient(device, row, activation(params, "activation"));
}

static FamilyKernel make_gradient_of_neuron(id<MTLDevice> device, const KernelRow &row, const FamilyKernel &forward,
                                            std::size_t) {
  return make_neuron_gradient(device, row, forward.neuron);
}

static const RegisteredFamily kNeuron("neuron", {.make = &make_neuron});
static const RegisteredFamily kNeuronGradient("neuron_gradient", {.make = &make_neuron_gradient,
                                                                  .make_gradient = &make_gradient_of_neuron});

}  // namespace mpscnn

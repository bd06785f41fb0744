// SPDX-License-Identifier: Apache-2.0
// One function per topic, called by module.cpp.
#pragma once

#include <functional>
#include <memory>

#include <pybind11/pybind11.h>

#include <mpscnn/device.hpp>
#include <mpscnn/padding_policy.hpp>
#include <mpscnn/source.hpp>
#include <mpscnn/table.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

void bind_error(py::module_& module);
void bind_weights(py::module_& module);
void bind_table(py::module_& module);
void bind_device(py::module_& module);
void bind_buffer(py::module_& module);
void bind_command_buffer(py::module_& module);
void bind_image(py::module_& module);
void bind_image_conversion(py::module_& module);
void bind_loss(py::module_& module);
void bind_forward_loss(py::module_& module);
void bind_matrix(py::module_& module);
void bind_descriptor(py::module_& module);
void bind_data_source(py::module_& module);
void bind_state(py::module_& module);
void bind_kernel(py::module_& module);
void bind_network(py::module_& module);
void bind_optimizer(py::module_& module);
void bind_profile(py::module_& module);

/// To be called inside `catch (...)` of functions that pybind11 does not wrap: sets the Python error.
void set_python_error() noexcept;

/// A Python callable as a handler of completed work, on whatever thread that ends; what it raises goes to
/// sys.unraisablehook. Empty for None. TypeError for what cannot be called.
std::function<void()> completed_handler(const py::object& handler);

/// The device, or the default one for None.
std::shared_ptr<Device> device_or_default(const std::shared_ptr<Device>& device);

/// A Python argument as the Value its spec asks for. Throws TypeError with the row's and the parameter's name.
Value value_of(const KernelRow& row, const ParamSpec& spec, py::handle object);
py::object to_python(const ParamSpec& spec, const Value& value);

/// An activation argument: None, a name, a NeuronDescriptor or a neuron kernel.
NeuronDescriptor neuron_from(py::handle object);

/// The C++ side of a Python object with load(), purge(), descriptor and weights; empty if it is none.
std::shared_ptr<DataSource> data_source_of(py::handle object);

/// The same of one with load(), purge(), channels and gamma.
std::shared_ptr<NormalizationSource> normalization_source_of(py::handle object);

/// The C++ side of a Python object with destination(), no class; empty if it is none.
std::shared_ptr<PaddingPolicy> padding_policy_of(py::handle object);

/// The object that Python gave; its reference is the one that the policy owns. Null for a null pointer.
py::handle to_python(const std::shared_ptr<PaddingPolicy>& policy);

/// What Python gave for it, or the built-in one; None for none.
py::object to_python(const std::shared_ptr<Source>& source);

}  // namespace mpscnn::bindings

// SPDX-License-Identifier: Apache-2.0
// One function per topic, called by module.cpp.
#pragma once

#include <functional>
#include <memory>

#include <pybind11/pybind11.h>

#include <mpscnn/device.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/padding_policy.hpp>
#include <mpscnn/source.hpp>
#include <mpscnn/table.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn::bindings {

namespace py = pybind11;

void bind_weights(py::module_& module);
void bind_table(py::module_& module);
void bind_device(py::module_& module);
void bind_buffer(py::module_& module);
void bind_device_array(py::module_& module);
void bind_command_buffer(py::module_& module);
void bind_image(py::module_& module);
void bind_image_conversion(py::module_& module);
void bind_loss(py::module_& module);
void bind_metal_function(py::module_& module);
void bind_graph(py::module_& module);
void bind_forward_loss(py::module_& module);
void bind_matrix(py::module_& module);
void bind_descriptor(py::module_& module);
void bind_data_source(py::module_& module);
void bind_state(py::module_& module);
void bind_kernel(py::module_& module);
void bind_network(py::module_& module);
void bind_optimizer(py::module_& module);
void bind_training_plan(py::module_& module);
void bind_profile(py::module_& module);

/// Set the Python error inside `catch (...)` of functions that pybind11 does not wrap.
void set_python_error() noexcept;

/// Wrap a Python callable as a completion handler that may run on any thread; its exceptions go to sys.unraisablehook.
/// Return an empty function for None. Throw TypeError if the object is not callable.
std::function<void()> completed_handler(const py::object& handler);

/// Return `device`, or the default device if null.
std::shared_ptr<Device> device_or_default(const std::shared_ptr<Device>& device);

/// Return an array of the image's pixels (N, H, W, C), over its memory if that can be shared.
py::object numpy_of(const std::shared_ptr<Image>& image);

/// Convert a Python argument to the Value of its spec. Throw TypeError with the names of row and parameter.
Value value_of(const KernelRow& row, const ParamSpec& spec, py::handle object);
/// Convert arguments by name. Throw KeyError for a name that the row does not have.
Params params_from(const KernelRow& row, const py::dict& arguments);
py::object to_python(const ParamSpec& spec, const Value& value);

/// Convert the options of an optimizer or a loss, which checks them: None, bool, numbers, str, sequences of numbers.
Params options_from(const py::dict& options);

/// Convert an activation argument: None, a name, a NeuronDescriptor or a neuron kernel.
NeuronDescriptor neuron_from(py::handle object);

/// Return the C++ side of a Python object with load(), purge(), descriptor and weights; null for other objects.
std::shared_ptr<DataSource> data_source_of(py::handle object);

/// The same for objects with load(), purge(), channels and gamma.
std::shared_ptr<NormalizationSource> normalization_source_of(py::handle object);

/// Return the C++ side of a Python object, not a class, with destination(); null for other objects.
std::shared_ptr<PaddingPolicy> padding_policy_of(py::handle object);

/// Return the Python object of a policy, borrowed from the policy; null for a null pointer.
py::handle to_python(const std::shared_ptr<PaddingPolicy>& policy);

/// Return the Python object of a data source, or the built-in one; None for null.
py::object to_python(const std::shared_ptr<Source>& source);

}  // namespace mpscnn::bindings

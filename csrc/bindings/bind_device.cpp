// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/device.hpp>

#include <functional>

#include <pybind11/stl.h>

#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {

std::shared_ptr<Device> device_or_default(const std::shared_ptr<Device>& device) {
  return device ? device : Device::system_default();
}

void bind_device(py::module_& module) {
  py::class_<Device, std::shared_ptr<Device>>(module, "Device", R"(A Metal device with its own command queue.

    ``Device()`` is the system's default device; ``Device.all()`` lists all of them. Devices are equal when they are the same
    one.

    Raises
    ------
    RuntimeError
        "Device: this machine has no Metal device."
    NotImplementedError
        "Device: … has memory of its own, …": arrays and buffers are the CPU's, and the GPU must see them.

    Source
    ------
    Metal/MTLDevice.h, MTLDevice. Linux: openmps.)")
      .def(py::init([] { return Device::system_default(); }))
      .def_static("all", &Device::all, "list of Device: the default one first; those whose memory is the CPU's.")
      .def_property_readonly("name", &Device::name, "str: name of the device.")
      .def_property_readonly("allocated_bytes", &Device::allocated_bytes, "int, bytes: memory in use on the device.")
      .def_property_readonly("peak_bytes", &Device::peak_bytes,
                             "int, bytes: max of allocated_bytes since reset_peak_bytes().")
      .def("reset_peak_bytes", &Device::reset_peak_bytes, "Reset peak_bytes to allocated_bytes.")
      .def_property_readonly(
          "cached_bytes", &Device::cached_bytes,
          "int, bytes: free memory cached for later; NotImplementedError if the device does not report it.")
      .def("free_cached_bytes", &Device::free_cached_bytes, py::call_guard<ReleaseGil>(),
           "Return cached memory to the system; NotImplementedError likewise.")
      .def_property_readonly("recommended_max_working_set_bytes", &Device::recommended_max_working_set_bytes,
                             "int, bytes: no image may be larger.")
      .def_property_readonly("max_buffer_bytes", &Device::max_buffer_bytes, "int, bytes: no buffer may be larger.")
      .def_property_readonly("shares_images", &Device::shares_images,
                             "bool: whether images can share the memory of arrays.")
      .def_property_readonly("is_supported", &Device::is_supported, "bool: MPSSupportsMTLDevice.")
      .def("_set_most_work", &Device::set_most_work, py::arg("multiply_adds"))
      .def("__eq__",
           [](const Device& device, const py::object& other) {
             return py::isinstance<Device>(other) && &device == other.cast<const Device*>();
           })
      .def("__hash__", [](const Device& device) { return std::hash<const void*>{}(&device); })
      .def("__repr__", [](const Device& device) { return "<mpscnn.Device \"" + device.name() + "\">"; });
}

}  // namespace mpscnn::bindings

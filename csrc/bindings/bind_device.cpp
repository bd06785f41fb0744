// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/device.hpp>

#include <functional>

#include "arguments.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {

std::shared_ptr<Device> device_or_default(const std::shared_ptr<Device>& device) {
  return device ? device : Device::system_default();
}

void bind_device(py::module_& module) {
  py::class_<Device, std::shared_ptr<Device>> kind(module, "_Device");
  kind.def(py::init([] { return Device::system_default(); }))
      .def_static("_all", &Device::all)
      .def_property_readonly("name", &Device::name, "Name of the device.")
      .def_property_readonly("allocated_bytes", &Device::allocated_bytes, "Memory in use on the device.")
      .def_property_readonly("peak_bytes", &Device::peak_bytes, "Max of allocated_bytes since reset_peak_bytes().")
      .def("_reset_peak_bytes", &Device::reset_peak_bytes)
      .def_property_readonly(
          "cached_bytes", &Device::cached_bytes,
          "Free memory cached for later; raises NotImplementedError if the device does not report it.")
      .def("_free_cached_bytes", &Device::free_cached_bytes, py::call_guard<ReleaseGil>())
      .def_property_readonly("recommended_max_working_set_bytes", &Device::recommended_max_working_set_bytes,
                             "No image may be larger.")
      .def_property_readonly("max_buffer_bytes", &Device::max_buffer_bytes, "No buffer may be larger.")
      .def_property_readonly("shares_images", &Device::shares_images, "Whether images can share the memory of arrays.")
      .def_property_readonly("is_supported", &Device::is_supported, "Whether MPSSupportsMTLDevice() is true.")
      .def("_set_most_work", &Device::set_most_work)
      .def("__eq__",
           [](const Device& device, const py::object& other) {
             return py::isinstance<Device>(other) && &device == other.cast<const Device*>();
           })
      .def("__hash__", [](const Device& device) { return std::hash<const void*>{}(&device); });
  kind.def("__repr__", [](const Device& device) { return "<mpscnn.Device \"" + device.name() + "\">"; });
}

}  // namespace mpscnn::bindings

// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/error.hpp>

#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {

void bind_device_array(py::module_& module) {
  py::class_<DeviceArray, std::shared_ptr<DeviceArray>> kind(module, "_DeviceArray");
  kind.def_property_readonly(
          "shape", [](const DeviceArray& array) { return py::tuple(py::cast(array.view.shape)); }, "Extents.")
      .def_property_readonly(
          "strides", [](const DeviceArray& array) { return py::tuple(py::cast(array.view.strides)); }, "In bytes.")
      .def_property_readonly(
          "dtype", [](const DeviceArray& array) { return numpy_dtype(array.view.dtype); }, "The type of the values.")
      .def_property_readonly(
          "device", [](const DeviceArray& array) { return array.device; }, "The device that has the memory.")
      .def_property_readonly("_address",
                             [](const DeviceArray& array) { return reinterpret_cast<std::uintptr_t>(array.view.data); })
      .def_property_readonly("_is_read_only", [](const DeviceArray& array) { return array.view.read_only; })
      .def_property_readonly(
          "_dlpack_device",
          [](const DeviceArray& array) { return py::make_tuple(array.view.space.type, array.view.space.number); })
      .def("_numpy",
           [](const DeviceArray& array) {
             ArrayView copy;
             {
               const ReleaseGil release;
               copy = array.device->to_host(array.view);
             }
             return array_from(copy);
           })
      .def("_capsule", [](const DeviceArray& array, bool is_versioned, std::uintptr_t stream) {
        return capsule_of(lend(array.view, array.device, stream), is_versioned);
      });
}

}  // namespace mpscnn::bindings

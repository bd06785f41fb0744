// SPDX-License-Identifier: Apache-2.0
// _core._Profile: what mpscnn.profile() collects.
#include <mpscnn/profile.hpp>

#include "bindings.hpp"

namespace mpscnn::bindings {

void bind_profile(py::module_& module) {
  py::class_<Profile, std::shared_ptr<Profile>>(module, "_Profile", "Times of command buffers.")
      .def(py::init<bool>(), py::arg("per_kernel"))
      .def("start", &Profile::start)
      .def("stop", &Profile::stop)
      .def(
          "events",
          [](const Profile& profile) {
            py::list list;
            for (const auto& e : profile.events())
              list.append(py::make_tuple(e.name, e.kernel, e.kind, e.start, e.end, e.command_buffer, e.thread));
            return list;
          },
          "(name, kernel, kind, start, end, command_buffer, thread) of each, in the order in which they ended.");
}

}  // namespace mpscnn::bindings

// SPDX-License-Identifier: Apache-2.0
// C++ exceptions of the core as Python exceptions; the mapping is set_python_error()'s.
#include <exception>

#include "bind_array.hpp"
#include "bindings.hpp"

namespace mpscnn::bindings {

void bind_error(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (...) {
      set_python_error();
    }
  });
}

}  // namespace mpscnn::bindings

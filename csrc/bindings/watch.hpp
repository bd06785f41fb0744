// SPDX-License-Identifier: Apache-2.0
// Arrays that may be pages of mapped files, watched apart from a view.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include <mpscnn/watched_memory.hpp>

namespace mpscnn::bindings {

/// Of a NumPy array of any dtype, or a buffer of bytes; null if it cannot be a mapped file's. Does not keep it alive.
std::shared_ptr<const WatchedMemory> watch_array(pybind11::handle array);

}  // namespace mpscnn::bindings

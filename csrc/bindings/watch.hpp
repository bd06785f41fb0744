// SPDX-License-Identifier: Apache-2.0
// Watching of arrays that may be memory-mapped files, independent of views.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include <mpscnn/watched_memory.hpp>

namespace mpscnn::bindings {

/// Watch a NumPy array of any dtype or a buffer of bytes. Return null if it cannot be a mapped file. Does not keep it
/// alive.
std::shared_ptr<const WatchedMemory> watch_array(pybind11::handle array);

}  // namespace mpscnn::bindings

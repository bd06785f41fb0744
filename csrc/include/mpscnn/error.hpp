// SPDX-License-Identifier: Apache-2.0
// The exception types of the core, one per Python exception, and the functions that build their messages.
// std::invalid_argument -> ValueError, std::bad_alloc -> MemoryError, std::runtime_error -> RuntimeError; the types
// below -> the Python exception in their comment (bindings/bind_error.cpp).
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace mpscnn {

/// A value of the wrong kind (dtype, not an array, ...): TypeError.
struct TypeError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// Memory that cannot be shared as requested: BufferError.
struct BufferError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The platform or engine lacks the class or method: NotImplementedError.
struct NotImplementedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An unknown kernel or parameter: KeyError.
struct KeyError : std::out_of_range {
  using std::out_of_range::out_of_range;
};

/// Not enough memory; the message has the sizes: MemoryError.
struct MemoryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Concatenate the parts of a message: `say("x.ndim (", n, ") is not 4.")`.
template <class... Parts>
std::string say(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Throw `Error` with the message unless `condition` holds.
template <class Error = std::invalid_argument, class... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) throw Error(say(parts...));
}

}  // namespace mpscnn

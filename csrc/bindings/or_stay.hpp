// SPDX-License-Identifier: Apache-2.0
// Calls on threads that Python terminates.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

namespace mpscnn::bindings {

/// Run `call`; a thread that Python terminates in it blocks forever instead. During finalization, Python terminates
/// threads that reacquire the GIL, including those that release an object whose destructor releases the GIL, such as an
/// mmap. Not sanitized: the exception by which glibc terminates a thread is not an object, and catching a reference to
/// it looks like a null reference.
template <class Call>
__attribute__((no_sanitize("undefined"))) void or_stay(const Call& call) {
#if defined(__GLIBCXX__)
  try {
    call();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
#else
  call();
#endif
}

}  // namespace mpscnn::bindings

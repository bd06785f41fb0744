// SPDX-License-Identifier: Apache-2.0
// Destructors on threads that Python ends.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

namespace mpscnn::bindings {

/// Runs `call`; a thread that Python ends in it stays there. Python ends threads that want the GIL back once the
/// interpreter ends: those that release an object, too, if that lets go of the GIL meanwhile, as an mmap does. Not
/// sanitized: the exception by which glibc ends a thread is no object, and catching a reference to it looks like a null
/// reference.
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

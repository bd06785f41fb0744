// SPDX-License-Identifier: Apache-2.0
// oneDNN's static objects must outlive the threads that compute with them. Nearly every kind of primitive, and every
// instruction set it is compiled for, has some; they are made on first use, so exit() would destroy them before
// anything that was registered earlier could stop the computing threads. The build renames __cxa_atexit to this
// function in its copy of the library (cmake/OneDNN.cmake).

/// Replaces __cxa_atexit [Itanium C++ ABI, 3.3.6.3]: the object is never destroyed.
extern "C" __attribute__((visibility("default"))) int openmps___cxa_atexit(void (*)(void*), void*, void*) noexcept {
  return 0;
}

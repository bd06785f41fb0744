// SPDX-License-Identifier: Apache-2.0
// oneDNN's static objects outlive the threads that compute with them. Nearly every kind of primitive, and every
// instruction set it is compiled for, has some; they are made at its first use, so that exit() would destroy them
// before anything that was registered earlier could hold back the threads that compute. The build gives __cxa_atexit
// this name in its copy of the library (cmake/OneDNN.cmake).

/// Takes the place of __cxa_atexit [Itanium C++ ABI, 3.3.6.3]: the object is never destroyed.
extern "C" __attribute__((visibility("default"))) int openmps___cxa_atexit(void (*)(void*), void*, void*) noexcept {
  return 0;
}

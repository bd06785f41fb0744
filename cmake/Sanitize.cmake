# SPDX-License-Identifier: Apache-2.0
# MPSCNN_SANITIZE=address (ASan and UBSan) or thread: the interface target mpscnn_sanitize.
#
# Two compilers, one runtime: g++ and clang emit the same calls, and clang's runtime answers both. So the shared
# objects carry no runtime of their own; tools/sanitized.sh preloads clang's into Python.
add_library(mpscnn_sanitize INTERFACE)
if(MPSCNN_SANITIZE STREQUAL "address")
  target_compile_options(mpscnn_sanitize INTERFACE
    -fsanitize=address,undefined -fno-sanitize=vptr -fno-omit-frame-pointer -g1)
elseif(MPSCNN_SANITIZE STREQUAL "thread")
  target_compile_options(mpscnn_sanitize INTERFACE -fsanitize=thread -fno-omit-frame-pointer -g1)
elseif(MPSCNN_SANITIZE)
  message(FATAL_ERROR "MPSCNN_SANITIZE (${MPSCNN_SANITIZE}) is not address or thread.")
endif()

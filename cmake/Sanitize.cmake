# SPDX-License-Identifier: Apache-2.0
# MPSCNN_SANITIZE=address (ASan and UBSan) or thread: the interface targets mpscnn_sanitize, and
# mpscnn_sanitize_program for executables.
#
# Two compilers, one runtime: g++ and clang emit the same calls, and clang's runtime answers both. So the shared
# objects carry no runtime of their own; tools/sanitized.sh preloads clang's into Python.
add_library(mpscnn_sanitize INTERFACE)
add_library(mpscnn_sanitize_program INTERFACE)
if(MPSCNN_SANITIZE STREQUAL "address")
  target_compile_options(mpscnn_sanitize INTERFACE
    -fsanitize=address,undefined -fno-sanitize=vptr -fno-omit-frame-pointer -g1)
elseif(MPSCNN_SANITIZE STREQUAL "thread")
  target_compile_options(mpscnn_sanitize INTERFACE -fsanitize=thread -fno-omit-frame-pointer -g1)
elseif(MPSCNN_SANITIZE)
  message(FATAL_ERROR "MPSCNN_SANITIZE (${MPSCNN_SANITIZE}) is not address or thread.")
endif()

if(MPSCNN_SANITIZE AND NOT APPLE)
  # A program must resolve its symbols when it is linked, so it names the runtime that is preloaded anyway.
  string(REGEX REPLACE "^address$" "asan" kind "${MPSCNN_SANITIZE}")
  string(REGEX REPLACE "^thread$" "tsan" kind "${kind}")
  foreach(name IN ITEMS libclang_rt.${kind}-${CMAKE_SYSTEM_PROCESSOR}.so libclang_rt.${kind}.so)
    execute_process(COMMAND "${CMAKE_OBJCXX_COMPILER}" "-print-file-name=${name}"
                    OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(EXISTS "${runtime}")
      break()
    endif()
  endforeach()
  if(NOT EXISTS "${runtime}")
    message(FATAL_ERROR "clang's ${kind} runtime is missing (Debian 12: apt-get install libclang-rt-19-dev).")
  endif()
  cmake_path(GET runtime PARENT_PATH folder)
  target_link_libraries(mpscnn_sanitize_program INTERFACE "${runtime}")
  target_link_options(mpscnn_sanitize_program INTERFACE "LINKER:-rpath,${folder}")
elseif(MPSCNN_SANITIZE)
  target_link_options(mpscnn_sanitize INTERFACE -fsanitize=${MPSCNN_SANITIZE})
endif()

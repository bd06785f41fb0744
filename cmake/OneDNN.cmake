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

add_library(mpscnn_onednn SHARED IMPORTED)
add_library(mpscnn::onednn ALIAS mpscnn_onednn)
cmake_path(GET MPSCNN_ONEDNN_LIBRARY FILENAME MPSCNN_ONEDNN_SONAME)
set_target_properties(mpscnn_onednn PROPERTIES
  IMPORTED_LOCATION "${MPSCNN_ONEDNN_LIBRARY}"
  IMPORTED_SONAME "${MPSCNN_ONEDNN_SONAME}"
  INTERFACE_INCLUDE_DIRECTORIES "${MPSCNN_ONEDNN_INCLUDE}")

# SPDX-License-Identifier: Apache-2.0
# Objective-C++ on both platforms: the only file that knows which compiler, which runtime and where GNUstep is.
#
# Gives two interface targets:
#   mpscnn::objc    compile flags and libraries every .mm needs: compiler warnings, Foundation, the runtime
#   mpscnn::metal   <Metal/Metal.h> and <MetalPerformanceShaders/...>: Apple's frameworks, or the library `openmps`
#                   (filled in by the main CMakeLists.txt on Linux)
# and the lists MPSCNN_OBJC_FLAGS and MPSCNN_OBJC_LIBS, which `python -m mpscnn.config` repeats for other programs.

add_library(mpscnn_objc INTERFACE)
add_library(mpscnn::objc ALIAS mpscnn_objc)
add_library(mpscnn_metal INTERFACE)
add_library(mpscnn::metal ALIAS mpscnn_metal)

if(APPLE)
  enable_language(OBJCXX)
  set(MPSCNN_OBJC_FLAGS -fno-objc-arc)
  find_library(MPSCNN_FOUNDATION Foundation REQUIRED)
  find_library(MPSCNN_METAL Metal REQUIRED)
  find_library(MPSCNN_MPS MetalPerformanceShaders REQUIRED)
  # Programs without graphics of their own link it, or there may be no default device [Apple's documentation of
  # MTLCreateSystemDefaultDevice].
  find_library(MPSCNN_CORE_GRAPHICS CoreGraphics REQUIRED)
  set(MPSCNN_OBJC_LIBS "${MPSCNN_FOUNDATION}")
  target_link_libraries(mpscnn_metal INTERFACE "${MPSCNN_METAL}" "${MPSCNN_MPS}" "${MPSCNN_CORE_GRAPHICS}")
else()
  # Debian calls it clang++-19; elsewhere a newer plain clang++ is as good.
  find_program(MPSCNN_CLANGXX NAMES clang++-19 clang++-20 clang++-21 clang++ DOC "clang++ for Objective-C++")
  # GCC's Objective-C runtime: the newest compiler directory that has <objc/objc.h>.
  file(GLOB objc_headers /usr/lib/gcc/*/*/include/objc/objc.h)
  list(SORT objc_headers COMPARE NATURAL ORDER DESCENDING)
  list(FILTER objc_headers INCLUDE REGEX "/${CMAKE_SYSTEM_PROCESSOR}-[^/]*/[0-9.]+/")
  set(objc_header "")
  if(objc_headers)
    list(GET objc_headers 0 objc_header)
  endif()
  cmake_path(SET MPSCNN_GCC_INCLUDE NORMALIZE "${objc_header}/../..")
  cmake_path(SET MPSCNN_GCC_LIBRARIES NORMALIZE "${objc_header}/../../..")
  string(REGEX REPLACE "/$" "" MPSCNN_GCC_INCLUDE "${MPSCNN_GCC_INCLUDE}")
  find_path(MPSCNN_GNUSTEP_INCLUDE Foundation/Foundation.h PATHS /usr/include/GNUstep NO_DEFAULT_PATH)
  find_library(MPSCNN_GNUSTEP_BASE gnustep-base)
  find_library(MPSCNN_OBJC_RUNTIME objc PATHS "${MPSCNN_GCC_LIBRARIES}")
  find_library(MPSCNN_BLOCKS_RUNTIME BlocksRuntime)

  # All that is missing at once, by the names of Debian's packages.
  set(missing "")
  foreach(found_and_package IN ITEMS MPSCNN_CLANGXX:clang-19 objc_header:libobjc-12-dev MPSCNN_OBJC_RUNTIME:libobjc-12-dev
          MPSCNN_GNUSTEP_INCLUDE:libgnustep-base-dev MPSCNN_GNUSTEP_BASE:libgnustep-base-dev
          MPSCNN_BLOCKS_RUNTIME:libblocksruntime-dev)
    string(REGEX MATCH "(.*):(.*)" unused "${found_and_package}")
    if(NOT ${CMAKE_MATCH_1})
      list(APPEND missing "${CMAKE_MATCH_2}")
    endif()
  endforeach()
  if(missing)
    list(REMOVE_DUPLICATES missing)
    list(JOIN missing " " missing)
    message(FATAL_ERROR "Debian packages are missing: apt-get install ${missing}\n"
                        "(clang++ 19 or newer, GCC's Objective-C runtime with headers, GNUstep base, the blocks runtime)")
  endif()

  if(NOT CMAKE_OBJCXX_COMPILER)
    set(CMAKE_OBJCXX_COMPILER "${MPSCNN_CLANGXX}" CACHE FILEPATH "Objective-C++ compiler")  # wants a full path
  endif()
  enable_language(OBJCXX)
  if(NOT CMAKE_OBJCXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "Objective-C++ needs clang (${CMAKE_OBJCXX_COMPILER} is ${CMAKE_OBJCXX_COMPILER_ID}): GCC lacks blocks.")
  endif()

  # -idirafter for GCC's folder: it also has GCC's own <stddef.h> and intrinsics, which must not hide clang's.
  set(MPSCNN_OBJC_FLAGS
      -fobjc-runtime=gcc -fblocks -fobjc-exceptions -fexceptions -fconstant-string-class=NSConstantString
      -DGNUSTEP -DGNUSTEP_BASE_LIBRARY=1 -D_NATIVE_OBJC_EXCEPTIONS=1
      "SHELL:-isystem ${MPSCNN_GNUSTEP_INCLUDE}" "SHELL:-idirafter ${MPSCNN_GCC_INCLUDE}")
  # GNUstep base exports a _Block_copy of its own, which crashes on blocks that hold C++ objects: the real one stands
  # first in every library's list, whether the linker sees a use of it or not.
  set(MPSCNN_OBJC_LIBS "${MPSCNN_BLOCKS_RUNTIME}" "${MPSCNN_GNUSTEP_BASE}" "${MPSCNN_OBJC_RUNTIME}")
  target_link_options(mpscnn_objc INTERFACE LINKER:--no-as-needed)
endif()

# Clang reads a precompiled header of any name, GCC none but .gch; the variable is one for all languages, and clang's
# language, enabled last, has set it.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(CMAKE_PCH_EXTENSION .gch)
endif()

set(CMAKE_OBJCXX_STANDARD 20)
set(CMAKE_OBJCXX_STANDARD_REQUIRED ON)

# A misspelt setter or a forgotten method compiles without these and fails on somebody else's machine.
set(MPSCNN_OBJC_ERRORS
    -Werror=objc-property-implementation -Werror=incomplete-implementation -Werror=protocol
    -Werror=objc-missing-super-calls -Werror=unused-result)

target_compile_options(mpscnn_objc INTERFACE
  "$<$<COMPILE_LANGUAGE:OBJCXX>:${MPSCNN_OBJC_FLAGS}>"
  "$<$<COMPILE_LANGUAGE:OBJCXX>:${MPSCNN_OBJC_ERRORS}>")
target_link_libraries(mpscnn_objc INTERFACE ${MPSCNN_OBJC_LIBS})

# SPDX-License-Identifier: Apache-2.0
# Makes build/<preset>/package/mpscnn importable: links to every file of python/mpscnn and, unless APPLE, to openmps'
# headers.
# A link whose file is gone is removed.
file(MAKE_DIRECTORY "${PACKAGE}")
file(GLOB_RECURSE present LIST_DIRECTORIES false RELATIVE "${PACKAGE}" "${PACKAGE}/*.py" "${PACKAGE}/*.pyi" "${PACKAGE}/py.typed")
foreach(file IN LISTS present)
  if(IS_SYMLINK "${PACKAGE}/${file}" AND NOT EXISTS "${SOURCE}/python/mpscnn/${file}")
    file(REMOVE "${PACKAGE}/${file}")
  endif()
endforeach()
file(GLOB_RECURSE wanted LIST_DIRECTORIES false RELATIVE "${SOURCE}/python/mpscnn" "${SOURCE}/python/mpscnn/*")
list(FILTER wanted EXCLUDE REGEX "__pycache__|\\.so$")
foreach(file IN LISTS wanted)
  if(NOT IS_SYMLINK "${PACKAGE}/${file}")
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY "${PACKAGE}/${folder}")
    file(CREATE_LINK "${SOURCE}/python/mpscnn/${file}" "${PACKAGE}/${file}" SYMBOLIC)
  endif()
endforeach()
if(NOT APPLE AND NOT EXISTS "${PACKAGE}/openmps/include")
  file(MAKE_DIRECTORY "${PACKAGE}/openmps")
  file(CREATE_LINK "${SOURCE}/csrc/openmps/include" "${PACKAGE}/openmps/include" SYMBOLIC)
endif()

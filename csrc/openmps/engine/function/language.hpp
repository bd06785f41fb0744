// SPDX-License-Identifier: Apache-2.0
// Text of the Metal Shading Language's types and functions in C++, which is compiled in front of each program.
#pragma once

#include <span>
#include <string>

namespace openmps::function {

struct LibraryFile {
  const char *name, *text;
};
/// Return the files of library/, in any order; the library contains them.
std::span<const LibraryFile> library_files();

/// Return them as one text.
const std::string& language_text();
/// Return the functions with C linkage that call a program's entry.
const char* entry_text(bool uses_group);

}  // namespace openmps::function

// SPDX-License-Identifier: Apache-2.0
// The folder of Python packages that this library was installed in.
#pragma once

#include <string>

namespace openmps {

/// Return the folder that contains the package mpscnn, if this library is in mpscnn/openmps/lib: packages of its extras
/// are installed there, too. "": unknown.
std::string site_packages();

}  // namespace openmps

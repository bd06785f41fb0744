// SPDX-License-Identifier: Apache-2.0
#pragma once

#import "metal/MTLLibraryOnEngine.hh"

namespace openmps {
const function::Values &values_of(MTLFunctionConstantValues *values);
}

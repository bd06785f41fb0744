// SPDX-License-Identifier: Apache-2.0
#pragma once

#import <Metal/Metal.h>

namespace openmps {
/// Return nil. Store an error of MTLLibraryErrorDomain in `*error` unless `error` is NULL.
id<MTLLibrary> no_library(MTLLibraryError code, NSString *sentence, NSError **error);
/// The same for a file that is missing or cannot be read.
id<MTLLibrary> no_library_file(NSString *path, NSError **error);
}  // namespace openmps

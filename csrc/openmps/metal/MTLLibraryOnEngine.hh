// SPDX-License-Identifier: Apache-2.0
// Libraries of Metal functions, functions and compute pipelines.
#pragma once

#import "metal/OnEngine.hh"

#include "engine/function/function.hpp"

@interface MTLLibraryOnEngine : NSObject <MTLLibrary> {
 @public
  openmps::Ref<id<OpenMPSDevice>> _device;
  openmps::Label _label;
  std::shared_ptr<const openmps::function::Library> _library;
}
@end

@interface MTLFunctionOnEngine : NSObject <MTLFunction> {
 @public
  openmps::Ref<id<OpenMPSDevice>> _device;
  openmps::Label _label;
  openmps::Ref<NSString *> _name;
  std::shared_ptr<const openmps::function::Function> _function;  ///< null: _error says why no pipeline can have it
  openmps::function::Error _error;
}
@end

@interface MTLComputePipelineStateOnEngine : NSObject <MTLComputePipelineState> {
 @public
  openmps::Ref<id<OpenMPSDevice>> _device;
  openmps::Ref<NSString *> _label;
  std::shared_ptr<const openmps::function::Function> _function;
}
@end

namespace openmps {

/// Return nil. Store an error of MTLLibraryErrorDomain in `*error` unless `error` is NULL.
id no_library(MTLLibraryError code, NSString *sentence, NSError **error);
/// The same for a file that is missing or cannot be read.
id<MTLLibrary> no_library_file(NSString *path, NSError **error);

/// Compile a library. Owned by the caller; nil and an error if that fails.
id<MTLLibrary> new_library(id<OpenMPSDevice> device, NSString *source, MTLCompileOptions *options, NSError **error);
/// Compile a function of the device. Owned by the caller; nil and an error if that fails.
id<MTLComputePipelineState> new_pipeline(id<OpenMPSDevice> device, id<MTLFunction> function, NSError **error);
/// Return the arguments of a pipeline of openmps; autoreleased.
MTLComputePipelineReflection *reflection_of(id<MTLComputePipelineState> pipeline);

/// The max bytes of threadgroup memory [Metal Feature Set Tables, Mac2].
inline constexpr NSUInteger kMaxThreadgroupMemory = 32768;
inline constexpr NSUInteger kMaxThreadsPerThreadgroup = 1024;

}  // namespace openmps

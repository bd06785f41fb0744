// SPDX-License-Identifier: Apache-2.0
// Arguments of compute functions, as pipelines report them [MTLArgument.h, MTLComputePipeline.h].

#import "metal/MTLLibraryOnEngine.hh"

namespace openmps {
namespace {

using function_abi::Binding;

MTLBindingType type_of(const Binding &binding) {
  switch (binding.kind) {
    case function_abi::kTexture: return MTLBindingTypeTexture;
    case function_abi::kThreadgroupMemory: return MTLBindingTypeThreadgroupMemory;
    case function_abi::kSampler: return MTLBindingTypeSampler;
    default: return MTLBindingTypeBuffer;
  }
}

MTLBindingAccess access_of(const Binding &binding) {
  if (binding.kind == function_abi::kThreadgroupMemory) return MTLBindingAccessReadWrite;
  if (binding.kind == function_abi::kBuffer)
    return binding.is_read_only ? MTLBindingAccessReadOnly : MTLBindingAccessReadWrite;
  if (binding.access == function_abi::kWrite) return MTLBindingAccessWriteOnly;
  return binding.access == function_abi::kReadWrite ? MTLBindingAccessReadWrite : MTLBindingAccessReadOnly;
}

}  // namespace
}  // namespace openmps

@interface MTLBindingOnEngine : NSObject<MTLBufferBinding, MTLTextureBinding, MTLThreadgroupBinding> {
 @public
  openmps::Ref<NSString *> _name;
  openmps::function_abi::Binding _binding;
}
@end

@implementation MTLBindingOnEngine

OPENMPS_UNKNOWN_SELECTORS

- (NSString *)name {
  return _name.get();
}

- (MTLBindingType)type {
  return openmps::type_of(_binding);
}

- (MTLBindingAccess)access {
  return openmps::access_of(_binding);
}

- (NSUInteger)index {
  return _binding.index;
}

- (BOOL)isUsed {
  return _binding.is_active != 0;
}

- (BOOL)isArgument {
  return YES;
}

// unverified: the alignment of a struct is not known here; 16 bytes hold any of the language's types.
- (NSUInteger)bufferAlignment {
  return 16;
}

- (NSUInteger)bufferDataSize {
  return _binding.bytes;
}

- (MTLDataType)bufferDataType {
  return _binding.data_type == 0 ? MTLDataTypeStruct : static_cast<MTLDataType>(_binding.data_type);
}

- (NSUInteger)threadgroupMemoryAlignment {
  return 16;
}

- (NSUInteger)threadgroupMemoryDataSize {
  return _binding.bytes;
}

- (MTLTextureType)textureType {
  return _binding.is_array ? MTLTextureType2DArray : MTLTextureType2D;
}

- (MTLDataType)textureDataType {
  return static_cast<MTLDataType>(_binding.data_type);
}

- (BOOL)isDepthTexture {
  return NO;
}

- (NSUInteger)arrayLength {
  return 1;
}

@end

@implementation MTLComputePipelineReflection

OPENMPS_UNKNOWN_SELECTORS

- (void)dealloc {
  [static_cast<NSArray *>(_openmps) release];
  [super dealloc];
}

- (NSArray<id<MTLBinding>> *)bindings {
  return static_cast<NSArray *>(_openmps);
}

- (void)openmps_setBindings:(NSArray *)bindings {
  _openmps = [bindings retain];
}

@end

namespace openmps {

MTLComputePipelineReflection *reflection_of(id<MTLComputePipelineState> pipeline) {
  if (pipeline == nil) return nil;
  const auto &function = ((MTLComputePipelineStateOnEngine *)pipeline)->_function;
  const auto &bindings = function->code()->bindings();
  const auto &arguments = function->kernel().arguments;
  NSMutableArray *all = [NSMutableArray array];
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    if (bindings[i].kind > function_abi::kSampler || !bindings[i].is_active) continue;
    MTLBindingOnEngine *one = [[[MTLBindingOnEngine alloc] init] autorelease];
    one->_name = Ref<NSString *>([NSString stringWithUTF8String:arguments[i].name.c_str()]);
    one->_binding = bindings[i];
    [all addObject:one];
  }
  MTLComputePipelineReflection *reflection = [[[MTLComputePipelineReflection alloc] init] autorelease];
  [reflection openmps_setBindings:all];
  return reflection;
}

}  // namespace openmps

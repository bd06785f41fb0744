// SPDX-License-Identifier: Apache-2.0
// Compute pipelines and their descriptors [MTLComputePipeline.h].

#import "metal/MTLLibraryOnEngine.hh"

namespace openmps {
namespace {

struct PipelineDescriptorState {
  Label label;
  Ref<id<MTLFunction>> function;
  BOOL is_multiple = NO;
  NSUInteger max_threads = 0;
};

PipelineDescriptorState &pipeline_descriptor_in(void *openmps) {
  return *static_cast<PipelineDescriptorState *>(openmps);
}

}  // namespace

id<MTLComputePipelineState> new_pipeline(id<OpenMPSDevice> device, id<MTLFunction> function, NSError **error) {
  if (function == nil) raise_argument(@"MTLDevice: computeFunction of a pipeline is nil.");
  if (![(id)function isKindOfClass:[MTLFunctionOnEngine class]])
    raise_argument(@"MTLDevice: computeFunction (an object of class %@) is not a function of openmps.",
                   [(id)function class]);
  MTLFunctionOnEngine *own = (MTLFunctionOnEngine *)function;
  if (own->_device.get() != device)
    raise_argument(@"MTLDevice: function \"%@\" belongs to another device.", [own name]);
  function::Error failure = own->_error;
  if (own->_function && own->_function->prepare(failure)) {
    const NSUInteger bytes = own->_function->code()->static_group_bytes();
    if (bytes <= kMaxThreadgroupMemory) {
      MTLComputePipelineStateOnEngine *pipeline = [[MTLComputePipelineStateOnEngine alloc] init];
      pipeline->_device = own->_device;
      pipeline->_function = own->_function;
      return pipeline;
    }
    failure = {function::ErrorCode::compile, "Threadgroup memory of function \"" + own->_function->name() + "\" (" +
                                                 std::to_string(bytes) + " bytes) is more than the maximum (32768)."};
  }
  NSString *sentence = [NSString stringWithUTF8String:failure.sentence.c_str()];
  return no_library(static_cast<MTLLibraryError>(failure.code), sentence ? sentence : @"The function has no pipeline.",
                    error);
}

}  // namespace openmps

@implementation MTLComputePipelineStateOnEngine

OPENMPS_UNKNOWN_SELECTORS

- (NSString *)label {
  return _label.get();
}

- (id<MTLDevice>)device {
  return _device.get();
}

- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return openmps::kMaxThreadsPerThreadgroup;
}

- (NSUInteger)threadExecutionWidth {
  return 32;
}

- (NSUInteger)staticThreadgroupMemoryLength {
  return _function->code()->static_group_bytes();
}

@end

@implementation MTLComputePipelineDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new openmps::PipelineDescriptorState;
  return self;
}

- (void)dealloc {
  delete &openmps::pipeline_descriptor_in(_openmps);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  MTLComputePipelineDescriptor *copy = [[[self class] allocWithZone:zone] init];
  [copy setLabel:[self label]];
  [copy setComputeFunction:[self computeFunction]];
  [copy setThreadGroupSizeIsMultipleOfThreadExecutionWidth:[self threadGroupSizeIsMultipleOfThreadExecutionWidth]];
  [copy setMaxTotalThreadsPerThreadgroup:[self maxTotalThreadsPerThreadgroup]];
  return copy;
}

- (NSString *)label {
  return openmps::pipeline_descriptor_in(_openmps).label.get();
}

- (void)setLabel:(NSString *)label {
  openmps::pipeline_descriptor_in(_openmps).label.set(label);
}

- (id<MTLFunction>)computeFunction {
  return openmps::pipeline_descriptor_in(_openmps).function.get();
}

- (void)setComputeFunction:(id<MTLFunction>)function {
  openmps::pipeline_descriptor_in(_openmps).function = openmps::Ref<id<MTLFunction>>(function);
}

- (BOOL)threadGroupSizeIsMultipleOfThreadExecutionWidth {
  return openmps::pipeline_descriptor_in(_openmps).is_multiple;
}

- (void)setThreadGroupSizeIsMultipleOfThreadExecutionWidth:(BOOL)is_multiple {
  openmps::pipeline_descriptor_in(_openmps).is_multiple = is_multiple;
}

- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return openmps::pipeline_descriptor_in(_openmps).max_threads;
}

- (void)setMaxTotalThreadsPerThreadgroup:(NSUInteger)threads {
  openmps::pipeline_descriptor_in(_openmps).max_threads = threads;
}

- (void)reset {
  [self setLabel:nil];
  [self setComputeFunction:nil];
  [self setThreadGroupSizeIsMultipleOfThreadExecutionWidth:NO];
  [self setMaxTotalThreadsPerThreadgroup:0];
}

@end

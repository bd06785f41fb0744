// SPDX-License-Identifier: Apache-2.0
// Calls of functions [MTLComputeCommandEncoder.h], with the checks of Metal's validation layer.

#import "metal/MTLCommandBufferOnEngine.hh"
#import "metal/MTLLibraryOnEngine.hh"
#import "metal/MTLResourceOnEngine.hh"
#import "metal/MTLSamplerOnEngine.hh"

#include <array>
#include <vector>

#include "engine/problem/problem.hpp"

namespace openmps {

/// A buffer or bytes at an index.
struct BoundBuffer {
  Ref<id<MTLBuffer>> buffer;
  NSUInteger offset = 0;
  bool has_bytes = false;
  std::vector<std::uint8_t> bytes;

  bool is_bound() const { return buffer || has_bytes; }
  NSUInteger length() const { return has_bytes ? bytes.size() : [buffer.get() length] - offset; }
};

/// Numbers of argument indices [Metal Feature Set Tables, Mac2].
inline constexpr NSUInteger kBufferIndices = 31, kTextureIndices = 128, kSamplerIndices = 16;
inline constexpr NSUInteger kMaxBytes = 4096;

struct ComputeState {
  Ref<MTLComputePipelineStateOnEngine *> pipeline;
  std::array<BoundBuffer, kBufferIndices> buffers;
  std::array<Ref<id<MTLTexture>>, kTextureIndices> textures;
  std::array<Ref<id<MTLSamplerState>>, kSamplerIndices> samplers;
  std::array<NSUInteger, kBufferIndices> memory{};
};

namespace {

void check_index(const char *what, NSUInteger index, NSUInteger count) {
  if (index >= count)
    raise_argument(@"MTLComputeCommandEncoder: index (%lu) of a %s is more than the maximum (%lu).",
                   (unsigned long)index, what, (unsigned long)(count - 1));
}

void check_offset(id<MTLBuffer> buffer, NSUInteger offset) {
  if (offset >= [buffer length])
    raise_argument(@"MTLComputeCommandEncoder: offset (%lu) is not less than the length of the buffer (%lu).",
                   (unsigned long)offset, (unsigned long)[buffer length]);
}

/// Return the extents as 32-bit numbers. Raise if one is 0 or too large.
FunctionExtent extent_of(const char *what, MTLSize size) {
  for (const NSUInteger extent : {size.width, size.height, size.depth})
    if (extent < 1 || extent > 0xffffffffu)
      raise_argument(@"MTLComputeCommandEncoder: %s (%lu x %lu x %lu) has an extent that is not from 1 to 4294967295.",
                     what, (unsigned long)size.width, (unsigned long)size.height, (unsigned long)size.depth);
  return {static_cast<std::uint32_t>(size.width), static_cast<std::uint32_t>(size.height),
          static_cast<std::uint32_t>(size.depth)};
}

FunctionExtent group_of(MTLSize size) {
  const FunctionExtent group = extent_of("threadsPerThreadgroup", size);
  const auto threads = product({size.width, size.height, size.depth});
  if (!threads || *threads > kMaxThreadsPerThreadgroup)
    raise_argument(@"MTLComputeCommandEncoder: threadsPerThreadgroup (%lu x %lu x %lu) has more threads than "
                   @"maxTotalThreadsPerThreadgroup (%lu).",
                   (unsigned long)size.width, (unsigned long)size.height, (unsigned long)size.depth,
                   (unsigned long)kMaxThreadsPerThreadgroup);
  return group;
}

/// Adds the arguments of a call to its problem, after checking them.
class ArgumentBinder {
 public:
  ArgumentBinder(const ComputeState &state, Recorder &recorder, FunctionProblem &problem)
      : state_(state), recorder_(recorder), problem_(problem), kernel_(problem.function->kernel()) {}

  void bind_all() {
    const auto &bindings = problem_.function->code()->bindings();
    for (std::size_t i = 0; i < bindings.size(); ++i) {
      if (!bindings[i].is_active) continue;
      position_ = static_cast<std::uint32_t>(i);
      bind(bindings[i]);
    }
    const NSUInteger bytes = memory_ + problem_.function->code()->static_group_bytes();
    if (bytes > kMaxThreadgroupMemory)
      raise_usage(@"MTLComputeCommandEncoder: function \"%s\" has %lu bytes of threadgroup memory, the maximum is %lu.",
                  kernel_.name.c_str(), (unsigned long)bytes, (unsigned long)kMaxThreadgroupMemory);
  }

 private:
  void bind(const function_abi::Binding &binding) {
    switch (binding.kind) {
      case function_abi::kTexture: return bind_texture(binding);
      case function_abi::kBuffer: return bind_buffer(binding);
      case function_abi::kThreadgroupMemory: return bind_memory(binding);
      case function_abi::kSampler: return bind_sampler(binding);
      default: return;
    }
  }
  [[noreturn]] void refuse(const char *kind, unsigned index, NSString *why) const {
    raise_usage(@"MTLComputeCommandEncoder: function \"%s\", argument %s, %s(%u): %@.", kernel_.name.c_str(),
                kernel_.arguments[position_].name.c_str(), kind, index, why);
  }

  void bind_texture(const function_abi::Binding &binding) {
    const auto refuse_texture = [&](NSString *why) { refuse("texture", binding.index, why); };
    if (binding.index >= kTextureIndices) refuse_texture(@"the index is more than the maximum (127)");
    id<MTLTexture> bound = state_.textures[binding.index].get();
    if (bound == nil) refuse_texture(@"no texture is set");
    auto *texture = (MTLTextureOnEngine *)bound;
    const MTLTextureType type = binding.is_array ? MTLTextureType2DArray : MTLTextureType2D;
    if (texture->_type != type)
      refuse_texture([NSString stringWithFormat:@"textureType (%lu) is not %lu, the source says %s",
                                                (unsigned long)texture->_type, (unsigned long)type,
                                                binding.is_array ? "texture2d_array" : "texture2d"]);
    if (binding.has_integers)
      refuse_texture([NSString stringWithFormat:@"pixelFormat (%lu) has real numbers, the source says integers",
                                                (unsigned long)texture->_pixelFormat]);
    const bool reads = binding.access != function_abi::kWrite;
    const bool writes = binding.access == function_abi::kWrite || binding.access == function_abi::kReadWrite;
    const MTLTextureUsage wanted = (reads ? MTLTextureUsageShaderRead : 0) | (writes ? MTLTextureUsageShaderWrite : 0);
    if (texture->_textureUsage != MTLTextureUsageUnknown && (texture->_textureUsage & wanted) != wanted)
      refuse_texture([NSString
          stringWithFormat:@"usage (%lu) of the texture lacks %s", (unsigned long)texture->_textureUsage,
                           texture->_textureUsage & MTLTextureUsageShaderRead ? "MTLTextureUsageShaderWrite (2)"
                                                                              : "MTLTextureUsageShaderRead (1)"]);
    if (writes) check_writable("MTLComputeCommandEncoder: texture", texture);
    FunctionTexture argument;
    argument.argument = position_;
    argument.view = texture->_view;
    argument.lanes = static_cast<std::uint32_t>(texture->_lanes);
    argument.slices = static_cast<std::uint32_t>(texture->_arrayLength);
    (writes ? problem_.results : problem_.sources).push_back(std::move(argument));
    if (reads) texture->_usage->read_by(recorder_.completion());
    if (writes) texture->_usage->written_by(recorder_.completion());
  }

  void bind_buffer(const function_abi::Binding &binding) {
    if (binding.index >= kBufferIndices) refuse("buffer", binding.index, @"the index is more than the maximum (30)");
    const BoundBuffer &bound = state_.buffers[binding.index];
    if (!bound.is_bound()) refuse("buffer", binding.index, @"no buffer or bytes are set");
    if (bound.length() < binding.bytes)
      refuse("buffer", binding.index,
             [NSString stringWithFormat:@"%lu bytes are set, the argument has at least %u",
                                        (unsigned long)bound.length(), binding.bytes]);
    if (bound.has_bytes) {
      problem_.bytes.push_back({position_, bound.bytes});
      return;
    }
    FunctionBuffer argument;
    argument.argument = position_;
    argument.memory = [buffer_of(bound.buffer.get(), "MTLComputeCommandEncoder: buffer") openmps_memory];
    argument.offset = bound.offset;
    (binding.is_read_only ? problem_.inputs : problem_.outputs).push_back(std::move(argument));
  }

  void bind_memory(const function_abi::Binding &binding) {
    const NSUInteger bytes = binding.index < kBufferIndices ? state_.memory[binding.index] : 0;
    if (bytes == 0) refuse("threadgroup", binding.index, @"setThreadgroupMemoryLength:atIndex: was not called");
    memory_ += bytes;
    problem_.memory.push_back({position_, static_cast<std::uint32_t>(bytes)});
  }

  void bind_sampler(const function_abi::Binding &binding) {
    if (binding.index >= kSamplerIndices) refuse("sampler", binding.index, @"the index is more than the maximum (15)");
    id<MTLSamplerState> bound = state_.samplers[binding.index].get();
    if (bound == nil) refuse("sampler", binding.index, @"no sampler is set");
    FunctionSampler argument = ((MTLSamplerStateOnEngine *)bound)->_sampler;
    argument.argument = position_;
    problem_.samplers.push_back(argument);
  }

  const ComputeState &state_;
  Recorder &recorder_;
  FunctionProblem &problem_;
  const function::Kernel &kernel_;
  std::uint32_t position_ = 0;
  NSUInteger memory_ = 0;
};

}  // namespace
}  // namespace openmps

@implementation MTLComputeCommandEncoderOnEngine

- (instancetype)initWithBuffer:(MTLCommandBufferOnEngine *)buffer dispatchType:(MTLDispatchType)type {
  if ((self = [super initWithBuffer:buffer])) {
    _dispatchType = type;
    _state = std::make_unique<openmps::ComputeState>();
  }
  return self;
}

- (const char *)openmps_name {
  return "MTLComputeCommandEncoder";
}

- (MTLDispatchType)dispatchType {
  return _dispatchType;
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  [self openmps_recording];
  if (![(id)state isKindOfClass:[MTLComputePipelineStateOnEngine class]])
    openmps::raise_argument(@"MTLComputeCommandEncoder: state (%@) is not a compute pipeline of openmps.", state);
  if ([state device] != [self device])
    openmps::raise_argument(@"MTLComputeCommandEncoder: the pipeline belongs to another device.");
  _state->pipeline = openmps::Ref<MTLComputePipelineStateOnEngine *>((MTLComputePipelineStateOnEngine *)state);
}

- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  [self openmps_recording];
  openmps::check_index("buffer", index, openmps::kBufferIndices);
  if (bytes == nullptr) openmps::raise_argument(@"MTLComputeCommandEncoder: bytes is NULL.");
  if (length < 1 || length > openmps::kMaxBytes)
    openmps::raise_argument(@"MTLComputeCommandEncoder: length (%lu) of bytes is not from 1 to %lu.",
                            (unsigned long)length, (unsigned long)openmps::kMaxBytes);
  openmps::BoundBuffer &bound = _state->buffers[index];
  bound = {};
  bound.has_bytes = true;
  bound.bytes.assign(static_cast<const std::uint8_t *>(bytes), static_cast<const std::uint8_t *>(bytes) + length);
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  [self openmps_recording];
  openmps::check_index("buffer", index, openmps::kBufferIndices);
  if (buffer != nil) {
    openmps::buffer_of(buffer, "MTLComputeCommandEncoder: buffer");
    if ([buffer device] != [self device])
      openmps::raise_argument(@"MTLComputeCommandEncoder: the buffer belongs to another device.");
    openmps::check_offset(buffer, offset);
  }
  openmps::BoundBuffer &bound = _state->buffers[index];
  bound = {};
  bound.buffer = openmps::Ref<id<MTLBuffer>>(buffer);
  bound.offset = offset;
}

- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
  [self openmps_recording];
  openmps::check_index("buffer", index, openmps::kBufferIndices);
  openmps::BoundBuffer &bound = _state->buffers[index];
  if (!bound.buffer)
    openmps::raise_usage(@"MTLComputeCommandEncoder: setBufferOffset: has no buffer at index %lu.",
                         (unsigned long)index);
  openmps::check_offset(bound.buffer.get(), offset);
  bound.offset = offset;
}

- (void)setBuffers:(const id<MTLBuffer> *)buffers offsets:(const NSUInteger *)offsets withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i)
    [self setBuffer:buffers[i] offset:offsets[i] atIndex:range.location + i];
}

- (void)setTexture:(id<MTLTexture>)texture atIndex:(NSUInteger)index {
  [self openmps_recording];
  openmps::check_index("texture", index, openmps::kTextureIndices);
  if (texture != nil) {
    openmps::texture_of(texture, "MTLComputeCommandEncoder: texture");
    if ([texture device] != [self device])
      openmps::raise_argument(@"MTLComputeCommandEncoder: the texture belongs to another device.");
  }
  _state->textures[index] = openmps::Ref<id<MTLTexture>>(texture);
}

- (void)setTextures:(const id<MTLTexture> *)textures withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) [self setTexture:textures[i] atIndex:range.location + i];
}

- (void)setSamplerState:(id<MTLSamplerState>)sampler atIndex:(NSUInteger)index {
  [self openmps_recording];
  openmps::check_index("sampler", index, openmps::kSamplerIndices);
  if (sampler != nil) {
    if (![(id)sampler isKindOfClass:[MTLSamplerStateOnEngine class]])
      openmps::raise_argument(@"MTLComputeCommandEncoder: sampler (%@) is not a sampler of openmps.", sampler);
    if ([sampler device] != [self device])
      openmps::raise_argument(@"MTLComputeCommandEncoder: the sampler belongs to another device.");
  }
  _state->samplers[index] = openmps::Ref<id<MTLSamplerState>>(sampler);
}

// Textures have one level.
- (void)setSamplerState:(id<MTLSamplerState>)sampler
            lodMinClamp:(float)lodMinClamp
            lodMaxClamp:(float)lodMaxClamp
                atIndex:(NSUInteger)index {
  (void)lodMinClamp, (void)lodMaxClamp;
  [self setSamplerState:sampler atIndex:index];
}

- (void)setSamplerStates:(const id<MTLSamplerState> *)samplers withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) [self setSamplerState:samplers[i] atIndex:range.location + i];
}

- (void)setSamplerStates:(const id<MTLSamplerState> *)samplers
            lodMinClamps:(const float *)lodMinClamps
            lodMaxClamps:(const float *)lodMaxClamps
               withRange:(NSRange)range {
  (void)lodMinClamps, (void)lodMaxClamps;
  [self setSamplerStates:samplers withRange:range];
}

- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  [self openmps_recording];
  openmps::check_index("threadgroup memory", index, openmps::kBufferIndices);
  if (length % 16 != 0 || length > openmps::kMaxThreadgroupMemory)
    openmps::raise_argument(
        @"MTLComputeCommandEncoder: length (%lu) of threadgroup memory is not a multiple of 16 up to %lu.",
        (unsigned long)length, (unsigned long)openmps::kMaxThreadgroupMemory);
  _state->memory[index] = length;
}

- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
  using namespace openmps;
  extent_of("threadgroupsPerGrid", threadgroupsPerGrid);
  group_of(threadsPerThreadgroup);
  [self dispatchThreads:MTLSizeMake(threadgroupsPerGrid.width * threadsPerThreadgroup.width,
                                    threadgroupsPerGrid.height * threadsPerThreadgroup.height,
                                    threadgroupsPerGrid.depth * threadsPerThreadgroup.depth)
      threadsPerThreadgroup:threadsPerThreadgroup];
}

- (void)dispatchThreads:(MTLSize)threadsPerGrid threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
  using namespace openmps;
  Recorder &recorder = [self openmps_recording];
  if (!_state->pipeline)
    raise_usage(@"MTLComputeCommandEncoder: setComputePipelineState: was not called before a dispatch.");
  FunctionProblem problem;
  problem.function = _state->pipeline.get()->_function;
  problem.group = group_of(threadsPerThreadgroup);
  problem.threads = extent_of("threadsPerGrid", threadsPerGrid);
  ArgumentBinder(*_state, recorder, problem).bind_all();
  const std::string label = "MTLComputeCommandEncoder " + problem.function->name();
  recorder.append(std::move(problem), label);
}

- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
  (void)resource, (void)usage;  // resources are reached by arguments alone
  [self openmps_recording];
}

- (void)useResources:(const id<MTLResource> *)resources count:(NSUInteger)count usage:(MTLResourceUsage)usage {
  (void)resources, (void)count, (void)usage;
  [self openmps_recording];
}

- (void)useHeap:(id<MTLHeap>)heap {
  (void)heap;
  [self openmps_recording];
}

- (void)useHeaps:(const id<MTLHeap> *)heaps count:(NSUInteger)count {
  (void)heaps, (void)count;
  [self openmps_recording];
}

// Calls run in order, also with MTLDispatchTypeConcurrent.
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  (void)scope;
  [self openmps_recording];
}

- (void)memoryBarrierWithResources:(const id<MTLResource> *)resources count:(NSUInteger)count {
  (void)resources, (void)count;
  [self openmps_recording];
}

@end

// SPDX-License-Identifier: Apache-2.0
// States: buffers and textures passed between kernels [MPSState.h].

#import "mps/MPSState+Engine.hh"

#include <cstdarg>
#include <vector>

#import "metal/MTLResourceOnEngine.hh"

namespace openmps {
namespace {

/// A resource, or its description until it is allocated.
struct StateResource {
  MPSStateResourceType type = MPSStateResourceTypeNone;
  NSUInteger buffer_size = 0;
  Ref<MTLTextureDescriptor *> texture;
  Ref<id<MTLResource>> resource;
};

struct StateState {
  Ref<id<OpenMPSDevice>> device;
  Label label;
  std::vector<StateResource> resources;
  std::shared_ptr<Temporary> temporary;
  std::shared_ptr<TemporaryScope> scope;
  std::unique_ptr<StateData> data;
};

StateState &fields_of(void *pointer) { return *static_cast<StateState *>(pointer); }

StateResource buffer_of_size(NSUInteger size) {
  if (size == 0) raise_argument(@"MPSState: bufferSize (0) is less than the minimum (1).");
  StateResource resource;
  resource.type = MPSStateResourceTypeBuffer;
  resource.buffer_size = size;
  return resource;
}

StateResource texture_like(MTLTextureDescriptor *descriptor) {
  if (descriptor == nil) raise_argument(@"MPSState: textureDescriptor is nil.");
  ImageView view;
  check_texture_descriptor(descriptor, &view);
  StateResource resource;
  resource.type = MPSStateResourceTypeTexture;
  resource.texture = Ref<MTLTextureDescriptor *>::adopt([descriptor copy]);
  return resource;
}

StateResource existing(id<MTLResource> object) {
  StateResource resource;
  if ([(id)object isKindOfClass:[MTLBufferOnEngine class]]) {
    resource.type = MPSStateResourceTypeBuffer;
    resource.buffer_size = [(id<MTLBuffer>)object length];
  } else if ([(id)object isKindOfClass:[MTLTextureOnEngine class]]) {
    resource.type = MPSStateResourceTypeTexture;
  } else {
    raise_argument(@"MPSState: resource (an object of class %@) is neither a buffer nor a texture of openmps.",
                   [(id)object class]);
  }
  resource.resource = Ref<id<MTLResource>>(object);
  return resource;
}

using ResourceList = std::vector<StateResource>;

}  // namespace
}  // namespace openmps

@interface MPSStateResourceList (Engine)
- (const openmps::ResourceList &)openmps_resources;
@end

@implementation MPSState

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)openmps_initWithDevice:(id<OpenMPSDevice>)device resources:(openmps::ResourceList)resources {
  if ((self = [super init])) {
    auto *state = new openmps::StateState;
    _openmps = state;
    state->device = openmps::Ref<id<OpenMPSDevice>>(device);
    state->resources = std::move(resources);
  }
  return self;
}

+ (instancetype)openmps_temporaryOn:(id<MTLCommandBuffer>)given resources:(openmps::ResourceList)resources {
  id<OpenMPSCommandBuffer> buffer = openmps::command_buffer_of(given, "MPSState: commandBuffer");
  [buffer openmps_recorder];
  MPSState *made =
      [[[self alloc] openmps_initWithDevice:openmps::device_of([buffer device], "MPSState: commandBuffer.device")
                                  resources:std::move(resources)] autorelease];
  openmps::StateState &state = openmps::fields_of(made->_openmps);
  // States without a resource are not temporary [MPSState.h].
  if (state.resources.empty()) return made;
  state.scope = [buffer openmps_temporaries];
  state.temporary = state.scope->add(object_getClassName(made));
  return made;
}

- (instancetype)init {
  const openmps::UnwindRelease half(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:resourceList:");
}

+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf bufferSize:(size_t)bufferSize {
  return [self openmps_temporaryOn:cmdBuf resources:{openmps::buffer_of_size(bufferSize)}];
}

+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf
                              textureDescriptor:(MTLTextureDescriptor *)descriptor {
  return [self openmps_temporaryOn:cmdBuf resources:{openmps::texture_like(descriptor)}];
}

+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)cmdBuf {
  return [self openmps_temporaryOn:cmdBuf resources:{}];
}

+ (instancetype)temporaryStateWithCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                   resourceList:(MPSStateResourceList *)resourceList {
  if (resourceList == nil) openmps::raise_argument(@"MPSState: resourceList is nil.");
  return [self openmps_temporaryOn:commandBuffer resources:[resourceList openmps_resources]];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device bufferSize:(size_t)bufferSize {
  openmps::UnwindRelease half(self);
  id<OpenMPSDevice> own = openmps::device_of(device, "MPSState: device");
  openmps::ResourceList resources = {openmps::buffer_of_size(bufferSize)};
  return [half.done() openmps_initWithDevice:own resources:std::move(resources)];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device textureDescriptor:(MTLTextureDescriptor *)descriptor {
  openmps::UnwindRelease half(self);
  id<OpenMPSDevice> own = openmps::device_of(device, "MPSState: device");
  openmps::ResourceList resources = {openmps::texture_like(descriptor)};
  return [half.done() openmps_initWithDevice:own resources:std::move(resources)];
}

- (instancetype)initWithResource:(id<MTLResource>)resource {
  return [self initWithResources:resource ? [NSArray arrayWithObject:resource] : nil];
}

- (instancetype)initWithDevice:(id<MTLDevice>)device resourceList:(MPSStateResourceList *)resourceList {
  openmps::UnwindRelease half(self);
  id<OpenMPSDevice> own = openmps::device_of(device, "MPSState: device");
  if (resourceList == nil) openmps::raise_argument(@"MPSState: resourceList is nil.");
  openmps::ResourceList resources = [resourceList openmps_resources];
  return [half.done() openmps_initWithDevice:own resources:std::move(resources)];
}

- (instancetype)initWithResources:(NSArray<id<MTLResource>> *)resources {
  openmps::UnwindRelease half(self);
  openmps::ResourceList list;
  id<OpenMPSDevice> device = nil;
  for (id<MTLResource> resource in resources) {
    list.push_back(openmps::existing(resource));
    if (device == nil) device = openmps::device_of([resource device], "MPSState: resource.device");
  }
  return [half.done() openmps_initWithDevice:device resources:std::move(list)];
}

- (void)dealloc {
  delete static_cast<openmps::StateState *>(_openmps);
  [super dealloc];
}

- (NSUInteger)resourceCount {
  return openmps::fields_of(_openmps).resources.size();
}

- (BOOL)isTemporary {
  return openmps::fields_of(_openmps).temporary != nullptr;
}

- (NSString *)label {
  return openmps::fields_of(_openmps).label.get();
}

- (void)setLabel:(NSString *)label {
  openmps::StateState &state = openmps::fields_of(_openmps);
  state.label.set(label);
  if (state.temporary) state.temporary->label = label ? [[NSString stringWithFormat:@"'%@'", label] UTF8String] : "";
}

- (NSUInteger)readCount {
  const openmps::StateState &state = openmps::fields_of(_openmps);
  return state.temporary ? state.temporary->read_count : 0;
}

- (void)setReadCount:(NSUInteger)readCount {
  openmps::StateState &state = openmps::fields_of(_openmps);
  if (!state.temporary || state.temporary->read_count == readCount)
    return;  // permanent states are not counted [MPSState.h]
  if (state.temporary->read_count == 0)
    openmps::raise_usage(@"%@ has a readCount of 0: its storage has been recycled, so readCount cannot become %lu.",
                         [self class], (unsigned long)readCount);
  state.temporary->read_count = readCount;
  if (readCount > 0) return;
  for (openmps::StateResource &resource : state.resources) resource.resource = {};
}

- (openmps::StateResource &)openmps_resourceAt:(NSUInteger)index {
  openmps::StateState &state = openmps::fields_of(_openmps);
  if (index >= state.resources.size())
    openmps::raise_argument(@"%@: index (%lu) is not less than resourceCount (%lu).", [self class],
                            (unsigned long)index, (unsigned long)state.resources.size());
  return state.resources[index];
}

- (id<MTLResource>)resource {
  return [self resourceCount] == 0 ? nil : [self resourceAtIndex:0 allocateMemory:YES];
}

- (id<MTLResource>)resourceAtIndex:(NSUInteger)index allocateMemory:(BOOL)allocateMemory {
  openmps::StateResource &resource = [self openmps_resourceAt:index];
  if (resource.resource || !allocateMemory) return resource.resource.get();
  const openmps::StateState &state = openmps::fields_of(_openmps);
  if (state.temporary && state.temporary->read_count == 0)
    openmps::raise_usage(@"%@ has a readCount of 0: its storage has been recycled.", [self class]);
  id<MTLResource> made = nil;
  if (resource.type == MPSStateResourceTypeBuffer) {
    made = state.temporary
               ? [state.device.get() newBufferWithLength:resource.buffer_size options:MTLResourceStorageModePrivate]
               : openmps::new_buffer_of_mps(state.device.get(), resource.buffer_size, openmps::default_storage_mode());
  } else {
    MTLTextureDescriptor *descriptor = [[resource.texture.get() copy] autorelease];
    if (state.temporary) [descriptor setStorageMode:MTLStorageModePrivate];
    made = [state.device.get() newTextureWithDescriptor:descriptor];
  }
  if (made == nil)
    openmps::raise_memory(@"%@: there is no memory for the resource at index %lu.", [self class], (unsigned long)index);
  resource.resource = openmps::Ref<id<MTLResource>>::adopt(made);
  return made;
}

- (NSUInteger)bufferSizeAtIndex:(NSUInteger)index {
  return [self openmps_resourceAt:index].buffer_size;
}

- (MPSStateTextureInfo)textureInfoAtIndex:(NSUInteger)index {
  const openmps::StateResource &resource = [self openmps_resourceAt:index];
  MPSStateTextureInfo info = {};
  if (resource.type != MPSStateResourceTypeTexture) return info;
  // A descriptor and a texture have the same getters.
  const auto fill = [&](auto texture) {
    info.width = [texture width];
    info.height = [texture height];
    info.depth = [texture depth];
    info.arrayLength = [texture arrayLength];
    info.pixelFormat = [texture pixelFormat];
    info.textureType = [texture textureType];
    info.usage = [texture usage];
  };
  if (resource.texture)
    fill(resource.texture.get());
  else
    fill((id<MTLTexture>)resource.resource.get());
  return info;
}

- (MPSStateResourceType)resourceTypeAtIndex:(NSUInteger)index {
  return [self openmps_resourceAt:index].type;
}

- (void)synchronizeOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  openmps::Recorder &recorder = [openmps::command_buffer_of(commandBuffer, "MPSState: commandBuffer") openmps_recorder];
  for (const openmps::StateResource &resource : openmps::fields_of(_openmps).resources)
    if (id known = resource.resource.get())
      openmps::synchronize(recorder, ((MTLResourceOnEngine *)known)->_memory, @"MPSState");
}

- (NSUInteger)resourceSize {
  NSUInteger sum = 0;
  for (const openmps::StateResource &resource : openmps::fields_of(_openmps).resources) {
    openmps::ImageView view;
    if (resource.resource)
      sum += [resource.resource.get() allocatedSize];
    else if (resource.texture)
      sum += openmps::check_texture_descriptor(resource.texture.get(), &view);
    else
      sum += resource.buffer_size;
  }
  return sum;
}

- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor {
  (void)sourceImages, (void)sourceStates, (void)kernel;
  return inDescriptor;
}

@end

@implementation MPSState (Engine)

- (openmps::StateData *)openmps_data {
  return openmps::fields_of(_openmps).data.get();
}

- (void)openmps_setData:(std::unique_ptr<openmps::StateData>)data {
  openmps::fields_of(_openmps).data = std::move(data);
}

- (void)openmps_willUseOn:(id<MTLCommandBuffer>)buffer {
  id<OpenMPSCommandBuffer> own = openmps::command_buffer_of(buffer, "MPSState: commandBuffer");
  [own openmps_recorder];
  const openmps::StateState &state = openmps::fields_of(_openmps);
  if (!state.temporary) return;
  if (state.temporary->read_count == 0)
    openmps::raise_usage(@"%@ has a readCount of 0: its storage has been recycled.", [self class]);
  if (state.scope != [own openmps_temporaries])
    openmps::raise_usage(
        @"%@ belongs to another command buffer: a temporary state lives on the one that it was made for.",
        [self class]);
}

- (void)openmps_didRead {
  if (![self isTemporary]) return;
  const NSUInteger count = [self readCount];
  if (count == 0) openmps::raise_usage(@"%@ has a readCount of 0: its storage has been recycled.", [self class]);
  [self setReadCount:count - 1];
}

@end

@implementation MPSStateResourceList

OPENMPS_UNKNOWN_SELECTORS

+ (instancetype)resourceList {
  return [[[self alloc] init] autorelease];
}

+ (instancetype)resourceListWithTextureDescriptors:(MTLTextureDescriptor *)d, ... {
  MPSStateResourceList *list = [self resourceList];
  va_list rest;
  va_start(rest, d);
  for (MTLTextureDescriptor *next = d; next != nil; next = va_arg(rest, MTLTextureDescriptor *))
    [list appendTexture:next];
  va_end(rest);
  return list;
}

+ (instancetype)resourceListWithBufferSizes:(NSUInteger)firstSize, ... {
  MPSStateResourceList *list = [self resourceList];
  va_list rest;
  va_start(rest, firstSize);
  for (NSUInteger next = firstSize; next != 0; next = va_arg(rest, NSUInteger)) [list appendBuffer:next];
  va_end(rest);
  return list;
}

- (instancetype)init {
  if ((self = [super init])) _openmps = new openmps::ResourceList;
  return self;
}

- (void)dealloc {
  delete static_cast<openmps::ResourceList *>(_openmps);
  [super dealloc];
}

- (void)appendTexture:(MTLTextureDescriptor *)descriptor {
  static_cast<openmps::ResourceList *>(_openmps)->push_back(openmps::texture_like(descriptor));
}

- (void)appendBuffer:(NSUInteger)size {
  static_cast<openmps::ResourceList *>(_openmps)->push_back(openmps::buffer_of_size(size));
}

- (const openmps::ResourceList &)openmps_resources {
  return *static_cast<openmps::ResourceList *>(_openmps);
}

@end

NSUInteger MPSStateBatchIncrementReadCount(MPSStateBatch *batch, NSInteger amount) {
  NSSet *distinct = [NSSet setWithArray:batch ? batch : [NSArray array]];
  for (MPSState *state in distinct) {
    const NSUInteger count = [state readCount];
    if (count == 0) continue;
    if (amount < 0 && count < static_cast<NSUInteger>(-amount))
      openmps::raise_usage(@"%@: readCount (%lu) cannot be lowered by %ld.", [state class], (unsigned long)count,
                           (long)-amount);
    [state setReadCount:count + static_cast<NSUInteger>(amount)];
  }
  return [distinct count];
}

NSUInteger MPSStateBatchResourceSize(MPSStateBatch *batch) {
  NSUInteger sum = 0;
  for (MPSState *state in [NSSet setWithArray:batch ? batch : [NSArray array]]) sum += [state resourceSize];
  return sum;
}

void MPSStateBatchSynchronize(MPSStateBatch *batch, id<MTLCommandBuffer> cmdBuf) {
  for (MPSState *state in [NSSet setWithArray:batch ? batch : [NSArray array]])
    [state synchronizeOnCommandBuffer:cmdBuf];
}

// SPDX-License-Identifier: Apache-2.0
// MPSKernel, the root of all kernels: device, label, options, copying, archiving [MPSKernel.h].

#import "mps/MPSKernel+Engine.hh"

namespace openmps {

void Archive::integer(NSString *key, std::int64_t &value) {
  if (!reading_)
    [coder_ encodeInt64:value forKey:key];
  else if ([coder_ containsValueForKey:key])
    value = [coder_ decodeInt64ForKey:key];
}

void Archive::field(NSString *key, float &value) {
  if (!reading_)
    [coder_ encodeDouble:value forKey:key];
  else if ([coder_ containsValueForKey:key])
    value = static_cast<float>([coder_ decodeDoubleForKey:key]);
}

template <class T>
void Archive::list(NSString *key, std::vector<T> &values) {
  if (!reading_) {
    if (values.empty()) return;
    // Copied: the coder may keep the data until it has finished.
    [coder_ encodeObject:[NSData dataWithBytes:values.data() length:values.size() * sizeof(T)] forKey:key];
    return;
  }
  NSData *data = object_of(key, nil, [NSData class], NULL);
  const T *first = static_cast<const T *>([data bytes]);
  values.assign(first, first + [data length] / sizeof(T));
}
template void Archive::list(NSString *key, std::vector<float> &values);
template void Archive::list(NSString *key, std::vector<double> &values);
template void Archive::list(NSString *key, std::vector<std::uint32_t> &values);

void Archive::field(NSString *key, MTLRegion &region) {
  const auto part = [key](NSString *name) { return [key stringByAppendingString:name]; };
  field(part(@".origin.x"), region.origin.x);
  field(part(@".origin.y"), region.origin.y);
  field(part(@".origin.z"), region.origin.z);
  field(part(@".size.width"), region.size.width);
  field(part(@".size.height"), region.size.height);
  field(part(@".size.depth"), region.size.depth);
}

id Archive::object_of(NSString *key, id value, Class cls, SEL selector) {
  if (!reading_) {
    if (value != nil) [coder_ encodeObject:value forKey:key];
    return value;
  }
  id result = [coder_ containsValueForKey:key] ? [coder_ decodeObjectForKey:key] : nil;
  if (result == nil) return nil;
  if (cls != Nil && ![result isKindOfClass:cls])
    raise_argument(@"The archive holds an object of class %@ for \"%@\", which is no %@.", [result class], key, cls);
  if (selector != NULL && ![result respondsToSelector:selector])
    raise_argument(@"The archive holds an object of class %@ for \"%@\", which does not answer %@.", [result class],
                   key, NSStringFromSelector(selector));
  return result;
}

void KernelState::archive(Archive &archive) {
  archive.field(@"MPSKernel.options", options);
  archive.object(@"MPSKernel.label", [NSString class], label);
}

void KernelState::did_read(MPSKernel *) {}

void KernelState::did_copy(id<OpenMPSDevice> new_device) { device = Ref<id<OpenMPSDevice>>(new_device); }

void raise_for(const KernelState &state, NSString *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  NSString *sentence = [[[NSString alloc] initWithFormat:format arguments:arguments] autorelease];
  va_end(arguments);
  raise_argument(@"%s: %@", state.title.c_str(), sentence);
}

Recorder &begin_encode(const KernelState &state, id<MTLCommandBuffer> buffer) {
  id<OpenMPSCommandBuffer> known = command_buffer_of(buffer, state.title.c_str());
  if ([known device] != state.device.get())
    raise_for(state, @"commandBuffer belongs to another device than the kernel.");
  return [known openmps_recorder];
}

}  // namespace openmps

using openmps::KernelState;

@implementation MPSKernel

OPENMPS_UNKNOWN_SELECTORS

+ (KernelState *)openmps_newState {
  return new openmps::PlainKernelState();
}

- (KernelState *)openmps_state {
  return static_cast<KernelState *>(_openmps);
}

static void openmps_setTitle(MPSKernel *kernel, KernelState &state) {
  state.title = class_getName([kernel class]);
  if (state.label) state.title.append(" \"").append([state.label.get() UTF8String]).append("\"");
}

- (instancetype)openmps_initWithDevice:(id<MTLDevice>)device {
  if (!(self = [super init])) return nil;
  openmps::UnwindRelease unwind(self);
  id<OpenMPSDevice> known = openmps::device_of(device, class_getName([self class]));
  KernelState *state = [[self class] openmps_newState];
  _openmps = state;
  state->device = openmps::Ref<id<OpenMPSDevice>>(known);
  openmps_setTitle(self, *state);
  return unwind.done();
}

- (instancetype)init {
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "-initWithDevice:");
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  return [self openmps_initWithDevice:device];
}

- (void)dealloc {
  delete static_cast<KernelState *>(_openmps);
  [super dealloc];
}

// ------------------------------------------------------------------------------------------ properties

OPENMPS_PROPERTY(KernelState, MPSKernelOptions, options, setOptions, options)

- (id<MTLDevice>)device {
  return static_cast<KernelState *>(_openmps)->device.get();
}

- (NSString *)label {
  @synchronized(self) {  // atomic: any thread may get it while another one sets it
    return [[static_cast<KernelState *>(_openmps)->label.get() retain] autorelease];
  }
}

- (void)setLabel:(NSString *)label {
  @synchronized(self) {
    KernelState &state = *static_cast<KernelState *>(_openmps);
    state.label = openmps::Ref<NSString *>::adopt([label copy]);
    openmps_setTitle(self, state);
  }
}

- (NSString *)description {
  return [NSString stringWithFormat:@"<%s: %p>", static_cast<KernelState *>(_openmps)->title.c_str(), self];
}

// -------------------------------------------------------------------------------------------- copying

- (instancetype)copyWithZone:(NSZone *)zone {
  return [self copyWithZone:zone device:nil];
}

/// nil: the same device.
- (instancetype)copyWithZone:(NSZone *)zone device:(id<MTLDevice>)device {
  const KernelState &state = *static_cast<KernelState *>(_openmps);
  id<OpenMPSDevice> target =
      device == nil ? state.device.get() : openmps::device_of(device, class_getName([self class]));
  MPSKernel *copy = [[self class] allocWithZone:zone];
  openmps::UnwindRelease unwind(copy);
  KernelState *copied = state.clone();
  copy->_openmps = copied;
  copied->did_copy(target);
  return unwind.done();
}

// ------------------------------------------------------------------------------------------ archiving

+ (BOOL)supportsSecureCoding {
  return YES;
}

- (void)encodeWithCoder:(NSCoder *)coder {
  openmps::Archive archive(coder, false);
  static_cast<KernelState *>(_openmps)->archive(archive);
}

/// The device is the coder's, if it has one (MPSKeyedUnarchiver), or the system's default.
- (instancetype)initWithCoder:(NSCoder *)aDecoder {
  id<MTLDevice> device = nil;
  if ([aDecoder respondsToSelector:@selector(mpsMTLDevice)]) device = [(id<MPSDeviceProvider>)aDecoder mpsMTLDevice];
  if (device == nil) device = MTLCreateSystemDefaultDevice();  // lives as long as the process
  return [self initWithCoder:aDecoder device:device];
}

- (instancetype)initWithCoder:(NSCoder *)aDecoder device:(id<MTLDevice>)device {
  if (!(self = [self openmps_initWithDevice:device])) return nil;
  openmps::UnwindRelease unwind(self);
  KernelState &state = *static_cast<KernelState *>(_openmps);
  openmps::Archive archive(aDecoder, true);
  state.archive(archive);
  state.did_read(self);
  openmps_setTitle(self, state);
  return unwind.done();
}

@end

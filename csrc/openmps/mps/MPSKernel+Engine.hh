// SPDX-License-Identifier: Apache-2.0
// State of the kernel objects: one C++ struct per class, derived as the classes are. A class overrides
// +openmps_newState only if it has data; archiving, copying and the properties then follow from the struct.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <concepts>
#include <string>
#include <type_traits>
#include <vector>

#include "metal/OnEngine.hh"
#include "mps/Ref.hh"

namespace openmps {

/// Reads the fields of a state from an archive, or writes them: one list of fields serves both directions. Reading
/// raises NSInvalidArgumentException for objects of another class; absent keys keep the default.
class Archive {
 public:
  Archive(NSCoder *coder, bool reading) : coder_(coder), reading_(reading) {}
  bool is_reading() const { return reading_; }

  template <class T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
  void field(NSString *key, T &value) {
    std::int64_t number = static_cast<std::int64_t>(value);
    integer(key, number);
    value = static_cast<T>(number);
  }
  void field(NSString *key, float &value);
  void field(NSString *key, std::string &value) = delete;
  /// Empty lists are not stored.
  void field(NSString *key, std::vector<float> &values) { list(key, values); }
  void field(NSString *key, std::vector<double> &values) { list(key, values); }
  void field(NSString *key, std::vector<std::uint32_t> &values) { list(key, values); }
  /// Under `key`.origin.x and so on.
  void field(NSString *key, MTLRegion &region);
  /// An object of class `cls`, or nil.
  template <class T>
  void object(NSString *key, Class cls, Ref<T> &value) {
    id result = object_of(key, value.get(), cls, NULL);
    if (reading_) value = Ref<T>(result);
  }
  /// An object of any class that responds to `selector`, or nil.
  template <class T>
  void object_answering(NSString *key, SEL selector, Ref<T> &value) {
    id result = object_of(key, value.get(), Nil, selector);
    if (reading_) value = Ref<T>(result);
  }

 private:
  void integer(NSString *key, std::int64_t &value);
  template <class T>
  void list(NSString *key, std::vector<T> &values);
  id object_of(NSString *key, id value, Class cls, SEL selector);

  NSCoder *coder_;
  bool reading_;
};

/// State of an MPSKernel.
struct KernelState {
  Ref<id<OpenMPSDevice>> device;
  Ref<NSString *> label;
  MPSKernelOptions options = MPSKernelOptionsNone;
  std::string title;  ///< class name and label, for commands

  virtual ~KernelState() = default;
  virtual KernelState *clone() const = 0;
  /// List all archived fields; derived states call their base's first.
  virtual void archive(Archive &archive);
  /// Called after reading: check the values (an archive may hold anything) and derive those that are not archived.
  virtual void did_read(MPSKernel *kernel);
  /// Called after cloning, for a copy of the kernel on `device`.
  virtual void did_copy(id<OpenMPSDevice> device);
};

/// struct PoolState : Extends<PoolState, CNNKernelState> { ... };
template <class Self, class Base>
struct Extends : Base {
  KernelState *clone() const override { return new Self(static_cast<const Self &>(*this)); }
};

struct PlainKernelState : Extends<PlainKernelState, KernelState> {};

/// Raise NSInvalidArgumentException with a sentence that begins with the kernel's class and label.
[[noreturn]] void raise_for(const KernelState &state, NSString *format, ...) NS_FORMAT_FUNCTION(2, 3);
/// Return the recorder of a command buffer of the kernel's device; raise for any other.
Recorder &begin_encode(const KernelState &state, id<MTLCommandBuffer> buffer);

}  // namespace openmps

@interface MPSKernel (Engine)
/// Return a new state with the class's defaults, owned by the caller.
+ (openmps::KernelState *)openmps_newState;
- (openmps::KernelState *)openmps_state;
/// The designated initialiser: device and defaults. Classes without a usable -initWithDevice: override the latter to
/// raise.
- (instancetype)openmps_initWithDevice:(id<MTLDevice>)device;
@end

namespace openmps {

template <class State>
State &state_of(MPSKernel *kernel) {
  return *static_cast<State *>([kernel openmps_state]);
}

}  // namespace openmps

/// Accessors of a property that is a field of the state. FIELD may be a path (source.edge).
#define OPENMPS_GETTER(STATE, TYPE, NAME, FIELD) \
  -(TYPE)NAME {                                  \
    return openmps::state_of<STATE>(self).FIELD; \
  }
#define OPENMPS_PROPERTY(STATE, TYPE, NAME, SETTER, FIELD) \
  OPENMPS_GETTER(STATE, TYPE, NAME, FIELD)                 \
  -(void)SETTER : (TYPE)value {                            \
    openmps::state_of<STATE>(self).FIELD = value;          \
  }
#define OPENMPS_OBJECT_PROPERTY(STATE, TYPE, NAME, SETTER, FIELD)     \
  -(TYPE)NAME {                                                       \
    return openmps::state_of<STATE>(self).FIELD.get();                \
  }                                                                   \
  -(void)SETTER : (TYPE)value {                                       \
    openmps::state_of<STATE>(self).FIELD = openmps::Ref<TYPE>(value); \
  }
/// Initialisers that Apple's headers repeat in every class.
#define OPENMPS_INIT_WITH_CODER                                                                \
  -(nullable instancetype)initWithCoder : (NSCoder *)aDecoder device : (id<MTLDevice>)device { \
    return [super initWithCoder:aDecoder device:device];                                       \
  }
#define OPENMPS_INIT_WITH_DEVICE                          \
  -(instancetype)initWithDevice : (id<MTLDevice>)device { \
    return [super initWithDevice:device];                 \
  }

// SPDX-License-Identifier: Apache-2.0
// Messages from the C++ initializers of programs: static MPSCNNKernel *kernel = [[MPSCNN... alloc] init];
//
// clang registers a file's selectors and constant strings with the runtime in a function that runs after the file's C++
// initializers. Before that a selector holds the address of its name instead of its index, a constant string has no
// class, and a class of that file does not exist. The first two are fixed here; the last cannot be: a message to such a
// class is a message to nil (docs/objective_c.md).

#import "metal/OnEngine.hh"

#include <objc/message.h>

#include <cstring>

/// clang sets the class pointer of a constant string to the address of this weak symbol until the runtime stores the
/// class. Nothing else defines it: here it is a copy of the class in the layout of GCC's runtime, 13 words
/// [libobjc/objc-private/module-abi-8.h], which responds to messages as the class does.
OPENMPS_EXTERN void *_OBJC_CLASS_NSConstantString[13];
void *_OBJC_CLASS_NSConstantString[13];

/// The method table of classes that have not received a message [libobjc/sendmsg.c].
extern "C" void *__objc_uninstalled_dtable;

namespace openmps {
namespace {

/// A selector of a file that the runtime has not registered: its index is still the name.
struct UnregisteredSelector {
  const char *name, *types;
};

UnregisteredSelector unregistered(SEL selector) {
  UnregisteredSelector known;
  std::memcpy(&known, static_cast<const void *>(selector), sizeof known);
  return known;
}

IMP (*forward)(id, SEL) = nullptr;  ///< GNUstep's: makes an NSInvocation of the message

constexpr std::size_t kTable = 8;  ///< index of the method table in a class

Class early_strings() { return (Class) static_cast<void *>(_OBJC_CLASS_NSConstantString); }

/// The runtime calls this if it finds no method, which is so for every unregistered selector. Return the method itself
/// for those: arguments and result pass as in any message.
IMP method_or_forward(id receiver, SEL selector) {
  const bool is_registered = sel_getName(selector) != nullptr;
  const bool is_early = receiver != nil && object_getClass(receiver) == early_strings();
  if (is_registered && !is_early) return forward ? forward(receiver, selector) : nullptr;
  if (!is_registered) {
    const UnregisteredSelector known = unregistered(selector);
    selector = sel_registerTypedName(known.name, known.types);
  }
  // The copy's method table is from its first message and lacks categories that were loaded later.
  return is_early ? class_getMethodImplementation(objc_getClass("NSConstantString"), selector)
                  : objc_msg_lookup(receiver, selector);
}

__attribute__((constructor)) void answer_initializers() {
  forward = __objc_msg_forward2;
  __objc_msg_forward2 = method_or_forward;
  // A message initializes the class. Loading a category frees its method table: the copy gets its own.
  const Class strings = [objc_getClass("NSConstantString") class];
  std::memcpy(_OBJC_CLASS_NSConstantString, static_cast<const void *>(strings), sizeof _OBJC_CLASS_NSConstantString);
  _OBJC_CLASS_NSConstantString[kTable] = __objc_uninstalled_dtable;
}

}  // namespace

NSString *name_of(SEL selector) {
  const char *name = sel_getName(selector);
  return [NSString stringWithUTF8String:name ? name : unregistered(selector).name];
}

}  // namespace openmps

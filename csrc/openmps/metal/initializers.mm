// SPDX-License-Identifier: Apache-2.0
// Messages from the C++ initializers of programs: static MPSCNNKernel *kernel = [[MPSCNN... alloc] init];
//
// The runtime learns of a file's selectors and constant strings from a function that clang puts behind the file's C++
// initializers. Until then a selector holds the address of its name instead of its index, a constant string has no
// class, and a class of that file does not exist. The first two are mended here; the last cannot be, and a message to
// such a class is one to nil (docs/objective_c.md).

#import "metal/OnEngine.hh"

#include <objc/message.h>

#include <cstring>

/// clang lets the class pointer of a constant string be the address of this symbol, weakly, until the runtime puts the
/// class there. Nothing else defines it: here it is a copy of the class as GCC's runtime lays it out, 13 words
/// [libobjc/objc-private/module-abi-8.h], which answers messages as the class does.
OPENMPS_EXTERN void *_OBJC_CLASS_NSConstantString[13];
void *_OBJC_CLASS_NSConstantString[13];

/// The table of methods of classes that have had no message [libobjc/sendmsg.c].
extern "C" void *__objc_uninstalled_dtable;

namespace openmps {
namespace {

/// A selector of a file that the runtime has not seen: its index is still the name.
struct UnregisteredSelector {
  const char *name, *types;
};

UnregisteredSelector unregistered(SEL selector) {
  UnregisteredSelector known;
  std::memcpy(&known, static_cast<const void *>(selector), sizeof known);
  return known;
}

IMP (*forward)(id, SEL) = nullptr;  ///< GNUstep's: makes an NSInvocation of the message

constexpr std::size_t kTable = 8;  ///< place of the table of methods in a class

Class early_strings() { return (Class) static_cast<void *>(_OBJC_CLASS_NSConstantString); }

/// The runtime asks for a function when it knows of none, which is so for every selector that is not registered.
/// The method itself is the answer for those: arguments and result pass as in any message.
IMP method_or_forward(id receiver, SEL selector) {
  const bool is_registered = sel_getName(selector) != nullptr;
  const bool is_early = receiver != nil && object_getClass(receiver) == early_strings();
  if (is_registered && !is_early) return forward ? forward(receiver, selector) : nullptr;
  if (!is_registered) {
    const UnregisteredSelector known = unregistered(selector);
    selector = sel_registerTypedName(known.name, known.types);
  }
  // The copy's table of methods is as of its first message; a category that was loaded later is not in it.
  return is_early ? class_getMethodImplementation(objc_getClass("NSConstantString"), selector)
                  : objc_msg_lookup(receiver, selector);
}

__attribute__((constructor)) void answer_initializers() {
  forward = __objc_msg_forward2;
  __objc_msg_forward2 = method_or_forward;
  // A message completes the class. Its table of methods is freed when a category is loaded: the copy gets its own.
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

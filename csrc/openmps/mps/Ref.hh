// SPDX-License-Identifier: Apache-2.0
// Objective-C objects as members of C++ structs: retained while held, copied by retaining.
#pragma once

#import <Foundation/Foundation.h>

#include <utility>

namespace openmps {

/// `T`: an object pointer type, as in Ref<NSString *>, Ref<id<MTLDevice>>.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T object) : object_([object retain]) {}
  /// Take over the reference that alloc, new and copy return.
  static Ref adopt(T object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  Ref(const Ref &other) : object_([other.object_ retain]) {}
  Ref(Ref &&other) noexcept : object_(std::exchange(other.object_, nil)) {}
  Ref &operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { [object_ release]; }

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nil; }

 private:
  T object_ = nil;
};

/// Releases a half-made object when an exception leaves its initialiser: there is no other reference then.
class UnwindRelease {
 public:
  explicit UnwindRelease(id object) : object_(object) {}
  ~UnwindRelease() { [object_ release]; }
  UnwindRelease(const UnwindRelease &) = delete;
  UnwindRelease &operator=(const UnwindRelease &) = delete;
  /// Return the object, which is complete; the caller owns it.
  id done() { return std::exchange(object_, nil); }

 private:
  id object_;
};

}  // namespace openmps

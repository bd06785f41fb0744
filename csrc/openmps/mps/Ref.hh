// SPDX-License-Identifier: Apache-2.0
// Objective-C objects as members of C++ structs: retained while held, copied by retaining.
#pragma once

#import <Foundation/Foundation.h>

#include <utility>

namespace openmps {

/// T is an object pointer type: Ref<NSString *>, Ref<id<MTLDevice>>.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T object) : object_([object retain]) {}
  /// Takes over the reference that alloc, new and copy return.
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

/// Releases a half-made object when an exception leaves its initialiser: nobody else has a reference then.
class UnwindRelease {
 public:
  explicit UnwindRelease(id object) : object_(object) {}
  ~UnwindRelease() { [object_ release]; }
  UnwindRelease(const UnwindRelease &) = delete;
  UnwindRelease &operator=(const UnwindRelease &) = delete;
  /// The object is complete: hands it out.
  id done() { return std::exchange(object_, nil); }

 private:
  id object_;
};

}  // namespace openmps

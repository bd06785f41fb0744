// SPDX-License-Identifier: Apache-2.0
// Ref<T>: owning reference to an Objective-C object. adopt() takes over the result of alloc, new or copy; retain() adds
// a reference to any other object. Avoid a bare `release` elsewhere.
#pragma once

#import <Foundation/Foundation.h>

#include <utility>

#if __has_feature(objc_arc)
#error "The core counts references itself: compile with -fno-objc-arc."
#endif

namespace mpscnn {

template <class T>
class Ref {
 public:
  Ref() = default;
  static Ref adopt(T object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  static Ref retain(T object) { return adopt([object retain]); }

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

}  // namespace mpscnn

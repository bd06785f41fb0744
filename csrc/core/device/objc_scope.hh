// SPDX-License-Identifier: Apache-2.0
// Pool and guard(), with which every public function of the core begins.
#pragma once

#import <Foundation/Foundation.h>

#include <string>
#include <type_traits>

#include <mpscnn/pool_scope.hpp>
#include "core/device/objc_error.hpp"

namespace mpscnn {

/// Autorelease pool that C++ exceptions drain too (on GNUstep they leave @autoreleasepool undrained). Inside of a
/// PoolScope, that scope's pool is used.
class Pool {
 public:
  Pool() : pool_(PoolScope::is_open() ? nil : [[NSAutoreleasePool alloc] init]) {}
  ~Pool() { [pool_ drain]; }
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

 private:
  NSAutoreleasePool *pool_;
};

inline std::string text(NSString *string) {
  const char *bytes = [string UTF8String];
  return bytes ? bytes : "";
}

inline NSString *ns(const std::string &string) { return [NSString stringWithUTF8String:string.c_str()]; }

/// Run `f` in a Pool. An NSException becomes the corresponding C++ exception, thrown after the handler is left. C++
/// exceptions pass through unchanged (a .mm must not catch them).
template <class F>
auto guard(F &&f) -> std::invoke_result_t<F> {
  Pool pool;
  Raised raised;
  @try {
    return f();
  } @catch (NSException *exception) {
    raised = {text([exception name]), text([exception reason])};
  }
  throw_raised(raised);
}

}  // namespace mpscnn

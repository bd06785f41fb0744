// SPDX-License-Identifier: Apache-2.0
// Failure: the reason why an engine did not complete a list of commands.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace openmps {

enum class FailureCode : std::uint8_t {
  none,
  out_of_memory,
  internal,     ///< a call of the engine failed; later ones may succeed
  device_lost,  ///< every later call fails
};

/// Thrown by engines for failures other than std::bad_alloc.
class EngineError : public std::runtime_error {
 public:
  EngineError(FailureCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  FailureCode code() const noexcept { return code_; }

 private:
  FailureCode code_;
};

/// The first failure of a list.
struct Failure {
  FailureCode code = FailureCode::none;
  std::string sentence;  ///< names the label of the command

  explicit operator bool() const { return code != FailureCode::none; }
};

}  // namespace openmps

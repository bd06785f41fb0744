// SPDX-License-Identifier: Apache-2.0
// Failure: the reason why an engine did not complete a list of commands.
#pragma once

#include <array>
#include <cstdint>
#include <new>
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

/// Thrown by the allocators of engines. Its sentence needs no allocation.
class OutOfMemory : public std::bad_alloc {
 public:
  /// `requested`: bytes of the block that is not available. `in_use`: bytes that the allocator has given out.
  OutOfMemory(std::uint64_t requested, std::uint64_t in_use) noexcept;
  const char* what() const noexcept override { return sentence_.data(); }

 private:
  std::array<char, 128> sentence_;
};

/// Return the sentence of an OutOfMemory, a general one for other exceptions.
const char* sentence_of(const std::bad_alloc& error) noexcept;

/// The first failure of a list.
struct Failure {
  FailureCode code = FailureCode::none;
  std::string sentence;  ///< names the label of the command

  explicit operator bool() const { return code != FailureCode::none; }
};

}  // namespace openmps

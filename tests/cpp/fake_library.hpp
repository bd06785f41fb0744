// SPDX-License-Identifier: Apache-2.0
// Shared by the libraries that replace cuDNN and cuBLASLt in tests of the CUDA engine on cuda-host. They compute on the
// host, check their arguments as NVIDIA's documentation demands, and can be told to fail.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "engine/cuda/host_stream.hpp"
#include "engine/shared/half.hpp"

#define FAKE_API extern "C" __attribute__((visibility("default")))

FAKE_API const int mpscnn_computes_on_host = 1;

namespace fake {

using openmps::cuda::Address, openmps::cuda::HostStream, openmps::cuda::host_address;
using i64 = std::int64_t;

/// Return whether a variable, a comma-separated list, has the word.
inline bool has_word(const char* variable, const std::string& word) {
  const char* const list = std::getenv(variable);
  return list && (',' + std::string(list) + ',').find(',' + word + ',') != std::string::npos;
}
/// Return whether the calls that the word names fail.
inline bool fails(const std::string& word) { return has_word("FAKE_FAILS", word); }

/// Run the call on a stream. It takes time if FAKE_SLOW has the word.
template <class Call>
void run_on(HostStream* stream, const std::string& word, Call call) {
  const float milliseconds = has_word("FAKE_SLOW", word) ? 1.0f : 0.0f;
  stream->add([stream, milliseconds, call = std::move(call)] {
    call();
    stream->spend(milliseconds);
  });
}

/// If FAKE_TRACE is set, print a line to stderr.
inline void trace(const std::string& text) {
  if (std::getenv("FAKE_TRACE")) std::fprintf(stderr, "fake %s\n", text.c_str());
}

/// Products of tensor cores have 10 bits of the fraction of float32.
inline float rounded_to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

/// Values of float32 or float16.
struct Values {
  void* data = nullptr;
  bool is_half = false;

  float load(i64 index) const {
    if (!is_half) return static_cast<const float*>(data)[index];
    return openmps::half_to_float(static_cast<const std::uint16_t*>(data)[index]);
  }
  void store(i64 index, float value) const {
    if (is_half)
      static_cast<std::uint16_t*>(data)[index] = openmps::float_to_half(value);
    else
      static_cast<float*>(data)[index] = value;
  }
  std::size_t size() const { return is_half ? 2 : 4; }
};

}  // namespace fake

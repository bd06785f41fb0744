// SPDX-License-Identifier: Apache-2.0
// Operations on runs of adjacent values: conversions, activations, arithmetic. Compiled for several instruction sets;
// the machine's best is picked when the library is loaded. Serial: callers split work among threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/problem/pointwise.hpp"

namespace openmps {

void row_to_float(const void* src, Format format, float* dst, std::int64_t count);
void row_from_float(const float* src, void* dst, Format format, std::int64_t count);

/// dst = neuron(src + bias[i % channels]) for `count` values starting at channel 0; a null bias is 0. src may be dst.
void row_neuron(const Neuron& neuron, const float* src, float* dst, std::int64_t count, std::int64_t channels,
                const float* bias);

/// dst = diff * f'(src) for `count` values starting at channel 0, f the neuron.
void row_neuron_gradient(const Neuron& neuron, const float* diff, const float* src, float* dst, std::int64_t count,
                         std::int64_t channels);

/// dst = f(a, b), all floats or all halves.
void row_arithmetic(const Arithmetic& f, const float* a, const float* b, float* dst, std::int64_t count);
void row_arithmetic(const Arithmetic& f, const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* dst,
                    std::int64_t count);

/// Write `copies` adjacent copies of each value.
void row_repeat(const float* src, float* dst, std::int64_t count, std::int64_t copies);

}  // namespace openmps

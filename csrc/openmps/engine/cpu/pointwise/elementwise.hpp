// SPDX-License-Identifier: Apache-2.0
// Element-wise work: copies, conversions, activations. Threaded where it pays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cpu/runtime.hpp"
#include "engine/problem/copy.hpp"
#include "engine/problem/pointwise.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::cpu {

/// dst = src, converted if formats differ.
void copy(const Tensor& src, const Tensor& dst);

/// Return the image if it is dense and has the format, otherwise a copy in `block`.
Tensor dense(const Tensor& image, Format format, Scratch& block);

/// dst = neuron(src + bias); a null bias is 0. src and dst may be the same.
void activate(const Tensor& src, const Tensor& dst, const Neuron& neuron, const float* bias = nullptr);

/// Set every pixel of dst to neuron(bias): the result of a convolution that reads no pixel.
void fill_pixels(const Tensor& dst, const Neuron& neuron, const float* bias);

/// dst[n][y][x] = src[n][start_h + y][start_w + x], zero or clamped to the edge outside of src. dst is dense float.
void pad(const Tensor& src, std::int64_t start_h, std::int64_t start_w, Edge edge, const Tensor& dst);

/// dst[n][y][x][c] = src[n][y / r][x / r][(r * (y % r) + x % r) * dst.c + c]; src is float32 or has dst's format.
void depth_to_space(const Tensor& src, const Tensor& dst, std::int64_t r);

void run(const NeuronProblem& problem);
void run(const CopyProblem& problem);
void run(const BufferCopyProblem& problem);
void run(const BufferFillProblem& problem);
void run(const PixelCopyProblem& problem);
void run(const StridedCopyProblem& problem);

void fill_bytes(std::byte* dst, std::uint8_t value, std::size_t bytes);

}  // namespace openmps::cpu

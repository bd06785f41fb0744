// SPDX-License-Identifier: Apache-2.0
// The commands that recurrent layers consist of. A matrix is a view of one image with one row of pixels: the pixels are
// the matrix's rows, the channels its columns.
#pragma once

#include "engine/problem/problem.hpp"
#import "mps/MPSKernel+Engine.hh"

namespace openmps {

class CellCommands {
 public:
  CellCommands(const KernelState &state, Recorder &recorder) : state_(state), recorder_(recorder) {}

  /// Return a new matrix of floats that only commands refer to.
  ImageView matrix(std::int64_t rows, std::int64_t columns) const;
  /// The same, filled with zeros.
  ImageView zeros(std::int64_t rows, std::int64_t columns) const;

  void fill_with_zeros(const ImageView &dst) const;  ///< a matrix without gaps
  void copy(const ImageView &src, const ImageView &dst) const;
  /// Each row of dst = row.
  void repeat(const ImageView &row, const ImageView &dst) const;
  /// dst = a operation b. dst may be a or b. A b of one row is used for all rows.
  void combine(BinaryOperation operation, const ImageView &a, const ImageView &b, const ImageView &dst) const;
  void add(const ImageView &a, const ImageView &dst) const { combine(BinaryOperation::add, dst, a, dst); }
  void multiply(const ImageView &a, const ImageView &b, const ImageView &dst) const {
    combine(BinaryOperation::multiply, a, b, dst);
  }
  /// dst += a * b, through a new matrix.
  void add_product(const ImageView &a, const ImageView &b, const ImageView &dst) const;
  /// dst = the values of src, at most `max`.
  void limit(const ImageView &src, float max, const ImageView &dst) const;
  /// dst = neuron(src); dst may be src.
  void activate(const Neuron &neuron, const ImageView &src, const ImageView &dst) const;
  /// dst = diff * neuron'(src); dst is none of them.
  void activate_gradient(const Neuron &neuron, const ImageView &diff, const ImageView &src, const ImageView &dst) const;
  /// dst = op(a) op(b), plus dst if `accumulates`.
  void product(const ImageView &a, bool transpose_a, const ImageView &b, bool transpose_b, const ImageView &dst,
               bool accumulates) const;
  /// Row dst = the sum over all rows of a * b, plus dst if `accumulates`; b without memory: of a.
  void sum_rows(const ImageView &a, const ImageView &b, const ImageView &dst, bool accumulates) const;
  void append(Problem problem) const { recorder_.append(std::move(problem), state_.title); }

 private:
  const KernelState &state_;
  Recorder &recorder_;
};

/// Return a matrix of floats without gaps in the memory.
ImageView matrix_in(const std::shared_ptr<Memory> &memory, std::size_t offset, std::int64_t rows, std::int64_t columns);
/// Return a matrix of these values, which no command buffer uses yet; raise if there is no memory.
ImageView new_matrix(const KernelState &state, std::int64_t rows, std::int64_t columns,
                     const std::vector<float> &values);
inline ImageView rows_of(const ImageView &matrix, std::int64_t first, std::int64_t count) {
  return matrix.region(0, first, 1, count);
}

}  // namespace openmps

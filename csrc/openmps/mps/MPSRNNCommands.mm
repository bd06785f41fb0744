// SPDX-License-Identifier: Apache-2.0
// The problems that recurrent layers are made of.

#import "mps/MPSRNNCommands+Engine.hh"

#include <cstring>

namespace openmps {
namespace {

Operand operand_of(const ImageView &view, std::int64_t rows) {
  Operand operand;
  operand.view = view;
  operand.repeat_w = view.w == 1 && rows > 1;
  return operand;
}

}  // namespace

ImageView matrix_in(const std::shared_ptr<Memory> &memory, std::size_t offset, std::int64_t rows,
                    std::int64_t columns) {
  ImageView view;
  view.memory = memory;
  view.offset = offset;
  view.w = rows, view.c = columns;
  view.w_stride = columns;
  view.h_stride = view.n_stride = rows * columns;
  return view;
}

ImageView new_matrix(const KernelState &state, std::int64_t rows, std::int64_t columns,
                     const std::vector<float> &values) {
  const NSUInteger bytes = values.size() * sizeof(float);
  const auto buffer = Ref<id<OpenMPSBuffer>>::adopt(new_buffer_of_mps(state.device.get(), bytes));
  if (!buffer)
    raise_memory(@"%s: there is no memory for %lu bytes of weights.", state.title.c_str(), (unsigned long)bytes);
  std::memcpy([buffer.get() contents], values.data(), bytes);
  [buffer.get() didModifyRange:NSMakeRange(0, bytes)];
  return matrix_in([buffer.get() openmps_memory], 0, rows, columns);
}

ImageView CellCommands::matrix(std::int64_t rows, std::int64_t columns) const {
  const auto bytes = openmps::product({static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), 4});
  if (!bytes)
    raise_for(state_, @"The kernel needs a matrix of %ld x %ld floats, which is too large.", (long)rows, (long)columns);
  return matrix_in(Memory::lazy_image(recorder_.engine(), *bytes), 0, rows, columns);
}

ImageView CellCommands::zeros(std::int64_t rows, std::int64_t columns) const {
  const ImageView made = matrix(rows, columns);
  fill_with_zeros(made);
  return made;
}

void CellCommands::fill_with_zeros(const ImageView &dst) const {
  BufferFillProblem problem;
  problem.dst = dst.memory;
  problem.offset = dst.offset;
  problem.bytes = static_cast<std::size_t>(dst.size()) * size_of(dst.format);
  append(problem);
}

void CellCommands::copy(const ImageView &src, const ImageView &dst) const { append(CopyProblem{src, dst}); }

void CellCommands::repeat(const ImageView &row, const ImageView &dst) const {
  PadProblem problem;
  problem.src = row, problem.dst = dst;
  problem.edge = PadEdge::clamp;
  append(problem);
}

void CellCommands::combine(BinaryOperation operation, const ImageView &a, const ImageView &b,
                           const ImageView &dst) const {
  BinaryProblem problem;
  problem.src0 = operand_of(a, dst.w), problem.src1 = operand_of(b, dst.w);
  problem.dst = dst;
  problem.function.operation = operation;
  append(problem);
}

void CellCommands::add_product(const ImageView &a, const ImageView &b, const ImageView &dst) const {
  const ImageView product = matrix(dst.w, dst.c);
  multiply(a, b, product);
  add(product, dst);
}

void CellCommands::limit(const ImageView &src, float max, const ImageView &dst) const {
  BinaryProblem problem;
  problem.src0 = problem.src1 = operand_of(src, dst.w);
  problem.dst = dst;
  problem.function.scale1 = 0;
  problem.function.max = max;
  append(problem);
}

void CellCommands::activate(const Neuron &neuron, const ImageView &src, const ImageView &dst) const {
  if (neuron.type != NeuronType::none)
    append(NeuronProblem{src, dst, neuron});
  else if (!(src == dst))
    copy(src, dst);
}

void CellCommands::activate_gradient(const Neuron &neuron, const ImageView &diff, const ImageView &src,
                                     const ImageView &dst) const {
  if (neuron.type == NeuronType::none) return copy(diff, dst);
  NeuronGradientProblem problem;
  problem.diff_dst = operand_of(diff, dst.w), problem.src = operand_of(src, dst.w);
  problem.diff_src = dst;
  problem.neuron = neuron;
  append(problem);
}

void CellCommands::product(const ImageView &a, bool transpose_a, const ImageView &b, bool transpose_b,
                           const ImageView &dst, bool accumulates) const {
  ProductProblem problem;
  problem.a = a, problem.b = b, problem.dst = dst;
  problem.transpose_a = transpose_a, problem.transpose_b = transpose_b;
  if (accumulates) problem.c = dst, problem.beta = 1;
  append(problem);
}

void CellCommands::sum_rows(const ImageView &a, const ImageView &b, const ImageView &dst, bool accumulates) const {
  const ImageView sum = accumulates ? matrix(1, dst.c) : dst;
  if (b.memory) {
    BinaryGradientProblem problem;
    problem.diff_dst = operand_of(a, a.w), problem.other = operand_of(b, a.w);
    problem.diff_src = sum;
    problem.sum_w = a.w;
    append(problem);
  } else {
    ReduceProblem problem;
    problem.src = a, problem.dst = sum;
    problem.type = ReduceType::sum;
    append(problem);
  }
  if (accumulates) add(sum, dst);
}

}  // namespace openmps

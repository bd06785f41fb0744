// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/pointwise.hpp"
#include "engine/cuda/families.hpp"

namespace openmps::cuda {
namespace {

const char* run_neuron(const Call<NeuronProblem>& call) {
  const auto& [p, work] = call;
  const pointwise::NeuronArgs args{work.view(p.src), work.view(p.dst), work.activation(p.neuron)};
  work.launch(pointwise::neuron, args, p.dst.size(), {&args.src, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<NeuronProblem>> kNeurons[] = {{"cuda_neuron", run_neuron}};
const ImplementationNames kNeuronNames(kNeurons);

const char* run_binary(const Call<BinaryProblem>& call) {
  const auto& [p, work] = call;
  const pointwise::BinaryArgs args{work.source(p.src0), work.source(p.src1), work.view(p.dst), work.view(p.mask),
                                   p.function};
  work.launch(pointwise::binary, args, p.dst.size(), {&args.src0.view, &args.src1.view, &args.dst, &args.mask});
  return nullptr;
}
constexpr Implementation<Call<BinaryProblem>> kBinaries[] = {{"cuda_binary", run_binary}};
const ImplementationNames kBinaryNames(kBinaries);

const char* run_copy(const Call<CopyProblem>& call) {
  const auto& [p, work] = call;
  const pointwise::CopyArgs args{work.view(p.src), work.view(p.dst)};
  work.launch(pointwise::copy, args, p.dst.size(), {&args.src, &args.dst});
  return nullptr;
}
constexpr Implementation<Call<CopyProblem>> kCopies[] = {{"cuda_copy", run_copy}};
const ImplementationNames kCopyNames(kCopies);

}  // namespace

bool solve(const NeuronProblem& problem, Work& work) {
  return try_first("neuron", kNeurons, Call<NeuronProblem>{problem, work});
}
bool solve(const BinaryProblem& problem, Work& work) {
  return try_first("binary", kBinaries, Call<BinaryProblem>{problem, work});
}
bool solve(const CopyProblem& problem, Work& work) {
  return try_first("copy", kCopies, Call<CopyProblem>{problem, work});
}

}  // namespace openmps::cuda

// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/matrix_product.hpp"

#include "engine/cuda/families.hpp"

namespace openmps::cuda {
namespace {

constexpr i64 kManyTerms = 1024, kManyValues = 64 * 1024;

matrix_product::ProductArgs args_of(const Call<ProductProblem>& call) {
  const auto& [p, work] = call;
  return {.a = work.view(p.a),
          .b = work.view(p.b),
          .c = work.view(p.c),
          .dst = work.view(p.dst),
          .transpose_a = p.transpose_a,
          .transpose_b = p.transpose_b,
          .symmetric_b = p.symmetric_b,
          .alpha = p.alpha,
          .beta = p.beta,
          .terms = p.terms()};
}

void launch(const Kernel<matrix_product::ProductArgs>& kernel, const Call<ProductProblem>& call) {
  const matrix_product::ProductArgs args = args_of(call);
  call.work.launch(kernel, args, call.problem.dst.size(), {&args.a, &args.b, &args.c, &args.dst});
}

const char* run_product_by_blocks(const Call<ProductProblem>& call) {
  if (call.problem.terms() < kManyTerms) return "few terms";
  if (call.problem.dst.size() >= kManyValues) return "many values";
  launch(matrix_product::matrix_product_by_blocks, call);
  return nullptr;
}
const char* run_product(const Call<ProductProblem>& call) {
  launch(matrix_product::matrix_product_values, call);
  return nullptr;
}
constexpr Implementation<Call<ProductProblem>> kProducts[] = {{"cuda_product_by_blocks", run_product_by_blocks},
                                                              {"cuda_product", run_product}};
const ImplementationNames kProductNames(kProducts);

}  // namespace

bool solve(const ProductProblem& problem, Work& work) {
  return try_first("product", kProducts, Call<ProductProblem>{problem, work});
}

}  // namespace openmps::cuda

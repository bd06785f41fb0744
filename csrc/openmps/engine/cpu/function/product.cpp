// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/function/known.hpp"
#include "engine/cpu/product/multiply.hpp"
#include "engine/function/function.hpp"
#include "engine/shared/tensor.hpp"

namespace openmps::cpu {
namespace {

const FunctionTexture* texture_at(const std::vector<FunctionTexture>& list, std::uint32_t argument) {
  for (const FunctionTexture& each : list)
    if (each.argument == argument) return &each;
  return nullptr;
}

FloatMatrices matrices_of(const ImageView& view) {
  const Tensor rows = tensor_of(view);
  return {rows.floats(), rows.h_stride, rows.w_stride};
}

}  // namespace

bool covers(const FunctionExtent& threads, const FunctionTexture& texture, std::uint32_t across) {
  const ImageView& view = texture.view;
  return view.n == 1 && std::int64_t{across} * threads.x >= view.w && threads.y >= view.h &&
         std::int64_t{texture.lanes} * threads.z >= view.c;
}

const char* function_product(const FunctionProblem& problem) {
  if (problem.function->kernel().meaning != function::Meaning::product) return "the function is not a product";
  const FunctionTexture* a = texture_at(problem.sources, 0);
  const FunctionTexture* b = texture_at(problem.sources, 1);
  if (!a || !b || problem.sources.size() != 2 || problem.results.size() != 1)
    return "the arguments are not two sources and a result";
  const FunctionTexture& y = problem.results[0];
  if (!covers(problem.threads, y, 4)) return "the threads are not those of one image";
  for (const FunctionTexture* each : {a, b})
    if (each->view.n != 1) return "a source has several images";
  for (const FunctionTexture* each : {a, b, &y})
    if (each->view.format != Format::float32) return "the images are not float32";
  const ImageView &left = a->view, &right = b->view, &result = y.view;
  if (left.h != result.h || right.h != result.h || left.w != result.w || right.c != result.c || left.c != right.w)
    return "the extents are not those of a product";
  const Tensor to = tensor_of(result);
  const bool done = multiply(matrices_of(left), matrices_of(right), result.h, result.w, result.c, left.c, to.floats(),
                             to.h_stride, to.w_stride);
  return done ? nullptr : "oneDNN has only its reference";
}

}  // namespace openmps::cpu

// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/product/product.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/cpu/pointwise/elementwise.hpp"
#include "engine/cpu/product/multiply.hpp"
#include "engine/cpu/runtime.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/parallel.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kCopyGrain = 32 * 1024;  // min values per thread

Tensor image_of(const Tensor& all, std::int64_t n) {
  Tensor image = all;
  image.data = all.at(n, 0);
  image.n = 1;
  return image;
}

/// Return whether the pixels are rows of floats at equal distances.
bool is_matrix(const Tensor& image) {
  return image.format == Format::float32 &&
         (image.h == 1 || image.w == 1 || image.h_stride == image.w * image.w_stride);
}

/// Return the distance of the rows of a matrix.
std::int64_t stride_of(const Tensor& matrix) {
  const std::int64_t stride = matrix.w > 1 ? matrix.w_stride : matrix.h > 1 ? matrix.h_stride : matrix.c;
  return std::max(stride, matrix.c);
}

/// The images of an operand as matrices of floats, one at a time.
class Matrices {
 public:
  explicit Matrices(const ImageView& view) : all_(tensor_of(view)) {
    if (!is_matrix(image_of(all_, 0))) copy_.emplace(1, all_.h, all_.w, all_.c);
  }
  const Tensor& all() const { return all_; }

  FloatMatrix matrix(std::int64_t n, bool is_transposed) {
    Tensor image = image_of(all_, n);
    if (copy_) {
      copy(image, copy_->tensor);
      image = copy_->tensor;
    }
    return {image.floats(), stride_of(image), is_transposed};
  }

 private:
  Tensor all_;
  std::optional<ScratchTensor> copy_;
};

/// sums = b + transposed(b), size x size without gaps.
void add_transposed(const FloatMatrix& b, std::int64_t size, float* sums) {
  parallel_ranges(size, threads_for(size * size, kCopyGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < size; ++j) sums[i * size + j] = b.data[i * b.stride + j] + b.data[j * b.stride + i];
  });
}

const char* product(const ProductProblem& p) {
  Matrices a(p.a), b(p.b);
  const Tensor dst = tensor_of(p.dst);
  const bool in_place = is_matrix(image_of(dst, 0));
  std::optional<ScratchTensor> result, sums;
  if (!in_place) result.emplace(1, dst.h, dst.w, dst.c);
  if (p.symmetric_b) sums.emplace(1, 1, p.b.c, p.b.c);
  for (std::int64_t n = 0; n < dst.n; ++n) {
    const FloatMatrix left = a.matrix(n, p.transpose_a);
    FloatMatrix right = b.matrix(n, p.transpose_b);
    if (p.symmetric_b) {
      add_transposed(right, p.b.c, sums->tensor.floats());
      right = {sums->tensor.floats(), p.b.c};
    }
    const Tensor image = image_of(dst, n), to = in_place ? image : result->tensor;
    if (p.c.memory) {
      const Tensor addend = image_of(tensor_of(p.c), n);
      if (!in_place || addend.data != image.data) copy(addend, to);
    }
    multiply(left, right, dst.h * dst.w, dst.c, p.terms(), to.floats(), stride_of(to), p.alpha,
             p.c.memory ? p.beta : 0.0f);
    if (!in_place) copy(to, image);
  }
  return nullptr;
}

constexpr Implementation<ProductProblem> kProducts[] = {{"product", product}};
const ImplementationNames kProductNames(kProducts);

}  // namespace

void run(const ProductProblem& problem) { run_first("product", kProducts, problem); }

}  // namespace openmps::cpu

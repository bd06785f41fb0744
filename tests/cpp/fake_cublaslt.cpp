// SPDX-License-Identifier: Apache-2.0
// libcublasLt.so.13 for tests without a GPU: the part of cuBLASLt that the engine uses, by plain loops. Names and
// values are those of cuBLASLt [docs.nvidia.com/cuda/cublas, cublasLt].
//
// FAKE_FAILS: "products" makes every product fail, "algorithms" every heuristic. FAKE_SLOW: "products" lets every
// product take time.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "fake_library.hpp"

namespace {

using namespace fake;

constexpr int kSuccess = 0, kInvalidValue = 7, kExecutionFailed = 13, kNotSupported = 15;
constexpr int kReal32 = 0, kReal16 = 2, kCompute32 = 68, kComputeTf32 = 77;
enum Epilogue : std::uint32_t { kDefault = 1, kRelu = 2, kBias = 4, kReluBias = 6 };

struct Desc {
  int compute = 0, trans_a = 0, trans_b = 0, bias_type = -1;
  std::uint32_t epilogue = kDefault;
  const void* bias = nullptr;
  bool has_bias() const { return epilogue == kBias || epilogue == kReluBias; }
};
struct Layout {
  int type = 0;
  std::uint64_t rows = 0, columns = 0;
  i64 stride = 0;  ///< between columns, in values
  std::size_t bytes() const {
    const auto count = (static_cast<i64>(columns) - 1) * stride + static_cast<i64>(rows);
    return static_cast<std::size_t>(count) * (type == kReal16 ? 2 : 4);
  }
};
struct Preference {
  std::uint64_t max_workspace = 0;
  std::array<std::uint32_t, 4> alignments{256, 256, 256, 256};  ///< of A, B, C, D
};

/// The product that an algorithm computes: D = A' B, A of k x m, B of k x n, D of m x n. With `sums_columns`, D = A B',
/// A of m x k, B of n x k.
struct Shape {
  int compute = 0, type = 0, result_type = 0;
  bool sums_columns = false;
  std::uint32_t epilogue = 0;
  i64 m = 0, n = 0, k = 0, a_stride = 0, b_stride = 0, c_stride = 0, d_stride = 0;

  std::uint64_t hash() const {
    std::uint64_t result = 1469598103934665603u;
    for (const i64 each : {i64{compute}, i64{type}, i64{result_type}, i64{sums_columns}, i64{epilogue}, m, n, k,
                           a_stride, b_stride, c_stride, d_stride})
      result = (result ^ static_cast<std::uint64_t>(each)) * 1099511628211u;
    return result;
  }
};
enum class Space : std::uint64_t { sums, none };
/// cublasLtMatmulAlgo_t.
struct Algorithm {
  std::uint64_t magic = 0x6661, shape = 0, alignment = 0;
  Space space = Space::none;
  std::uint64_t unused[4]{};
};
static_assert(sizeof(Algorithm) == 64);
/// cublasLtMatmulHeuristicResult_t.
struct Recommendation {
  Algorithm algorithm;
  std::size_t workspace = 0;
  int status = 0;
  float waves = 1;
  int reserved[4]{};
};

/// Return whether the descriptions fit together.
bool read(const Desc* desc, const Layout* a, const Layout* b, const Layout* c, const Layout* d, Shape& shape) {
  if (!desc || !a || !b || !c || !d) return false;
  if (desc->trans_a == desc->trans_b) return false;  // this library has two of the four orders
  const bool sums_columns = desc->trans_b != 0;
  const auto inner = [&](const Layout* each) { return sums_columns ? each->columns : each->rows; };
  const auto outer = [&](const Layout* each) { return sums_columns ? each->rows : each->columns; };
  if (inner(a) != inner(b) || d->rows != outer(a) || d->columns != outer(b)) return false;
  if (c->rows != d->rows || c->columns != d->columns) return false;
  if (a->type != b->type || c->type != d->type) return false;
  if (d->type != a->type && d->type != kReal32) return false;  // float16 to float32
  if (desc->compute == kComputeTf32 && a->type != kReal32) return false;
  if (desc->has_bias() && desc->bias_type != d->type) return false;
  shape = {desc->compute,
           a->type,
           d->type,
           sums_columns,
           desc->epilogue,
           static_cast<i64>(d->rows),
           static_cast<i64>(d->columns),
           static_cast<i64>(inner(a)),
           a->stride,
           b->stride,
           c->stride,
           d->stride};
  return true;
}

std::size_t workspace_of(const Shape& shape, Space space) {
  return space == Space::none ? 0 : static_cast<std::size_t>(shape.m * shape.n) * sizeof(double);
}

struct Run {
  Shape shape;
  const void *a = nullptr, *b = nullptr, *c = nullptr, *bias = nullptr;  ///< on the host
  void *d = nullptr, *workspace = nullptr;
  float alpha = 1, beta = 0;

  void operator()() const {
    const bool is_tf32 = shape.compute == kComputeTf32;
    const auto values = [&](const void* data) { return Values{const_cast<void*>(data), shape.result_type == kReal16}; };
    const auto load = [&](const void* data, i64 column, i64 k, i64 stride) {
      const i64 index = shape.sums_columns ? k * stride + column : column * stride + k;
      const float value = Values{const_cast<void*>(data), shape.type == kReal16}.load(index);
      return double{is_tf32 ? rounded_to_tf32(value) : value};
    };
    std::vector<double> own_sums;
    auto* sums = static_cast<double*>(workspace);
    if (!sums) own_sums.resize(static_cast<std::size_t>(shape.m * shape.n)), sums = own_sums.data();
    for (i64 j = 0; j < shape.n; ++j)
      for (i64 i = 0; i < shape.m; ++i) {
        double sum = 0;
        for (i64 k = 0; k < shape.k; ++k) sum += load(a, i, k, shape.a_stride) * load(b, j, k, shape.b_stride);
        sums[j * shape.m + i] = sum;
      }
    for (i64 j = 0; j < shape.n; ++j)
      for (i64 i = 0; i < shape.m; ++i) {
        auto value = static_cast<float>(alpha * sums[j * shape.m + i]);
        if (beta != 0) value += beta * values(c).load(j * shape.c_stride + i);
        if (shape.epilogue == kBias || shape.epilogue == kReluBias) value += values(bias).load(i);
        if (shape.epilogue == kRelu || shape.epilogue == kReluBias) value = std::max(value, 0.0f);
        values(d).store(j * shape.d_stride + i, value);
      }
  }
};

int refuse(int status, const std::string& why) {
  trace("cuBLASLt fails: " + why);
  return status;
}

template <class T>
bool copy_value(T& to, const void* from, std::size_t bytes) {
  if (!from || bytes != sizeof(T)) return false;
  std::memcpy(&to, from, bytes);
  return true;
}

}  // namespace

FAKE_API int cublasLtCreate(void** handle) { return *handle = new int, kSuccess; }
FAKE_API std::size_t cublasLtGetVersion() { return 130000; }
FAKE_API int cublasLtMatmulDescCreate(Desc** desc, int compute, int scale) {
  if ((compute != kCompute32 && compute != kComputeTf32) || scale != kReal32) return kNotSupported;
  *desc = new Desc;
  (*desc)->compute = compute;
  return kSuccess;
}
FAKE_API int cublasLtMatmulDescDestroy(Desc* desc) { return delete desc, kSuccess; }
FAKE_API int cublasLtMatmulDescSetAttribute(Desc* desc, int attribute, const void* value, std::size_t bytes) {
  if (!desc) return kInvalidValue;
  bool is_set = false;
  switch (attribute) {
    case 3: is_set = copy_value(desc->trans_a, value, bytes) && (desc->trans_a == 0 || desc->trans_a == 1); break;
    case 4: is_set = copy_value(desc->trans_b, value, bytes) && (desc->trans_b == 0 || desc->trans_b == 1); break;
    case 7: {
      is_set = copy_value(desc->epilogue, value, bytes);
      const std::uint32_t e = desc->epilogue;
      is_set = is_set && (e == kDefault || e == kRelu || e == kBias || e == kReluBias);
      break;
    }
    case 8: is_set = copy_value(desc->bias, value, bytes); break;
    case 26: is_set = copy_value(desc->bias_type, value, bytes); break;
    default: break;
  }
  return is_set ? kSuccess : kInvalidValue;
}
FAKE_API int cublasLtMatrixLayoutCreate(Layout** layout, int type, std::uint64_t rows, std::uint64_t columns,
                                        i64 stride) {
  if (type != kReal32 && type != kReal16) return kNotSupported;
  if (rows < 1 || columns < 1 || stride < static_cast<i64>(rows)) return kInvalidValue;
  return *layout = new Layout{type, rows, columns, stride}, kSuccess;
}
FAKE_API int cublasLtMatrixLayoutDestroy(Layout* layout) { return delete layout, kSuccess; }
FAKE_API int cublasLtMatmulPreferenceCreate(Preference** preference) { return *preference = new Preference, kSuccess; }
FAKE_API int cublasLtMatmulPreferenceDestroy(Preference* preference) { return delete preference, kSuccess; }
FAKE_API int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value,
                                                  std::size_t bytes) {
  if (!preference) return kInvalidValue;
  if (attribute == 1) return copy_value(preference->max_workspace, value, bytes) ? kSuccess : kInvalidValue;
  if (attribute < 5 || attribute > 8) return kInvalidValue;  // MIN_ALIGNMENT_A_BYTES ... MIN_ALIGNMENT_D_BYTES
  const auto index = static_cast<std::size_t>(attribute - 5);
  return copy_value(preference->alignments[index], value, bytes) ? kSuccess : kInvalidValue;
}
/// Recommends one algorithm that fails at once, one with workspace, and one without.
FAKE_API int cublasLtMatmulAlgoGetHeuristic(void*, Desc* desc, Layout* a, Layout* b, Layout* c, Layout* d,
                                            Preference* preference, int requested, Recommendation* results,
                                            int* count) {
  Shape shape;
  if (!read(desc, a, b, c, d, shape) || !preference || requested < 1 || !results || !count)
    return refuse(kInvalidValue, "the matrices of a heuristic do not fit together");
  *count = 0;
  if (fails("algorithms")) return kNotSupported;
  std::vector<Recommendation> all(1);
  all.front().status = kNotSupported;
  const auto alignment = *std::max_element(preference->alignments.begin(), preference->alignments.end());
  for (const Space space : {Space::sums, Space::none}) {
    Recommendation each;
    each.algorithm.shape = shape.hash(), each.algorithm.space = space, each.algorithm.alignment = alignment;
    each.workspace = workspace_of(shape, space);
    if (each.workspace <= preference->max_workspace) all.push_back(each);
  }
  *count = std::min(requested, static_cast<int>(all.size()));
  std::copy_n(all.begin(), *count, results);
  return kSuccess;
}
FAKE_API int cublasLtMatmulAlgoCheck(void*, Desc* desc, Layout* a, Layout* b, Layout* c, Layout* d,
                                     const Algorithm* algorithm, Recommendation* result) {
  Shape shape;
  if (!read(desc, a, b, c, d, shape) || !algorithm || !result || fails("restore")) return kInvalidValue;
  if (algorithm->magic != Algorithm().magic || algorithm->shape != shape.hash()) return kNotSupported;
  *result = {};
  result->algorithm = *algorithm, result->workspace = workspace_of(shape, algorithm->space);
  trace("cuBLASLt restores");
  return kSuccess;
}
FAKE_API int cublasLtMatmul(void*, Desc* desc, const float* alpha, const void* a, Layout* a_layout, const void* b,
                            Layout* b_layout, const float* beta, const void* c, Layout* c_layout, void* d,
                            Layout* d_layout, const Algorithm* algorithm, void* workspace, std::size_t bytes,
                            HostStream* stream) {
  Shape shape;
  if (!read(desc, a_layout, b_layout, c_layout, d_layout, shape) || !algorithm || !stream || !alpha || !beta)
    return refuse(kInvalidValue, "the matrices of a product do not fit together");
  if (algorithm->magic != Algorithm().magic || algorithm->shape != shape.hash())
    return refuse(kInvalidValue, "the algorithm is one for other matrices");
  if (fails("products")) return refuse(kExecutionFailed, "FAKE_FAILS has products");
  const auto is_there = [&](const void* data, std::size_t count, std::size_t alignment) {
    const auto address = reinterpret_cast<Address>(data);
    return data && address % alignment == 0 && stream->has(address, count);
  };
  const std::size_t alignment = algorithm->alignment, needed = workspace_of(shape, algorithm->space);
  if (!is_there(a, a_layout->bytes(), alignment) || !is_there(b, b_layout->bytes(), alignment) ||
      !is_there(c, c_layout->bytes(), alignment) || !is_there(d, d_layout->bytes(), alignment))
    return refuse(kInvalidValue, "a matrix is not aligned, or not in memory of the device");
  if (*beta == 0 && c != d) return refuse(kInvalidValue, "beta is 0, but C is another matrix than D");
  const std::size_t size = shape.type == kReal16 ? 2 : 4;
  if (desc->has_bias() && !is_there(desc->bias, static_cast<std::size_t>(shape.m) * size, size))
    return refuse(kInvalidValue, "the bias is not in memory of the device");
  if (needed > bytes || (needed > 0 && !is_there(workspace, needed, 256)))
    return refuse(kInvalidValue, "the workspace is too small, or not aligned");
  const auto host = [](const void* data) { return host_address(reinterpret_cast<Address>(data)); };
  run_on(stream, "products",
         Run{.shape = shape,
             .a = host(a),
             .b = host(b),
             .c = host(c),
             .bias = desc->has_bias() ? host(desc->bias) : nullptr,
             .d = host(d),
             .workspace = needed > 0 ? host(workspace) : nullptr,
             .alpha = *alpha,
             .beta = *beta});
  return kSuccess;
}

// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/blaslt.hpp"

#include <array>
#include <cstring>

#include "engine/cuda/libraries.hpp"
#include "engine/failure.hpp"

namespace openmps::cuda {
namespace {

constexpr std::uint64_t kMaxWorkspace = std::uint64_t{64} << 20;

using Handle = struct HandleOfCublas*;
using MatmulDesc = struct MatmulDescOfCublas*;
using Layout = struct LayoutOfCublas*;
using Preference = struct PreferenceOfCublas*;
using Algorithm = std::array<std::uint64_t, 8>;  ///< cublasLtMatmulAlgo_t

/// cublasLtMatmulHeuristicResult_t.
struct Recommendation {
  Algorithm algorithm;
  std::size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

constexpr int kReal32 = 0, kReal16 = 2;            // cudaDataType
constexpr int kCompute32 = 68, kComputeTf32 = 77;  // cublasComputeType_t
constexpr int kTransposed = 1;                     // cublasOperation_t
constexpr int kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8,
              kBiasType = 26;                   // cublasLtMatmulDescAttributes_t
constexpr int kMaxWorkspaceBytes = 1;           // cublasLtMatmulPreferenceAttributes_t
constexpr int kMinAlignments[] = {5, 6, 7, 8};  // the same: of A, B, C, D; 256 if not set
constexpr std::uint32_t kEpilogueDefault = 1, kEpilogueRelu = 2, kEpilogueBias = 4;

struct Api {
  int (*create)(Handle*);
  std::size_t (*version)();
  int (*create_desc)(MatmulDesc*, int compute, int scale);
  int (*destroy_desc)(MatmulDesc);
  int (*set_desc)(MatmulDesc, int attribute, const void* value, std::size_t bytes);
  int (*create_layout)(Layout*, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride);
  int (*destroy_layout)(Layout);
  int (*create_preference)(Preference*);
  int (*destroy_preference)(Preference);
  int (*set_preference)(Preference, int attribute, const void* value, std::size_t bytes);
  int (*heuristic)(Handle, MatmulDesc, Layout, Layout, Layout, Layout, Preference, int requested, Recommendation*,
                   int* count);
  int (*check)(Handle, MatmulDesc, Layout, Layout, Layout, Layout, const Algorithm*, Recommendation*);
  int (*matmul)(Handle, MatmulDesc, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta,
                const void* c, Layout, void* d, Layout, const Algorithm*, void* workspace, std::size_t bytes, Stream);

  explicit Api(const Library& library) {
    library.get(create, "cublasLtCreate");
    library.get(version, "cublasLtGetVersion");
    library.get(create_desc, "cublasLtMatmulDescCreate");
    library.get(destroy_desc, "cublasLtMatmulDescDestroy");
    library.get(set_desc, "cublasLtMatmulDescSetAttribute");
    library.get(create_layout, "cublasLtMatrixLayoutCreate");
    library.get(destroy_layout, "cublasLtMatrixLayoutDestroy");
    library.get(create_preference, "cublasLtMatmulPreferenceCreate");
    library.get(destroy_preference, "cublasLtMatmulPreferenceDestroy");
    library.get(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    library.get(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    library.get(check, "cublasLtMatmulAlgoCheck");
    library.get(matmul, "cublasLtMatmul");
  }
  static void expect(int status, const char* call) {
    if (status)
      throw EngineError(FailureCode::internal,
                        std::string("cuBLASLt, ") + call + ": status " + std::to_string(status) + ".");
  }
};

const Api* api_or_null() {
  static const Api* const opened = [] {
    const Library* const library = Library::find(LibraryName::cublaslt);
    return library ? new Api(*library) : nullptr;
  }();
  return opened;
}
const Api& api() { return *api_or_null(); }

/// Return the handle for a GPU, whose context is current; any thread may use it.
Handle handle_of(const Gpu& gpu) {
  static std::mutex mutex;
  static auto* const all = new std::map<int, Handle>;
  const std::lock_guard lock(mutex);
  Handle& handle = (*all)[gpu.ordinal()];
  if (!handle) Api::expect(api().create(&handle), "cublasLtCreate");
  return handle;
}

/// Matrices of a product as cuBLASLt has them, columns first: its A is b, its B is a.
class Matrices {
 public:
  explicit Matrices(const Product& product) : p(product) {
    const int type = p.format == Format::float16 ? kReal16 : kReal32;
    const bool is_tf32 = p.format == Format::float32 && p.reduced_precision;
    Api::expect(api().create_desc(&desc, is_tf32 ? kComputeTf32 : kCompute32, kReal32), "cublasLtMatmulDescCreate");
    const int transposed = kTransposed;
    set(p.sums_rows ? kTransB : kTransA, transposed);
    std::uint32_t epilogue = (p.has_bias ? kEpilogueBias : 0u) | (p.has_relu ? kEpilogueRelu : 0u);
    if (!epilogue) epilogue = kEpilogueDefault;
    set(kEpilogue, epilogue);
    if (p.has_bias) set(kBiasType, type);
    const auto n = static_cast<std::uint64_t>(p.n), m = static_cast<std::uint64_t>(p.m),
               k = static_cast<std::uint64_t>(p.k);
    const int result_type = p.sums_rows ? kReal32 : type;
    layout(&a, type, p.sums_rows ? n : k, p.sums_rows ? k : n, p.b_stride);
    layout(&b, type, p.sums_rows ? m : k, p.sums_rows ? k : m, p.a_stride);
    layout(&c, result_type, n, m, p.c_stride ? p.c_stride : p.d_stride);
    layout(&d, result_type, n, m, p.d_stride);
  }
  ~Matrices() {
    for (const Layout each : {a, b, c, d})
      if (each) api().destroy_layout(each);
    if (desc) api().destroy_desc(desc);
  }
  Matrices(const Matrices&) = delete;
  Matrices& operator=(const Matrices&) = delete;

  template <class T>
  void set(int attribute, const T& value) const {
    Api::expect(api().set_desc(desc, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }

  const Product p;
  MatmulDesc desc = nullptr;
  Layout a = nullptr, b = nullptr, c = nullptr, d = nullptr;

 private:
  static void layout(Layout* layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride) {
    Api::expect(api().create_layout(layout, type, rows, columns, stride), "cublasLtMatrixLayoutCreate");
  }
};

class Plan final : public ProductPlan {
 public:
  Plan(std::shared_ptr<const Matrices> matrices, const Algorithm& algorithm, std::size_t bytes)
      : matrices_(std::move(matrices)), algorithm_(algorithm), bytes_(bytes) {}
  std::size_t workspace_bytes() const override { return bytes_; }

  void run(Work& work, const ProductAddresses& at, Address workspace) const override {
    const Matrices& m = *matrices_;
    const float alpha = 1, beta = m.p.c_stride ? 1.0f : 0.0f;
    const auto pointer = [](Address address) { return reinterpret_cast<void*>(address); };
    const std::lock_guard lock(mutex_);  // the description holds the bias of one call
    if (m.p.has_bias) m.set(kBiasPointer, pointer(at.bias));
    Api::expect(api().matmul(handle_of(work.gpu()), m.desc, &alpha, pointer(at.b), m.a, pointer(at.a), m.b, &beta,
                             pointer(m.p.c_stride ? at.c : at.d), m.c, pointer(at.d), m.d, &algorithm_,
                             pointer(workspace), bytes_, work.stream()),
                "cublasLtMatmul");
  }
  std::string saved() const override {
    std::string text(reinterpret_cast<const char*>(&algorithm_), sizeof algorithm_);
    return text.append(reinterpret_cast<const char*>(&bytes_), sizeof bytes_);
  }

 private:
  const std::shared_ptr<const Matrices> matrices_;
  const Algorithm algorithm_;
  const std::size_t bytes_;
  mutable std::mutex mutex_;
};

}  // namespace

std::string Product::key() const {
  std::string text;
  for (const std::int64_t value :
       {static_cast<std::int64_t>(format), std::int64_t{reduced_precision}, m, n, k, a_stride, b_stride, c_stride,
        d_stride, std::int64_t{has_bias}, std::int64_t{has_relu}, std::int64_t{sums_rows}})
    text += std::to_string(value) + ' ';
  return text;
}

bool has_cublaslt(const Gpu& gpu) {
  return Library::find_for(LibraryName::cublaslt, gpu.driver().is_host) && api_or_null();
}
std::string cublaslt_version() { return std::to_string(api().version()); }

std::vector<std::shared_ptr<const ProductPlan>> product_plans(const Gpu& gpu, const Product& product,
                                                              std::size_t count) {
  std::vector<std::shared_ptr<const ProductPlan>> plans;
  std::vector<Recommendation> found(count);
  int found_count = 0;
  Preference preference = nullptr;
  Api::expect(api().create_preference(&preference), "cublasLtMatmulPreferenceCreate");
  const Matrices matrices(product);
  api().set_preference(preference, kMaxWorkspaceBytes, &kMaxWorkspace, sizeof kMaxWorkspace);
  constexpr std::uint32_t kAlignment = 16;  // of images
  for (const int each : kMinAlignments) api().set_preference(preference, each, &kAlignment, sizeof kAlignment);
  const int status = api().heuristic(handle_of(gpu), matrices.desc, matrices.a, matrices.b, matrices.c, matrices.d,
                                     preference, static_cast<int>(count), found.data(), &found_count);
  api().destroy_preference(preference);
  if (status) return plans;
  for (int i = 0; i < found_count; ++i) {
    const Recommendation& each = found[static_cast<std::size_t>(i)];
    if (each.status == 0)
      plans.push_back(std::make_shared<Plan>(std::make_shared<Matrices>(product), each.algorithm, each.workspace));
  }
  return plans;
}

std::shared_ptr<const ProductPlan> restore_product(const Gpu& gpu, const Product& product, const std::string& saved) {
  Algorithm algorithm;
  std::size_t bytes = 0;
  if (saved.size() != sizeof algorithm + sizeof bytes) return nullptr;
  std::memcpy(&algorithm, saved.data(), sizeof algorithm);
  std::memcpy(&bytes, saved.data() + sizeof algorithm, sizeof bytes);
  auto matrices = std::make_shared<Matrices>(product);
  Recommendation checked{};
  if (api().check(handle_of(gpu), matrices->desc, matrices->a, matrices->b, matrices->c, matrices->d, &algorithm,
                  &checked) ||
      checked.workspace > bytes)
    return nullptr;
  return std::make_shared<Plan>(std::move(matrices), algorithm, bytes);
}

}  // namespace openmps::cuda

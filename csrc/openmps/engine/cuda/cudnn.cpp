// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/cudnn.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "engine/cuda/libraries.hpp"
#include "engine/failure.hpp"
#include "engine/shared/implementations.hpp"

namespace openmps::cuda {
namespace {

constexpr std::size_t kMaxWorkspace = std::size_t{256} << 20;  ///< plans that need more are not used

using Handle = struct HandleOfCudnn*;
using Raw = void*;  ///< cudnnBackendDescriptor_t

// cudnnBackendDescriptorType_t
enum DescriptorType : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristic = 4,
  kPlan = 5,
  kForwardOperation = 10,
  kWeightsOperation = 11,
  kDataOperation = 12,
  kPointwiseOperation = 13,
  kSumsOperation = 14,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
};

// cudnnBackendAttributeType_t
enum ValueType : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kFloat = 4,
  kDouble = 5,
  kVoidPointer = 6,
  kConvolutionMode = 7,
  kHeuristicMode = 8,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kSumsMode = 16,
  kBehaviorNote = 19,
  kChar = 24,
};

constexpr int kDataFloat = 0, kDataHalf = 2;            // cudnnDataType_t
constexpr int kCrossCorrelation = 1;                    // cudnnConvolutionMode_t
constexpr int kHeuristicA = 3, kHeuristicFallback = 2;  // cudnnBackendHeurMode_t
constexpr int kAdd = 0, kMin = 2, kRelu = 100, kTanh = 101, kSigmoid = 102, kElu = 103, kGelu = 104;  // pointwise modes
constexpr int kNoteTensorCore = 0, kNoteDownConvert = 1, kNoteReducedSums = 2, kNoteNondeterministic = 4,
              kNoteWinograd = 5, kNoteWinograd13 = 8;  // cudnnBackendNumericalNote_t

constexpr int kNoteCompiles = 0;  // cudnnBackendBehaviorNote_t

constexpr int kSumAndSquares = 0;  // cudnnGenStatsMode_t

enum Uid : std::int64_t { kX = 1, kW, kBias, kAddend, kY, kLimit, kAfterLimit, kSums, kSquares, kFirstVirtual = 100 };

struct Api {
  int (*create)(Handle*);
  int (*set_stream)(Handle, Stream);
  std::size_t (*version)();
  const char* (*error)(int status);
  void (*last_error)(char* message, std::size_t size);
  int (*create_descriptor)(int type, Raw*);
  int (*destroy_descriptor)(Raw);
  int (*finalize)(Raw);
  int (*set)(Raw, int attribute, int type, std::int64_t count, const void* values);
  int (*get)(Raw, int attribute, int type, std::int64_t requested, std::int64_t* count, void* values);
  int (*execute)(Handle, Raw plan, Raw pack);

  explicit Api(const Library& library) {
    library.get(create, "cudnnCreate");
    library.get(set_stream, "cudnnSetStream");
    library.get(version, "cudnnGetVersion");
    library.get(error, "cudnnGetErrorString");
    library.get(last_error, "cudnnGetLastErrorString");
    library.get(create_descriptor, "cudnnBackendCreateDescriptor");
    library.get(destroy_descriptor, "cudnnBackendDestroyDescriptor");
    library.get(finalize, "cudnnBackendFinalize");
    library.get(set, "cudnnBackendSetAttribute");
    library.get(get, "cudnnBackendGetAttribute");
    library.get(execute, "cudnnBackendExecute");
  }
  void check(int status, const char* call) const {
    if (status == 0) return;
    char message[512] = {};
    last_error(message, sizeof message);
    throw EngineError(FailureCode::internal,
                      std::string("cuDNN, ") + call + ": " + error(status) + (*message ? ", " : "") + message + ".");
  }
};

const Api* api_or_null() {
  static const Api* const opened = [] {
    const Library* const library = Library::find(LibraryName::cudnn);
    return library ? new Api(*library) : nullptr;
  }();
  return opened;
}
const Api& api() { return api_or_null() ? *api_or_null() : (Library::of(LibraryName::cudnn), *api_or_null()); }

/// Return the handle of a thread's stream.
Handle handle_of(Work& work) {
  if (!work.cudnn_handle()) {
    Handle handle = nullptr;
    work.gpu().current();
    api().check(api().create(&handle), "cudnnCreate");
    api().check(api().set_stream(handle, work.stream()), "cudnnSetStream");
    work.set_cudnn_handle(handle);
  }
  return static_cast<Handle>(work.cudnn_handle());
}

class Descriptor {
 public:
  explicit Descriptor(int type) { api().check(api().create_descriptor(type, &raw_), "cudnnBackendCreateDescriptor"); }
  explicit Descriptor(Raw raw) : raw_(raw) {}
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor() {
    if (raw_) api().destroy_descriptor(raw_);
  }
  Raw raw() const { return raw_; }

  void set(int attribute, int type, std::int64_t count, const void* values) {
    api().check(api().set(raw_, attribute, type, count, values), "cudnnBackendSetAttribute");
  }
  template <class T>
  void set(int attribute, int type, const T& value) {
    set(attribute, type, 1, &value);
  }
  void set(int attribute, const Descriptor& value) { set(attribute, kDescriptor, 1, &value.raw_); }
  void finalize(const char* call) { api().check(api().finalize(raw_), call); }

 private:
  Raw raw_ = nullptr;
};

Descriptor tensor(std::int64_t uid, Format format, const ConvGraph::Extents& extents, const ConvGraph::Extents& strides,
                  std::int64_t alignment = 16, bool is_virtual = false, bool is_by_value = false) {
  Descriptor result(kTensor);
  const int type = format == Format::float16 ? kDataHalf : kDataFloat;
  result.set(900, kInt64, alignment);  // BYTE_ALIGNMENT
  result.set(901, kDataType, type);
  result.set(902, kInt64, 4, extents.data());
  result.set(903, kInt64, 4, strides.data());
  result.set(906, kInt64, uid);
  result.set(907, kBoolean, is_virtual);
  if (is_by_value) result.set(908, kBoolean, true);
  result.finalize("tensor");
  return result;
}

/// Builds a graph of operations; keeps the descriptors that they refer to.
class Builder {
 public:
  explicit Builder(const ConvGraph& graph) : graph_(graph) {}

  Descriptor build(Handle handle) {
    const ConvGraph& g = graph_;
    using Kind = ConvGraph::Kind;
    Descriptor convolution(kConvolution);
    convolution.set(100, kDataType, kDataFloat);
    convolution.set(101, kConvolutionMode, kCrossCorrelation);
    convolution.set(102, kInt64, 2, g.dilation.data());
    convolution.set(103, kInt64, 2, g.stride.data());
    convolution.set(104, kInt64, 2, g.pad_after.data());
    convolution.set(105, kInt64, 2, g.pad_before.data());
    convolution.set(106, kInt64, std::int64_t{2});
    convolution.finalize("convolution");

    const bool has_more = g.has_bias || g.has_addend || g.neuron != NeuronType::none || g.after != NeuronType::none;
    const std::size_t x = keep(tensor(kX, g.format, g.x, g.x_strides, g.alignment));
    const Format weights = g.kind == Kind::weights ? g.weights_format : g.format;
    const std::size_t w = keep(tensor(kW, weights, g.w, g.w_strides));
    current_ = has_more ? next_virtual() : keep(tensor(kY, g.format, g.y, g.y_strides, g.alignment));
    const int first = g.kind == Kind::forward ? 700 : g.kind == Kind::data ? 706 : 712;  // ALPHA, BETA, CONV_DESC, ...
    Descriptor operation(g.kind == Kind::forward ? kForwardOperation
                         : g.kind == Kind::data  ? kDataOperation
                                                 : kWeightsOperation);
    operation.set(first, kFloat, 1.0f);
    operation.set(first + 1, kFloat, 0.0f);
    operation.set(first + 2, convolution);
    operation.set(first + 3, kept_[w]);
    operation.set(first + 4, kept_[x]);
    operation.set(first + 5, kept_[current_]);
    operation.finalize("convolution operation");
    keep(std::move(convolution));
    operations_.push_back(keep(std::move(operation)));

    // cuDNN's compiled engines know the sum before the bias.
    const bool addend_first = g.has_addend && g.neuron == NeuronType::none;
    if (addend_first)
      combine(kAdd, keep(tensor(kAddend, g.format, g.y, g.addend_strides, g.alignment)),
              !g.has_bias && g.after == NeuronType::none);
    if (g.has_bias) {
      const ConvGraph::Extents extents{1, g.y[1], 1, 1}, strides{g.y[1], 1, g.y[1], g.y[1]};
      const std::size_t bias = keep(tensor(kBias, g.format, extents, strides));
      combine(kAdd, bias,
              (!g.has_addend || addend_first) && g.neuron == NeuronType::none && g.after == NeuronType::none);
    }
    activate(g.neuron, g.neuron_a, kLimit, !g.has_addend && g.after == NeuronType::none);
    if (g.has_addend && !addend_first)
      combine(kAdd, keep(tensor(kAddend, g.format, g.y, g.addend_strides, g.alignment)), g.after == NeuronType::none);
    activate(g.after, g.after_a, kAfterLimit, true);
    if (g.has_sums) add_sums();

    Descriptor result(kOperationGraph);
    std::vector<Raw> raw;
    for (const std::size_t each : operations_) raw.push_back(kept_[each].raw());
    result.set(800, kHandle, handle);
    result.set(801, kDescriptor, static_cast<std::int64_t>(raw.size()), raw.data());
    result.finalize("operation graph");
    return result;
  }

 private:
  std::size_t keep(Descriptor descriptor) {
    kept_.push_back(std::move(descriptor));
    return kept_.size() - 1;
  }
  std::size_t next_virtual() { return keep(tensor(uid_++, Format::float32, graph_.y, graph_.y_strides, 16, true)); }
  std::size_t result(bool is_last) {
    return is_last ? keep(tensor(kY, graph_.format, graph_.y, graph_.y_strides, graph_.alignment)) : next_virtual();
  }
  void add_operation(Descriptor pointwise, const std::size_t* second, bool is_last) {
    pointwise.finalize("pointwise");
    const std::size_t to = result(is_last);
    Descriptor operation(kPointwiseOperation);
    operation.set(750, pointwise);
    operation.set(751, kept_[current_]);
    if (second) operation.set(752, kept_[*second]);
    operation.set(753, kept_[to]);
    operation.finalize("pointwise operation");
    keep(std::move(pointwise));
    operations_.push_back(keep(std::move(operation)));
    current_ = to;
  }
  static Descriptor pointwise(int mode) {
    Descriptor result(kPointwise);
    result.set(0, kPointwiseMode, mode);
    result.set(1, kDataType, kDataFloat);
    return result;
  }
  /// Sum the last result.
  void add_sums() {
    const ConvGraph& g = graph_;
    const ConvGraph::Extents extents{1, g.y[1], 1, 1}, strides{g.y[1], 1, g.y[1], g.y[1]};
    const std::size_t sums = keep(tensor(kSums, Format::float32, extents, strides));
    const std::size_t squares = keep(tensor(kSquares, Format::float32, extents, strides));
    Descriptor operation(kSumsOperation);
    operation.set(770, kSumsMode, kSumAndSquares);
    operation.set(771, kDataType, kDataFloat);
    operation.set(772, kept_[current_]);
    operation.set(773, kept_[sums]);
    operation.set(774, kept_[squares]);
    operation.finalize("sums operation");
    operations_.push_back(keep(std::move(operation)));
  }
  void combine(int mode, std::size_t second, bool is_last) { add_operation(pointwise(mode), &second, is_last); }

  void activate(NeuronType type, float a, std::int64_t limit_uid, bool is_last) {
    switch (type) {
      case NeuronType::none: return;
      case NeuronType::relu: return add_operation(pointwise(kRelu), nullptr, is_last);
      case NeuronType::relun: {
        // An upper clip of RELU_FWD makes the heuristic choose engines that are 30 times slower.
        add_operation(pointwise(kRelu), nullptr, false);
        const ConvGraph::Extents one{1, 1, 1, 1};
        return combine(kMin, keep(tensor(limit_uid, Format::float32, one, one, 4, false, true)), is_last);
      }
      case NeuronType::sigmoid: return add_operation(pointwise(kSigmoid), nullptr, is_last);
      case NeuronType::tanh: return add_operation(pointwise(kTanh), nullptr, is_last);
      case NeuronType::gelu: return add_operation(pointwise(kGelu), nullptr, is_last);
      case NeuronType::elu: {
        Descriptor elu = pointwise(kElu);
        elu.set(6, kDouble, static_cast<double>(a));
        return add_operation(std::move(elu), nullptr, is_last);
      }
      default: throw EngineError(FailureCode::internal, "cuDNN has no such activation.");
    }
  }

  const ConvGraph& graph_;
  std::vector<Descriptor> kept_;
  std::vector<std::size_t> operations_;
  std::size_t current_ = 0;
  std::int64_t uid_ = kFirstVirtual;
};

class Plan final : public CudnnPlan {
 public:
  Plan(Descriptor plan, const ConvGraph& graph) : plan_(std::move(plan)), graph_(graph) {
    std::int64_t count = 0, bytes = 0;
    api().check(api().get(plan_.raw(), 402, kInt64, 1, &count, &bytes), "workspace");
    bytes_ = static_cast<std::size_t>(bytes);
  }
  std::size_t workspace_bytes() const override { return bytes_; }

  void run(Work& work, const ConvAddresses& at, Address workspace) const override {
    std::vector<std::int64_t> uids = {kX, kW, kY};
    std::vector<const void*> pointers = {pointer(at.x), pointer(at.w), pointer(at.y)};
    const auto add = [&](std::int64_t uid, const void* value) { uids.push_back(uid), pointers.push_back(value); };
    if (graph_.has_bias) add(kBias, pointer(at.bias));
    if (graph_.has_addend) add(kAddend, pointer(at.addend));
    if (graph_.has_sums) add(kSums, pointer(at.sums)), add(kSquares, pointer(at.squares));
    if (graph_.neuron == NeuronType::relun) add(kLimit, &graph_.neuron_b);
    if (graph_.after == NeuronType::relun) add(kAfterLimit, &graph_.after_b);
    const auto count = static_cast<std::int64_t>(uids.size());
    const void* const space = pointer(workspace);
    Descriptor pack(kVariantPack);
    pack.set(1000, kInt64, count, uids.data());
    pack.set(1001, kVoidPointer, count, pointers.data());
    pack.set(1003, kVoidPointer, space);
    pack.finalize("variant pack");
    api().check(api().execute(handle_of(work), plan_.raw(), pack.raw()), "cudnnBackendExecute");
  }

  std::string saved() const override {
    std::int64_t size = 0;
    api().check(api().get(plan_.raw(), 405, kChar, 0, &size, nullptr), "plan as text");
    std::string text(static_cast<std::size_t>(size), '\0');
    api().check(api().get(plan_.raw(), 405, kChar, size, &size, text.data()), "plan as text");
    return text;
  }

 private:
  static const void* pointer(Address address) { return reinterpret_cast<const void*>(address); }

  Descriptor plan_;
  const ConvGraph graph_;
  std::size_t bytes_ = 0;
};

/// Return the configurations that a mode of the heuristic recommends.
std::vector<Descriptor> configurations(const Descriptor& operations, int mode) {
  constexpr std::int64_t kMost = 32;
  Descriptor heuristic(kHeuristic);
  heuristic.set(201, operations);
  heuristic.set(200, kHeuristicMode, mode);
  heuristic.finalize("heuristic");
  std::vector<Descriptor> result;
  std::vector<Raw> raw;
  for (std::int64_t i = 0; i < kMost; ++i) {
    result.emplace_back(kEngineConfig);
    raw.push_back(result.back().raw());
  }
  std::int64_t count = 0;
  api().check(api().get(heuristic.raw(), 202, kDescriptor, kMost, &count, raw.data()), "heuristic's results");
  result.erase(result.begin() + std::min(count, kMost), result.end());
  return result;
}

/// Return the configuration's engine.
Descriptor engine_of(const Descriptor& configuration) {
  Descriptor engine(kEngine);
  Raw raw = engine.raw();
  std::int64_t count = 0;
  api().check(api().get(configuration.raw(), 300, kDescriptor, 1, &count, &raw), "engine");
  return engine;
}

/// Return whether the engine compiles its kernel when a plan is made.
bool compiles(const Descriptor& engine) {
  int notes[16] = {};
  std::int64_t count = 0;
  if (api().get(engine.raw(), 1305, kBehaviorNote, 16, &count, notes)) return true;
  return std::find(notes, notes + count, kNoteCompiles) != notes + count;
}

/// Return whether the engine's arithmetic is as exact as the graph's format requires.
bool is_exact(const Descriptor& engine, const ConvGraph& graph) {
  std::int64_t count = 0;
  int notes[16] = {};
  if (api().get(engine.raw(), 1303, kNumericalNote, 16, &count, notes)) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    if (notes[i] == kNoteReducedSums || notes[i] == kNoteNondeterministic || notes[i] == kNoteWinograd13) return false;
    if (notes[i] == kNoteDownConvert) return false;
    // Products of float32 in tensor cores are tf32; Winograd's transformed products lose three digits.
    const bool is_float = graph.format == Format::float32;
    if (is_float && !graph.reduced_precision && (notes[i] == kNoteTensorCore || notes[i] == kNoteWinograd))
      return false;
  }
  return true;
}

}  // namespace

std::string ConvGraph::key() const {
  std::string text;
  const auto put = [&](auto value) { text += std::to_string(value) + ' '; };
  put(static_cast<int>(kind)), put(static_cast<int>(format)), put(static_cast<int>(weights_format));
  put(static_cast<int>(reduced_precision));
  for (const Extents& each : {x, x_strides, w, w_strides, y, y_strides, addend_strides})
    for (const std::int64_t value : each) put(value);
  for (const auto& each : {pad_before, pad_after, stride, dilation}) put(each[0]), put(each[1]);
  put(alignment), put(static_cast<int>(has_bias)), put(static_cast<int>(has_addend));
  if (has_sums) text += "sums ";
  put(static_cast<int>(neuron)), put(static_cast<int>(after));
  put(neuron_a), put(neuron_b), put(after_a), put(after_b);
  return text;
}

bool cudnn_has(const Neuron& neuron, Format format) {
  switch (neuron.type) {
    case NeuronType::none: return true;
    // A slope is known only to engines that compile their kernels, which takes seconds.
    case NeuronType::relu: return neuron.a == 0;
    case NeuronType::relun: return neuron.a == 0;
    // The others use fast approximations.
    case NeuronType::sigmoid:
    case NeuronType::gelu: return format == Format::float16;
    case NeuronType::tanh: return format == Format::float16 && neuron.a == 1 && neuron.b == 1;
    case NeuronType::elu: return format == Format::float16;
    default: return false;
  }
}

bool has_cudnn(const Gpu& gpu) { return Library::find_for(LibraryName::cudnn, gpu.driver().is_host) && api_or_null(); }
std::string cudnn_version() { return std::to_string(api().version()); }

std::vector<std::shared_ptr<const CudnnPlan>> cudnn_plans(Work& work, const ConvGraph& graph, std::size_t count) {
  std::vector<std::shared_ptr<const CudnnPlan>> plans;
  try {
    Builder builder(graph);
    const Descriptor operations = builder.build(handle_of(work));
    for (const bool may_compile : {false, true}) {
      for (const int mode : {kHeuristicA, kHeuristicFallback}) {
        for (const Descriptor& configuration : configurations(operations, mode)) {
          if (plans.size() >= (may_compile ? 1 : count)) break;
          const Descriptor engine = engine_of(configuration);
          if (compiles(engine) != may_compile || !is_exact(engine, graph)) continue;
          try {
            Descriptor plan(kPlan);
            plan.set(400, kHandle, handle_of(work));
            plan.set(401, configuration);
            plan.finalize("plan");
            auto made = std::make_shared<Plan>(std::move(plan), graph);
            if (made->workspace_bytes() <= kMaxWorkspace) plans.push_back(std::move(made));
          } catch (const EngineError&) {  // this engine does not support the graph
          }
        }
        if (!plans.empty()) return plans;
      }
    }
  } catch (const EngineError& error) {
    if (error.code() == FailureCode::device_lost) throw;
    if (dispatch().traces) std::fprintf(stderr, "mpscnn dispatch: %s\n", error.what());
  }
  return plans;
}

std::shared_ptr<const CudnnPlan> restore_plan(Work& work, const ConvGraph& graph, const std::string& saved) {
  try {
    Descriptor plan(kPlan);
    plan.set(400, kHandle, handle_of(work));
    plan.set(405, kChar, static_cast<std::int64_t>(saved.size()), saved.data());
    plan.finalize("plan from text");
    return std::make_shared<Plan>(std::move(plan), graph);
  } catch (const EngineError&) {
    return nullptr;
  }
}

}  // namespace openmps::cuda

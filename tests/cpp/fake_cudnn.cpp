// SPDX-License-Identifier: Apache-2.0
// libcudnn.so.9 for tests without a GPU: the part of cuDNN's graph API that the engine uses, by plain loops. Names and
// values are those of cuDNN 9 [docs.nvidia.com/deeplearning/cudnn, Backend API].
//
// Each heuristic recommends several engines, of which some must not be used: their results are NaN.
// FAKE_FAILS: words that make calls fail (a name of an engine, "heuristic", "execute", "restore"; "data": plans of
// gradients by the source; "gaps": plans without workspace leave gaps between pixels as they are).
// FAKE_SLOW: "execute" lets every plan take time.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "fake_library.hpp"

namespace {

using namespace fake;

enum Status : int {
  kSuccess = 0,
  kNotInitialized = 1001,
  kBadParam = 2000,
  kMisaligned = 2003,
  kNotFinalized = 2004,
  kShapeMismatch = 2008,
  kDuplicated = 2009,
  kWrongType = 2010,
  kNotSupported = 3000,
  kExecutionFailed = 5000,
};
struct Error : std::runtime_error {
  Error(int code, const std::string& text) : std::runtime_error(text), status(code) {}
  int status;
};
void expect(bool condition, const std::string& text, int status = kBadParam) {
  if (!condition) throw Error(status, text);
}
std::string& last_error() {
  static thread_local std::string text;
  return text;
}
template <class Body>
int guarded(const Body& body) {
  try {
    body();
    return kSuccess;
  } catch (const Error& error) {
    last_error() = error.what();
    trace("cuDNN fails: " + last_error());
    return error.status;
  }
}

enum Type : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kConfiguration = 3,
  kHeuristic = 4,
  kPlan = 5,
  kForward = 10,
  kWeights = 11,
  kData = 12,
  kPointwiseOperation = 13,
  kSums = 14,
  kGraph = 15,
  kPack = 16,
  kTensor = 17,
};
enum ValueType : int {
  kHandleValue = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kFloat = 4,
  kDouble = 5,
  kPointer = 6,
  kMode = 7,
  kHeuristicMode = 8,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kSumsMode = 16,
  kBehaviorNote = 19,
  kChar = 24,
};
std::size_t size_of(int type) {
  switch (type) {
    case kHandleValue:
    case kInt64:
    case kDouble:
    case kPointer:
    case kDescriptor: return 8;
    case kBoolean:
    case kChar: return 1;
    default: return 4;
  }
}
constexpr int kFloat32 = 0, kFloat16 = 2;
constexpr i64 kAnyCount = -1;

/// An attribute that can be set.
struct Rule {
  int descriptor, attribute, type;
  i64 count;
  bool is_required;
};
constexpr Rule kRules[] = {
    {kTensor, 900, kInt64, 1, true},                    // BYTE_ALIGNMENT
    {kTensor, 901, kDataType, 1, true},                 // DATA_TYPE
    {kTensor, 902, kInt64, 4, true},                    // DIMENSIONS
    {kTensor, 903, kInt64, 4, true},                    // STRIDES
    {kTensor, 906, kInt64, 1, true},                    // UNIQUE_ID
    {kTensor, 907, kBoolean, 1, false},                 // IS_VIRTUAL
    {kTensor, 908, kBoolean, 1, false},                 // IS_BY_VALUE
    {kConvolution, 100, kDataType, 1, true},            // COMP_TYPE
    {kConvolution, 101, kMode, 1, true},                // CONV_MODE
    {kConvolution, 102, kInt64, 2, true},               // DILATIONS
    {kConvolution, 103, kInt64, 2, true},               // FILTER_STRIDES
    {kConvolution, 104, kInt64, 2, true},               // POST_PADDINGS
    {kConvolution, 105, kInt64, 2, true},               // PRE_PADDINGS
    {kConvolution, 106, kInt64, 1, true},               // SPATIAL_DIMS
    {kForward, 700, kFloat, 1, true},                   // ALPHA
    {kForward, 701, kFloat, 1, true},                   // BETA
    {kForward, 702, kDescriptor, 1, true},              // CONV_DESC
    {kForward, 703, kDescriptor, 1, true},              // W
    {kForward, 704, kDescriptor, 1, true},              // X
    {kForward, 705, kDescriptor, 1, true},              // Y
    {kData, 706, kFloat, 1, true},                      // ALPHA
    {kData, 707, kFloat, 1, true},                      // BETA
    {kData, 708, kDescriptor, 1, true},                 // CONV_DESC
    {kData, 709, kDescriptor, 1, true},                 // W
    {kData, 710, kDescriptor, 1, true},                 // DX
    {kData, 711, kDescriptor, 1, true},                 // DY
    {kWeights, 712, kFloat, 1, true},                   // ALPHA
    {kWeights, 713, kFloat, 1, true},                   // BETA
    {kWeights, 714, kDescriptor, 1, true},              // CONV_DESC
    {kWeights, 715, kDescriptor, 1, true},              // DW
    {kWeights, 716, kDescriptor, 1, true},              // X
    {kWeights, 717, kDescriptor, 1, true},              // DY
    {kPointwise, 0, kPointwiseMode, 1, true},           // MODE
    {kPointwise, 1, kDataType, 1, true},                // MATH_PREC
    {kPointwise, 5, kDouble, 1, false},                 // RELU_LOWER_CLIP_SLOPE
    {kPointwise, 6, kDouble, 1, false},                 // ELU_ALPHA
    {kPointwiseOperation, 750, kDescriptor, 1, true},   // PW_DESCRIPTOR
    {kPointwiseOperation, 751, kDescriptor, 1, true},   // XDESC
    {kPointwiseOperation, 752, kDescriptor, 1, false},  // BDESC
    {kPointwiseOperation, 753, kDescriptor, 1, true},   // YDESC
    {kSums, 770, kSumsMode, 1, true},                   // MODE
    {kSums, 771, kDataType, 1, true},                   // MATH_PREC
    {kSums, 772, kDescriptor, 1, true},                 // XDESC
    {kSums, 773, kDescriptor, 1, true},                 // SUMDESC
    {kSums, 774, kDescriptor, 1, true},                 // SQSUMDESC
    {kGraph, 800, kHandleValue, 1, true},               // HANDLE
    {kGraph, 801, kDescriptor, kAnyCount, true},        // OPS
    {kHeuristic, 200, kHeuristicMode, 1, true},         // MODE
    {kHeuristic, 201, kDescriptor, 1, true},            // OPERATION_GRAPH
    {kPlan, 400, kHandleValue, 1, true},                // HANDLE
    {kPlan, 401, kDescriptor, 1, false},                // ENGINE_CONFIG
    {kPlan, 405, kChar, kAnyCount, false},              // JSON_REPRESENTATION
    {kPack, 1000, kInt64, kAnyCount, true},             // UNIQUE_IDS
    {kPack, 1001, kPointer, kAnyCount, true},           // DATA_POINTERS
    {kPack, 1003, kPointer, 1, true},                   // WORKSPACE
};

using Four = std::array<i64, 4>;
using Two = std::array<i64, 2>;

struct Tensor {
  i64 uid = 0, alignment = 0;
  int type = kFloat32;
  Four extents{}, strides{};
  bool is_virtual = false, is_by_value = false;

  i64 count() const { return extents[0] * extents[1] * extents[2] * extents[3]; }
  i64 last() const {
    i64 result = 0;
    for (std::size_t i = 0; i < 4; ++i) result += (extents[i] - 1) * strides[i];
    return result;
  }
  std::size_t value_bytes() const { return type == kFloat16 ? 2 : 4; }
  bool is_dense() const { return last() + 1 == count(); }
  friend bool operator==(const Tensor&, const Tensor&) = default;
};
/// Call f(index, n, c, h, w) for each place of the tensor in the order (n, h, w, c).
template <class F>
void for_each_place(const Four& extents, const F& f) {
  i64 index = 0;
  for (i64 n = 0; n < extents[0]; ++n)
    for (i64 h = 0; h < extents[2]; ++h)
      for (i64 w = 0; w < extents[3]; ++w)
        for (i64 c = 0; c < extents[1]; ++c) f(index++, n, c, h, w);
}

struct Pointwise {
  int mode = 0;
  double slope = 0, alpha = 1;
};
enum Mode : int { kAdd = 0, kMin = 2, kRelu = 100, kTanh = 101, kSigmoid = 102, kElu = 103, kGelu = 104 };
bool is_binary(int mode) { return mode == kAdd || mode == kMin; }

float apply(const Pointwise& p, float x, float b) {
  switch (p.mode) {
    case kAdd: return x + b;
    case kMin: return std::min(x, b);
    case kRelu: return x > 0 ? x : static_cast<float>(p.slope * x);
    case kTanh: return std::tanh(x);
    case kSigmoid: return 1 / (1 + std::exp(-x));
    case kElu: return x > 0 ? x : static_cast<float>(p.alpha * std::expm1(double{x}));
    default: return static_cast<float>(0.5 * x * (1 + std::erf(x / std::sqrt(2.0))));
  }
}

struct Operation {
  int type = kForward;
  Tensor x, w, y;      ///< of a convolution; of a pointwise operation x, b and y
  bool has_b = false;  ///< of a pointwise operation
  Two before{}, after{}, stride{}, dilation{};
  Pointwise pointwise;
};
struct Graph {
  std::vector<Operation> operations;
  bool has_sums = false;
  Tensor sums, squares;  ///< of each channel of the result

  /// Return each tensor once.
  std::map<i64, Tensor> tensors() const {
    std::map<i64, Tensor> result;
    const auto add = [&](const Tensor& tensor) {
      const auto [found, is_new] = result.try_emplace(tensor.uid, tensor);
      expect(is_new || found->second == tensor, "two tensors have one UNIQUE_ID", kDuplicated);
    };
    for (const Operation& each : operations) {
      add(each.x), add(each.y);
      if (each.type != kPointwiseOperation || each.has_b) add(each.w);
    }
    if (has_sums) add(sums), add(squares);
    return result;
  }
  const Tensor& written_by(const Operation& o) const { return o.type == kData ? o.x : o.type == kWeights ? o.w : o.y; }
  const Tensor& result() const { return written_by(operations.back()); }
};

// ------------------------------------------------------------------------------------------------------------ engines

enum class Space { none, sums, too_much };
struct Engine {
  const char* name;
  std::vector<int> notes, behaviors;
  Space space = Space::none;
  bool is_supported = true;
  bool without_groups = false;  ///< it does not support them
};
/// In the order that the heuristic recommends.
const std::vector<Engine>& engines() {
  static const auto* const all = new std::vector<Engine>{
      {"nondeterministic", {4}, {}},
      {"reduced sums", {0, 2}, {}},
      {"down-convert", {0, 1}, {}},
      {"winograd 13", {8}, {}},
      {"winograd", {5}, {}},
      {"compiled", {}, {0}},
      {"unsupported", {}, {}, Space::none, false},
      {"too large", {}, {}, Space::too_much},
      {"with workspace", {}, {}, Space::sums, true, true},
      {"tensor cores", {0}, {}},
      {"direct", {}, {}},
  };
  return *all;
}
constexpr std::size_t kDirect = 10;
constexpr i64 kTooMuch = (i64{256} << 20) + 1;

struct Plan {
  std::size_t engine = 0;
  Graph graph;

  const Engine& how() const { return engines()[engine]; }
  bool has_note(int note) const { return std::count(how().notes.begin(), how().notes.end(), note) > 0; }
  bool is_half() const { return graph.operations.front().x.type == kFloat16; }
  i64 workspace() const {
    if (how().space == Space::none) return 0;
    if (how().space == Space::too_much) return kTooMuch;
    const Operation& first = graph.operations.front();
    return graph.written_by(first).count() * static_cast<i64>(sizeof(double));
  }
  /// Whether products lose digits: those of float32 in tensor cores, and Winograd's.
  bool rounds() const { return !is_half() && (has_note(0) || has_note(5)); }
  /// Results of an engine that no graph allows are NaN.
  bool is_forbidden() const {
    return has_note(1) || has_note(2) || has_note(4) || has_note(8) || how().space == Space::too_much;
  }
};

// --------------------------------------------------------------------------------------------------- plans as text

template <class Archive>
void transfer(Archive& a, Tensor& t) {
  a(t.uid), a(t.alignment), a(t.type), a(t.is_virtual), a(t.is_by_value);
  for (i64& each : t.extents) a(each);
  for (i64& each : t.strides) a(each);
}
template <class Archive>
void transfer(Archive& a, Operation& o) {
  a(o.type), transfer(a, o.x), transfer(a, o.w), transfer(a, o.y), a(o.has_b);
  for (Two* const each : {&o.before, &o.after, &o.stride, &o.dilation}) a((*each)[0]), a((*each)[1]);
  a(o.pointwise.mode), a(o.pointwise.slope), a(o.pointwise.alpha);
}
std::string text_of(Plan plan) {
  std::ostringstream text;
  text.precision(17);
  const auto write = [&](auto value) { text << value << ' '; };
  text << "plan ";
  write(plan.engine), write(plan.graph.operations.size());
  for (Operation& each : plan.graph.operations) transfer(write, each);
  write(plan.graph.has_sums), transfer(write, plan.graph.sums), transfer(write, plan.graph.squares);
  text << "end";
  return text.str();
}
Plan plan_of(const std::string& text) {
  std::istringstream in(text);
  const auto read = [&](auto& value) { in >> value; };
  std::string word;
  Plan plan;
  std::size_t count = 0;
  in >> word >> plan.engine >> count;
  expect(in && word == "plan" && plan.engine < engines().size() && count < 100, "the text is no plan");
  plan.graph.operations.resize(count);
  for (Operation& each : plan.graph.operations) transfer(read, each);
  read(plan.graph.has_sums), transfer(read, plan.graph.sums), transfer(read, plan.graph.squares);
  in >> word;
  expect(in && word == "end" && count > 0, "the text is no plan");
  return plan;
}

// -------------------------------------------------------------------------------------------------------- descriptors

struct HandleOf {
  HostStream* stream = nullptr;
};

struct Value {
  int type = 0;
  i64 count = 0;
  std::vector<std::byte> bytes;
};
struct Object {
  explicit Object(int descriptor) : type(descriptor) {}
  const int type;
  bool is_finalized = false;
  std::map<int, Value> values;
  std::map<int, std::vector<std::shared_ptr<const Object>>> descriptors;

  // What finalize() makes of them, and what a heuristic's result refers to.
  Tensor tensor;
  Graph graph;
  Plan plan;
  std::vector<std::size_t> recommended;
  std::size_t engine = 0;

  bool has(int attribute) const { return values.count(attribute) > 0; }
  template <class T>
  T get(int attribute, T otherwise = {}, std::size_t index = 0) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return otherwise;
    T value;
    std::memcpy(&value, found->second.bytes.data() + index * sizeof(T), sizeof(T));
    return value;
  }
  template <std::size_t N>
  std::array<i64, N> list(int attribute) const {
    std::array<i64, N> result{};
    for (std::size_t i = 0; i < N; ++i) result[i] = get<i64>(attribute, 0, i);
    return result;
  }
  const Object& object(int attribute, int wanted) const {
    const Object& result = *descriptors.at(attribute).front();
    expect(result.type == wanted, "attribute " + std::to_string(attribute) + " has another type of descriptor");
    return result;
  }
};
struct Descriptor {
  std::shared_ptr<Object> object;
};
Object& object_of(void* raw) {
  expect(raw, "a descriptor is null");
  return *static_cast<Descriptor*>(raw)->object;
}

void finalize_tensor(Object& o) {
  Tensor& t = o.tensor;
  t.uid = o.get<i64>(906), t.alignment = o.get<i64>(900), t.type = o.get<int>(901);
  t.extents = o.list<4>(902), t.strides = o.list<4>(903);
  t.is_virtual = o.get<bool>(907), t.is_by_value = o.get<bool>(908);
  expect(t.type == kFloat32 || t.type == kFloat16, "DATA_TYPE is not supported", kNotSupported);
  expect(t.alignment > 0 && t.alignment % static_cast<i64>(t.value_bytes()) == 0 &&
             std::has_single_bit(static_cast<std::uint64_t>(t.alignment)),
         "BYTE_ALIGNMENT is not a power of 2 and a multiple of the size of a value");
  const auto [n, c, h, w] = t.extents;
  expect(n > 0 && c > 0 && h > 0 && w > 0, "DIMENSIONS are not positive");
  const auto [ns, cs, hs, ws] = t.strides;
  expect(ns > 0 && cs > 0 && hs > 0 && ws > 0, "STRIDES are not positive");
  expect(cs == 1 && ws >= c && hs >= w * ws && ns >= h * hs, "STRIDES are not those of channels last", kNotSupported);
  expect(!t.is_by_value || (t.count() == 1 && !t.is_virtual), "a tensor by value is not a number");
}

void finalize_convolution(const Object& o) {
  expect(o.get<int>(100) == kFloat32, "COMP_TYPE is not float");
  expect(o.get<int>(101) == 1, "CONV_MODE is not cross-correlation");
  expect(o.get<i64>(106) == 2, "SPATIAL_DIMS is not 2");
  for (std::size_t i = 0; i < 2; ++i) {
    expect(o.get<i64>(102, 0, i) > 0 && o.get<i64>(103, 0, i) > 0, "DILATIONS or FILTER_STRIDES are not positive");
    expect(o.get<i64>(104, 0, i) >= 0 && o.get<i64>(105, 0, i) >= 0, "a padding is negative");
  }
}

void finalize_convolution_operation(Object& o) {
  const int first = o.type == kForward ? 700 : o.type == kData ? 706 : 712;
  expect(o.get<float>(first) == 1 && o.get<float>(first + 1) == 0, "ALPHA is not 1, or BETA not 0", kNotSupported);
  const Object& conv = o.object(first + 2, kConvolution);
  Operation op;
  op.type = o.type;
  op.w = o.object(first + 3, kTensor).tensor;
  op.x = o.object(first + 4, kTensor).tensor;
  op.y = o.object(first + 5, kTensor).tensor;
  op.dilation = conv.list<2>(102), op.stride = conv.list<2>(103);
  op.after = conv.list<2>(104), op.before = conv.list<2>(105);
  const auto &x = op.x.extents, &w = op.w.extents, &y = op.y.extents;
  expect(x[0] == y[0], "X and Y have other batch sizes", kShapeMismatch);
  expect(y[1] == w[0], "Y has not the channels of W", kShapeMismatch);
  expect(x[1] % w[1] == 0 && w[0] % (x[1] / w[1]) == 0, "the channels cannot be divided into groups", kShapeMismatch);
  for (std::size_t i = 0; i < 2; ++i) {
    const i64 reach = (w[2 + i] - 1) * op.dilation[i] + 1;
    const i64 rest = x[2 + i] + op.before[i] + op.after[i] - reach;
    expect(rest >= 0 && y[2 + i] == rest / op.stride[i] + 1, "Y has not the extents of the convolution",
           kShapeMismatch);
  }
  expect(op.w.is_dense(), "W is not dense", kNotSupported);
  for (const Tensor* const each : {&op.x, &op.w, &op.y})
    expect(!each->is_by_value, "a tensor of a convolution is by value");
  const bool is_mixed = o.type != kForward || !op.y.is_virtual;
  expect(op.x.type == op.w.type || o.type == kWeights, "X and W have two types", kNotSupported);
  expect(!is_mixed || op.x.type == op.y.type, "X and Y have two types", kNotSupported);
  o.graph.operations = {op};
}

void finalize_pointwise_operation(Object& o) {
  const Object& how = o.object(750, kPointwise);
  Operation op;
  op.type = kPointwiseOperation;
  op.pointwise = {how.get<int>(0), how.get<double>(5), how.get<double>(6, 1.0)};
  op.x = o.object(751, kTensor).tensor, op.y = o.object(753, kTensor).tensor;
  op.has_b = o.descriptors.count(752) > 0;
  expect(op.has_b == is_binary(op.pointwise.mode), "the mode takes another number of tensors");
  if (op.has_b) op.w = o.object(752, kTensor).tensor;
  expect(op.x.extents == op.y.extents, "X and Y have other extents", kShapeMismatch);
  for (std::size_t i = 0; op.has_b && i < 4; ++i)
    expect(op.w.extents[i] == 1 || op.w.extents[i] == op.y.extents[i], "B cannot be broadcast to Y", kShapeMismatch);
  o.graph.operations = {op};
}

void finalize_sums(Object& o) {
  expect(o.get<int>(770) == 0, "MODE is not the sum and the sum of squares", kNotSupported);
  expect(o.get<int>(771) == kFloat32, "MATH_PREC is not float");
  Operation op;
  op.type = kSums;
  op.x = o.object(772, kTensor).tensor;
  op.w = o.object(773, kTensor).tensor, op.y = o.object(774, kTensor).tensor;
  for (const Tensor* const each : {&op.w, &op.y})
    expect(each->extents == Four{1, op.x.extents[1], 1, 1} && each->type == kFloat32 && !each->is_virtual,
           "SUMDESC or SQSUMDESC is not a float32 for each channel", kShapeMismatch);
  o.graph.operations = {op};
}

void finalize_graph(Object& o) {
  expect(o.get<HandleOf*>(800), "HANDLE is null");
  for (const auto& each : o.descriptors.at(801)) {
    expect(each->graph.operations.size() == 1, "OPS has a descriptor that is no operation");
    o.graph.operations.push_back(each->graph.operations.front());
  }
  auto& ops = o.graph.operations;
  if (ops.back().type == kSums) {
    o.graph.has_sums = true, o.graph.sums = ops.back().w, o.graph.squares = ops.back().y;
    const i64 summed = ops.back().x.uid;
    ops.pop_back();
    expect(!ops.empty() && ops.back().type != kData && ops.back().type != kWeights && ops.back().y.uid == summed,
           "other values than the result are summed", kNotSupported);
  }
  expect(ops.front().type != kPointwiseOperation, "the first operation is no convolution", kNotSupported);
  expect(ops.front().type == kForward || ops.size() == 1, "a gradient is followed by operations", kNotSupported);
  for (std::size_t i = 1; i < ops.size(); ++i) {
    expect(ops[i].type == kPointwiseOperation, "a convolution follows another operation", kNotSupported);
    expect(ops[i].x.uid == ops[i - 1].y.uid, "an operation does not read the result before it", kNotSupported);
    expect(!ops[i].has_b || !ops[i].w.is_virtual, "B is virtual, but no operation writes it");
  }
  std::set<i64> written;
  for (const Operation& each : ops) {
    const Tensor& result = o.graph.written_by(each);
    expect(result.is_virtual == (&each != &ops.back()), "a result within the graph is not virtual, or the last one is");
    expect(!result.is_virtual || result.type == kFloat32, "a virtual tensor is not float32");
    expect(written.insert(result.uid).second, "two operations write one tensor", kDuplicated);
  }
  const Tensor& result = o.graph.result();
  for (const Operation& each : ops)  // suspected of writing beside the result
    for (std::size_t i = 0; each.has_b && each.w.extents == result.extents && i < 4; ++i)
      expect(result.extents[i] == 1 || each.w.strides[i] == result.strides[i],
             "an image is added whose strides are not the result's");
  for (const auto& [uid, tensor] : o.graph.tensors()) {
    expect(tensor.is_virtual == (written.count(uid) && uid != result.uid), "a virtual tensor is not written");
    if (o.graph.has_sums && (uid == o.graph.sums.uid || uid == o.graph.squares.uid)) continue;
    expect(tensor.is_by_value || tensor.is_virtual || tensor.type == ops.front().x.type || uid == result.uid,
           "the tensors have two types", kNotSupported);
  }
}

void check_plan(const Plan& plan) {
  const Operation& conv = plan.graph.operations.front();
  const bool has_groups = conv.x.extents[1] != conv.w.extents[1];
  expect(!fails(plan.how().name), "FAKE_FAILS names the engine", kNotSupported);
  expect(conv.type != kData || !fails("data"), "FAKE_FAILS has data", kNotSupported);
  expect(plan.how().is_supported && !(has_groups && plan.how().without_groups), "the engine does not support the graph",
         kNotSupported);
}
void finalize_plan(Object& o) {
  expect(o.get<HandleOf*>(400), "HANDLE is null");
  const bool has_text = o.has(405);
  expect(has_text != (o.descriptors.count(401) > 0), "a plan takes either ENGINE_CONFIG or JSON_REPRESENTATION");
  if (has_text) {
    const auto& bytes = o.values.at(405).bytes;
    expect(!fails("restore"), "FAKE_FAILS has restore");
    o.plan = plan_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } else {
    const Object& configuration = o.object(401, kConfiguration);
    o.plan = {configuration.engine, configuration.graph};
  }
  check_plan(o.plan);
  trace(std::string(has_text ? "cuDNN restores " : "cuDNN plans ") + o.plan.how().name);
}

void finalize_heuristic(Object& o) {
  expect(!fails("heuristic"), "FAKE_FAILS has heuristic", kNotSupported);
  o.graph = o.object(201, kGraph).graph;
  const int mode = o.get<int>(200);
  expect(mode == 3 || mode == 2, "MODE is neither A nor fallback", kNotSupported);
  if (mode == 2) {
    o.recommended = {kDirect};
  } else {
    o.recommended.resize(engines().size());
    std::iota(o.recommended.begin(), o.recommended.end(), std::size_t{0});
  }
}

void finalize_pack(const Object& o) {
  const Value &uids = o.values.at(1000), &pointers = o.values.at(1001);
  expect(uids.count == pointers.count, "UNIQUE_IDS and DATA_POINTERS have other counts");
  std::set<i64> seen;
  for (i64 i = 0; i < uids.count; ++i)
    expect(seen.insert(o.get<i64>(1000, 0, static_cast<std::size_t>(i))).second, "UNIQUE_IDS repeat", kDuplicated);
}

void finalize(Object& o) {
  expect(!o.is_finalized, "the descriptor is finalized already", kNotInitialized);
  for (const Rule& rule : kRules)
    expect(rule.descriptor != o.type || !rule.is_required || o.has(rule.attribute),
           "attribute " + std::to_string(rule.attribute) + " is not set");
  switch (o.type) {
    case kTensor: finalize_tensor(o); break;
    case kConvolution: finalize_convolution(o); break;
    case kForward:
    case kData:
    case kWeights: finalize_convolution_operation(o); break;
    case kPointwise: {
      const int mode = o.get<int>(0);
      expect(is_binary(mode) || (mode >= kRelu && mode <= kGelu), "the pointwise mode is not supported", kNotSupported);
      expect(o.get<int>(1) == kFloat32, "MATH_PREC is not float");
      expect(!o.has(5) || mode == kRelu, "RELU_LOWER_CLIP_SLOPE belongs to ReLU");
      expect(!o.has(6) || mode == kElu, "ELU_ALPHA belongs to ELU");
      break;
    }
    case kPointwiseOperation: finalize_pointwise_operation(o); break;
    case kSums: finalize_sums(o); break;
    case kGraph: finalize_graph(o); break;
    case kHeuristic: finalize_heuristic(o); break;
    case kPlan: finalize_plan(o); break;
    case kPack: finalize_pack(o); break;
    default: throw Error(kBadParam, "such descriptors are not finalized by programs");
  }
  o.is_finalized = true;
}

void set(Object& o, int attribute, int type, i64 count, const void* values) {
  expect(!o.is_finalized, "the descriptor is finalized already", kNotInitialized);
  const auto* const rule = std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& each) {
    return each.descriptor == o.type && each.attribute == attribute;
  });
  const std::string name = "attribute " + std::to_string(attribute);
  expect(rule != std::end(kRules), name + " is not one of the descriptor");
  expect(rule->type == type, name + " has another type", kWrongType);
  expect(count > 0 && (rule->count == kAnyCount || rule->count == count), name + " has another count");
  expect(values, name + " has no values");
  Value value{type, count, {}};
  const auto* const first = static_cast<const std::byte*>(values);
  value.bytes.assign(first, first + static_cast<std::size_t>(count) * size_of(type));
  if (type == kDescriptor) {
    auto& list = o.descriptors[attribute];
    list.clear();
    for (i64 i = 0; i < count; ++i) {
      void* const raw = static_cast<void* const*>(values)[i];
      expect(object_of(raw).is_finalized, name + " is not finalized", kNotFinalized);
      list.push_back(static_cast<Descriptor*>(raw)->object);
    }
  }
  o.values[attribute] = std::move(value);
}

/// Copy up to `requested` values, and return how many there are.
template <class T>
i64 give(const T* from, std::size_t count, i64 requested, void* to) {
  const auto given = std::min(count, static_cast<std::size_t>(requested));
  if (given > 0) std::memcpy(to, from, given * sizeof(T));
  return static_cast<i64>(count);
}
i64 get(const Object& o, int attribute, int type, i64 requested, void* values) {
  expect(o.is_finalized, "the descriptor is not finalized", kNotFinalized);
  expect(requested == 0 || values, "no place for the values");
  const auto wants = [&](int descriptor, int wanted_attribute, int wanted_type) {
    if (o.type != descriptor || attribute != wanted_attribute) return false;
    expect(type == wanted_type, "the attribute has another type", kWrongType);
    return true;
  };
  if (wants(kHeuristic, 202, kDescriptor)) {
    for (std::size_t i = 0; i < std::min(o.recommended.size(), static_cast<std::size_t>(requested)); ++i) {
      Object& to = object_of(static_cast<void**>(values)[i]);
      expect(to.type == kConfiguration && !to.is_finalized, "a result is no configuration to fill in");
      to.engine = o.recommended[i], to.graph = o.graph, to.is_finalized = true;
    }
    return static_cast<i64>(o.recommended.size());
  }
  if (wants(kConfiguration, 300, kDescriptor)) {
    expect(requested == 1, "a configuration has one engine");
    Object& to = object_of(*static_cast<void**>(values));
    expect(to.type == kEngine && !to.is_finalized, "the result is no engine to fill in");
    to.engine = o.engine, to.is_finalized = true;
    return 1;
  }
  const Engine& engine = engines()[o.engine];
  if (wants(kEngine, 1303, kNumericalNote)) return give(engine.notes.data(), engine.notes.size(), requested, values);
  if (wants(kEngine, 1305, kBehaviorNote))
    return give(engine.behaviors.data(), engine.behaviors.size(), requested, values);
  if (wants(kPlan, 402, kInt64)) {
    const i64 bytes = o.plan.workspace();
    return give(&bytes, 1, requested, values);
  }
  if (wants(kPlan, 405, kChar)) {
    const std::string text = text_of(o.plan);
    return give(text.data(), text.size(), requested, values);
  }
  throw Error(kBadParam, "attribute " + std::to_string(attribute) + " cannot be read");
}

// ---------------------------------------------------------------------------------------------------------- execution

using Floats = std::vector<float>;

Floats loaded(const Tensor& t, void* data) {
  Floats result(static_cast<std::size_t>(t.count()));
  const Values values{data, t.type == kFloat16};
  for_each_place(t.extents, [&](i64 index, i64 n, i64 c, i64 h, i64 w) {
    result[static_cast<std::size_t>(index)] =
        values.load(n * t.strides[0] + c * t.strides[1] + h * t.strides[2] + w * t.strides[3]);
  });
  return result;
}

/// Store values; cuDNN stores up to 16 bytes of channels at once, as far as BYTE_ALIGNMENT allows, and then beside the
/// channels if strides are not multiples of that [seen on an H200].
void store(const Tensor& t, void* data, const Floats& from, std::size_t limit) {
  const Values values{data, t.type == kFloat16};
  const auto size = static_cast<i64>(values.size()), run = std::min<i64>(16, t.alignment) / size;
  const auto fits = [&](std::size_t axis) { return t.extents[axis] == 1 || t.strides[axis] % run == 0; };
  const bool spills = !t.is_dense() && !(fits(0) && fits(2) && fits(3));
  for_each_place(t.extents, [&](i64 index, i64 n, i64 c, i64 h, i64 w) {
    const i64 at = n * t.strides[0] + c * t.strides[1] + h * t.strides[2] + w * t.strides[3];
    values.store(at, from[static_cast<std::size_t>(index)]);
    if (!spills || c + 1 != t.extents[1]) return;
    for (i64 k = 1; (c + k) % run != 0 && static_cast<std::size_t>((at + k + 1) * size) <= limit; ++k)
      values.store(at + k, 0);
  });
}

/// Store zeros between the pixels, as some plans of cuDNN do [seen on an H200].
void fill_gaps(const Tensor& t, void* data) {
  const Values values{data, t.type == kFloat16};
  for (i64 n = 0; n < t.extents[0]; ++n)
    for (i64 h = 0; h < t.extents[2]; ++h)
      for (i64 w = 0; w + 1 < t.extents[3]; ++w)
        for (i64 k = t.extents[1]; k < t.strides[3]; ++k)
          values.store(n * t.strides[0] + h * t.strides[2] + w * t.strides[3] + k, 0);
}

/// Sum the products of a convolution; `sums` has the places of what the operation writes.
void convolve(const Operation& o, const Floats& a, const Floats& b, double* sums) {
  const auto [n_count, c_count, x_h, x_w] = o.x.extents;
  const auto [k_count, own, w_h, w_w] = o.w.extents;
  const i64 y_h = o.y.extents[2], y_w = o.y.extents[3], per_group = k_count / (c_count / own);
  std::fill_n(sums, o.type == kData ? o.x.count() : o.type == kWeights ? o.w.count() : o.y.count(), 0.0);
  for (i64 n = 0; n < n_count; ++n)
    for (i64 p = 0; p < y_h; ++p)
      for (i64 q = 0; q < y_w; ++q)
        for (i64 r = 0; r < w_h; ++r)
          for (i64 s = 0; s < w_w; ++s) {
            const i64 h = p * o.stride[0] - o.before[0] + r * o.dilation[0];
            const i64 w = q * o.stride[1] - o.before[1] + s * o.dilation[1];
            if (h < 0 || h >= x_h || w < 0 || w >= x_w) continue;
            for (i64 k = 0; k < k_count; ++k) {
              const i64 x0 = ((n * x_h + h) * x_w + w) * c_count + k / per_group * own;
              const i64 w0 = ((k * w_h + r) * w_w + s) * own, y0 = ((n * y_h + p) * y_w + q) * k_count + k;
              const auto at = [](const Floats& from, i64 index) {
                return double{from[static_cast<std::size_t>(index)]};
              };
              if (o.type == kForward) {
                for (i64 c = 0; c < own; ++c) sums[y0] += at(a, x0 + c) * at(b, w0 + c);
              } else if (o.type == kData) {
                for (i64 c = 0; c < own; ++c) sums[x0 + c] += at(a, w0 + c) * at(b, y0);
              } else {
                for (i64 c = 0; c < own; ++c) sums[w0 + c] += at(a, x0 + c) * at(b, y0);
              }
            }
          }
}

/// A plan with the memory of one call.
struct Run {
  Plan plan;
  std::map<i64, void*> data;  ///< by UNIQUE_ID; not of numbers
  std::map<i64, float> numbers;
  void* workspace = nullptr;
  std::size_t limit = 0;  ///< bytes from the result to the end of its block, as far as they are known

  void store_sums(const Floats& values) const {
    const auto channels = static_cast<std::size_t>(plan.graph.result().extents[1]);
    std::vector<double> sums(channels), squares(channels);
    for (std::size_t i = 0; i < values.size(); ++i)
      sums[i % channels] += values[i], squares[i % channels] += double{values[i]} * values[i];
    const auto store_all = [&](const Tensor& t, const std::vector<double>& from) {
      store(t, data.at(t.uid), {from.begin(), from.end()}, channels * sizeof(float));
    };
    store_all(plan.graph.sums, sums), store_all(plan.graph.squares, squares);
  }

  void operator()() const {
    const auto& ops = plan.graph.operations;
    const Operation& conv = ops.front();
    const auto read = [&](const Tensor& t) {
      Floats values = loaded(t, data.at(t.uid));
      if (plan.rounds())
        for (float& each : values) each = rounded_to_tf32(each);
      return values;
    };
    const Floats a = read(conv.type == kData ? conv.w : conv.x), b = read(conv.type == kForward ? conv.w : conv.y);
    const Tensor& first = plan.graph.written_by(conv);
    std::vector<double> own_sums;
    auto* sums = static_cast<double*>(workspace);
    if (plan.how().space != Space::sums) {
      own_sums.resize(static_cast<std::size_t>(first.count()));
      sums = own_sums.data();
    }
    convolve(conv, a, b, sums);
    Floats values(sums, sums + first.count());
    for (std::size_t i = 1; i < ops.size(); ++i) {
      const Operation& op = ops[i];
      Floats other;
      if (op.has_b) other = op.w.is_by_value ? Floats{numbers.at(op.w.uid)} : loaded(op.w, data.at(op.w.uid));
      const auto& e = op.w.extents;
      for_each_place(op.y.extents, [&](i64 index, i64 n, i64 c, i64 h, i64 w) {
        float& value = values[static_cast<std::size_t>(index)];
        const auto place = [&](i64 extent, i64 at) { return extent == 1 ? 0 : at; };
        const i64 from =
            op.has_b ? ((place(e[0], n) * e[2] + place(e[2], h)) * e[3] + place(e[3], w)) * e[1] + place(e[1], c) : 0;
        value = apply(op.pointwise, value, op.has_b ? other[static_cast<std::size_t>(from)] : 0);
      });
    }
    if (plan.is_forbidden()) values.assign(values.size(), std::numeric_limits<float>::quiet_NaN());
    const Tensor& result = plan.graph.result();
    store(result, data.at(result.uid), values, limit);
    if (plan.graph.has_sums) store_sums(values);
    if (fails("gaps") && conv.type != kWeights && plan.how().space == Space::none)
      fill_gaps(result, data.at(result.uid));
  }
};

void execute(HandleOf* handle, const Object& plan, const Object& pack) {
  expect(handle && handle->stream, "the handle has no stream");
  expect(plan.type == kPlan && plan.is_finalized, "the plan is not finalized", kNotFinalized);
  expect(pack.type == kPack && pack.is_finalized, "the variant pack is not finalized", kNotFinalized);
  expect(!fails("execute"), "FAKE_FAILS has execute", kExecutionFailed);
  Run run{.plan = plan.plan, .data = {}, .numbers = {}};
  const HostStream& stream = *handle->stream;
  std::map<i64, const void*> pointers;
  for (i64 i = 0; i < pack.values.at(1000).count; ++i) {
    const auto index = static_cast<std::size_t>(i);
    pointers[pack.get<i64>(1000, 0, index)] = pack.get<const void*>(1001, nullptr, index);
  }
  const auto tensors = plan.plan.graph.tensors();
  for (const auto& [uid, tensor] : tensors) {
    const std::string name = "tensor " + std::to_string(uid);
    const auto found = pointers.find(uid);
    expect((found != pointers.end()) == !tensor.is_virtual, name + " is virtual, or not in the variant pack");
    if (tensor.is_virtual) continue;
    expect(found->second, name + " is null");
    const auto address = reinterpret_cast<Address>(found->second);
    expect(address % static_cast<Address>(tensor.alignment) == 0, name + " has not its BYTE_ALIGNMENT", kMisaligned);
    if (tensor.is_by_value) {
      std::memcpy(&run.numbers[uid], found->second, sizeof(float));
      continue;
    }
    const std::size_t bytes = static_cast<std::size_t>(tensor.last() + 1) * tensor.value_bytes();
    expect(stream.has(address, bytes), name + " is not in memory of the device", kExecutionFailed);
    run.data[uid] = host_address(address);
    if (uid == plan.plan.graph.result().uid)
      for (run.limit = bytes; run.limit < bytes + 16 && stream.has(address, run.limit + 1);) ++run.limit;
  }
  for (const auto& [uid, pointer] : pointers)
    expect(tensors.count(uid) > 0, "the graph has no tensor " + std::to_string(uid));
  if (const i64 bytes = plan.plan.workspace(); bytes > 0) {
    const auto address = reinterpret_cast<Address>(pack.get<const void*>(1003));
    expect(address && address % 16 == 0, "WORKSPACE is not aligned", kMisaligned);
    expect(stream.has(address, static_cast<std::size_t>(bytes)), "WORKSPACE is too small", kExecutionFailed);
    run.workspace = host_address(address);
    for (const auto& [uid, data] : run.data) {
      const auto first = reinterpret_cast<Address>(data), space = reinterpret_cast<Address>(run.workspace);
      const Tensor& t = tensors.at(uid);
      const auto size = static_cast<Address>(t.last() + 1) * t.value_bytes();
      expect(first + size <= space || space + static_cast<Address>(bytes) <= first,
             "WORKSPACE overlaps tensor " + std::to_string(uid), kExecutionFailed);
    }
  }
  run_on(handle->stream, "execute", std::move(run));
}

}  // namespace

FAKE_API int cudnnCreate(HandleOf** handle) { return *handle = new HandleOf, kSuccess; }
FAKE_API int cudnnSetStream(HandleOf* handle, HostStream* stream) {
  return guarded([&] {
    expect(handle && stream, "the handle or the stream is null");
    handle->stream = stream;
  });
}
FAKE_API std::size_t cudnnGetVersion() { return 90000; }
FAKE_API const char* cudnnGetErrorString(int status) {
  switch (status) {
    case kSuccess: return "CUDNN_STATUS_SUCCESS";
    case kNotInitialized: return "CUDNN_STATUS_NOT_INITIALIZED";
    case kMisaligned: return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
    case kNotSupported: return "CUDNN_STATUS_NOT_SUPPORTED";
    case kExecutionFailed: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "CUDNN_STATUS_BAD_PARAM";
  }
}
FAKE_API void cudnnGetLastErrorString(char* message, std::size_t size) {
  std::snprintf(message, size, "%s", last_error().c_str());
  last_error().clear();
}
FAKE_API int cudnnBackendCreateDescriptor(int type, void** raw) {
  return *raw = new Descriptor{std::make_shared<Object>(type)}, kSuccess;
}
FAKE_API int cudnnBackendDestroyDescriptor(void* raw) { return delete static_cast<Descriptor*>(raw), kSuccess; }
FAKE_API int cudnnBackendFinalize(void* raw) {
  return guarded([&] { finalize(object_of(raw)); });
}
FAKE_API int cudnnBackendSetAttribute(void* raw, int attribute, int type, i64 count, const void* values) {
  return guarded([&] { set(object_of(raw), attribute, type, count, values); });
}
FAKE_API int cudnnBackendGetAttribute(void* raw, int attribute, int type, i64 requested, i64* count, void* values) {
  return guarded([&] { *count = get(object_of(raw), attribute, type, requested, values); });
}
FAKE_API int cudnnBackendExecute(HandleOf* handle, void* plan, void* pack) {
  return guarded([&] { execute(handle, object_of(plan), object_of(pack)); });
}

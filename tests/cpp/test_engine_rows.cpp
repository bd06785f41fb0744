// SPDX-License-Identifier: Apache-2.0
// Runs rows written by tests/rows/engine_*.py on engines: builds each problem through its field descriptions and
// compares its results with the row.
//
//   cpp_engine_rows <file of rows> [engine ...]      default: MPSCNN_ENGINE, or cpu; prints "N passed, N failed"
//
// With cuda-host it also prints "kernel <name> <number of launches>" for every kernel.
//
// Keys of a row are paths of fields: "window.kernel_h", "parts.0.src.view".
//   set problem <Name>             NameProblem
//   set <path> <number>            numbers, booleans, enumerators
//   set <path>.count <n>           length of a vector of structs
//   array <path>                   values before the run; the dtype is the format: uint8 is unorm8, uint16 unorm16
//   array expect:<path>            values after it, float64
//   array|set tolerance:<path>     max absolute error in addition to rounding to the format; default 0
//   set format:<path> <format>     of an image that has no values before the run; float32
//   set formats <format> ...       run again with these for all images without values and without format:<path>
//   set alias:<path> <other path>  same memory as an earlier field
//   set gap_step <number>          gaps are multiples of so many values; 1
//   set extents:<path> <n h w c>   an image without memory; weights (O, kH, kW, I) of 0
// Fields without a key keep their default, images and values without an array have no memory.
//
// Each row runs dense, and with gaps of NaN around channels, columns, rows and images. Only the expected fields may
// change, and roles are checked: `in` is not written, `out` is not read, `inout` is both in some row of the file.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "../rows/row_file.hpp"
#include "engine/cuda/driver.hpp"
#include "engine/plan/narrowing.hpp"
#include "engine/shared/elements.hpp"
#include "engine_test.hpp"
#include "mps/BinaryWeights.hpp"

namespace {

constexpr std::uint32_t kPrime = 16777619;  // FNV-1a

std::uint32_t hash_of(const std::string& text) {
  std::uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return hash;
}

const char* name_of(FieldRole role) {
  const char* const names[] = {"in", "out", "inout", "shape", "weights", "value", "chunks"};
  return names[static_cast<int>(role)];
}

bool is_memory(FieldRole role) { return role == FieldRole::in || role == FieldRole::out || role == FieldRole::inout; }

Format format_of(const std::string& name) {
  if (name == "unorm8" || name == "uint8") return Format::unorm8;
  if (name == "unorm16" || name == "uint16") return Format::unorm16;
  if (name == "float16") return Format::float16;
  if (name == "float32") return Format::float32;
  throw std::runtime_error("there is no format " + name);
}

/// Memory of one field, and its contents before the run.
struct Block {
  enum class Kind : std::uint8_t { image, doubles, bytes };

  std::string path;
  FieldRole role = FieldRole::in;
  Kind kind = Kind::image;
  Format format = Format::float32;
  std::vector<std::int64_t> shape;
  std::vector<std::size_t> places;  ///< first byte of each value
  std::vector<std::byte> before;
  std::shared_ptr<Memory> memory;
  const rows::Array* expected = nullptr;

  std::size_t element() const {
    return kind == Kind::doubles ? sizeof(double) : kind == Kind::bytes ? 1 : size_of(format);
  }
  double value(const std::vector<std::byte>& bytes, std::size_t i) const {
    const std::byte* const at = bytes.data() + places[i];
    if (kind == Kind::image) return stored_value(at, format);
    if (kind == Kind::bytes) return std::to_integer<int>(*at);
    double v;
    std::memcpy(&v, at, sizeof v);
    return v;
  }
};

// All accesses to an engine's memory.
void upload(const Block& block) { block.memory->upload(0, block.before.size(), block.before.data()); }
std::vector<std::byte> download(const Block& block) {
  std::vector<std::byte> bytes(block.before.size());
  block.memory->download(0, bytes.size(), bytes.data());
  return bytes;
}

/// "parts.0.src.view" -> "parts.src.view"
std::string without_indices(const std::string& path) {
  std::istringstream parts(path);
  std::string result;
  for (std::string part; std::getline(parts, part, '.');)
    if (!std::isdigit(static_cast<unsigned char>(part[0]))) result += (result.empty() ? "" : ".") + part;
  return result;
}

/// How the rows of a file use a field of one kind of problem.
struct Use {
  FieldRole role = FieldRole::in;
  int given = 0, written = 0;
};
std::map<std::string, Use> uses;

using Weights = std::map<std::string, std::shared_ptr<const void>>;  ///< shared by the variants of a row

/// A way to run a row.
struct Variant {
  Engine& engine;
  bool dense;
  Format format;  ///< of results
  std::byte fill;
};

template <class T>
constexpr bool is_floats =
    std::is_same_v<T, std::shared_ptr<const std::vector<float>>> || std::is_same_v<T, std::vector<float>>;

/// Reads a problem's fields from a row and allocates its memory.
class Reader {
 public:
  Reader(const rows::Row& row, const Variant& variant, Weights& weights)
      : row_(row),
        variant_(variant),
        weights_(weights),
        random_(hash_of(row.name) + static_cast<unsigned>(variant.dense)) {
    used_ = {"problem", "formats"};
  }

  template <class P>
  void read_problem(P& problem) {
    read("", FieldRole::chunks, problem);
    for (const auto& [key, value] : row_.settings) check_used(key);
    for (const auto& [key, value] : row_.arrays) check_used(key);
  }
  std::vector<Block>& blocks() { return blocks_; }

 private:
  void check_used(const std::string& key) {
    if (key.rfind("tolerance:", 0) != 0 && !used_.count(key)) throw std::runtime_error("no field takes " + key);
  }
  const std::string* setting(const std::string& key) {
    const auto found = row_.settings.find(key);
    if (found == row_.settings.end()) return nullptr;
    used_.insert(key);
    return &found->second;
  }
  const rows::Array* array(const std::string& key) {
    const auto found = row_.arrays.find(key);
    if (found == row_.arrays.end()) return nullptr;
    used_.insert(key);
    return &found->second;
  }
  std::vector<float> floats(const std::string& key) {
    const rows::Array* const given = array(key);
    std::vector<float> values(given ? static_cast<std::size_t>(given->size()) : 0);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((*given)[i]);
    return values;
  }

  /// Read the field at `path`. `role` is that of the outermost field with memory that contains it.
  template <class T>
  void read(const std::string& path, FieldRole role, T& member) {
    if constexpr (std::is_same_v<T, ImageView>) {
      read_image(path, role, member);
    } else if constexpr (std::is_same_v<T, ChannelValues>) {
      read_values(path, role, member);
    } else if constexpr (std::is_same_v<T, FloatMatrices>) {
      read_matrices(path, role, member);
    } else if constexpr (std::is_same_v<T, std::shared_ptr<Memory>>) {
      read_bytes(path, role, member);
    } else if constexpr (Described<T>) {
      for_each_field(member, [&](const auto& field, auto& part) {
        read((path.empty() ? "" : path + ".") + field.name, is_memory(role) ? role : field.role, part);
      });
    } else if constexpr (std::is_same_v<T, std::shared_ptr<const ConvWeights>>) {
      member = kept<ConvWeights>(path, [&] { return read_weights(path); });
    } else if constexpr (std::is_same_v<T, std::shared_ptr<const BinaryWeights>>) {
      member = kept<BinaryWeights>(path, [&] { return read_bits(path); });
    } else if constexpr (std::is_same_v<T, std::shared_ptr<const BoxLoss>>) {
      member = read_boxes(path);
    } else if constexpr (std::is_same_v<T, std::shared_ptr<const std::vector<float>>>) {
      if (array(path)) member = std::make_shared<std::vector<float>>(floats(path));
    } else if constexpr (std::is_same_v<T, std::vector<float>>) {
      member = floats(path);
    } else if constexpr (is_vector<T>) {
      const std::string* const count = setting(path + ".count");
      member.resize(count ? std::stoul(*count) : 0);
      for (std::size_t i = 0; i < member.size(); ++i) read(path + "." + std::to_string(i), role, member[i]);
    } else if (const std::string* const text = setting(path)) {
      if constexpr (std::is_enum_v<T>)
        member = static_cast<T>(std::stoi(*text));
      else if constexpr (std::is_floating_point_v<T>)
        member = static_cast<T>(std::stod(*text));
      else if constexpr (std::is_same_v<T, bool>)
        member = std::stoi(*text) != 0;
      else
        member =
            static_cast<T>(std::is_signed_v<T> ? static_cast<std::uint64_t>(std::stoll(*text)) : std::stoull(*text));
    }
  }

  // ------------------------------------------------------------------------------------------------------- memory

  /// Start a block for the field; null if the row gives it no memory. The caller sets places and calls finish().
  Block* begin(const std::string& path, FieldRole role, Block::Kind kind) {
    Use& use = uses[row_.settings.at("problem") + "." + without_indices(path)];
    use.role = role;
    const rows::Array *given = array(path), *expected = array("expect:" + path);
    use.given += given != nullptr, use.written += expected != nullptr;
    if (!given && !expected) return nullptr;
    if (given && role == FieldRole::out) throw std::runtime_error(path + " has values, but its role is out");
    if (!expected && role == FieldRole::out)
      throw std::runtime_error(path + " has the role out, but no expected values");
    if (expected && role == FieldRole::in) throw std::runtime_error(path + " is to change, but its role is in");
    Block& block = blocks_.emplace_back();
    block.path = path, block.role = role, block.kind = kind;
    block.shape = (given ? given : expected)->shape;
    block.expected = expected;
    if (given && kind == Block::Kind::image) block.format = format_of(given->dtype);
    return &block;
  }
  /// Allocate `bytes`, all NaN except the values that the row gives.
  std::shared_ptr<Memory> finish(Block& block, std::size_t bytes) {
    block.before.assign(bytes, std::byte{0xff});
    // Buffers may be shared ones, which are in host memory with every engine.
    const bool is_shared = block.shape.size() != 4 && random_.one_in(2);
    block.memory = Memory::lazy(variant_.engine.shared_from_this(), bytes,
                                is_shared ? Storage::host : variant_.engine.image_storage());
    if (const rows::Array* const given = array(block.path)) {
      store(block, *given);
    } else if (block.kind == Block::Kind::image && block.format < Format::float16) {
      for (const std::size_t place : block.places)
        std::fill_n(block.before.begin() + static_cast<std::ptrdiff_t>(place), block.element(), variant_.fill);
    }
    return block.memory;
  }
  static void store(Block& block, const rows::Array& given) {
    const std::size_t size = block.element();
    if (given.bytes.size() != size * block.places.size()) throw std::runtime_error(block.path + " has another size");
    for (std::size_t i = 0; i < block.places.size(); ++i)
      std::memcpy(block.before.data() + block.places[i], given.bytes.data() + i * size, size);
  }
  /// If the field shares the memory of another one, return that one's block.
  Block* aliased(const std::string& path, FieldRole role) {
    const std::string* const other = setting("alias:" + path);
    if (!other) return nullptr;
    for (Block& block : blocks_) {
      if (block.path != *other) continue;
      if (const rows::Array* const given = array(path)) store(block, *given);
      if (const rows::Array* const expected = array("expect:" + path)) {
        if (role == FieldRole::in) throw std::runtime_error(path + " is to change, but its role is in");
        block.expected = expected, block.role = role, block.path = path;
      }
      return &block;
    }
    throw std::runtime_error(path + " aliases " + *other + ", which has no memory");
  }

  i64 gap(i64 most) {
    const std::string* const step = setting("gap_step");
    return variant_.dense ? 0 : random_.whole(0, most) * (step ? std::stoll(*step) : 1);
  }

  void read_image(const std::string& path, FieldRole role, ImageView& view) {
    if (const std::string* const extents = setting("extents:" + path)) {
      std::istringstream(*extents) >> view.n >> view.h >> view.w >> view.c;
      view.w_stride = view.c, view.h_stride = view.w * view.w_stride, view.n_stride = view.h * view.h_stride;
    }
    if (const Block* const other = aliased(path, role)) {
      view = images_.at(other->memory.get());
      return;
    }
    Block* const block = begin(path, role, Block::Kind::image);
    if (!block) return;
    if (!array(path)) {
      const std::string* const format = setting("format:" + path);
      block->format = format ? format_of(*format) : variant_.format;
    }
    if (block->shape.size() != 4) throw std::runtime_error(path + " is not NHWC");
    view.format = block->format;
    view.n = block->shape[0], view.h = block->shape[1], view.w = block->shape[2], view.c = block->shape[3];
    view.w_stride = view.c + gap(9);
    view.h_stride = view.w_stride * view.w + gap(2) * view.w_stride + gap(3);
    view.n_stride = view.h_stride * view.h + gap(1) * view.h_stride;
    const i64 lead = variant_.dense ? 64 : gap(70);
    view.offset = static_cast<std::size_t>(lead) * size_of(view.format);
    for (i64 n = 0; n < view.n; ++n)
      for (i64 y = 0; y < view.h; ++y)
        for (i64 x = 0; x < view.w; ++x)
          for (i64 c = 0; c < view.c; ++c)
            block->places.push_back(
                static_cast<std::size_t>(lead + n * view.n_stride + y * view.h_stride + x * view.w_stride + c) *
                size_of(view.format));
    view.memory = finish(*block, static_cast<std::size_t>(lead + view.n * view.n_stride + 64) * size_of(view.format));
    images_[view.memory.get()] = view;
  }
  void read_values(const std::string& path, FieldRole role, ChannelValues& values) {
    const rows::Array* const first = array(path) ? array(path) : array("expect:" + path);
    const bool doubles = path == "exact";  // the only field of doubles: engine/problem/normalize.hpp
    Block* const block = begin(path, role, doubles ? Block::Kind::doubles : Block::Kind::image);
    if (!block) return;
    values.offset = static_cast<std::size_t>(gap(5)) * block->element();
    for (std::size_t i = 0; i < static_cast<std::size_t>(first->size()); ++i)
      block->places.push_back(values.offset + i * block->element());
    values.memory = finish(*block, values.offset + (block->places.size() + 7) * block->element());
  }
  void read_matrices(const std::string& path, FieldRole role, FloatMatrices& matrices) {
    if (const Block* const other = aliased(path, role)) {
      matrices = matrices_.at(other->memory.get());
      return;
    }
    Block* const block = begin(path, role, Block::Kind::image);
    if (!block) return;
    if (block->shape.size() != 3) throw std::runtime_error(path + " is not matrices of rows");
    const i64 count = block->shape[0], height = block->shape[1], columns = block->shape[2];
    matrices.row_stride = columns + gap(5), matrices.matrix_stride = height * matrices.row_stride + gap(7);
    const i64 lead = gap(9);
    matrices.offset = static_cast<std::size_t>(lead) * sizeof(float);
    for (i64 m = 0; m < count; ++m)
      for (i64 r = 0; r < height; ++r)
        for (i64 c = 0; c < columns; ++c)
          block->places.push_back(
              static_cast<std::size_t>(lead + m * matrices.matrix_stride + r * matrices.row_stride + c) *
              sizeof(float));
    matrices.memory =
        finish(*block, static_cast<std::size_t>(lead + count * matrices.matrix_stride + 16) * sizeof(float));
    matrices_[matrices.memory.get()] = matrices;
  }
  /// Read all bytes of a buffer.
  void read_bytes(const std::string& path, FieldRole role, std::shared_ptr<Memory>& memory) {
    if (const Block* const other = aliased(path, role)) {
      memory = other->memory;
      return;
    }
    Block* const block = begin(path, role, Block::Kind::bytes);
    if (!block) return;
    for (std::size_t i = 0; i < static_cast<std::size_t>(block->shape.at(0)); ++i) block->places.push_back(i);
    memory = finish(*block, block->places.size());
  }

  // ------------------------------------------------------------------------------------------------------ weights

  template <class T, class Make>
  std::shared_ptr<const T> kept(const std::string& path, const Make& make) {
    const std::shared_ptr<const T> made = make();  // also marks the keys as used
    return std::static_pointer_cast<const T>(weights_.try_emplace(path, made).first->second);
  }
  std::shared_ptr<const ConvWeights> read_weights(const std::string& path) {
    auto weights = std::make_shared<ConvWeights>();
    if (const std::string* const zeros = setting("extents:" + path)) {
      std::istringstream(*zeros) >> weights->out_channels >> weights->kernel_h >> weights->kernel_w >>
          weights->in_channels_per_group;
      weights->values.own().resize(static_cast<std::size_t>(weights->out_channels * weights->kernel_h *
                                                            weights->kernel_w * weights->in_channels_per_group));
    } else {
      const auto& shape = row_.arrays.at(path).shape;
      weights->out_channels = shape.at(0), weights->kernel_h = shape.at(1), weights->kernel_w = shape.at(2);
      weights->in_channels_per_group = shape.at(3);
      weights->values.own() = floats(path);
    }
    read(path + ".groups", FieldRole::shape, weights->groups);
    weights->bias = floats(path + ".bias");
    return weights;
  }
  std::shared_ptr<const BinaryWeights> read_bits(const std::string& path) {
    auto bits = std::make_shared<BinaryWeights>();
    const rows::Array& words = *array(path);  // int32, [O][kH][kW][words]
    bits->out_channels = words.shape.at(0), bits->kernel_h = words.shape.at(1), bits->kernel_w = words.shape.at(2);
    read(path + ".type", FieldRole::shape, bits->type), read(path + ".uses_beta", FieldRole::shape, bits->uses_beta);
    read(path + ".in_channels", FieldRole::shape, bits->in_channels);
    bits->words.resize(words.bytes.size() / 4);
    std::memcpy(bits->words.data(), words.bytes.data(), words.bytes.size());
    bits->scale = floats(path + ".scale"), bits->bias = floats(path + ".bias");
    bits->input_scale = floats(path + ".input_scale"), bits->input_bias = floats(path + ".input_bias");
    std::shared_ptr<const BinaryWeights> finished;
    const std::string error = finish_binary_weights(bits, finished);
    if (!error.empty()) throw std::runtime_error(error);
    return finished;
  }
  std::shared_ptr<const BoxLoss> read_boxes(const std::string& path) {
    if (!array(path + ".anchors")) return nullptr;
    auto boxes = std::make_shared<BoxLoss>();
    const auto part = [&](const char* name, auto& member) { read(path + "." + name, FieldRole::shape, member); };
    part("xy", boxes->xy), part("wh", boxes->wh), part("confidence", boxes->confidence),
        part("classes", boxes->classes);
    part("scale_object", boxes->scale_object), part("scale_no_object", boxes->scale_no_object);
    part("min_iou", boxes->min_iou), part("max_iou", boxes->max_iou), part("rescore", boxes->rescore);
    part("anchors", boxes->anchors);
    return boxes;
  }

  const rows::Row& row_;
  const Variant& variant_;
  Weights& weights_;
  Random random_;
  std::set<std::string> used_;
  std::vector<Block> blocks_;
  std::map<const Memory*, ImageView> images_;
  std::map<const Memory*, FloatMatrices> matrices_;
};

// ------------------------------------------------------------------------------------------------------------- checks

/// Return the indices of value `i`: "(0, 2, 1, 3)".
std::string place_of(const Block& block, std::size_t i) {
  std::vector<std::size_t> indices(block.shape.size());
  for (std::size_t axis = indices.size(); axis-- > 0; i /= static_cast<std::size_t>(block.shape[axis]))
    indices[axis] = i % static_cast<std::size_t>(block.shape[axis]);
  std::ostringstream text;
  for (std::size_t axis = 0; axis < indices.size(); ++axis) text << (axis == 0 ? "(" : ", ") << indices[axis];
  text << ")";
  return text.str();
}

/// Return the first difference between the values and the row's; empty if there is none.
std::string difference(const rows::Row& row, const Block& block, const std::vector<std::byte>& now) {
  const auto array = row.arrays.find("tolerance:" + block.path);
  const auto number = row.settings.find("tolerance:" + block.path);
  const double common = number == row.settings.end() ? 0 : std::stod(number->second);
  const bool is_unorm = block.kind == Block::Kind::image && block.format < Format::float16;
  for (std::size_t i = 0; i < block.places.size(); ++i) {
    const double given = (*block.expected)[i];
    const double want = block.kind == Block::Kind::image ? clamped(block.format, given) : given;
    const double got = block.value(now, i);
    if (got == want || (std::isnan(given) && (std::isnan(got) || is_unorm))) continue;
    if (block.format == Format::float16 && std::fabs(want) > 65000) continue;  // may have become infinite
    const double rounding = block.kind == Block::Kind::image ? format_error(block.format, want) : 0;
    const double allowed = (array == row.arrays.end() ? common : array->second[i]) + rounding + 1e-44;
    if (std::fabs(got - want) <= allowed) continue;
    char text[200];
    std::snprintf(text, sizeof text, " is %.9g, not %.9g (+- %.3g)", got, want, allowed);
    return block.path + place_of(block, i) + text;
  }
  return "";
}

/// Return how the run wrongly changed a field's memory; empty if it did not.
std::string wrong(const rows::Row& row, const Block& block) {
  const std::vector<std::byte> now = download(block);
  if (!block.expected) return now == block.before ? "" : block.path + " (" + name_of(block.role) + ") was written";
  std::vector<std::byte> around = now;
  for (const std::size_t place : block.places)
    std::memcpy(around.data() + place, block.before.data() + place, block.element());
  if (around != block.before) return "something was written around " + block.path;
  return difference(row, block, now);
}

/// Call f(number, is_value) for each number in the fields of `object`.
template <class T, class F>
void for_each_number(T& object, bool is_value, const F& f) {
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    f(object, is_value);
  } else if constexpr (std::is_same_v<T, ImageView>) {
  } else if constexpr (Described<T>) {
    for_each_field(object, [&](const auto& field, auto& member) {
      for_each_number(member, is_value || field.role == FieldRole::value, f);
    });
  } else if constexpr (is_vector<T> && !is_floats<T>) {
    for (auto& each : object) for_each_number(each, is_value, f);
  }
}

/// Every number of a shape is part of the structure key, and no value is.
template <class P>
void check_key(const P& problem, const std::string& name) {
  const std::string key = structure_key({{problem, ""}});
  int count = 0;
  for (int index = 0; index == 0 || index < count; ++index) {
    P other = problem;
    bool changes = true;
    count = 0;
    for_each_number(other, false, [&](auto& number, bool is_value) {
      using T = std::decay_t<decltype(number)>;
      if (count++ != index) return;
      changes = !is_value;
      if constexpr (std::is_same_v<T, bool>)
        number = !number;
      else if constexpr (std::is_floating_point_v<T>)
        number = std::isinf(number) ? 0 : number * 2 + T(1.5);
      else
        number = static_cast<T>(static_cast<int>(number) + 1);
    });
    if (count == 0) return;
    report((structure_key({{other, ""}}) != key) == changes, "%s: the key and number %d", name.c_str(), index);
  }
}

/// With bfloat16 in place of float32, results are those of float32 images with the same values, rounded.
void check_narrow(Engine& engine, const Problem& problem, const std::vector<Block>& blocks, const std::string& name) {
  if (!engine.narrows() || !can_be_narrow(problem)) return;
  const Structure structure = describe({{problem, ""}});
  const BlockIndex index(structure);
  Plan plan;
  std::vector<const Block*> images, others;  // others: results that stay float32
  for (const Block& block : blocks) {
    const bool is_image = block.kind == Block::Kind::image && block.shape.size() == 4;
    if (block.kind == Block::Kind::image && !is_image && block.format == Format::float32 && block.expected)
      others.push_back(&block);
    if (!is_image || block.format != Format::float32) continue;
    plan.narrowed.push_back(index.of(block.memory.get()));
    images.push_back(&block);
  }
  if (images.empty()) return;
  // Sums of rounded results differ.
  if (std::ranges::any_of(images, [](const Block* image) { return image->expected != nullptr; })) others.clear();
  const auto value_at = [](const std::vector<std::byte>& bytes, std::size_t place) {
    float value;
    std::memcpy(&value, bytes.data() + place, sizeof value);
    return value;
  };
  // Both runs start with values that bfloat16 has.
  std::vector<std::vector<std::byte>> before, expected, of_others;
  for (const Block* block : images) {
    std::vector<std::byte> bytes = block->before, narrow(block->before.size(), std::byte{0xff});
    for (const std::size_t place : block->places) {
      const std::uint16_t bits = float_to_bfloat(value_at(bytes, place));
      const float value = bfloat_to_float(bits);
      std::memcpy(bytes.data() + place, &value, sizeof value);
      std::memcpy(narrow.data() + place / 2, &bits, sizeof bits);
    }
    block->memory->upload(0, bytes.size(), bytes.data());
    before.push_back(std::move(narrow));
  }
  const auto run = [&](const Problem& given) {
    for (const Block& block : blocks)
      if (std::ranges::find(images, &block) == images.end()) upload(block);
    const std::string error = execute(engine, {{given, name}}).sentence;
    report(error.empty(), "%s, narrow: %s", name.c_str(), error.c_str());
    return error.empty();
  };
  if (!run(problem)) return;
  for (std::size_t i = 0; i < images.size(); ++i) {
    expected.push_back(download(*images[i]));
    images[i]->memory->upload(0, before[i].size(), before[i].data());
  }
  for (const Block* block : others) of_others.push_back(download(*block));
  if (!run(NarrowedMemory(plan, structure).apply_to(problem))) return;
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::vector<std::byte> now = download(*others[i]);
    float largest = 0;
    for (const std::size_t place : others[i]->places) {
      const float want = std::fabs(value_at(of_others[i], place));
      if (want < 1e30f) largest = std::fmax(largest, want);
    }
    for (const std::size_t place : others[i]->places) {
      const float want = value_at(of_others[i], place), got = value_at(now, place);
      if (std::isnan(want) || std::fabs(got - want) <= largest * 1e-4f + 1e-6f) continue;
      report(false, "%s, narrow: a value of %s is %.9g, not %.9g", name.c_str(), others[i]->path.c_str(),
             static_cast<double>(got), static_cast<double>(want));
      break;
    }
  }
  for (std::size_t i = 0; i < images.size(); ++i) {
    const Block& block = *images[i];
    const std::vector<std::byte> now = download(block);
    std::vector<std::byte> around = now;
    float largest = 0;
    for (const std::size_t place : block.places) {
      std::memcpy(around.data() + place / 2, before[i].data() + place / 2, 2);
      const float want = std::fabs(value_at(expected[i], place));
      if (want < 1e30f) largest = std::fmax(largest, want);
    }
    report(around == before[i], "%s, narrow: something was written around %s", name.c_str(), block.path.c_str());
    if (!block.expected) {
      report(now == before[i], "%s, narrow: %s was written", name.c_str(), block.path.c_str());
      continue;
    }
    for (std::size_t k = 0; k < block.places.size(); ++k) {
      std::uint16_t bits;
      std::memcpy(&bits, now.data() + block.places[k] / 2, sizeof bits);
      const float want = value_at(expected[i], block.places[k]), got = bfloat_to_float(bits);
      if (got == want || std::isnan(want) || std::fabs(want) > 3e38f) continue;
      if (std::fabs(got - want) <= std::fabs(want) * 0x1p-8f + largest * 1e-5f) continue;
      report(false, "%s, narrow: %s%s is %.9g, not %.9g", name.c_str(), block.path.c_str(), place_of(block, k).c_str(),
             static_cast<double>(got), static_cast<double>(want));
      break;
    }
  }
}

template <class P>
void run_as(const rows::Row& row, const Variant& variant, Weights& weights, const std::string& name) {
  P problem;
  Reader reader(row, variant, weights);
  reader.read_problem(problem);
  static bool key_is_checked = false;
  if (!std::exchange(key_is_checked, true)) check_key(problem, row.settings.at("problem"));
  for (const Block& block : reader.blocks()) upload(block);
  const std::string error = execute(variant.engine, {{problem, name}}).sentence;
  report(error.empty(), "%s: %s", name.c_str(), error.c_str());
  for (const Block& block : reader.blocks()) {
    const std::string text = error.empty() ? wrong(row, block) : "";
    report(text.empty(), "%s: %s", name.c_str(), text.c_str());
  }
  check_narrow(variant.engine, problem, reader.blocks(), name);
}

#define KIND(name) {#name, run_as<name##Problem>}
const std::map<std::string, void (*)(const rows::Row&, const Variant&, Weights&, const std::string&)> kinds = {
    KIND(Conv),
    KIND(ConvGradient),
    KIND(Transpose),
    KIND(TransposeGradient),
    KIND(BinaryConv),
    KIND(Pool),
    KIND(ConvPool),
    KIND(QuantizedConv),
    KIND(QuantizedSum),
    KIND(QuantizedProduct),
    KIND(QuantizedPixelSum),
    KIND(QuantizedMap),
    KIND(PoolGradient),
    KIND(Neuron),
    KIND(NeuronGradient),
    KIND(Binary),
    KIND(BinaryGradient),
    KIND(NormalizeAdd),
    KIND(MaskedSum),
    KIND(MaskedSumMoments),
    KIND(LRN),
    KIND(Normalize),
    KIND(BatchMoments),
    KIND(LRNGradient),
    KIND(BatchMomentsGradient),
    KIND(Softmax),
    KIND(NormalizeGradient),
    KIND(Reduce),
    KIND(SoftmaxGradient),
    KIND(Resample),
    KIND(ResampleGradient),
    KIND(Reshape),
    KIND(Pad),
    KIND(PadGradient),
    KIND(Dropout),
    KIND(Loss),
    KIND(Optimize),
    KIND(Copy),
    KIND(BufferCopy),
    KIND(BufferFill),
    KIND(PixelCopy),
    KIND(StridedCopy),
    KIND(Correlation),
    KIND(Lanczos),
    KIND(GridSample),
    KIND(Product),
    KIND(Random)};
#undef KIND
static_assert(
    std::variant_size_v<Problem> == 47 + 3,
    "a kind of problem is missing; weights, HostTask and functions (tests/test_metal_functions.py) have no rows");

void run(const rows::Row& row, Engine& engine) {
  const auto kind = kinds.find(row.settings.at("problem"));
  if (kind == kinds.end()) throw std::runtime_error("there is no such problem");
  std::vector<Variant> variants = {{engine, true, Format::float32, std::byte{0x5a}},
                                   {engine, false, Format::float32, std::byte{0xff}}};
  if (const auto formats = row.settings.find("formats"); formats != row.settings.end()) {
    std::istringstream names(formats->second);
    for (std::string name; names >> name;)
      variants.push_back({engine, variants.size() % 2 == 0, format_of(name), std::byte{0x5a}});
  }
  Weights weights;
  for (const Variant& variant : variants)
    kind->second(row, variant, weights,
                 row.name + " on " + engine.name() + (variant.dense ? ", dense" : ", with gaps") + ", format " +
                     std::to_string(static_cast<int>(variant.format)));
}

/// Every result is written in some row, and every field that is read has values before the run in some row.
void check_roles() {
  for (const auto& [name, use] : uses) {
    if (use.role != FieldRole::in)
      report(use.written > 0, "%s has the role %s, but no row expects it to change", name.c_str(), name_of(use.role));
    if (use.role != FieldRole::out)
      report(use.given > 0, "%s has the role %s, but no row gives it values", name.c_str(), name_of(use.role));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::printf("usage: cpp_engine_rows <file of rows> [--part] [engine ...]\n  --part: the file has not all rows\n");
    return 2;
  }
  std::vector<std::string> names(argv + 2, argv + argc);
  const bool is_part = std::erase(names, "--part") > 0 || std::getenv("MPSCNN_IMPL");
  const char* const chosen = std::getenv("MPSCNN_ENGINE");
  if (names.empty()) names.push_back(chosen && *chosen ? chosen : "cpu");
  try {
    const std::vector<rows::Row> all = rows::read(argv[1]);
    for (const std::string& name : names) {
      const std::shared_ptr<Engine> engine = engine_of(name);
      if (!engine) throw std::runtime_error("there is no engine " + name);
      for (const rows::Row& row : all) {
        try {
          run(row, *engine);
        } catch (const std::exception& error) {
          report(false, "%s: %s", row.name.c_str(), error.what());
        }
      }
    }
    if (!is_part) check_roles();
    if (std::find(names.begin(), names.end(), "cuda-host") != names.end())
      for (const auto& [name, launches] : cuda::host_kernel_launches())
        std::printf("kernel %s %lld\n", name.c_str(), static_cast<long long>(launches));
  } catch (const std::exception& error) {
    report(false, "%s", error.what());
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}

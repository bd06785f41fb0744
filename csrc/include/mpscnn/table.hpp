// SPDX-License-Identifier: Apache-2.0
// The kernel table: one row per kernel. Dispatch, Python classes, docstrings, stubs, the support table, tests and
// benchmarks read it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace mpscnn {

/// Python form of an argument, which determines the type of its Value.
enum class ParamType : std::uint32_t {
  boolean,         ///< bool
  integer,         ///< int
  real,            ///< float
  text,            ///< one of `choices`, or any string
  pair,            ///< int or (height, width)
  padding,         ///< int, (height, width), ((top, bottom), (left, right)), "same" or "valid"
  offset,          ///< (y, x) or (y, x, image), None: from the padding
  region,          ///< ((y, x, image), (height, width, images)), None: everything
  shape,           ///< (C, H, W), None
  extents,         ///< (H, W, C)
  array,           ///< array
  weights,         ///< array or data source
  activation,      ///< name, NeuronDescriptor, neuron kernel or None
  channel_values,  ///< array or data source of normalization
};

/// One parameter, shared by the rows that have it.
struct ParamSpec {
  std::string_view name;
  ParamType type = ParamType::integer;
  std::string_view fallback = {};  ///< Python literal; empty: the argument is required
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string_view choices = {};  ///< "zero|clamp"
  std::string_view unit = {};     ///< "pixels", "channels", ...
  std::string_view apple = {};    ///< property or initializer argument
  std::string_view summary = {};  ///< one sentence
  bool attribute = false;         ///< can be read and set on the kernel after construction
};

/// Rule for the extents of the result (formulas in names.cpp). `state`: the result is a BatchNormalizationState.
enum class ShapeRule : std::uint32_t {
  same,
  window,
  pooling,
  transpose,
  fully_connected,
  broadcast,
  upsampling,
  row,
  column,
  channels,
  slice,
  reshape,
  resize,
  crop,
  pad,
  state,
  gradient,
};

/// Names of a kernel's sources, in Apple's order: primary before secondary.
struct SourceNames {
  static constexpr std::size_t kMost = 2;
  std::string_view first = "x", second = {};

  constexpr std::size_t size() const { return second.empty() ? 1 : 2; }
  constexpr std::string_view operator[](std::size_t source) const { return source == 0 ? first : second; }
};

struct KernelRow {
  std::string_view name;         ///< Python class
  std::string_view apple_class;  ///< with prefix
  std::string_view family = {};  ///< registered in core/kernel/families
  SourceNames sources = {};
  int variant = 0;  ///< distinguishes the kernels of a family: MPSCNNNeuronType of a neuron
  std::span<const ParamSpec* const> params = {};
  int positional = 0;  ///< number of leading params that may be positional
  ShapeRule shape = ShapeRule::same;
  std::string_view gradient = {};  ///< Apple class of the gradient kernel; empty: none
  std::string_view forward = {};   ///< of a gradient: its forward row; empty: no gradient, or of several rows
  bool takes_result = false;       ///< of a gradient: its second source is the forward kernel's result
  bool sees_other = false;         ///< of a gradient: its second source is the forward kernel's other source
  std::string_view state = {};     ///< kernel(x, state): its purpose, one sentence; empty: no state
  std::string_view summary = {};
  std::string_view formula = {};  ///< with the oracle's symbols
  std::string_view source = {};   ///< Apple header and class
  std::string_view macos = {};    ///< since

  bool has_image() const { return shape != ShapeRule::state; }
  /// Whether the kernel is created from a forward kernel, whose window, weights and attributes it shares.
  bool has_forward() const { return !forward.empty(); }

  /// Return whether the row itself lists the parameter.
  constexpr bool is_own(std::string_view param) const {
    for (const auto* spec : params)
      if (spec->name == param) return true;
    return false;
  }
};

/// A name of an activation function.
struct NeuronName {
  std::string_view name;
  int type = 0;               ///< MPSCNNNeuronType
  int parameters = 0;         ///< number of a, b, c in its formula
  float a = 0, b = 0, c = 0;  ///< defaults
};

std::span<const NeuronName> neuron_names();

/// Return nullptr for an unknown name.
const NeuronName* find_neuron(std::string_view name);

/// Return the canonical name of an MPSCNNNeuronType.
const NeuronName& neuron_name(int type);

std::span<const KernelRow> kernel_table();

/// Find a kernel by Python name or Apple's; nullptr if unknown.
const KernelRow* find_kernel(std::string_view name);

/// Parameters of every kernel with this number of sources (MPSCNNKernel, MPSCNNBinaryKernel), settable after
/// construction; they follow the row's own. A row that lists one of them overrides its default. A gradient has those of
/// its forward kernel.
std::span<const ParamSpec* const> common_params(std::size_t sources);
inline std::span<const ParamSpec* const> common_params(const KernelRow& row) {
  return common_params(row.has_forward() ? find_kernel(row.forward)->sources.size() : row.sources.size());
}

const char* name_of(ParamType type);
/// Return the words of errors for a value of another type: "an integer", "a name, a NeuronDescriptor or a neuron
/// kernel".
const char* wanted_of(ParamType type);
/// Return the rule as a formula with H, W, k, s, p, ...
const char* formula_of(ShapeRule rule);

/// Return the extent of the result along one axis. `k` is the dilated kernel size; window: floor((size + before + after
/// - k) / stride) + 1, or ceil() if the last window starts before the trailing padding; transpose: (size - 1) * stride
/// - before - after + k + extra. May be <= 0: nothing to compute.
constexpr std::int64_t window_extent(std::int64_t size, std::int64_t k, std::int64_t stride, std::int64_t before,
                                     std::int64_t after, bool ceil = false) {
  const std::int64_t span = size + before + after - k;
  if (span < 0 && !ceil) return 0;
  const std::int64_t steps = !ceil ? span / stride : span <= 0 ? 0 : (span + stride - 1) / stride;
  return ceil && steps * stride >= size + before ? steps : steps + 1;
}
constexpr std::int64_t transpose_extent(std::int64_t size, std::int64_t k, std::int64_t stride, std::int64_t before,
                                        std::int64_t after, std::int64_t extra) {
  return (size - 1) * stride - before - after + k + extra;
}

}  // namespace mpscnn

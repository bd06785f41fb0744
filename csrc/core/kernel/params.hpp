// SPDX-License-Identifier: Apache-2.0
// Checks of a kernel's parameters against the specs of its row, and typed access. Plain C++.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <mpscnn/table.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn {

class GuardedPolicy;

/// Padding in pixels, one of MPS's policies, or the caller's.
struct Padding {
  enum class Kind : std::uint8_t { pixels, same, valid, callers } kind = Kind::pixels;
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
  std::shared_ptr<GuardedPolicy> policy = {};
};

/// (y, x, image).
struct Offset3 {
  std::int64_t y = 0, x = 0, image = 0;
};

struct Region3 {
  Offset3 origin;
  std::int64_t height = 0, width = 0, images = 0;
};

/// Return the value in exactly one pair of parentheses: "(0, 1)" is unchanged, "3" becomes "(3)".
std::string shown(const Value& value);

/// Check kind, range and choices of a value; throw TypeError or std::invalid_argument ("Convolution: stride (0, 1)
/// ...").
void check_value(const KernelRow& row, const ParamSpec& spec, const Value& value);

/// Call check_value() for each parameter; throw KeyError for a name that the row does not have.
void check_params(const KernelRow& row, const Params& params);

const ParamSpec* find_param(const KernelRow& row, std::string_view name);

/// Return the given value, or the spec's meaning of None or of an absent parameter.
bool has(const Params& params, std::string_view name);
std::int64_t integer(const Params& params, std::string_view name, std::int64_t fallback);
bool boolean(const Params& params, std::string_view name, bool fallback);
double real(const Params& params, std::string_view name, double fallback);
std::string text(const Params& params, std::string_view name, const std::string& fallback);
Pair pair(const Params& params, std::string_view name, Pair fallback);
Padding padding(const Params& params, std::string_view name);
std::optional<ArrayView> array(const Params& params, std::string_view name);
NeuronDescriptor activation(const Params& params, std::string_view name);

Padding to_padding(const Value& value);
std::optional<Offset3> to_offset(const Value& value);
std::optional<Region3> to_region(const Value& value);

/// Return the elements of a one-dimensional array as float32. Throw, naming `what`, unless the dtype is float16,
/// bfloat16, float32 or float64.
std::vector<float> to_floats(const ArrayView& array, const std::string& what);

/// The options of an optimizer or a loss, all of them by name; the Python class has the names and the defaults. Each
/// getter throws TypeError or std::invalid_argument with the owner, the option, its value and the limit.
class Options {
 public:
  Options(std::string_view owner, const Params& params) : owner_(owner), params_(params) {}

  double real(std::string_view name) const;  ///< finite in float32, in which MPS computes
  double real(std::string_view name, double min) const;
  std::int64_t integer(std::string_view name, std::int64_t min, std::int64_t max) const;
  bool boolean(std::string_view name) const;
  /// Return the index of a name; 0 for None if choices[0] is null.
  std::size_t choice(std::string_view name, std::span<const char* const> choices) const;
  /// (minimum, maximum) or None.
  std::optional<std::array<double, 2>> limits(std::string_view name) const;

 private:
  const Value& value(std::string_view name) const;

  std::string_view owner_;
  const Params& params_;
};

}  // namespace mpscnn

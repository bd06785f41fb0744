// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/params.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include <mpscnn/data_source.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/normalization_source.hpp>
#include <mpscnn/padding_policy.hpp>
#include <mpscnn/watched_memory.hpp>

#include "core/kernel/guarded_policy.hpp"

namespace mpscnn {
namespace {

std::string show(const Value& value) {
  struct Show {
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(bool b) const { return b ? "True" : "False"; }
    std::string operator()(std::int64_t i) const { return std::to_string(i); }
    std::string operator()(double d) const { return say(d); }
    std::string operator()(const std::string& s) const { return "\"" + s + "\""; }
    std::string operator()(const std::vector<std::int64_t>& v) const {
      return v.size() == 1 ? std::to_string(v[0]) : say(as_tuple(v));
    }
    std::string operator()(const std::vector<double>& v) const {
      std::string text = "(";
      for (const auto number : v) text += say(text.size() > 1 ? ", " : "", number);
      return text + (v.size() == 1 ? ",)" : ")");
    }
    std::string operator()(const ArrayView& a) const { return say("array of shape ", as_tuple(a.shape)); }
    std::string operator()(const std::shared_ptr<DataSource>&) const { return "data source"; }
    std::string operator()(const std::shared_ptr<NormalizationSource>&) const { return "data source"; }
    std::string operator()(const std::shared_ptr<PaddingPolicy>& p) const { return say("padding policy ", p->name()); }
    std::string operator()(const NeuronDescriptor& n) const { return say("neuron of type ", neuron_name(n.type).name); }
  };
  return std::visit(Show{}, value);
}

template <class... Kinds>
bool is(const Value& value) {
  return (std::holds_alternative<Kinds>(value) || ...);
}

bool kind_fits(ParamType type, const Value& value) {
  using Ints = std::vector<std::int64_t>;
  const auto length = std::holds_alternative<Ints>(value) ? std::get<Ints>(value).size() : 0;
  switch (type) {
    case ParamType::boolean: return is<bool>(value);
    case ParamType::integer: return is<std::int64_t>(value);
    case ParamType::real: return is<double, std::int64_t>(value);
    case ParamType::text: return is<std::string>(value);
    case ParamType::pair: return length == 1 || length == 2;
    case ParamType::padding:
      return is<std::string, std::shared_ptr<PaddingPolicy>>(value) || length == 1 || length == 2 || length == 4;
    case ParamType::offset: return length == 2 || length == 3;
    case ParamType::region: return length == 6;
    case ParamType::shape:
    case ParamType::extents: return length == 3;
    case ParamType::array: return is<ArrayView>(value);
    case ParamType::weights: return is<ArrayView, std::shared_ptr<DataSource>>(value);
    case ParamType::activation: return is<NeuronDescriptor>(value);
    case ParamType::channel_values: return is<ArrayView, std::shared_ptr<NormalizationSource>>(value);
  }
  return false;
}

bool one_of(std::string_view choices, std::string_view name) {
  for (std::size_t start = 0; start <= choices.size();) {
    const auto end = std::min(choices.find('|', start), choices.size());
    if (choices.substr(start, end - start) == name) return true;
    start = end + 1;
  }
  return false;
}

std::string listed(std::string_view choices) {
  std::string text;
  for (char letter : choices) text += letter == '|' ? std::string("\", \"") : std::string(1, letter);
  return "\"" + text + "\"";
}

/// Return the digits of an integer, or six digits of another number.
std::string digits(double number) {
  return number == std::floor(number) && std::fabs(number) < 0x1p62 ? std::to_string(static_cast<std::int64_t>(number))
                                                                    : say(number);
}

/// Throw unless the number, which is the value or an element of it, is between min and max.
void check_range(std::string_view owner, std::string_view name, const Value& value, double number, double min,
                 double max) {
  check(number >= min, owner, ": ", name, " ", shown(value), " is less than the minimum (", digits(min), ").");
  check(number <= max, owner, ": ", name, " ", shown(value), " is greater than the maximum (", digits(max), ").");
}

const Value* find(const Params& params, std::string_view name) {
  const auto found = params.find(name);
  return found == params.end() || std::holds_alternative<std::monostate>(found->second) ? nullptr : &found->second;
}

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude < 0x400u)
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::ldexp(float(magnitude), -24)));
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

}  // namespace

std::string shown(const Value& value) {
  const auto text = show(value);
  return text.starts_with('(') ? text : "(" + text + ")";
}

void check_value(const KernelRow& row, const ParamSpec& spec, const Value& value) {
  if (std::holds_alternative<std::monostate>(value)) {
    check<TypeError>(spec.fallback == "None", row.name, ": ", spec.name, " (None) is not ", wanted_of(spec.type), ".");
    return;
  }
  check<TypeError>(kind_fits(spec.type, value), row.name, ": ", spec.name, " ", shown(value), " is not ",
                   wanted_of(spec.type), ".");
  const auto within = [&](double number) {
    check(!std::isnan(number), row.name, ": ", spec.name, " ", shown(value), " is not a number; give a finite one.");
    check_range(row.name, spec.name, value, number, spec.min, spec.max);
  };
  if (const auto* number = std::get_if<std::int64_t>(&value)) within(static_cast<double>(*number));
  if (const auto* number = std::get_if<double>(&value)) within(*number);
  if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(&value))
    for (auto number : *numbers) within(static_cast<double>(number));
  if (const auto* name = std::get_if<std::string>(&value)) {
    if (!spec.choices.empty())
      check(one_of(spec.choices, *name), row.name, ": ", spec.name, " (\"", *name, "\") is not one of ",
            listed(spec.choices), ".");
    if (spec.type == ParamType::padding)
      check(*name == "same" || *name == "valid", row.name, ": ", spec.name, " (\"", *name,
            "\") is not \"same\" or \"valid\".");
  }
  if (spec.type == ParamType::region) {
    const auto& v = std::get<std::vector<std::int64_t>>(value);
    for (int i = 0; i < 3; ++i)
      check(v[i] >= 0, row.name, ": ", spec.name, " ", shown(value), " has an origin (", v[i],
            ") less than the minimum (0).");
    for (int i = 3; i < 6; ++i)
      check(v[i] >= 1, row.name, ": ", spec.name, " ", shown(value), " has an extent (", v[i],
            ") less than the minimum (1).");
  }
}

const ParamSpec* find_param(const KernelRow& row, std::string_view name) {
  for (const auto* spec : row.params)
    if (spec->name == name) return spec;
  for (const auto* spec : common_params(row))
    if (spec->name == name) return spec;
  return nullptr;
}

void check_params(const KernelRow& row, const Params& params) {
  for (const auto& [name, value] : params) {
    const auto* spec = find_param(row, name);
    check<KeyError>(spec != nullptr, row.name, " has no parameter \"", name, "\".");
    check_value(row, *spec, value);
  }
  for (const auto* spec : row.params)
    check<TypeError>(!spec->fallback.empty() || params.contains(spec->name), row.name, ": ", spec->name,
                     " is missing.");
}

bool has(const Params& params, std::string_view name) { return find(params, name) != nullptr; }

std::int64_t integer(const Params& params, std::string_view name, std::int64_t fallback) {
  const auto* value = find(params, name);
  return value ? std::get<std::int64_t>(*value) : fallback;
}

bool boolean(const Params& params, std::string_view name, bool fallback) {
  const auto* value = find(params, name);
  return value ? std::get<bool>(*value) : fallback;
}

double real(const Params& params, std::string_view name, double fallback) {
  const auto* value = find(params, name);
  if (!value) return fallback;
  const auto* whole = std::get_if<std::int64_t>(value);
  return whole ? static_cast<double>(*whole) : std::get<double>(*value);
}

std::string text(const Params& params, std::string_view name, const std::string& fallback) {
  const auto* value = find(params, name);
  return value ? std::get<std::string>(*value) : fallback;
}

Pair pair(const Params& params, std::string_view name, Pair fallback) {
  const auto* value = find(params, name);
  if (!value) return fallback;
  const auto& v = std::get<std::vector<std::int64_t>>(*value);
  return {v.front(), v.back()};
}

std::optional<ArrayView> array(const Params& params, std::string_view name) {
  const auto* value = find(params, name);
  return value ? std::optional(std::get<ArrayView>(*value)) : std::nullopt;
}

Padding padding(const Params& params, std::string_view name) {
  const auto* value = find(params, name);
  return value ? to_padding(*value) : Padding{};
}

Padding to_padding(const Value& value) {
  if (const auto* name = std::get_if<std::string>(&value))
    return {.kind = *name == "same" ? Padding::Kind::same : Padding::Kind::valid};
  if (const auto* policy = std::get_if<std::shared_ptr<PaddingPolicy>>(&value))
    return {.kind = Padding::Kind::callers, .policy = std::make_shared<GuardedPolicy>(*policy)};
  const auto& v = std::get<std::vector<std::int64_t>>(value);
  if (v.size() == 4) return {.top = v[0], .bottom = v[1], .left = v[2], .right = v[3]};
  return {.top = v.front(), .bottom = v.front(), .left = v.back(), .right = v.back()};
}

std::optional<Offset3> to_offset(const Value& value) {
  const auto* v = std::get_if<std::vector<std::int64_t>>(&value);
  if (!v) return std::nullopt;
  return Offset3{(*v)[0], (*v)[1], v->size() == 3 ? (*v)[2] : 0};
}

std::optional<Region3> to_region(const Value& value) {
  const auto* v = std::get_if<std::vector<std::int64_t>>(&value);
  if (!v) return std::nullopt;
  return Region3{{(*v)[0], (*v)[1], (*v)[2]}, (*v)[3], (*v)[4], (*v)[5]};
}

NeuronDescriptor activation(const Params& params, std::string_view name) {
  const auto* value = find(params, name);
  return value ? std::get<NeuronDescriptor>(*value) : NeuronDescriptor{};
}

NeuronDescriptor activation_from_name(std::string_view name) {
  const auto* row = find_neuron(name);
  check(row != nullptr, "activation (\"", name, "\") is not one of ", neuron_choices(), ".");
  check(row->name != "prelu", "activation (\"prelu\") needs slopes: NeuronDescriptor(\"prelu\", data=...) has them.");
  return {.type = row->type, .a = row->a, .b = row->b, .c = row->c};
}

std::string neuron_choices() {
  std::string text;
  for (const auto& row : neuron_names()) text += say(text.empty() ? "" : ", ", '"', row.name, '"');
  return text;
}

std::vector<float> to_floats(const ArrayView& array, const std::string& what) {
  check(array.ndim() == 1, what, ".ndim (", array.ndim(), ") is not 1.");
  std::vector<float> values(static_cast<std::size_t>(array.shape[0]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto* element = static_cast<const std::byte*>(array.data) + static_cast<std::int64_t>(i) * array.strides[0];
    const auto read = [element]<class T>(T number) {
      std::memcpy(&number, element, sizeof number);
      return number;
    };
    switch (array.dtype) {
      case DType::float32: values[i] = read(float{}); break;
      case DType::float64: values[i] = static_cast<float>(read(double{})); break;
      case DType::float16: values[i] = half_to_float(read(std::uint16_t{})); break;
      case DType::bfloat16: values[i] = std::bit_cast<float>(std::uint32_t{read(std::uint16_t{})} << 16); break;
      default:
        throw TypeError(say(what, ".dtype (", name_of(array.dtype), ") is not float16, bfloat16, float32 or float64."));
    }
  }
  mpscnn::check_whole(array);
  return values;
}

// ------------------------------------------------------------------------------------------------------------ options

const Value& Options::value(std::string_view name) const {
  const auto found = params_.find(name);
  check<TypeError>(found != params_.end(), owner_, ": ", name, " is missing.");
  return found->second;
}

double Options::real(std::string_view name) const {
  const auto& given = value(name);
  check<TypeError>(is<double, std::int64_t>(given), owner_, ": ", name, " ", shown(given), " is not a number.");
  const auto number = std::holds_alternative<double>(given) ? std::get<double>(given)
                                                            : static_cast<double>(std::get<std::int64_t>(given));
  check(std::isfinite(static_cast<float>(number)), owner_, ": ", name, " (", number,
        ") is not a finite number of float32.");
  return number;
}

double Options::real(std::string_view name, double min) const {
  const auto number = real(name);
  check_range(owner_, name, number, number, min, std::numeric_limits<double>::infinity());
  return number;
}

std::int64_t Options::integer(std::string_view name, std::int64_t min, std::int64_t max) const {
  const auto& given = value(name);
  check<TypeError>(is<std::int64_t>(given), owner_, ": ", name, " ", shown(given), " is not an int.");
  const auto number = std::get<std::int64_t>(given);
  check_range(owner_, name, given, static_cast<double>(number), static_cast<double>(min), static_cast<double>(max));
  return number;
}

bool Options::boolean(std::string_view name) const {
  const auto& given = value(name);
  check<TypeError>(is<bool>(given), owner_, ": ", name, " ", shown(given), " is not True or False.");
  return std::get<bool>(given);
}

std::size_t Options::choice(std::string_view name, std::span<const char* const> choices) const {
  const auto& given = value(name);
  if (is<std::monostate>(given) && choices[0] == nullptr) return 0;
  check<TypeError>(is<std::string>(given), owner_, ": ", name, " ", shown(given), " is not a str.");
  std::string known;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == nullptr) continue;
    if (std::get<std::string>(given) == choices[i]) return i;
    known += say(known.empty() ? "" : i + 1 < choices.size() ? ", " : " or ", '"', choices[i], '"');
  }
  throw std::invalid_argument(say(owner_, ": ", name, " ", shown(given), " is not ", known, "."));
}

std::optional<std::array<double, 2>> Options::limits(std::string_view name) const {
  const auto& given = value(name);
  if (is<std::monostate>(given)) return std::nullopt;
  const auto* numbers = std::get_if<std::vector<double>>(&given);
  check<TypeError>(numbers != nullptr, owner_, ": ", name, " ", shown(given),
                   " is not a pair of numbers (minimum, maximum).");
  check(numbers->size() == 2, owner_, ": len(", name, ") (", numbers->size(), ") is not 2 (minimum, maximum).");
  check((*numbers)[0] <= (*numbers)[1], owner_, ": ", name, " ", shown(given),
        " is not a minimum and a maximum that is not less.");
  return std::array{(*numbers)[0], (*numbers)[1]};
}

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
// Conversion between Python arguments and Values of kernel parameters, by the ParamType of their spec.
#include <mpscnn/data_source.hpp>
#include <mpscnn/kernel.hpp>
#include <mpscnn/normalization_source.hpp>
#include <mpscnn/value.hpp>

#include <mpscnn/error.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"

namespace mpscnn::bindings {
namespace {

using Ints = std::vector<std::int64_t>;

/// Append an integer, or those of a (nested) tuple or list. Return false for anything else.
bool collect(const KernelRow& row, const ParamSpec& spec, py::handle object, Ints& ints) {
  if (is_integer(object)) {
    ints.push_back(integer_from(object, row.name, ": ", spec.name));
    return true;
  }
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) return false;
  for (auto item : py::reinterpret_borrow<py::sequence>(object))
    if (!collect(row, spec, item, ints)) return false;
  return true;
}

[[noreturn]] void refuse(const KernelRow& row, const ParamSpec& spec, py::handle object) {
  throw TypeError(say(row.name, ": ", spec.name, " (", py::repr(object).cast<std::string>(), ") is not ",
                      wanted_of(spec.type), "."));
}

}  // namespace

NeuronDescriptor neuron_from(py::handle object) {
  if (object.is_none()) return {};
  check_made(object, "activation");
  if (py::isinstance<NeuronDescriptor>(object)) return object.cast<NeuronDescriptor>();
  if (py::isinstance<Kernel>(object)) {
    const auto kernel = object.cast<std::shared_ptr<Kernel>>();
    check<TypeError>(kernel->row().family == "neuron", "activation (", kernel->row().name, ") is not a neuron kernel.");
    return kernel->neuron().value();
  }
  if (py::isinstance<py::str>(object)) return activation_from_name(text_of(object, "activation"));
  throw TypeError(say("activation (", py::repr(object).cast<std::string>(),
                      ") is not a name, a NeuronDescriptor or a neuron kernel."));
}

Value value_of(const KernelRow& row, const ParamSpec& spec, py::handle object) {
  if (object.is_none()) return std::monostate{};
  const auto array_of = [&](py::handle given) {
    const std::string name(spec.name);
    if (PyTuple_Check(given.ptr()) || PyList_Check(given.ptr()))
      return view_of(py::module_::import("numpy").attr("asarray")(given, "float32"), name.c_str());
    return view_of(given, name.c_str());
  };
  switch (spec.type) {
    case ParamType::boolean:
      if (!PyBool_Check(object.ptr())) refuse(row, spec, object);
      return object.cast<bool>();
    case ParamType::integer: {
      Ints ints;
      if (!is_integer(object) || !collect(row, spec, object, ints)) refuse(row, spec, object);
      return ints[0];
    }
    case ParamType::real:
      if (!is_number(object)) refuse(row, spec, object);
      return py::float_(py::reinterpret_borrow<py::object>(object)).cast<double>();
    case ParamType::text:
      if (!py::isinstance<py::str>(object)) refuse(row, spec, object);
      return std::string(text_of(object, say(row.name, ": ", spec.name)));
    case ParamType::padding:
      if (py::isinstance<py::str>(object)) return std::string(text_of(object, say(row.name, ": ", spec.name)));
      if (auto policy = padding_policy_of(object)) return policy;
      [[fallthrough]];
    case ParamType::pair:
    case ParamType::offset:
    case ParamType::region:
    case ParamType::shape:
    case ParamType::extents: {
      Ints ints;
      if (!collect(row, spec, object, ints)) refuse(row, spec, object);
      return ints;
    }
    case ParamType::array: return array_of(object);
    case ParamType::weights:
      if (auto source = data_source_of(object)) return source;
      return view_of(object, std::string(spec.name).c_str());
    case ParamType::activation: return neuron_from(object);
    case ParamType::channel_values:
      if (auto source = normalization_source_of(object)) return source;
      return array_of(object);
  }
  refuse(row, spec, object);
}

Params params_from(const KernelRow& row, const py::dict& arguments) {
  Params params;
  for (const auto& [key, object] : arguments) {
    const auto parameter = key.cast<std::string>();
    const ParamSpec* spec = nullptr;
    for (auto specs : {row.params, common_params(row)})
      for (const auto* candidate : specs)
        if (candidate->name == parameter) spec = candidate;
    check<KeyError>(spec != nullptr, row.name, " has no parameter \"", parameter, "\".");
    params.emplace(parameter, value_of(row, *spec, object));
  }
  return params;
}

Params options_from(const py::dict& options) {
  Params params;
  for (const auto& [key, object] : options) {
    const auto name = key.cast<std::string>();
    Value value;
    if (is_bool(object)) {
      value = bool_of(object, name);
    } else if (is_integer(object)) {
      value = integer_from(object, name);
    } else if (is_number(object)) {
      value = object.cast<double>();
    } else if (py::isinstance<py::str>(object)) {
      value = std::string(text_of(object, name));
    } else if (PySequence_Check(object.ptr())) {
      std::vector<double> numbers;
      for (const auto& item : py::reinterpret_borrow<py::sequence>(object)) {
        check<TypeError>(is_number(item), name, " (", py::repr(object).cast<std::string>(),
                         ") is not a sequence of numbers.");
        numbers.push_back(item.cast<double>());
      }
      value = std::move(numbers);
    } else {
      check<TypeError>(object.is_none(), name, " (", type_name(object), ") is not of a type it can have.");
    }
    params.emplace(name, std::move(value));
  }
  return params;
}

py::object to_python(const ParamSpec& spec, const Value& value) {
  struct Convert {
    const ParamSpec& spec;
    py::object operator()(std::monostate) const { return py::none(); }
    py::object operator()(bool b) const { return py::bool_(b); }
    py::object operator()(std::int64_t i) const { return py::int_(i); }
    py::object operator()(double d) const { return py::float_(d); }
    py::object operator()(const std::string& s) const { return py::str(s); }
    py::object operator()(const Ints& v) const {
      if (spec.type == ParamType::region)
        return py::make_tuple(py::make_tuple(v[0], v[1], v[2]), py::make_tuple(v[3], v[4], v[5]));
      py::tuple tuple(v.size());
      for (std::size_t i = 0; i < v.size(); ++i) tuple[i] = py::int_(v[i]);
      return tuple;
    }
    py::object operator()(const std::vector<double>& v) const { return py::tuple(py::cast(v)); }
    py::object operator()(const ArrayView& a) const { return array_from(a); }
    py::object operator()(const std::shared_ptr<DataSource>& s) const { return py::cast(s); }
    py::object operator()(const std::shared_ptr<NormalizationSource>& s) const { return py::cast(s); }
    py::object operator()(const NeuronDescriptor& n) const { return py::cast(n); }
    py::object operator()(const std::shared_ptr<PaddingPolicy>& p) const {
      return py::reinterpret_borrow<py::object>(to_python(p));
    }
  };
  return std::visit(Convert{spec}, value);
}

}  // namespace mpscnn::bindings

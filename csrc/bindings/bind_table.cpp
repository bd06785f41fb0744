// SPDX-License-Identifier: Apache-2.0
// The kernel table in Python.
#include <mpscnn/table.hpp>

#include <cmath>
#include <unordered_map>

#include <pybind11/stl.h>

#include "bindings.hpp"

namespace mpscnn::bindings {
namespace {

py::dict as_dict(const ParamSpec& spec) {
  const auto bound = [](double value) {
    return std::isinf(value) ? py::object(py::none()) : py::object(py::float_(value));
  };
  py::list choices;
  for (std::size_t start = 0; start < spec.choices.size();) {
    const auto end = std::min(spec.choices.find('|', start), spec.choices.size());
    choices.append(std::string(spec.choices.substr(start, end - start)));
    start = end + 1;
  }
  using namespace py::literals;
  return py::dict("name"_a = spec.name, "type"_a = name_of(spec.type), "default"_a = spec.fallback,
                  "min"_a = bound(spec.min), "max"_a = bound(spec.max), "choices"_a = choices, "unit"_a = spec.unit,
                  "apple"_a = spec.apple, "summary"_a = spec.summary, "attribute"_a = spec.attribute);
}

/// Dicts of parameters, shared between rows: creating them takes most of the import time.
using Dicts = std::unordered_map<const ParamSpec*, py::dict>;

py::list as_list(std::span<const ParamSpec* const> specs, Dicts& made) {
  py::list list;
  for (const auto* spec : specs) {
    auto [found, is_new] = made.try_emplace(spec);
    if (is_new) found->second = as_dict(*spec);
    list.append(found->second);
  }
  return list;
}

py::list source_names(const KernelRow& row) {
  py::list names;
  for (std::size_t i = 0; i < row.sources.size(); ++i) names.append(row.sources[i]);
  return names;
}

/// Return the number of sources that determines the row's attributes.
std::size_t attributes_of(const KernelRow& row) {
  return row.has_forward() ? find_kernel(row.forward)->sources.size() : row.sources.size();
}

}  // namespace

void bind_table(py::module_& module) {
  module.def(
      "kernel_table",
      [] {
        using namespace py::literals;
        py::list rows;
        Dicts made;
        for (const auto& row : kernel_table())
          rows.append(py::dict("name"_a = row.name, "apple_class"_a = row.apple_class, "family"_a = row.family,
                               "sources"_a = source_names(row), "attributes"_a = attributes_of(row),
                               "variant"_a = row.variant, "params"_a = as_list(row.params, made),
                               "positional"_a = row.positional, "shape"_a = formula_of(row.shape),
                               "result"_a = row.has_image() ? "image" : "state", "state"_a = row.state,
                               "gradient"_a = row.gradient, "forward"_a = row.forward, "summary"_a = row.summary,
                               "formula"_a = row.formula, "source"_a = row.source, "macos"_a = row.macos));
        return rows;
      },
      "list of dict: one row per kernel, as in csrc/table/kernels.cpp.");
  module.def(
      "neuron_names",
      [] {
        using namespace py::literals;
        py::list names;
        for (const auto& row : neuron_names())
          names.append(py::dict("name"_a = row.name, "type"_a = neuron_name(row.type).name,
                                "parameters"_a = row.parameters, "a"_a = row.a, "b"_a = row.b, "c"_a = row.c));
        return names;
      },
      "list of dict: the names of activation functions, as in csrc/table/neurons.hpp.");
  module.def(
      "common_params",
      [](std::size_t sources) {
        Dicts made;
        return as_list(common_params(sources), made);
      },
      py::arg("sources") = 1,
      "list of dict: the parameters of every kernel with this number of sources, settable after construction.");
}

}  // namespace mpscnn::bindings

// SPDX-License-Identifier: Apache-2.0
// Padding policies written in Python.
#include <mpscnn/padding_policy.hpp>

#include <pybind11/stl.h>

#include <mpscnn/error.hpp>
#include <mpscnn/kernel.hpp>

#include "bind_arguments.hpp"
#include "bindings.hpp"
#include "gil.hpp"
#include "numbers.hpp"

namespace mpscnn::bindings {
namespace {

bool is_sequence(py::handle object) {
  return PySequence_Check(object.ptr()) && !PyUnicode_Check(object.ptr()) && !PyBytes_Check(object.ptr());
}

std::string shown(py::handle object) { return py::repr(object).cast<std::string>(); }

/// An object with `destination(kernel, sources, suggested)`, which may be called from any thread.
class PythonPolicy final : public PaddingPolicy {
 public:
  explicit PythonPolicy(py::object policy) : owner_(keep_python_object(policy)), policy_(policy.ptr()) {}

  py::handle object() const { return policy_; }

  std::string name() override {
    const AcquireGil gil;
    return type_name(policy_);
  }

  std::vector<std::string> method() override {
    const AcquireGil gil;
    const py::object flags = py::getattr(policy_, "padding_method");
    if (PyUnicode_Check(flags.ptr())) return {std::string(text_of(flags, "padding_method"))};
    check<TypeError>(PyTuple_Check(flags.ptr()) || PyList_Check(flags.ptr()), "padding policy ", name(),
                     ": padding_method (", shown(flags), ") is not a str or a tuple of them.");
    std::vector<std::string> names;
    for (const auto flag : py::reinterpret_borrow<py::sequence>(flags))
      names.emplace_back(text_of(flag, say("padding policy ", name(), ": padding_method")));
    return names;
  }

  PolicyAnswer destination(Kernel& kernel, std::span<const ImageShape> sources, ImageShape suggested) override {
    const AcquireGil gil;
    const auto who = say(kernel.row().name, ": padding policy ", name());
    py::list shapes;
    for (const auto& source : sources) shapes.append(tuple_of(source));
    const py::object answer =
        py::getattr(policy_, "destination")(py::cast(kernel.shared_from_this()), shapes, tuple_of(suggested));
    const auto refuse = [&] {
      throw TypeError(say(who, ": destination() returned ", shown(answer),
                          ", which is neither a shape (N, H, W, C) nor (shape, offset)."));
    };
    if (!is_sequence(answer)) refuse();
    auto items = py::reinterpret_borrow<py::sequence>(answer);
    py::object shape = answer, offset = py::none();
    if (items.size() == 2 && (is_sequence(items[0]) || !is_integer(items[0]))) {
      shape = items[0];
      offset = items[1];
      if (!is_sequence(shape)) refuse();
    }
    const auto extents = integers(who, "shape", shape, 4, "N, H, W, C");
    PolicyAnswer result{.shape = {extents[0], extents[1], extents[2], extents[3]}};
    if (offset.is_none()) return result;
    check<TypeError>(is_sequence(offset), who, ": offset (", shown(offset), ") is not (y, x) or None.");
    const auto start = integers(who, "offset", offset, 2, "y, x");
    result.offset = {.y = start[0], .x = start[1]};
    return result;
  }

  std::shared_ptr<PaddingPolicy> again() const override {
    const AcquireGil gil;
    return std::make_shared<PythonPolicy>(py::reinterpret_borrow<py::object>(policy_));
  }

 private:
  static std::vector<std::int64_t> integers(const std::string& who, const char* what, const py::object& given,
                                            std::size_t count, const char* letters) {
    const auto items = py::reinterpret_borrow<py::sequence>(given);
    std::vector<std::int64_t> values;
    check(items.size() == count, who, ": len(", what, ") (", items.size(), ") is not ", count, " (", letters, ").");
    for (std::size_t i = 0; i < count; ++i) {
      const py::object item = items[i];
      check<TypeError>(is_integer(item), who, ": ", what, "[", i, "] (", shown(item), ") is not an int.");
      values.push_back(integer_from(item, who, ": ", what, "[", i, "]"));
    }
    return values;
  }

  std::shared_ptr<void> owner_;
  py::handle policy_;
};

}  // namespace

std::shared_ptr<PaddingPolicy> padding_policy_of(py::handle object) {
  if (PyType_Check(object.ptr()) || !py::hasattr(py::type::handle_of(object), "destination")) return nullptr;
  return std::make_shared<PythonPolicy>(py::reinterpret_borrow<py::object>(object));
}

py::handle to_python(const std::shared_ptr<PaddingPolicy>& policy) {
  const auto* python = dynamic_cast<const PythonPolicy*>(policy.get());
  return python ? python->object() : py::handle();
}

}  // namespace mpscnn::bindings

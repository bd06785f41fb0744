// SPDX-License-Identifier: Apache-2.0
// Padding policies written in Python.
#include <mpscnn/padding_policy.hpp>

#include <pybind11/stl.h>

#include <mpscnn/error.hpp>
#include <mpscnn/kernel.hpp>

#include "arguments.hpp"
#include "bindings.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {
namespace {

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
                     ": padding_method (", py::repr(flags).cast<std::string>(), ") is not a str or a tuple of them.");
    std::vector<std::string> names;
    for (const auto flag : py::reinterpret_borrow<py::sequence>(flags))
      names.emplace_back(text_of(flag, say("padding policy ", name(), ": padding_method")));
    return names;
  }

  PolicyAnswer destination(Kernel& kernel, std::span<const ImageShape> sources, ImageShape suggested) override {
    const AcquireGil gil;
    py::list shapes;
    for (const auto& source : sources) shapes.append(tuple_of(source));
    const auto ask = py::module_::import("mpscnn.padding_policy").attr("_destination");
    const auto answer =
        ask(policy_, kernel.row().name, py::cast(kernel.shared_from_this()), shapes, tuple_of(suggested))
            .cast<std::vector<std::int64_t>>();
    PolicyAnswer result{.shape = {answer.at(0), answer.at(1), answer.at(2), answer.at(3)}};
    if (answer.size() > 4) result.offset = {.y = answer.at(4), .x = answer.at(5)};
    return result;
  }

  std::shared_ptr<PaddingPolicy> again() const override {
    const AcquireGil gil;
    return std::make_shared<PythonPolicy>(py::reinterpret_borrow<py::object>(policy_));
  }

 private:
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

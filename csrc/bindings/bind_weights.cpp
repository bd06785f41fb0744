// SPDX-License-Identifier: Apache-2.0
// reorder, reorder_linear and empty, re-exported by mpscnn.weights. They are plain C functions, because pybind11's
// argument handling takes longer than reordering a small tensor.
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include <mpscnn/error.hpp>
#include <mpscnn/weights.hpp>

#include "arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "fast_arguments.hpp"
#include "gil.hpp"

namespace mpscnn::bindings {

void bind_weights(py::module_& module);

namespace {

/// Whether the result may be a view of the array.
enum class Copy : std::uint8_t { if_needed, always, never };

template <std::size_t kCount>
Layout layout_of(const FastArguments<kCount>& arguments, std::size_t i, Layout otherwise) {
  PyObject* given = arguments.as_given(i);
  return given ? layout_from_name(text_of(given, arguments.name(i)), arguments.name(i)) : otherwise;
}

Copy copy_of(PyObject* given) {
  if (!given) return Copy::if_needed;
  if (!PyBool_Check(given)) refuse(given, "copy", "True, False or None");
  return given == Py_True ? Copy::always : Copy::never;
}

int threads_of(PyObject* given) {
  if (!given) return 0;
  if (!is_integer(given)) refuse(given, "threads", "an int");
  const Index count = index_of(given);
  if (!count.value || *count.value < 0 || *count.value > 1 << 16)
    throw std::invalid_argument(
        say("threads (", py::str(count.number).cast<std::string>(), ") is not between 0 and 65536."));
  return static_cast<int>(*count.value);
}

/// Bytes from which on the GIL is released: smaller copies finish before another thread could acquire it.
constexpr std::int64_t kReleaseGil = 64 << 10;

template <class Run>
void without_gil_if_long(std::int64_t bytes, const Run& run) {
  if (bytes < kReleaseGil) return run();
  const ReleaseGil release;
  run();
}

struct Reordering {
  PyObject* array;
  Layout source, target;
  PyObject* out;
  PyObject* feature_map;
  Copy copy;
  int threads;
};

/// Fast path for small weights: reorder a plain 4-D NumPy array into a new one or a view, with no allocation but the
/// result's. Return null if it does not apply.
py::object reorder_numpy(const Reordering& call) {
  NumpyFields fields;
  if (call.out || call.feature_map || call.source == Layout::C1HW || call.target == Layout::C1HW) return {};
  if (!read_numpy(call.array, fields) || fields.ndim != 4) return {};
  const std::size_t word = size_of(fields.dtype);
  std::int64_t extents[4], strides[4], bytes = static_cast<std::int64_t>(word);
  std::copy_n(fields.shape, 4, extents);
  std::copy_n(fields.strides, 4, strides);
  Py_intptr_t shape[4];
  const auto from = axes_from(call.source, call.target);
  for (int i = 0; i < 4; ++i) {
    shape[i] = fields.shape[from[static_cast<std::size_t>(i)]];
    if (__builtin_mul_overflow(bytes, shape[i], &bytes)) return {};  // broadcast views may be larger than any memory
  }
  if (call.copy != Copy::always && is_in_order(extents, strides, call.source, call.target, word))
    return view_of_numpy(call.array, 4, shape);
  if (call.copy == Copy::never) return {};
  void* data = nullptr;
  py::object result = empty_like_numpy(call.array, 4, shape, bytes, &data);
  without_gil_if_long(bytes, [&] {
    reorder_unchecked(fields.data, extents, strides, call.source, data, call.target, word, call.threads);
  });
  return result;
}

py::object reorder_any(const Reordering& call) {
  if (py::object result = reorder_numpy(call)) return result;
  ArrayView source = view_of(call.array, "array", call.copy == Copy::always ? Keep::borrowed : Keep::owner);
  if (call.feature_map) source = unflatten(source, extents_from(call.feature_map, "feature_map"), call.source, "array");
  check(source.ndim() == 4, "reorder: array.ndim (", source.ndim(), ") is not 4.");
  const std::size_t word = size_of(source.dtype);
  py::object result;
  ArrayView target;
  if (call.out) {
    check(call.copy == Copy::if_needed, "reorder: copy (", call.copy == Copy::always ? "True" : "False",
          ") and out exclude each other.");
    result = py::reinterpret_borrow<py::object>(call.out);
    target = writable_view_of(result, "out", Keep::borrowed);
  } else {
    target.shape = reordered_shape(source.shape, call.source, call.target, "array", "the result");
    target.dtype = source.dtype;
    if (call.copy != Copy::always &&
        is_in_order(source.shape.data(), source.strides.data(), call.source, call.target, word)) {
      source.strides = contiguous_strides(target.shape, target.dtype);
      source.shape = target.shape;
      return array_from(source);
    }
    check<BufferError>(call.copy != Copy::never, "reorder: array ", as_tuple(source.shape), " has to be copied from ",
                       name_of(call.source), " to ", name_of(call.target), " order, which copy=False rules out.");
    target.strides = contiguous_strides(target.shape, target.dtype);
    py::array made = empty_array(target.shape, target.dtype);  // throws on overflow
    target.data = made.mutable_data();
    result = std::move(made);
  }
  without_gil_if_long(source.size() * static_cast<std::int64_t>(word),
                      [&] { reorder(source, call.source, target, call.target, call.threads, "array", "out"); });
  check_whole(source);
  check_whole(target);
  return result;
}

PyObject* py_reorder(PyObject*, PyObject* const* values, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"array", "source", "target", "out", "feature_map", "copy", "threads"};
  return result_or_error([&] {
    const FastArguments arguments("reorder", kNames, 4, 1, values, given, keywords);
    return reorder_any({arguments.as_given(0), layout_of(arguments, 1, Layout::OIHW),
                        layout_of(arguments, 2, Layout::OHWI), arguments[3], arguments[4], copy_of(arguments[5]),
                        threads_of(arguments[6])});
  });
}

PyObject* py_reorder_linear(PyObject*, PyObject* const* values, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"array", "feature_map", "out", "copy", "threads"};
  return result_or_error([&] {
    const FastArguments arguments("reorder_linear", kNames, 3, 2, values, given, keywords);
    return reorder_any({arguments.as_given(0), Layout::OIHW, Layout::OHWI, arguments[2], arguments.as_given(1),
                        copy_of(arguments[3]), threads_of(arguments[4])});
  });
}

PyObject* py_empty(PyObject*, PyObject* const* values, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"shape", "dtype"};
  return result_or_error([&] {
    const FastArguments arguments("empty", kNames, 2, 1, values, given, keywords);
    return empty_array(extents_from(arguments.as_given(0), "shape"),
                       arguments[1] ? dtype_from(arguments[1], "dtype") : DType::float32);
  });
}

PyMethodDef kWeightFunctions[] = {
    fast_method("reorder", py_reorder),
    fast_method("reorder_linear", py_reorder_linear),
    fast_method("empty", py_empty),
    {nullptr, nullptr, 0, nullptr},
};

struct Watch {
  std::vector<std::shared_ptr<const WatchedMemory>> parts;
};

}  // namespace

void bind_weights(py::module_& module) {
  if (PyModule_AddFunctions(module.ptr(), kWeightFunctions) != 0) throw py::error_already_set();

  py::class_<Watch>(module, "_Watch", "Arrays that may be pages of mapped files: see WatchedMemory.")
      .def(py::init([](const py::iterable& arrays, bool are_mappings) {
             Watch watch;
             const auto kind = are_mappings ? WatchedMemory::Kind::mapping : WatchedMemory::Kind::unknown;
             for (const auto array : arrays)
               if (auto memory = watch_array(array, kind)) watch.parts.push_back(std::move(memory));
             return watch;
           }),
           py::arg("arrays"), py::kw_only(), py::arg("are_mappings") = false)
      .def(
          "check_whole",
          [](const Watch& watch) {
            for (const auto& part : watch.parts) check_whole(part->memory());
          },
          "Raise RuntimeError if one was read beyond the end of its file.");
  module.def(
      "_view", [](const py::object& object, const char* name) { return array_from(view_of(object, name)); },
      py::arg("object"), py::arg("name") = "object",
      "Return a NumPy view of the object's memory, which keeps the object alive.");
  module.def(
      "_drop_on_thread",
      [](py::object object) {
        std::shared_ptr<void> held = keep_python_object(std::move(object));
        const ReleaseGil release;
        std::thread([moved = std::move(held)]() mutable { moved.reset(); }).join();
      },
      py::arg("object"), "Lets the reference go on a thread without the GIL; for the tests.");
  module.def(
      "_memcpy_threads",
      [](const py::object& target, const py::object& source, int threads) {
        const ArrayView to = writable_view_of(target, "target"), from = view_of(source, "source");
        check(to.is_contiguous() && from.is_contiguous(), "_memcpy_threads: both sides must be contiguous.");
        const std::int64_t bytes = to.size() * static_cast<std::int64_t>(size_of(to.dtype));
        check(bytes == from.size() * static_cast<std::int64_t>(size_of(from.dtype)), "_memcpy_threads: sizes differ.");
        const ReleaseGil release;
        copy_threads(to.data, from.data, static_cast<std::size_t>(bytes), threads);
      },
      py::arg("target"), py::arg("source"), py::arg("threads"),
      "memcpy of equal parts on so many threads: the reference of bench.reorder.");
}

}  // namespace mpscnn::bindings

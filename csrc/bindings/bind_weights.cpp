// SPDX-License-Identifier: Apache-2.0
// reorder, reorder_linear and empty, re-exported by mpscnn.weights. They are plain C functions, because pybind11's
// argument handling takes longer than reordering a small tensor.
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include <mpscnn/error.hpp>
#include <mpscnn/weights.hpp>

#include "bind_arguments.hpp"
#include "bind_array.hpp"
#include "bindings.hpp"
#include "dtypes.hpp"
#include "gil.hpp"
#include "numbers.hpp"
#include "watch.hpp"

namespace mpscnn::bindings {

void bind_weights(py::module_& module);

namespace {

constexpr const char* kReorderDoc =
    R"(reorder(array, source="OIHW", target="OHWI", out=None, *, feature_map=None, copy=None, threads=None)
--

Reorder the axes of convolution weights.

At memory speed: elements are moved as they are (NaN payloads survive), straight from the array into the result, and not
at all where they lie in the right order already (1 x 1 windows, depth-wise weights). I counts the input channels of one
group.

Parameters
----------
array : array, 4 axes in `source` order; float32, float16, bfloat16, float64, uint8, uint16, int32, uint32 or int64
    NumPy, DLPack (PyTorch, also with requires_grad), ``__array_interface__`` or the buffer protocol. Read in place,
    whatever its strides: flipped and broadcast views included.
source, target : str, default "OIHW" and "OHWI"
    ``OIHW``: PyTorch. ``OHWI``: MPS. ``HWIO``: TensorFlow, Keras, Flax. ``IOHW``: PyTorch's transposed convolution
    (in, out, h, w); only axes move, kernels are not rotated. ``C1HW``: depth-wise, (C, 1, H, W).
out : array of the reordered shape and of the dtype of `array`, optional
    Written in place (any strides) and returned. Its memory must not overlap that of `array`.
feature_map : (C, H, W), elements, optional
    `array` holds the weights of a linear layer behind a flattened feature map of that shape, with two axes:
    (O, C*H*W) for ``OIHW``, (O, H*W*C) for ``OHWI``, (H*W*C, O) for ``HWIO``.
copy : bool, optional
    None: a view of `array` where its elements lie in the right order without gaps, else a new array. True: always a new
    array. False: a view, or BufferError. Not together with `out`.
threads : int >= 0, optional
    At most so many threads; by default as many as OpenMP has. Less than 512 KB is always moved by the calling one, and
    less than 8 MB when the last such call is more than a millisecond ago: sleeping threads would come too late.

Returns
-------
array, shape of `array` in `target` order, dtype of `array`
    `out`, a view (read-only where `array` is), or a new NumPy array: from 64 KB on one as `empty` makes them.

Raises
------
ValueError
    "reorder: array.ndim (3) is not 4."  "source ('OIWH') is not one of OIHW, OHWI, HWIO, IOHW, C1HW."
    "reorder: out.shape (2, 3) is not ..."  "out is read-only."  "reorder: the memory of out overlaps that of array."
    "reorder: copy (True) and out exclude each other."
BufferError
    "reorder: array (64, 3, 7, 7) has to be copied from OIHW to OHWI order, which copy=False rules out."
TypeError
    "array (list) is not an array: ..."  "array.dtype (int8) is not uint8, ..."
    "reorder: out.dtype (float16) is not array.dtype (float32)."
MemoryError
    The result does not fit.

See Also
--------
empty

Source
------
MPSNeuralNetwork/MPSCNNConvolution.h: weights[outputChannels][kernelHeight][kernelWidth][inputChannels / groups].

Examples
--------
>>> import numpy as np, mpscnn
>>> weight = np.zeros((64, 3, 7, 5), np.float32)
>>> mpscnn.reorder(weight).shape
(64, 7, 5, 3)
>>> mpscnn.reorder(np.zeros((10, 512 * 7 * 7), np.float32), feature_map=(512, 7, 7)).shape
(10, 7, 7, 512)
)";

constexpr const char* kReorderLinearDoc = R"(reorder_linear(array, feature_map, out=None, *, copy=None, threads=None)
--

Reorder the weights of a linear layer after a flattened feature map, for a fully connected kernel.

The same as ``reorder(array, "OIHW", "OHWI", out, feature_map=feature_map)``, with the same `copy`.

Parameters
----------
array : array, shape (O, C*H*W), any dtype of `reorder`
    Weights of ``torch.nn.Linear`` behind ``flatten`` of a (C, H, W) feature map. Read in place.
feature_map : (C, H, W), elements
out : array, shape (O, H, W, C), dtype of `array`, optional
    Written in place and returned.
copy : bool, optional
threads : int >= 0, optional

Returns
-------
array, shape (O, H, W, C), dtype of `array`

Raises
------
ValueError
    "reorder: array.shape[1] (24) is not the size of feature_map (2, 3, 5), 30."

See Also
--------
reorder

Source
------
MPSNeuralNetwork/MPSCNNConvolution.h, MPSCNNFullyConnected.
)";

constexpr const char* kEmptyDoc = R"(empty(shape, dtype="float32")
--

Return an uninitialized array whose memory can always be shared with a device.

It stands on whole pages of its own, on huge ones where that pays. Pages of arrays that are gone (up to 64 MB) serve the
next ones.

Parameters
----------
shape : int or sequence of int, elements
dtype : dtype or str, default "float32"
    uint8, uint16, int32, uint32, int64, float16, bfloat16 (needs ml_dtypes), float32 or float64.

Returns
-------
numpy.ndarray, C-contiguous, page-aligned

Raises
------
ValueError
    "empty: shape (-1,) has a negative extent."
TypeError
    "dtype (complex64) is not uint8, ..."
MemoryError
    "4398046511104 bytes for an array of shape (1099511627776,) are not available."

Source
------
Metal/MTLDevice.h, newBufferWithBytesNoCopy:length:options:deallocator: takes page-aligned memory of whole pages.
)";

/// Whether the result may be a view of the array.
enum class Copy : std::uint8_t { if_needed, always, never };

/// Arguments of a METH_FASTCALL function, by position or keyword as in a Python signature.
template <std::size_t kCount>
class Arguments {
 public:
  Arguments(const char* function, const char* const (&names)[kCount], std::size_t positional, std::size_t required,
            PyObject* const* values, Py_ssize_t given, PyObject* keywords)
      : names_(names) {
    place_arguments(function, names, positional, required, values, static_cast<std::size_t>(given), keywords, values_);
  }

  /// Return the argument; null if not given or None.
  PyObject* operator[](std::size_t i) const { return values_[i] == Py_None ? nullptr : values_[i]; }
  PyObject* as_given(std::size_t i) const { return values_[i]; }

  Layout layout(std::size_t i, Layout otherwise) const {
    if (!values_[i]) return otherwise;
    return layout_from_name(text_of(values_[i], names_[i]), names_[i]);
  }

  Copy copy(std::size_t i) const {
    if (!(*this)[i]) return Copy::if_needed;
    check<TypeError>(PyBool_Check(values_[i]), names_[i], " (", Py_TYPE(values_[i])->tp_name,
                     ") is not True, False or None.");
    return values_[i] == Py_True ? Copy::always : Copy::never;
  }

  int threads(std::size_t i) const {
    if (!(*this)[i]) return 0;
    check<TypeError>(is_integer(values_[i]), names_[i], " (", Py_TYPE(values_[i])->tp_name, ") is not an int.");
    Integer count;
    if (!load(values_[i], count) || count < 0 || count > 1 << 16)
      throw std::invalid_argument(
          say(names_[i], " (", py::str(values_[i]).cast<std::string>(), ") is not between 0 and 65536."));
    return static_cast<int>(count);
  }

 private:
  const char* const (&names_)[kCount];
  PyObject* values_[kCount] = {};
};

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
  try {
    const Arguments arguments("reorder", kNames, 4, 1, values, given, keywords);
    return reorder_any({arguments.as_given(0), arguments.layout(1, Layout::OIHW), arguments.layout(2, Layout::OHWI),
                        arguments[3], arguments[4], arguments.copy(5), arguments.threads(6)})
        .release()
        .ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* py_reorder_linear(PyObject*, PyObject* const* values, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"array", "feature_map", "out", "copy", "threads"};
  try {
    const Arguments arguments("reorder_linear", kNames, 3, 2, values, given, keywords);
    return reorder_any({arguments.as_given(0), Layout::OIHW, Layout::OHWI, arguments[2], arguments.as_given(1),
                        arguments.copy(3), arguments.threads(4)})
        .release()
        .ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* py_empty(PyObject*, PyObject* const* values, Py_ssize_t given, PyObject* keywords) {
  static constexpr const char* kNames[] = {"shape", "dtype"};
  try {
    const Arguments arguments("empty", kNames, 2, 1, values, given, keywords);
    return empty_array(extents_from(arguments.as_given(0), "shape"),
                       arguments[1] ? dtype_from(arguments[1], "dtype") : DType::float32)
        .release()
        .ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

template <class Function>
PyCFunction fast(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef kMethods[] = {
    {"reorder", fast(py_reorder), METH_FASTCALL | METH_KEYWORDS, kReorderDoc},
    {"reorder_linear", fast(py_reorder_linear), METH_FASTCALL | METH_KEYWORDS, kReorderLinearDoc},
    {"empty", fast(py_empty), METH_FASTCALL | METH_KEYWORDS, kEmptyDoc},
    {nullptr, nullptr, 0, nullptr},
};

struct Watch {
  std::vector<std::shared_ptr<const WatchedMemory>> parts;
};

}  // namespace

void bind_weights(py::module_& module) {
  if (PyModule_AddFunctions(module.ptr(), kMethods) != 0) throw py::error_already_set();

  py::class_<Watch>(module, "_Watch", "Arrays that may be pages of mapped files: see WatchedMemory.")
      .def(py::init([](const py::iterable& arrays) {
             Watch watch;
             for (const auto array : arrays)
               if (auto memory = watch_array(array)) watch.parts.push_back(std::move(memory));
             return watch;
           }),
           py::arg("arrays"))
      .def(
          "check_whole",
          [](const Watch& watch) {
            for (const auto& part : watch.parts) check_whole(part->memory());
          },
          "Raise RuntimeError if one was read beyond the end of its file.");
  module.def(
      "_address_of",
      [](py::object object) {
        ArrayView view;
        try {
          view = view_of(object, "object");
        } catch (...) {
          set_python_error();
          throw py::error_already_set();
        }
        return py::make_tuple(reinterpret_cast<std::uintptr_t>(view.data), py::tuple(py::cast(view.shape)),
                              py::tuple(py::cast(view.strides)), name_of(view.dtype), view.read_only);
      },
      py::arg("object"),
      "(address, shape, strides in bytes, dtype, read-only) of the memory that a function here would use.");
  module.def(
      "_view",
      [](py::object object) {
        try {
          return array_from(view_of(object, "object"));
        } catch (...) {
          set_python_error();
          throw py::error_already_set();
        }
      },
      py::arg("object"), "NumPy view of the object's memory, which keeps the object alive.");
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
      [](py::object target, py::object source, int threads) {
        try {
          const ArrayView to = writable_view_of(target, "target"), from = view_of(source, "source");
          check(to.is_contiguous() && from.is_contiguous(), "_memcpy_threads: both sides must be contiguous.");
          const std::int64_t bytes = to.size() * static_cast<std::int64_t>(size_of(to.dtype));
          check(bytes == from.size() * static_cast<std::int64_t>(size_of(from.dtype)),
                "_memcpy_threads: sizes differ.");
          const ReleaseGil release;
          copy_threads(to.data, from.data, static_cast<std::size_t>(bytes), threads);
        } catch (...) {
          set_python_error();
          throw py::error_already_set();
        }
      },
      py::arg("target"), py::arg("source"), py::arg("threads"),
      "memcpy of equal parts on so many threads: what bench.reorder measures against.");
}

}  // namespace mpscnn::bindings

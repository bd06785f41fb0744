// SPDX-License-Identifier: Apache-2.0
// Arrays in and out: NumPy (read through its C struct: about 50 ns), DLPack, __array_interface__, the buffer protocol.
#include "bind_array.hpp"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <mpscnn/error.hpp>

namespace mpscnn::bindings {

bool interpreter_runs() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

namespace {

/// Runs `call`; a thread that Python ends in it stays there. Not sanitized: the exception by which glibc ends a thread
/// is no object, and catching a reference to it looks like a null reference.
template <class Call>
__attribute__((no_sanitize("undefined"))) void or_stay(const Call& call) {
#if defined(__GLIBCXX__)
  try {
    call();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
#else
  call();
#endif
}

}  // namespace

ReleaseGil::~ReleaseGil() {
  or_stay([this] { PyEval_RestoreThread(state_); });
}

AcquireGil::AcquireGil() {
  or_stay([this] { state_ = PyGILState_Ensure(); });
}

namespace {

using Npy = py::detail::npy_api;

// ---- pages

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct Pages {
  void* data = nullptr;     ///< page-aligned; a huge page's boundary where there is one to win
  std::size_t bytes = 0;    ///< whole pages
  void* mapping = nullptr;  ///< what to unmap
  std::size_t mapped = 0;
};

Pages map_pages(std::size_t bytes) {
  const std::size_t slack = bytes >= kHugePage ? kHugePage - page_size() : 0;
  if (bytes > SIZE_MAX - slack) throw std::bad_alloc();
  Pages pages;
  pages.bytes = bytes;
  pages.mapped = bytes + slack;
  pages.mapping = mmap(nullptr, pages.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages.mapping == MAP_FAILED) throw std::bad_alloc();
  auto at = reinterpret_cast<std::uintptr_t>(pages.mapping);
  if (slack) {
    at = (at + kHugePage - 1) & ~(kHugePage - 1);
#if defined(MADV_HUGEPAGE)
    // Only whole huge pages: the remainder would otherwise grow to one, which is memory nobody asked for.
    madvise(reinterpret_cast<void*>(at), bytes & ~(kHugePage - 1), MADV_HUGEPAGE);
#endif
  }
  pages.data = reinterpret_cast<void*>(at);
  return pages;
}

/// Freed pages waiting for the next request. Never destroyed: arrays may outlive static objects.
class PageCache {
 public:
  static PageCache& instance() {
    static auto* cache = new PageCache;
    return *cache;
  }

  Pages take(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t i = free_.size(); i-- > 0;) {
        if (free_[i].bytes < bytes || free_[i].bytes - bytes > bytes / 8) continue;
        const Pages pages = free_[i];
        free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
        held_ -= pages.bytes;
        return pages;
      }
    }
    return map_pages(bytes);
  }

  void give(const Pages& pages) {
    std::vector<Pages> dropped;
    if (pages.bytes > kMost) {
      dropped.push_back(pages);
    } else {
      const std::lock_guard lock(mutex_);
      free_.push_back(pages);
      held_ += pages.bytes;
      while (held_ > kMost || free_.size() > kEntries) {
        dropped.push_back(free_.front());
        held_ -= free_.front().bytes;
        free_.erase(free_.begin());
      }
    }
    for (const Pages& each : dropped) munmap(each.mapping, each.mapped);
  }

 private:
  static constexpr std::size_t kMost = std::size_t{64} << 20;
  static constexpr std::size_t kEntries = 32;
  std::mutex mutex_;
  std::vector<Pages> free_;
  std::size_t held_ = 0;
};

Pages take_pages(std::size_t bytes) {
  const std::size_t page = page_size();
  if (bytes > SIZE_MAX - page) throw std::bad_alloc();
  return PageCache::instance().take((std::max<std::size_t>(bytes, 1) + page - 1) / page * page);
}

/// Bytes of an array; throws where they cannot be counted.
std::size_t bytes_of(const Extents& shape, DType dtype, const char* what) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  bool empty = false;
  for (const auto extent : shape) {
    check(extent >= 0, what, as_tuple(shape), " has a negative extent.");
    empty |= extent == 0;
  }
  for (const auto extent : shape)
    check<MemoryError>(empty || !__builtin_mul_overflow(bytes, extent, &bytes), what, as_tuple(shape), " of ",
                       name_of(dtype), " is more than 2^63 bytes.");
  return empty ? 0 : static_cast<std::size_t>(bytes);
}

// ---- element types

std::string type_name(py::handle object) {
  return py::str(py::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))).attr("__name__")).cast<std::string>();
}

/// ml_dtypes' bfloat16 once somebody has imported it.
int bfloat16_number(const py::detail::PyArrayDescr_Proxy* descr) {
  static int number = -1;  // NumPy registers user types once per process
  if (number >= 0) return number;
  const char* name = reinterpret_cast<PyTypeObject*>(descr->typeobj)->tp_name;
  const char* dot = std::strrchr(name, '.');
  if (std::string_view(dot ? dot + 1 : name) == "bfloat16") number = descr->type_num;
  return number;
}

std::optional<DType> dtype_of(const py::detail::PyArrayDescr_Proxy* descr) {
  if (descr->byteorder == '>' || descr->byteorder == '<') {
    const std::uint16_t one = 1;
    const bool little = *reinterpret_cast<const std::uint8_t*>(&one) == 1;
    if ((descr->byteorder == '<') != little) return std::nullopt;
  }
  switch (descr->type_num) {
    case Npy::NPY_UINT8_: return DType::uint8;
    case Npy::NPY_UINT16_: return DType::uint16;
    case 23: return DType::float16;  // NPY_HALF
    case Npy::NPY_FLOAT_: return DType::float32;
    case Npy::NPY_DOUBLE_: return DType::float64;
    case Npy::NPY_INT_: return DType::int32;
    case Npy::NPY_UINT_: return DType::uint32;
    case Npy::NPY_LONG_: return sizeof(long) == 8 ? DType::int64 : DType::int32;
    case Npy::NPY_LONGLONG_: return DType::int64;
    default: break;
  }
  if (descr->type_num >= 256 && descr->type_num == bfloat16_number(descr)) return DType::bfloat16;
  return std::nullopt;
}

constexpr const char* kKnownTypes =
    "uint8, uint16, int32, uint32, int64, float16, bfloat16, float32 or float64 in native byte order";

[[noreturn]] void refuse_dtype(const std::string& given, const char* name) {
  throw TypeError(say(name, ".dtype (", given, ") is not ", kKnownTypes, "."));
}

// ---- NumPy

void set_extents(ArrayView& view, int ndim, const ssize_t* shape, const ssize_t* strides) {
  view.shape.assign(shape, shape + ndim);
  view.strides.assign(strides, strides + ndim);
}

ArrayView view_of_numpy(py::handle object, const char* name, Keep keep) {
  const auto* array = reinterpret_cast<const py::detail::PyArray_Proxy*>(object.ptr());
  const auto* descr = reinterpret_cast<const py::detail::PyArrayDescr_Proxy*>(array->descr);
  const auto dtype = dtype_of(descr);
  if (!dtype) refuse_dtype(py::str(py::handle(array->descr)).cast<std::string>(), name);
  ArrayView view;
  view.data = array->data;
  view.dtype = *dtype;
  set_extents(view, array->nd, array->dimensions, array->strides);
  view.read_only = !(array->flags & Npy::NPY_ARRAY_WRITEABLE_);
  if (keep == Keep::owner) view.owner = keep_python_object(py::reinterpret_borrow<py::object>(object));
  return view;
}

// ---- DLPack: https://dmlc.github.io/dlpack/latest/c_api.html

struct DLDevice {
  std::int32_t type;
  std::int32_t id;
};

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // elements; null: C-contiguous
  std::uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};

struct DLManagedTensorVersioned {
  struct {
    std::uint32_t major, minor;
  } version;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  DLTensor tensor;
};

constexpr std::uint64_t kDLReadOnly = 1;
constexpr std::int32_t kDLCPU = 1, kDLCUDAHost = 3, kDLROCMHost = 11;

std::optional<DType> dtype_of(const DLDataType& type) {
  if (type.lanes != 1) return std::nullopt;
  enum : std::uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4 };
  switch (type.code << 8 | type.bits) {
    case kUInt << 8 | 8: return DType::uint8;
    case kUInt << 8 | 16: return DType::uint16;
    case kUInt << 8 | 32: return DType::uint32;
    case kInt << 8 | 32: return DType::int32;
    case kInt << 8 | 64: return DType::int64;
    case kFloat << 8 | 16: return DType::float16;
    case kFloat << 8 | 32: return DType::float32;
    case kFloat << 8 | 64: return DType::float64;
    case kBfloat << 8 | 16: return DType::bfloat16;
    default: return std::nullopt;
  }
}

/// Runs `release` with the GIL, from any thread; leaks once the interpreter is going down, since nothing can be freed
/// then.
template <class Release>
void with_gil(const Release& release) {
  if (!interpreter_runs()) return;
  if (PyGILState_Check()) {
    release();
    return;
  }
  const AcquireGil gil;
  release();
}

/// Takes the capsule's tensor over, as the protocol wants it: renamed, and its deleter called by the new owner.
template <class Managed>
ArrayView view_of_managed(py::handle capsule, const char* capsule_name, const char* used_name, const char* name,
                          bool read_only) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), capsule_name));
  if (!managed) throw py::error_already_set();
  const DLTensor& tensor = managed->tensor;
  const auto dtype = dtype_of(tensor.dtype);
  if (!dtype) {
    refuse_dtype(say("DLPack code ", int{tensor.dtype.code}, ", ", int{tensor.dtype.bits}, " bits, ",
                     tensor.dtype.lanes, " lanes"),
                 name);
  }
  ArrayView view;
  view.dtype = *dtype;
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.read_only = read_only;
  view.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  if (tensor.strides) {
    view.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
    for (auto& stride : view.strides) stride *= static_cast<std::int64_t>(size_of(*dtype));
  } else {
    view.strides = contiguous_strides(view.shape, *dtype);
  }
  if (PyCapsule_SetName(capsule.ptr(), used_name) != 0) throw py::error_already_set();
  view.owner = std::shared_ptr<void>(managed, [](void* pointer) {
    with_gil([pointer] {
      auto* held = static_cast<Managed*>(pointer);
      if (held->deleter) held->deleter(held);
    });
  });
  return view;
}

ArrayView view_of_dlpack(py::handle object, const char* name) {
  if (py::hasattr(object, "__dlpack_device__")) {
    const auto device = py::tuple(object.attr("__dlpack_device__")());
    const auto type = py::int_(device[0]).cast<std::int32_t>();
    check<TypeError>(type == kDLCPU || type == kDLCUDAHost || type == kDLROCMHost, name, " (", type_name(object),
                     ") lies on DLPack device ", type, ", not in the memory of the CPU (1).");
  }
  py::object source = py::reinterpret_borrow<py::object>(object);
  // An exported tensor would leave autograd's record; detached it is the same memory.
  if (py::hasattr(source, "requires_grad") && py::bool_(source.attr("requires_grad"))) source = source.attr("detach")();
  static const auto* version = new py::tuple(py::make_tuple(1, 0));
  py::object capsule;
  try {
    capsule = source.attr("__dlpack__")(py::arg("max_version") = *version);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    capsule = source.attr("__dlpack__")();  // exporters older than the argument
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* managed =
        static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    check<TypeError>(managed->version.major == 1, name, " (", type_name(object), ") speaks DLPack ",
                     managed->version.major, ", not 1.");
    return view_of_managed<DLManagedTensorVersioned>(capsule, "dltensor_versioned", "used_dltensor_versioned", name,
                                                     managed->flags & kDLReadOnly);
  }
  return view_of_managed<DLManagedTensor>(capsule, "dltensor", "used_dltensor", name, false);
}

// ---- __array_interface__ and the buffer protocol

/// The element type of a format such as "f", "<f4" or "|u1".
std::optional<DType> dtype_of_format(std::string_view format, std::size_t bytes) {
  if (!format.empty() && std::string_view("@=<>|!").find(format[0]) != std::string_view::npos) {
    if ((format[0] == '>' || format[0] == '!') && bytes > 1) return std::nullopt;
    format.remove_prefix(1);
  }
  if (format.empty()) return std::nullopt;
  const bool typestr = format.size() > 1;  // "f4" (array interface) against "f" (struct)
  const char kind = format[0];
  if (typestr && format.substr(1) != std::to_string(bytes)) return std::nullopt;
  const bool is_unsigned = typestr ? kind == 'u' : std::string_view("BHILQNc").find(kind) < 6;
  const bool is_signed = typestr ? kind == 'i' : std::string_view("bhilqn").find(kind) != std::string_view::npos;
  const bool is_float = typestr ? kind == 'f' : std::string_view("efd").find(kind) != std::string_view::npos;
  if (is_unsigned && bytes == 1) return DType::uint8;
  if (is_unsigned && bytes == 2) return DType::uint16;
  if (is_unsigned && bytes == 4) return DType::uint32;
  if (is_signed && bytes == 4) return DType::int32;
  if (is_signed && bytes == 8) return DType::int64;
  if (is_float && bytes == 2) return DType::float16;
  if (is_float && bytes == 4) return DType::float32;
  if (is_float && bytes == 8) return DType::float64;
  return std::nullopt;
}

struct HeldBuffer {
  Py_buffer buffer{};
  bool held = false;
  ~HeldBuffer() {
    if (held) with_gil([this] { PyBuffer_Release(&buffer); });
  }
};

ArrayView view_of_buffer(py::handle object, const char* name) {
  auto held = std::make_shared<HeldBuffer>();
  Py_buffer& buffer = held->buffer;
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_FULL_RO) != 0) throw py::error_already_set();
  held->held = true;
  check<TypeError>(!buffer.suboffsets, name, " (", type_name(object), ") has suboffsets: its rows are pointers.");
  const std::string_view format = buffer.format ? buffer.format : "B";
  const auto dtype = dtype_of_format(format, static_cast<std::size_t>(buffer.itemsize));
  if (!dtype) refuse_dtype("buffer format '" + std::string(format) + "'", name);
  ArrayView view;
  view.data = buffer.buf;
  view.dtype = *dtype;
  view.read_only = buffer.readonly;
  if (buffer.shape && buffer.strides) {
    set_extents(view, buffer.ndim, buffer.shape, buffer.strides);
  } else {
    view.shape = {static_cast<std::int64_t>(buffer.len / buffer.itemsize)};
    view.strides = {static_cast<std::int64_t>(buffer.itemsize)};
  }
  view.owner = std::move(held);
  return view;
}

ArrayView view_of_interface_fields(py::handle object, const char* name) {
  const py::dict interface = object.attr("__array_interface__");
  const auto typestr = py::str(interface["typestr"]).cast<std::string>();
  const auto bytes = typestr.size() > 2 ? std::strtoul(typestr.c_str() + 2, nullptr, 10) : 0;
  const auto dtype = dtype_of_format(typestr, bytes);
  if (!dtype) refuse_dtype("'" + typestr + "'", name);
  ArrayView view;
  view.dtype = *dtype;
  view.shape = interface["shape"].cast<Extents>();
  bytes_of(view.shape, *dtype, name);
  const bool strided = interface.contains("strides") && !interface["strides"].is_none();
  view.strides = strided ? interface["strides"].cast<Extents>() : contiguous_strides(view.shape, *dtype);
  check<TypeError>(view.strides.size() == view.shape.size(), name, ".__array_interface__ has ", view.strides.size(),
                   " strides for ", view.shape.size(), " axes.");
  py::object data = interface.contains("data") ? py::object(interface["data"]) : py::none();
  if (py::isinstance<py::tuple>(data)) {
    const py::tuple pair = data;
    view.data = reinterpret_cast<void*>(pair[0].cast<std::uintptr_t>());
    view.read_only = pair[1].cast<bool>();
    view.owner = keep_python_object(py::reinterpret_borrow<py::object>(object));
    return view;
  }
  const ArrayView memory = view_of_buffer(data.is_none() ? object : py::handle(data), name);
  const auto offset = interface.contains("offset") ? interface["offset"].cast<std::int64_t>() : 0;
  const std::int64_t available = memory.size() * static_cast<std::int64_t>(size_of(memory.dtype));
  std::int64_t low = offset, high = offset + static_cast<std::int64_t>(size_of(*dtype));
  for (std::size_t i = 0; i < view.ndim(); ++i) {
    std::int64_t reach = 0;
    check<TypeError>(!__builtin_mul_overflow(view.shape[i] - 1, view.strides[i], &reach), name, ".strides overflow.");
    (view.strides[i] < 0 ? low : high) += reach;
  }
  check<TypeError>(view.size() == 0 || (low >= 0 && high <= available), name,
                   ".__array_interface__ reaches over bytes ", low, " to ", high, " of a buffer of ", available, ".");
  view.data = static_cast<char*>(memory.data) + offset;
  view.read_only = memory.read_only;
  view.owner = memory.owner;
  return view;
}

ArrayView view_of_interface(py::handle object, const char* name) {
  try {
    return view_of_interface_fields(object, name);
  } catch (const py::cast_error&) {
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_KeyError)) throw;
  }
  throw TypeError(
      say(name, ".__array_interface__ of ", type_name(object), " is not version 3 of NumPy's array interface."));
}

}  // namespace

ArrayView view_of(py::handle object, const char* name, Keep keep) {
  if (Npy::get().PyArray_Check_(object.ptr())) return view_of_numpy(object, name, keep);
  if (py::hasattr(object, "__dlpack__")) return view_of_dlpack(object, name);
  if (py::hasattr(object, "__array_interface__")) return view_of_interface(object, name);
  if (PyObject_CheckBuffer(object.ptr())) return view_of_buffer(object, name);
  throw TypeError(say(name, " (", type_name(object),
                      ") is not an array: it has neither DLPack, __array_interface__ nor the buffer protocol."));
}

ArrayView writable_view_of(py::handle object, const char* name, Keep keep) {
  ArrayView view = view_of(object, name, keep);
  check(!view.read_only, name, " is read-only.");
  return view;
}

py::array array_from(const ArrayView& view) {
  const auto& npy = Npy::get();
  const auto ndim = static_cast<int>(view.ndim());
  check(ndim <= 32, "array: ndim (", ndim, ") is greater than the maximum 32.");
  py::dtype dtype = numpy_dtype(view.dtype);
  Py_intptr_t shape[32], strides[32];
  for (int i = 0; i < ndim; ++i) {
    shape[i] = view.shape[static_cast<std::size_t>(i)];
    strides[i] = view.strides[static_cast<std::size_t>(i)];
  }
  PyObject* array = npy.PyArray_NewFromDescr_(npy.PyArray_Type_, dtype.release().ptr(), ndim, shape, strides, view.data,
                                              view.read_only ? 0 : Npy::NPY_ARRAY_WRITEABLE_, nullptr);
  if (!array) throw py::error_already_set();
  auto result = py::reinterpret_steal<py::array>(array);
  if (view.owner && npy.PyArray_SetBaseObject_(array, to_python_owner(view.owner).release().ptr()) != 0)
    throw py::error_already_set();
  return result;
}

namespace {

/// Steals `descr`.
py::object array_on_pages(PyObject* descr, int ndim, const std::int64_t* shape, std::size_t bytes, void** data) {
  const auto& npy = Npy::get();
  auto dtype = py::reinterpret_steal<py::object>(descr);
  Pages pages;
  try {
    pages = take_pages(bytes);
  } catch (const std::bad_alloc&) {
    throw MemoryError(
        say(bytes, " bytes for an array of shape ", as_tuple(Extents(shape, shape + ndim)), " are not available."));
  }
  // One allocation less than a shared_ptr in a capsule: this stands in the path of every result.
  auto* held = new Pages(pages);
  const auto release = [](PyObject* capsule) {
    auto* freed = static_cast<Pages*>(PyCapsule_GetPointer(capsule, "mpscnn.pages"));
    PageCache::instance().give(*freed);
    delete freed;
  };
  auto owner = py::reinterpret_steal<py::object>(PyCapsule_New(held, "mpscnn.pages", release));
  if (!owner) {
    PageCache::instance().give(pages);
    delete held;
    throw py::error_already_set();
  }
  *data = pages.data;
  PyObject* array =
      npy.PyArray_NewFromDescr_(npy.PyArray_Type_, dtype.release().ptr(), ndim, shape, nullptr, pages.data,
                                Npy::NPY_ARRAY_C_CONTIGUOUS_ | Npy::NPY_ARRAY_WRITEABLE_, nullptr);
  if (!array) throw py::error_already_set();
  auto result = py::reinterpret_steal<py::object>(array);
  if (npy.PyArray_SetBaseObject_(array, owner.release().ptr()) != 0) throw py::error_already_set();
  return result;
}

}  // namespace

static_assert(sizeof(std::int64_t) == sizeof(Py_intptr_t) && std::is_same_v<std::int64_t, Py_intptr_t>,
              "NumPy's extents are read in place");

bool read_numpy(py::handle object, NumpyFields& fields) {
  if (Py_TYPE(object.ptr()) != Npy::get().PyArray_Type_) return false;
  const auto* array = reinterpret_cast<const py::detail::PyArray_Proxy*>(object.ptr());
  const auto dtype = dtype_of(reinterpret_cast<const py::detail::PyArrayDescr_Proxy*>(array->descr));
  if (!dtype) return false;
  fields = {array->data, array->nd, array->dimensions, array->strides, *dtype};
  return true;
}

py::object empty_like_numpy(py::handle like, int ndim, const std::int64_t* shape, std::int64_t bytes, void** data) {
  const auto& npy = Npy::get();
  PyObject* descr = reinterpret_cast<const py::detail::PyArray_Proxy*>(like.ptr())->descr;
  Py_INCREF(descr);
  if (bytes >= 64 << 10) return array_on_pages(descr, ndim, shape, static_cast<std::size_t>(bytes), data);
  PyObject* array = npy.PyArray_NewFromDescr_(npy.PyArray_Type_, descr, ndim, shape, nullptr, nullptr, 0, nullptr);
  if (!array) throw py::error_already_set();
  *data = reinterpret_cast<const py::detail::PyArray_Proxy*>(array)->data;
  return py::reinterpret_steal<py::object>(array);
}

py::object view_of_numpy(py::handle array, int ndim, const std::int64_t* shape) {
  const auto& npy = Npy::get();
  const auto* fields = reinterpret_cast<const py::detail::PyArray_Proxy*>(array.ptr());
  Py_INCREF(fields->descr);
  PyObject* view = npy.PyArray_NewFromDescr_(npy.PyArray_Type_, fields->descr, ndim, shape, nullptr, fields->data,
                                             fields->flags & Npy::NPY_ARRAY_WRITEABLE_, nullptr);
  if (!view) throw py::error_already_set();
  auto result = py::reinterpret_steal<py::object>(view);
  // Steals the reference, also when it fails.
  if (npy.PyArray_SetBaseObject_(view, array.inc_ref().ptr()) != 0) throw py::error_already_set();
  return result;
}

py::array empty_array(const Extents& shape, DType dtype) {
  check(shape.size() <= 32, "empty: ndim (", shape.size(), ") is greater than the maximum 32.");
  const std::size_t bytes = bytes_of(shape, dtype, "empty: shape ");
  void* data = nullptr;
  return array_on_pages(numpy_dtype(dtype).release().ptr(), static_cast<int>(shape.size()), shape.data(), bytes, &data);
}

std::shared_ptr<void> allocate_pages(std::size_t bytes) {
  const Pages pages = take_pages(bytes);
  return {pages.data, [pages](void*) { PageCache::instance().give(pages); }};
}

std::shared_ptr<void> keep_python_object(py::object object) {
  return {object.release().ptr(), [](void* held) { with_gil([held] { Py_DECREF(static_cast<PyObject*>(held)); }); }};
}

py::object to_python_owner(std::shared_ptr<void> owner) {
  auto* held = new std::shared_ptr<void>(std::move(owner));
  PyObject* capsule = PyCapsule_New(held, "mpscnn.owner", [](PyObject* self) {
    delete static_cast<std::shared_ptr<void>*>(PyCapsule_GetPointer(self, "mpscnn.owner"));
  });
  if (!capsule) {
    delete held;
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(capsule);
}

bool is_integer(py::handle object) {
  if (PyLong_Check(object.ptr())) return !PyBool_Check(object.ptr());
  return PyIndex_Check(object.ptr()) && !(py::hasattr(object, "ndim") && !py::int_(0).equal(object.attr("ndim")));
}

bool is_number(py::handle object) {
  // NumPy's scalars are numbers, its arrays of one element are not.
  return PyFloat_Check(object.ptr()) ||
         (!PyBool_Check(object.ptr()) && !PyComplex_Check(object.ptr()) && PyNumber_Check(object.ptr()) &&
          !(py::hasattr(object, "ndim") && !py::int_(0).equal(object.attr("ndim"))));
}

Extents extents_from(py::handle object, const char* name) {
  const auto extent = [&](py::handle item) -> std::int64_t {
    check<TypeError>(is_integer(item), name, ": ", py::repr(item).cast<std::string>(), " (", type_name(item),
                     ") is not an integer.");
    const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(item.ptr()));
    if (!number) throw py::error_already_set();
    int overflow = 0;
    const auto value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    check(overflow == 0, name, ": ", py::str(number).cast<std::string>(), " is beyond 64 bits.");
    return value;
  };
  if (is_integer(object)) return {extent(object)};
  check<TypeError>(PySequence_Check(object.ptr()) && !PyUnicode_Check(object.ptr()), name, " (", type_name(object),
                   ") is neither an int nor a sequence of them.");
  Extents extents;
  for (const auto item : py::reinterpret_borrow<py::sequence>(object)) extents.push_back(extent(item));
  return extents;
}

py::dtype dtype_object(py::handle dtype, const char* name) {
  try {
    return py::dtype::from_args(py::reinterpret_borrow<py::object>(dtype));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    throw TypeError(say(name, " (", py::repr(dtype).cast<std::string>(), ") is not a dtype."));
  }
}

DType dtype_from(py::handle dtype, const char* name) {
  if (PyUnicode_Check(dtype.ptr()) && PyUnicode_CompareWithASCIIString(dtype.ptr(), "bfloat16") == 0)
    return DType::bfloat16;
  const py::dtype descr = dtype_object(dtype, name);
  if (const auto known = dtype_of(reinterpret_cast<const py::detail::PyArrayDescr_Proxy*>(descr.ptr()))) return *known;
  throw TypeError(say(name, " (", py::str(py::handle(descr)).cast<std::string>(), ") is not ", kKnownTypes, "."));
}

DType dtype_from(py::handle dtype, const char* name, DType otherwise) {
  return dtype.is_none() ? otherwise : dtype_from(dtype, name);
}

py::dtype numpy_dtype(DType dtype) {
  int number = 0;
  switch (dtype) {
    case DType::uint8: number = Npy::NPY_UINT8_; break;
    case DType::uint16: number = Npy::NPY_UINT16_; break;
    case DType::int32: number = Npy::NPY_INT32_; break;
    case DType::uint32: number = Npy::NPY_UINT32_; break;
    case DType::int64: number = Npy::NPY_INT64_; break;
    case DType::float16: number = 23; break;  // NPY_HALF
    case DType::float32: number = Npy::NPY_FLOAT_; break;
    case DType::float64: number = Npy::NPY_DOUBLE_; break;
    case DType::bfloat16: {
      static PyObject* bfloat16 = nullptr;  // kept for good; an import that failed is tried again
      if (!bfloat16) {
        try {
          bfloat16 = py::dtype::from_args(py::module_::import("ml_dtypes").attr("bfloat16")).release().ptr();
        } catch (py::error_already_set& error) {
          if (!error.matches(PyExc_ImportError)) throw;
          throw TypeError("bfloat16 arrays need the package ml_dtypes, which is not installed.");
        }
      }
      return py::reinterpret_borrow<py::dtype>(bfloat16);
    }
  }
  PyObject* descr = Npy::get().PyArray_DescrFromType_(number);
  if (!descr) throw py::error_already_set();
  return py::reinterpret_steal<py::dtype>(descr);
}

void set_python_error() noexcept {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const BufferError& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  } catch (const NotImplementedError& error) {
    PyErr_SetString(PyExc_NotImplementedError, error.what());
  } catch (const KeyError& error) {
    PyErr_SetString(PyExc_KeyError, error.what());
  } catch (const MemoryError& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an exception of unknown type");
  }
}

}  // namespace mpscnn::bindings

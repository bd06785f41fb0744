// SPDX-License-Identifier: Apache-2.0
// Building blocks of kernels. A kernel is a function of its arguments, a struct without pointers of the host, and
// of the index of a value or of a block. NVRTC compiles it for GPUs, and the host's compiler for the engine cuda-host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/memory.hpp"
#include "engine/problem/common.hpp"
#include "engine/shared/half.hpp"
#include "engine/shared/neuron.hpp"

namespace openmps::cuda {

using i64 = std::int64_t;

#if defined(__CUDACC_RTC__)
#define MPSCNN_ON_GPU 1
#define MPSCNN_UNROLL _Pragma("unroll")
#define MPSCNN_NO_INLINE __noinline__
#else
#define MPSCNN_ON_GPU 0
#define MPSCNN_UNROLL
#define MPSCNN_NO_INLINE inline __attribute__((noinline))
#endif

/// Set by the engine cuda-host in its device addresses, so that the processor faults if it uses one by mistake.
constexpr std::uint64_t kHostDeviceBit = std::uint64_t{1} << 52;

/// Address on the device.
template <class T>
struct Pointer {
  std::uint64_t address = 0;  ///< 0: no values

  MPSCNN_HOST_DEVICE T* get() const {
#if MPSCNN_ON_GPU
    return reinterpret_cast<T*>(address);
#else
    return reinterpret_cast<T*>(address & ~kHostDeviceBit);
#endif
  }
  MPSCNN_HOST_DEVICE T& operator[](i64 index) const { return get()[index]; }
  MPSCNN_HOST_DEVICE explicit operator bool() const { return address != 0; }
};

/// An ImageView on the device.
struct View {
  Pointer<unsigned char> data;  ///< (image 0, row 0, column 0, channel 0)
  Format format = Format::float32;
  i64 n = 1, h = 1, w = 1, c = 1;
  i64 n_stride = 0, h_stride = 0, w_stride = 0;  ///< in elements

  MPSCNN_HOST_DEVICE i64 offset(i64 image, i64 y, i64 x, i64 k) const {
    return image * n_stride + y * h_stride + x * w_stride + k;
  }
  MPSCNN_HOST_DEVICE i64 size() const { return n * h * w * c; }
  MPSCNN_HOST_DEVICE explicit operator bool() const { return static_cast<bool>(data); }
};

/// An Operand on the device.
struct Source {
  View view;
  i64 start_h = 0, start_w = 0;
  bool repeat_h = false, repeat_w = false, repeat_c = false;
  Edge edge = Edge::zero;
};

/// MPSCNN_FORMAT fixes the format of all images of a call when it is compiled.
MPSCNN_HOST_DEVICE Format format_of(const View& view) {
#if defined(MPSCNN_FORMAT)
  return static_cast<Format>(MPSCNN_FORMAT);
#else
  return view.format;
#endif
}

#if MPSCNN_ON_GPU
MPSCNN_HOST_DEVICE float half_value(std::uint16_t half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}
MPSCNN_HOST_DEVICE std::uint16_t half_bits(float value) {
  std::uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}
#else
MPSCNN_HOST_DEVICE float half_value(std::uint16_t half) { return half_to_float(half); }
MPSCNN_HOST_DEVICE std::uint16_t half_bits(float value) { return float_to_half(value); }
#endif

MPSCNN_HOST_DEVICE float load(Format format, const unsigned char* data, i64 offset) {
  switch (format) {
    case Format::float32: return reinterpret_cast<const float*>(data)[offset];
    case Format::float16: return half_value(reinterpret_cast<const std::uint16_t*>(data)[offset]);
    case Format::unorm16: return unorm_to_float(reinterpret_cast<const std::uint16_t*>(data)[offset], 65535.0f);
    default: return unorm_to_float(data[offset], 255.0f);
  }
}

MPSCNN_HOST_DEVICE void store(Format format, unsigned char* data, i64 offset, float value) {
  switch (format) {
    case Format::float32: reinterpret_cast<float*>(data)[offset] = value; break;
    case Format::float16: reinterpret_cast<std::uint16_t*>(data)[offset] = half_bits(value); break;
    case Format::unorm16:
      reinterpret_cast<std::uint16_t*>(data)[offset] = static_cast<std::uint16_t>(float_to_unorm(value, 65535.0f));
      break;
    default: data[offset] = static_cast<unsigned char>(float_to_unorm(value, 255.0f));
  }
}

MPSCNN_HOST_DEVICE float load(const View& view, i64 n, i64 y, i64 x, i64 k) {
  return load(format_of(view), view.data.get(), view.offset(n, y, x, k));
}
MPSCNN_HOST_DEVICE void store(const View& view, i64 n, i64 y, i64 x, i64 k, float value) {
  store(format_of(view), view.data.get(), view.offset(n, y, x, k), value);
}

/// Image, row, column and channel of a value.
struct Place {
  i64 n, y, x, k;
};

/// Return the place of value `index` of n x h x w x c values: channels, then columns, then rows, then images.
MPSCNN_HOST_DEVICE Place place_of(i64 index, i64 h, i64 w, i64 c) {
  if (index <= 0x7fffffff && h <= 0x7fffffff && w <= 0x7fffffff && c <= 0x7fffffff) {  // 32 bits divide faster
    const auto i = static_cast<std::uint32_t>(index), height = static_cast<std::uint32_t>(h),
               width = static_cast<std::uint32_t>(w), channels = static_cast<std::uint32_t>(c);
    const std::uint32_t pixel = i / channels, row = pixel / width, image = row / height;
    return {image, row - image * height, pixel - row * width, i - pixel * channels};
  }
  const i64 pixel = index / c, row = pixel / w, image = row / h;
  return {image, row - image * h, pixel - row * w, index - pixel * c};
}
MPSCNN_HOST_DEVICE Place place_of(i64 index, const View& view) { return place_of(index, view.h, view.w, view.c); }

MPSCNN_HOST_DEVICE float load(const View& view, const Place& at) { return load(view, at.n, at.y, at.x, at.k); }
MPSCNN_HOST_DEVICE void store(const View& view, const Place& at, float value) {
  store(view, at.n, at.y, at.x, at.k, value);
}

/// Return the value that element `at` of the result reads; 0 beyond the source with Edge::zero.
MPSCNN_HOST_DEVICE float load(const Source& source, const Place& at) {
  i64 y = source.start_h + (source.repeat_h ? 0 : at.y), x = source.start_w + (source.repeat_w ? 0 : at.x);
  const View& view = source.view;
  if (source.edge == Edge::clamp) {
    y = y < 0 ? 0 : y >= view.h ? view.h - 1 : y;
    x = x < 0 ? 0 : x >= view.w ? view.w - 1 : x;
  } else if (y < 0 || y >= view.h || x < 0 || x >= view.w) {
    return 0.0f;
  }
  return load(view, at.n, y, x, source.repeat_c ? 0 : at.k);
}

/// A Neuron on the device.
struct Activation {
  NeuronType type = NeuronType::none;
  float a = 0, b = 0, c = 0;
  double log_base = 1;  ///< of exponential and logarithm
  Pointer<const float> slopes;
};

/// Formulas in double, as on the processor: GPUs for training and inference are limited by memory here.
struct DeviceMath {
  using Real = double;
  static MPSCNN_HOST_DEVICE double exp(double x) { return ::exp(x); }
  static MPSCNN_HOST_DEVICE float exp_negative(float x, float rest = 0) { return ::expf(x) * (1 + rest); }
  static MPSCNN_HOST_DEVICE float product(float x, float y, float& lost) {
    lost = ::fmaf(x, y, -(x * y));
    return x * y;
  }
  static MPSCNN_HOST_DEVICE double expm1(double x) { return ::expm1(x); }
  static MPSCNN_HOST_DEVICE double log(double x) { return ::log(x); }
  static MPSCNN_HOST_DEVICE float log1p_unit(float x) { return ::log1pf(x); }
  static MPSCNN_HOST_DEVICE float normal_cdf(float x) {
    return static_cast<float>(0.5 * ::erfc(x * -0.70710678118654752));
  }
  static MPSCNN_HOST_DEVICE float normal_cdf(float x, float& bell) {
    bell = ::expf(-0.5f * x * x);
    return normal_cdf(x);
  }
  static MPSCNN_HOST_DEVICE double pow(double x, double y) { return ::pow(x, y); }
};

MPSCNN_HOST_DEVICE float activate(const Activation& f, float x, i64 channel) {
  using F = NeuronFormulas<DeviceMath>;
  switch (f.type) {
    case NeuronType::none: return x;
    case NeuronType::relu: return F::relu(x, f.a);
    case NeuronType::linear: return F::linear(x, f.a, f.b);
    case NeuronType::sigmoid: return F::sigmoid(x);
    case NeuronType::hard_sigmoid: return F::hard_sigmoid(x, f.a, f.b);
    case NeuronType::tanh: return F::tanh(x, f.a, f.b);
    case NeuronType::absolute: return F::absolute(x);
    case NeuronType::softplus: return F::softplus(x, f.a, f.b);
    case NeuronType::softsign: return F::softsign(x);
    case NeuronType::elu: return F::elu(x, f.a);
    case NeuronType::prelu: return F::relu(x, f.slopes ? f.slopes[channel] : f.a);
    case NeuronType::relun: return F::relun(x, f.a, f.b);
    case NeuronType::power: return F::power(x, f.a, f.b, f.c);
    case NeuronType::exponential:
      if (f.c <= 0 && f.c != -1) return static_cast<float>(::pow(double{f.c}, double{f.a} * x + f.b));
      return F::exponential(x, f.a, f.b, f.log_base);
    case NeuronType::logarithm: return F::logarithm(x, f.a, f.b, f.log_base);
    case NeuronType::gelu: return F::gelu(x);
    case NeuronType::swish: return F::swish(x);
    case NeuronType::hard_swish: return F::hard_swish(x, f.a, f.b);
  }
  return x;
}

/// Return gradient * f'(x).
MPSCNN_HOST_DEVICE float activate_gradient(const Activation& f, float gradient, float x, i64 channel) {
  using F = NeuronFormulas<DeviceMath>;
  switch (f.type) {
    case NeuronType::none: return gradient;
    case NeuronType::relu: return F::relu_gradient(gradient, x, f.a);
    case NeuronType::linear: return f.a * gradient;
    case NeuronType::sigmoid: return F::sigmoid_gradient(gradient, x);
    case NeuronType::hard_sigmoid: return F::hard_sigmoid_gradient(gradient, x, f.a, f.b);
    case NeuronType::tanh: return F::tanh_gradient(gradient, x, f.a, f.b);
    case NeuronType::absolute: return F::absolute_gradient(gradient, x);
    case NeuronType::softplus: return F::softplus_gradient(gradient, x, f.a, f.b);
    case NeuronType::softsign: return F::softsign_gradient(gradient, x);
    case NeuronType::elu: return F::elu_gradient(gradient, x, f.a);
    case NeuronType::prelu: return F::relu_gradient(gradient, x, f.slopes ? f.slopes[channel] : f.a);
    case NeuronType::relun: return F::relun_gradient(gradient, x, f.a, f.b);
    case NeuronType::power:
      if (f.c == 0 || f.c == 1) return f.c * f.a * gradient;  // avoids 0 ** 0 and 0 ** -1
      return F::power_gradient(gradient, x, f.a, f.b, f.c);
    case NeuronType::exponential:
      if (f.c <= 0 && f.c != -1)
        return static_cast<float>(gradient * (double{f.a} * f.log_base * ::pow(double{f.c}, double{f.a} * x + f.b)));
      return F::exponential_gradient(gradient, x, f.a, f.b, f.log_base);
    case NeuronType::logarithm: return F::logarithm_gradient(gradient, x, f.a, f.b, f.log_base);
    case NeuronType::gelu: return F::gelu_gradient(gradient, x);
    case NeuronType::swish:
    case NeuronType::hard_swish: return 0;  // not in gradients
  }
  return gradient;
}

constexpr int kThreads = 256;  ///< of a block

#if MPSCNN_ON_GPU

/// Return the value of the thread of the warp whose number differs in the bits of `distance`.
template <class T>
MPSCNN_HOST_DEVICE T shuffled(const T& value, int distance) {
  static_assert(sizeof(T) % 4 == 0);
  T result;
  for (unsigned i = 0; i < sizeof(T) / 4; ++i)
    reinterpret_cast<unsigned*>(&result)[i] =
        __shfl_xor_sync(0xffffffffu, reinterpret_cast<const unsigned*>(&value)[i], distance);
  return result;
}

/// A warp of threads that computes together, with the calls of a block.
class Warp {
 public:
  template <class Body>
  MPSCNN_HOST_DEVICE void for_each(i64 count, const Body& body) const {
    for (i64 i = threadIdx.x % 32; i < count; i += 32) body(i);
    __syncwarp();
  }
  /// `combine` of two values gives the same bits in either order.
  template <class T, class Body, class Combine>
  MPSCNN_HOST_DEVICE T reduce(i64 count, const T& first, const Body& body, const Combine& combine) const {
    T value = first;
    for (i64 i = threadIdx.x % 32; i < count; i += 32) value = combine(value, body(i));
    for (int distance = 16; distance > 0; distance /= 2) value = combine(value, shuffled(value, distance));
    return value;
  }
};

/// A block of threads that computes together. Each call is made by all threads and ends with a barrier.
class Block {
 public:
  /// Call body(i) for each i in [0, count).
  template <class Body>
  MPSCNN_HOST_DEVICE void for_each(i64 count, const Body& body) const {
    for (i64 i = threadIdx.x; i < count; i += blockDim.x) body(i);
    __syncthreads();
  }
  /// Return the value of `first`, combined with body(i) for each i in [0, count) by `combine`: associative and
  /// commutative, with `first` as its neutral element. T is made of 32-bit words.
  template <class T, class Body, class Combine>
  MPSCNN_HOST_DEVICE T reduce(i64 count, const T& first, const Body& body, const Combine& combine) const {
    __shared__ __align__(16) unsigned char memory[32 * sizeof(T)];
    T* const parts = reinterpret_cast<T*>(memory);
    T value = first;
    for (i64 i = threadIdx.x; i < count; i += blockDim.x) value = combine(value, body(i));
    for (int distance = 16; distance > 0; distance /= 2) value = combine(value, shuffled(value, distance));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (unsigned i = 1; i < blockDim.x / 32; ++i) value = combine(value, parts[i]);
    __syncthreads();
    return value;
  }
  /// Return whether this is the last of `count` blocks to call it with that counter. What all of them have stored
  /// before is then visible. The counter is 0 before the first call and after the last one.
  MPSCNN_HOST_DEVICE bool is_last(unsigned* counter, unsigned count) const {
    __syncthreads();
    bool result = false;
    if (threadIdx.x == 0) {
      // The barriers make the fences count for all threads of the block [PTX ISA, Memory Consistency Model].
      __threadfence();
      result = atomicInc(counter, count - 1) == count - 1;
      __threadfence();
    }
    return __syncthreads_or(result) != 0;
  }
};

/// Wait for the kernels before in the stream, and let the blocks of the next one start, which wait here in turn. Each
/// kernel begins so: a block may start while those of the kernel before end, which saves the time of a launch. The end
/// of a kernel is then also the end of all kernels before.
MPSCNN_HOST_DEVICE void wait_for_kernels_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Define a kernel whose body computes value `index` from `args`. A third argument: blocks per multiprocessor, for
/// which the compiler limits the registers.
#define MPSCNN_VALUE_KERNEL(name, Args, ...)                                   \
  MPSCNN_HOST_DEVICE void name##_body(const Args& args, i64 index);            \
  extern "C" __global__ void __launch_bounds__(256 __VA_OPT__(, ) __VA_ARGS__) \
      name(const __grid_constant__ Args args, i64 count) {                     \
    wait_for_kernels_before();                                                 \
    const i64 index = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; \
    if (index < count) name##_body(args, index);                               \
  }                                                                            \
  MPSCNN_HOST_DEVICE void name##_body(const Args& args, i64 index)

/// Define a kernel whose body computes part `index` from `args` with all threads of `block`.
#define MPSCNN_BLOCK_KERNEL(name, Args, ...)                                            \
  MPSCNN_HOST_DEVICE void name##_body(const Args& args, i64 index, const Block& block); \
  extern "C" __global__ void __launch_bounds__(256 __VA_OPT__(, ) __VA_ARGS__)          \
      name(const __grid_constant__ Args args, i64 count) {                              \
    wait_for_kernels_before();                                                          \
    name##_body(args, blockIdx.x, Block());                                             \
  }                                                                                     \
  MPSCNN_HOST_DEVICE void name##_body(const Args& args, i64 index, const Block& block)

/// Define a kernel whose body computes part `index` from `args` with all threads of `warp`.
#define MPSCNN_WARP_KERNEL(name, Args, ...)                                              \
  MPSCNN_HOST_DEVICE void name##_body(const Args& args, i64 index, const Warp& warp);    \
  extern "C" __global__ void __launch_bounds__(256 __VA_OPT__(, ) __VA_ARGS__)           \
      name(const __grid_constant__ Args args, i64 count) {                               \
    wait_for_kernels_before();                                                           \
    const i64 index = blockIdx.x * static_cast<i64>(blockDim.x / 32) + threadIdx.x / 32; \
    if (index < count) name##_body(args, index, Warp());                                 \
  }                                                                                      \
  MPSCNN_HOST_DEVICE void name##_body(const Args& args, i64 index, const Warp& warp)

#else

class Block {
 public:
  template <class Body>
  void for_each(i64 count, const Body& body) const {
    for (i64 i = 0; i < count; ++i) body(i);
  }
  template <class T, class Body, class Combine>
  T reduce(i64 count, const T& first, const Body& body, const Combine& combine) const {
    T value = first;
    for (i64 i = 0; i < count; ++i) value = combine(value, body(i));
    return value;
  }
  bool is_last(unsigned* counter, unsigned count) const {
    if (++*counter < count) return false;
    *counter = 0;
    return true;
  }
};

using Warp = Block;

/// A kernel: the file that defines it, its name, and how many threads compute one index.
template <class Args>
struct Kernel {
  const char* file;
  const char* name;
  int threads;
};

/// A kernel whose blocks have more shared memory than 48 KB.
template <class Args>
struct LargeKernel : Kernel<Args> {
  unsigned shared_bytes;
};

/// Kernels as functions of the host, for cuda-host; filled by host_kernels.cpp.
using HostFunction = void (*)(const void* args, i64 count);
struct HostKernel {
  HostFunction function;
  std::size_t bytes;  ///< of its arguments
};
void register_host_kernel(const char* name, HostKernel kernel);

#if defined(MPSCNN_REGISTER_KERNELS)
#define MPSCNN_REGISTER_KERNEL(name, Args, ...) \
  const bool name##_is_registered = (register_host_kernel(#name, {__VA_ARGS__, sizeof(Args)}), true);
#else
#define MPSCNN_REGISTER_KERNEL(name, Args, ...)
#endif

#define MPSCNN_VALUE_KERNEL(name, Args, ...)                                         \
  inline constexpr Kernel<Args> name{kFile, #name, 1};                               \
  inline void name##_body(const Args& args, i64 index);                              \
  MPSCNN_REGISTER_KERNEL(name, Args, [](const void* args, i64 count) {               \
    for (i64 i = 0; i < count; ++i) name##_body(*static_cast<const Args*>(args), i); \
  })                                                                                 \
  inline void name##_body([[maybe_unused]] const Args& args, [[maybe_unused]] i64 index)

#define MPSCNN_BLOCK_KERNEL(name, Args, ...)                                                  \
  inline constexpr Kernel<Args> name{kFile, #name, kThreads};                                 \
  inline void name##_body(const Args& args, i64 index, const Block& block);                   \
  MPSCNN_REGISTER_KERNEL(name, Args, [](const void* args, i64 count) {                        \
    for (i64 i = 0; i < count; ++i) name##_body(*static_cast<const Args*>(args), i, Block()); \
  })                                                                                          \
  inline void name##_body([[maybe_unused]] const Args& args, [[maybe_unused]] i64 index,      \
                          [[maybe_unused]] const Block& block)

#define MPSCNN_WARP_KERNEL(name, Args, ...)                                                  \
  inline constexpr Kernel<Args> name{kFile, #name, 32};                                      \
  inline void name##_body(const Args& args, i64 index, const Warp& warp);                    \
  MPSCNN_REGISTER_KERNEL(name, Args, [](const void* args, i64 count) {                       \
    for (i64 i = 0; i < count; ++i) name##_body(*static_cast<const Args*>(args), i, Warp()); \
  })                                                                                         \
  inline void name##_body([[maybe_unused]] const Args& args, [[maybe_unused]] i64 index,     \
                          [[maybe_unused]] const Warp& warp)

#endif

}  // namespace openmps::cuda

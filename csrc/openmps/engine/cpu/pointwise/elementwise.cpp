// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/pointwise/elementwise.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/cpu/pointwise/vectors.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/parallel.hpp"
#include "engine/shared/rows.hpp"

namespace openmps::cpu {
namespace {

constexpr std::int64_t kGrain = 32 * 1024;  // min values per thread
constexpr std::int64_t kChunk = 1024;       // values converted at a time: fits the first-level cache

/// Runs of adjacent values of both views: everything if both are dense, else rows, else pixels.
struct Runs {
  std::int64_t count, length;  // number of runs, values in each
  std::int64_t per_h, per_n;   // runs in a row, runs in an image
  std::int64_t pixels_per_run;

  Runs(const Tensor& a, const Tensor& b) {
    const auto rows_are_dense = [](const Tensor& t) { return t.w == 1 || t.w_stride == t.c; };
    if (a.is_dense() && b.is_dense()) {
      pixels_per_run = a.n * a.h * a.w, count = per_h = per_n = 1;
    } else if (rows_are_dense(a) && rows_are_dense(b)) {
      pixels_per_run = a.w, per_h = 1, per_n = a.h, count = a.n * a.h;
    } else {
      pixels_per_run = 1, per_h = a.w, per_n = a.h * a.w, count = a.n * a.h * a.w;
    }
    length = pixels_per_run * a.c;
  }
};

/// Call body(src, dst, values) for all runs of whole pixels, threaded. Long runs are split at multiples of the channel
/// count.
template <class Body>
void for_runs(const Tensor& src, const Tensor& dst, const Body& body) {
  const Runs runs(src, dst);
  const std::int64_t c = src.c;
  const int threads = threads_for(src.size(), kGrain);
  if (runs.count == 1) {
    const auto src_pixel = c * static_cast<std::int64_t>(size_of(src.format));
    const auto dst_pixel = c * static_cast<std::int64_t>(size_of(dst.format));
    parallel_ranges(runs.pixels_per_run, threads, [&](std::int64_t begin, std::int64_t end) {
      body(src.data + begin * src_pixel, dst.data + begin * dst_pixel, (end - begin) * c);
    });
    return;
  }
  parallel_ranges(runs.count, threads, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t n = begin / runs.per_n, y = begin % runs.per_n / runs.per_h, x = begin % runs.per_h;
    for (std::int64_t i = begin; i < end; ++i) {
      body(src.at(n, y, x), dst.at(n, y, x), runs.length);
      if (++x == runs.per_h) {
        x = 0;
        if (++y == src.h) y = 0, ++n;
      }
    }
  });
}

/// Runs of channel slices are usually short; calling memcpy for 16 bytes would be most of the work.
inline void copy_run(std::byte* dst, const std::byte* src, std::size_t bytes) {
  if (bytes == 16) {
    std::memcpy(dst, src, 16);
  } else {
    std::memcpy(dst, src, bytes);
  }
}

/// Copy `count` runs of `bytes`; steps in bytes.
template <std::int64_t bytes>
void copy_runs(std::byte* dst, std::int64_t dst_step, const std::byte* src, std::int64_t src_step, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(dst + i * dst_step, src + i * src_step, bytes);
}

struct CopyCall {
  Tensor src, dst;
};

/// Copy channel slices that copy_runs() has a size for, row by row.
const char* copy_slices(const CopyCall& call) {
  const Tensor &src = call.src, &dst = call.dst;
  if (src.format != dst.format) return "formats differ";
  const auto size = static_cast<std::int64_t>(size_of(src.format));
  const int threads = threads_for(src.size(), kGrain);
  if (src.w_stride == src.c && dst.w_stride == dst.c) return "pixels are adjacent";
  if (src.n * src.h < threads) return "fewer rows than threads";
  const auto rows = [&](auto copy_row) {
    parallel_ranges(src.n * src.h, threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t n = i / src.h, y = i % src.h;
        copy_row(dst.at(n, y), dst.w_stride * size, src.at(n, y), src.w_stride * size, src.w);
      }
    });
    return nullptr;
  };
  switch (src.c * size) {
    case 16: return rows(copy_runs<16>);
    case 32: return rows(copy_runs<32>);
    case 64: return rows(copy_runs<64>);
    case 128: return rows(copy_runs<128>);
    default: return "pixels of another size";
  }
}

const char* copy_bytes(const CopyCall& call) {
  if (call.src.format != call.dst.format) return "formats differ";
  const auto size = static_cast<std::int64_t>(size_of(call.src.format));
  for_runs(call.src, call.dst, [size](const std::byte* s, std::byte* d, std::int64_t count) {
    copy_run(d, s, static_cast<std::size_t>(count * size));
  });
  return nullptr;
}

const char* copy_from_float(const CopyCall& call) {
  if (call.src.format != Format::float32) return "the source is not float32";
  for_runs(call.src, call.dst, [format = call.dst.format](const std::byte* s, std::byte* d, std::int64_t count) {
    row_from_float(reinterpret_cast<const float*>(s), d, format, count);
  });
  return nullptr;
}

const char* copy_to_float(const CopyCall& call) {
  if (call.dst.format != Format::float32) return "the result is not float32";
  for_runs(call.src, call.dst, [format = call.src.format](const std::byte* s, std::byte* d, std::int64_t count) {
    row_to_float(s, format, reinterpret_cast<float*>(d), count);
  });
  return nullptr;
}

const char* copy_through_floats(const CopyCall& call) {
  for_runs(call.src, call.dst,
           [from = call.src.format, to = call.dst.format](const std::byte* s, std::byte* d, std::int64_t count) {
             float values[kChunk];
             for (std::int64_t i = 0; i < count; i += kChunk) {
               const std::int64_t part = std::min(kChunk, count - i);
               row_to_float(s + i * static_cast<std::int64_t>(size_of(from)), from, values, part);
               row_from_float(values, d + i * static_cast<std::int64_t>(size_of(to)), to, part);
             }
           });
  return nullptr;
}

constexpr Implementation<CopyCall> kCopies[] = {
    {"copy_slices", copy_slices},
    {"copy_bytes", copy_bytes},
    {"copy_to_float", copy_to_float},
    {"copy_from_float", copy_from_float},
    {"copy_through_floats", copy_through_floats},
};
const ImplementationNames kCopyNames(kCopies);

struct NeuronCall {
  Tensor src, dst;
  const Neuron& neuron;
  const float* bias;
};

const char* neuron_of_floats(const NeuronCall& call) {
  if (call.src.format != Format::float32 || call.dst.format != Format::float32) return "not float32";
  for_runs(call.src, call.dst, [&, c = call.src.c](const std::byte* s, std::byte* d, std::int64_t count) {
    row_neuron(call.neuron, reinterpret_cast<const float*>(s), reinterpret_cast<float*>(d), count, c, call.bias);
  });
  return nullptr;
}

#if defined(__x86_64__)
template <class From, class To>
MPSCNN_AVX512 void activate_values(const Activation& activation, const From* from, To* to, std::int64_t count) {
  const Activation f = activation;
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(0xffff, to + i, activate(f, load(0xffff, from + i)));
  const auto rest = static_cast<__mmask16>((1 << (count - i)) - 1);
  if (rest) store(rest, to + i, activate(f, load(rest, from + i)));
}
MPSCNN_AVX2 void activate_floats(const Activation& activation, const float* from, float* to, std::int64_t count) {
  const Activation f = activation;
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) store(All8(), to + i, activate(f, load(All8(), from + i)));
  const Lanes8 rest = {count - i};
  if (i < count) store(rest, to + i, activate(f, load(rest, from + i)));
}
#endif

const char* neuron_in_vectors(const NeuronCall& call) {
#if defined(__x86_64__)
  if (!has_avx512() && !has_avx2()) return "the processor has no AVX2";
  if (call.bias) return "a bias";
  const std::optional<Activation> activation = activation_of(call.neuron);
  if (!activation) return "a neuron without vectors";
  const bool is_float = call.src.format == Format::float32, to_float = call.dst.format == Format::float32;
  if (!has_avx512()) {
    if (!is_float || !to_float) return "not float32";
    for_runs(call.src, call.dst, [&](const std::byte* s, std::byte* d, std::int64_t count) {
      activate_floats(*activation, reinterpret_cast<const float*>(s), reinterpret_cast<float*>(d), count);
    });
    return nullptr;
  }
  const auto run = [&]<class From, class To>(From, To) {
    for_runs(call.src, call.dst, [&](const std::byte* s, std::byte* d, std::int64_t count) {
      activate_values(*activation, reinterpret_cast<const From*>(s), reinterpret_cast<To*>(d), count);
    });
  };
  const bool to_bfloat = call.dst.format == Format::bfloat16 && has_avx512_bfloat16();
  if (is_float && to_float)
    run(float{}, float{});
  else if (is_float && to_bfloat)
    run(float{}, std::uint16_t{});
  else if (call.src.format == Format::bfloat16 && to_bfloat)
    run(std::uint16_t{}, std::uint16_t{});
  else
    return "other formats than float32 and bfloat16";
  return nullptr;
#else
  static_cast<void>(call);
  return "not for this processor";
#endif
}

/// Through a small buffer of whole pixels; pixels with more channels than it holds need a larger one per thread.
const char* neuron_through_floats(const NeuronCall& call) {
  const Tensor &src = call.src, &dst = call.dst;
  const std::int64_t c = src.c, block = c > kChunk ? c : kChunk / c * c;
  const auto convert = [&](const std::byte* s, std::byte* d, std::int64_t count, float* values) {
    for (std::int64_t i = 0; i < count; i += block) {
      const std::int64_t part = std::min(block, count - i);
      row_to_float(s + i * static_cast<std::int64_t>(size_of(src.format)), src.format, values, part);
      row_neuron(call.neuron, values, values, part, c, call.bias);
      row_from_float(values, d + i * static_cast<std::int64_t>(size_of(dst.format)), dst.format, part);
    }
  };
  if (block <= kChunk) {
    for_runs(src, dst, [&](const std::byte* s, std::byte* d, std::int64_t count) {
      float values[kChunk];
      convert(s, d, count, values);
    });
  } else {
    std::vector<float> buffers(static_cast<std::size_t>(block * max_threads()));
    for_runs(src, dst, [&](const std::byte* s, std::byte* d, std::int64_t count) {
      convert(s, d, count, buffers.data() + block * thread_number());
    });
  }
  return nullptr;
}

constexpr Implementation<NeuronCall> kNeurons[] = {
    {"neuron_in_vectors", neuron_in_vectors},
    {"neuron_of_floats", neuron_of_floats},
    {"neuron_through_floats", neuron_through_floats},
};
const ImplementationNames kNeuronNames(kNeurons);

const char* buffer_copy(const BufferCopyProblem& problem) {
  const std::byte* const src = problem.src->data() + problem.src_offset;
  std::byte* const dst = problem.dst->data() + problem.dst_offset;
  const auto bytes = static_cast<std::int64_t>(problem.bytes);
  parallel_ranges(bytes, threads_for(bytes, 512 * 1024), [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(dst + begin, src + begin, static_cast<std::size_t>(end - begin));
  });
  return nullptr;
}

constexpr Implementation<BufferCopyProblem> kBufferCopies[] = {{"buffer_copy", buffer_copy}};
const ImplementationNames kBufferCopyNames(kBufferCopies);

const char* buffer_fill(const BufferFillProblem& problem) {
  fill_bytes(problem.dst->data() + problem.offset, problem.value, problem.bytes);
  return nullptr;
}

constexpr Implementation<BufferFillProblem> kBufferFills[] = {{"buffer_fill", buffer_fill}};
const ImplementationNames kBufferFillNames(kBufferFills);

}  // namespace

void copy(const Tensor& src, const Tensor& dst) { run_first("copy", kCopies, CopyCall{src, dst}); }

Tensor dense(const Tensor& image, Format format, Scratch& block) {
  if (image.format == format && image.is_dense()) return image;
  ScratchTensor copied(image.n, image.h, image.w, image.c, format);
  copy(image, copied.tensor);
  block = std::move(copied.memory);
  return copied.tensor;
}

void activate(const Tensor& src, const Tensor& dst, const Neuron& neuron, const float* bias) {
  run_first("neuron", kNeurons, NeuronCall{src, dst, neuron, bias});
}

void fill_pixels(const Tensor& dst, const Neuron& neuron, const float* bias) {
  std::vector<float> pixel(static_cast<std::size_t>(dst.c), 0.0f);
  row_neuron(neuron, pixel.data(), pixel.data(), dst.c, dst.c, bias);
  std::vector<std::byte> stored(pixel.size() * size_of(dst.format));
  row_from_float(pixel.data(), stored.data(), dst.format, dst.c);
  parallel_ranges(dst.n * dst.h, threads_for(dst.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t x = 0; x < dst.w; ++x) {
        std::memcpy(dst.at(row / dst.h, row % dst.h, x), stored.data(), stored.size());
      }
    }
  });
}

void pad(const Tensor& src, std::int64_t start_h, std::int64_t start_w, Edge edge, const Tensor& dst) {
  const auto pixel = static_cast<std::size_t>(src.c) * 4;
  const std::int64_t first = std::clamp<std::int64_t>(-start_w, 0, dst.w);  // columns [first, last) are in src
  const std::int64_t last = std::clamp<std::int64_t>(src.w - start_w, first, dst.w);
  const bool row_is_dense = src.w_stride == src.c;
  parallel_ranges(dst.n * dst.h, threads_for(dst.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t n = i / dst.h, y = start_h + i % dst.h;
      float* row = dst.floats(n, i % dst.h);
      if (edge == Edge::zero && (y < 0 || y >= src.h)) {
        std::memset(row, 0, static_cast<std::size_t>(dst.w) * pixel);
        continue;
      }
      const std::int64_t sy = std::clamp<std::int64_t>(y, 0, src.h - 1);
      const auto put = [&](std::int64_t x, std::int64_t sx, std::int64_t count) {
        row_to_float(src.at(n, sy, sx), src.format, row + x * src.c, count);
      };
      if (edge == Edge::zero) {
        std::memset(row, 0, static_cast<std::size_t>(first) * pixel);
        std::memset(row + last * src.c, 0, static_cast<std::size_t>(dst.w - last) * pixel);
      } else {
        for (std::int64_t x = 0; x < first; ++x) put(x, std::clamp<std::int64_t>(start_w + x, 0, src.w - 1), src.c);
        for (std::int64_t x = last; x < dst.w; ++x) put(x, std::clamp<std::int64_t>(start_w + x, 0, src.w - 1), src.c);
      }
      if (first >= last) continue;
      if (row_is_dense) {
        put(first, start_w + first, (last - first) * src.c);
      } else {
        for (std::int64_t x = first; x < last; ++x) put(x, start_w + x, src.c);
      }
    }
  });
}

void depth_to_space(const Tensor& src, const Tensor& dst, std::int64_t r) {
  const auto size = static_cast<std::int64_t>(size_of(dst.format)),
             from_size = static_cast<std::int64_t>(size_of(src.format));
  const auto put = [&](const std::byte* from, std::byte* to, std::int64_t count) {
    if (src.format == dst.format) {
      copy_run(to, from, static_cast<std::size_t>(count * size));
    } else {
      row_from_float(reinterpret_cast<const float*>(from), to, dst.format, count);
    }
  };
  parallel_ranges(dst.n * dst.h, threads_for(dst.size(), kGrain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t n = i / dst.h, y = i % dst.h;
      const std::byte* from = src.at(n, y / r) + r * (y % r) * dst.c * from_size;
      // r adjacent pixels of dst are a run of r * c values of src.
      if (dst.w_stride == dst.c) {
        std::byte* to = dst.at(n, y);
        const std::int64_t run = r * dst.c, total = dst.w * dst.c;
        for (std::int64_t at = 0; at < total; at += run, from += src.c * from_size)
          put(from, to + at * size, std::min(run, total - at));
      } else {
        for (std::int64_t x = 0; x < dst.w; ++x)
          put(from + (x / r * src.c + x % r * dst.c) * from_size, dst.at(n, y, x), dst.c);
      }
    }
  });
}

void run(const NeuronProblem& problem) { activate(tensor_of(problem.src), tensor_of(problem.dst), problem.neuron); }

void run(const CopyProblem& problem) { copy(tensor_of(problem.src), tensor_of(problem.dst)); }

void run(const BufferCopyProblem& problem) { run_first("buffer_copy", kBufferCopies, problem); }

void run(const BufferFillProblem& problem) { run_first("buffer_fill", kBufferFills, problem); }

void fill_bytes(std::byte* dst, std::uint8_t value, std::size_t bytes) {
  const auto threads = threads_for(static_cast<std::int64_t>(bytes), 512 * 1024);
  parallel_ranges(static_cast<std::int64_t>(bytes), threads, [&](std::int64_t begin, std::int64_t end) {
    std::memset(dst + begin, value, static_cast<std::size_t>(end - begin));
  });
}

}  // namespace openmps::cpu

// SPDX-License-Identifier: Apache-2.0
// Memory: a block of an engine's memory, allocated when it is first touched; and views of images in it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace openmps {

class Engine;

/// A block that is allocated on first use and freed with its last owner. Safe from any thread.
class Memory {
 public:
  /// Memory of the engine's own, zero bytes not promised. Throws nothing: data() does.
  static std::shared_ptr<Memory> lazy(std::shared_ptr<Engine> engine, std::size_t bytes);
  /// Somebody else's memory; `release` (may be empty) runs when the last owner lets go, on any thread.
  static std::shared_ptr<Memory> wrap(void* data, std::size_t bytes, std::function<void()> release);
  /// A part of another block; keeps it alive, allocates with it.
  static std::shared_ptr<Memory> part(std::shared_ptr<Memory> parent, std::size_t offset, std::size_t bytes);

  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// First byte, host-visible; allocates. Throws std::bad_alloc.
  std::byte* data();
  std::size_t size() const { return bytes_; }
  bool is_allocated() const;
  /// The engine whose memory it is, as lazy() made it; null for the others.
  const Engine* owner() const { return engine_.get(); }

  /// For memory of lazy() that is not allocated: from now on it lies at `data`, which stays the caller's, until
  /// displace(). Nobody else may use the memory meanwhile.
  void place(std::byte* data) { data_.store(data, std::memory_order_release); }
  void displace() { data_.store(nullptr, std::memory_order_release); }

  /// Managed storage [MTLResource.h]: from now on the CPU has a copy of its own, which holds bytes of `fill` until
  /// something is copied to it. data() is the GPU's.
  void separate_cpu_copy(std::byte fill);
  bool has_cpu_copy() const { return cpu_fill_.has_value(); }
  /// First byte for the CPU: of its copy, if it has one. Allocates. Throws std::bad_alloc.
  std::byte* cpu_data();
  /// Between the copies; nothing where memory is one.
  void copy_to_cpu();
  void copy_to_gpu(std::size_t offset, std::size_t bytes);

 private:
  Memory() = default;

  std::shared_ptr<Engine> engine_;  ///< set for lazy()
  std::shared_ptr<Memory> parent_;  ///< set for part()
  std::size_t offset_ = 0;
  std::function<void()> release_;  ///< set for wrap()
  std::mutex mutex_;               ///< guards the first allocation
  std::atomic<std::byte*> data_ = nullptr;
  std::size_t bytes_ = 0;
  std::optional<std::byte> cpu_fill_;
  std::unique_ptr<std::byte[]> cpu_copy_;
};

/// How one channel of one pixel is stored.
enum class Format : std::uint8_t { unorm8, unorm16, float16, float32 };

constexpr std::size_t size_of(Format format) {
  return format == Format::unorm8 ? 1 : format == Format::float32 ? 4 : 2;
}

/// A rectangle of pixels of a run of channels of a run of images. Channels of a pixel are adjacent (stride 1).
/// Strides count elements and are positive; extents are > 0.
struct ImageView {
  std::shared_ptr<Memory> memory;
  std::size_t offset = 0;  ///< bytes from memory->data() to (image 0, row 0, column 0, channel 0)
  Format format = Format::float32;
  std::int64_t n = 1, h = 1, w = 1, c = 1;
  std::int64_t n_stride = 0, h_stride = 0, w_stride = 0;

  /// NHWC without gaps.
  bool is_dense() const {
    return (w == 1 || w_stride == c) && (h == 1 || h_stride == w * c) && (n == 1 || n_stride == h * w * c);
  }
  std::int64_t size() const { return n * h * w * c; }
  /// The same memory, `images` from `first_image` on, and so forth. The caller has checked the bounds.
  ImageView images(std::int64_t first, std::int64_t count) const;
  ImageView region(std::int64_t y, std::int64_t x, std::int64_t height, std::int64_t width) const;
  ImageView channels(std::int64_t first, std::int64_t count) const;

  bool operator==(const ImageView&) const = default;
};

}  // namespace openmps

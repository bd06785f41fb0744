// SPDX-License-Identifier: Apache-2.0
// Memory: a block of an engine's memory, allocated on first use; and views of images in it.
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

/// Location of a block.
enum class Storage : std::uint8_t {
  host,    ///< host and engine reach it by the same address
  device,  ///< only the engine reaches it; the host cannot use its address
};

/// Memory use of an engine, in bytes.
struct MemoryUse {
  std::uint64_t allocated = 0;  ///< blocks in use
  std::uint64_t peak = 0;       ///< max of `allocated` since reset_peak_bytes()
  std::uint64_t cached = 0;     ///< free blocks that are kept
};

/// A block that is allocated on first use and freed with its last owner. Safe from any thread.
class Memory {
 public:
  /// Make a block of the engine's memory, contents undefined. Does not allocate.
  static std::shared_ptr<Memory> lazy(std::shared_ptr<Engine> engine, std::size_t bytes,
                                      Storage storage = Storage::host);
  /// The same, in the storage of the engine's images.
  static std::shared_ptr<Memory> lazy_image(std::shared_ptr<Engine> engine, std::size_t bytes);
  /// The same, in the engine's storage of buffers that the program shares with it. A block in device memory moves to
  /// the host's when data() is first called.
  static std::shared_ptr<Memory> lazy_buffer(std::shared_ptr<Engine> engine, std::size_t bytes);
  /// Wrap the caller's host memory; `release` (may be empty) runs when the last owner releases it, on any thread.
  static std::shared_ptr<Memory> wrap(void* data, std::size_t bytes, std::function<void()> release);
  /// The same for memory of the engine's device that another library allocated.
  static std::shared_ptr<Memory> wrap_device(std::shared_ptr<Engine> engine, std::byte* address, std::size_t bytes,
                                             std::function<void()> release);
  /// Make a part of another block; it keeps that block alive and allocates with it. `release` as in wrap().
  static std::shared_ptr<Memory> part(std::shared_ptr<Memory> parent, std::size_t offset, std::size_t bytes,
                                      std::function<void()> release = {});

  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Return the first byte in the engine's address space; allocates. Throws std::bad_alloc.
  std::byte* address();
  /// Return the first byte in the host's address space; allocates. The block does not move afterwards. Throws
  /// std::bad_alloc, and std::logic_error for device memory that does not move, which needs a HostAccess.
  std::byte* data();
  std::size_t size() const { return bytes_; }
  Storage storage() const { return parent_ ? parent_->storage() : storage_.load(std::memory_order_acquire); }
  bool is_allocated() const;
  /// Return the engine passed to lazy() or wrap_device(); null for other memory.
  const Engine* owner() const { return engine_.get(); }
  /// Return whether the bytes are the owner's and this block's alone: it is neither wrapped memory nor a part.
  bool is_allocated_by_owner() const { return engine_ && !release_; }
  /// Return the block that this one is a part of, or this one.
  Memory& root() { return parent_ ? parent_->root() : *this; }
  /// Keep what an engine derives from the caller's memory; `make` makes it on the first call. It is destroyed before
  /// `release` of wrap() runs.
  const std::shared_ptr<void>& derived(const std::function<std::shared_ptr<void>(std::byte* data)>& make);
  /// Copy a range to or from the host. Throws like address(), and std::runtime_error if the device fails.
  void download(std::size_t offset, std::size_t bytes, void* to);
  void upload(std::size_t offset, std::size_t bytes, const void* from);
  /// Set all bytes to zero. Throws likewise.
  void clear();

  /// Set the address of unallocated memory of lazy() to `data`, which remains the caller's, until displace(). No other
  /// thread may use the memory meanwhile.
  void place(std::byte* data) { data_.store(data, std::memory_order_release); }
  void displace() { data_.store(nullptr, std::memory_order_release); }

  /// Managed storage [MTLResource.h]: from now on the CPU has its own copy, filled with `fill` until something is
  /// copied to it. address() is the GPU's.
  void separate_cpu_copy(std::byte fill);
  bool has_cpu_copy() const { return cpu_fill_.has_value(); }
  /// Return the first byte for the CPU, of its copy if it has one. Allocates. Throws std::bad_alloc.
  std::byte* cpu_data();
  /// Copy between the CPU's and the GPU's bytes; no-op if there is no CPU copy.
  void copy_to_cpu();
  void copy_to_gpu(std::size_t offset, std::size_t bytes);

 private:
  Memory() = default;
  Engine* engine() const { return parent_ ? parent_->engine() : engine_.get(); }
  void move_to_host();
  template <class Use>
  void while_placed(const Use& use);

  std::shared_ptr<Engine> engine_;  ///< set for lazy() and wrap_device()
  std::atomic<Storage> storage_ = Storage::host;
  bool moves_ = false;              ///< of lazy_buffer(): to the host; no block is a part of it
  std::shared_ptr<Memory> parent_;  ///< set for part()
  std::size_t offset_ = 0;
  std::function<void()> release_;
  std::shared_ptr<void> derived_;
  std::mutex mutex_;  ///< guards the first allocation, and derived_
  std::atomic<std::byte*> data_ = nullptr;
  std::size_t bytes_ = 0;
  std::optional<std::byte> cpu_fill_;
  std::unique_ptr<std::byte[]> cpu_copy_;
};

/// Host access to a range of memory: in place if the host reaches it, otherwise through a copy.
class HostAccess {
 public:
  enum class Mode : std::uint8_t {
    read,
    write,   ///< every byte of the range is written
    update,  ///< some bytes of the range are written
  };
  /// data() is null if memory runs out or the device fails.
  HostAccess(std::shared_ptr<Memory> memory, std::size_t offset, std::size_t bytes, Mode mode) noexcept;
  HostAccess(std::shared_ptr<Memory> memory, Mode mode) noexcept : HostAccess(memory, 0, memory->size(), mode) {}
  /// Write the copy back.
  ~HostAccess();
  HostAccess(const HostAccess&) = delete;
  HostAccess& operator=(const HostAccess&) = delete;

  /// First byte of the range.
  std::byte* data() const { return data_; }

 private:
  const std::shared_ptr<Memory> memory_;
  const std::size_t offset_, bytes_;
  const Mode mode_;
  std::unique_ptr<std::byte[]> copy_;
  std::byte* data_ = nullptr;
};

/// Storage format of one channel of a pixel. Images have no bfloat16: plans store some results so (plan/narrowing.hpp).
enum class Format : std::uint8_t { unorm8, unorm16, float16, float32, bfloat16 };

constexpr std::size_t size_of(Format format) {
  return format == Format::unorm8 ? 1 : format == Format::float32 ? 4 : 2;
}

/// View of a rectangle of pixels, a range of channels and a range of images. Channels of a pixel are adjacent (stride
/// 1). Strides count elements and are positive; extents are > 0.
struct ImageView {
  std::shared_ptr<Memory> memory;
  std::size_t offset = 0;  ///< bytes from the start of the memory to (image 0, row 0, column 0, channel 0)
  Format format = Format::float32;
  std::int64_t n = 1, h = 1, w = 1, c = 1;
  std::int64_t n_stride = 0, h_stride = 0, w_stride = 0;

  /// NHWC without gaps.
  bool is_dense() const {
    return (w == 1 || w_stride == c) && (h == 1 || h_stride == w * c) && (n == 1 || n_stride == h * w * c);
  }
  std::int64_t size() const { return n * h * w * c; }
  /// Return a view of `count` images from `first` on, and so forth. The caller has checked the bounds.
  ImageView images(std::int64_t first, std::int64_t count) const;
  ImageView region(std::int64_t y, std::int64_t x, std::int64_t height, std::int64_t width) const;
  ImageView channels(std::int64_t first, std::int64_t count) const;

  bool operator==(const ImageView&) const = default;
};

}  // namespace openmps

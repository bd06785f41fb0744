// SPDX-License-Identifier: Apache-2.0
#include "engine/memory.hpp"

#include <cstring>
#include <stdexcept>

#include "engine/engine.hpp"

namespace openmps {

std::shared_ptr<Memory> Memory::lazy(std::shared_ptr<Engine> engine, std::size_t bytes, Storage storage) {
  std::shared_ptr<Memory> memory(new Memory);
  memory->engine_ = std::move(engine);
  memory->storage_ = storage;
  memory->bytes_ = bytes;
  return memory;
}

std::shared_ptr<Memory> Memory::lazy_image(std::shared_ptr<Engine> engine, std::size_t bytes) {
  const Storage storage = engine->image_storage();
  return lazy(std::move(engine), bytes, storage);
}

std::shared_ptr<Memory> Memory::lazy_buffer(std::shared_ptr<Engine> engine, std::size_t bytes) {
  const Storage storage = engine->buffer_storage();
  auto memory = lazy(std::move(engine), bytes, storage);
  memory->moves_ = storage == Storage::device;
  return memory;
}

std::shared_ptr<Memory> Memory::wrap(void* data, std::size_t bytes, std::function<void()> release) {
  std::shared_ptr<Memory> memory(new Memory);
  memory->release_ = std::move(release);
  memory->data_.store(static_cast<std::byte*>(data), std::memory_order_release);
  memory->bytes_ = bytes;
  return memory;
}

std::shared_ptr<Memory> Memory::wrap_device(std::shared_ptr<Engine> engine, std::byte* address, std::size_t bytes,
                                            std::function<void()> release) {
  auto memory = lazy(std::move(engine), bytes, Storage::device);
  memory->release_ = std::move(release);
  memory->place(address);
  return memory;
}

std::shared_ptr<Memory> Memory::part(std::shared_ptr<Memory> parent, std::size_t offset, std::size_t bytes,
                                     std::function<void()> release) {
  std::shared_ptr<Memory> memory(new Memory);
  memory->release_ = std::move(release);
  memory->parent_ = std::move(parent);
  memory->offset_ = offset;
  memory->bytes_ = bytes;
  return memory;
}

Memory::~Memory() {
  derived_ = nullptr;
  if (release_) {
    release_();
  } else if (engine_) {
    if (std::byte* data = data_.load(std::memory_order_acquire))
      engine_->deallocate(data, bytes_ ? bytes_ : 1, storage_);
  }
}

std::byte* Memory::data() {
  if (moves_)
    move_to_host();
  else if (storage() == Storage::device)
    throw std::logic_error("memory of a device was used as if the host could reach it.");
  return address();
}

std::byte* Memory::address() {
  if (std::byte* data = data_.load(std::memory_order_acquire)) return data;
  const std::lock_guard lock(mutex_);
  std::byte* data = data_.load(std::memory_order_relaxed);
  if (!data) {
    if (parent_) {
      data = parent_->address() + offset_;
    } else if (engine_) {
      data = engine_->allocate(bytes_ ? bytes_ : 1, storage_);
    }
    data_.store(data, std::memory_order_release);
  }
  return data;
}

const std::shared_ptr<void>& Memory::derived(const std::function<std::shared_ptr<void>(std::byte*)>& make) {
  std::byte* const data = address();
  const std::lock_guard lock(mutex_);
  if (!derived_) derived_ = make(data);
  return derived_;
}

void Memory::move_to_host() {
  if (storage() == Storage::host) return;
  engine_->while_idle([&] {
    const std::lock_guard lock(mutex_);
    if (storage() == Storage::host) return;
    std::byte* const before = data_.load(std::memory_order_relaxed);
    if (before) {
      std::byte* const now = engine_->allocate(bytes_ ? bytes_ : 1, Storage::host);
      try {
        engine_->download(now, before, bytes_);
      } catch (...) {
        engine_->deallocate(now, bytes_ ? bytes_ : 1, Storage::host);
        throw;
      }
      data_.store(now, std::memory_order_release);
      engine_->deallocate(before, bytes_ ? bytes_ : 1, Storage::device);
    }
    storage_.store(Storage::host, std::memory_order_release);
  });
}

void Memory::separate_cpu_copy(std::byte fill) { cpu_fill_ = fill; }

std::byte* Memory::cpu_data() {
  if (!cpu_fill_) return data();
  const std::lock_guard lock(mutex_);
  if (!cpu_copy_) {
    cpu_copy_.reset(new std::byte[bytes_ ? bytes_ : 1]);
    std::memset(cpu_copy_.get(), std::to_integer<int>(*cpu_fill_), bytes_);
  }
  return cpu_copy_.get();
}

void Memory::copy_to_cpu() {
  if (cpu_fill_) download(0, bytes_, cpu_data());
}

void Memory::copy_to_gpu(std::size_t offset, std::size_t bytes) {
  if (cpu_fill_) upload(offset, bytes, cpu_data() + offset);
}

/// Call `use` while the block does not move.
template <class Use>
void Memory::while_placed(const Use& use) {
  if (moves_)
    engine_->while_placed(use);
  else
    use();
}

void Memory::download(std::size_t offset, std::size_t bytes, void* to) {
  while_placed([&] {
    if (storage() == Storage::host)
      std::memcpy(to, address() + offset, bytes);
    else
      engine()->download(to, address() + offset, bytes);
  });
}

void Memory::upload(std::size_t offset, std::size_t bytes, const void* from) {
  while_placed([&] {
    if (storage() == Storage::host)
      std::memcpy(address() + offset, from, bytes);
    else
      engine()->upload(address() + offset, from, bytes);
  });
}

void Memory::clear() {
  while_placed([&] {
    if (storage() == Storage::host)
      std::memset(address(), 0, bytes_);
    else
      engine()->clear(address(), bytes_);
  });
}

HostAccess::HostAccess(std::shared_ptr<Memory> memory, std::size_t offset, std::size_t bytes, Mode mode) noexcept
    : memory_(std::move(memory)), offset_(offset), bytes_(bytes), mode_(mode) {
  try {
    if (memory_->storage() == Storage::host) {
      data_ = memory_->data() + offset;
      return;
    }
    copy_.reset(new std::byte[bytes ? bytes : 1]);
    if (mode == Mode::write)
      memory_->address();
    else
      memory_->download(offset, bytes, copy_.get());
    data_ = copy_.get();
  } catch (...) {  // data() is null then
  }
}

HostAccess::~HostAccess() {
  if (!copy_ || !data_ || mode_ == Mode::read) return;
  try {
    memory_->upload(offset_, bytes_, copy_.get());
  } catch (...) {  // the device is lost: every later command buffer fails with the reason
  }
}

bool Memory::is_allocated() const {
  if (parent_) return parent_->is_allocated();
  return data_.load(std::memory_order_acquire) != nullptr;
}

ImageView ImageView::images(std::int64_t first, std::int64_t count) const {
  ImageView view = *this;
  view.offset += static_cast<std::size_t>(first * n_stride) * size_of(format);
  view.n = count;
  return view;
}

ImageView ImageView::region(std::int64_t y, std::int64_t x, std::int64_t height, std::int64_t width) const {
  ImageView view = *this;
  view.offset += static_cast<std::size_t>(y * h_stride + x * w_stride) * size_of(format);
  view.h = height;
  view.w = width;
  return view;
}

ImageView ImageView::channels(std::int64_t first, std::int64_t count) const {
  ImageView view = *this;
  view.offset += static_cast<std::size_t>(first) * size_of(format);
  view.c = count;
  return view;
}

}  // namespace openmps

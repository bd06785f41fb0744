// SPDX-License-Identifier: Apache-2.0
// MTLDevice and MTLCommandQueue.
#include <mpscnn/device.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/pages.hpp>
#include <mpscnn/watched_memory.hpp>

#include <algorithm>
#include <mutex>

#include "common/available_threads.hpp"
#include "core/data_source/sharing.hh"
#include "core/device/device_impl.hh"
#include "core/device/objc_scope.hh"

namespace mpscnn {
namespace {

struct Devices {
  std::mutex mutex;
  std::vector<std::shared_ptr<Device>> devices;
};

Devices &all_devices() {
  static auto *all = new Devices;
  return *all;
}

std::shared_ptr<Device> wrap(id<MTLDevice> device) {
  auto impl = std::make_unique<Device::Impl>();
  impl->device = Ref<id<MTLDevice>>::retain(device);
  impl->queue =
      Ref<id<MTLCommandQueue>>::adopt([device newCommandQueueWithMaxCommandBufferCount:Device::Impl::kMaxUnfinished]);
  impl->shares_images = shares_images(device);
  if (id<DeviceWithMemory> own = with_memory(device)) impl->memory_space = {[own dlpackType], [own dlpackNumber]};
  impl->prefetches_temporaries = ![device respondsToSelector:@selector(plansTemporaryImages)];
  impl->differentiates_bounds = [device respondsToSelector:@selector(differentiatesBounds)];
  impl->computes_on_threads = [device respondsToSelector:@selector(computesOnThreads)] &&
                              [static_cast<id<DeviceOnThreads>>(static_cast<id>(device)) computesOnThreads];
  if (![device respondsToSelector:@selector(hasNoTimeLimit)]) impl->most_work = Device::Impl::kMostWork;
  return std::make_shared<Device>(std::move(impl));
}

/// Return the same object for a device every time: each has a queue, and queues are not ordered among each other.
std::shared_ptr<Device> known(id<MTLDevice> device) {
  const std::scoped_lock lock(all_devices().mutex);
  auto &devices = all_devices().devices;
  const auto found =
      std::ranges::find_if(devices, [device](const auto &one) { return one->impl().device.get() == device; });
  return found == devices.end() ? devices.emplace_back(wrap(device)) : *found;
}

std::shared_ptr<Device> make_default() {
  return guard([] {
    auto device = Ref<id<MTLDevice>>::adopt(MTLCreateSystemDefaultDevice());
    if (!device) throw std::runtime_error("Device: this machine has no Metal device.");
    check<NotImplementedError>([device.get() hasUnifiedMemory], "Device: ", text([device.get() name]),
                               " has memory of its own, and arrays are the CPU's: Apple silicon is needed.");
    return wrap(device.get());
  });
}

}  // namespace

Device::Device(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Device::~Device() = default;

std::shared_ptr<Device> Device::system_default() {
  static auto *device = [] {
    auto *made_default = new std::shared_ptr<Device>(make_default());
    const std::scoped_lock lock(all_devices().mutex);
    all_devices().devices.push_back(*made_default);
    return made_default;
  }();
  return *device;
}

std::vector<std::shared_ptr<Device>> made_devices() {
  const std::scoped_lock lock(all_devices().mutex);
  return all_devices().devices;
}

std::shared_ptr<Device> Device::named(const std::string &name) {
  const auto by_default = system_default();
  return guard([&]() -> std::shared_ptr<Device> {
    id device = by_default->impl().device.get();
    if ([device respondsToSelector:@selector(deviceOfEngine:)])
      if (id<MTLDevice> found = [static_cast<id<DevicesByName>>(device) deviceOfEngine:ns(name)]) return known(found);
    std::string names;
    for (const auto &one : all()) {
      if (one->name() == name) return one;
      names += say(names.empty() ? "\"" : ", \"", one->name(), "\"");
    }
    throw std::invalid_argument(say("Device: name (\"", name, "\") is not one of ", names, "."));
  });
}

std::vector<std::shared_ptr<Device>> Device::all() {
  return guard([] {
    std::vector<std::shared_ptr<Device>> devices{system_default()};
    auto list = Ref<NSArray<id<MTLDevice>> *>::adopt(MTLCopyAllDevices());
    for (id<MTLDevice> device in list.get()) {
      if (![device hasUnifiedMemory]) continue;
      if (const auto one = known(device); one != devices.front()) devices.push_back(one);
    }
    return devices;
  });
}

std::string Device::name() const {
  return guard([&] { return text([impl_->device.get() name]); });
}
std::uint64_t Device::allocated_bytes() const { return [impl_->device.get() currentAllocatedSize]; }

namespace {

id<CountedMemory> counted(id<MTLDevice> device) {
  return [device respondsToSelector:@selector(peakAllocatedSize)]
             ? static_cast<id<CountedMemory>>(static_cast<id>(device))
             : nil;
}

id<CountedMemory> counted_or_throw(const Device &device) {
  id<CountedMemory> memory = counted(device.impl().device.get());
  check<NotImplementedError>(memory != nil, "Device: ", device.name(), " does not tell what memory it keeps.");
  return memory;
}

}  // namespace

std::uint64_t Device::peak_bytes() const {
  if (id<CountedMemory> memory = counted(impl_->device.get())) return [memory peakAllocatedSize];
  impl_->note_allocated();
  return impl_->peak;
}

void Device::reset_peak_bytes() {
  if (id<CountedMemory> memory = counted(impl_->device.get()))
    [memory resetPeakAllocatedSize];
  else
    impl_->peak = allocated_bytes();
}

std::uint64_t Device::cached_bytes() const { return [counted_or_throw(*this) cachedSize]; }
void Device::free_cached_bytes() { [counted_or_throw(*this) freeCachedMemory]; }

std::uint64_t Device::recommended_max_working_set_bytes() const {
  return [impl_->device.get() recommendedMaxWorkingSetSize];
}
std::uint64_t Device::max_buffer_bytes() const { return [impl_->device.get() maxBufferLength]; }
bool Device::shares_images() const { return impl_->shares_images; }
MemorySpace Device::memory_space() const { return impl_->memory_space; }

void Device::check_memory(ArrayView &array, const std::string &what) const {
  if (array.space.is_host()) return;
  const auto own = memory_space();
  check<TypeError>(!own.is_host(), what, " lies on ", array.space, ", not in the memory of the CPU (1).");
  if (array.space.number == MemorySpace::kUnknown) {
    const auto number = guard([&] { return [with_memory(impl_->device.get()) dlpackNumberOfAddress:array.data]; });
    check<TypeError>(number >= 0, what, " lies in no memory of ", own, " (", name(), "): its address is ", array.data,
                     ".");
    array.space = {own.type, number};
  }
  check<TypeError>(array.space == own, what, " lies on ", array.space, ", not on ", own, " (", name(), ").");
}

void Device::wait_for_stream(std::uintptr_t stream) const {
  guard([&] { [with_memory(impl_->device.get()) waitForStream:stream]; });
}

ArrayView Device::to_host(const ArrayView &array) const {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < array.ndim(); ++i)
    before += std::min<std::int64_t>(0, (array.shape[i] - 1) * array.strides[i]);
  auto copy = array;
  const auto memory = memory_of(array);
  copy.space = {};
  copy.read_only = copy.is_constant = false;
  copy.owner = allocate_pages(memory.bytes);
  copy.data = static_cast<std::byte *>(copy.owner.get()) - before;
  if (memory.bytes == 0) return copy;
  guard([&] {
    [with_memory(impl_->device.get()) copyFromDeviceBytes:memory.data length:memory.bytes toHost:copy.owner.get()];
  });
  return copy;
}

bool Device::prefetches_temporaries() const { return impl_->prefetches_temporaries; }
bool Device::differentiates_bounds() const { return impl_->differentiates_bounds; }
void Device::set_most_work(std::uint64_t multiply_adds) {
  check<NotImplementedError>(impl_->most_work > 0, "Device: ", name(), " has no limit of work.");
  impl_->most_work = multiply_adds;
}

namespace {

id<ThreadsOfProcess> threads_or_throw(const Device &device) {
  id found = device.impl().device.get();
  check<NotImplementedError>([found respondsToSelector:@selector(setComputeThreads:)], "Device: ", device.name(),
                             " has no number of threads to read or set.");
  return static_cast<id<ThreadsOfProcess>>(found);
}

}  // namespace

int Device::threads() const { return static_cast<int>([threads_or_throw(*this) computeThreads]); }
void Device::set_threads(int threads) {
  check<std::invalid_argument>(threads >= 1, "set_num_threads: num_threads (", threads,
                               ") is less than the minimum (1).");
  [threads_or_throw(*this) setComputeThreads:static_cast<NSUInteger>(threads)];
  set_available_threads(threads);  // of the threads that move arrays
}

bool Device::computes_on_threads() const { return impl_->computes_on_threads; }

std::shared_ptr<SideQueue> Device::side_queue(int threads) {
  check<NotImplementedError>(computes_on_threads(), "Device: ", name(), " has no side queues.");
  const int processors = available_threads();
  threads = std::clamp(threads, 1, processors);
  const std::scoped_lock lock(impl_->side_mutex);
  SideQueue *found = nullptr;
  int count = 0;
  for (SideQueue &one : impl_->side_queues) {
    if (one.threads != threads) continue;
    ++count;
    if (!found || one.users < found->users) found = &one;
  }
  if (!found || (found->users > 0 && count < processors / threads)) {
    auto queue = guard([&] {
      const auto device = static_cast<id<DeviceOnThreads>>(static_cast<id>(impl_->device.get()));
      return Ref<id<MTLCommandQueue>>::adopt([device newCommandQueueWithMaxCommandBufferCount:Impl::kMaxUnfinished
                                                                               computeThreads:threads]);
    });
    found = &impl_->side_queues.emplace_back(SideQueue{std::move(queue), threads});
  }
  ++found->users;
  Impl *const impl = impl_.get();  // devices are never destroyed
  return {found, [impl](SideQueue *queue) {
            const std::scoped_lock lock(impl->side_mutex);
            --queue->users;
          }};
}

bool Device::is_supported() const { return MPSSupportsMTLDevice(impl_->device.get()); }

void check_same_device(const Device &a, const Device &b, const char *what) {
  if (a.impl().device.get() == b.impl().device.get()) return;  // getting the names costs more than an encode
  throw std::invalid_argument(
      say(what, ": the device (", b.name(), ") is not the device of the command buffer (", a.name(), ")."));
}

}  // namespace mpscnn

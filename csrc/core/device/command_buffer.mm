// SPDX-License-Identifier: Apache-2.0
// MTLCommandBuffer: commit once, wait, deferred errors.
#include <mpscnn/command_buffer.hpp>
#include <mpscnn/error.hpp>

#include <unistd.h>

#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "core/data_source/sharing.hh"
#include "core/device/device_impl.hh"
#include "core/device/forked.hpp"
#include "core/device/objc_scope.hh"

namespace mpscnn {
namespace {

thread_local bool in_handler = false;

/// Number of handlers of committed command buffers that have not run.
std::atomic<int> &unfinished_handlers() {
  static auto *count = new std::atomic<int>(0);
  return *count;
}

void count_down(std::atomic<int> &count) {
  if (--count == 0) count.notify_all();
}

void wait_for_none(const std::atomic<int> &count) {
  if (in_handler) return;
  for (int left = count.load(); left > 0; left = count.load()) count.wait(left);
}

/// Admits concurrent commits until the process ends.
class Gate {
 public:
  std::shared_lock<std::shared_mutex> enter() {
    std::shared_lock open(mutex_);
    if (!is_closed_) return open;
    check<std::runtime_error>(ender_ != std::this_thread::get_id() && !in_handler,
                              "CommandBuffer: commit() came while the process ends; no work is taken any more.");
    // Other threads end with the process; an exception would be lost.
    open.unlock();
    for (;;) pause();
  }
  void close() {
    const std::unique_lock lock(mutex_);
    is_closed_ = true;
    ender_ = std::this_thread::get_id();
  }

 private:
  std::shared_mutex mutex_;
  bool is_closed_ = false;
  std::thread::id ender_;
};

/// Raise the error of a command buffer that has failed.
void check_succeeded(id<MTLCommandBuffer> buffer) {
  if ([buffer status] != MTLCommandBufferStatusError) return;
  const std::string message = say("CommandBuffer: the device failed: ", text([[buffer error] localizedDescription]));
  if ([[buffer error] code] == MTLCommandBufferErrorOutOfMemory) throw MemoryError(message);
  throw std::runtime_error(message);
}

/// Commit for a thread that waits next and may do the work itself.
void commit_awaited(id<MTLCommandBuffer> buffer) {
  if ([buffer respondsToSelector:@selector(commitAwaited)])
    [static_cast<id<AwaitedCommit>>(static_cast<id>(buffer)) commitAwaited];
  else
    [buffer commit];
}

/// Scope of a commit, which may raise.
class Committing {
 public:
  Committing(Handlers &handlers, id<MTLCommandBuffer> buffer) : handlers_(&handlers) { handlers.will_commit(buffer); }
  ~Committing() {
    if (handlers_) handlers_->commit_failed();
  }
  Committing(const Committing &) = delete;
  Committing &operator=(const Committing &) = delete;
  void succeeded() { handlers_ = nullptr; }

 private:
  const Handlers *handlers_;
};

/// Let a side queue wait for the work of the device's own queue. In a handler, all work before it is done.
void follow_own_queue(Device::Impl &device, id<MTLCommandQueue> side_queue) {
  if (in_handler || [static_cast<id<QueueOnThreads>>(static_cast<id>(device.queue.get())) isIdle]) return;
  const auto event = Ref<id<MTLEvent>>::adopt([device.device.get() newEvent]);
  id<MTLCommandBuffer> before = [device.queue.get() commandBuffer];
  [before encodeSignalEvent:event.get() value:1];
  [before commit];
  id<MTLCommandBuffer> after = [side_queue commandBuffer];
  [after encodeWaitForEvent:event.get() value:1];
  [after commit];
}

Gate &gate() {
  static auto *one = new Gate;
  return *one;
}

}  // namespace

const char *name_of(CommandBufferStatus status) {
  switch (status) {
    case CommandBufferStatus::not_enqueued: return "not_enqueued";
    case CommandBufferStatus::enqueued: return "enqueued";
    case CommandBufferStatus::committed: return "committed";
    case CommandBufferStatus::scheduled: return "scheduled";
    case CommandBufferStatus::completed: return "completed";
    case CommandBufferStatus::error: return "error";
  }
  return "?";
}

void Handlers::will_commit(id<MTLCommandBuffer> buffer) {
  unfinished_handlers() += *left_;  // handlers that a failed commit left in the buffer
  if (actions_.empty()) return;
  auto actions = std::make_shared<std::vector<Action>>(std::exchange(actions_, {}));
  const auto left = left_;
  [buffer addCompletedHandler:^(id<MTLCommandBuffer> done) {
    in_handler = true;
    for (auto &action : *actions) {
      action(done);
      action = nullptr;
    }
    in_handler = false;
    count_down(*left);
    count_down(unfinished_handlers());
  }];
  ++*left;
  ++unfinished_handlers();
}

void Handlers::commit_failed() const { unfinished_handlers() -= *left_; }
void Handlers::wait() const { wait_for_none(*left_); }
void Handlers::wait_for_all() { wait_for_none(unfinished_handlers()); }

CommandBuffer::CommandBuffer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CommandBuffer::~CommandBuffer() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<CommandBuffer> CommandBuffer::make(std::shared_ptr<Device> device, const std::string &label,
                                                   const std::string &kernel, bool in_parts,
                                                   std::shared_ptr<SideQueue> side_queue) {
  check_not_forked();
  return guard([&] {
    auto &counted = device->impl();
    const int count = ++counted.open;
    Impl::Open open(&counted);
    check<std::runtime_error>(count <= Device::Impl::kMaxOpen, "CommandBuffer: ", Device::Impl::kMaxOpen,
                              " command buffers of the device are open, the maximum: commit() or drop one first.");
    in_parts = in_parts && counted.most_work > 0;
    id<MTLCommandQueue> queue = side_queue ? side_queue->queue.get() : counted.queue.get();
    auto buffer = in_parts ? Ref<id<MTLCommandBuffer>>::retain([MPSCommandBuffer commandBufferFromCommandQueue:queue])
                           : Ref<id<MTLCommandBuffer>>::retain([queue commandBuffer]);
    check<std::runtime_error>(static_cast<bool>(buffer), "CommandBuffer: the device gave no command buffer.");
    if (!label.empty()) [buffer.get() setLabel:ns(label)];
    auto impl = std::unique_ptr<Impl>(new Impl{device, std::move(open), buffer, std::move(side_queue)});
    impl->is_in_parts = in_parts;
    if (auto profile = Profile::current()) {
      const auto thread = std::hash<std::thread::id>()(std::this_thread::get_id());
      impl->event = {label, kernel, "encode", profile_clock(), 0, profile->next_buffer(), thread};
      impl->profile = std::move(profile);
    }
    return std::make_shared<CommandBuffer>(std::move(impl));
  });
}

void CommandBuffer::Impl::note_work(std::uint64_t more) {
  work += more;
  if (!is_in_parts || work < device->impl().most_work) return;
  const auto open_gate = gate().enter();
  const std::scoped_lock lock(commit_mutex);
  auto *parts = static_cast<MPSCommandBuffer *>(buffer.get());
  auto part = Ref<id<MTLCommandBuffer>>::retain([parts rootCommandBuffer]);
  [parts commitAndContinue];  // temporary images stay valid
  committed.push_back(std::move(part));
  work = 0;
}

void CommandBuffer::commit() { submit(false); }

void CommandBuffer::run() {
  submit(true);
  wait();
}

void CommandBuffer::submit(bool awaited) {
  check_not_forked();
  note_device_use();
  guard([&] {
    const auto open = gate().enter();
    // Another thread could commit between the check and the commit.
    const std::scoped_lock lock(impl_->commit_mutex);
    const auto now = status();
    check<std::runtime_error>(now < CommandBufferStatus::committed,
                              "CommandBuffer: commit() was called already; its status is ", name_of(now), ".");
    impl_->device->impl().note_allocated();
    add_to_profile();
    id<MTLCommandBuffer> buffer = impl_->buffer.get();
    if (impl_->side_queue) follow_own_queue(impl_->device->impl(), impl_->side_queue->queue.get());
    Committing committing(impl_->handlers, buffer);
    if (awaited)
      commit_awaited(buffer);
    else
      [buffer commit];
    committing.succeeded();
    impl_->open.reset();
  });
}

/// Record the encoding time now, and the execution time on completion.
void CommandBuffer::add_to_profile() {
  if (!impl_->profile) return;
  auto event = impl_->event;
  event.end = profile_clock();
  impl_->profile->add(event);
  event.kind = "execute";
  const auto shared = std::make_shared<ProfileEvent>(std::move(event));
  const auto profile = impl_->profile;
  impl_->handlers.add([shared, profile](id<MTLCommandBuffer> done) {
    shared->start = [done GPUStartTime];
    shared->end = [done GPUEndTime];
    profile->add(*shared);
  });
}

void finish_all_work() {
  gate().close();
  for (const auto &device : made_devices()) {
    std::vector<id<MTLCommandQueue>> queues{device->impl().queue.get()};
    {
      const std::scoped_lock lock(device->impl().side_mutex);
      for (const SideQueue &side : device->impl().side_queues) queues.push_back(side.queue.get());
    }
    for (id<MTLCommandQueue> queue : queues)
      guard([&] {
        // Queues execute in order.
        id<MTLCommandBuffer> last = [queue commandBuffer];
        commit_awaited(last);
        [last waitUntilCompleted];
      });
  }
  Handlers::wait_for_all();
}

void CommandBuffer::wait() {
  guard([&] {
    check<std::runtime_error>(status() >= CommandBufferStatus::committed,
                              "CommandBuffer: wait() was called before commit().");
    [impl_->buffer.get() waitUntilCompleted];
    impl_->handlers.wait();
    for (const auto &part : impl_->committed) check_succeeded(part.get());
    check_succeeded(impl_->buffer.get());
  });
}

CommandBufferStatus CommandBuffer::status() const {
  return static_cast<CommandBufferStatus>([impl_->buffer.get() status]);
}

std::string CommandBuffer::error() const {
  return guard([&] { return text([[impl_->buffer.get() error] localizedDescription]); });
}

std::string CommandBuffer::label() const {
  return guard([&] { return text([impl_->buffer.get() label]); });
}

void CommandBuffer::set_label(const std::string &label) {
  guard([&] { [impl_->buffer.get() setLabel:ns(label)]; });
}

void CommandBuffer::add_completed_handler(std::function<void()> handler) {
  guard([&] {
    check<std::runtime_error>(status() < CommandBufferStatus::committed,
                              "CommandBuffer: a completed handler was added after commit().");
    impl_->handlers.add([handler = std::move(handler)](id<MTLCommandBuffer>) { handler(); });
  });
}

void CommandBuffer::keep_alive(std::shared_ptr<void> owner) {
  guard([&] { impl_->handlers.add([owner](id<MTLCommandBuffer>) {}); });
}

double CommandBuffer::gpu_start_time() const {
  return [impl_->committed.empty() ? impl_->buffer.get() : impl_->committed.front().get() GPUStartTime];
}
double CommandBuffer::gpu_end_time() const { return [impl_->buffer.get() GPUEndTime]; }
std::shared_ptr<Device> CommandBuffer::device() const { return impl_->device; }
const SideQueue *CommandBuffer::side_queue() const { return impl_->side_queue.get(); }
bool CommandBuffer::is_in_parts() const { return impl_->is_in_parts; }

}  // namespace mpscnn

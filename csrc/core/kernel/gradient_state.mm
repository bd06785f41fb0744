// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/error.hpp>

#include <algorithm>
#include <cstring>
#include <span>

#include "core/device/objc_scope.hh"
#include "core/kernel/gradient_state_impl.hh"
#include "core/kernel/kernel_impl.hh"

namespace mpscnn {

namespace {

/// Return the elementwise sum of float32 buffers.
std::shared_ptr<Buffer> sum_of(std::span<const std::shared_ptr<Buffer>> parts) {
  auto sum = Buffer::make(parts[0]->impl().device, parts[0]->bytes());
  std::memcpy(sum->contents(), parts[0]->contents(), sum->bytes());
  const std::span values(static_cast<float *>(sum->contents()), sum->bytes() / sizeof(float));
  for (const auto &part : parts.subspan(1)) {
    const auto *more = static_cast<const float *>(part->contents());
    for (auto &value : values) value += *more++;
  }
  return sum;
}

}  // namespace

GradientState::GradientState(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GradientState::~GradientState() {
  Pool pool;
  impl_.reset();
}

MPSStateBatch *GradientState::Impl::of_images(NSUInteger count) const {
  if (distinct().size() > 1) return [states.get() subarrayWithRange:NSMakeRange(0, count)];
  NSMutableArray *same = [NSMutableArray arrayWithCapacity:count];
  for (NSUInteger i = 0; i < count; ++i) [same addObject:[states.get() objectAtIndex:0]];
  return same;
}

std::vector<MPSState *> GradientState::Impl::distinct() const {
  std::vector<MPSState *> all;
  for (MPSState *state in states.get())
    if (std::ranges::find(all, state) == all.end()) all.push_back(state);
  return all;
}

std::int64_t GradientState::Impl::encoded() const {
  std::int64_t count = 0;
  for (const auto &each : encodes) count += each.count;
  return count;
}

std::int64_t GradientState::Impl::summed() const {
  std::int64_t count = 0;
  for (const auto &each : encodes)
    for (const auto &[part, uses] : each.used)
      if (part.second == kParameters) count += uses;
  return count;
}

void check_complete(const GradientState::Impl &state, const char *who, std::string_view name, const char *shown) {
  const auto encoded = state.encoded(), summed = state.summed();
  check<std::runtime_error>(!state.has_ended, who, ": ", shown, " is temporary, of an update() that has returned.");
  check<std::runtime_error>(summed > 0, who, ": no gradient kernel that computes ", name, " has been encoded with ",
                            shown, ".");
  check<std::runtime_error>(summed == encoded, who, ": gradients of ", summed, " of the ", encoded,
                            " forward encodes of ", shown, " have been encoded; ", name, " is the sum over all.");
}

std::vector<std::string_view> GradientState::names() const {
  std::vector<std::string_view> names;
  for (const auto &values : impl_->values) names.push_back(values.name);
  return names;
}

GradientState::Values GradientState::values(std::string_view name) const {
  return guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    const auto found = std::ranges::find(impl_->values, name, &StateValues::name);
    check<KeyError>(found != impl_->values.end(), "GradientState: the state of ", impl_->maker, " has no ", name, ".");
    check<std::runtime_error>(!impl_->is_temporary, "GradientState: the CPU cannot read ", name,
                              ", which is in temporary memory of a graph; export_from_graph of the node's result_state "
                              "keeps it.");
    check_complete(*impl_, "GradientState", name, "the state");
    for (auto &writer : impl_->writers) check_written(writer, "GradientState");
    std::vector<std::shared_ptr<Buffer>> parts;
    for (MPSState *state : impl_->distinct()) {
      id<MTLBuffer> buffer = [state performSelector:found->selector];
      check<NotImplementedError>(buffer != nil, "GradientState: the device keeps no ", name, ".");
      parts.push_back(std::make_shared<Buffer>(
          std::make_unique<Buffer::Impl>(Buffer::Impl{impl_->device, Ref<id<MTLBuffer>>::retain(buffer)})));
    }
    return Values{parts.size() == 1 ? parts[0] : sum_of(parts), found->shape};
  });
}

std::int64_t GradientState::encodes() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->encoded();
}

std::string_view GradientState::maker() const { return impl_->maker; }
bool GradientState::is_of(const Kernel &kernel) const {
  return impl_->kernel && impl_->kernel->impl().lineage == kernel.impl().lineage;
}
std::shared_ptr<Device> GradientState::device() const { return impl_->device; }

}  // namespace mpscnn

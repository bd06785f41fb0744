// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/error.hpp>

#include <algorithm>

#include "gradient_state_impl.hh"
#include "kernel_impl.hh"
#include "objc_scope.hh"

namespace mpscnn {

GradientState::GradientState(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GradientState::~GradientState() {
  Pool pool;
  impl_.reset();
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
    check<KeyError>(found != impl_->values.end(), "GradientState: the state of ", impl_->kernel->row().name, " has no ",
                    name, ".");
    check_complete(*impl_, "GradientState", name, "the state");
    for (auto &writer : impl_->writers) check_written(writer, "GradientState");
    id<MTLBuffer> buffer = [impl_->state.get() performSelector:found->selector];
    check<NotImplementedError>(buffer != nil, "GradientState: the device keeps no ", name, ".");
    return Values{std::make_shared<Buffer>(
                      std::make_unique<Buffer::Impl>(Buffer::Impl{impl_->device, Ref<id<MTLBuffer>>::retain(buffer)})),
                  found->shape};
  });
}

std::int64_t GradientState::encodes() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->encoded();
}

std::shared_ptr<Kernel> GradientState::kernel() const { return impl_->kernel; }
std::shared_ptr<Device> GradientState::device() const { return impl_->device; }

}  // namespace mpscnn

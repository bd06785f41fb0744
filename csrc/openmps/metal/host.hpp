// SPDX-License-Identifier: Apache-2.0
// Small things that Objective-C++ files need from plain C++, where exceptions can be caught.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/memory.hpp"

namespace openmps {

/// First byte of the block, allocated if need be; null when there is no memory.
std::byte* host_data(const std::shared_ptr<Memory>& memory) noexcept;

/// engines(), or null and the reason.
const std::vector<std::shared_ptr<Engine>>* try_engines(std::string* failure) noexcept;

/// The product, or nothing when it does not fit into 63 bits (sizes and strides are signed behind the seam).
std::optional<std::uint64_t> product(std::initializer_list<std::uint64_t> factors) noexcept;

/// Seconds of the monotonic clock, as GPUStartTime counts them.
double now_seconds() noexcept;

/// The same of the CPU's copy, where managed storage has one.
std::byte* cpu_data(const std::shared_ptr<Memory>& memory) noexcept;

/// Runs the action on the process's notification thread, after those handed over before. The thread starts with
/// the first action; `in_pool` wraps each one.
void notify_later(std::function<void()> action, void (*thread_begin)(), void (*in_pool)(void (*)(void*), void*));

}  // namespace openmps

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

/// Allocate the block, if it is not yet. False: there is no memory.
bool try_allocate(const std::shared_ptr<Memory>& memory) noexcept;

/// engine_names(), or none and the reason.
std::vector<std::string> try_engine_names(std::string* failure) noexcept;
/// engine_of(), or null and the reason.
std::shared_ptr<Engine> try_engine(const std::string& name, std::string* failure) noexcept;

/// The product, or nothing when it does not fit into 63 bits (sizes and strides are signed behind the seam).
std::optional<std::uint64_t> product(std::initializer_list<std::uint64_t> factors) noexcept;

/// Seconds of the monotonic clock, as GPUStartTime counts them.
double now_seconds() noexcept;

/// First byte of the CPU's copy, where managed storage has one, else of the block; null when there is no memory.
std::byte* cpu_data(const std::shared_ptr<Memory>& memory) noexcept;

/// Runs the action on the process's notification thread, after those handed over before. The thread starts with
/// the first action; `in_pool` wraps each one.
void notify_later(std::function<void()> action, void (*thread_begin)(), void (*in_pool)(void (*)(void*), void*));

}  // namespace openmps

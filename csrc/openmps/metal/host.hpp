// SPDX-License-Identifier: Apache-2.0
// Helpers for Objective-C++ files in plain C++, where exceptions can be caught.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/failure.hpp"
#include "engine/memory.hpp"

namespace openmps {

/// Allocate the block unless it is allocated. Return false if there is no memory.
bool try_allocate(const std::shared_ptr<Memory>& memory) noexcept;

/// Set the block to zero; no-op if the device fails.
void clear_memory(const std::shared_ptr<Memory>& memory) noexcept;

/// Return engine_names(all); if it throws, none and the reason.
std::vector<std::string> try_engine_names(bool all, std::string* failure) noexcept;
/// Return engine_of(); if it throws, null and the reason.
std::shared_ptr<Engine> try_engine(const std::string& name, std::string* failure) noexcept;

/// Run the action; return why it threw.
Failure failure_of(const std::function<void()>& action) noexcept;

/// Return the product; nullopt if it does not fit in 63 bits (the engine's sizes and strides are signed).
std::optional<std::uint64_t> product(std::initializer_list<std::uint64_t> factors) noexcept;

/// Return the seconds of the monotonic clock, as in GPUStartTime.
double now_seconds() noexcept;

/// Return the first byte of the CPU's copy of managed storage, else of the block; null if there is no memory.
std::byte* cpu_data(const std::shared_ptr<Memory>& memory) noexcept;

/// Run the action on the process's notification thread, after those passed before. The first action starts the thread;
/// `in_pool` wraps each one.
void notify_later(std::function<void()> action, void (*thread_begin)(), void (*in_pool)(void (*)(void*), void*));

}  // namespace openmps

// SPDX-License-Identifier: Apache-2.0
// Environment variables of openmps: all of them, each read once per process. docs/environment.md is this table in
// words.
#pragma once

#include <string>
#include <string_view>

namespace openmps::env {

enum class Variable { device, engine, fuse, impl, trace };

/// The name, "MPSCNN_..." in capitals.
const char* name_of(Variable variable);
/// The value; "" if the variable is not set.
const std::string& value_of(Variable variable);
/// Whether the value, a list separated by commas, has this word.
bool has_word(Variable variable, std::string_view word);

/// Empty, or a sentence on the first variable whose value is none of its choices.
std::string failure();

}  // namespace openmps::env

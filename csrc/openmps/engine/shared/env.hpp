// SPDX-License-Identifier: Apache-2.0
// All environment variables of openmps; each is read once per process. docs/environment.md describes them.
#pragma once

#include <string>
#include <string_view>

namespace openmps::env {

enum class Variable {
  cuda_fallback,
  cuda_graph,
  cuda_path,
  device,
  engine,
  fuse,
  impl,
  metal_compiler,
  trace,
  tuned,
  winograd
};

/// Return the name, "MPSCNN_..." in capitals.
const char* name_of(Variable variable);
/// Return the value; "" if the variable is not set.
const std::string& value_of(Variable variable);
/// Return whether the value, a comma-separated list, contains the word.
bool has_word(Variable variable, std::string_view word);

/// Return "", or a sentence on the first variable whose value is not one of its choices.
std::string failure();

}  // namespace openmps::env

// SPDX-License-Identifier: Apache-2.0
// Child processes, without a shell.
#pragma once

#include <string>
#include <vector>

namespace openmps::function {

struct Ended {
  bool was_started = false;
  bool succeeded = false;
  std::string output;  ///< stdout and stderr
};

/// Run a program, which is looked up in PATH, with messages in English and no input; wait for its end.
/// variables: environment variables that it gets besides this process's, as NAME=value.
Ended run_process(const std::vector<std::string>& words, std::vector<std::string> variables = {});

}  // namespace openmps::function

// SPDX-License-Identifier: Apache-2.0
#include "engine/function/process.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace openmps::function {
namespace {

std::string read_all(int descriptor) {
  std::string text;
  char block[4096];
  for (;;) {
    const ssize_t count = ::read(descriptor, block, sizeof block);
    if (count > 0)
      text.append(block, static_cast<std::size_t>(count));
    else if (count == 0 || errno != EINTR)
      return text;
  }
}

}  // namespace

Ended run_process(const std::vector<std::string>& words, std::vector<std::string> variables) {
  Ended result;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return result;
  std::vector<char*> arguments, environment;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  variables.emplace_back("LC_ALL=C");
  const auto is_replaced = [&](const char* each) {
    return std::any_of(variables.begin(), variables.end(), [&](const std::string& variable) {
      return std::strncmp(each, variable.c_str(), variable.find('=') + 1) == 0;
    });
  };
  for (char** each = environ; *each; ++each)
    if (!is_replaced(*each)) environment.push_back(*each);
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error == 0) {
    result.was_started = true;
    result.output = read_all(ends[0]);
    int status = 0;
    pid_t ended;
    while ((ended = ::waitpid(child, &status, 0)) < 0 && errno == EINTR) {
    }
    // A program that ignores SIGCHLD gets no status; the caller then sees whether there is a result.
    result.succeeded = ended < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  ::close(ends[0]);
  return result;
}

}  // namespace openmps::function

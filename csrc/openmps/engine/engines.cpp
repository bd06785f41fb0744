// SPDX-License-Identifier: Apache-2.0
// The list of engines and the environment variable that picks one.
#include <algorithm>
#include <stdexcept>

#include "engine/cpu/cpu_engine.hpp"
#include "engine/engine.hpp"
#include "engine/null/null_engine.hpp"
#include "engine/shared/env.hpp"

namespace openmps {
namespace {

std::vector<std::shared_ptr<Engine>> make_engines() {
  std::vector<std::shared_ptr<Engine>> list = {processor_engine(), make_null_engine()};
  const std::string& wanted = env::value_of(env::Variable::engine);
  if (wanted.empty()) return list;
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const auto& engine) { return engine->name() == wanted; });
  if (found == list.end()) {
    std::string known;
    for (const auto& engine : list) known += (known.empty() ? "" : ", ") + std::string(engine->name());
    throw std::runtime_error(std::string(env::name_of(env::Variable::engine)) + " (" + wanted +
                             ") names no engine of this library (" + known + ").");
  }
  std::rotate(list.begin(), found, found + 1);
  return list;
}

}  // namespace

// Never destroyed: memory of objects with static lifetime may return to its engine after this file's statics are gone.
const std::shared_ptr<Engine>& processor_engine() {
  static const auto* const engine = new std::shared_ptr<Engine>(make_cpu_engine());
  return *engine;
}

const std::vector<std::shared_ptr<Engine>>& engines() {
  static const auto* const list = new std::vector<std::shared_ptr<Engine>>(make_engines());
  return *list;
}

}  // namespace openmps

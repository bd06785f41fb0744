// SPDX-License-Identifier: Apache-2.0
// Engines built into this library. Each is made on first use: making some takes a tenth of a second.
#include <algorithm>
#include <array>
#include <mutex>
#include <stdexcept>

#include "engine/cpu/cpu_engine.hpp"
#include "engine/engine.hpp"
#include "engine/null/null_engine.hpp"
#include "engine/shared/env.hpp"
#include "engine/split/split_engine.hpp"

namespace openmps {
namespace {

struct Entry {
  const char* name;
  std::shared_ptr<Engine> (*make)();
  bool is_listed;  ///< among all devices; the others are for tests
};
constexpr std::array<Entry, 3> kEngines = {
    {{"cpu", make_cpu_engine, true}, {"null", make_null_engine, true}, {"split", make_split_engine, false}}};

}  // namespace

std::shared_ptr<Engine> engine_of(const std::string& name) {
  // Never destroyed: objects with static lifetime may return memory to their engine after this file's statics are gone.
  static auto* const made = new std::array<std::shared_ptr<Engine>, kEngines.size()>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < kEngines.size(); ++i) {
    if (name != kEngines[i].name) continue;
    auto& engine = (*made)[i];
    if (!engine) engine = kEngines[i].make();
    return engine;
  }
  return nullptr;
}

std::vector<std::string> engine_names() {
  const std::string& wanted = env::value_of(env::Variable::engine);
  std::vector<std::string> names;
  std::string known;
  bool is_known = wanted.empty();
  for (const Entry& entry : kEngines) {
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
    is_known = is_known || wanted == entry.name;
    if (entry.is_listed || wanted == entry.name) names.emplace_back(entry.name);
  }
  if (!is_known)
    throw std::runtime_error(std::string(env::name_of(env::Variable::engine)) + " (" + wanted +
                             ") names no engine of this library (" + known + ").");
  if (!wanted.empty()) std::rotate(names.begin(), std::find(names.begin(), names.end(), wanted), names.end());
  return names;
}

const std::shared_ptr<Engine>& processor_engine() {
  static const auto* const engine = new std::shared_ptr<Engine>(engine_of("cpu"));
  return *engine;
}

}  // namespace openmps

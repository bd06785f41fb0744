// SPDX-License-Identifier: Apache-2.0
// Engines built into this library. Each is made on first use: making some takes a tenth of a second.
#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <stdexcept>

#include "engine/cpu/cpu_engine.hpp"
#include "engine/cuda/cuda_engine.hpp"
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

std::shared_ptr<Engine> make(const std::string& name) {
  for (const Entry& entry : kEngines)
    if (name == entry.name) return entry.make();
  return make_cuda_engine(name);
}

}  // namespace

std::shared_ptr<Engine> engine_of(const std::string& given) {
  // Never destroyed: objects with static lifetime may return memory to their engine after this file's statics are gone.
  static auto* const made = new std::map<std::string, std::shared_ptr<Engine>>;
  static std::mutex mutex;
  const std::string name = given == "cuda" ? "cuda:0" : given;
  const std::lock_guard lock(mutex);
  if (const auto found = made->find(name); found != made->end()) return found->second;
  auto engine = make(name);
  if (engine) made->emplace(name, engine);
  return engine;
}

std::vector<std::string> engine_names(bool all) {
  const std::string& wanted = env::value_of(env::Variable::engine);
  std::vector<std::string> names;
  std::string known;
  bool is_known = wanted.empty() || wanted.starts_with("cuda:") || wanted == "cuda" || wanted == "cuda-host";
  for (const Entry& entry : kEngines) {
    known += std::string(entry.name) + ", ";
    is_known = is_known || wanted == entry.name;
    if (entry.is_listed || wanted == entry.name) names.emplace_back(entry.name);
  }
  if (!is_known)
    throw std::runtime_error(std::string(env::name_of(env::Variable::engine)) + " (" + wanted +
                             ") names no engine of this library (" + known + "cuda:0, ...).");
  if (all)
    for (const std::string& name : cuda_engine_names()) names.push_back(name);
  if (wanted.empty()) return names;
  const std::string first = wanted == "cuda" ? "cuda:0" : wanted;
  std::erase(names, first);
  names.insert(names.begin(), first);
  return names;
}

const std::shared_ptr<Engine>& processor_engine() {
  static const auto* const engine = new std::shared_ptr<Engine>(engine_of("cpu"));
  return *engine;
}

}  // namespace openmps

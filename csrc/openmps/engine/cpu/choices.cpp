// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/choices.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <unordered_map>
#include <utility>

#include <dnnl.hpp>

#include "engine/shared/disk_cache.hpp"
#include "engine/shared/env.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/machine.hpp"

namespace openmps::cpu::choices {
namespace {

constexpr const char *kFolder = "cpu", *kKind = "choices";
constexpr std::size_t kMaxChoices = 1 << 14;  // 1 MB on disk; further ones replace others
/// A choice differs from the list's only if it takes at most this part of the time.
constexpr double kGain = 0.95;
/// After some times, implementations that take so many times the least are timed no more.
constexpr double kHopeless = 2;
constexpr std::size_t kMinTimes = 3;

struct HashOf {
  std::size_t operator()(const Digest& digest) const { return digest.first; }
};
using Table = std::unordered_map<Digest, const char*, HashOf>;

struct Candidate {
  const char* name;
  std::vector<double> seconds;
  bool is_hopeless = false;

  double min() const { return *std::ranges::min_element(seconds); }
  double median() const {
    std::vector<double> sorted = seconds;
    std::ranges::sort(sorted);
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
};

/// A call, or a group of calls, that is timed.
struct Timed {
  Digest digest;
  const char* entry;
  std::string description;
  std::vector<Candidate> candidates;  ///< the list's own choice first
  std::vector<Digest> parts;          ///< of a group; its second candidate is these
  std::size_t current = 0;            ///< candidate of this pass
};

/// The times and choices so far, guarded by a mutex: several threads may compute.
struct Session {
  std::mutex mutex;
  std::vector<std::unique_ptr<Timed>> calls;  ///< in the order of their first run
  std::map<Digest, Timed*> by_digest;
  std::minstd_rand random;
  bool is_timed = false;  ///< this pass
};
Session& session() {
  static auto* const one = new Session;
  return *one;
}

std::mutex table_mutex;                      // of changes
std::atomic<const Table*> table{new Table};  // tables are never deleted, because calls may look at them

/// Return everything that the times depend on besides the call.
std::string key() {
  std::string text = machine_cpu_name() + '\n' + machine_cpu_model() + "\noneDNN " +
                     std::to_string(dnnl_version()->major) + '.' + std::to_string(dnnl_version()->minor) + '.' +
                     std::to_string(dnnl_version()->patch) + ", instruction set " +
                     std::to_string(static_cast<int>(dnnl::get_effective_cpu_isa())) + "\nmpscnn " OPENMPS_VERSION "\n";
  for (const std::string& name : std::set(implementation_names().begin(), implementation_names().end()))
    text += name + ' ';
  return text;
}

/// Parse lines of a digest and a name. Lines of unknown names are left out.
Table parse(const std::string& text) {
  // The names of the lists live as long as the process, at one place.
  const std::vector<std::string>& names = implementation_names();
  Table found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && found.size() < kMaxChoices;) {
    unsigned long long first = 0, second = 0;
    char name[64] = "";
    if (std::sscanf(line.c_str(), "%16llx%16llx %63s", &first, &second, name) != 3) continue;
    const auto known = std::ranges::find(names, name);
    if (known != names.end()) found[{first, second}] = known->c_str();
  }
  return found;
}

std::string text_of(const Table& choices) {
  std::string text;
  for (const auto& [digest, name] : choices) {
    char line[128];
    std::snprintf(line, sizeof line, "%016llx%016llx %s\n", static_cast<unsigned long long>(digest.first),
                  static_cast<unsigned long long>(digest.second), name);
    text += line;
  }
  return text;
}

/// Keeps other processes from changing the file; without effect where the folder cannot be locked.
class Lock {
 public:
  Lock() {
    std::error_code error;
    std::filesystem::create_directories(cache_folder(kFolder), error);
    folder_ = ::open(cache_folder(kFolder).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_ >= 0) ::flock(folder_, LOCK_EX);
  }
  ~Lock() {
    if (folder_ >= 0) ::close(folder_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int folder_ = -1;
};

/// Return why choices are neither used nor made; null if they are.
const char* why_not() {
  if (!dispatch().only.empty()) return "MPSCNN_IMPL is set";
  return env::value_of(env::Variable::tuned) == "0" ? "MPSCNN_TUNED is 0" : nullptr;
}

/// Return the candidate with the least time if it is faster than the list's own by more than noise. Its median and its
/// least time both are, since one of them may be of a moment when the machine was busy.
struct Times {
  double median, min;
};
Times times_of(const Session& session, const Timed& timed, std::size_t candidate);
std::size_t best_of(const Session& session, const Timed& timed) {
  std::size_t best = 0;
  const Times own = times_of(session, timed, 0);
  Times least = own;
  for (std::size_t i = 1; i < timed.candidates.size(); ++i) {
    const Times times = times_of(session, timed, i);
    if (times.median < least.median && times.median <= kGain * own.median && times.min <= kGain * own.min)
      best = i, least = times;
  }
  return best;
}
Times times_of(const Session& session, const Timed& timed, std::size_t candidate) {
  constexpr double kNever = 1e30;
  if (candidate > 0 && !timed.parts.empty()) {
    Times sum = {0, 0};
    for (const Digest& part : timed.parts) {
      const auto found = session.by_digest.find(part);
      if (found == session.by_digest.end()) return {kNever, kNever};
      const Times times = times_of(session, *found->second, best_of(session, *found->second));
      sum.median += times.median, sum.min += times.min;
    }
    return sum;
  }
  const Candidate& one = timed.candidates[candidate];
  return one.seconds.empty() ? Times{kNever, kNever} : Times{one.median(), one.min()};
}

void end_hopeless(Timed& timed) {
  if (!timed.parts.empty()) return;
  double least = 1e30;
  for (const Candidate& one : timed.candidates)
    if (one.seconds.size() >= kMinTimes) least = std::min(least, one.min());
  for (std::size_t i = 1; i < timed.candidates.size(); ++i) {
    Candidate& one = timed.candidates[i];
    one.is_hopeless = one.is_hopeless || (one.seconds.size() >= kMinTimes && one.min() > kHopeless * least);
  }
}

/// Replace the choices of this process, and those of the file except for what other processes have added. Return
/// whether they are kept.
bool replace(const Table& changed) {
  const std::lock_guard lock(table_mutex);
  const auto apply = [&](Table to) {
    for (const auto& [digest, name] : changed) {
      to.erase(digest);
      if (name && to.size() < kMaxChoices) to[digest] = name;
    }
    return to;
  };
  auto next = std::make_unique<Table>(apply(*table.load()));
  bool is_kept = false;
  if (!cache_folder(kFolder).empty()) {
    const Lock other_processes;
    is_kept =
        write_cached(kFolder, kKind, key(), text_of(apply(parse(read_cached(kFolder, kKind, key()).value_or("")))));
  }
  table = next.release();
  return is_kept;
}

}  // namespace

std::atomic<State> state{State::unread};

State read() {
  const std::lock_guard lock(table_mutex);
  if (state != State::unread) return state;
  if (why_not()) return state = State::none;
  const std::string folder = cache_folder(kFolder);
  std::error_code error;
  std::optional<std::string> text;
  if (!folder.empty() && std::filesystem::is_directory(folder, error)) text = read_cached(kFolder, kKind, key());
  if (text) table = new Table(parse(*text));
  return state = table.load()->empty() ? State::none : State::some;
}

const char* find(const Digest& call) {
  const Table& choices = *table.load(std::memory_order_acquire);
  const auto found = choices.find(call);
  return found == choices.end() ? nullptr : found->second;
}

std::size_t count() { return are_asked() ? table.load()->size() : 0; }

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool is_known(const Digest& call) {
  const std::lock_guard lock(session().mutex);
  return session().by_digest.contains(call);
}

namespace {

void add(Timed timed) {
  Session& all = session();
  const std::lock_guard lock(all.mutex);
  if (all.by_digest.contains(timed.digest)) return;  // another thread was faster
  all.calls.push_back(std::make_unique<Timed>(std::move(timed)));
  all.by_digest[all.calls.back()->digest] = all.calls.back().get();
}

}  // namespace

void add(const Digest& call, const char* entry, std::string description, const std::vector<const char*>& accepting) {
  Timed timed{.digest = call, .entry = entry, .description = std::move(description), .candidates = {}, .parts = {}};
  for (const char* const name : accepting) timed.candidates.push_back({name, {}});
  add(std::move(timed));
}

void add_group(const Digest& group, const char* entry, std::string description, const char* together, const char* apart,
               std::span<const Digest> parts) {
  add({.digest = group,
       .entry = entry,
       .description = std::move(description),
       .candidates = {{together, {}}, {apart, {}}},
       .parts = {parts.begin(), parts.end()}});
}

const char* current(const Digest& call) {
  Session& all = session();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_digest.find(call);
  return found == all.by_digest.end() ? nullptr : found->second->candidates[found->second->current].name;
}

void record(const Digest& call, const char* implementation, double seconds) {
  Session& all = session();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_digest.find(call);
  if (!all.is_timed || found == all.by_digest.end()) return;
  for (Candidate& one : found->second->candidates)
    if (std::strcmp(one.name, implementation) == 0) one.seconds.push_back(seconds);
  end_hopeless(*found->second);
}

const char* start() {
  if (const char* const reason = why_not()) return reason;
  read();
  Session& all = session();
  const std::lock_guard lock(all.mutex);
  if (state == State::timing) return "another call of tune is under way";
  all.calls.clear(), all.by_digest.clear();
  all.is_timed = false;
  state = State::timing;
  return nullptr;
}

int begin(Pass pass) {
  Session& all = session();
  const std::lock_guard lock(all.mutex);
  all.is_timed = pass == Pass::timed;
  int others = 0;
  for (const auto& timed : all.calls) {
    std::size_t& current = timed->current;
    if (pass == Pass::unchanged) current = 0;
    if (pass == Pass::fastest) current = best_of(all, *timed);
    if (pass == Pass::mixed) {
      current = 0;
      if (all.random() >> 8 & 1)
        for (std::size_t i = 1; i < timed->candidates.size(); ++i) {
          const Candidate &one = timed->candidates[i], &least = timed->candidates[current];
          if (!one.is_hopeless && (current == 0 || one.seconds.size() < least.seconds.size())) current = i;
        }
    }
    others += current > 0;
  }
  return others;
}

int rounds() {
  Session& all = session();
  const std::lock_guard lock(all.mutex);
  std::size_t least = INT_MAX;
  for (const auto& timed : all.calls)
    for (std::size_t i = 0; i < timed->candidates.size(); ++i)
      if (!timed->candidates[i].is_hopeless && (timed->parts.empty() || i == 0))
        least = std::min(least, timed->candidates[i].seconds.size());
  return static_cast<int>(least);
}

std::string stop(Outcome outcome) {
  Session& all = session();
  const std::lock_guard lock(all.mutex);
  if (state != State::timing) return {};
  Table changed;
  std::string lines;
  for (const auto& timed : all.calls) {
    const std::size_t best = outcome == Outcome::unchanged ? 0 : best_of(all, *timed);
    changed[timed->digest] = best > 0 ? timed->candidates[best].name : nullptr;
    std::string line = std::string(timed->entry) + '\t' + timed->description + '\t' + timed->candidates[0].name + '\t' +
                       timed->candidates[best].name;
    for (std::size_t i = 0; i < timed->candidates.size(); ++i) {
      char number[64];
      std::snprintf(number, sizeof number, "=%.9g", times_of(all, *timed, i).median);
      line += std::string("\t") + timed->candidates[i].name + number;
    }
    lines += line + '\n';
  }
  const bool is_kept = outcome != Outcome::nothing && replace(changed);
  state = table.load()->empty() ? State::none : State::some;
  all.calls.clear(), all.by_digest.clear();
  return "file\t" + (is_kept ? cache_folder(kFolder) : "") + '\n' + lines;
}

}  // namespace openmps::cpu::choices

/// What `Network.tune` and `mpscnn info` call with ctypes (python/mpscnn/tuning.py). Return null, or why calls are not
/// timed.
extern "C" __attribute__((visibility("default"))) const char* openmps_tune_start() {
  static thread_local std::string text;
  try {
    return openmps::cpu::choices::start();
  } catch (const std::exception& error) {  // MPSCNN_IMPL names no implementation
    return (text = error.what()).c_str();
  }
}
extern "C" __attribute__((visibility("default"))) int openmps_tune_begin(int pass) {
  return openmps::cpu::choices::begin(static_cast<openmps::cpu::choices::Pass>(pass));
}
extern "C" __attribute__((visibility("default"))) int openmps_tune_rounds() { return openmps::cpu::choices::rounds(); }
/// The text is valid until the thread's next call.
extern "C" __attribute__((visibility("default"))) const char* openmps_tune_stop(int outcome) {
  static thread_local std::string text;
  text = openmps::cpu::choices::stop(static_cast<openmps::cpu::choices::Outcome>(outcome));
  return text.c_str();
}
extern "C" __attribute__((visibility("default"))) int openmps_tuned_choices() {
  try {
    return static_cast<int>(openmps::cpu::choices::count());
  } catch (const std::exception&) {
    return 0;
  }
}

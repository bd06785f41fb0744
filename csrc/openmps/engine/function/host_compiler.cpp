// SPDX-License-Identifier: Apache-2.0
#include "engine/function/host_compiler.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "engine/function/process.hpp"
#include "engine/shared/disk_cache.hpp"
#include "engine/shared/env.hpp"
#include "engine/shared/site_packages.hpp"

namespace openmps::function {
namespace {

namespace fs = std::filesystem;

struct Compiler {
  std::vector<std::string> words;  ///< program and first arguments
  std::string version;             ///< "": there is none

  /// Return whether it is `zig c++`, which is clang++ without libraries: to check a text or to link, it would first
  /// compile those of C++, which takes minutes. No function needs them.
  bool is_zig() const { return words.size() > 1 && words.back() == "c++"; }
};

/// Newest first; clang++ compiles a function in about half of g++'s time. Last, the compiler of mpscnn[metal].
std::vector<std::vector<std::string>> candidates() {
  const std::string& wanted = env::value_of(env::Variable::metal_compiler);
  if (!wanted.empty()) {
    std::istringstream words(wanted);
    return {std::vector<std::string>{std::istream_iterator<std::string>(words), {}}};
  }
  std::vector<std::vector<std::string>> all = {{"clang++"}};
  for (int version = 24; version >= 9; --version) all.push_back({"clang++-" + std::to_string(version)});
  all.push_back({"g++"});
  for (int version = 18; version >= 8; --version) all.push_back({"g++-" + std::to_string(version)});
  all.push_back({"c++"});
  if (const std::string folder = site_packages(); !folder.empty()) all.push_back({folder + "/ziglang/zig", "c++"});
  return all;
}

const Compiler& compiler() {
  static const auto* const found = [] {
    auto* const result = new Compiler;
    for (auto& words : candidates()) {
      if (words.empty()) continue;
      std::vector<std::string> asked = words;
      asked.emplace_back("--version");
      const Ended ended = run_process(asked);
      if (!ended.was_started || !ended.succeeded || ended.output.empty()) continue;
      result->words = std::move(words);
      result->version = ended.output;
      break;
    }
    return result;
  }();
  return *found;
}

const Compiler& checked_compiler() {
  const Compiler& found = compiler();
  if (!found.version.empty()) return found;
  const std::string& wanted = env::value_of(env::Variable::metal_compiler);
  if (!wanted.empty())
    throw CompileError(
        "MPSCNN_METAL_COMPILER (" + wanted + ") is no C++ compiler that runs: name clang++ or g++, or unset it.",
        false);
  throw CompileError(
      "Metal functions need a C++ compiler, and none was found in PATH: install the extra mpscnn[metal], or clang++ or "
      "g++ (on Debian: apt-get install g++), or name one in MPSCNN_METAL_COMPILER.",
      false);
}

/// Instruction sets of the processor, which -march=native depends on.
const std::string& processor() {
  static const auto* const text = [] {
    auto* const result = new std::string;
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line) && !line.empty();)
      if (line.starts_with("model") || line.starts_with("flags") || line.starts_with("Features"))
        *result += line + '\n';
    return result;
  }();
  return *text;
}

/// A folder that only this user can read, removed with its contents.
class PrivateFolder {
 public:
  PrivateFolder() {
    const char* const temporary = std::getenv("TMPDIR");
    std::string name = std::string(temporary && *temporary ? temporary : "/tmp") + "/mpscnn-XXXXXX";
    if (!::mkdtemp(name.data())) throw CompileError("No folder for temporary files can be made (" + name + ").", false);
    path_ = name;
  }
  ~PrivateFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const fs::path& path() const { return path_; }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

/// Options besides files. No flag that sets the processor's rounding or its flush of small numbers for the process.
std::vector<std::string> options_of(bool fast_math) {
  std::vector<std::string> options = {"-std=c++17",          "-O3",       "-march=native",   "-fPIC",
                                      "-fno-exceptions",     "-fno-rtti", "-fno-math-errno", "-fno-trapping-math",
                                      "-fvisibility=hidden", "-w"};
  const std::vector<std::string> fast = {"-fassociative-math", "-freciprocal-math", "-fno-signed-zeros",
                                         "-ffp-contract=fast"};
  if (fast_math)
    options.insert(options.end(), fast.begin(), fast.end());
  else
    options.emplace_back("-ffp-contract=off");
  return options;
}

/// Return the file of the loaded library of mathematical functions. Their addresses do not tell: an executable that
/// calls sin, as Debian's Python does, has an address of its own for it.
std::string math_library() {
  void* const handle = ::dlopen("libm.so.6", RTLD_NOW | RTLD_NOLOAD);
  if (!handle) return "";
  link_map* map = nullptr;
  const bool is_known = ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map;
  std::string file = is_known ? map->l_name : "";
  ::dlclose(handle);
  return file;
}

/// Return the arguments that link `object` to the library `result`.
std::vector<std::string> link_words(const Compiler& compiler, const std::string& object, const std::string& result) {
  std::vector<std::string> words = compiler.words;
  if (compiler.is_zig()) words.back() = "ld.lld";
  words.insert(words.end(), {"-shared", object, "-o", result, compiler.is_zig() ? math_library() : "-lm"});
  return words;
}

/// Run a command of the compiler on files in `folder`; return what it prints.
std::string run(const std::vector<std::string>& words, const fs::path& folder) {
  // Zig keeps every object that it makes; nothing would ever remove them.
  const std::string cache = "_CACHE_DIR=" + folder.string();
  const Ended ended = run_process(words, {"ZIG_GLOBAL" + cache, "ZIG_LOCAL" + cache});
  if (!ended.was_started) throw CompileError("The compiler " + words[0] + " cannot be started.", false);
  if (ended.succeeded) return ended.output;
  std::string log = ended.output;
  const std::string path = folder / "function.cpp";
  for (std::size_t at; (at = log.find(path)) != std::string::npos;) log.replace(at, path.size(), "metal_stdlib");
  throw CompileError(log, true);
}

/// Compile a text; return the library's bytes.
std::string compile(const std::string& text, const std::vector<std::string>& options) {
  const Compiler& compiler = checked_compiler();
  const PrivateFolder folder;
  const std::string source = folder / "function.cpp", object = folder / "function.o", result = folder / "function.so";
  std::ofstream(source, std::ios::binary) << text;
  std::vector<std::string> words = compiler.words;
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"-c", source, "-o", object});
  run(words, folder.path());
  const std::string output = run(link_words(compiler, object, result), folder.path());
  std::ifstream file(result, std::ios::binary);
  std::string code{std::istreambuf_iterator<char>(file), {}};
  if (code.empty()) throw CompileError("The compiler " + compiler.words[0] + " wrote no file.\n" + output, false);
  return code;
}

/// Let the compiler check a text.
void check(const std::string& text, const std::vector<std::string>& options) {
  const Compiler& compiler = checked_compiler();
  const PrivateFolder folder;
  const std::string source = folder / "function.cpp", object = folder / "function.o";
  std::ofstream(source, std::ios::binary) << text;
  std::vector<std::string> words = compiler.words;
  words.insert(words.end(), options.begin(), options.end());
  if (compiler.is_zig())
    words.insert(words.end(), {"-c", source, "-o", object});
  else
    words.insert(words.end(), {"-fsyntax-only", source});
  run(words, folder.path());
}

std::string key_of(const std::string& text, const std::vector<std::string>& options) {
  std::string key = "metal 1 " + checked_compiler().version + processor();
  for (const std::string& word : checked_compiler().words) key += word + ' ';
  for (const std::string& option : options) key += option + ' ';
  return key + '\n' + text;
}

/// Return the bytes of thread-local variables of a loaded library.
std::size_t thread_local_bytes(void* handle) {
  struct Search {
    ElfW(Addr) address;
    std::size_t bytes;
  } search{0, 0};
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map) return 0;
  search.address = map->l_addr;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& found = *static_cast<Search*>(data);
        if (info->dlpi_addr != found.address) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_TLS) found.bytes = info->dlpi_phdr[i].p_memsz;
        return 1;
      },
      &search);
  return search.bytes;
}

}  // namespace

HostCode::HostCode(const std::string& text, bool fast_math, bool uses_group) {
  const std::vector<std::string> options = options_of(fast_math);
  const std::string key = key_of(text, options);
  if (const auto kept = read_cached("cuda", "function", key)) {
    load(*kept, uses_group);
    return;
  }
  const std::string code = compile(text, options);
  write_cached("cuda", "function", key, code);
  load(code, uses_group);
}

HostCode::~HostCode() {
  if (handle_) ::dlclose(handle_);
  if (file_ >= 0) ::close(file_);
}

void HostCode::load(const std::string& code, bool uses_group) {
  const auto fail = [&](const std::string& why) {
    if (handle_) ::dlclose(handle_);
    if (file_ >= 0) ::close(file_);
    throw CompileError("Compiled Metal functions cannot be loaded: " + why + ".", false);
  };
  file_ = static_cast<int>(::syscall(SYS_memfd_create, "metal-function", MFD_CLOEXEC));
  if (file_ < 0) fail("no memory file can be made");
  for (std::size_t done = 0; done < code.size();) {
    const ssize_t count = ::write(file_, code.data() + done, code.size() - done);
    if (count <= 0) fail("there is no memory");
    done += static_cast<std::size_t>(count);
  }
  handle_ = ::dlopen(("/proc/self/fd/" + std::to_string(file_)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) fail(::dlerror());
  const auto* const table = static_cast<const function_abi::Binding*>(::dlsym(handle_, "openmps_table"));
  const auto* const size = static_cast<const unsigned*>(::dlsym(handle_, "openmps_table_size"));
  void* const entry = ::dlsym(handle_, uses_group ? "openmps_thread" : "openmps_box");
  if (!table || !size || !entry) fail("a symbol is missing");
  bindings_.assign(table, table + *size);
  if (uses_group) {
    thread_ = reinterpret_cast<Thread*>(entry);
    const std::size_t own = 16;  // the variable with the running group
    const std::size_t bytes = thread_local_bytes(handle_);
    if (bytes > own) static_group_bytes_ = (bytes - own + 15) / 16 * 16;
  } else {
    box_ = reinterpret_cast<Boxes*>(entry);
  }
}

void check_on_host(const std::string& text) {
  const std::vector<std::string> options = {"-std=c++17", "-march=native", "-fno-exceptions", "-w"};
  const std::string key = key_of(text, options);
  if (read_cached("cuda", "checked", key)) return;
  check(text, options);
  write_cached("cuda", "checked", key, "");
}

}  // namespace openmps::function

// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/compiler.hpp"

#include <cstdint>
#include <sstream>
#include <vector>

#include "engine/cuda/libraries.hpp"
#include "engine/failure.hpp"
#include "engine/shared/disk_cache.hpp"

namespace openmps::cuda {
namespace {

// Headers that stand for the standard library and for declarations that use it.
constexpr const char* kReplaced[] = {"algorithm",
                                     "bit",
                                     "cmath",
                                     "cstdint",
                                     "limits",
                                     "memory",
                                     "tuple",
                                     "utility",
                                     "vector",
                                     "cstddef",
                                     "type_traits",
                                     "engine/memory.hpp",
                                     "engine/problem/fields.hpp"};
constexpr const char* kReplacement = "#include \"engine/cuda/kernels/standard.hpp\"\n";

struct Nvrtc {
  using Program = struct ProgramOfNvrtc*;
  const char* (*error)(int status);
  int (*version)(int* major, int* minor);
  int (*create)(Program*, const char* text, const char* name, int count, const char* const* headers,
                const char* const* names);
  int (*destroy)(Program*);
  int (*compile)(Program, int count, const char* const* options);
  int (*code_size)(Program, std::size_t*);
  int (*code)(Program, char*);
  int (*log_size)(Program, std::size_t*);
  int (*log)(Program, char*);

  Nvrtc() {
    const Library& library = Library::of(LibraryName::nvrtc);
    library.get(error, "nvrtcGetErrorString");
    library.get(version, "nvrtcVersion");
    library.get(create, "nvrtcCreateProgram");
    library.get(destroy, "nvrtcDestroyProgram");
    library.get(compile, "nvrtcCompileProgram");
    library.get(code_size, "nvrtcGetCUBINSize");
    library.get(code, "nvrtcGetCUBIN");
    library.get(log_size, "nvrtcGetProgramLogSize");
    library.get(log, "nvrtcGetProgramLog");
  }
  void check(int status, const std::string& file) const {
    if (status) throw EngineError(FailureCode::internal, "NVRTC, " + file + ": " + error(status) + ".");
  }
};

const Nvrtc& nvrtc() {
  static const auto* const opened = new Nvrtc;
  return *opened;
}

/// Compile a text; `file` is its name in errors.
std::string compile_text(const std::string& main, const std::string& file, const std::vector<std::string>& options,
                         const std::vector<const char*>& names, const std::vector<const char*>& texts) {
  const Nvrtc& api = nvrtc();
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  Nvrtc::Program program = nullptr;
  api.check(api.create(&program, main.c_str(), "kernel.cu", static_cast<int>(names.size()), texts.data(), names.data()),
            file);
  struct Destroy {
    const Nvrtc& api;
    Nvrtc::Program& program;
    ~Destroy() { api.destroy(&program); }
  } const destroy{api, program};
  const int status = api.compile(program, static_cast<int>(words.size()), words.data());
  if (status) {
    std::size_t size = 0;
    std::string log;
    if (api.log_size(program, &size) == 0) log.resize(size), api.log(program, log.data());
    throw EngineError(FailureCode::internal, "NVRTC, " + file + ": " + api.error(status) + ".\n" + log.c_str());
  }
  std::size_t size = 0;
  api.check(api.code_size(program, &size), file);
  std::string code(size, '\0');
  api.check(api.code(program, code.data()), file);
  return code;
}

std::string compile_now(const std::string& file, const std::vector<std::string>& options) {
  std::vector<const char*> names, texts;
  for (const KernelSource& source : kernel_sources()) names.push_back(source.name), texts.push_back(source.text);
  for (const char* name : kReplaced) names.push_back(name), texts.push_back(kReplacement);
  return compile_text("#include \"" + file + "\"\n", file, options, names, texts);
}

/// Return the key of a compilation in the folder of compiled kernels, without its text.
std::string version_key(const std::vector<std::string>& options) {
  int major = 0, minor = 0;
  nvrtc().version(&major, &minor);
  std::string key = "nvrtc " + std::to_string(major) + '.' + std::to_string(minor);
  for (const std::string& option : options) key += ' ' + option;
  return key;
}

}  // namespace

std::string compile(const std::string& file, const std::string& definitions, int architecture) {
  // wgmma needs sm_90a, whose code runs on compute capability 9.0 only.
  const std::string target = "sm_" + std::to_string(architecture) + (architecture == 90 ? "a" : "");
  std::vector<std::string> options = {"-std=c++20", "-default-device", "-arch=" + target};
  std::istringstream words(definitions);
  for (std::string word; words >> word;) options.push_back(word);
  std::string key = version_key(options) + ' ' + file;
  for (const KernelSource& source : kernel_sources()) key += std::string("\n") + source.name + '\n' + source.text;
  if (auto kept = read_cached("cuda", "kernel", key)) return *kept;
  std::string code = compile_now(file, options);
  write_cached("cuda", "kernel", key, code);
  return code;
}

std::string compile_function(const std::string& text, bool fast_math, int architecture) {
  const std::vector<std::string> options = {"-std=c++17", "-default-device", "-w",
                                            fast_math ? "-fmad=true" : "-fmad=false",
                                            "-arch=sm_" + std::to_string(architecture)};
  const std::string key = version_key(options) + " function\n" + text;
  if (auto kept = read_cached("cuda", "kernel", key)) return *kept;
  std::string code = compile_text(text, "function", options, {}, {});
  write_cached("cuda", "kernel", key, code);
  return code;
}

}  // namespace openmps::cuda

// SPDX-License-Identifier: Apache-2.0
// Compiles all CUDA kernels with NVRTC: no GPU is needed. Results of earlier runs are not used.
//
//   cpp_engine_compile [architecture ...] [generic | <format>] [file.metal ...]
//
// With files of Metal functions, compiles these instead.
// Default: architectures 75 80 90 120; for images of any format (generic), of float16 (2) and of float32 (3).
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>

#include "engine/cuda/compiler.hpp"
#include "engine/cuda/libraries.hpp"
#include "engine/function/function.hpp"
#include "engine_test.hpp"

namespace {

/// Compile the functions of a file; function constants are 0.
void compile_functions(const std::string& path, const std::vector<int>& architectures) {
  std::ifstream file(path);
  const std::string source{std::istreambuf_iterator<char>(file), {}};
  function::Error error;
  const auto library = function::Library::make(source, {}, error);
  report(library && !library->program().kernels().empty(), "%s: %s", path.c_str(), error.sentence.c_str());
  if (!library) return;
  function::Values values;
  for (const function::Constant& constant : library->program().constants())
    values.by_name[constant.name] = {constant.type, std::vector<std::uint8_t>(64)};
  for (const function::Kernel& kernel : library->program().kernels()) {
    const auto compiled = function::Function::make(library, kernel.name, values, error);
    report(compiled != nullptr, "%s: %s", kernel.name.c_str(), error.sentence.c_str());
    if (!compiled) continue;
    for (const int architecture : architectures) {
      std::string failure;
      std::size_t bytes = 0;
      try {
        bytes = cuda::compile_function(compiled->cpp(), true, architecture).size();
      } catch (const std::exception& exception) {
        failure = exception.what();
      }
      report(bytes > 0, "%s, sm_%d: %s", kernel.name.c_str(), architecture, failure.c_str());
    }
  }
}

}  // namespace

int main(int count, char** words) {
  unsetenv("HOME"), unsetenv("XDG_CACHE_HOME");
  std::vector<int> architectures;
  std::vector<std::string> formats, files;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "generic")
      formats.emplace_back();
    else if (word.ends_with(".metal"))
      files.push_back(word);
    else if (word.size() == 1)
      formats.push_back("-DMPSCNN_FORMAT=" + word);
    else
      architectures.push_back(std::stoi(word));
  }
  if (architectures.empty()) architectures = {75, 80, 90, 120};
  if (formats.empty()) formats = {"", "-DMPSCNN_FORMAT=2", "-DMPSCNN_FORMAT=3"};
  std::string reason;
  if (!cuda::Library::find(cuda::LibraryName::nvrtc, &reason)) {
    std::printf("skipped: %s\n", reason.c_str());
    return 0;
  }
  for (const std::string& file : files) compile_functions(file, architectures);
  // A kernel, not the macro that defines kernels.
  const std::regex definition("\nMPSCNN\\w*_KERNEL\\(");
  for (const cuda::KernelSource& source : cuda::kernel_sources()) {
    const std::string name = source.name, text = source.text;
    if (!files.empty() || !std::regex_search(text, definition)) continue;
    for (const int architecture : architectures)
      for (const std::string& definitions : formats) {
        const auto begin = std::chrono::steady_clock::now();
        std::string failure;
        std::size_t bytes = 0;
        try {
          bytes = cuda::compile(name, definitions, architecture).size();
        } catch (const std::exception& error) {
          failure = error.what();
        }
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        report(bytes > 0, "%s", failure.c_str());
        std::printf("sm_%-4d %6.2f s %8zu bytes  %s %s\n", architecture, time.count(), bytes, name.c_str(),
                    definitions.c_str());
      }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}

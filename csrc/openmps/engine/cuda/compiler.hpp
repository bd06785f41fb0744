// SPDX-License-Identifier: Apache-2.0
// Compiler: machine code of our kernels, made by NVRTC and kept on disk.
#pragma once

#include <span>
#include <string>

namespace openmps::cuda {

/// A file of kernels, or one that they include, as it is included.
struct KernelSource {
  const char* name;
  const char* text;
};
/// Return all of them; the library contains them.
std::span<const KernelSource> kernel_sources();

/// Compile a file for an architecture (90: compute capability 9.0) with `definitions`, "-DNAME=VALUE" separated by
/// spaces, or read the result of an earlier process. Throws EngineError with NVRTC's log.
std::string compile(const std::string& file, const std::string& definitions, int architecture);

/// The same for the text of a program's function [engine/function/translate.hpp].
std::string compile_function(const std::string& text, bool fast_math, int architecture);

}  // namespace openmps::cuda

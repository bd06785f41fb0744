// SPDX-License-Identifier: Apache-2.0
// Translation of a program in the Metal Shading Language to C++. The language's types and functions are C++ classes in
// library/; the rest is a rewriting of tokens: attributes become tables, address spaces and literals C++.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/function/tokens.hpp"

namespace openmps::function {

/// An argument of a kernel function. Its index is an expression of the program.
struct Argument {
  std::string name, kind, index;
  std::string condition;  ///< function constant that must be true for the argument to exist; "": it always does
};

/// `constant T name [[function_constant(index)]];`
struct Constant {
  std::string name, type;
  unsigned index = 0;
};

/// The operation of a function, declared by `#pragma openmps meaning(function)`. An engine may compute it by a kernel
/// of its own. docs/metal_functions.md has the arguments.
enum class Meaning : std::uint8_t { none, product, permutation };

struct Kernel {
  std::string name;    ///< as programs ask for it
  std::string callee;  ///< as C++ calls it
  Meaning meaning = Meaning::none;
  std::vector<Argument> arguments;
  bool uses_group = false;          ///< it has threadgroup memory, barriers or functions of SIMD groups
  std::vector<unsigned> constants;  ///< indices into Program::constants() that must have values: it mentions them, and
                                    ///< the program does not test whether they are defined
};

/// Values of function constants, as C++ expressions, by their place in Program::constants().
using ConstantValues = std::map<std::size_t, std::string>;

class Program {
 public:
  /// Throws SourceError, and std::invalid_argument for a macro whose name is no identifier.
  Program(const std::string& source, const std::map<std::string, std::string>& macros);

  const std::vector<Kernel>& kernels() const { return kernels_; }
  const std::vector<Constant>& constants() const { return constants_; }
  const Kernel* kernel(const std::string& name) const;

  /// Return the program in C++, with Metal's types and functions before it, and an entry for `kernel` if it is given.
  std::string cpp(const ConstantValues& values, const Kernel* kernel) const;

 private:
  friend class Translator;
  void give_meaning(const Pragma& pragma);
  Tokens tokens_;
  std::vector<Kernel> kernels_;
  std::vector<Constant> constants_;
};

}  // namespace openmps::function

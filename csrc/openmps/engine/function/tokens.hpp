// SPDX-License-Identifier: Apache-2.0
// Tokens of a program in the Metal Shading Language, and its preprocessor.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace openmps::function {

struct Token {
  enum class Kind { identifier, number, text, punctuation };
  Kind kind = Kind::punctuation;
  std::string text;
  int line = 1;
  bool has_space = false;                ///< before it
  bool starts_line = false;              ///< of the file
  std::vector<std::string> hidden = {};  ///< macros that are not expanded in it again

  bool is(const char* other) const { return text == other; }
  bool is_name() const { return kind == Kind::identifier; }
};
using Tokens = std::vector<Token>;

/// An error in the program, with a sentence that names the line.
struct SourceError : std::runtime_error {
  SourceError(int line, const std::string& message)
      : std::runtime_error("program_source:" + std::to_string(line) + ": error: " + message) {}
};

/// Split a text into tokens, without comments. Throws SourceError.
Tokens tokens_of(const std::string& text);

/// `#pragma openmps meaning(function)`. Metal ignores it.
struct Pragma {
  int line;
  std::string meaning, function;
};

struct Preprocessed {
  Tokens tokens;
  std::vector<Pragma> pragmas;
};

/// Expand macros and evaluate conditions. `macros`: name and value. Includes of Metal's and SIMD's headers are dropped,
/// others are errors, and so are pragmas of openmps in another form. Throws SourceError; std::invalid_argument for a
/// name that is no identifier.
Preprocessed preprocess(const std::string& text, const std::map<std::string, std::string>& macros);

}  // namespace openmps::function

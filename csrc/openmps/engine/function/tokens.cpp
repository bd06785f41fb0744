// SPDX-License-Identifier: Apache-2.0
#include "engine/function/tokens.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

namespace openmps::function {
namespace {

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool continues_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Longest first.
constexpr std::array<std::string_view, 23> kPunctuation = {"...", "<<=", ">>=", "->*", "##", "::", "->", "<<",
                                                           ">>",  "<=",  ">=",  "==",  "!=", "&&", "||", "++",
                                                           "--",  "+=",  "-=",  "*=",  "/=", "%=", "&="};
constexpr std::array<std::string_view, 2> kMorePunctuation = {"|=", "^="};

class Scanner {
 public:
  explicit Scanner(const std::string& text) : text_(text) {}

  Tokens run() {
    while (skip_blanks()) {
      Token token;
      token.line = line_;
      token.has_space = has_space_;
      token.starts_line = starts_line_;
      read(token);
      starts_line_ = has_space_ = false;
      tokens_.push_back(std::move(token));
    }
    return std::move(tokens_);
  }

 private:
  char at(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  /// Skip blanks, comments and joined lines. Return whether text is left.
  bool skip_blanks() {
    while (at_ < text_.size()) {
      if (at() == '\n') {
        ++line_, ++at_;
        starts_line_ = true;
      } else if (at() == '\\' && (at(1) == '\n' || (at(1) == '\r' && at(2) == '\n'))) {
        at_ += at(1) == '\n' ? 2 : 3;
        ++line_;
      } else if (std::isspace(static_cast<unsigned char>(at()))) {
        ++at_;
      } else if (at() == '/' && at(1) == '/') {
        while (at_ < text_.size() && at() != '\n')
          line_ += at() == '\\' && at(1) == '\n', at_ += at() == '\\' && at(1) == '\n' ? 2 : 1;
      } else if (at() == '/' && at(1) == '*') {
        skip_comment();
      } else {
        return true;
      }
      has_space_ = true;
    }
    return false;
  }
  void skip_comment() {
    const int first = line_;
    for (at_ += 2; !(at() == '*' && at(1) == '/'); ++at_) {
      if (at_ >= text_.size()) throw SourceError(first, "unterminated /* comment");
      line_ += at() == '\n';
    }
    at_ += 2;
  }

  void read(Token& token) {
    const std::size_t first = at_;
    if (starts_name(at())) {
      while (continues_name(at())) ++at_;
      token.kind = Token::Kind::identifier;
    } else if (std::isdigit(static_cast<unsigned char>(at())) ||
               (at() == '.' && std::isdigit(static_cast<unsigned char>(at(1))))) {
      while (continues_name(at()) || at() == '.' ||
             ((at() == '+' || at() == '-') && std::string_view("eEpP").find(text_[at_ - 1]) != std::string_view::npos &&
              !(text_[first] == '0' && (text_[first + 1] | 32) == 'x' && (text_[at_ - 1] | 32) == 'e')))
        ++at_;
      token.kind = Token::Kind::number;
    } else if (at() == '"' || at() == '\'') {
      read_quoted();
      token.kind = Token::Kind::text;
    } else {
      at_ += punctuation_length();
    }
    token.text = text_.substr(first, at_ - first);
  }
  void read_quoted() {
    const char quote = at();
    for (++at_; at() != quote; ++at_) {
      if (at_ >= text_.size() || at() == '\n') throw SourceError(line_, "missing terminating quote");
      if (at() == '\\') ++at_;
    }
    ++at_;
  }
  std::size_t punctuation_length() const {
    const auto fits = [&](std::string_view each) { return text_.compare(at_, each.size(), each) == 0; };
    if (const auto found = std::ranges::find_if(kPunctuation, fits); found != kPunctuation.end()) return found->size();
    return std::ranges::any_of(kMorePunctuation, fits) ? 2 : 1;
  }

  const std::string& text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true, has_space_ = false;
  Tokens tokens_;
};

struct Macro {
  bool takes_arguments = false, is_variadic = false;
  std::vector<std::string> parameters;
  Tokens body;
};

/// Value of an #if condition.
class Condition {
 public:
  Condition(const Tokens& tokens, int line) : tokens_(tokens), line_(line) {}

  bool value() {
    const long long result = ternary();
    if (at_ != tokens_.size()) fail();
    return result != 0;
  }

 private:
  [[noreturn]] void fail() const { throw SourceError(line_, "invalid condition of #if"); }
  bool take(const char* text) {
    if (at_ == tokens_.size() || !tokens_[at_].is(text)) return false;
    ++at_;
    return true;
  }
  long long ternary() {
    const long long condition = binary(0);
    if (!take("?")) return condition;
    const long long yes = ternary();
    if (!take(":")) fail();
    const long long no = ternary();
    return condition ? yes : no;
  }
  static int level_of(const std::string& op) {
    static const std::map<std::string, int> levels = {{"||", 1}, {"&&", 2}, {"|", 3}, {"^", 4},  {"&", 5},  {"==", 6},
                                                      {"!=", 6}, {"<", 7},  {">", 7}, {"<=", 7}, {">=", 7}, {"<<", 8},
                                                      {">>", 8}, {"+", 9},  {"-", 9}, {"*", 10}, {"/", 10}, {"%", 10}};
    const auto found = levels.find(op);
    return found == levels.end() ? 0 : found->second;
  }
  long long binary(int above) {
    long long left = unary();
    while (at_ < tokens_.size()) {
      const std::string op = tokens_[at_].text;
      const int level = level_of(op);
      if (level <= above) break;
      ++at_;
      left = apply(op, left, binary(level));
    }
    return left;
  }
  long long apply(const std::string& op, long long a, long long b) const {
    if (op == "||") return a || b;
    if (op == "&&") return a && b;
    if (op == "|") return a | b;
    if (op == "^") return a ^ b;
    if (op == "&") return a & b;
    if (op == "==") return a == b;
    if (op == "!=") return a != b;
    if (op == "<") return a < b;
    if (op == ">") return a > b;
    if (op == "<=") return a <= b;
    if (op == ">=") return a >= b;
    if (op == "<<") return b >= 0 && b < 63 ? a << b : 0;
    if (op == ">>") return b >= 0 && b < 63 ? a >> b : 0;
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    if (b == 0) throw SourceError(line_, "division by zero in #if");
    return op == "/" ? a / b : a % b;
  }
  long long unary() {
    if (take("!")) return !unary();
    if (take("-")) return -unary();
    if (take("+")) return unary();
    if (take("~")) return ~unary();
    if (take("(")) {
      const long long value = ternary();
      if (!take(")")) fail();
      return value;
    }
    if (at_ == tokens_.size()) fail();
    const Token& token = tokens_[at_++];
    if (token.is_name()) return token.is("true");
    if (token.kind != Token::Kind::number) fail();
    try {
      return std::stoll(token.text, nullptr, 0);
    } catch (const std::exception&) {
      fail();
    }
  }

  const Tokens& tokens_;
  const int line_;
  std::size_t at_ = 0;
};

class Preprocessor {
 public:
  void define(const std::string& name, const std::string& value) {
    if (name.empty() || !starts_name(name[0]) || !std::ranges::all_of(name, continues_name))
      throw std::invalid_argument(name);
    Macro macro;
    macro.body = tokens_of(value);
    macros_[name] = std::move(macro);
  }

  Preprocessed run(const std::string& text) {
    const Tokens all = tokens_of(text);
    Tokens chunk, result;
    const auto flush = [&] {
      const Tokens expanded = expand(std::exchange(chunk, {}));
      result.insert(result.end(), expanded.begin(), expanded.end());
    };
    for (std::size_t i = 0; i < all.size();) {
      if (!(all[i].starts_line && all[i].is("#"))) {
        if (is_active()) chunk.push_back(all[i]);
        ++i;
        continue;
      }
      flush();
      std::size_t end = i + 1;
      while (end < all.size() && !all[end].starts_line) ++end;
      directive(
          Tokens(all.begin() + static_cast<std::ptrdiff_t>(i) + 1, all.begin() + static_cast<std::ptrdiff_t>(end)),
          all[i].line);
      i = end;
    }
    flush();
    if (!branches_.empty()) throw SourceError(branches_.back().line, "unterminated conditional directive");
    return {std::move(result), std::move(pragmas_)};
  }

 private:
  struct Branch {
    int line;
    bool is_active, was_taken, has_else;
  };
  bool is_active() const {
    return std::ranges::all_of(branches_, [](const Branch& each) { return each.is_active; });
  }

  void directive(const Tokens& tokens, int line) {
    if (tokens.empty()) return;
    const std::string& name = tokens[0].text;
    const Tokens rest(tokens.begin() + 1, tokens.end());
    if (name == "if" || name == "ifdef" || name == "ifndef") {
      const bool holds =
          is_active() && (name == "if" ? condition(rest, line) : is_defined(rest, line) == (name == "ifdef"));
      branches_.push_back({line, holds, holds, false});
    } else if (name == "elif" || name == "else") {
      if (branches_.empty() || branches_.back().has_else) throw SourceError(line, "#" + name + " without #if");
      Branch branch = branches_.back();
      branches_.pop_back();
      const bool holds = is_active() && !branch.was_taken && (name == "else" || condition(rest, line));
      branches_.push_back({branch.line, holds, branch.was_taken || holds, name == "else"});
    } else if (name == "endif") {
      if (branches_.empty()) throw SourceError(line, "#endif without #if");
      branches_.pop_back();
    } else if (is_active()) {
      active_directive(name, rest, line);
    }
  }
  void active_directive(const std::string& name, const Tokens& rest, int line) {
    if (name == "define") {
      define_macro(rest, line);
    } else if (name == "undef") {
      if (!rest.empty()) macros_.erase(rest[0].text);
    } else if (name == "include" || name == "import") {
      include(rest, line);
    } else if (name == "error") {
      std::string message;
      for (const Token& token : rest) message += (message.empty() ? "" : " ") + token.text;
      throw SourceError(line, message);
    } else if (name == "pragma") {
      pragma(rest, line);
    } else if (name != "line" && name != "warning") {
      throw SourceError(line, "invalid preprocessing directive #" + name);
    }
  }
  void pragma(const Tokens& rest, int line) {
    if (rest.empty() || !rest[0].is("openmps")) return;
    if (rest.size() != 5 || !rest[1].is_name() || !rest[2].is("(") || !rest[3].is_name() || !rest[4].is(")"))
      throw SourceError(line, "#pragma openmps takes the form meaning(function)");
    pragmas_.push_back({line, rest[1].text, rest[3].text});
  }
  static void include(const Tokens& rest, int line) {
    std::string path;
    for (const Token& token : rest) path += token.text;
    std::string bare = path.size() > 2 ? path.substr(1, path.size() - 2) : "";
    if (bare.starts_with("metal_") || bare.starts_with("simd/") || bare == "metal.h") return;
    throw SourceError(line, path + " file not found; a library is made of one source and Metal's own headers");
  }
  bool is_defined(const Tokens& rest, int line) const {
    if (rest.empty() || !rest[0].is_name()) throw SourceError(line, "macro name missing");
    return macros_.contains(rest[0].text);
  }
  bool condition(const Tokens& rest, int line) {
    Tokens replaced;
    for (std::size_t i = 0; i < rest.size(); ++i) {
      if (!rest[i].is("defined")) {
        replaced.push_back(rest[i]);
        continue;
      }
      const bool has_parentheses = i + 1 < rest.size() && rest[i + 1].is("(");
      i += has_parentheses ? 2 : 1;
      if (i >= rest.size()) throw SourceError(line, "macro name missing");
      Token value = rest[i];
      value.kind = Token::Kind::number;
      value.text = macros_.contains(rest[i].text) ? "1" : "0";
      replaced.push_back(value);
      i += has_parentheses;
    }
    const Tokens expanded = expand(std::move(replaced));
    return Condition(expanded, line).value();
  }

  void define_macro(const Tokens& rest, int line) {
    if (rest.empty() || !rest[0].is_name()) throw SourceError(line, "macro name missing");
    Macro macro;
    std::size_t i = 1;
    if (i < rest.size() && rest[i].is("(") && !rest[i].has_space) {
      macro.takes_arguments = true;
      for (++i; i < rest.size() && !rest[i].is(")"); ++i) {
        if (rest[i].is("...")) {
          macro.is_variadic = true;
          macro.parameters.emplace_back("__VA_ARGS__");
        } else if (rest[i].is_name()) {
          macro.parameters.push_back(rest[i].text);
        } else if (!rest[i].is(",")) {
          throw SourceError(line, "invalid parameter of macro " + rest[0].text);
        }
      }
      if (i == rest.size()) throw SourceError(line, "missing ) in the parameters of macro " + rest[0].text);
      ++i;
    }
    macro.body.assign(rest.begin() + static_cast<std::ptrdiff_t>(i), rest.end());
    macros_[rest[0].text] = std::move(macro);
  }

  /// Expand macros [Prosser's algorithm: each token carries the macros that produced it]. `pending` is reversed.
  Tokens expand(Tokens tokens) {
    std::reverse(tokens.begin(), tokens.end());
    Tokens& pending = tokens;
    Tokens result;
    while (!pending.empty()) {
      Token token = std::move(pending.back());
      pending.pop_back();
      const auto found = token.is_name() ? macros_.find(token.text) : macros_.end();
      if (found == macros_.end() || std::ranges::find(token.hidden, token.text) != token.hidden.end()) {
        result.push_back(std::move(token));
        continue;
      }
      const Macro& macro = found->second;
      if (macro.takes_arguments && (pending.empty() || !pending.back().is("("))) {
        result.push_back(std::move(token));
        continue;
      }
      Tokens body = macro.takes_arguments ? substitute(macro, arguments_of(macro, token, pending)) : pasted(macro.body);
      for (auto each = body.rbegin(); each != body.rend(); ++each) {
        each->line = token.line;
        each->starts_line = false;
        each->hidden.insert(each->hidden.end(), token.hidden.begin(), token.hidden.end());
        each->hidden.push_back(token.text);
        pending.push_back(std::move(*each));
      }
      if (!body.empty()) pending.back().has_space = token.has_space;
      if (pending.size() > kMaxTokens) throw SourceError(token.line, "macro " + token.text + " is too large");
    }
    return result;
  }

  static std::vector<Tokens> arguments_of(const Macro& macro, const Token& name, Tokens& pending) {
    pending.pop_back();
    std::vector<Tokens> arguments(1);
    for (int depth = 0;;) {
      if (pending.empty()) throw SourceError(name.line, "unterminated invocation of macro " + name.text);
      Token token = std::move(pending.back());
      pending.pop_back();
      if (token.is(")") && depth-- == 0) break;
      depth += token.is("(");
      const bool is_last = macro.is_variadic && arguments.size() >= macro.parameters.size();
      if (token.is(",") && depth == 0 && !is_last)
        arguments.emplace_back();
      else
        arguments.back().push_back(std::move(token));
    }
    if (macro.is_variadic && arguments.size() + 1 == macro.parameters.size()) arguments.emplace_back();
    if (macro.parameters.empty() && arguments.size() == 1 && arguments[0].empty()) arguments.clear();
    if (arguments.size() != macro.parameters.size())
      throw SourceError(name.line, "macro " + name.text + " takes " + std::to_string(macro.parameters.size()) +
                                       " arguments, " + std::to_string(arguments.size()) + " are given");
    return arguments;
  }

  Tokens substitute(const Macro& macro, const std::vector<Tokens>& arguments) {
    const auto index_of = [&](const Token& token) {
      return static_cast<std::size_t>(std::ranges::find(macro.parameters, token.text) - macro.parameters.begin());
    };
    Tokens result;
    for (std::size_t i = 0; i < macro.body.size(); ++i) {
      const Token& token = macro.body[i];
      const bool pastes =
          (i + 1 < macro.body.size() && macro.body[i + 1].is("##")) || (i > 0 && macro.body[i - 1].is("##"));
      if (token.is("#") && i + 1 < macro.body.size() && index_of(macro.body[i + 1]) < arguments.size()) {
        result.push_back(quoted(arguments[index_of(macro.body[++i])]));
      } else if (const std::size_t index = token.is_name() ? index_of(token) : arguments.size();
                 index < arguments.size()) {
        Tokens values = pastes ? arguments[index] : expand(arguments[index]);
        if (values.empty() && pastes) values.push_back({});  // an empty operand of ##
        if (!values.empty()) values[0].has_space = token.has_space;
        result.insert(result.end(), values.begin(), values.end());
      } else {
        result.push_back(token);
      }
    }
    return pasted(result);
  }
  static Token quoted(const Tokens& tokens) {
    Token result;
    result.kind = Token::Kind::text;
    result.text = "\"";
    for (const Token& token : tokens) {
      if (token.has_space && result.text.size() > 1) result.text += ' ';
      for (const char c : token.text) {
        if (c == '"' || c == '\\') result.text += '\\';
        result.text += c;
      }
    }
    result.text += '"';
    return result;
  }
  /// Join the operands of ##.
  static Tokens pasted(const Tokens& tokens) {
    Tokens result;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].is("##") && !result.empty() && i + 1 < tokens.size()) {
        Token& left = result.back();
        const std::string joined = left.text + tokens[++i].text;
        const Tokens again = tokens_of(joined);
        left.text = joined;
        if (!again.empty()) left.kind = again[0].kind;
      } else {
        result.push_back(tokens[i]);
      }
    }
    std::erase_if(result, [](const Token& token) { return token.text.empty(); });
    return result;
  }

  static constexpr std::size_t kMaxTokens = 1u << 22;
  std::map<std::string, Macro> macros_;
  std::vector<Branch> branches_;
  std::vector<Pragma> pragmas_;
};

constexpr std::array<std::array<const char*, 2>, 30> kPredefined = {{
    {"__METAL__", "1"},
    {"__METAL_VERSION__", "300"},
    {"__METAL_MACOS__", "1"},
    {"INFINITY", "OPENMPS_INFINITY"},
    {"HUGE_VALF", "OPENMPS_INFINITY"},
    {"NAN", "OPENMPS_NAN"},
    {"MAXFLOAT", "3.402823466e+38f"},
    {"FLT_MAX", "3.402823466e+38f"},
    {"FLT_MIN", "1.175494351e-38f"},
    {"FLT_EPSILON", "1.192092896e-07f"},
    {"HALF_MAX", "65504.0h"},
    {"HALF_MIN", "6.103515625e-05h"},
    {"HALF_EPSILON", "0.0009765625h"},
    {"MAXHALF", "65504.0h"},
    {"INT_MAX", "2147483647"},
    {"INT_MIN", "(-2147483647 - 1)"},
    {"UINT_MAX", "4294967295u"},
    {"SHRT_MAX", "32767"},
    {"SHRT_MIN", "(-32768)"},
    {"USHRT_MAX", "65535"},
    {"CHAR_BIT", "8"},
    {"UCHAR_MAX", "255"},
    {"M_PI_F", "3.14159265358979323846f"},
    {"M_PI_2_F", "1.57079632679489661923f"},
    {"M_PI_4_F", "0.78539816339744830962f"},
    {"M_1_PI_F", "0.31830988618379067154f"},
    {"M_E_F", "2.71828182845904523536f"},
    {"M_LN2_F", "0.69314718055994530942f"},
    {"M_SQRT2_F", "1.41421356237309504880f"},
    {"M_PI_H", "3.14159265358979323846h"},
}};

}  // namespace

Tokens tokens_of(const std::string& text) { return Scanner(text).run(); }

Preprocessed preprocess(const std::string& text, const std::map<std::string, std::string>& macros) {
  Preprocessor preprocessor;
  for (const auto& [name, value] : kPredefined) preprocessor.define(name, value);
  for (const auto& [name, value] : macros) preprocessor.define(name, value);
  return preprocessor.run(text);
}

}  // namespace openmps::function

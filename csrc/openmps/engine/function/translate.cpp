// SPDX-License-Identifier: Apache-2.0
#include "engine/function/translate.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <utility>

#include "engine/function/language.hpp"
#include "engine/shared/half.hpp"

namespace openmps::function {
namespace {

// Tokens whose text depends on the values of function constants.
constexpr const char* kDefinition = "@constant";  // followed by its index
constexpr const char* kIsDefined = "@is_defined";

struct KindName {
  const char *attribute, *kind;
};
/// Attributes of arguments and the names of their kinds in function_abi::BindingKind.
constexpr std::array<KindName, 22> kKinds = {{
    {"texture", "kTexture"},
    {"buffer", "kBuffer"},
    {"threadgroup", "kThreadgroupMemory"},
    {"thread_position_in_grid", "kThreadPositionInGrid"},
    {"thread_position_in_threadgroup", "kThreadPositionInThreadgroup"},
    {"thread_index_in_threadgroup", "kThreadIndexInThreadgroup"},
    {"threadgroup_position_in_grid", "kThreadgroupPositionInGrid"},
    {"threads_per_threadgroup", "kThreadsPerThreadgroup"},
    {"dispatch_threads_per_threadgroup", "kDispatchThreadsPerThreadgroup"},
    {"threads_per_grid", "kThreadsPerGrid"},
    {"threadgroups_per_grid", "kThreadgroupsPerGrid"},
    {"sampler", "kSampler"},
    {"thread_index_in_simdgroup", "kThreadIndexInSimdgroup"},
    {"simdgroup_index_in_threadgroup", "kSimdgroupIndexInThreadgroup"},
    {"threads_per_simdgroup", "kThreadsPerSimdgroup"},
    {"thread_execution_width", "kThreadsPerSimdgroup"},  // its older name
    {"simdgroups_per_threadgroup", "kSimdgroupsPerThreadgroup"},
    {"dispatch_simdgroups_per_threadgroup", "kDispatchSimdgroupsPerThreadgroup"},
    {"thread_index_in_quadgroup", "kThreadIndexInQuadgroup"},
    {"quadgroup_index_in_threadgroup", "kQuadgroupIndexInThreadgroup"},
    {"quadgroups_per_threadgroup", "kQuadgroupsPerThreadgroup"},
    {"dispatch_quadgroups_per_threadgroup", "kDispatchQuadgroupsPerThreadgroup"},
}};

/// Functions of SIMD groups (simd_sum) and quads (quad_sum), without the prefix.
constexpr std::array kLaneFunctions = {"active_threads_mask",
                                       "all",
                                       "and",
                                       "any",
                                       "ballot",
                                       "broadcast",
                                       "broadcast_first",
                                       "is_first",
                                       "max",
                                       "min",
                                       "or",
                                       "prefix_exclusive_product",
                                       "prefix_exclusive_sum",
                                       "prefix_inclusive_product",
                                       "prefix_inclusive_sum",
                                       "product",
                                       "shuffle",
                                       "shuffle_and_fill_down",
                                       "shuffle_and_fill_up",
                                       "shuffle_down",
                                       "shuffle_rotate_down",
                                       "shuffle_rotate_up",
                                       "shuffle_up",
                                       "shuffle_xor",
                                       "sum",
                                       "xor"};

/// Return the function of library/simd.hpp for a function of SIMD groups or quads: "32>::sum"; "" for other names.
std::string lane_function(const std::string& name) {
  if (name == "simdgroup_barrier") return "32>::barrier";
  const bool is_simd = name.starts_with("simd_");
  if (!is_simd && !name.starts_with("quad_")) return {};
  const std::string rest = name.substr(5);
  if (std::ranges::find(kLaneFunctions, rest) == kLaneFunctions.end()) return {};
  const bool is_operator = rest == "and" || rest == "or" || rest == "xor";  // of C++
  return (is_simd ? "32>::" : "4>::") + rest + (is_operator ? "_" : "");
}

constexpr std::array kAssignments = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="};

bool is_one_of(const Token& token, std::initializer_list<const char*> texts) {
  return std::ranges::any_of(texts, [&](const char* text) { return token.is(text); });
}

Token made(const char* text, int line) {
  Token token;
  token.text = text;
  token.line = line;
  token.has_space = true;
  return token;
}

/// Return the lanes that a swizzle names, "0,1"; nullopt unless it has two to four of their letters.
std::optional<std::string> lanes_of(const std::string& name) {
  if (name.size() < 2 || name.size() > 4) return std::nullopt;
  for (const std::string letters : {"xyzw", "rgba"}) {
    if (name.find_first_not_of(letters) != std::string::npos) continue;
    std::string lanes;
    for (const char letter : name) lanes += (lanes.empty() ? "" : ",") + std::to_string(letters.find(letter));
    return lanes;
  }
  return std::nullopt;
}

/// Return a literal of the Metal language in C++: real numbers are floats, those with an h halves.
std::string literal_of(const std::string& text) {
  const bool is_hex = text.size() > 1 && text[0] == '0' && (text[1] | 32) == 'x';
  const bool is_real = text.find_first_of(is_hex ? ".pP" : ".eE") != std::string::npos;
  const char last = text.back();
  if (!is_hex && (last == 'h' || last == 'H')) {
    std::string digits = text.substr(0, text.size() - 1);
    if (!is_real) digits += ".0";
    const std::uint16_t bits = float_to_half(std::strtof(digits.c_str(), nullptr));
    return "openmps_half_literal(" + digits + "f, " + std::to_string(bits) + ")";
  }
  if (is_real && last != 'f' && last != 'F') return text + "f";
  return text;
}

}  // namespace

class Translator {
 public:
  Translator(Tokens tokens, Program& program) : in_(std::move(tokens)), program_(program) {}

  void run() {
    find_definitions();
    while (at_ < in_.size()) {
      step();
      for (; !call_ends_.empty() && at_ == call_ends_.back(); call_ends_.pop_back()) put("; })", at(at_ - 1).line);
    }
    program_.tokens_ = std::move(out_);
    for (Kernel& kernel : program_.kernels_) complete(kernel);
  }

 private:
  const Token& at(std::size_t i) const {
    static const Token none;
    return i < in_.size() ? in_[i] : none;
  }
  /// Return the index behind the bracket that closes the one at `open`.
  std::size_t behind(std::size_t open) const {
    const std::string opening = at(open).text;
    const std::string closing = opening == "(" ? ")" : opening == "[" ? "]" : opening == "{" ? "}" : ">";
    int depth = 0;
    for (std::size_t i = open; i < in_.size(); ++i) {
      if (at(i).text == opening) ++depth;
      if (at(i).text == closing && --depth == 0) return i + 1;
      if (closing == ">" && at(i).is(">>") && (depth -= 2) <= 0) return i + 1;
    }
    throw SourceError(at(open).line, "expected " + closing + " for this " + opening);
  }
  bool is_attribute(std::size_t i) const { return at(i).is("[") && at(i + 1).is("["); }

  // ------------------------------------------------------------------- which names a definition uses
  void find_definitions() {
    for (std::size_t i = 0; i < in_.size(); ++i) {
      if (!at(i).is_name()) continue;
      if (is_one_of(at(i), {"if", "for", "while", "switch", "return", "sizeof", "else", "do"})) continue;
      if (const auto lanes = lanes_of(at(i).text); lanes && i > 0 && !is_one_of(at(i - 1), {".", "->"}))
        declared_.insert(at(i).text);
      std::size_t body = i + 1;
      if (is_one_of(at(i), {"struct", "class", "union"}) && at(i + 1).is_name()) {
        while (body < in_.size() && !is_one_of(at(body), {"{", ";", "(", ")", ">", ",", "="})) ++body;
        if (at(body).is("{")) note_uses(at(i + 1).text, i + 2, behind(body));
        continue;
      }
      if (at(body).is("<") && is_template_list(body)) body = behind(body);
      if (at(body).is("(")) {
        const std::size_t parameters = body;
        body = behind(body);
        while (at(body).is("const") || is_attribute(body)) body = is_attribute(body) ? behind(body) : body + 1;
        if (at(body).is("{")) {
          note_uses(at(i).text, parameters, behind(body));
          functions_.insert(at(i).text);
        }
      } else if (at(body).is("=") || at(body).is("[")) {
        std::size_t end = body;
        while (end < in_.size() && !at(end).is(";") && !at(end).is("{")) ++end;
        if (at(body).is("=")) note_uses(at(i).text, body, end);
      }
    }
  }
  /// Whether the < at i is followed by names, numbers and a > before a parenthesis opens.
  bool is_template_list(std::size_t i) const {
    for (++i; i < in_.size(); ++i) {
      if (at(i).is(">")) return at(i + 1).is("(");
      if (is_one_of(at(i), {"(", ")", ";", "{", "}"})) return false;
    }
    return false;
  }
  void note_uses(const std::string& name, std::size_t begin, std::size_t end) {
    auto& uses = uses_[name];
    for (std::size_t i = begin; i < end; ++i) {
      if (at(i).is("is_function_constant_defined") && at(i + 1).is("(")) {
        tested_.insert(at(i + 2).text);
        i += 3;
        continue;
      }
      if (at(i).is("threadgroup") && at(i + 1).is("(")) continue;  // an attribute
      if (at(i).is_name() && !(i > begin && is_one_of(at(i - 1), {".", "->"}))) uses.insert(at(i).text);
    }
  }
  std::set<std::string> reached_from(const std::string& name) const {
    std::set<std::string> reached = {name};
    std::vector<std::string> pending = {name};
    while (!pending.empty()) {
      const auto found = uses_.find(pending.back());
      pending.pop_back();
      if (found == uses_.end()) continue;
      for (const std::string& each : found->second)
        if (reached.insert(each).second) pending.push_back(each);
    }
    return reached;
  }
  static bool has_lane_function(const std::set<std::string>& names) {
    return std::ranges::any_of(names, [](const auto& each) { return !lane_function(each).empty(); });
  }
  /// Whether the name at i calls a function of the program that uses functions of SIMD groups.
  bool calls_lane_function(std::size_t i) const {
    if (!functions_.contains(at(i).text)) return false;
    const std::size_t open = at(i + 1).is("<") && is_template_list(i + 1) ? behind(i + 1) : i + 1;
    if (!at(open).is("(") || at(behind(open)).is("{") || i == 0) return false;
    const Token& before = at(i - 1);
    const bool is_declared = before.is_name() && !is_one_of(before, {"return", "else", "do", "case"});
    return !is_declared && !is_one_of(before, {".", "->", "::"}) && has_lane_function(reached_from(at(i).text));
  }
  void complete(Kernel& kernel) const {
    std::string name = kernel.callee.substr(0, kernel.callee.find('<'));
    if (const std::size_t colon = name.rfind(':'); colon != std::string::npos) name = name.substr(colon + 1);
    const std::set<std::string> reached = reached_from(name);
    kernel.uses_group =
        reached.contains("threadgroup_barrier") || reached.contains("threadgroup") || has_lane_function(reached);
    for (std::size_t i = 0; i < program_.constants_.size(); ++i)
      if (reached.contains(program_.constants_[i].name) && !tested_.contains(program_.constants_[i].name))
        kernel.constants.push_back(static_cast<unsigned>(i));
  }

  // ------------------------------------------------------------------------------------ rewriting
  void put(const char* text, int line) { out_.push_back(made(text, line)); }
  void put(const std::string& text, int line) { put(text.c_str(), line); }

  void step() {
    const Token& token = at(at_);
    if (token.is("{") || token.is("}")) return brace();
    if (token.is("#")) throw SourceError(token.line, "stray # in the program");
    if (token.is("namespace") && at(at_ + 1).is_name() && at(at_ + 2).is("{")) pending_namespace_ = at(at_ + 1).text;
    if (is_attribute(at_)) return attribute();
    if (token.is("template") && !at(at_ + 1).is("<")) return instantiation();
    if (token.is("kernel")) return kernel();
    if (is_one_of(token, {"vertex", "fragment"}) && at(at_ + 1).is_name())
      throw SourceError(token.line, token.text + " functions are not supported by openmps, only kernel functions are");
    if (token.is("constant")) return constant();
    if (token.is("threadgroup")) return threadgroup();
    if (token.is("device") || token.is("thread")) {
      ++at_;
      return;
    }
    if (token.is("is_function_constant_defined") && at(at_ + 1).is("(")) {
      put(kIsDefined, token.line);
      put(at(at_ + 2).text, token.line);
      at_ += 4;
      return;
    }
    if (token.kind == Token::Kind::number) {
      out_.push_back(token);
      out_.back().text = literal_of(token.text);
      ++at_;
      return;
    }
    if (is_one_of(token, {".", "->"})) return member();
    if (token.is_name() && is_one_of(at(at_ + 1), {"(", "<"})) {
      const std::string function = uses_.contains(token.text) ? "" : lane_function(token.text);
      if (!function.empty()) {
        put("openmps_lanes_of<" + std::to_string(lane_calls_++) + ", " + function, token.line);
        ++at_;
        return;
      }
      if (calls_lane_function(at_)) {
        put("openmps_call<" + std::to_string(lane_calls_++) + ">([&] { return", token.line);
        call_ends_.push_back(behind(at(at_ + 1).is("<") ? behind(at_ + 1) : at_ + 1));
      }
    }
    out_.push_back(token);
    ++at_;
  }

  void brace() {
    if (at(at_).is("{")) {
      braces_.push_back(std::exchange(pending_namespace_, ""));
    } else {
      if (braces_.empty()) throw SourceError(at(at_).line, "extraneous closing brace");
      braces_.pop_back();
    }
    out_.push_back(at(at_++));
  }

  void attribute() {
    if (at(at_ + 2).is("kernel")) {  // [[kernel]] void f(...)
      at_ = behind(at_);
      return kernel_after(at_);
    }
    at_ = behind(at_);
  }

  void member() {
    out_.push_back(at(at_++));
    const Token& name = at(at_);
    const auto lanes = lanes_of(name.text);
    if (!lanes || declared_.contains(name.text) || at(at_ + 1).is("(")) return;
    const bool is_set = std::ranges::any_of(kAssignments, [&](const char* op) { return at(at_ + 1).is(op); });
    put((is_set ? "openmps_set(openmps_lanes<" : "openmps_get(openmps_lanes<") + *lanes + ">())", name.line);
    out_.back().has_space = false;
    ++at_;
  }

  void constant() {
    const int line = at(at_).line;
    // constant T name [[function_constant(i)]];
    std::size_t end = at_;
    while (end < in_.size() && !is_one_of(at(end), {";", "{", "(", "="}) && !is_attribute(end)) ++end;
    if (is_attribute(end) && at(end + 2).is("function_constant") && at(behind(end)).is(";")) {
      Constant found;
      for (std::size_t i = at_ + 1; i + 1 < end; ++i) found.type += (found.type.empty() ? "" : " ") + at(i).text;
      found.name = at(end - 1).text;
      try {
        found.index = static_cast<unsigned>(std::stoul(at(end + 4).text, nullptr, 0));
      } catch (const std::exception&) {
        throw SourceError(line, "the index of function constant " + found.name + " is not a number");
      }
      put(kDefinition, line);
      put(std::to_string(program_.constants_.size()), line);
      program_.constants_.push_back(std::move(found));
      at_ = behind(end) + 1;
      return;
    }
    const bool is_const = (at_ > 0 && at(at_ - 1).is("const")) || is_one_of(at(at_ + 1), {"const", "constexpr"}) ||
                          (at(at_ + 2).is("const"));
    if (!is_const) put("const", line);
    ++at_;
  }

  /// Variables are of the group; pointers and references lose the address space.
  void threadgroup() {
    bool is_variable = false;
    for (std::size_t i = at_ + 1; i < in_.size(); ++i) {
      if (at(i).is("<")) i = behind(i) - 1;
      if (is_one_of(at(i), {";", "[", ","})) {
        is_variable = i > at_ + 2;
        break;
      }
      if (is_one_of(at(i), {"*", "&", "(", ")", "=", "{", ">"})) break;
    }
    if (is_variable) put("OPENMPS_THREADGROUP", at(at_).line);
    ++at_;
  }

  /// `template [[host_name("name")]] kernel void f<T>(...);`
  void instantiation() {
    std::string name;
    std::size_t i = at_ + 1;
    while (is_attribute(i)) {
      if (at(i + 2).is("host_name") && at(i + 4).text.size() > 2)
        name = at(i + 4).text.substr(1, at(i + 4).text.size() - 2);
      i = behind(i);
    }
    while (at(i).is("kernel") || is_attribute(i)) i = is_attribute(i) ? behind(i) : i + 1;
    if (!at(i).is("void")) {  // of another function or class
      out_.push_back(at(at_++));
      return;
    }
    Kernel kernel;
    kernel.callee = at(i + 1).text;
    kernel.name = name.empty() ? kernel.callee : name;
    i += 2;
    if (at(i).is("<")) {
      const std::size_t end = behind(i);
      for (; i < end; ++i) kernel.callee += at(i).text + ' ';
    }
    if (!at(i).is("(")) throw SourceError(at(i).line, "expected ( after the name of a kernel function");
    kernel.arguments = arguments(i);
    at_ = behind(i);
    if (at(at_).is(";")) ++at_;
    add(std::move(kernel), at(i).line);
  }

  void kernel() { kernel_after(at_ + 1); }

  void kernel_after(std::size_t i) {
    while (is_attribute(i) || at(i).is("__attribute__")) i = is_attribute(i) ? behind(i) : behind(i + 1);
    const int line = at(i).line;
    if (!at(i).is("void") || !at(i + 1).is_name() || !at(i + 2).is("("))
      throw SourceError(line, "a kernel function is written: kernel void name(arguments)");
    const bool is_template = is_in_template();
    Kernel found;
    found.name = at(i + 1).text;
    for (const std::string& each : braces_)
      if (!each.empty()) found.callee += each + "::";
    found.callee += found.name;
    const bool is_definition = at(behind(i + 2)).is("{");
    if (!is_template && is_definition) {
      found.arguments = arguments(i + 2);
      add(std::move(found), line);
    }
    put("OPENMPS_KERNEL", line);
    at_ = i;
  }
  /// Whether the function at at_ follows template <...>.
  bool is_in_template() const {
    std::size_t i = at_;
    while (i >= 2 && at(i - 1).is("]")) {  // attributes
      while (i > 0 && !is_attribute(i - 1)) --i;
      if (i > 0) --i;
    }
    return i > 0 && is_one_of(at(i - 1), {">", ">>"});
  }
  void add(Kernel kernel, int line) {
    if (program_.kernel(kernel.name)) throw SourceError(line, "redefinition of kernel function " + kernel.name);
    program_.kernels_.push_back(std::move(kernel));
  }

  // ------------------------------------------------------------------------------------ arguments
  std::vector<Argument> arguments(std::size_t open) const {
    std::vector<Argument> result;
    const std::size_t end = behind(open) - 1;
    for (std::size_t i = open + 1; i < end;) {
      const std::size_t next = end_of_argument(i, end);
      if (!(next == i + 1 && at(i).is("void"))) result.push_back(argument(i, next));
      i = next + 1;
    }
    number(result);
    return result;
  }
  std::size_t end_of_argument(std::size_t i, std::size_t end) const {
    while (i < end && !at(i).is(",")) i = is_one_of(at(i), {"(", "[", "<"}) ? behind(i) : i + 1;
    return i;
  }

  Argument argument(std::size_t begin, std::size_t end) const {
    Argument result;
    bool has_texture = false, has_pointer = false, is_shared = false, is_sampler = false;
    for (std::size_t i = begin; i < end;) {
      if (is_attribute(i)) {
        read_attributes(i, result);
        i = behind(i);
        continue;
      }
      if (at(i).is("<")) {
        i = behind(i);
        continue;
      }
      has_texture = has_texture || is_one_of(at(i), {"texture2d", "texture2d_array"});
      has_pointer = has_pointer || is_one_of(at(i), {"*", "&"});
      is_shared = is_shared || at(i).is("threadgroup");
      is_sampler = is_sampler || at(i).is("sampler");
      if (at(i).is_name()) result.name = at(i).text;
      ++i;
    }
    if (result.kind.empty())
      result.kind = has_texture   ? "kTexture"
                    : is_sampler  ? "kSampler"
                    : is_shared   ? "kThreadgroupMemory"
                    : has_pointer ? "kBuffer"
                                  : "";
    if (result.kind.empty())
      throw SourceError(at(begin).line, "argument " + result.name + " of a kernel function has no attribute");
    return result;
  }
  void read_attributes(std::size_t open, Argument& argument) const {
    const std::size_t end = behind(open) - 2;
    for (std::size_t i = open + 2; i < end; ++i) {
      if (at(i).is(",")) continue;
      const Token& name = at(i);
      std::string value;
      if (at(i + 1).is("(")) {
        const std::size_t close = behind(i + 1) - 1;
        for (std::size_t k = i + 2; k < close; ++k) value += at(k).text + ' ';
        if (!value.empty()) value.pop_back();
        i = close;
      }
      if (name.is("function_constant")) {
        argument.condition = value;
        continue;
      }
      const auto found = std::ranges::find_if(kKinds, [&](const KindName& each) { return name.is(each.attribute); });
      if (found == kKinds.end())
        throw SourceError(name.line, "attribute [[" + name.text + "]] of an argument is not supported by openmps");
      argument.kind = found->kind;
      argument.index = value;
    }
  }
  /// Arguments without an index get the next one of their kind that is free.
  static void number(std::vector<Argument>& arguments) {
    std::set<std::string> taken;
    for (const Argument& each : arguments) taken.insert(each.kind + each.index);
    for (Argument& each : arguments) {
      if (!each.index.empty()) continue;
      unsigned index = 0;
      while (taken.contains(each.kind + std::to_string(index))) ++index;
      each.index = std::to_string(index);
      if (each.kind == "kTexture" || each.kind == "kBuffer" || each.kind == "kThreadgroupMemory" ||
          each.kind == "kSampler")
        taken.insert(each.kind + each.index);
    }
  }

  const Tokens in_;
  Program& program_;
  std::size_t at_ = 0;
  Tokens out_;
  std::vector<std::string> braces_;  ///< open ones: names of namespaces, "" for others
  std::string pending_namespace_;
  std::set<std::string> declared_;                     ///< names of the program that look like swizzles
  std::map<std::string, std::set<std::string>> uses_;  ///< names in each definition
  std::set<std::string> functions_;                    ///< of the program
  unsigned lane_calls_ = 0;                            ///< of functions that use functions of SIMD groups, and of these
  std::vector<std::size_t> call_ends_;                 ///< of the former, where the translation is inside
  std::set<std::string> tested_;                       ///< arguments of is_function_constant_defined()
};

Program::Program(const std::string& source, const std::map<std::string, std::string>& macros) {
  Preprocessed preprocessed = preprocess(source, macros);
  Translator(std::move(preprocessed.tokens), *this).run();
  for (const Pragma& each : preprocessed.pragmas) give_meaning(each);
}

void Program::give_meaning(const Pragma& pragma) {
  constexpr std::pair<const char*, Meaning> kMeanings[] = {{"product", Meaning::product},
                                                           {"permutation", Meaning::permutation}};
  const auto meaning = std::ranges::find_if(kMeanings, [&](const auto& each) { return pragma.meaning == each.first; });
  if (meaning == std::end(kMeanings))
    throw SourceError(pragma.line, "#pragma openmps " + pragma.meaning + " is not product or permutation");
  const auto kernel = std::ranges::find(kernels_, pragma.function, &Kernel::name);
  if (kernel == kernels_.end())
    throw SourceError(pragma.line, "#pragma openmps names " + pragma.function + ", which is not a kernel function");
  kernel->meaning = meaning->second;
}

const Kernel* Program::kernel(const std::string& name) const {
  const auto found = std::ranges::find(kernels_, name, &Kernel::name);
  return found == kernels_.end() ? nullptr : &*found;
}

std::string Program::cpp(const ConstantValues& values, const Kernel* kernel) const {
  std::string text = language_text();
  text += "namespace metal { namespace program {\n";
  int line = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const Token& token = tokens_[i];
    if (token.line != line) {
      line = token.line;
      text += "\n#line " + std::to_string(line) + " \"program_source\"\n";
    } else {
      text += ' ';  // tokens of macros could join
    }
    if (token.is(kDefinition)) {
      const std::size_t index = std::stoul(tokens_[++i].text);
      const Constant& constant = constants_[index];
      const auto value = values.find(index);
      // Not every compiler has halves in constant expressions.
      text += (constant.type.starts_with("half") ? "static const " : "static constexpr ") + constant.type + " " +
              constant.name + " = " + (value == values.end() ? constant.type + "()" : value->second) + ";";
    } else if (token.is(kIsDefined)) {
      const std::string& name = tokens_[++i].text;
      const auto found = std::ranges::find(constants_, name, &Constant::name);
      if (found == constants_.end()) throw SourceError(token.line, name + " is not a function constant");
      text += values.contains(static_cast<std::size_t>(found - constants_.begin())) ? "true" : "false";
    } else {
      text += token.text;
    }
  }
  text += "\n#line 1 \"entry\"\n";
  if (kernel) {
    text += "using openmps_this_entry = openmps_entry<&" + kernel->callee + ", openmps_slots<";
    const char* separator = "";
    for (const Argument& each : kernel->arguments) {
      text += std::string(separator) + "openmps_slot<openmps::function_abi::" + each.kind + ", (" + each.index + "), " +
              (each.condition.empty() ? "true" : "static_cast<bool>(" + each.condition + ")") + ">";
      separator = ", ";
    }
    text += ">>;\n";
  }
  text += "}}\n";
  if (kernel) text += entry_text(kernel->uses_group);
  return text;
}

}  // namespace openmps::function

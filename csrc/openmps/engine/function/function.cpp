// SPDX-License-Identifier: Apache-2.0
#include "engine/function/function.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "engine/shared/half.hpp"

namespace openmps::function {
namespace {

Error error_of(const CompileError& error) {
  if (!error.has_log) return {ErrorCode::unsupported, error.what()};
  return {ErrorCode::compile, std::string("Compilation failed:\n\n") + error.what()};
}

struct Scalar {
  const char* name;
  std::size_t bytes;
  std::string (*text)(const std::uint8_t* bytes);
};

template <class T>
std::string integer_text(const std::uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return std::to_string(static_cast<std::uint64_t>(value)) + "ull";  // converted back where it is used
}
std::string float_text(float value) {
  if (value != value) return "OPENMPS_NAN";
  if (value - value != 0) return value > 0 ? "OPENMPS_INFINITY" : "(-OPENMPS_INFINITY)";
  char text[40];
  std::snprintf(text, sizeof text, "%af", static_cast<double>(value));
  return text;
}
std::string text_of_float(const std::uint8_t* bytes) {
  float value;
  std::memcpy(&value, bytes, sizeof value);
  return float_text(value);
}
std::string text_of_half(const std::uint8_t* bytes) {
  std::uint16_t value;
  std::memcpy(&value, bytes, sizeof value);
  return "openmps_half_literal(" + float_text(half_to_float(value)) + ", " + std::to_string(value) + ")";
}

const Scalar kScalars[] = {
    {"bool", 1, [](const std::uint8_t* bytes) { return std::string(*bytes ? "true" : "false"); }},
    {"char", 1, integer_text<std::int8_t>},
    {"uchar", 1, integer_text<std::uint8_t>},
    {"short", 2, integer_text<std::int16_t>},
    {"ushort", 2, integer_text<std::uint16_t>},
    {"int", 4, integer_text<std::int32_t>},
    {"uint", 4, integer_text<std::uint32_t>},
    {"long", 8, integer_text<std::int64_t>},
    {"ulong", 8, integer_text<std::uint64_t>},
    {"half", 2, text_of_half},
    {"float", 4, text_of_float},
};

/// Return the language's own name of a type.
std::string plain_name(const std::string& type) {
  static const std::map<std::string, std::string> names = {
      {"int8_t", "char"},   {"uint8_t", "uchar"}, {"int16_t", "short"},       {"uint16_t", "ushort"},
      {"int32_t", "int"},   {"uint32_t", "uint"}, {"unsigned int", "uint"},   {"unsigned short", "ushort"},
      {"unsigned", "uint"}, {"int64_t", "long"},  {"unsigned char", "uchar"}, {"uint64_t", "ulong"}};
  const auto found = names.find(type);
  return found == names.end() ? type : found->second;
}

/// Return a value as an expression, "" if the type is unknown.
std::string text_of(const Value& value) {
  std::string name = value.type;
  std::size_t count = 1;
  if (!name.empty() && name.back() >= '2' && name.back() <= '4') {
    count = static_cast<std::size_t>(name.back() - '0');
    name.pop_back();
  }
  for (const Scalar& each : kScalars) {
    if (name != each.name || value.bytes.size() < each.bytes * count) continue;
    std::string text = value.type + "(";
    for (std::size_t i = 0; i < count; ++i)
      text += (i == 0 ? "static_cast<" : ", static_cast<") + name + ">(" +
              each.text(value.bytes.data() + i * each.bytes) + ")";
    return text + ")";
  }
  return {};
}

}  // namespace

std::shared_ptr<const Library> Library::make(const std::string& source, const Options& options, Error& error) {
  try {
    std::shared_ptr<const Library> library(new Library(Program(source, options.macros), options));
    check_on_host(library->program().cpp({}, nullptr));
    return library;
  } catch (const SourceError& failure) {
    error = {ErrorCode::compile, std::string("Compilation failed:\n\n") + failure.what()};
  } catch (const std::invalid_argument& failure) {
    error = {ErrorCode::compile,
             std::string("The name of a preprocessor macro (") + failure.what() + ") is not an identifier."};
  } catch (const CompileError& failure) {
    error = error_of(failure);
  } catch (const std::exception& failure) {
    error = {ErrorCode::internal, failure.what()};
  }
  return nullptr;
}

std::shared_ptr<const Function> Function::make(std::shared_ptr<const Library> library, const std::string& name,
                                               const Values& given, Error& error) {
  const Program& program = library->program();
  const Kernel* kernel = program.kernel(name);
  if (!kernel) {
    error = {ErrorCode::function_not_found, "The library has no kernel function \"" + name + "\"."};
    return nullptr;
  }
  ConstantValues values;
  for (std::size_t i = 0; i < program.constants().size(); ++i) {
    const Constant& constant = program.constants()[i];
    const auto named = given.by_name.find(constant.name);
    const auto indexed = given.by_index.find(constant.index);
    const bool is_mentioned = std::ranges::find(kernel->constants, i) != kernel->constants.end();
    if (named == given.by_name.end() && indexed == given.by_index.end()) {
      if (!is_mentioned) continue;
      error = {ErrorCode::compile, "Function \"" + name + "\" uses function constant " + constant.name + " (index " +
                                       std::to_string(constant.index) + "), which has no value."};
      return nullptr;
    }
    const Value& value = named != given.by_name.end() ? named->second : indexed->second;
    if (value.type != plain_name(constant.type)) {
      error = {ErrorCode::compile, "The value of function constant " + constant.name + " is of type " + value.type +
                                       ", the source declares it as " + constant.type + "."};
      return nullptr;
    }
    values[i] = text_of(value);
  }
  return std::shared_ptr<const Function>(new Function(std::move(library), *kernel, std::move(values)));
}

bool Function::prepare(Error& error) const {
  const std::lock_guard lock(mutex_);
  if (code_) return true;
  try {
    code_ = std::make_unique<const HostCode>(cpp(), library_->options().fast_math, kernel_.uses_group);
    return true;
  } catch (const CompileError& failure) {
    error = error_of(failure);
  } catch (const std::exception& failure) {
    error = {ErrorCode::internal, failure.what()};
  }
  return false;
}

void* Function::kept(const void* key, const std::function<void*()>& make) const {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(key);
  return found != kept_.end() ? found->second : kept_.emplace(key, make()).first->second;
}

}  // namespace openmps::function

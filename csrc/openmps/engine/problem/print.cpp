// SPDX-License-Identifier: Apache-2.0
#include "engine/problem/print.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <type_traits>

#include "engine/function/function.hpp"
#include "engine/problem/problem.hpp"
#include "engine/shared/implementations.hpp"

namespace openmps {
namespace {

/// Name of T without its namespaces.
template <class T>
constexpr std::string_view type_name() {
  const std::string_view function = __PRETTY_FUNCTION__;  // "... [with T = openmps::CopyProblem; ...]" or "[T = ...]"
  const std::size_t begin = function.find("T = ") + 4;
  const std::string_view name = function.substr(begin, function.find_first_of(";]", begin) - begin);
  return name.substr(name.rfind(':') + 1);
}
static_assert(type_name<CopyProblem>() == "CopyProblem");

class Printer {
 public:
  template <class P>
  void put_problem(const P& problem) {
    text_ += type_name<P>();
    put_fields(problem);
  }
  void put_problem(const HostTask& task) {
    text_ += type_name<HostTask>();
    text_ += " run=";
    put(task.run);
  }

  std::string take() { return std::move(text_); }

 private:
  template <Described T>
  void put_fields(const T& object) {
    for_each_field(object, [&](const auto& field, const auto& member) {
      if (text_.back() != '{') text_ += ' ';
      text_ += field.name;
      text_ += '=';
      put(member);
    });
  }

  template <class T>
    requires std::is_integral_v<T>
  void put(T number) {
    text_ += std::to_string(number);
  }
  template <class T>
    requires std::is_enum_v<T>
  void put(T number) {
    put(static_cast<std::int64_t>(number));
  }
  void put(double number) {
    char digits[32];
    std::snprintf(digits, sizeof(digits), "%.9g", number);
    text_ += digits;
  }
  void put(const std::shared_ptr<Memory>& memory) {
    if (!memory) {
      text_ += "none";
      return;
    }
    auto index = static_cast<std::size_t>(std::find(blocks_.begin(), blocks_.end(), memory.get()) - blocks_.begin());
    if (index == blocks_.size()) blocks_.push_back(memory.get());
    std::string letters;
    for (++index; index > 0; index = (index - 1) / 26) letters += static_cast<char>('a' + (index - 1) % 26);
    text_.append(letters.rbegin(), letters.rend());
  }
  void put(const ImageView& view) {
    static constexpr const char* kFormats[] = {"unorm8", "unorm16", "float16", "float32", "bfloat16"};
    put(view.memory);
    text_ += ' ';
    put_extents({view.n, view.h, view.w, view.c});
    text_ += ' ';
    text_ += kFormats[static_cast<std::size_t>(view.format)];
    if (view.memory && !view.is_dense()) {
      text_ += " strides ";
      put_extents({view.n_stride, view.h_stride, view.w_stride});
    }
    if (view.offset) text_ += " offset " + std::to_string(view.offset);
  }
  void put(const std::shared_ptr<const ConvWeights>& weights) {
    put_pointer(weights, [&](const ConvWeights& w) {
      put_extents({w.out_channels, w.kernel_h, w.kernel_w, w.in_channels_per_group});
      if (w.groups != 1) text_ += " groups " + std::to_string(w.groups);
      if (!w.bias.empty()) text_ += " bias";
    });
  }
  void put(const std::shared_ptr<const BinaryWeights>& weights) {
    put_pointer(weights, [&](const BinaryWeights& w) {
      put_extents({w.out_channels, w.kernel_h, w.kernel_w, w.in_channels});
      text_ += " type ";
      put(w.type);
      if (w.uses_beta) text_ += " beta";
      if (w.scales_inputs()) text_ += " scaled";
    });
  }
  void put(const std::shared_ptr<const BoxLoss>& boxes) {
    put_pointer(boxes, [&](const BoxLoss& b) { text_ += std::to_string(b.anchors.size() / 2) + " anchors"; });
  }
  void put(const std::shared_ptr<const function::Function>& function) {
    put_pointer(function, [&](const function::Function& f) { text_ += f.name(); });
  }
  void put(const std::shared_ptr<const std::vector<float>>& values) {
    put_pointer(values, [&](const std::vector<float>& v) { text_ += std::to_string(v.size()) + " floats"; });
  }
  template <class Result, class... Arguments>
  void put(const std::function<Result(Arguments...)>&) {
    text_ += '?';
  }
  template <class T>
  void put(const std::vector<T>& list) {
    text_ += '[';
    for (const T& each : list) {
      if (text_.back() != '[') text_ += ' ';
      put(each);
    }
    text_ += ']';
  }
  template <Described T>
  void put(const T& object) {
    text_ += '{';
    put_fields(object);
    text_ += '}';
  }

  template <class T, class Put>
  void put_pointer(const std::shared_ptr<T>& pointer, const Put& put_value) {
    if (pointer) {
      put_value(*pointer);
    } else {
      text_ += "none";
    }
  }
  void put_extents(std::initializer_list<std::int64_t> extents) {
    bool first = true;
    for (const std::int64_t extent : extents) {
      if (!first) text_ += 'x';
      text_ += std::to_string(extent);
      first = false;
    }
  }

  std::string text_;
  std::vector<const Memory*> blocks_;
};

}  // namespace

std::string describe(const Problem& problem) {
  Printer printer;
  std::visit([&](const auto& each) { printer.put_problem(each); }, problem);
  return printer.take();
}

void trace_problem(const Problem& problem) {
  if (dispatch().traces) std::fprintf(stderr, "mpscnn dispatch: %s\n", describe(problem).c_str());
}

}  // namespace openmps

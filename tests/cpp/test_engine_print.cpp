// SPDX-License-Identifier: Apache-2.0
// Problems as text: every kind with all of its fields, memory in order of appearance, gaps and offsets.
//
//   test_engine_print      prints "N passed, N failed"
#include <set>

#include "engine/problem/print.hpp"
#include "engine_test.hpp"

namespace {

void expect_text(const Problem& problem, const std::string& expected) {
  const std::string found = describe(problem);
  report(found == expected, "%s\n  is not\n%s", found.c_str(), expected.c_str());
}

ImageView image(std::shared_ptr<Memory> memory, i64 n, i64 h, i64 w, i64 c, Format format = Format::float32) {
  return {std::move(memory), 0, format, n, h, w, c, h * w * c, w * c, c};
}

void test_images() {
  static float values[64];
  const auto a = Memory::wrap(values, sizeof(values), {}), b = Memory::wrap(values, sizeof(values), {});
  expect_text(CopyProblem{image(a, 1, 2, 4, 4), image(b, 1, 2, 4, 4, Format::float16)},
              "CopyProblem src=a 1x2x4x4 float32 dst=b 1x2x4x4 float16");
  ImageView part = image(a, 1, 2, 2, 3);
  part.offset = 8, part.h_stride = 16, part.w_stride = 4;
  expect_text(CopyProblem{part, image(a, 1, 2, 2, 3)},
              "CopyProblem src=a 1x2x2x3 float32 strides 12x16x4 offset 8 dst=a 1x2x2x3 float32");
  expect_text(CopyProblem{}, "CopyProblem src=none 1x1x1x1 float32 dst=none 1x1x1x1 float32");
  expect_text(BufferFillProblem{b, 4, 16, 255}, "BufferFillProblem dst=a offset=4 bytes=16 value=255");
  expect_text(HostTask{}, "HostTask run=?");
}

void test_values() {
  auto weights = std::make_shared<ConvWeights>();
  weights->out_channels = 8, weights->kernel_h = 3, weights->kernel_w = 2, weights->in_channels_per_group = 4;
  weights->groups = 2, weights->bias.own().resize(8);
  ConvProblem conv;
  conv.weights = weights;
  conv.neuron.type = NeuronType::prelu;
  conv.neuron.a_per_channel = std::make_shared<std::vector<float>>(8);
  const std::string text = describe(conv);
  for (const char* part : {" weights=8x3x2x4 groups 2 bias ", " window={kernel_h=1 kernel_w=1 ", " edge=0}",
                           " neuron={type=10 a=0 b=0 c=0 a_per_channel=8 floats} ", " reduced_precision=0 "})
    report(text.find(part) != std::string::npos, "%s has no%s", text.c_str(), part);

  ResampleProblem resample;
  resample.regions.resize(2);
  resample.regions[1].w.start = 0.5;
  const std::string regions =
      "regions=[{h={start=0 numerator=1 denominator=1} w={start=0 numerator=1 denominator=1}} "
      "{h={start=0 numerator=1 denominator=1} w={start=0.5 numerator=1 denominator=1}}]";
  report(describe(resample).find(regions) != std::string::npos, "%s", describe(resample).c_str());

  LossProblem loss;
  loss.parts.resize(30);
  static float value;
  for (auto& each : loss.parts) each.src.view = image(Memory::wrap(&value, sizeof(value), {}), 1, 1, 1, 1);
  const std::string letters = describe(loss);
  for (const char* memory : {"view=a ", "view=z ", "view=aa ", "view=ad "})
    report(letters.find(memory) != std::string::npos, "%s has no %s", letters.c_str(), memory);
}

template <class P>
void test_kind(std::set<std::string>& kinds) {
  const std::string text = describe(Problem(P{}));
  kinds.insert(text.substr(0, text.find(' ')));
  if constexpr (Described<P>) {
    const P empty;
    for_each_field(empty, [&](const auto& field, const auto&) {
      report(text.find(std::string(" ") + field.name + "=") != std::string::npos, "%s has no %s", text.c_str(),
             field.name);
    });
  }
}

/// Every kind has its own name and all of its fields.
template <std::size_t... i>
void test_kinds(std::index_sequence<i...>) {
  std::set<std::string> kinds;
  (test_kind<std::variant_alternative_t<i, Problem>>(kinds), ...);
  report(kinds.size() == sizeof...(i), "%zu names of %zu kinds", kinds.size(), sizeof...(i));
  report(kinds.contains("TransposeGradientProblem") && kinds.contains("HostTask"), "names are those of the structs");
}

}  // namespace

int main() {
  test_images();
  test_values();
  test_kinds(std::make_index_sequence<std::variant_size_v<Problem>>());
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}

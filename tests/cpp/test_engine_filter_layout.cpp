// SPDX-License-Identifier: Apache-2.0
// Filters converted to the layouts of oneDNN's convolutions and back, against oneDNN's own reorders.
//
//   test_engine_filter_layout [seed offset]      prints "N passed, N failed"
#include "engine/cpu/convolution/onednn/filter_layout.hpp"
#include "engine_test.hpp"

namespace {

using dnnl::memory;
using tag = memory::format_tag;

/// Which filters our own code takes: all, or those that the layout does not pad.
enum Kind { unknown, without_padding, known };

void test_layouts() {
  constexpr auto bf16 = memory::data_type::bf16;
  const struct {
    tag to;
    const char* name;
    Kind kind;
    memory::data_type type = memory::data_type::f32;
  } layouts[] = {{tag::Acdb16a, "Acdb16a", known},
                 {tag::Acdb32a, "Acdb32a", known},
                 {tag::Acdb48a, "Acdb48a", known},
                 {tag::Acdb64a, "Acdb64a", known},
                 {tag::Bcda16b, "Bcda16b", without_padding},
                 {tag::Bcda32b, "Bcda32b", without_padding},
                 {tag::Bcda64b, "Bcda64b", without_padding},
                 {tag::ABcd16b16a, "ABcd16b16a", without_padding},
                 {tag::ABcd16a16b, "ABcd16a16b", unknown},
                 {tag::Acdb8a, "Acdb8a", unknown},
                 {tag::abcd, "abcd", unknown},
                 {tag::AcdB16b16a2b, "AcdB16b16a2b", known, bf16},
                 {tag::AcdB16b32a2b, "AcdB16b32a2b", known, bf16},
                 {tag::AcdB16b64a2b, "AcdB16b64a2b", known, bf16},
                 {tag::BcdA16a16b2a, "BcdA16a16b2a", known, bf16},
                 {tag::BcdA16a32b2a, "BcdA16a32b2a", known, bf16},
                 {tag::BcdA16a64b2a, "BcdA16a64b2a", known, bf16},
                 {tag::AcdB16a2b, "AcdB16a2b", known, bf16},
                 {tag::AcdB32a2b, "AcdB32a2b", known, bf16},
                 {tag::AcdB48a2b, "AcdB48a2b", known, bf16},
                 {tag::AcdB64a2b, "AcdB64a2b", known, bf16},
                 {tag::BcdA16b2a, "BcdA16b2a", known, bf16},
                 {tag::BcdA32b2a, "BcdA32b2a", known, bf16},
                 {tag::BcdA48b2a, "BcdA48b2a", known, bf16},
                 {tag::BcdA64b2a, "BcdA64b2a", known, bf16},
                 {tag::cdba, "cdba", without_padding, bf16},
                 {tag::Acdb16a, "Acdb16a of bfloat16", unknown, bf16},
                 {tag::cdba, "cdba of float32", unknown}};
  const i64 shapes[][4] = {{192, 192, 3, 3}, {192, 192, 1, 1},  {384, 192, 2, 5}, {192, 20, 3, 3}, {70, 192, 1, 3},
                           {1000, 37, 1, 1}, {2048, 512, 1, 1}, {64, 3, 7, 7},    {7, 5, 1, 2},    {33, 130, 3, 3}};
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  unsigned seed = 0;
  for (const auto& layout : layouts) {
    for (const auto& s : shapes) {
      Random random(++seed);
      const memory::dims dims = {s[0], s[1], s[2], s[3]};
      const memory::desc own(dims, memory::data_type::f32, tag::acdb), wanted(dims, layout.type, layout.to);
      const auto count = static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3]);
      const bool is_narrow = layout.type == memory::data_type::bf16;
      std::vector<float> values(count), back(count, NAN);
      std::vector<std::uint16_t> expected(wanted.get_size() / 2), packed(expected.size(), 0xffff);  // NaN
      for (float& value : values) value = random.real(-1, 1);
      memory from(own, engine, values.data()), to(wanted, engine, expected.data());
      dnnl::reorder(from, to).execute(stream, from, to);
      stream.wait();
      const std::string what = std::string(layout.name) + ", " + std::to_string(s[0]) + " outputs, " +
                               std::to_string(s[1]) + " inputs, " + std::to_string(s[2]) + " x " + std::to_string(s[3]);
      const bool has_padding = wanted.get_padded_dims() != dims;
      const bool is_taken =
          openmps::cpu::pack_filter(values.data(), reinterpret_cast<std::byte*>(packed.data()), wanted);
      const bool is_taken_back =
          openmps::cpu::unpack_filter(reinterpret_cast<const float*>(expected.data()), back.data(), wanted);
      report(is_taken_back == (is_taken && !is_narrow), "%s: one way only", what.c_str());
      report(is_taken == (layout.kind == known || (layout.kind == without_padding && !has_padding)), "%s: %s",
             what.c_str(), is_taken ? "is taken" : "is not taken");
      if (is_taken) {
        report(packed == expected, "%s: packed otherwise than by oneDNN", what.c_str());
        report(is_narrow || back == values, "%s: does not come back", what.c_str());
      } else {
        report(packed[0] == 0xffff && std::isnan(back[0]), "%s: declined after it had begun", what.c_str());
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv, {test_layouts}); }

// SPDX-License-Identifier: Apache-2.0
// Filters converted to the layouts of oneDNN's convolutions and back, against oneDNN's own reorders.
//
//   test_engine_filter_layout [seed offset]      prints "N passed, N failed"
#include "engine/cpu/convolution/onednn/filter_layout.hpp"
#include "engine_test.hpp"

namespace {

using dnnl::memory;
using tag = memory::format_tag;

void test_layouts() {
  const struct {
    tag to;
    const char* name;
    bool is_known;
    memory::data_type type = memory::data_type::f32;
  } layouts[] = {{tag::Acdb16a, "Acdb16a", true},
                 {tag::Acdb32a, "Acdb32a", true},
                 {tag::Acdb48a, "Acdb48a", true},
                 {tag::Acdb64a, "Acdb64a", true},
                 {tag::Bcda16b, "Bcda16b", true},
                 {tag::Bcda32b, "Bcda32b", true},
                 {tag::Bcda64b, "Bcda64b", true},
                 {tag::ABcd16b16a, "ABcd16b16a", true},
                 {tag::ABcd16a16b, "ABcd16a16b", false},
                 {tag::Acdb8a, "Acdb8a", false},
                 {tag::abcd, "abcd", false},
                 {tag::AcdB16b16a2b, "AcdB16b16a2b", true, memory::data_type::bf16},
                 {tag::AcdB16b32a2b, "AcdB16b32a2b", true, memory::data_type::bf16},
                 {tag::AcdB16b64a2b, "AcdB16b64a2b", true, memory::data_type::bf16},
                 {tag::BcdA16a16b2a, "BcdA16a16b2a", true, memory::data_type::bf16},
                 {tag::BcdA16a32b2a, "BcdA16a32b2a", true, memory::data_type::bf16},
                 {tag::BcdA16a64b2a, "BcdA16a64b2a", true, memory::data_type::bf16},
                 {tag::cdba, "cdba", true, memory::data_type::bf16},
                 {tag::Acdb16a, "Acdb16a of bfloat16", false, memory::data_type::bf16},
                 {tag::cdba, "cdba of float32", false}};
  const i64 shapes[][4] = {{192, 192, 3, 3}, {192, 192, 1, 1}, {384, 192, 2, 5},
                           {192, 20, 3, 3},  {70, 192, 1, 3},  {1000, 37, 1, 1}};
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
      if (layout.is_known && s[0] % 16 == 0 && s[1] % 16 == 0)
        report(is_taken == !has_padding, "%s: %s", what.c_str(), is_taken ? "is taken" : "is not taken");
      if (!layout.is_known || has_padding) report(!is_taken, "%s: is taken", what.c_str());
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

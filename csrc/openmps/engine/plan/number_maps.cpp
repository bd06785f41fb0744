// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/number_maps.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/plan/fusion.hpp"
#include "engine/plan/quantization.hpp"
#include "engine/problem/problem.hpp"
#include "engine/shared/neuron.hpp"
#include "engine/shared/rows.hpp"

namespace openmps {
namespace {

constexpr std::size_t kNumbers = 256;
using Row = std::array<float, kNumbers>;

bool same_extents(const ImageView& a, const ImageView& b) {
  return a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c;
}

/// Runs commands on an image of all numbers.
class Interpreter {
 public:
  explicit Interpreter(const ImageView& numbers) : extents_(numbers) {
    std::array<std::uint8_t, kNumbers> all;
    std::iota(all.begin(), all.end(), std::uint8_t{0});
    Row row;
    row_to_float(all.data(), Format::unorm8, row.data(), kNumbers);
    rows_.emplace_back(numbers, row);
  }

  /// Return false for problems other than functions of known values.
  bool run(const Problem& problem) {
    if (const auto* const neuron = std::get_if<NeuronProblem>(&problem)) return run(*neuron);
    if (const auto* const arithmetic = std::get_if<BinaryProblem>(&problem)) return run(*arithmetic);
    return false;
  }

  const Row* row_of(const ImageView& view) const {
    const auto found = std::ranges::find_if(rows_, [&](const auto& each) { return each.first == view; });
    return found == rows_.end() ? nullptr : &found->second;
  }

 private:
  bool run(const NeuronProblem& problem) {
    const Row* const src = row_of(problem.src);
    if (!src || neuron_is_per_channel(problem.neuron) || !same_extents(problem.dst, extents_)) return false;
    Row result;
    row_neuron(problem.neuron, src->data(), result.data(), kNumbers, kNumbers, nullptr);
    store(problem.dst, result);
    return true;
  }
  bool run(const BinaryProblem& problem) {
    const Row *const a = row_of(problem.src0.view), *const b = row_of(problem.src1.view);
    if (!a || !b || problem.mask.memory || !same_extents(problem.dst, extents_)) return false;
    if (!is_plain(problem.src0, problem.dst) || !is_plain(problem.src1, problem.dst)) return false;
    Row result;
    row_arithmetic(problem.function, a->data(), b->data(), result.data(), kNumbers);
    store(problem.dst, result);
    return true;
  }

  void store(const ImageView& dst, Row& row) {
    if (dst.format != Format::float32) {
      std::array<std::byte, kNumbers * sizeof(float)> stored;
      row_from_float(row.data(), stored.data(), dst.format, kNumbers);
      row_to_float(stored.data(), dst.format, row.data(), kNumbers);
    }
    rows_.emplace_back(dst, row);
  }

  const ImageView& extents_;
  std::vector<std::pair<ImageView, Row>> rows_;  ///< values of images
};

}  // namespace

std::optional<QuantizedMapProblem> number_map(const std::vector<Command>& commands,
                                              std::span<const std::uint32_t> conversions,
                                              std::span<const std::uint32_t> chain) {
  if (conversions.empty() || chain.empty()) return std::nullopt;
  const auto* const last = std::get_if<NeuronProblem>(&commands[chain.back()].problem);
  if (!last || last->dst.format != Format::unorm8) return std::nullopt;
  const ImageView& numbers = numbers_of(commands[conversions.front()]);
  Interpreter interpreter(numbers);
  for (const std::span<const std::uint32_t> part : {conversions, chain})
    for (const std::uint32_t command : part)
      if (!interpreter.run(commands[command].problem)) return std::nullopt;
  auto table = std::make_shared<std::vector<float>>();
  for (const float value : *interpreter.row_of(last->dst)) table->push_back(std::nearbyint(value * (kNumbers - 1)));
  return QuantizedMapProblem{.src = numbers, .dst = last->dst, .numbers = std::move(table)};
}

}  // namespace openmps

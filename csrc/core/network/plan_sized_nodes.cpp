// SPDX-License-Identifier: Apache-2.0
// Nodes whose kernels depend on the extents of their sources: interpolation and adaptive pooling.
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include <mpscnn/error.hpp>

#include "core/network/network_plan.hpp"

namespace mpscnn {
namespace {

struct Area {
  std::int64_t start = 0, end = 0;
  bool operator==(const Area&) const = default;
};

/// Return the areas of an axis that adaptive pooling divides, as PyTorch: they may have different extents, and overlap.
std::vector<Area> areas_of(std::int64_t extent, std::int64_t count) {
  std::vector<Area> areas;
  for (std::int64_t i = 0; i < count; ++i)
    areas.push_back({i * extent / count, ((i + 1) * extent + count - 1) / count});
  return areas;
}

/// Return (kernel size, stride) if the areas are the windows of a pooling.
std::optional<std::pair<std::int64_t, std::int64_t>> windows_of(const std::vector<Area>& areas) {
  const auto kernel = areas[0].end, stride = areas.size() > 1 ? areas[1].start : kernel;
  for (std::size_t i = 0; i < areas.size(); ++i) {
    const auto start = static_cast<std::int64_t>(i) * stride;
    if (areas[i] != Area{start, start + kernel}) return std::nullopt;
  }
  return stride > 0 ? std::optional(std::pair(kernel, stride)) : std::nullopt;
}

}  // namespace

/// The kernels depend on the extents of both sources.
void NetworkPlan::add_interpolation(std::uint32_t node) {
  const auto value = static_cast<std::uint32_t>(parts_.inputs.size() + node);
  const auto source = parts_.nodes[node].sources[0];
  const auto destination = location(value);
  if (shapes_[source].h == shapes_[value].h && shapes_[source].w == shapes_[value].w)
    add_copy(node, source, destination);
  else if (parts_.nodes[node].interpolation->mode == Interpolation::Mode::nearest)
    add_nearest(node, source, destination);
  else
    add_bilinear(node, source, destination);
}

void NetworkPlan::add_inner_step(std::uint32_t node, std::string_view row, const Params& params, std::uint32_t image,
                                 Location destination) {
  Step step{.node = node, .kernel = mover(row, params), .sources = {image}, .destination = destination.image};
  step.placement.destination = destination.first;
  append(std::move(step));
}

/// Pixel i of n of the result is between pixels (i + 1/2) * source / n - 1/2 and the next: a region of the source,
/// which is enlarged by a pixel on each side. The last of one pixel is the region's first.
void NetworkPlan::add_bilinear(std::uint32_t node, std::uint32_t source, Location destination) {
  const auto value = static_cast<std::uint32_t>(parts_.inputs.size() + node);
  const auto &from = shapes_[source], &to = shapes_[value];
  const Extents size = {to.h, to.w};
  if (parts_.nodes[node].interpolation->align_corners)
    return add_step(node, mover("ResizeBilinear", {{"size", size}, {"align_corners", true}}), {source}, destination);
  auto region = std::make_shared<std::array<float, 4>>();
  const auto set = [&](std::size_t axis, std::int64_t before, std::int64_t after) {
    const double step = static_cast<double>(before) / static_cast<double>(after);
    (*region)[axis] = static_cast<float>((0.5 * step + 0.5) / static_cast<double>(before + 1));
    (*region)[axis + 2] = static_cast<float>(static_cast<double>(after - 1) * step / static_cast<double>(before + 1));
  };
  set(0, from.h, to.h);
  set(1, from.w, to.w);
  ArrayView regions{.data = region->data(), .shape = {1, 4}, .strides = {4 * sizeof(float), sizeof(float)}};
  regions.owner = region;
  auto shape = from;
  shape.h += 2;
  shape.w += 2;
  const auto padded = add_image(shape);
  add_step(node, mover("Pad", {{"padding", Extents{1, 1}}, {"edge_mode", "clamp"}}), {source}, {padded, 0});
  add_inner_step(node, "CropAndResizeBilinear", {{"size", size}, {"regions", regions}}, padded, destination);
}

/// Pixel i of n of the result is pixel floor(i * source / n): with the fraction in its lowest terms, repeat each pixel
/// as often as its denominator, and take every one that its numerator divides. Columns come before rows.
void NetworkPlan::add_nearest(std::uint32_t node, std::uint32_t source, Location destination) {
  const auto value = static_cast<std::uint32_t>(parts_.inputs.size() + node);
  const auto &from = shapes_[source], &to = shapes_[value];
  struct Inner {
    const char* row;
    Params params;
    ImageShape shape;
  };
  std::vector<Inner> steps_of_node;
  auto shape = from;
  if (to.h % from.h == 0 && to.w % from.w == 0)
    steps_of_node.push_back({"UpsamplingNearest", {{"scale_factor", Extents{to.h / from.h, to.w / from.w}}}, to});
  else
    for (const bool is_row : {false, true}) {
      const auto before = is_row ? from.h : from.w, after = is_row ? to.h : to.w;
      auto& extent = is_row ? shape.h : shape.w;
      const auto divisor = std::gcd(before, after);
      const auto along = [&](std::int64_t number) { return is_row ? Extents{number, 1} : Extents{1, number}; };
      if (after > divisor) {
        extent = before * (after / divisor);
        check(extent <= Image::kMostPixels, "interpolation \"", parts_.nodes[node].name, "\": nearest from ", before,
              " to ", after, " pixels needs ", extent, " between, more than the maximum (", Image::kMostPixels, ").");
        steps_of_node.push_back({"UpsamplingNearest", {{"scale_factor", along(after / divisor)}}, shape});
      }
      if (before > divisor) {
        extent = after;
        steps_of_node.push_back(
            {"PoolingAverage", {{"kernel_size", Extents{1, 1}}, {"stride", along(before / divisor)}}, shape});
      }
    }
  std::optional<std::uint32_t> last;
  for (std::size_t i = 0; i < steps_of_node.size(); ++i) {
    const auto& [row, params, result] = steps_of_node[i];
    const auto place = i + 1 < steps_of_node.size() ? Location{add_image(result), 0} : destination;
    if (last)
      add_inner_step(node, row, params, *last, place);
    else
      add_step(node, mover(row, params), {source}, place);
    last = place.image;
  }
}

void NetworkPlan::add_adaptive_pooling(std::uint32_t node) {
  const auto value = static_cast<std::uint32_t>(parts_.inputs.size() + node);
  const auto source = parts_.nodes[node].sources[0];
  const auto destination = location(value);
  const auto &from = shapes_[source], &to = shapes_[value];
  const bool is_max = parts_.nodes[node].adaptive_pooling->is_max;
  if (from.h == to.h && from.w == to.w) return add_copy(node, source, destination);
  const auto rows = windows_of(areas_of(from.h, to.h)), columns = windows_of(areas_of(from.w, to.w));
  if (rows && columns) {
    const Params windows = {{"kernel_size", Extents{rows->first, columns->first}},
                            {"stride", Extents{rows->second, columns->second}}};
    add_step(node, mover(is_max ? "PoolingMax" : "PoolingAverage", windows), {source}, destination);
  } else if (to.h % from.h == 0 && to.w % from.w == 0) {
    const Params factors = {{"scale_factor", Extents{to.h / from.h, to.w / from.w}}};
    add_step(node, mover("UpsamplingNearest", factors), {source}, destination);
  } else {
    add_areas(node, source, destination);
  }
}

/// Reduce the columns of each area to one, then its rows. Pixels become channels, and these become pixels again: first
/// the rows of each column, then the columns of all rows.
void NetworkPlan::add_areas(std::uint32_t node, std::uint32_t source, Location destination) {
  constexpr std::int64_t kAllImages = std::int64_t{1} << 30;
  const auto value = static_cast<std::uint32_t>(parts_.inputs.size() + node);
  const auto &from = shapes_[source], &to = shapes_[value];
  const bool is_max = parts_.nodes[node].adaptive_pooling->is_max;
  const auto channels = (to.c + Image::kSlice - 1) / Image::kSlice * Image::kSlice;  // parts begin at whole slices
  check(std::max(to.h, to.w) * channels <= Image::kMostChannels, "adaptive pooling \"", parts_.nodes[node].name,
        "\": areas of different extents, ", from.h, " x ", from.w, " pixels to ", to.h, " x ", to.w, ": ",
        std::max(to.h, to.w), " areas of ", channels, " channels are more than the maximum (", Image::kMostChannels,
        " channels).");
  const auto padded = add_image({1, from.h, from.w, channels});
  add_step(node, mover("Pad", {{"channels_after", channels - to.c}}), {source}, {padded, 0});
  const auto stacked = add_image({1, to.h, 1, to.w * channels});
  for (std::int64_t place = 0; const auto& [left, right] : areas_of(from.w, to.w)) {
    const auto column = add_image({1, from.h, 1, channels}), cells = add_image({1, 1, 1, to.h * channels}),
               pixels = add_image({1, to.h, 1, channels});
    const Params of_column = {{"clip_rect_source", Extents{0, left, 0, from.h, right - left, kAllImages}}};
    add_inner_step(node, is_max ? "ReduceRowMax" : "ReduceRowMean", of_column, padded, {column, 0});
    for (std::int64_t first = 0; const auto& [top, bottom] : areas_of(from.h, to.h)) {
      const Params of_rows = {{"clip_rect_source", Extents{top, 0, 0, bottom - top, 1, kAllImages}}};
      add_inner_step(node, is_max ? "ReduceColumnMax" : "ReduceColumnMean", of_rows, column, {cells, first});
      first += channels;
    }
    add_inner_step(node, "Reshape", {{"shape", Extents{to.h, 1, channels}}}, cells, {pixels, 0});
    add_inner_step(node, "Slice", {}, pixels, {stacked, place});
    place += channels;
  }
  const auto all = add_image({1, to.h, to.w, channels});
  add_inner_step(node, "Reshape", {{"shape", Extents{to.h, to.w, channels}}}, stacked, {all, 0});
  Step last{.node = node, .kernel = mover("Slice"), .sources = {all}, .destination = destination.image};
  last.placement.sources[0] = {.first = 0, .count = to.c};
  last.placement.destination = destination.first;
  append(std::move(last));
}

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/parts.hpp"

#include <algorithm>
#include <tuple>
#include <type_traits>

namespace openmps {
namespace {

/// Whether each image of a batch is a problem of its own, but for sums over all of them.
template <class T>
constexpr bool is_batchwise = false;
template <>
constexpr bool is_batchwise<ConvProblem> = true;
template <>
constexpr bool is_batchwise<ConvGradientProblem> = true;
template <>
constexpr bool is_batchwise<PoolProblem> = true;
template <>
constexpr bool is_batchwise<PoolGradientProblem> = true;
template <>
constexpr bool is_batchwise<NeuronProblem> = true;
template <>
constexpr bool is_batchwise<NeuronGradientProblem> = true;
template <>
constexpr bool is_batchwise<BinaryProblem> = true;
template <>
constexpr bool is_batchwise<BinaryGradientProblem> = true;
template <>
constexpr bool is_batchwise<ReshapeProblem> = true;
template <>
constexpr bool is_batchwise<NormalizeProblem> = true;
template <>
constexpr bool is_batchwise<BatchMomentsProblem> = true;
template <>
constexpr bool is_batchwise<BatchMomentsGradientProblem> = true;
template <>
constexpr bool is_batchwise<NormalizeGradientProblem> = true;

template <class T>
bool may_be_part(const T& problem) {
  if constexpr (!is_batchwise<T>)
    return false;
  else if constexpr (requires { problem.groups; })
    return problem.groups == 0;  // else mean and variance are those of each image
  else
    return true;
}

/// Advance `first` to the parameters of the part that follows so many images.
void advance(ConvGradientProblem& first, std::int64_t) {
  first.accumulates = first.accumulates || first.diff_weights.memory || first.diff_bias.memory;
}
void advance(BatchMomentsGradientProblem& first, std::int64_t) { first.adds = true; }
void advance(BatchMomentsProblem& first, std::int64_t images) { first.count += images * first.src.h * first.src.w; }
template <class T>
void advance(T&, std::int64_t) {}

/// 0: there are no images with memory.
template <class T>
std::int64_t image_count(const T& problem) {
  std::int64_t count = 0;
  for_each_image(problem, [&](const ImageView& view) {
    if (view.memory) count = view.n;
  });
  return count;
}

/// Whether `part` is what `first` is for images of its own, with so many images between.
template <class T>
bool is_part(T first, T part, std::int64_t images_before) {
  std::vector<ImageView*> views;
  for_each_image(first, [&](ImageView& view) { views.push_back(&view); });
  const std::int64_t n = image_count(first), own = image_count(part);
  bool is_alike = true;
  std::size_t i = 0;
  for_each_image(part, [&](ImageView& view) {
    ImageView& of_first = *views[i++];
    is_alike = is_alike && !of_first.memory == !view.memory;
    if (view.memory) is_alike = is_alike && of_first.n == n && view.n == own;
    view.memory = of_first.memory, view.offset = of_first.offset, view.n = of_first.n;
  });
  advance(first, images_before);
  return is_alike && part == first;
}

/// Whether two parts have an image that begins at the same place: what one stores and the next reads, or what both
/// read.
bool share_images(std::span<const Problem> parts) {
  struct Place {
    const Memory* memory;
    std::size_t offset, part;
  };
  std::vector<Place> places;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Problem part = parts[i];
    for (const ImageView* const view : images_of(part))
      if (view->memory) places.push_back({view->memory.get(), view->offset, i});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.memory, a.offset, a.part) < std::tie(b.memory, b.offset, b.part);
  });
  return std::adjacent_find(places.begin(), places.end(), [](const Place& a, const Place& b) {
           return a.memory == b.memory && a.offset == b.offset && a.part != b.part;
         }) != places.end();
}

struct Range {
  const std::byte *first, *end;
  bool operator==(const Range&) const = default;
};

/// From the first value of the first image to where the next image would begin.
Range range_of(const ImageView& view) {
  const std::byte* const first = view.memory->data() + view.offset;
  return {first, first + static_cast<std::size_t>(view.n * view.n_stride) * size_of(view.format)};
}

}  // namespace

std::vector<ImageView*> images_of(Problem& problem) {
  std::vector<ImageView*> views;
  std::visit(
      [&](auto& p) {
        if (may_be_part(p)) for_each_image(p, [&](ImageView& view) { views.push_back(&view); });
      },
      problem);
  return views;
}

bool are_parts(std::span<const Problem> problems) {
  const bool are_alike = std::visit(
      [&](const auto& first) {
        using T = std::decay_t<decltype(first)>;
        if constexpr (!is_batchwise<T>) {
          return false;
        } else {
          std::int64_t before = image_count(first);
          if (before == 0 || !may_be_part(first)) return false;
          for (const Problem& other : problems.subspan(1)) {
            const T* const part = std::get_if<T>(&other);
            if (!part || !is_part(first, *part, before)) return false;
            before += image_count(*part);
          }
          return true;
        }
      },
      problems.front());
  return are_alike && !share_images(problems);
}

std::optional<Problem> joined(std::span<const Problem> parts) {
  if (!are_parts(parts)) return std::nullopt;
  Problem result = parts.front();
  std::vector<ImageView*> views;  // those with memory
  std::vector<Range> ranges;
  for (ImageView* const view : images_of(result)) {
    if (!view->memory) continue;
    if (view->n_stride < (view->h - 1) * view->h_stride + (view->w - 1) * view->w_stride + view->c) return std::nullopt;
    views.push_back(view);
    ranges.push_back(range_of(*view));
  }
  std::int64_t images = views.front()->n;
  for (const Problem& other : parts.subspan(1)) {
    Problem part = other;
    auto range = ranges.begin();
    for (const ImageView* const view : images_of(part)) {
      if (!view->memory) continue;
      const Range own = range_of(*view);
      if (own.first != range->end) return std::nullopt;
      range->end = own.end;
      if (range == ranges.begin()) images += view->n;
      ++range;
    }
  }
  // An image in the place of another is so in each part. What overlaps otherwise would be read too late.
  for (const Range& a : ranges) {
    for (const Range& b : ranges) {
      if (a != b && a.first < b.end && b.first < a.end) return std::nullopt;
    }
  }
  for (ImageView* const view : images_of(result)) view->n = images;
  return result;
}

}  // namespace openmps

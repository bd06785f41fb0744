// SPDX-License-Identifier: Apache-2.0
#include "engine/parts.hpp"

#include <algorithm>
#include <concepts>
#include <tuple>
#include <type_traits>

namespace openmps {
namespace {

/// Calls visit(view) for each, also for those without memory. False: nobody knows them all.
template <class P, class Visit>
bool for_each_image(P& p, const Visit& visit) {
  using T = std::remove_const_t<P>;
  if constexpr (std::is_same_v<T, ConvProblem>) {
    visit(p.src), visit(p.dst), visit(p.addend);
  } else if constexpr (std::is_same_v<T, ConvGradientProblem> || std::is_same_v<T, PoolGradientProblem>) {
    visit(p.diff_dst), visit(p.src), visit(p.diff_src);
  } else if constexpr (std::is_same_v<T, PoolProblem> || std::is_same_v<T, NeuronProblem> ||
                       std::is_same_v<T, ReshapeProblem>) {
    visit(p.src), visit(p.dst);
  } else if constexpr (std::is_same_v<T, NeuronGradientProblem>) {
    visit(p.diff_dst.view), visit(p.src.view), visit(p.diff_src);
  } else if constexpr (std::is_same_v<T, BinaryProblem>) {
    visit(p.src0.view), visit(p.src1.view), visit(p.dst), visit(p.mask);
  } else if constexpr (std::is_same_v<T, BinaryGradientProblem>) {
    visit(p.diff_dst.view), visit(p.other.view), visit(p.mask.view), visit(p.diff_src);
  } else if constexpr (std::is_same_v<T, NormalizeProblem>) {
    if (p.groups != 0) return false;  // mean and variance are those of each image
    visit(p.src.view), visit(p.dst);
  } else if constexpr (std::is_same_v<T, StatisticsProblem>) {
    visit(p.src);
  } else if constexpr (std::is_same_v<T, StatisticsGradientProblem>) {
    visit(p.diff_dst), visit(p.src.view);
  } else if constexpr (std::is_same_v<T, NormalizeGradientProblem>) {
    if (p.groups != 0) return false;
    visit(p.diff_dst.view), visit(p.src.view), visit(p.diff_src);
  } else {
    return false;
  }
  return true;
}

/// Makes of the first part what a part is that comes after so many images.
void go_on(ConvGradientProblem& first, std::int64_t) {
  first.accumulates = first.accumulates || first.diff_weights.memory || first.diff_bias.memory;
}
void go_on(StatisticsGradientProblem& first, std::int64_t) { first.adds = true; }
void go_on(StatisticsProblem& first, std::int64_t images) { first.count += images * first.src.h * first.src.w; }
template <class T>
void go_on(T&, std::int64_t) {}

/// 0: there are no images, or nobody knows them all.
template <class T>
std::int64_t image_count(T& problem) {
  std::int64_t count = 0;
  for_each_image(problem, [&](ImageView& view) {
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
  go_on(first, images_before);
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
  const bool are_all =
      std::visit([&](auto& p) { return for_each_image(p, [&](ImageView& view) { views.push_back(&view); }); }, problem);
  if (!are_all) views.clear();
  return views;
}

bool are_parts(std::span<const Problem> problems) {
  const bool are_alike = std::visit(
      [&](const auto& first) {
        using T = std::decay_t<decltype(first)>;
        if constexpr (!std::equality_comparable<T>) {
          return false;
        } else {
          T problem = first;
          std::int64_t before = image_count(problem);
          if (before == 0) return false;
          for (const Problem& other : problems.subspan(1)) {
            const T* const part = std::get_if<T>(&other);
            if (!part || !is_part(first, *part, before)) return false;
            problem = *part;
            before += image_count(problem);
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

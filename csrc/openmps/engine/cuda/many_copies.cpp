// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/many_copies.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace openmps::cuda {

bool ManyCopies::can_add(const Span& from, const Span& to) const {
  const auto meets = [](const std::vector<Span>& spans, const Span& span) {
    return std::any_of(spans.begin(), spans.end(), [&](const Span& each) { return each.meets(span); });
  };
  return !meets(writes_, from) && !meets(writes_, to) && !meets(reads_, to);
}

void ManyCopies::add(Work& work, const Span& from, const Span& to, const std::function<void(ManyCopies&)>& add) {
  auto* many = dynamic_cast<ManyCopies*>(work.gathered().get());
  if (!many || !many->can_add(from, to)) {
    work.launch_gathered();
    work.gathered() = std::make_unique<ManyCopies>();
    many = static_cast<ManyCopies*>(work.gathered().get());
  }
  many->reads_.push_back(from), many->writes_.push_back(to);
  add(*many);
  if (!work.gathers()) work.launch_gathered();
}

namespace {

/// Launch a kernel for parts, with as many in each launch as its arguments have.
template <class Args, class Part, std::size_t most, class Blocks>
void launch_parts(Work& work, const Kernel<Args>& kernel, Part (Args::*parts)[most], const std::vector<Part>& all,
                  const Blocks& blocks_of) {
  for (std::size_t first = 0; first < all.size(); first += most) {
    Args args{};
    const std::size_t count = std::min(all.size() - first, most);
    i64 blocks = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Part& part = (args.*parts)[i] = all[first + i];
      part.end = blocks += blocks_of(part);
    }
    args.count = static_cast<int>(count);
    work.launch(kernel, args, blocks);
  }
}

}  // namespace

void ManyCopies::launch(Work& work) {
  using pointwise::CopyManyArgs, layout::ArrangeManyArgs;
  launch_parts(work, pointwise::copy_many, &CopyManyArgs::ranges, ranges_, [](const CopyManyArgs::Range& range) {
    return (range.words + CopyManyArgs::kWords - 1) / CopyManyArgs::kWords;
  });
  launch_parts(work, layout::arrange_many, &ArrangeManyArgs::parts, parts_,
               [](const ArrangeManyArgs::Part& part) { return part.args.blocks(); });
}

}  // namespace openmps::cuda

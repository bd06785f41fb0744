// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/kernels/loss.hpp"

#include <vector>

#include "engine/cuda/families.hpp"

namespace openmps::cuda {
namespace {

constexpr i64 kFewChannels = 64;  // a block per pixel has too few threads at work below

loss::Function function_of(const LossFunction& f) {
  return {.type = f.type, .weight = f.weight, .numbers = LossNumbers(f)};
}

/// How a part's images are divided among blocks.
struct Division {
  const Kernel<loss::PartArgs>* kernel;
  i64 blocks;  ///< per image
};
Division division_of(const LossProblem& p, const LossProblem::Part& part) {
  const auto blocks = [](i64 count, i64 of_block) { return (count + of_block - 1) / of_block; };
  const i64 pixels = part.h * part.w;
  if (p.boxes) {
    const auto anchors = static_cast<i64>(p.boxes->anchors.size() / 2);
    return {&loss::loss_boxes, blocks(pixels * anchors, loss::kBoxesOfBlock)};
  }
  if (p.function.type != LossType::softmax) return {&loss::loss_values, blocks(pixels * part.c, loss::kValuesOfBlock)};
  if (part.c < kFewChannels) return {&loss::loss_softmax_pixels, blocks(pixels, loss::kPixelsOfBlock)};
  return {&loss::loss_softmax_channels, pixels};
}

void set_boxes(loss::PartArgs& args, const std::shared_ptr<const BoxLoss>& boxes, Work& work) {
  args.function.weight = 1;
  args.xy = function_of(boxes->xy), args.wh = function_of(boxes->wh);
  args.confidence = function_of(boxes->confidence), args.classes = function_of(boxes->classes);
  args.scale_object = boxes->scale_object, args.scale_no_object = boxes->scale_no_object;
  args.min_iou = boxes->min_iou, args.max_iou = boxes->max_iou;
  args.rescore = boxes->rescore;
  args.anchors = work.constants(std::shared_ptr<const std::vector<float>>(boxes, &boxes->anchors));
  args.count_of_anchors = static_cast<i64>(boxes->anchors.size() / 2);
}

const char* run_loss(const Call<LossProblem>& call) {
  const auto& [p, work] = call;
  const bool none = p.reduction == LossReduction::none;
  // Scratch memory: the sums of each part's blocks, then those of images.
  i64 blocks = 0, images = 0;
  for (const LossProblem::Part& part : p.parts)
    if (!none && part.loss.memory) blocks += part.n * division_of(p, part).blocks, images += part.n;
  Pointer<loss::Sums> sums, sums_of_images;
  if (blocks > 0) {
    sums = {work.scratch(static_cast<std::size_t>(blocks + images) * sizeof(loss::Sums))};
    sums_of_images = {sums.address + static_cast<std::size_t>(blocks) * sizeof(loss::Sums)};
  }
  const auto after = [](Pointer<loss::Sums>& pointer, i64 count) {
    pointer.address += static_cast<std::size_t>(count) * sizeof(loss::Sums);
  };

  Pointer<loss::Sums> images_of_part = sums_of_images;
  for (const LossProblem::Part& part : p.parts) {
    if (!part.gradient.memory && !part.loss.memory) continue;
    const bool sums_up = !none && part.loss.memory;
    const Division division = division_of(p, part);
    loss::PartArgs args{.src = work.source(part.src),
                        .labels = work.source(part.labels),
                        .weights = work.source(part.weights),
                        .incoming = work.source(part.incoming),
                        .gradient = work.view(part.gradient),
                        .h = part.h,
                        .w = part.w,
                        .c = part.c,
                        .function = function_of(p.function),
                        .by_labels = p.by_labels,
                        .blocks = division.blocks};
    if (none) args.losses = work.view(part.loss);
    if (sums_up) args.sums = sums;
    if (p.boxes) set_boxes(args, p.boxes, work);
    work.launch(
        *division.kernel, args, part.n * division.blocks,
        {&args.src.view, &args.labels.view, &args.weights.view, &args.incoming.view, &args.gradient, &args.losses});
    if (!sums_up) continue;

    const bool is_cosine = !p.boxes && p.function.type == LossType::cosine;
    const bool by_pixels = !p.boxes && p.function.type == LossType::softmax;
    loss::ImageArgs of_images{.sums = {sums.address},
                              .blocks = division.blocks,
                              .counts_weights = p.reduction == LossReduction::mean_of_nonzero_weights};
    if (is_cosine) of_images.added = part.weights.view.memory ? 1.0 : static_cast<double>(p.function.weight);
    if (p.reduction == LossReduction::mean)
      of_images.divisor = static_cast<double>(part.h * part.w * (by_pixels ? 1 : part.c));
    of_images.losses = work.view(part.loss);
    if (p.across_images) of_images.images = images_of_part;
    work.launch(loss::loss_images, of_images, part.n, {&of_images.losses});
    after(sums, part.n * division.blocks);
    after(images_of_part, part.n);
  }
  if (none || !p.across_images) return nullptr;
  for (const LossProblem::Part& part : p.parts) {
    if (!part.loss.memory) continue;
    const loss::AcrossArgs args{.images = {sums_of_images.address},
                                .count = images,
                                .divides = p.reduction != LossReduction::sum,
                                .losses = work.view(part.loss),
                                .is_first = &part == &p.parts.front()};
    work.launch(loss::loss_across_images, args, 1, {&args.losses});
  }
  return nullptr;
}
constexpr Implementation<Call<LossProblem>> kLosses[] = {{"cuda_loss", run_loss}};
const ImplementationNames kLossNames(kLosses);

}  // namespace

bool solve(const LossProblem& problem, Work& work) {
  return try_first("loss", kLosses, Call<LossProblem>{problem, work});
}

}  // namespace openmps::cuda

// SPDX-License-Identifier: Apache-2.0
// From images with labels, weights and losses to one recorded problem.

#import "mps/MPSCNNLoss+Engine.hh"

#include "engine/problem/problem.hpp"

namespace openmps {

void LossSettings::check(const KernelState &state) const {
  if (static_cast<unsigned>(type) >= MPSCNNLossTypeCount)
    raise_for(state, @"lossType (%d) is not between 0 and %d.", (int)type, MPSCNNLossTypeCount - 1);
  if (reduction < MPSCNNReductionTypeNone || reduction >= MPSCNNReductionTypeCount)
    raise_for(state, @"reductionType (%d) is not between 0 and %d.", (int)reduction, MPSCNNReductionTypeCount - 1);
  if (type == MPSCNNLossTypeCosineDistance && reduction != MPSCNNReductionTypeSum)
    raise_for(state, @"reductionType (%d) is not MPSCNNReductionTypeSum (1), the only one of the cosine distance.",
              (int)reduction);
  if (std::isnan(weight)) raise_for(state, @"weight (nan) is not a number.");
  if (!(smoothing >= 0 && smoothing <= 1))
    raise_for(state, @"labelSmoothing (%g) is not between 0 and 1.", (double)smoothing);
  if (classes < 1 || classes > NSUInteger{1} << 31)
    raise_for(state, @"numberOfClasses (%lu) is not between 1 and %lu.", (unsigned long)classes, 1ul << 31);
  if (!(epsilon >= 0)) raise_for(state, @"epsilon (%g) is less than 0.", (double)epsilon);
  if (!(delta >= 0)) raise_for(state, @"delta (%g) is less than 0.", (double)delta);
}

LossFunction LossSettings::function() const {
  LossFunction function;
  function.type = static_cast<LossType>(type);
  function.weight = weight, function.smoothing = smoothing;
  function.classes = static_cast<std::int64_t>(classes);
  function.epsilon = epsilon, function.delta = delta;
  return function;
}

void LossSettings::archive(Archive &archive, NSString *prefix) {
  const auto key = [prefix](NSString *name) { return [prefix stringByAppendingString:name]; };
  archive.field(key(@".lossType"), type);
  archive.field(key(@".reductionType"), reduction);
  archive.field(key(@".reduceAcrossBatch"), across_batch);
  archive.field(key(@".weight"), weight);
  archive.field(key(@".labelSmoothing"), smoothing);
  archive.field(key(@".numberOfClasses"), classes);
  archive.field(key(@".epsilon"), epsilon);
  archive.field(key(@".delta"), delta);
}

LossReduction reduction_of(MPSCNNReductionType reduction) { return static_cast<LossReduction>(reduction); }

Problem LossState::problem(const ImageView &, const ImageView &, const Window &) const {
  raise_for(*this, @"There is no loss without labels; use the encode forms that have them.");
}

void LossState::archive(Archive &archive) {
  CNNKernelState::archive(archive);
  settings.archive(archive, @"MPSCNNLoss");
}

void LossState::did_read(MPSKernel *kernel) {
  CNNKernelState::did_read(kernel);
  settings.check(*this);
}

namespace {

/// Raise unless the image (labels or weights) has the predictions' pixels and channels.
void check_like(const ImageKernelState &state, MPSImage *image, const char *name, MPSImage *source, std::int64_t c) {
  if ([image width] != [source width] || [image height] != [source height] ||
      static_cast<std::int64_t>([image featureChannels]) != c || [image numberOfImages] != [source numberOfImages])
    raise_for(state,
              @"%s has %lu x %lu x %lu (height x width x channels) and %lu images, and the source %lu x %lu x %ld and "
              @"%lu.",
              name, (unsigned long)[image height], (unsigned long)[image width], (unsigned long)[image featureChannels],
              (unsigned long)[image numberOfImages], (unsigned long)[source height], (unsigned long)[source width],
              (long)c, (unsigned long)[source numberOfImages]);
}

/// Check one image (of one encode). No side effects.
LossProblem::Part resolve(const ImageKernelState &state, const LossImages &images, bool none, const LossSlots &slots) {
  const SourceSlot &slot = state.const_slots()[slots.source];
  const SourceNames &names = state.names(slots.source);
  check_image(state, images.source, names.image);
  check_image(state, images.labels, "labels");
  if (images.weights != nil) check_image(state, images.weights, "weights");
  state.check_slots();
  const ImageView source = [images.source openmps_view];

  Clip clip;
  clip.width = source.w, clip.height = source.h, clip.depth = source.n;
  ImageView gradient;
  if (images.gradient != nil) {
    gradient = [images.gradient openmps_view];
    clip = clip_of(state, state.destination, gradient);
  }
  LossProblem::Part part;
  const auto place = [&](const SourceSlot &placed, const ImageView &view) {
    Operand result = operand(placed, view);
    result.repeat_h = result.repeat_w = false;
    return result;
  };
  const ImageView seen = source_view(state, slot, names, source, clip.depth);
  part.n = clip.depth, part.h = clip.height, part.w = clip.width, part.c = seen.c;
  part.src = place(slot, seen);
  const auto companion = [&](MPSImage *image, const char *name) {
    check_like(state, image, name, images.source, seen.c);
    return place(slot, [image openmps_view].images(slot.offset.z, clip.depth));
  };
  part.labels = companion(images.labels, "labels");
  if (images.weights != nil) part.weights = companion(images.weights, "weights");

  if (images.incoming != nil) {
    const SourceSlot &incoming = state.const_slots()[slots.incoming];
    const SourceNames &incoming_names = state.names(slots.incoming);
    check_image(state, images.incoming, incoming_names.image);
    const ImageView view = [images.incoming openmps_view];
    part.incoming = place(incoming, source_view(state, incoming, incoming_names, view, clip.depth));
    if (view.h == 1 && view.w == 1 && view.c == 1) {
      // The gradient of a reduced loss applies to all its values.
      part.incoming.start_h = part.incoming.start_w = 0;
      part.incoming.repeat_h = part.incoming.repeat_w = part.incoming.repeat_c = true;
    } else if (view.h != source.h || view.w != source.w || part.incoming.view.c != seen.c) {
      raise_for(state,
                @"%s has %ld x %ld x %ld (height x width x channels), expected 1 x 1 x 1 or the %ld x %ld x %ld of %s.",
                incoming_names.image, (long)view.h, (long)view.w, (long)part.incoming.view.c, (long)source.h,
                (long)source.w, (long)seen.c, names.image);
    }
  }
  if (images.gradient != nil) {
    const std::vector<NSUInteger> channels(state.const_slots().size(), static_cast<NSUInteger>(seen.c));
    part.gradient = destination_view(state, state.destination, gradient, clip, state.result_channels(channels));
  }
  if (images.loss != nil) {
    check_image(state, images.loss, "The loss image");
    const ImageView view = [images.loss openmps_view];
    const std::int64_t h = none ? clip.y + clip.height : 1, w = none ? clip.x + clip.width : 1, c = none ? seen.c : 1;
    if (view.h < h || view.w < w || (none ? view.c != c : view.c < c) || view.n < clip.z + clip.depth)
      raise_for(state,
                @"The loss image has %ld x %ld x %ld (height x width x channels) and %ld images; with reductionType %s "
                @"%ld x %ld x %ld and %ld are needed.",
                (long)view.h, (long)view.w, (long)view.c, (long)view.n, none ? "None" : "Sum or Mean", (long)h, (long)w,
                (long)c, (long)(clip.z + clip.depth));
    part.loss = view.images(clip.z, clip.depth).channels(0, c);
    part.loss = none ? part.loss.region(clip.y, clip.x, clip.height, clip.width) : part.loss.region(0, 0, 1, 1);
  }
  // Views of absent images have no memory.
  const std::pair<const ImageView *, const char *> read[] = {{&part.src.view, names.image},
                                                             {&part.labels.view, "labels"},
                                                             {&part.weights.view, "weights"},
                                                             {&part.incoming.view, "the incoming gradient"}};
  const std::pair<const ImageView *, const char *> written[] = {{&part.gradient, "the destination"},
                                                                {&part.loss, "the loss image"}};
  for (const auto &[source_of, source_name] : read)
    for (const auto &[result, result_name] : written)
      if (source_of->memory && result->memory && overlap(*source_of, *result))
        raise_for(state, @"%s and %s share memory.", source_name, result_name);
  return part;
}

/// Extend `run` by `next` if all its images follow in memory. Otherwise return false and change nothing.
bool append(LossProblem::Part &run, const LossProblem::Part &next) {
  if (run.h != next.h || run.w != next.w || run.c != next.c) return false;
  ImageView *const longer[] = {&run.src.view,      &run.labels.view, &run.weights.view,
                               &run.incoming.view, &run.gradient,    &run.loss};
  const ImageView *const views[] = {&next.src.view,      &next.labels.view, &next.weights.view,
                                    &next.incoming.view, &next.gradient,    &next.loss};
  for (std::size_t i = 0; i < std::size(views); ++i) {
    if (!views[i]->memory || append_images(*longer[i], *views[i])) continue;
    while (i-- > 0)
      if (views[i]->memory) --longer[i]->n;
    return false;
  }
  run.n += next.n;
  return true;
}

}  // namespace

void encode_losses(const ImageKernelState &state, id<MTLCommandBuffer> buffer, const std::vector<LossImages> &images,
                   LossProblem problem, const LossSlots &slots) {
  Recorder &recorder = begin_encode(state, buffer);
  const bool none = problem.reduction == LossReduction::none;
  if (none) problem.across_images = false;
  for (const LossImages &image : images) {
    LossProblem::Part part = resolve(state, image, none, slots);
    if (problem.parts.empty() || part.n != 1 || !append(problem.parts.back(), part))
      problem.parts.push_back(std::move(part));
  }
  std::vector<MPSImage *> read;
  read.reserve(3 * images.size());
  for (const LossImages &image : images)
    for (MPSImage *source : {image.source, image.labels, image.weights, image.incoming})
      if (source != nil) read.push_back(source);
  for (MPSImage *image : read) [image openmps_willReadOn:buffer];
  for (const LossImages &image : images)
    for (MPSImage *result : {image.gradient, image.loss})
      if (result != nil) [result openmps_willWriteOn:buffer];
  recorder.append(std::move(problem), state.title);
  each_distinct(std::move(read), [](MPSImage *image) { [image openmps_didRead]; });
}

LossImages images_of(const ImageKernelState &state, MPSImage *source, MPSCNNLossLabels *labels, MPSImage *gradient) {
  if (labels == nil) raise_for(state, @"labels is nil.");
  if (![labels isKindOfClass:[MPSCNNLossLabels class]])
    raise_for(state, @"labels is an object of class %@, which is no MPSCNNLossLabels.", [labels class]);
  check_image(state, gradient, "destinationImage");
  LossImages images;
  images.source = source, images.gradient = gradient;
  images.labels = [labels labelsImage], images.weights = [labels weightsImage], images.loss = [labels lossImage];
  return images;
}

std::vector<LossImages> images_of(const ImageKernelState &state, MPSImageBatch *sources, MPSCNNLossLabelsBatch *labels,
                                  MPSImageBatch *gradients) {
  const NSUInteger count = [sources count];
  check_batch(state, sources, count, "sourceImages");
  check_batch(state, gradients, count, "destinationImages");
  if ([labels count] != count)
    raise_for(state, @"labels has %lu elements, expected one for each of %lu images.", (unsigned long)[labels count],
              (unsigned long)count);
  std::vector<LossImages> images;
  images.reserve(count);
  std::vector<const void *> distinct;
  distinct.reserve(count);
  for (NSUInteger i = 0; i < count; ++i) {
    MPSCNNLossLabels *own = [labels objectAtIndex:i];
    images.push_back(images_of(state, [sources objectAtIndex:i], own, [gradients objectAtIndex:i]));
    distinct.push_back(own);
  }
  std::sort(distinct.begin(), distinct.end());
  if (std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end())
    raise_for(state, @"labels has one object for several images; each needs its own, which takes its loss.");
  return images;
}

}  // namespace openmps

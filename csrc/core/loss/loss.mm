// SPDX-License-Identifier: Apache-2.0
// MPSCNNLoss and MPSCNNLossLabels. A batch has one MPSCNNLossLabels per image, as Apple's encode methods require, or
// per MPSImage where the device allows it.
#include <mpscnn/error.hpp>
#include <mpscnn/loss.hpp>

#include <iterator>
#include <mutex>

#include "core/data_source/sharing.hh"
#include "core/device/completion_check.hh"
#include "core/device/forked.hpp"
#include "core/device/image_batch.hh"
#include "core/device/objc_scope.hh"
#include "core/kernel/encode_checks.hh"
#include "core/kernel/params.hpp"
#include "core/loss/loss_impl.hh"
#include "core/loss/loss_labels_impl.hh"

namespace mpscnn {
namespace {

/// Names of MPSCNNLossType's values, in their order.
constexpr const char *kTypeNames[] = {"mean_absolute_error",
                                      "mean_squared_error",
                                      "softmax_cross_entropy",
                                      "sigmoid_cross_entropy",
                                      "categorical_cross_entropy",
                                      "hinge",
                                      "huber",
                                      "cosine_distance",
                                      "log",
                                      "kullback_leibler_divergence"};
static_assert(std::size(kTypeNames) == MPSCNNLossTypeCount);

constexpr const char *kReductionNames[] = {"none", "sum", "mean", "sum_by_nonzero_weights"};
static_assert(std::size(kReductionNames) == MPSCNNReductionTypeCount);

AsTuple<Extents> as_tuple_of(LossLabels::LossShape shape) { return as_tuple(Extents{shape.begin(), shape.end()}); }

ArrayView images_of(ArrayView view, std::int64_t first, std::int64_t count) {
  view.data = static_cast<std::byte *>(view.data) + first * view.strides[0];
  view.shape[0] = count;
  return view;
}

ImageShape shape_of(const ArrayView &view, const char *who, const char *name) {
  check<TypeError>(view.dtype == DType::float32, who, ": ", name, ".dtype (", name_of(view.dtype), ") is not float32.");
  check(view.ndim() == 4, who, ": ", name, ".ndim (", view.ndim(), ") is not 4 (N, H, W, C).");
  return {view.shape[0], view.shape[1], view.shape[2], view.shape[3]};
}

}  // namespace

const char *name_of(LossReduction reduction) { return kReductionNames[static_cast<std::size_t>(reduction)]; }

LossReduction reduction_of(const char *name, const Params &params) {
  return static_cast<LossReduction>(Options(name, params).choice("reduction", kReductionNames));
}

DType gradient_dtype(DType predictions) { return predictions == DType::float16 ? DType::float16 : DType::float32; }

LossOptions LossOptions::from(const char *name, const Params &params) {
  const Options given(name, params);
  LossOptions options;
  options.type = static_cast<std::uint32_t>(given.choice("type", kTypeNames));
  if (params.contains("reduction")) {
    options.reduction = reduction_of(name, params);
    options.reduce_across_batch = given.boolean("reduce_across_batch");
  }
  check(options.type != MPSCNNLossTypeCosineDistance || options.reduction == LossReduction::sum, name,
        ": reduction (\"", name_of(options.reduction), "\") is not \"sum\", the only one of type \"cosine_distance\".");
  options.weight = given.real("weight");
  options.label_smoothing = given.real("label_smoothing");
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1, name, ": label_smoothing (",
        options.label_smoothing, ") is not between 0 and 1.");
  options.number_of_classes = given.integer("number_of_classes", 1, Image::kMostChannels);
  options.epsilon = given.real("epsilon", 0);
  options.delta = given.real("delta", 0);
  return options;
}

MPSCNNLossDescriptor *objc_loss(const LossOptions &options) {
  MPSCNNLossDescriptor *descriptor =
      [MPSCNNLossDescriptor cnnLossDescriptorWithType:static_cast<MPSCNNLossType>(options.type)
                                        reductionType:static_cast<MPSCNNReductionType>(options.reduction)];
  descriptor.weight = static_cast<float>(options.weight);
  descriptor.labelSmoothing = static_cast<float>(options.label_smoothing);
  descriptor.numberOfClasses = static_cast<NSUInteger>(options.number_of_classes);
  descriptor.epsilon = static_cast<float>(options.epsilon);
  descriptor.delta = static_cast<float>(options.delta);
  if (options.reduce_across_batch) descriptor.reduceAcrossBatch = YES;  // since macOS 11
  return descriptor;
}

// ------------------------------------------------------------------------------------------------------------- labels

/// Make the MPS objects of all parts.
void LossLabels::Impl::make_batch() {
  for (const auto &part : parts) {
    if (is_whole()) {
      add(part.labels->impl().image.get(), part.weights ? part.weights->impl().image.get() : nil);
      continue;
    }
    ImageBatch labels, weights;
    labels.add(*part.labels);
    if (part.weights) weights.add(*part.weights);
    for (NSUInteger i = 0; i < [labels.images() count]; ++i)
      add([labels.images() objectAtIndex:i], part.weights ? [weights.images() objectAtIndex:i] : nil);
  }
}

void LossLabels::Impl::add(MPSImage *labels, MPSImage *weights) {
  const MTLSize size = MTLSizeMake(static_cast<NSUInteger>(loss_shape[1]), static_cast<NSUInteger>(loss_shape[0]),
                                   static_cast<NSUInteger>(loss_shape[2]));
  auto one = Ref<MPSCNNLossLabels *>::adopt([[MPSCNNLossLabels alloc] initWithDevice:device->impl().device.get()
                                                                       lossImageSize:size
                                                                         labelsImage:labels
                                                                        weightsImage:weights]);
  mpscnn::check<std::runtime_error>(static_cast<bool>(one), "LossLabels: the device refused the labels.");
  [batch.get() addObject:one.get()];
}

NSArray *LossLabels::Impl::batch_of_single_images() {
  const std::scoped_lock lock(mutex);
  if (is_whole() && shape.n > 1) {
    is_split = true;
    has_loss = false;
    [batch.get() removeAllObjects];
    make_batch();
  }
  return batch.get();
}

void LossLabels::Impl::note_loss(id<MTLCommandBuffer> commands) {
  for (MPSCNNLossLabels *one in batch.get()) synchronize([one lossImage], commands);
  writer.set(commands);
  has_loss = true;
}

LossLabels::LossLabels(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LossLabels::~LossLabels() {
  Pool pool;
  impl_.reset();
}

namespace {

void check_loss_shape(ImageShape shape, LossLabels::LossShape loss_shape) {
  const LossLabels::LossShape whole = {shape.h, shape.w, shape.c};
  check(loss_shape == LossLabels::LossShape{1, 1, 1} || loss_shape == whole, "LossLabels: loss_shape ",
        as_tuple_of(loss_shape), " is neither (1, 1, 1) nor ", as_tuple_of(whole), ", that of labels (H, W, C).");
}

}  // namespace

std::shared_ptr<LossLabels> LossLabels::make(std::shared_ptr<Device> device, const ArrayView &labels,
                                             const std::optional<ArrayView> &weights, LossShape loss_shape) {
  const auto shape = shape_of(labels, "LossLabels", "labels");
  Image::bytes(*device, shape, DType::float32);  // throws if the shape is invalid
  const auto most = Image::most_images(shape.c);
  check(most > 0, "LossLabels: labels have more channels (", shape.c, ") than the maximum (", Image::kMostChannels,
        ").");
  if (weights) {
    const auto given = shape_of(*weights, "LossLabels", "weights");
    check(given == shape, "LossLabels: weights.shape ", given, " is not labels.shape ", shape, ".");
  }
  check_loss_shape(shape, loss_shape);
  return guard([&] {
    auto impl = std::unique_ptr<Impl>(new Impl{.device = device, .shape = shape, .loss_shape = loss_shape});
    for (std::int64_t first = 0; first < shape.n; first += most) {
      ImageShape part = shape;
      part.n = std::min(most, shape.n - first);
      impl->parts.push_back(
          {Image::make(device, part, DType::float32), weights ? Image::make(device, part, DType::float32) : nullptr});
    }
    impl->make_batch();
    auto made = std::make_shared<LossLabels>(std::move(impl));
    made->write(labels, weights);
    return made;
  });
}

std::shared_ptr<LossLabels> LossLabels::from_images(std::shared_ptr<Device> device, std::shared_ptr<Image> labels,
                                                    std::shared_ptr<Image> weights, LossShape loss_shape) {
  for (const auto &[image, name] : {std::pair{labels, "labels"}, std::pair{weights, "weights"}}) {
    if (!image) continue;
    check_same_device(*image->device(), *device, name);
    check(!image->is_temporary(), "LossLabels: ", name, " is a temporary image, which its readers use up.");
  }
  const auto shape = labels->shape();
  if (weights)
    check(weights->shape() == shape, "LossLabels: weights.shape ", weights->shape(), " is not labels.shape ", shape,
          ".");
  check_loss_shape(shape, loss_shape);
  return guard([&] {
    auto impl =
        std::unique_ptr<Impl>(new Impl{.device = device, .shape = shape, .loss_shape = loss_shape, .copied = false});
    impl->parts.push_back({labels, weights});
    impl->make_batch();
    return std::make_shared<LossLabels>(std::move(impl));
  });
}

void LossLabels::write(const ArrayView &labels, const std::optional<ArrayView> &weights) {
  const char *const name = "LossLabels.write";
  const auto &own = impl_->shape;
  check(impl_->copied, name, ": labels is an Image; write to that.");
  const auto given = shape_of(labels, name, "labels");
  check(given == own, name, ": labels.shape ", given, " is not that of the object ", own, ".");
  check(weights.has_value() == has_weights(), name,
        has_weights() ? ": weights (None) are missing; the object has some."
                      : ": weights were given; the object was made without.");
  if (weights) {
    const auto shape = shape_of(*weights, name, "weights");
    check(shape == own, name, ": weights.shape ", shape, " is not labels.shape ", own, ".");
  }
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    check_written(impl_->writer, name);
    std::int64_t first = 0;
    for (const auto &part : impl_->parts) {
      const auto count = part.labels->shape().n;
      part.labels->write(images_of(labels, first, count));
      if (weights) part.weights->write(images_of(*weights, first, count));
      first += count;
    }
  });
}

void LossLabels::loss(float *to) const {
  guard([&] {
    const std::scoped_lock lock(impl_->mutex);
    check<std::runtime_error>(impl_->has_loss, "LossLabels: no loss has been encoded to it.");
    check_written(impl_->writer, "LossLabels");
    const auto &[h, w, c] = impl_->loss_shape;
    for (MPSCNNLossLabels *labels in impl_->batch.get()) {
      MPSImage *losses = [labels lossImage];
      if (with_memory(impl_->device->impl().device.get()) != nil) {  // one transfer instead of one per image
        const auto strides =
            contiguous_strides({static_cast<std::int64_t>(losses.numberOfImages), h, w, c}, DType::float32);
        const NSInteger steps[] = {strides[0], strides[1], strides[2], strides[3]};
        if ([losses copyHostBytes:to strides:steps intoImage:NO]) {
          to += static_cast<std::int64_t>(losses.numberOfImages) * h * w * c;
          continue;
        }
      }
      for (NSUInteger i = 0, count = losses.numberOfImages; i < count; ++i, to += h * w * c)
        [losses readBytes:to dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels imageIndex:i];
    }
  });
}

ImageShape LossLabels::shape() const { return impl_->shape; }
LossLabels::LossShape LossLabels::loss_shape() const { return impl_->loss_shape; }
bool LossLabels::has_weights() const { return impl_->parts[0].weights != nullptr; }
std::shared_ptr<Device> LossLabels::device() const { return impl_->device; }

// ------------------------------------------------------------------------------------------------------------- kernel

LossKernel::LossKernel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LossKernel::~LossKernel() {
  Pool pool;
  impl_.reset();
}

Loss::Loss(std::unique_ptr<Impl> impl, const LossOptions &options) : LossKernel(std::move(impl)), options_(options) {}

std::shared_ptr<Loss> Loss::make(std::shared_ptr<Device> device, const Params &params) {
  const auto options = LossOptions::from("Loss", params);
  return guard([&] {
    MPSCNNLossDescriptor *descriptor = objc_loss(options);
    auto kernel = Ref<MPSCNNKernel *>::adopt([[MPSCNNLoss alloc] initWithDevice:device->impl().device.get()
                                                                 lossDescriptor:descriptor]);
    check<NotImplementedError>(static_cast<bool>(kernel), "Loss: the device has no such kernel.");
    return std::make_shared<Loss>(
        std::unique_ptr<Impl>(new Impl{"Loss", device, options.reduction, kernel, Ref<id>::retain(descriptor)}),
        options);
  });
}

LossLabels::LossShape LossKernel::loss_shape(ImageShape predictions) const {
  if (impl_->reduction != LossReduction::none) return {1, 1, 1};
  return {predictions.h, predictions.w, predictions.c};
}

void LossKernel::check_labels(ImageShape predictions, const LossLabels &labels) const {
  check_predictions(predictions);
  check(labels.shape() == predictions, impl_->name, ": labels.shape ", labels.shape(), " is not x.shape ", predictions,
        ".");
  const auto wanted = loss_shape(predictions);
  check(labels.loss_shape() == wanted, impl_->name, ": labels.loss_shape ", as_tuple_of(labels.loss_shape()),
        " is not ", as_tuple_of(wanted), ", which reduction (\"", name_of(impl_->reduction), "\") needs.");
}

void LossKernel::encode(CommandBuffer &buffer, std::span<const std::shared_ptr<Image>> x, LossLabels &labels,
                        std::span<const std::shared_ptr<Image>> out) const {
  const char *const name = impl_->name;
  check_open(buffer, *impl_->device, name);
  check_same_device(*labels.device(), *impl_->device, "labels");
  ImageShape shape = x[0]->shape();
  for (std::size_t i = 0; i < x.size(); ++i) {
    check_source(*x[i], *impl_->device, name);
    check_target(*out[i], *impl_->device, name);
    if (i > 0) shape.n += x[i]->shape().n;
    check(out[i]->shape() == x[i]->shape(), name, ": out.shape ", out[i]->shape(), " is not x.shape ", x[i]->shape(),
          ".");
    check<TypeError>(out[i]->dtype() == DType::float32 || out[i]->dtype() == DType::float16, name, ": out.dtype (",
                     name_of(out[i]->dtype()), ") is not float32 or float16.");
  }
  check_labels(shape, labels);
  guard([&] {
    auto &taken = labels.impl();
    const std::scoped_lock lock(taken.mutex);
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    for (const auto &image : x) check_files_of(commands, {image.get()});
    for (const auto &image : out) check_files_of(commands, {image.get()});
    auto *kernel = static_cast<MPSCNNLoss *>(impl_->kernel.get());
    if (taken.is_whole() && x.size() == 1) {
      [kernel encodeToCommandBuffer:commands
                        sourceImage:x[0]->impl().image.get()
                             labels:[taken.batch.get() objectAtIndex:0]
                   destinationImage:out[0]->impl().image.get()];
    } else {
      ImageBatch sources, gradients;
      for (const auto &image : x) sources.add(*image);
      for (const auto &image : out) gradients.add(*image);
      [kernel encodeBatchToCommandBuffer:commands
                            sourceImages:sources.images()
                                  labels:taken.batch.get()
                       destinationImages:gradients.images()];
      sources.did_read();
    }
    for (const auto &image : out) image->impl().note_write(commands);
    taken.note_loss(commands);
  });
}

std::shared_ptr<Image> LossKernel::encode(CommandBuffer &buffer, const std::shared_ptr<Image> &x, LossLabels &labels,
                                          std::shared_ptr<Image> out, bool temporary) const {
  if (!out) {
    check_open(buffer, *impl_->device, impl_->name);
    check_labels(x->shape(), labels);
    const auto dtype = gradient_dtype(x->dtype());
    out = temporary ? Image::temporary(buffer, x->shape(), dtype) : Image::make(impl_->device, x->shape(), dtype);
  }
  encode(buffer, std::span(&x, 1), labels, std::span(&out, 1));
  return out;
}

const char *LossKernel::name() const { return impl_->name; }
std::shared_ptr<Device> LossKernel::device() const { return impl_->device; }

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
// Loss: an MPSCNNLoss, which computes losses and their gradient in one encode; LossLabels: its targets; LossKernel:
// base class of kernels that take labels. They are not in the kernel table, whose kernels take only images.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <mpscnn/command_buffer.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/value.hpp>

namespace mpscnn {

/// Values of MPSCNNReductionType.
enum class LossReduction : std::uint32_t { none, sum, mean, sum_by_nonzero_weights };
const char* name_of(LossReduction reduction);
/// Return the option "reduction".
LossReduction reduction_of(const char* name, const Params& params);

/// Properties of MPSCNNLossDescriptor.
struct LossOptions {
  std::uint32_t type = 0;  ///< value of MPSCNNLossType
  LossReduction reduction = LossReduction::sum;
  double weight = 1, label_smoothing = 0;
  std::int64_t number_of_classes = 1;
  double epsilon = 1e-7, delta = 1;
  bool reduce_across_batch = false;

  /// Return the options of a class of Python's, by name; those of a reduction may be missing. Throw TypeError or
  /// std::invalid_argument with the option, its value and the limit; `name` is the class.
  static LossOptions from(const char* name, const Params& params);
};

/// Return the default dtype of the gradient: that of the predictions, float32 for integers.
DType gradient_dtype(DType predictions);

/// MPSCNNLossLabels, one per image of a batch: labels and weights in images, and storage for the loss.
class LossLabels {
 public:
  struct Impl;
  using LossShape = std::array<std::int64_t, 3>;  ///< H, W, C

  /// Copy float32 arrays of shape (N, H, W, C). `loss_shape` is (1, 1, 1) or (H, W, C).
  static std::shared_ptr<LossLabels> make(std::shared_ptr<Device> device, const ArrayView& labels,
                                          const std::optional<ArrayView>& weights, LossShape loss_shape);
  /// Use the images without a copy.
  static std::shared_ptr<LossLabels> from_images(std::shared_ptr<Device> device, std::shared_ptr<Image> labels,
                                                 std::shared_ptr<Image> weights, LossShape loss_shape);
  explicit LossLabels(std::unique_ptr<Impl> impl);
  ~LossLabels();

  /// Replace the copies. Throw std::runtime_error while a command buffer uses them.
  void write(const ArrayView& labels, const std::optional<ArrayView>& weights);
  /// Copy N x loss_shape() floats. Throw std::runtime_error before a loss is encoded, and until it is computed.
  void loss(float* to) const;

  ImageShape shape() const;
  LossShape loss_shape() const;
  bool has_weights() const;
  std::shared_ptr<Device> device() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// A kernel that takes predictions and LossLabels.
class LossKernel {
 public:
  struct Impl;
  explicit LossKernel(std::unique_ptr<Impl> impl);
  virtual ~LossKernel();

  const char* name() const;
  /// Throw unless the predictions may have this shape.
  virtual void check_predictions(ImageShape) const {}
  /// Return the shape of each image's loss.
  LossLabels::LossShape loss_shape(ImageShape predictions) const;
  /// Throw unless the predictions may have this shape and the labels match them.
  void check_labels(ImageShape predictions, const LossLabels& labels) const;

  /// Encode the gradient with respect to `x` into `out` or a new image, temporary on request, and the loss into
  /// `labels`. Thread-safe on different command buffers and labels.
  std::shared_ptr<Image> encode(CommandBuffer& buffer, const std::shared_ptr<Image>& x, LossLabels& labels,
                                std::shared_ptr<Image> out = nullptr, bool temporary = false) const;
  /// Encode a batch in several images, each with its own gradient.
  void encode(CommandBuffer& buffer, std::span<const std::shared_ptr<Image>> x, LossLabels& labels,
              std::span<const std::shared_ptr<Image>> out) const;
  std::shared_ptr<Device> device() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

class Loss final : public LossKernel {
 public:
  static std::shared_ptr<Loss> make(std::shared_ptr<Device> device, const Params& options);
  Loss(std::unique_ptr<Impl> impl, const LossOptions& options);

  const LossOptions& options() const { return options_; }

 private:
  LossOptions options_;
};

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
// TrainingPlan: the encodes of a training step, recorded once and encoded for each batch; TrainingStep: one step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <mpscnn/batch_normalization_state.hpp>
#include <mpscnn/image.hpp>
#include <mpscnn/kernel.hpp>
#include <mpscnn/loss.hpp>
#include <mpscnn/optimizer.hpp>

namespace mpscnn {

/// Running mean and variance of a batch normalization, float32, in host memory.
struct RunningStatistics {
  std::vector<float> mean, variance;
  /// Weight of the batch, 0 to 1; nullopt: means over all batches.
  std::optional<double> momentum = 0.1;
  std::int64_t tracked = 0;  ///< number of batches

  /// Add the statistics of a batch; like PyTorch's, the running variance is unbiased (divided by n - 1).
  void add(const BatchNormalizationState& batch);
};

/// One committed step.
class TrainingStep {
 public:
  /// nullopt until TrainingPlan::complete_first() has returned this step.
  const std::optional<double>& loss() const { return loss_; }
  /// The predictions before the update, one image per chunk of the batch.
  const std::vector<std::shared_ptr<Image>>& outputs() const { return outputs_; }
  CommandBufferStatus status() const { return buffer_->status(); }
  /// Wait for the work. Throw std::runtime_error if it has failed.
  void wait() const { buffer_->wait(); }

 private:
  friend class TrainingPlan;
  std::shared_ptr<CommandBuffer> buffer_;
  std::size_t slot_ = 0;
  std::vector<std::shared_ptr<Image>> outputs_;
  std::vector<std::shared_ptr<LossLabels>> labels_;
  std::optional<double> loss_;
};

/// Values are lists of images, one per chunk of the batch; on the device they are temporary, except for the input and
/// the output. Each encode is recorded once and runs on every chunk. Thread-safe once recorded.
class TrainingPlan {
 public:
  using Value = std::uint32_t;
  using State = std::uint32_t;
  /// One state for each step in progress.
  using BatchStates = std::vector<std::shared_ptr<BatchNormalizationState>>;

  static constexpr Value kInput = 0, kOutput = 1;

  /// `output`: height, width and channels of the predictions. `max_channels`: of all values, which limits the images of
  /// a chunk. `slots`: max number of steps in progress. `dtype`: of the input, and so of all images.
  TrainingPlan(std::shared_ptr<Device> device, std::array<std::int64_t, 3> output, std::int64_t max_channels,
               std::size_t slots, DType dtype = DType::float32);
  ~TrainingPlan();

  // -------------------------------------------------------------------------------------------------------- recording

  struct Encode {
    std::shared_ptr<Kernel> kernel;
    std::vector<Value> sources;
    std::optional<Value> result = {};  ///< default: a new value
    std::optional<State> state = {};   ///< read by a gradient kernel
    std::shared_ptr<const BatchStates> batch_states = {};
    bool with_state = false;  ///< leave a state for the gradient kernel
  };
  /// Append an encode of a kernel. Return its result.
  Value encode(Encode encode);
  /// Return the state that the last encode leaves.
  State last_state() const { return states_ - 1; }
  /// Append an encode of a kernel whose result is a state: statistics of a batch, or their gradients.
  void encode_state(std::shared_ptr<Kernel> kernel, std::vector<Value> sources,
                    std::shared_ptr<const BatchStates> states);
  /// Append a new value with the extents of `like`, but `channels` channels; encodes write into parts of it.
  Value allocate(Value like, std::int64_t channels, std::optional<Value> result = {});
  /// Append the loss of the output. Return its gradient.
  Value loss();
  /// Append the optimizer's step, by the gradients in a state, and the reload of the kernels' parameters.
  void update(std::shared_ptr<OptimizerState> state, std::variant<State, std::shared_ptr<const BatchStates>> gradients,
              std::vector<std::shared_ptr<Kernel>> reloaded);
  /// Add to running statistics when a step has completed.
  void track(std::shared_ptr<RunningStatistics> running, std::shared_ptr<const BatchStates> states);

  // ---------------------------------------------------------------------------------------------------------- running

  /// Encode `now` wherever `before` was recorded.
  void replace_kernel(const std::shared_ptr<Kernel>& before, const std::shared_ptr<Kernel>& now);

  /// Return the number of images of each chunk of a batch: an MPSImage has a limited number of slices.
  std::vector<std::int64_t> chunks(std::int64_t images) const;

  /// Encode and commit a step on `x`, (N, H, W, C) or (N, C, H, W), with labels per chunk. The device may read
  /// `x` in place until the step has completed. Throw std::runtime_error if `slots` steps are in progress.
  std::shared_ptr<TrainingStep> commit(const std::string& label, const ArrayView& x, ImageLayout layout,
                                       std::vector<std::shared_ptr<LossLabels>> labels, const LossKernel& loss,
                                       const Optimizer& optimizer);
  /// Wait for the first step in progress, read its loss and add to the running statistics. Return it; null if there is
  /// none. Throw std::runtime_error if its work has failed.
  std::shared_ptr<TrainingStep> complete_first();
  std::size_t in_progress() const;

 private:
  struct EncodeState {
    std::shared_ptr<Kernel> kernel;
    std::vector<Value> sources;
    std::shared_ptr<const BatchStates> states;
  };
  struct Allocate {
    Value like, result;
    std::int64_t channels;
  };
  struct Loss {
    Value result;
  };
  struct Update {
    std::shared_ptr<OptimizerState> state;
    std::variant<State, std::shared_ptr<const BatchStates>> gradients;
    std::vector<std::shared_ptr<Kernel>> reloaded;
  };
  struct Tracked {
    std::shared_ptr<RunningStatistics> running;
    std::shared_ptr<const BatchStates> states;
  };
  using Item = std::variant<Encode, EncodeState, Allocate, Loss, Update>;
  using Images = std::vector<std::shared_ptr<Image>>;
  /// The images and states of one step.
  struct Batch;

  Value new_value();
  void note_reads(const std::vector<Value>& sources);
  void set_read_count(Image& image, Value value) const;
  void run(const Encode& encode, Batch& batch) const;
  void run(const EncodeState& encode, Batch& batch) const;
  void run(const Allocate& allocate, Batch& batch) const;
  void run(const Loss& loss, Batch& batch) const;
  void run(const Update& update, Batch& batch) const;
  static void reload(const Update& update, Batch& batch);

  std::shared_ptr<Device> device_;
  DType dtype_;
  std::array<std::int64_t, 3> output_;
  std::int64_t max_images_;
  std::size_t slots_;
  std::vector<Item> items_;
  std::vector<std::int64_t> reads_ = {0, 0};  ///< encodes that read each value: the read_count of its images
  State states_ = 0;
  std::vector<Tracked> tracked_;
  struct InProgress;
  std::unique_ptr<InProgress> in_progress_;
};

}  // namespace mpscnn

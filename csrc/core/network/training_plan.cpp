// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/training_plan.hpp>

#include <algorithm>
#include <deque>
#include <future>
#include <mutex>
#include <system_error>
#include <utility>

#include <mpscnn/error.hpp>
#include <mpscnn/pool_scope.hpp>

#include "core/device/forked.hpp"

namespace mpscnn {

void RunningStatistics::add(const BatchNormalizationState& batch) {
  ++tracked;
  const auto weight = static_cast<float>(momentum.value_or(1 / static_cast<double>(tracked)));
  const auto count = static_cast<double>(batch.count());
  const auto add_to = [&](std::vector<float>& running, const std::vector<float>& found, float factor) {
    for (std::size_t i = 0; i < running.size(); ++i) running[i] += weight * (found[i] * factor - running[i]);
  };
  add_to(mean, batch.mean(), 1);
  add_to(variance, batch.variance(), static_cast<float>(count / (count - 1)));
}

/// The committed steps, first to last, and the slot of the next one.
struct TrainingPlan::InProgress {
  ForkChecked<std::mutex> mutex;  ///< guards the replacement of kernels, too
  std::deque<std::shared_ptr<TrainingStep>> steps;
  std::size_t next_slot = 0;
};

TrainingPlan::TrainingPlan(std::shared_ptr<Device> device, std::array<std::int64_t, 3> output,
                           std::int64_t max_channels, std::size_t slots, DType dtype)
    : device_(std::move(device)),
      dtype_(dtype),
      output_(output),
      max_images_(std::max<std::int64_t>(1, Image::most_images(max_channels))),
      slots_(slots),
      in_progress_(std::make_unique<InProgress>()) {}
TrainingPlan::~TrainingPlan() = default;

// ---------------------------------------------------------------------------------------------------------- recording

TrainingPlan::Value TrainingPlan::new_value() {
  reads_.push_back(0);
  return static_cast<Value>(reads_.size() - 1);
}

/// Record an encode that reads these values; a value given twice is read once.
void TrainingPlan::note_reads(const std::vector<Value>& sources) {
  for (auto source = sources.begin(); source != sources.end(); ++source) {
    check(*source < reads_.size(), "TrainingPlan: value ", *source, " is read; there are ", reads_.size(), ".");
    if (std::find(sources.begin(), source, *source) == source) ++reads_[*source];
  }
}

TrainingPlan::Value TrainingPlan::encode(Encode encode) {
  note_reads(encode.sources);
  if (!encode.result) encode.result = new_value();
  check(*encode.result < reads_.size(), "TrainingPlan: value ", *encode.result, " is written; there are ",
        reads_.size(), ".");
  if (encode.with_state) encode.state = states_++;
  check(!encode.state || *encode.state < states_, "TrainingPlan: state ", encode.state.value_or(0),
        " is read; there are ", states_, ".");
  const auto result = *encode.result;
  items_.emplace_back(std::move(encode));
  return result;
}

void TrainingPlan::encode_state(std::shared_ptr<Kernel> kernel, std::vector<Value> sources,
                                std::shared_ptr<const BatchStates> states) {
  note_reads(sources);
  items_.emplace_back(EncodeState{std::move(kernel), std::move(sources), std::move(states)});
}

TrainingPlan::Value TrainingPlan::allocate(Value like, std::int64_t channels, std::optional<Value> result) {
  check(like < reads_.size(), "TrainingPlan: value ", like, " is read; there are ", reads_.size(), ".");
  if (!result) result = new_value();
  items_.emplace_back(Allocate{like, *result, channels});
  return *result;
}

TrainingPlan::Value TrainingPlan::loss() {
  const auto result = new_value();
  items_.emplace_back(Loss{result});
  return result;
}

void TrainingPlan::update(std::shared_ptr<OptimizerState> state,
                          std::variant<State, std::shared_ptr<const BatchStates>> gradients,
                          std::vector<std::shared_ptr<Kernel>> reloaded) {
  if (const auto* read = std::get_if<State>(&gradients))
    check(*read < states_, "TrainingPlan: state ", *read, " is read; there are ", states_, ".");
  items_.emplace_back(Update{std::move(state), std::move(gradients), std::move(reloaded)});
}

void TrainingPlan::track(std::shared_ptr<RunningStatistics> running, std::shared_ptr<const BatchStates> states) {
  tracked_.push_back({std::move(running), std::move(states)});
}

void TrainingPlan::replace_kernel(const std::shared_ptr<Kernel>& before, const std::shared_ptr<Kernel>& now) {
  const std::scoped_lock lock(in_progress_->mutex);
  for (auto& item : items_)
    if (auto* encode = std::get_if<Encode>(&item); encode && encode->kernel == before) encode->kernel = now;
}

// ------------------------------------------------------------------------------------------------------------ running

struct TrainingPlan::Batch {
  CommandBuffer& buffer;
  std::size_t slot;
  const std::vector<std::shared_ptr<LossLabels>>& labels;
  const LossKernel& loss;
  const Optimizer& optimizer;
  std::vector<Images> values;                                       ///< by value, then by chunk
  std::vector<std::vector<std::shared_ptr<GradientState>>> states;  ///< by state; one, or one per chunk

  std::size_t chunks() const { return labels.size(); }
};

/// Set the reads that follow; 0: the image has no content, because only the gradients of parameters were computed.
void TrainingPlan::set_read_count(Image& image, Value value) const {
  if (reads_[value] != 1) image.set_read_count(reads_[value]);
}

void TrainingPlan::run(const Encode& encode, Batch& batch) const {
  auto& results = batch.values[*encode.result];
  const bool is_new = results.empty();
  const Image* sources[SourceNames::kMost] = {};
  for (std::size_t chunk = 0; chunk < batch.chunks(); ++chunk) {
    for (std::size_t i = 0; i < encode.sources.size(); ++i) sources[i] = batch.values[encode.sources[i]][chunk].get();
    EncodeStates states;
    if (encode.batch_states) states.batch = (*encode.batch_states)[batch.slot].get();
    if (encode.with_state) {
      auto& left = batch.states[*encode.state];
      // A convolution's state accumulates over the chunks; normalizations have a state with statistics per chunk.
      if (left.empty() || !encode.kernel->shares_gradient_state()) left.emplace_back();
      states.left = &left.back();
    } else if (encode.state) {
      const auto& left = batch.states[*encode.state];
      states.gradient = left[std::min(chunk, left.size() - 1)].get();
    }
    auto result = encode.kernel->encode(batch.buffer, std::span(sources).first(encode.sources.size()),
                                        is_new ? nullptr : results[chunk], is_new, std::nullopt, states);
    if (!is_new) continue;
    set_read_count(*result, *encode.result);
    results.push_back(std::move(result));
  }
}

void TrainingPlan::run(const EncodeState& encode, Batch& batch) const {
  const Image* sources[SourceNames::kMost] = {};
  for (std::size_t chunk = 0; chunk < batch.chunks(); ++chunk) {
    for (std::size_t i = 0; i < encode.sources.size(); ++i) sources[i] = batch.values[encode.sources[i]][chunk].get();
    encode.kernel->encode_state(batch.buffer, std::span(sources).first(encode.sources.size()),
                                (*encode.states)[batch.slot]);
  }
}

void TrainingPlan::run(const Allocate& allocate, Batch& batch) const {
  auto& results = batch.values[allocate.result];
  if (!results.empty()) return;  // the output
  for (const auto& like : batch.values[allocate.like]) {
    auto shape = like->shape();
    shape.c = allocate.channels;
    results.push_back(Image::temporary(batch.buffer, shape, dtype_));
    set_read_count(*results.back(), allocate.result);
  }
}

void TrainingPlan::run(const Loss& loss, Batch& batch) const {
  for (std::size_t chunk = 0; chunk < batch.chunks(); ++chunk) {
    auto gradient = batch.loss.encode(batch.buffer, batch.values[kOutput][chunk], *batch.labels[chunk], nullptr, true);
    set_read_count(*gradient, loss.result);
    batch.values[loss.result].push_back(std::move(gradient));
  }
}

void TrainingPlan::run(const Update& update, Batch& batch) const {
  Gradients gradients;
  if (const auto* state = std::get_if<State>(&update.gradients))
    gradients = batch.states[*state];
  else
    gradients = (*std::get<1>(update.gradients))[batch.slot];
  batch.optimizer.encode(batch.buffer, gradients, *update.state);
}

void TrainingPlan::reload(const Update& update, Batch& batch) {
  std::visit(
      [&](const auto& values) {
        if constexpr (requires { update.reloaded[0]->reload(batch.buffer, *values); }) {
          for (const auto& kernel : update.reloaded) {
            if constexpr (requires { kernel->read_in_place(batch.buffer, *values); })
              if (kernel->read_in_place(batch.buffer, *values)) continue;
            kernel->reload(batch.buffer, *values);
          }
        }
      },
      update.state->values());
}

std::vector<std::int64_t> TrainingPlan::chunks(std::int64_t images) const {
  const auto count = (images + max_images_ - 1) / max_images_;
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < count; ++i) sizes.push_back(images * (i + 1) / count - images * i / count);
  return sizes;
}

namespace {

/// The images of a batch. A device with memory of its own gets the values while the step is encoded, which takes as
/// long: another thread writes them until wait().
class InputImages {
 public:
  InputImages(std::shared_ptr<Device> device, ImageLayout layout, bool may_be_late)
      : device_(std::move(device)), layout_(layout), may_be_late_(may_be_late && !device_->shares_images()) {}

  std::shared_ptr<Image> add(const ArrayView& array) {
    constexpr std::int64_t kFew = 1 << 18;  // values: a thread would take longer
    if (!may_be_late_ || array.size() < kFew || !array.space.is_host())
      return Image::from_array(device_, array, layout_);
    const auto& extents = array.shape;
    const bool is_planar = layout_ == ImageLayout::NCHW;
    const ImageShape shape{extents[0], extents[is_planar ? 2 : 1], extents[is_planar ? 3 : 2],
                           extents[is_planar ? 1 : 3]};
    late_.emplace_back(Image::make(device_, shape, array.dtype), array);
    return late_.back().first;
  }
  /// Start to write the images that have been added.
  void start() {
    if (late_.empty()) return;
    try {
      written_ = std::async(std::launch::async, [this] { write(); });
    } catch (const std::system_error&) {  // no thread
      write();
    }
  }
  void wait() {
    if (written_.valid()) written_.get();
  }

 private:
  void write() const {
    const PoolScope pool;
    for (const auto& [image, array] : late_) image->write(array, layout_);
  }

  const std::shared_ptr<Device> device_;
  const ImageLayout layout_;
  const bool may_be_late_;
  std::vector<std::pair<std::shared_ptr<Image>, ArrayView>> late_;
  std::future<void> written_;  ///< ends before the images
};

}  // namespace

std::shared_ptr<TrainingStep> TrainingPlan::commit(const std::string& label, const ArrayView& x, ImageLayout layout,
                                                   std::vector<std::shared_ptr<LossLabels>> labels,
                                                   const LossKernel& loss, const Optimizer& optimizer) {
  const std::scoped_lock lock(in_progress_->mutex);
  check<std::runtime_error>(in_progress_->steps.size() < slots_, "TrainingPlan: ", slots_,
                            " steps are in progress, the maximum: complete one first.");
  check<TypeError>(x.dtype == dtype_, "TrainingPlan: x is of ", name_of(x.dtype), ", not of ", name_of(dtype_), ".");
  const auto sizes = chunks(x.shape[0]);
  check(labels.size() == sizes.size(), "TrainingPlan: labels of ", labels.size(), " chunks were given, there are ",
        sizes.size(), ".");
  const PoolScope pool;
  auto step = std::make_shared<TrainingStep>();
  step->buffer_ = CommandBuffer::make(device_, label, {}, /*in_parts=*/true);
  step->slot_ = in_progress_->next_slot;
  step->labels_ = std::move(labels);
  {  // Plans use the memory of images and states that only the commands refer to.
    const PoolScope encoded;
    Batch batch{*step->buffer_, step->slot_, step->labels_, loss, optimizer, {}, {}};
    batch.values.resize(reads_.size());
    batch.states.resize(states_);
    // Before the work is committed, its input may still be written.
    InputImages input(device_, layout, !step->buffer_->is_in_parts());
    auto chunk = x;
    for (const auto size : sizes) {
      chunk.shape[0] = size;
      batch.values[kInput].push_back(input.add(chunk));
      chunk.data = static_cast<std::byte*>(chunk.data) + size * x.strides[0];
      step->outputs_.push_back(Image::make(device_, {size, output_[0], output_[1], output_[2]}, dtype_));
    }
    batch.values[kOutput] = step->outputs_;
    input.start();
    for (const auto& item : items_) std::visit([&](const auto& one) { run(one, batch); }, item);
    for (const auto& item : items_)
      if (const auto* update = std::get_if<Update>(&item)) reload(*update, batch);
    input.wait();
  }
  for (const auto& [running, states] : tracked_) (*states)[step->slot_]->encode_download(*step->buffer_);
  step->buffer_->commit();
  in_progress_->steps.push_back(step);
  in_progress_->next_slot = (step->slot_ + 1) % slots_;
  return step;
}

std::shared_ptr<TrainingStep> TrainingPlan::complete_first() {
  const std::scoped_lock lock(in_progress_->mutex);
  if (in_progress_->steps.empty()) return nullptr;
  const auto step = in_progress_->steps.front();
  step->wait();
  double sum = 0;
  std::vector<float> losses;
  for (const auto& labels : step->labels_) {
    const auto [h, w, c] = labels->loss_shape();
    losses.resize(static_cast<std::size_t>(labels->shape().n * h * w * c));
    labels->loss(losses.data());
    for (const auto loss : losses) sum += static_cast<double>(loss);
  }
  for (const auto& [running, states] : tracked_) running->add(*(*states)[step->slot_]);
  step->loss_ = sum;
  step->labels_.clear();
  in_progress_->steps.pop_front();
  return step;
}

std::size_t TrainingPlan::in_progress() const {
  const std::scoped_lock lock(in_progress_->mutex);
  return in_progress_->steps.size();
}

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
// Stacks of recurrent layers on images, for inference: products are convolutions [MPSRNNLayer.h].

#include <map>
#include <mutex>

#import "mps/ImageState.hh"
#import "mps/MPSCNNKernel+Engine.hh"
#import "mps/MPSRNNLayer+Engine.hh"

namespace openmps {
namespace {

/// Weights of a layer for convolutions, by gates that one convolution computes. Safe from any thread.
class CellConvolutions {
 public:
  CellConvolutions(const KernelState &state, const Cell &cell) {
    for (const WeightRole role : {WeightRole::memory, WeightRole::bias})
      if (cell.is_row(role) && cell.has(role))
        rows_[index_of(role)] = new_matrix(state, 1, cell.columns(role), cell.of(role).values);
  }

  std::shared_ptr<const ConvWeights> of(const Cell &cell, WeightRole role, const GateRun &run) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const ConvWeights> &found = made_[{role, run.gate, run.count}];
    if (found) return found;
    const RoleWeights &all = cell.of(role);
    auto weights = std::make_shared<ConvWeights>();
    weights->out_channels = static_cast<std::int64_t>(run.count) * cell.outputs;
    weights->kernel_h = all.kernel_h, weights->kernel_w = all.kernel_w;
    weights->in_channels_per_group = cell.factors(role);
    const std::int64_t each = all.kernel_h * all.kernel_w * weights->in_channels_per_group;
    const float *first = all.values.data() + run.first * each;
    weights->values = std::vector<float>(first, first + weights->out_channels * each);
    return found = std::move(weights);
  }

  ImageView row(const Cell &cell, WeightRole role, const GateRun &run) const {
    return rows_[index_of(role)].channels(run.first, static_cast<std::int64_t>(run.count) * cell.outputs);
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<WeightRole, std::size_t, std::size_t>, std::shared_ptr<const ConvWeights>> made_;
  std::array<ImageView, kWeightRoles> rows_;  ///< biases and diagonals
};

struct Extents {
  std::int64_t n = 1, h = 1, w = 1;
  std::int64_t rows() const { return n * h * w; }
};

/// Return images whose pixels are the rows of a matrix.
ImageView images_of(const ImageView &matrix, std::int64_t h, std::int64_t w) {
  ImageView view = matrix;
  view.n = matrix.w / (h * w), view.h = h, view.w = w;
  view.h_stride = w * matrix.w_stride, view.n_stride = h * view.h_stride;
  return view;
}

struct ImageWeights : CellWeights {
  ImageWeights(const Cell &cell, CellConvolutions &weights, const Extents &extents, Edge edge, bool reduced_precision)
      : cell_(cell), weights_(weights), extents_(extents), edge_(edge), reduced_precision_(reduced_precision) {}

  void add(const CellCommands &commands, WeightRole role, std::size_t gate, std::size_t count, const ImageView &src,
           const ImageView &sums) const override {
    for (const GateRun &run : cell_.runs(role, gate, count)) {
      ConvProblem problem;
      problem.weights = weights_.of(cell_, role, run);
      const ImageView result = commands.matrix(sums.w, problem.weights->out_channels);
      problem.src = images_of(src, extents_.h, extents_.w);
      problem.dst = images_of(result, extents_.h, extents_.w);
      problem.window.kernel_h = problem.weights->kernel_h, problem.window.kernel_w = problem.weights->kernel_w;
      problem.window.start_h = -(problem.window.kernel_h / 2), problem.window.start_w = -(problem.window.kernel_w / 2);
      problem.window.edge = edge_;
      problem.reduced_precision = reduced_precision_;
      commands.append(std::move(problem));
      commands.add(result, gate_of(cell_, sums, run.gate, run.count));
    }
  }
  ImageView row(WeightRole role, const GateRun &run) const override { return weights_.row(cell_, role, run); }

 private:
  const Cell &cell_;
  CellConvolutions &weights_;
  const Extents extents_;
  const Edge edge_;
  const bool reduced_precision_;
};

struct ImageInferenceState : Extends<ImageInferenceState, CNNKernelState> {
  LayerStack stack;
  std::vector<std::shared_ptr<CellConvolutions>> weights;  ///< of each layer

  bool read(NSArray<const MPSRNNDescriptor *> *descriptors) {
    // Weights are always rounded to half [MPSRNNLayer.h, useFloat32Weights].
    if (!stack.read(*this, descriptors, CellKernels::any, /*always_half=*/true)) return false;
    make_weights();
    return true;
  }

  void make_weights() {
    weights.clear();
    for (const Cell &cell : stack.cells) weights.push_back(std::make_shared<CellConvolutions>(*this, cell));
  }

  /// Properties of kernels with one image, which sequences do not have.
  void check_properties() const {
    const bool is_whole = source.offset.x == 0 && source.offset.y == 0 && source.offset.z == 0 &&
                          destination.clip.origin.x == 0 && destination.clip.origin.y == 0 &&
                          destination.clip.origin.z == 0 && destination.clip.size.width == MPSRectNoClip.size.width &&
                          destination.clip.size.height == MPSRectNoClip.size.height;
    if (!is_whole || source.channel_offset != 0 || source.channel_max != NSUIntegerMax ||
        destination.channel_offset != 0)
      raise_for(*this,
                @"offset, clipRect, sourceFeatureChannelOffset (%lu), sourceFeatureChannelMaxCount (%lu) or "
                @"destinationFeatureChannelOffset (%lu) is not the default: the kernel reads and writes whole "
                @"images.",
                (unsigned long)source.channel_offset, (unsigned long)source.channel_max,
                (unsigned long)destination.channel_offset);
    if (source.edge > MPSImageEdgeModeClamp)
      raise_for(*this, @"edgeMode (%lu) is not Zero (0) or Clamp (1).", (unsigned long)source.edge);
  }

  Problem problem(const ImageView &, const ImageView &, const Window &) const override {
    raise_for(*this, @"The kernel encodes sequences: use encodeSequenceToCommandBuffer:sourceImages:destinationImages:"
                     @"recurrentInputState:recurrentOutputStates:.");
  }
  void archive(Archive &archive) override {
    CNNKernelState::archive(archive);
    stack.archive(archive);
  }
  void did_read(MPSKernel *kernel) override {
    CNNKernelState::did_read(kernel);
    stack.did_read(*this);
    make_weights();
  }
  void did_copy(id<OpenMPSDevice> new_device) override {
    CNNKernelState::did_copy(new_device);
    make_weights();
  }
};

/// Sources and results of an encode.
class ImageSequence {
 public:
  ImageSequence(const ImageInferenceState &state, id<MTLCommandBuffer> buffer) : state_(state), buffer_(buffer) {}

  /// Return the images' pixels as matrices; raise unless all images have `channels` channels and the first one's size.
  std::vector<ImageView> views(NSArray<MPSImage *> *images, const char *name, std::int64_t channels, bool is_source) {
    if ([images count] == 0 || (count_ != 0 && [images count] != count_))
      raise_for(state_, @"%s has %lu images, expected %s%lu.", name, (unsigned long)[images count],
                count_ == 0 ? "at least " : "", (unsigned long)std::max<NSUInteger>(count_, 1));
    count_ = [images count];
    std::vector<ImageView> found;
    for (NSUInteger i = 0; i < count_; ++i) {
      MPSImage *image = [images objectAtIndex:i];
      const std::string each = std::string(name) + "[" + std::to_string(i) + "]";
      check_image(state_, image, each.c_str());
      const ImageView view = [image openmps_view];
      if (!has_extents_) extents_ = {view.n, view.h, view.w}, has_extents_ = true;
      if (view.n != extents_.n || view.h != extents_.h || view.w != extents_.w || view.c != channels)
        raise_for(state_,
                  @"%s has %ld images of %ld x %ld pixels (width x height) and %ld feature channels, expected %ld of "
                  @"%ld x %ld and %ld.",
                  each.c_str(), (long)view.n, (long)view.w, (long)view.h, (long)view.c, (long)extents_.n,
                  (long)extents_.w, (long)extents_.h, (long)channels);
      found.push_back(view);
      (is_source ? read_ : written_).push_back(image);
    }
    return found;
  }

  const Extents &extents() const { return extents_; }
  StepRows rows() const { return StepRows(std::vector<std::int64_t>(count_, extents_.rows())); }
  /// Return a step's rows as images.
  ImageView step(const ImageView &all, std::size_t index) const {
    return images_of(rows_of(all, static_cast<std::int64_t>(index) * extents_.rows(), extents_.rows()), extents_.h,
                     extents_.w);
  }
  ImageView joined(const CellCommands &commands, const std::vector<ImageView> &sources) const {
    const ImageView all = commands.matrix(static_cast<std::int64_t>(sources.size()) * extents_.rows(), sources[0].c);
    for (std::size_t i = 0; i < sources.size(); ++i) commands.copy(sources[i], step(all, i));
    return all;
  }
  /// Call after all checks: the results are being written from now on.
  void will_use() const {
    for (MPSImage *image : read_) [image openmps_willReadOn:buffer_];
    for (MPSImage *image : written_) [image openmps_willWriteOn:buffer_];
  }
  void did_read() const {
    each_distinct(read_, [](MPSImage *image) { [image openmps_didRead]; });
  }

 private:
  const ImageInferenceState &state_;
  id<MTLCommandBuffer> buffer_;
  NSUInteger count_ = 0;
  Extents extents_;
  bool has_extents_ = false;
  std::vector<MPSImage *> read_, written_;
};

/// The weights of some layers, and references to them.
struct ImageStack {
  std::vector<std::unique_ptr<ImageWeights>> weights;
  std::vector<StackLayer> layers;

  ImageStack(const ImageInferenceState &state, const LayerIndices &indices, const Extents &extents) {
    const Edge edge = state.source.edge == MPSImageEdgeModeClamp ? Edge::clamp : Edge::zero;
    const bool reduced_precision = (state.options & MPSKernelOptionsAllowReducedPrecision) != 0;
    for (const std::size_t index : indices) {
      const Cell &cell = state.stack.cells[index];
      weights.push_back(std::make_unique<ImageWeights>(cell, *state.weights[index], extents, edge, reduced_precision));
      layers.push_back({&cell, weights.back().get()});
    }
  }
};

/// Return an image of floats over the buffer; owned by the caller.
MPSImage *new_image_over(id<MTLBuffer> buffer, const KernelState &state, const Extents &extents, const Cell &cell) {
  auto *made = new ImageState;
  made->device = state.device;
  made->view =
      images_of(matrix_in([static_cast<id<OpenMPSBuffer>>(buffer) openmps_memory], 0, extents.rows(), cell.outputs),
                extents.h, extents.w);
  made->format = MPSImageFeatureChannelFormatFloat32;
  made->pixel_format = pixel_format_of(made->format, static_cast<NSUInteger>(cell.outputs));
  return [[MPSImage alloc] openmps_initWithState:made];
}

MPSRNNRecurrentImageState *encode_new_state(const CellCommands &commands, const ImageInferenceState &state,
                                            id<MTLCommandBuffer> buffer, const Extents &extents,
                                            const std::vector<const Cell *> &cells, const StackResult &result,
                                            std::size_t index) {
  const auto image_over = [&](id<MTLBuffer> memory, const Cell &cell) {
    MPSImage *image = new_image_over(memory, state, extents, cell);
    [image openmps_willWriteOn:buffer];
    return image;
  };
  MPSRNNRecurrentImageState *made = new_recurrent_state<MPSRNNRecurrentImageState>(
      state, state.stack.recurrent_is_temporary ? buffer : nil, Pass::forward, extents.rows(), cells, image_over);
  auto &data = static_cast<RecurrentData &>(*[made openmps_data]);
  data.h = extents.h, data.w = extents.w;
  encode_state(commands, result.steps, index, nullptr, data);
  return made;
}

void encode(const ImageInferenceState &state, id<MTLCommandBuffer> buffer, NSArray<MPSImage *> *sources,
            NSArray<MPSImage *> *results, MPSRNNRecurrentImageState *input,
            NSMutableArray<MPSRNNRecurrentImageState *> *outputs) {
  Recorder &recorder = begin_encode(state, buffer);
  state.check_properties();
  const LayerIndices indices = state.stack.all_layers();
  state.stack.check_chain(state, indices);
  ImageSequence sequence(state, buffer);
  const auto src = sequence.views(sources, "sourceImages", state.stack.cells.front().inputs, true);
  const auto dst = sequence.views(results, "destinationImages", state.stack.cells.back().outputs, false);
  check_apart(state, "sourceImages", src, "destinationImages", dst);
  const Extents &extents = sequence.extents();
  const std::vector<const Cell *> cells = state.stack.cells_of(indices);
  const RecurrentData *initial = initial_state(state, buffer, input, Pass::forward, cells);
  if (initial != nullptr && (initial->rows != extents.rows() || initial->h != extents.h || initial->w != extents.w))
    raise_for(state, @"recurrentInputState has images of %ld x %ld pixels (width x height), and the sources %ld x %ld.",
              (long)initial->w, (long)initial->h, (long)extents.w, (long)extents.h);

  sequence.will_use();
  const CellCommands commands(state, recorder);
  const ImageStack stack(state, indices, extents);
  const StackResult result =
      encode_stack(commands, stack.layers, sequence.rows(), sequence.joined(commands, src), false, initial);
  for (std::size_t i = 0; i < dst.size(); ++i) commands.copy(sequence.step(result.outputs, i), dst[i]);
  if (outputs != nil)
    for (const std::size_t index : stored_steps(state.stack.stores_all, dst.size()))
      [outputs addObject:encode_new_state(commands, state, buffer, extents, cells, result, index)];
  sequence.did_read();
  [input openmps_didRead];
}

void encode_bidirectional(const ImageInferenceState &state, id<MTLCommandBuffer> buffer, NSArray<MPSImage *> *sources,
                          NSArray<MPSImage *> *forward, NSArray<MPSImage *> *backward) {
  Recorder &recorder = begin_encode(state, buffer);
  state.check_properties();
  const auto [ahead, back] = state.stack.directions(state);
  const bool is_separate = state.stack.combine_mode == MPSRNNBidirectionalCombineModeNone;
  ImageSequence sequence(state, buffer);
  const auto src = sequence.views(sources, "sourceSequence", state.stack.cells[ahead.front()].inputs, true);
  const auto dst = sequence.views(forward, "destinationForwardImages", state.stack.forward_columns(ahead, back), false);
  check_apart(state, "sourceSequence", src, "destinationForwardImages", dst);
  std::vector<ImageView> back_dst;
  if (is_separate) {
    back_dst = sequence.views(backward, "destinationBackwardImages", state.stack.cells[back.back()].outputs, false);
    check_apart(state, "sourceSequence", src, "destinationBackwardImages", back_dst);
  }

  sequence.will_use();
  const CellCommands commands(state, recorder);
  const ImageStack ahead_stack(state, ahead, sequence.extents()), back_stack(state, back, sequence.extents());
  const ImageView all = sequence.joined(commands, src);
  const StepRows rows = sequence.rows();
  const ImageView a = encode_stack(commands, ahead_stack.layers, rows, all, false, nullptr).outputs;
  const ImageView b = encode_stack(commands, back_stack.layers, rows, all, true, nullptr).outputs;
  for (std::size_t i = 0; i < dst.size(); ++i)
    combine_directions(commands, state.stack.combine_mode, sequence.step(a, i), sequence.step(b, i), dst[i],
                       is_separate ? back_dst[i] : ImageView());
  sequence.did_read();
}

}  // namespace
}  // namespace openmps

using openmps::ImageInferenceState;

@implementation MPSRNNImageInferenceLayer

+ (openmps::KernelState *)openmps_newState {
  return new ImageInferenceState();
}

OPENMPS_RNN_STACK(ImageInferenceState)

- (void)encodeSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                         sourceImages:(NSArray<MPSImage *> *)sourceImages
                    destinationImages:(NSArray<MPSImage *> *)destinationImages
                  recurrentInputState:(MPSRNNRecurrentImageState *)recurrentInputState
                recurrentOutputStates:(NSMutableArray<MPSRNNRecurrentImageState *> *)recurrentOutputStates {
  openmps::encode(openmps::state_of<ImageInferenceState>(self), commandBuffer, sourceImages, destinationImages,
                  recurrentInputState, recurrentOutputStates);
}

- (void)encodeBidirectionalSequenceToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                                    sourceSequence:(NSArray<MPSImage *> *)sourceSequence
                          destinationForwardImages:(NSArray<MPSImage *> *)destinationForwardImages
                         destinationBackwardImages:(NSArray<MPSImage *> *)destinationBackwardImages {
  openmps::encode_bidirectional(openmps::state_of<ImageInferenceState>(self), commandBuffer, sourceSequence,
                                destinationForwardImages, destinationBackwardImages);
}

@end

// SPDX-License-Identifier: Apache-2.0
#include "engine/structure.hpp"

#include <atomic>
#include <type_traits>
#include <unordered_map>

namespace openmps {
namespace {

constexpr std::size_t kBytesPerCommand = 512;  // about

/// Collects the fields of a list into bytes. Memory blocks become their order of first appearance. What refers to a
/// block and is not put() makes it look as if others knew it, so each reference is put once at most.
class KeyWriter {
 public:
  explicit KeyWriter(std::size_t commands) {
    result_.key.reserve(kBytesPerCommand * commands);
    result_.blocks.reserve(2 * commands);
    result_.uses.reserve(4 * commands);
    result_.uses_ends.reserve(commands);
  }

  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void put(T value) {
    result_.key.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <class T, std::size_t N>
  void put(const T (&values)[N]) {
    result_.key.append(reinterpret_cast<const char*>(values), sizeof(values));
  }
  void put(const std::shared_ptr<Memory>& memory) {
    constexpr std::uint32_t kNone = 0xffffffff;
    const std::uint32_t index = memory ? index_of(memory) : kNone;
    put(index);
    if (index == kNone) return;
    ++result_.blocks[index].references;
    result_.uses.push_back(index);
  }
  void put(const ImageView& view) {
    put(view.memory);
    put(view.format);
    const std::int64_t values[] = {static_cast<std::int64_t>(view.offset),
                                   view.n,
                                   view.h,
                                   view.w,
                                   view.c,
                                   view.n_stride,
                                   view.h_stride,
                                   view.w_stride};
    put(values);
  }
  void put(const Window& window) {
    const std::int64_t values[] = {window.kernel_h,   window.kernel_w,   window.stride_h, window.stride_w,
                                   window.dilation_h, window.dilation_w, window.start_h,  window.start_w};
    put(values);
    put(window.edge);
  }
  void put(const Neuron& neuron) {
    put(neuron.type);
    put(neuron.a);
    put(neuron.b);
    put(neuron.c);
    put(neuron.a_per_channel != nullptr);
  }
  void put(const Operand& operand) {
    put(operand.view), put(operand.start_h), put(operand.start_w);
    put(operand.repeat_h), put(operand.repeat_w), put(operand.repeat_c), put(operand.edge);
  }
  void put(const ClampedSource& source) { put(source.h), put(source.w), put(source.start_h), put(source.start_w); }
  void put(const ChannelValues& values) { put(values.memory), put(values.offset); }
  void put(const FloatMatrices& values) {
    put(values.memory), put(values.offset), put(values.matrix_stride), put(values.row_stride);
  }
  void put(const Arithmetic& f) {
    put(f.operation);
    for (const float value : {f.scale0, f.scale1, f.bias, f.least, f.greatest}) put(value);
  }
  void put(const ConvWeights& weights) {
    put(weights.out_channels);
    put(weights.in_channels_per_group);
    put(weights.groups);
    put(weights.bias.empty());
  }

  void operator()(const ConvProblem& p) {
    put(p.src), put(p.dst), put(*p.weights), put(p.window), put(p.neuron), put(p.subpixel), put(p.reduced_precision),
        put(p.addend), put(p.after);
  }
  void operator()(const TransposeProblem& p) {
    put(p.src), put(p.dst), put(*p.weights), put(p.window), put(p.neuron), put(p.reduced_precision);
  }
  void operator()(const ConvGradientProblem& p) {
    put(p.diff_dst), put(p.src), put(p.diff_src), put(p.first_h), put(p.first_w), put(*p.weights), put(p.window),
        put(p.diff_weights), put(p.diff_bias), put(p.accumulates), put(p.reduced_precision);
  }
  void operator()(const BinaryConvProblem& p) {
    put(p.src), put(p.dst), put(p.weights->type), put(p.weights->in_channels), put(p.weights->uses_beta), put(p.window),
        put(p.neuron);
  }
  void operator()(const PoolProblem& p) {
    put(p.src), put(p.dst), put(p.type), put(p.window), put(p.zero_pad_h), put(p.zero_pad_w);
  }
  void operator()(const PoolGradientProblem& p) {
    put(p.diff_dst), put(p.src), put(p.diff_src), put(p.first_h), put(p.first_w), put(p.type), put(p.window),
        put(p.zero_pad_h), put(p.zero_pad_w);
  }
  void operator()(const NeuronProblem& p) { put(p.src), put(p.dst), put(p.neuron); }
  void operator()(const NeuronGradientProblem& p) { put(p.diff_dst), put(p.src), put(p.diff_src), put(p.neuron); }
  void operator()(const BinaryProblem& p) { put(p.src0), put(p.src1), put(p.dst), put(p.function), put(p.mask); }
  void operator()(const BinaryGradientProblem& p) {
    put(p.diff_dst), put(p.other), put(p.mask), put(p.diff_src), put(p.sum_h), put(p.sum_w), put(p.sum_c), put(p.scale),
        put(p.source);
  }
  void operator()(const LocalNormProblem& p) {
    put(p.src), put(p.dst), put(p.type), put(p.window), put(p.size);
    for (const float value : {p.alpha, p.beta, p.delta, p.p0, p.pm, p.ps}) put(value);
  }
  void operator()(const NormalizeProblem& p) {
    put(p.src), put(p.dst), put(p.gamma), put(p.beta), put(p.groups), put(p.mean), put(p.variance), put(p.exact),
        put(p.epsilon), put(p.neuron);
  }
  void operator()(const StatisticsProblem& p) { put(p.src), put(p.mean), put(p.variance), put(p.count), put(p.exact); }
  void operator()(const LocalNormGradientProblem& p) {
    (*this)(p.forward), put(p.diff_src), put(p.start_h), put(p.start_w);
  }
  void operator()(const StatisticsGradientProblem& p) {
    put(p.diff_dst), put(p.src), put(p.gamma), put(p.beta), put(p.mean), put(p.variance), put(p.exact), put(p.epsilon),
        put(p.neuron), put(p.diff_gamma), put(p.diff_beta), put(p.adds);
  }
  void operator()(const NormalizeGradientProblem& p) {
    put(p.diff_dst), put(p.src), put(p.diff_src), put(p.gamma), put(p.beta), put(p.groups), put(p.mean),
        put(p.variance), put(p.exact), put(p.epsilon), put(p.neuron), put(p.diff_gamma), put(p.diff_beta), put(p.count);
  }
  void operator()(const SoftmaxProblem& p) { put(p.src), put(p.dst), put(p.log); }
  void operator()(const SoftmaxGradientProblem& p) {
    put(p.diff_dst), put(p.dst), put(p.diff_src), put(p.log), put(p.source);
  }
  void operator()(const ReduceProblem& p) { put(p.src), put(p.dst), put(p.axis), put(p.type), put(!p.weights.memory); }
  void operator()(const ResampleProblem& p) { put(p.src), put(p.dst), put(p.type), put(p.edge), put(p.regions.size()); }
  void operator()(const ResampleGradientProblem& p) {
    put(p.diff_dst), put(p.diff_src), put(p.src_h), put(p.src_w), put(p.first_h), put(p.first_w), put(p.type),
        put(p.edge);
  }
  void operator()(const ReshapeProblem& p) { put(p.src), put(p.dst); }
  void operator()(const PadProblem& p) {
    put(p.src), put(p.dst), put(p.start_h), put(p.start_w), put(p.start_c), put(p.edge);
  }
  void operator()(const PadGradientProblem& p) {
    put(p.diff_dst), put(p.diff_src), put(p.src_h), put(p.src_w), put(p.first_h), put(p.first_w), put(p.start_h),
        put(p.start_w), put(p.start_c), put(p.edge);
  }
  void operator()(const DropoutProblem& p) { put(p.src), put(p.dst), put(p.source); }
  void operator()(const LossProblem& p) {
    for (const LossProblem::Part& part : p.parts) {
      put(part.n), put(part.h), put(part.w), put(part.c);
      for (const Operand* source : {&part.src, &part.labels, &part.weights, &part.incoming}) put(*source);
      put(part.gradient), put(part.loss);
    }
    put(p.function.type), put(p.boxes != nullptr), put(p.reduction), put(p.across_images), put(p.by_labels);
  }
  void operator()(const OptimizeProblem& p) {
    put(p.matrices), put(p.rows), put(p.columns), put(p.type), put(p.regularization);
    for (const FloatMatrices* values :
         {&p.gradient, &p.values, &p.result, &p.momentum, &p.squares, &p.greatest_squares})
      put(*values);
  }
  void operator()(const CopyProblem& p) { put(p.src), put(p.dst); }
  void operator()(const BufferCopyProblem& p) {
    put(p.src), put(p.dst), put(p.src_offset), put(p.dst_offset), put(p.bytes);
  }
  void operator()(const BufferFillProblem& p) { put(p.dst), put(p.offset), put(p.bytes); }
  void operator()(const HostTask&) {}

  /// Behind the last field of a command.
  void end_command() { result_.uses_ends.push_back(static_cast<std::uint32_t>(result_.uses.size())); }

  Structure take() {
    for (std::size_t i = 0; i < shared_.size(); ++i) {
      Structure::Block& block = result_.blocks[i];
      block.is_private = block.memory->owner() && shared_[i]->use_count() == static_cast<long>(block.references);
      put(block.is_private);
      put(block.memory->size());
    }
    // Whoever let go of a block has done so before.
    std::atomic_thread_fence(std::memory_order_acquire);
    return std::move(result_);
  }

 private:
  std::uint32_t index_of(const std::shared_ptr<Memory>& memory) {
    const auto last = result_.blocks.size();
    const std::size_t recent = last < kRecent ? last : kRecent;  // the result of one command is the source of the next
    for (std::size_t i = 1; i <= recent; ++i) {
      if (result_.blocks[last - i].memory == memory.get()) return static_cast<std::uint32_t>(last - i);
    }
    const auto [found, is_new] = order_.try_emplace(memory.get(), static_cast<std::uint32_t>(last));
    if (is_new) {
      result_.blocks.push_back({memory.get()});
      shared_.push_back(&memory);
    }
    return found->second;
  }

  static constexpr std::size_t kRecent = 4;
  Structure result_;
  std::vector<const std::shared_ptr<Memory>*> shared_;
  std::unordered_map<const Memory*, std::uint32_t> order_;
};

}  // namespace

Structure describe(const std::vector<Command>& commands) {
  KeyWriter writer(commands.size());
  for (const Command& command : commands) {
    writer.put(static_cast<std::uint8_t>(command.problem.index()));
    std::visit(writer, command.problem);
    writer.end_command();
  }
  return writer.take();
}

}  // namespace openmps

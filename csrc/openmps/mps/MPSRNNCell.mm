// SPDX-License-Identifier: Apache-2.0
// Reading the descriptor and the data sources of a recurrent layer [MPSRNNLayer.h].

#import "mps/MPSRNNCell+Engine.hh"

#include <algorithm>

#import "mps/DataSource.hh"
#import "mps/MPSCNNConvolutionDescriptor+Engine.hh"

namespace openmps {

std::size_t Cell::gate_count() const {
  return kind == CellKind::lstm ? gates::lstm_count : kind == CellKind::gru ? gates::gru_count : 1;
}

bool Cell::has(WeightRole role) const {
  const auto &all = of(role).has;
  return std::find(all.begin(), all.end(), true) != all.end();
}

std::int64_t Cell::factors(WeightRole role) const {
  return is_row(role) ? 1 : role == WeightRole::input ? inputs : outputs;
}

std::int64_t Cell::rows(WeightRole role) const {
  const auto &all = of(role).has;
  return is_row(role) ? 1 : std::count(all.begin(), all.end(), true) * outputs;
}

std::int64_t Cell::columns(WeightRole role) const {
  const auto &all = of(role).has;
  return is_row(role) ? std::count(all.begin(), all.end(), true) * outputs : factors(role);
}

std::vector<GateRun> Cell::runs(WeightRole role, std::size_t gate, std::size_t count) const {
  const auto &all = of(role).has;
  std::vector<GateRun> found;
  for (std::size_t i = gate; i < gate + count; ++i) {
    if (!all[i]) continue;
    if (!found.empty() && found.back().gate + found.back().count == i)
      ++found.back().count;
    else
      found.push_back({i, 1, std::count(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i), true) * outputs});
  }
  return found;
}

namespace {

/// Names for errors.
constexpr const char *kRoleNames[] = {"InputWeights", "RecurrentWeights", "MemoryWeights"};

std::string name_of(const Cell &cell, WeightRole role, std::size_t gate) {
  if (cell.kind == CellKind::single_gate) return role == WeightRole::input ? "inputWeights" : "recurrentWeights";
  if (cell.kind == CellKind::gru && role == WeightRole::memory) return "outputGateInputGateWeights";
  constexpr const char *kLSTM[] = {"inputGate", "forgetGate", "outputGate", "cellGate"};
  constexpr const char *kGRU[] = {"inputGate", "recurrentGate", "outputGate"};
  return std::string((cell.kind == CellKind::lstm ? kLSTM : kGRU)[gate]) + kRoleNames[index_of(role)];
}

/// Weights of one gate before they are put behind each other.
struct GateWeights {
  std::shared_ptr<const ConvWeights> weights;  ///< null: none
  std::int64_t dilation_h = 1, dilation_w = 1;

  std::int64_t extent_h() const { return (weights->kernel_h - 1) * dilation_h + 1; }
  std::int64_t extent_w() const { return (weights->kernel_w - 1) * dilation_w + 1; }
};

class CellReader {
 public:
  CellReader(const KernelState &state, Cell &cell, CellKernels kernels, bool round_to_half)
      : state_(state), cell_(cell), kernels_(kernels), round_to_half_(round_to_half) {}

  /// Return false if the data source does not load.
  bool read(id<MPSCNNConvolutionDataSource> source, WeightRole role, std::size_t gate) {
    name_ = name_of(cell_, role, gate);
    if (![source load]) return false;
    Loaded loaded(source);
    MPSCNNConvolutionDescriptor *descriptor = [source descriptor];
    if (descriptor == nil) raise_for(state_, @"The descriptor of %s is nil.", name_.c_str());
    const ConvolutionDescriptorState &given = [descriptor openmps_state];
    check(given, [descriptor openmps_channelMultiplier], role);
    if (role == WeightRole::input) read_neuron(given, gate);
    const std::shared_ptr<const ConvWeights> weights = build(source, given, role);
    loaded.purge();
    if (role == WeightRole::input) put_bias(*weights, gate);
    if (role != WeightRole::input || !cell_.is_input_added)
      found_[index_of(role)][gate] = {weights, static_cast<std::int64_t>(given.dilation_y),
                                      static_cast<std::int64_t>(given.dilation_x)};
    return true;
  }

  /// Put the weights of each role behind each other. A kernel smaller than the role's largest one has zeros around it,
  /// so that both have their centre, floor(extent / 2), at one place.
  void pack() {
    for (std::size_t role = 0; role < found_.size(); ++role) {
      RoleWeights &packed = cell_.weights[role];
      for (const GateWeights &gate : found_[role]) {
        if (!gate.weights) continue;
        packed.kernel_h = std::max(packed.kernel_h, gate.extent_h());
        packed.kernel_w = std::max(packed.kernel_w, gate.extent_w());
      }
      for (std::size_t gate = 0; gate < kMaxGates; ++gate)
        if (found_[role][gate].weights) pack(packed, found_[role][gate], gate);
    }
  }

 private:
  void check(const ConvolutionDescriptorState &given, NSUInteger multiplier, WeightRole role) const {
    const auto expected = static_cast<NSUInteger>(cell_.factors(role));
    // unverified: a diagonal has one weight for each output; its number of inputs is ignored.
    const bool counts_inputs = !cell_.is_row(role) && !(role == WeightRole::input && cell_.is_input_added);
    if (given.outputs != static_cast<NSUInteger>(cell_.outputs) || (counts_inputs && given.inputs != expected))
      raise_for(state_, @"%s has %lu inputFeatureChannels and %lu outputFeatureChannels, expected %lu and %lu.",
                name_.c_str(), (unsigned long)given.inputs, (unsigned long)given.outputs, (unsigned long)expected,
                (unsigned long)cell_.outputs);
    if ((kernels_ == CellKernels::one_by_one || cell_.is_row(role)) &&
        (given.kernel_width != 1 || given.kernel_height != 1))
      raise_for(state_, @"%s has a kernel of %lu x %lu pixels (width x height), expected 1 x 1.", name_.c_str(),
                (unsigned long)given.kernel_width, (unsigned long)given.kernel_height);
    if (given.stride_x != 1 || given.stride_y != 1 || given.groups != 1 || given.subpixel != 1 || multiplier != 0)
      raise_for(state_,
                @"%s has strides of %lu x %lu, %lu groups, subPixelScaleFactor %lu and channelMultiplier %lu, expected "
                @"1 x 1, 1, 1 and 0.",
                name_.c_str(), (unsigned long)given.stride_x, (unsigned long)given.stride_y,
                (unsigned long)given.groups, (unsigned long)given.subpixel, (unsigned long)multiplier);
  }

  void read_neuron(const ConvolutionDescriptorState &given, std::size_t gate) {
    if (!given.neuron || [given.neuron.get() neuronType] == MPSCNNNeuronTypeNone) return;
    NeuronFunction &function = cell_.neurons[gate];
    function.set(state_, given.neuron.get());
    function.check_channels(state_, static_cast<NSUInteger>(cell_.outputs));
  }

  std::shared_ptr<const ConvWeights> build(id<MPSCNNConvolutionDataSource> source,
                                           const ConvolutionDescriptorState &given, WeightRole role) const {
    const MPSDataType type = [source dataType];
    if (type != MPSDataTypeFloat32 && type != MPSDataTypeFloat16)
      raise_for(state_, @"The dataType (0x%x) of %s is neither Float32 nor Float16.", (unsigned)type, name_.c_str());
    if (answers(source, @selector(weightsLayout)) && [source weightsLayout] != MPSCNNConvolutionWeightsLayoutOHWI)
      raise_for(state_, @"The weightsLayout (%u) of %s is not OHWI (0).", (unsigned)[source weightsLayout],
                name_.c_str());
    const bool has_no_weights = role == WeightRole::input && cell_.is_input_added;
    WeightSource from;
    from.shape.out_channels = cell_.outputs;
    from.shape.kernel_h = static_cast<std::int64_t>(given.kernel_height);
    from.shape.kernel_w = static_cast<std::int64_t>(given.kernel_width);
    from.shape.in_channels_per_group = has_no_weights ? 1 : cell_.factors(role);
    from.type = type == MPSDataTypeFloat16 ? WeightType::float16 : WeightType::float32;
    from.round_to_half = round_to_half_;
    from.weights = [source weights];
    from.bias = [source biasTerms];
    from.norm = given.batch_norm.get();
    if (from.norm != nullptr && (role != WeightRole::input || has_no_weights))
      raise_for(state_, @"%s has batch-normalization parameters, which only input weights take.", name_.c_str());
    std::vector<float> unused;
    if (has_no_weights) {
      unused.resize(static_cast<std::size_t>(cell_.outputs));
      from.type = WeightType::float32;
      from.shape.kernel_h = from.shape.kernel_w = 1;
      from.weights = unused.data();
    }
    if (from.weights == nullptr) raise_for(state_, @"The weights of %s are NULL.", name_.c_str());
    std::shared_ptr<const ConvWeights> result;
    const std::string error = build_weights(from, result);
    if (!error.empty()) raise_memory(@"%s: %s", state_.title.c_str(), error.c_str());
    return result;
  }

  void put_bias(const ConvWeights &weights, std::size_t gate) {
    RoleWeights &biases = cell_.weights[index_of(WeightRole::bias)];
    biases.has[gate] = true;
    const auto count = static_cast<std::size_t>(cell_.outputs);
    const std::size_t first = biases.values.size();
    biases.values.resize(first + count);
    if (!weights.bias.empty()) std::copy_n(weights.bias.data(), count, biases.values.data() + first);
  }

  void pack(RoleWeights &packed, const GateWeights &found, std::size_t gate) {
    packed.has[gate] = true;
    const ConvWeights &from = *found.weights;
    const auto factors = static_cast<std::size_t>(from.in_channels_per_group);
    const auto pixels = static_cast<std::size_t>(packed.kernel_h * packed.kernel_w);
    const std::size_t first = packed.values.size();
    packed.values.resize(first + static_cast<std::size_t>(from.out_channels) * pixels * factors);
    const std::int64_t top = packed.kernel_h / 2 - found.extent_h() / 2;
    const std::int64_t left = packed.kernel_w / 2 - found.extent_w() / 2;
    const float *values = from.values.data();
    for (std::int64_t o = 0; o < from.out_channels; ++o)
      for (std::int64_t y = 0; y < from.kernel_h; ++y)
        for (std::int64_t x = 0; x < from.kernel_w; ++x, values += factors) {
          const std::int64_t row = o * packed.kernel_h + top + y * found.dilation_h;
          const auto pixel = static_cast<std::size_t>(row * packed.kernel_w + left + x * found.dilation_w);
          std::copy_n(values, factors, packed.values.data() + first + pixel * factors);
        }
  }

  const KernelState &state_;
  Cell &cell_;
  const CellKernels kernels_;
  const bool round_to_half_;
  std::string name_;  ///< of the data source that is read
  std::array<std::array<GateWeights, kMaxGates>, kWeightRoles - 1> found_;
};

void check_values(const KernelState &state, const Cell &cell) {
  const auto check_channels = [&](const char *name, std::int64_t value) {
    if (value < 1 || value > INT32_MAX / static_cast<std::int64_t>(kMaxGates))
      raise_for(state, @"%s (%ld) is not between 1 and %d.", name, (long)value, INT32_MAX / (int)kMaxGates);
  };
  check_channels("inputFeatureChannels", cell.inputs);
  check_channels("outputFeatureChannels", cell.outputs);
  if (cell.is_input_added && cell.inputs != cell.outputs)
    raise_for(state,
              @"inputFeatureChannels (%ld) is not outputFeatureChannels (%ld), which useLayerInputUnitTransformMode "
              @"needs.",
              (long)cell.inputs, (long)cell.outputs);
  if (!(cell.p_norm > 0)) raise_for(state, @"gatePnormValue (%g) is not greater than 0.", cell.p_norm);
}

}  // namespace

std::optional<Cell> read_cell(const KernelState &state, const MPSRNNDescriptor *descriptor, CellKernels kernels,
                              bool round_to_half) {
  if (descriptor == nil) raise_for(state, @"rnnDescriptor is nil.");
  const RNNDescription &given = [const_cast<MPSRNNDescriptor *>(descriptor) openmps_description];
  if (given.kind == CellKind::none)
    raise_for(state, @"rnnDescriptor is of class %@, not of one of its subclasses.", [descriptor class]);
  Cell cell;
  cell.kind = given.kind;
  cell.inputs = static_cast<std::int64_t>(given.inputs), cell.outputs = static_cast<std::int64_t>(given.outputs);
  cell.is_input_added = given.is_input_added;
  cell.float_weights = given.float_weights;
  cell.is_backward = given.direction == MPSRNNSequenceDirectionBackward;
  cell.diagonal_memory = given.diagonal_memory;
  cell.p_norm = given.p_norm;
  cell.flips_output = given.flips_output;
  check_values(state, cell);
  if (cell.kind == CellKind::lstm && given.cell_neuron_type != MPSCNNNeuronTypeNone) {
    if (given.cell_neuron_type == MPSCNNNeuronTypePReLU)
      raise_for(state, @"cellToOutputNeuronType is PReLU (%d), which has more parameters than A, B and C.",
                (int)given.cell_neuron_type);
    cell.cell_neuron.set(state, [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:given.cell_neuron_type
                                                                                 a:given.cell_neuron_a
                                                                                 b:given.cell_neuron_b
                                                                                 c:given.cell_neuron_c]);
  }
  CellReader reader(state, cell, kernels, round_to_half);
  for (const WeightRole role : {WeightRole::input, WeightRole::recurrent, WeightRole::memory})
    for (std::size_t gate = 0; gate < cell.gate_count(); ++gate)
      if (id<MPSCNNConvolutionDataSource> source = given.sources[index_of(role)][gate].get())
        if (!reader.read(source, role, gate)) return std::nullopt;
  reader.pack();
  return cell;
}

// ------------------------------------------------------------------------------------------------ archives

void Cell::archive(Archive &archive, NSString *prefix) {
  const auto key = [&](NSString *name) { return [prefix stringByAppendingString:name]; };
  archive.field(key(@".kind"), kind);
  archive.field(key(@".inputFeatureChannels"), inputs);
  archive.field(key(@".outputFeatureChannels"), outputs);
  archive.field(key(@".useLayerInputUnitTransformMode"), is_input_added);
  archive.field(key(@".useFloat32Weights"), float_weights);
  archive.field(key(@".layerSequenceDirection"), is_backward);
  archive.field(key(@".memoryWeightsAreDiagonal"), diagonal_memory);
  archive.field(key(@".gatePnormValue"), p_norm);
  archive.field(key(@".flipOutputGates"), flips_output);
  cell_neuron.archive(archive, key(@".cellToOutputNeuron"));
  for (std::size_t gate = 0; gate < kMaxGates; ++gate)
    neurons[gate].archive(archive, key([NSString stringWithFormat:@".neuron%lu", (unsigned long)gate]));
  for (std::size_t role = 0; role < kWeightRoles; ++role) {
    NSString *of_role = key([NSString stringWithFormat:@".weights%lu", (unsigned long)role]);
    RoleWeights &stored = weights[role];
    for (std::size_t gate = 0; gate < kMaxGates; ++gate)
      archive.field([of_role stringByAppendingFormat:@".has%lu", (unsigned long)gate], stored.has[gate]);
    archive.field([of_role stringByAppendingString:@".kernelHeight"], stored.kernel_h);
    archive.field([of_role stringByAppendingString:@".kernelWidth"], stored.kernel_w);
    archive.field([of_role stringByAppendingString:@".values"], stored.values);
  }
}

void Cell::did_read(const KernelState &state, bool has_values) {
  if (kind < CellKind::single_gate || kind > CellKind::gru)
    raise_for(state, @"The archive holds a layer of an unknown kind (%u).", (unsigned)kind);
  check_values(state, *this);
  const auto read_neuron = [&](NeuronFunction &function) {
    if (!function.descriptor) return;
    function.did_read(state);
    function.check_channels(state, static_cast<NSUInteger>(outputs));
  };
  read_neuron(cell_neuron);
  for (NeuronFunction &function : neurons) read_neuron(function);
  for (const WeightRole role : {WeightRole::input, WeightRole::recurrent, WeightRole::memory, WeightRole::bias}) {
    const RoleWeights &stored = of(role);
    for (std::size_t gate = gate_count(); gate < kMaxGates; ++gate)
      if (stored.has[gate]) raise_for(state, @"The archive holds weights of a gate that the layer does not have.");
    if (!has_values) continue;
    const auto extent = [](std::int64_t value) { return static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0)); };
    const auto count =
        product({extent(rows(role)), extent(columns(role)), extent(stored.kernel_h), extent(stored.kernel_w)});
    if (!count || *count != stored.values.size())
      raise_for(state, @"The archive holds %lu weights of one kind, expected %lu.", (unsigned long)stored.values.size(),
                (unsigned long)(count ? *count : 0));
  }
}

}  // namespace openmps

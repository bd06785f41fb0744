// SPDX-License-Identifier: Apache-2.0
// Descriptions of recurrent layers, as the kernels read them.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <array>
#include <cstdint>

#import "metal/OnEngine.hh"

namespace openmps {

enum class CellKind : std::uint8_t { none, single_gate, lstm, gru };

/// Gates in the order of their columns and weights. Gates that often have one activation function are adjacent.
namespace gates {
enum : std::size_t { single = 0 };
enum : std::size_t { lstm_input, lstm_forget, lstm_output, lstm_cell, lstm_count };
enum : std::size_t { gru_input, gru_recurrent, gru_output, gru_count };
}  // namespace gates

inline constexpr std::size_t kMaxGates = gates::lstm_count;

/// Factors of the weights: the layer's input, its recurrent input, and the memory cell (of a GRU: the input gate times
/// the recurrent input). The biases have no factor.
enum class WeightRole : std::uint8_t { input, recurrent, memory, bias };
inline constexpr std::size_t kWeightRoles = 4;

/// State of an MPSRNNDescriptor of any class.
struct RNNDescription {
  CellKind kind = CellKind::none;
  NSUInteger inputs = 0, outputs = 0;
  bool is_input_added = false;  ///< useLayerInputUnitTransformMode
  bool float_weights = false;
  MPSRNNSequenceDirection direction = MPSRNNSequenceDirectionForward;
  /// Data sources by role (without biases, which the input weights have) and gate.
  std::array<std::array<Ref<id<MPSCNNConvolutionDataSource>>, kMaxGates>, kWeightRoles - 1> sources;
  // LSTM
  bool diagonal_memory = false;
  MPSCNNNeuronType cell_neuron_type = MPSCNNNeuronTypeTanH;
  float cell_neuron_a = 1, cell_neuron_b = 1, cell_neuron_c = 1;
  // GRU
  float p_norm = 1;
  bool flips_output = false;
};

}  // namespace openmps

@interface MPSRNNDescriptor (Engine)
- (openmps::RNNDescription &)openmps_description;
/// The kind of the class's layers.
+ (openmps::CellKind)openmps_kind;
@end

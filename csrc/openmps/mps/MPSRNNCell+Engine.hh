// SPDX-License-Identifier: Apache-2.0
// A recurrent layer with its weights, as read from a descriptor and its data sources.
#pragma once

#include <optional>
#include <vector>

#import "mps/MPSCNNNeuron+Engine.hh"
#import "mps/MPSRNNDescriptor+Engine.hh"

namespace openmps {

inline constexpr std::size_t index_of(WeightRole role) { return static_cast<std::size_t>(role); }

/// Weights of one role. Gates without a data source have none, and the others follow each other.
struct RoleWeights {
  std::array<bool, kMaxGates> has = {};
  std::int64_t kernel_h = 1, kernel_w = 1;
  std::vector<float> values;  ///< [gates that have them][outputs][kernel_h][kernel_w][factors]
};

/// Gates that follow each other and have weights.
struct GateRun {
  std::size_t gate, count;
  std::int64_t first;  ///< row of the first weight; column of biases and diagonals
};

struct Cell {
  CellKind kind = CellKind::none;
  std::int64_t inputs = 0, outputs = 0;
  bool is_input_added = false;  ///< the input is added to each gate, without weights
  bool float_weights = false;
  bool is_backward = false;
  bool diagonal_memory = false;
  float p_norm = 1;
  bool flips_output = false;
  std::array<NeuronFunction, kMaxGates> neurons;  ///< without a descriptor: none
  NeuronFunction cell_neuron;
  std::array<RoleWeights, kWeightRoles> weights;

  std::size_t gate_count() const;
  const RoleWeights &of(WeightRole role) const { return weights[index_of(role)]; }
  bool has(WeightRole role, std::size_t gate) const { return of(role).has[gate]; }
  bool has(WeightRole role) const;
  /// Return whether the weights are one row of `outputs` values for each gate, not matrices.
  bool is_row(WeightRole role) const {
    return role == WeightRole::bias || (role == WeightRole::memory && diagonal_memory);
  }
  /// Return the extents of all weights of a role as a matrix of 1 x 1 kernels.
  std::int64_t rows(WeightRole role) const;
  std::int64_t columns(WeightRole role) const;
  std::int64_t factors(WeightRole role) const;
  /// Return the gates with weights among `count` gates from `gate` on.
  std::vector<GateRun> runs(WeightRole role, std::size_t gate, std::size_t count) const;

  void archive(Archive &archive, NSString *prefix);
  /// Check what an archive held; raise. Layers for training have their values elsewhere.
  void did_read(const KernelState &state, bool has_values);
};

/// Kernels of a layer: matrices have 1 x 1 kernels only.
enum class CellKernels : std::uint8_t { one_by_one, any };

/// Read a layer: load each data source, copy its values, purge it. nullopt if one does not load. Raise for a descriptor
/// or a data source that does not fit.
std::optional<Cell> read_cell(const KernelState &state, const MPSRNNDescriptor *descriptor, CellKernels kernels,
                              bool round_to_half);

}  // namespace openmps

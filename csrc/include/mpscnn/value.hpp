// SPDX-License-Identifier: Apache-2.0
// Values of kernel parameters, passed from Python to Apple's properties.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <mpscnn/array.hpp>

namespace mpscnn {

class DataSource;
class NormalizationSource;
class PaddingPolicy;

struct Pair {
  std::int64_t h = 1, w = 1;
  bool operator==(const Pair&) const = default;
};

/// Activation function; the type is an MPSCNNNeuronType.
struct NeuronDescriptor {
  int type = 0;
  float a = 0, b = 0, c = 0;
  std::vector<float> data = {};  ///< PReLU: one slope per channel
};

/// Return the activation for any of its names (csrc/table/neurons.hpp), with the name's default parameters.
NeuronDescriptor activation_from_name(std::string_view name);

/// Return all names, for error messages: "\"none\", \"identity\", …".
std::string neuron_choices();

/// PyTorch's parameters of batch normalization in inference, one value per output channel.
struct BatchNorm {
  std::vector<float> mean, variance, gamma, beta;
  float epsilon = 1e-5f;
};

/// None, bool, int, float, str, ints (pairs, regions), floats, array, data source, activation, padding policy.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                           std::vector<double>, ArrayView, std::shared_ptr<DataSource>,
                           std::shared_ptr<NormalizationSource>, NeuronDescriptor, std::shared_ptr<PaddingPolicy>>;

using Params = std::map<std::string, Value, std::less<>>;

}  // namespace mpscnn

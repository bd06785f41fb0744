// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/convolution/onednn/post_ops.hpp"

#include "engine/shared/neuron.hpp"

namespace openmps::cpu {

// oneDNN's functions are used if they are exact, or if their error is below that of one rounding of the argument. Its
// gelu is off by up to 7e-7 where the result is 1e-4 (measured), softplus has no exact counterpart, pow is slower than
// a second pass. For NaN its relu and clip return 0 and its hardsigmoid 1, where ours return NaN; a separate pass for
// ReLU6 costs a quarter of a 1 x 1 convolution that widens (docs/differences_from_apple.md).
bool append_neuron(dnnl::post_ops& ops, const Neuron& neuron) {
  using dnnl::algorithm;
  const float a = neuron.a, b = neuron.b;
  switch (neuron.type) {
    case NeuronType::none: return true;
    case NeuronType::relu: ops.append_eltwise(algorithm::eltwise_relu, a, 0); return true;
    case NeuronType::linear: ops.append_eltwise(algorithm::eltwise_linear, a, b); return true;
    case NeuronType::sigmoid: ops.append_eltwise(algorithm::eltwise_logistic, 0, 0); return true;
    case NeuronType::hard_sigmoid: ops.append_eltwise(algorithm::eltwise_hardsigmoid, a, b); return true;
    case NeuronType::tanh:
      if (b != 1.0f) ops.append_eltwise(algorithm::eltwise_linear, b, 0);
      ops.append_eltwise(algorithm::eltwise_tanh, 0, 0);
      if (a != 1.0f) ops.append_eltwise(algorithm::eltwise_linear, a, 0);
      return true;
    case NeuronType::absolute: ops.append_eltwise(algorithm::eltwise_abs, 0, 0); return true;
    case NeuronType::elu: ops.append_eltwise(algorithm::eltwise_elu, a, 0); return true;
    case NeuronType::prelu:
      if (neuron_is_per_channel(neuron)) {
        ops.append_prelu(1 << 1);
      } else {
        ops.append_eltwise(algorithm::eltwise_relu, a, 0);
      }
      return true;
    case NeuronType::relun:
      // Other slopes need a clip without a lower bound, which turns NaN and -inf into -FLT_MAX.
      if (a != 0.0f || b < 0.0f) return false;
      ops.append_eltwise(algorithm::eltwise_clip, 0, b);
      return true;
    case NeuronType::swish: ops.append_eltwise(algorithm::eltwise_swish, 1, 0); return true;
    case NeuronType::hard_swish: ops.append_eltwise(algorithm::eltwise_hardswish, a, b); return true;
    case NeuronType::softplus:
    case NeuronType::softsign:
    case NeuronType::power:
    case NeuronType::exponential:
    case NeuronType::logarithm:
    case NeuronType::gelu: return false;
  }
  return false;
}

}  // namespace openmps::cpu

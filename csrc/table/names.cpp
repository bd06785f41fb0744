// SPDX-License-Identifier: Apache-2.0
// Names and formulas of the table's enumerations, for docs and stubs.
#include <mpscnn/table.hpp>

namespace mpscnn {

const char* name_of(ParamType type) {
  switch (type) {
    case ParamType::boolean: return "boolean";
    case ParamType::integer: return "integer";
    case ParamType::real: return "real";
    case ParamType::text: return "text";
    case ParamType::pair: return "pair";
    case ParamType::padding: return "padding";
    case ParamType::offset: return "offset";
    case ParamType::region: return "region";
    case ParamType::shape: return "shape";
    case ParamType::extents: return "extents";
    case ParamType::array: return "array";
    case ParamType::weights: return "weights";
    case ParamType::activation: return "activation";
    case ParamType::channel_values: return "channel_values";
  }
  return "?";
}

const char* wanted_of(ParamType type) {
  switch (type) {
    case ParamType::boolean: return "True or False";
    case ParamType::integer: return "an integer";
    case ParamType::real: return "a number";
    case ParamType::text: return "a string";
    case ParamType::pair: return "an integer or a pair (height, width)";
    case ParamType::padding:
      return "an integer, (height, width), ((top, bottom), (left, right)), \"same\", \"valid\" or a padding policy";
    case ParamType::offset: return "(y, x) or (y, x, image)";
    case ParamType::region: return "((y, x, image), (height, width, images))";
    case ParamType::shape: return "(channels, height, width)";
    case ParamType::extents: return "(height, width, channels)";
    case ParamType::array: return "an array";
    case ParamType::weights: return "an array or a data source";
    case ParamType::activation: return "a name, a NeuronDescriptor or a neuron kernel";
    case ParamType::channel_values: return "an array or a data source";
  }
  return "?";
}

const char* formula_of(ShapeRule rule) {
  switch (rule) {
    case ShapeRule::same: return "(N, H, W, C)";
    case ShapeRule::window:
      return "(N, (H + ph0 + ph1 - dh*(kh-1) - 1) // sh + 1, (W + pw0 + pw1 - dw*(kw-1) - 1) // sw + 1, O) (height and "
             "width times r, channels divided by r*r for sub-pixel factor r)";
    case ShapeRule::pooling:
      return "(N, (H + ph0 + ph1 - dh*(kh-1) - 1) // sh + 1, (W + pw0 + pw1 - dw*(kw-1) - 1) // sw + 1, C)";
    case ShapeRule::transpose: return "(N, (H-1)*sh - ph0 - ph1 + kh + oh, (W-1)*sw - pw0 - pw1 + kw + ow, O)";
    case ShapeRule::fully_connected: return "(N, 1, 1, O)";
    case ShapeRule::state: return "BatchNormalizationState, mean and variance (C,)";
    case ShapeRule::broadcast: return "(N, H, W, C) (broadcast as in NumPy)";
    case ShapeRule::upsampling: return "(N, H*sh, W*sw, C)";
    case ShapeRule::row: return "(N, H, 1, C)";
    case ShapeRule::column: return "(N, 1, W, C)";
    case ShapeRule::channels: return "(N, H, W, 1)";
    case ShapeRule::slice: return "(N, h, w, C) (by default h = H, w = W)";
    case ShapeRule::reshape: return "(N, h, w, c), h*w*c == H*W*C";
    case ShapeRule::resize: return "(N, h, w, C)";
    case ShapeRule::crop: return "(N*R, h, w, C)";
    case ShapeRule::gradient: return "that of the second source";
    case ShapeRule::pad: return "(N, H + ph0 + ph1, W + pw0 + pw1, C + pc0 + pc1)";
  }
  return "?";
}

}  // namespace mpscnn

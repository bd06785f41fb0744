// SPDX-License-Identifier: Apache-2.0
// Calls that a row names, with their arguments, and the values of objects afterwards.
#pragma once

#import "row_images.hh"

/// Gradients of gamma and beta from a row.
@interface RowBatchState : MPSCNNBatchNormalizationState
@end

inline id<MTLBuffer> gamma_gradient, beta_gradient;

@implementation RowBatchState
- (id<MTLBuffer>)gradientForGamma {
  return gamma_gradient;
}
- (id<MTLBuffer>)gradientForBeta {
  return beta_gradient;
}
@end

inline void give_gradients(MPSCNNConvolutionGradientState *state, id<MTLBuffer> weights, id<MTLBuffer> biases) {
  std::memcpy([[state gradientForWeights] contents], [weights contents], [weights length]);
  std::memcpy([[state gradientForBiases] contents], [biases contents], [biases length]);
}

inline MPSCNNLossDataDescriptor *loss_data(const Row &row, const std::string &name, long image) {
  const Array *values = array(row, name);
  if (values == nullptr) return nil;
  const auto extent = [&](std::size_t i) { return static_cast<NSUInteger>(values->shape[i]); };
  const NSUInteger length = extent(1) * extent(2) * extent(3) * sizeof(float);
  NSData *data = [NSData dataWithBytes:values->bytes.data() + static_cast<NSUInteger>(image) * length length:length];
  return [MPSCNNLossDataDescriptor cnnLossDataDescriptorWithData:data
                                                          layout:MPSDataLayoutHeightxWidthxFeatureChannels
                                                            size:MTLSizeMake(extent(2), extent(1), extent(3))];
}

/// Make labels of one image of the arrays `labels` and `weights`, with one loss or with all.
inline MPSCNNLossLabels *make_labels(const Row &row, long image) {
  MPSCNNLossDataDescriptor *labels = loss_data(row, "labels", image);
  const MTLSize size = flag(row, "all_losses") ? [labels size] : MTLSizeMake(1, 1, 1);
  return [[[MPSCNNLossLabels alloc] initWithDevice:device
                                     lossImageSize:size
                                  labelsDescriptor:labels
                                 weightsDescriptor:loss_data(row, "weights", image)] autorelease];
}

inline id<MTLBuffer> make_buffer(const Array &values) {
  return
      [[device newBufferWithBytes:values.bytes.data() length:values.bytes.size() options:MTLResourceStorageModeShared]
          autorelease];
}

/// Make a matrix of floats or halves, or several if the array has three axes, with two values after each row and two
/// rows after each matrix.
inline MPSMatrix *make_matrix(const Array &values) {
  const std::size_t axes = values.shape.size();
  const auto extent = [&](std::size_t from_last) { return static_cast<NSUInteger>(values.shape[axes - from_last]); };
  const NSUInteger rows = extent(2), columns = extent(1), matrices = axes == 3 ? extent(3) : 1;
  const bool half = values.dtype == "float16";
  const NSUInteger element = half ? 2 : 4, row_bytes = (columns + 2) * element;
  MPSMatrixDescriptor *descriptor =
      [MPSMatrixDescriptor matrixDescriptorWithRows:rows
                                            columns:columns
                                           matrices:matrices
                                           rowBytes:row_bytes
                                        matrixBytes:(rows + 2) * row_bytes
                                           dataType:half ? MPSDataTypeFloat16 : MPSDataTypeFloat32];
  MPSMatrix *matrix = [[[MPSMatrix alloc] initWithDevice:device descriptor:descriptor] autorelease];
  char *first = static_cast<char *>([[matrix data] contents]);
  for (NSUInteger row = 0; row < matrices * rows; ++row)
    std::memcpy(first + row / rows * [matrix matrixBytes] + row % rows * row_bytes,
                values.bytes.data() + row * columns * element, columns * element);
  return matrix;
}

template <class T = float>
std::vector<double> floats_at(id<MTLBuffer> buffer, NSUInteger offset, NSUInteger count) {
  const T *first = reinterpret_cast<const T *>(static_cast<const char *>([buffer contents]) + offset);
  return std::vector<double>(first, first + count);
}

/// The objects of one row by their words, and the current command buffer.
struct Calls {
  const Row &row;
  std::map<std::string, id> objects;

  const Array &values(const std::string &name) const { return row.arrays.at(name); }

  id object(const std::string &word) {
    if (word == "none") return nil;
    id &found = objects[word];
    if (found == nil) found = make_object(word);
    return found;
  }

  /// `word`: kind:names, the names separated by commas.
  id make_object(const std::string &word) {
    const auto colon = word.find(':');
    const std::string kind = word.substr(0, colon);
    const auto names = words(word.substr(colon + 1), ',');
    const std::string &name = names[0];
    if (row.settings.count(word + ".class") != 0) return make(row, word + ".");
    const auto each = [&](const std::string &of) {
      NSMutableArray *all = [NSMutableArray array];
      for (const auto &one : names) [all addObject:object(of + ":" + one)];
      return all;
    };
    if (kind == "image" || kind == "batch") return source_images(row, name, kind == "batch" ? As::batch : As::one);
    if (kind == "views") return source_images(row, name, As::views);
    if (kind == "empty" || kind == "empties") {
      const auto found = integers(row, name);
      return filled_images(found, setting(row, name + ".dtype", "float32"), kind == "empties" ? As::batch : As::one);
    }
    if (kind == "labels") return make_labels(row, std::stol(name));
    if (kind == "label_batch") return each("labels");
    if (kind == "buffer") return static_cast<id>(make_buffer(values(name)));
    if (kind == "matrix") return make_matrix(values(name));
    if (kind == "vectors") return each("vector");
    if (kind == "vector") {
      const auto count = static_cast<NSUInteger>(values(name).size());
      MPSVectorDescriptor *descriptor =
          [MPSVectorDescriptor vectorDescriptorWithLength:count dataType:MPSDataTypeFloat32];
      return [[[MPSVector alloc] initWithBuffer:object("buffer:" + name) descriptor:descriptor] autorelease];
    }
    if (kind == "state") return state_of(names);
    id a = object("buffer:" + name), b = object("buffer:" + names[1]);
    if (kind == "weights_state")
      return [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:a biases:b] autorelease];
    if (kind == "gamma_and_beta")
      return [[[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:a beta:b] autorelease];
    MPSImage *image = image_of({1, 1, 1, 4}, "float32", std::vector<std::byte>(16).data());
    id state = [make(row, kind == "other_state" ? "other." : "layer.") resultStateForSourceImage:image
                                                                                    sourceStates:nil
                                                                                destinationImage:image];
    if (kind == "gradient_state") give_gradients(state, a, b);
    if (kind == "batch_state" || kind == "other_state") {
      object_setClass(state, [RowBatchState class]);
      gamma_gradient = a, beta_gradient = b;
    }
    if (state != nil) return state;
    check(false, row.name + ": unknown object " + word);
    return nil;
  }

  /// Make a state of the kernel `layer` for its sources and its result; gradients are filled as images are.
  id state_of(const std::vector<std::string> &names) {
    id a = object("image:" + names[0]), b = object("image:" + names[1]), layer = object("layer");
    if (names.size() == 3)
      return [layer resultStateForPrimaryImage:a
                                secondaryImage:b
                                  sourceStates:nil
                              destinationImage:object("image:" + names[2])];
    id state = [layer resultStateForSourceImage:a sourceStates:nil destinationImage:b];
    for (id<MTLBuffer> buffer : gradients_in(state)) std::memset([buffer contents], 0x7f, [buffer length]);
    return state;
  }

  /// Return the gradients that the state has.
  static std::vector<id<MTLBuffer>> gradients_in(id state) {
    std::vector<id<MTLBuffer>> found;
    for (NSString *name in @[ @"gradientForWeights", @"gradientForBiases", @"gradientForGamma", @"gradientForBeta" ])
      if ([state respondsToSelector:NSSelectorFromString(name)] && [state valueForKey:name] != nil)
        found.push_back([state valueForKey:name]);
    return found;
  }

  /// Read the values of an object, or of all objects of a list.
  std::vector<double> read(id object) {
    if ([object isKindOfClass:[NSArray class]]) {
      std::vector<double> all;
      for (id one in object) {
        const auto part = read(one);
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    }
    if ([object isKindOfClass:[MPSImage class]]) {
      const bool half = [static_cast<MPSImage *>(object) featureChannelFormat] == MPSImageFeatureChannelFormatFloat16;
      return read_images(object, half ? "float16" : "float32").values;
    }
    if ([object isKindOfClass:[MPSCNNLossLabels class]]) return read([object lossImage]);
    if ([object isKindOfClass:[MPSState class]]) {
      NSMutableArray *gradients = [NSMutableArray array];
      for (id<MTLBuffer> buffer : gradients_in(object)) [gradients addObject:static_cast<id>(buffer)];
      return read(gradients);
    }
    if ([object isKindOfClass:[MPSMatrix class]]) {
      MPSMatrix *matrix = object;
      std::vector<double> all;
      for (NSUInteger row = 0; row < [matrix matrices] * [matrix rows]; ++row) {
        const NSUInteger m = row / [matrix rows], r = row % [matrix rows];
        const NSUInteger at = m * [matrix matrixBytes] + r * [matrix rowBytes], columns = [matrix columns];
        const auto values = [matrix dataType] == MPSDataTypeFloat16 ? floats_at<_Float16>([matrix data], at, columns)
                                                                    : floats_at([matrix data], at, columns);
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    }
    return floats_at(object, 0, [static_cast<id<MTLBuffer>>(object) length] / sizeof(float));
  }
};

inline Calls *calls;

inline id called_object(const std::string &word) { return calls->object(word); }

/// Call `selector` of an object with arguments by their words; return the result.
inline id call(const Row &row, id object, const std::string &selector, const std::string &arguments) {
  const SEL name = NSSelectorFromString(text(selector));
  NSMethodSignature *signature = [object methodSignatureForSelector:name];
  check(signature != nil, row.name + ": the class has the form " + selector);
  NSInvocation *invoked = invocation(object, signature, name, row, arguments);
  [invoked invoke];
  id result = nil;
  if (*[signature methodReturnType] == '@') [invoked getReturnValue:&result];
  return result;
}

/// Run the calls `before.N` ("object selector arguments") and `call` with its `call_arguments`, `times` times, then
/// compare the arrays `after.`WORD.
inline void run_call(const Row &row, bool twin) {
  Calls own{row, {}};
  calls = &own;
  id kernel = make(row);
  if (twin) kernel = archived([[kernel copy] autorelease]);
  if ([kernel respondsToSelector:@selector(setDestinationImageAllocator:)])
    [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  for (long i = 0; i < std::stol(setting(row, "times", "1")); ++i) {
    id<MTLCommandBuffer> buffer = command_buffer();
    own.objects["commands"] = buffer;
    own.objects["kernel"] = kernel;
    for (const auto &[key, value] : row.settings) {
      if (key.rfind("before.", 0) != 0) continue;
      const auto first = value.find(' '), second = value.find(' ', first + 1);
      call(row, own.object(value.substr(0, first)), value.substr(first + 1, second - first - 1),
           value.substr(second + 1));
    }
    own.objects["returned"] = call(row, kernel, setting(row, "call"), setting(row, "call_arguments"));
    run(buffer);
  }
  for (const auto &[key, want] : row.arrays) {
    if (key.rfind("after.", 0) != 0) continue;
    const auto got = own.read(own.object(key.substr(6)));
    double worst = got.size() == static_cast<std::size_t>(want.size()) ? 0 : INFINITY;
    for (std::size_t i = 0; i < got.size() && std::isfinite(worst); ++i) {
      if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
      const double off = std::fabs(got[i] - want[i]) / (1 + std::fabs(want[i]));
      if (!(off <= worst)) worst = std::isnan(off) ? INFINITY : off;
    }
    check(worst <= std::stod(setting(row, "tolerance")), row.name + ", " + key + ": off by " + std::to_string(worst));
  }
  calls = nullptr;
}

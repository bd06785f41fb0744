// SPDX-License-Identifier: Apache-2.0
// Rows of recurrent layers (tests/rows/objc_recurrent.py): descriptors from settings, sequences, states, gradients.
#pragma once

#import "row_calls.hh"

/// Matrices of the steps `name`0, `name`1, ..., with two values after each row. With the setting `offsets` all steps
/// are in one buffer, behind its first value, and the matrices begin at byte offsets.
struct RowSequence {
  NSMutableArray<MPSMatrix *> *matrices = [NSMutableArray array];
  std::vector<NSUInteger> offsets;
  std::vector<Array> shapes;

  RowSequence(const Row &row, const std::string &name, const std::string &dtype, bool is_result) {
    for (std::size_t i = 0; array(row, name + std::to_string(i)) != nullptr; ++i)
      shapes.push_back(*array(row, name + std::to_string(i)));
    const NSUInteger element = dtype == "float16" ? 2 : 4;
    for (Array &shape : shapes) {
      if (!is_result) continue;
      shape.dtype = dtype;
      shape.bytes.assign(static_cast<std::size_t>(shape.size()) * element, std::byte{0xff});  // NaN
    }
    if (!flag(row, "offsets") || shapes.empty()) {
      for (const Array &shape : shapes) [matrices addObject:make_matrix(shape)];
      offsets.assign(shapes.size(), 0);
      return;
    }
    const auto rows = static_cast<NSUInteger>(shapes[0].shape[0]), columns = static_cast<NSUInteger>(shapes[0].shape[1]);
    const NSUInteger row_bytes = (columns + 2) * element;
    id<MTLBuffer> buffer = [[device newBufferWithLength:shapes.size() * rows * row_bytes
                                                options:MTLResourceStorageModeShared] autorelease];
    MPSMatrixDescriptor *descriptor =
        [MPSMatrixDescriptor matrixDescriptorWithRows:rows
                                              columns:columns
                                             rowBytes:row_bytes
                                             dataType:element == 2 ? MPSDataTypeFloat16 : MPSDataTypeFloat32];
    MPSMatrix *matrix = [[[MPSMatrix alloc] initWithBuffer:buffer descriptor:descriptor] autorelease];
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      [matrices addObject:matrix];
      offsets.push_back(i * rows * row_bytes + element);
      for (NSUInteger y = 0; y < static_cast<NSUInteger>(shapes[i].shape[0]); ++y)
        std::memcpy(static_cast<char *>([buffer contents]) + offsets[i] + y * row_bytes,
                    shapes[i].bytes.data() + y * columns * element, columns * element);
    }
  }

  /// Return the steps [first, first + count).
  NSArray<MPSMatrix *> *part(std::size_t first, std::size_t count) const {
    return [matrices subarrayWithRange:NSMakeRange(first, count)];
  }
  NSUInteger *offsets_from(std::size_t first) { return offsets.data() + first; }

  std::vector<double> values(std::size_t step) const {
    MPSMatrix *matrix = [matrices objectAtIndex:step];
    const auto columns = static_cast<NSUInteger>(shapes[step].shape[1]);
    std::vector<double> all;
    for (NSUInteger y = 0; y < static_cast<NSUInteger>(shapes[step].shape[0]); ++y) {
      const NSUInteger at = offsets[step] + y * [matrix rowBytes];
      const auto part = [matrix dataType] == MPSDataTypeFloat16 ? floats_at<_Float16>([matrix data], at, columns)
                                                                : floats_at([matrix data], at, columns);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
};

inline void compare(const Row &row, const std::string &key, const std::vector<double> &got) {
  const Array &want = row.arrays.at(key);
  double worst = got.size() == static_cast<std::size_t>(want.size()) ? 0 : INFINITY;
  for (std::size_t i = 0; i < got.size() && std::isfinite(worst); ++i) {
    const double off = std::fabs(got[i] - want[i]) / (1 + std::fabs(want[i]));
    if (!(off <= worst)) worst = std::isnan(off) ? INFINITY : off;
  }
  check(worst <= std::stod(setting(row, "tolerance")), row.name + ", " + key + ": off by " + std::to_string(worst));
}

/// Make the data source `name` from the arrays `name` (O, kH, kW, I) and `name`.bias, and the setting `name`.neuron.
inline TestSource *recurrent_source(const Row &row, const std::string &name) {
  const Array &weights = row.arrays.at(name);
  const auto extent = [&](std::size_t i) { return static_cast<NSUInteger>(weights.shape[i]); };
  MPSCNNConvolutionDescriptor *descriptor = descriptor_of(extent(1), extent(2), extent(3), extent(0));
  if (const auto numbers = words(setting(row, name + ".neuron")); !numbers.empty())
    [descriptor setFusedNeuronDescriptor:
                    [MPSNNNeuronDescriptor
                        cnnNeuronDescriptorWithType:static_cast<MPSCNNNeuronType>(std::stoi(numbers[0]))
                                                  a:std::stof(numbers[1])
                                                  b:std::stof(numbers[2])
                                                  c:std::stof(numbers[3])]];
  if (const Array *slopes = array(row, name + ".slopes"))
    [descriptor
        setFusedNeuronDescriptor:[MPSNNNeuronDescriptor
                                     cnnNeuronPReLUDescriptorWithData:[NSData dataWithBytes:slopes->bytes.data()
                                                                                     length:slopes->bytes.size()]
                                                               noCopy:NO]];
  TestSource *source = make_source(descriptor, {}, {});
  source->type = weights.dtype == "float16" ? MPSDataTypeFloat16 : MPSDataTypeFloat32;
  source->bytes = values_of<unsigned char>(row, name);
  source->bias = values_of<float>(row, name + ".bias");
  return source;
}

inline NSArray<MPSRNNDescriptor *> *recurrent_descriptors(const Row &row) {
  NSMutableArray *all = [NSMutableArray array];
  for (int i = 0; row.settings.count("layer" + std::to_string(i)) != 0; ++i) {
    const std::string layer = "layer" + std::to_string(i);
    const auto made = words(setting(row, layer));  // class, inputs, outputs
    MPSRNNDescriptor *descriptor = [[[class_named(made[0]) alloc] init] autorelease];
    [descriptor setInputFeatureChannels:std::stoul(made[1])];
    [descriptor setOutputFeatureChannels:std::stoul(made[2])];
    set_properties(descriptor, row, layer + ".property.");
    for (const auto &[key, value] : row.arrays)
      if (key.rfind(layer + ".", 0) == 0 && words(key, '.').size() == 2)
        [descriptor setValue:recurrent_source(row, key) forKey:text(key.substr(layer.size() + 1))];
    [all addObject:descriptor];
  }
  return all;
}

/// Return the steps at which a new encode begins, and the end.
inline std::vector<std::size_t> encodes_of(const Row &row, std::size_t steps) {
  std::vector<std::size_t> all = {0};
  for (const long first : integers(row, "splits")) all.push_back(static_cast<std::size_t>(first));
  all.push_back(steps);
  return all;
}

/// Compare `prefix`N.hL and `prefix`N.cL with layer L of state N, for each that the row has.
inline void compare_states(const Row &row, const std::string &prefix, NSArray *states) {
  for (NSUInteger i = 0; i < [states count]; ++i)
    for (NSUInteger layer = 0; layer < 8; ++layer)
      for (const char *part : {"h", "c"}) {
        const std::string key = prefix + std::to_string(i) + "." + part + std::to_string(layer);
        if (row.arrays.count(key) == 0) continue;
        id state = [states objectAtIndex:i], values = nil;
        if ([state isKindOfClass:[MPSRNNRecurrentImageState class]])
          values = *part == 'h' ? [state getRecurrentOutputImageForLayerIndex:layer]
                                : [state getMemoryCellImageForLayerIndex:layer];
        else
          values = *part == 'h' ? [state getRecurrentOutputMatrixForLayerIndex:layer]
                                : [state getMemoryCellMatrixForLayerIndex:layer];
        check(values != nil, row.name + ": there are values for " + key);
        compare(row, key, Calls{row, {}}.read(values));
      }
}

inline void run_matrix_inference(const Row &row, bool twin) {
  MPSRNNMatrixInferenceLayer *kernel =
      [[[MPSRNNMatrixInferenceLayer alloc] initWithDevice:device rnnDescriptors:recurrent_descriptors(row)] autorelease];
  set_properties(kernel, row, "property.");
  if (twin) kernel = archived([[kernel copy] autorelease]);
  const std::string dtype = setting(row, "result.dtype", "float32");
  RowSequence x(row, "x", "", false), y(row, "y", dtype, true), back(row, "back", dtype, true);
  NSMutableArray *states = [NSMutableArray array];
  id<MTLCommandBuffer> buffer = command_buffer();
  if (flag(row, "bidirectional")) {
    [kernel encodeBidirectionalSequenceToCommandBuffer:buffer
                                        sourceSequence:x.matrices
                            destinationForwardMatrices:y.matrices
                           destinationBackwardMatrices:[back.matrices count] == 0 ? nil : back.matrices];
  } else {
    const auto encodes = encodes_of(row, x.shapes.size());
    for (std::size_t i = 0; i + 1 < encodes.size(); ++i) {
      const std::size_t first = encodes[i], count = encodes[i + 1] - first;
      if (flag(row, "offsets"))
        [kernel encodeSequenceToCommandBuffer:buffer
                               sourceMatrices:x.part(first, count)
                                sourceOffsets:x.offsets_from(first)
                          destinationMatrices:y.part(first, count)
                           destinationOffsets:y.offsets_from(first)
                          recurrentInputState:[states lastObject]
                        recurrentOutputStates:states];
      else
        [kernel encodeSequenceToCommandBuffer:buffer
                               sourceMatrices:x.part(first, count)
                          destinationMatrices:y.part(first, count)
                          recurrentInputState:[states lastObject]
                        recurrentOutputStates:flag(row, "discards") ? nil : states];
    }
  }
  if ([kernel recurrentOutputIsTemporary]) {
    [[states lastObject] setReadCount:0];
    states = [NSMutableArray array];
  }
  run(buffer);
  for (std::size_t i = 0; i < y.shapes.size(); ++i) compare(row, "y" + std::to_string(i), y.values(i));
  for (std::size_t i = 0; i < back.shapes.size(); ++i) compare(row, "back" + std::to_string(i), back.values(i));
  compare_states(row, "state", states);
}

/// Images of the steps; results are filled with 0x7f.
inline NSArray<MPSImage *> *image_steps(const Row &row, const std::string &name, bool is_result) {
  NSMutableArray *all = [NSMutableArray array];
  for (int i = 0; array(row, name + std::to_string(i)) != nullptr; ++i) {
    const std::string key = name + std::to_string(i);
    [all addObject:is_result ? filled_images(row.arrays.at(key).shape, setting(row, "result.dtype", "float32"), As::one)
                             : source_images(row, key, As::one)];
  }
  return all;
}

inline void run_image_inference(const Row &row, bool twin) {
  MPSRNNImageInferenceLayer *kernel =
      [[[MPSRNNImageInferenceLayer alloc] initWithDevice:device rnnDescriptors:recurrent_descriptors(row)] autorelease];
  set_properties(kernel, row, "property.");
  if (twin) kernel = archived([[kernel copy] autorelease]);
  NSArray *x = image_steps(row, "x", false), *y = image_steps(row, "y", true), *back = image_steps(row, "back", true);
  NSMutableArray *states = [NSMutableArray array];
  id<MTLCommandBuffer> buffer = command_buffer();
  if (flag(row, "bidirectional")) {
    [kernel encodeBidirectionalSequenceToCommandBuffer:buffer
                                        sourceSequence:x
                              destinationForwardImages:y
                             destinationBackwardImages:[back count] == 0 ? nil : back];
  } else {
    const auto encodes = encodes_of(row, [x count]);
    for (std::size_t i = 0; i + 1 < encodes.size(); ++i) {
      const NSRange range = NSMakeRange(encodes[i], encodes[i + 1] - encodes[i]);
      [kernel encodeSequenceToCommandBuffer:buffer
                               sourceImages:[x subarrayWithRange:range]
                          destinationImages:[y subarrayWithRange:range]
                        recurrentInputState:[states lastObject]
                      recurrentOutputStates:states];
    }
  }
  run(buffer);
  for (NSUInteger i = 0; i < [y count]; ++i)
    compare(row, "y" + std::to_string(i), Calls{row, {}}.read([y objectAtIndex:i]));
  for (NSUInteger i = 0; i < [back count]; ++i)
    compare(row, "back" + std::to_string(i), Calls{row, {}}.read([back objectAtIndex:i]));
  compare_states(row, "state", states);
}

/// Matrix ids by the names of the data sources; biases after a dot.
inline const std::map<std::string, MPSRNNMatrixId> &matrix_ids(const std::string &kind) {
  static const std::map<std::string, std::map<std::string, MPSRNNMatrixId>> kAll = {
      {"MPSRNNSingleGateDescriptor",
       {{"inputWeights", MPSRNNMatrixIdSingleGateInputWeights},
        {"recurrentWeights", MPSRNNMatrixIdSingleGateRecurrentWeights},
        {"inputWeights.bias", MPSRNNMatrixIdSingleGateBiasTerms}}},
      {"MPSLSTMDescriptor",
       {{"inputGateInputWeights", MPSRNNMatrixIdLSTMInputGateInputWeights},
        {"inputGateRecurrentWeights", MPSRNNMatrixIdLSTMInputGateRecurrentWeights},
        {"inputGateMemoryWeights", MPSRNNMatrixIdLSTMInputGateMemoryWeights},
        {"inputGateInputWeights.bias", MPSRNNMatrixIdLSTMInputGateBiasTerms},
        {"forgetGateInputWeights", MPSRNNMatrixIdLSTMForgetGateInputWeights},
        {"forgetGateRecurrentWeights", MPSRNNMatrixIdLSTMForgetGateRecurrentWeights},
        {"forgetGateMemoryWeights", MPSRNNMatrixIdLSTMForgetGateMemoryWeights},
        {"forgetGateInputWeights.bias", MPSRNNMatrixIdLSTMForgetGateBiasTerms},
        {"cellGateInputWeights", MPSRNNMatrixIdLSTMMemoryGateInputWeights},
        {"cellGateRecurrentWeights", MPSRNNMatrixIdLSTMMemoryGateRecurrentWeights},
        {"cellGateMemoryWeights", MPSRNNMatrixIdLSTMMemoryGateMemoryWeights},
        {"cellGateInputWeights.bias", MPSRNNMatrixIdLSTMMemoryGateBiasTerms},
        {"outputGateInputWeights", MPSRNNMatrixIdLSTMOutputGateInputWeights},
        {"outputGateRecurrentWeights", MPSRNNMatrixIdLSTMOutputGateRecurrentWeights},
        {"outputGateMemoryWeights", MPSRNNMatrixIdLSTMOutputGateMemoryWeights},
        {"outputGateInputWeights.bias", MPSRNNMatrixIdLSTMOutputGateBiasTerms}}},
      {"MPSGRUDescriptor",
       {{"inputGateInputWeights", MPSRNNMatrixIdGRUInputGateInputWeights},
        {"inputGateRecurrentWeights", MPSRNNMatrixIdGRUInputGateRecurrentWeights},
        {"inputGateInputWeights.bias", MPSRNNMatrixIdGRUInputGateBiasTerms},
        {"recurrentGateInputWeights", MPSRNNMatrixIdGRURecurrentGateInputWeights},
        {"recurrentGateRecurrentWeights", MPSRNNMatrixIdGRURecurrentGateRecurrentWeights},
        {"recurrentGateInputWeights.bias", MPSRNNMatrixIdGRURecurrentGateBiasTerms},
        {"outputGateInputWeights", MPSRNNMatrixIdGRUOutputGateInputWeights},
        {"outputGateRecurrentWeights", MPSRNNMatrixIdGRUOutputGateRecurrentWeights},
        {"outputGateInputGateWeights", MPSRNNMatrixIdGRUOutputGateInputGateWeights},
        {"outputGateInputWeights.bias", MPSRNNMatrixIdGRUOutputGateBiasTerms}}}};
  return kAll.at(kind);
}

/// Forward and gradient of the whole sequence, in as many encodes as `splits` says; then the gradients of each weight,
/// by its id, against `gradient.`NAME.
inline void run_training(const Row &row, bool twin) {
  NSMutableArray<MPSMatrix *> *weights = [NSMutableArray array], *gradients = [NSMutableArray array];
  MPSRNNDescriptor *descriptor = [recurrent_descriptors(row) objectAtIndex:0];
  MPSRNNMatrixTrainingLayer *kernel = [[[MPSRNNMatrixTrainingLayer alloc] initWithDevice:device
                                                                           rnnDescriptor:descriptor
                                                                        trainableWeights:weights] autorelease];
  set_properties(kernel, row, "property.");
  if (twin) kernel = archived([[kernel copy] autorelease]);
  const std::string dtype = setting(row, "result.dtype", "float32");
  RowSequence x(row, "x", "", false), y(row, "y", dtype, true);
  RowSequence dy(row, "dy", "", false), dx(row, "dx", dtype, true);
  [kernel createWeightGradientMatrices:gradients
                              dataType:setting(row, "gradient.dtype") == "float16" ? MPSDataTypeFloat16
                                                                                   : MPSDataTypeFloat32];
  const std::size_t steps = x.shapes.size();
  const auto encodes = encodes_of(row, steps);
  NSMutableArray *training = [NSMutableArray array], *states = [NSMutableArray array];
  NSMutableArray *carried = [NSMutableArray array];
  const bool is_short = flag(row, "short_forms");
  for (long pass = 0; pass < std::stol(setting(row, "passes", "1")); ++pass) {
    [training removeAllObjects], [states removeAllObjects], [carried removeAllObjects];
    id<MTLCommandBuffer> buffer = command_buffer();
    for (std::size_t i = 0; i + 1 < encodes.size(); ++i) {
      const std::size_t first = encodes[i], count = encodes[i + 1] - first;
      if (is_short)
        [kernel encodeForwardSequenceToCommandBuffer:buffer
                                      sourceMatrices:x.part(first, count)
                                 destinationMatrices:y.part(first, count)
                                      trainingStates:training
                                             weights:weights];
      else
        [kernel encodeForwardSequenceToCommandBuffer:buffer
                                      sourceMatrices:x.part(first, count)
                                       sourceOffsets:x.offsets_from(first)
                                 destinationMatrices:y.part(first, count)
                                  destinationOffsets:y.offsets_from(first)
                                      trainingStates:training
                                 recurrentInputState:[states lastObject]
                               recurrentOutputStates:states
                                             weights:weights];
    }
    check([training count] == steps, row.name + ": a training state for each step");
    for (std::size_t i = encodes.size() - 1; i-- > 0;) {
      const std::size_t first = encodes[i], count = encodes[i + 1] - first;
      NSArray *part = [training subarrayWithRange:NSMakeRange(first, count)];
      NSMutableArray *next = [NSMutableArray array];
      if (is_short)
        [kernel encodeGradientSequenceToCommandBuffer:buffer
                                       forwardSources:x.part(first, count)
                                      sourceGradients:dy.part(first, count)
                                 destinationGradients:[dx.matrices count] == 0 ? nil : dx.part(first, count)
                                      weightGradients:gradients
                                       trainingStates:part
                                              weights:weights];
      else
        [kernel encodeGradientSequenceToCommandBuffer:buffer
                                       forwardSources:x.part(first, count)
                                 forwardSourceOffsets:x.offsets_from(first)
                                      sourceGradients:dy.part(first, count)
                                sourceGradientOffsets:dy.offsets_from(first)
                                 destinationGradients:dx.part(first, count)
                                   destinationOffsets:dx.offsets_from(first)
                                      weightGradients:gradients
                                       trainingStates:part
                                  recurrentInputState:[carried count] == 0 ? nil : [carried objectAtIndex:0]
                                recurrentOutputStates:next
                                              weights:weights];
      [carried replaceObjectsInRange:NSMakeRange(0, 0) withObjectsFromArray:next];
    }
    if ([kernel recurrentOutputIsTemporary]) {
      for (MPSState *state in [states arrayByAddingObjectsFromArray:carried]) [state setReadCount:0];
      [states removeAllObjects], [carried removeAllObjects];
    }
    run(buffer);
  }
  for (std::size_t i = 0; i < steps; ++i) {
    compare(row, "y" + std::to_string(i), y.values(i));
    if ([dx.matrices count] != 0) compare(row, "dx" + std::to_string(i), dx.values(i));
  }
  compare_states(row, "state", states);
  compare_states(row, "carried", carried);

  id<MTLCommandBuffer> buffer = command_buffer();
  std::map<std::string, MPSMatrix *> copies;
  for (const auto &[key, value] : row.arrays) {
    if (key.rfind("gradient.", 0) != 0) continue;
    Array nan = value;
    nan.dtype = "float32";
    nan.bytes.assign(static_cast<std::size_t>(nan.size()) * 4, std::byte{0xff});
    copies[key] = make_matrix(nan);
    [kernel encodeCopyWeightsToCommandBuffer:buffer
                                     weights:gradients
                                    matrixId:matrix_ids(words(setting(row, "layer0"))[0]).at(key.substr(9))
                                      matrix:copies[key]
                     copyFromWeightsToMatrix:YES
                                matrixOffset:{0, 0, 0}];
  }
  run(buffer);
  for (const auto &[key, matrix] : copies) compare(row, key, Calls{row, {}}.read(matrix));
}

inline void run_recurrent(const Row &row, bool twin) {
  const std::string kind = setting(row, "recurrent");
  if (kind == "matrix")
    run_matrix_inference(row, twin);
  else if (kind == "image")
    run_image_inference(row, twin);
  else
    run_training(row, twin);
}

// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: descriptors, data sources, states, weights, refused calls, lifetimes. Values are in
// tests/rows/objc_recurrent.py. Prints "N passed, N failed".

#import "mps_test.hh"

#include <algorithm>
#include <cstdlib>
#include <set>

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

namespace {

using States = NSMutableArray<MPSRNNRecurrentMatrixState *>;
using Matrices = NSMutableArray<MPSMatrix *>;

TestSource *source_of(NSUInteger inputs, NSUInteger outputs, unsigned seed = 1) {
  MPSCNNConvolutionDescriptor *descriptor = descriptor_of(1, 1, inputs, outputs);
  [descriptor setFusedNeuronDescriptor:[MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeSigmoid]];
  return make_source(descriptor, random_values(inputs * outputs, seed), random_values(outputs, seed + 1));
}

MPSRNNSingleGateDescriptor *single(NSUInteger inputs, NSUInteger outputs) {
  MPSRNNSingleGateDescriptor *made =
      [MPSRNNSingleGateDescriptor createRNNSingleGateDescriptorWithInputFeatureChannels:inputs
                                                                  outputFeatureChannels:outputs];
  [made setInputWeights:source_of(inputs, outputs, 3)];
  [made setRecurrentWeights:source_of(outputs, outputs, 5)];
  return made;
}

MPSLSTMDescriptor *lstm(NSUInteger inputs, NSUInteger outputs) {
  MPSLSTMDescriptor *made = [MPSLSTMDescriptor createLSTMDescriptorWithInputFeatureChannels:inputs
                                                                      outputFeatureChannels:outputs];
  unsigned seed = 10;
  for (NSString *gate in @[ @"inputGate", @"forgetGate", @"outputGate", @"cellGate" ]) {
    [made setValue:source_of(inputs, outputs, seed++) forKey:[gate stringByAppendingString:@"InputWeights"]];
    [made setValue:source_of(outputs, outputs, seed++) forKey:[gate stringByAppendingString:@"RecurrentWeights"]];
    [made setValue:source_of(outputs, outputs, seed++) forKey:[gate stringByAppendingString:@"MemoryWeights"]];
  }
  return made;
}

MPSRNNMatrixInferenceLayer *layer_of(NSArray<MPSRNNDescriptor *> *descriptors) {
  return [[[MPSRNNMatrixInferenceLayer alloc] initWithDevice:device rnnDescriptors:descriptors] autorelease];
}
MPSRNNMatrixInferenceLayer *layer_of(MPSRNNDescriptor *descriptor) {
  return [[[MPSRNNMatrixInferenceLayer alloc] initWithDevice:device rnnDescriptor:descriptor] autorelease];
}

MPSRNNImageInferenceLayer *image_layer_of(MPSRNNDescriptor *descriptor) {
  return [[[MPSRNNImageInferenceLayer alloc] initWithDevice:device rnnDescriptor:descriptor] autorelease];
}

MPSMatrixDescriptor *described(NSUInteger rows, NSUInteger columns, MPSDataType type = MPSDataTypeFloat32,
                               NSUInteger matrices = 1) {
  const NSUInteger row_bytes = columns * (type == MPSDataTypeFloat16 ? 2 : 4);
  return [MPSMatrixDescriptor matrixDescriptorWithRows:rows
                                               columns:columns
                                              matrices:matrices
                                              rowBytes:row_bytes
                                           matrixBytes:rows * row_bytes
                                              dataType:type];
}

MPSMatrix *matrix(NSUInteger rows, NSUInteger columns, MPSDataType type = MPSDataTypeFloat32, NSUInteger matrices = 1) {
  MPSMatrix *made = [[[MPSMatrix alloc] initWithDevice:device
                                            descriptor:described(rows, columns, type, matrices)] autorelease];
  float *values = static_cast<float *>([[made data] contents]);
  if (type == MPSDataTypeFloat32)
    for (NSUInteger i = 0; i < rows * columns; ++i) values[i] = static_cast<float>(i % 7) / 8;
  [[made data] didModifyRange:NSMakeRange(0, [[made data] length])];  // on a Mac it may be managed
  return made;
}

/// Synchronize a matrix or an image that kernels wrote: its storage may be managed. Return it.
template <class Resource>
Resource *synchronized(Resource *resource) {
  id<MTLCommandBuffer> buffer = command_buffer();
  [resource synchronizeOnCommandBuffer:buffer];
  run(buffer);
  return resource;
}

std::vector<float> values_of(MPSMatrix *matrix) {
  synchronized(matrix);
  const float *values = static_cast<const float *>([[matrix data] contents]);
  return std::vector<float>(values, values + [matrix rows] * [matrix columns]);
}

Matrices *matrices(std::initializer_list<NSUInteger> rows, NSUInteger columns) {
  Matrices *all = [NSMutableArray array];
  for (const NSUInteger count : rows) [all addObject:matrix(count, columns)];
  return all;
}

void encode(MPSRNNMatrixInferenceLayer *layer, id<MTLCommandBuffer> buffer, NSArray *sources, NSArray *results,
            MPSRNNRecurrentMatrixState *input = nil, States *outputs = nil) {
  [layer encodeSequenceToCommandBuffer:buffer
                        sourceMatrices:sources
                   destinationMatrices:results
                   recurrentInputState:input
                 recurrentOutputStates:outputs];
}

// ------------------------------------------------------------------------------------------------- descriptors

void test_descriptors() {
  MPSRNNSingleGateDescriptor *one =
      [MPSRNNSingleGateDescriptor createRNNSingleGateDescriptorWithInputFeatureChannels:3 outputFeatureChannels:4];
  check([one inputFeatureChannels] == 3 && [one outputFeatureChannels] == 4, "channels");
  check(![one useLayerInputUnitTransformMode] && ![one useFloat32Weights] &&
            [one layerSequenceDirection] == MPSRNNSequenceDirectionForward,
        "defaults of all descriptors");
  check([one inputWeights] == nil && [one recurrentWeights] == nil, "no data sources");
  [one setUseFloat32Weights:YES];
  [one setUseLayerInputUnitTransformMode:YES];
  [one setLayerSequenceDirection:MPSRNNSequenceDirectionBackward];
  check([one useFloat32Weights] && [one useLayerInputUnitTransformMode] &&
            [one layerSequenceDirection] == MPSRNNSequenceDirectionBackward,
        "set properties");

  MPSGRUDescriptor *gru = [MPSGRUDescriptor createGRUDescriptorWithInputFeatureChannels:1 outputFeatureChannels:2];
  check([gru gatePnormValue] == 1 && ![gru flipOutputGates] && [gru isKindOfClass:[MPSRNNDescriptor class]], "a GRU");
  MPSLSTMDescriptor *lstm = [MPSLSTMDescriptor createLSTMDescriptorWithInputFeatureChannels:1 outputFeatureChannels:2];
  check(![lstm memoryWeightsAreDiagonal] && [lstm cellToOutputNeuronType] == MPSCNNNeuronTypeTanH &&
            [lstm cellToOutputNeuronParamA] == 1 && [lstm cellToOutputNeuronParamB] == 1 &&
            [lstm cellToOutputNeuronParamC] == 1,
        "an LSTM");

  // Each property has a data source of its own, which is retained.
  const auto check_sources = [](MPSRNNDescriptor *descriptor, NSArray<NSString *> *names) {
    std::vector<TestSource *> sources;
    for (NSString *name in names) {
      check([descriptor valueForKey:name] == nil, std::string([name UTF8String]) + " is nil by default");
      TestSource *source = [[TestSource alloc] init];
      [descriptor setValue:source forKey:name];
      check([source retainCount] == 2, std::string([name UTF8String]) + " is retained");
      sources.push_back(source);
    }
    std::size_t next = 0;
    for (NSString *name in names) {
      check([descriptor valueForKey:name] == sources[next], std::string([name UTF8String]) + " is its own");
      [descriptor setValue:nil forKey:name];
      check([sources[next] retainCount] == 1, std::string([name UTF8String]) + " is released");
      [sources[next++] release];
    }
  };
  check_sources(one, @[ @"inputWeights", @"recurrentWeights" ]);
  check_sources(gru, @[ @"inputGateInputWeights", @"inputGateRecurrentWeights", @"recurrentGateInputWeights",
                      @"recurrentGateRecurrentWeights", @"outputGateInputWeights", @"outputGateRecurrentWeights",
                      @"outputGateInputGateWeights" ]);
  check_sources(lstm, @[ @"inputGateInputWeights", @"inputGateRecurrentWeights", @"inputGateMemoryWeights",
                       @"forgetGateInputWeights", @"forgetGateRecurrentWeights", @"forgetGateMemoryWeights",
                       @"outputGateInputWeights", @"outputGateRecurrentWeights", @"outputGateMemoryWeights",
                       @"cellGateInputWeights", @"cellGateRecurrentWeights", @"cellGateMemoryWeights" ]);
}

void test_data_sources() {
  MPSRNNSingleGateDescriptor *descriptor = single(3, 4);
  TestSource *input = static_cast<TestSource *>([descriptor inputWeights]);
  TestSource *recurrent = static_cast<TestSource *>([descriptor recurrentWeights]);
  check(layer_of(descriptor) != nil && input->loads == 1 && input->purges == 1 && recurrent->loads == 1 &&
            recurrent->purges == 1,
        "each data source is loaded and purged once");
  recurrent->refuses_load = YES;
  check(layer_of(descriptor) == nil && input->purges == 2 && recurrent->purges == 1, "a data source does not load");
  recurrent->refuses_load = NO;
  recurrent->raises_in_weights = YES;
  check_raises("an exception of a data source", @"TestException", "from the data source", [&] { layer_of(descriptor); });
  check(recurrent->purges == 2, "which is purged");
  recurrent->raises_in_weights = NO;

  const auto refused = [&](const char *part, const std::function<void()> &change, const std::function<void()> &undo) {
    change();
    check_raises(part, kArgument, part, [&] { layer_of(descriptor); });
    undo();
  };
  refused("The weights of recurrentWeights are NULL", [&] { recurrent->has_no_weights = YES; },
          [&] { recurrent->has_no_weights = NO; });
  refused("The dataType (0x8) of recurrentWeights is neither Float32 nor Float16",
          [&] { recurrent->type = MPSDataTypeUInt8; }, [&] { recurrent->type = MPSDataTypeFloat32; });
  MPSCNNConvolutionDescriptor *good = recurrent->descriptor;
  const auto with = [&](const char *part, MPSCNNConvolutionDescriptor *bad) {
    refused(part, [&] { recurrent->descriptor = bad; }, [&] { recurrent->descriptor = good; });
  };
  with("The descriptor of recurrentWeights is nil", nil);
  with("recurrentWeights has 3 inputFeatureChannels and 4 outputFeatureChannels, expected 4 and 4",
       descriptor_of(1, 1, 3, 4));
  with("recurrentWeights has a kernel of 2 x 3 pixels (width x height), expected 1 x 1", descriptor_of(3, 2, 4, 4));
  MPSCNNConvolutionDescriptor *strided = descriptor_of(1, 1, 4, 4);
  [strided setStrideInPixelsX:2];
  with("recurrentWeights has strides of 2 x 1", strided);
  MPSCNNConvolutionDescriptor *grouped = descriptor_of(1, 1, 4, 4);
  [grouped setGroups:2];
  with("2 groups", grouped);
  const float ones[] = {1, 1, 1, 1};
  MPSCNNConvolutionDescriptor *normalized = descriptor_of(1, 1, 4, 4);
  [normalized setBatchNormalizationParametersForInferenceWithMean:ones variance:ones gamma:ones beta:ones epsilon:0];
  with("recurrentWeights has batch-normalization parameters, which only input weights take", normalized);

  check_raises("no descriptor", kArgument, "There is no rnnDescriptor", [] { layer_of((MPSRNNDescriptor *)nil); });
  check_raises("no descriptors", kArgument, "There is no rnnDescriptor", [] { layer_of(@[]); });
  check_raises("another class", kArgument, "An rnnDescriptor is of class", [] { layer_of((NSArray *)@[ @"x" ]); });
  check_raises("the base class", kArgument, "not of one of its subclasses",
               [] { layer_of([[[MPSRNNDescriptor alloc] init] autorelease]); });
  check_raises("without a descriptor", kArgument, "is unavailable",
               [] { [(id)[MPSRNNMatrixInferenceLayer alloc] initWithDevice:device]; });
  check_raises("no inputs", kArgument, "inputFeatureChannels (0) is not between 1 and", [] { layer_of(single(0, 4)); });
  [descriptor setUseLayerInputUnitTransformMode:YES];
  check_raises("unit transform", kArgument, "inputFeatureChannels (3) is not outputFeatureChannels (4)",
               [&] { layer_of(descriptor); });
  MPSGRUDescriptor *gru = [MPSGRUDescriptor createGRUDescriptorWithInputFeatureChannels:1 outputFeatureChannels:2];
  [gru setGatePnormValue:0];
  check_raises("p-norm", kArgument, "gatePnormValue (0) is not greater than 0", [&] { layer_of(gru); });
  MPSLSTMDescriptor *steps = lstm(1, 2);
  [steps setCellToOutputNeuronType:MPSCNNNeuronTypePReLU];
  check_raises("PReLU of the cell", kArgument, "cellToOutputNeuronType is PReLU", [&] { layer_of(steps); });
}

// ----------------------------------------------------------------------------------------------- matrix inference

void test_properties() {
  NSArray *descriptors = @[ single(3, 4), lstm(4, 6) ];
  MPSRNNMatrixInferenceLayer *layer = layer_of(descriptors);
  check([layer inputFeatureChannels] == 3 && [layer outputFeatureChannels] == 6 && [layer numberOfLayers] == 2,
        "channels and layers");
  check(![layer recurrentOutputIsTemporary] && ![layer storeAllIntermediateStates] &&
            [layer bidirectionalCombineMode] == MPSRNNBidirectionalCombineModeNone,
        "defaults of a stack");
  [layer setRecurrentOutputIsTemporary:YES];
  [layer setStoreAllIntermediateStates:YES];
  [layer setBidirectionalCombineMode:MPSRNNBidirectionalCombineModeConcatenate];
  for (MPSRNNMatrixInferenceLayer *twin in @[ [[layer copy] autorelease], archived(layer) ])
    check([twin recurrentOutputIsTemporary] && [twin storeAllIntermediateStates] &&
              [twin bidirectionalCombineMode] == MPSRNNBidirectionalCombineModeConcatenate &&
              [twin numberOfLayers] == 2 && [twin inputFeatureChannels] == 3,
          "a twin of a stack");
}

void test_refused_sequences() {
  MPSRNNMatrixInferenceLayer *layer = layer_of(single(3, 4));
  const auto refused = [&](const char *part, NSArray *sources, NSArray *results,
                           MPSRNNRecurrentMatrixState *input = nil) {
    check_raises(part, kArgument, part, [&] { encode(layer, command_buffer(), sources, results, input); });
  };
  NSArray *good = matrices({2, 2}, 3), *results = matrices({2, 2}, 4);
  refused("sourceMatrices has no matrices", nil, results);
  refused("sourceMatrices has no matrices", @[], results);
  refused("destinationMatrices has 1 matrices, expected 2 as in the sources", good, matrices({2}, 4));
  refused("sourceMatrices[1] has 3 rows, more than the 2 rows before", matrices({2, 3}, 3), matrices({2, 3}, 4));
  refused("destinationMatrices[1] has 1 rows, less than the 2 rows of the sources", good, matrices({2, 1}, 4));
  refused("sourceMatrices[0] has 2 columns from column 0 on, less than the layer's 3 feature channels",
          matrices({2, 2}, 2), results);
  refused("destinationMatrices[1].dataType (0x20) is not MPSDataTypeFloat32",
          good, @[ matrix(2, 4), matrix(2, 4, MPSDataTypeUInt32) ]);
  refused("sourceMatrices[0].matrices (2) is not 1", @[ matrix(2, 3, MPSDataTypeFloat32, 2) ], matrices({2}, 4));
  MPSMatrix *shared = matrix(2, 4);
  refused("sourceMatrices[0] and destinationMatrices[0] share memory", @[ shared ], @[ shared ]);

  NSUInteger offsets[] = {4, 4};
  const auto refused_at = [&](const char *part, NSUInteger first, NSArray *sources) {
    offsets[0] = first;
    check_raises(part, kArgument, part, [&] {
      [layer encodeSequenceToCommandBuffer:command_buffer()
                            sourceMatrices:sources
                             sourceOffsets:offsets
                       destinationMatrices:matrices({2}, 4)
                        destinationOffsets:NULL
                       recurrentInputState:nil
                     recurrentOutputStates:nil];
    });
  };
  refused_at("The offset (2) of sourceMatrices[0] is not a multiple of the size of an element (4)", 2, @[ matrix(2, 5) ]);
  refused_at("sourceMatrices[0] has 2 columns from column 3 on", 12, @[ matrix(2, 5) ]);
  refused_at("sourceMatrices[0] ends beyond its buffer", 20, @[ matrix(2, 5) ]);

  States *states = [NSMutableArray array];
  encode(layer, command_buffer(), good, results, nil, states);
  refused("recurrentInputState has 2 rows, less than the 3 rows", matrices({3}, 3), matrices({3}, 4),
          [states objectAtIndex:0]);
  States *others = [NSMutableArray array];
  encode(layer_of(lstm(3, 4)), command_buffer(), good, results, nil, others);
  refused("Layer 0 of recurrentInputState has 4 channels and a memory cell, expected 4 and none", good, results,
          [others objectAtIndex:0]);
  encode(layer_of(@[ single(3, 4), single(4, 4) ]), command_buffer(), good, results, nil, others);
  refused("recurrentInputState has 2 layers, expected 1", good, results, [others lastObject]);
  MPSRNNRecurrentMatrixState *own = [[[MPSRNNRecurrentMatrixState alloc] initWithDevice:device bufferSize:4] autorelease];
  check([own getRecurrentOutputMatrixForLayerIndex:0] == nil, "a state that no layer made is empty");
  check_raises("an own state", kUsage, "only a layer can make it",
               [&] { encode(layer, command_buffer(), good, results, own); });
  check_raises("a chain", kArgument, "Layer 1 has 5 inputFeatureChannels, and the layer before it has 4 outputs",
               [&] { encode(layer_of(@[ single(3, 4), single(5, 4) ]), command_buffer(), good, results); });
}

void test_states() {
  MPSRNNMatrixInferenceLayer *layer = layer_of(@[ single(3, 4), lstm(4, 5) ]);
  NSArray *sources = matrices({2, 2, 1}, 3), *results = matrices({2, 2, 1}, 5);
  States *states = [NSMutableArray array];
  id<MTLCommandBuffer> buffer = command_buffer();
  encode(layer, buffer, sources, results, nil, states);
  check([states count] == 1, "the last state alone");
  MPSRNNRecurrentMatrixState *state = [states objectAtIndex:0];
  check(![state isTemporary] && [state resourceCount] == 3 && [state resourceSize] >= (2 * 4 + 4 * 5) * sizeof(float),
        "resources of a state");
  MPSMatrix *output = [state getRecurrentOutputMatrixForLayerIndex:1], *cell = [state getMemoryCellMatrixForLayerIndex:1];
  check([output rows] == 2 && [output columns] == 5 && [output dataType] == MPSDataTypeFloat32, "an output");
  check([cell rows] == 2 && [cell columns] == 5 && cell != output, "a memory cell");
  check(output == [state getRecurrentOutputMatrixForLayerIndex:1], "the same object each time");
  check([[state getRecurrentOutputMatrixForLayerIndex:0] columns] == 4 &&
            [state getMemoryCellMatrixForLayerIndex:0] == nil,
        "a layer without a memory cell");
  check([state getRecurrentOutputMatrixForLayerIndex:2] == nil && [state getMemoryCellMatrixForLayerIndex:2] == nil,
        "no such layer");
  [layer setStoreAllIntermediateStates:YES];
  encode(layer, buffer, sources, results, state, states);
  check([states count] == 4, "all states are appended");
  run(buffer);
  const auto last = values_of([[states lastObject] getRecurrentOutputMatrixForLayerIndex:1]);
  const auto result = values_of([results objectAtIndex:2]);
  check(std::equal(result.begin(), result.end(), last.begin()), "the last output is the result");

  // Temporary states live on one command buffer and are read once.
  [layer setRecurrentOutputIsTemporary:YES];
  [layer setStoreAllIntermediateStates:NO];
  buffer = command_buffer();
  [states removeAllObjects];
  encode(layer, buffer, sources, results, nil, states);
  state = [states objectAtIndex:0];
  check([state isTemporary] && [state readCount] == 1, "a temporary state");
  check_raises("another command buffer", kUsage, "belongs to another command buffer",
               [&] { encode(layer, command_buffer(), sources, results, state); });
  if (const char *rules = std::getenv("MPSCNN_DEVICE"); rules == nullptr || std::string(rules) != "apple")
    check_raises("unread", kUsage, "readCount 1", [&] { [buffer commit]; });  // Apple's devices only check freed ones
  [layer setRecurrentOutputIsTemporary:NO];
  encode(layer, buffer, sources, results, state);
  check([state readCount] == 0 && [state getRecurrentOutputMatrixForLayerIndex:0] == nil, "a state that was read");
  check_raises("read twice", kUsage, "a temporary one is empty once it has been read",
               [&] { encode(layer, buffer, sources, results, state); });
  run(buffer);
}

/// Each temporary source is read once per encode, also if it is that of several steps.
void test_temporary_sources() {
  MPSRNNMatrixInferenceLayer *layer = layer_of(single(3, 4));
  id<MTLCommandBuffer> buffer = command_buffer();
  const auto temporary = [&](NSUInteger columns) {
    return [MPSTemporaryMatrix temporaryMatrixWithCommandBuffer:buffer matrixDescriptor:described(2, columns)];
  };
  MPSTemporaryMatrix *source = temporary(3), *result = temporary(4);
  MPSMatrixRandomPhilox *random = [[[MPSMatrixRandomPhilox alloc] initWithDevice:device
                                                             destinationDataType:MPSDataTypeFloat32
                                                                            seed:5] autorelease];
  [random encodeToCommandBuffer:buffer destinationMatrix:source];
  encode(layer, buffer, @[ source, source ], @[ result, matrix(2, 4) ]);
  check([source readCount] == 0 && [result readCount] == 1, "the source is read, the result is not");
  MPSMatrix *last = matrix(2, 4);
  encode(layer_of(single(4, 4)), buffer, @[ result ], @[ last ]);
  run(buffer);
  check(values_of(last)[7] != 0.0f, "temporary results have values");
}

/// Return the number of live matrices and states.
int alive() {
  return GSDebugAllocationCount([MPSMatrix class]) + GSDebugAllocationCount([MPSRNNRecurrentMatrixState class]) +
         GSDebugAllocationCount([MPSRNNMatrixTrainingState class]);
}

/// The kernel, its sources and its states may be released before the command buffer runs.
void test_lifetimes() {
  MPSMatrix *result = matrix(2, 4), *again = matrix(2, 4);
  id<MTLCommandBuffer> buffer = command_buffer();
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  const int before = alive();
  MPSRNNSingleGateDescriptor *descriptor = single(3, 4);
  for (MPSMatrix *into in @[ result, again ]) {
    MPSRNNMatrixInferenceLayer *layer = layer_of(descriptor);
    // A later change of the descriptor does not change the layer.
    [descriptor setInputWeights:nil];
    [descriptor setInputWeights:source_of(3, 4, 3)];
    States *states = [NSMutableArray array];
    encode(layer, buffer, matrices({2}, 3), matrices({2}, 4), nil, states);
    encode(layer, buffer, matrices({2}, 3), @[ into ], [states lastObject], nil);
  }
  Matrices *weights = [NSMutableArray array];
  NSMutableArray *training = [NSMutableArray array];
  MPSRNNMatrixTrainingLayer *trained = [[[MPSRNNMatrixTrainingLayer alloc] initWithDevice:device
                                                                            rnnDescriptor:(MPSRNNDescriptor *)lstm(3, 4)
                                                                         trainableWeights:weights] autorelease];
  [trained encodeForwardSequenceToCommandBuffer:buffer
                                 sourceMatrices:matrices({2, 2}, 3)
                            destinationMatrices:matrices({2, 2}, 4)
                                 trainingStates:training
                                        weights:weights];
  check(alive() > before + 2, "matrices and states are counted");
  [pool drain];
  check(alive() == before, "no matrix and no state is left");
  run(buffer);
  check(values_of(result) == values_of(again) && values_of(result)[0] > 0, "both layers compute the same");
}

// -------------------------------------------------------------------------------------------------- bidirectional

void test_refused_directions() {
  MPSRNNSingleGateDescriptor *back = single(3, 4), *wide = single(3, 5), *long_back = single(4, 4);
  for (MPSRNNDescriptor *each in @[ back, wide, long_back ])
    [each setLayerSequenceDirection:MPSRNNSequenceDirectionBackward];
  NSArray *sources = matrices({2, 2}, 3);
  const auto refused = [&](const char *part, NSArray *descriptors, MPSRNNBidirectionalCombineMode mode,
                           NSArray *forward, NSArray *backward) {
    MPSRNNMatrixInferenceLayer *layer = layer_of(descriptors);
    [layer setBidirectionalCombineMode:mode];
    check_raises(part, kArgument, part, [&] {
      [layer encodeBidirectionalSequenceToCommandBuffer:command_buffer()
                                         sourceSequence:sources
                             destinationForwardMatrices:forward
                            destinationBackwardMatrices:backward];
    });
  };
  NSArray *four = matrices({2, 2}, 4), *more = matrices({2, 2}, 4);
  constexpr auto kNone = MPSRNNBidirectionalCombineModeNone, kAdd = MPSRNNBidirectionalCombineModeAdd;
  refused("no layer with layerSequenceDirection Backward", @[ single(3, 4) ], kNone, four, more);
  refused("no layer with layerSequenceDirection Forward", @[ back ], kNone, four, more);
  refused("which bidirectionalCombineMode Add cannot add", @[ single(3, 4), wide ], kAdd, four, nil);
  refused("bidirectionalCombineMode (7) is not None", @[ single(3, 4), back ],
          static_cast<MPSRNNBidirectionalCombineMode>(7), four, more);
  refused("first forward layer has 3 inputFeatureChannels and the first backward layer 4", @[ single(3, 4), long_back ],
          kNone, four, more);
  refused("destinationBackwardMatrices has no matrices", @[ single(3, 4), back ], kNone, four, nil);
  refused("destinationForwardMatrices[0] has 4 columns", @[ single(3, 4), back ],
          MPSRNNBidirectionalCombineModeConcatenate, four, nil);
}

// ---------------------------------------------------------------------------------------------------------- images

void test_images() {
  MPSLSTMDescriptor *descriptor = lstm(3, 4);
  TestSource *large = make_source(descriptor_of(3, 2, 3, 4), random_values(72, 7), random_values(4, 8));
  [descriptor setInputGateInputWeights:large];
  MPSRNNImageInferenceLayer *layer = image_layer_of(descriptor);
  check([layer isKindOfClass:[MPSCNNKernel class]] && [layer inputFeatureChannels] == 3 &&
            [layer outputFeatureChannels] == 4 && [layer numberOfLayers] == 1,
        "an image layer");
  check_raises("without a descriptor", kArgument, "is unavailable",
               [] { [(id)[MPSRNNImageInferenceLayer alloc] initWithDevice:device]; });
  MPSImage *source = make_image(Tensor::random(1, 5, 6, 3, 1)), *result = make_nan_image(1, 5, 6, 4);
  NSMutableArray<MPSRNNRecurrentImageState *> *states = [NSMutableArray array];
  const auto encode_images = [&](id<MTLCommandBuffer> buffer, MPSImage *from, MPSImage *to,
                                 MPSRNNRecurrentImageState *input = nil) {
    [layer encodeSequenceToCommandBuffer:buffer
                            sourceImages:@[ from ]
                       destinationImages:@[ to ]
                     recurrentInputState:input
                   recurrentOutputStates:states];
  };
  id<MTLCommandBuffer> buffer = command_buffer();
  encode_images(buffer, source, result);
  MPSRNNRecurrentImageState *state = [states objectAtIndex:0];
  MPSImage *output = [state getRecurrentOutputImageForLayerIndex:0], *cell = [state getMemoryCellImageForLayerIndex:0];
  check([output width] == 6 && [output height] == 5 && [output featureChannels] == 4 && cell != nil && cell != output &&
            [state getRecurrentOutputImageForLayerIndex:1] == nil && [state getMemoryCellImageForLayerIndex:1] == nil,
        "images of a state");
  check_raises("read too early", kUsage, "", [&] { read_image(output); });
  run(buffer);
  for (MPSImage *image in @[ output, result, cell ]) synchronized(image);
  check_equal("the output is the result", read_image(output), read_image(result), 0);
  check(distance(read_image(cell), read_image(output)) > 0.01, "the memory cell is another image");

  const auto refused = [&](const char *part, MPSImage *from, MPSImage *to, MPSRNNRecurrentImageState *input = nil) {
    check_raises(part, kArgument, part, [&] { encode_images(command_buffer(), from, to, input); });
  };
  refused("sourceImages[0] has 1 images of 6 x 5 pixels (width x height) and 4 feature channels", result, result);
  refused("destinationImages[0] has 1 images of 5 x 5", source, make_nan_image(1, 5, 5, 4));
  refused("recurrentInputState has images of 6 x 5 pixels (width x height), and the sources 5 x 6",
          make_image(Tensor(1, 6, 5, 3)), make_nan_image(1, 6, 5, 4), state);
  check_equal("a refused result can be read", read_image(result), read_image(output), 0);
  check_raises("one image", kArgument, "The kernel encodes sequences",
               [&] { [layer encodeToCommandBuffer:command_buffer() sourceImage:source destinationImage:result]; });
  [layer setClipRect:MTLRegionMake2D(0, 0, 2, 2)];
  refused("clipRect", source, result);
  [layer setClipRect:MPSRectNoClip];
  [layer setOffset:MPSOffset{1, 0, 0}];
  refused("offset, clipRect", source, result);
  [layer setOffset:MPSOffset{0, 0, 0}];
  [layer setDestinationFeatureChannelOffset:4];
  refused("destinationFeatureChannelOffset (4)", source, result);
  [layer setDestinationFeatureChannelOffset:0];

  [layer setRecurrentOutputIsTemporary:YES];
  [states removeAllObjects];
  buffer = command_buffer();
  encode_images(buffer, source, result);
  state = [states objectAtIndex:0];
  check([state isTemporary] && [state readCount] == 1, "a temporary state of images");
  [layer setRecurrentOutputIsTemporary:NO];
  encode_images(buffer, source, result, state);
  check([state readCount] == 0 && [state getMemoryCellImageForLayerIndex:0] == nil, "which is read once");
  run(buffer);
}

/// Taps outside of the images are zeros or clamped to the edge, by edgeMode.
void test_edges() {
  MPSRNNSingleGateDescriptor *descriptor =
      [MPSRNNSingleGateDescriptor createRNNSingleGateDescriptorWithInputFeatureChannels:1 outputFeatureChannels:1];
  [descriptor setInputWeights:make_source(descriptor_of(3, 3, 1, 1), std::vector<double>(9, 1), {})];
  MPSRNNImageInferenceLayer *layer = image_layer_of(descriptor);
  for (const MPSImageEdgeMode edge : {MPSImageEdgeModeZero, MPSImageEdgeModeClamp}) {
    [layer setEdgeMode:edge];
    MPSImage *result = make_nan_image(1, 2, 2, 1);
    id<MTLCommandBuffer> buffer = command_buffer();
    [layer encodeSequenceToCommandBuffer:buffer
                            sourceImages:@[ make_image(Tensor(1, 2, 2, 1, 1)) ]
                       destinationImages:@[ result ]
                     recurrentInputState:nil
                   recurrentOutputStates:nil];
    run(buffer);
    check_equal("edges", read_image(synchronized(result)), Tensor(1, 2, 2, 1, edge == MPSImageEdgeModeZero ? 4 : 9), 0);
  }
}

// -------------------------------------------------------------------------------------------------------- training

MPSRNNMatrixTrainingLayer *trainable(MPSRNNDescriptor *descriptor, Matrices *weights) {
  return [[[MPSRNNMatrixTrainingLayer alloc] initWithDevice:device
                                              rnnDescriptor:descriptor
                                           trainableWeights:weights] autorelease];
}

void test_training_properties() {
  Matrices *weights = [NSMutableArray array];
  MPSRNNMatrixTrainingLayer *layer = trainable(lstm(3, 4), weights);
  check([layer inputFeatureChannels] == 3 && [layer outputFeatureChannels] == 4, "channels");
  check(![layer storeAllIntermediateStates] && ![layer recurrentOutputIsTemporary] &&
            ![layer trainingStateIsTemporary] && ![layer accumulateWeightGradients],
        "defaults of a layer for training");
  [layer setStoreAllIntermediateStates:YES];
  [layer setRecurrentOutputIsTemporary:YES];
  [layer setTrainingStateIsTemporary:YES];
  [layer setAccumulateWeightGradients:YES];
  for (MPSRNNMatrixTrainingLayer *twin in @[ [[layer copy] autorelease], archived(layer) ])
    check([twin storeAllIntermediateStates] && [twin recurrentOutputIsTemporary] && [twin trainingStateIsTemporary] &&
              [twin accumulateWeightGradients] && [twin outputFeatureChannels] == 4,
          "a twin of a layer for training");
  check_raises("without a descriptor", kArgument, "is unavailable",
               [] { [(id)[MPSRNNMatrixTrainingLayer alloc] initWithDevice:device]; });
  check_raises("no array", kArgument, "trainableWeights is nil", [] { trainable(single(3, 4), nil); });
  MPSRNNSingleGateDescriptor *unloaded = single(3, 4);
  static_cast<TestSource *>([unloaded inputWeights])->refuses_load = YES;
  [weights removeAllObjects];
  check(trainable(unloaded, weights) == nil && [weights count] == 0, "a data source does not load");
}

void test_weight_matrices() {
  for (const bool is_float : {false, true}) {
    MPSRNNSingleGateDescriptor *descriptor = single(3, 4);
    [descriptor setUseFloat32Weights:is_float];
    Matrices *weights = [NSMutableArray array], *others = [NSMutableArray array], *gradients = [NSMutableArray array];
    MPSRNNMatrixTrainingLayer *layer = trainable(descriptor, weights);
    [layer createWeightMatrices:others];
    [layer createWeightGradientMatrices:gradients dataType:MPSDataTypeFloat32];
    const MPSDataType type = is_float ? MPSDataTypeFloat32 : MPSDataTypeFloat16;
    check([weights count] == 3 && [others count] == 3 && [gradients count] == 3, "as many matrices");
    for (NSUInteger i = 0; i < 3; ++i) {
      MPSMatrix *own = [weights objectAtIndex:i], *other = [others objectAtIndex:i];
      MPSMatrix *gradient = [gradients objectAtIndex:i];
      check([own rows] == [other rows] && [own columns] == [gradient columns], "of the same extents");
      check([own dataType] == type && [other dataType] == type && [gradient dataType] == MPSDataTypeFloat32, "types");
      const char *bytes = static_cast<const char *>([[other data] contents]);
      check(std::all_of(bytes, bytes + [other rows] * [other rowBytes], [](char byte) { return byte == 0; }), "zeros");
      const auto values = values_of(gradient);
      check(std::all_of(values.begin(), values.end(), [](float value) { return value == 0; }), "zero gradients");
    }
    check_raises("a type", kArgument, "dataType (0x20) is not MPSDataTypeFloat32 or MPSDataTypeFloat16",
                 [&] { [layer createWeightGradientMatrices:gradients dataType:MPSDataTypeUInt32]; });
  }
}

void test_copies_of_weights() {
  Matrices *weights = [NSMutableArray array];
  MPSLSTMDescriptor *descriptor = lstm(3, 4);
  [descriptor setUseFloat32Weights:YES];
  [descriptor setForgetGateMemoryWeights:nil];
  MPSRNNMatrixTrainingLayer *layer = trainable(descriptor, weights);
  const auto copy = [&](MPSRNNMatrixId identifier, MPSMatrix *to, bool from_weights, MTLOrigin origin = {0, 0, 0}) {
    id<MTLCommandBuffer> buffer = command_buffer();
    [layer encodeCopyWeightsToCommandBuffer:buffer
                                    weights:weights
                                   matrixId:identifier
                                     matrix:to
                    copyFromWeightsToMatrix:from_weights
                               matrixOffset:origin];
    run(buffer);
  };
  // The initial weights are those of the data sources: rows are outputs.
  TestSource *source = static_cast<TestSource *>([descriptor cellGateInputWeights]);
  const float *given = reinterpret_cast<const float *>(source->bytes.data());
  MPSMatrix *found = matrix(4, 3), *bias = matrix(4, 1), *line = matrix(1, 4);
  copy(MPSRNNMatrixIdLSTMMemoryGateInputWeights, found, true);
  check(values_of(found) == std::vector<float>(given, given + 12), "initial weights");
  copy(MPSRNNMatrixIdLSTMMemoryGateBiasTerms, bias, true);
  copy(MPSRNNMatrixIdLSTMMemoryGateBiasTerms, line, true);
  check(values_of(bias) == source->bias && values_of(line) == source->bias, "biases in a column or a row");

  // Written weights are read back, at an offset too, and no others change.
  MPSMatrix *larger = matrix(6, 7), *back = matrix(4, 3), *other = matrix(4, 4), *same = matrix(4, 4);
  copy(MPSRNNMatrixIdLSTMMemoryGateRecurrentWeights, other, true);
  copy(MPSRNNMatrixIdLSTMMemoryGateInputWeights, larger, false, {2, 3, 0});
  copy(MPSRNNMatrixIdLSTMMemoryGateInputWeights, back, true);
  const auto all = values_of(larger), part = values_of(back);
  bool equal = true;
  for (NSUInteger y = 0; y < 4; ++y)
    for (NSUInteger x = 0; x < 3; ++x) equal = equal && part[y * 3 + x] == all[(y + 2) * 7 + x + 3];
  check(equal && part != values_of(found), "weights at an offset");
  copy(MPSRNNMatrixIdLSTMMemoryGateRecurrentWeights, same, true);
  check(values_of(same) == values_of(other), "other weights stay");
  copy(MPSRNNMatrixIdLSTMMemoryGateBiasTerms, found, false, {0, 1, 0});
  copy(MPSRNNMatrixIdLSTMMemoryGateBiasTerms, bias, true);
  check(values_of(bias)[2] == values_of(found)[7], "biases from a column");

  // All weights are different places.
  std::set<float> values;
  for (NSUInteger identifier = MPSRNNMatrixIdLSTMInputGateInputWeights;
       identifier <= MPSRNNMatrixIdLSTMOutputGateBiasTerms; ++identifier) {
    if (identifier == MPSRNNMatrixIdLSTMForgetGateMemoryWeights) continue;
    const bool is_bias = (identifier - MPSRNNMatrixIdLSTMInputGateInputWeights) % 4 == 3;
    const bool is_input = (identifier - MPSRNNMatrixIdLSTMInputGateInputWeights) % 4 == 0;
    MPSMatrix *full = matrix(4, is_bias ? 1 : is_input ? 3 : 4);
    static_cast<float *>([[full data] contents])[0] = static_cast<float>(identifier);
    [[full data] didModifyRange:NSMakeRange(0, sizeof(float))];
    copy(static_cast<MPSRNNMatrixId>(identifier), full, false);
  }
  for (MPSMatrix *each in weights)
    for (const float value : values_of(each)) values.insert(value);
  for (NSUInteger identifier = MPSRNNMatrixIdLSTMInputGateInputWeights;
       identifier <= MPSRNNMatrixIdLSTMOutputGateBiasTerms; ++identifier)
    check((values.count(static_cast<float>(identifier)) == 1) ==
              (identifier != MPSRNNMatrixIdLSTMForgetGateMemoryWeights),
          "the place of " + std::to_string(identifier));

  const auto refused = [&](const char *part_of, MPSRNNMatrixId identifier, MPSMatrix *to, MTLOrigin origin = {0, 0, 0}) {
    check_raises(part_of, kArgument, part_of, [&] { copy(identifier, to, true, origin); });
  };
  refused("matrixId (9) is not that of weights of the layer", MPSRNNMatrixIdLSTMForgetGateMemoryWeights, other);
  refused("matrixId (0) is not that of weights", MPSRNNMatrixIdSingleGateInputWeights, other);
  refused("matrixId (29) is not that of weights", MPSRNNMatrixId_count, other);
  refused("matrix is nil", MPSRNNMatrixIdLSTMInputGateInputWeights, nil);
  refused("uses 4 x 3 values (rows x columns) of matrix from matrixOffset (1, 0) on, and it has 4 x 4",
          MPSRNNMatrixIdLSTMInputGateInputWeights, other, {1, 0, 0});
}

void test_refused_training() {
  Matrices *weights = [NSMutableArray array], *gradients = [NSMutableArray array];
  MPSRNNMatrixTrainingLayer *layer = trainable(lstm(3, 4), weights);
  [layer createWeightGradientMatrices:gradients dataType:MPSDataTypeFloat32];
  NSMutableArray *training = [NSMutableArray array];
  id<MTLCommandBuffer> buffer = command_buffer();
  const auto forward = [&](NSArray *with, NSMutableArray *into) {
    [layer encodeForwardSequenceToCommandBuffer:buffer
                                 sourceMatrices:matrices({2, 1}, 3)
                            destinationMatrices:matrices({2, 1}, 4)
                                 trainingStates:into
                                        weights:with];
  };
  const auto gradient = [&](NSArray *states, NSArray *into, NSArray *sources) {
    [layer encodeGradientSequenceToCommandBuffer:buffer
                                  forwardSources:matrices({2, 1}, 3)
                                 sourceGradients:sources
                            destinationGradients:matrices({2, 1}, 3)
                                 weightGradients:into
                                  trainingStates:states
                                         weights:weights];
  };
  check_raises("no training states", kArgument, "trainingStates is nil", [&] { forward(weights, nil); });
  check_raises("no weights", kArgument, "weights[0] has 0 x 0 values (rows x columns), expected 16 x 3",
               [&] { forward(@[], training); });
  check_raises("too many weights", kArgument, "weights has 5 matrices, expected 4",
               [&] { forward([weights arrayByAddingObject:matrix(1, 1)], training); });
  forward(weights, training);
  check([training count] == 2 && ![[training objectAtIndex:0] isTemporary] &&
            [[training objectAtIndex:0] resourceSize] >= 2 * (2 * 16 + 3 * 4) * sizeof(float),
        "states for the gradient");
  NSArray *diffs = matrices({2, 1}, 4);
  check_raises("no states", kArgument, "trainingStates has no states", [&] { gradient(@[], gradients, diffs); });
  check_raises("reversed states", kArgument, "trainingStates[1] is that of 2 rows, more than the 1 rows before",
               [&] { gradient([[training reverseObjectEnumerator] allObjects], gradients, diffs); });
  check_raises("gradients", kArgument, "sourceGradients has 1 matrices, expected 2",
               [&] { gradient(training, gradients, matrices({2}, 4)); });
  check_raises("weight gradients", kArgument, "weightGradients[0] has 0 x 0 values",
               [&] { gradient(training, @[], diffs); });
  Matrices *others = [NSMutableArray array];
  NSMutableArray *foreign = [NSMutableArray array];
  [trainable(single(3, 4), others) encodeForwardSequenceToCommandBuffer:buffer
                                                         sourceMatrices:matrices({2, 1}, 3)
                                                    destinationMatrices:matrices({2, 1}, 4)
                                                         trainingStates:foreign
                                                                weights:others];
  check_raises("states of another layer", kArgument, "of another kind of layer",
               [&] { gradient(foreign, gradients, diffs); });
  check_raises("an own state", kUsage, "only a layer can make it", [&] {
    gradient(@[ [[[MPSRNNMatrixTrainingState alloc] initWithDevice:device bufferSize:4] autorelease] ], gradients,
             matrices({2}, 4));
  });
  // Gradients of the weights, of the sources, or neither.
  gradient(training, nil, diffs);
  States *carried = [NSMutableArray array], *outputs = [NSMutableArray array];
  [layer encodeForwardSequenceToCommandBuffer:buffer
                               sourceMatrices:matrices({2, 1}, 3)
                                sourceOffsets:NULL
                          destinationMatrices:matrices({2, 1}, 4)
                           destinationOffsets:NULL
                               trainingStates:foreign
                          recurrentInputState:nil
                        recurrentOutputStates:outputs
                                      weights:weights];
  const auto with_state = [&](MPSRNNRecurrentMatrixState *input) {
    [layer encodeGradientSequenceToCommandBuffer:buffer
                                  forwardSources:matrices({2, 1}, 3)
                            forwardSourceOffsets:NULL
                                 sourceGradients:diffs
                           sourceGradientOffsets:NULL
                            destinationGradients:nil
                              destinationOffsets:NULL
                                 weightGradients:gradients
                                  trainingStates:training
                             recurrentInputState:input
                           recurrentOutputStates:carried
                                         weights:weights];
  };
  with_state(nil);
  check([carried count] == 1, "a recurrent gradient");
  with_state([carried objectAtIndex:0]);
  check_raises("a state of the forward pass", kArgument, "recurrentInputState is that of a forward pass",
               [&] { with_state([outputs objectAtIndex:0]); });
  run(buffer);
}

/// Temporary gradient matrices begin as zeros, and become invalid with the encode that reads them.
void test_temporary_gradients() {
  Matrices *weights = [NSMutableArray array];
  MPSRNNSingleGateDescriptor *descriptor = single(3, 4);
  [descriptor setUseFloat32Weights:YES];
  MPSRNNMatrixTrainingLayer *layer = trainable(descriptor, weights);
  [layer setTrainingStateIsTemporary:YES];
  [layer setAccumulateWeightGradients:YES];
  MPSMatrix *results[2];
  for (const bool is_temporary : {false, true}) {
    id<MTLCommandBuffer> buffer = command_buffer();
    Matrices *gradients = [NSMutableArray array];
    if (is_temporary)
      [layer createTemporaryWeightGradientMatrices:gradients dataType:MPSDataTypeFloat32 commandBuffer:buffer];
    else
      [layer createWeightGradientMatrices:gradients dataType:MPSDataTypeFloat32];
    NSMutableArray *training = [NSMutableArray array];
    [layer encodeForwardSequenceToCommandBuffer:buffer
                                 sourceMatrices:matrices({2, 2}, 3)
                            destinationMatrices:matrices({2, 2}, 4)
                                 trainingStates:training
                                        weights:weights];
    MPSRNNMatrixTrainingState *state = [training objectAtIndex:1];
    check([state isTemporary] && [state readCount] == 1, "a temporary training state");
    [layer encodeGradientSequenceToCommandBuffer:buffer
                                  forwardSources:matrices({2, 2}, 3)
                                 sourceGradients:matrices({2, 2}, 4)
                            destinationGradients:nil
                                 weightGradients:gradients
                                  trainingStates:training
                                         weights:weights];
    check([state readCount] == 0, "which the gradient reads");
    results[is_temporary] = matrix(4, 3);
    [layer encodeCopyWeightsToCommandBuffer:buffer
                                    weights:gradients
                                   matrixId:MPSRNNMatrixIdSingleGateInputWeights
                                     matrix:results[is_temporary]
                    copyFromWeightsToMatrix:YES
                               matrixOffset:{0, 0, 0}];
    if (is_temporary)
      check([static_cast<MPSTemporaryMatrix *>([gradients objectAtIndex:0]) readCount] == 0, "read by the copy");
    run(buffer);
  }
  check(values_of(results[0]) == values_of(results[1]) && values_of(results[0])[0] != 0.0f, "the same gradients");
}

/// Without recurrent weights, the gradient of the recurrent input is 0, whatever comes from later steps.
void test_gradient_without_recurrent_weights() {
  States *carried = [NSMutableArray array];
  id<MTLCommandBuffer> buffer = command_buffer();
  for (const bool has_weights : {true, false}) {
    MPSRNNSingleGateDescriptor *descriptor = single(3, 4);
    if (!has_weights) [descriptor setRecurrentWeights:nil];
    Matrices *weights = [NSMutableArray array];
    MPSRNNMatrixTrainingLayer *layer = trainable(descriptor, weights);
    NSMutableArray *training = [NSMutableArray array];
    [layer encodeForwardSequenceToCommandBuffer:buffer
                                 sourceMatrices:matrices({2}, 3)
                            destinationMatrices:matrices({2}, 4)
                                 trainingStates:training
                                        weights:weights];
    [layer encodeGradientSequenceToCommandBuffer:buffer
                                  forwardSources:matrices({2}, 3)
                            forwardSourceOffsets:NULL
                                 sourceGradients:matrices({2}, 4)
                           sourceGradientOffsets:NULL
                            destinationGradients:nil
                              destinationOffsets:NULL
                                 weightGradients:nil
                                  trainingStates:training
                             recurrentInputState:[carried lastObject]
                           recurrentOutputStates:carried
                                         weights:weights];
  }
  run(buffer);
  const auto some = values_of([[carried objectAtIndex:0] getRecurrentOutputMatrixForLayerIndex:0]);
  const auto none = values_of([[carried objectAtIndex:1] getRecurrentOutputMatrixForLayerIndex:0]);
  check(std::count(some.begin(), some.end(), 0.0f) == 0 && std::count(none.begin(), none.end(), 0.0f) == 8,
        "gradients of the recurrent input");
}

/// With a p-norm, the derivative of (1 - z ^ p) ^ (1 / p) is infinite where the gate z is rounded to 1.
void test_saturated_gates() {
  MPSGRUDescriptor *descriptor = [MPSGRUDescriptor createGRUDescriptorWithInputFeatureChannels:3 outputFeatureChannels:4];
  TestSource *input = source_of(3, 4);
  input->bias.assign(4, 40);
  [descriptor setInputGateInputWeights:input];
  [descriptor setOutputGateInputWeights:source_of(3, 4, 7)];
  [descriptor setGatePnormValue:2];
  Matrices *weights = [NSMutableArray array], *gradients = [NSMutableArray array];
  MPSRNNMatrixTrainingLayer *layer = trainable(descriptor, weights);
  [layer createWeightGradientMatrices:gradients dataType:MPSDataTypeFloat32];
  NSMutableArray *training = [NSMutableArray array];
  MPSMatrix *bias = matrix(4, 1);
  id<MTLCommandBuffer> buffer = command_buffer();
  [layer encodeForwardSequenceToCommandBuffer:buffer
                               sourceMatrices:matrices({2}, 3)
                          destinationMatrices:matrices({2}, 4)
                               trainingStates:training
                                      weights:weights];
  [layer encodeGradientSequenceToCommandBuffer:buffer
                                forwardSources:matrices({2}, 3)
                               sourceGradients:matrices({2}, 4)
                          destinationGradients:nil
                               weightGradients:gradients
                                trainingStates:training
                                       weights:weights];
  [layer encodeCopyWeightsToCommandBuffer:buffer
                                  weights:gradients
                                 matrixId:MPSRNNMatrixIdGRUInputGateBiasTerms
                                   matrix:bias
                  copyFromWeightsToMatrix:YES
                             matrixOffset:{0, 0, 0}];
  run(buffer);
  for (const float value : values_of(bias)) check(std::fabs(value) < 1e-3f, "the gradient of a saturated gate");
}

}  // namespace

int main() {
  GSDebugAllocationActive(YES);
  return run_tests({test_descriptors, test_data_sources, test_properties, test_refused_sequences, test_states,
                    test_temporary_sources, test_lifetimes, test_refused_directions, test_images, test_edges,
                    test_training_properties, test_weight_matrices, test_copies_of_weights, test_refused_training,
                    test_temporary_gradients, test_gradient_without_recurrent_weights, test_saturated_gates});
}

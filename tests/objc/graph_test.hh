// SPDX-License-Identifier: Apache-2.0
// Handles, inputs by label and data sources for the tests of MPSNNGraph and its nodes.
#pragma once

#import "mps_test.hh"

#include <map>

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

@interface TestHandle : NSObject <MPSHandle> {
  NSString *_label;
}
+ (instancetype)handle:(const char *)label;
@end

@implementation TestHandle
+ (instancetype)handle:(const char *)label {
  TestHandle *handle = [[[self alloc] init] autorelease];
  handle->_label = [@(label) copy];
  return handle;
}
- (void)dealloc {
  [_label release];
  [super dealloc];
}
- (NSString *)label {
  return _label;
}
+ (BOOL)supportsSecureCoding {
  return YES;
}
- (void)encodeWithCoder:(NSCoder *)coder {
  [coder encodeObject:_label forKey:@"label"];
}
- (instancetype)initWithCoder:(NSCoder *)coder {
  _label = [[coder decodeObjectForKey:@"label"] copy];
  return self;
}
@end

/// Return an input of a graph in single precision.
inline MPSNNImageNode *input(const char *label) {
  MPSNNImageNode *node = [MPSNNImageNode nodeWithHandle:[TestHandle handle:label]];
  [node setFormat:MPSImageFeatureChannelFormatFloat32];
  return node;
}

inline MPSNNGraph *graph_of(MPSNNImageNode *result, bool needed = true) {
  MPSNNGraph *graph = [MPSNNGraph graphWithDevice:device resultImage:result resultImageIsNeeded:needed];
  [graph setFormat:MPSImageFeatureChannelFormatFloat32];
  return graph;
}

using Inputs = std::map<std::string, Tensor>;

/// Return the labels of a graph's inputs in their order.
inline std::string labels_of(NSArray<id<MPSHandle>> *handles) {
  std::string labels;
  for (id<MPSHandle> handle in handles) labels += std::string(labels.empty() ? "" : " ") + [[handle label] UTF8String];
  return labels;
}

/// Return the images of the inputs in the order of sourceImageHandles.
inline NSMutableArray *images_for(MPSNNGraph *graph, const Inputs &inputs) {
  NSMutableArray *images = [NSMutableArray array];
  for (id<MPSHandle> handle in [graph sourceImageHandles])
    [images addObject:make_image(inputs.at([[handle label] UTF8String]))];
  return images;
}
inline NSMutableArray *batches_for(MPSNNGraph *graph, const Inputs &inputs) {
  NSMutableArray *batches = [NSMutableArray array];
  for (id<MPSHandle> handle in [graph sourceImageHandles])
    [batches addObject:make_batch(inputs.at([[handle label] UTF8String]))];
  return batches;
}

inline Tensor read_images(MPSImageBatch *batch) {
  Tensor all = read_image([batch objectAtIndex:0]);
  for (NSUInteger i = 1; i < [batch count]; ++i) {
    const Tensor next = read_image([batch objectAtIndex:i]);
    all.values.insert(all.values.end(), next.values.begin(), next.values.end());
    ++all.n;
  }
  return all;
}

/// Return the graph's result for single images.
inline Tensor run_graph(MPSNNGraph *graph, const Inputs &inputs) {
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *result = [graph encodeToCommandBuffer:buffer sourceImages:images_for(graph, inputs)];
  [result synchronizeOnCommandBuffer:buffer];
  run(buffer);
  return read_image(result);
}
/// Return the same for a batch.
inline Tensor run_batch(MPSNNGraph *graph, const Inputs &inputs, MPSStateBatch *labels = nil) {
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImageBatch *result = [graph encodeBatchToCommandBuffer:buffer
                                               sourceImages:batches_for(graph, inputs)
                                               sourceStates:labels == nil ? nil : [NSArray arrayWithObject:labels]];
  MPSImageBatchSynchronize(result, buffer);
  run(buffer);
  return read_images(result);
}

inline TestSource *convolution_source(NSUInteger kernel, NSUInteger inputs, NSUInteger outputs, unsigned seed,
                                      NSUInteger stride = 1, double scale = 0.25) {
  MPSCNNConvolutionDescriptor *descriptor = descriptor_of(kernel, kernel, inputs, outputs);
  [descriptor setStrideInPixelsX:stride];
  [descriptor setStrideInPixelsY:stride];
  std::vector<double> weights = random_values(kernel * kernel * inputs * outputs, seed);
  for (double &weight : weights) weight *= scale;
  return make_source(descriptor, weights, random_values(outputs, seed + 1));
}

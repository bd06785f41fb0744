// SPDX-License-Identifier: Apache-2.0
// MPSNNGraph: order of inputs and results, formats, allocators, exported images, readCounts, padding policies,
// lifetime, and networks of real sizes. Prints "N passed, N failed".

#import "graph_test.hh"

@interface ProgramPolicy : NSObject<MPSNNPadding> {
 @public
  int calls;
}
@end

/// Valid windows with a border of one pixel, as programs write it: the policy sets offset, edge mode and size.
@implementation ProgramPolicy
- (MPSNNPaddingMethod)paddingMethod {
  return MPSNNPaddingMethodCustom;
}
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor {
  (void)sourceImages, (void)sourceStates;
  ++calls;
  [(MPSCNNKernel *)kernel setOffset:MPSOffset{0, 0, 0}];
  [(MPSCNNKernel *)kernel setEdgeMode:MPSImageEdgeModeZero];
  [inDescriptor setWidth:[inDescriptor width] + 2];
  [inDescriptor setHeight:[inDescriptor height] + 2];
  return inDescriptor;
}
+ (BOOL)supportsSecureCoding {
  return YES;
}
- (void)encodeWithCoder:(NSCoder *)coder {
  (void)coder;
}
- (instancetype)initWithCoder:(NSCoder *)coder {
  (void)coder;
  return [self init];
}
- (NSString *)label {
  return @"program";
}
@end

/// Makes permanent images in half precision, and counts them.
@interface HalfAllocator : NSObject<MPSImageAllocator> {
 @public
  int images;
  bool temporary;
}
@end

@implementation HalfAllocator
- (MPSImage *)imageForCommandBuffer:(id<MTLCommandBuffer>)buffer
                    imageDescriptor:(MPSImageDescriptor *)descriptor
                             kernel:(MPSKernel *)kernel {
  (void)kernel;
  ++images;
  [descriptor setChannelFormat:MPSImageFeatureChannelFormatFloat16];
  if (temporary) return [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer imageDescriptor:descriptor];
  return [[[MPSImage alloc] initWithDevice:[buffer device] imageDescriptor:descriptor] autorelease];
}
+ (BOOL)supportsSecureCoding {
  return YES;
}
- (void)encodeWithCoder:(NSCoder *)coder {
  (void)coder;
}
- (instancetype)initWithCoder:(NSCoder *)coder {
  (void)coder;
  return [self init];
}
@end

/// Makes `count` images, whatever is asked for.
@interface CountAllocator : HalfAllocator {
 @public
  NSUInteger count;
}
@end

@implementation CountAllocator
- (MPSImageBatch *)imageBatchForCommandBuffer:(id<MTLCommandBuffer>)buffer
                              imageDescriptor:(MPSImageDescriptor *)descriptor
                                       kernel:(MPSKernel *)kernel
                                        count:(NSUInteger)asked {
  (void)asked;
  NSMutableArray *batch = count == 0 ? nil : [NSMutableArray array];
  for (NSUInteger i = 0; i < count; ++i)
    [batch addObject:[self imageForCommandBuffer:buffer imageDescriptor:descriptor kernel:kernel]];
  return batch;
}
@end

namespace {

const Tensor kX = Tensor::random(1, 5, 7, 8, 1), kY = Tensor::random(1, 5, 7, 8, 2);

Tensor plus(const Tensor &a, const Tensor &b) {
  Tensor sum = a;
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += b.values[i];
  return sum;
}
Tensor rectified(const Tensor &a) {
  Tensor result = a;
  for (double &value : result.values) value = std::max(value, 0.0);
  return result;
}

MPSNNImageNode *relu(MPSNNImageNode *x) { return [[MPSCNNNeuronReLUNode nodeWithSource:x] resultImage]; }
MPSNNImageNode *add(MPSNNImageNode *a, MPSNNImageNode *b) {
  return [[MPSNNAdditionNode nodeWithLeftSource:a rightSource:b] resultImage];
}

void test_inputs() {
  // relu(relu(x) + y) + z: the inputs are discovered from left to right.
  MPSNNImageNode *z = input("z");
  MPSNNImageNode *result = add(relu(add(relu(input("x")), input("y"))), z);
  [result setHandle:[TestHandle handle:"result"]];
  MPSNNGraph *graph = graph_of(result);
  check(labels_of([graph sourceImageHandles]) == "x y z", "order of sourceImageHandles");
  check(
      [graph sourceStateHandles] == nil && [graph intermediateImageHandles] == nil && [graph resultStateHandles] == nil,
      "no further handles");
  check([graph resultHandle] == [result handle] && [[graph sourceImageHandles] objectAtIndex:2] == [z handle],
        "handles are the program's objects");
  check([graph resultImageIsNeeded] && ![graph outputStateIsTemporary], "properties");
  for (NSUInteger i = 0; i < 3; ++i) check([graph readCountForSourceImageAtIndex:i] == 1, "one read of each input");
  check_equal("an expression", run_graph(graph, {{"x", kX}, {"y", kY}, {"z", kX}}),
              plus(rectified(plus(rectified(kX), kY)), kX), 1e-6);
  // An image that is read three times, also by one encode.
  MPSNNImageNode *x = input("x");
  MPSNNGraph *reused = graph_of(add(add(relu(x), x), add(x, x)));
  check([[reused sourceImageHandles] count] == 1 && [reused readCountForSourceImageAtIndex:0] == 3, "three reads");
  check_equal("an image used often", run_graph(reused, {{"x", kX}}), plus(plus(rectified(kX), kX), plus(kX, kX)), 1e-6);
  MPSNNGraph *unnamed = graph_of(relu([MPSNNImageNode nodeWithHandle:nil]));
  check([[unnamed sourceImageHandles] count] == 1, "an input without a handle");
  check_raises("an index of no input", kArgument, "index (1)", [&] { [unnamed readCountForSourceImageAtIndex:1]; });
}

void test_refusals() {
  MPSNNGraph *graph = graph_of(add(input("x"), input("y")));
  MPSImage *x = make_image(kX), *y = make_image(kY);
  check_raises("no images", kArgument, "sourceImages has 0 elements, expected 2",
               [&] { [graph encodeToCommandBuffer:command_buffer() sourceImages:nil]; });
  check_raises("one image of two", kArgument, "sourceImages has 1 elements, expected 2",
               [&] { [graph encodeToCommandBuffer:command_buffer() sourceImages:[NSArray arrayWithObject:x]]; });
  check_raises("batches of different sizes", kArgument, "a batch of 2, and the first one 1", [&] {
    NSArray *batches =
        [NSArray arrayWithObjects:[NSArray arrayWithObject:x], [NSArray arrayWithObjects:y, y, nil], nil];
    [graph encodeBatchToCommandBuffer:command_buffer() sourceImages:batches sourceStates:nil];
  });
  check_raises("a state that nothing reads", kArgument, "sourceStates has 1 elements, expected 0", [&] {
    [graph encodeToCommandBuffer:command_buffer()
                    sourceImages:[NSArray arrayWithObjects:x, y, nil]
                    sourceStates:[NSArray arrayWithObject:[MPSState temporaryStateWithCommandBuffer:command_buffer()]]
              intermediateImages:nil
               destinationStates:nil];
  });
  check_raises("no command buffer", kArgument, "nil",
               [&] { [graph encodeToCommandBuffer:nil sourceImages:[NSArray arrayWithObjects:x, y, nil]]; });
  check_raises("a result that no filter makes", kArgument, "result of no filter node",
               [] { [MPSNNGraph graphWithDevice:device resultImage:input("x") resultImageIsNeeded:YES]; });
  check_raises("no result", kArgument, "There is no result image",
               [] { [MPSNNGraph graphWithDevice:device resultImage:nil resultImageIsNeeded:YES]; });
  check_raises("no result images", kArgument, "There is no result image",
               [] { [MPSNNGraph graphWithDevice:device resultImages:[NSArray array] resultsAreNeeded:NULL]; });
  check_raises("no format", kArgument, "format (0)", [&] { [graph setFormat:MPSImageFeatureChannelFormatNone]; });
  check_raises("an archive", @"MPSNotImplementedException", "encodeWithCoder", [&] { [graph encodeWithCoder:nil]; });
  MPSCNNLossNode *loss =
      [MPSCNNLossNode nodeWithSource:input("x")
                      lossDescriptor:[MPSCNNLossDescriptor cnnLossDescriptorWithType:MPSCNNLossTypeMeanSquaredError
                                                                       reductionType:MPSCNNReductionTypeSum]];
  [[loss inputLabels] setHandle:[TestHandle handle:"labels"]];
  MPSNNGraph *losses = graph_of([loss resultImage]);
  check(labels_of([losses sourceStateHandles]) == "labels", "sourceStateHandles");
  check_raises("no labels", kArgument, "sourceStates has 0 elements, expected 1",
               [&] { [losses encodeToCommandBuffer:command_buffer() sourceImages:[NSArray arrayWithObject:x]]; });

  // An encode that raises leaves the command buffer as it was: nothing unread is left.
  MPSNNGraph *late = graph_of(add(relu(relu(input("x"))), input("y")));
  id<MTLCommandBuffer> buffer = command_buffer();
  check_raises("sources of different channels", kArgument, "feature channels", [&] {
    [late encodeToCommandBuffer:buffer sourceImages:[NSArray arrayWithObjects:x, make_image(Tensor(1, 5, 7, 4)), nil]];
  });
  run(buffer);

  TestSource *refusing = convolution_source(1, 8, 8, 3);
  refusing->refuses_load = YES;
  check([MPSNNGraph graphWithDevice:device
                        resultImage:[[MPSCNNConvolutionNode nodeWithSource:input("x") weights:refusing] resultImage]
                resultImageIsNeeded:YES] == nil,
        "a data source that does not load");
}

void test_results() {
  MPSNNImageNode *first = relu(input("x")), *second = add(first, input("y")), *third = add(second, second);
  [second setHandle:[TestHandle handle:"second"]];
  [third setHandle:[TestHandle handle:"third"]];
  NSArray *nodes = [NSArray arrayWithObjects:first, second, third, nil];
  BOOL needed[] = {YES, NO, YES};
  MPSNNGraph *graph = [MPSNNGraph graphWithDevice:device resultImages:nodes resultsAreNeeded:needed];
  [graph setFormat:MPSImageFeatureChannelFormatFloat32];
  check(labels_of([graph intermediateImageHandles]) == "third", "handles of further results");
  NSMutableArray *further = [NSMutableArray array];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *result = [graph encodeToCommandBuffer:buffer
                                     sourceImages:images_for(graph, {{"x", kX}, {"y", kY}})
                                     sourceStates:nil
                               intermediateImages:further
                                destinationStates:nil];
  run(buffer);
  const Tensor sum = plus(rectified(kX), kY);
  check([further count] == 1, "a result that is not needed is not returned");
  check_equal("the first result", read_image(result), rectified(kX), 1e-6);
  check_equal("the third result", read_image([further objectAtIndex:0]), plus(sum, sum), 1e-6);

  // All are needed without flags.
  MPSNNGraph *all = [MPSNNGraph graphWithDevice:device resultImages:nodes resultsAreNeeded:NULL];
  [further removeAllObjects];
  buffer = command_buffer();
  NSArray *batches = batches_for(all, {{"x", kX}, {"y", kY}});
  check([[all encodeBatchToCommandBuffer:buffer
                            sourceImages:batches
                            sourceStates:nil
                      intermediateImages:further
                       destinationStates:nil] count] == 1 &&
            [further count] == 2 && [[further objectAtIndex:0] count] == 1,
        "batches of further results");
  run(buffer);

  // Nothing runs for a result that is not needed.
  MPSNNGraph *unneeded = graph_of(relu(input("x")), false);
  buffer = command_buffer();
  check(![unneeded resultImageIsNeeded] && [unneeded readCountForSourceImageAtIndex:0] == 0, "an input is not read");
  check([unneeded encodeToCommandBuffer:buffer sourceImages:images_for(unneeded, {{"x", kX}})] == nil, "no result");
  run(buffer);
  check([[MPSNNGraph graphWithDevice:device resultImage:relu(input("x"))] resultImageIsNeeded],
        "the older initialiser");
}

void test_formats() {
  MPSNNImageNode *plain = [MPSNNImageNode nodeWithHandle:[TestHandle handle:"x"]];
  MPSNNImageNode *result = relu(plain);
  MPSNNGraph *graph = [MPSNNGraph graphWithDevice:device resultImage:result resultImageIsNeeded:YES];
  check([graph format] == MPSImageFeatureChannelFormatFloat16, "the default format");
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *half = [graph encodeToCommandBuffer:buffer sourceImages:images_for(graph, {{"x", kX}})];
  run(buffer);
  check([half featureChannelFormat] == MPSImageFeatureChannelFormatFloat16, "a result in half precision");
  check_equal("values in half precision", read_half_image(half), rectified(kX), 0);
  [graph setFormat:MPSImageFeatureChannelFormatFloat32];
  check_equal("values in single precision", run_graph(graph, {{"x", kX}}), rectified(kX), 0);

  // An intermediate image in half precision rounds; the node's format wins over the graph's.
  Tensor fine = kX;
  for (double &value : fine.values) value += 1.0 / 4096;
  MPSNNImageNode *middle = relu(input("x"));
  [middle setFormat:MPSImageFeatureChannelFormatFloat16];
  MPSNNImageNode *last = add(middle, middle);
  [last setFormat:MPSImageFeatureChannelFormatFloat32];
  Tensor rounded = rectified(fine);
  for (double &value : rounded.values) value = 2 * static_cast<double>(static_cast<_Float16>(value));
  check_equal("a rounded intermediate image", run_graph(graph_of(last), {{"x", fine}}), rounded, 0);
}

void test_allocators_of_wrong_batches() {
  CountAllocator *allocator = [[[CountAllocator alloc] init] autorelease];
  MPSNNGraph *graph = graph_of(relu(input("x")));
  [graph setDestinationImageAllocator:allocator];
  MPSImage *x = [images_for(graph, {{"x", kX}}) objectAtIndex:0];
  const auto encode = [&] {
    [graph encodeBatchToCommandBuffer:command_buffer()
                         sourceImages:[NSArray arrayWithObject:[NSArray arrayWithObjects:x, x, nil]]
                         sourceStates:nil];
  };
  check_raises("an allocator that makes no batch", kArgument, "made 0 images, expected 2", encode);
  allocator->count = 1;
  check_raises("an allocator of one image", kArgument, "made 1 images, expected 2", encode);
}

void test_allocators() {
  HalfAllocator *allocator = [[[HalfAllocator alloc] init] autorelease];
  MPSNNImageNode *middle = relu(input("x")), *result = add(middle, input("y"));
  [middle setImageAllocator:allocator];
  [middle setExportFromGraph:YES];
  [middle setSynchronizeResource:YES];
  [middle setHandle:[TestHandle handle:"middle"]];
  MPSNNGraph *graph = graph_of(result);
  check(labels_of([graph intermediateImageHandles]) == "middle", "handle of an exported image");
  check([graph destinationImageAllocator] == [MPSImage defaultAllocator], "results are permanent");
  check([result imageAllocator] == [MPSTemporaryImage defaultAllocator], "other images are temporary");
  NSMutableArray *exported = [NSMutableArray array];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *sum = [graph encodeToCommandBuffer:buffer
                                  sourceImages:images_for(graph, {{"x", kX}, {"y", kY}})
                                  sourceStates:nil
                            intermediateImages:exported
                             destinationStates:nil];
  run(buffer);
  check(allocator->images == 1 && [exported count] == 1, "the node's allocator");
  check([[exported objectAtIndex:0] featureChannelFormat] == MPSImageFeatureChannelFormatFloat16, "its own format");
  check_equal("the exported image", read_half_image([exported objectAtIndex:0]), rectified(kX), 0);
  check_equal("the result", read_image(sum), plus(rectified(kX), kY), 1e-6);
  // An encode that does not take it needs nothing from the program.
  check_equal("without an array", run_graph(graph, {{"x", kX}, {"y", kY}}), plus(rectified(kX), kY), 1e-6);

  // A temporary exported image has a readCount of 1, an exported result 2.
  MPSNNImageNode *kept = relu(input("x")), *end = relu(kept);
  [kept setExportFromGraph:YES];
  [end setExportFromGraph:YES];
  MPSNNGraph *temporary = graph_of(end);
  [temporary setDestinationImageAllocator:[MPSTemporaryImage defaultAllocator]];
  [exported removeAllObjects];
  buffer = command_buffer();
  MPSTemporaryImage *last = (MPSTemporaryImage *)[temporary encodeToCommandBuffer:buffer
                                                                     sourceImages:images_for(temporary, {{"x", kX}})
                                                                     sourceStates:nil
                                                               intermediateImages:exported
                                                                destinationStates:nil];
  check([exported count] == 2 && [(MPSTemporaryImage *)[exported objectAtIndex:0] readCount] == 1 &&
            [exported objectAtIndex:1] == last && [last readCount] == 2,
        "readCounts of temporary exported images");
  [(MPSTemporaryImage *)[exported objectAtIndex:0] setReadCount:0];
  [last setReadCount:0];
  run(buffer);
}

/// Temporary sources are read as often as the graph says, in single and batch encodes.
void test_read_counts() {
  MPSNNImageNode *x = input("x");
  MPSNNGraph *graph = graph_of(add(relu(x), x));
  check([graph readCountForSourceImageAtIndex:0] == 2, "two reads");
  for (const long count : {1L, 3L}) {
    id<MTLCommandBuffer> buffer = command_buffer();
    NSMutableArray *batch = [NSMutableArray array];
    const Tensor values = Tensor::random(count, 5, 7, 8, 4);
    MPSCNNNeuron *copy = [[[MPSCNNNeuron alloc]
          initWithDevice:device
        neuronDescriptor:[MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeNone]] autorelease];
    for (MPSImage *image in make_batch(values)) {
      MPSTemporaryImage *temporary = (MPSTemporaryImage *)[copy encodeToCommandBuffer:buffer sourceImage:image];
      [temporary setReadCount:2];
      [batch addObject:temporary];
    }
    MPSImageBatch *result = [graph encodeBatchToCommandBuffer:buffer
                                                 sourceImages:[NSArray arrayWithObject:batch]
                                                 sourceStates:nil];
    for (MPSTemporaryImage *image in batch) check([image readCount] == 0, "a temporary input has been read");
    run(buffer);
    check_equal("temporary inputs", read_images(result), plus(rectified(values), values), 1e-6);
  }
}

void test_policies() {
  TestSource *source = convolution_source(3, 8, 8, 5);
  MPSCNNConvolution *kernel = [[[MPSCNNConvolution alloc] initWithDevice:device weights:source] autorelease];
  const auto with_policy = [&](id<MPSNNPadding> policy) {
    MPSCNNConvolutionNode *node = [MPSCNNConvolutionNode nodeWithSource:input("x") weights:source];
    [node setPaddingPolicy:policy];
    [kernel setPadding:policy];
    const Tensor got = run_graph(graph_of([node resultImage]), {{"x", kX}});
    check_equal("a padding policy", got, result_of(kernel, make_image(kX)), 0);
    return got;
  };
  for (const MPSNNPaddingMethod method :
       std::vector<MPSNNPaddingMethod>{MPSNNPaddingMethodSizeValidOnly, MPSNNPaddingMethodSizeFull,
                                       MPSNNPaddingMethodSizeSame | MPSNNPaddingMethodAddRemainderToTopLeft}) {
    const Tensor got = with_policy([MPSNNDefaultPadding paddingWithMethod:method]);
    const long border = method == MPSNNPaddingMethodSizeValidOnly ? -2 : method == MPSNNPaddingMethodSizeFull ? 2 : 0;
    check(got.h == 5 + border && got.w == 7 + border, "size of a policy");
  }
  ProgramPolicy *policy = [[[ProgramPolicy alloc] init] autorelease];
  const Tensor got = with_policy(policy);
  check(policy->calls == 2 && got.h == 5 && got.w == 7, "a program's policy sizes the result");
  MPSNNImageNode *x = input("x");
  MPSCNNPoolingMaxNode *pooling = [MPSCNNPoolingMaxNode nodeWithSource:x filterSize:3 stride:2];
  [pooling setPaddingPolicy:[MPSNNDefaultPadding paddingForTensorflowAveragePooling]];
  const Tensor pooled = run_graph(graph_of([pooling resultImage]), {{"x", kX}});
  check(pooled.h == 3 && pooled.w == 4, "TensorFlow's policy on max pooling");
  // A gradient has the size of the forward source, whatever its node's policy is.
  policy->calls = 0;
  MPSCNNPoolingMaxGradientNode *gradient =
      [MPSCNNPoolingMaxGradientNode nodeWithSourceGradient:input("g")
                                               sourceImage:x
                                             gradientState:(MPSNNGradientStateNode *)[pooling resultState]
                                               kernelWidth:3
                                              kernelHeight:3
                                           strideInPixelsX:2
                                           strideInPixelsY:2
                                             paddingPolicy:policy];
  check([gradient paddingPolicy] == policy, "the policy of a gradient node");
  const Tensor back = run_graph(graph_of([gradient resultImage]), {{"x", kX}, {"g", Tensor::random(1, 3, 4, 8, 3)}});
  check(policy->calls == 0 && back.h == 5 && back.w == 7, "a gradient has the size of its source");
}

void test_execute_async() {
  MPSNNGraph *graph = graph_of(relu(input("x")));
  NSCondition *done = [[[NSCondition alloc] init] autorelease];
  __block MPSImage *given = nil;
  __block bool finished = false, failed_once = false;
  MPSImage *result = [graph executeAsyncWithSourceImages:images_for(graph, {{"x", kX}})
                                       completionHandler:^(MPSImage *image, NSError *error) {
                                         [done lock];
                                         given = image;
                                         failed_once = error != nil;
                                         finished = true;
                                         [done signal];
                                         [done unlock];
                                       }];
  [done lock];
  while (!finished) [done wait];
  [done unlock];
  check(given == result && !failed_once, "the handler gets the result");
  check_equal("an asynchronous result", read_image(result), rectified(kX), 0);
}

void test_reload_and_copy() {
  TestSource *source = convolution_source(1, 8, 8, 6);
  MPSNNGraph *graph = graph_of([[MPSCNNConvolutionNode nodeWithSource:input("x") weights:source] resultImage]);
  const Tensor before = run_graph(graph, {{"x", kX}});
  MPSNNGraph *copy = [[graph copy] autorelease];
  for (std::size_t i = 0; i < source->bytes.size() / sizeof(float); ++i)
    reinterpret_cast<float *>(source->bytes.data())[i] *= 2;
  for (float &bias : source->bias) bias *= 2;
  check_equal("weights are read once", run_graph(graph, {{"x", kX}}), before, 0);
  [graph reloadFromDataSources];
  Tensor twice = before;
  for (double &value : twice.values) value *= 2;
  check_equal("weights after a reload", run_graph(graph, {{"x", kX}}), twice, 1e-5);
  check_equal("a copy has kernels of its own", run_graph(copy, {{"x", kX}}), before, 0);
  [graph setOptions:MPSKernelOptionsAllowReducedPrecision];
  check([graph options] == MPSKernelOptionsAllowReducedPrecision, "options");
}

/// Pieces of a command buffer may lie between the encodes.
void test_command_buffer_in_pieces() {
  MPSNNGraph *first = graph_of(relu(input("x"))), *second = graph_of(add(input("x"), input("y")));
  [first setDestinationImageAllocator:[MPSTemporaryImage defaultAllocator]];
  MPSCommandBuffer *buffer = [MPSCommandBuffer commandBufferFromCommandQueue:queue];
  MPSImage *middle = [first encodeToCommandBuffer:buffer sourceImages:images_for(first, {{"x", kX}})];
  [buffer commitAndContinue];
  MPSImage *result = [second encodeToCommandBuffer:buffer
                                      sourceImages:[NSArray arrayWithObjects:middle, make_image(kY), nil]];
  run(buffer);
  check_equal("a graph on both pieces", read_image(result), plus(rectified(kX), kY), 1e-6);
}

/// Nodes live as long as one of them is held.
void test_lifetime() {
  const char *classes[] = {"MPSNNImageNode",
                           "MPSCNNNeuronReLUNode",
                           "MPSNNAdditionNode",
                           "MPSNNGraph",
                           "MPSNNArithmeticGradientStateNode",
                           "MPSCNNNeuronGradientNode",
                           "MPSCNNNeuron"};
  const auto alive = [&] {
    int count = 0;
    for (const char *name : classes) count += GSDebugAllocationCount(NSClassFromString(@(name)));
    return count;
  };
  GSDebugAllocationActive(YES);
  const int before = alive();
  MPSNNImageNode *last = nil;
  {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    MPSNNImageNode *x = [input("x") retain];
    last = [add(relu(x), x) retain];  // keeps both filters and the input
    [x release];
    [pool drain];
  }
  check(alive() == before + 5, "one image keeps its filters");
  MPSNNGraph *graph = nil;
  {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    graph = [graph_of(last) retain];
    MPSNNGradientFilterNode *gradient =
        [[MPSCNNNeuronReLUNode nodeWithSource:last] gradientFilterWithSource:input("g")];
    check(gradient != nil, "a gradient node");
    [pool drain];
  }
  [last release];
  check(alive() == before + 2, "a graph needs no nodes");
  {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    check_equal("a graph without its nodes", run_graph(graph, {{"x", kX}}), plus(rectified(kX), kX), 1e-6);
    [pool drain];
  }
  [graph release];
  check(alive() == before, "nothing is left");
  GSDebugAllocationActive(NO);
}

// ------------------------------------------------------------------------------------------- real networks

MPSNNImageNode *convolution(MPSNNImageNode *x, NSUInteger kernel, NSUInteger inputs, NSUInteger outputs,
                            unsigned seed) {
  TestSource *source = convolution_source(kernel, inputs, outputs, seed, 1,
                                          1.0 / std::sqrt(static_cast<double>(kernel * kernel * inputs)));
  return [[MPSCNNConvolutionNode nodeWithSource:x weights:source] resultImage];
}

Tensor by_kernel(const Tensor &x, NSUInteger kernel, NSUInteger outputs, unsigned seed) {
  const auto inputs = static_cast<NSUInteger>(x.c);
  TestSource *source = convolution_source(kernel, inputs, outputs, seed, 1,
                                          1.0 / std::sqrt(static_cast<double>(kernel * kernel * inputs)));
  return result_of([[[MPSCNNConvolution alloc] initWithDevice:device weights:source] autorelease], make_image(x));
}

/// A bottleneck block of ResNet-50 at 56 x 56.
void test_residual_block() {
  MPSNNImageNode *x = input("x");
  MPSNNImageNode *narrow = relu(convolution(x, 1, 256, 64, 1));
  MPSNNImageNode *middle = relu(convolution(narrow, 3, 64, 64, 2));
  MPSNNGraph *graph = graph_of(relu(add(convolution(middle, 1, 64, 256, 3), x)));
  const Tensor values = Tensor::random(2, 56, 56, 256, 9);
  const Tensor got = run_batch(graph, {{"x", values}});
  for (long i = 0; i < 2; ++i) {
    const Tensor one = values.image(i);
    const Tensor a = rectified(by_kernel(one, 1, 64, 1)), b = rectified(by_kernel(a, 3, 64, 2));
    check_equal("a residual block", got.image(i), rectified(plus(by_kernel(b, 1, 256, 3), one)), 1e-4);
  }
}

/// A dense block: each layer reads all layers before it.
void test_dense_block() {
  MPSNNImageNode *features = input("x");
  Tensor expected = Tensor::random(1, 28, 28, 64, 10);
  const Tensor values = expected;
  for (unsigned layer = 0; layer < 4; ++layer) {
    const NSUInteger channels = 64 + 32 * layer;
    MPSNNImageNode *made = relu(convolution(features, 3, channels, 32, 20 + layer));
    features = [[MPSNNConcatenationNode nodeWithSources:[NSArray arrayWithObjects:features, made, nil]] resultImage];
    const Tensor next = rectified(by_kernel(expected, 3, 32, 20 + layer));
    Tensor both(1, 28, 28, expected.c + 32);
    paste(both, expected, 0, 0, 0, 0);
    paste(both, next, 0, 0, 0, expected.c);
    expected = both;
  }
  check_equal("a dense block", run_graph(graph_of(features), {{"x", values}}), expected, 1e-4);
}

}  // namespace

int main() {
  return run_tests({test_inputs, test_refusals, test_results, test_formats, test_allocators, test_allocators_of_wrong_batches, test_read_counts,
                    test_policies, test_execute_async, test_reload_and_copy, test_command_buffer_in_pieces,
                    test_lifetime, test_residual_block, test_dense_block});
}

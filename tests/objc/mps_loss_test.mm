// SPDX-License-Identifier: Apache-2.0
// Losses: descriptors, labels, readCounts, refused calls, copies and archives. Values in every encode form are in
// tests/rows/objc_losses.py. Prints "N passed, N failed".

#import "mps_test.hh"

namespace {

// ------------------------------------------------------------------------------------------- the formulas

struct Function {
  MPSCNNLossType type = MPSCNNLossTypeMeanSquaredError;
  double weight = 1, smoothing = 0, classes = 1, epsilon = 1e-7, delta = 1;
};

MPSCNNLossDescriptor *describe_loss(const Function &f, MPSCNNReductionType reduction, bool across = false) {
  MPSCNNLossDescriptor *descriptor = [MPSCNNLossDescriptor cnnLossDescriptorWithType:f.type reductionType:reduction];
  [descriptor setWeight:static_cast<float>(f.weight)];
  [descriptor setLabelSmoothing:static_cast<float>(f.smoothing)];
  [descriptor setNumberOfClasses:static_cast<NSUInteger>(f.classes)];
  [descriptor setEpsilon:static_cast<float>(f.epsilon)];
  [descriptor setDelta:static_cast<float>(f.delta)];
  [descriptor setReduceAcrossBatch:across];
  return descriptor;
}

MPSCNNLoss *make_loss(const Function &f, MPSCNNReductionType reduction = MPSCNNReductionTypeSum) {
  MPSCNNLoss *kernel = [[[MPSCNNLoss alloc] initWithDevice:device
                                            lossDescriptor:describe_loss(f, reduction)] autorelease];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  return kernel;
}

MPSCNNLossDataDescriptor *describe_data(const Tensor &t,
                                        MPSDataLayout layout = MPSDataLayoutHeightxWidthxFeatureChannels) {
  std::vector<float> values;
  if (layout == MPSDataLayoutHeightxWidthxFeatureChannels) {
    values.assign(t.values.begin(), t.values.end());
  } else {
    for (long k = 0; k < t.c; ++k)
      for (long y = 0; y < t.h; ++y)
        for (long x = 0; x < t.w; ++x) values.push_back(static_cast<float>(t.at(0, y, x, k)));
  }
  return [MPSCNNLossDataDescriptor
      cnnLossDataDescriptorWithData:[NSData dataWithBytes:values.data() length:values.size() * sizeof(float)]
                             layout:layout
                               size:MTLSizeMake(static_cast<NSUInteger>(t.w), static_cast<NSUInteger>(t.h),
                                                static_cast<NSUInteger>(t.c))];
}

/// Make labels with one loss.
MPSCNNLossLabels *make_labels(const Tensor &t) {
  return [[[MPSCNNLossLabels alloc] initWithDevice:device
                                     lossImageSize:MTLSizeMake(1, 1, 1)
                                  labelsDescriptor:describe_data(t)
                                 weightsDescriptor:nil] autorelease];
}

NSUInteger reads_left(MPSImage *image) { return [(MPSTemporaryImage *)image readCount]; }

double loss_in(MPSCNNLossLabels *labels) { return read_image([labels lossImage]).values[0]; }

// ------------------------------------------------------------------------------------------------- tests

void test_descriptors() {
  MPSCNNLossDescriptor *descriptor = [MPSCNNLossDescriptor cnnLossDescriptorWithType:MPSCNNLossTypeHuber
                                                                       reductionType:MPSCNNReductionTypeMean];
  check([descriptor lossType] == MPSCNNLossTypeHuber && [descriptor reductionType] == MPSCNNReductionTypeMean &&
            [descriptor weight] == 1 && [descriptor labelSmoothing] == 0 && [descriptor numberOfClasses] == 1 &&
            [descriptor epsilon] == 1e-7f && [descriptor delta] == 1 && ![descriptor reduceAcrossBatch],
        "what a descriptor starts with");
  Function f;
  f.type = MPSCNNLossTypeLog, f.weight = 0.5, f.smoothing = 0.25, f.classes = 3, f.epsilon = 0.125, f.delta = 2;
  descriptor = describe_loss(f, MPSCNNReductionTypeSumByNonZeroWeights, true);
  MPSCNNLossDescriptor *copy = [[descriptor copy] autorelease];
  [descriptor setWeight:9];
  check([copy weight] == 0.5f && [copy lossType] == MPSCNNLossTypeLog && [copy numberOfClasses] == 3 &&
            [copy reduceAcrossBatch] && [copy epsilon] == 0.125f && [copy delta] == 2,
        "a copy of a descriptor");
  MPSCNNLoss *kernel = [[[MPSCNNLoss alloc] initWithDevice:device lossDescriptor:copy] autorelease];
  MPSNNForwardLoss *forward = [[[MPSNNForwardLoss alloc] initWithDevice:device lossDescriptor:copy] autorelease];
  MPSNNLossGradient *gradient = [[[MPSNNLossGradient alloc] initWithDevice:device lossDescriptor:copy] autorelease];
  const auto check_numbers = [](const std::string &what, auto *twin) {
    check([twin lossType] == MPSCNNLossTypeLog && [twin reductionType] == MPSCNNReductionTypeSumByNonZeroWeights &&
              [twin weight] == 0.5f && [twin labelSmoothing] == 0.25f && [twin numberOfClasses] == 3 &&
              [twin epsilon] == 0.125f && [twin delta] == 2 && [twin reduceAcrossBatch],
          what);
  };
  check_numbers("a kernel", kernel);
  check_numbers("a copy", (MPSCNNLoss *)[[kernel copy] autorelease]);
  check_numbers("an archive", archived(kernel));
  check_numbers("a copy of the forward kernel", (MPSNNForwardLoss *)[[forward copy] autorelease]);
  check_numbers("an archive of the forward kernel", archived(forward));
  check(![gradient computeLabelGradients], "gradients are those of the predictions");
  [gradient setComputeLabelGradients:YES];
  for (MPSNNLossGradient *twin : {(MPSNNLossGradient *)[[gradient copy] autorelease], archived(gradient)}) {
    check_numbers("a twin of the gradient kernel", twin);
    check([twin computeLabelGradients] && [twin isBackwards], "a twin computes gradients of labels");
  }
  [forward setWeight:2], [forward setLabelSmoothing:0.5f], [forward setEpsilon:0.25f], [forward setDelta:3];
  check([forward weight] == 2 && [forward labelSmoothing] == 0.5f && [forward epsilon] == 0.25f && [forward delta] == 3,
        "numbers of a forward kernel may be changed");
}

void test_data() {
  const Tensor t = Tensor::random(1, 3, 4, 5, 1);
  for (const MPSDataLayout layout :
       {MPSDataLayoutHeightxWidthxFeatureChannels, MPSDataLayoutFeatureChannelsxHeightxWidth}) {
    MPSCNNLossDataDescriptor *data = describe_data(t, layout);
    const bool planes = layout == MPSDataLayoutFeatureChannelsxHeightxWidth;
    check([data layout] == layout && [data size].width == 4 && [data size].height == 3 && [data size].depth == 5 &&
              [data bytesPerRow] == (planes ? 16 : 80) && [data bytesPerImage] == (planes ? 48 : 240),
          "steps without gaps");
    MPSCNNLossLabels *labels = [[[MPSCNNLossLabels alloc] initWithDevice:device
                                                        labelsDescriptor:[[data copy] autorelease]] autorelease];
    check_equal("labels of a layout", read_image([labels labelsImage]), t, 0);
    check([labels weightsImage] == nil && [[labels lossImage] width] == 1 &&
              [[labels lossImage] featureChannels] == 1 && [labels resourceSize] > 0 && ![labels isTemporary],
          "labels without weights");
  }
  // Rows with a gap: two of three columns.
  const float values[] = {1, 2, -1, 3, 4, -1};
  MPSCNNLossDataDescriptor *data =
      [MPSCNNLossDataDescriptor cnnLossDataDescriptorWithData:[NSData dataWithBytes:values length:sizeof values]
                                                       layout:MPSDataLayoutHeightxWidthxFeatureChannels
                                                         size:MTLSizeMake(2, 2, 1)];
  [data setBytesPerRow:12];
  MPSCNNLossLabels *labels = [[[MPSCNNLossLabels alloc] initWithDevice:device labelsDescriptor:data] autorelease];
  check(read_image([labels labelsImage]).values == std::vector<double>({1, 2, 3, 4}), "rows with a gap");
  [data setBytesPerRow:20];
  check_raises("data that end early", kArgument, "data has 24 bytes, expected 28",
               [&] { [[MPSCNNLossLabels alloc] initWithDevice:device labelsDescriptor:data]; });
  [data setBytesPerRow:4];
  check_raises("narrow rows", kArgument, "bytesPerRow (4) is no multiple of 4 of at least 8",
               [&] { [[MPSCNNLossLabels alloc] initWithDevice:device labelsDescriptor:data]; });
  check_raises("too few data", kArgument, "data has 24 bytes, too few for 3 x 3 x 1 floats", [&] {
    [MPSCNNLossDataDescriptor cnnLossDataDescriptorWithData:[NSData dataWithBytes:values length:sizeof values]
                                                     layout:MPSDataLayoutHeightxWidthxFeatureChannels
                                                       size:MTLSizeMake(3, 3, 1)];
  });
  check_raises("a size of the loss", kArgument, "lossImageSize (2 x 1 x 1, width x height x channels) is neither", [&] {
    [[MPSCNNLossLabels alloc] initWithDevice:device
                               lossImageSize:MTLSizeMake(2, 1, 1)
                            labelsDescriptor:describe_data(t)
                           weightsDescriptor:nil];
  });
  check_raises("weights of another size", kArgument, "weights have 4 x 3 x 4", [&] {
    [[MPSCNNLossLabels alloc] initWithDevice:device
                               lossImageSize:MTLSizeMake(1, 1, 1)
                            labelsDescriptor:describe_data(t)
                           weightsDescriptor:describe_data(Tensor::random(1, 3, 4, 4, 2))];
  });
  MPSImage *image = make_image(t);
  labels = [[[MPSCNNLossLabels alloc] initWithDevice:device
                                       lossImageSize:MTLSizeMake(4, 3, 5)
                                         labelsImage:image
                                        weightsImage:image] autorelease];
  check([labels labelsImage] == image && [labels weightsImage] == image && [[labels lossImage] width] == 4 &&
            [[labels lossImage] featureChannels] == 5,
        "labels in images");
}

/// A loss for each image, and the ones of MPSNNInitialGradient.
void test_reduced_losses() {
  const Tensor y = Tensor::random(4, 2, 3, 5, 100);
  MPSCNNLossDescriptor *descriptor = describe_loss({}, MPSCNNReductionTypeMean);
  MPSNNForwardLoss *forward = [[[MPSNNForwardLoss alloc] initWithDevice:device lossDescriptor:descriptor] autorelease];
  MPSNNInitialGradient *ones = [[[MPSNNInitialGradient alloc] initWithDevice:device] autorelease];
  MPSNNLossGradient *backward = [[[MPSNNLossGradient alloc] initWithDevice:device
                                                            lossDescriptor:descriptor] autorelease];
  MPSImageBatch *sources = make_batch(y), *labels = make_batch(y);
  MPSStateBatch *states = [NSArray array];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImageBatch *losses = [forward encodeBatchToCommandBuffer:buffer
                                                 sourceImages:sources
                                                       labels:labels
                                                      weights:nil
                                            destinationStates:&states
                                  destinationStateIsTemporary:NO];
  check(states == nil, "a forward loss leaves no states");
  MPSImage *first = [losses objectAtIndex:0];
  check([first width] == 1 && [first height] == 1 && [first featureChannels] == 1 && reads_left(first) == 1 &&
            [first isKindOfClass:[MPSTemporaryImage class]],
        "a reduced loss is one value");
  MPSImageBatch *initial = [ones encodeBatchToCommandBuffer:buffer sourceImages:losses];
  check(reads_left(first) == 0, "an initial gradient reads its source");
  [backward encodeBatchToCommandBuffer:buffer
                       sourceGradients:initial
                          sourceImages:sources
                                labels:labels
                               weights:nil
                          sourceStates:nil
                  destinationGradients:make_batch(y)];
  check(reads_left([initial objectAtIndex:0]) == 0, "an incoming gradient is read");
  run(buffer);
  check_equal("ones", result_of(ones, make_image(Tensor(2, 3, 4, 5, NAN))), Tensor(2, 3, 4, 5, 1), 0);
  check_twins("ones", ones, Tensor(1, 2, 2, 3, 7), 2, 2, 3);
}

void test_read_counts() {
  Function f;
  f.type = MPSCNNLossTypeSoftMaxCrossEntropy;
  MPSCNNLoss *kernel = make_loss(f);
  [kernel setDestinationImageAllocator:[MPSTemporaryImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  const Tensor x = Tensor::random(1, 2, 2, 4, 110);
  MPSCNNNeuronLinear *copy = [[[MPSCNNNeuronLinear alloc] initWithDevice:device a:1 b:0] autorelease];
  MPSImage *source = [copy encodeToCommandBuffer:buffer sourceImage:make_image(x)];
  MPSImage *target = [copy encodeToCommandBuffer:buffer sourceImage:make_image(Tensor::random(1, 2, 2, 4, 111))];
  MPSCNNLossLabels *labels = [[[MPSCNNLossLabels alloc] initWithDevice:device
                                                         lossImageSize:MTLSizeMake(1, 1, 1)
                                                           labelsImage:target
                                                          weightsImage:nil] autorelease];
  MPSImage *gradient = [kernel encodeToCommandBuffer:buffer sourceImage:source labels:labels];
  check(reads_left(source) == 0 && reads_left(target) == 0 && reads_left(gradient) == 1,
        "source and labels have been read");
  check_raises("a loss before its time", kUsage, "has not been committed", [&] { loss_in(labels); });
  [(MPSTemporaryImage *)gradient setReadCount:0];
  run(buffer);
  check(std::isfinite(loss_in(labels)), "a loss");
  // The destination of a failed encode does not count as unread.
  buffer = command_buffer();
  labels = make_labels(Tensor::random(1, 2, 2, 5, 112));
  check_raises("labels of another size", kArgument, "labels has 2 x 2 x 5 (height x width x channels) and 1 images",
               [&] { [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) labels:labels]; });
  run(buffer);
}

void test_refusals() {
  Function f;
  const Tensor y = Tensor::random(1, 2, 2, 4, 130), t = Tensor::random(1, 2, 2, 4, 131);
  MPSCNNLoss *kernel = make_loss(f);
  MPSCNNLossLabels *labels = make_labels(t);
  MPSImage *source = make_image(y), *result = make_nan_image(1, 2, 2, 4);
  id<MTLCommandBuffer> buffer = command_buffer();
  const auto refused = [&](const char *part) {
    check_raises(part, kArgument, part, [&] {
      [kernel encodeToCommandBuffer:buffer sourceImage:source labels:labels destinationImage:result];
    });
  };
  MPSCNNLossLabels *const good = labels;
  MPSImage *const good_source = source, *const good_result = result;
  labels = nil, refused("labels is nil"), labels = good;
  source = nil, refused("sourceImage is nil"), source = good_source;
  result = nil, refused("destinationImage is nil");
  result = source, refused("sourceImage and the destination share memory");
  result = [labels labelsImage], refused("labels and the destination share memory");
  result = make_nan_image(1, 2, 2, 3), refused("writes 4 feature channels"), result = good_result;
  labels = make_labels(Tensor::random(1, 2, 3, 4, 132)), refused("labels has 2 x 3 x 4"), labels = good;
  kernel = make_loss(f, MPSCNNReductionTypeNone);
  refused("The loss image has 1 x 1 x 1 (height x width x channels) and 1 images; with reductionType None 2 x 2 x 4");
  kernel = make_loss(f);
  check_raises("no labels", kArgument, "There is no loss without labels",
               [&] { [kernel encodeToCommandBuffer:buffer sourceImage:source destinationImage:result]; });
  check_raises("one object for several images", kArgument, "labels has one object for several images", [&] {
    [kernel encodeBatchToCommandBuffer:buffer
                          sourceImages:[NSArray arrayWithObjects:source, source, nil]
                                labels:[NSArray arrayWithObjects:labels, labels, nil]
                     destinationImages:make_batch(Tensor(2, 2, 2, 4))];
  });
  check_raises("few labels", kArgument, "labels has 1 elements, expected one for each of 2 images", [&] {
    [kernel encodeBatchToCommandBuffer:buffer
                          sourceImages:[NSArray arrayWithObjects:source, source, nil]
                                labels:[NSArray arrayWithObjects:labels, nil]
                     destinationImages:make_batch(Tensor(2, 2, 2, 4))];
  });
  const auto refused_numbers = [](const char *part, const std::function<void(MPSCNNLossDescriptor *)> &change) {
    check_raises(part, kArgument, part, [&] {
      MPSCNNLossDescriptor *descriptor = describe_loss({}, MPSCNNReductionTypeMean);
      change(descriptor);
      [[MPSCNNLoss alloc] initWithDevice:device lossDescriptor:descriptor];
    });
  };
  refused_numbers("labelSmoothing (2) is not between 0 and 1", [](auto *d) { [d setLabelSmoothing:2]; });
  refused_numbers("numberOfClasses (0) is not between 1", [](auto *d) { [d setNumberOfClasses:0]; });
  refused_numbers("epsilon (-1) is less than 0", [](auto *d) { [d setEpsilon:-1]; });
  refused_numbers("delta (-1) is less than 0", [](auto *d) { [d setDelta:-1]; });
  refused_numbers("weight (nan) is not a number", [](auto *d) { [d setWeight:NAN]; });
  refused_numbers("lossType (10) is not between 0 and 9",
                  [](auto *d) { [d setLossType:static_cast<MPSCNNLossType>(10)]; });
  refused_numbers("reductionType (4) is not between 0 and 3",
                  [](auto *d) { [d setReductionType:static_cast<MPSCNNReductionType>(4)]; });
  refused_numbers("reductionType (2) is not MPSCNNReductionTypeSum (1), the only one of the cosine distance",
                  [](auto *d) { [d setLossType:MPSCNNLossTypeCosineDistance]; });
  check_raises("no descriptor", kArgument, "lossDescriptor is nil", [] {
    MPSCNNLossDescriptor *none = nil;
    [[MPSCNNLoss alloc] initWithDevice:device lossDescriptor:none];
  });
  check_raises("init of a descriptor", kArgument, "is unavailable", [] { [(id)[MPSCNNLossDescriptor alloc] init]; });

  MPSNNForwardLoss *forward =
      [[[MPSNNForwardLoss alloc] initWithDevice:device
                                 lossDescriptor:describe_loss({}, MPSCNNReductionTypeSum)] autorelease];
  const auto refused_forward = [&](const char *part) {
    check_raises(part, kArgument, part, [&] {
      [forward encodeBatchToCommandBuffer:buffer
                             sourceImages:[NSArray arrayWithObject:source]
                                   labels:[NSArray arrayWithObject:make_image(t)]
                                  weights:nil
                        destinationStates:nil
                        destinationImages:make_batch(Tensor(1, 1, 1, 1))];
    });
  };
  check_raises("few results", kArgument, "destinationImages has 1 images, expected 2", [&] {
    NSArray *two = [NSArray arrayWithObjects:source, source, nil];
    [forward encodeBatchToCommandBuffer:buffer
                           sourceImages:two
                                 labels:two
                                weights:nil
                      destinationStates:nil
                      destinationImages:make_batch(Tensor(1, 1, 1, 1))];
  });
  [forward setOffset:MPSOffset{1, 0, 0}];
  refused_forward("offset (1, 0, 0) is not (0, 0, 0): the kernel has none");
  [forward setOffset:MPSOffset{0, 0, 0}];
  [forward setClipRect:MTLRegionMake3D(0, 0, 0, 1, 1, 1)];
  refused_forward("clipRect is not MPSRectNoClip");
  check_raises("a weight", kArgument, "weight (nan) is not a number", [&] { [forward setWeight:NAN]; });
  MPSNNLossGradient *backward =
      [[[MPSNNLossGradient alloc] initWithDevice:device
                                  lossDescriptor:describe_loss({}, MPSCNNReductionTypeSum)] autorelease];
  check_raises("an incoming gradient of another size", kArgument,
               "sourceGradient has 1 x 2 x 4 (height x width x channels), expected 1 x 1 x 1 or the 2 x 2 x 4", [&] {
                 [backward encodeBatchToCommandBuffer:buffer
                                      sourceGradients:make_batch(Tensor(1, 1, 2, 4))
                                         sourceImages:[NSArray arrayWithObject:source]
                                               labels:[NSArray arrayWithObject:make_image(t)]
                                              weights:nil
                                         sourceStates:nil
                                 destinationGradients:make_batch(Tensor(1, 2, 2, 4))];
               });
  check_raises("a gradient without labels", kArgument, "There is no gradient without labels", [&] {
    [backward encodeToCommandBuffer:buffer primaryImage:source secondaryImage:make_image(t) destinationImage:result];
  });
  run(buffer);
}

// ------------------------------------------------------------------------------------------------- boxes

MPSCNNYOLOLossDescriptor *describe_boxes(const std::vector<float> &anchors) {
  return [MPSCNNYOLOLossDescriptor cnnLossDescriptorWithXYLossType:MPSCNNLossTypeMeanSquaredError
                                                        WHLossType:MPSCNNLossTypeHuber
                                                confidenceLossType:MPSCNNLossTypeSigmoidCrossEntropy
                                                   classesLossType:MPSCNNLossTypeSoftMaxCrossEntropy
                                                     reductionType:MPSCNNReductionTypeSum
                                                       anchorBoxes:[NSData dataWithBytes:anchors.data()
                                                                                  length:anchors.size() * sizeof(float)]
                                               numberOfAnchorBoxes:anchors.size() / 2];
}

void test_boxes() {
  MPSCNNYOLOLossDescriptor *descriptor = describe_boxes({1, 1, 3, 2});
  check([descriptor rescore] && [descriptor scaleXY] == 10 && [descriptor scaleWH] == 10 &&
            [descriptor scaleNoObject] == 5 && [descriptor scaleObject] == 100 && [descriptor scaleClass] == 2 &&
            [descriptor minIOUForObjectPresence] == 0.7f && [descriptor maxIOUForObjectAbsence] == 0.3f &&
            ![descriptor reduceAcrossBatch] && [descriptor numberOfAnchorBoxes] == 2 &&
            [descriptor reductionType] == MPSCNNReductionTypeSum &&
            [[descriptor WHLossDescriptor] lossType] == MPSCNNLossTypeHuber,
        "what a descriptor of boxes starts with");
  [descriptor setRescore:NO];
  [descriptor setScaleXY:3], [descriptor setScaleWH:4], [descriptor setScaleClass:5];
  [descriptor setScaleObject:6], [descriptor setScaleNoObject:7];
  [[descriptor XYLossDescriptor] setWeight:0.5f];
  MPSCNNYOLOLossDescriptor *copy = [[descriptor copy] autorelease];
  [[descriptor XYLossDescriptor] setWeight:9];
  check([[copy XYLossDescriptor] weight] == 0.5f && ![copy rescore] && [copy scaleClass] == 5, "a copy of it");
  MPSCNNYOLOLoss *kernel = [[[MPSCNNYOLOLoss alloc] initWithDevice:device lossDescriptor:copy] autorelease];

  for (MPSCNNYOLOLoss *twin : {kernel, (MPSCNNYOLOLoss *)[[kernel copy] autorelease], archived(kernel)}) {
    check([twin scaleXY] == 3 && [twin scaleWH] == 4 && [twin scaleClass] == 5 && [twin scaleObject] == 6 &&
              [twin scaleNoObject] == 7 && [twin numberOfAnchorBoxes] == 2 && [[twin anchorBoxes] length] == 16 &&
              [[twin lossXY] lossType] == MPSCNNLossTypeMeanSquaredError && [[twin lossXY] weight] == 0.5f &&
              [[twin lossWH] lossType] == MPSCNNLossTypeHuber &&
              [[twin lossConfidence] lossType] == MPSCNNLossTypeSigmoidCrossEntropy &&
              [[twin lossClasses] lossType] == MPSCNNLossTypeSoftMaxCrossEntropy && ![twin reduceAcrossBatch] &&
              [twin reductionType] == MPSCNNReductionTypeSum && [twin minIOUForObjectPresence] == 0.7f &&
              [twin maxIOUForObjectAbsence] == 0.3f,
          "properties of a loss of boxes");
  }
  const auto refused = [](const char *part, const std::function<void(MPSCNNYOLOLossDescriptor *)> &change) {
    check_raises(part, kArgument, part, [&] {
      MPSCNNYOLOLossDescriptor *given = describe_boxes({1, 1, 3, 2});
      change(given);
      [[MPSCNNYOLOLoss alloc] initWithDevice:device lossDescriptor:given];
    });
  };
  refused("numberOfAnchorBoxes (0) is not between 1 and 1024", [](auto *d) { [d setNumberOfAnchorBoxes:0]; });
  refused("anchorBoxes has 16 bytes, expected 24", [](auto *d) { [d setNumberOfAnchorBoxes:3]; });
  refused("WHLossDescriptor is nil", [](auto *d) {
    MPSCNNLossDescriptor *none = nil;
    [d setWHLossDescriptor:none];
  });
  id<MTLCommandBuffer> buffer = command_buffer();
  check_raises("channels of boxes", kArgument, "13 feature channels", [&] {
    [kernel encodeToCommandBuffer:buffer
                      sourceImage:make_image(Tensor(1, 1, 1, 13))
                           labels:make_labels(Tensor(1, 1, 1, 13))
                 destinationImage:make_image(Tensor(1, 1, 1, 13))];
  });
  run(buffer);
}

}  // namespace

int main() {
  return run_tests({test_descriptors, test_data, test_reduced_losses, test_read_counts, test_refusals, test_boxes});
}

// SPDX-License-Identifier: Apache-2.0
// Comparisons, Gram matrices, samples, correlations, scaled and transposed images: properties, sizes of results and
// refused calls. Values are in tests/rows/objc_filters.py. Prints "N passed, N failed".

#import "mps_test.hh"

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

namespace {

template <class Kernel>
Kernel *make() {
  return [[(id)[Kernel alloc] initWithDevice:device] autorelease];
}

MPSImage *result_of_two(MPSCNNBinaryKernel *kernel, MPSImage *first, MPSImage *second) {
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *result = [kernel encodeToCommandBuffer:buffer primaryImage:first secondaryImage:second];
  run(buffer);
  return result;
}

void test_compare() {
  MPSNNCompare *kernel = make<MPSNNCompare>();
  check([kernel comparisonType] == MPSNNComparisonTypeEqual && [kernel threshold] == 0, "equal, threshold 0");
  check([kernel primaryScale] == 1 && [kernel bias] == 0, "inherited properties have no effect");
  const Tensor x = Tensor::random(1, 3, 4, 5, 1), one = Tensor::random(1, 1, 1, 5, 2);
  [kernel setSecondaryStrideInPixelsX:0];
  [kernel setSecondaryStrideInPixelsY:0];
  [kernel setComparisonType:MPSNNComparisonTypeLess];
  Tensor less = x;
  for (long y = 0; y < 3; ++y)
    for (long column = 0; column < 4; ++column)
      for (long k = 0; k < 5; ++k) less.at(0, y, column, k) = x.at(0, y, column, k) < one.at(0, 0, 0, k) ? 1 : 0;
  check_equal("less than one pixel", read_image(result_of_two(kernel, make_image(x), make_image(one))), less, 0);
  MPSNNCompare *twin = archived([[kernel copy] autorelease]);
  check([twin comparisonType] == MPSNNComparisonTypeLess, "an archive has the type");
  MPSImage *images[] = {make_image(x), make_image(one)};
  check([kernel resultStateForPrimaryImage:images[0]
                            secondaryImage:images[1]
                              sourceStates:nil
                          destinationImage:images[0]] == nil,
        "a comparison has no state");
  const auto refused = [&](const char *part) {
    check_raises(part, kArgument, part, [&] { result_of_two(kernel, images[0], images[1]); });
  };
  [kernel setComparisonType:static_cast<MPSNNComparisonType>(6)];
  refused("comparisonType (6) is not one of 0 to 5");
  [kernel setComparisonType:MPSNNComparisonTypeEqual];
  [kernel setThreshold:-1];
  refused("threshold (-1) is not at least 0");
  [kernel setThreshold:0];
  [kernel setBias:2];
  refused("bias (2)");
}

void test_gram_matrix() {
  MPSNNGramMatrixCalculation *kernel = make<MPSNNGramMatrixCalculation>();
  check([kernel alpha] == 1 && [make<MPSNNGramMatrixCalculationGradient>() alpha] == 1, "alpha is 1");
  const Tensor x = Tensor::random(2, 4, 5, 6, 3);
  const Tensor result = result_of(kernel, make_image(x));
  check(result.n == 2 && result.h == 1 && result.w == 6 && result.c == 6, "as wide as there are channels");
  check_twins("Gram matrix", kernel, x, 1, 6, 6);
  check_raises("a larger destination", kArgument, "writes 6 x 1 pixels (width x height), and clipRect selects 7 x 1",
               [&] { encode(kernel, make_image(x), make_nan_image(2, 1, 7, 6)); });
  [kernel setOffset:{1, 0, 0}];
  check_raises("an offset", kArgument, "offset (1, 0) is not (0, 0)",
               [&] { encode(kernel, make_image(x), make_nan_image(2, 1, 6, 6)); });
  MPSNNGramMatrixCalculationGradient *gradient = make<MPSNNGramMatrixCalculationGradient>();
  check_raises("a gradient of other extents", kArgument, "expected 6 x 1 x 6", [&] {
    [gradient encodeToCommandBuffer:command_buffer()
                       primaryImage:make_nan_image(2, 1, 5, 6)
                     secondaryImage:make_image(x)
                   destinationImage:make_nan_image(2, 4, 5, 6)];
  });
  // The state sizes the result, and brings alpha.
  [kernel setOffset:{0, 0, 0}];
  [kernel setAlpha:0.25f];
  [gradient setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSState *state = nil;
  MPSImage *source = make_image(x.image(0));
  MPSImage *y = [kernel encodeToCommandBuffer:buffer
                                  sourceImage:source
                             destinationState:&state
                  destinationStateIsTemporary:NO];
  MPSImage *dx = [gradient encodeToCommandBuffer:buffer sourceGradient:y sourceImage:source gradientState:state];
  run(buffer);
  check([dx width] == 5 && [dx height] == 4 && [dx featureChannels] == 6 && [gradient alpha] == 0.25f,
        "the gradient's size and alpha are the state's");
}

void test_grid_sample() {
  MPSNNGridSample *kernel = make<MPSNNGridSample>();
  check([kernel useGridValueAsInputCoordinate], "positions are absolute");
  const Tensor x = Tensor::random(1, 4, 5, 3, 4);
  Tensor grid(1, 2, 3, 2, 1.0);
  const Tensor got = read_image(result_of_two(kernel, make_image(x), make_image(grid)));
  Tensor expected(1, 2, 3, 3);
  for (long y = 0; y < 2; ++y)
    for (long column = 0; column < 3; ++column)
      for (long k = 0; k < 3; ++k) expected.at(0, y, column, k) = x.at(0, 1, 1, k);
  check_equal("one position for all", got, expected, 0);
  check_raises("a grid of three channels", kArgument, "reads 3 feature channels of secondaryImage, expected 2",
               [&] { result_of_two(kernel, make_image(x), make_nan_image(1, 2, 3, 3)); });
  [kernel setPrimaryStrideInPixelsX:2];
  check_raises("a stride", kArgument, "primaryStrideInPixelsX (2)",
               [&] { result_of_two(kernel, make_image(x), make_image(grid)); });
}

void test_local_correlation() {
  MPSNNLocalCorrelation *kernel = make<MPSNNLocalCorrelation>();
  check([kernel windowInX] == 0 && [kernel windowInY] == 0 && [kernel strideInX] == 1 && [kernel strideInY] == 1,
        "windows of one pixel");
  [kernel setWindowInX:2];
  [kernel setWindowInY:1];
  MPSImage *a = make_image(Tensor::random(1, 4, 5, 3, 5)), *b = make_image(Tensor::random(1, 4, 5, 3, 6));
  check([result_of_two(kernel, a, b) featureChannels] == 15, "a channel for each offset");
  check([static_cast<MPSNNLocalCorrelation *>(archived(kernel)) windowInX] == 2, "an archive has the window");
  [kernel setStrideInX:0];
  check_raises("no stride", kArgument, "strideInX (0) is not between 1 and", [&] { result_of_two(kernel, a, b); });
  check_raises("a large window", kArgument, "windowInY (20000) is not between 0 and", [] {
    [[MPSNNLocalCorrelation alloc] initWithDevice:device windowInX:0 windowInY:20000 strideInX:1 strideInY:1];
  });
  [kernel setStrideInX:1];
  check_raises("sources of two sizes", kArgument, "reads 5 x 4 pixels",
               [&] { result_of_two(kernel, a, make_nan_image(1, 3, 5, 3)); });
}

void scale(MPSImageScale *kernel, MPSImage *source, MPSImage *destination) {
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:source destinationImage:destination];
  run(buffer);
}

void test_scale() {
  check_raises("the base class", kArgument, "use a subclass", [] { make<MPSImageScale>(); });
  MPSImageLanczosScale *kernel = make<MPSImageLanczosScale>();
  check([kernel scaleTransform] == NULL && [kernel edgeMode] == MPSImageEdgeModeClamp, "no transform, clamped");
  MPSScaleTransform transform = {2, 4, -1, 3};
  [kernel setScaleTransform:&transform];
  transform = {};
  const MPSScaleTransform *kept = [kernel scaleTransform];
  check(kept != &transform && kept->scaleX == 2 && kept->translateY == 3, "the transform is copied");
  MPSImageLanczosScale *twin = archived([[kernel copy] autorelease]);
  check([twin scaleTransform]->scaleY == 4 && [twin scaleTransform]->translateX == -1, "an archive has it");
  const MPSRegion region = [kernel sourceRegionForDestinationSize:MTLSizeMake(8, 16, 1)];
  check(region.origin.x == 0.5 - 3 && region.size.width == 4 + 6 && region.origin.y == -0.75 - 3 &&
            region.size.height == 4 + 6,
        "pixels of the source");
  [kernel setScaleTransform:NULL];
  check([kernel scaleTransform] == NULL, "no transform again");
  check_raises("a region without a transform", kArgument, "depends on the size of the source",
               [&] { [kernel sourceRegionForDestinationSize:MTLSizeMake(8, 16, 1)]; });
  for (const MPSScaleTransform &bad :
       {MPSScaleTransform{0, 1, 0, 0}, {1, -1, 0, 0}, {1, NAN, 0, 0}, {1, 1, INFINITY, 0}}) {
    [kernel setScaleTransform:&bad];
    check_raises("a transform", kArgument, "is not between",
                 [&] { scale(kernel, make_nan_image(1, 4, 4, 4), make_nan_image(1, 4, 4, 4)); });
  }
  [kernel setScaleTransform:NULL];
  [kernel setOffset:{1, 0, 0}];
  check_raises("an offset", kArgument, "offset (1, 0) is not (0, 0)",
               [&] { scale(kernel, make_nan_image(1, 4, 4, 4), make_nan_image(1, 4, 4, 4)); });
}

/// A constant stays constant, whatever the size, also with textures of bytes.
void test_textures() {
  MTLTextureDescriptor *described = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatRGBA8Unorm
                                                                                       width:40
                                                                                      height:30
                                                                                   mipmapped:NO];
  [described setUsage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
  id<MTLTexture> source = [[device newTextureWithDescriptor:described] autorelease];
  [described setWidth:17];
  [described setHeight:9];
  id<MTLTexture> small = [[device newTextureWithDescriptor:described] autorelease];
  std::vector<unsigned char> bytes(40 * 30 * 4, 77);
  [source replaceRegion:MTLRegionMake2D(0, 0, 40, 30) mipmapLevel:0 withBytes:bytes.data() bytesPerRow:160];
  for (MPSUnaryImageKernel *kernel in
       [NSArray arrayWithObjects:make<MPSImageLanczosScale>(), make<MPSImageBilinearScale>(), nil]) {
    id<MTLCommandBuffer> buffer = command_buffer();
    [kernel encodeToCommandBuffer:buffer sourceTexture:source destinationTexture:small];
    run(buffer);
    std::vector<unsigned char> got(17 * 9 * 4, 0);
    [small getBytes:got.data() bytesPerRow:17 * 4 fromRegion:MTLRegionMake2D(0, 0, 17, 9) mipmapLevel:0];
    check(got == std::vector<unsigned char>(17 * 9 * 4, 77), "a constant picture stays constant");
  }
}

void test_transpose() {
  MPSImageTranspose *kernel = make<MPSImageTranspose>();
  check([kernel edgeMode] == MPSImageEdgeModeZero, "zeros around the source");
  const MPSRegion region = [kernel sourceRegionForDestinationSize:MTLSizeMake(3, 8, 1)];
  check(region.size.width == 8 && region.size.height == 3, "rows and columns are exchanged");
  check_raises("another number of channels", kArgument, "writes 4 feature channels", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                      sourceImage:make_nan_image(1, 2, 3, 4)
                 destinationImage:make_nan_image(1, 3, 2, 3)];
  });
}

}  // namespace

int main() {
  return run_tests({test_compare, test_gram_matrix, test_grid_sample, test_local_correlation, test_scale, test_textures,
                    test_transpose});
}

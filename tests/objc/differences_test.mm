// SPDX-License-Identifier: Apache-2.0
// Rows of docs/differences_from_apple.md that no other test covers: one function each, named in the row's last column.
// Prints "N passed, N failed".

#import "mps_test.hh"
#import "sharing.hh"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

/// Custom bit only; takes the suggestion.
@interface SuggestedPadding : NSObject<MPSNNPadding>
@end
@implementation SuggestedPadding
- (MPSNNPaddingMethod)paddingMethod {
  return MPSNNPaddingMethodCustom;
}
+ (BOOL)supportsSecureCoding {
  return YES;
}
- (void)encodeWithCoder:(NSCoder *)coder {
  (void)coder;
}
- (id)initWithCoder:(NSCoder *)coder {
  (void)coder;
  return [self init];
}
@end

namespace {

NSString *const kMissing = @"MPSNotImplementedException";

template <class Kernel = MPSCNNConvolution>
Kernel *make_kernel(id<MPSCNNConvolutionDataSource> source) {
  return [[[Kernel alloc] initWithDevice:device weights:source] autorelease];
}

/// Data source that keeps float32 weights, so that results are exact to a few units in the last place.
FullTestSource *float_source(MPSCNNConvolutionDescriptor *descriptor, const std::vector<double> &weights,
                             const std::vector<double> &bias) {
  FullTestSource *source = make_source<FullTestSource>(descriptor, weights, bias);
  source->kept = MPSDataTypeFloat32;
  return source;
}

/// Return the kernel's result for x in an image of h x w x c.
Tensor result_of(MPSCNNKernel *kernel, const Tensor &x, long h, long w, long c) {
  MPSImage *dst = make_nan_image(x.n, h, w, c);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:dst];
  run(buffer);
  return read_image(dst);
}

/// Return the image that the encode returns for x.
MPSImage *returned_for(MPSCNNKernel *kernel, const Tensor &x) {
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *dst = [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x)];
  run(buffer);
  return dst;
}

// ------------------------------------------------------------------- chosen where Apple's behaviour is unknown

/// Halfway cases round to even; values half a step or more above the max half are infinite.
void test_rounding_of_pixels() {
  const double step = std::ldexp(1, -10), min = std::ldexp(1, -24);
  const double given[] = {1 + step / 2, 1 + 1.5 * step, 1 + 0.51 * step, -1 - step / 2, 2049,       2051,
                          65519,        65520,          min / 2,         1.5 * min,     0.51 * min, -min / 4};
  const double stored[] = {1, 1 + 2 * step, 1 + step, -1, 2048, 2052, 65504, INFINITY, 0, 2 * min, min, 0};
  Tensor x(1, 1, 1, 12), expected = x;
  std::copy(given, given + 12, x.values.begin());
  std::copy(stored, stored + 12, expected.values.begin());
  MPSCNNNeuronLinear *kernel = [[[MPSCNNNeuronLinear alloc] initWithDevice:device a:1 b:0] autorelease];
  MPSImage *dst =
      [[[MPSImage alloc] initWithDevice:device
                        imageDescriptor:describe(1, 1, 1, 12, MPSImageFeatureChannelFormatFloat16)] autorelease];
  MPSCNNNeuronLinear *back = [[[MPSCNNNeuronLinear alloc] initWithDevice:device a:1 b:0] autorelease];
  MPSImage *wide = make_nan_image(1, 1, 1, 12);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:make_image(x) destinationImage:dst];
  [back encodeToCommandBuffer:buffer sourceImage:dst destinationImage:wide];
  run(buffer);
  check_equal("a pixel stored as half", read_image(wide), expected, 0);
}

/// For single NULL arrays see tests/rows/objc_places.py.
void test_batch_norm_without_arrays() {
  const float mean[] = {0.5f, -1}, ones[] = {1, 1};
  const std::vector<double> w = random_values(6, 1), b = random_values(2, 2);
  const Tensor x = Tensor::random(1, 2, 3, 3, 3);
  MPSCNNConvolutionDescriptor *d = descriptor_of(1, 1, 3, 2);
  [d setBatchNormalizationParametersForInferenceWithMean:mean variance:ones gamma:ones beta:mean epsilon:1e-3f];
  [d setBatchNormalizationParametersForInferenceWithMean:NULL variance:NULL gamma:NULL beta:NULL epsilon:1e-3f];
  check_equal("all four NULL", result_of(make_kernel(float_source(d, w, b)), x, 2, 3, 2),
              convolve(x, w, b, 2, Geometry(), 2, 3));
}

void test_neuron_defaults() {
  const struct {
    MPSCNNNeuronType type;
    float c;
  } rows[] = {{MPSCNNNeuronTypePower, 1}, {MPSCNNNeuronTypeExponential, -1}, {MPSCNNNeuronTypeLogarithm, -1}};
  for (const auto &row : rows) {
    MPSNNNeuronDescriptor *d = [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:row.type];
    check([d a] == 1 && [d b] == 0 && [d c] == row.c, "defaults of neuron " + std::to_string(row.type));
    d = [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:row.type a:3];
    check([d a] == 3 && [d b] == 0 && [d c] == row.c, "b and c of neuron " + std::to_string(row.type));
  }
}

void test_inverse_padding() {
  const MPSNNPaddingMethod rest = MPSNNPaddingMethodAlignTopLeft | MPSNNPaddingMethodAddRemainderToBottomLeft |
                                  MPSNNPaddingMethodCustomAllowForNodeFusion | MPSNNPaddingMethodExcludeEdges;
  const MPSNNPaddingMethod pairs[][2] = {{MPSNNPaddingMethodSizeValidOnly, MPSNNPaddingMethodSizeFull},
                                         {MPSNNPaddingMethodSizeFull, MPSNNPaddingMethodSizeValidOnly},
                                         {MPSNNPaddingMethodSizeSame, MPSNNPaddingMethodSizeSame}};
  for (const auto &pair : pairs) {
    const MPSNNPaddingMethod got = [[[MPSNNDefaultPadding paddingWithMethod:pair[0] | rest] inverse] paddingMethod];
    check(got == (pair[1] | rest), "inverse of " + std::to_string(pair[0]) + " is " + std::to_string(got));
  }
}

/// The suggestion for a source of 1 x 2 and a kernel of 3 x 4 is -1 x -1 pixels; mps_test.mm has a policy that adds to
/// it.
void test_custom_padding_that_stays_below_1() {
  MPSCNNConvolution *kernel = make_kernel(make_source(descriptor_of(3, 4, 3, 2), random_values(72, 6), {}));
  [kernel setPadding:[[[SuggestedPadding alloc] init] autorelease]];
  check_raises("a result below 1 pixel", kArgument, "-1 x -1 pixels",
               [&] { [kernel encodeToCommandBuffer:command_buffer() sourceImage:make_image(Tensor(1, 1, 2, 3))]; });
}

void test_image_range_of_returned_images() {
  MPSCNNConvolution *kernel = make_kernel(make_source(descriptor_of(1, 1, 3, 2), random_values(6, 7), {}));
  [kernel setOffset:MPSOffset{5, 6, 2}];
  MPSImage *dst = returned_for(kernel, Tensor::random(3, 2, 2, 3, 8));
  check([dst numberOfImages] == 3, "as many images as the source");
  check([kernel offset].x == 0 && [kernel offset].y == 0 && [kernel offset].z == 0, "offset is computed, z is 0");
}

void test_transpose_edge_modes() {
  MPSCNNConvolutionTranspose *kernel =
      make_kernel<MPSCNNConvolutionTranspose>(make_source(descriptor_of(3, 3, 3, 2), random_values(54, 14), {}));
  check([kernel edgeMode] == MPSImageEdgeModeZero, "Zero is the default");
  [kernel setEdgeMode:MPSImageEdgeModeClamp];
  check_raises("a transpose with Clamp", kArgument, "edgeMode (1)",
               [&] { result_of(kernel, Tensor(1, 4, 4, 3), 4, 4, 2); });
}

/// Full: all windows that overlap the source. The first result is kernel - 1 pixels before it.
void test_placement_of_a_returned_transpose() {
  MPSCNNConvolutionDescriptor *d = descriptor_of(3, 4, 3, 2);
  [d setStrideInPixelsX:3];
  [d setStrideInPixelsY:2];
  MPSCNNConvolutionTranspose *kernel =
      make_kernel<MPSCNNConvolutionTranspose>(make_source(d, random_values(72, 15), {}));
  [kernel setPadding:[MPSNNDefaultPadding paddingWithMethod:MPSNNPaddingMethodSizeFull]];
  [kernel setOffset:MPSOffset{7, 8, 0}];
  returned_for(kernel, Tensor::random(1, 4, 5, 3, 16));
  check([kernel offset].x == 0 && [kernel offset].y == 0, "offset of a transpose");
  check([kernel kernelOffsetX] == 4 / 2 - (4 - 1) && [kernel kernelOffsetY] == 3 / 2 - (3 - 1),
        "kernelOffset of a transpose is " + std::to_string([kernel kernelOffsetX]) + ", " +
            std::to_string([kernel kernelOffsetY]));
}

/// 1.001 * 3 / sqrt(4) is folded, then rounded to half; the bias is folded and stays float.
void test_exported_weights() {
  MPSCNNConvolutionDescriptor *d = descriptor_of(1, 1, 1, 1);
  const float mean = 0.3f, variance = 4, gamma = 3, beta = 0.7f;
  [d setBatchNormalizationParametersForInferenceWithMean:&mean variance:&variance gamma:&gamma beta:&beta epsilon:0];
  MPSCNNConvolution *kernel = make_kernel(make_source(d, {1.001}, {0.1}));
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSCNNConvolutionWeightsAndBiasesState *state = [kernel exportWeightsAndBiasesWithCommandBuffer:buffer
                                                                        resultStateCanBeTemporary:NO];
  run(buffer);
  const float weight = *static_cast<const float *>([[state weights] contents]);
  const float bias = *static_cast<const float *>([[state biases] contents]);
  check(weight == 1.501953125f, "an exported weight is " + std::to_string(weight));  // 1538 / 1024
  check(std::fabs(bias - 0.4f) < 1e-6f, "an exported bias is " + std::to_string(bias));
}

/// For other channels of one image see mps_sources_test.mm.
void test_one_image_as_source_and_destination() {
  MPSCNNNeuronLinear *kernel = [[[MPSCNNNeuronLinear alloc] initWithDevice:device a:2 b:0] autorelease];
  const Tensor x = Tensor::random(3, 4, 5, 4, 17);
  MPSImage *image = make_image(x);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel setClipRect:MTLRegionMake3D(0, 0, 2, 5, 4, 1)];
  [kernel encodeToCommandBuffer:buffer sourceImage:image destinationImage:image];  // image 0 into image 2
  Tensor expected = x;
  Tensor doubled = x.image(0);
  for (double &value : doubled.values) value *= 2;
  paste(expected, doubled, 2, 0, 0, 0);
  [kernel setClipRect:MTLRegionMake3D(0, 2, 0, 5, 2, 1)];
  check_raises("other rows of the same image", kArgument, "share memory",
               [&] { [kernel encodeToCommandBuffer:buffer sourceImage:image destinationImage:image]; });
  run(buffer);
  check_equal("other images of one object", read_image(image), expected, 0);
}

/// Single images, batches and temporary images; arithmetic with one source or both.
void test_elementwise_in_place() {
  MPSCNNNeuronLinear *twice = [[[MPSCNNNeuronLinear alloc] initWithDevice:device a:2 b:0] autorelease];
  MPSCNNAdd *add = [[[MPSCNNAdd alloc] initWithDevice:device] autorelease];
  const Tensor x = Tensor::random(2, 4, 5, 6, 18), y = Tensor::random(2, 4, 5, 6, 19);
  Tensor sum = x;
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] = 2 * (2 * x.values[i] + y.values[i]);
  MPSImage *image = make_image(x), *other = make_image(y);
  MPSImageBatch *batch = make_batch(x);
  id<MTLCommandBuffer> buffer = command_buffer();
  [twice encodeToCommandBuffer:buffer sourceImage:image destinationImage:image];
  [add encodeToCommandBuffer:buffer primaryImage:other secondaryImage:image destinationImage:image];
  [add encodeToCommandBuffer:buffer primaryImage:image secondaryImage:image destinationImage:image];
  [twice encodeBatchToCommandBuffer:buffer sourceImages:batch destinationImages:batch];
  MPSTemporaryImage *temporary = [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer
                                                                    imageDescriptor:describe(2, 4, 5, 6)];
  [temporary setReadCount:2];
  MPSImage *result = make_nan_image(2, 4, 5, 6);
  [twice encodeToCommandBuffer:buffer sourceImage:image destinationImage:temporary];
  [twice encodeToCommandBuffer:buffer sourceImage:temporary destinationImage:temporary];
  [twice encodeToCommandBuffer:buffer sourceImage:temporary destinationImage:result];
  run(buffer);
  check_equal("in place", read_image(image), sum, 1e-6);
  Tensor doubled = x.image(1);
  for (double &value : doubled.values) value *= 2;
  check_equal("a batch in place", read_image([batch objectAtIndex:1]), doubled, 0);
  for (double &value : sum.values) value *= 8;
  check_equal("a temporary image in place", read_image(result), sum, 1e-5);
  // The gradient's mask would be made of overwritten sources.
  [add setMaximumValue:0.5f];
  MPSState *state = [add resultStateForPrimaryImage:image secondaryImage:other sourceStates:nil destinationImage:image];
  check_raises("in place with a mask", kArgument, "primaryImage and the destination share memory", [&] {
    [add encodeToCommandBuffer:command_buffer()
                  primaryImage:image
                secondaryImage:other
              destinationState:static_cast<MPSCNNArithmeticGradientState *>(state)
              destinationImage:image];
  });
}

void test_image_index_and_origin() {
  const Tensor x = Tensor::random(4, 1, 2, 3, 18);
  MPSImage *image = make_image(x);
  float two[12];
  [image readBytes:two
              dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels
             bytesPerRow:24
           bytesPerImage:24
                  region:MTLRegionMake3D(0, 0, 2, 2, 1, 2)
      featureChannelInfo:MPSImageReadWriteParams{0, 3}
              imageIndex:0];
  float one[6];
  [image readBytes:one
              dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels
             bytesPerRow:24
                  region:MTLRegionMake3D(0, 0, 2, 2, 1, 1)
      featureChannelInfo:MPSImageReadWriteParams{0, 3}
              imageIndex:1];
  check(two[0] == x.at(2, 0, 0, 0) && two[11] == x.at(3, 0, 1, 2), "origin.z alone");
  check(one[0] == x.at(3, 0, 0, 0) && one[5] == x.at(3, 0, 1, 2), "imageIndex and origin.z");
}

void test_bytes_per_row_of_one_row() {
  const Tensor x = Tensor::random(1, 3, 2, 3, 19);
  MPSImage *image = make_image(x);
  const auto read = [&](NSUInteger rows, NSUInteger bytes_per_row) {
    std::vector<float> out(18, NAN);
    [image readBytes:out.data()
                dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels
               bytesPerRow:bytes_per_row
                    region:MTLRegionMake2D(0, 1, 2, rows)
        featureChannelInfo:MPSImageReadWriteParams{0, 3}
                imageIndex:0];
    return out;
  };
  for (NSUInteger nonsense : {1ul, 7ul, 1000000ul}) {
    const std::vector<float> row = read(1, nonsense);
    check(row[0] == x.at(0, 1, 0, 0) && row[5] == x.at(0, 1, 1, 2) && std::isnan(row[6]),
          "one row and bytesPerRow " + std::to_string(nonsense));
  }
  check_raises("two rows", kArgument, "bytesPerRow (7)", [&] { read(2, 7); });
}

void test_size_of_small_types() {
  for (MPSDataType type : {MPSDataTypeUnorm1, MPSDataTypeInt2, MPSDataTypeUInt2, MPSDataTypeInt4, MPSDataTypeUInt4})
    check(MPSSizeofMPSDataType(type) == 1, "bytes of type " + std::to_string(type));
}

// -------------------------------------------------------------------------------------- different on purpose

/// A wrong argument, a wrong order of calls, no memory: an exception each, with class, property, value and limit.
void test_breaches_are_exceptions() {
  check_raises("an argument", kArgument, "MPSImage: width (16385) is more than the maximum (16384).",
               [] { [[[MPSImage alloc] initWithDevice:device imageDescriptor:describe(1, 1, 16385, 1)] autorelease]; });
  id<MTLCommandBuffer> buffer = command_buffer();
  run(buffer);
  check_raises("an order of calls", kUsage, "MTLCommandBuffer: commit came too late", [&] { [buffer commit]; });
  // Memory is allocated on first use; two thirds of the machine's do not fit in twice. A gigabyte per channel.
  const long channels = std::max(1l, static_cast<long>([device maxBufferLength] / 3 * 2 >> 30));
  check_raises("memory", NSMallocException, "there is no memory for", [&] {
    MPSImage *images[2];
    for (MPSImage *&image : images) {
      image = [[[MPSImage alloc] initWithDevice:device
                                imageDescriptor:describe(1, 16384, 16384, channels)] autorelease];
      float pixel[4];
      [image readBytes:pixel
                  dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels
                 bytesPerRow:16
                      region:MTLRegionMake2D(0, 0, 1, 1)
          featureChannelInfo:MPSImageReadWriteParams{0, 1}
                  imageIndex:0];
    }
  });
}

void test_skip_api_validation() {
  MPSCNNConvolution *kernel = make_kernel(make_source(descriptor_of(1, 1, 3, 2), random_values(6, 20), {}));
  [kernel setOptions:MPSKernelOptionsSkipAPIValidation];
  check_raises("wrong channels", kArgument, "inputFeatureChannels is 3",
               [&] { result_of(kernel, Tensor(1, 2, 2, 4), 2, 2, 2); });
}

void test_pooling_without_strides() {
  MPSCNNPoolingMax *kernel = [[[MPSCNNPoolingMax alloc] initWithDevice:device kernelWidth:3
                                                          kernelHeight:2] autorelease];
  check([kernel strideInPixelsX] == 1 && [kernel strideInPixelsY] == 1, "strides");
  check([kernel kernelWidth] == 3 && [kernel kernelHeight] == 2, "extents");
}

void test_padding_that_excludes_edges() {
  MPSCNNPoolingAverage *kernel = [[[MPSCNNPoolingAverage alloc] initWithDevice:device
                                                                   kernelWidth:3
                                                                  kernelHeight:3
                                                               strideInPixelsX:1
                                                               strideInPixelsY:1] autorelease];
  check([kernel edgeMode] == MPSImageEdgeModeZero, "Zero at first");
  [kernel
      setPadding:[MPSNNDefaultPadding paddingWithMethod:MPSNNPaddingMethodSizeSame | MPSNNPaddingMethodExcludeEdges]];
  MPSImageDescriptor *descriptor =
      [MPSImageDescriptor imageDescriptorWithChannelFormat:MPSImageFeatureChannelFormatFloat32
                                                     width:5
                                                    height:4
                                           featureChannels:1];
  MPSImage *source = [[[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor] autorelease];
  MPSImageDescriptor *result = [kernel destinationImageDescriptorForSourceImages:[NSArray arrayWithObject:source]
                                                                    sourceStates:nil];
  check([kernel edgeMode] == MPSImageEdgeModeClamp, "Clamp");
  check([result width] == 5 && [result height] == 4, "size");
}

void test_missing_classes_and_methods() {
  check_raises("a class", kMissing, "MPSPredicate",
               [] { [[(id)[MPSPredicate alloc] initWithDevice:device] autorelease]; });
  check_raises("a method", kMissing, "newSharedTextureWithDescriptor",
               [] { [device newSharedTextureWithDescriptor:[[MTLTextureDescriptor new] autorelease]]; });
}

/// A queue for two makes three command buffers that are never committed, then one that is.
void test_uncommitted_command_buffers_take_no_room() {
  id<MTLCommandQueue> narrow = [[device newCommandQueueWithMaxCommandBufferCount:2] autorelease];
  std::atomic<bool> done{false};
  std::thread worker([&] {
    GSRegisterCurrentThread();
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    id<MTLCommandBuffer> last = nil;
    for (int i = 0; i < 4; ++i) last = [narrow commandBuffer];
    [last commit];
    [last waitUntilCompleted];
    done = true;
    [pool drain];
    GSUnregisterCurrentThread();
  });
  for (int i = 0; i < 10000 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  check(done, "a queue gives command buffers while none is committed");
  if (done)
    worker.join();
  else
    worker.detach();
}

void test_waiting_ends_after_handlers() {
  __block bool handled = false;
  __block bool let_go = false;
  std::vector<float> memory(4);
  id<MTLCommandBuffer> buffer = command_buffer();
  {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    MPSImage *borrowed = [[MPSImage alloc] initWithDevice:device
                                          imageDescriptor:describe(1, 1, 1, 4)
                                              bytesNoCopy:memory.data()
                                            bytesPerPixel:16
                                              bytesPerRow:16
                                            bytesPerImage:16
                                                 readOnly:NO
                                              deallocator:^{
                                                let_go = true;
                                              }];
    MPSCNNNeuronAbsolute *kernel = [[[MPSCNNNeuronAbsolute alloc] initWithDevice:device] autorelease];
    [kernel encodeToCommandBuffer:buffer sourceImage:borrowed destinationImage:make_nan_image(1, 1, 1, 4)];
    [borrowed release];
    [pool drain];
  }
  [buffer addCompletedHandler:^(id<MTLCommandBuffer>) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    handled = true;
  }];
  check(!let_go, "encoded work keeps the memory");
  run(buffer);
  check(handled, "waitUntilCompleted returns after the handlers");
  check(let_go, "waitUntilCompleted returns after memory was let go");
}

void test_purgeable_contents_stay() {
  id<MTLBuffer> buffer = [[device newBufferWithLength:4096 options:0] autorelease];
  std::memset([buffer contents], 7, 4096);
  [buffer setPurgeableState:MTLPurgeableStateVolatile];
  [buffer setPurgeableState:MTLPurgeableStateEmpty];
  [buffer setPurgeableState:MTLPurgeableStateNonVolatile];
  const auto *bytes = static_cast<const unsigned char *>([buffer contents]);
  check(bytes[0] == 7 && bytes[4095] == 7, "contents of a purgeable buffer");
  const Tensor x = Tensor::random(1, 2, 3, 4, 21);
  MPSImage *image = make_image(x);
  [image setPurgeableState:MPSPurgeableStateVolatile];
  [image setPurgeableState:MPSPurgeableStateEmpty];
  [image setPurgeableState:MPSPurgeableStateNonVolatile];
  check_equal("contents of a purgeable image", read_image(image), x, 0);
}

void test_default_storage_mode() {
  MTLTextureDescriptor *texture = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                                                     width:2
                                                                                    height:2
                                                                                 mipmapped:NO];
  check([texture storageMode] == MTLStorageModeShared &&
            [[[device newTextureWithDescriptor:texture] autorelease] storageMode] == MTLStorageModeShared,
        "storage mode of a texture");
  check([[[device newBufferWithLength:4 options:0] autorelease] storageMode] == MTLStorageModeShared,
        "storage mode of a buffer");
  check([describe(1, 1, 1, 1) storageMode] == MTLStorageModeShared &&
            [[make_image(Tensor(1, 1, 1, 1)) texture] storageMode] == MTLStorageModeShared,
        "storage mode of an image");
}

void test_devices_are_never_released() {
  for (int i = 0; i < 5; ++i) [device release];
  check([device retainCount] == NSUIntegerMax && [[device name] length] > 0 && MTLCreateSystemDefaultDevice() == device,
        "a device after releases too many");
  [[[device newBufferWithLength:4 options:0] autorelease] contents];
}

void test_what_is_refused() {
  MTLTextureDescriptor *texture = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                                                     width:4
                                                                                    height:4
                                                                                 mipmapped:NO];
  [texture setMipmapLevelCount:2];
  check_raises("mipmaps", kArgument, "mipmapLevelCount (2) is more than the maximum (1)",
               [&] { [device newTextureWithDescriptor:texture]; });
  [texture setMipmapLevelCount:1];
  [texture setSwizzle:MTLTextureSwizzleChannelsMake(MTLTextureSwizzleGreen, MTLTextureSwizzleRed, MTLTextureSwizzleBlue,
                                                    MTLTextureSwizzleAlpha)];
  check_raises("swizzles", kArgument, "swizzle", [&] { [device newTextureWithDescriptor:texture]; });
  check([device newDefaultLibrary] == nil, "no library");
  check_raises("predicates", kMissing, "MPSPredicate", [] {
    [MPSPredicate predicateWithBuffer:[[device newBufferWithLength:4 options:0] autorelease] offset:0];
  });
}

}  // namespace

int main() {
  // With Apple's rules, devices have two copies of managed storage: the test of missing memory takes all of the machine's.
  if (const char *rules = std::getenv("MPSCNN_DEVICE"); rules != nullptr && std::string(rules) == "apple") {
    std::puts("MPSCNN_DEVICE=apple: these differences are those of openmps's own rules. 0 passed, 0 failed");
    return 0;
  }
  return run_tests({test_rounding_of_pixels,
                    test_batch_norm_without_arrays,
                    test_neuron_defaults,
                    test_inverse_padding,
                    test_custom_padding_that_stays_below_1,
                    test_image_range_of_returned_images,
                    test_transpose_edge_modes,
                    test_placement_of_a_returned_transpose,
                    test_exported_weights,
                    test_one_image_as_source_and_destination,
                    test_elementwise_in_place,
                    test_image_index_and_origin,
                    test_bytes_per_row_of_one_row,
                    test_size_of_small_types,
                    test_breaches_are_exceptions,
                    test_skip_api_validation,
                    test_pooling_without_strides,
                    test_padding_that_excludes_edges,
                    test_missing_classes_and_methods,
                    test_uncommitted_command_buffers_take_no_room,
                    test_waiting_ends_after_handlers,
                    test_purgeable_contents_stay,
                    test_default_storage_mode,
                    test_devices_are_never_released,
                    test_what_is_refused});
}

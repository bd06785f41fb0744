// SPDX-License-Identifier: Apache-2.0
// Kernels that put values at other places: upsampling, resizing, reshaping, slicing, padding; and dropout. Against
// formulas written out here: sizes, placement, batches, half precision, copies, archives, and what they refuse. Prints
// "N passed, N failed".

#import "mps_test.hh"

#include <algorithm>
#include <array>

namespace {

/// The value of a pixel, by the edge mode where there is none.
double pixel(const Tensor &x, long n, long y, long left, long c, bool clamp) {
  if (clamp) {
    y = std::min(std::max(y, 0l), x.h - 1);
    left = std::min(std::max(left, 0l), x.w - 1);
  } else if (y < 0 || y >= x.h || left < 0 || left >= x.w) {
    return 0;
  }
  return x.at(n, y, left, c);
}

double between(const Tensor &x, long n, double y, double left, long c, bool clamp) {
  const auto row = static_cast<long>(std::floor(y)), column = static_cast<long>(std::floor(left));
  const double a = y - std::floor(y), b = left - std::floor(left);
  return (1 - a) * ((1 - b) * pixel(x, n, row, column, c, clamp) + b * pixel(x, n, row, column + 1, c, clamp)) +
         a * ((1 - b) * pixel(x, n, row + 1, column, c, clamp) + b * pixel(x, n, row + 1, column + 1, c, clamp));
}

/// Every value by a function of its place.
template <class F>
Tensor made(long n, long h, long w, long c, F f) {
  Tensor t(n, h, w, c);
  for (long i = 0; i < n; ++i)
    for (long j = 0; j < h; ++j)
      for (long k = 0; k < w; ++k)
        for (long l = 0; l < c; ++l) t.at(i, j, k, l) = f(i, j, k, l);
  return t;
}

MPSImage *make_half_destination(long n, long h, long w, long c) {
  return [[[MPSImage alloc] initWithDevice:device
                           imageDescriptor:describe(n, h, w, c, MPSImageFeatureChannelFormatFloat16)] autorelease];
}

/// The batch form, one image after the other.
Tensor batch_of(MPSCNNKernel *kernel, const Tensor &x) {
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImageBatch *results = [kernel encodeBatchToCommandBuffer:buffer sourceImages:make_batch(x)];
  run(buffer);
  Tensor all;
  for (MPSImage *image in results) {
    const Tensor one = read_image(image);
    if (all.values.empty()) all = Tensor(0, one.h, one.w, one.c);
    ++all.n;
    all.values.insert(all.values.end(), one.values.begin(), one.values.end());
  }
  return all;
}

// ------------------------------------------------------------------------------------------------ upsampling

MPSCNNUpsampling *nearest(NSUInteger x, NSUInteger y) {
  return [[[MPSCNNUpsamplingNearest alloc] initWithDevice:device integerScaleFactorX:x integerScaleFactorY:y]
      autorelease];
}

MPSCNNUpsampling *bilinear(NSUInteger x, NSUInteger y, BOOL align = NO) {
  return [[[MPSCNNUpsamplingBilinear alloc] initWithDevice:device
                                       integerScaleFactorX:x
                                       integerScaleFactorY:y
                                              alignCorners:align] autorelease];
}

void test_nearest() {
  const Tensor x = Tensor::random(2, 3, 4, 5, 1);
  MPSCNNUpsampling *kernel = nearest(3, 2);
  check([kernel scaleFactorX] == 3 && [kernel scaleFactorY] == 2 && ![kernel alignCorners], "factors are kept");
  const Tensor expected = made(2, 6, 12, 5, [&](long n, long y, long k, long c) { return x.at(n, y / 2, k / 3, c); });
  check_equal("nearest", result_of(kernel, make_image(x)), expected, 0);
  check_equal("nearest of a batch", batch_of(kernel, x), expected, 0);
  check_equal("nearest by an archive", result_of(archived(kernel), make_image(x)), expected, 0);
  MPSImage *half = make_half_destination(2, 6, 12, 5);
  encode(kernel, make_half_image(x), half);
  check_equal("nearest in half precision", read_half_image(half), expected, 0);
  check_equal("factors of 1 copy", result_of(nearest(1, 1), make_image(x)), x, 0);
}

void test_bilinear() {
  const Tensor x = Tensor::random(2, 3, 4, 5, 2);
  for (const bool clamp : {false, true}) {
    MPSCNNUpsampling *kernel = bilinear(3, 2);
    if (clamp) [kernel setEdgeMode:MPSImageEdgeModeClamp];
    const Tensor expected = made(2, 6, 12, 5, [&](long n, long y, long k, long c) {
      return between(x, n, static_cast<double>(y) / 2, static_cast<double>(k) / 3, c, clamp);
    });
    const std::string what = clamp ? "bilinear, clamp" : "bilinear, zero";
    check_equal(what, result_of(kernel, make_image(x)), expected, 1e-6);
    check_equal(what + ", a batch", batch_of(kernel, x), expected, 1e-6);
    check_equal(what + ", an archive", result_of(archived(kernel), make_image(x)), expected, 1e-6);
    MPSImage *half = make_half_destination(2, 6, 12, 5);
    encode(kernel, make_half_image(x), half);
    check_equal(what + ", half precision", read_half_image(half), expected, 5e-4);

    // Channels 0 ... 3 of image 1 from pixel (1, -1) on, at (2, 3) and channel 4 of image 0.
    MPSImage *placed = make_nan_image(1, 9, 9, 8);
    [kernel setOffset:MPSOffset{-1, 1, 1}];
    [kernel setClipRect:MTLRegionMake3D(3, 2, 0, 6, 5, 1)];
    [kernel setSourceFeatureChannelMaxCount:4];
    [kernel setDestinationFeatureChannelOffset:4];
    encode(kernel, make_image(x), placed);
    Tensor whole(1, 9, 9, 8, NAN);
    paste(whole, made(1, 5, 6, 4, [&](long, long y, long k, long c) {
            return between(x, 1, 1 + static_cast<double>(y) / 2, -1 + static_cast<double>(k) / 3, c, clamp);
          }), 0, 2, 3, 4);
    check_equal(what + ", a part", read_image(placed), whole, 1e-6);
  }

  // Measured on macOS 10.14 by others: the upper tap beyond the last pixel is 0.
  Tensor four(1, 2, 2, 1);
  four.values = {3, 6, 9, 12};
  const Tensor got = result_of(bilinear(2, 2), make_image(four));
  const std::array<double, 4> row = {3, 4.5, 6, 3};
  for (long k = 0; k < 4; ++k) check(got.at(0, 0, k, 0) == row[static_cast<std::size_t>(k)], "a measured row");
}

void test_align_corners() {
  const Tensor x = Tensor::random(1, 3, 4, 5, 3);
  MPSCNNUpsampling *kernel = bilinear(3, 2, YES);
  check([kernel alignCorners], "alignCorners is kept");
  const Tensor expected = made(1, 6, 12, 5, [&](long n, long y, long k, long c) {
    return between(x, n, static_cast<double>(y) * 2 / 5, static_cast<double>(k) * 3 / 11, c, false);
  });
  const Tensor got = result_of(archived(kernel), make_image(x));
  check_equal("aligned corners", got, expected, 1e-6);
  bool same = true;
  for (long c = 0; c < 5; ++c) same = same && got.at(0, 5, 11, c) == x.at(0, 2, 3, c);
  check(same, "the last pixel is the last pixel");
  const Tensor one = Tensor::random(1, 1, 1, 3, 4);
  check_equal("one pixel, aligned", result_of(bilinear(2, 2, YES), make_image(one)),
              made(1, 2, 2, 3, [&](long, long, long, long c) { return one.at(0, 0, 0, c); }), 0);
  check_equal("a factor of 1, aligned", result_of(bilinear(1, 1, YES), make_image(x)), x, 0);
}

void test_upsampling_refusals() {
  check_raises("a factor of 0", kArgument, "integerScaleFactorX (0) is not between 1 and", [] { nearest(0, 2); });
  check_raises("a factor of 0", kArgument, "integerScaleFactorY (0) is not between 1 and", [] { bilinear(2, 0); });
  check_raises("the base class", kArgument, "unavailable",
               [] { [[(id)[MPSCNNUpsampling alloc] initWithDevice:device] autorelease]; });
  check_raises("a result that is no image", kArgument, "(16384)",
               [] { result_of(nearest(8192, 1), make_image(Tensor(1, 1, 3, 1))); });
}

// -------------------------------------------------------------------------------------------------- resizing

MPSNNResizeBilinear *resize(NSUInteger width, NSUInteger height, BOOL align) {
  return [[[MPSNNResizeBilinear alloc] initWithDevice:device
                                          resizeWidth:width
                                         resizeHeight:height
                                         alignCorners:align] autorelease];
}

void test_resize() {
  const Tensor x = Tensor::random(2, 6, 7, 5, 5);
  for (const bool align : {false, true}) {
    for (const auto &[h, w] : {std::pair<long, long>{4, 11}, {13, 3}, {6, 7}}) {
      MPSNNResizeBilinear *kernel = resize(static_cast<NSUInteger>(w), static_cast<NSUInteger>(h), align);
      [kernel setEdgeMode:MPSImageEdgeModeClamp];
      const double down = align ? 5.0 / static_cast<double>(h - 1) : 6.0 / static_cast<double>(h);
      const double across = align ? 6.0 / static_cast<double>(w - 1) : 7.0 / static_cast<double>(w);
      const Tensor expected = made(2, h, w, 5, [&](long n, long y, long k, long c) {
        return between(x, n, static_cast<double>(y) * down, static_cast<double>(k) * across, c, true);
      });
      check_equal("resized", result_of(kernel, make_image(x)), expected, 1e-5);
      check_equal("resized, a batch", batch_of(archived(kernel), x), expected, 1e-5);
    }
  }
  MPSNNResizeBilinear *kernel = archived(resize(4, 9, YES));
  check([kernel resizeWidth] == 4 && [kernel resizeHeight] == 9 && [kernel alignCorners], "an archive keeps the size");
  check_raises("width 0", kArgument, "resizeWidth (0) is not between 1 and", [] { resize(0, 2, NO); });
  check_raises("height 0", kArgument, "resizeHeight (0) is not between 1 and", [] { resize(2, 0, NO); });
}

MPSNNCropAndResizeBilinear *crop(NSUInteger width, NSUInteger height, const std::vector<MPSRegion> &regions) {
  return [[[MPSNNCropAndResizeBilinear alloc] initWithDevice:device
                                                 resizeWidth:width
                                                resizeHeight:height
                                             numberOfRegions:regions.size()
                                                     regions:regions.data()] autorelease];
}

void test_crop() {
  const Tensor x = Tensor::random(2, 6, 7, 5, 6);
  // Rows first in the formula: y, x, height, width.
  const std::vector<std::array<double, 4>> boxes = {{0, 0, 1, 1}, {0.25, 0.5, 0.5, 0.25}, {-0.5, 0.5, 1, 1.25},
                                                    {1, 1, -1, -1}};
  std::vector<MPSRegion> regions;
  for (const auto &box : boxes) regions.push_back({{box[1], box[0], 0}, {box[3], box[2], 1}});
  const auto cropped = [&](long h, long w) {
    return made(8, h, w, 5, [&](long n, long y, long k, long c) {
      const auto &box = boxes[static_cast<std::size_t>(n % 4)];
      const auto place = [](double begin, double extent, long i, long count, long size) {
        const double last = static_cast<double>(size - 1);
        if (count == 1) return (begin + extent / 2) * last;
        return begin * last + static_cast<double>(i) * extent * last / static_cast<double>(count - 1);
      };
      const double row = place(box[0], box[2], y, h, 6), column = place(box[1], box[3], k, w, 7);
      if (row < 0 || row > 5 || column < 0 || column > 6) return 0.0;
      return between(x, n / 4, row, column, c, true);
    });
  };
  MPSNNCropAndResizeBilinear *kernel = crop(5, 3, regions);
  check([kernel numberOfRegions] == 4 && [kernel regions][1].origin.x == 0.5 && [kernel resizeWidth] == 5 &&
            [kernel resizeHeight] == 3,
        "regions are kept");
  check_equal("four regions of two images", result_of(kernel, make_image(x)), cropped(3, 5), 1e-5);
  check_equal("four regions by an archive", result_of(archived(kernel), make_image(x)), cropped(3, 5), 1e-5);
  check_equal("one pixel of each", result_of(crop(1, 1, regions), make_image(x)), cropped(1, 1), 1e-5);

  // The regions of the second image alone.
  [kernel setClipRect:MTLRegionMake3D(0, 0, 4, 5, 3, 4)];
  [kernel setOffset:MPSOffset{0, 0, 1}];
  MPSImage *destination = make_nan_image(8, 3, 5, 5);
  encode(kernel, make_image(x), destination);
  Tensor expected = cropped(3, 5);
  for (std::size_t i = 0; i < expected.values.size() / 2; ++i) expected.values[i] = NAN;
  check_equal("the regions of the second image", read_image(destination), expected, 1e-5);

  [kernel setClipRect:MTLRegionMake3D(0, 0, 0, 5, 3, 3)];
  check_raises("three images for four regions", kArgument, "3 images of the destination, which is no multiple",
               [&] { encode(kernel, make_image(x), make_nan_image(8, 3, 5, 5)); });
  [kernel setClipRect:MTLRegionMake3D(0, 0, 2, 5, 3, 4)];
  check_raises("four images from the third region on", kArgument, "clipRect.origin.z (2) is no multiple",
               [&] { encode(kernel, make_image(x), make_nan_image(8, 3, 5, 5)); });
  check_raises("no region", kArgument, "numberOfRegions (0) is less than 1.", [&] {
    [[[MPSNNCropAndResizeBilinear alloc] initWithDevice:device
                                            resizeWidth:2
                                           resizeHeight:2
                                        numberOfRegions:0
                                                regions:regions.data()] autorelease];
  });
  check_raises("a region without a place", kArgument, "regions[0], origin (nan, 0)", [] {
    crop(2, 2, {{{NAN, 0, 0}, {1, 1, 1}}});
  });
}

// --------------------------------------------------------------------------------------- reshaping, slicing

void test_reshape() {
  const Tensor x = Tensor::random(2, 2, 3, 8, 7);
  Tensor other(2, 6, 1, 8), flat(2, 1, 1, 48);
  other.values = flat.values = x.values;
  MPSNNReshape *kernel = [[[MPSNNReshape alloc] initWithDevice:device] autorelease];
  MPSImage *destination = make_nan_image(2, 6, 1, 8);
  encode(kernel, make_image(x), destination);
  check_equal("reshaped into a given image", read_image(destination), other, 0);
  check_equal("without a shape it is a copy", result_of(kernel, make_image(x)), x, 0);

  id<MTLCommandBuffer> buffer = command_buffer();
  MPSImage *result = [kernel encodeToCommandBuffer:buffer
                                       sourceImage:make_image(x)
                                     reshapedWidth:1
                                    reshapedHeight:1
                           reshapedFeatureChannels:48];
  MPSState *state = nil;
  MPSImage *with_state = [kernel encodeToCommandBuffer:buffer
                                           sourceImage:make_image(x)
                                      destinationState:&state
                           destinationStateIsTemporary:NO
                                         reshapedWidth:1
                                        reshapedHeight:1
                               reshapedFeatureChannels:48];
  MPSImageBatch *batch = [kernel encodeBatchToCommandBuffer:buffer
                                               sourceImages:make_batch(x)
                                              reshapedWidth:1
                                             reshapedHeight:6
                                    reshapedFeatureChannels:8];
  MPSStateBatch *states = nil;
  MPSImageBatch *batch_with_states = [kernel encodeBatchToCommandBuffer:buffer
                                                           sourceImages:make_batch(x)
                                                      destinationStates:&states
                                            destinationStateIsTemporary:NO
                                                          reshapedWidth:1
                                                         reshapedHeight:6
                                                reshapedFeatureChannels:8];
  run(buffer);
  check_equal("reshaped by arguments", read_image(result), flat, 0);
  check_equal("reshaped by arguments, with a state", read_image(with_state), flat, 0);
  check([state isKindOfClass:[MPSNNGradientState class]] && [states count] == 2, "a reshape leaves gradient states");
  for (long i = 0; i < 2; ++i) {
    check_equal("a batch reshaped", read_image([batch objectAtIndex:static_cast<NSUInteger>(i)]), other.image(i), 0);
    check_equal("a batch reshaped, with states", read_image([batch_with_states objectAtIndex:static_cast<NSUInteger>(i)]),
                other.image(i), 0);
  }
  check_equal("the shape does not stay", result_of(kernel, make_image(x)), x, 0);

  // Part of the channels into part of an image; and to half precision.
  Tensor three(1, 2, 3, 3), placed(1, 4, 5, 12, NAN), part(1, 3, 2, 3);
  three = x.image(1).channels(4, 3);
  part.values = three.values;
  paste(placed, part, 0, 1, 2, 8);
  [kernel setSourceFeatureChannelOffset:4];
  [kernel setSourceFeatureChannelMaxCount:3];
  [kernel setOffset:MPSOffset{0, 0, 1}];
  [kernel setClipRect:MTLRegionMake3D(2, 1, 0, 2, 3, 1)];
  [kernel setDestinationFeatureChannelOffset:8];
  destination = make_nan_image(1, 4, 5, 11);
  encode(archived(kernel), make_image(x), destination);
  check_equal("a part reshaped", read_image(destination), placed.channels(0, 11), 0);
  MPSNNReshape *plain = [[[MPSNNReshape alloc] initWithDevice:device] autorelease];
  MPSImage *half = make_half_destination(2, 6, 1, 8);
  encode(plain, make_image(x), half);
  check_equal("reshaped to half precision", read_half_image(half), other, 0);

  check_raises("another number of values", kArgument, "The 48 values of the source, 3 x 2 x 8 (width x height x channels), "
               "are not the 40 of the destination, 5 x 1 x 8",
               [&] { encode(plain, make_image(x), make_nan_image(2, 1, 5, 8)); });
  check_raises("another number of values by arguments", kArgument,
               "reshapedWidth (5), reshapedHeight (1) and reshapedFeatureChannels (8) do not make the 48 values", [&] {
                 [plain encodeToCommandBuffer:command_buffer()
                                  sourceImage:make_image(x)
                                reshapedWidth:5
                               reshapedHeight:1
                      reshapedFeatureChannels:8];
               });
  check_raises("a width of 0", kArgument, "reshapedWidth (0)", [&] {
    [plain encodeToCommandBuffer:command_buffer()
                     sourceImage:make_image(x)
                   reshapedWidth:0
                  reshapedHeight:1
         reshapedFeatureChannels:8];
  });
  [plain setOffset:MPSOffset{1, 0, 0}];
  check_raises("a reshape of a part of the pixels", kArgument, "offset (1, 0) is not (0, 0)",
               [&] { encode(plain, make_image(x), make_nan_image(2, 6, 1, 8)); });
}

void test_slice() {
  const Tensor x = Tensor::random(2, 4, 5, 12, 8);
  MPSNNSlice *kernel = [[[MPSNNSlice alloc] initWithDevice:device] autorelease];
  check_equal("a slice of everything", result_of(kernel, make_image(x)), x, 0);
  [kernel setSourceFeatureChannelOffset:4];
  [kernel setSourceFeatureChannelMaxCount:6];
  check_equal("six channels", result_of(kernel, make_image(x)), x.channels(4, 6), 0);
  check_equal("six channels of a batch", batch_of(archived(kernel), x), x.channels(4, 6), 0);
  MPSImage *half = make_half_destination(2, 4, 5, 6);
  encode(kernel, make_image(x), half);
  check_equal("a slice to half precision", read_half_image(half), x.channels(4, 6), 0);
  for (const bool clamp : {false, true}) {
    for (const MPSOffset offset : {MPSOffset{2, 1, 1}, MPSOffset{-2, 3, 1}}) {
      [kernel setEdgeMode:clamp ? MPSImageEdgeModeClamp : MPSImageEdgeModeZero];
      [kernel setOffset:offset];
      [kernel setClipRect:MTLRegionMake3D(1, 2, 0, 3, 3, 1)];
      [kernel setDestinationFeatureChannelOffset:4];
      Tensor expected(1, 6, 6, 12, NAN);
      paste(expected, made(1, 3, 3, 6, [&](long, long y, long k, long c) {
              return pixel(x, 1, offset.y + y, offset.x + k, c + 4, clamp);
            }), 0, 2, 1, 4);
      MPSImage *destination = make_nan_image(1, 6, 6, 12);
      encode(kernel, make_image(x), destination);
      check_equal("a slice of some pixels", read_image(destination), expected, 0);
    }
  }
  [kernel setSourceFeatureChannelOffset:2];
  check_raises("channels from 2 on", kArgument, "sourceFeatureChannelOffset (2) is not a multiple of 4",
               [&] { encode(kernel, make_image(x), make_nan_image(1, 6, 6, 12)); });
}

// --------------------------------------------------------------------------------------------------- padding

/// Where the pad's edge mode finds the value number i of `size`; -1: nowhere.
long padded(long i, long size, MPSImageEdgeMode edge) {
  while (i < 0 || i >= size) {
    switch (edge) {
      case MPSImageEdgeModeClamp: i = i < 0 ? 0 : size - 1; break;
      case MPSImageEdgeModeMirror: i = size == 1 ? 0 : i < 0 ? -i : 2 * (size - 1) - i; break;
      case MPSImageEdgeModeMirrorWithEdge: i = i < 0 ? -i - 1 : 2 * size - 1 - i; break;
      default: return -1;
    }
  }
  return i;
}

void test_pad() {
  const Tensor x = Tensor::random(2, 3, 4, 5, 9);
  const MPSImageCoordinate before = {2, 1, 3}, after = {5, 4, 2};
  std::vector<float> fills;
  for (int c = 0; c < 10; ++c) fills.push_back(0.25f * static_cast<float>(c + 1));
  for (const MPSImageEdgeMode edge : {MPSImageEdgeModeZero, MPSImageEdgeModeClamp, MPSImageEdgeModeMirror,
                                      MPSImageEdgeModeMirrorWithEdge, MPSImageEdgeModeConstant}) {
    for (const bool each : {false, true}) {
      NSData *data = each ? [NSData dataWithBytes:fills.data() length:fills.size() * sizeof(float)] : nil;
      MPSNNPad *kernel = [[[MPSNNPad alloc] initWithDevice:device
                                         paddingSizeBefore:before
                                          paddingSizeAfter:after
                                            fillValueArray:data] autorelease];
      [kernel setEdgeMode:edge];
      [kernel setFillValue:0.5f];
      const auto value = [&](long n, long y, long k, long c) {
        const long row = padded(y, 3, edge), column = padded(k, 4, edge), channel = padded(c - 3, 5, edge);
        if (row >= 0 && column >= 0 && channel >= 0) return x.at(n, row, column, channel);
        return edge != MPSImageEdgeModeConstant ? 0.0 : each ? fills[static_cast<std::size_t>(c)] : 0.5;
      };
      const Tensor expected =
          made(2, 8, 11, 10, [&](long n, long y, long k, long c) { return value(n, y - 1, k - 2, c); });
      const std::string what = "padded by edge mode " + std::to_string(edge);
      check_equal(what, result_of(kernel, make_image(x)), expected, 0);
      check_equal(what + ", a batch", batch_of(archived(kernel), x), expected, 0);
      MPSImage *half = make_half_destination(2, 8, 11, 10);
      encode(kernel, make_half_image(x), half);
      check_equal(what + ", half precision", read_half_image(half), expected, 1e-3);

      // With a destination given, offset and clipRect place the source.
      [kernel setOffset:MPSOffset{1, -2, 1}];
      [kernel setClipRect:MTLRegionMake3D(1, 1, 0, 4, 6, 1)];
      [kernel setDestinationFeatureChannelOffset:4];
      Tensor placed(1, 8, 6, 16, NAN);
      paste(placed, made(1, 6, 4, 10, [&](long, long y, long k, long c) { return value(1, y - 2, k + 1, c); }), 0, 1, 1, 4);
      MPSImage *destination = make_nan_image(1, 8, 6, 16);
      encode(kernel, make_image(x), destination);
      check_equal(what + ", placed", read_image(destination), placed, 0);
    }
  }
  // Channels 1 and 2 alone: here the offset need not be a multiple of 4.
  MPSNNPad *kernel = [[[MPSNNPad alloc] initWithDevice:device] autorelease];
  [kernel setPaddingSizeBefore:MPSImageCoordinate{0, 0, 1}];
  [kernel setSourceFeatureChannelOffset:1];
  [kernel setSourceFeatureChannelMaxCount:2];
  check_equal("two channels after one of zeros", result_of(kernel, make_image(x)),
              made(2, 3, 4, 3, [&](long n, long y, long k, long c) { return c == 0 ? 0 : x.at(n, y, k, c); }), 0);
  const float three[] = {1, 2, 3};
  MPSNNPad *odd = [[[MPSNNPad alloc] initWithDevice:device
                                  paddingSizeBefore:MPSImageCoordinate{0, 0, 0}
                                   paddingSizeAfter:MPSImageCoordinate{0, 0, 0}
                                     fillValueArray:[NSData dataWithBytes:three length:sizeof three]] autorelease];
  check_raises("fill values for other channels", kArgument, "fillValueArray has 3 values, and the kernel writes 5",
               [&] { result_of(odd, make_image(x)); });
}

// --------------------------------------------------------------------------------------------------- dropout

MPSCNNDropout *dropout(float keep, NSUInteger seed, MTLSize stride = {1, 1, 1}) {
  return [[[MPSCNNDropout alloc] initWithDevice:device
                                keepProbability:keep
                                           seed:seed
                             maskStrideInPixels:stride] autorelease];
}

void test_dropout() {
  Tensor x(2, 20, 30, 9);
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = 1 + static_cast<double>(i % 7);
  MPSCNNDropout *kernel = dropout(0.75f, 3);
  check([kernel keepProbability] == 0.75f && [kernel seed] == 3 && [kernel maskStrideInPixels].depth == 1,
        "parameters are kept");
  const Tensor first = result_of(kernel, make_image(x)), second = result_of(kernel, make_image(x));
  double kept = 0;
  bool exact = true;
  for (std::size_t i = 0; i < first.values.size(); ++i) {
    kept += first.values[i] != 0;
    exact = exact && (first.values[i] == 0 ||
                      first.values[i] == static_cast<double>(static_cast<float>(x.values[i]) / 0.75f));
  }
  const double count = static_cast<double>(first.values.size());
  check(exact, "values are 0 or divided by the probability");
  check(std::fabs(kept / count - 0.75) < 5 * std::sqrt(0.75 * 0.25 / count), "as many are kept as the probability says");
  check(distance(first.image(0), first.image(1)) > 0, "images have masks of their own");
  check(distance(first, second) > 0, "another encode draws another mask");

  MPSCNNDropout *again = dropout(0.75f, 3);
  check_equal("the same seed, the same masks", result_of(again, make_image(x)), first, 0);
  check_equal("the same seed, the same masks afterwards", batch_of(again, x), second, 0);
  check_equal("an archive begins anew", result_of(archived(kernel), make_image(x)), first, 0);
  check_equal("a copy begins anew", result_of([[kernel copyWithZone:NULL device:device] autorelease], make_image(x)),
              first, 0);
  check(distance(result_of(dropout(0.75f, 4), make_image(x)), first) > 0, "another seed, other masks");

  MPSImage *half = make_half_destination(2, 20, 30, 9);
  encode(dropout(0.75f, 3), make_half_image(x), half);
  check_equal("half precision", read_half_image(half), first, 5e-3);
}

void test_mask_strides() {
  const Tensor x(1, 6, 7, 8, 1);
  for (int bits = 0; bits < 8; ++bits) {
    const MTLSize stride = {bits & 1u, bits >> 1 & 1u, bits >> 2 & 1u};
    const Tensor y = result_of(dropout(0.5f, 5, stride), make_image(x));
    bool shared = true;
    for (long j = 0; j < 6; ++j)
      for (long k = 0; k < 7; ++k)
        for (long c = 0; c < 8; ++c)
          shared = shared && y.at(0, j, k, c) == y.at(0, stride.height == 0 ? 0 : j, stride.width == 0 ? 0 : k,
                                                      stride.depth == 0 ? 0 : c);
    check(shared, "a stride of 0 shares the mask, " + std::to_string(bits));
    if (bits == 0) continue;
    double sum = 0;
    for (double value : y.values) sum += value != 0;
    check(sum > 0 && sum < static_cast<double>(y.values.size()), "some are kept, some are not, " + std::to_string(bits));
  }
}

void test_dropout_state() {
  const Tensor x(2, 3, 4, 5, 1);
  for (const bool wide : {false, true}) {
    MPSCNNDropout *kernel = dropout(0.5f, 6, wide ? MTLSize{1, 1, 0} : MTLSize{1, 1, 1});
    [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSState *state = nil;
    MPSImage *result = [kernel encodeToCommandBuffer:buffer
                                         sourceImage:make_image(x)
                                    destinationState:&state
                         destinationStateIsTemporary:wide];
    MPSStateBatch *states = nil;
    MPSImageBatch *results = [kernel encodeBatchToCommandBuffer:buffer
                                                   sourceImages:make_batch(x)
                                              destinationStates:&states
                                    destinationStateIsTemporary:wide];
    run(buffer);
    const auto check_mask = [&](MPSState *filled, const Tensor &y) {
      check([filled isKindOfClass:[MPSCNNDropoutGradientState class]], "the state is a dropout's");
      NSData *mask = [(MPSCNNDropoutGradientState *)filled maskData];
      const auto *bytes = static_cast<const unsigned char *>([mask bytes]);
      bool same = [mask length] == static_cast<NSUInteger>(y.n) * 12 * (wide ? 1 : 5);
      for (std::size_t i = 0; same && i < y.values.size(); ++i)
        same = bytes[wide ? i / 5 : i] == (y.values[i] != 0) && bytes[wide ? i / 5 : i] <= 1;
      check(same, "maskData is 1 where a value is kept");
    };
    check_mask(state, read_image(result));
    check([states count] == 2 && [states objectAtIndex:0] != [states objectAtIndex:1], "each image has a state");
    for (NSUInteger i = 0; i < 2; ++i) check_mask([states objectAtIndex:i], read_image([results objectAtIndex:i]));
  }
  MPSCNNDropout *kernel = dropout(0.5f, 6);
  MPSImage *image = make_image(x), *one = make_image(x.image(0)), *other = make_image(x.image(1));
  MPSCNNDropoutGradientState *state = [kernel resultStateForSourceImage:image sourceStates:nil destinationImage:image];
  check_raises("a mask before the encode", @"MPSUsageException", "No encode has filled the state", [&] { [state maskData]; });
  NSArray *twice = [NSArray arrayWithObjects:state, state, nil];
  check_raises("one state for two images", kArgument, "one state for several images", [&] {
    [kernel encodeBatchToCommandBuffer:command_buffer()
                          sourceImages:[NSArray arrayWithObjects:one, other, nil]
                     destinationStates:twice
                     destinationImages:[NSArray arrayWithObjects:make_image(x.image(0)), make_image(x.image(0)), nil]];
  });
  MPSNNReshape *reshape = [[[MPSNNReshape alloc] initWithDevice:device] autorelease];
  MPSState *strange = [reshape resultStateForSourceImage:image sourceStates:nil destinationImage:image];
  check_raises("another kernel's state", kArgument, "destinationState is an object of class MPSNNGradientState", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                      sourceImage:image
                 destinationState:strange
                 destinationImage:make_image(x)];
  });
}

void test_dropout_refusals() {
  for (const float keep : {0.0f, 1.0f, -0.5f, NAN})
    check_raises("a probability out of range", kArgument, "is not between 0 and 1", [&] { dropout(keep, 1); });
  check_raises("a mask stride of 2", kArgument, "maskStrideInPixels (1, 2, 1)", [] { dropout(0.5f, 1, {1, 2, 1}); });
  check_raises("no parameters", kArgument, "unavailable", [] { [[(id)[MPSCNNDropout alloc] initWithDevice:device] autorelease]; });

  // Beyond the source there is nothing to keep.
  const Tensor x(1, 3, 3, 4, 1);
  MPSCNNDropout *kernel = dropout(0.999f, 1);
  [kernel setOffset:MPSOffset{2, -1, 0}];
  MPSImage *destination = make_nan_image(1, 3, 3, 4);
  encode(kernel, make_image(x), destination);
  const Tensor y = read_image(destination);
  check(y.at(0, 0, 0, 0) == 0 && y.at(0, 1, 1, 0) == 0 && y.at(0, 1, 0, 0) != 0, "the offset places the source");
}

}  // namespace

int main() {
  return run_tests({test_nearest, test_bilinear, test_align_corners, test_upsampling_refusals, test_resize, test_crop,
                    test_reshape, test_slice, test_pad, test_dropout, test_mask_strides, test_dropout_state,
                    test_dropout_refusals});
}

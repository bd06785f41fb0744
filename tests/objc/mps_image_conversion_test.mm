// SPDX-License-Identifier: Apache-2.0
// MPSImageConversion: alpha, regions, textures, and refused calls. Prints "N passed, N failed".

#import "mps_test.hh"

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

namespace {

constexpr auto kPlain = MPSAlphaTypeNonPremultiplied;
constexpr auto kOne = MPSAlphaTypeAlphaIsOne;
constexpr auto kPremultiplied = MPSAlphaTypePremultiplied;

MPSImageConversion *make_conversion(MPSAlphaType from = kPlain, MPSAlphaType to = kPlain, CGFloat *background = NULL) {
  return [[[MPSImageConversion alloc] initWithDevice:device
                                            srcAlpha:from
                                           destAlpha:to
                                     backgroundColor:background
                                      conversionInfo:NULL] autorelease];
}

void convert(MPSImageConversion *kernel, MPSImage *source, MPSImage *destination) {
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:source destinationImage:destination];
  run(buffer);
}

/// Return the kernel's result for x in float32.
Tensor converted(MPSImageConversion *kernel, const Tensor &x) {
  MPSImage *result = make_nan_image(x.n, x.h, x.w, x.c);
  convert(kernel, make_image(x), result);
  return read_image(result);
}

// -------------------------------------------------------------------------------------------------- alpha

/// Two texels, the second one transparent.
Tensor texels(double r, double g, double b, double a, double r2, double g2, double b2, double a2) {
  Tensor x(1, 1, 2, 4);
  x.values = {r, g, b, a, r2, g2, b2, a2};
  return x;
}

void test_alpha() {
  const Tensor x = texels(0.5, 1, 0.25, 0.5, 0.75, 0, 1, 0);
  CGFloat background[] = {1, 0.5, 0};
  struct Row {
    MPSAlphaType from, to;
    Tensor expected;
  };
  const Row rows[] = {
      {kPlain, kPlain, x},
      {kPlain, kPremultiplied, texels(0.25, 0.5, 0.125, 0.5, 0, 0, 0, 0)},
      {kPlain, kOne, texels(0.75, 0.75, 0.125, 1, 1, 0.5, 0, 1)},
      {kPremultiplied, kPremultiplied, x},
      {kPremultiplied, kPlain, texels(1, 2, 0.5, 0.5, 0, 0, 0, 0)},
      {kPremultiplied, kOne, texels(1, 1.25, 0.25, 1, 1.75, 0.5, 1, 1)},
      {kOne, kOne, texels(0.5, 1, 0.25, 1, 0.75, 0, 1, 1)},
      {kOne, kPlain, texels(0.5, 1, 0.25, 1, 0.75, 0, 1, 1)},
      {kOne, kPremultiplied, texels(0.5, 1, 0.25, 1, 0.75, 0, 1, 1)},
  };
  for (const Row &row : rows) {
    MPSImageConversion *kernel = make_conversion(row.from, row.to, background);
    const std::string what = "alpha " + std::to_string(row.from) + " to " + std::to_string(row.to);
    check([kernel sourceAlpha] == row.from && [kernel destinationAlpha] == row.to, what + ": properties");
    check_equal(what, converted(kernel, x), row.expected, 0);
    check_equal(what + ", copy", converted([[kernel copy] autorelease], x), row.expected, 0);
    check_equal(what + ", archive", converted(archived(kernel), x), row.expected, 0);
  }
  check_equal("no background is black", converted(make_conversion(kPlain, kOne), x),
              texels(0.25, 0.5, 0.125, 1, 0, 0, 0, 1), 0);
  MPSImageConversion *plain = [[[MPSImageConversion alloc] initWithDevice:device] autorelease];
  check([plain sourceAlpha] == kOne && [plain destinationAlpha] == kOne, "alpha is one from the start");

  // More texels than one chunk or thread takes, in half precision and with a gap between the pixels.
  const Tensor many = Tensor::random(2, 90, 201, 8, 5);
  MPSImage *part = [make_half_image(many) subImageWithFeatureChannelRange:NSMakeRange(4, 4)];
  MPSImage *result = make_nan_image(2, 90, 201, 4);
  convert(make_conversion(kPlain, kPremultiplied), part, result);
  Tensor expected = many.channels(4, 4);
  for (std::size_t i = 0; i < expected.values.size(); ++i)
    if (i % 4 != 3) expected.values[i] *= expected.values[i / 4 * 4 + 3];
  check_equal("many texels", read_image(result), expected, 1e-7);
}

void test_three_and_four_channels() {
  Tensor x(1, 2, 2, 3);
  for (std::size_t i = 0; i < 12; ++i) x.values[i] = static_cast<double>(i) / 16;
  for (const MPSAlphaType type : {kPlain, kOne, kPremultiplied}) {
    MPSImage *four = make_nan_image(1, 2, 2, 4), *three = make_nan_image(1, 2, 2, 3);
    convert(make_conversion(type, type), make_image(x), four);
    const Tensor y = read_image(four);
    check_equal("three channels to four", y.channels(0, 3), x, 0);
    check(y.at(0, 1, 1, 3) == 1, "what has no alpha is opaque");
    convert(make_conversion(type, type), four, three);
    check_equal("four channels to three", read_image(three), x, 0);
  }
}

/// Channels beyond colours are copied unchanged.
void test_many_channels() {
  const Tensor x = Tensor::random(3, 2, 3, 9, 6);
  for (const MPSAlphaType type : {kPlain, kPremultiplied})
    check_equal("nine channels", converted(make_conversion(type, type), x), x, 0);
  MPSImageConversion *kernel = make_conversion();
  const MPSOffset second = {0, 0, 1};
  [kernel setOffset:second];
  MPSImage *two = make_nan_image(2, 2, 3, 9);
  convert(kernel, make_image(x), two);
  check_equal("two images of three", read_image(two).image(1), x.image(2), 0);
  for (long channels = 1; channels <= 3; ++channels)
    check_equal("no alpha", converted(make_conversion(kPlain, kOne), x.channels(0, channels)), x.channels(0, channels),
                0);
}

// ------------------------------------------------------------------------------------------------ regions

void test_regions() {
  const Tensor x = Tensor::random(1, 4, 5, 4, 7);
  for (const MPSAlphaType to : {kPlain, kPremultiplied}) {  // both implementations
    for (const MPSImageEdgeMode edge : {MPSImageEdgeModeZero, MPSImageEdgeModeClamp}) {
      MPSImageConversion *kernel = make_conversion(kPlain, to);
      check([kernel edgeMode] == MPSImageEdgeModeZero, "edgeMode from the start");
      const MPSOffset offset = {2, -1, 0};
      [kernel setOffset:offset];
      [kernel setClipRect:MTLRegionMake3D(1, 1, 0, 4, 3, 1)];
      [kernel setEdgeMode:edge];
      Tensor expected(1, 5, 6, 4, NAN);
      for (long y = 1; y < 4; ++y)
        for (long column = 1; column < 5; ++column)
          for (long k = 0; k < 4; ++k) {
            long from_y = y - 1 - 1, from_x = column - 1 + 2;
            const bool inside = from_y >= 0 && from_y < 4 && from_x >= 0 && from_x < 5;
            from_y = std::min(std::max(from_y, 0l), 3l), from_x = std::min(std::max(from_x, 0l), 4l);
            double value = inside || edge == MPSImageEdgeModeClamp ? x.at(0, from_y, from_x, k) : 0;
            if (to == kPremultiplied && k < 3 && value != 0) value *= x.at(0, from_y, from_x, 3);
            expected.at(0, y, column, k) = value;
          }
      for (MPSImageConversion *twin : {kernel, (MPSImageConversion *)[[kernel copy] autorelease], archived(kernel)}) {
        MPSImage *result = make_nan_image(1, 5, 6, 4);
        convert(twin, make_image(x), result);
        check_equal("offset, clipRect and edgeMode", read_image(result), expected, 1e-7);
      }
      const MPSRegion region = [kernel sourceRegionForDestinationSize:MTLSizeMake(4, 9, 1)];
      check(region.origin.x == 2 && region.origin.y == -1 && region.origin.z == 0, "origin of the source's region");
      check(region.size.width == 3 && region.size.height == 3 && region.size.depth == 1, "size of the source's region");
    }
  }
}

// ----------------------------------------------------------------------------------------------- textures

id<MTLTexture> make_texture(MTLPixelFormat format, NSUInteger width, NSUInteger height) {
  MTLTextureDescriptor *descriptor = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:format
                                                                                        width:width
                                                                                       height:height
                                                                                    mipmapped:NO];
  [descriptor setUsage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
  return [[device newTextureWithDescriptor:descriptor] autorelease];
}

void test_textures() {
  id<MTLTexture> bytes = make_texture(MTLPixelFormatRGBA8Unorm, 2, 1);
  const unsigned char given[] = {0, 51, 255, 255, 102, 204, 153, 0};
  const MTLRegion region = MTLRegionMake2D(0, 0, 2, 1);
  [bytes replaceRegion:region mipmapLevel:0 withBytes:given bytesPerRow:8];
  id<MTLTexture> floats = make_texture(MTLPixelFormatRGBA32Float, 2, 1);
  id<MTLCommandBuffer> buffer = command_buffer();
  [make_conversion() encodeToCommandBuffer:buffer sourceTexture:bytes destinationTexture:floats];
  run(buffer);
  float got[8];
  [floats getBytes:got bytesPerRow:sizeof got fromRegion:region mipmapLevel:0];
  bool good = true;
  for (int i = 0; i < 8; ++i) good = good && got[i] == static_cast<float>(given[i]) / 255.0f;
  check(good, "unorm8 to float32 as textures");

  // An image of three channels shows as a texture of four lanes.
  MPSImage *three = make_nan_image(1, 1, 2, 3);
  buffer = command_buffer();
  [make_conversion() encodeToCommandBuffer:buffer sourceTexture:bytes destinationTexture:[three texture]];
  run(buffer);
  const Tensor y = read_image(three);
  check(y.at(0, 0, 0, 1) == static_cast<float>(0.2) && y.at(0, 0, 1, 2) == static_cast<float>(0.6),
        "a texture into an image of three channels");

  // In place: into the allocator's texture.
  id<MTLTexture> texture = [floats retain];
  buffer = command_buffer();
  check(![make_conversion() encodeToCommandBuffer:buffer inPlaceTexture:&texture fallbackCopyAllocator:nil] &&
            texture == floats,
        "not in place without an allocator");
  check(![make_conversion() encodeToCommandBuffer:buffer
                                   inPlaceTexture:&texture
                            fallbackCopyAllocator:^id<MTLTexture>(MPSKernel *, id<MTLCommandBuffer>, id<MTLTexture>) {
                              return nil;
                            }] &&
            texture == floats,
        "not in place with an allocator that has no texture");
  MPSImageConversion *premultiply = make_conversion(kPlain, kPremultiplied);
  check([premultiply encodeToCommandBuffer:buffer
                            inPlaceTexture:&texture
                     fallbackCopyAllocator:^(MPSKernel *kernel, id<MTLCommandBuffer> given_buffer, id<MTLTexture> old) {
                       check(kernel == premultiply && given_buffer == buffer && old == floats,
                             "what an allocator gets");
                       return [make_texture(MTLPixelFormatRGBA32Float, 2, 1) retain];
                     }] &&
            texture != floats,
        "a new texture in place of the old one");
  run(buffer);
  [texture getBytes:got bytesPerRow:sizeof got fromRegion:region mipmapLevel:0];
  check(got[0] == 0 && got[2] == 1 && got[4] == 0 && got[7] == 0, "the new texture holds the result");
  [texture release];
}

// ----------------------------------------------------------------------------------------------- refusals

void test_refusals() {
  const auto refused = [](const char *part, MPSImageConversion *kernel, MPSImage *source, MPSImage *destination) {
    id<MTLCommandBuffer> buffer = command_buffer();
    check_raises(part, kArgument, part,
                 [&] { [kernel encodeToCommandBuffer:buffer sourceImage:source destinationImage:destination]; });
  };
  MPSImage *five = make_nan_image(1, 2, 2, 5), *four = make_nan_image(1, 2, 2, 4), *two = make_nan_image(1, 2, 2, 2);
  refused("sourceImage has 5 feature channels and destinationImage 4; they are as many, or 3 and 4", make_conversion(),
          five, four);
  refused("sourceImage has 2 feature channels and destinationImage 4", make_conversion(), two, four);
  refused("srcAlpha (1) and destAlpha (1) ask for a change of alpha, which images of 5 feature channels have not",
          make_conversion(kOne, kOne), five, make_nan_image(1, 2, 2, 5));
  refused("sourceImage is nil", make_conversion(), nil, four);
  refused("destinationImage is nil", make_conversion(), four, nil);
  MPSImageConversion *kernel = make_conversion();
  [kernel setEdgeMode:MPSImageEdgeModeMirror];
  refused("edgeMode (2) is not one that the kernel has", kernel, four, make_nan_image(1, 2, 2, 4));
  [kernel setEdgeMode:MPSImageEdgeModeZero];
  [kernel setClipRect:MTLRegionMake3D(2, 0, 0, 1, 1, 1)];
  refused("clipRect, origin (2, 0, 0)", kernel, four, make_nan_image(1, 2, 2, 4));
  check_raises("srcAlpha", kArgument, "srcAlpha (3) is not one of 0 to 2",
               [] { make_conversion(static_cast<MPSAlphaType>(3)); });
  check_raises("destAlpha", kArgument, "destAlpha (9) is not one of 0 to 2",
               [] { make_conversion(kPlain, static_cast<MPSAlphaType>(9)); });
  check_raises("a conversion of colour spaces", @"MPSNotImplementedException",
               "is not NULL; openmps has no colour spaces", [] {
                 [[MPSImageConversion alloc] initWithDevice:device
                                                   srcAlpha:kOne
                                                  destAlpha:kOne
                                            backgroundColor:NULL
                                             conversionInfo:reinterpret_cast<CGColorConversionInfoRef>(&queue)];
               });
  check_raises("no texture", kArgument, "sourceTexture is nil", [] {
    [make_conversion() encodeToCommandBuffer:command_buffer() sourceTexture:nil destinationTexture:nil];
  });
  MPSUnaryImageKernel *abstract = [[[MPSUnaryImageKernel alloc] initWithDevice:device] autorelease];
  check_raises("the base class", kArgument, "The class cannot be encoded; use one of its subclasses", [&] {
    [abstract encodeToCommandBuffer:command_buffer() sourceImage:four destinationImage:make_nan_image(1, 2, 2, 4)];
  });
}

}  // namespace

int main() {
  return run_tests(
      {test_alpha, test_three_and_four_channels, test_many_channels, test_regions, test_textures, test_refusals});
}

// SPDX-License-Identifier: Apache-2.0
// MPSImageConversion: properties, textures, and refused calls. Values are in tests/rows/objc_conversions.py. Prints "N
// passed, N failed".

#import "mps_test.hh"

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

namespace {

constexpr auto kPlain = MPSAlphaTypeNonPremultiplied;
constexpr auto kOne = MPSAlphaTypeAlphaIsOne;
constexpr auto kPremultiplied = MPSAlphaTypePremultiplied;

MPSImageConversion *make_conversion(MPSAlphaType from = kPlain, MPSAlphaType to = kPlain) {
  return [[[MPSImageConversion alloc] initWithDevice:device
                                            srcAlpha:from
                                           destAlpha:to
                                     backgroundColor:NULL
                                      conversionInfo:NULL] autorelease];
}

void convert(MPSImageConversion *kernel, MPSImage *source, MPSImage *destination) {
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer sourceImage:source destinationImage:destination];
  run(buffer);
}

void test_properties() {
  for (const MPSAlphaType from : {kPlain, kOne, kPremultiplied}) {
    MPSImageConversion *kernel = make_conversion(from, kPlain);
    for (MPSImageConversion *twin : {kernel, (MPSImageConversion *)[[kernel copy] autorelease], archived(kernel)})
      check([twin sourceAlpha] == from && [twin destinationAlpha] == kPlain, "types of alpha");
    check([kernel edgeMode] == MPSImageEdgeModeZero, "edgeMode from the start");
  }
  MPSImageConversion *plain = [[[MPSImageConversion alloc] initWithDevice:device] autorelease];
  check([plain sourceAlpha] == kOne && [plain destinationAlpha] == kOne, "alpha is one from the start");
  const MPSOffset offset = {2, -1, 0};
  [plain setOffset:offset];
  [plain setClipRect:MTLRegionMake3D(1, 1, 0, 4, 3, 1)];
  const MPSRegion region = [plain sourceRegionForDestinationSize:MTLSizeMake(4, 9, 1)];
  check(region.origin.x == 2 && region.origin.y == -1 && region.origin.z == 0, "origin of the source's region");
  check(region.size.width == 3 && region.size.height == 3 && region.size.depth == 1, "size of the source's region");
}

/// More texels than one chunk or thread takes, in half precision and with a gap between the pixels.
void test_many_texels() {
  const Tensor many = Tensor::random(2, 90, 201, 8, 5);
  MPSImage *part = [make_half_image(many) subImageWithFeatureChannelRange:NSMakeRange(4, 4)];
  MPSImage *result = make_nan_image(2, 90, 201, 4);
  convert(make_conversion(kPlain, kPremultiplied), part, result);
  Tensor expected = many.channels(4, 4);
  for (std::size_t i = 0; i < expected.values.size(); ++i)
    if (i % 4 != 3) expected.values[i] *= expected.values[i / 4 * 4 + 3];
  check_equal("many texels", read_image(result), expected, 1e-7);
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

int main() { return run_tests({test_properties, test_many_texels, test_textures, test_refusals}); }

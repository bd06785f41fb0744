// SPDX-License-Identifier: Apache-2.0
// Images: reads and writes of bytes, properties, views, hazards, and images over the program's memory. Prints "N
// passed, N failed".

#import "metal_test.hh"
#import "sharing.hh"

#include <algorithm>

namespace {

// ------------------------------------------------------------------------------------------------ images

template <class T>
void round_trip(MPSImageFeatureChannelFormat format, NSUInteger h, NSUInteger w, NSUInteger c, NSUInteger n) {
  const Pool pool;
  MPSImage *image = made(described(format, h, w, c, n));
  std::vector<T> in(n * h * w * c), out(in.size()), planes(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<T>(i * 7 + 3);
  for (NSUInteger i = 0; i < n; ++i) [image writeBytes:in.data() + i * h * w * c dataLayout:kHWC imageIndex:i];
  for (NSUInteger i = 0; i < n; ++i) [image readBytes:out.data() + i * h * w * c dataLayout:kHWC imageIndex:i];
  for (NSUInteger i = 0; i < n; ++i) [image readBytes:planes.data() + i * h * w * c dataLayout:kCHW imageIndex:i];
  CHECK(in == out);
  bool good = true;
  for (NSUInteger i = 0; i < n; ++i)
    for (NSUInteger y = 0; y < h; ++y)
      for (NSUInteger x = 0; x < w; ++x)
        for (NSUInteger k = 0; k < c; ++k)
          good = good && planes[((i * c + k) * h + y) * w + x] == in[((i * h + y) * w + x) * c + k];
  CHECK(good);
  MPSImage *other = made(described(format, h, w, c, n));
  for (NSUInteger i = 0; i < n; ++i) [other writeBytes:planes.data() + i * h * w * c dataLayout:kCHW imageIndex:i];
  std::fill(out.begin(), out.end(), T());
  for (NSUInteger i = 0; i < n; ++i) [other readBytes:out.data() + i * h * w * c dataLayout:kHWC imageIndex:i];
  CHECK(in == out);
}

void test_image_bytes() {
  section = "image bytes";
  // Odd extents; channels around the tiles of the transposition (4 and 8) and around texels.
  for (NSUInteger c : {1, 2, 3, 4, 5, 8, 9, 16, 19, 64}) {
    round_trip<float>(kFloat32, 5, 7, c, 2);
    round_trip<uint16_t>(kFloat16, 3, 13, c, 1);
    round_trip<uint8_t>(kUnorm8, 4, 70, c, 3);
  }
  round_trip<float>(kFloat32, 300, 301, 33, 1);   // several threads
  round_trip<float>(kFloat32, 1, 16000, 130, 1);  // several threads, one row
  const Pool pool;
  MPSImage *image = made(described(kFloat32, 4, 5, 6, 3));
  std::vector<float> all(3 * 4 * 5 * 6);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
  const MTLRegion whole = MTLRegionMake3D(0, 0, 0, 5, 4, 3);
  const MPSImageReadWriteParams six = {0, 6};
  [image writeBytes:all.data()
              dataLayout:kHWC
             bytesPerRow:5 * 6 * 4
           bytesPerImage:4 * 5 * 6 * 4
                  region:whole
      featureChannelInfo:six
              imageIndex:0];
  const auto at = [&](std::size_t n, std::size_t y, std::size_t x, std::size_t c) {
    return all[((n * 4 + y) * 5 + x) * 6 + c];
  };

  // A region of two images with padded rows and images.
  std::vector<float> part(2 * 100, -1);
  [image readBytes:part.data()
              dataLayout:kHWC
             bytesPerRow:20 * 4
           bytesPerImage:100 * 4
                  region:MTLRegionMake3D(1, 2, 1, 3, 2, 2)
      featureChannelInfo:six
              imageIndex:0];
  CHECK(part[0] == at(1, 2, 1, 0) && part[17] == at(1, 2, 3, 5) && part[18] == -1 && part[20] == at(1, 3, 1, 0));
  CHECK(part[100] == at(2, 2, 1, 0) && part[137] == at(2, 3, 3, 5) && part[138] == -1);

  // Planes with padded rows; channels 4 to 7, of which the image has two.
  std::vector<float> planes(4 * 3 * 8, -1);
  [image readBytes:planes.data()
              dataLayout:kCHW
             bytesPerRow:8 * 4
                  region:MTLRegionMake2D(1, 0, 4, 3)
      featureChannelInfo:MPSImageReadWriteParams{4, 4}
              imageIndex:2];
  CHECK(planes[0] == at(2, 0, 1, 4) && planes[3] == at(2, 0, 4, 4) && planes[4] == -1 && planes[8] == at(2, 1, 1, 4));
  CHECK(planes[24] == at(2, 0, 1, 5) && planes[48] == 0 && planes[72 + 16 + 3] == 0);

  // Writing a part keeps the rest.
  std::vector<float> patch(2 * 2 * 4, 1000);
  [image writeBytes:patch.data()
              dataLayout:kHWC
             bytesPerRow:2 * 4 * 4
                  region:MTLRegionMake2D(0, 1, 2, 2)
      featureChannelInfo:MPSImageReadWriteParams{0, 4}
              imageIndex:1];
  std::vector<float> now(4 * 5 * 6);
  [image readBytes:now.data() dataLayout:kHWC imageIndex:1];
  CHECK(now[(1 * 5 + 0) * 6 + 3] == 1000 && now[(2 * 5 + 1) * 6 + 0] == 1000 &&
        now[(1 * 5 + 0) * 6 + 4] == at(1, 1, 0, 4));
  CHECK(now[(1 * 5 + 2) * 6] == at(1, 1, 2, 0) && now[0] == at(1, 0, 0, 0));

  // bytesPerColumn: every other pixel of the buffer.
  MPSImage *gray = made(described(kFloat32, 2, 3, 1));
  const float spread[12] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0};
  for (MPSDataLayout layout : {kHWC, kCHW}) {
    [gray writeBytes:spread
                dataLayout:layout
            bytesPerColumn:8
               bytesPerRow:24
             bytesPerImage:48
                    region:MTLRegionMake2D(0, 0, 3, 2)
        featureChannelInfo:MPSImageReadWriteParams{0, 1}
                imageIndex:0];
    float six_values[6];
    [gray readBytes:six_values dataLayout:kHWC imageIndex:0];
    CHECK(six_values[0] == 1 && six_values[2] == 3 && six_values[3] == 4 && six_values[5] == 6);
  }
  // Padding lanes of one- and two-channel images are Metal's default texel, of three-channel images 0.
  float texel[6][4];
  [gray readBytes:texel
              dataLayout:kHWC
             bytesPerRow:48
                  region:MTLRegionMake2D(0, 0, 3, 2)
      featureChannelInfo:MPSImageReadWriteParams{0, 4}
              imageIndex:0];
  CHECK(texel[1][0] == 2 && texel[1][1] == 0 && texel[1][2] == 0 && texel[1][3] == 1);
  MPSImage *rgb = made(described(kUnorm8, 1, 1, 3));
  const unsigned char three[3] = {1, 2, 3};
  unsigned char four[4] = {9, 9, 9, 9};
  [rgb writeBytes:three dataLayout:kHWC imageIndex:0];
  [rgb readBytes:four
              dataLayout:kHWC
             bytesPerRow:1
                  region:MTLRegionMake2D(0, 0, 1, 1)
      featureChannelInfo:MPSImageReadWriteParams{0, 4}
              imageIndex:0];
  CHECK(four[0] == 1 && four[2] == 3 && four[3] == 0);

  float *out = all.data();
  CHECK_RAISES(kArgument, PARTS("imageIndex (3)", "(3)"), [image readBytes:out dataLayout:kHWC imageIndex:3]);
  CHECK_RAISES(kArgument, PARTS("dataBytes is NULL"), [image readBytes:nullptr dataLayout:kHWC imageIndex:0]);
  CHECK_RAISES(kArgument, PARTS("dataLayout (2)"), [image readBytes:out dataLayout:(MPSDataLayout)2 imageIndex:0]);
  const auto read = [&](NSUInteger row, MTLRegion region, NSUInteger offset, NSUInteger count, MPSDataLayout layout) {
    [image readBytes:out
                dataLayout:layout
               bytesPerRow:row
                    region:region
        featureChannelInfo:MPSImageReadWriteParams{offset, count}
                imageIndex:0];
  };
  const MTLRegion plane = MTLRegionMake2D(0, 0, 5, 4);
  CHECK_RAISES(kArgument, PARTS("featureChannelOffset (2)", "4"), read(120, plane, 2, 4, kHWC));
  CHECK_RAISES(kArgument, PARTS("numberOfFeatureChannelsToReadWrite (0)"), read(120, plane, 0, 0, kHWC));
  CHECK_RAISES(kArgument, PARTS("numberOfFeatureChannelsToReadWrite (2)", "featureChannelOffset (4)"),
               read(120, plane, 4, 2, kHWC));
  CHECK_RAISES(kArgument, PARTS("featureChannels (6"), read(400, plane, 8, 4, kHWC));
  CHECK_RAISES(kArgument, PARTS("featureChannels (6"), read(400, plane, 0, NSUIntegerMax, kHWC));
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (119)", "(120)"), read(119, plane, 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (122)", "(4)"), read(122, plane, 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (16)", "(20)"), read(16, plane, 0, 6, kCHW));
  CHECK_RAISES(kArgument, PARTS("(5 x 4)"), read(120, MTLRegionMake2D(3, 0, 3, 1), 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("(5 x 4)"), read(120, MTLRegionMake2D(NSUIntegerMax, 0, 2, 1), 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("extent of 0"), read(120, MTLRegionMake2D(0, 0, 0, 1), 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("numberOfImages (3)"), read(120, MTLRegionMake3D(0, 0, 2, 5, 4, 2), 0, 6, kHWC));
  CHECK_RAISES(kArgument, PARTS("bytesPerImage (100)"),
               [image readBytes:out
                           dataLayout:kHWC
                          bytesPerRow:120
                        bytesPerImage:100
                               region:whole
                   featureChannelInfo:six
                           imageIndex:0]);
}

void test_image_properties() {
  section = "image properties";
  const Pool pool;
  MPSImageDescriptor *plain = [[[MPSImageDescriptor alloc] init] autorelease];
  CHECK([plain width] == 1 && [plain height] == 1 && [plain featureChannels] == 1 && [plain numberOfImages] == 1);
  CHECK([plain usage] == (MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite) &&
        [plain pixelFormat] == MTLPixelFormatInvalid);
  CHECK_RAISES(kArgument, PARTS("MPSImage: channelFormat (0"), made(plain));
  const struct {
    MPSImageFeatureChannelFormat format;
    NSUInteger channels;
    MTLPixelFormat pixel_format;
    NSUInteger precision, pixel_size;
  } rows[] = {{kUnorm8, 1, MTLPixelFormatR8Unorm, 8, 1},
              {MPSImageFeatureChannelFormatUnorm16, 2, MTLPixelFormatRG16Unorm, 16, 4},
              {kFloat16, 1, MTLPixelFormatR16Float, 11, 2},
              {kFloat16, 3, MTLPixelFormatRGBA16Float, 11, 8},
              {kFloat32, 17, MTLPixelFormatRGBA32Float, 24, 16}};
  for (const auto &row : rows) {
    MPSImage *image = made(described(row.format, 2, 3, row.channels, 2));
    CHECK([image pixelFormat] == row.pixel_format && [image precision] == row.precision &&
          [image pixelSize] == row.pixel_size);
    CHECK([image featureChannelFormat] == row.format && [image numberOfImages] == 2 && [image width] == 3 &&
          [image height] == 2);
  }
  MPSImageDescriptor *copied = [[described(kFloat16, 2, 3, 5, 4) copy] autorelease];
  CHECK([copied width] == 3 && [copied height] == 2 && [copied featureChannels] == 5 && [copied numberOfImages] == 4);
  MPSImage *image = made(copied);
  CHECK([image setPurgeableState:MPSPurgeableStateVolatile] == MPSPurgeableStateAllocationDeferred);
  CHECK([image textureType] == MTLTextureType2DArray && [[image texture] arrayLength] == 8 && [image parent] == nil);
  CHECK([made(described(kFloat16, 2, 3, 4)) textureType] == MTLTextureType2D);
  CHECK([image resourceSize] >= 4 * 2 * 3 * 5 * 2 && [image device] == device);
  [image setLabel:@"im"];
  CHECK([[image label] isEqual:@"im"]);
  CHECK(MPSGetImageType(image) == (MPSImageType_ArrayMask | MPSImageType_BatchMask | MPSImageType_texelFormatFloat16));
  CHECK_RAISES(kArgument, PARTS("width (0)", "(1)"), made(described(kFloat16, 2, 0, 1)));
  CHECK_RAISES(kArgument, PARTS("height (16385)", "(16384)"), made(described(kFloat16, 16385, 1, 1)));
  CHECK_RAISES(kArgument, PARTS("featureChannels (0)"), made(described(kFloat16, 2, 1, 0)));
  CHECK_RAISES(kArgument, PARTS("numberOfImages (0)"), made(described(kFloat16, 2, 1, 1, 0)));
  CHECK_RAISES(kArgument, PARTS("channelFormat (5)"), made(described(MPSImageFeatureChannelFormat_reserved0, 2, 1, 1)));
  CHECK_RAISES(kArgument, PARTS("2050 slices", "2048"), made(described(kFloat16, 1, 1, 8, 1025)));
  CHECK_RAISES(kArgument, PARTS("recommendedMaxWorkingSetSize"), made(described(kFloat32, 16384, 16384, 8192)));
  CHECK_RAISES(kArgument, PARTS("imageDescriptor is nil"), made(nil));
  CHECK_RAISES(kArgument, PARTS("device is nil"), [[MPSImage alloc] initWithDevice:nil imageDescriptor:copied]);
  CHECK_RAISES(kArgument, PARTS("unavailable"), [(id)[MPSImage alloc] init]);
  CHECK_RAISES(kMissing, PARTS("MPSImage foo"), [(id<Unknown>)image foo]);
  CHECK_RAISES(kMissing, PARTS("+[MPSImage foo"), [(id)[MPSImage class] foo]);

  // The texture shows the image's memory.
  std::vector<uint16_t> in(2 * 3 * 5);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i + 1);
  [image writeBytes:in.data() dataLayout:kHWC imageIndex:1];
  uint16_t texels[2][3][4];
  [[image texture] getBytes:texels
                bytesPerRow:24
              bytesPerImage:0
                 fromRegion:MTLRegionMake2D(0, 0, 3, 2)
                mipmapLevel:0
                      slice:2];
  CHECK(texels[1][2][3] == in[(1 * 3 + 2) * 5 + 3]);
  [[image texture] getBytes:texels
                bytesPerRow:24
              bytesPerImage:0
                 fromRegion:MTLRegionMake2D(0, 0, 3, 2)
                mipmapLevel:0
                      slice:3];
  CHECK(texels[1][2][0] == in[(1 * 3 + 2) * 5 + 4] && texels[1][2][1] == 0 && texels[0][0][3] == 0);

  // Views.
  MPSImageBatch *batch = [image batchRepresentation];
  CHECK([batch count] == 4 && [[batch objectAtIndex:1] numberOfImages] == 1 &&
        [[batch objectAtIndex:1] parent] == image);
  std::vector<uint16_t> out(in.size());
  [[batch objectAtIndex:1] readBytes:out.data() dataLayout:kHWC imageIndex:0];
  CHECK(out == in);
  CHECK([[image batchRepresentationWithSubRange:NSMakeRange(1, 2)] count] == 2);
  CHECK_RAISES(kArgument, PARTS("(2, 3)", "(4)"), [image batchRepresentationWithSubRange:NSMakeRange(2, 3)]);
  MPSImage *sub = [image subImageWithFeatureChannelRange:NSMakeRange(4, 8)];
  CHECK([sub featureChannels] == 1 && [sub numberOfImages] == 4);
  std::vector<uint16_t> last(6);
  [sub readBytes:last.data() dataLayout:kHWC imageIndex:1];
  CHECK(last[5] == in[29]);
  CHECK_RAISES(kArgument, PARTS("range.location (2)"), [image subImageWithFeatureChannelRange:NSMakeRange(2, 4)]);
  CHECK_RAISES(kArgument, PARTS("range.length (3)"), [image subImageWithFeatureChannelRange:NSMakeRange(0, 3)]);
  MPSImage *slices = [[[MPSImage alloc] initWithParentImage:image sliceRange:NSMakeRange(2, 4)
                                            featureChannels:5] autorelease];
  CHECK([slices numberOfImages] == 2 && [slices featureChannels] == 5);
  [slices readBytes:out.data() dataLayout:kHWC imageIndex:0];
  CHECK(out == in);
  CHECK_RAISES(kArgument, PARTS("sliceRange (1, 4)"),
               [[MPSImage alloc] initWithParentImage:image sliceRange:NSMakeRange(1, 4) featureChannels:5]);

  MPSImageBatch *doubled = [NSArray arrayWithObjects:image, image, nil];
  CHECK(MPSImageBatchResourceSize(doubled) == [image resourceSize]);
  CHECK(MPSImageBatchIncrementReadCount(doubled, 3) == 1);
  __block NSUInteger visited = 0;
  CHECK(MPSImageBatchIterate(batch, ^NSInteger(MPSImage *, NSUInteger index) {
          ++visited;
          return index == 2 ? 42 : 0;
        }) == 42);
  CHECK(visited == 3);
  id allocator = [MPSImage defaultAllocator];
  id archived = [NSKeyedUnarchiver unarchiveObjectWithData:[NSKeyedArchiver archivedDataWithRootObject:allocator]];
  CHECK([archived respondsToSelector:@selector(imageForCommandBuffer:imageDescriptor:kernel:)]);
  CHECK([archived class] == [allocator class]);
}

void test_image_hazards() {
  section = "image hazards";
  const Pool pool;
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  MPSImage *image = made(described(kFloat32, 2, 2, 4));
  float values[16] = {1, 2, 3}, out[16];
  [image writeBytes:values dataLayout:kHWC imageIndex:0];
  id<MTLBuffer> source = [[device newBufferWithLength:64 options:0] autorelease];
  const auto write = [&](id<MTLCommandBuffer> commands) {
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit copyFromBuffer:source
               sourceOffset:0
          sourceBytesPerRow:32
        sourceBytesPerImage:64
                 sourceSize:MTLSizeMake(2, 2, 1)
                  toTexture:[image texture]
           destinationSlice:0
           destinationLevel:0
          destinationOrigin:MTLOriginMake(0, 0, 0)];
    [blit endEncoding];
  };
  {
    const Pool inner;
    write([queue commandBuffer]);
    CHECK_RAISES(kUsage,
                 PARTS("MPSImage", "was written by a command buffer that has not completed", "not been committed"),
                 [image readBytes:out dataLayout:kHWC imageIndex:0]);
    CHECK_RAISES(kUsage, PARTS("is written by a command buffer that has not completed"),
                 [[image subImageWithFeatureChannelRange:NSMakeRange(0, 4)] writeBytes:out
                                                                            dataLayout:kHWC
                                                                            imageIndex:0]);
  }
  // That command buffer was dropped without running.
  [image readBytes:out dataLayout:kHWC imageIndex:0];
  CHECK(out[1] == 2);
  id<MTLSharedEvent> event = [[device newSharedEvent] autorelease];
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  [commands encodeWaitForEvent:event value:1];
  write(commands);
  [commands commit];
  CHECK_RAISES(kUsage, PARTS("was written by a command buffer that has not completed"),
               [image readBytes:out dataLayout:kHWC imageIndex:0]);
  [event setSignaledValue:1];
  [commands waitUntilCompleted];
  [image readBytes:out dataLayout:kHWC imageIndex:0];
  CHECK(out[1] == 0);
  MPSImageDescriptor *hidden = described(kFloat32, 2, 2, 4);
  [hidden setStorageMode:MTLStorageModePrivate];
  CHECK_RAISES(kUsage, PARTS("private"), [made(hidden) readBytes:out dataLayout:kHWC imageIndex:0]);
}

void test_shared_images() {
  section = "shared images";
  const Pool pool;
  CHECK([MPSImage instancesRespondToSelector:@selector(initWithDevice:imageDescriptor:bytesNoCopy:bytesPerPixel:
                                                       bytesPerRow:bytesPerImage:readOnly:deallocator:)]);
  std::vector<float> memory(2 * 4 * 3 * 5);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
  int calls = 0;
  int *const counter = &calls;
  const auto share = [&](NSUInteger pixel, NSUInteger row, NSUInteger image, BOOL read_only) {
    return [[MPSImage alloc] initWithDevice:device
                            imageDescriptor:described(kFloat32, 4, 3, 5, 2)
                                bytesNoCopy:memory.data()
                              bytesPerPixel:pixel
                                bytesPerRow:row
                              bytesPerImage:image
                                   readOnly:read_only
                                deallocator:^{
                                  ++*counter;
                                }];
  };
  MPSImage *image = share(20, 60, 240, NO);
  std::vector<float> out(60);
  [image readBytes:out.data() dataLayout:kHWC imageIndex:1];
  CHECK(std::memcmp(out.data(), memory.data() + 60, 240) == 0);
  out[0] = 77;
  [image writeBytes:out.data() dataLayout:kHWC imageIndex:0];
  CHECK(memory[0] == 77);
  id<MTLTexture> texture = [[image texture] retain];
  [image release];
  CHECK(calls == 0);  // the texture still needs it
  [texture release];
  CHECK(calls == 1);
  MPSImage *transposed = share(4 * 20, 20, 240, YES);  // rows and columns exchanged
  [transposed readBytes:out.data() dataLayout:kHWC imageIndex:0];
  CHECK(out[5] == memory[20] && out[15] == memory[5]);
  CHECK_RAISES(kUsage, PARTS("read-only"), [transposed writeBytes:out.data() dataLayout:kHWC imageIndex:0]);
  CHECK_RAISES(kUsage, PARTS("read-only"),
               [[transposed texture] replaceRegion:MTLRegionMake2D(0, 0, 1, 1)
                                       mipmapLevel:0
                                         withBytes:out.data()
                                       bytesPerRow:16]);
  [transposed release];
  CHECK(calls == 2);
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (62)", "(4)"), share(20, 62, 240, NO));
  CHECK_RAISES(kArgument, PARTS("bytesPerRow (0)"), share(20, 0, 240, YES));
  CHECK_RAISES(kArgument, PARTS("bytesPerPixel (16)", "overlap"), share(16, 60, 240, NO));
  CHECK(calls == 2);
}

}  // namespace

int main() { return run_tests({test_image_bytes, test_image_properties, test_image_hazards, test_shared_images}); }

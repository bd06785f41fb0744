// SPDX-License-Identifier: Apache-2.0
// Messages from C++ initializers at file scope, which run before the file's selectors are registered with the runtime:
// class and instance methods, all kinds of arguments, structs and floats as results, constant strings. Prints "N
// passed, N failed".

#import "metal_test.hh"

namespace {

/// Pool of the objects that the initializers below autorelease; never drained.
NSAutoreleasePool *const pool_of_initializers = [[NSAutoreleasePool alloc] init];

// As in training programs.
MPSNNDefaultPadding *const padding =
    [[MPSNNDefaultPadding paddingWithMethod:MPSNNPaddingMethodSizeSame | MPSNNPaddingMethodAlignCentered] retain];
id<MTLDevice> const early_device = MTLCreateSystemDefaultDevice();
MPSCNNPoolingMax *const pooling = [[MPSCNNPoolingMax alloc] initWithDevice:early_device
                                                               kernelWidth:3
                                                              kernelHeight:2
                                                           strideInPixelsX:2
                                                           strideInPixelsY:1];
MPSImageDescriptor *const descriptor =
    [[MPSImageDescriptor imageDescriptorWithChannelFormat:MPSImageFeatureChannelFormatFloat32
                                                    width:7
                                                   height:5
                                          featureChannels:3] retain];

// Structs are returned in memory or registers, floating-point numbers in their own registers.
const MTLSize largest = [early_device maxThreadsPerThreadgroup];                // 24 bytes
const MTLRegion region = [pooling clipRect];                                    // 48 bytes
const MPSOffset offset = pooling.offset;                                        // 24 bytes
const NSRange range = [[NSValue valueWithRange:NSMakeRange(3, 4)] rangeValue];  // 16 bytes
const float half = [[NSNumber numberWithFloat:0.5f] floatValue];
const double third = [[NSNumber numberWithDouble:1.0 / 3] doubleValue];

// More arguments than registers; variable arguments; nil; a pointer to write through; a block.
id<MTLTexture> const texture = [] {
  MTLTextureDescriptor *wanted = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                                                    width:4
                                                                                   height:4
                                                                                mipmapped:NO];
  return [early_device newTextureWithDescriptor:wanted];
}();
NSString *const formatted = [[NSString alloc] initWithFormat:@"%d %s %g %d %d %d %d", 1, "two", 3.5, 4, 5, 6, 7];
NSArray *const letters = [[NSArray alloc] initWithObjects:@"a", @"b", nil];
NSError *early_error = nil;
id<MTLLibrary> const library = [early_device newLibraryWithSource:@"kernel" options:nil error:&early_error];
const NSUInteger visited = [] {
  __block NSUInteger count = 0;
  [letters enumerateObjectsUsingBlock:^(id, NSUInteger, BOOL *) {
    ++count;
  }];
  return count;
}();
NSUInteger length_of_nil = [(NSString *)nil length];

// Constant strings as receivers and as arguments.
const NSUInteger length = [@"file scope" length];
NSString *const joined = [[@"file" stringByAppendingString:@" scope"] retain];
const BOOL is_string = [@"x" isKindOfClass:[NSString class]];
NSDictionary *const keyed = [[NSDictionary alloc] initWithObjectsAndKeys:@"value", @"key", nil];
id const performed = [[@"abc" performSelector:@selector(uppercaseString)] retain];

// A method that openmps lacks; the sentence has its name.
const Raised missing = raised_by([] { [(id<Unknown>)[MPSImage class] foo]; });

void test_file_scope() {
  section = "file scope";
  CHECK([padding paddingMethod] == (MPSNNPaddingMethodSizeSame | MPSNNPaddingMethodAlignCentered));
  CHECK(early_device == device);
  CHECK([pooling kernelWidth] == 3 && [pooling kernelHeight] == 2 && [pooling strideInPixelsX] == 2);
  CHECK([descriptor width] == 7 && [descriptor height] == 5 && [descriptor featureChannels] == 3);
  CHECK(largest.width == 1024 && largest.depth == 1024);
  CHECK(region.origin.z == 0 && region.size.width == MPSRectNoClip.size.width);
  CHECK(offset.x == [pooling offset].x && offset.z == 0);
  CHECK(range.location == 3 && range.length == 4 && half == 0.5f && third == 1.0 / 3);
  CHECK([texture width] == 4 && [texture pixelFormat] == MTLPixelFormatR32Float);
  CHECK([formatted isEqual:@"1 two 3.5 4 5 6 7"]);
  CHECK([letters count] == 2 && [[letters objectAtIndex:1] isEqual:@"b"] && visited == 2);
  CHECK(library == nil && [[early_error domain] isEqual:MTLLibraryErrorDomain]);
  CHECK(length_of_nil == 0);
  CHECK(length == 10 && [joined isEqual:@"file scope"] && is_string);
  CHECK([[keyed objectForKey:@"key"] isEqual:@"value"] && [performed isEqual:@"ABC"]);
  CHECK(missing.name == kMissing && missing.reason.find("+[MPSImage foo]") == 0);
}

void test_afterwards() {
  section = "afterwards";
  // The same selectors and strings, now registered with the runtime.
  CHECK([[letters objectAtIndex:0] class] == NSClassFromString(@"NSConstantString"));
  CHECK([@"x" class] == [@"y" class] && [@"abc" respondsToSelector:@selector(uppercaseString)]);
  CHECK(raised_by([] { [(id)padding drawPatches]; }).reason.find("drawPatches") != std::string::npos);
  [pooling setClipRect:MTLRegionMake2D(1, 1, 2, 2)];
  CHECK([pooling clipRect].size.width == 2);
  [texture release];  // the last of the objects that are counted
}

}  // namespace

int main() {
  const Pool pool;
  device = MTLCreateSystemDefaultDevice();
  test_file_scope();
  test_afterwards();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

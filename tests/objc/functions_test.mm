// SPDX-License-Identifier: Apache-2.0
// Runs Metal functions. With a file, written by tests/test_metal_functions.py: a job in JSON; arrays are files beside
// it, and results become files. Without: refusals, properties and use beside MPS kernels; prints "N passed, N failed".

#import "metal_test.hh"

#include <algorithm>

namespace {

// --------------------------------------------------------------------------------------------------- jobs

NSUInteger number(NSDictionary *job, NSString *key, NSUInteger otherwise = 0) {
  NSNumber *value = [job objectForKey:key];
  return value == nil ? otherwise : [value unsignedIntegerValue];
}

MTLSize size_in(NSArray *three) {
  return MTLSizeMake([[three objectAtIndex:0] unsignedIntegerValue], [[three objectAtIndex:1] unsignedIntegerValue],
                     [[three objectAtIndex:2] unsignedIntegerValue]);
}

int fail(NSString *stage, NSError *error) {
  std::printf("%s failed: %s %ld\n%s\n", [stage UTF8String], [[error domain] UTF8String], (long)[error code],
              [[error localizedDescription] UTF8String]);
  return 3;
}

MPSImage *image_of(NSDictionary *texture, NSData *data) {
  MPSImage *image =
      made(described(static_cast<MPSImageFeatureChannelFormat>(number(texture, @"format")), number(texture, @"h"),
                     number(texture, @"w"), number(texture, @"c"), number(texture, @"n", 1)));
  const NSUInteger bytes = [data length] / number(texture, @"n", 1);
  for (NSUInteger i = 0; i < number(texture, @"n", 1); ++i)
    [image writeBytes:static_cast<const char *>([data bytes]) + i * bytes dataLayout:kHWC imageIndex:i];
  return image;
}

NSMutableData *bytes_of(MPSImage *image, NSUInteger length) {
  NSMutableData *data = [NSMutableData dataWithLength:length];
  const NSUInteger bytes = length / [image numberOfImages];
  for (NSUInteger i = 0; i < [image numberOfImages]; ++i)
    [image readBytes:static_cast<char *>([data mutableBytes]) + i * bytes dataLayout:kHWC imageIndex:i];
  return data;
}

id<MTLFunction> function_of(NSDictionary *job, id<MTLLibrary> library, NSError **error) {
  NSArray *constants = [job objectForKey:@"constants"];
  if (constants == nil) return [[library newFunctionWithName:[job objectForKey:@"function"]] autorelease];
  MTLFunctionConstantValues *values = [[MTLFunctionConstantValues new] autorelease];
  for (NSDictionary *each in constants) {
    NSData *data = [NSData dataWithContentsOfFile:[each objectForKey:@"file"]];
    [values setConstantValue:[data bytes]
                        type:static_cast<MTLDataType>(number(each, @"type"))
                     atIndex:number(each, @"index")];
  }
  return [[library newFunctionWithName:[job objectForKey:@"function"] constantValues:values error:error] autorelease];
}

int run_job(const char *path) {
  const Pool pool;
  device = MTLCreateSystemDefaultDevice();
  NSDictionary *job =
      [NSJSONSerialization JSONObjectWithData:[NSData dataWithContentsOfFile:[NSString stringWithUTF8String:path]]
                                      options:0
                                        error:NULL];
  NSError *error = nil;
  NSString *source = [NSString stringWithContentsOfFile:[job objectForKey:@"source"]
                                               encoding:NSUTF8StringEncoding
                                                  error:&error];
  MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
  [options setPreprocessorMacros:[job objectForKey:@"macros"]];
  [options setFastMathEnabled:number(job, @"fast_math", 1) != 0];
  id<MTLLibrary> library = [[device newLibraryWithSource:source options:options error:&error] autorelease];
  if (library == nil) return fail(@"library", error);
  id<MTLFunction> function = function_of(job, library, &error);
  if (function == nil) return fail(@"function", error);
  id<MTLComputePipelineState> pipeline = [[device newComputePipelineStateWithFunction:function
                                                                                error:&error] autorelease];
  if (pipeline == nil) return fail(@"pipeline", error);

  id<MTLCommandBuffer> buffer = [[[device newCommandQueue] autorelease] commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
  [encoder setComputePipelineState:pipeline];
  NSMutableArray *images = [NSMutableArray array], *buffers = [NSMutableArray array];
  for (NSDictionary *each in [job objectForKey:@"textures"]) {
    MPSImage *image = image_of(each, [NSData dataWithContentsOfFile:[each objectForKey:@"file"]]);
    [images addObject:image];
    [encoder setTexture:[image texture] atIndex:number(each, @"index")];
  }
  for (NSDictionary *each in [job objectForKey:@"buffers"]) {
    NSData *data = [NSData dataWithContentsOfFile:[each objectForKey:@"file"]];
    id<MTLBuffer> made_of = [[device newBufferWithBytes:[data bytes] length:[data length] options:0] autorelease];
    [buffers addObject:(id)made_of];
    [encoder setBuffer:made_of offset:number(each, @"offset") atIndex:number(each, @"index")];
  }
  for (NSDictionary *each in [job objectForKey:@"bytes"]) {
    NSData *data = [NSData dataWithContentsOfFile:[each objectForKey:@"file"]];
    [encoder setBytes:[data bytes] length:[data length] atIndex:number(each, @"index")];
  }
  for (NSDictionary *each in [job objectForKey:@"memory"])
    [encoder setThreadgroupMemoryLength:number(each, @"length") atIndex:number(each, @"index")];
  for (NSDictionary *each in [job objectForKey:@"samplers"]) {
    MTLSamplerDescriptor *descriptor = [[MTLSamplerDescriptor new] autorelease];
    [descriptor setMagFilter:static_cast<MTLSamplerMinMagFilter>(number(each, @"filter"))];
    [descriptor setMinFilter:[descriptor magFilter]];
    [descriptor setNormalizedCoordinates:number(each, @"normalized") != 0];
    [descriptor setSAddressMode:static_cast<MTLSamplerAddressMode>(number(each, @"s"))];
    [descriptor setTAddressMode:static_cast<MTLSamplerAddressMode>(number(each, @"t"))];
    [descriptor setBorderColor:static_cast<MTLSamplerBorderColor>(number(each, @"border"))];
    [encoder setSamplerState:[[device newSamplerStateWithDescriptor:descriptor] autorelease]
                     atIndex:number(each, @"index")];
  }
  const MTLSize group = size_in([job objectForKey:@"group"]);
  if ([job objectForKey:@"groups"] != nil)
    [encoder dispatchThreadgroups:size_in([job objectForKey:@"groups"]) threadsPerThreadgroup:group];
  else
    [encoder dispatchThreads:size_in([job objectForKey:@"threads"]) threadsPerThreadgroup:group];
  [encoder endEncoding];
  for (MPSImage *image in images) [image synchronizeOnCommandBuffer:buffer];
  [buffer commit];
  [buffer waitUntilCompleted];
  if ([buffer error] != nil) return fail(@"command buffer", [buffer error]);

  NSUInteger i = 0;
  for (NSDictionary *each in [job objectForKey:@"textures"]) {
    NSString *file = [each objectForKey:@"file"];
    const NSUInteger length = [[NSData dataWithContentsOfFile:file] length];
    [bytes_of([images objectAtIndex:i++], length) writeToFile:[file stringByAppendingString:@".out"] atomically:NO];
  }
  i = 0;
  for (NSDictionary *each in [job objectForKey:@"buffers"]) {
    id<MTLBuffer> result = [buffers objectAtIndex:i++];
    [[NSData dataWithBytes:[result contents]
                    length:[result length]] writeToFile:[[each objectForKey:@"file"] stringByAppendingString:@".out"]
                                             atomically:NO];
  }
  std::printf("static threadgroup memory %lu\n", (unsigned long)[pipeline staticThreadgroupMemoryLength]);
  return 0;
}

// ------------------------------------------------------------------------------------------------ in-process

const char *const kSource = R"(
#include <metal_stdlib>
using namespace metal;
struct Params { float factor; uint n; };
constant bool wanted [[function_constant(0)]];
kernel void scale(texture2d_array<half, access::read> in [[texture(0)]], texture2d_array<half,
    access::write> out [[texture(1)]],
                  constant Params& p [[buffer(0)]], ushort3 gid [[thread_position_in_grid]]) {
  out.write(in.read(gid.xy, gid.z) * half(p.factor), gid.xy, gid.z);
}
kernel void plain(texture2d<float, access::read_write> both [[texture(0)]], ushort2 gid [[thread_position_in_grid]]) {
  both.write(both.read(gid) + 1.0, gid);
}
kernel void sampled(texture2d<float> t [[texture(0)]], sampler s [[sampler(3)]], device float* x [[buffer(0)]]) {
  x[0] = t.sample(s, float2(1.25, 0.5)).x;
}
kernel void fill(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = i; }
kernel void shared(device float* out [[buffer(0)]], threadgroup float* a [[threadgroup(0)]],
                   uint i [[thread_index_in_threadgroup]]) {
  threadgroup float b[64];
  a[i] = i; b[63 - i] = i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = a[63 - i] + b[i];
}
kernel void specialised(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]])
    { out[i] = wanted ? 1 : 2; }
kernel void integers(texture2d<uint, access::read> in [[texture(0)]], device uint* out [[buffer(0)]])
    { out[0] = in.read(uint2(0)).x; }
)";

id<MTLLibrary> library_of(const char *source) {
  NSError *error = nil;
  id<MTLLibrary> library = [[device newLibraryWithSource:[NSString stringWithUTF8String:source]
                                                 options:nil
                                                   error:&error] autorelease];
  if (library == nil) std::printf("  %s\n", [[error localizedDescription] UTF8String]);
  return library;
}

id<MTLComputePipelineState> pipeline_of(NSString *name) {
  id<MTLFunction> function = [[library_of(kSource) newFunctionWithName:name] autorelease];
  return [[device newComputePipelineStateWithFunction:function error:NULL] autorelease];
}

bool is_error(NSError *error, MTLLibraryError code, const char *part) {
  const bool good = [[error domain] isEqual:MTLLibraryErrorDomain] && [error code] == static_cast<NSInteger>(code) &&
                    std::strstr([[error localizedDescription] UTF8String], part) != nullptr;
  if (!good) std::printf("  %ld %s\n", (long)[error code], [[error localizedDescription] UTF8String]);
  return good;
}

void test_objects() {
  section = "objects";
  const Pool pool;
  id<MTLLibrary> library = library_of(kSource);
  CHECK([[[library functionNames] componentsJoinedByString:@" "]
      isEqual:@"scale plain sampled fill shared specialised integers"]);
  CHECK([library device] == device && [library newFunctionWithName:@"none"] == nil);
  [library setLabel:@"lib"];
  CHECK([[library label] isEqual:@"lib"]);
  id<MTLFunction> function = [[library newFunctionWithName:@"shared"] autorelease];
  CHECK([[function name] isEqual:@"shared"] && [function functionType] == MTLFunctionTypeKernel);
  NSError *error = nil;
  id<MTLComputePipelineState> pipeline = [[device newComputePipelineStateWithFunction:function
                                                                                error:&error] autorelease];
  CHECK([pipeline maxTotalThreadsPerThreadgroup] == 1024 && [pipeline threadExecutionWidth] == 32);
  CHECK([pipeline staticThreadgroupMemoryLength] == 256 && [pipeline device] == device && error == nil);

  // A function that needs a function constant.
  function = [[library newFunctionWithName:@"specialised"] autorelease];
  CHECK(function != nil && [device newComputePipelineStateWithFunction:function error:&error] == nil);
  CHECK(is_error(error, MTLLibraryErrorCompileFailure, "function constant wanted (index 0)"));
  MTLFunctionConstantValues *values = [[MTLFunctionConstantValues new] autorelease];
  error = nil;
  CHECK([library newFunctionWithName:@"specialised" constantValues:values error:&error] == nil);
  CHECK(is_error(error, MTLLibraryErrorCompileFailure, "wanted"));
  const float real = 1;
  [values setConstantValue:&real type:MTLDataTypeFloat atIndex:0];
  CHECK([library newFunctionWithName:@"specialised" constantValues:values error:&error] == nil);
  CHECK(is_error(error, MTLLibraryErrorCompileFailure, "of type float, the source declares it as bool"));
  const bool yes = true;
  [values setConstantValue:&yes type:MTLDataTypeBool withName:@"wanted"];
  CHECK([[library newFunctionWithName:@"specialised" constantValues:values error:&error] autorelease] != nil);
  [values reset];
  CHECK([library newFunctionWithName:@"specialised" constantValues:values error:NULL] == nil);
  CHECK([library newFunctionWithName:@"none" constantValues:values error:&error] == nil);
  CHECK(is_error(error, MTLLibraryErrorFunctionNotFound, "none"));
  CHECK_RAISES(kArgument, PARTS("constantValues is nil"),
               [library newFunctionWithName:@"fill" constantValues:nil error:NULL]);
  CHECK_RAISES(kArgument, PARTS("type (58)"), [values setConstantValue:&yes type:MTLDataTypeTexture atIndex:0]);
  CHECK_RAISES(kArgument, PARTS("computeFunction of a pipeline is nil"),
               [device newComputePipelineStateWithFunction:nil error:NULL]);
  __block int calls = 0;
  [device newComputePipelineStateWithFunction:[[library newFunctionWithName:@"fill"] autorelease]
                            completionHandler:^(id<MTLComputePipelineState> state, NSError *failure) {
                              calls += state != nil && failure == nil;
                            }];
  CHECK(calls == 1);
}

void test_sources() {
  section = "sources";
  const Pool pool;
  NSError *error = nil;
  const auto fails = [&](const char *source, std::initializer_list<const char *> parts, NSDictionary *macros = nil) {
    MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
    [options setPreprocessorMacros:macros];
    error = nil;
    id<MTLLibrary> library = [device newLibraryWithSource:[NSString stringWithUTF8String:source]
                                                  options:options
                                                    error:&error];
    bool good = library == nil;
    for (const char *part : parts) good = good && is_error(error, MTLLibraryErrorCompileFailure, part);
    [library release];
    return good;
  };
  CHECK(fails("kernel void f(device float* x [[buffer(0)]]) {\n\n  x[0] = missing;\n}",
              {"program_source:3:", "missing"}));
  CHECK(fails("#define BAD y\nkernel void f(device float* x [[buffer(0)]]) {\n  x[0] = BAD + 1;\n}",
              {"program_source:3:"}));
  CHECK(fails("kernel void f(float x) {}", {"program_source:1:", "argument x", "attribute"}));
  CHECK(fails("\nkernel void f(uint x [[vertex_id]]) {}", {"program_source:2:", "vertex_id"}));
  CHECK(fails("kernel void f(device int* x) { x[0] = simd_sum(); }", {"program_source:1:"}));
  CHECK(fails("kernel void f(device int* x) {\n  x[0] = simd_mean(3);\n}", {"program_source:2:", "simd_mean"}));
  CHECK(fails("#include \"mine.h\"", {"program_source:1:", "mine.h"}));
  CHECK(fails("#if 1\nkernel void f() {}", {"program_source:1:", "unterminated"}));
  CHECK(fails("kernel void f() {", {"expected }"}));
  CHECK(fails("kernel void f() {} }", {"extraneous"}));
  CHECK(fails("fragment float4 f() { return 0; }", {"fragment"}));
  CHECK(fails("#error not this\n", {"program_source:1:", "not this"}));
  CHECK(fails("kernel void f() {}\nkernel void f() {}", {"program_source:2:", "redefinition"}));
  CHECK(fails("kernel void f(texture2d<half, access::read> t [[texture(0)]]) { t.write(half4(0), uint2(0)); }",
              {"access::write"}));
  CHECK(fails("kernel void f() { float4 a = 0; half4 b = 0; float4 c = a + b; }", {"program_source:1:"}));
  CHECK(
      fails("kernel void f() {}", {"not an identifier"}, [NSDictionary dictionaryWithObject:@"1" forKey:@"-o /tmp/x"]));
  CHECK(library_of("") != nil && [[library_of("") functionNames] count] == 0);
  CHECK_RAISES(kArgument, PARTS("preprocessorMacros"),
               fails("", {}, [NSDictionary dictionaryWithObject:[NSArray array] forKey:@"A"]));
}

/// A compute encoder on a new command buffer.
struct Encoding {
  id<MTLCommandBuffer> buffer = [[[device newCommandQueue] autorelease] commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
};

void test_refusals() {
  section = "refusals";
  const Pool pool;
  const Encoding e;
  const MTLSize one = MTLSizeMake(1, 1, 1);
  const auto dispatch = [&] { [e.encoder dispatchThreads:one threadsPerThreadgroup:one]; };
  CHECK_RAISES(kUsage, PARTS("setComputePipelineState:"), dispatch());
  CHECK_RAISES(kArgument, PARTS("not a compute pipeline"), [e.encoder setComputePipelineState:nil]);
  [e.encoder setComputePipelineState:pipeline_of(@"scale")];
  CHECK_RAISES(kUsage, PARTS("argument in, texture(0): no texture is set"), dispatch());
  MPSImage *small = made(described(kFloat16, 4, 4, 3)), *large = made(described(kFloat16, 4, 4, 8));
  [e.encoder setTexture:[small texture] atIndex:0];
  CHECK_RAISES(kUsage, PARTS("textureType (2) is not 3, the source says texture2d_array"), dispatch());
  const id<MTLTexture> both[] = {[large texture], [large texture]};
  [e.encoder setTextures:both withRange:NSMakeRange(0, 2)];
  CHECK_RAISES(kUsage, PARTS("argument p, buffer(0): no buffer or bytes"), dispatch());
  const float bytes[1200] = {};
  [e.encoder setBytes:bytes length:4 atIndex:0];
  CHECK_RAISES(kUsage, PARTS("4 bytes are set, the argument has at least 8"), dispatch());
  CHECK_RAISES(kArgument, PARTS("length (4800)"), [e.encoder setBytes:bytes length:4800 atIndex:0]);
  CHECK_RAISES(kArgument, PARTS("index (31)"), [e.encoder setBytes:bytes length:4 atIndex:31]);
  CHECK_RAISES(kArgument, PARTS("index (128)"), [e.encoder setTexture:nil atIndex:128]);
  id<MTLBuffer> buffer = [[device newBufferWithLength:64 options:0] autorelease];
  CHECK_RAISES(kArgument, PARTS("offset (64)"), [e.encoder setBuffer:buffer offset:64 atIndex:0]);
  CHECK_RAISES(kUsage, PARTS("no buffer at index 1"), [e.encoder setBufferOffset:0 atIndex:1]);
  [e.encoder setBuffer:buffer offset:60 atIndex:0];
  CHECK_RAISES(kUsage, PARTS("4 bytes are set, the argument has at least 8"), dispatch());
  [e.encoder setBufferOffset:0 atIndex:0];
  CHECK_RAISES(kArgument, PARTS("(32 x 33 x 1)", "1024"),
               [e.encoder dispatchThreads:one threadsPerThreadgroup:MTLSizeMake(32, 33, 1)]);
  CHECK_RAISES(kArgument, PARTS("threadsPerGrid (0 x 1 x 1)"),
               [e.encoder dispatchThreads:MTLSizeMake(0, 1, 1) threadsPerThreadgroup:one]);
  CHECK_RAISES(kArgument, PARTS("threadgroupsPerGrid (1 x 0 x 1)"),
               [e.encoder dispatchThreadgroups:MTLSizeMake(1, 0, 1) threadsPerThreadgroup:one]);
  dispatch();
  MTLTextureDescriptor *descriptor = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatRGBA32Float
                                                                                        width:4
                                                                                       height:4
                                                                                    mipmapped:NO];
  [descriptor setUsage:MTLTextureUsageShaderRead];
  [e.encoder setTexture:[[device newTextureWithDescriptor:descriptor] autorelease] atIndex:0];
  [e.encoder setComputePipelineState:pipeline_of(@"plain")];
  CHECK_RAISES(kUsage, PARTS("usage (1)", "MTLTextureUsageShaderWrite"), dispatch());
  [e.encoder setComputePipelineState:pipeline_of(@"integers")];
  CHECK_RAISES(kUsage, PARTS("the source says integers"), dispatch());
  [e.encoder setComputePipelineState:pipeline_of(@"shared")];
  CHECK_RAISES(kUsage, PARTS("argument a, threadgroup(0)", "setThreadgroupMemoryLength"), dispatch());
  CHECK_RAISES(kArgument, PARTS("length (20)"), [e.encoder setThreadgroupMemoryLength:20 atIndex:0]);
  [e.encoder setThreadgroupMemoryLength:32768 atIndex:0];
  CHECK_RAISES(kUsage, PARTS("33024 bytes of threadgroup memory"), dispatch());
  CHECK_RAISES(kUsage, PARTS("encoder is open"), [e.buffer blitCommandEncoder]);
  CHECK_RAISES(kUsage, PARTS("encoder is open"), [e.buffer commit]);
  [e.encoder memoryBarrierWithScope:MTLBarrierScopeTextures];
  CHECK([e.encoder dispatchType] == MTLDispatchTypeSerial && [e.encoder device] == device);
  [e.encoder endEncoding];
  CHECK_RAISES(kUsage, PARTS("endEncoding has been called"), dispatch());
  CHECK_RAISES(kUsage, PARTS("MTLComputeCommandEncoder: endEncoding"), [e.encoder endEncoding]);
  [e.buffer commit];
  [e.buffer waitUntilCompleted];
  CHECK([e.buffer error] == nil);
}

/// ReLU of MPS, a function, and ReLU again, on temporary images of one command buffer.
void test_between_kernels() {
  section = "between kernels";
  const Pool pool;
  constexpr NSUInteger kSide = 19, kChannels = 24, kCount = kSide * kSide * kChannels;
  MPSImage *source = made(described(kFloat16, kSide, kSide, kChannels)),
           *result = made(described(kFloat16, kSide, kSide, kChannels));
  std::vector<__fp16> values(kCount), read(kCount);
  for (NSUInteger i = 0; i < kCount; ++i) values[i] = static_cast<__fp16>(static_cast<float>(i % 31) - 15.0f);
  [source writeBytes:values.data() dataLayout:kHWC imageIndex:0];
  MPSCNNNeuronReLU *relu = [[[MPSCNNNeuronReLU alloc] initWithDevice:device a:0] autorelease];
  id<MTLCommandBuffer> buffer = [[[device newCommandQueue] autorelease] commandBuffer];
  MPSTemporaryImage *first =
      [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer
                                         imageDescriptor:described(kFloat16, kSide, kSide, kChannels)];
  MPSTemporaryImage *second =
      [MPSTemporaryImage temporaryImageWithCommandBuffer:buffer
                                         imageDescriptor:described(kFloat16, kSide, kSide, kChannels)];
  [relu encodeToCommandBuffer:buffer sourceImage:source destinationImage:first];
  id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
  [encoder setComputePipelineState:pipeline_of(@"scale")];
  [encoder setTexture:[first texture] atIndex:0];
  [encoder setTexture:[second texture] atIndex:1];
  const struct {
    float factor;
    unsigned n;
  } params = {-2, 0};
  [encoder setBytes:&params length:sizeof params atIndex:0];
  [encoder dispatchThreadgroups:MTLSizeMake(3, 3, 6) threadsPerThreadgroup:MTLSizeMake(8, 8, 1)];
  [encoder endEncoding];
  CHECK([first readCount] == 1 && [second readCount] == 1);
  [first setReadCount:0];
  MPSCNNNeuronAbsolute *absolute = [[[MPSCNNNeuronAbsolute alloc] initWithDevice:device] autorelease];
  [absolute encodeToCommandBuffer:buffer sourceImage:second destinationImage:result];
  [result synchronizeOnCommandBuffer:buffer];
  [buffer commit];
  CHECK([buffer error] == nil);
  [buffer waitUntilCompleted];
  [result readBytes:read.data() dataLayout:kHWC imageIndex:0];
  NSUInteger wrong = 0;
  for (NSUInteger i = 0; i < kCount; ++i) wrong += float(read[i]) != 2 * std::max(0.0f, float(values[i]));
  CHECK(wrong == 0);
}

/// An image that a function writes cannot be read before the command buffer has completed.
void test_usage() {
  section = "usage";
  const Pool pool;
  MPSImage *image = made(described(kFloat32, 4, 4, 4));
  float values[64] = {}, read[64];
  [image writeBytes:values dataLayout:kHWC imageIndex:0];
  const Encoding e;
  [e.encoder setComputePipelineState:pipeline_of(@"plain")];
  [e.encoder setTexture:[image texture] atIndex:0];
  [e.encoder dispatchThreads:MTLSizeMake(4, 4, 1) threadsPerThreadgroup:MTLSizeMake(2, 2, 1)];
  [e.encoder endEncoding];
  CHECK_RAISES(kUsage, PARTS("has not been committed"), [image readBytes:read dataLayout:kHWC imageIndex:0]);
  [image synchronizeOnCommandBuffer:e.buffer];
  [e.buffer commit];
  [e.buffer waitUntilCompleted];
  [image readBytes:read dataLayout:kHWC imageIndex:0];
  bool good = true;
  for (const float each : read) good = good && each == 1;
  CHECK(good);
}

/// Descriptors and states of samplers, and their arguments.
void test_samplers() {
  section = "samplers";
  const Pool pool;
  MTLSamplerDescriptor *descriptor = [[MTLSamplerDescriptor new] autorelease];
  CHECK([descriptor minFilter] == MTLSamplerMinMagFilterNearest && [descriptor magFilter] == [descriptor minFilter] &&
        [descriptor mipFilter] == MTLSamplerMipFilterNotMipmapped && [descriptor maxAnisotropy] == 1 &&
        [descriptor sAddressMode] == MTLSamplerAddressModeClampToEdge && [descriptor normalizedCoordinates] &&
        [descriptor rAddressMode] == [descriptor tAddressMode] && ![descriptor supportArgumentBuffers] &&
        [descriptor borderColor] == MTLSamplerBorderColorTransparentBlack && [descriptor lodMinClamp] == 0 &&
        [descriptor label] == nil);
  [descriptor setLabel:@"soft"];
  [descriptor setMagFilter:MTLSamplerMinMagFilterLinear];
  [descriptor setTAddressMode:MTLSamplerAddressModeMirrorRepeat];
  MTLSamplerDescriptor *copy = [[descriptor copy] autorelease];
  [descriptor setLabel:nil];
  CHECK([[copy label] isEqual:@"soft"] && [copy magFilter] == MTLSamplerMinMagFilterLinear &&
        [copy tAddressMode] == MTLSamplerAddressModeMirrorRepeat);
  id<MTLSamplerState> soft = [[device newSamplerStateWithDescriptor:copy] autorelease];
  CHECK([soft device] == device && [[soft label] isEqual:@"soft"]);
  const auto make = [&](MTLSamplerDescriptor *from) { [[device newSamplerStateWithDescriptor:from] release]; };
  [copy setNormalizedCoordinates:NO];
  CHECK_RAISES(kArgument, PARTS("an address mode (3) repeats the texture"), make(copy));
  [copy setTAddressMode:MTLSamplerAddressModeClampToZero];
  CHECK_RAISES(kArgument, PARTS("minFilter (0) is not magFilter (1)"), make(copy));
  [copy setMinFilter:MTLSamplerMinMagFilterLinear];
  [copy setMipFilter:MTLSamplerMipFilterLinear];
  CHECK_RAISES(kArgument, PARTS("mipFilter (2)"), make(copy));
  [copy setMipFilter:MTLSamplerMipFilterNotMipmapped];
  [copy setMaxAnisotropy:17];
  CHECK_RAISES(kArgument, PARTS("maxAnisotropy (17)"), make(copy));
  [copy setMaxAnisotropy:1];
  [copy setSAddressMode:static_cast<MTLSamplerAddressMode>(6)];
  CHECK_RAISES(kArgument, PARTS("sAddressMode (6)"), make(copy));
  CHECK_RAISES(kArgument, PARTS("descriptor of a sampler is nil"), make(nil));

  const Encoding e;
  const float pixels[16] = {1, 0, 0, 0, 3};
  MPSImage *image = made(described(kFloat32, 1, 2, 4));
  [image writeBytes:pixels dataLayout:kHWC imageIndex:0];
  id<MTLBuffer> out = [[device newBufferWithLength:16 options:0] autorelease];
  const auto dispatch = [&] {
    [e.encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
  };
  [e.encoder setComputePipelineState:pipeline_of(@"sampled")];
  [e.encoder setTexture:[image texture] atIndex:0];
  [e.encoder setBuffer:out offset:0 atIndex:0];
  CHECK_RAISES(kUsage, PARTS("argument s, sampler(3): no sampler is set"), dispatch());
  CHECK_RAISES(kArgument, PARTS("index (16)"), [e.encoder setSamplerState:soft atIndex:16]);
  CHECK_RAISES(kArgument, PARTS("not a sampler of openmps"), [e.encoder setSamplerState:(id)image atIndex:3]);
  MTLSamplerDescriptor *repeat = [[MTLSamplerDescriptor new] autorelease];
  [repeat setSAddressMode:MTLSamplerAddressModeRepeat];
  const id<MTLSamplerState> all[] = {soft, [[device newSamplerStateWithDescriptor:repeat] autorelease]};
  [e.encoder setSamplerStates:all withRange:NSMakeRange(2, 2)];
  dispatch();
  [e.encoder setSamplerState:soft lodMinClamp:0 lodMaxClamp:1 atIndex:3];
  [e.encoder setBufferOffset:4 atIndex:0];
  dispatch();
  [e.encoder endEncoding];
  [e.buffer commit];
  [e.buffer waitUntilCompleted];
  const auto *values = static_cast<const float *>([out contents]);
  CHECK(values[0] == 1 && values[1] == 3);
}

/// Threadgroup memory of the function and of an argument.
void test_groups() {
  section = "groups";
  const Pool pool;
  const Encoding e;
  id<MTLBuffer> out = [[device newBufferWithLength:64 * sizeof(float) options:0] autorelease];
  [e.encoder setComputePipelineState:pipeline_of(@"shared")];
  [e.encoder setBuffer:out offset:0 atIndex:0];
  [e.encoder setThreadgroupMemoryLength:64 * sizeof(float) atIndex:0];
  [e.encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
  [e.encoder endEncoding];
  [e.buffer commit];
  [e.buffer waitUntilCompleted];
  const auto *values = static_cast<const float *>([out contents]);
  bool good = [e.buffer error] == nil;
  for (int i = 0; i < 64; ++i) good = good && values[i] == 2 * (63 - i);
  CHECK(good);
}

double best_of(int times, const std::function<void()> &body) {
  double best = microseconds(body);
  for (int i = 1; i < times; ++i) best = std::min(best, microseconds(body));
  return best;
}

/// Prints the time of copies and sums of one image by functions and by our own kernels.
int measure() {
  const Pool pool;
  device = MTLCreateSystemDefaultDevice();
  id<MTLLibrary> library = library_of(R"(
#include <metal_stdlib>
using namespace metal;
#define BOTH(T) \
kernel void copy_##T(texture2d_array<T, access::read> a [[texture(0)]], texture2d_array<T, \
    access::read> b [[texture(1)]], \
  texture2d_array<T, access::write> out [[texture(2)]], ushort3 gid [[thread_position_in_grid]]) { \
  if (gid.x >= out.get_width() || gid.y >= out.get_height()) return; \
  out.write(a.read(gid.xy, gid.z), gid.xy, gid.z); } \
kernel void add_##T(texture2d_array<T, access::read> a [[texture(0)]], texture2d_array<T, \
    access::read> b [[texture(1)]], \
  texture2d_array<T, access::write> out [[texture(2)]], ushort3 gid [[thread_position_in_grid]]) { \
  if (gid.x >= out.get_width() || gid.y >= out.get_height()) return; \
  out.write(a.read(gid.xy, gid.z) + b.read(gid.xy, gid.z), gid.xy, gid.z); }
BOTH(half) BOTH(float)
)");
  for (const auto format : {kFloat16, kFloat32}) {
    MPSImage *a = made(described(format, 224, 224, 64)), *b = made(described(format, 224, 224, 64)),
             *out = made(described(format, 224, 224, 64));
    std::vector<char> zeros(224 * 224 * 64 * 4);
    for (MPSImage *image in [NSArray arrayWithObjects:a, b, out, nil])
      [image writeBytes:zeros.data() dataLayout:kHWC imageIndex:0];
    MPSCNNAdd *add = [[[MPSCNNAdd alloc] initWithDevice:device] autorelease];
    MPSCNNNeuronLinear *linear = [[[MPSCNNNeuronLinear alloc] initWithDevice:device a:1 b:0] autorelease];
    id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
    for (const char *name : {"copy", "add"}) {
      NSString *full = [NSString stringWithFormat:@"%s_%s", name, format == kFloat16 ? "half" : "float"];
      id<MTLComputePipelineState> pipeline =
          [[device newComputePipelineStateWithFunction:[[library newFunctionWithName:full] autorelease]
                                                 error:NULL] autorelease];
      const auto finish = [](id<MTLCommandBuffer> buffer) {
        [buffer commit];
        [buffer waitUntilCompleted];
      };
      const auto own = [&] {
        const Pool inner;
        id<MTLCommandBuffer> buffer = [queue commandBuffer];
        if (name[0] == 'c')
          [linear encodeToCommandBuffer:buffer sourceImage:a destinationImage:out];
        else
          [add encodeToCommandBuffer:buffer primaryImage:a secondaryImage:b destinationImage:out];
        finish(buffer);
      };
      const auto function = [&] {
        const Pool inner;
        id<MTLCommandBuffer> buffer = [queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
        [encoder setComputePipelineState:pipeline];
        [encoder setTexture:[a texture] atIndex:0];
        [encoder setTexture:[b texture] atIndex:1];
        [encoder setTexture:[out texture] atIndex:2];
        [encoder dispatchThreadgroups:MTLSizeMake(28, 28, 16) threadsPerThreadgroup:MTLSizeMake(8, 8, 1)];
        [encoder endEncoding];
        finish(buffer);
      };
      own(), function();
      double best_own = 1e9, best_function = 1e9;
      for (int round = 0; round < 5; ++round) {
        best_own = std::min(best_own, best_of(20, own));
        best_function = std::min(best_function, best_of(20, function));
      }
      std::printf("%s: own kernel %.0f us, function %.0f us, ratio %.2f\n", [full UTF8String], best_own, best_function,
                  best_own / best_function);
    }
  }
  return 0;
}

}  // namespace

int main(int count, char **arguments) {
  if (count > 1 && std::strcmp(arguments[1], "--measure") == 0) return measure();
  if (count > 1) return run_job(arguments[1]);
  return run_tests({test_objects, test_sources, test_refusals, test_between_kernels, test_usage, test_samplers,
                    test_groups});
}

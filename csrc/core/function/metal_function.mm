// SPDX-License-Identifier: Apache-2.0
// Compilation of Metal functions, their arguments, and their encoding.
#include <mpscnn/error.hpp>
#include <mpscnn/metal_function.hpp>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "core/device/completion_check.hh"
#include "core/device/device_impl.hh"
#include "core/device/objc_scope.hh"
#include "core/kernel/encode_checks.hh"

namespace mpscnn {

struct MetalFunction::Impl {
  std::shared_ptr<Device> device;
  std::string name;
  FunctionSource source;
  Ref<id<MTLComputePipelineState>> pipeline;
  std::vector<FunctionArgument> arguments = {};
};

namespace {

using Kind = FunctionArgument::Kind;
using Access = FunctionArgument::Access;

constexpr const char *kKinds[] = {"buffer", "threadgroup", "texture", "sampler"};
constexpr const char *kAccesses[] = {"read", "read_write", "write"};
// MTLPipelineOptionBindingInfo, which macOS 14's headers call MTLPipelineOptionArgumentInfo [MTLComputePipeline.h].
constexpr auto kWithBindings = static_cast<MTLPipelineOption>(1);

struct ScalarType {
  const char *dtype;
  MTLDataType type;
};
constexpr ScalarType kScalars[] = {
    {"bool", MTLDataTypeBool},    {"int8", MTLDataTypeChar},     {"uint8", MTLDataTypeUChar},
    {"int16", MTLDataTypeShort},  {"uint16", MTLDataTypeUShort}, {"int32", MTLDataTypeInt},
    {"uint32", MTLDataTypeUInt},  {"int64", MTLDataTypeLong},    {"uint64", MTLDataTypeULong},
    {"float16", MTLDataTypeHalf}, {"float32", MTLDataTypeFloat},
};

std::string dtype_of(MTLDataType type) {
  const auto found = std::ranges::find(kScalars, type, &ScalarType::type);
  return found == std::end(kScalars) ? "" : found->dtype;
}

MTLDataType type_of(const std::string &dtype, const std::string &name) {
  const auto found = std::ranges::find(kScalars, dtype, [](const ScalarType &one) { return std::string(one.dtype); });
  check<TypeError>(found != std::end(kScalars), "metal_function: the type of the constant \"", name, "\" (", dtype,
                   ") is none of Metal's.");
  return found->type;
}

MTLCompileOptions *options_from(const std::map<std::string, std::string> &macros, bool fast_math) {
  MTLCompileOptions *options = [[[MTLCompileOptions alloc] init] autorelease];
  [options setFastMathEnabled:fast_math];
  NSMutableDictionary *defined = [NSMutableDictionary dictionary];
  for (const auto &[name, text] : macros) [defined setObject:ns(text) forKey:ns(name)];
  [options setPreprocessorMacros:defined];
  return options;
}

[[noreturn]] void refuse(NSError *error, const std::string &what) {
  const std::string reason = error ? text([error localizedDescription]) : "the compiler gave no reason.";
  if (error && [error code] == static_cast<NSInteger>(MTLLibraryErrorUnsupported))
    throw NotImplementedError(say("metal_function: ", reason));
  throw std::invalid_argument(say("metal_function: ", what, " does not compile: ", reason));
}

Ref<id<MTLFunction>> function_of(id<MTLLibrary> library, const std::string &name,
                                 const std::map<std::string, FunctionConstant> &constants) {
  std::string known;
  for (NSString *one in [library functionNames]) known += (known.empty() ? "\"" : ", \"") + text(one) + "\"";
  check([[library functionNames] containsObject:ns(name)], "metal_function: name (\"", name,
        "\") is not a function of the source, which has ", known.empty() ? "none" : known, ".");
  MTLFunctionConstantValues *values = [[[MTLFunctionConstantValues alloc] init] autorelease];
  for (const auto &[constant, value] : constants)
    [values setConstantValue:value.bytes.data() type:type_of(value.dtype, constant) withName:ns(constant)];
  NSError *error = nil;
  const auto function = Ref<id<MTLFunction>>::adopt([library newFunctionWithName:ns(name)
                                                                  constantValues:values
                                                                           error:&error]);
  if (!function) refuse(error, say("the function \"", name, "\""));
  return function;
}

FunctionArgument argument_from(id<MTLBinding> binding) {
  FunctionArgument argument;
  argument.name = text([binding name]);
  argument.kind = static_cast<Kind>([binding type]);
  argument.access = static_cast<Access>([binding access]);
  argument.index = [binding index];
  if (argument.kind == Kind::buffer) {
    const auto buffer = static_cast<id<MTLBufferBinding>>(static_cast<id>(binding));
    argument.bytes = [buffer bufferDataSize];
    argument.scalar = dtype_of([buffer bufferDataType]);
  } else if (argument.kind == Kind::threadgroup) {
    argument.bytes = [static_cast<id<MTLThreadgroupBinding>>(static_cast<id>(binding)) threadgroupMemoryDataSize];
  } else if (argument.kind == Kind::texture) {
    const auto texture = static_cast<id<MTLTextureBinding>>(static_cast<id>(binding));
    const MTLTextureType type = [texture textureType];
    check<NotImplementedError>(type == MTLTextureType2D || type == MTLTextureType2DArray, "metal_function: \"",
                               argument.name, "\" is neither a texture2d nor a texture2d_array, as images are.");
    argument.is_array = type == MTLTextureType2DArray;
    argument.scalar = dtype_of([texture textureDataType]);
  }
  return argument;
}

/// Return the image's texture, or a view of it: of the type that the function declares, with the slices of all images
/// or of one.
Ref<id<MTLTexture>> texture_for(const FunctionArgument &argument, const FunctionValue &value,
                                const std::string &function) {
  const auto shape = value.image->shape();
  id<MTLTexture> texture = [value.image->impl().image.get() texture];
  const auto all = [texture arrayLength], of_one = static_cast<NSUInteger>((shape.c + 3) / 4);
  const NSRange slices =
      value.only_image ? NSMakeRange(static_cast<NSUInteger>(*value.only_image) * of_one, of_one) : NSMakeRange(0, all);
  check(argument.is_array || slices.length == 1, function, ": ", argument.name,
        " is a texture2d, which has one image of at most 4 channels; the shape of its value is ", shape,
        ": declare a texture2d_array.");
  const MTLTextureType type = argument.is_array ? MTLTextureType2DArray : MTLTextureType2D;
  if ([texture textureType] == type && slices.length == all) return Ref<id<MTLTexture>>::retain(texture);
  return Ref<id<MTLTexture>>::adopt([texture newTextureViewWithPixelFormat:[texture pixelFormat]
                                                               textureType:type
                                                                    levels:NSMakeRange(0, 1)
                                                                    slices:slices]);
}

Ref<id<MTLSamplerState>> sampler_for(id<MTLDevice> device, const FunctionSampler &sampler) {
  MTLSamplerDescriptor *descriptor = [[[MTLSamplerDescriptor alloc] init] autorelease];
  const auto filter = sampler.is_linear ? MTLSamplerMinMagFilterLinear : MTLSamplerMinMagFilterNearest;
  [descriptor setMinFilter:filter];
  [descriptor setMagFilter:filter];
  [descriptor setNormalizedCoordinates:!sampler.in_pixels];
  [descriptor setSAddressMode:static_cast<MTLSamplerAddressMode>(sampler.address[0])];
  [descriptor setTAddressMode:static_cast<MTLSamplerAddressMode>(sampler.address[1])];
  [descriptor setBorderColor:static_cast<MTLSamplerBorderColor>(sampler.border)];
  return Ref<id<MTLSamplerState>>::adopt([device newSamplerStateWithDescriptor:descriptor]);
}

}  // namespace

const char *name_of(Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }
const char *name_of(Access access) { return kAccesses[static_cast<std::size_t>(access)]; }

MetalFunction::MetalFunction(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetalFunction::~MetalFunction() {
  Pool pool;
  impl_.reset();
}

std::shared_ptr<MetalFunction> MetalFunction::make(std::shared_ptr<Device> device, FunctionSource source,
                                                   const std::string &name) {
  return guard([&] {
    id<MTLDevice> metal = device->impl().device.get();
    NSError *error = nil;
    const auto library =
        Ref<id<MTLLibrary>>::adopt([metal newLibraryWithSource:ns(source.text)
                                                       options:options_from(source.macros, source.fast_math)
                                                         error:&error]);
    if (!library) refuse(error, "the source");
    const auto function = function_of(library.get(), name, source.constants);
    MTLComputePipelineReflection *reflection = nil;
    auto pipeline = Ref<id<MTLComputePipelineState>>::adopt([metal newComputePipelineStateWithFunction:function.get()
                                                                                               options:kWithBindings
                                                                                            reflection:&reflection
                                                                                                 error:&error]);
    if (!pipeline) refuse(error, say("the function \"", name, "\""));
    auto impl = std::unique_ptr<Impl>(new Impl{device, name, std::move(source), pipeline});
    for (id<MTLBinding> binding in [reflection bindings]) impl->arguments.push_back(argument_from(binding));
    const auto order = [](const FunctionArgument &argument) {
      return std::tuple(argument.kind != Kind::texture, argument.kind, argument.index);
    };
    std::ranges::sort(impl->arguments, {}, order);
    return std::make_shared<MetalFunction>(std::move(impl));
  });
}

const std::string &MetalFunction::name() const { return impl_->name; }
const std::vector<FunctionArgument> &MetalFunction::arguments() const { return impl_->arguments; }
std::shared_ptr<Device> MetalFunction::device() const { return impl_->device; }
std::uint64_t MetalFunction::max_threads_per_threadgroup() const {
  return [impl_->pipeline.get() maxTotalThreadsPerThreadgroup];
}
std::uint64_t MetalFunction::thread_execution_width() const { return [impl_->pipeline.get() threadExecutionWidth]; }
const FunctionSource &MetalFunction::source() const { return impl_->source; }

MetalFunction::Size MetalFunction::threads_for(ImageShape result) {
  const auto slices = result.n * ((result.c + 3) / 4);
  return {static_cast<std::uint64_t>(result.w), static_cast<std::uint64_t>(result.h),
          static_cast<std::uint64_t>(slices)};
}

MetalFunction::Size MetalFunction::group_for(Size threads) const {
  const auto width = std::min(thread_execution_width(), threads[0]);
  return {width, std::min(max_threads_per_threadgroup() / width, threads[1]), 1};
}

void MetalFunction::encode(CommandBuffer &buffer, std::span<const FunctionValue> values, Size threads,
                           Size group) const {
  const std::string &name = impl_->name;
  const char *const who = name.c_str();
  check_open(buffer, *impl_->device, who);
  const auto count = group[0] * group[1] * group[2];
  check(count >= 1 && count <= max_threads_per_threadgroup(), name, ": a threadgroup of ", group[0], " x ", group[1],
        " x ", group[2], " threads is beyond the function's limit (", max_threads_per_threadgroup(), ").");
  guard([&] {
    id<MTLCommandBuffer> commands = buffer.impl().buffer.get();
    for (const FunctionValue &value : values) {
      if (value.image) check_source(*value.image, *impl_->device, who), check_files_of(commands, {value.image.get()});
      if (value.buffer) check_same_device(*value.buffer->device(), *impl_->device, "buffer");
    }
    std::vector<Ref<id<MTLTexture>>> textures(values.size());  // before the encoder is open: a refusal leaves none
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i].image) textures[i] = texture_for(impl_->arguments[values[i].argument], values[i], name);
    std::vector<Ref<id<MTLSamplerState>>> samplers(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i].sampler) samplers[i] = sampler_for(impl_->device->impl().device.get(), *values[i].sampler);
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setLabel:ns(name)];
    [encoder setComputePipelineState:impl_->pipeline.get()];
    for (std::size_t i = 0; i < values.size(); ++i) {
      const FunctionValue &value = values[i];
      const auto index = static_cast<NSUInteger>(impl_->arguments[value.argument].index);
      if (value.image) {
        [encoder setTexture:textures[i].get() atIndex:index];
      } else if (value.buffer) {
        [encoder setBuffer:value.buffer->impl().buffer.get() offset:0 atIndex:index];
      } else if (value.sampler) {
        [encoder setSamplerState:samplers[i].get() atIndex:index];
      } else if (value.threadgroup > 0) {
        [encoder setThreadgroupMemoryLength:value.threadgroup atIndex:index];
      } else if (value.bytes.size() <= kMostBytes) {
        [encoder setBytes:value.bytes.data() length:value.bytes.size() atIndex:index];
      } else {
        const auto copy =
            Ref<id<MTLBuffer>>::adopt([impl_->device->impl().device.get() newBufferWithBytes:value.bytes.data()
                                                                                      length:value.bytes.size()
                                                                                     options:0]);
        [encoder setBuffer:copy.get() offset:0 atIndex:index];
      }
    }
    [encoder dispatchThreads:MTLSizeMake(threads[0], threads[1], threads[2])
        threadsPerThreadgroup:MTLSizeMake(group[0], group[1], group[2])];
    [encoder endEncoding];
    for (const FunctionValue &value : values)
      if (value.image && impl_->arguments[value.argument].access != Access::read)
        value.image->impl().note_write(commands);
  });
}

}  // namespace mpscnn

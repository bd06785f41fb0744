// SPDX-License-Identifier: Apache-2.0
// Libraries of functions, functions, and compile options [MTLLibrary.h].

#import "metal/MTLLibraryOnEngine.hh"

#import "metal/MTLFunctionConstantValuesOnEngine.hh"

NSErrorDomain const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

namespace openmps {
namespace {

struct CompileOptions {
  Ref<NSDictionary *> macros;
  BOOL fast_math = YES;                                 // Metal's default
  MTLLanguageVersion language = MTLLanguageVersion3_0;  // the newest of macOS 13
};

CompileOptions &options_in(void *openmps) { return *static_cast<CompileOptions *>(openmps); }

NSString *string_of(const std::string &text) {
  NSString *string = [NSString stringWithUTF8String:text.c_str()];
  return string != nil ? string : @"The text of the error is not UTF-8.";
}

}  // namespace

function::Options options_of(MTLCompileOptions *options) {
  function::Options result;
  if (options == nil) return result;
  result.fast_math = [options fastMathEnabled];
  NSDictionary *macros = [options preprocessorMacros];
  for (NSString *name in macros) {
    NSObject *value = [macros objectForKey:name];
    if (![name isKindOfClass:[NSString class]] ||
        !([value isKindOfClass:[NSString class]] || [value isKindOfClass:[NSNumber class]]))
      raise_argument(@"MTLCompileOptions: preprocessorMacros (%@ = %@) has names that are no NSString or values that "
                     @"are no NSString or NSNumber.",
                     name, value);
    result.macros[[name UTF8String]] = [[value description] UTF8String];
  }
  return result;
}

id no_library(const function::Error &error, NSError **result) {
  return no_library(static_cast<MTLLibraryError>(error.code), string_of(error.sentence), result);
}

id<MTLLibrary> new_library(id<OpenMPSDevice> device, NSString *source, MTLCompileOptions *options, NSError **error) {
  if (source == nil) raise_argument(@"MTLDevice: source of a library is nil.");
  function::Error failure;
  auto library = function::Library::make([source UTF8String], options_of(options), failure);
  if (!library) return no_library(failure, error);
  MTLLibraryOnEngine *result = [[MTLLibraryOnEngine alloc] init];
  result->_device = Ref<id<OpenMPSDevice>>(device);
  result->_library = std::move(library);
  return result;
}

id no_library(MTLLibraryError code, NSString *sentence, NSError **error) {
  if (error != nullptr) {
    NSDictionary *info = [NSDictionary dictionaryWithObject:sentence forKey:NSLocalizedDescriptionKey];
    *error = [NSError errorWithDomain:MTLLibraryErrorDomain code:static_cast<NSInteger>(code) userInfo:info];
  }
  return nil;
}

id<MTLLibrary> no_library_file(NSString *path, NSError **error) {
  const bool is_there = path != nil && [[NSFileManager defaultManager] fileExistsAtPath:path];
  return no_library(is_there ? MTLLibraryErrorUnsupported : MTLLibraryErrorFileNotFound,
                    [NSString stringWithFormat:is_there ? @"The compiled Metal library \"%@\" is not read by openmps."
                                                        : @"There is no Metal library \"%@\".",
                                               path],
                    error);
}

}  // namespace openmps

@implementation MTLLibraryOnEngine

OPENMPS_LABEL
OPENMPS_UNKNOWN_SELECTORS

- (id<MTLDevice>)device {
  return _device.get();
}

- (NSArray<NSString *> *)functionNames {
  NSMutableArray *names = [NSMutableArray array];
  for (const auto &kernel : _library->program().kernels()) [names addObject:openmps::string_of(kernel.name)];
  return names;
}

- (MTLFunctionOnEngine *)openmps_newFunction:(NSString *)name values:(const openmps::function::Values &)values {
  if (name == nil) openmps::raise_argument(@"MTLLibrary: name of a function is nil.");
  MTLFunctionOnEngine *function = [[MTLFunctionOnEngine alloc] init];
  function->_device = _device;
  function->_name = openmps::Ref<NSString *>::adopt([name copy]);
  function->_function = openmps::function::Function::make(_library, [name UTF8String], values, function->_error);
  return function;
}

/// A function that needs values of function constants is returned, but no pipeline can be made of it.
- (id<MTLFunction>)newFunctionWithName:(NSString *)name {
  MTLFunctionOnEngine *function = [self openmps_newFunction:name values:{}];
  if (function->_error.code != openmps::function::ErrorCode::function_not_found) return function;
  [function release];
  return nil;
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)name
                        constantValues:(MTLFunctionConstantValues *)constantValues
                                 error:(NSError **)error {
  if (constantValues == nil) openmps::raise_argument(@"MTLLibrary: constantValues is nil.");
  MTLFunctionOnEngine *function = [self openmps_newFunction:name values:openmps::values_of(constantValues)];
  if (function->_function) return function;
  openmps::no_library(function->_error, error);
  [function release];
  return nil;
}

- (void)newFunctionWithName:(NSString *)name
             constantValues:(MTLFunctionConstantValues *)constantValues
          completionHandler:(void (^)(id<MTLFunction>, NSError *))completionHandler {
  if (completionHandler == nullptr) openmps::raise_argument(@"MTLLibrary: completionHandler of a function is nil.");
  NSError *error = nil;
  id<MTLFunction> function = [self newFunctionWithName:name constantValues:constantValues error:&error];
  completionHandler(function, error);
  [function release];
}

@end

@implementation MTLFunctionOnEngine

OPENMPS_LABEL
OPENMPS_UNKNOWN_SELECTORS

- (id<MTLDevice>)device {
  return _device.get();
}

- (MTLFunctionType)functionType {
  return MTLFunctionTypeKernel;
}

- (NSInteger)patchControlPointCount {
  return -1;  // no function for tessellation [MTLLibrary.h]
}

- (NSString *)name {
  return _name.get();
}

@end

@implementation MTLCompileOptions

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new openmps::CompileOptions;
  return self;
}

- (void)dealloc {
  delete &openmps::options_in(_openmps);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  MTLCompileOptions *copy = [[[self class] allocWithZone:zone] init];
  openmps::options_in(copy->_openmps) = openmps::options_in(_openmps);
  return copy;
}

- (NSDictionary<NSString *, NSObject *> *)preprocessorMacros {
  return openmps::options_in(_openmps).macros.get();
}

- (void)setPreprocessorMacros:(NSDictionary<NSString *, NSObject *> *)macros {
  openmps::options_in(_openmps).macros = openmps::Ref<NSDictionary *>::adopt([macros copy]);
}

- (BOOL)fastMathEnabled {
  return openmps::options_in(_openmps).fast_math;
}

- (void)setFastMathEnabled:(BOOL)enabled {
  openmps::options_in(_openmps).fast_math = enabled;
}

- (MTLLanguageVersion)languageVersion {
  return openmps::options_in(_openmps).language;
}

- (void)setLanguageVersion:(MTLLanguageVersion)version {
  openmps::options_in(_openmps).language = version;
}

@end

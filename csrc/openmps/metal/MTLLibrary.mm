// SPDX-License-Identifier: Apache-2.0
// Function libraries, which are not implemented, and their compile options [MTLLibrary.h].

#import "metal/MTLLibraryOnEngine.hh"

#import "metal/OnEngine.hh"

NSErrorDomain const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

namespace openmps {
namespace {

struct CompileOptions {
  Ref<NSDictionary *> macros;
  BOOL fast_math = YES;                                 // Metal's default
  MTLLanguageVersion language = MTLLanguageVersion3_0;  // the newest of macOS 13
};

CompileOptions &options_in(void *openmps) { return *static_cast<CompileOptions *>(openmps); }

}  // namespace

id<MTLLibrary> no_library(MTLLibraryError code, NSString *sentence, NSError **error) {
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

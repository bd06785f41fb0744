// SPDX-License-Identifier: Apache-2.0
// Objects that a row describes (tests/rows/objc_*.py): kernels by the initializer that the row names, their properties
// by key-value coding, data sources and descriptors.
#pragma once

#import "mps_test.hh"

#include <sstream>

#include "../rows/row_file.hpp"

using rows::Array;
using rows::Row;

/// Gamma, beta, mean, variance and groups of a row.
@interface RowNormalization : NSObject <MPSCNNBatchNormalizationDataSource,
                                        MPSCNNInstanceNormalizationDataSource,
                                        MPSCNNGroupNormalizationDataSource> {
 @public
  const Row *row;
  std::string prefix;  // of the arrays
  NSUInteger groups;
}
@end

@implementation RowNormalization
- (float *)numbers:(const char *)name {
  const auto found = row->arrays.find(prefix + name);
  return found == row->arrays.end() ? NULL
                                    : const_cast<float *>(reinterpret_cast<const float *>(found->second.bytes.data()));
}
- (NSUInteger)numberOfFeatureChannels {
  return static_cast<NSUInteger>(row->arrays.at(prefix + "gamma").size());
}
- (float *)gamma {
  return [self numbers:"gamma"];
}
- (float *)beta {
  return [self numbers:"beta"];
}
- (float *)mean {
  return [self numbers:"mean"];
}
- (float *)variance {
  return [self numbers:"variance"];
}
- (float)epsilon {
  return std::stof(row->settings.at("epsilon"));
}
- (NSUInteger)numberOfGroups {
  return groups;
}
- (void)setNumberOfGroups:(NSUInteger)value {
  groups = value;
}
- (BOOL)load {
  return YES;
}
- (void)purge {
}
- (NSString *)label {
  return nil;
}
- (id)copyWithZone:(NSZone *)zone {
  (void)zone;
  return [self retain];
}
@end

// ------------------------------------------------------------------------------------------------ settings of a row

inline std::vector<std::string> words(const std::string &text, char separator = ' ') {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) all.push_back(word);
  return all;
}

inline std::string setting(const Row &row, const std::string &key, const std::string &fallback = "") {
  const auto found = row.settings.find(key);
  return found == row.settings.end() ? fallback : found->second;
}

inline bool flag(const Row &row, const std::string &key) { return setting(row, key) == "1"; }

inline std::vector<long> integers(const Row &row, const std::string &key) {
  std::vector<long> all;
  for (const auto &word : words(setting(row, key))) all.push_back(std::stol(word));
  return all;
}

inline const Array *array(const Row &row, const std::string &key) {
  const auto found = row.arrays.find(key);
  return found == row.arrays.end() ? nullptr : &found->second;
}

inline void *bytes(const Row &row, const std::string &key) {
  const Array *found = array(row, key);
  return found == nullptr ? NULL : const_cast<std::byte *>(found->bytes.data());
}

inline NSString *text(const std::string &value) { return [NSString stringWithUTF8String:value.c_str()]; }

inline Class class_named(const std::string &name) {
  const Class kind = NSClassFromString(text(name));
  check(kind != Nil, "there is a class " + name);
  return kind;
}

inline id object_named(const Row &row, const std::string &name);
inline id called_object(const std::string &word);

/// Set one argument by its declared type: a number, comma-separated integers for a structure, the name of an object, or
/// the name of an array for a pointer.
inline void set_argument(NSInvocation *call, NSInteger index, const Row &row, const std::string &word) {
  const char *type = [[call methodSignature] getArgumentTypeAtIndex:static_cast<NSUInteger>(index)];
  while (*type == 'r' || *type == 'n') ++type;  // const, in
  const auto give = [&](auto value) { [call setArgument:&value atIndex:index]; };
  switch (*type) {
    case '@': return give(object_named(row, word));
    case '^': return give(bytes(row, word));
    case 'f': return give(std::stof(word));
    case 'd': return give(std::stod(word));
    case 'B': return give(std::stoi(word) != 0);
    case 'c':
    case 'C': return give(static_cast<BOOL>(std::stoi(word)));
    case 'i':
    case 'I': return give(static_cast<int>(std::stol(word)));
    case '{': {
      std::vector<long> members;
      for (const auto &member : words(word, ',')) members.push_back(std::stol(member));
      return [call setArgument:members.data() atIndex:index];
    }
    default: return give(std::stol(word));
  }
}

inline NSInvocation *invocation(id target, NSMethodSignature *signature, SEL selector, const Row &row,
                                const std::string &arguments) {
  NSInvocation *call = [NSInvocation invocationWithMethodSignature:signature];
  [call setTarget:target];
  [call setSelector:selector];
  NSInteger index = 2;
  for (const auto &word : words(arguments)) set_argument(call, index++, row, word);
  check(index == static_cast<NSInteger>([signature numberOfArguments]), row.name + ": arguments of the initializer");
  return call;
}

/// Set every `prefix`NAME: numbers by key-value coding, structures by the setter.
inline void set_properties(id object, const Row &row, const std::string &prefix) {
  for (const auto &[key, value] : row.settings) {
    if (key.rfind(prefix, 0) != 0) continue;
    std::string name = key.substr(prefix.size());
    if (value.find(',') == std::string::npos) {
      [object setValue:[NSNumber numberWithDouble:std::stod(value)] forKey:text(name)];
      continue;
    }
    name[0] = static_cast<char>(std::toupper(name[0]));
    const SEL setter = NSSelectorFromString(text("set" + name + ":"));
    [invocation(object, [object methodSignatureForSelector:setter], setter, row, value) invoke];
  }
}

/// Make an object by the settings `prefix`class, init and arguments.
inline id make(const Row &row, const std::string &prefix = "") {
  const Class kind = class_named(setting(row, prefix + "class"));
  const SEL selector = NSSelectorFromString(text(setting(row, prefix + "init")));
  NSMethodSignature *signature = [kind instanceMethodSignatureForSelector:selector];
  check(signature != nil, row.name + ": the class has the initializer");
  NSInvocation *call = invocation([kind alloc], signature, selector, row, setting(row, prefix + "arguments"));
  [call invoke];
  id object = nil;
  [call getReturnValue:&object];
  set_properties(object, row, prefix + "property.");
  return [object autorelease];
}

// -------------------------------------------------------------------------------------- objects that rows describe

inline MPSNNNeuronDescriptor *make_neuron(const Row &row) {
  const auto numbers = words(setting(row, "neuron"));
  if (numbers.empty()) return nil;
  if (const Array *slopes = array(row, "slopes"))
    return [MPSNNNeuronDescriptor
        cnnNeuronPReLUDescriptorWithData:[NSData dataWithBytes:slopes->bytes.data() length:slopes->bytes.size()]
                                  noCopy:NO];
  return [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:static_cast<MPSCNNNeuronType>(std::stoi(numbers[0]))
                                                          a:std::stof(numbers[1])
                                                          b:std::stof(numbers[2])
                                                          c:std::stof(numbers[3])];
}

inline MPSCNNConvolutionDescriptor *make_descriptor(const Row &row) {
  const auto extents = integers(row, "weights");  // O, height, width, I
  const auto at = [&](std::size_t i) { return static_cast<NSUInteger>(extents[i]); };
  const Class kind = class_named(setting(row, "descriptor"));
  MPSCNNConvolutionDescriptor *descriptor = [kind cnnConvolutionDescriptorWithKernelWidth:at(2)
                                                                             kernelHeight:at(1)
                                                                     inputFeatureChannels:at(3)
                                                                    outputFeatureChannels:at(0)];
  set_properties(descriptor, row, "descriptor.");
  if (MPSNNNeuronDescriptor *neuron = make_neuron(row)) [descriptor setFusedNeuronDescriptor:neuron];
  if (array(row, "mean") != nullptr || array(row, "variance") != nullptr) {
    const auto numbers = [&](const char *name) { return static_cast<const float *>(bytes(row, name)); };
    [descriptor setBatchNormalizationParametersForInferenceWithMean:numbers("mean")
                                                           variance:numbers("variance")
                                                              gamma:numbers("gamma")
                                                               beta:numbers("beta")
                                                            epsilon:std::stof(row.settings.at("epsilon"))];
  }
  return descriptor;
}

inline MPSCNNLossDescriptor *make_loss_descriptor(const Row &row) {
  const auto type = static_cast<MPSCNNLossType>(std::stoi(setting(row, "loss_type")));
  const auto reduction = static_cast<MPSCNNReductionType>(std::stoi(setting(row, "reduction")));
  MPSCNNLossDescriptor *descriptor = [MPSCNNLossDescriptor cnnLossDescriptorWithType:type reductionType:reduction];
  set_properties(descriptor, row, "loss.");
  return descriptor;
}

template <class T>
std::vector<T> values_of(const Row &row, const std::string &key) {
  const Array *found = array(row, key);
  if (found == nullptr) return {};
  const T *first = reinterpret_cast<const T *>(found->bytes.data());
  return std::vector<T>(first, first + found->bytes.size() / sizeof(T));
}

inline FullTestSource *make_weights(const Row &row) {
  FullTestSource *source = [[[FullTestSource alloc] init] autorelease];
  source->descriptor = [make_descriptor(row) retain];
  source->type = static_cast<MPSDataType>(std::stoul(setting(row, "weights.type")));
  source->kept = flag(row, "weights.half") ? MPSDataTypeFloat16 : MPSDataTypeFloat32;
  source->bytes = values_of<unsigned char>(row, "weights");
  source->bias = values_of<float>(row, "bias");
  source->ranges = values_of<float>(row, "ranges");
  source->table = values_of<float>(row, "table");
  source->quantization = !source->ranges.empty()  ? MPSCNNWeightsQuantizationTypeLinear
                         : !source->table.empty() ? MPSCNNWeightsQuantizationTypeLookupTable
                                                  : MPSCNNWeightsQuantizationTypeNone;
  return source;
}

inline id object_named(const Row &row, const std::string &name) {
  if (name == "device") return device;
  if (name == "neuron") return make_neuron(row);
  if (name == "weights") return make_weights(row);
  if (name == "loss") return make_loss_descriptor(row);
  if (name == "fill") return [NSData dataWithBytes:bytes(row, "fill") length:array(row, "fill")->bytes.size()];
  if (name == "normalization" || name == "other_normalization") {
    RowNormalization *source = [[[RowNormalization alloc] init] autorelease];
    source->row = &row;
    if (name != "normalization") source->prefix = "other_";
    source->groups = std::stoul(setting(row, "groups", "1"));
    return source;
  }
  return called_object(name);
}

// SPDX-License-Identifier: Apache-2.0
// Runs a file of rows (tests/rows/objc_*.py): makes each row's kernel by the initializer that the row names, sets its
// properties by key-value coding, and compares every encode form with the row's values. Prints "N passed, N failed".

#import "mps_test.hh"

#include <algorithm>
#include <sstream>

#include "../rows/row_file.hpp"

using rows::Array;
using rows::Row;

/// A policy with the row's result and kernel offset.
@interface RowPadding : NSObject<MPSNNPadding> {
 @public
  const Row *row;
  NSUInteger width, height, channels;
  MPSImageFeatureChannelFormat format;
}
@end

/// Gradients of gamma and beta from a row.
@interface RowBatchState : MPSCNNBatchNormalizationState
@end

namespace {
void set_properties(id object, const Row &row, const std::string &prefix);
id<MTLBuffer> gamma_gradient, beta_gradient;
}  // namespace

@implementation RowBatchState
- (id<MTLBuffer>)gradientForGamma {
  return gamma_gradient;
}
- (id<MTLBuffer>)gradientForBeta {
  return beta_gradient;
}
@end

@implementation RowPadding
- (MPSNNPaddingMethod)paddingMethod {
  return MPSNNPaddingMethodCustom;
}
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sources
                                                     sourceStates:(NSArray<MPSState *> *)states
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)descriptor {
  (void)sources, (void)states;
  set_properties(kernel, *row, "property.");
  [descriptor setWidth:width];
  [descriptor setHeight:height];
  [descriptor setFeatureChannels:channels];
  [descriptor setChannelFormat:format];
  return descriptor;
}
+ (BOOL)supportsSecureCoding {
  return YES;
}
- (void)encodeWithCoder:(NSCoder *)coder {
  (void)coder;
}
- (instancetype)initWithCoder:(NSCoder *)coder {
  (void)coder;
  return [self init];
}
@end

/// Gamma, beta, mean, variance and groups of a row.
@interface RowNormalization : NSObject<MPSCNNBatchNormalizationDataSource,
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

namespace {

// ------------------------------------------------------------------------------------------------ settings of a row

std::vector<std::string> words(const std::string &text, char separator = ' ') {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) all.push_back(word);
  return all;
}

std::string setting(const Row &row, const std::string &key, const std::string &fallback = "") {
  const auto found = row.settings.find(key);
  return found == row.settings.end() ? fallback : found->second;
}

bool flag(const Row &row, const std::string &key) { return setting(row, key) == "1"; }

std::vector<long> integers(const Row &row, const std::string &key) {
  std::vector<long> all;
  for (const auto &word : words(setting(row, key))) all.push_back(std::stol(word));
  return all;
}

const Array *array(const Row &row, const std::string &key) {
  const auto found = row.arrays.find(key);
  return found == row.arrays.end() ? nullptr : &found->second;
}

void *bytes(const Row &row, const std::string &key) {
  const Array *found = array(row, key);
  return found == nullptr ? NULL : const_cast<std::byte *>(found->bytes.data());
}

NSString *text(const std::string &value) { return [NSString stringWithUTF8String:value.c_str()]; }

Class class_named(const std::string &name) {
  const Class kind = NSClassFromString(text(name));
  check(kind != Nil, "there is a class " + name);
  return kind;
}

id object_named(const Row &row, const std::string &name);
id called_object(const std::string &word);

/// Set one argument by its declared type: a number, comma-separated integers for a structure, the name of an object, or
/// the name of an array for a pointer.
void set_argument(NSInvocation *call, NSInteger index, const Row &row, const std::string &word) {
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

NSInvocation *invocation(id target, NSMethodSignature *signature, SEL selector, const Row &row,
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
void set_properties(id object, const Row &row, const std::string &prefix) {
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
id make(const Row &row, const std::string &prefix = "") {
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

MPSNNNeuronDescriptor *make_neuron(const Row &row) {
  const auto numbers = words(setting(row, "neuron"));
  if (numbers.empty()) return nil;
  if (const Array *slopes = array(row, "slopes"))
    return [MPSNNNeuronDescriptor cnnNeuronPReLUDescriptorWithData:[NSData dataWithBytes:slopes->bytes.data()
                                                                                  length:slopes->bytes.size()]
                                                            noCopy:NO];
  return [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:static_cast<MPSCNNNeuronType>(std::stoi(numbers[0]))
                                                          a:std::stof(numbers[1])
                                                          b:std::stof(numbers[2])
                                                          c:std::stof(numbers[3])];
}

MPSCNNConvolutionDescriptor *make_descriptor(const Row &row) {
  const auto extents = integers(row, "weights");  // O, height, width, I
  const auto at = [&](std::size_t i) { return static_cast<NSUInteger>(extents[i]); };
  const Class kind = class_named(setting(row, "descriptor"));
  MPSCNNConvolutionDescriptor *descriptor = [kind cnnConvolutionDescriptorWithKernelWidth:at(2)
                                                                             kernelHeight:at(1)
                                                                     inputFeatureChannels:at(3)
                                                                    outputFeatureChannels:at(0)];
  set_properties(descriptor, row, "descriptor.");
  if (MPSNNNeuronDescriptor *neuron = make_neuron(row)) [descriptor setFusedNeuronDescriptor:neuron];
  if (array(row, "mean") != nullptr) {
    const auto numbers = [&](const char *name) { return static_cast<const float *>(bytes(row, name)); };
    [descriptor setBatchNormalizationParametersForInferenceWithMean:numbers("mean")
                                                           variance:numbers("variance")
                                                              gamma:numbers("gamma")
                                                               beta:numbers("beta")
                                                            epsilon:std::stof(row.settings.at("epsilon"))];
  }
  return descriptor;
}

MPSCNNLossDescriptor *make_loss_descriptor(const Row &row) {
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

FullTestSource *make_weights(const Row &row) {
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

id object_named(const Row &row, const std::string &name) {
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
  return row.settings.count(name + ".class") != 0 ? make(row, name + ".") : called_object(name);
}

// ------------------------------------------------------------------------------------------------------------ images

MPSImageFeatureChannelFormat format_of(const std::string &dtype) {
  return dtype == "float16"  ? MPSImageFeatureChannelFormatFloat16
         : dtype == "uint8"  ? MPSImageFeatureChannelFormatUnorm8
         : dtype == "uint16" ? MPSImageFeatureChannelFormatUnorm16
                             : MPSImageFeatureChannelFormatFloat32;
}

using Shape = std::vector<long>;

MPSImage *image_of(const Shape &shape, const std::string &dtype, const std::byte *values) {
  MPSImageDescriptor *descriptor = describe(shape[0], shape[1], shape[2], shape[3], format_of(dtype));
  MPSImage *image = [[[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor] autorelease];
  const auto size = static_cast<std::size_t>(shape[1] * shape[2] * shape[3]) * rows::element_size(dtype);
  for (long i = 0; i < shape[0]; ++i)
    [image writeBytes:values + static_cast<std::size_t>(i) * size
           dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels
           imageIndex:static_cast<NSUInteger>(i)];
  return image;
}

/// How images are passed: in one object, as single images, or as a batch of views of one object.
enum class As { one, batch, views };

id images_of(const Shape &shape, const std::string &dtype, const std::byte *values, As as) {
  if (as == As::one) return image_of(shape, dtype, values);
  if (as == As::views) return [image_of(shape, dtype, values) batchRepresentation];
  NSMutableArray *all = [NSMutableArray array];
  const auto size = static_cast<std::size_t>(shape[1] * shape[2] * shape[3]) * rows::element_size(dtype);
  for (long i = 0; i < shape[0]; ++i)
    [all addObject:image_of({1, shape[1], shape[2], shape[3]}, dtype, values + static_cast<std::size_t>(i) * size)];
  return all;
}

id source_images(const Row &row, const std::string &key, As as) {
  const Array &values = row.arrays.at(key);
  return images_of(values.shape, values.dtype, values.bytes.data(), as);
}

/// Make images of bytes 0x7f: NaN in half precision, a large number in float32.
id filled_images(const Shape &shape, const std::string &dtype, As as) {
  std::size_t count = rows::element_size(dtype);
  for (const long extent : shape) count *= static_cast<std::size_t>(extent);
  const std::vector<std::byte> values(count, std::byte{0x7f});
  return images_of(shape, dtype, values.data(), as);
}

template <class T>
void read_as(MPSImage *image, Tensor &all, double scale) {
  Tensor one = read_image_of<T>(image);
  for (double &value : one.values) value /= scale;
  if (all.values.empty()) all = Tensor(0, one.h, one.w, one.c);
  all.n += one.n;
  all.values.insert(all.values.end(), one.values.begin(), one.values.end());
}

/// Read an image or a batch.
Tensor read_images(id images, const std::string &dtype) {
  Tensor all;
  NSArray *batch = [images isKindOfClass:[NSArray class]] ? images : [NSArray arrayWithObject:images];
  for (MPSImage *image in batch) {
    if (dtype == "float16")
      read_as<_Float16>(image, all, 1);
    else if (dtype == "uint8")
      read_as<std::uint8_t>(image, all, 255);
    else if (dtype == "uint16")
      read_as<std::uint16_t>(image, all, 65535);
    else
      read_as<float>(image, all, 1);
  }
  return all;
}

/// Check that the values at `first` are within their bounds, and the others as filled_images() left them.
void compare(const std::string &what, const Tensor &got, const Shape &shape, const Shape &first, const Array &expected,
             const Array &bound, const std::string &dtype) {
  if (Shape{got.n, got.h, got.w, got.c} != shape) return check(false, what + ": the result has other extents");
  const double untouched = dtype == "uint8"     ? 0x7f / 255.0
                           : dtype == "uint16"  ? 0x7f7f / 65535.0
                           : dtype == "float16" ? NAN
                                                : std::ldexp(0xff7f7f, 104);
  const auto &part = expected.shape;
  long wrong = 0;
  std::string worst;
  std::size_t at = 0;
  for (long n = 0; n < got.n; ++n)
    for (long y = 0; y < got.h; ++y)
      for (long x = 0; x < got.w; ++x)
        for (long c = 0; c < got.c; ++c, ++at) {
          const long i[] = {n - first[0], y - first[1], x - first[2], c - first[3]};
          bool inside = true;
          for (std::size_t axis = 0; axis < 4; ++axis) inside = inside && i[axis] >= 0 && i[axis] < part[axis];
          double right = untouched, off = 0;
          if (inside) {
            const auto k = static_cast<std::size_t>(((i[0] * part[1] + i[1]) * part[2] + i[2]) * part[3] + i[3]);
            right = expected[k], off = bound[k];
          }
          const double value = got.values[at];
          const bool good = std::isfinite(right) ? std::fabs(value - right) <= off
                                                 : value == right || (std::isnan(value) && std::isnan(right));
          if (good || wrong++ > 0) continue;
          worst = " at (" + std::to_string(n) + ", " + std::to_string(y) + ", " + std::to_string(x) + ", " +
                  std::to_string(c) + "): " + std::to_string(value) + ", expected " + std::to_string(right) + " +- " +
                  std::to_string(off);
        }
  check(wrong == 0, what + ": " + std::to_string(wrong) + " values are wrong, the first" + worst);
}

// ------------------------------------------------------------------------------------------------------ encode forms

/// An encode form.
struct Form {
  bool batch = false, given = false, state = false, temporary = false;
  bool views = false;  // the batch is views of one object
  bool twin = false;   // an unarchived copy; gradients after other channels
  std::string name() const {
    return std::string(views   ? ", a batch of views"
                       : batch ? ", a batch"
                               : "") +
           (given ? ", destination given" : ", destination returned") + (state ? ", with state" : "") +
           (temporary ? ", temporary" : "") + (twin ? ", a copy's archive" : "");
  }
  As as() const { return views ? As::views : batch ? As::batch : As::one; }
};

void set_up_result(id kernel, const Row &row) {
  RowPadding *padding = [[[RowPadding alloc] init] autorelease];
  const auto shape = integers(row, "destination");
  padding->row = &row;
  padding->height = static_cast<NSUInteger>(shape[1]);
  padding->width = static_cast<NSUInteger>(shape[2]);
  padding->channels = static_cast<NSUInteger>(shape[3]);
  padding->format = format_of(setting(row, "dtype", "float32"));
  if (!flag(row, "own_size")) [kernel setPadding:padding];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
}

/// Encode a kernel of one or two sources; return the result. Sets `state` if the form has one.
id encode_forward(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, const std::vector<id> &sources, const Form &form,
                  id result, id *state) {
  id a = sources[0], b = sources.size() > 1 ? sources[1] : nil;
  auto *two = static_cast<MPSCNNBinaryKernel *>(static_cast<id>(kernel));
  if (form.given && form.state && b == nil) {
    if (form.batch) {
      *state = [kernel resultStateBatchForSourceImage:a sourceStates:nil destinationImage:result];
      [kernel encodeBatchToCommandBuffer:buffer sourceImages:a destinationStates:*state destinationImages:result];
    } else {
      *state = [kernel resultStateForSourceImage:a sourceStates:nil destinationImage:result];
      if (*state != nil)
        [kernel encodeToCommandBuffer:buffer sourceImage:a destinationState:*state destinationImage:result];
      else
        [kernel encodeToCommandBuffer:buffer sourceImage:a destinationImage:result];
    }
    return result;
  }
  if (form.given && form.state && [two isKindOfClass:[MPSCNNArithmetic class]]) {
    auto *arithmetic = static_cast<MPSCNNArithmetic *>(two);
    if (form.batch) {
      *state = [two resultStateBatchForPrimaryImage:a secondaryImage:b sourceStates:nil destinationImage:result];
      [arithmetic encodeBatchToCommandBuffer:buffer
                               primaryImages:a
                             secondaryImages:b
                           destinationStates:*state
                           destinationImages:result];
    } else {
      *state = [two resultStateForPrimaryImage:a secondaryImage:b sourceStates:nil destinationImage:result];
      [arithmetic encodeToCommandBuffer:buffer
                           primaryImage:a
                         secondaryImage:b
                       destinationState:*state
                       destinationImage:result];
    }
    return result;
  }
  if (form.given) {
    if (b == nil && form.batch)
      [kernel encodeBatchToCommandBuffer:buffer sourceImages:a destinationImages:result];
    else if (b == nil)
      [kernel encodeToCommandBuffer:buffer sourceImage:a destinationImage:result];
    else if (form.batch)
      [two encodeBatchToCommandBuffer:buffer primaryImages:a secondaryImages:b destinationImages:result];
    else
      [two encodeToCommandBuffer:buffer primaryImage:a secondaryImage:b destinationImage:result];
    return result;
  }
  if (form.state) {
    const BOOL temporary = form.temporary;
    if (form.batch) {
      MPSStateBatch *states = nil;
      if (b == nil)
        result = [kernel encodeBatchToCommandBuffer:buffer
                                       sourceImages:a
                                  destinationStates:&states
                        destinationStateIsTemporary:temporary];
      else
        result = [two encodeBatchToCommandBuffer:buffer
                                   primaryImages:a
                                 secondaryImages:b
                               destinationStates:&states
                     destinationStateIsTemporary:temporary];
      *state = states;
    } else {
      MPSState *made = nil;
      if (b == nil)
        result = [kernel encodeToCommandBuffer:buffer
                                   sourceImage:a
                              destinationState:&made
                   destinationStateIsTemporary:temporary];
      else
        result = [two encodeToCommandBuffer:buffer
                               primaryImage:a
                             secondaryImage:b
                           destinationState:&made
                destinationStateIsTemporary:temporary];
      *state = made;
    }
    return result;
  }
  if (b == nil)
    return form.batch ? static_cast<id>([kernel encodeBatchToCommandBuffer:buffer sourceImages:a])
                      : [kernel encodeToCommandBuffer:buffer sourceImage:a];
  return form.batch ? static_cast<id>([two encodeBatchToCommandBuffer:buffer primaryImages:a secondaryImages:b])
                    : [two encodeToCommandBuffer:buffer primaryImage:a secondaryImage:b];
}

/// Return a permanent copy of temporary images.
id kept(id<MTLCommandBuffer> buffer, id images, const Form &form) {
  MPSNNNeuronDescriptor *same = [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeNone];
  MPSCNNNeuron *copy = [[[MPSCNNNeuron alloc] initWithDevice:device neuronDescriptor:same] autorelease];
  [copy setDestinationImageAllocator:[MPSImage defaultAllocator]];
  return encode_forward(copy, buffer, {images}, {.batch = form.batch}, nil, nullptr);
}

std::vector<id> sources_of(const Row &row, As as) {
  std::vector<id> sources{source_images(row, "source", as)};
  if (array(row, "second") != nullptr) sources.push_back(source_images(row, "second", as));
  return sources;
}

/// Return the forms that the row's destination allows.
std::vector<Form> forms_of(const Row &row, bool states) {
  std::vector<Form> forms;
  for (const bool batch : {false, true})
    for (const bool given : {true, false})
      for (const bool state : {false, true})
        for (const bool temporary : {false, true}) {
          if ((batch && !flag(row, "batches")) || (!given && !flag(row, "returned"))) continue;
          if (temporary && given && !states) continue;
          if (state ? flag(row, "stateless") : states) continue;
          forms.push_back({batch, given, state, temporary});
          if (batch && given) forms.push_back({batch, given, state, temporary, true});
        }
  forms.push_back({.given = true, .state = states, .twin = true});
  return forms;
}

void run_forward(const Row &row) {
  const std::string dtype = setting(row, "dtype");
  const Shape shape = integers(row, "destination"), first = integers(row, "first");
  for (const Form &form : forms_of(row, false)) {
    MPSCNNKernel *kernel = make(row);
    if (form.twin) kernel = archived([[kernel copy] autorelease]);
    set_up_result(kernel, row);
    const bool image_is_temporary = form.temporary && !form.state;
    if (image_is_temporary) [kernel setDestinationImageAllocator:[MPSTemporaryImage defaultAllocator]];
    id<MTLCommandBuffer> buffer = command_buffer();
    id state = nil, result = form.given ? filled_images(shape, dtype, form.as()) : nil;
    result = encode_forward(kernel, buffer, sources_of(row, form.as()), form, result, &state);
    if (image_is_temporary) result = kept(buffer, result, form);
    if (form.temporary && form.state && state != nil)
      for (MPSState *one in form.batch ? state : [NSArray arrayWithObject:state]) [one setReadCount:0];
    run(buffer);
    compare(row.name + form.name(), read_images(result, dtype), shape, first, row.arrays.at("expected"),
            row.arrays.at("bound"), dtype);
  }
}

// --------------------------------------------------------------------------------------------------------- gradients

id encode_gradient(MPSCNNGradientKernel *kernel, id<MTLCommandBuffer> buffer, id gradient, id source, id state,
                   const Form &form, id result) {
  if (form.batch && form.given)
    [kernel encodeBatchToCommandBuffer:buffer
                       sourceGradients:gradient
                          sourceImages:source
                        gradientStates:state
                  destinationGradients:result];
  else if (form.batch)
    return [kernel encodeBatchToCommandBuffer:buffer sourceGradients:gradient sourceImages:source gradientStates:state];
  else if (form.given)
    [kernel encodeToCommandBuffer:buffer
                   sourceGradient:gradient
                      sourceImage:source
                    gradientState:state
              destinationGradient:result];
  else
    return [kernel encodeToCommandBuffer:buffer sourceGradient:gradient sourceImage:source gradientState:state];
  return result;
}

/// Return a state's gradients of parameters, summed over the states of a batch.
std::vector<double> parameters_in(id state, const Form &form, const std::string &key) {
  std::vector<double> sums;
  NSSet *states = form.batch ? [NSSet setWithArray:state] : [NSSet setWithObject:state];
  for (id one in states) {
    id<MTLBuffer> buffer = [one performSelector:NSSelectorFromString(text(key))];
    const float *values = static_cast<const float *>([buffer contents]);
    sums.resize([buffer length] / sizeof(float));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(values[i]);
  }
  return sums;
}

void compare_parameters(const Row &row, id state, const Form &form) {
  for (const auto &[key, expected] : row.arrays) {
    if (key.rfind("gradientFor", 0) != 0) continue;
    const auto got = parameters_in(state, form, key);
    double largest = 0.05, worst = got.size() >= static_cast<std::size_t>(expected.size()) ? 0 : INFINITY;
    for (std::size_t i = 0; i < static_cast<std::size_t>(expected.size()) && i < got.size(); ++i) {
      largest = std::max(largest, std::fabs(expected[i]));
      if (!(std::fabs(got[i] - expected[i]) <= worst)) worst = std::fabs(got[i] - expected[i]);
    }
    check(worst <= 2e-5 * largest, row.name + form.name() + ", " + key + ": off by " + std::to_string(worst));
  }
}

/// Encode the forward kernel and its gradient kernel in one command buffer; return the gradient.
id encode_both(const Row &row, MPSCNNGradientKernel *kernel, const Form &form, id result, id *state) {
  MPSCNNKernel *forward = make(row);
  set_up_result(forward, row);
  id<MTLCommandBuffer> buffer = command_buffer();
  const std::vector<id> sources = sources_of(row, form.as());
  id y = encode_forward(forward, buffer, sources, {.batch = form.batch, .state = true, .temporary = form.temporary},
                        nil, state);
  const std::string seen = setting(row, "seen");
  id source = seen == "y" ? y : seen == "second" ? sources[1] : sources[0];
  result = encode_gradient(kernel, buffer, source_images(row, "upstream", form.as()), source, *state, form, result);
  if (form.temporary)  // only an optimizer would read the gradients of parameters
    for (MPSState *one in form.batch ? *state : [NSArray arrayWithObject:*state]) [one setReadCount:0];
  run(buffer);
  return result;
}

void run_gradient(const Row &row) {
  for (const Form &form : forms_of(row, true)) {
    Shape shape = row.arrays.at("gradient").shape;
    MPSCNNGradientKernel *kernel = make(row, "gradient.");
    if (form.twin) kernel = archived([[kernel copy] autorelease]);
    [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
    id state = nil, result = nil;
    // A form with a destination uses the properties as they are; the others set them.
    if (form.given) encode_both(row, kernel, {.batch = form.batch}, nil, &state);
    const long channel = form.twin ? 4 : 0;
    [kernel setDestinationFeatureChannelOffset:static_cast<NSUInteger>(channel)];
    shape[3] += channel;
    if (form.given) result = filled_images(shape, "float32", form.as());
    result = encode_both(row, kernel, form, result, &state);
    compare(row.name + form.name(), read_images(result, "float32"), shape, {0, 0, 0, channel},
            row.arrays.at("gradient"), row.arrays.at("gradient_bound"), "float32");
    if (!form.temporary) compare_parameters(row, state, form);
  }
}

// ------------------------------------------------------------------------------------ calls: losses and optimizers

void give_gradients(MPSCNNConvolutionGradientState *state, id<MTLBuffer> weights, id<MTLBuffer> biases) {
  std::memcpy([[state gradientForWeights] contents], [weights contents], [weights length]);
  std::memcpy([[state gradientForBiases] contents], [biases contents], [biases length]);
}

MPSCNNLossDataDescriptor *loss_data(const Row &row, const std::string &name, long image) {
  const Array *values = array(row, name);
  if (values == nullptr) return nil;
  const auto extent = [&](std::size_t i) { return static_cast<NSUInteger>(values->shape[i]); };
  const NSUInteger length = extent(1) * extent(2) * extent(3) * sizeof(float);
  NSData *data = [NSData dataWithBytes:values->bytes.data() + static_cast<NSUInteger>(image) * length length:length];
  return [MPSCNNLossDataDescriptor cnnLossDataDescriptorWithData:data
                                                          layout:MPSDataLayoutHeightxWidthxFeatureChannels
                                                            size:MTLSizeMake(extent(2), extent(1), extent(3))];
}

/// Make labels of one image of the arrays `labels` and `weights`, with one loss or with all.
MPSCNNLossLabels *make_labels(const Row &row, long image) {
  MPSCNNLossDataDescriptor *labels = loss_data(row, "labels", image);
  const MTLSize size = flag(row, "all_losses") ? [labels size] : MTLSizeMake(1, 1, 1);
  return [[[MPSCNNLossLabels alloc] initWithDevice:device
                                     lossImageSize:size
                                  labelsDescriptor:labels
                                 weightsDescriptor:loss_data(row, "weights", image)] autorelease];
}

id<MTLBuffer> make_buffer(const Array &values) {
  return [[device newBufferWithBytes:values.bytes.data()
                              length:values.bytes.size()
                             options:MTLResourceStorageModeShared] autorelease];
}

/// Make a matrix with two floats after each row.
MPSMatrix *make_matrix(const Array &values) {
  const auto rows = static_cast<NSUInteger>(values.shape[0]), columns = static_cast<NSUInteger>(values.shape[1]);
  MPSMatrixDescriptor *descriptor = [MPSMatrixDescriptor matrixDescriptorWithRows:rows
                                                                          columns:columns
                                                                         rowBytes:(columns + 2) * sizeof(float)
                                                                         dataType:MPSDataTypeFloat32];
  MPSMatrix *matrix = [[[MPSMatrix alloc] initWithDevice:device descriptor:descriptor] autorelease];
  char *first = static_cast<char *>([[matrix data] contents]);
  for (NSUInteger row = 0; row < rows; ++row)
    std::memcpy(first + row * [matrix rowBytes], values.bytes.data() + row * columns * sizeof(float),
                columns * sizeof(float));
  return matrix;
}

std::vector<double> floats_at(id<MTLBuffer> buffer, NSUInteger offset, NSUInteger count) {
  const float *first = reinterpret_cast<const float *>(static_cast<const char *>([buffer contents]) + offset);
  return std::vector<double>(first, first + count);
}

/// The objects of one row by their words, and the current command buffer.
struct Calls {
  const Row &row;
  std::map<std::string, id> objects;

  const Array &values(const std::string &name) const { return row.arrays.at(name); }

  id object(const std::string &word) {
    if (word == "none") return nil;
    id &found = objects[word];
    if (found == nil) found = make_object(word);
    return found;
  }

  /// `word`: kind:names, the names separated by commas.
  id make_object(const std::string &word) {
    const auto colon = word.find(':');
    const std::string kind = word.substr(0, colon);
    const auto names = words(word.substr(colon + 1), ',');
    const std::string &name = names[0];
    const auto each = [&](const std::string &of) {
      NSMutableArray *all = [NSMutableArray array];
      for (const auto &one : names) [all addObject:object(of + ":" + one)];
      return all;
    };
    if (kind == "image" || kind == "batch") return source_images(row, name, kind == "batch" ? As::batch : As::one);
    if (kind == "empty" || kind == "empties") {
      const auto found = integers(row, name);
      return filled_images(found, "float32", kind == "empties" ? As::batch : As::one);
    }
    if (kind == "labels") return make_labels(row, std::stol(name));
    if (kind == "label_batch") return each("labels");
    if (kind == "buffer") return static_cast<id>(make_buffer(values(name)));
    if (kind == "matrix") return make_matrix(values(name));
    if (kind == "vectors") return each("vector");
    if (kind == "vector") {
      const auto count = static_cast<NSUInteger>(values(name).size());
      MPSVectorDescriptor *descriptor = [MPSVectorDescriptor vectorDescriptorWithLength:count
                                                                               dataType:MPSDataTypeFloat32];
      return [[[MPSVector alloc] initWithBuffer:object("buffer:" + name) descriptor:descriptor] autorelease];
    }
    id a = object("buffer:" + name), b = object("buffer:" + names[1]);
    if (kind == "weights_state")
      return [[[MPSCNNConvolutionWeightsAndBiasesState alloc] initWithWeights:a biases:b] autorelease];
    if (kind == "gamma_and_beta")
      return [[[MPSCNNNormalizationGammaAndBetaState alloc] initWithGamma:a beta:b] autorelease];
    MPSImage *image = image_of({1, 1, 1, 4}, "float32", std::vector<std::byte>(16).data());
    id state = [make(row, kind == "other_state" ? "other." : "layer.") resultStateForSourceImage:image
                                                                                    sourceStates:nil
                                                                                destinationImage:image];
    if (kind == "gradient_state") give_gradients(state, a, b);
    if (kind == "batch_state" || kind == "other_state") {
      object_setClass(state, [RowBatchState class]);
      gamma_gradient = a, beta_gradient = b;
    }
    if (state != nil) return state;
    check(false, row.name + ": unknown object " + word);
    return nil;
  }

  /// Read the values of an object, or of all objects of a list.
  std::vector<double> read(id object) {
    if ([object isKindOfClass:[NSArray class]]) {
      std::vector<double> all;
      for (id one in object) {
        const auto part = read(one);
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    }
    if ([object isKindOfClass:[MPSImage class]]) return read_images(object, "float32").values;
    if ([object isKindOfClass:[MPSCNNLossLabels class]]) return read([object lossImage]);
    if ([object isKindOfClass:[MPSMatrix class]]) {
      MPSMatrix *matrix = object;
      std::vector<double> all;
      for (NSUInteger r = 0; r < [matrix rows]; ++r)
        for (const double value : floats_at([matrix data], r * [matrix rowBytes], [matrix columns]))
          all.push_back(value);
      return all;
    }
    return floats_at(object, 0, [static_cast<id<MTLBuffer>>(object) length] / sizeof(float));
  }
};

Calls *calls;

id called_object(const std::string &word) { return calls->object(word); }

/// Run `call` with its `call_arguments` `times` times, then compare the arrays `after.`WORD.
void run_call(const Row &row, bool twin) {
  Calls own{row, {}};
  calls = &own;
  id kernel = make(row);
  if (twin) kernel = archived([[kernel copy] autorelease]);
  if ([kernel respondsToSelector:@selector(setDestinationImageAllocator:)])
    [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
  const SEL selector = NSSelectorFromString(text(setting(row, "call")));
  for (long i = 0; i < std::stol(setting(row, "times", "1")); ++i) {
    id<MTLCommandBuffer> buffer = command_buffer();
    own.objects["commands"] = buffer;
    NSMethodSignature *signature = [kernel methodSignatureForSelector:selector];
    check(signature != nil, row.name + ": the class has the form");
    NSInvocation *call = invocation(kernel, signature, selector, row, setting(row, "call_arguments"));
    [call invoke];
    id result = nil;
    if ([signature methodReturnLength] > 0) [call getReturnValue:&result];
    own.objects["returned"] = result;
    run(buffer);
  }
  for (const auto &[key, want] : row.arrays) {
    if (key.rfind("after.", 0) != 0) continue;
    const auto got = own.read(own.object(key.substr(6)));
    double worst = got.size() == static_cast<std::size_t>(want.size()) ? 0 : INFINITY;
    for (std::size_t i = 0; i < got.size() && std::isfinite(worst); ++i) {
      const double off = std::fabs(got[i] - want[i]) / (1 + std::fabs(want[i]));
      if (!(off <= worst)) worst = std::isnan(off) ? INFINITY : off;
    }
    check(worst <= std::stod(setting(row, "tolerance")), row.name + ", " + key + ": off by " + std::to_string(worst));
  }
  calls = nullptr;
}

void run_row(const Row &row) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  const int before = passed + failed;
  @try {
    if (!setting(row, "call").empty())
      for (const bool twin : {false, true}) run_call(row, twin);
    else if (array(row, "gradient") != nullptr)
      run_gradient(row);
    else
      run_forward(row);
  } @catch (NSException *exception) {
    check(false, row.name + ": " + [[exception reason] UTF8String]);
  }
  check(passed + failed > before, row.name + ": nothing was compared");
  [pool drain];
}

std::vector<Row> all_rows;

void test_rows() {
  for (const Row &row : all_rows) run_row(row);
}

}  // namespace

int main(int count, char **arguments) {
  for (int i = 1; i < count; ++i)
    for (Row &row : rows::read(arguments[i])) all_rows.push_back(std::move(row));
  return run_tests({test_rows});
}

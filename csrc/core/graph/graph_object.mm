// SPDX-License-Identifier: Apache-2.0
// Calls of Apple's node classes by name: their methods have few types of arguments, and more than a hundred names.
#include <mpscnn/array_call.hpp>
#include <mpscnn/error.hpp>

#include <algorithm>
#include <cstring>
#include <deque>

#include "core/device/objc_scope.hh"
#include "core/graph/graph_normalization.hh"
#include "core/graph/graph_object_impl.hh"
#include "core/graph/graph_scope.hpp"
#include "core/kernel/families/family.hh"
#include "core/loss/loss_impl.hh"

/// Handle of an image or a state, which the program finds by its label.
@interface PyMPSHandle : NSObject<MPSHandle> {
 @private
  mpscnn::Ref<NSString *> label_;
}
- (instancetype)initWithLabel:(NSString *)label;
@end

@implementation PyMPSHandle

- (instancetype)initWithLabel:(NSString *)label {
  if ((self = [super init])) label_ = mpscnn::Ref<NSString *>::retain(label);
  return self;
}

- (NSString *)label {
  return label_.get();
}

+ (BOOL)supportsSecureCoding {
  return YES;
}

- (void)encodeWithCoder:(NSCoder *)coder {
  [coder encodeObject:label_.get() forKey:@"label"];
}

- (instancetype)initWithCoder:(NSCoder *)coder {
  return [self initWithLabel:[coder decodeObjectForKey:@"label"]];
}

@end

/// Makes the images that the program gets. The images of a batch are parts of one Image.
@interface PyMPSGraphAllocator : NSObject<MPSImageAllocator> {
 @private
  std::shared_ptr<mpscnn::GraphAllocator> own_;
}
/// `own`: the program's; null: new images.
- (instancetype)initWithOwn:(std::shared_ptr<mpscnn::GraphAllocator>)own;
- (const std::shared_ptr<mpscnn::GraphAllocator> &)own;
@end

namespace mpscnn {
namespace {

/// Return the program's image for a batch of results. Throw unless it fits and is of no other use in the encode.
std::shared_ptr<Image> own_image(GraphAllocator &own, const GraphScope &scope, ImageShape shape, DType dtype) {
  const auto name = say("MPSNNGraph: ", own.name());
  auto image = own.allocate(shape, dtype);
  check(image->shape() == shape, name, " returned an image of shape ", image->shape(), "; the result has ", shape, ".");
  check<TypeError>(image->dtype() == dtype, name, " returned an image of ", name_of(image->dtype()),
                   "; the result has ", name_of(dtype), ".");
  check(!image->is_temporary(), name, " returned a temporary image.");
  check_same_device(*image->device(), *scope.buffer()->device(), name.c_str());
  check(!image->impl().shared || !image->impl().shared->read_only, name, " returned a read-only image.");
  const auto is_same = [&](const std::shared_ptr<Image> &other) {
    return other->impl().image.get() == image->impl().image.get();
  };
  check(std::ranges::none_of(scope.images, is_same), name, " returned an image that has another result of the encode.");
  check(std::ranges::none_of(scope.inputs, is_same), name, " returned a source of the graph.");
  return image;
}

}  // namespace
}  // namespace mpscnn

@implementation PyMPSGraphAllocator

- (instancetype)initWithOwn:(std::shared_ptr<mpscnn::GraphAllocator>)own {
  if ((self = [super init])) own_ = std::move(own);
  return self;
}

- (const std::shared_ptr<mpscnn::GraphAllocator> &)own {
  return own_;
}

/// Return nil after a failure, which the scope keeps.
- (MPSImageBatch *)imageBatchForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                              imageDescriptor:(MPSImageDescriptor *)descriptor
                                       kernel:(MPSKernel *)kernel
                                        count:(NSUInteger)count {
  (void)commandBuffer, (void)kernel;
  auto *scope = mpscnn::GraphScope::current();
  if (scope == nullptr || !scope->buffer()) return nil;
  const mpscnn::ImageShape shape = {static_cast<std::int64_t>(count), static_cast<std::int64_t>(descriptor.height),
                                    static_cast<std::int64_t>(descriptor.width),
                                    static_cast<std::int64_t>(descriptor.featureChannels)};
  const auto format = descriptor.channelFormat;
  const auto dtype = format == MPSImageFeatureChannelFormatFloat32   ? mpscnn::DType::float32
                     : format == MPSImageFeatureChannelFormatFloat16 ? mpscnn::DType::float16
                     : format == MPSImageFeatureChannelFormatUnorm16 ? mpscnn::DType::uint16
                                                                     : mpscnn::DType::uint8;
  MPSImageBatch *images = nil;
  if (own_) scope->has_asked = true;
  scope->run([&] {
    scope->images.push_back(own_ ? mpscnn::own_image(*own_, *scope, shape, dtype)
                                 : mpscnn::make_visible_image(scope->buffer()->device(), shape, dtype));
    MPSImage *whole = scope->images.back()->impl().image.get();
    images = count == 1 ? [NSArray arrayWithObject:whole] : [whole batchRepresentation];
  });
  return images;
}

- (MPSImage *)imageForCommandBuffer:(id<MTLCommandBuffer>)commandBuffer
                    imageDescriptor:(MPSImageDescriptor *)descriptor
                             kernel:(MPSKernel *)kernel {
  return [[self imageBatchForCommandBuffer:commandBuffer imageDescriptor:descriptor kernel:kernel
                                     count:1] objectAtIndex:0];
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

namespace mpscnn {

std::shared_ptr<GraphObject> graph_object(id object) {
  if (object == nil) return nullptr;
  return std::make_shared<GraphObject>(
      std::unique_ptr<GraphObject::Impl>(new GraphObject::Impl{.object = Ref<id>::retain(object)}));
}

namespace {

/// Return the type without the qualifiers before it [NSMethodSignature].
const char *plain(const char *type) {
  while (*type != '\0' && std::strchr("rnNoORV", *type) != nullptr) ++type;
  return type;
}

bool is_type(const char *type, const char *wanted) { return std::strcmp(plain(type), plain(wanted)) == 0; }

id object_in(const GraphValue &value) {
  if (const auto *object = std::get_if<GraphObject::Ptr>(&value)) return *object ? (*object)->impl().object.get() : nil;
  if (const auto *objects = std::get_if<std::vector<GraphObject::Ptr>>(&value)) {
    NSMutableArray *array = [NSMutableArray arrayWithCapacity:objects->size()];
    for (const auto &object : *objects) [array addObject:object->impl().object.get()];
    return array;
  }
  if (const auto *text = std::get_if<std::string>(&value)) return ns(*text);
  return nil;
}

/// Arguments of an invocation, filled in order.
class Arguments {
 public:
  Arguments(NSInvocation *invocation, const char *who) : invocation_(invocation), who_(who) {}

  void add(const GraphValue &value) {
    const auto *ints = std::get_if<std::vector<std::int64_t>>(&value);
    if (ints && ints->size() == 2 && !is_type(type(), @encode(MTLSize))) {
      add((*ints)[1]);  // the width comes first in Apple's methods
      return add((*ints)[0]);
    }
    const char *const wanted = plain(type());
    if (ints) {
      add_struct(wanted, *ints);
    } else if (const auto *floats = std::get_if<std::vector<double>>(&value)) {
      check(is_type(wanted, @encode(const float *)), who_, ": argument ", next_ - 2, " is an array of floats.");
      const float *address = floats_.emplace_back(floats->begin(), floats->end()).data();
      set(address);
    } else if (*wanted == '@') {
      id object = object_in(value);
      set(object);
    } else if (*wanted == '^') {
      const void *none = nullptr;
      set(none);
    } else {
      add_number(*wanted, value);
    }
  }

 private:
  const char *type() const {
    check(next_ < [[invocation_ methodSignature] numberOfArguments], who_, ": there are too many arguments.");
    return [[invocation_ methodSignature] getArgumentTypeAtIndex:next_];
  }

  template <class T>
  void set(const T &value) {
    [invocation_ setArgument:const_cast<void *>(static_cast<const void *>(&value))
                     atIndex:static_cast<NSInteger>(next_++)];
  }

  void add_number(char wanted, const GraphValue &value) {
    double real = 0;
    std::int64_t integer = 0;
    if (const auto *flag = std::get_if<bool>(&value)) integer = *flag, real = *flag;
    if (const auto *whole = std::get_if<std::int64_t>(&value)) integer = *whole, real = static_cast<double>(*whole);
    if (const auto *given = std::get_if<double>(&value)) real = *given;
    switch (wanted) {
      case 'f': return set(static_cast<float>(real));
      case 'd': return set(real);
      case 'B':
      case 'C':
      case 'c': return set(static_cast<BOOL>(integer != 0));
      case 'I':
      case 'i': return set(static_cast<std::uint32_t>(integer));
      case 'L':
      case 'l':
      case 'Q':
      case 'q': return set(static_cast<std::uint64_t>(integer));
      default: throw NotImplementedError(say(who_, ": an argument has the type \"", wanted, "\"."));
    }
  }

  void add_struct(const char *wanted, const std::vector<std::int64_t> &ints) {
    const auto at = [&](std::size_t i) { return static_cast<NSUInteger>(ints[i]); };
    if (is_type(wanted, @encode(MTLSize)) && ints.size() >= 2)
      return set(MTLSizeMake(at(1), at(0), ints.size() > 2 ? at(2) : 1));
    check(is_type(wanted, @encode(MPSImageCoordinate)) && ints.size() == 3, who_, ": ", ints.size(),
          " integers are not what argument ", next_ - 2, " is.");
    set(MPSImageCoordinate{.x = at(1), .y = at(0), .channel = at(2)});
  }

  NSInvocation *invocation_;
  const char *who_;
  NSUInteger next_ = 2;  ///< after self and _cmd
  std::deque<std::vector<float>> floats_;
};

/// Call a method that returns an object.
id call(id target, NSMethodSignature *signature, const std::string &selector, std::span<const GraphValue> values,
        const std::string &who) {
  check<NotImplementedError>(signature != nil, who, " has no method ", selector, ".");
  NSInvocation *invocation = [NSInvocation invocationWithMethodSignature:signature];
  [invocation setTarget:target];
  [invocation setSelector:NSSelectorFromString(ns(selector))];
  Arguments arguments(invocation, who.c_str());
  for (const auto &value : values) arguments.add(value);
  [invocation invoke];
  id result = nil;
  [invocation getReturnValue:&result];
  return result;
}

std::vector<GraphObject::Ptr> objects_in(NSArray *array) {
  std::vector<GraphObject::Ptr> objects;
  for (id object in array) objects.push_back(graph_object(object));
  return objects;
}

GraphValue value_from(id object) {
  if (object == nil) return {};
  if ([object isKindOfClass:[NSString class]]) return text(object);
  if ([object isKindOfClass:[NSArray class]]) return objects_in(object);
  if ([object isKindOfClass:[NSNumber class]]) {
    const char type = *[object objCType];
    if (type == 'f' || type == 'd') return [object doubleValue];
    return static_cast<std::int64_t>([object longLongValue]);
  }
  if (![object isKindOfClass:[NSValue class]]) return graph_object(object);
  const auto signed_ = [](NSUInteger value) { return static_cast<std::int64_t>(value); };
  if (is_type([object objCType], @encode(MTLSize))) {
    MTLSize size;
    [object getValue:&size];
    return std::vector<std::int64_t>{signed_(size.height), signed_(size.width), signed_(size.depth)};
  }
  check<NotImplementedError>(is_type([object objCType], @encode(MTLRegion)), "The property has the type \"",
                             [object objCType], "\".");
  MTLRegion region;
  [object getValue:&region];
  return std::vector<std::int64_t>{signed_(region.origin.y),    signed_(region.origin.x),   signed_(region.origin.z),
                                   signed_(region.size.height), signed_(region.size.width), signed_(region.size.depth)};
}

/// Return the object for key-value coding.
id object_from(const GraphValue &value) {
  if (const auto *flag = std::get_if<bool>(&value)) return [NSNumber numberWithBool:*flag];
  if (const auto *integer = std::get_if<std::int64_t>(&value)) return [NSNumber numberWithLongLong:*integer];
  if (const auto *real = std::get_if<double>(&value)) return [NSNumber numberWithDouble:*real];
  if (const auto *ints = std::get_if<std::vector<std::int64_t>>(&value)) {
    check(ints->size() == 6, "A region is (y, x, image), (height, width, images); ", ints->size(),
          " integers were given.");
    const auto &r = *ints;
    const MTLRegion region =
        mtl_region({.origin = {.y = r[0], .x = r[1], .image = r[2]}, .height = r[3], .width = r[4], .images = r[5]});
    return [NSValue valueWithBytes:&region objCType:@encode(MTLRegion)];
  }
  return object_in(value);
}

}  // namespace

GraphObject::GraphObject(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GraphObject::~GraphObject() {
  Pool pool;
  impl_.reset();
}

GraphObject::Ptr GraphObject::make(const std::string &apple_class, const std::string &selector,
                                   std::span<const GraphValue> values) {
  return guard([&] {
    Class kind = NSClassFromString(ns(apple_class));
    check<NotImplementedError>(kind != Nil, apple_class, ": the platform has no such class.");
    const SEL name = NSSelectorFromString(ns(selector));
    Ref<id> object;
    if (selector.starts_with("init")) {
      NSMethodSignature *signature = [kind instanceMethodSignatureForSelector:name];
      object = Ref<id>::adopt(call([kind alloc], signature, selector, values, apple_class));
    } else {
      object = Ref<id>::retain(call(kind, [kind methodSignatureForSelector:name], selector, values, apple_class));
    }
    check<std::runtime_error>(static_cast<bool>(object), apple_class, ": MPS made no object.");
    return std::make_shared<GraphObject>(std::unique_ptr<Impl>(new Impl{.object = std::move(object)}));
  });
}

GraphObject::Ptr GraphObject::neuron(const NeuronDescriptor &neuron) {
  return guard([&] { return graph_object(objc_neuron(neuron)); });
}

GraphObject::Ptr GraphObject::loss(const LossKernel &loss) {
  return guard([&] { return graph_object(loss.impl().descriptor.get()); });
}

GraphObject::Ptr GraphObject::floats(std::span<const float> values) {
  return guard([&] { return graph_object([NSData dataWithBytes:values.data() length:values.size_bytes()]); });
}

GraphObject::Ptr GraphObject::handle(const std::string &label) {
  return guard([&] { return graph_object([[[PyMPSHandle alloc] initWithLabel:ns(label)] autorelease]); });
}

GraphObject::Ptr GraphObject::allocator() { return allocator(nullptr); }

GraphObject::Ptr GraphObject::allocator(std::shared_ptr<GraphAllocator> own) {
  return guard([&] { return graph_object([[[PyMPSGraphAllocator alloc] initWithOwn:std::move(own)] autorelease]); });
}

std::shared_ptr<GraphAllocator> GraphObject::own_allocator() const {
  id object = impl_->object.get();
  return [object isKindOfClass:[PyMPSGraphAllocator class]] ? [static_cast<PyMPSGraphAllocator *>(object) own]
                                                            : nullptr;
}

GraphValue GraphObject::send(const std::string &selector, std::span<const GraphValue> values) const {
  return guard([&] {
    id object = impl_->object.get();
    NSMethodSignature *signature = [object methodSignatureForSelector:NSSelectorFromString(ns(selector))];
    return value_from(call(object, signature, selector, values, apple_class()));
  });
}

GraphValue GraphObject::get(const std::string &property) const {
  return guard([&] { return value_from([impl_->object.get() valueForKey:ns(property)]); });
}

void GraphObject::set(const std::string &property, const GraphValue &value) const {
  guard([&] { [impl_->object.get() setValue:object_from(value) forKey:ns(property)]; });
}

std::vector<GraphObject::Ptr> GraphObject::training_graph(const Ptr &source_gradient, const Handler &handler) const {
  return guard([&] {
    GraphScope scope;
    GraphScope *const kept = &scope;
    MPSGradientNodeBlock block = ^(MPSNNFilterNode *gradient, MPSNNFilterNode *forward, MPSNNImageNode *source,
                                   MPSNNImageNode *source_gradient_image) {
      kept->run([&] {
        handler(graph_object(gradient), graph_object(forward), graph_object(source),
                graph_object(source_gradient_image));
      });
    };
    NSArray<MPSNNFilterNode *> *last = [static_cast<MPSNNFilterNode *>(impl_->object.get())
        trainingGraphWithSourceGradient:source_gradient ? source_gradient->impl().object.get() : nil
                            nodeHandler:handler ? block : static_cast<MPSGradientNodeBlock>(nullptr)];
    scope.rethrow();
    return objects_in(last);
  });
}

std::string GraphObject::apple_class() const {
  return guard([&] { return text(NSStringFromClass([impl_->object.get() class])); });
}

std::uintptr_t GraphObject::identity() const {
  return reinterpret_cast<std::uintptr_t>(static_cast<void *>(impl_->object.get()));
}

const ConvolutionDescriptor &GraphObject::descriptor() const { return impl_->source->descriptor(); }

bool GraphObject::is_trained() const {
  return (impl_->training && impl_->training->weights()) || (impl_->updates && impl_->updates->is_trained());
}

ConvolutionWeightsAndBiasesState GraphObject::trained() const {
  return guard([&] {
    check<std::runtime_error>(is_trained(), "weights: no optimizer has changed them yet.");
    impl_->training->check_readable();
    return ConvolutionWeightsAndBiasesState{.weights = impl_->training->weights(),
                                            .biases = impl_->training->biases(),
                                            .shape = weights_shape(descriptor())};
  });
}

std::shared_ptr<Buffer> GraphObject::buffer(const std::string &property) const {
  return guard([&] {
    const SEL name = NSSelectorFromString(ns(property));
    check<TypeError>([impl_->object.get() respondsToSelector:name], apple_class(), " has no ", property, ".");
    check_written(*impl_->writer, apple_class().c_str());
    id<MTLBuffer> values = [impl_->object.get() performSelector:name];
    check<std::runtime_error>(values != nil, apple_class(), ": the graph has not computed ", property, ".");
    return std::make_shared<Buffer>(
        std::make_unique<Buffer::Impl>(Buffer::Impl{impl_->device, Ref<id<MTLBuffer>>::retain(values)}));
  });
}

}  // namespace mpscnn

// SPDX-License-Identifier: Apache-2.0
#include "core/graph/graph_padding.hh"

#include <mpscnn/error.hpp>

#include "core/device/objc_scope.hh"
#include "core/graph/graph_object_impl.hh"
#include "core/graph/graph_scope.hpp"
#include "core/kernel/padding_policy.hh"

namespace mpscnn {
namespace {

/// Return the window of a kernel; kernels without the properties have one pixel.
KernelWindow window_of(MPSKernel *object) {
  if (![object respondsToSelector:@selector(strideInPixelsX)]) return {};
  auto *kernel = static_cast<MPSCNNKernel *>(object);
  const auto pair = [](NSUInteger h, NSUInteger w) {
    return Pair{static_cast<std::int64_t>(h), static_cast<std::int64_t>(w)};
  };
  return {pair(kernel.kernelHeight, kernel.kernelWidth), pair(kernel.strideInPixelsY, kernel.strideInPixelsX),
          pair(kernel.dilationRateY, kernel.dilationRateX)};
}

bool is_transpose(MPSKernel *kernel) { return [kernel respondsToSelector:@selector(setKernelOffsetX:)]; }

void set_offset(MPSKernel *object, std::int64_t y, std::int64_t x) {
  if (is_transpose(object)) {
    auto *kernel = static_cast<MPSCNNConvolutionTranspose *>(object);
    kernel.kernelOffsetX = static_cast<NSInteger>(x);
    kernel.kernelOffsetY = static_cast<NSInteger>(y);
  } else {
    static_cast<MPSCNNKernel *>(object).offset = {
        .x = static_cast<NSInteger>(x), .y = static_cast<NSInteger>(y), .z = 0};
  }
}

/// Return the factor by which a sub-pixel convolution enlarges its result.
std::int64_t sub_pixel_factor(MPSKernel *kernel) {
  if (![kernel respondsToSelector:@selector(subPixelScaleFactor)]) return 1;
  return static_cast<std::int64_t>(static_cast<MPSCNNConvolution *>(kernel).subPixelScaleFactor);
}

/// Return the extent of the result along an axis, and set the offset.
std::int64_t place(const PixelPadding &pixels, bool transposed, std::int64_t size, std::int64_t kernel,
                   std::int64_t stride, std::int64_t dilation, std::int64_t before, std::int64_t after,
                   std::int64_t extra, std::int64_t &offset) {
  if (transposed) {
    offset = kernel / 2 - kernel + 1 + before;
    return transpose_extent(size, kernel, stride, before, after, extra);
  }
  const auto reach = (kernel - 1) * dilation + 1;
  offset = reach / 2 - before;
  return window_extent(size, reach, stride, before, after, pixels.ceil_mode);
}

/// Maxima are those of the source's pixels, as in PyTorch; averages count the pixels that `count_include_pad` says.
void set_edges(const PixelPadding &pixels, MPSKernel *object) {
  if (![object isKindOfClass:[MPSCNNPooling class]]) return;
  const bool is_max =
      [object isKindOfClass:[MPSCNNPoolingMax class]] || [object isKindOfClass:[MPSCNNDilatedPoolingMax class]];
  static_cast<MPSCNNKernel *>(object).edgeMode = is_max ? MPSImageEdgeModeClamp : MPSImageEdgeModeZero;
  if (!pixels.count_include_pad || ![object isKindOfClass:[MPSCNNPoolingAverage class]]) return;
  auto *average = static_cast<MPSCNNPoolingAverage *>(object);
  average.edgeMode = MPSImageEdgeModeClamp;
  average.zeroPadSizeX = static_cast<NSUInteger>(*pixels.count_include_pad ? pixels.left : 0);
  average.zeroPadSizeY = static_cast<NSUInteger>(*pixels.count_include_pad ? pixels.top : 0);
}

}  // namespace

GraphObject::Ptr GraphObject::padding(std::string_view name) {
  struct Policy {
    std::string_view name;
    MPSNNPaddingMethod method;
  };
  // "same" puts the remainder at the bottom right as PyTorch, ONNX (SAME_UPPER) and TensorFlow do.
  static constexpr MPSNNPaddingMethod kBottomRight = MPSNNPaddingMethodAddRemainderToBottomRight;
  static constexpr Policy kPolicies[] = {{"same", MPSNNPaddingMethodSizeSame | kBottomRight},
                                         {"valid", MPSNNPaddingMethodSizeValidOnly | kBottomRight},
                                         {"full", MPSNNPaddingMethodSizeFull | kBottomRight}};
  return guard([&] {
    for (const auto &policy : kPolicies)
      if (policy.name == name) return graph_object([MPSNNDefaultPadding paddingWithMethod:policy.method]);
    if (name == "tensorflow_average_pooling")
      return graph_object([MPSNNDefaultPadding paddingForTensorflowAveragePooling]);
    check(name == "tensorflow_average_pooling_valid", "padding (\"", name,
          "\") is not one of \"same\", \"valid\", \"full\", \"tensorflow_average_pooling\", "
          "\"tensorflow_average_pooling_valid\".");
    return graph_object([MPSNNDefaultPadding paddingForTensorflowAveragePoolingValidOnly]);
  });
}

GraphObject::Ptr GraphObject::padding(const PixelPadding &pixels) {
  return guard([&] { return graph_object([[[PyMPSPixelPadding alloc] initWithPixels:pixels] autorelease]); });
}

GraphObject::Ptr GraphObject::padding(std::shared_ptr<GraphPadding> policy) {
  return guard(
      [&] { return graph_object([[[PyMPSGraphPadding alloc] initWithPolicy:std::move(policy)] autorelease]); });
}

}  // namespace mpscnn

using mpscnn::GraphScope;

@implementation PyMPSPixelPadding

- (instancetype)initWithPixels:(const mpscnn::PixelPadding &)pixels {
  if ((self = [super init])) pixels_ = pixels;
  return self;
}

- (MPSNNPaddingMethod)paddingMethod {
  return MPSNNPaddingMethodCustom | MPSNNPaddingMethodSizeValidOnly;
}

- (NSString *)label {
  return @"mpscnn, padding in pixels";
}

- (BOOL)dependsOnSizesOnly {
  const auto *scope = GraphScope::current();
  return scope == nullptr || !scope->has_failed();
}

- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor {
  (void)sourceStates;
  MPSImage *source = [sourceImages objectAtIndex:0];
  const auto window = mpscnn::window_of(kernel);
  const bool transposed = mpscnn::is_transpose(kernel);
  std::int64_t x = 0, y = 0;
  const auto height =
      mpscnn::place(pixels_, transposed, static_cast<std::int64_t>(source.height), window.kernel_size.h,
                    window.stride.h, window.dilation.h, pixels_.top, pixels_.bottom, pixels_.output_padding.h, y);
  const auto width =
      mpscnn::place(pixels_, transposed, static_cast<std::int64_t>(source.width), window.kernel_size.w, window.stride.w,
                    window.dilation.w, pixels_.left, pixels_.right, pixels_.output_padding.w, x);
  if (height < 1 || width < 1) {
    if (auto *scope = GraphScope::current())
      scope->run([&] {
        mpscnn::check(false, "MPSNNGraph: the result of ", mpscnn::text([kernel className]), " has ", height, " x ",
                      width, " pixels, less than the minimum (1 x 1): kernel_size (", window.kernel_size.h, ", ",
                      window.kernel_size.w, ") does not fit x (", source.height, ", ", source.width,
                      ") with its padding.");
      });
  }
  // After a failure, a size that MPS accepts.
  const auto factor = mpscnn::sub_pixel_factor(kernel);
  inDescriptor.height = height < 1 ? 1 : static_cast<NSUInteger>(height * factor);
  inDescriptor.width = width < 1 ? 1 : static_cast<NSUInteger>(width * factor);
  mpscnn::set_offset(kernel, y, x);
  mpscnn::set_edges(pixels_, kernel);
  return inDescriptor;
}

@end

@implementation PyMPSGraphPadding

- (instancetype)initWithPolicy:(std::shared_ptr<mpscnn::GraphPadding>)policy {
  if ((self = [super init])) {
    method_ = mpscnn::method_of("padding policy " + policy->name(), policy->method());
    policy_ = std::move(policy);
  }
  return self;
}

- (MPSNNPaddingMethod)paddingMethod {
  return method_;
}

- (NSString *)label {
  return @"mpscnn.PaddingPolicy";
}

- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sourceImages
                                                     sourceStates:(NSArray<MPSState *> *)sourceStates
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)inDescriptor {
  (void)sourceStates;
  std::vector<mpscnn::ImageShape> sources;
  for (MPSImage *image in sourceImages) sources.push_back(mpscnn::shape_of(image));
  auto *scope = GraphScope::current();
  if (scope != nullptr) scope->has_asked = true;
  const bool answered = scope != nullptr && scope->run([&] {
    const auto suggested = mpscnn::shape_of(inDescriptor);
    const auto name = mpscnn::text([kernel className]);
    const auto answer = policy_->destination(name, mpscnn::window_of(kernel), sources, suggested);
    mpscnn::check_answer("MPSNNGraph: padding policy " + policy_->name(), answer, suggested);
    inDescriptor.height = static_cast<NSUInteger>(answer.shape.h);
    inDescriptor.width = static_cast<NSUInteger>(answer.shape.w);
    inDescriptor.featureChannels = static_cast<NSUInteger>(answer.shape.c);
    if (answer.offset) mpscnn::set_offset(kernel, answer.offset->y, answer.offset->x);
  });
  if (!answered) inDescriptor.height = inDescriptor.width = 1;  // any size that MPS accepts; it is not used
  return inDescriptor;
}

@end

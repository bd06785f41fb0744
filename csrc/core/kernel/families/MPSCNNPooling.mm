// SPDX-License-Identifier: Apache-2.0
// MPSCNNPoolingMax, MPSCNNDilatedPoolingMax, MPSCNNPoolingAverage, MPSCNNPoolingL2Norm.
#include "core/kernel/families/family.hh"

#include <mpscnn/error.hpp>

namespace mpscnn {

static FamilyKernel make_pooling(id<MTLDevice> device, const KernelRow &row, const Params &params) {
  const Class kind = class_of(row);
  FamilyKernel made;
  made.padding = padding(params, "padding");
  auto &window = made.window.emplace();
  window.kernel_size = pair(params, "kernel_size", {1, 1});
  window.stride = pair(params, "stride", window.kernel_size);
  window.dilation = pair(params, "dilation", {1, 1});
  window.ceil_mode = boolean(params, "ceil_mode", false);
  const auto number = [](std::int64_t value) { return static_cast<NSUInteger>(value); };
  const auto width = number(window.kernel_size.w), height = number(window.kernel_size.h);
  const auto stride_x = number(window.stride.w), stride_y = number(window.stride.h);
  MPSCNNPooling *kernel = [kind alloc];
  if (row.is_own("dilation")) {
    kernel = [static_cast<MPSCNNDilatedPoolingMax *>(kernel) initWithDevice:device
                                                                kernelWidth:width
                                                               kernelHeight:height
                                                              dilationRateX:number(window.dilation.w)
                                                              dilationRateY:number(window.dilation.h)
                                                            strideInPixelsX:stride_x
                                                            strideInPixelsY:stride_y];
  } else {
    kernel = [kernel initWithDevice:device
                        kernelWidth:width
                       kernelHeight:height
                    strideInPixelsX:stride_x
                    strideInPixelsY:stride_y];
  }
  made.kernel = Ref<MPSKernel *>::adopt(kernel);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  if (row.is_own("edge_mode")) made.attributes["edge_mode"] = std::string("clamp");
  if (!row.is_own("zero_pad_size")) return made;

  // With a clamped edge, the average counts the source's pixels and zeroPadSize zeros around it.
  auto *average = static_cast<MPSCNNPoolingAverage *>(kernel);
  Pair zeros = pair(params, "zero_pad_size", {0, 0});
  if (has(params, "count_include_pad")) {
    check(!has(params, "edge_mode") && !has(params, "zero_pad_size"), row.name,
          ": count_include_pad excludes edge_mode and zero_pad_size, which it stands for.");
    const bool include = boolean(params, "count_include_pad", true);
    const Padding &around = made.padding;
    check(!include ||
              (around.kind == Padding::Kind::pixels && around.top == around.bottom && around.left == around.right),
          row.name, ": count_include_pad (True) needs padding in pixels, the same on opposite sides.");
    if (include) zeros = {around.top, around.left};
    made.attributes["edge_mode"] = std::string("clamp");
  }
  average.zeroPadSizeX = number(zeros.w);
  average.zeroPadSizeY = number(zeros.h);
  return made;
}

static FamilyKernel make_pooling_gradient(id<MTLDevice> device, const KernelRow &row, const FamilyKernel &forward,
                                          std::size_t) {
  const Class kind = class_of(row);
  auto *pooling = static_cast<MPSCNNPooling *>(forward.kernel.get());
  FamilyKernel made;
  MPSCNNPoolingGradient *kernel = [kind alloc];
  if ([kernel isKindOfClass:[MPSCNNDilatedPoolingMaxGradient class]]) {
    kernel = [static_cast<MPSCNNDilatedPoolingMaxGradient *>(kernel) initWithDevice:device
                                                                        kernelWidth:pooling.kernelWidth
                                                                       kernelHeight:pooling.kernelHeight
                                                                      dilationRateX:pooling.dilationRateX
                                                                      dilationRateY:pooling.dilationRateY
                                                                    strideInPixelsX:pooling.strideInPixelsX
                                                                    strideInPixelsY:pooling.strideInPixelsY];
  } else {
    kernel = [kernel initWithDevice:device
                        kernelWidth:pooling.kernelWidth
                       kernelHeight:pooling.kernelHeight
                    strideInPixelsX:pooling.strideInPixelsX
                    strideInPixelsY:pooling.strideInPixelsY];
  }
  made.kernel = Ref<MPSKernel *>::adopt(kernel);
  check<std::runtime_error>(static_cast<bool>(made.kernel), row.name, ": the device refused the kernel.");
  if ([kernel isKindOfClass:[MPSCNNPoolingAverageGradient class]]) {
    auto *average = static_cast<MPSCNNPoolingAverage *>(pooling);
    static_cast<MPSCNNPoolingAverageGradient *>(kernel).zeroPadSizeX = average.zeroPadSizeX;
    static_cast<MPSCNNPoolingAverageGradient *>(kernel).zeroPadSizeY = average.zeroPadSizeY;
  }
  return made;
}

static const RegisteredFamily kPooling("pooling", {.make = &make_pooling});
static const RegisteredFamily kPoolingGradient("pooling_gradient", {.make_gradient = &make_pooling_gradient});

}  // namespace mpscnn

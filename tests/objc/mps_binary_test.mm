// SPDX-License-Identifier: Apache-2.0
// Kernels with two sources: properties, encode forms, states, copies, archives, and what they refuse. Prints
// "N passed, N failed".

#import "mps_test.hh"

namespace {

NSString *const kArgument = NSInvalidArgumentException;

template <class Kernel>
Kernel *archived(Kernel *object) {
  NSData *data = [NSKeyedArchiver archivedDataWithRootObject:object];
  NSError *error = nil;
  id result = [MPSKeyedUnarchiver unarchivedObjectOfClass:[object class] fromData:data device:device error:&error];
  check(result != nil, std::string("an archive of ") + [NSStringFromClass([object class]) UTF8String] + " is read");
  return result;
}

bool is_offset(MPSOffset offset, NSInteger x, NSInteger y, NSInteger z) {
  return offset.x == x && offset.y == y && offset.z == z;
}

void test_defaults() {
  MPSCNNBinaryKernel *kernel = [[[MPSCNNBinaryKernel alloc] initWithDevice:device] autorelease];
  check(is_offset([kernel primaryOffset], 0, 0, 0) && is_offset([kernel secondaryOffset], 0, 0, 0), "offsets are 0");
  check([kernel primarySourceFeatureChannelOffset] == 0 && [kernel secondarySourceFeatureChannelOffset] == 0 &&
            [kernel destinationFeatureChannelOffset] == 0,
        "channel offsets are 0");
  check([kernel primarySourceFeatureChannelMaxCount] == NSUIntegerMax &&
            [kernel secondarySourceFeatureChannelMaxCount] == NSUIntegerMax,
        "all channels are read");
  check([kernel primaryEdgeMode] == MPSImageEdgeModeZero && [kernel secondaryEdgeMode] == MPSImageEdgeModeZero,
        "the edge modes are zero");
  const NSUInteger ones[] = {[kernel primaryKernelWidth],       [kernel primaryKernelHeight],
                             [kernel secondaryKernelWidth],     [kernel secondaryKernelHeight],
                             [kernel primaryStrideInPixelsX],   [kernel primaryStrideInPixelsY],
                             [kernel secondaryStrideInPixelsX], [kernel secondaryStrideInPixelsY],
                             [kernel primaryDilationRateX],     [kernel primaryDilationRateY],
                             [kernel secondaryDilationRateX],   [kernel secondaryDilationRateY]};
  for (NSUInteger one : ones) check(one == 1, "kernel sizes, strides and dilation rates are 1");
  check([kernel clipRect].size.width == MPSRectNoClip.size.width, "clipRect is no clip");
  check(![kernel isBackwards] && ![kernel isStateModified] && ![kernel isResultStateReusedAcrossBatch] &&
            ![kernel appendBatchBarrier],
        "flags of a forward kernel are off");
  check([[kernel padding] paddingMethod] == MPSNNPaddingMethodSizeSame, "the padding policy keeps the size");
  check([kernel destinationImageAllocator] == [MPSTemporaryImage defaultAllocator], "results are temporary images");

  MPSCNNGradientKernel *gradient = [[[MPSCNNGradientKernel alloc] initWithDevice:device] autorelease];
  check([gradient isBackwards] && [gradient kernelOffsetX] == 0 && [gradient kernelOffsetY] == 0,
        "a gradient kernel runs backwards, its kernel offset is 0");
}

void set_everything(MPSCNNBinaryKernel *kernel) {
  [kernel setLabel:@"two sources"];
  [kernel setPrimaryOffset:MPSOffset{1, -2, 3}];
  [kernel setSecondaryOffset:MPSOffset{-4, 5, 6}];
  [kernel setClipRect:MTLRegionMake3D(1, 2, 3, 4, 5, 6)];
  [kernel setDestinationFeatureChannelOffset:8];
  [kernel setPrimarySourceFeatureChannelOffset:12];
  [kernel setSecondarySourceFeatureChannelOffset:16];
  [kernel setPrimarySourceFeatureChannelMaxCount:20];
  [kernel setSecondarySourceFeatureChannelMaxCount:24];
  [kernel setPrimaryEdgeMode:MPSImageEdgeModeClamp];
  [kernel setPrimaryStrideInPixelsX:2];
  [kernel setPrimaryStrideInPixelsY:3];
  [kernel setSecondaryStrideInPixelsX:4];
  [kernel setSecondaryStrideInPixelsY:5];
  [kernel setPadding:[MPSNNDefaultPadding paddingWithMethod:MPSNNPaddingMethodSizeFull]];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
}

void check_everything(const std::string &what, MPSCNNBinaryKernel *kernel) {
  check([[kernel label] isEqual:@"two sources"], what + ": label");
  check(is_offset([kernel primaryOffset], 1, -2, 3) && is_offset([kernel secondaryOffset], -4, 5, 6),
        what + ": offsets");
  const MTLRegion clip = [kernel clipRect];
  check(clip.origin.x == 1 && clip.origin.y == 2 && clip.origin.z == 3 && clip.size.width == 4 &&
            clip.size.height == 5 && clip.size.depth == 6,
        what + ": clipRect");
  check([kernel destinationFeatureChannelOffset] == 8 && [kernel primarySourceFeatureChannelOffset] == 12 &&
            [kernel secondarySourceFeatureChannelOffset] == 16 && [kernel primarySourceFeatureChannelMaxCount] == 20 &&
            [kernel secondarySourceFeatureChannelMaxCount] == 24,
        what + ": channels");
  check([kernel primaryEdgeMode] == MPSImageEdgeModeClamp && [kernel secondaryEdgeMode] == MPSImageEdgeModeZero,
        what + ": edge modes");
  check([kernel primaryStrideInPixelsX] == 2 && [kernel primaryStrideInPixelsY] == 3 &&
            [kernel secondaryStrideInPixelsX] == 4 && [kernel secondaryStrideInPixelsY] == 5,
        what + ": strides");
  check([[kernel padding] paddingMethod] == MPSNNPaddingMethodSizeFull, what + ": padding");
  check([(id)[kernel destinationImageAllocator] class] == [(id)[MPSImage defaultAllocator] class], what + ": allocator");
}

void test_properties_are_kept() {
  MPSCNNGradientKernel *kernel = [[[MPSCNNGradientKernel alloc] initWithDevice:device] autorelease];
  set_everything(kernel);
  [kernel setKernelOffsetX:7];
  [kernel setKernelOffsetY:-9];
  MPSCNNGradientKernel *copy = [[kernel copyWithZone:NULL device:device] autorelease];
  [kernel setKernelOffsetX:0];
  check_everything("the kernel", kernel);
  check_everything("its copy", copy);
  check([copy kernelOffsetX] == 7 && [copy kernelOffsetY] == -9, "a copy is independent");

  NSData *data = [NSKeyedArchiver archivedDataWithRootObject:copy];
  check([[copy class] supportsSecureCoding] && [data length] > 0, "kernels can be archived");
  MPSCNNGradientKernel *read = archived(copy);
  check_everything("what its archive gives", read);
  check([read kernelOffsetX] == 7 && [read kernelOffsetY] == -9, "kernel offsets are archived");
}

void test_base_classes_cannot_be_encoded() {
  MPSCNNBinaryKernel *kernel = [[[MPSCNNBinaryKernel alloc] initWithDevice:device] autorelease];
  MPSImage *image = make_nan_image(1, 2, 2, 4), *result = make_nan_image(1, 2, 2, 4);
  check_raises("MPSCNNBinaryKernel", kArgument, "cannot be encoded", [&] {
    [kernel encodeToCommandBuffer:command_buffer() primaryImage:image secondaryImage:image destinationImage:result];
  });
  check([kernel resultStateForPrimaryImage:image secondaryImage:image sourceStates:nil destinationImage:result] == nil,
        "MPSCNNBinaryKernel leaves no state");
}

}  // namespace

int main() { return run_tests({test_defaults, test_properties_are_kept, test_base_classes_cannot_be_encoded}); }

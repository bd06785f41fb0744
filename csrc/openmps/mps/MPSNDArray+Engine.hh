// SPDX-License-Identifier: Apache-2.0
// State of arrays of up to 16 dimensions and of their descriptors. Dimension 0 varies fastest [MPSNDArray.h].
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include <array>

#include "engine/problem/copy.hpp"
#import "metal/OnEngine.hh"

namespace openmps {

/// Max number of dimensions [MPSNDArray.h].
inline constexpr NSUInteger kMaxDimensions = 16;

template <class T>
using PerDimension = std::array<T, kMaxDimensions>;

/// A dimension of a descriptor: a slice of dimension `source` of the array that it is applied to.
struct ArrayDimension {
  NSUInteger length = 1;
  MPSDimensionSlice slice = {0, 1};
  std::uint8_t source = 0;
};

/// State of an MPSNDArrayDescriptor. Dimensions are in the order after all transposes so far.
struct ArrayShape {
  MPSDataType type = MPSDataTypeInvalid;
  NSUInteger count = 0;  ///< of dimensions; those beyond have length 1
  PerDimension<ArrayDimension> dimensions;
  bool packs_rows = false;

  ArrayShape();
  /// Start anew with dimensions of these lengths. Raise for a length of 0, or too many elements.
  void reshape(NSUInteger count, const NSUInteger *lengths);
};

/// Elements in memory. Strides in bytes.
struct ArrayLayout {
  MPSDataType type = MPSDataTypeInvalid;
  NSUInteger count = 0;
  PerDimension<NSUInteger> lengths;
  PerDimension<std::int64_t> strides;
  std::int64_t offset = 0;  ///< bytes, of the element with all indices 0

  ArrayLayout();
  NSUInteger size() const;  ///< elements
  bool has_packed_rows() const;
};

/// State of an MPSNDArray.
struct ArrayState {
  Ref<id<OpenMPSDevice>> device;
  ArrayLayout layout;
  Ref<id<OpenMPSBuffer>> buffer;                             ///< none once a temporary's readCount is 0
  bool is_of_program = false;                                ///< the buffer
  std::shared_ptr<Usage> usage = std::make_shared<Usage>();  ///< shared with views
  Ref<MPSNDArray *> parent;
  Label label;
  // Only of temporaries:
  std::shared_ptr<Temporary> temporary;
  std::shared_ptr<TemporaryScope> scope;
};

/// Return the type of elements; raise for types that are not of whole bytes.
ElementType element_type(const char *who, MPSDataType type);

/// Raise for complex numbers to or from another type.
void check_conversion(MPSDataType from, MPSDataType to);

/// Return the layout of a new array: rows of a multiple of 16 bytes, or packed ones.
ArrayLayout new_layout(const ArrayShape &shape);
/// Return the layout of a view of an array, or nullopt if its elements have no strides (a reshape of a transposed or
/// padded array). Raise if the descriptor has another number of elements.
std::optional<ArrayLayout> view_layout(const ArrayLayout &of, const ArrayShape &shape);
/// Return a descriptor's values for the layout.
ArrayShape shape_of(const ArrayLayout &layout);

/// Range of bytes from the first to the end of the last element in memory, relative to the first element of all.
struct ByteRange {
  std::int64_t begin = 0, end = 0;
};
/// Raise if the range does not fit in 63 bits.
ByteRange range_of(const char *who, const ArrayLayout &layout);

/// "MPSNDArray 'label' (2 x 3 x 4)": class, label, lengths, the slowest dimension first.
NSString *describe(MPSNDArray *array);

/// Raise unless the array may be used on the command buffer; return its recorder.
Recorder &recorder_for(MPSNDArray *array, id<MTLCommandBuffer> buffer);
/// Return the memory; raise if a temporary's has been recycled.
const std::shared_ptr<Memory> &memory_of(MPSNDArray *array);
/// Return a copy of all elements, converted from one layout to the other. Both have the same lengths.
StridedCopyProblem copy_problem(const std::shared_ptr<Memory> &src, const ArrayLayout &src_layout,
                                const std::shared_ptr<Memory> &dst, const ArrayLayout &dst_layout);

/// Return a new array with a copy of the elements, encoded on the command buffer.
MPSNDArray *copy_of(MPSNDArray *array, id<MTLCommandBuffer> buffer, const ArrayShape &shape,
                    MPSAliasingStrategy aliasing);

/// Implement -readBytes:strideBytes: and -writeBytes:strideBytes:; `bytes` is only written if `to_array` is false.
void transfer(MPSNDArray *array, void *bytes, const NSInteger *strides, bool to_array);
/// Implement -exportDataWithCommandBuffer:toBuffer:... and the import.
void encode_transfer(MPSNDArray *array, id<MTLCommandBuffer> commands, id<MTLBuffer> buffer, MPSDataType type,
                     NSUInteger offset, const NSInteger *row_strides, bool to_array);
/// Implement -exportDataWithCommandBuffer:toImages:offset: and the import.
void encode_transfer(MPSNDArray *array, id<MTLCommandBuffer> commands, MPSImageBatch *images, MPSImageCoordinate offset,
                     bool to_array);

}  // namespace openmps

/// Base of the two allocators: one shared object without properties, archived as its class only.
@interface MPSNDArrayAllocatorOnEngine : NSObject <MPSNDArrayAllocator>
@end

@interface MPSNDArrayDescriptor (Engine)
- (openmps::ArrayShape &)openmps_shape;
/// Return an autoreleased descriptor.
+ (instancetype)openmps_descriptorWithShape:(const openmps::ArrayShape &)shape;
@end

@interface MPSNDArray (Engine)
- (openmps::ArrayState &)openmps_state;
/// The designated initialiser: takes `state`.
- (instancetype)openmps_initWithState:(openmps::ArrayState *)state;
/// Return an autoreleased view of the receiver's memory: temporary if the receiver is.
- (MPSNDArray *)openmps_viewWithLayout:(const openmps::ArrayLayout &)layout;
/// Decrement a temporary's readCount; recycle its storage at 0. No-op for other arrays.
- (void)openmps_didRead;
@end

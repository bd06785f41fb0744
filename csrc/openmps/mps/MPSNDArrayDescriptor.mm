// SPDX-License-Identifier: Apache-2.0
// Description of an array, or of a view of one: type, lengths, slices and transposes [MPSNDArray.h].

#import "mps/MPSNDArray+Engine.hh"

#include <algorithm>
#include <cstdarg>

using openmps::ArrayDimension;
using openmps::ArrayShape;
using openmps::kMaxDimensions;

namespace openmps {

namespace {

constexpr NSUInteger kMaxElements = (NSUInteger{1} << 31) - 1;  // [MPSNDArray.h]

void check_count(NSUInteger count) {
  if (count > kMaxDimensions)
    raise_argument(@"MPSNDArrayDescriptor: numberOfDimensions (%lu) is more than the maximum (%lu).",
                   (unsigned long)count, (unsigned long)kMaxDimensions);
}

void check_index(const ArrayShape &shape, NSUInteger index) {
  if (index >= shape.count)
    raise_argument(@"MPSNDArrayDescriptor: dimensionIndex (%lu) is not less than numberOfDimensions (%lu).",
                   (unsigned long)index, (unsigned long)shape.count);
}

}  // namespace

ArrayShape::ArrayShape() {
  for (NSUInteger i = 0; i < kMaxDimensions; ++i) dimensions[i].source = static_cast<std::uint8_t>(i);
}

void ArrayShape::reshape(NSUInteger new_count, const NSUInteger *lengths) {
  check_count(new_count);
  if (lengths == nullptr && new_count > 0) raise_argument(@"MPSNDArrayDescriptor: dimensionSizes is NULL.");
  std::uint64_t elements = 1;
  for (NSUInteger i = 0; i < new_count; ++i) {
    if (lengths[i] == 0)
      raise_argument(@"MPSNDArrayDescriptor: the length of dimension %lu (0) is less than the minimum (1).",
                     (unsigned long)i);
    const auto product_so_far = product({elements, lengths[i]});
    if (!product_so_far || *product_so_far > kMaxElements)
      raise_argument(@"MPSNDArrayDescriptor: the product of the lengths, with %lu of dimension %lu, is more than the "
                     @"maximum (%lu).",
                     (unsigned long)lengths[i], (unsigned long)i, (unsigned long)kMaxElements);
    elements = *product_so_far;
  }
  dimensions = ArrayShape().dimensions;
  count = new_count;
  for (NSUInteger i = 0; i < count; ++i) dimensions[i].length = dimensions[i].slice.length = lengths[i];
}

}  // namespace openmps

/// Return the numbers, the last one first.
static std::vector<NSUInteger> reversed(NSArray<NSNumber *> *shape, const char *name) {
  if (shape == nil) openmps::raise_argument(@"MPSNDArrayDescriptor: %s is nil.", name);
  std::vector<NSUInteger> lengths;
  for (NSNumber *length in shape) lengths.push_back([length unsignedIntegerValue]);
  std::reverse(lengths.begin(), lengths.end());
  return lengths;
}

@implementation MPSNDArrayDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (ArrayShape &)openmps_shape {
  return *static_cast<ArrayShape *>(_openmps);
}

- (instancetype)openmps_init {
  if ((self = [super init])) _openmps = new ArrayShape;
  return self;
}

- (instancetype)init {
  const openmps::UnwindRelease half(self);
  openmps::raise_unavailable(self, _cmd, "+descriptorWithDataType:shape:");
}

- (void)dealloc {
  delete static_cast<ArrayShape *>(_openmps);
  [super dealloc];
}

+ (instancetype)openmps_descriptorWithShape:(const ArrayShape &)shape {
  MPSNDArrayDescriptor *descriptor = [[[self alloc] openmps_init] autorelease];
  [descriptor openmps_shape] = shape;
  return descriptor;
}

+ (instancetype)descriptorWithDataType:(MPSDataType)dataType
                        dimensionCount:(NSUInteger)numberOfDimensions
                        dimensionSizes:(NSUInteger *)dimensionSizes {
  ArrayShape shape;
  openmps::element_type("MPSNDArrayDescriptor", dataType);
  shape.type = dataType;
  shape.reshape(numberOfDimensions, dimensionSizes);
  return [self openmps_descriptorWithShape:shape];
}

+ (instancetype)descriptorWithDataType:(MPSDataType)dataType shape:(NSArray<NSNumber *> *)shape {
  auto lengths = reversed(shape, "shape");
  return [self descriptorWithDataType:dataType dimensionCount:lengths.size() dimensionSizes:lengths.data()];
}

+ (instancetype)descriptorWithDataType:(MPSDataType)dataType dimensionSizes:(NSUInteger)dimension0, ... {
  std::vector<NSUInteger> lengths;
  va_list list;
  va_start(list, dimension0);
  for (NSUInteger length = dimension0; length != 0 && lengths.size() <= kMaxDimensions;
       length = va_arg(list, NSUInteger))
    lengths.push_back(length);
  va_end(list);
  return [self descriptorWithDataType:dataType dimensionCount:lengths.size() dimensionSizes:lengths.data()];
}

- (MPSDataType)dataType {
  return [self openmps_shape].type;
}

- (void)setDataType:(MPSDataType)dataType {
  openmps::element_type("MPSNDArrayDescriptor", dataType);
  [self openmps_shape].type = dataType;
}

- (NSUInteger)numberOfDimensions {
  return [self openmps_shape].count;
}

- (void)setNumberOfDimensions:(NSUInteger)numberOfDimensions {
  ArrayShape &shape = [self openmps_shape];
  openmps::check_count(numberOfDimensions);
  for (NSUInteger i = numberOfDimensions; i < shape.count; ++i)
    if (shape.dimensions[i].length != 1)
      openmps::raise_argument(@"MPSNDArrayDescriptor: numberOfDimensions (%lu) drops dimension %lu, whose length (%lu) "
                              @"is not 1.",
                              (unsigned long)numberOfDimensions, (unsigned long)i,
                              (unsigned long)shape.dimensions[i].length);
  shape.count = numberOfDimensions;
}

- (BOOL)preferPackedRows {
  return [self openmps_shape].packs_rows;
}

- (void)setPreferPackedRows:(BOOL)preferPackedRows {
  [self openmps_shape].packs_rows = preferPackedRows;
}

- (NSUInteger)lengthOfDimension:(NSUInteger)dimensionIndex {
  const ArrayShape &shape = [self openmps_shape];
  return dimensionIndex < shape.count ? shape.dimensions[dimensionIndex].length : 1;
}

- (MPSDimensionSlice)sliceRangeForDimension:(NSUInteger)dimensionIndex {
  const ArrayShape &shape = [self openmps_shape];
  return dimensionIndex < shape.count ? shape.dimensions[dimensionIndex].slice : MPSDimensionSlice{0, 1};
}

- (void)sliceDimension:(NSUInteger)dimensionIndex withSubrange:(MPSDimensionSlice)subRange {
  ArrayShape &shape = [self openmps_shape];
  openmps::check_index(shape, dimensionIndex);
  ArrayDimension &dimension = shape.dimensions[dimensionIndex];
  if (subRange.length == 0)
    openmps::raise_argument(@"MPSNDArrayDescriptor: subRange.length (0) of dimension %lu is less than the minimum (1).",
                            (unsigned long)dimensionIndex);
  if (subRange.start > dimension.length || subRange.length > dimension.length - subRange.start)
    openmps::raise_argument(@"MPSNDArrayDescriptor: subRange (%lu, %lu) of dimension %lu ends beyond its length (%lu).",
                            (unsigned long)subRange.start, (unsigned long)subRange.length,
                            (unsigned long)dimensionIndex, (unsigned long)dimension.length);
  dimension.slice = subRange;
}

- (void)transposeDimension:(NSUInteger)dimensionIndex withDimension:(NSUInteger)dimensionIndex2 {
  ArrayShape &shape = [self openmps_shape];
  openmps::check_index(shape, dimensionIndex);
  openmps::check_index(shape, dimensionIndex2);
  std::swap(shape.dimensions[dimensionIndex], shape.dimensions[dimensionIndex2]);
}

- (void)permuteWithDimensionOrder:(NSUInteger *)dimensionOrder {
  ArrayShape &shape = [self openmps_shape];
  if (dimensionOrder == nullptr) openmps::raise_argument(@"MPSNDArrayDescriptor: dimensionOrder is NULL.");
  const auto before = shape.dimensions;
  openmps::PerDimension<bool> is_taken{};
  for (NSUInteger i = 0; i < shape.count; ++i) {
    openmps::check_index(shape, dimensionOrder[i]);
    if (std::exchange(is_taken[dimensionOrder[i]], true))
      openmps::raise_argument(@"MPSNDArrayDescriptor: dimensionOrder has dimension %lu twice.",
                              (unsigned long)dimensionOrder[i]);
  }
  for (NSUInteger i = 0; i < shape.count; ++i) shape.dimensions[i] = before[dimensionOrder[i]];
}

- (vector_uchar16)dimensionOrder {
  const ArrayShape &shape = [self openmps_shape];
  vector_uchar16 order;
  for (NSUInteger i = 0; i < kMaxDimensions; ++i) order[i] = shape.dimensions[i].source;
  return order;
}

- (NSArray<NSNumber *> *)getShape {
  const ArrayShape &shape = [self openmps_shape];
  NSMutableArray *lengths = [NSMutableArray arrayWithCapacity:shape.count];
  for (NSUInteger i = shape.count; i-- > 0;)
    [lengths addObject:[NSNumber numberWithUnsignedInteger:shape.dimensions[i].slice.length]];
  return lengths;
}

- (void)reshapeWithDimensionCount:(NSUInteger)numberOfDimensions dimensionSizes:(NSUInteger *)dimensionSizes {
  [self openmps_shape].reshape(numberOfDimensions, dimensionSizes);
}

- (void)reshapeWithShape:(NSArray<NSNumber *> *)shape {
  const auto lengths = reversed(shape, "shape");
  [self openmps_shape].reshape(lengths.size(), lengths.data());
}

@end

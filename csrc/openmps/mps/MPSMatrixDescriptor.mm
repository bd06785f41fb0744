// SPDX-License-Identifier: Apache-2.0
// Description of a matrix or a vector: extents, strides, type [MPSMatrix.h]. Values are checked when one is made.

#import "mps/MPSMatrixDescriptor+Engine.hh"

using openmps::RowLayout;

static RowLayout &layout_of(void *pointer) { return *static_cast<RowLayout *>(pointer); }

@implementation MPSMatrixDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new RowLayout;
  return self;
}

- (void)dealloc {
  delete static_cast<RowLayout *>(_openmps);
  [super dealloc];
}

+ (instancetype)matrixDescriptorWithDimensions:(NSUInteger)rows
                                       columns:(NSUInteger)columns
                                      rowBytes:(NSUInteger)rowBytes
                                      dataType:(MPSDataType)dataType {
  return [self matrixDescriptorWithRows:rows columns:columns rowBytes:rowBytes dataType:dataType];
}

+ (instancetype)matrixDescriptorWithRows:(NSUInteger)rows
                                 columns:(NSUInteger)columns
                                rowBytes:(NSUInteger)rowBytes
                                dataType:(MPSDataType)dataType {
  return [self matrixDescriptorWithRows:rows
                                columns:columns
                               matrices:1
                               rowBytes:rowBytes
                            matrixBytes:rows * rowBytes
                               dataType:dataType];
}

+ (instancetype)matrixDescriptorWithRows:(NSUInteger)rows
                                 columns:(NSUInteger)columns
                                matrices:(NSUInteger)matrices
                                rowBytes:(NSUInteger)rowBytes
                             matrixBytes:(NSUInteger)matrixBytes
                                dataType:(MPSDataType)dataType {
  MPSMatrixDescriptor *descriptor = [[[self alloc] init] autorelease];
  layout_of(descriptor->_openmps) = {matrices, rows, columns, matrixBytes, rowBytes, dataType};
  return descriptor;
}

+ (size_t)rowBytesFromColumns:(NSUInteger)columns dataType:(MPSDataType)dataType {
  return [self rowBytesForColumns:columns dataType:dataType];
}

+ (size_t)rowBytesForColumns:(NSUInteger)columns dataType:(MPSDataType)dataType {
  return openmps::recommended_bytes("MPSMatrixDescriptor", columns, dataType);
}

- (NSUInteger)rows {
  return layout_of(_openmps).rows;
}

- (NSUInteger)columns {
  return layout_of(_openmps).columns;
}

- (NSUInteger)matrices {
  return layout_of(_openmps).matrices;
}

- (MPSDataType)dataType {
  return layout_of(_openmps).type;
}

- (NSUInteger)rowBytes {
  return layout_of(_openmps).row_bytes;
}

- (NSUInteger)matrixBytes {
  return layout_of(_openmps).matrix_bytes;
}

/// Derive matrixBytes of a single matrix; the stride between several is the caller's.
- (void)openmps_fitMatrixBytes {
  RowLayout &layout = layout_of(_openmps);
  if (layout.matrices == 1) layout.matrix_bytes = layout.rows * layout.row_bytes;
}

- (void)setRows:(NSUInteger)rows {
  layout_of(_openmps).rows = rows;
  [self openmps_fitMatrixBytes];
}

- (void)setColumns:(NSUInteger)columns {
  layout_of(_openmps).columns = columns;
}

- (void)setDataType:(MPSDataType)dataType {
  layout_of(_openmps).type = dataType;
}

- (void)setRowBytes:(NSUInteger)rowBytes {
  layout_of(_openmps).row_bytes = rowBytes;
  [self openmps_fitMatrixBytes];
}

- (const RowLayout &)openmps_layout {
  return layout_of(_openmps);
}

@end

@implementation MPSVectorDescriptor

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new RowLayout{.rows = 1};
  return self;
}

- (void)dealloc {
  delete static_cast<RowLayout *>(_openmps);
  [super dealloc];
}

+ (instancetype)vectorDescriptorWithLength:(NSUInteger)length dataType:(MPSDataType)dataType {
  return [self vectorDescriptorWithLength:length
                                  vectors:1
                              vectorBytes:length * openmps::element_size(dataType)
                                 dataType:dataType];
}

+ (instancetype)vectorDescriptorWithLength:(NSUInteger)length
                                   vectors:(NSUInteger)vectors
                               vectorBytes:(NSUInteger)vectorBytes
                                  dataType:(MPSDataType)dataType {
  MPSVectorDescriptor *descriptor = [[[self alloc] init] autorelease];
  layout_of(descriptor->_openmps) = {1, vectors, length, 0, vectorBytes, dataType};
  return descriptor;
}

+ (size_t)vectorBytesForLength:(NSUInteger)length dataType:(MPSDataType)dataType {
  return openmps::recommended_bytes("MPSVectorDescriptor", length, dataType);
}

- (NSUInteger)length {
  return layout_of(_openmps).columns;
}

- (NSUInteger)vectors {
  return layout_of(_openmps).rows;
}

- (MPSDataType)dataType {
  return layout_of(_openmps).type;
}

- (NSUInteger)vectorBytes {
  return layout_of(_openmps).row_bytes;
}

/// Derive vectorBytes of a single vector; the stride between several is the caller's.
- (void)openmps_fitVectorBytes {
  RowLayout &layout = layout_of(_openmps);
  if (layout.rows == 1) layout.row_bytes = layout.columns * openmps::element_size(layout.type);
}

- (void)setLength:(NSUInteger)length {
  layout_of(_openmps).columns = length;
  [self openmps_fitVectorBytes];
}

- (void)setDataType:(MPSDataType)dataType {
  layout_of(_openmps).type = dataType;
  [self openmps_fitVectorBytes];
}

- (const RowLayout &)openmps_layout {
  return layout_of(_openmps);
}

@end

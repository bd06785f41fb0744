// SPDX-License-Identifier: Apache-2.0
// Kernels on matrices and vectors: properties, sizes, temporaries, random values and refused calls. Values of products
// are in tests/rows/objc_matrices.py. Prints "N passed, N failed".

#import "mps_test.hh"

#include <algorithm>
#include <numeric>
#include <set>

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

namespace {

MPSMatrixDescriptor *described(NSUInteger rows, NSUInteger columns, MPSDataType type = MPSDataTypeFloat32,
                               NSUInteger matrices = 1) {
  const NSUInteger row_bytes = (columns + 1) * 4;
  return [MPSMatrixDescriptor matrixDescriptorWithRows:rows
                                               columns:columns
                                              matrices:matrices
                                              rowBytes:row_bytes
                                           matrixBytes:rows * row_bytes
                                              dataType:type];
}

MPSMatrix *make_matrix(NSUInteger rows, NSUInteger columns, MPSDataType type = MPSDataTypeFloat32,
                       NSUInteger matrices = 1) {
  return [[[MPSMatrix alloc] initWithDevice:device descriptor:described(rows, columns, type, matrices)] autorelease];
}

MPSVector *make_vector(NSUInteger length, MPSDataType type = MPSDataTypeFloat32) {
  return [[[MPSVector alloc] initWithDevice:device
                                 descriptor:[MPSVectorDescriptor vectorDescriptorWithLength:length
                                                                                   dataType:type]] autorelease];
}

template <class T>
std::vector<T> values_of(MPSMatrix *matrix) {
  std::vector<T> all;
  const char *first = static_cast<const char *>([[matrix data] contents]);
  for (NSUInteger row = 0; row < [matrix matrices] * [matrix rows]; ++row) {
    const T *values = reinterpret_cast<const T *>(first + row * [matrix rowBytes]);
    all.insert(all.end(), values, values + [matrix columns]);
  }
  return all;
}

template <class T>
std::vector<T> values_of(MPSVector *vector) {
  const T *first = static_cast<const T *>([[vector data] contents]);
  return std::vector<T>(first, first + [vector length]);
}

// ------------------------------------------------------------------------------------------------- products

MPSMatrixMultiplication *product(NSUInteger rows, NSUInteger columns, NSUInteger terms) {
  return [[[MPSMatrixMultiplication alloc] initWithDevice:device
                                               resultRows:rows
                                            resultColumns:columns
                                          interiorColumns:terms] autorelease];
}

void test_product() {
  MPSMatrixMultiplication *kernel = product(3, 4, 5);
  check([kernel batchStart] == 0 && [kernel batchSize] >= 1000 && [kernel leftMatrixOrigin].x == 0, "defaults");
  MPSMatrix *a = make_matrix(3, 5), *b = make_matrix(5, 4), *c = make_matrix(3, 4);
  const auto encode = [&](MPSMatrix *left, MPSMatrix *right, MPSMatrix *result) {
    [kernel encodeToCommandBuffer:command_buffer() leftMatrix:left rightMatrix:right resultMatrix:result];
  };
  const auto refused = [&](const char *part, MPSMatrix *left, MPSMatrix *right, MPSMatrix *result) {
    check_raises(part, kArgument, part, [&] { encode(left, right, result); });
  };
  refused("leftMatrix is nil", nil, b, c);
  refused("uses 3 x 5 values (rows x columns) of leftMatrix from leftMatrixOrigin (0, 0) on, and it has 3 x 4", c, b,
          c);
  refused("rightMatrix.dataType (0x20)", a, make_matrix(5, 4, MPSDataTypeUInt32), c);
  MPSMatrix *square = make_matrix(5, 5);
  refused("leftMatrix and resultMatrix share memory", square, b, square);
  [kernel setResultMatrixOrigin:{1, 0, 0}];
  refused("uses 3 x 4 values (rows x columns) of resultMatrix from resultMatrixOrigin (1, 0) on", a, b, c);
  [kernel setResultMatrixOrigin:{0, 0, 1}];
  refused("resultMatrixOrigin.z is not 0", a, b, c);
  [kernel setResultMatrixOrigin:{0, 0, 0}];
  [kernel setBatchStart:1];
  refused("batchStart (1) is not less than the 1 matrices of leftMatrix", a, b, c);
  [kernel setBatchStart:0];
  [kernel setBatchSize:0];
  refused("batchSize (0) is less than 1", a, b, c);
  check_raises("no rows", kArgument, "resultRows (0) is not between 1 and", [] { product(0, 1, 1); });
  check_raises("without sizes", kArgument, "is unavailable",
               [] { [(id)[MPSMatrixMultiplication alloc] initWithDevice:device]; });
}

/// Each source is read once per encode, also if it is both sources.
void test_temporaries() {
  id<MTLCommandBuffer> buffer = command_buffer();
  MPSTemporaryMatrix *square = [MPSTemporaryMatrix temporaryMatrixWithCommandBuffer:buffer
                                                                   matrixDescriptor:described(4, 4)];
  MPSMatrixRandomPhilox *random = [[[MPSMatrixRandomPhilox alloc] initWithDevice:device
                                                             destinationDataType:MPSDataTypeFloat32
                                                                            seed:5] autorelease];
  [random encodeToCommandBuffer:buffer destinationMatrix:square];
  check([square readCount] == 1, "writing does not count");
  MPSMatrix *result = make_matrix(4, 4);
  [product(4, 4, 4) encodeToCommandBuffer:buffer leftMatrix:square rightMatrix:square resultMatrix:result];
  check([square readCount] == 0, "one encode reads it once");
  run(buffer);
  const auto values = values_of<float>(result);
  check(*std::min_element(values.begin(), values.end()) > 0, "a square of positive values");
}

void test_vector_product() {
  check_raises("without sizes", kArgument, "is unavailable",
               [] { [(id)[MPSMatrixVectorMultiplication alloc] initWithDevice:device]; });
  MPSMatrixVectorMultiplication *kernel = [[[MPSMatrixVectorMultiplication alloc] initWithDevice:device
                                                                                            rows:3
                                                                                         columns:5] autorelease];
  check([kernel isKindOfClass:[MPSMatrixBinaryKernel class]] && [kernel primarySourceMatrixOrigin].y == 0, "origins");
  [kernel setSecondarySourceMatrixOrigin:{0, 1, 0}];
  check_raises("a column of a vector", kArgument, "secondarySourceMatrixOrigin.y is not 0", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                      inputMatrix:make_matrix(3, 5)
                      inputVector:make_vector(5)
                     resultVector:make_vector(3)];
  });
  [kernel setSecondarySourceMatrixOrigin:{1, 0, 0}];
  check_raises("a short vector", kArgument, "uses 5 x 1 values (rows x columns) of inputVector", [&] {
    [kernel encodeToCommandBuffer:command_buffer()
                      inputMatrix:make_matrix(3, 5)
                      inputVector:make_vector(5)
                     resultVector:make_vector(3)];
  });
}

// --------------------------------------------------------------------------------------------- random values

using Distribution = MPSMatrixRandomDistributionDescriptor;

template <class Kernel>
Kernel *generator(MPSDataType type, NSUInteger seed, Distribution *distribution) {
  return [[[Kernel alloc] initWithDevice:device destinationDataType:type seed:seed
                  distributionDescriptor:distribution] autorelease];
}

void fill(MPSMatrixRandom *kernel, MPSMatrix *matrix) {
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer destinationMatrix:matrix];
  run(buffer);
}

template <class T>
std::vector<T> drawn(MPSMatrixRandom *kernel, NSUInteger rows = 100, NSUInteger columns = 101) {
  MPSMatrix *matrix = make_matrix(rows, columns, [kernel destinationDataType]);
  fill(kernel, matrix);
  return values_of<T>(matrix);
}

struct Moments {
  double mean = 0, variance = 0, min = 0, max = 0;
};

Moments moments_of(const std::vector<float> &values) {
  const double n = static_cast<double>(values.size());
  Moments m;
  m.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  for (const float value : values) m.variance += (value - m.mean) * (value - m.mean) / n;
  m.min = *std::min_element(values.begin(), values.end());
  m.max = *std::max_element(values.begin(), values.end());
  return m;
}

template <class Kernel>
void test_generator() {
  Kernel *plain = [[[Kernel alloc] initWithDevice:device] autorelease];
  check([plain destinationDataType] == MPSDataTypeUInt32 &&
            [plain distributionType] == MPSMatrixRandomDistributionDefault,
        "32-bit words by default");
  const auto words = drawn<unsigned>(plain);
  check(std::set<unsigned>(words.begin(), words.end()).size() > words.size() - 20, "the words differ");
  for (int bit = 0; bit < 32; ++bit) {
    const auto ones = std::count_if(words.begin(), words.end(), [bit](unsigned word) { return word >> bit & 1; });
    check(std::fabs(static_cast<double>(ones) / static_cast<double>(words.size()) - 0.5) < 0.03, "bits are even");
  }
  // Equal seeds give equal streams, which every encode, and every copy, continues.
  Kernel *a = generator<Kernel>(MPSDataTypeUInt32, 7, [Distribution defaultDistributionDescriptor]);
  Kernel *b = [[[Kernel alloc] initWithDevice:device destinationDataType:MPSDataTypeUInt32 seed:7] autorelease];
  const auto both = drawn<unsigned>(a, 2, 10), first = drawn<unsigned>(b, 1, 10);
  check(std::equal(first.begin(), first.end(), both.begin()), "equal seeds");
  Kernel *twin = archived([[b copy] autorelease]);
  const auto second = drawn<unsigned>(b, 1, 10);
  check(std::equal(second.begin(), second.end(), both.begin() + 10), "the second encode continues");
  check(second == drawn<unsigned>(twin, 1, 10), "an archive of a copy continues, too");
  check(first != drawn<unsigned>(generator<Kernel>(MPSDataTypeUInt32, 8, [Distribution defaultDistributionDescriptor]),
                                 1, 10),
        "another seed");

  const Moments uniform = moments_of(drawn<float>(
      generator<Kernel>(MPSDataTypeFloat32, 1, [Distribution uniformDistributionDescriptorWithMinimum:-2 maximum:6])));
  check(uniform.min >= -2 && uniform.max < 6 && std::fabs(uniform.mean - 2) < 0.1 &&
            std::fabs(uniform.variance - 64.0 / 12) < 0.2,
        "a uniform distribution");
  const Moments unit =
      moments_of(drawn<float>(generator<Kernel>(MPSDataTypeFloat32, 1, [Distribution defaultDistributionDescriptor])));
  check(unit.min >= 0 && unit.max < 1 && std::fabs(unit.mean - 0.5) < 0.02, "floats by default");
  const Moments normal = moments_of(drawn<float>(generator<Kernel>(
      MPSDataTypeFloat32, 1, [Distribution normalDistributionDescriptorWithMean:3 standardDeviation:2])));
  check(std::fabs(normal.mean - 3) < 0.1 && std::fabs(normal.variance - 4) < 0.25 && normal.max > 8, "a normal one");
  const auto truncated = [](float min, float max) {
    return moments_of(drawn<float>(generator<Kernel>(MPSDataTypeFloat32, 1,
                                                     [Distribution normalDistributionDescriptorWithMean:0
                                                                                      standardDeviation:1
                                                                                                minimum:min
                                                                                                maximum:max])));
  };
  const Moments half = truncated(0, 50), tail = truncated(10, 11), other = truncated(-11, -10);
  check(half.min >= 0 && std::fabs(half.mean - 0.7979) < 0.03, "half of a normal distribution");
  check(tail.min >= 10 && tail.max <= 11 && std::fabs(tail.mean - 10.098) < 0.01, "ten deviations away");
  check(other.max <= -10 && std::fabs(other.mean + tail.mean) < 0.01, "on the other side");

  const auto refused = [](const char *part, MPSDataType type, Distribution *distribution) {
    check_raises(part, kArgument, part, [&] { generator<Kernel>(type, 0, distribution); });
  };
  refused("distributionDescriptor is nil", MPSDataTypeFloat32, nil);
  refused("destinationDataType (0x10000010)", MPSDataTypeFloat16, [Distribution defaultDistributionDescriptor]);
  refused("is one of floating-point values", MPSDataTypeUInt32,
          [Distribution uniformDistributionDescriptorWithMinimum:0 maximum:1]);
  refused("minimum (2) is greater than maximum (1)", MPSDataTypeFloat32,
          [Distribution uniformDistributionDescriptorWithMinimum:2 maximum:1]);
  refused("standardDeviation (-1)", MPSDataTypeFloat32,
          [Distribution normalDistributionDescriptorWithMean:0 standardDeviation:-1]);
  check_raises("no values there", kArgument, "too many times the standardDeviation", [&] { truncated(100, 101); });
  check_raises("a matrix of another type", kArgument, "dataType (0x10000020) is not destinationDataType (0x20)",
               [&] { fill(plain, make_matrix(2, 2)); });
}

void test_random() {
  Distribution *descriptor = [Distribution normalDistributionDescriptorWithMean:1 standardDeviation:2];
  Distribution *copy = [[descriptor copy] autorelease];
  check([copy distributionType] == MPSMatrixRandomDistributionNormal && [copy mean] == 1 &&
            [copy standardDeviation] == 2 && [copy minimum] < -3e38f,
        "a copy of a distribution");
  [copy setMean:5];
  check([descriptor mean] == 1 && [copy mean] == 5, "which is a distribution of its own");
  test_generator<MPSMatrixRandomPhilox>();
  test_generator<MPSMatrixRandomMTGP32>();
  // Vectors, and a part of several matrices; the rest stays as it is.
  MPSMatrixRandomPhilox *kernel = [[[MPSMatrixRandomPhilox alloc] initWithDevice:device] autorelease];
  MPSVector *vector = make_vector(20, MPSDataTypeUInt32);
  id<MTLCommandBuffer> buffer = command_buffer();
  [kernel encodeToCommandBuffer:buffer destinationVector:vector];
  run(buffer);
  const auto words = values_of<unsigned>(vector);
  // The first block of Philox4x32-10 with key 0 and counter 0 [Random123, kat_vectors].
  check(words[0] == 0x6627e8d5u && words[1] == 0xe169c58du && words[2] == 0xbc57ac4cu && words[3] == 0x9b00dbd8u,
        "known words of Philox");
  [kernel setBatchStart:1];
  [kernel setBatchSize:1];
  MPSMatrix *three = make_matrix(2, 5, MPSDataTypeUInt32, 3);
  fill(kernel, three);
  const auto values = values_of<unsigned>(three);
  check(std::count(values.begin(), values.begin() + 10, 0u) == 10 &&
            std::count(values.begin() + 20, values.end(), 0u) == 10 &&
            std::count(values.begin() + 10, values.begin() + 20, 0u) == 0,
        "one matrix of three");
}

}  // namespace

int main() { return run_tests({test_product, test_temporaries, test_vector_product, test_random}); }

// SPDX-License-Identifier: Apache-2.0
// Random matrices and vectors [MPSMatrixRandom.h]. Philox makes the numbers of both generators: those of
// MPSMatrixRandomMTGP32 are a stream of its own, not those of a Mersenne Twister. Each encode continues the stream.

#import "mps/MPSMatrixKernel+Engine.hh"

#include <cfloat>
#include <cmath>

#include "engine/problem/problem.hpp"

namespace openmps {
namespace {

struct Distribution {
  MPSMatrixRandomDistribution type = MPSMatrixRandomDistributionDefault;
  float min = 0, max = 1, mean = 0, deviation = 1;
};

Distribution &distribution_of(void *pointer) { return *static_cast<Distribution *>(pointer); }

double normal_share(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }

struct RandomState : Extends<RandomState, KernelState> {
  std::uint32_t stream = 0;  ///< fixed by the class
  MPSDataType type = MPSDataTypeUInt32;
  Distribution distribution;
  NSUInteger seed = 0;
  mutable std::uint64_t values = 0;  ///< made so far
  MatrixBatch batch;

  RandomState() = default;
  explicit RandomState(std::uint32_t own) : stream(own) {}

  void check() const {
    if (type != MPSDataTypeUInt32 && type != MPSDataTypeFloat32)
      raise_for(*this, @"destinationDataType (0x%lx) is not MPSDataTypeUInt32 or MPSDataTypeFloat32.",
                (unsigned long)type);
    if (distribution.type < MPSMatrixRandomDistributionDefault || distribution.type > MPSMatrixRandomDistributionNormal)
      raise_for(*this, @"distributionType (%lu) is not one of 1 to 3.", (unsigned long)distribution.type);
    if (type == MPSDataTypeUInt32 && distribution.type != MPSMatrixRandomDistributionDefault)
      raise_for(*this,
                @"distributionType (%lu) is one of floating-point values, and destinationDataType is "
                @"MPSDataTypeUInt32.",
                (unsigned long)distribution.type);
    if (distribution.type == MPSMatrixRandomDistributionDefault) return;
    if (!(distribution.min <= distribution.max))
      raise_for(*this, @"minimum (%g) is greater than maximum (%g).", distribution.min, distribution.max);
    if (distribution.type == MPSMatrixRandomDistributionNormal &&
        !(distribution.deviation >= 0 && std::isfinite(distribution.deviation) && std::isfinite(distribution.mean)))
      raise_for(*this, @"mean (%g) and standardDeviation (%g) are not finite, the latter at least 0.",
                distribution.mean, distribution.deviation);
  }

  /// unverified: floats of the default distribution are uniform in [0, 1).
  RandomStream numbers() const {
    RandomStream numbers;
    numbers.seed = seed, numbers.first = values, numbers.stream = stream;
    if (type == MPSDataTypeUInt32) return numbers;
    numbers.distribution = RandomDistribution::uniform;
    if (distribution.type == MPSMatrixRandomDistributionDefault) return numbers;
    numbers.min = distribution.min, numbers.max = distribution.max;
    if (distribution.type == MPSMatrixRandomDistributionNormal) make_normal(numbers);
    return numbers;
  }

  void make_normal(RandomStream &numbers) const {
    numbers.distribution = RandomDistribution::normal;
    numbers.mean = distribution.mean, numbers.deviation = distribution.deviation;
    if (numbers.deviation == 0) return;
    double low = (static_cast<double>(numbers.min) - numbers.mean) / numbers.deviation;
    double high = (static_cast<double>(numbers.max) - numbers.mean) / numbers.deviation;
    if (low > 0) {  // the other tail, where shares do not round to 1
      std::swap(low, high);
      low = -low, high = -high;
      numbers.deviation = -numbers.deviation;
    }
    numbers.low = normal_share(low), numbers.high = normal_share(high);
    if (!(numbers.high > 0))
      raise_for(*this,
                @"minimum (%g) and maximum (%g) are too many times the standardDeviation (%g) away from the "
                @"mean (%g).",
                numbers.min, numbers.max, distribution.deviation, numbers.mean);
  }

  void archive(Archive &archive) override {
    KernelState::archive(archive);
    archive.field(@"MPSMatrixRandom.destinationDataType", type);
    archive.field(@"MPSMatrixRandom.distributionType", distribution.type);
    archive.field(@"MPSMatrixRandom.minimum", distribution.min);
    archive.field(@"MPSMatrixRandom.maximum", distribution.max);
    archive.field(@"MPSMatrixRandom.mean", distribution.mean);
    archive.field(@"MPSMatrixRandom.standardDeviation", distribution.deviation);
    archive.field(@"MPSMatrixRandom.seed", seed);
    archive.field(@"MPSMatrixRandom.values", values);
    batch.archive(archive);
  }
  void did_read(MPSKernel *kernel) override {
    KernelState::did_read(kernel);
    check();
  }
};

void encode_random(const RandomState &state, id<MTLCommandBuffer> buffer, const MatrixArgument &argument) {
  Recorder &recorder = begin_encode(state, buffer);
  const NSUInteger count = batch_count(state, state.batch, {&argument});
  const RowState &row_state = [argument.object openmps_state];
  const RowLayout &layout = row_state.layout;
  if (layout.type != state.type)
    raise_for(state, @"%s.dataType (0x%lx) is not destinationDataType (0x%lx).", argument.name,
              (unsigned long)layout.type, (unsigned long)state.type);
  const NSUInteger element = element_size(layout.type);
  const NSUInteger matrix_bytes = argument.is_vector ? layout.row_bytes : layout.matrix_bytes;
  RandomProblem problem;
  problem.matrices = static_cast<std::int64_t>(count);
  problem.rows = argument.is_vector ? 1 : static_cast<std::int64_t>(layout.rows);
  problem.columns = static_cast<std::int64_t>(layout.columns);
  problem.dst.memory = [buffer_of(argument.is_vector ? kVectorNames : kMatrixNames, row_state) openmps_memory];
  problem.dst.offset = row_state.offset + state.batch.start * matrix_bytes;
  problem.dst.matrix_stride = static_cast<std::int64_t>(matrix_bytes / element);
  problem.dst.row_stride = static_cast<std::int64_t>(layout.row_bytes / element);
  problem.values = state.numbers();
  const auto made = static_cast<std::uint64_t>(problem.matrices * problem.rows * problem.columns);
  encode_matrices(state, recorder, buffer, {}, argument, std::move(problem));
  state.values += made;
}

id init_random(MPSMatrixRandom *kernel, id<MTLDevice> device, MPSDataType type, NSUInteger seed,
               const Distribution &distribution) {
  if (!(kernel = [kernel openmps_initWithDevice:device])) return nil;
  UnwindRelease unwind(kernel);
  auto &state = state_of<RandomState>(kernel);
  state.type = type;
  state.seed = seed;
  state.distribution = distribution;
  state.check();
  return unwind.done();
}

}  // namespace
}  // namespace openmps

using openmps::Distribution;
using openmps::RandomState;

@interface MPSMatrixRandomDistributionDescriptor (Engine)
- (const Distribution &)openmps_distribution;
@end

static const Distribution &given(const char *who, MPSMatrixRandomDistributionDescriptor *descriptor) {
  if (descriptor == nil) openmps::raise_argument(@"%s: distributionDescriptor is nil.", who);
  return [descriptor openmps_distribution];
}

@implementation MPSMatrixRandomDistributionDescriptor

OPENMPS_UNKNOWN_SELECTORS

static MPSMatrixRandomDistributionDescriptor *make_distribution(const Distribution &distribution) {
  MPSMatrixRandomDistributionDescriptor *descriptor =
      [[[MPSMatrixRandomDistributionDescriptor alloc] init] autorelease];
  openmps::distribution_of(descriptor->_openmps) = distribution;
  return descriptor;
}

- (instancetype)init {
  if ((self = [super init])) _openmps = new Distribution();
  return self;
}

- (void)dealloc {
  delete static_cast<Distribution *>(_openmps);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  MPSMatrixRandomDistributionDescriptor *copy = [[[self class] allocWithZone:zone] init];
  openmps::distribution_of(copy->_openmps) = openmps::distribution_of(_openmps);
  return copy;
}

+ (MPSMatrixRandomDistributionDescriptor *)defaultDistributionDescriptor {
  return make_distribution({});
}

+ (MPSMatrixRandomDistributionDescriptor *)uniformDistributionDescriptorWithMinimum:(float)minimum
                                                                            maximum:(float)maximum {
  return make_distribution({.type = MPSMatrixRandomDistributionUniform, .min = minimum, .max = maximum});
}

+ (MPSMatrixRandomDistributionDescriptor *)normalDistributionDescriptorWithMean:(float)mean
                                                              standardDeviation:(float)standardDeviation {
  return [self normalDistributionDescriptorWithMean:mean
                                  standardDeviation:standardDeviation
                                            minimum:-FLT_MAX
                                            maximum:FLT_MAX];
}

+ (MPSMatrixRandomDistributionDescriptor *)normalDistributionDescriptorWithMean:(float)mean
                                                              standardDeviation:(float)standardDeviation
                                                                        minimum:(float)minimum
                                                                        maximum:(float)maximum {
  return make_distribution({MPSMatrixRandomDistributionNormal, minimum, maximum, mean, standardDeviation});
}

- (const Distribution &)openmps_distribution {
  return openmps::distribution_of(_openmps);
}

#define OPENMPS_DISTRIBUTION_PROPERTY(TYPE, NAME, SETTER, FIELD) \
  -(TYPE)NAME {                                                  \
    return openmps::distribution_of(_openmps).FIELD;             \
  }                                                              \
  -(void)SETTER : (TYPE)value {                                  \
    openmps::distribution_of(_openmps).FIELD = value;            \
  }

OPENMPS_DISTRIBUTION_PROPERTY(MPSMatrixRandomDistribution, distributionType, setDistributionType, type)
OPENMPS_DISTRIBUTION_PROPERTY(float, minimum, setMinimum, min)
OPENMPS_DISTRIBUTION_PROPERTY(float, maximum, setMaximum, max)
OPENMPS_DISTRIBUTION_PROPERTY(float, mean, setMean, mean)
OPENMPS_DISTRIBUTION_PROPERTY(float, standardDeviation, setStandardDeviation, deviation)

@end

@implementation MPSMatrixRandom

+ (openmps::KernelState *)openmps_newState {
  return new RandomState();
}

- (instancetype)initWithDevice:(id<MTLDevice>)device {
  (void)device;
  openmps::UnwindRelease unwind(self);
  openmps::raise_unavailable(self, _cmd, "a subclass (MPSMatrixRandomPhilox or MPSMatrixRandomMTGP32)");
}

OPENMPS_GETTER(RandomState, MPSDataType, destinationDataType, type)
OPENMPS_GETTER(RandomState, MPSMatrixRandomDistribution, distributionType, distribution.type)
OPENMPS_PROPERTY(RandomState, NSUInteger, batchStart, setBatchStart, batch.start)
OPENMPS_PROPERTY(RandomState, NSUInteger, batchSize, setBatchSize, batch.size)

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer destinationVector:(MPSVector *)destinationVector {
  openmps::encode_random(openmps::state_of<RandomState>(self), commandBuffer,
                         {destinationVector, "destinationVector", "", true});
}

- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)commandBuffer destinationMatrix:(MPSMatrix *)destinationMatrix {
  openmps::encode_random(openmps::state_of<RandomState>(self), commandBuffer,
                         {destinationMatrix, "destinationMatrix", ""});
}

@end

// Members of both generators.
#define OPENMPS_GENERATOR(NAME, STREAM)                                                                             \
  +(openmps::KernelState *)openmps_newState {                                                                       \
    return new RandomState(STREAM);                                                                                 \
  }                                                                                                                 \
  -(instancetype)initWithDevice : (id<MTLDevice>)device {                                                           \
    return openmps::init_random(self, device, MPSDataTypeUInt32, 0, {});                                            \
  }                                                                                                                 \
  -(instancetype)initWithDevice : (id<MTLDevice>)device destinationDataType : (MPSDataType)destinationDataType seed \
      : (NSUInteger)seed {                                                                                          \
    return openmps::init_random(self, device, destinationDataType, seed, {});                                       \
  }                                                                                                                 \
  -(instancetype)initWithDevice : (id<MTLDevice>)device destinationDataType : (MPSDataType)destinationDataType seed \
      : (NSUInteger)seed distributionDescriptor : (MPSMatrixRandomDistributionDescriptor *)distributionDescriptor { \
    openmps::UnwindRelease unwind(self);                                                                            \
    const Distribution &distribution = given(NAME, distributionDescriptor);                                         \
    return openmps::init_random(unwind.done(), device, destinationDataType, seed, distribution);                    \
  }                                                                                                                 \
  OPENMPS_INIT_WITH_CODER

@implementation MPSMatrixRandomMTGP32

OPENMPS_GENERATOR("MPSMatrixRandomMTGP32", 1)

/// The state is on the CPU: each encode takes the numbers that follow.
- (void)synchronizeStateOnCommandBuffer:(id<MTLCommandBuffer>)commandBuffer {
  openmps::begin_encode(openmps::state_of<RandomState>(self), commandBuffer);
}

@end

@implementation MPSMatrixRandomPhilox

OPENMPS_GENERATOR("MPSMatrixRandomPhilox", 0)

@end

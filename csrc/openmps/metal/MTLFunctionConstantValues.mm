// SPDX-License-Identifier: Apache-2.0
// Values of function constants [MTLFunctionConstantValues.h].

#import "metal/MTLFunctionConstantValuesOnEngine.hh"

@interface MTLFunctionConstantValues (OpenMPS)
- (void *)openmps_values;
@end

namespace openmps {
namespace {

struct ConstantType {
  MTLDataType first;  ///< of the scalar; vectors of 2, 3 and 4 follow
  const char *name;
  NSUInteger bytes;
};

constexpr ConstantType kConstantTypes[] = {
    {MTLDataTypeFloat, "float", 4}, {MTLDataTypeHalf, "half", 2},   {MTLDataTypeInt, "int", 4},
    {MTLDataTypeUInt, "uint", 4},   {MTLDataTypeShort, "short", 2}, {MTLDataTypeUShort, "ushort", 2},
    {MTLDataTypeChar, "char", 1},   {MTLDataTypeUChar, "uchar", 1}, {MTLDataTypeBool, "bool", 1},
    {MTLDataTypeLong, "long", 8},   {MTLDataTypeULong, "ulong", 8},
};

function::Values &values_in(void *openmps) { return *static_cast<function::Values *>(openmps); }

/// Return the value at `index` of an array of values.
function::Value constant_value(const void *values, MTLDataType type, NSUInteger index) {
  if (values == nullptr) raise_argument(@"MTLFunctionConstantValues: value is NULL.");
  for (const ConstantType &each : kConstantTypes) {
    if (type < each.first || type > each.first + 3) continue;
    const NSUInteger count = type - each.first + 1;
    const NSUInteger stride = (count == 3 ? 4 : count) * each.bytes;
    const auto *bytes = static_cast<const std::uint8_t *>(values) + index * stride;
    function::Value value;
    value.type = count == 1 ? each.name : each.name + std::to_string(count);
    value.bytes.assign(bytes, bytes + count * each.bytes);
    return value;
  }
  raise_argument(@"MTLFunctionConstantValues: type (%lu) is not a scalar or vector of numbers or bool.",
                 (unsigned long)type);
}

}  // namespace

const function::Values &values_of(MTLFunctionConstantValues *values) { return values_in([values openmps_values]); }

}  // namespace openmps

@implementation MTLFunctionConstantValues

OPENMPS_UNKNOWN_SELECTORS

- (instancetype)init {
  if ((self = [super init])) _openmps = new openmps::function::Values;
  return self;
}

- (void)dealloc {
  delete &openmps::values_in(_openmps);
  [super dealloc];
}

- (id)copyWithZone:(NSZone *)zone {
  MTLFunctionConstantValues *copy = [[[self class] allocWithZone:zone] init];
  openmps::values_in(copy->_openmps) = openmps::values_in(_openmps);
  return copy;
}

- (void *)openmps_values {
  return _openmps;
}

- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index {
  openmps::values_in(_openmps).by_index[static_cast<unsigned>(index)] = openmps::constant_value(value, type, 0);
}

- (void)setConstantValues:(const void *)values type:(MTLDataType)type withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i)
    openmps::values_in(_openmps).by_index[static_cast<unsigned>(range.location + i)] =
        openmps::constant_value(values, type, i);
}

- (void)setConstantValue:(const void *)value type:(MTLDataType)type withName:(NSString *)name {
  if (name == nil) openmps::raise_argument(@"MTLFunctionConstantValues: name is nil.");
  openmps::values_in(_openmps).by_name[[name UTF8String]] = openmps::constant_value(value, type, 0);
}

- (void)reset {
  openmps::values_in(_openmps) = {};
}

@end

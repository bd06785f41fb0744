// SPDX-License-Identifier: Apache-2.0
// Arrays of any number of dimensions: descriptors, views, bytes, buffers, images, temporary ones. Prints "N passed, N
// failed".

#import "mps_test.hh"

#include <algorithm>
#include <numeric>

#pragma clang diagnostic ignored "-Wnonnull"  // nil is passed on purpose

namespace {

using Lengths = std::vector<NSUInteger>;

/// The expected contents of an array: elements in the order of their indices, dimension 0 first.
struct Model {
  Lengths lengths;
  std::vector<double> values;

  static Model of(Lengths lengths, const std::function<double(std::size_t)> &value) {
    Model model{std::move(lengths), {}};
    model.values.resize(model.size());
    for (std::size_t i = 0; i < model.values.size(); ++i) model.values[i] = value(i);
    return model;
  }
  static Model numbered(Lengths lengths) {
    return of(std::move(lengths), [](std::size_t i) { return static_cast<double>(i % 251); });
  }
  std::size_t size() const {
    return std::accumulate(lengths.begin(), lengths.end(), std::size_t{1}, std::multiplies<>());
  }
  double at(const Lengths &index) const {
    std::size_t place = 0;
    for (std::size_t i = lengths.size(); i-- > 0;) place = place * lengths[i] + index[i];
    return values[place];
  }
  /// Return the model whose element at an index is that of `source(index)` here.
  Model mapped(Lengths to, const std::function<Lengths(const Lengths &)> &source) const {
    Model result{std::move(to), {}};
    Lengths index(result.lengths.size(), 0);
    for (std::size_t i = 0; i < result.size(); ++i) {
      result.values.push_back(at(source(index)));
      for (std::size_t k = 0; k < index.size() && ++index[k] == result.lengths[k]; ++k) index[k] = 0;
    }
    return result;
  }
  Model sliced(std::size_t dimension, NSUInteger start, NSUInteger length) const {
    Lengths to = lengths;
    to[dimension] = length;
    return mapped(to, [=](Lengths index) { return index[dimension] += start, index; });
  }
  Model transposed(std::size_t a, std::size_t b) const {
    Lengths to = lengths;
    std::swap(to[a], to[b]);
    return mapped(to, [=](Lengths index) { return std::swap(index[a], index[b]), index; });
  }
  Model reshaped(Lengths to) const { return {std::move(to), values}; }
};

template <class T>
constexpr MPSDataType kType = MPSDataTypeInvalid;
template <>
constexpr MPSDataType kType<float> = MPSDataTypeFloat32;
template <>
constexpr MPSDataType kType<std::uint8_t> = MPSDataTypeUInt8;
template <>
constexpr MPSDataType kType<std::int16_t> = MPSDataTypeInt16;
template <>
constexpr MPSDataType kType<std::int64_t> = MPSDataTypeInt64;

MPSNDArrayDescriptor *described(const Lengths &lengths, MPSDataType type = MPSDataTypeFloat32) {
  Lengths copy = lengths;
  return [MPSNDArrayDescriptor descriptorWithDataType:type dimensionCount:copy.size() dimensionSizes:copy.data()];
}

template <class T = float>
void write(MPSNDArray *array, const Model &model) {
  std::vector<T> values(model.values.begin(), model.values.end());
  [array writeBytes:values.data() strideBytes:nullptr];
}

template <class T = float>
MPSNDArray *make_array(const Model &model, bool packed = false) {
  MPSNDArrayDescriptor *descriptor = described(model.lengths, kType<T>);
  [descriptor setPreferPackedRows:packed];
  MPSNDArray *array = [[[MPSNDArray alloc] initWithDevice:device descriptor:descriptor] autorelease];
  write<T>(array, model);
  return array;
}

Lengths lengths_of(MPSNDArray *array) {
  Lengths lengths;
  for (NSUInteger i = 0; i < [array numberOfDimensions]; ++i) lengths.push_back([array lengthOfDimension:i]);
  return lengths;
}

template <class T = float>
bool has(MPSNDArray *array, const Model &model) {
  if (array == nil || lengths_of(array) != model.lengths) return false;
  std::vector<T> values(model.size(), T(99));
  [array readBytes:values.data() strideBytes:nullptr];
  return std::equal(values.begin(), values.end(), model.values.begin(),
                    [](T a, double b) { return static_cast<double>(a) == b; });
}

void run(const std::function<void(id<MTLCommandBuffer>)> &encode) {
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  encode(commands);
  [commands commit];
  [commands waitUntilCompleted];
  check([commands status] == MTLCommandBufferStatusCompleted, "the command buffer completes");
}

/// Return a copy that is encoded and complete.
MPSNDArray *copied(MPSNDArray *array, MPSNDArrayDescriptor *descriptor) {
  MPSNDArray *copy = nil;
  run([&](id<MTLCommandBuffer> commands) {
    copy = [array arrayViewWithCommandBuffer:commands
                                  descriptor:descriptor
                                    aliasing:MPSAliasingStrategyShallNotAlias];
    [copy synchronizeOnCommandBuffer:commands];
  });
  return copy;
}

MPSNDArray *aliased(MPSNDArray *array, MPSNDArrayDescriptor *descriptor) {
  return [array arrayViewWithDescriptor:descriptor];
}

// ------------------------------------------------------------------------------------------- descriptors

void test_descriptors() {
  MPSNDArrayDescriptor *descriptor = described({3, 5, 6, 32});
  check([descriptor numberOfDimensions] == 4 && [descriptor dataType] == MPSDataTypeFloat32, "count and type");
  check([descriptor lengthOfDimension:0] == 3 && [descriptor lengthOfDimension:3] == 32, "dimension 0 is the first");
  check([descriptor lengthOfDimension:4] == 1 && [descriptor lengthOfDimension:99] == 1, "others have length 1");
  NSArray *shape = [NSArray arrayWithObjects:@32, @6, @5, @3, nil];
  check([[descriptor getShape] isEqual:shape], "getShape begins with the slowest dimension");
  descriptor = [MPSNDArrayDescriptor descriptorWithDataType:MPSDataTypeFloat16 shape:shape];
  check([descriptor lengthOfDimension:0] == 3 && [descriptor lengthOfDimension:1] == 5 &&
            [descriptor dataType] == MPSDataTypeFloat16,
        "a shape begins with the slowest dimension");
  descriptor = [MPSNDArrayDescriptor descriptorWithDataType:MPSDataTypeInt8
                                             dimensionSizes:(NSUInteger)3, (NSUInteger)7, (NSUInteger)0];
  check([descriptor numberOfDimensions] == 2 && [descriptor lengthOfDimension:1] == 7, "a list that ends with 0");
  descriptor = described({});
  check([descriptor numberOfDimensions] == 0 && [[descriptor getShape] count] == 0, "a scalar has no dimensions");

  descriptor = described({3, 5, 7});
  const MPSDimensionSlice all = [descriptor sliceRangeForDimension:1];
  check(all.start == 0 && all.length == 5, "slices are whole at first");
  const MPSDimensionSlice beyond = [descriptor sliceRangeForDimension:3];
  check(beyond.start == 0 && beyond.length == 1, "the slice of another dimension");
  [descriptor sliceDimension:1 withSubrange:{1, 3}];
  check([descriptor lengthOfDimension:1] == 5 && [descriptor sliceRangeForDimension:1].length == 3,
        "a slice does not change the length");
  [descriptor transposeDimension:0 withDimension:1];
  check([descriptor lengthOfDimension:0] == 5 && [descriptor sliceRangeForDimension:0].start == 1 &&
            [descriptor sliceRangeForDimension:1].length == 3,
        "lengths and slices follow a transpose");
  const vector_uchar16 order = [descriptor dimensionOrder];
  check(order[0] == 1 && order[1] == 0 && order[2] == 2 && order[15] == 15, "dimensionOrder after a transpose");
  NSUInteger permutation[] = {2, 0, 1};
  [descriptor permuteWithDimensionOrder:permutation];
  const vector_uchar16 permuted = [descriptor dimensionOrder];
  check(permuted[0] == 2 && permuted[1] == 1 && permuted[2] == 0, "a permutation of the transposed dimensions");
  check([descriptor lengthOfDimension:0] == 7 && [descriptor lengthOfDimension:1] == 5, "lengths follow it");
  NSUInteger sizes[] = {21, 5};
  [descriptor reshapeWithDimensionCount:2 dimensionSizes:sizes];
  check([descriptor numberOfDimensions] == 2 && [descriptor sliceRangeForDimension:0].length == 21 &&
            [descriptor dimensionOrder][0] == 0,
        "a reshape starts anew");
  [descriptor reshapeWithShape:[NSArray arrayWithObjects:@3, @35, nil]];
  check([descriptor lengthOfDimension:0] == 35, "a reshape by a shape");
  [descriptor setNumberOfDimensions:4];
  check([descriptor numberOfDimensions] == 4 && [descriptor lengthOfDimension:3] == 1, "dimensions of length 1");
  [descriptor setNumberOfDimensions:2];
  check(![descriptor preferPackedRows], "rows are not packed unless asked");
}

void test_wrong_descriptors() {
  check_raises("length 0", kArgument, "the length of dimension 1 (0) is less than the minimum (1)",
               [] { described({3, 0}); });
  check_raises("17 dimensions", kArgument, "numberOfDimensions (17) is more than the maximum (16)",
               [] { described(Lengths(17, 1)); });
  check_raises("2^31 elements", kArgument, "with 32768 of dimension 1, is more than the maximum (2147483647)",
               [] { described({65536, 32768}); });
  check_raises("an overflow", kArgument, "is more than the maximum (2147483647)",
               [] { described({NSUInteger{1} << 62, 8}); });
  check_raises("half a byte", kArgument, "dataType (0x4) is not one of whole bytes",
               [] { described({4}, MPSDataTypeUInt4); });
  check_raises("another type", kArgument, "dataType (0x0) is not",
               [] { [described({4}) setDataType:MPSDataTypeInvalid]; });
  check_raises("no shape", kArgument, "shape is nil",
               [] { [MPSNDArrayDescriptor descriptorWithDataType:MPSDataTypeInt8 shape:nil]; });
  MPSNDArrayDescriptor *descriptor = described({3, 5});
  check_raises("a slice of another dimension", kArgument, "dimensionIndex (2) is not less than numberOfDimensions (2)",
               [&] { [descriptor sliceDimension:2 withSubrange:{0, 1}]; });
  check_raises("a slice beyond the end", kArgument, "subRange (3, 3) of dimension 1 ends beyond its length (5)",
               [&] { [descriptor sliceDimension:1 withSubrange:{3, 3}]; });
  check_raises("an empty slice", kArgument, "subRange.length (0) of dimension 1 is less than the minimum (1)",
               [&] { [descriptor sliceDimension:1 withSubrange:{3, 0}]; });
  check_raises("a transpose of another dimension", kArgument, "dimensionIndex (9) is not less than",
               [&] { [descriptor transposeDimension:0 withDimension:9]; });
  check_raises("a dimension twice", kArgument, "dimensionOrder has dimension 1 twice", [&] {
    NSUInteger order[] = {1, 1};
    [descriptor permuteWithDimensionOrder:order];
  });
  check_raises("a dropped dimension", kArgument,
               "numberOfDimensions (1) drops dimension 1, whose length (5) is not 1",
               [&] { [descriptor setNumberOfDimensions:1]; });
  check([descriptor numberOfDimensions] == 2 && [descriptor dimensionOrder][0] == 0, "refusals change nothing");
}

// ------------------------------------------------------------------------------------------- arrays and bytes

void test_arrays() {
  for (const Lengths &lengths : {Lengths{}, Lengths{1}, Lengths{7}, Lengths{3, 5}, Lengths{4, 1, 3}, Lengths{5, 7, 3, 2},
                                 Lengths{1, 3, 1, 2, 1, 5}, Lengths(16, 2)})
    for (const bool packed : {false, true}) {
      const Model model = Model::numbered(lengths);
      check(has(make_array(model, packed), model), "float32, " + std::to_string(lengths.size()) + " dimensions");
      check(has<std::int16_t>(make_array<std::int16_t>(model, packed), model), "int16");
    }
  MPSNDArray *array = make_array(Model::numbered({3, 5}));
  check([array dataType] == MPSDataTypeFloat32 && [array dataTypeSize] == 4, "type and size");
  check([array numberOfDimensions] == 2 && [array lengthOfDimension:9] == 1, "dimensions");
  check([array device] == device && [array parent] == nil && [array userBuffer] == nil, "device, no parent, no buffer");
  check([array resourceSize] >= 5 * 16, "rows of a multiple of 16 bytes");
  check([make_array(Model::numbered({3, 5}), true) resourceSize] >= 60, "packed rows");
  [array setLabel:@"an array"];
  check([[array label] isEqual:@"an array"], "label");
  MPSNDArrayDescriptor *descriptor = [array descriptor];
  check([descriptor lengthOfDimension:0] == 3 && [descriptor lengthOfDimension:1] == 5 &&
            [descriptor dataType] == MPSDataTypeFloat32,
        "its descriptor");

  MPSNDArray *scalar = [[[MPSNDArray alloc] initWithDevice:device scalar:2.5] autorelease];
  check([scalar dataType] == MPSDataTypeFloat32 && has(scalar, {{1}, {2.5}}), "a scalar");
  descriptor = described({4, 6});
  [descriptor sliceDimension:0 withSubrange:{1, 2}];
  [descriptor transposeDimension:0 withDimension:1];
  array = [[[MPSNDArray alloc] initWithDevice:device descriptor:descriptor] autorelease];
  check(lengths_of(array) == Lengths{6, 2}, "a new array has the shape after slices and transposes");
  NSArray *shape = [NSArray arrayWithObjects:@2, @6, nil];
  check([[descriptor getShape] isEqual:shape], "getShape has the lengths of slices");
  check_raises("no descriptor", kArgument, "MPSNDArray: descriptor is nil",
               [] { [[MPSNDArray alloc] initWithDevice:device descriptor:nil]; });
  check_raises("init", kArgument, "unavailable", [] { [(id)[MPSNDArray alloc] init]; });
  check_raises("init of a descriptor", kArgument, "unavailable", [] { [(id)[MPSNDArrayDescriptor alloc] init]; });
}

void test_strides_of_bytes() {
  const Model model = Model::numbered({3, 4, 2});
  MPSNDArray *array = make_array(model);
  std::vector<float> values(64, -1);
  NSInteger strides[] = {8, 28, 128};
  [array readBytes:values.data() strideBytes:strides];
  bool good = true;
  std::size_t others = 0;
  for (NSUInteger k = 0; k < 2; ++k)
    for (NSUInteger j = 0; j < 4; ++j)
      for (NSUInteger i = 0; i < 3; ++i) {
        float &value = values[2 * i + 7 * j + 32 * k];
        good = good && value == model.at({i, j, k});
        value = -1;
      }
  for (const float value : values) others += value != -1;
  check(good && others == 0, "strides of bytes, and nothing between them");

  NSInteger backwards[] = {4, -12, 48};
  values.assign(24, -1);
  [array readBytes:values.data() + 9 strideBytes:backwards];
  good = true;
  for (NSUInteger k = 0; k < 2; ++k)
    for (NSUInteger j = 0; j < 4; ++j)
      for (NSUInteger i = 0; i < 3; ++i) good = good && values[i + 3 * (3 - j) + 12 * k] == model.at({i, j, k});
  check(good, "negative strides");

  NSInteger repeated[] = {4, 0, 12};
  const float rows[] = {1, 2, 3, 4, 5, 6};
  [array writeBytes:const_cast<float *>(rows) strideBytes:repeated];
  check(has(array, Model::of({3, 4, 2}, [&](std::size_t i) { return rows[i % 3 + i / 12 * 3]; })),
        "a stride of 0 writes one row to all");
  write(array, model);
  values.assign(6, -1);
  [array readBytes:values.data() strideBytes:repeated];
  good = true;
  for (NSUInteger k = 0; k < 2; ++k)
    for (NSUInteger i = 0; i < 3; ++i) good = good && values[i + 3 * k] == model.at({i, 3, k});
  check(good, "of a stride of 0 the last row stays");
  check_raises("no bytes", kArgument, "MPSNDArray: buffer is NULL", [&] { [array readBytes:nullptr strideBytes:nullptr]; });
}

// ------------------------------------------------------------------------------------------- views

void test_slices_and_transposes() {
  const Model model = Model::numbered({5, 7, 3, 2});
  for (const bool packed : {false, true}) {
    MPSNDArray *array = make_array(model, packed);
    MPSNDArrayDescriptor *descriptor = [array descriptor];
    [descriptor sliceDimension:0 withSubrange:{1, 3}];
    [descriptor sliceDimension:2 withSubrange:{2, 1}];
    const Model sliced = model.sliced(0, 1, 3).sliced(2, 2, 1);
    MPSNDArray *view = aliased(array, descriptor);
    check(has(view, sliced), "a slice");
    check([view parent] == array, "its parent");
    check(has(copied(array, descriptor), sliced) && [copied(array, descriptor) parent] == nil, "a copied slice");
    [descriptor transposeDimension:0 withDimension:3];
    check(has(aliased(array, descriptor), sliced.transposed(0, 3)), "a slice and a transpose");
    check(has(copied(array, descriptor), sliced.transposed(0, 3)), "copied");
    [descriptor sliceDimension:3 withSubrange:{2, 2}];
    check(has(aliased(array, descriptor), model.sliced(0, 2, 2).sliced(2, 2, 1).transposed(0, 3)),
          "a slice of a dimension after its transpose");

    // Views of views.
    descriptor = [array descriptor];
    [descriptor transposeDimension:0 withDimension:1];
    MPSNDArray *first = aliased(array, descriptor);
    check(has(first, model.transposed(0, 1)), "a transpose");
    descriptor = [first descriptor];
    check([descriptor dimensionOrder][0] == 0 && [descriptor lengthOfDimension:0] == 7,
          "the descriptor of a view is that of its shape");
    [descriptor sliceDimension:0 withSubrange:{3, 4}];
    NSUInteger order[] = {3, 2, 0, 1};
    [descriptor permuteWithDimensionOrder:order];
    MPSNDArray *second = aliased(first, descriptor);
    const Model both = model.transposed(0, 1).sliced(0, 3, 4);
    check(has(second, both.mapped({2, 3, 4, 5}, [](const Lengths &i) { return Lengths{i[2], i[3], i[1], i[0]}; })),
          "a permutation of a slice of a transpose");
    check([second parent] == first && [[second parent] parent] == array, "parents of parents");

    // Views write to the array's memory.
    write(view, Model::of({3, 7, 1, 2}, [](std::size_t) { return -5.0; }));
    std::size_t changed = 0;
    std::vector<float> values(model.size());
    [array readBytes:values.data() strideBytes:nullptr];
    for (std::size_t i = 0; i < values.size(); ++i) changed += values[i] == -5;
    check(changed == 3 * 7 * 2 && values[0] == 0, "a write to a view changes the array");
  }
  // The parent is retained.
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  MPSNDArray *array = make_array(model);
  MPSNDArrayDescriptor *descriptor = [array descriptor];
  [descriptor transposeDimension:1 withDimension:2];
  MPSNDArray *view = [aliased(array, descriptor) retain];
  [pool drain];
  check(has(view, model.transposed(1, 2)), "a view keeps its parent");
  [view release];
}

void test_reshapes() {
  const Model model = Model::numbered({8, 3, 5});
  MPSNDArray *packed = make_array(model, true);
  for (const Lengths &lengths : {Lengths{24, 5}, Lengths{120}, Lengths{2, 4, 15}, Lengths{4, 2, 3, 1, 5}, Lengths{8, 15}})
    check(has(aliased(packed, described(lengths)), model.reshaped(lengths)), "a reshape of packed rows");
  MPSNDArrayDescriptor *descriptor = described({24, 5});
  [descriptor sliceDimension:0 withSubrange:{3, 20}];
  [descriptor transposeDimension:0 withDimension:1];
  check(has(aliased(packed, descriptor), model.reshaped({24, 5}).sliced(0, 3, 20).transposed(0, 1)),
        "a reshape, then a slice and a transpose");

  // Rows of 12 bytes take 16.
  const Model odd = Model::numbered({3, 4, 5});
  MPSNDArray *padded = make_array(odd);
  check(has(aliased(padded, described({3, 20})), odd.reshaped({3, 20})), "rows stay rows");
  check(has(aliased(padded, described({3, 2, 2, 5})), odd.reshaped({3, 2, 2, 5})), "rows are divided");
  check(aliased(padded, described({60})) == nil, "padded rows do not continue each other");
  run([&](id<MTLCommandBuffer> commands) {
    check([padded arrayViewWithCommandBuffer:commands
                                  descriptor:described({60})
                                    aliasing:MPSAliasingStrategyShallAlias] == nil,
          "nor if they shall");
  });
  descriptor = described({6, 10});
  [descriptor sliceDimension:1 withSubrange:{2, 7}];
  [descriptor transposeDimension:0 withDimension:1];
  check(has(copied(padded, descriptor), odd.reshaped({6, 10}).sliced(1, 2, 7).transposed(0, 1)),
        "a copy of a reshape without strides");
  descriptor = [packed descriptor];
  [descriptor transposeDimension:0 withDimension:2];
  MPSNDArray *transposed = aliased(packed, descriptor);
  check(aliased(transposed, described({120})) == nil, "a reshape of a transpose has no strides");
  check(has(copied(transposed, described({12, 10})), model.transposed(0, 2).reshaped({12, 10})), "but a copy");
  MPSNDArray *automatic = nil;
  run([&](id<MTLCommandBuffer> commands) {
    automatic = [transposed arrayViewWithCommandBuffer:commands
                                            descriptor:described({120})
                                              aliasing:MPSAliasingStrategyDefault];
    check([automatic parent] == nil, "a copy where no view is possible");
    check([[packed arrayViewWithCommandBuffer:commands
                                   descriptor:described({120})
                                     aliasing:MPSAliasingStrategyDefault] parent] == packed,
          "a view where one is possible");
    [automatic synchronizeOnCommandBuffer:commands];
  });
  check(has(automatic, model.transposed(0, 2).reshaped({120})), "the copy");
  check_raises("another number of elements", kArgument,
               "the descriptor has 119 elements before slices, the array has 120",
               [&] { aliased(packed, described({7, 17})); });
  check_raises("both strategies", kArgument, "aliasing (3) has both ShallAlias (1) and ShallNotAlias (2)", [&] {
    [packed arrayViewWithCommandBuffer:[queue commandBuffer]
                            descriptor:[packed descriptor]
                              aliasing:MPSAliasingStrategyAliasingReserved];
  });
  check_raises("a copy without a command buffer", kArgument, "MPSNDArray: cmdBuf is nil", [&] {
    [packed arrayViewWithCommandBuffer:nil
                            descriptor:[packed descriptor]
                              aliasing:MPSAliasingStrategyShallNotAlias];
  });
}

void test_views_of_strides() {
  const Model model = Model::numbered({24});
  MPSNDArray *array = make_array(model);
  const NSUInteger sizes[] = {3, 2, 4}, strides[] = {2, 1, 6};
  MPSNDArray *view = [array arrayViewWithDimensionCount:3 dimensionSizes:sizes strides:strides];
  check(has(view, model.mapped({3, 2, 4}, [](const Lengths &i) { return Lengths{2 * i[0] + i[1] + 6 * i[2]}; })),
        "strides in elements, dimension 0 first");
  view = [array arrayViewWithShape:[NSArray arrayWithObjects:@4, @3, nil]
                           strides:[NSArray arrayWithObjects:@6, @2, nil]];
  check(has(view, model.mapped({3, 4}, [](const Lengths &i) { return Lengths{2 * i[0] + 6 * i[1]}; })),
        "a shape and its strides begin with the slowest dimension");
  view = [array arrayViewWithShape:nil strides:[NSArray arrayWithObject:@1]];
  check(has(view, model), "without a shape, that of the array");
  check_raises("a view beyond the end", kArgument, "beyond those of", [&] {
    [array arrayViewWithShape:[NSArray arrayWithObject:@(100000)] strides:[NSArray arrayWithObject:@1]];
  });
  check_raises("a stride of 0", kArgument, "the stride of dimension 0 (0) is less than the minimum (1)", [&] {
    [array arrayViewWithShape:[NSArray arrayWithObject:@3] strides:[NSArray arrayWithObject:@0]];
  });
  check_raises("other strides", kArgument, "strides has 2 numbers, shape has 1", [&] {
    [array arrayViewWithShape:[NSArray arrayWithObject:@3] strides:[NSArray arrayWithObjects:@1, @1, nil]];
  });
}

/// Chains of views: slices, permutations and reshapes, as views where possible, otherwise as copies.
void test_chains_of_views() {
  Random random(7);
  const auto below = [&](std::size_t count) {
    return static_cast<std::size_t>((random.next() + 1) / 2 * static_cast<double>(count));
  };
  std::size_t views = 0, copies = 0;
  for (int chain = 0; chain < 150; ++chain) {
    Lengths lengths;
    for (std::size_t i = 0, count = 1 + below(4); i < count; ++i) lengths.push_back(1 + below(6));
    Model model = Model::numbered(lengths);
    MPSNDArray *array = make_array(model, chain % 2 == 0);
    for (int step = 0; step < 4; ++step) {
      MPSNDArrayDescriptor *descriptor = [array descriptor];
      if (below(3) == 0) {
        // Join two dimensions, or divide one by 2.
        Lengths to = model.lengths;
        const std::size_t at = below(to.size());
        if (at + 1 < to.size()) {
          to[at] *= to[at + 1];
          to.erase(to.begin() + static_cast<long>(at) + 1);
        } else if (to[at] % 2 == 0) {
          to[at] /= 2;
          to.insert(to.begin() + static_cast<long>(at), 2);
        }
        descriptor = described(to);
        model = model.reshaped(to);
      }
      const std::size_t count = model.lengths.size(), sliced = below(count);
      const NSUInteger start = below(model.lengths[sliced]), length = 1 + below(model.lengths[sliced] - start);
      [descriptor sliceDimension:sliced withSubrange:{start, length}];
      model = model.sliced(sliced, start, length);
      const std::size_t a = below(count), b = below(count);
      [descriptor transposeDimension:a withDimension:b];
      model = model.transposed(a, b);
      MPSNDArray *next = step % 3 == 2 ? nil : aliased(array, descriptor);
      next == nil ? ++copies : ++views;
      array = next == nil ? copied(array, descriptor) : next;
    }
    if (!has(array, model)) check(false, "chain " + std::to_string(chain));
  }
  check(views > 200 && copies > 150, "chains of views and copies");
}

void test_large_transposes() {
  for (const Lengths &lengths : {Lengths{1021, 777}, Lengths{64, 56, 56, 8}, Lengths{3, 1080, 640}}) {
    const Model model = Model::numbered(lengths);
    MPSNDArray *array = make_array(model);
    const std::size_t last = lengths.size() - 1;
    MPSNDArrayDescriptor *descriptor = [array descriptor];
    [descriptor transposeDimension:0 withDimension:last];
    const Model expected = model.transposed(0, last);
    check(has(copied(array, descriptor), expected), "a large transpose");
    check(has(aliased(array, descriptor), expected), "read by the CPU");
  }
}

// ------------------------------------------------------------------------------------------- types

double nearest_even(double value) { return std::nearbyint(value); }

/// Return what a number becomes as float16 (10 bits after the leading one) or bfloat16 (7); exponents of both suffice.
double rounded(double value, int bits) {
  if (value == 0 || std::isinf(value) || std::isnan(value)) return value;
  const double step = std::ldexp(1.0, std::ilogb(value) - bits);
  return nearest_even(value / step) * step;
}

struct Cast {
  MPSDataType type;
  const char *name;
  double low, high;  ///< of integers
  bool is_integer;
  int bits;  ///< of real numbers
};

const Cast kCasts[] = {
    {MPSDataTypeUInt8, "uint8", 0, 255, true, 0},
    {MPSDataTypeUInt16, "uint16", 0, 65535, true, 0},
    {MPSDataTypeUInt32, "uint32", 0, 4294967295.0, true, 0},
    {MPSDataTypeInt8, "int8", -128, 127, true, 0},
    {MPSDataTypeInt16, "int16", -32768, 32767, true, 0},
    {MPSDataTypeInt32, "int32", -2147483648.0, 2147483647.0, true, 0},
    {MPSDataTypeInt64, "int64", -9223372036854775808.0, 9223372036854775807.0, true, 0},
    {MPSDataTypeFloat16, "float16", 0, 0, false, 10},
    {MPSDataTypeBFloat16, "bfloat16", 0, 0, false, 7},
    {MPSDataTypeFloat32, "float32", 0, 0, false, 23},
};

double converted(double value, const Cast &to) {
  if (!to.is_integer) return rounded(value, to.bits);
  if (std::isnan(value)) return 0;
  return std::clamp(std::trunc(value), to.low, to.high);
}

void test_casts() {
  const Model model = Model::of({5, 3, 2}, [](std::size_t i) {
    const double numbers[] = {0,    1,     -1,    2.5,   -2.5,    0.3,  127.9,  128, -128.5, 255.5,
                              256,  -0.75, 1.625, 300.7, 32767.5, 1e-3, -1e-3,  99,  1e4,    -1e4,
                              60.1, 33.3,  -77.7, 12,    6,       65504, 0.0625, -3,  1.5,    0.5};
    return static_cast<double>(static_cast<float>(numbers[i]));
  });
  MPSNDArray *array = make_array(model);
  for (const Cast &to : kCasts) {
    MPSNDArrayDescriptor *descriptor = [array descriptor];
    [descriptor setDataType:to.type];
    MPSNDArray *cast = copied(array, descriptor);
    check([cast dataType] == to.type, std::string("the type ") + to.name);
    check(to.type == MPSDataTypeFloat32 || aliased(array, descriptor) == nil, "a view has the array's type");
    MPSNDArrayDescriptor *back = [cast descriptor];
    [back setDataType:MPSDataTypeFloat32];
    const Model expected = Model::of(model.lengths, [&](std::size_t i) { return converted(model.values[i], to); });
    check(has(copied(cast, back), expected), std::string("float32 to and from ") + to.name);
  }
  MPSNDArrayDescriptor *descriptor = [array descriptor];
  [descriptor setDataType:MPSDataTypeBool];
  check(has<std::uint8_t>(copied(array, descriptor),
                          Model::of(model.lengths, [&](std::size_t i) { return model.values[i] != 0 ? 1.0 : 0.0; })),
        "float32 to bool");
  [descriptor setDataType:MPSDataTypeUnorm8];
  // The product is rounded to float, as for images.
  check(has<std::uint8_t>(copied(array, descriptor),
                          Model::of(model.lengths,
                                    [&](std::size_t i) {
                                      const double value = std::clamp(model.values[i], 0.0, 1.0);
                                      return nearest_even(static_cast<float>(255 * value));
                                    })),
        "float32 to unorm8");

  const Model wide = Model::of({4}, [](std::size_t i) { return i == 0 ? 300.0 : i == 1 ? -1.0 : i == 2 ? 65535 : 7; });
  MPSNDArray *integers = make_array<std::int64_t>(wide);
  descriptor = [integers descriptor];
  [descriptor setDataType:MPSDataTypeUInt8];
  check(has<std::uint8_t>(copied(integers, descriptor), {{4}, {44, 255, 255, 7}}), "integers keep their low bits");
  const float special[] = {NAN, INFINITY, -INFINITY, -0.5f};
  MPSNDArray *specials = make_array(Model::numbered({4}));
  [specials writeBytes:const_cast<float *>(special) strideBytes:nullptr];
  [descriptor setDataType:MPSDataTypeInt16];
  check(has<std::int16_t>(copied(specials, descriptor), {{4}, {0, 32767, -32768, 0}}), "NaN and infinity to int16");
  [descriptor setDataType:MPSDataTypeInt64];
  check(has<std::int64_t>(copied(specials, descriptor), {{4}, {0, 9223372036854775807.0, -9223372036854775808.0, 0}}),
        "NaN and infinity to int64");

  // Complex numbers are copied, but not converted.
  MPSNDArrayDescriptor *complex = described({3, 5}, MPSDataTypeComplexFloat32);
  MPSNDArray *pairs = [[[MPSNDArray alloc] initWithDevice:device descriptor:complex] autorelease];
  std::vector<float> parts(30), got(30);
  std::iota(parts.begin(), parts.end(), 1.0f);
  [pairs writeBytes:parts.data() strideBytes:nullptr];
  [complex transposeDimension:0 withDimension:1];
  [copied(pairs, complex) readBytes:got.data() strideBytes:nullptr];
  check([pairs dataTypeSize] == 8 && got[2] == parts[6] && got[3] == parts[7], "a transpose of complex numbers");
  [complex setDataType:MPSDataTypeFloat32];
  run([&](id<MTLCommandBuffer> commands) {
    check_raises("complex to real", kArgument, "complex numbers are not converted to another type", [&] {
      [pairs arrayViewWithCommandBuffer:commands
                             descriptor:complex
                               aliasing:MPSAliasingStrategyPreferTemporaryMemory];
    });
  });
}

// ------------------------------------------------------------------------------------------- buffers

void test_arrays_on_buffers() {
  id<MTLBuffer> buffer = [[device newBufferWithLength:1024 options:MTLResourceStorageModeShared] autorelease];
  float *values = static_cast<float *>([buffer contents]);
  std::iota(values, values + 256, 0.0f);
  MPSNDArrayDescriptor *descriptor = described({3, 5});
  [descriptor setPreferPackedRows:YES];
  MPSNDArray *array = [[[MPSNDArray alloc] initWithBuffer:buffer offset:8 descriptor:descriptor] autorelease];
  check(has(array, Model::of({3, 5}, [](std::size_t i) { return i + 2.0; })), "packed rows of a buffer");
  check([array userBuffer] == buffer && [array resourceSize] == [buffer allocatedSize], "its buffer");
  [descriptor setPreferPackedRows:NO];
  array = [[[MPSNDArray alloc] initWithBuffer:buffer offset:8 descriptor:descriptor] autorelease];
  check(has(array, Model::of({3, 5}, [](std::size_t i) { return i % 3 + i / 3 * 4 + 2.0; })),
        "rows of a multiple of 16 bytes");
  write(array, Model::of({3, 5}, [](std::size_t) { return -1.0; }));
  check(values[2] == -1 && values[5] == 5 && values[20] == -1 && values[21] == 21, "writes go to the buffer");
  MPSNDArrayDescriptor *transposed = [array descriptor];
  [transposed transposeDimension:0 withDimension:1];
  check([aliased(array, transposed) userBuffer] == buffer, "a view has the buffer too");
  check_raises("too few bytes", kArgument, "76 bytes from offset 960 end beyond the buffer's length (1024)",
               [&] { [[MPSNDArray alloc] initWithBuffer:buffer offset:960 descriptor:descriptor]; });
  check_raises("an odd offset", kArgument, "offset (6) is not a multiple of the size of an element (4)",
               [&] { [[MPSNDArray alloc] initWithBuffer:buffer offset:6 descriptor:descriptor]; });
  check_raises("no buffer", kArgument, "MPSNDArray: buffer is nil",
               [&] { [[MPSNDArray alloc] initWithBuffer:nil offset:0 descriptor:descriptor]; });
  id<MTLBuffer> hidden = [[device newBufferWithLength:1024 options:MTLResourceStorageModePrivate] autorelease];
  array = [[[MPSNDArray alloc] initWithBuffer:hidden offset:0 descriptor:descriptor] autorelease];
  check_raises("a private buffer", kUsage, "storageMode is private (2): the CPU has no access",
               [&] { [array readBytes:values strideBytes:nullptr]; });
}

void test_exports_to_buffers() {
  const Model model = Model::numbered({3, 4, 2});
  MPSNDArray *array = make_array(model);
  id<MTLBuffer> buffer = [[device newBufferWithLength:1024 options:MTLResourceStorageModeShared] autorelease];
  const auto values = [&] { return static_cast<const float *>([buffer contents]); };
  run([&](id<MTLCommandBuffer> commands) {
    [array exportDataWithCommandBuffer:commands
                              toBuffer:buffer
                   destinationDataType:MPSDataTypeFloat32
                                offset:12
                            rowStrides:nullptr];
  });
  check(values()[2] == 0 && std::equal(model.values.begin(), model.values.end(), values() + 3) && values()[27] == 0,
        "packed, from an offset on");
  NSInteger strides[] = {-20, 100};
  MPSNDArrayDescriptor *descriptor = [array descriptor];
  [descriptor transposeDimension:0 withDimension:1];
  [descriptor sliceDimension:0 withSubrange:{1, 3}];
  MPSNDArray *view = aliased(array, descriptor);
  const Model expected = model.transposed(0, 1).sliced(0, 1, 3);
  run([&](id<MTLCommandBuffer> commands) {
    [view exportDataWithCommandBuffer:commands
                             toBuffer:buffer
                  destinationDataType:MPSDataTypeInt32
                               offset:200
                           rowStrides:strides];
  });
  const auto *integers = static_cast<const std::int32_t *>([buffer contents]);
  bool good = true;
  for (NSUInteger k = 0; k < 2; ++k)
    for (NSUInteger j = 0; j < 3; ++j)
      for (NSUInteger i = 0; i < 3; ++i) good = good && integers[50 + i - 5 * j + 25 * k] == expected.at({i, j, k});
  check(good, "a view as integers, with strides of rows");

  // And back: into a slice of another array.
  MPSNDArray *other = make_array(Model::of({5, 5, 2}, [](std::size_t) { return -1.0; }));
  descriptor = [other descriptor];
  [descriptor sliceDimension:0 withSubrange:{2, 3}];
  [descriptor sliceDimension:1 withSubrange:{1, 3}];
  MPSNDArray *part = aliased(other, descriptor);
  run([&](id<MTLCommandBuffer> commands) {
    [part importDataWithCommandBuffer:commands
                           fromBuffer:buffer
                       sourceDataType:MPSDataTypeInt32
                               offset:200
                           rowStrides:strides];
    [other synchronizeOnCommandBuffer:commands];
  });
  check(has(part, expected), "an import into a slice");
  std::vector<float> all(50);
  [other readBytes:all.data() strideBytes:nullptr];
  check(std::count(all.begin(), all.end(), -1.0f) == 50 - 18, "the rest stays");

  check_raises("too few bytes", kArgument, "take bytes 1000 to 1096 of the buffer, from offset 1000; its length is 1024",
               [&] {
                 [array exportDataWithCommandBuffer:[queue commandBuffer]
                                           toBuffer:buffer
                                destinationDataType:MPSDataTypeFloat32
                                             offset:1000
                                         rowStrides:nullptr];
               });
  check_raises("bytes before the buffer", kArgument, "take bytes -20 to", [&] {
    [view importDataWithCommandBuffer:[queue commandBuffer]
                           fromBuffer:buffer
                       sourceDataType:MPSDataTypeInt32
                               offset:20
                           rowStrides:strides];
  });
  MPSNDArray *on = [[[MPSNDArray alloc] initWithBuffer:buffer offset:0 descriptor:described({4, 4})] autorelease];
  check_raises("its own bytes", kArgument, "bytes 60 to 124 of the buffer are in use by MPSNDArray (4 x 4) itself", [&] {
    [on exportDataWithCommandBuffer:[queue commandBuffer]
                           toBuffer:buffer
                destinationDataType:MPSDataTypeFloat32
                             offset:60
                         rowStrides:nullptr];
  });
}

void test_order_of_cpu_and_commands() {
  const Model model = Model::numbered({6, 5});
  MPSNDArray *array = make_array(model);
  id<MTLBuffer> buffer = [[device newBufferWithLength:120 options:MTLResourceStorageModeShared] autorelease];
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  [array importDataWithCommandBuffer:commands
                          fromBuffer:buffer
                      sourceDataType:MPSDataTypeFloat32
                              offset:0
                          rowStrides:nullptr];
  float values[30];
  check_raises("a read before the commit", kUsage, "", [&] { [array readBytes:values strideBytes:nullptr]; });
  MPSNDArrayDescriptor *descriptor = [array descriptor];
  [descriptor transposeDimension:0 withDimension:1];
  check_raises("a read of a view", kUsage, "",
               [&] { [aliased(array, descriptor) readBytes:values strideBytes:nullptr]; });
  check_raises("a write", kUsage, "", [&] { write(array, model); });
  [array synchronizeOnCommandBuffer:commands];
  [commands commit];
  [commands waitUntilCompleted];
  check(has(array, Model::of({6, 5}, [](std::size_t) { return 0.0; })), "and after it");
  check_raises("a committed command buffer", kUsage, "",
               [&] { [array synchronizeOnCommandBuffer:commands]; });
}

// ------------------------------------------------------------------------------------------- images

void test_images() {
  struct Kind {
    MPSImageFeatureChannelFormat format;
    double step;  ///< of a channel
  };
  const Kind kinds[] = {{MPSImageFeatureChannelFormatFloat32, 0},
                        {MPSImageFeatureChannelFormatFloat16, 0},
                        {MPSImageFeatureChannelFormatUnorm8, 1 / 255.0},
                        {MPSImageFeatureChannelFormatUnorm16, 1 / 65535.0}};
  for (const Kind &kind : kinds)
    for (const NSUInteger channels : {NSUInteger{1}, NSUInteger{3}, NSUInteger{8}, NSUInteger{13}}) {
      const Model model = Model::of({channels, 5, 4, 3}, [](std::size_t i) { return i * 37 % 64 / 64.0; });
      MPSNDArray *array = make_array(model);
      // Two objects: one image, and two images.
      MPSImageDescriptor *descriptor = [MPSImageDescriptor imageDescriptorWithChannelFormat:kind.format
                                                                                      width:5
                                                                                     height:4
                                                                            featureChannels:channels];
      MPSImage *one = [[[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor] autorelease];
      [descriptor setNumberOfImages:2];
      MPSImage *two = [[[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor] autorelease];
      MPSImageBatch *batch = [NSArray arrayWithObjects:one, two, nil];
      MPSNDArray *back = make_array(Model::of(model.lengths, [](std::size_t) { return -1.0; }), true);
      run([&](id<MTLCommandBuffer> commands) {
        [array exportDataWithCommandBuffer:commands toImages:batch offset:{0, 0, 0}];
        [back importDataWithCommandBuffer:commands fromImages:batch offset:{0, 0, 0}];
        [back synchronizeOnCommandBuffer:commands];
      });
      const Model expected = Model::of(model.lengths, [&](std::size_t i) {
        const double value = model.values[i];
        return kind.step == 0 ? value : static_cast<double>(static_cast<float>(nearest_even(value / kind.step) *
                                                                                 1.0f) / static_cast<float>(1 / kind.step));
      });
      std::vector<float> values(model.size());
      [back readBytes:values.data() strideBytes:nullptr];
      double worst = 0;
      for (std::size_t i = 0; i < values.size(); ++i) worst = std::max(worst, std::abs(values[i] - expected.values[i]));
      check(worst <= 1e-7, "images and back");

      // A part of the pixels, from an offset on.
      if (channels < 8) continue;
      MPSNDArrayDescriptor *part = [back descriptor];
      [part sliceDimension:0 withSubrange:{0, 3}];
      [part sliceDimension:1 withSubrange:{1, 2}];
      [part sliceDimension:2 withSubrange:{0, 2}];
      MPSNDArray *slice = aliased(back, part);
      run([&](id<MTLCommandBuffer> commands) {
        [slice importDataWithCommandBuffer:commands fromImages:batch offset:{3, 2, 4}];
        [back synchronizeOnCommandBuffer:commands];
      });
      const Model moved = expected.sliced(0, 4, 3).sliced(1, 3, 2).sliced(2, 2, 2);
      std::vector<float> got(moved.size());
      [slice readBytes:got.data() strideBytes:nullptr];
      worst = 0;
      for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - moved.values[i]));
      check(worst <= 1e-7, "a part of images");
    }
}

void test_integers_and_images() {
  const Model model = Model::numbered({4, 3, 2, 1});
  MPSNDArray *array = make_array<std::uint8_t>(model);
  MPSImageDescriptor *descriptor = [MPSImageDescriptor imageDescriptorWithChannelFormat:MPSImageFeatureChannelFormatUnorm8
                                                                                  width:3
                                                                                 height:2
                                                                        featureChannels:4];
  MPSImage *image = [[[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor] autorelease];
  run([&](id<MTLCommandBuffer> commands) {
    [array exportDataWithCommandBuffer:commands toImages:[NSArray arrayWithObject:image] offset:{0, 0, 0}];
    [image synchronizeOnCommandBuffer:commands];
  });
  std::vector<std::uint8_t> bytes(24);
  [image readBytes:bytes.data() dataLayout:MPSDataLayoutHeightxWidthxFeatureChannels imageIndex:0];
  check(std::equal(bytes.begin(), bytes.end(), model.values.begin()), "bytes are unorm8 channels as they are stored");
}

void test_wrong_images() {
  MPSNDArray *array = make_array(Model::numbered({4, 3, 2, 2}));
  MPSImageDescriptor *descriptor = [MPSImageDescriptor imageDescriptorWithChannelFormat:MPSImageFeatureChannelFormatFloat32
                                                                                  width:3
                                                                                 height:2
                                                                        featureChannels:4];
  MPSImage *image = [[[MPSImage alloc] initWithDevice:device imageDescriptor:descriptor] autorelease];
  MPSImageBatch *one = [NSArray arrayWithObject:image], *two = [NSArray arrayWithObjects:image, image, nil];
  const auto refuse = [&](const char *what, const char *part, MPSNDArray *of, MPSImageBatch *images,
                          MPSImageCoordinate offset) {
    check_raises(what, kArgument, part, [&] {
      [of exportDataWithCommandBuffer:[queue commandBuffer] toImages:images offset:offset];
    });
  };
  refuse("one image for two", "images has 1 images, MPSNDArray (2 x 2 x 3 x 4) has 2 in dimension 3", array, one,
         {0, 0, 0});
  refuse("three images for two", "images has 3 images or more", array, [two arrayByAddingObject:image], {0, 0, 0});
  refuse("an odd channel", "offset.channel (2) is not a multiple of 4", array, two, {0, 0, 2});
  refuse("columns", "3 columns of MPSNDArray (2 x 2 x 3 x 4) from offset 1 on end beyond the 3 of MPSImage", array, two,
         {1, 0, 0});
  refuse("rows", "2 rows of", array, two, {0, 1, 0});
  refuse("channels", "4 channels of", array, two, {0, 0, 4});
  refuse("five dimensions", "dimension 4 of MPSNDArray (2 x 1 x 2 x 3 x 4) has the length 2, not 1",
         make_array(Model::numbered({4, 3, 2, 1, 2})), one, {0, 0, 0});
}

// ------------------------------------------------------------------------------------------- temporaries

void test_temporaries() {
  const Model model = Model::numbered({6, 5, 3});
  MPSNDArray *array = make_array(model);
  id<MTLBuffer> buffer = [[device newBufferWithLength:4096 options:MTLResourceStorageModeShared] autorelease];
  MPSNDArray *result = make_array(Model::of({3, 5, 6}, [](std::size_t) { return -1.0; }), true);
  run([&](id<MTLCommandBuffer> commands) {
    [array exportDataWithCommandBuffer:commands
                              toBuffer:buffer
                   destinationDataType:MPSDataTypeFloat16
                                offset:0
                            rowStrides:nullptr];
    MPSTemporaryNDArray *temporary =
        [MPSTemporaryNDArray temporaryNDArrayWithCommandBuffer:commands descriptor:described({6, 5, 3})];
    check([temporary readCount] == 1, "readCount is 1");
    [temporary importDataWithCommandBuffer:commands
                                fromBuffer:buffer
                            sourceDataType:MPSDataTypeFloat16
                                    offset:0
                                rowStrides:nullptr];
    check([temporary readCount] == 1, "a write does not change readCount");
    check_raises("the CPU", kUsage, "is temporary: its storage is private and the CPU has no access", [&] {
      float value;
      [temporary readBytes:&value strideBytes:nullptr];
    });
    MPSNDArrayDescriptor *descriptor = [temporary descriptor];
    [descriptor transposeDimension:0 withDimension:2];
    MPSTemporaryNDArray *view = (MPSTemporaryNDArray *)[temporary arrayViewWithCommandBuffer:commands
                                                                                  descriptor:descriptor
                                                                                    aliasing:MPSAliasingStrategyDefault];
    check([view isKindOfClass:[MPSTemporaryNDArray class]] && [view parent] == temporary, "a view is temporary too");
    check([view readCount] == 1 && [temporary readCount] == 2, "it holds a readCount of its parent");
    [view exportDataWithCommandBuffer:commands
                             toBuffer:buffer
                  destinationDataType:MPSDataTypeFloat32
                               offset:1024
                           rowStrides:nullptr];
    check([view readCount] == 0 && [temporary readCount] == 1, "a read of the view gives it back");
    check_raises("a second read", kUsage, "has a readCount of 0: its storage has been recycled", [&] {
      [view exportDataWithCommandBuffer:commands
                               toBuffer:buffer
                    destinationDataType:MPSDataTypeFloat32
                                 offset:0
                             rowStrides:nullptr];
    });
    check_raises("readCount of a recycled array", kUsage, "so readCount cannot become 2", [&] { [view setReadCount:2]; });
    id<MTLCommandBuffer> other = [queue commandBuffer];
    check_raises("another command buffer", kUsage, "belongs to another command buffer", [&] {
      [temporary exportDataWithCommandBuffer:other
                                    toBuffer:buffer
                         destinationDataType:MPSDataTypeFloat32
                                      offset:0
                                  rowStrides:nullptr];
    });
    [descriptor reshapeWithShape:[NSArray arrayWithObjects:@3, @5, @6, nil]];
    MPSNDArray *copy = [temporary arrayViewWithCommandBuffer:commands
                                                  descriptor:descriptor
                                                    aliasing:MPSAliasingStrategyShallNotAlias |
                                                             MPSAliasingStrategyPreferNonTemporaryMemory];
    check(![copy isKindOfClass:[MPSTemporaryNDArray class]] && [temporary readCount] == 0, "a copy reads it");
    [copy synchronizeOnCommandBuffer:commands];
    MPSTemporaryNDArray *source =
        [MPSTemporaryNDArray temporaryNDArrayWithCommandBuffer:commands descriptor:described({2, 3})];
    MPSNDArray *second = [source arrayViewWithCommandBuffer:commands
                                                 descriptor:[source descriptor]
                                                   aliasing:MPSAliasingStrategyShallNotAlias];
    check([second isKindOfClass:[MPSTemporaryNDArray class]], "a copy of a temporary array is temporary");
    [(MPSTemporaryNDArray *)second setReadCount:0];
    [result importDataWithCommandBuffer:commands
                             fromBuffer:buffer
                         sourceDataType:MPSDataTypeFloat32
                                 offset:1024
                             rowStrides:nullptr];
    [result synchronizeOnCommandBuffer:commands];
  });
  check(has(result, model.transposed(0, 2)), "through temporary memory");

  id<MTLCommandBuffer> commands = [queue commandBuffer];
  MPSTemporaryNDArray *unread =
      [MPSTemporaryNDArray temporaryNDArrayWithCommandBuffer:commands descriptor:described({4, 5})];
  check_raises("commit with an unread array", kUsage, "MPSTemporaryNDArray (5 x 4)", [&] { [commands commit]; });
  [unread setReadCount:0];
  [commands commit];
  [commands waitUntilCompleted];
}

void test_allocators() {
  MPSNDArrayDescriptor *descriptor = described({3, 4});
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  id<MPSNDArrayAllocator> permanent = [MPSNDArray defaultAllocator], temporary = [MPSTemporaryNDArray defaultAllocator];
  check(permanent == [MPSNDArray defaultAllocator] && permanent != temporary, "one object of each");
  MPSNDArray *array = [permanent arrayForCommandBuffer:commands arrayDescriptor:descriptor kernel:nil];
  check([array class] == [MPSNDArray class] && lengths_of(array) == Lengths{3, 4}, "a permanent array");
  MPSNDArray *other = [temporary arrayForCommandBuffer:commands arrayDescriptor:descriptor kernel:nil];
  check([other class] == [MPSTemporaryNDArray class], "a temporary array");
  [(MPSTemporaryNDArray *)other setReadCount:0];
  check([other resourceSize] == 0, "without memory after its last read");
  for (id allocator in @[ permanent, temporary ]) {
    id archived = [NSKeyedUnarchiver unarchiveObjectWithData:[NSKeyedArchiver archivedDataWithRootObject:allocator]];
    check([archived class] == [allocator class], "an archived allocator");
  }
  id copy = [(id)permanent copyWithZone:NULL];
  check(copy == permanent, "a copy of an allocator is the allocator");
  [copy release];
  [commands commit];
  [commands waitUntilCompleted];
}

}  // namespace

int main() {
  return run_tests({test_descriptors, test_wrong_descriptors, test_arrays, test_strides_of_bytes,
                    test_slices_and_transposes, test_reshapes, test_chains_of_views, test_views_of_strides, test_large_transposes, test_casts,
                    test_arrays_on_buffers, test_exports_to_buffers, test_order_of_cpu_and_commands, test_images,
                    test_integers_and_images, test_wrong_images, test_temporaries, test_allocators});
}

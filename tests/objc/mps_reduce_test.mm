// SPDX-License-Identifier: Apache-2.0
// Soft max and reductions, against formulas written out here: sizes, placement, parts of the source, batches, half
// precision, copies, archives, and what they refuse. Prints "N passed, N failed".

#import "mps_test.hh"

#include <algorithm>

namespace {

template <class Kernel>
Kernel *make() {
  return [[(id)[Kernel alloc] initWithDevice:device] autorelease];
}

MPSCNNKernel *make(NSString *name) {
  return [[(MPSCNNKernel *)[NSClassFromString(name) alloc] initWithDevice:device] autorelease];
}

/// The pixels and images that a rectangle leaves.
Tensor part(const Tensor &x, long z, long y, long left, long n, long h, long w) {
  Tensor t(n, h, w, x.c);
  for (long i = 0; i < n; ++i)
    for (long j = 0; j < h; ++j)
      for (long k = 0; k < w; ++k)
        for (long c = 0; c < x.c; ++c) t.at(i, j, k, c) = x.at(z + i, y + j, left + k, c);
  return t;
}

// --------------------------------------------------------------------------------------------------- soft max

Tensor softmax(const Tensor &x, bool log) {
  Tensor t = x;
  for (long i = 0; i < x.n; ++i)
    for (long j = 0; j < x.h; ++j)
      for (long k = 0; k < x.w; ++k) {
        double sum = 0;
        for (long c = 0; c < x.c; ++c) sum += std::exp(x.at(i, j, k, c));
        for (long c = 0; c < x.c; ++c)
          t.at(i, j, k, c) = log ? x.at(i, j, k, c) - std::log(sum) : std::exp(x.at(i, j, k, c)) / sum;
      }
  return t;
}

void test_softmax() {
  for (const bool log : {false, true}) {
    MPSCNNKernel *kernel = log ? (MPSCNNKernel *)make<MPSCNNLogSoftMax>() : make<MPSCNNSoftMax>();
    const std::string name = [NSStringFromClass([kernel class]) UTF8String];
    const Tensor x = Tensor::random(2, 3, 5, 7, 1);
    check_equal(name, result_of(kernel, make_image(x)), softmax(x, log), 5e-7);

    Tensor pair(1, 1, 1, 2);
    pair.values = {1, 2};
    Tensor measured(1, 1, 1, 2);  // on Apple's hardware, by others
    measured.values = {0.268941432, 0.731058598};
    if (!log) check_equal("soft max of (1, 2)", result_of(kernel, make_image(pair)), measured, 1e-7);

    // Channels 4 ... 9 of image 1, from pixel (1, -1) on, into rows 1, 2 and columns 1 ... 3 and channels 8 ... 13 of
    // image 1; beyond the source all channels are 0.
    const Tensor wide = Tensor::random(3, 3, 2, 12, 2);
    MPSImage *destination = make_nan_image(2, 4, 5, 16);
    [kernel setOffset:MPSOffset{-1, 1, 1}];
    [kernel setClipRect:MTLRegionMake3D(1, 1, 1, 3, 2, 1)];
    [kernel setSourceFeatureChannelOffset:4];
    [kernel setSourceFeatureChannelMaxCount:6];
    [kernel setDestinationFeatureChannelOffset:8];
    encode(kernel, make_image(wide), destination);
    Tensor seen(1, 2, 3, 6, 0);
    paste(seen, part(wide, 1, 1, 0, 1, 2, 2).channels(4, 6), 0, 0, 1, 0);
    Tensor expected(2, 4, 5, 16, NAN);
    paste(expected, softmax(seen, log), 1, 1, 1, 8);
    check_equal(name + " of a part", read_image(destination), expected, 5e-7);

    MPSCNNKernel *half = log ? (MPSCNNKernel *)make<MPSCNNLogSoftMax>() : make<MPSCNNSoftMax>();
    MPSImage *halves = [[[MPSImage alloc]
        initWithDevice:device
       imageDescriptor:describe(2, 3, 5, 7, MPSImageFeatureChannelFormatFloat16)] autorelease];
    encode(half, make_half_image(x), halves);
    check_equal(name + " in half precision", read_half_image(halves), softmax(x, log), log ? 2e-3 : 2.5e-4);

    NSMutableArray *kept = [NSMutableArray array];
    for (int i = 0; i < 2; ++i) [kept addObject:make_nan_image(1, 3, 5, 7)];
    id<MTLCommandBuffer> buffer = command_buffer();
    [half encodeBatchToCommandBuffer:buffer sourceImages:make_batch(x) destinationImages:kept];
    run(buffer);
    for (NSUInteger i = 0; i < 2; ++i)
      check_equal(name + " of a batch", read_image([kept objectAtIndex:i]), softmax(x.image(static_cast<long>(i)), log),
                  5e-7);
    check([[half resultStateForSourceImage:make_image(x) sourceStates:nil destinationImage:make_image(x)]
              isKindOfClass:[MPSNNGradientState class]],
          name + " leaves a gradient state");
  }
}

// ------------------------------------------------------------------------------------------------- reductions

struct Fold {
  const char *name;
  double (*of)(const std::vector<double> &);
};

double least(const std::vector<double> &x) { return *std::min_element(x.begin(), x.end()); }
double greatest(const std::vector<double> &x) { return *std::max_element(x.begin(), x.end()); }
double sum(const std::vector<double> &x) {
  double s = 0;
  for (double value : x) s += value;
  return s;
}
double mean(const std::vector<double> &x) { return sum(x) / static_cast<double>(x.size()); }
double first_least(const std::vector<double> &x) {
  return static_cast<double>(std::min_element(x.begin(), x.end()) - x.begin());
}
double first_greatest(const std::vector<double> &x) {
  return static_cast<double>(std::max_element(x.begin(), x.end()) - x.begin());
}

constexpr Fold kFolds[] = {{"Min", least}, {"Max", greatest}, {"Mean", mean}, {"Sum", sum}};

Tensor reduce(const Tensor &x, int axis, double (*of)(const std::vector<double> &)) {
  Tensor t(x.n, axis == 1 ? 1 : x.h, axis == 0 ? 1 : x.w, axis == 2 ? 1 : x.c);
  for (long i = 0; i < t.n; ++i)
    for (long j = 0; j < t.h; ++j)
      for (long k = 0; k < t.w; ++k)
        for (long c = 0; c < t.c; ++c) {
          std::vector<double> line;
          const long count = axis == 0 ? x.w : axis == 1 ? x.h : x.c;
          for (long l = 0; l < count; ++l)
            line.push_back(x.at(i, axis == 1 ? l : j, axis == 0 ? l : k, axis == 2 ? l : c));
          t.at(i, j, k, c) = of(line);
        }
  return t;
}

struct Kernel {
  std::string name;
  int axis;
  double (*of)(const std::vector<double> &);
};

std::vector<Kernel> all_kernels() {
  std::vector<Kernel> all;
  const char *const axes[] = {"Row", "Column", "FeatureChannels"};
  for (int axis = 0; axis < 3; ++axis)
    for (const Fold &fold : kFolds) all.push_back({std::string("MPSNNReduce") + axes[axis] + fold.name, axis, fold.of});
  all.push_back({"MPSNNReduceFeatureChannelsArgumentMin", 2, first_least});
  all.push_back({"MPSNNReduceFeatureChannelsArgumentMax", 2, first_greatest});
  return all;
}

MPSNNReduceUnary *make(const Kernel &kernel) {
  return (MPSNNReduceUnary *)make([NSString stringWithUTF8String:kernel.name.c_str()]);
}

void test_reductions() {
  for (const Kernel &kernel : all_kernels()) {
    MPSNNReduceUnary *reduction = make(kernel);
    Tensor x = Tensor::random(2, 4, 5, 6, 3);
    x.at(0, 0, 0, 1) = x.at(0, 0, 0, 4) = 2;  // ties: the first counts
    x.at(1, 1, 1, 0) = x.at(1, 1, 1, 5) = -2;
    check_equal(kernel.name, result_of(reduction, make_image(x)), reduce(x, kernel.axis, kernel.of), 2e-6);

    // Image 1 and 2, rows 1 ... 3, columns 2 ... 4, channels 4 ... 8, placed at (1, 1) and channel 4; the offset is
    // ignored.
    const Tensor wide = Tensor::random(3, 5, 6, 12, 4);
    [reduction setClipRectSource:MTLRegionMake3D(2, 1, 1, 3, 3, 2)];
    [reduction setOffset:MPSOffset{100, -100, 7}];
    [reduction setSourceFeatureChannelOffset:4];
    [reduction setSourceFeatureChannelMaxCount:5];
    Tensor small = reduce(part(wide, 1, 1, 2, 2, 3, 3).channels(4, 5), kernel.axis, kernel.of);
    check_equal(kernel.name + " of a part", result_of(reduction, make_image(wide)), small, 2e-6);

    [reduction setClipRect:MTLRegionMake3D(1, 1, 0, static_cast<NSUInteger>(small.w),
                                           static_cast<NSUInteger>(small.h), 2)];
    [reduction setDestinationFeatureChannelOffset:4];
    Tensor expected(2, 6, 6, 12, NAN);
    paste(expected, small, 0, 1, 1, 4);
    MPSImage *destination = make_nan_image(2, 6, 6, 12);
    encode(reduction, make_image(wide), destination);
    check_equal(kernel.name + " of a part, placed", read_image(destination), expected, 2e-6);

    MPSNNReduceUnary *copy = [[reduction copyWithZone:NULL device:device] autorelease];
    MPSNNReduceUnary *read = archived(reduction);
    [reduction setClipRectSource:MPSRectNoClip];
    for (MPSNNReduceUnary *same in [NSArray arrayWithObjects:copy, read, nil]) {
      destination = make_nan_image(2, 6, 6, 12);
      encode(same, make_image(wide), destination);
      check_equal(kernel.name + ", a copy", read_image(destination), expected, 2e-6);
    }
  }
}

void test_half_reductions() {
  const Tensor x = Tensor::random(2, 4, 5, 6, 5);
  for (const Kernel &kernel : all_kernels()) {
    const Tensor expected = reduce(x, kernel.axis, kernel.of);
    MPSImage *destination = [[[MPSImage alloc] initWithDevice:device
                                              imageDescriptor:describe(expected.n, expected.h, expected.w, expected.c,
                                                                       MPSImageFeatureChannelFormatFloat16)] autorelease];
    encode(make(kernel), make_half_image(x), destination);
    check_equal(kernel.name + " in half precision", read_half_image(destination), expected, 2e-3);
  }
}

void test_batches() {
  const Tensor x = Tensor::random(3, 4, 5, 6, 6);
  for (const Kernel &kernel : all_kernels()) {
    const Tensor expected = reduce(x, kernel.axis, kernel.of);
    MPSNNReduceUnary *reduction = make(kernel);
    [reduction setDestinationImageAllocator:[MPSImage defaultAllocator]];
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSImageBatch *results = [reduction encodeBatchToCommandBuffer:buffer sourceImages:make_batch(x)];
    run(buffer);
    for (long i = 0; i < x.n; ++i)
      check_equal(kernel.name + " of a batch", read_image([results objectAtIndex:static_cast<NSUInteger>(i)]),
                  expected.image(i), 2e-6);
  }
}

void test_weights() {
  const Tensor x = Tensor::random(2, 4, 5, 6, 7);
  Tensor w = Tensor::random(2, 4, 5, 6, 8);
  for (long c = 0; c < 6; c += 2) w.at(0, 0, 0, c) = 0;
  for (long c = 0; c < 6; ++c) w.at(1, 3, 4, c) = 0;
  const auto weighted = [&](int kind) {
    Tensor t(2, 4, 5, 1);
    for (long i = 0; i < 2; ++i)
      for (long j = 0; j < 4; ++j)
        for (long k = 0; k < 5; ++k) {
          double total = 0, count = 0;
          for (long c = 0; c < 6; ++c) {
            total += x.at(i, j, k, c) * w.at(i, j, k, c);
            count += w.at(i, j, k, c) != 0;
          }
          t.at(i, j, k, 0) = total / (kind == 0 ? 1 : kind == 1 ? 6 : std::max(count, 1.0));
        }
    return t;
  };
  const auto result = [&](MPSNNReduceBinary *kernel) {
    [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
    id<MTLCommandBuffer> buffer = command_buffer();
    MPSImage *image = [kernel encodeToCommandBuffer:buffer primaryImage:make_image(x) secondaryImage:make_image(w)];
    run(buffer);
    return read_image(image);
  };
  MPSNNReduceFeatureChannelsAndWeightsSum *plain = make<MPSNNReduceFeatureChannelsAndWeightsSum>();
  MPSNNReduceFeatureChannelsAndWeightsSum *divided =
      [[[MPSNNReduceFeatureChannelsAndWeightsSum alloc] initWithDevice:device
                                         doWeightedSumByNonZeroWeights:true] autorelease];
  check(![plain doWeightedSumByNonZeroWeights] && [divided doWeightedSumByNonZeroWeights],
        "doWeightedSumByNonZeroWeights is off unless it is asked for");
  check_equal("the weighted sum", result(plain), weighted(0), 2e-6);
  check_equal("the weighted sum by non-zero weights", result(archived(divided)), weighted(2), 2e-6);
  check_equal("the weighted mean", result(make<MPSNNReduceFeatureChannelsAndWeightsMean>()), weighted(1), 2e-6);

  // Parts of either source.
  [plain setPrimarySourceClipRect:MTLRegionMake3D(1, 2, 1, 3, 2, 1)];
  [plain setSecondarySourceClipRect:MTLRegionMake3D(0, 1, 0, 3, 2, 1)];
  [plain setPrimaryOffset:MPSOffset{9, 9, 9}];
  Tensor expected(1, 2, 3, 1);
  for (long j = 0; j < 2; ++j)
    for (long k = 0; k < 3; ++k)
      for (long c = 0; c < 6; ++c) expected.at(0, j, k, 0) += x.at(1, 2 + j, 1 + k, c) * w.at(0, 1 + j, k, c);
  check_equal("the weighted sum of parts", result(archived(plain)), expected, 2e-6);
  [plain setSecondarySourceClipRect:MTLRegionMake3D(0, 1, 0, 2, 2, 1)];
  check_raises("weights of other extents", kArgument, "reads 3 x 2 pixels (width x height) of primaryImage and 2 x 2",
               [&] { result(plain); });
}

void test_weight_of_sum() {
  const Tensor x = Tensor::random(1, 2, 3, 5, 9);
  MPSNNReduceFeatureChannelsSum *kernel = make<MPSNNReduceFeatureChannelsSum>();
  check([kernel weight] == 1, "weight is 1");
  [kernel setWeight:-2.5f];
  Tensor expected = reduce(x, 2, sum);
  for (double &value : expected.values) value *= -2.5;
  check_equal("a sum with a weight", result_of(archived(kernel), make_image(x)), expected, 2e-6);
}

void test_refusals() {
  const Tensor x = Tensor::random(1, 4, 5, 6, 10);
  check_raises("a base class", kArgument, "unavailable", [&] { make<MPSNNReduceUnary>(); });
  check_raises("a base class", kArgument, "unavailable", [&] { make<MPSNNReduceBinary>(); });
  MPSNNReduceRowMax *rows = make<MPSNNReduceRowMax>();
  check_raises("a destination with more pixels than rows", kArgument,
               "clipRect leaves 2 x 4 pixels (width x height) of the destination, and the result has 1 x 4", [&] {
                 encode(rows, make_image(x), make_nan_image(1, 4, 2, 6));
               });
  check_raises("a destination with fewer channels", kArgument, "writes 6 feature channels", [&] {
    encode(rows, make_image(x), make_nan_image(1, 4, 1, 5));
  });
  [rows setClipRectSource:MTLRegionMake3D(5, 0, 0, 1, 1, 1)];
  check_raises("a rectangle beyond the source", kArgument, "clipRectSource, origin (5, 0, 0)",
               [&] { encode(rows, make_image(x), make_nan_image(1, 4, 1, 6)); });
  [rows setClipRectSource:MTLRegionMake3D(0, 0, 0, 5, 4, 1)];
  check_raises("a rectangle with fewer images", kArgument, "selects 1 images of sourceImage, and clipRect 2",
               [&] { encode(rows, make_image(Tensor::random(2, 4, 5, 6, 11)), make_nan_image(2, 4, 1, 6)); });
  [rows setEdgeMode:MPSImageEdgeModeMirror];
  check_raises("an edge mode of MPSNNPad", kArgument, "edgeMode (2)",
               [&] { encode(rows, make_image(x), make_nan_image(1, 4, 1, 6)); });

  // A destination with fewer pixels takes the first ones.
  MPSNNReduceColumnMax *columns = make<MPSNNReduceColumnMax>();
  MPSImage *narrow = make_nan_image(1, 1, 3, 6);
  encode(columns, make_image(x), narrow);
  check_equal("a narrow destination", read_image(narrow), part(reduce(x, 1, greatest), 0, 0, 0, 1, 1, 3));
}

}  // namespace

int main() {
  return run_tests({test_softmax, test_reductions, test_half_reductions, test_batches, test_weights, test_weight_of_sum,
                    test_refusals});
}

// SPDX-License-Identifier: Apache-2.0
// Reductions: properties and refused calls. Values are in tests/cases/MPSNNReduce.py. Prints "N passed, N failed".

#import "mps_test.hh"

namespace {

template <class Kernel>
Kernel *make() {
  return [[(id)[Kernel alloc] initWithDevice:device] autorelease];
}

void test_weights() {
  MPSNNReduceFeatureChannelsAndWeightsSum *plain = make<MPSNNReduceFeatureChannelsAndWeightsSum>();
  MPSNNReduceFeatureChannelsAndWeightsSum *divided =
      [[[MPSNNReduceFeatureChannelsAndWeightsSum alloc] initWithDevice:device
                                         doWeightedSumByNonZeroWeights:true] autorelease];
  check(![plain doWeightedSumByNonZeroWeights] && [divided doWeightedSumByNonZeroWeights],
        "doWeightedSumByNonZeroWeights is off unless it is asked for");
  check([make<MPSNNReduceFeatureChannelsSum>() weight] == 1, "weight is 1");
  [plain setPrimarySourceClipRect:MTLRegionMake3D(1, 2, 1, 3, 2, 1)];
  [plain setSecondarySourceClipRect:MTLRegionMake3D(0, 1, 0, 2, 2, 1)];
  check_raises("weights of other extents", kArgument, "reads 3 x 2 pixels (width x height) of primaryImage and 2 x 2",
               [&] {
                 [plain encodeToCommandBuffer:command_buffer()
                                 primaryImage:make_nan_image(2, 4, 5, 6)
                               secondaryImage:make_nan_image(2, 4, 5, 6)];
               });
}

void test_refusals() {
  const Tensor x = Tensor::random(1, 4, 5, 6, 10);
  check_raises("a base class", kArgument, "unavailable", [&] { make<MPSNNReduceUnary>(); });
  check_raises("a base class", kArgument, "unavailable", [&] { make<MPSNNReduceBinary>(); });
  MPSNNReduceRowMax *rows = make<MPSNNReduceRowMax>();
  check_raises("a destination with more pixels than rows", kArgument,
               "clipRect leaves 2 x 4 pixels (width x height) of the destination, and the result has 1 x 4",
               [&] { encode(rows, make_image(x), make_nan_image(1, 4, 2, 6)); });
  check_raises("a destination with fewer channels", kArgument, "writes 6 feature channels",
               [&] { encode(rows, make_image(x), make_nan_image(1, 4, 1, 5)); });
  [rows setClipRectSource:MTLRegionMake3D(5, 0, 0, 1, 1, 1)];
  check_raises("a rectangle beyond the source", kArgument, "clipRectSource, origin (5, 0, 0)",
               [&] { encode(rows, make_image(x), make_nan_image(1, 4, 1, 6)); });
  [rows setClipRectSource:MTLRegionMake3D(0, 0, 0, 5, 4, 1)];
  check_raises("a rectangle with fewer images", kArgument, "selects 1 images of sourceImage, and clipRect 2",
               [&] { encode(rows, make_image(Tensor::random(2, 4, 5, 6, 11)), make_nan_image(2, 4, 1, 6)); });
  [rows setEdgeMode:MPSImageEdgeModeMirror];
  check_raises("an edge mode of MPSNNPad", kArgument, "edgeMode (2)",
               [&] { encode(rows, make_image(x), make_nan_image(1, 4, 1, 6)); });
}

}  // namespace

int main() { return run_tests({test_weights, test_refusals}); }

// SPDX-License-Identifier: Apache-2.0
// MPSCNNBinaryConvolution and MPSCNNBinaryFullyConnected: initialisers, terms, copies, archives, errors. Values are in
// tests/cases/MPSCNNBinaryConvolution.py.

#import "mps_test.hh"

namespace {

/// Weights of one bit for the descriptor; bits beyond the last channel are random too.
TestSource *bits_source(MPSCNNConvolutionDescriptor *d, unsigned seed) {
  const std::size_t words =
      [d outputFeatureChannels] * [d kernelWidth] * [d kernelHeight] * (([d inputFeatureChannels] + 31) / 32);
  TestSource *source = make_source(d, {}, random_values([d outputFeatureChannels], seed + 1));
  source->type = MPSDataTypeUInt32;
  source->bytes.resize(words * 4);
  std::uint32_t state = seed * 2654435761u + 1;
  for (unsigned char &byte : source->bytes)
    byte = static_cast<unsigned char>((state = state * 1664525u + 1013904223u) >> 24);
  return source;
}

MPSCNNBinaryConvolution *make_scaled(TestSource *source, float scale, MPSCNNBinaryConvolutionType type) {
  return [[[MPSCNNBinaryConvolution alloc] initWithDevice:device
                                          convolutionData:source
                                               scaleValue:scale
                                                     type:type
                                                    flags:MPSCNNBinaryConvolutionFlagsNone] autorelease];
}

void test_data_source() {
  TestSource *source = bits_source(descriptor_of(2, 3, 40, 9), 7);
  MPSCNNBinaryConvolution *kernel = make_scaled(source, 0.5f, MPSCNNBinaryConvolutionTypeBinaryWeights);
  check([kernel inputFeatureChannels] == 40 && [kernel outputFeatureChannels] == 9, "channels");
  check([[kernel label] isEqual:@"test source"], "the data source's label");
  check(source->loads == source->purges && source->loads > 0, "load and purge are balanced");
}

void test_copies_and_archives() {
  const Tensor x = Tensor::random(1, 6, 7, 40, 4);
  MPSCNNConvolutionDescriptor *d = descriptor_of(3, 3, 40, 18);
  [d setFusedNeuronDescriptor:[MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeSigmoid]];
  std::vector<float> scale(18, 0.125f), input_bias(40, 0.25f);
  for (const auto type :
       {MPSCNNBinaryConvolutionTypeBinaryWeights, MPSCNNBinaryConvolutionTypeXNOR, MPSCNNBinaryConvolutionTypeAND}) {
    MPSCNNBinaryConvolution *kernel =
        [[[MPSCNNBinaryConvolution alloc] initWithDevice:device
                                         convolutionData:bits_source(d, 9)
                                         outputBiasTerms:NULL
                                        outputScaleTerms:scale.data()
                                          inputBiasTerms:input_bias.data()
                                         inputScaleTerms:NULL
                                                    type:type
                                                   flags:MPSCNNBinaryConvolutionFlagsUseBetaScaling] autorelease];
    [kernel setOffset:MPSOffset{1, -2, 0}];
    check_twins("binary convolution", kernel, x, 5, 6, 18);
  }
  MPSCNNBinaryFullyConnected *layer =
      [[[MPSCNNBinaryFullyConnected alloc] initWithDevice:device
                                          convolutionData:bits_source(descriptor_of(6, 7, 40, 5), 2)
                                               scaleValue:2
                                                     type:MPSCNNBinaryConvolutionTypeXNOR
                                                    flags:MPSCNNBinaryConvolutionFlagsNone] autorelease];
  check_twins("binary fully connected", layer, x, 1, 1, 5);
}

void test_errors() {
  MPSCNNConvolutionDescriptor *d = descriptor_of(3, 3, 40, 8);
  TestSource *source = bits_source(d, 1);
  check_raises("no such type", kArgument, "type (3) is not BinaryWeights (0), XNOR (1) or AND (2)",
               [&] { make_scaled(source, 1, (MPSCNNBinaryConvolutionType)3); });
  check_raises("no such flags", kArgument, "flags (2) is neither None (0) nor UseBetaScaling (1)", [&] {
    [[MPSCNNBinaryConvolution alloc] initWithDevice:device
                                    convolutionData:source
                                         scaleValue:1
                                               type:MPSCNNBinaryConvolutionTypeXNOR
                                              flags:(MPSCNNBinaryConvolutionFlags)2];
  });
  check_raises("no source", kArgument, "is nil", [] { make_scaled(nil, 1, MPSCNNBinaryConvolutionTypeXNOR); });
  check_raises("initWithDevice:", kArgument, "is unavailable",
               [] { [[(id)[MPSCNNBinaryConvolution alloc] initWithDevice:device] autorelease]; });
  TestSource *floats = make_source(d, random_values(40 * 9 * 8, 1), {});
  check_raises("numbers", kArgument, "is not UInt32, words of 32 bits",
               [&] { make_scaled(floats, 1, MPSCNNBinaryConvolutionTypeXNOR); });
  source->has_no_weights = YES;
  check_raises("no weights", kArgument, "weights are NULL",
               [&] { make_scaled(source, 1, MPSCNNBinaryConvolutionTypeXNOR); });
  source->has_no_weights = NO;
  source->refuses_load = YES;
  check(make_scaled(source, 1, MPSCNNBinaryConvolutionTypeXNOR) == nil, "a source that does not load gives no kernel");
  source->refuses_load = NO;
  [d setGroups:2];
  check_raises("groups", kArgument, "has groups (2); it is 1",
               [&] { make_scaled(source, 1, MPSCNNBinaryConvolutionTypeXNOR); });
  [d setGroups:1];
  MPSCNNBinaryConvolution *kernel = make_scaled(source, 1, MPSCNNBinaryConvolutionTypeXNOR);
  check_raises("channels", kArgument, "inputFeatureChannels is 40",
               [&] { encode(kernel, make_image(Tensor(1, 5, 5, 8)), make_nan_image(1, 5, 5, 8)); });
}

}  // namespace

int main() { return run_tests({test_data_source, test_copies_and_archives, test_errors}); }

// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <MPSNeuralNetwork/MPSCNNBatchNormalization.h>
#import <MPSNeuralNetwork/MPSCNNConvolution.h>
#import <MPSNeuralNetwork/MPSCNNDropout.h>
#import <MPSNeuralNetwork/MPSCNNGroupNormalization.h>
#import <MPSNeuralNetwork/MPSCNNInstanceNormalization.h>
#import <MPSNeuralNetwork/MPSCNNKernel.h>
#import <MPSNeuralNetwork/MPSCNNLoss.h>
#import <MPSNeuralNetwork/MPSCNNMath.h>
#import <MPSNeuralNetwork/MPSCNNNeuron.h>
#import <MPSNeuralNetwork/MPSCNNNeuronType.h>
#import <MPSNeuralNetwork/MPSCNNNormalization.h>
#import <MPSNeuralNetwork/MPSCNNNormalizationWeights.h>
#import <MPSNeuralNetwork/MPSCNNPooling.h>
#import <MPSNeuralNetwork/MPSCNNSoftMax.h>
#import <MPSNeuralNetwork/MPSCNNTypes.h>
#import <MPSNeuralNetwork/MPSCNNUpsampling.h>
#import <MPSNeuralNetwork/MPSNNGradientState.h>
#import <MPSNeuralNetwork/MPSNNGraph.h>
#import <MPSNeuralNetwork/MPSNNGraphNodes.h>
#import <MPSNeuralNetwork/MPSNNGridSample.h>
#import <MPSNeuralNetwork/MPSNNOptimizers.h>
#import <MPSNeuralNetwork/MPSNNReduce.h>
#import <MPSNeuralNetwork/MPSNNReshape.h>
#import <MPSNeuralNetwork/MPSNNResize.h>
#import <MPSNeuralNetwork/MPSNNSlice.h>
#import <MPSNeuralNetwork/MPSNeuralNetworkTypes.h>
#import <MPSNeuralNetwork/MPSRNNLayer.h>

// SPDX-License-Identifier: Apache-2.0
// All kernels as functions of the host, for the engine cuda-host.
#define MPSCNN_REGISTER_KERNELS
#include "engine/cuda/kernels/conv_depthwise.hpp"
#include "engine/cuda/kernels/convolution.hpp"
#include "engine/cuda/kernels/layout.hpp"
#include "engine/cuda/kernels/loss.hpp"
#include "engine/cuda/kernels/lrn.hpp"
#include "engine/cuda/kernels/normalization.hpp"
#include "engine/cuda/kernels/optimizer.hpp"
#include "engine/cuda/kernels/pointwise.hpp"
#include "engine/cuda/kernels/pooling.hpp"
#include "engine/cuda/kernels/reduction.hpp"
#include "engine/cuda/kernels/resampling.hpp"
#include "engine/cuda/kernels/reshape.hpp"
#include "engine/cuda/kernels/softmax.hpp"

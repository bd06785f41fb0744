// SPDX-License-Identifier: Apache-2.0
// Parameter specs used by the rows of the table, by family. A row with a different default uses a variant.
#pragma once

#include "params/arithmetic.hpp"
#include "params/binary_convolution.hpp"
#include "params/convolution.hpp"
#include "params/dropout.hpp"
#include "params/image_kernel.hpp"
#include "params/neuron.hpp"
#include "params/normalization.hpp"
#include "params/pooling.hpp"
#include "params/reduction.hpp"
#include "params/reshape.hpp"
#include "params/sampling.hpp"

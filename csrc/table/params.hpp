// SPDX-License-Identifier: Apache-2.0
// Parameter specs that rows of the table name, by family. A row that needs its own default takes a variant.
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

// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <MPSMatrix/MPSMatrixMultiplication.h>
#import <MPSMatrix/MPSMatrixRandom.h>
#import <MPSMatrix/MPSMatrixTypes.h>

// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <MPSCore/MPSCommandBuffer.h>
#import <MPSCore/MPSCoreTypes.h>
#import <MPSCore/MPSImage.h>
#import <MPSCore/MPSKernel.h>
#import <MPSCore/MPSKernelTypes.h>
#import <MPSCore/MPSKeyedUnarchiver.h>
#import <MPSCore/MPSMatrix.h>
#import <MPSCore/MPSNDArray.h>
#import <MPSCore/MPSState.h>

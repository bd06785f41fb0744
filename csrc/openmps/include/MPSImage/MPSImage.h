// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <MPSImage/MPSImageConversion.h>
#import <MPSImage/MPSImageCopy.h>
#import <MPSImage/MPSImageKernel.h>
#import <MPSImage/MPSImageResampling.h>
#import <MPSImage/MPSImageTranspose.h>
#import <MPSImage/MPSImageTypes.h>

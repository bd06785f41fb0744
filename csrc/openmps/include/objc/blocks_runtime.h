// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

// GNUstep includes this name; the blocks runtime of Debian calls it <Block.h>.

#pragma once

#include <Block.h>

// SPDX-License-Identifier: Apache-2.0
#include <metal_stdlib>
using namespace metal;

constant bool has_bias [[function_constant(0)]];
constant ushort rounds [[function_constant(1)]];
constant float factor [[function_constant(2)]];
constant int mode [[function_constant(3)]];
constant float2 pair [[function_constant(4)]];
constant half small [[function_constant(5)]];
constant bool has_none = !has_bias;
constant float used_factor = is_function_constant_defined(factor) ? factor : 10.0;

kernel void biased(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
                   device const float* bias [[buffer(2), function_constant(has_bias)]],
                   texture2d<float, access::read> other [[texture(0)]] [[function_constant(has_none)]],
                   uint i [[thread_position_in_grid]]) {
    float x = in[i];
    for (ushort k = 0; k < rounds; ++k) x += 1;
    if (has_bias) x += bias[i];
    if (has_none) x += other.read(uint2(i, 0)).x;
    out[i] = x * used_factor;
}

kernel void typed(device float* out [[buffer(0)]]) {
    out[0] = mode;
    out[1] = pair.x;
    out[2] = pair.y;
    out[3] = small;
}

kernel void unrelated(device float* out [[buffer(0)]]) { out[0] = 5; }

// SPDX-License-Identifier: Apache-2.0
#include <metal_stdlib>
using namespace metal;

// The image at coordinates of a buffer.
#define SAMPLE(name, ...)                                                                        \
    kernel void name(texture2d<float> in [[texture(0)]], device const float2* at [[buffer(0)]],  \
                     device float4* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {     \
        constexpr sampler s(__VA_ARGS__);                                                        \
        out[i] = in.sample(s, at[i]);                                                            \
    }
SAMPLE(nearest_edge, coord::pixel, address::clamp_to_edge)
SAMPLE(nearest_normalized, filter::nearest)
SAMPLE(linear_edge, coord::pixel, address::clamp_to_edge, filter::linear)
SAMPLE(linear_zero, coord::pixel, address::clamp_to_zero, filter::linear)
SAMPLE(linear_repeat, coord::normalized, address::repeat, filter::linear)
SAMPLE(nearest_mirrored, coord::normalized, address::mirrored_repeat, filter::nearest)

// The same with samplers of the caller, one of them without an index, and handed to a function.
static float4 at_of(texture2d<float> in, sampler s, float2 at) { return in.sample(s, at); }
kernel void given(texture2d<float> in [[texture(0)]], device const float2* at [[buffer(0)]],
                  device float4* out [[buffer(1)]], sampler first, const sampler second [[sampler(2)]],
                  uint i [[thread_position_in_grid]]) {
    out[2 * i] = in.sample(first, at[i]);
    out[2 * i + 1] = at_of(in, second, at[i]);
}
SAMPLE(white_border, coord::pixel, address::clamp_to_border, border_color::opaque_white, filter::linear)

kernel void linear_slices(texture2d_array<half, access::sample> in [[texture(0)]],
                          texture2d_array<half, access::write> out [[texture(1)]],
                          uint3 gid [[thread_position_in_grid]]) {
    constexpr sampler s(coord::normalized, filter::linear, address::clamp_to_edge);
    const float2 at = (float2(gid.xy) + 0.5) / float2(out.get_width(), out.get_height());
    out.write(in.sample(s, at, gid.z), gid.xy, gid.z);
}

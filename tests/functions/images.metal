// SPDX-License-Identifier: Apache-2.0
#include <metal_stdlib>
using namespace metal;

struct Size {
    uint height, width, channels;
};

// Channels in planes of a buffer, to and from the slices of an image.
kernel void from_planes(device const float* in [[buffer(0)]],
                        texture2d_array<half, access::write> out [[texture(0)]],
                        constant Size& size [[buffer(1)]],
                        ushort3 gid [[thread_position_in_grid]]) {
    if (gid.x >= out.get_width() || gid.y >= out.get_height() || gid.z >= out.get_array_size()) return;
    half4 value = half4(0.0h);
    for (uint lane = 0; lane < 4; ++lane) {
        const uint channel = gid.z * 4 + lane;
        if (channel < size.channels) value[lane] = half(in[(channel * size.height + gid.y) * size.width + gid.x]);
    }
    out.write(value, gid.xy, gid.z);
}

kernel void to_planes(texture2d_array<half, access::read> in [[texture(0)]],
                      device float* out [[buffer(0)]],
                      constant Size& size [[buffer(1)]],
                      uint3 gid [[thread_position_in_grid]]) {
    if (any(gid.xy >= uint2(size.width, size.height))) return;
    const half4 value = in.read(gid.xy, gid.z);
    for (uint lane = 0; lane < 4 && gid.z * 4 + lane < size.channels; ++lane)
        out[((gid.z * 4 + lane) * size.height + gid.y) * size.width + gid.x] = value[lane];
}

#define ELEMENTWISE(name, op)                                                        \
    kernel void name(texture2d_array<float, access::read> a [[texture(0)]],          \
                     texture2d_array<float, access::read> b [[texture(1)]],          \
                     texture2d_array<float, access::write> out [[texture(2)]],       \
                     ushort3 gid [[thread_position_in_grid]]) {                      \
        if (gid.x >= out.get_width() || gid.y >= out.get_height()) return;           \
        const float4 x = a.read(gid.xy, gid.z), y = b.read(gid.xy, gid.z);           \
        out.write(op, gid.xy, gid.z);                                                \
    }
ELEMENTWISE(add, x + y)
ELEMENTWISE(subtract, x - y)
ELEMENTWISE(multiply, x * y)
ELEMENTWISE(maximum, max(x, y))

kernel void clamp_values(texture2d<half, access::read> in [[texture(0)]],
                         texture2d<half, access::write> out [[texture(1)]],
                         constant float2& limits [[buffer(0)]],
                         ushort2 gid [[thread_position_in_grid]]) {
    if (gid.x >= out.get_width() || gid.y >= out.get_height()) return;
    out.write(clamp(in.read(gid), half(limits.x), half(limits.y)), gid);
}

kernel void resize_nearest(texture2d_array<half, access::read> in [[texture(0)]],
                           texture2d_array<half, access::write> out [[texture(1)]],
                           uint3 gid [[thread_position_in_grid]]) {
    const uint x = gid.x * in.get_width() / out.get_width(), y = gid.y * in.get_height() / out.get_height();
    out.write(in.read(uint2(x, y), gid.z), gid.xy, gid.z);
}

// Channels of a, a multiple of 4, before those of b.
kernel void concat(texture2d_array<half, access::read> a [[texture(0)]],
                   texture2d_array<half, access::read> b [[texture(1)]],
                   texture2d_array<half, access::write> out [[texture(2)]],
                   ushort3 gid [[thread_position_in_grid]]) {
    const ushort first = a.get_array_size();
    out.write(gid.z < first ? a.read(gid.xy, gid.z) : b.read(gid.xy, gid.z - first), gid.xy, gid.z);
}

// Each pixel from the one at an offset: many are outside.
kernel void shift(texture2d_array<float, access::read> in [[texture(0)]],
                  texture2d_array<float, access::write> out [[texture(1)]],
                  constant int3& by [[buffer(0)]],
                  uint3 gid [[thread_position_in_grid]]) {
    const int3 at = int3(gid) + by;
    out.write(in.read(uint2(at.xy), uint(at.z)), gid.xy, gid.z);
}

// Writes that miss the image are dropped.
kernel void scatter(texture2d<float, access::write> out [[texture(0)]], uint2 gid [[thread_position_in_grid]]) {
    out.write(float4(gid.x, gid.y, 1, 2), gid - 2);
}

kernel void in_place(texture2d_array<float, access::read_write> image [[texture(0)]],
                     uint3 gid [[thread_position_in_grid]]) {
    image.write(image.read(gid.xy, gid.z) * 2 + 1, gid.xy, gid.z);
}

kernel void lanes(texture2d<float, access::read> in [[texture(0)]],
                  device float4* out [[buffer(0)]],
                  ushort2 gid [[thread_position_in_grid]]) {
    out[gid.y * in.get_width() + gid.x] = in.read(gid);
}

kernel void convolve_3x3(texture2d_array<half, access::sample> in [[texture(0)]],
                         texture2d_array<half, access::write> out [[texture(1)]],
                         constant half* weights [[buffer(0)]],
                         ushort3 gid [[thread_position_in_grid]]) {
    constexpr sampler s(coord::pixel, address::clamp_to_zero, filter::nearest);
    if (gid.x >= out.get_width() || gid.y >= out.get_height()) return;
    float4 sum = 0.0f;
    for (short dy = -1; dy <= 1; ++dy)
        for (short dx = -1; dx <= 1; ++dx)
            sum += float4(in.sample(s, float2(gid.xy) + 0.5 + float2(dx, dy), gid.z)) * weights[(dy + 1) * 3 + dx + 1];
    out.write(half4(sum), gid.xy, gid.z);
}

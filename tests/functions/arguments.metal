// SPDX-License-Identifier: Apache-2.0
#include <metal_stdlib>
using namespace metal;

kernel void ids(device uint* out [[buffer(0)]],
                uint3 position [[thread_position_in_grid]],
                uint3 local [[thread_position_in_threadgroup]],
                uint index [[thread_index_in_threadgroup]],
                uint3 group [[threadgroup_position_in_grid]],
                uint3 size [[threads_per_threadgroup]],
                uint3 dispatched [[dispatch_threads_per_threadgroup]],
                uint3 grid [[threads_per_grid]],
                uint3 groups [[threadgroups_per_grid]]) {
    device uint* to = out + ((position.z * grid.y + position.y) * grid.x + position.x) * 22;
    to[0] = position.x, to[1] = position.y, to[2] = position.z;
    to[3] = local.x, to[4] = local.y, to[5] = local.z;
    to[6] = index;
    to[7] = group.x, to[8] = group.y, to[9] = group.z;
    to[10] = size.x, to[11] = size.y, to[12] = size.z;
    to[13] = dispatched.x, to[14] = dispatched.y, to[15] = dispatched.z;
    to[16] = grid.x, to[17] = grid.y, to[18] = grid.z;
    to[19] = groups.x, to[20] = groups.y, to[21] = groups.z;
}

// The same with fewer bits and axes; the barrier makes threads of a group run apart.
[[kernel]] void small_ids(device ushort* out [[buffer(0)]],
                          ushort2 position [[thread_position_in_grid]],
                          ushort local [[thread_position_in_threadgroup]],
                          ushort index [[thread_index_in_threadgroup]],
                          ushort2 group [[threadgroup_position_in_grid]],
                          ushort size [[threads_per_threadgroup]],
                          ushort2 grid [[threads_per_grid]]) {
    device ushort* to = out + (position.y * grid.x + position.x) * 7;
    to[0] = position.x, to[1] = position.y, to[2] = local, to[3] = index;
    threadgroup_barrier(mem_flags::mem_none);
    to[4] = group.x, to[5] = group.y, to[6] = size;
}

// Indices that are not given are the next free ones.
kernel void without_indices(device float* out, constant float& a, device const float* b [[buffer(1)]],
                            uint i [[thread_position_in_grid]]) {
    out[i] = a * b[i];
}

struct Inner {
    float3 color;
    packed_float3 packed;
    half4 small;
};
struct Parameters {
    Inner inner[2];
    float2 scale;
    ushort count;
    bool negate;
};

kernel void structs(device float* out [[buffer(0)]], constant Parameters& p [[buffer(1)]]) {
    float sum = 0;
    for (ushort i = 0; i < p.count; ++i)
        sum += dot(p.inner[i].color, float3(p.inner[i].packed)) + float(p.inner[i].small.w) + p.inner[i].packed.y;
    out[0] = p.negate ? -sum * p.scale.y : sum;
}

kernel void element_types(device uchar4* bytes [[buffer(0)]], device short* shorts [[buffer(1)]],
                          device half* halves [[buffer(2)]], device long* longs [[buffer(3)]],
                          uint i [[thread_position_in_grid]]) {
    bytes[i] = bytes[i].wzyx + uchar4(1);
    shorts[i] = -shorts[i] / 2;
    halves[i] = halves[i] * 0.5h + 1;
    longs[i] = longs[i] * 3000000000l;
}

// SPDX-License-Identifier: Apache-2.0
#include <metal_stdlib>
using namespace metal;

constant uint kThreads = 64;

// A sum per group, halved in a loop with barriers.
kernel void reduce(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
    constant uint& count [[buffer(2)]],
                   uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                   uint group [[threadgroup_position_in_grid]]) {
    threadgroup float sums[kThreads];
    sums[t] = i < count ? in[i] : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint half_size = kThreads / 2; half_size > 0; half_size >>= 1) {
        if (t < half_size) sums[t] += sums[t + half_size];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (t == 0) out[group] = sums[0];
}

// The barriers are in functions that functions call.
static float total(threadgroup float* values, uint t, uint n) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (uint i = 0; i < n; ++i) sum += values[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return sum;
}
static float2 moments(threadgroup float* values, float x, uint t, uint n) {
    values[t] = x;
    const float mean = total(values, t, n) / n;
    values[t] = (x - mean) * (x - mean);
    return float2(mean, total(values, t, n) / n);
}
kernel void standardize(device float* data [[buffer(0)]], threadgroup float* values [[threadgroup(0)]],
                        uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                        uint n [[threads_per_threadgroup]]) {
    const float2 m = moments(values, data[i], t, n);
    data[i] = (data[i] - m.x) * rsqrt(m.y + 1e-5);
}

// Instance normalization: a group for each slice.
kernel void instance_norm(texture2d_array<half, access::read> in [[texture(0)]],
                          texture2d_array<half, access::write> out [[texture(1)]],
                          ushort3 t [[thread_position_in_threadgroup]], ushort3 size [[threads_per_threadgroup]],
                          ushort3 group [[threadgroup_position_in_grid]]) {
    threadgroup float4 shared[256];
    const ushort index = t.y * size.x + t.x, count = size.x * size.y;
    const float pixels = in.get_width() * in.get_height();
    float4 mean = 0, variance = 0;
    for (ushort pass = 0; pass < 2; ++pass) {
        float4 sum = 0;
        for (ushort y = t.y; y < in.get_height(); y += size.y)
            for (ushort x = t.x; x < in.get_width(); x += size.x) {
                const float4 v = float4(in.read(ushort2(x, y), group.z)) - mean;
                sum += pass == 0 ? v : v * v;
            }
        shared[index] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float4 all = 0;
        for (ushort i = 0; i < count; ++i) all += shared[i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (pass == 0) mean = all / pixels; else variance = all / pixels;
    }
    const float4 scale = 1.0 / sqrt(variance + 1e-5f);
    for (ushort y = t.y; y < in.get_height(); y += size.y)
        for (ushort x = t.x; x < in.get_width(); x += size.x)
            out.write(half4((float4(in.read(ushort2(x, y), group.z)) - mean) * scale), ushort2(x, y), group.z);
}

// Threads that end before the others reach a barrier, and a number of rounds that differs by group.
kernel void rounds(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]],
                   uint t [[thread_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
    threadgroup uint ring[32];
    threadgroup uint steps;
    ring[t] = i;
    if (t == 0) steps = group;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < steps; ++k) {
        const uint next = ring[(t + 1) % 32];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        ring[t] = next;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    out[i] = ring[t];
}

// The position of each group of a grid in three dimensions, which its first thread shares.
kernel void positions(device uint* out [[buffer(0)]], uint3 group [[threadgroup_position_in_grid]],
                      uint3 groups [[threadgroups_per_grid]], uint t [[thread_index_in_threadgroup]]) {
    threadgroup uint shared;
    if (t == 0) shared = group.x + 10 * group.y + 100 * group.z;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[((group.z * groups.y + group.y) * groups.x + group.x) * 4 + t] = shared;
}

// Counters in device and in threadgroup memory.
kernel void histogram(device const uchar* in [[buffer(0)]], device atomic_uint* bins [[buffer(1)]],
                      device atomic_int* extremes [[buffer(2)]], uint i [[thread_position_in_grid]],
                      uint t [[thread_index_in_threadgroup]]) {
    threadgroup atomic_uint local[16];
    if (t < 16) atomic_store_explicit(&local[t], 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&local[in[i] / 16], 1, memory_order_relaxed);
    atomic_fetch_max_explicit(&extremes[0], int(in[i]), memory_order_relaxed);
    atomic_fetch_min_explicit(&extremes[1], int(in[i]), memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < 16) atomic_fetch_add_explicit(&bins[t], atomic_load_explicit(&local[t], memory_order_relaxed),
        memory_order_relaxed);
}
kernel void count(device atomic_uint* counter [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    if (i % 3 == 0) atomic_fetch_add_explicit(counter, 2, memory_order_relaxed);
}

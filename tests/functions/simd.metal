// SPDX-License-Identifier: Apache-2.0
#include <metal_stdlib>
using namespace metal;

kernel void ids(device uint* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]],
                uint group [[simdgroup_index_in_threadgroup]], ushort width [[threads_per_simdgroup]],
                ushort count [[simdgroups_per_threadgroup]], uint full [[dispatch_simdgroups_per_threadgroup]],
                uint quad_lane [[thread_index_in_quadgroup]], uint quad [[quadgroup_index_in_threadgroup]],
                uint quads [[quadgroups_per_threadgroup]], uint old [[thread_execution_width]],
                uint i [[thread_position_in_grid]]) {
    const uint values[] = {lane, group, width, count, full, quad_lane, quad, quads, old};
    for (uint k = 0; k < 9; ++k) out[9 * i + k] = values[k];
}

kernel void reductions(device const int* in [[buffer(0)]], device int* out [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
    const int x = in[i];
    device int* mine = out + 7 * i;
    mine[0] = simd_sum(x);
    mine[1] = simd_product(x | 1);
    mine[2] = simd_min(x);
    mine[3] = simd_max(x);
    mine[4] = simd_and(x);
    mine[5] = simd_or(x);
    mine[6] = simd_xor(x);
}
kernel void quad_reductions(device const int* in [[buffer(0)]], device int* out [[buffer(1)]],
                            uint i [[thread_position_in_grid]]) {
    const int x = in[i];
    device int* mine = out + 7 * i;
    mine[0] = quad_sum(x);
    mine[1] = quad_product(x | 1);
    mine[2] = quad_min(x);
    mine[3] = quad_max(x);
    mine[4] = quad_and(x);
    mine[5] = quad_or(x);
    mine[6] = quad_xor(x);
}

// Other types: vectors by element, halves, small integers; an explicit template argument, the namespace's name.
kernel void typed(device const float4* in [[buffer(0)]], device float4* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
    const float4 x = in[i];
    out[4 * i] = simd_sum(x);
    out[4 * i + 1] = float4(simd_max(half4(x)));
    out[4 * i + 2] = float4(metal::simd_min(x.x), simd_sum<float>(x.y), float(simd_sum(ushort(i))), simd_sum(x.zw).y);
    out[4 * i + 3] = float4(simd_shuffle_xor(x.wz, 1), float2(simd_broadcast(half2(x.xy), 3)));
}

kernel void prefixes(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
    const float x = in[i];
    device float* mine = out + 8 * i;
    mine[0] = simd_prefix_exclusive_sum(x);
    mine[1] = simd_prefix_inclusive_sum(x);
    mine[2] = simd_prefix_exclusive_product(x);
    mine[3] = simd_prefix_inclusive_product(x);
    mine[4] = quad_prefix_exclusive_sum(x);
    mine[5] = quad_prefix_inclusive_sum(x);
    mine[6] = quad_prefix_exclusive_product(x);
    mine[7] = quad_prefix_inclusive_product(x);
}

kernel void shuffles(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
                     constant ushort& delta [[buffer(2)]], uint i [[thread_position_in_grid]],
                     ushort lane [[thread_index_in_simdgroup]]) {
    const uint x = in[i];
    device uint* mine = out + 15 * i;
    mine[0] = simd_broadcast(x, delta);
    mine[1] = simd_broadcast_first(x);
    mine[2] = simd_shuffle(x, (lane * 5) % 32);
    mine[3] = simd_shuffle_up(x, delta);
    mine[4] = simd_shuffle_down(x, delta);
    mine[5] = simd_shuffle_xor(x, delta);
    mine[6] = simd_shuffle_rotate_up(x, delta);
    mine[7] = simd_shuffle_rotate_down(x, delta);
    mine[8] = simd_shuffle_and_fill_up(x, 1000 + x, delta);
    mine[9] = simd_shuffle_and_fill_down(x, 1000 + x, delta);
    mine[10] = simd_shuffle_and_fill_up(x, 1000 + x, delta, 8);
    mine[11] = simd_shuffle_and_fill_down(x, 1000 + x, delta, 8);
    mine[12] = quad_shuffle_xor(x, delta % 4);
    mine[13] = quad_broadcast(x, delta % 4);
    mine[14] = quad_shuffle_rotate_up(x, delta);
}

// Threads with an odd value are active in the inner functions.
kernel void votes(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
    const uint x = in[i];
    device uint* mine = out + 10 * i;
    mine[0] = uint(ulong(simd_ballot(x > 4)));
    mine[1] = simd_any(x > 8);
    mine[2] = simd_all(x < 9);
    mine[3] = uint(simd_vote::vote_t(simd_active_threads_mask()));
    mine[4] = simd_is_first();
    mine[5] = uint(ulong(quad_ballot(x > 4)));
    mine[6] = simd_ballot(x > 4).any() + 2 * simd_ballot(x < 100).all();
    if (x % 2 == 1) {
        mine[7] = uint(ulong(simd_active_threads_mask()));
        mine[8] = simd_is_first();
        mine[9] = simd_all(x != 2) + 2 * simd_any(x == 3) + 4 * quad_any(x == 3);
    }
}

// Threads in different branches, and loops that end at different times.
template <typename T>
static T total(T x) {
    return simd_sum(x);
}
kernel void branches(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
    const uint x = in[i];
    device uint* mine = out + 5 * i;
    if (x % 3 == 0)
        mine[0] = simd_sum(x);
    else
        mine[0] = 1000 + simd_max(x);
    uint rounds = 0;
    for (uint k = 0; k < x; ++k) rounds += simd_sum(1u);
    mine[1] = rounds;
    mine[2] = total(x);
    if (x > 2) mine[4] = total(1u) + total<uint>(x); else mine[4] = 1000 + total(1u);
    if (x > 5) return;
    mine[3] = simd_sum(1u);
}

// A sum per threadgroup: of SIMD groups, then of their sums.
kernel void two_levels(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                       uint i [[thread_position_in_grid]], uint group [[threadgroup_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint count [[simdgroups_per_threadgroup]]) {
    threadgroup float sums[32];
    float sum = simd_sum(in[i]);
    if (lane == 0) sums[simdgroup] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup == 0) {
        sum = simd_sum(lane < count ? sums[lane] : 0);
        if (lane == 0) out[group] = sum;
    }
}

// Threads of a SIMD group hand values on through threadgroup memory.
kernel void ring(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]],
                 uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup uint values[64];
    values[t] = i;
    for (uint k = 0; k < 5; ++k) {
        simdgroup_barrier(mem_flags::mem_threadgroup);
        const uint next = values[t - lane + (lane + 1) % 32];
        simdgroup_barrier(mem_flags::mem_threadgroup);
        values[t] = next;
    }
    out[i] = values[t];
}

// A program's own function of such a name.
static uint simd_quarter(uint a) { return a / 4; }
static uint quad_shuffle_up(uint a, float b) { return a + uint(b); }
kernel void own(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    out[i] = quad_shuffle_up(simd_quarter(i), 1.0);
}

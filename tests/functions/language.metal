// SPDX-License-Identifier: Apache-2.0
#include <metal_stdlib>
#include <simd/simd.h>
using namespace metal;

constant float table[4] = {0.5, 1.5, 2.5, -3.5};
constant half4 offsets = half4(1.0h, 2.0h, 3.0h, 4.0h);
enum class Mode : ushort { plus, minus };

kernel void swizzles(device float4* v [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    float4 a = v[i];
    a.xy = a.yx;
    a.zw *= 2.0;
    a.rgb += float3(1, 2, 3);
    float2 b = a.wz;
    b.xy += 1;
    thread float4& r = a;
    r.x += b.y;
    v[i] = float4(a.xyz.zyx, b.x);
}

kernel void constructors(device float4* out [[buffer(0)]]) {
    const float2 a = {1, 2};
    out[0] = float4(a, 3, 4);
    out[1] = float4(float3(1.5), a.y);
    out[2] = float4(int4(-1, 2, -3, 4));
    out[3] = float4(uchar4(200, 100, 50, 255)) / 255.0;
    out[4] = float4(half4(0.1h, 1e4h, -2, 3.5));
    out[5] = 7;
    float4 b[2] = {out[0], 1.0};
    out[6] = b[0] + b[1];
    out[7] = float4(select(float3(1), float3(2), bool3(true, false, true)), float(all(b[0] > 0.0)));
}

kernel void literals(device float* out [[buffer(0)]]) {
    out[0] = 1 / 2;
    out[1] = 1.0 / 3;
    out[2] = 0x10;
    out[3] = 1e-3;
    out[4] = 2.5h;
    out[5] = INFINITY;
    out[6] = isnan(NAN);
    out[7] = M_PI_F;
    out[8] = sizeof(1.0) + sizeof(float3) * 10 + sizeof(packed_float3) * 1000 + sizeof(half3) * 100000;
    out[9] = UINT_MAX == 0xffffffffu;
    out[10] = table[3] + offsets.w;
    out[11] = float(Mode::minus) + int(-7.9) + -7 % 4;
    out[12] = as_type<float>(0x40490fdb);
    out[13] = as_type<ushort>(half(1.0));
}

// Halves round after each operation.
kernel void halves(device half* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    half a = x[i];
    half b = a * a;
    half c = b + 1.0h;
    x[i] = c > 100 ? c / 3 : -c;
}

kernel void integers(device const int* in [[buffer(0)]], device int* out [[buffer(1)]],
    uint i [[thread_position_in_grid]]) {
    const int x = in[i];
    out[6 * i] = abs(x) % 7;
    out[6 * i + 1] = max(x, 3) - min(x, -3);
    out[6 * i + 2] = popcount(x);
    out[6 * i + 3] = int(clz(uint(x)));
    out[6 * i + 4] = clamp(x, -10, 10) << 2;
    const ushort3 v = ushort3(x, x + 1, x + 2);
    out[6 * i + 5] = (v ^ 3).y + (v >> 1).z;
}

kernel void matrices(device float4* out [[buffer(0)]], constant float4x4& m [[buffer(1)]],
    constant float4& v [[buffer(2)]],
                     constant half4x4& h [[buffer(3)]]) {
    out[0] = m * v;
    out[1] = v * m;
    out[2] = (m * transpose(m))[1];
    out[3] = float4(h * half4(v));
    const float3x3 r = float3x3(float3(2, 0, 0), float3(0, 3, 0), float3(1, 0, 4));
    out[4] = float4(r * v.xyz, determinant(r));
    const float2x2 s = float2x2(2.0) + float2x2(1, 2, 3, 4);
    out[5] = float4(s[0], s[1] * 2);
}

#define UNARY(name) out[k++ * n + i] = name(x);
kernel void math(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
    uint i [[thread_position_in_grid]],
                 uint n [[threads_per_grid]]) {
    const float x = in[i];
    uint k = 0;
    UNARY(exp) UNARY(exp2) UNARY(sin) UNARY(cos) UNARY(tanh) UNARY(atan) UNARY(floor) UNARY(ceil)
        UNARY(round) UNARY(rint)
    UNARY(trunc) UNARY(fabs) UNARY(abs) UNARY(sign) UNARY(saturate) UNARY(fract)
    const float y = abs(x) + 0.1;
    out[k++ * n + i] = log(y);
    out[k++ * n + i] = log2(y);
    out[k++ * n + i] = log10(y);
    out[k++ * n + i] = sqrt(y);
    out[k++ * n + i] = rsqrt(y);
    out[k++ * n + i] = pow(y, 1.5);
    out[k++ * n + i] = metal::precise::exp(-y);
    out[k++ * n + i] = fma(x, y, 1.0);
    out[k++ * n + i] = mix(x, y, 0.25);
    out[k++ * n + i] = step(0.5, x);
    out[k++ * n + i] = smoothstep(-1.0, 1.0, x);
    out[k++ * n + i] = clamp(x, -0.5, 0.5);
    out[k++ * n + i] = fmod(x, 0.7);
    out[k++ * n + i] = atan2(x, y);
    out[k++ * n + i] = fmin(fmax(x, -1.0), 1.0);
    out[k++ * n + i] = copysign(y, x);
}

kernel void geometry(device const float3* a [[buffer(0)]], device const float3* b [[buffer(1)]],
    device float* out [[buffer(2)]],
                     uint i [[thread_position_in_grid]]) {
    device float* to = out + 11 * i;
    to[0] = dot(a[i], b[i]);
    to[1] = length(a[i]);
    to[2] = distance(a[i], b[i]);
    const float3 n = normalize(a[i]), c = cross(a[i], b[i]);
    to[3] = n.x, to[4] = n.y, to[5] = n.z;
    to[6] = c.x, to[7] = c.y, to[8] = c.z;
    to[9] = length_squared(b[i]);
    to[10] = any(a[i] > b[i]) ? 1 : 0;
}

// Functions, overloads, templates and structs with members.
template <typename T>
T twice(T x) { return x + x; }
static float area(float2 v) { return v.x * v.y; }
static float area(float3 v) { return v.x * v.y * v.z; }
struct Accumulator {
    float sum = 0;
    uint count = 0;
    void add(float x) { sum += x; ++count; }
    float mean() const { return sum / count; }
};
namespace tools {
inline half lift(half x) { return x + 1; }
}
static void store(device float* to, thread const Accumulator& a) { *to = a.mean(); }

kernel void calls(device float* out [[buffer(0)]]) {
    out[0] = twice(1.5) + twice(2);
    out[1] = area(float2(2, 3)) + area(float3(2, 3, 4));
    Accumulator a;
    for (int i = 0; i < 5; ++i) a.add(i);
    store(out + 2, a);
    out[3] = tools::lift(2.0h);
    switch (int(out[3])) {
        case 3: out[4] = 33; break;
        default: out[4] = 0;
    }
    auto v = float4(1, 2, 3, 4);
    auto w = v.zw;
    v.z = 10;
    out[5] = w.x + (v.x > 0 ? v.y : 0);
    out[6] = table[1] * 2;
}

template <typename T, int kFactor>
kernel void scaled(device T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = x[i] * T(kFactor); }
template [[host_name("scaled_float_3")]] kernel void scaled<float, 3>(device float* x [[buffer(0)]],
    uint i [[thread_position_in_grid]]);
template [[host_name("scaled_int_5")]] kernel void scaled<int, 5>(device int* x [[buffer(0)]],
    uint i [[thread_position_in_grid]]);

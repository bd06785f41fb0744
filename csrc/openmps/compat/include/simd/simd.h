// SPDX-License-Identifier: Apache-2.0
// Vector types by Apple's names. The compiler provides arithmetic, components (.x, .xyz) and subscripts. No functions.

#pragma once

#include <Metal/OpenMPSSupport.h>

typedef float vector_float3 __attribute__((ext_vector_type(3)));
typedef float vector_float4 __attribute__((ext_vector_type(4)));
typedef int vector_int2 __attribute__((ext_vector_type(2)));
typedef int vector_int3 __attribute__((ext_vector_type(3)));
typedef int vector_int4 __attribute__((ext_vector_type(4)));
typedef unsigned vector_uint2 __attribute__((ext_vector_type(2)));
typedef unsigned vector_uint3 __attribute__((ext_vector_type(3)));
typedef unsigned vector_uint4 __attribute__((ext_vector_type(4)));

typedef vector_float2 simd_float2;
typedef vector_float3 simd_float3;
typedef vector_float4 simd_float4;
typedef vector_int2 simd_int2;
typedef vector_int3 simd_int3;
typedef vector_int4 simd_int4;
typedef vector_uint2 simd_uint2;
typedef vector_uint3 simd_uint3;
typedef vector_uint4 simd_uint4;

// SPDX-License-Identifier: Apache-2.0
// Data that openmps shares with compiled Metal functions. The text of this folder is compiled in front of a program's
// source: by clang++, g++ and NVRTC, at C++17, without any other header.
#pragma once

namespace openmps::function_abi {

/// A bound texture. Slice s shows channels (s % slices_per_image) * lanes ... of image s / slices_per_image.
struct Texture {
  unsigned char* data;          ///< image 0, row 0, column 0, channel 0
  long long pixel, row, image;  ///< strides in bytes
  unsigned width, height, slices;
  unsigned slices_per_image, channels;  ///< of one image
  unsigned lanes;                       ///< of a texel: 1, 2 or 4
  int format;                           ///< openmps::Format
};

enum TextureFormat { kUnorm8, kUnorm16, kFloat16, kFloat32, kAnyFormat };

/// Values of MTLSamplerAddressMode and MTLSamplerBorderColor.
enum SamplerAddress { kClampToEdge, kMirrorClampToEdge, kRepeat, kMirrorRepeat, kClampToZero, kClampToBorder };
enum BorderColor { kTransparentBlack, kOpaqueBlack, kOpaqueWhite };

/// A bound sampler.
struct Sampler {
  unsigned char is_pixel, is_linear;  ///< coordinates in pixels; linear interpolation
  unsigned char across, down;         ///< SamplerAddress
  unsigned char border;               ///< BorderColor
};

/// An argument of the call; the binding of the same position says what it is.
struct Argument {
  Texture texture;
  unsigned char* pointer;     ///< of buffers and bytes
  unsigned long long offset;  ///< of threadgroup memory: into that of the group
  Sampler sampler;
};

struct Grid {
  unsigned threads[3];  ///< of the whole grid
  unsigned group[3];    ///< threads of a threadgroup; groups at the end of a grid may have fewer
  unsigned groups[3];
};

struct Call {
  const Argument* arguments;
  Grid grid;
  int format;          ///< of all textures, if all are of one image with 4 lanes in each slice; else kAnyFormat
  unsigned inside[3];  ///< threads below are inside of all textures, with their own position; only with a format
};

/// Threads of a grid.
struct Box {
  unsigned begin[3], end[3];
};

enum Simd : unsigned { kSimdWidth = 32, kMaxLaneBytes = 64 };

/// Values that the active threads of a SIMD group have given to one call of a function.
struct Lanes {
  unsigned mask;  ///< the active threads, a bit each
  alignas(16) unsigned char values[kSimdWidth][kMaxLaneBytes];
};

/// A threadgroup whose threads are run one by one.
struct Group {
  const Call* call;
  unsigned position[3], size[3];
  unsigned char* memory;  ///< of threadgroup arguments
  void (*wait)();         ///< suspend the running thread until all threads of the group wait
  /// Suspend the running thread until the other threads of its SIMD group wait or have ended. Return the values of
  /// those that wait in the same call, which are valid until the next exchange, and set the thread's index in its SIMD
  /// group.
  const Lanes* (*exchange)(unsigned call, const void* value, unsigned bytes, unsigned* lane);
  void (*enter)(unsigned call);  ///< the running thread calls a function in which there are such calls
  void (*leave)();
};

enum BindingKind {
  kTexture,
  kBuffer,
  kThreadgroupMemory,
  kSampler,
  kThreadPositionInGrid,
  kThreadPositionInThreadgroup,
  kThreadIndexInThreadgroup,
  kThreadgroupPositionInGrid,
  kThreadsPerThreadgroup,
  kDispatchThreadsPerThreadgroup,
  kThreadsPerGrid,
  kThreadgroupsPerGrid,
  kThreadIndexInSimdgroup,
  kSimdgroupIndexInThreadgroup,
  kThreadsPerSimdgroup,
  kSimdgroupsPerThreadgroup,
  kDispatchSimdgroupsPerThreadgroup,
  kThreadIndexInQuadgroup,
  kQuadgroupIndexInThreadgroup,
  kQuadgroupsPerThreadgroup,
  kDispatchQuadgroupsPerThreadgroup,
};

enum TextureAccess { kSample, kRead, kWrite, kReadWrite };

/// An argument of a function.
struct Binding {
  int kind;
  unsigned index;    ///< of the texture, buffer, sampler or threadgroup memory
  int is_active;     ///< 0: its function constant is false
  int access;        ///< of a texture
  int is_array;      ///< texture2d_array
  int has_integers;  ///< texels are integers
  int is_read_only;  ///< buffer
  unsigned bytes;    ///< of the buffer's referenced object; of a pointer's element
  int is_reference;  ///< buffer: reference, not pointer
  int data_type;     ///< MTLDataType of texels, of a buffer's value or element; 0 unless it is a number
};

}  // namespace openmps::function_abi

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

/// An argument of the call; the binding of the same position says what it is.
struct Argument {
  Texture texture;
  unsigned char* pointer;     ///< of buffers and bytes
  unsigned long long offset;  ///< of threadgroup memory: into that of the group
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

/// A threadgroup whose threads are run one by one.
struct Group {
  const Call* call;
  unsigned position[3], size[3];
  unsigned char* memory;  ///< of threadgroup arguments
  void (*wait)();         ///< suspend the running thread until all threads of the group wait
};

enum BindingKind {
  kTexture,
  kBuffer,
  kThreadgroupMemory,
  kThreadPositionInGrid,
  kThreadPositionInThreadgroup,
  kThreadIndexInThreadgroup,
  kThreadgroupPositionInGrid,
  kThreadsPerThreadgroup,
  kDispatchThreadsPerThreadgroup,
  kThreadsPerGrid,
  kThreadgroupsPerGrid,
};

enum TextureAccess { kSample, kRead, kWrite, kReadWrite };

/// An argument of a function.
struct Binding {
  int kind;
  unsigned index;    ///< of the texture, buffer or threadgroup memory
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

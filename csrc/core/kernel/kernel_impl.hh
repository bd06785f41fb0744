// SPDX-License-Identifier: Apache-2.0
// What the files of Kernel share: what stands behind it, and how a result lies on its sources.
#pragma once

#include <mpscnn/error.hpp>
#include <mpscnn/gradient_state.hpp>
#include <mpscnn/kernel.hpp>

#include <array>
#include <mutex>

#include "core/device/device_impl.hh"
#include "core/device/forked.hpp"
#include "core/device/objc_scope.hh"
#include "core/kernel/families/family.hh"

/// What MPSCNNKernel and MPSCNNBinaryKernel have in common: Apple has no class between them and MPSKernel.
@protocol CommonProperties
@property(nonatomic) MTLRegion clipRect;
@property(nonatomic) NSUInteger destinationFeatureChannelOffset;
@end

namespace mpscnn {

/// How the result lies on the sources: its extents and the kernel's offsets.
struct Geometry {
  ImageShape shape;
  std::array<MPSOffset, 2> offsets{};
  Pair kernel_offset{0, 0};             ///< transposed convolution
  std::int64_t spare_channels = 0;      ///< of a new destination, behind those that are written
  std::array<ImageShape, 2> strides{};  ///< arithmetic: 0 along axes on which a source repeats; n: its only image
};

/// The geometry that the last encode_placed() found, with its checks, and what it was found for.
struct CheckedGeometry {
  std::array<ImageShape, 2> sources{};
  ImageShape destination;
  Placement placement;
  std::uint64_t changes = 0;  ///< Kernel::Impl::changes then
  Geometry geometry;
};

struct Kernel::Impl {
  const KernelRow *row;
  std::shared_ptr<Device> device;
  Made made;
  Params attributes = {};                              ///< common parameters as they were set
  std::array<std::optional<Offset3>, 2> offsets = {};  ///< of each source
  std::optional<Region3> clip = {};
  std::uint64_t changes = 0;  ///< of attributes
  std::optional<CheckedGeometry> checked = {};
  /// Encode writes properties of the MPS object. A padding policy, which is asked meanwhile, may read the kernel's.
  ForkChecked<std::recursive_mutex> mutex = {};
  Kernel *owner = nullptr;
  /// Shared by a kernel and its copies: a state of one is a state of all.
  std::shared_ptr<const int> lineage = std::make_shared<const int>();
};

/// An MPSCNNBinaryKernel. Gradient kernels are such; those that are made of a forward kernel follow that one's
/// attributes, and is_binary() is about it.
inline bool is_binary(const Kernel::Impl &impl) { return impl.row->sources.size() == 2; }
inline bool is_gradient(const Kernel::Impl &impl) { return impl.made.forward != nullptr; }

/// In front of the names of a source's properties.
inline const char *prefix_of(const Kernel::Impl &impl, std::size_t source) {
  return !is_binary(impl) ? "" : source == 0 ? "primary_" : "secondary_";
}

// The MPS object as what it is.
inline id<CommonProperties> common(const Kernel::Impl &impl) {
  return static_cast<id<CommonProperties>>(static_cast<id>(impl.made.kernel.get()));
}
inline MPSCNNKernel *unary(const Kernel::Impl &impl) { return static_cast<MPSCNNKernel *>(impl.made.kernel.get()); }
inline MPSCNNBinaryKernel *binary(const Kernel::Impl &impl) {
  return static_cast<MPSCNNBinaryKernel *>(impl.made.kernel.get());
}

inline MTLRegion clip_region(const Kernel::Impl &impl) { return impl.clip ? mtl_region(*impl.clip) : MPSRectNoClip; }

/// Throws std::invalid_argument where the kernel does not fit the sources. `image`, of the first source's shape, is
/// looked at by padding policies only.
/// A gradient kernel's state, where it is given, knows what the forward encode's sources were.
Geometry geometry(const Kernel::Impl &impl, std::span<const ImageShape> sources, MPSImage *image,
                  const GradientState *state = nullptr);

/// The same for a gradient kernel with a forward kernel: the result lies on the second source, and the offsets are
/// those of the forward kernel.
Geometry gradient_geometry(const Kernel::Impl &impl, std::span<const ImageShape> sources, MPSImage *image,
                           const GradientState *state);
/// Such a kernel of a forward kernel of its own, by the parameters of both.
std::shared_ptr<Kernel> make_gradient(const std::shared_ptr<Device> &device, const KernelRow &row,
                                      const Params &params);
/// Whether the kernel keeps the attribute; else its forward kernel does.
bool has_own_attribute(const Kernel::Impl &impl, std::string_view name);
/// Encodes such a kernel.
void encode_gradient(Kernel::Impl &impl, id<MTLCommandBuffer> commands, const Geometry &g,
                     std::span<const Image *const> sources, const Image &destination, GradientState *state);
/// Whether an encode with states is one of a batch of single images; the offsets that choose them are then 0 in the
/// kernel.
bool encodes_single_images(const Kernel::Impl &impl, std::span<const Image *const> sources, MPSImage *destination);
Geometry of_single_images(Geometry g);
/// The first image of a source that is read.
NSUInteger single_first(const Geometry &g, std::size_t source);
/// What a forward kernel, whose offsets have been set, leaves for its gradient kernel.
std::shared_ptr<GradientState> make_gradient_state(Kernel &kernel, const Geometry &g,
                                                   std::span<const Image *const> sources, MPSImage *destination);
/// Throws unless another encode of the kernel may join the state: of a kernel whose encodes share one, not used yet.
void check_joins(const Kernel::Impl &impl, const GradientState::Impl &state);
/// And for such a source.
void check_joins(const Kernel::Impl &impl, const GradientState::Impl &state, const Geometry &g, const Image &source);
/// It has joined.
void joined(const Kernel::Impl &impl, GradientState::Impl &state, const Geometry &g, const Image &source);
/// Puts `g` into the MPS object: where the sources are read.
void set_geometry(const Kernel::Impl &impl, const Geometry &g);

/// Extents of a destination that nobody gives.
ImageShape new_destination(const Kernel::Impl &impl, const Geometry &g);

/// What must hold of a destination the caller gives. Without a clip_rect the result fills it exactly.
void check_destination(const Kernel::Impl &impl, const Geometry &g, ImageShape out);

/// Channels of a source that the kernel reads.
std::int64_t source_channels(const Kernel::Impl &impl, std::size_t source, ImageShape shape);

}  // namespace mpscnn

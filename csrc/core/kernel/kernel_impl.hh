// SPDX-License-Identifier: Apache-2.0
// Implementation of Kernel shared by its files, and the geometry of results and sources.
#pragma once

#include <mpscnn/error.hpp>
#include <mpscnn/gradient_state.hpp>
#include <mpscnn/kernel.hpp>

#include <array>
#include <atomic>
#include <mutex>

#include "core/device/device_impl.hh"
#include "core/device/forked.hpp"
#include "core/device/objc_scope.hh"
#include "core/kernel/families/family.hh"

/// Properties common to MPSCNNKernel and MPSCNNBinaryKernel; Apple has no class between them and MPSKernel.
@protocol CommonProperties
@property(nonatomic) MTLRegion clipRect;
@property(nonatomic) NSUInteger destinationFeatureChannelOffset;
@end

namespace mpscnn {

/// Extents of the result and offsets of the sources.
struct Geometry {
  ImageShape shape;
  std::array<MPSOffset, 2> offsets{};
  Pair kernel_offset{0, 0};             ///< transposed convolution
  std::int64_t spare_channels = 0;      ///< unwritten channels at the end of a new destination
  std::array<ImageShape, 2> strides{};  ///< arithmetic: 0 along axes on which a source broadcasts, images (n) included
};

/// The checked geometry of the last encode_placed(), and its arguments.
struct CheckedGeometry {
  std::array<ImageShape, 2> sources{};
  ImageShape destination;
  Placement placement;
  std::uint64_t changes = 0;  ///< value of Kernel::Impl::changes
  Geometry geometry;
};

struct Kernel::Impl {
  const KernelRow *row;
  std::shared_ptr<Device> device;
  FamilyKernel made;
  Params attributes = {};                              ///< common parameters as given
  std::array<std::optional<Offset3>, 2> offsets = {};  ///< of each source
  std::optional<Region3> clip = {};
  std::atomic<std::uint64_t> changes = 0;  ///< number of changes of attributes and weights
  std::optional<CheckedGeometry> checked = {};
  /// Encode writes properties of the MPS object. Recursive: a padding policy called meanwhile may read the kernel's.
  ForkChecked<std::recursive_mutex> mutex = {};
  Kernel *owner = nullptr;
  /// Shared by a kernel and its copies, which can use each other's states.
  std::shared_ptr<const int> lineage = std::make_shared<const int>();
};

/// Return whether the MPS object is an MPSCNNBinaryKernel, as those of gradient kernels are. Call it with the forward
/// kernel where a gradient kernel takes that one's attributes.
inline bool is_binary(const Kernel::Impl &impl) { return impl.row->sources.size() == 2; }
inline bool is_gradient(const Kernel::Impl &impl) { return impl.made.forward != nullptr; }

/// Return the prefix of the names of a source's properties.
inline const char *prefix_of(const Kernel::Impl &impl, std::size_t source) {
  return !is_binary(impl) ? "" : source == 0 ? "primary_" : "secondary_";
}

// The MPS object cast to its class.
inline id<CommonProperties> common(const Kernel::Impl &impl) {
  return static_cast<id<CommonProperties>>(static_cast<id>(impl.made.kernel.get()));
}
inline MPSCNNKernel *unary(const Kernel::Impl &impl) { return static_cast<MPSCNNKernel *>(impl.made.kernel.get()); }
inline MPSCNNBinaryKernel *binary(const Kernel::Impl &impl) {
  return static_cast<MPSCNNBinaryKernel *>(impl.made.kernel.get());
}

inline MTLRegion clip_region(const Kernel::Impl &impl) { return impl.clip ? mtl_region(*impl.clip) : MPSRectNoClip; }

/// Return the geometry; throw std::invalid_argument if the kernel does not fit the sources. Only padding policies read
/// `image`, which has the first source's shape. The state of a gradient kernel provides the forward encode's sources.
Geometry geometry(const Kernel::Impl &impl, std::span<const ImageShape> sources, MPSImage *image,
                  const GradientState *state = nullptr);

/// Same for a gradient kernel with a forward kernel: the result has the extents of the second source, and the offsets
/// are the forward kernel's.
Geometry gradient_geometry(const Kernel::Impl &impl, std::span<const ImageShape> sources, MPSImage *image,
                           const GradientState *state);
/// Make a gradient kernel with its own forward kernel from the parameters of both.
std::shared_ptr<Kernel> make_gradient(const std::shared_ptr<Device> &device, const KernelRow &row,
                                      const Params &params);
/// Return whether the kernel itself has the attribute; otherwise its forward kernel does.
bool has_own_attribute(const Kernel::Impl &impl, std::string_view name);
/// Encode a gradient kernel that has a forward kernel.
void encode_gradient(Kernel::Impl &impl, id<MTLCommandBuffer> commands, const Geometry &g,
                     std::span<const Image *const> sources, const Image &destination, GradientState *state);
/// Return whether an encode with states takes a batch of single images; the kernel's image offsets are then 0.
bool encodes_single_images(const Kernel::Impl &impl, std::span<const Image *const> sources, MPSImage *destination);
Geometry of_single_images(Geometry g);
/// Return the index of the first image that is read of a source.
NSUInteger single_first(const Geometry &g, std::size_t source);
/// Make the state of a forward encode for its gradient kernel. The offsets must have been set.
std::shared_ptr<GradientState> make_gradient_state(Kernel &kernel, const Geometry &g,
                                                   std::span<const Image *const> sources, MPSImage *destination);
/// Throw unless another encode of the kernel may share the state: the kernel supports it, and the state is unused.
void check_joins(const Kernel::Impl &impl, const GradientState::Impl &state);
/// Same, also checking the geometry and the source.
void check_joins(const Kernel::Impl &impl, const GradientState::Impl &state, const Geometry &g, const Image &source);
/// Record an encode that shares the state.
void joined(const Kernel::Impl &impl, GradientState::Impl &state, const Geometry &g, const Image &source);
/// Set the source offsets of `g` on the MPS object.
void set_geometry(const Kernel::Impl &impl, const Geometry &g);

/// Return the extents of a new destination.
ImageShape new_destination(const Kernel::Impl &impl, const Geometry &g);

/// Throw unless the caller's destination fits. Without a clip_rect the result fills it exactly.
void check_destination(const Kernel::Impl &impl, const Geometry &g, ImageShape out);

/// Return the number of channels that the kernel reads of a source.
std::int64_t source_channels(const Kernel::Impl &impl, std::size_t source, ImageShape shape);

}  // namespace mpscnn

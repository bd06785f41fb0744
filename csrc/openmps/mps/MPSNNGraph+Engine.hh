// SPDX-License-Identifier: Apache-2.0
// A graph in the order of its encode: operations that read and write numbered images and states. The nodes make the
// operations; MPSNNGraph owns and encodes them.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#import "mps/MPSCNNKernel+Engine.hh"

/// An addition to Apple's interface of padding policies.
@interface NSObject (OpenMPSPadding)
/// Return whether the policy's answer depends on nothing but the kernel and the extents of its sources.
- (BOOL)dependsOnSizesOnly;
@end

namespace openmps {

inline constexpr std::size_t kNone = SIZE_MAX;

/// An image that an operation writes, or that the program passes.
struct GraphImage {
  Ref<id<MPSHandle>> handle;
  Ref<id<MPSImageAllocator>> allocator;                                    ///< nil: temporary images
  MPSImageFeatureChannelFormat format = MPSImageFeatureChannelFormatNone;  ///< None: the graph's
  bool is_result = false;                                                  ///< returned to the program
  bool is_exported = false;
  bool synchronizes = false;
  NSUInteger reads = 0;  ///< encodes of operations that read it
  /// The concatenation in whose result this image is, from its source `joined_at` on. kNone: none.
  std::size_t joined_by = kNone, joined_at = 0;

  /// Return whether only operations of the graph use the image, whose memory is theirs to choose.
  bool is_inner() const { return !allocator && !is_result && !is_exported; }
};

/// Extents of an image of a graph.
struct GraphImageSize {
  NSUInteger width = 0, height = 0, channels = 0;

  bool operator==(const GraphImageSize &) const = default;
};
/// Return all pixels and channels of the first image of a batch, which has the extents of the others.
const ImageView &view_of(MPSImageBatch *batch);
GraphImageSize size_of(MPSImageBatch *batch);
/// Return the channels that a source takes in a concatenation [MPSNNGraphNodes.h].
inline NSUInteger rounded_channels(NSUInteger channels) { return (channels + 3) / 4 * 4; }

/// A state that an operation writes, or that the program passes.
struct GraphState {
  Ref<id<MPSHandle>> handle;
  bool is_exported = false;
  bool synchronizes = false;
  bool is_permanent = false;  ///< the CPU reads it
  NSUInteger reads = 0;       ///< decrements of its readCount
};

class Encoding;
struct Graph;

/// The encode of one node.
struct Operation {
  Ref<MPSKernel *> kernel;
  std::vector<std::size_t> sources;  ///< images
  std::vector<std::size_t> states;   ///< source states
  std::size_t result = kNone;        ///< image
  std::size_t result_state = kNone;
  /// The result that a padding policy makes of the sources each time, if it depends on their extents only.
  struct Described {
    std::array<GraphImageSize, 2> sources;
    GraphImageSize result;
    Ref<MPSImageDescriptor *> descriptor;  ///< null: none
  } described;

  virtual ~Operation() = default;
  virtual std::unique_ptr<Operation> clone() const = 0;
  /// Visit the kernels, for copies of the graph and for its options.
  virtual void each_kernel(const std::function<void(Ref<MPSKernel *> &)> &visit) { visit(kernel); }
  /// Add the encodes that read each image, and the decrements of each state's readCount.
  virtual void count_reads(std::vector<GraphImage> &images, std::vector<GraphState> &states) const;
  virtual void encode(Encoding &encoding) = 0;
  /// Return whether the result is the sources side by side, each from a multiple of 4 channels on.
  virtual bool joins() const { return false; }
  /// Called in a copy of the graph, when all kernels are copies.
  virtual void did_copy(const Graph & /*graph*/) {}
  /// Read the data sources of the kernels again.
  virtual void reload();
  /// Size the result with the kernel's padding policy.
  MPSImageDescriptor *describe(const Encoding &encoding, Batches images);
};

/// struct AddOperation : OperationOf<AddOperation, KernelOperation> { ... };
template <class Self, class Base = Operation>
struct OperationOf : Base {
  std::unique_ptr<Operation> clone() const override { return std::make_unique<Self>(static_cast<const Self &>(*this)); }
};

/// One kernel on images, forward or gradient.
struct KernelOperation : OperationOf<KernelOperation> {
  void encode(Encoding &encoding) override;
  /// Change the size of the result that the padding policy suggests, or properties of the kernel.
  virtual void prepare(Encoding &, MPSImageDescriptor *) {}
  /// Called when the result has been made and all properties can still change.
  virtual void will_encode(Encoding &, MPSImageBatch * /*destination*/) {}
};

/// State of an MPSNNGraph.
struct Graph : KernelState {
  std::vector<std::unique_ptr<Operation>> operations;
  std::vector<GraphImage> images;
  std::vector<GraphState> states;
  std::vector<std::size_t> source_images, source_states;  ///< in the order in which the program passes them
  std::vector<std::size_t> results;
  std::vector<bool> needed;           ///< results that the program gets
  std::vector<GraphImageSize> sizes;  ///< of all images, in the last encode; empty: none
  Ref<id<MPSImageAllocator>> allocator;
  MPSImageFeatureChannelFormat format = MPSImageFeatureChannelFormatFloat16;
  BOOL state_is_temporary = NO;
  Ref<id<MTLCommandQueue>> queue;  ///< of executeAsync
  /// Held by encodes, and by updates in completion handlers. Shared with the latter.
  std::shared_ptr<std::recursive_mutex> mutex = std::make_shared<std::recursive_mutex>();

  Graph() = default;
  Graph(const Graph &other);
  KernelState *clone() const override { return new Graph(*this); }
  void archive(Archive &archive) override;
  void did_copy(id<OpenMPSDevice> device) override;
};

/// The arguments of one encode. A single image is a batch of one, which may have several images.
struct GraphInputs {
  NSArray<MPSImageBatch *> *images;
  NSArray<MPSStateBatch *> *states;
  NSMutableArray *intermediates, *destination_states;  ///< nil: not wanted
  bool batched;                                        ///< the arrays hold batches, not single objects
};

/// One encode of a graph. If it raises, the temporary images and states that it made are discarded.
class Encoding {
 public:
  Encoding(Graph &graph, id<MTLCommandBuffer> buffer, const GraphInputs &inputs);
  ~Encoding();
  Encoding(const Encoding &) = delete;
  Encoding &operator=(const Encoding &) = delete;

  /// Encode all operations. Return the first result; nil if it is not needed.
  MPSImageBatch *run();

  id<MTLCommandBuffer> buffer() const { return buffer_; }
  const Graph &graph() const { return graph_; }
  Operation &operation(std::size_t index) const { return *graph_.operations[index]; }
  MPSImageBatch *image(std::size_t index) const { return images_[index]; }
  MPSStateBatch *state(std::size_t index) const { return states_[index]; }
  /// The first source state of an operation; nil if it has none.
  MPSStateBatch *source_state(const Operation &operation) const {
    return operation.states.empty() ? nil : states_[operation.states[0]];
  }
  bool state_is_permanent(std::size_t index) const;
  bool result_is_needed(const Operation &operation) const;

  /// Size the result with the kernel's padding policy. `sources`: the images passed to it.
  MPSImageDescriptor *describe_result(ImageKernel *kernel, Batches sources, MPSStateBatch *states) const;
  /// Make the images of an operation's result: in the memory of a concatenation that joins them, if its size is known.
  MPSImageBatch *make_result(const Operation &operation, MPSImageDescriptor *descriptor, MPSKernel *kernel);
  /// Make the operation's states; nil if nothing reads them.
  MPSStateBatch *make_states(const Operation &operation, MPSKernel *kernel, Batches sources,
                             MPSStateBatch *source_states, MPSImageBatch *destination);
  /// Encode a kernel on images.
  void encode(MPSKernel *kernel, Batches sources, const States &states, MPSImageBatch *destination) const;

 private:
  void check_inputs(const GraphInputs &inputs) const;
  MPSImageFeatureChannelFormat format_of(const GraphImage &image) const;
  MPSImageBatch *joined_result(std::size_t index, MPSImageDescriptor *descriptor, MPSKernel *kernel);
  MPSImageBatch *new_images(MPSImageDescriptor *descriptor, id<MPSImageAllocator> allocator, MPSKernel *kernel,
                            NSUInteger count) const;
  void finish(const Operation &operation);
  void finish_states();
  void hand_over(NSMutableArray *array, NSArray *batch) const;

  Graph &graph_;
  id<MTLCommandBuffer> buffer_;
  const GraphInputs inputs_;
  std::unique_lock<std::recursive_mutex> lock_;
  NSMutableArray *made_;  ///< batches to discard if an encode raises; nil once it has not
  std::vector<MPSImageBatch *> images_;
  std::vector<MPSImageBatch *> joined_;  ///< results of concatenations that have the memory of others
  std::vector<MPSStateBatch *> states_;
  std::vector<GraphImageSize> sizes_;
  bool knows_sizes_ = false;  ///< all images are as large as in the last encode, unless a policy changes its mind
};

/// Return an array with `object` for each of `count` images.
NSArray *repeated(id object, NSUInteger count);

}  // namespace openmps

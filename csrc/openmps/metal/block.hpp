// SPDX-License-Identifier: Apache-2.0
// Blocks as members of C++ objects.
#pragma once

#include <memory>

namespace openmps {

/// Return a copy of the block that lives as long as the pointer; null for null. GNUstep base has its own _Block_copy,
/// which returns clang's stack blocks uncopied; it is called when a program links GNUstep base before libBlocksRuntime.
/// In that case the copy is made here.
std::shared_ptr<const void> copy_block(const void* block);

/// `B`: the block's type.
template <class B>
class Block {
 public:
  Block() = default;
  explicit Block(B block) : block_(copy_block((const void*)block)) {}
  B get() const { return (B)block_.get(); }

 private:
  std::shared_ptr<const void> block_;
};

}  // namespace openmps

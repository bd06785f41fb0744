// SPDX-License-Identifier: Apache-2.0
// Blocks as members of C++ objects.
#pragma once

#include <memory>

namespace openmps {

/// A copy of the block that lives as long as the pointer; null for null. GNUstep base carries a _Block_copy of its own,
/// which returns blocks that clang makes uncopied, on the stack; it wins when a program is linked with GNUstep base
/// before libBlocksRuntime. Then the copy is made here.
std::shared_ptr<const void> copy_block(const void* block);

/// B is the block's type.
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

// SPDX-License-Identifier: Apache-2.0
// Whole pages: memory that a device can always share. No function needs the GIL.
#pragma once

#include <cstddef>
#include <memory>

namespace mpscnn {

struct Pages {
  void* data = nullptr;     ///< page-aligned; a huge page's boundary where there is one to win
  std::size_t bytes = 0;    ///< whole pages
  void* mapping = nullptr;  ///< what to unmap
  std::size_t mapped = 0;
};

/// At least one page. Freed ones are kept for the next request of about the same size, up to 64 MB in total, because
/// the kernel clears fresh pages more slowly than they are written. Throws std::bad_alloc.
Pages take_pages(std::size_t bytes);
/// Takes them back.
void give_pages(const Pages& pages);

/// The same, given back with the last copy of the pointer.
std::shared_ptr<void> allocate_pages(std::size_t bytes);

}  // namespace mpscnn

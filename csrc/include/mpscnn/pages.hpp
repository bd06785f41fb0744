// SPDX-License-Identifier: Apache-2.0
// Page-aligned memory, which a device can always share. No function needs the GIL.
#pragma once

#include <cstddef>
#include <memory>

namespace mpscnn {

struct Pages {
  void* data = nullptr;     ///< page-aligned; aligned to huge pages where that is faster
  std::size_t bytes = 0;    ///< whole pages
  void* mapping = nullptr;  ///< range to unmap
  std::size_t mapped = 0;
};

/// Allocate at least one page. Freed pages are cached for requests of similar size, up to 64 MB in total, because the
/// operating system clears new pages more slowly than they are written. Throw std::bad_alloc.
Pages take_pages(std::size_t bytes);
/// Free the pages.
void give_pages(const Pages& pages);

/// Allocate pages that are freed with the last copy of the pointer.
std::shared_ptr<void> allocate_pages(std::size_t bytes);

}  // namespace mpscnn

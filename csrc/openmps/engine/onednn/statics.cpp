// SPDX-License-Identifier: Apache-2.0
// oneDNN's static objects outlive the threads that compute with them.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include <dnnl.hpp>

#include "engine/onednn/runtime.hpp"

namespace openmps::onednn {
namespace {

using Address = std::uintptr_t;
using Relocation = ElfW(Rela);

#if defined(__aarch64__)
constexpr std::uint64_t kFunctionSlot = R_AARCH64_JUMP_SLOT, kPointerSlot = R_AARCH64_GLOB_DAT;
#else
constexpr std::uint64_t kFunctionSlot = R_X86_64_JUMP_SLOT, kPointerSlot = R_X86_64_GLOB_DAT;
#endif

/// Takes the place of __cxa_atexit: the object is never destroyed.
int forget(void (*)(void*), void*, void*) noexcept { return 0; }

/// A shared library as the loader has laid it out [elf(5)].
class Library {
 public:
  /// The one that holds `symbol`.
  explicit Library(const void* symbol) {
    Dl_info info;
    void* map = nullptr;
    if (!dladdr1(symbol, &info, &map, RTLD_DL_LINKMAP)) return;
    base_ = static_cast<const link_map*>(map)->l_addr;
    for (const auto* entry = static_cast<const link_map*>(map)->l_ld; entry->d_tag != DT_NULL; ++entry) {
      const auto value = entry->d_un.d_ptr;  // of an address: the loader has added base_
      switch (entry->d_tag) {
        case DT_JMPREL: functions_.first = reinterpret_cast<const Relocation*>(value); break;
        case DT_PLTRELSZ: functions_.count = value / sizeof(Relocation); break;
        case DT_RELA: others_.first = reinterpret_cast<const Relocation*>(value); break;
        case DT_RELASZ: others_.count = value / sizeof(Relocation); break;
        case DT_SYMTAB: symbols_ = reinterpret_cast<const ElfW(Sym)*>(value); break;
        case DT_STRTAB: names_ = reinterpret_cast<const char*>(value); break;
        default: break;
      }
    }
  }

  /// Where the library keeps the address of a function that it takes from elsewhere; null if it does not.
  void** slot_of(const char* function) const {
    for (const Table& table : {functions_, others_}) {
      for (std::size_t i = 0; i < table.count; ++i) {
        const Relocation& entry = table.first[i];
        const auto type = ELF64_R_TYPE(entry.r_info);
        if (type != kFunctionSlot && type != kPointerSlot) continue;
        if (std::strcmp(names_ + symbols_[ELF64_R_SYM(entry.r_info)].st_name, function) == 0)
          return reinterpret_cast<void**>(base_ + entry.r_offset);
      }
    }
    return nullptr;
  }

  void write(void** slot, void* value) const {
    const auto page_size = static_cast<Address>(sysconf(_SC_PAGESIZE));
    const Address page = reinterpret_cast<Address>(slot) / page_size * page_size;
    if (mprotect(reinterpret_cast<void*>(page), page_size, PROT_READ | PROT_WRITE) != 0) return;
    *slot = value;
    if (is_sealed(page)) mprotect(reinterpret_cast<void*>(page), page_size, PROT_READ);
  }

 private:
  struct Table {
    const Relocation* first = nullptr;
    std::size_t count = 0;
  };

  /// Whether the loader makes the page read-only once it has filled the slots in.
  bool is_sealed(Address page) const {
    struct Question {
      Address base, page;
      bool sealed;
    } question = {base_, page, false};
    dl_iterate_phdr(
        [](dl_phdr_info* library, std::size_t, void* context) {
          auto& asked = *static_cast<Question*>(context);
          if (library->dlpi_addr != asked.base) return 0;
          for (const auto* part = library->dlpi_phdr; part != library->dlpi_phdr + library->dlpi_phnum; ++part) {
            if (part->p_type == PT_GNU_RELRO) asked.sealed = asked.page - (asked.base + part->p_vaddr) < part->p_memsz;
          }
          return 1;
        },
        &question);
    return question.sealed;
  }

  Address base_ = 0;
  Table functions_, others_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
};

}  // namespace

void keep_statics() noexcept {
  const Library onednn(reinterpret_cast<const void*>(&dnnl_version));
  if (void** slot = onednn.slot_of("__cxa_atexit")) onednn.write(slot, reinterpret_cast<void*>(&forget));
}

}  // namespace openmps::onednn

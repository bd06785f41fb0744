# SPDX-License-Identifier: Apache-2.0
"""Take two things out of a 64-bit little-endian ELF library: a dependency it does not use, and its unwinding index.

    python trim_library.py LIBRARY NAME

NAME is a library that is named as needed. patchelf --remove-needed leaves the versions that are asked of it
(.gnu.version_r), and the dynamic linker ends the process when these are of a library that is not loaded. Here both go.

The index (the table in .eh_frame_hdr) makes finding a frame's unwinding rules a binary search. It may be left out
[Linux Standard Base, "The .eh_frame_hdr section"]; the rules are then searched one by one. For oneDNN, which hardly
ever throws, that is 0.2 MB of a wheel.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

DT_NULL, DT_NEEDED, DT_STRTAB, DT_VERNEED, DT_VERNEEDNUM = 0, 1, 5, 0x6FFFFFFE, 0x6FFFFFFF
PT_LOAD, PT_DYNAMIC, PT_GNU_EH_FRAME = 1, 2, 0x6474E550
DW_EH_PE_PCREL_SDATA4, DW_EH_PE_OMIT = 0x1B, 0xFF
SHT_GNU_VERNEED, SHT_GNU_VERSYM = 0x6FFFFFFE, 0x6FFFFFFF
VERNEED = struct.Struct("<HHIII")  # version, number of names, file, offset of the names, offset of the next
VERNAUX = struct.Struct("<IHHII")  # hash, flags, index, name, offset of the next


class Library:
    """The tables of a library that are changed here."""

    def __init__(self, data: bytearray) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("The file is not a 64-bit little-endian ELF library.")
        self.data = data
        programs, self.sections = struct.unpack_from("<QQ", data, 32)
        program_size, program_count, self.section_size, self.section_count = struct.unpack_from("<4H", data, 54)
        headers = [struct.unpack_from("<IIQQQQ", data, programs + i * program_size) for i in range(program_count)]
        self.loads = [(address, offset, size) for kind, _, offset, address, _, size in headers if kind == PT_LOAD]
        self.dynamic = next(offset for kind, _, offset, *_ in headers if kind == PT_DYNAMIC)
        self.unwinding = [(offset, size) for kind, _, offset, _, _, size in headers if kind == PT_GNU_EH_FRAME]
        self.values = dict(self.entries())

    def entries(self) -> Iterator[tuple[int, int]]:
        offset = self.dynamic
        while True:
            tag, value = struct.unpack_from("<qQ", self.data, offset)
            if tag == DT_NULL:
                return
            yield tag, value
            offset += 16

    def at(self, address: int) -> int:
        """Offset in the file."""
        return next(address - start + offset for start, offset, size in self.loads if start <= address < start + size)

    def string(self, position: int) -> str:
        start = self.at(self.values[DT_STRTAB]) + position
        return self.data[start : self.data.index(0, start)].decode()

    def section(self, kind: int) -> int:
        """Offset of the section header of that type."""
        for i in range(self.section_count):
            header = self.sections + i * self.section_size
            if struct.unpack_from("<I", self.data, header + 4)[0] == kind:
                return header
        raise ValueError(f"The library has no section of type {kind:#x}.")

    def used_versions(self) -> set[int]:
        offset, size = struct.unpack_from("<QQ", self.data, self.section(SHT_GNU_VERSYM) + 24)
        return {index & 0x7FFF for (index,) in struct.iter_unpack("<H", self.data[offset : offset + size])}

    def drop_needed(self, name: str) -> None:
        kept = [(tag, value) for tag, value in self.entries() if not (tag == DT_NEEDED and self.string(value) == name)]
        before = sum(1 for _ in self.entries())
        count = self.values[DT_VERNEEDNUM] if self.drop_versions(name) else None
        for i in range(before):
            tag, value = kept[i] if i < len(kept) else (DT_NULL, 0)
            if tag == DT_VERNEEDNUM and count is not None:
                value = count - 1
            struct.pack_into("<qQ", self.data, self.dynamic + 16 * i, tag, value)

    def drop_versions(self, name: str) -> bool:
        """Take the library's entry out of the chain of version needs; False if it has none."""
        offset, previous = self.at(self.values[DT_VERNEED]), None
        while True:
            _, names, file, first_name, following = VERNEED.unpack_from(self.data, offset)
            if self.string(file) == name:
                break
            if not following:
                return False
            previous, offset = offset, offset + following
        position = offset + first_name
        for _ in range(names):
            _, _, index, version, next_name = VERNAUX.unpack_from(self.data, position)
            if index & 0x7FFF in self.used_versions():
                raise ValueError(f"A symbol still has the version {self.string(version)} of {name}.")
            position += next_name
        if following:  # its successor moves into its place
            version, names, file, first_name, last = VERNEED.unpack_from(self.data, offset + following)
            moved = (version, names, file, first_name + following, last + following if last else 0)
            VERNEED.pack_into(self.data, offset, *moved)
        elif previous is not None:
            struct.pack_into("<I", self.data, previous + 12, 0)
        else:
            raise ValueError(f"{name} is the only library whose versions are asked for.")
        header = self.section(SHT_GNU_VERNEED)
        (count,) = struct.unpack_from("<I", self.data, header + 44)
        struct.pack_into("<I", self.data, header + 44, count - 1)
        return True

    def drop_unwinding_index(self) -> None:
        """Leave the pointer to the rules, without count and table."""
        for offset, size in self.unwinding:
            if self.data[offset + 1] != DW_EH_PE_PCREL_SDATA4:
                raise ValueError(f"The pointer in .eh_frame_hdr has the encoding {self.data[offset + 1]:#x}, not 0x1b.")
            self.data[offset + 2 : offset + 4] = bytes([DW_EH_PE_OMIT, DW_EH_PE_OMIT])
            self.data[offset + 8 : offset + size] = bytes(size - 8)


def main() -> None:
    path, name = Path(sys.argv[1]), sys.argv[2]
    library = Library(bytearray(path.read_bytes()))
    library.drop_needed(name)
    library.drop_unwinding_index()
    path.write_bytes(library.data)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Write a libicudata that holds only what openmps can need: 31 MB become less than 4.

    python tools/slim_icu.py LIBRARY OUTPUT_FOLDER

GNUstep base links ICU, whose data library carries every locale, calendar, converter and dictionary. The wheel's
copy of GNUstep serves openmps alone, which formats numbers and compares strings in the root locale; so of the data
the root and English entries stay, with normalization, properties, text boundaries and the tables they refer to.

The data is one block in ICU's "common data" format: a header, a table of (name, position) pairs sorted by name, and
the entries. They are copied unchanged into a new block, which the C compiler wraps in a library of the same SONAME.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

# Entry names as in the block, without the package's prefix ("icudt72l/").
KEEP = re.compile(
    r"""
    ((curr|lang|region|zone|unit|coll|brkitr|rbnf)/)?           # trees of locale data
    (root|en|en_US|en_US_POSIX|en_001|pool|res_index|ucadata|supplementalData|tzdbNames)\.res
    | (supplementalData|likelySubtags|numberingSystems|keyTypeData|metaZones|timezoneTypes|windowsZones|zoneinfo64
       |icustd|icuver|metadata|plurals|pluralRanges|dayPeriods|genderList|currencyNumericCodes|units|grammaticalFeatures)\.res
    | coll/ucadata.*\.icu
    | brkitr/(char|word|line|sent|title)[a-z_]*\.brk
    | (?!unames).*\.(nrm|icu)
    """,
    re.VERBOSE,
)


def read_block(library: Path) -> tuple[str, bytes]:
    """The name of the data symbol and its bytes."""
    symbols = subprocess.run(["readelf", "-W", "--dyn-syms", str(library)], capture_output=True, text=True, check=True)
    match = re.search(r":\s+([0-9a-f]+)\s+(\w+)\s+OBJECT\s.*\s(icudt\d+_dat)$", symbols.stdout, re.MULTILINE)
    if not match:
        raise SystemExit(f"{library} has no icudt..._dat symbol.")
    address, size, symbol = int(match[1], 16), int(match[2], 0), match[3]
    segments = subprocess.run(["readelf", "-W", "-l", str(library)], capture_output=True, text=True, check=True)
    for fields in re.findall(r"LOAD" + r"\s+0x([0-9a-f]+)" * 4, segments.stdout):
        offset, virtual, _, length = (int(field, 16) for field in fields)
        if virtual <= address < virtual + length:
            start = address - virtual + offset
            return symbol, library.read_bytes()[start : start + size]
    raise SystemExit(f"{symbol} of {library} is in no loaded segment.")


def slim(block: bytes) -> tuple[bytes, int, int]:
    """The block with the wanted entries only; their number and the number of all."""
    (header_size,) = struct.unpack_from("<H", block, 0)
    if block[2:4] != b"\xda\x27" or block[12:16] != b"CmnD":
        raise SystemExit("The block is not ICU common data.")
    (count,) = struct.unpack_from("<I", block, header_size)
    table = [struct.unpack_from("<II", block, header_size + 4 + 8 * i) for i in range(count)]
    ends = [position for _, position in table[1:]] + [len(block) - header_size]

    wanted = []
    for (name_at, position), end in zip(table, ends, strict=True):
        start = header_size + name_at
        name = block[start : block.index(b"\0", start)]
        if KEEP.fullmatch(name.decode().partition("/")[2]):
            wanted.append((name, block[header_size + position : header_size + end]))

    names = bytearray()
    name_positions = []
    names_at = 4 + 8 * len(wanted)
    for name, _ in wanted:
        name_positions.append(names_at + len(names))
        names += name + b"\0"
    contents = bytearray()
    contents_at = -(-(names_at + len(names)) // 16) * 16
    rows = bytearray(struct.pack("<I", len(wanted)))
    for (_, content), name_position in zip(wanted, name_positions, strict=True):
        rows += struct.pack("<II", name_position, contents_at + len(contents))
        contents += content + bytes(-len(content) % 16)
    body = bytes(rows + names).ljust(contents_at, b"\xaa") + bytes(contents)
    return block[:header_size] + body, len(wanted), count


def main() -> None:
    library, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    soname = Path(sys.argv[1]).name
    symbol, block = read_block(library)
    data, kept, count = slim(block)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "icudata.bin").write_bytes(data)
    (folder / "icudata.S").write_text(
        f'.section .rodata\n.balign 16\n.globl {symbol}\n.type {symbol}, @object\n{symbol}:\n.incbin "icudata.bin"\n'
        f".size {symbol}, . - {symbol}\n"
        '.section .note.GNU-stack,"",@progbits\n'
    )
    command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-o", soname, "icudata.S"]
    subprocess.run(command, cwd=folder, check=True)
    print(f"{soname}: {len(block) / 1e6:.1f} MB, {count} entries -> {len(data) / 1e6:.1f} MB, {kept} entries")


if __name__ == "__main__":
    main()

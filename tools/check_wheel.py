# SPDX-License-Identifier: Apache-2.0
"""Check a wheel's tag, size, libraries, licences and bill of materials; fail if any is wrong.

    python tools/check_wheel.py WHEEL

Needs only binutils (readelf). Prints the bundled libraries with the newest symbol versions that they need.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from bundle import Part, licence_names, parts

TAG = "manylinux_2_34_x86_64"
MAX_SIZE = 15.5e6  # bytes; the CUDA engine and the text of its kernels take 0.3 MB
MAX_LICENCES = 12
# The newest versions that the tag allows; GCC is libgcc [auditwheel, policy/manylinux-policy.json].
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
SYSTEM |= {"libstdc++.so.6", "libgcc_s.so.1"}
OURS = {"libopenmps", "_core"}


def stem(member: str) -> str:
    """Return the library's name: libffi for mpscnn.libs/libffi-1a2b3c4d.so.8.1.2."""
    return re.sub(r"(-[0-9a-f]{8})?(\.[\w-]+)?\.so[.\d]*$", "", member.rpartition("/")[2])


def readelf(option: str, library: Path) -> str:
    return subprocess.run(["readelf", "-W", option, str(library)], check=True, capture_output=True, text=True).stdout


def newest_versions(library: Path) -> dict[str, tuple[int, ...]]:
    """Return the newest version of each symbol name that the library needs."""
    needs = readelf("-V", library).partition("Version needs section")[2]
    newest: dict[str, tuple[int, ...]] = {}
    for name, number in re.findall(r"Name: ([A-Z]+)_(\d+(?:\.\d+)+)", needs):
        version = tuple(int(part) for part in number.split("."))
        newest[name] = max(newest.get(name, ()), version)
    return newest


def library_problems(wheel: zipfile.ZipFile, members: list[str], bundled: list[Part]) -> Iterator[str]:
    names = {member.rpartition("/")[2] for member in members}
    found = {stem(member) for member in members}
    listed = {part.library for part in bundled} | OURS
    for library in sorted(found - listed):
        yield f"{library} is in the wheel and not in LICENSES-BUNDLED.md."
    for library in sorted(listed - found):
        yield f"{library} is in LICENSES-BUNDLED.md and not in the wheel."
    with tempfile.TemporaryDirectory() as folder:
        for member in members:
            path = Path(wheel.extract(member, folder))
            versions = newest_versions(path)
            shown = " ".join(f"{name}_{'.'.join(map(str, version))}" for name, version in sorted(versions.items()))
            info = wheel.getinfo(member)
            print(f"  {info.compress_size / 1e6:6.2f} {info.file_size / 1e6:7.2f}  {member}  {shown}")
            for name, version in versions.items():
                if name in NEWEST and version > NEWEST[name]:
                    limit = ".".join(map(str, NEWEST[name]))
                    yield f"{member} needs {name}_{'.'.join(map(str, version))}, newer than {limit} of {TAG}."
            needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("-d", path)))
            for other in sorted(needed - SYSTEM - names):
                yield f"{member} needs {other}, which is neither in the wheel nor part of every system."


def sbom_problems(wheel: zipfile.ZipFile, bundled: list[Part]) -> Iterator[str]:
    members = [name for name in wheel.namelist() if re.search(r"\.dist-info/sboms/mpscnn\.cdx\.json$", name)]
    if not members:
        yield "There is no .dist-info/sboms/mpscnn.cdx.json in the wheel."
        return
    print(f"  {members[0]}")
    document = json.loads(wheel.read(members[0]))
    components = {
        component.get("purl", "").partition("@")[0]: component for component in document.get("components", [])
    }
    for part in bundled:
        purl = "/".join(filter(None, (f"pkg:{part.type}", part.namespace, part.package)))
        component = components.get(purl)
        if component is None:
            yield f"{members[0]} has no component {purl} ({part.library})."
        elif not component.get("version") or not component.get("licenses"):
            yield f"{members[0]}: the component {purl} has no version or no licence."


def licence_problems(licences: set[str]) -> Iterator[str]:
    print(f"  {len(licences)} licence files: {', '.join(sorted(licences))}")
    if len(licences) > MAX_LICENCES:
        yield f"{len(licences)} licence files are in mpscnn/licenses, more than {MAX_LICENCES}."
    expected = licence_names() | {"onednn/LICENSE", "onednn/THIRD-PARTY-PROGRAMS"}
    for name in sorted(expected - licences):
        yield f"mpscnn/licenses/{name} is missing."
    for name in sorted(licences - expected):
        yield f"mpscnn/licenses/{name} belongs to no part in LICENSES-BUNDLED.md."


def problems(path: Path) -> Iterator[str]:
    size = path.stat().st_size
    print(f"{path.name}: {size / 1e6:.2f} MB; libraries in MB, compressed and unpacked:")
    if size > MAX_SIZE:
        yield f"The wheel's size ({size / 1e6:.2f} MB) is more than {MAX_SIZE / 1e6:.1f} MB."
    if "macosx" in path.name:  # has no bundled libraries
        return
    if path.stem.split("-")[-1] != TAG:
        yield f"The wheel's platform tag ({path.stem.split('-')[-1]}) is not {TAG}."
    with zipfile.ZipFile(path) as wheel:
        members = wheel.namelist()
        metadata = [wheel.read(name).decode() for name in members if name.endswith(".dist-info/WHEEL")]
        tags = re.findall(r"^Tag: (.+)$", "".join(metadata), re.MULTILINE)
        if not tags or any(tag.split("-")[-1] != TAG for tag in tags):
            yield f"The tags in the wheel's metadata ({', '.join(tags) or 'none'}) are not all {TAG}."
        bundled = parts()
        yield from library_problems(wheel, sorted(name for name in members if re.search(r"\.so[.\d]*$", name)), bundled)
        folder = "mpscnn/licenses/"
        yield from licence_problems(
            {name.removeprefix(folder) for name in members if name.startswith(folder) and name[-1] != "/"}
        )
        yield from sbom_problems(wheel, bundled)


def main() -> None:
    found = list(problems(Path(sys.argv[1])))
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()

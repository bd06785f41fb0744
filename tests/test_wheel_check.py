# SPDX-License-Identifier: Apache-2.0
"""tools/check_wheel.py, on generated wheels: a valid one, and one for each broken promise."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a macOS wheel bundles nothing"),
    pytest.mark.skipif(shutil.which("gcc") is None or shutil.which("readelf") is None, reason="no gcc or readelf here"),
]

TAG = "cp311-cp311-manylinux_2_34_x86_64"
LIBRARIES = {
    "libdnnl": "mpscnn/openmps/lib/libdnnl.so.3",
    "libopenmps": "mpscnn/openmps/lib/libopenmps.so",
    "_core": "mpscnn/_core.cpython-311-x86_64-linux-gnu.so",
}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bundle = load("bundle")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[str, bytes]:
    """Shared libraries by their defect: none, a newer C library, a missing library."""
    folder = tmp_path_factory.mktemp("libraries")
    source = folder / "library.c"
    source.write_text("int mpscnn_answer(void) { return 42; }\n")
    (folder / "newer.c").write_text(
        '__asm__(".symver renamed, gnu_get_libc_version@GLIBC_2.35");\n'
        "const char* renamed(void);\nconst char* mpscnn_call(void) { return renamed(); }\n"
    )
    (folder / "libc.c").write_text("const char* gnu_get_libc_version(void) { return 0; }\n")
    (folder / "libc.map").write_text("GLIBC_2.35 { global: gnu_get_libc_version; };\n")

    def link(name: str, *arguments: str | Path) -> bytes:
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / name, *map(str, arguments)], check=True)
        return (folder / name).read_bytes()

    link("libc.so", folder / "libc.c", "-nostdlib", "-Wl,-soname,libc.so.6", f"-Wl,--version-script={folder}/libc.map")
    link("libz.so", source, "-Wl,-soname,libz.so.1")
    return {
        "good": link("good.so", source),
        "newer": link("newer.so", folder / "newer.c", "-nostdlib", folder / "libc.so"),
        "stranger": link("stranger.so", source, "-Wl,--no-as-needed", folder / "libz.so"),
    }


def good_wheel(compiled: dict[str, bytes]) -> dict[str, Any]:
    """Return the members of a valid wheel."""
    members: dict[str, Any] = dict.fromkeys(LIBRARIES.values(), compiled["good"])
    components = []
    for part in bundle.parts():
        if part.library not in LIBRARIES:
            members[f"mpscnn.libs/{part.library}-0123abcd.so.1.2"] = compiled["good"]
        purl = "/".join(filter(None, (f"pkg:{part.type}", part.namespace, part.package)))
        components.append({"purl": f"{purl}@1.0", "version": "1.0", "licenses": [{"expression": part.licence}]})
    for name in bundle.licence_names() | {"onednn/LICENSE", "onednn/THIRD-PARTY-PROGRAMS"}:
        members[f"mpscnn/licenses/{name}"] = b"text"
    members["mpscnn-0.1.0.dist-info/WHEEL"] = f"Tag: {TAG}\n".encode()
    members["mpscnn-0.1.0.dist-info/sboms/mpscnn.cdx.json"] = {"bomFormat": "CycloneDX", "components": components}
    return members


def check(folder: Path, members: dict[str, Any], tag: str = TAG) -> subprocess.CompletedProcess[str]:
    wheel = folder / f"mpscnn-0.1.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, json.dumps(content) if isinstance(content, dict) else content)
    command = [sys.executable, str(ROOT / "tools" / "check_wheel.py"), str(wheel)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_good_wheel_passes(tmp_path, compiled):
    result = check(tmp_path, good_wheel(compiled))
    assert (result.returncode, result.stderr) == (0, "")
    assert "mpscnn.libs/libffi-0123abcd.so.1.2" in result.stdout


def dropped(name: str) -> Any:
    return lambda members, compiled: members.pop(next(member for member in members if re.search(name, member)))


def added(name: str, content: Any) -> Any:
    return lambda members, compiled: members.update({name: compiled.get(content, content)})


def many_licences(members, compiled) -> None:
    members.update({f"mpscnn/licenses/extra{i}.txt": b"text" for i in range(5)})


def component_without(key: str) -> Any:
    def change(members, compiled) -> None:
        components = members["mpscnn-0.1.0.dist-info/sboms/mpscnn.cdx.json"]["components"]
        (one,) = (component for component in components if "/libffi8@" in component["purl"])
        del one[key]

    return change


BROKEN = {
    "size": (added("mpscnn/data", b"\0" * 15_500_001), r"size \(15\.\d\d MB\) is more than 15.5 MB"),
    "metadata_tag": (
        added("mpscnn-0.1.0.dist-info/WHEEL", b"Tag: cp311-cp311-linux_x86_64\n"),
        r"tags in the wheel's metadata \(cp311-cp311-linux_x86_64\) are not all manylinux_2_34_x86_64",
    ),
    "glibc": (
        added("mpscnn/openmps/lib/libopenmps.so", "newer"),
        r"libopenmps\.so needs GLIBC_2\.35, newer than 2\.34 of manylinux_2_34",
    ),
    "needed": (
        added("mpscnn/openmps/lib/libopenmps.so", "stranger"),
        r"libopenmps\.so needs libz\.so\.1, which is neither in the wheel nor part of every system",
    ),
    "unlisted_library": (
        added("mpscnn.libs/libicudata-0123abcd.so.72.1", "good"),
        r"libicudata is in the wheel and not in LICENSES-BUNDLED\.md",
    ),
    "missing_library": (dropped("libffi-"), r"libffi is in LICENSES-BUNDLED\.md and not in the wheel"),
    "many_licences": (many_licences, r"1[3-9] licence files are in mpscnn/licenses, more than 12"),
    "missing_licence": (dropped("libffi8.txt"), r"mpscnn/licenses/libffi8\.txt is missing"),
    "unlisted_licence": (added("mpscnn/licenses/icu.txt", b"text"), r"icu\.txt belongs to no part"),
    "no_sbom": (dropped("cdx.json"), r"There is no \.dist-info/sboms/mpscnn\.cdx\.json"),
    "sbom_lacks_a_part": (component_without("purl"), r"has no component pkg:deb/debian/libffi8 \(libffi\)"),
    "sbom_lacks_a_version": (component_without("version"), r"pkg:deb/debian/libffi8 has no version or no licence"),
    "sbom_lacks_a_licence": (component_without("licenses"), r"pkg:deb/debian/libffi8 has no version or no licence"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_each_promise_is_held(broken, tmp_path, compiled):
    change, message = BROKEN[broken]
    members = good_wheel(compiled)
    change(members, compiled)
    result = check(tmp_path, members)
    assert result.returncode == 1
    assert re.search(message, result.stderr), result.stderr


def test_tag_of_the_name_is_checked(tmp_path, compiled):
    result = check(tmp_path, good_wheel(compiled), tag="cp311-cp311-manylinux_2_36_x86_64")
    assert result.returncode == 1
    assert result.stderr == "The wheel's platform tag (manylinux_2_36_x86_64) is not manylinux_2_34_x86_64.\n"


def test_table_of_bundled_parts_is_read_whole():
    """Each line of the table but its header is a part, so that none is unchecked because of its spelling."""
    lines = [line for line in (ROOT / "LICENSES-BUNDLED.md").read_text().splitlines() if line.startswith("|")]
    assert len(bundle.parts()) == len(lines) - 2


def test_pythons_are_the_same_in_metadata_wheels_and_image():
    """The same versions in the classifiers, in cibuildwheel's targets, and in its image."""
    text = (ROOT / "pyproject.toml").read_text()
    classifiers = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', text)
    (build,) = re.findall(r'^build = "(.+)"$', text, re.MULTILINE)
    dockerfile = (ROOT / "tools" / "wheel_image.Dockerfile").read_text()
    image = re.findall(r"^FROM python:3\.(\d+)-bookworm AS cp3\1$", dockerfile, re.MULTILINE)
    (oldest,) = re.findall(r'^requires-python = ">=3\.(\d+)"$', text, re.MULTILINE)
    assert build == " ".join(f"cp3{minor}-*" for minor in classifiers)
    assert image == classifiers
    assert oldest == classifiers[0]
    assert "Free Threading" not in text  # not declared before the tests pass under a free-threaded build

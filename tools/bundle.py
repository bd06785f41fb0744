# SPDX-License-Identifier: Apache-2.0
"""Collect licences and a software bill of materials of the libraries that a Linux wheel bundles.

    python tools/bundle.py FOUNDATION OUTPUT

FOUNDATION is the folder that tools/make_foundation.sh prints. OUTPUT gets licenses/ and sboms/, which CMake installs
with -DMPSCNN_BUNDLE=OUTPUT. The parts are the rows of the table in LICENSES-BUNDLED.md. auditwheel's bill of materials
is not sufficient: it lacks the parts that are built or patched here, and all licences.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# Licences whose text the packages' copyright files only refer to: SPDX name, and file name in Debian.
COMMON_TEXTS = {"LGPL-2.1": "LGPL-2.1", "GPL-3.0": "GPL-3"}
BUILT_HERE = "gnustep-base"
LICENCES_BY_CMAKE = "onednn-cpu-gomp"  # included in every build, not only in wheels


class Part(NamedTuple):
    """A row of the table."""

    library: str
    type: str
    namespace: str | None
    package: str
    licence: str


def parts() -> list[Part]:
    """Return the rows of LICENSES-BUNDLED.md, in order."""
    rows = re.findall(
        r"^\| `(\w[\w-]*)` \| `pkg:(\w+)/(?:(\w+)/)?([\w.+-]+)` \| ([^|]+) \|",
        (ROOT / "LICENSES-BUNDLED.md").read_text(),
        re.MULTILINE,
    )
    return [
        Part(library, kind, namespace or None, package, licence) for library, kind, namespace, package, licence in rows
    ]


def licence_names() -> set[str]:
    """Return the names of the files in the wheel's mpscnn/licenses/, without onednn/."""
    texts = {text for part in parts() for name, text in COMMON_TEXTS.items() if part.licence.startswith(name)}
    return {f"{part.package}.txt" for part in parts() if part.package != LICENCES_BY_CMAKE} | texts


def version(part: Part, foundation: Path) -> str:
    if part.package == BUILT_HERE:
        return (foundation / "version").read_text().strip()
    if part.type == "pypi":
        return metadata.version(part.package)
    command = ["dpkg-query", "-W", "-f", "${Version}", part.package]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def copy_licences(foundation: Path, folder: Path) -> None:
    for part in parts():
        if part.package == LICENCES_BY_CMAKE:
            continue
        if part.package == BUILT_HERE:
            text = foundation / "copyright"
        elif part.type == "pypi":
            files = metadata.files(part.package) or []
            text = Path(str(next(file for file in files if file.name.startswith("LICENSE")).locate()))
        else:
            text = Path("/usr/share/doc") / part.package / "copyright"
        shutil.copy(text, folder / f"{part.package}.txt")
    for name in licence_names() & set(COMMON_TEXTS.values()):
        shutil.copy(Path("/usr/share/common-licenses") / name, folder / name)


def write_sbom(foundation: Path, output: Path) -> None:
    """Write CycloneDX 1.6 as JSON, validated against its schema. The same parts give the same document."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import LicenseExpression
    from cyclonedx.output.json import JsonV1Dot6
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from packageurl import PackageURL

    def component(kind: ComponentType, purl: PackageURL, licence: str) -> Component:
        name, number, of = purl.name, purl.version, purl.to_string()
        return Component(
            type=kind, name=name, version=number, purl=purl, bom_ref=of, licenses=[LicenseExpression(licence)]
        )

    project = dict(
        re.findall(r'^(name|version|license) = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    )
    purl = PackageURL("pypi", None, project["name"], project["version"])
    root = component(ComponentType.LIBRARY, purl, project["license"])
    bom = Bom()
    bom.metadata.component = root
    for part in parts():
        purl = PackageURL(part.type, part.namespace, part.package, version(part, foundation))
        bom.components.add(component(ComponentType.LIBRARY, purl, part.licence))
    bom.register_dependency(root, bom.components)
    refs = sorted(str(one.bom_ref) for one in bom.components)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, " ".join([str(root.bom_ref), *refs]))
    bom.metadata.timestamp = None  # type: ignore[assignment]

    text = JsonV1Dot6(bom).output_as_string(indent=2)
    errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if errors:
        raise SystemExit(f"The document does not follow CycloneDX 1.6: {errors}")
    output.write_text(text + "\n")


def main() -> None:
    foundation, output = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.rmtree(output, ignore_errors=True)
    for folder in ("licenses", "sboms"):
        (output / folder).mkdir(parents=True)
    copy_licences(foundation, output / "licenses")
    write_sbom(foundation, output / "sboms" / "mpscnn.cdx.json")


if __name__ == "__main__":
    main()

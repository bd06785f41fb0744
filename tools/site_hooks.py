# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs.yml that add pages outside of docs/, and the source files that pages link to.

Pages link to each other, and to files of the repository, by relative paths. The hooks make a page of the site for each
page outside of docs/, and for each file or folder that a page links to. They rewrite the links to the new locations.
Pictures in the folder MPSCNN_PICTURES, which `make docs` has made, replace those of docs/assets.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

# Pages of the repository, and their paths in the site.
PAGES = {
    "README.md": "repository/readme.md",
    "CONTRIBUTING.md": "repository/contributing.md",
    "LICENSES-BUNDLED.md": "repository/licences.md",
    "CHANGELOG.md": "repository/changes.md",
    "SECURITY.md": "repository/security.md",
    "CODE_OF_CONDUCT.md": "repository/conduct.md",
    "examples/super_resolution/README.md": "repository/super_resolution.md",
    "examples/style_transfer/README.md": "repository/style_transfer.md",
    "tools/api/NOTES.md": "repository/api_notes.md",
}
LANGUAGES = {
    ".hh": "objective-c++", ".mm": "objective-c++", ".hpp": "cpp", ".cpp": "cpp", ".py": "python", ".pyi": "python",
    ".json": "json", ".toml": "toml", ".yml": "yaml", ".sh": "bash", ".cmake": "cmake",
}  # fmt: skip
FILE_LIMIT = 200_000  # max bytes of a file that is shown

LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
FENCED = re.compile(r"^(```|~~~).*?^\1[ ]*$", re.MULTILINE | re.DOTALL)
HIDDEN = "---\nsearch:\n  exclude: true\n---\n"

_repository_path: dict[str, str] = {}  # of each page of the site


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/."""
    _repository_path.clear()
    wanted: dict[str, str] = {}
    for file in files.documentation_pages():
        _repository_path[file.src_uri] = f"docs/{file.src_uri}"
    for path, uri in PAGES.items():
        _repository_path[uri] = path
        files.append(File.generated(config, uri, content=(ROOT / path).read_text()))
    for uri, path in list(_repository_path.items()):
        text = FENCED.sub("", (ROOT / path).read_text())
        for link in LINK.findall(text):
            target = _target(path, link)
            if target is not None and _site_uri(target) != uri and target not in wanted:
                wanted[target] = _site_uri(target)
    for picture in sorted(Path(os.environ["MPSCNN_PICTURES"]).iterdir()) if "MPSCNN_PICTURES" in os.environ else ():
        uri = f"assets/{picture.name}"
        old = files.get_file_from_path(uri)
        if old is not None:
            files.remove(old)
            files.append(File.generated(config, uri, abs_src_path=str(picture.resolve())))
    present = {file.src_uri for file in files}
    for target, uri in wanted.items():
        if uri not in present and uri.startswith("source/") and (ROOT / target).exists():
            files.append(File.generated(config, uri, content=HIDDEN + _shown(target)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite the links of a page for the site."""
    path = _repository_path.get(page.file.src_uri)
    if path is None:
        return markdown
    folder = posixpath.dirname(page.file.src_uri)

    def relative(match: re.Match[str]) -> str:
        target = _target(path, match[1])
        if target is None or not (ROOT / target).exists():
            return match[1]  # external, within the page, or broken, which MkDocs reports
        anchor = match[1].partition("#")[2]
        return posixpath.relpath(_site_uri(target), folder) + (f"#{anchor}" if anchor else "")

    parts, end = [], 0
    for block in FENCED.finditer(markdown):
        parts += [LINK.sub(relative, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, LINK.sub(relative, markdown[end:])])


def _target(page: str, link: str) -> str | None:
    """Return the path in the repository of a link's target; None for other links."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z]+:", path) or path.startswith("/"):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def _site_uri(target: str) -> str:
    if target in PAGES:
        return PAGES[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"source/{target}/index.md" if (ROOT / target).is_dir() else f"source/{target}.md"


def _shown(target: str) -> str:
    """Return a page that shows a file, or the contents of a folder."""
    path = ROOT / target
    if path.is_dir():
        names = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir() if entry.name != "__pycache__")
        return f"# {target}/\n\n" + "".join(f"* `{name}`\n" for name in names)
    if path.stat().st_size > FILE_LIMIT:
        return f"# {target}\n\n{path.stat().st_size:,} bytes.\n"
    text = path.read_text()
    fence = "`" * max(4, 1 + max((len(ticks) for ticks in re.findall("`+", text)), default=0))
    return f"# {target}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"

# SPDX-License-Identifier: Apache-2.0
"""The documentation builds as a site without a warning, and loads nothing from the network."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import mpscnn

ROOT = Path(__file__).resolve().parent.parent

for package in ("mkdocs", "material", "mkdocstrings_handlers.python"):
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"{package} is not installed (make docs installs it)", allow_module_level=True)

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """Links and resources of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe") and "src" in given:
            self.loaded.append(given["src"])
        if tag == "link" and "href" in given and given.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built like `make docs`."""
    folder = tmp_path_factory.mktemp("site")
    found = [str(Path(mpscnn.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, found)),
    }
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_there(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").exists(), page.name
    for page in ("readme", "contributing", "super_resolution", "style_transfer", "licences", "changes", "security"):
        assert (site / "repository" / f"{page}.html").exists()


def test_links_lead_somewhere(pages: dict[Path, Page]) -> None:
    broken = []
    count = 0
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are relative to the site's root on a server
        for link in page.links:
            if re.match(r"https?:|mailto:", link):
                continue
            count += 1
            file, name = urldefrag(link)
            target = (path.parent / unquote(file)).resolve() if file else path
            target = target / "index.html" if target.is_dir() else target
            if target not in pages or (name and unquote(name) not in pages[target].names):
                broken.append(f"{path.name}: {link}")
    assert broken == []
    assert count > 1000


def test_pictures_are_there(site: Path) -> None:
    for path in (ROOT / "docs" / "assets").iterdir():
        assert (site / "assets" / path.name).read_bytes() == path.read_bytes()
    assert "../assets/super_resolution.jpg" in (site / "repository" / "readme.html").read_text()


def test_pictures_that_make_docs_has_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They replace those of docs/assets; others stay."""
    from mkdocs.config import load_config
    from mkdocs.structure.files import get_files

    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "tools" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    for name in ("house.svg", "unknown.svg"):
        (tmp_path / name).write_text("<svg/>")
    monkeypatch.setenv("MPSCNN_PICTURES", str(tmp_path))
    config = load_config(str(ROOT / "mkdocs.yml"))
    config.plugins._current_plugin = "hooks"  # MkDocs names who made a file
    files = hooks.on_files(get_files(config), config)
    found = {file.src_uri: file.abs_src_path for file in files if file.src_uri.startswith("assets/")}
    assert found["assets/house.svg"] == str(tmp_path / "house.svg")
    assert found["assets/network.svg"] == str(ROOT / "docs" / "assets" / "network.svg")
    assert "assets/unknown.svg" not in found


def test_links_of_llms_txt(site: Path, pages: dict[Path, Page]) -> None:
    """The summary for language models names pages of the site."""
    links = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text())
    assert len(links) > 15
    assert [link for link in links if site / link not in pages] == []


def test_sources_are_shown(site: Path) -> None:
    """Links of a page into the repository are pages of the site."""
    shown = (site / "source" / "csrc" / "core" / "kernel" / "kernel.mm.html").read_text()
    assert "SPDX-License-Identifier" in shown
    assert "source/csrc/core/kernel/kernel.mm.html" in (site / "data_flow.html").read_text()


def test_nothing_is_loaded_from_the_network(site: Path, pages: dict[Path, Page]) -> None:
    loaded = {file for page in pages.values() for file in page.loaded}
    assert loaded
    assert [file for file in loaded if re.match(r"(https?:)?//", file)] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text()), style.name


def test_local_files_can_be_searched(site: Path, pages: dict[Path, Page]) -> None:
    """Browsers load scripts in local files, no JSON and no workers."""
    index = (site / "search" / "search_index.js").read_text()
    assert index.startswith("var __index = ")
    assert json.loads(index.partition(" = ")[2]) == json.loads((site / "search" / "search_index.json").read_text())
    without = [path.name for path, page in pages.items() if not any("iframe-worker" in name for name in page.loaded)]
    assert without == []


def test_no_page_is_a_dead_end(site: Path, pages: dict[Path, Page]) -> None:
    """Each page of the navigation links to the one before or after it."""
    shown = [path for path in pages if "source" not in path.relative_to(site).parts and path.name != "404.html"]
    assert len(shown) > 40
    ended = [path.name for path in shown if "md-footer__link" not in path.read_text()]
    assert ended == ["api_notes.html"]  # of tools/api, not in the navigation


def test_docstrings_are_those_of_help(site: Path) -> None:
    """Complete docstrings of C++ and the kernel table, not the first sentences in the stubs."""
    text = (site / "reference" / "images.html").read_text()
    assert "recommended_max_working_set_bytes" in text
    assert "Undefined contents" in text or "undefined contents" in text
    kernels = (site / "reference" / "kernels.html").read_text()
    for name in mpscnn.kernels.KERNELS:
        assert f'id="mpscnn.{name}"' in kernels, name
    assert "Weights are read while the kernel is made" in kernels


def test_every_public_name_is_in_the_reference(pages: dict[Path, Page]) -> None:
    names = set().union(*(page.names for path, page in pages.items() if path.parent.name == "reference"))
    missing = {name for name in mpscnn.__all__ if not {f"mpscnn.{name}"} & names}
    assert missing - {"__version__", "importing"} == set()
    serving = (ROOT / "python" / "mpscnn" / "serving" / "__init__.py").read_text()
    public = re.findall(r'"(\w+)"', serving.partition("__all__")[2])
    assert len(public) > 5
    assert {name for name in public if f"mpscnn.serving.{name}" not in names} == set()

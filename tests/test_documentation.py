# SPDX-License-Identifier: Apache-2.0
"""The programs on the pages of docs/ run, and print the text below them."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import shares_images

ROOT = Path(__file__).resolve().parent.parent
PAGES = {path.stem: path for path in sorted((ROOT / "docs").glob("*.md"))}

# Packages that a page needs besides NumPy.
PACKAGES = {
    "index": ["torch"],
    "pytorch": ["torch", "safetensors"],
    "onnx": ["torch", "onnx", "onnxruntime", "onnxscript"],
    "serving": ["torch"],
    "training": ["torch"],
    "file_format": ["safetensors"],
}

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    code: str
    line: int
    output: str


def blocks_of(text: str) -> list[Block]:
    """Return blocks of Python, each with the block of text right after it, its expected output."""
    found: list[Block] = []
    end = -1
    for match in FENCED.finditer(text):
        language, body = match.groups()
        if language == "python":
            found.append(Block(body, text.count("\n", 0, match.start()) + 1, ""))
            end = match.end()
        elif language == "text" and found and text[end : match.start()].strip() == "":
            found[-1].output = body
            end = -1
    return found


BLOCKS = {name: blocks_of(path.read_text()) for name, path in PAGES.items()}


def counts_memory(blocks: list[Block]) -> bool:
    return any("mpscnn.memory." in block.code for block in blocks)


def run(block: Block, page: str, space: dict[str, Any]) -> str:
    """Return the output. Tracebacks have the page's line numbers."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * block.line + block.code, page, "exec"), space)
    return printed.getvalue()


def is_as_shown(printed: str, shown: str) -> bool:
    """Ignore line breaks and spaces; "..." matches anything."""
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # raised within PyTorch
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(name, marks=shares_images if counts_memory(blocks) else ())
        for name, blocks in BLOCKS.items()
        if blocks
    ],
)
def test_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in PACKAGES.get(page, []):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "page"}
    for block in BLOCKS[page]:
        printed = run(block, str(PAGES[page]), space)
        where = f"{PAGES[page].name}:{block.line}"
        assert is_as_shown(printed, block.output), f"{where} prints\n{printed}\nand not\n{block.output}"


def test_pages_with_programs_are_known() -> None:
    assert {"pytorch", "onnx", "serving", "file_format", "data_flow", "index", "training"} <= {
        name for name, blocks in BLOCKS.items() if blocks
    }


def test_a_wrong_output_is_noticed() -> None:
    text = "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n"
    (block,) = blocks_of(text)
    assert block.output == "3\n"
    assert not is_as_shown(run(block, "page", {}), block.output)
    (block,) = blocks_of("```python\nprint(1 + 1)\n```\nIn between:\n```text\n2\n```\n")
    assert not is_as_shown(run(block, "page", {}), block.output), "what is printed has to be shown"


def tool(name: str) -> Any:
    """Return a program of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_table_of_onnx_operators_is_up_to_date() -> None:
    pytest.importorskip("onnx")
    generator = tool("gen_onnx_table")
    present = generator.PAGE.read_text()
    assert generator.page(present) == present, "python tools/gen_onnx_table.py writes it again"
    assert generator.page(present.replace("| `Relu` | from 7 |", "| `Relu` | from 9 |")) == present


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # raised within PyTorch
def test_migration_tables_are_up_to_date() -> None:
    for package in ("torch", "onnx"):
        pytest.importorskip(package)
    generator = tool("gen_migration")
    present = generator.PAGE.read_text()
    stale = present.replace("| `MPSCNNPoolingMax` |", "| `MPSCNNPoolingAverage` |", 1)
    assert stale != present
    assert generator.page(stale) == present, "python tools/gen_migration.py writes it again"


def test_pictures_are_small_and_have_a_program() -> None:
    pictures = tool("make_pictures")
    files = [path for path in pictures.ASSETS.iterdir() if path.suffix not in (".css", ".js")]
    assert {path.name for path in files} == {*pictures.PICTURES, "speed.svg", "speed_cpu.svg"}
    assert sum(path.stat().st_size for path in files) < pictures.LIMIT
    gallery = (ROOT / "docs" / "gallery.md").read_text()
    for name, program in pictures.PICTURES.items():
        if (pictures.EXAMPLES / program).is_file():
            assert f"assets/{name}" in gallery
            assert f"examples/{program}" in gallery


def test_drawing_of_the_house_is_up_to_date() -> None:
    drawing = tool("draw_house")
    assert drawing.PICTURE.read_text() == drawing.picture(), "python tools/draw_house.py draws it again"
    folders = {name for box in drawing.BOXES for name in re.split(", ", box.name) if "/" in name}
    assert len(folders) == 6
    assert [folder for folder in sorted(folders) if not (ROOT / folder).is_dir()] == []
    page = (ROOT / "docs" / "how_it_works.md").read_text()
    assert [folder for folder in sorted(folders) if f"../{folder}" not in page] == []


def test_slow_tests_are_there() -> None:
    """Renamed tests must be renamed in tests/slow.txt too."""
    for line in (ROOT / "tests" / "slow.txt").read_text().splitlines():
        file, _, name = line.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(), f"tools/slow_tests.py writes the list anew: {line}"

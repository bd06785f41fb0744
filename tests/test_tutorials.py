# SPDX-License-Identifier: Apache-2.0
"""The tutorials run from top to bottom, as a reader would do it in a clone, and end in a picture."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support import SANITIZED
from test_documentation import FENCED, ROOT, Block, is_as_shown, run

TUTORIALS = ROOT / "docs" / "tutorials"
PACKAGES = {
    "pytorch": ["torch", "safetensors", "skimage"],
    "onnx": ["torch", "onnx", "onnxruntime", "onnxscript", "skimage", "typer", "rich"],
}


def follow(page: Path) -> None:
    """Do what the page says in the current folder: save, compile and run its programs, and compare what they print."""
    text, space = page.read_text(), {"__name__": "page"}
    blocks = list(FENCED.finditer(text))
    for index, match in enumerate(blocks):
        language, body = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        if language == "objc":
            (name,) = re.findall(r"Save it as `(\w+\.mm)`", text)
            Path(name).write_text(body)
        elif language == "sh":
            command = body.replace(".venv/bin/python", sys.executable)
            done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, f"{page.name}:{line}\n{done.stdout}{done.stderr}"
        elif language == "python":
            after = blocks[index + 1] if index + 1 < len(blocks) else None
            shown = after is not None and after[1] == "text" and not text[match.end() : after.start()].strip()
            block = Block(body, line, after[2] if after is not None and shown else "")
            printed = run(block, str(page), space)
            assert is_as_shown(printed, block.output), f"{page.name}:{line} prints\n{printed}\nand not\n{block.output}"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that has the examples, as a clone does."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # an example sets it
    return tmp_path


def picture(path: Path) -> Any:
    with Image.open(path) as opened:
        return np.asarray(opened.convert("RGB")).astype(int)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # raised within PyTorch
@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_tutorial(name: str, clone: Path) -> None:
    for package in PACKAGES[name]:
        pytest.importorskip(package)
    follow(TUTORIALS / f"{name}.md")
    if name == "pytorch":
        bicubic, result, original = np.split(picture(clone / "enlarged.png"), 3, axis=1)
        assert original.shape == (300, 450, 3)
        assert np.abs(result - original).mean() < 0.95 * np.abs(bicubic - original).mean()
    else:
        _, found, labels = np.split(picture(clone / "coins.png"), 3, axis=1)
        assert labels.shape == (303, 192, 3)
        assert (np.ptp(found, axis=2) > 50).mean() == pytest.approx((np.ptp(labels, axis=2) > 50).mean(), abs=0.15)


@pytest.mark.skipif(sys.platform == "darwin", reason="the flags are those of Linux")
@pytest.mark.skipif(SANITIZED, reason="the program would need the sanitizer's runtime")
def test_tutorial_in_objective_c(clone: Path) -> None:
    pytest.importorskip("skimage")
    if shutil.which("clang++-19") is None:
        pytest.fail("clang-19 is not installed; `make test` installs it.")
    follow(TUTORIALS / "objective_c.md")
    before, edges = np.split(picture(clone / "edges.png"), 2, axis=1)
    assert before.shape == edges.shape == (303, 384, 3)
    assert np.corrcoef(before.ravel(), edges.ravel())[0, 1] < 0.6  # not the same picture


def test_each_tutorial_is_tested() -> None:
    assert {path.stem for path in TUTORIALS.glob("*.md")} == {*PACKAGES, "objective_c"}


def test_an_error_on_a_page_is_noticed(clone: Path) -> None:
    page = clone / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1 prints"):
        follow(page)
    page.write_text("```sh\nfalse\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        follow(page)

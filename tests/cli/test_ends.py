# SPDX-License-Identifier: Apache-2.0
"""Exit of a command that is interrupted, or whose output is not read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Entry point of a package: the file is named mpscnn, and imports mpscnn after sys.
SCRIPT = "import sys\nfrom mpscnn.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"


@pytest.fixture(params=["script", "module"])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    if request.param == "module":
        return [sys.executable, "-m", "mpscnn"]
    (tmp_path / "mpscnn").write_text(SCRIPT)
    return [sys.executable, str(tmp_path / "mpscnn")]


# Python calls sys.meta_path's finders for each imported module: the nth call sends SIGINT. Calls count from the
# extension on, the first module of the package that takes long.
INTERRUPTED = """
import atexit, os, signal, sys

AT = int(os.environ["INTERRUPTED_AT"])

class Finder:
    asked = 0
    def find_spec(self, name, path=None, target=None):
        if name == "mpscnn._core" or Finder.asked:
            Finder.asked += 1
            if Finder.asked == AT:
                os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
if AT == 0:
    atexit.register(lambda: print(Finder.asked, file=sys.stderr))
"""


def version(command: list[str], folder: Path, interrupted_at: int) -> subprocess.CompletedProcess[str]:
    """Run --version, interrupted at that call; 0: not interrupted, with the number of calls on stderr."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(INTERRUPTED)
    path = os.pathsep.join(filter(None, (str(folder / "site"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "INTERRUPTED_AT": str(interrupted_at)}
    return subprocess.run([*command, "--version"], env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Return the number of calls, which depends on the versions of Python, typer and rich."""
    ran = version([sys.executable, "-m", "mpscnn"], tmp_path_factory.mktemp("questions"), 0)
    assert ran.returncode == 0
    return int(ran.stderr)


@pytest.mark.parametrize("part", [0, 0.1, 0.3, 0.6, 0.95])
def test_ctrl_c_while_modules_are_imported(command: list[str], part: float, questions: int, tmp_path: Path) -> None:
    """Parts of the range from the extension to the last modules of typer and rich."""
    assert questions > 100
    ran = version(command, tmp_path, 1 + int(part * questions))
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_ctrl_c_at_work(command: list[str], classifier: Path) -> None:
    with subprocess.Popen(
        [*command, "bench", classifier, "--seconds", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        time.sleep(3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [["info"], ["info", "--json"], ["--help"]])
def test_a_pipe_that_is_not_read(command: list[str], arguments: list[str], tmp_path: Path) -> None:
    """The process ends like cat, ls and grep: by SIGPIPE, status 141 in a shell."""
    reading, writing = os.pipe()
    os.close(reading)
    with (tmp_path / "err").open("w") as err:
        ran = subprocess.run([*command, *arguments], stdout=writing, stderr=err, timeout=60)
    os.close(writing)
    assert ran.returncode == -signal.SIGPIPE
    assert (tmp_path / "err").read_text() == ""


def test_programs_that_import_the_package_are_left_alone() -> None:
    code = "import signal, mpscnn, mpscnn.cli; print(signal.getsignal(signal.SIGINT).__name__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "default_int_handler\n"

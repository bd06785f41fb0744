# SPDX-License-Identifier: Apache-2.0
"""Common to all commands: exit status, streams of messages, format of errors."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMANDS = {
    "info": [],
    "convert": ["{tmp}/out.mpscnn"],
    "run": ["{tmp}"],
    "bench": [],
    "verify": [],
    "trace": ["-o", "{tmp}/trace.json"],
    "plot": ["-o", "{tmp}/net.svg"],
}


def arguments(command: str, model: Path) -> list[str]:
    return [command, str(model), *(text.format(tmp=model.parent) for text in COMMANDS[command])]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_that_does_not_exist_is_wrong_use(run, tmp_path: Path, command: str) -> None:
    ran = run(*arguments(command, tmp_path / "none.onnx"))
    assert (ran.status, ran.out) == (2, "")
    assert "none.onnx' does not exist" in ran.message


@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_model_is_one_sentence(run, tmp_path: Path, command: str, json: list[str]) -> None:
    model = tmp_path / "damaged.onnx"
    model.write_bytes(b"\x08\x07 this is no model")
    (tmp_path / "x.npy").write_bytes(b"")
    ran = run(*arguments(command, model), *json)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("mpscnn: ")
    assert "damaged.onnx" in ran.err
    assert "Traceback" not in ran.err
    assert ran.err.count("\n") == 1


def test_operators_without_a_kernel_are_listed(run, unsupported: Path) -> None:
    ran = run("info", unsupported)
    assert ran.status == 1
    assert "Det" in ran.err
    assert "y_node" in ran.err


def test_a_traceback_on_request(run, unsupported: Path) -> None:
    ran = run("info", unsupported, "--traceback")
    assert ran.status == 1
    assert "Traceback (most recent call last)" in ran.err
    assert "Traceback" not in run("info", unsupported).err  # and only for that command


@pytest.mark.parametrize("command", COMMANDS)
def test_help(run, command: str) -> None:
    ran = run(command, "--help")
    assert ran.status == 0
    assert "--json" in ran.out
    assert "--traceback" in ran.out


def test_without_a_command_there_is_help(run) -> None:
    ran = run()
    assert ran.status == 2
    assert all(command in ran.out + ran.err for command in COMMANDS)


def test_version(run) -> None:
    import mpscnn

    assert run("--version").out == f"mpscnn {mpscnn.__version__}\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--input-shape", "1x3xlarge"], '"1x3xlarge" is not numbers with x between them'),
        (["--input-shape", "1x3x0x4"], "0 is less than the minimum (1)"),
        (["--input-shape", "z=1x3x4x4"], "z"),
        (["--input-shape", "x=1x3x4x4", "--input-shape", "x=1x3x4x4"], 'the input "x" is given twice'),
        (["--input-shape", "x=1x3x4x4", "--input-shape", "1x3x4x4"], "each shape needs a name"),
        (["--dtype", "int8"], "int8"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_options(run, classifier: Path, given: list[str], message: str) -> None:
    ran = run("info", classifier, *given)
    assert ran.status in ((1, 2) if message == "z" else (2,))
    assert message in ran.message
    assert ran.out == ""


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_its_packages_the_command_says_what_to_install(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import mpscnn.cli; sys.exit(mpscnn.cli.main(['info']))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ran.stderr == (
        f"mpscnn: the command line needs the package {package}, which is not installed:"
        " pip install typer rich pillow.\n"
    )


def test_as_a_module() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mpscnn", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.startswith("mpscnn ")


def test_a_reader_that_leaves_is_no_error(classifier: Path) -> None:
    # stdout is closed at once: the remaining output is lost, without a message.
    ran = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m mpscnn info {classifier} --json | head -c 1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == "{"
    assert "Traceback" not in ran.stderr
    assert "Error" not in ran.stderr


@pytest.mark.parametrize(("seconds", "shown"), [(0.0, False), (0.4, True)])
def test_progress_is_shown_of_what_takes_long(monkeypatch: pytest.MonkeyPatch, seconds: float, shown: bool) -> None:
    from rich.console import Console

    from mpscnn.cli import console

    file = io.StringIO()
    monkeypatch.setattr(console, "_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(console, "stderr", lambda: Console(file=file, force_terminal=True, width=80))
    with console.progress("reading", total=3) as done:
        done(1)
        time.sleep(seconds)
    assert ("reading" in file.getvalue()) is shown
    assert ("1/3" in file.getvalue()) is shown


@pytest.mark.parametrize("name", ["[bold]x", "a b'c", "\udcff"], ids=ascii)
def test_odd_file_names(run, classifier: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from mpscnn.cli import console

    monkeypatch.setattr(console, "_PATIENCE_SECONDS", 0.0)
    model = classifier.rename(classifier.parent / f"{name}.onnx")
    shown = name.encode("utf-8", "backslashreplace").decode()
    if name != "\udcff":  # not supported by the package onnx
        ran = run("info", model)
        assert ran.status == 0
        assert f"{shown}.onnx" in ran.out
    model.write_bytes(b"no model")
    ran = run("info", model)
    assert ran.status == 1
    assert f"{shown}.onnx" in ran.err
    assert run("info", model, "--json").status == 1


def test_what_is_declared() -> None:
    tomllib = pytest.importorskip("tomllib", reason="part of Python 3.11")
    from mpscnn import cli

    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    module, _, name = project["project"]["scripts"]["mpscnn"].partition(":")
    assert (module, getattr(cli, name)) == ("mpscnn.cli", cli.main)
    # The extra is for users, the group for the make targets.
    assert project["project"]["optional-dependencies"]["cli"] == project["dependency-groups"]["cli"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bench", "{}", "--seconds", "-1"], "'--seconds': -1.0 is less than the minimum (0)."),
        (
            ["quantize", "{}", "{}", "-o", "a.mpscnn", "--percentile", "30"],
            "'--percentile': 30.0 is less than the minimum",
        ),
        (["quantize", "{}", "{}", "-o", "a.mpscnn", "--images", "0"], "'--images': 0 is less than the minimum (1)."),
        (["run", "{}", "{}", "--top", "0"], "'--top': 0 is less than the minimum (1)."),
        (["run", "{}", "{}", "--resize", "-3"], "'--resize': -3 is less than the minimum (1)."),
        (["trace", "{}", "-o", "a.json", "--runs", "0"], "'--runs': 0 is less than the minimum (1)."),
        (["verify", "{}", "--batch", "0"], "'--batch': 0 is less than the minimum (1)."),
    ],
)
def test_numbers_have_limits(run, classifier: Path, arguments: list[str], sentence: str) -> None:
    ran = run(*(part.format(classifier) for part in arguments))
    assert ran.status == 2
    assert sentence in " ".join(ran.err.replace("│", " ").split())

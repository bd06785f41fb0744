# SPDX-License-Identifier: Apache-2.0
"""The engine's lists of implementations: each entry is used, can be forced, and gives the same results."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dispatch_rows
from support import PROCESSOR, only_openmps

ROOT = Path(__file__).resolve().parent.parent
CPU = ROOT / "csrc/openmps/engine/cpu"
FOLDER = os.environ.get("MPSCNN_CPP_TESTS")
# Entries that only programs of tests/cpp use.
OF_PROGRAMS = {
    "buffer_copy": "cpp_engine_values",
    "buffer_fill": "cpp_engine_values",
    "correlation": "objc_mps_filters",
    "function_groups": "objc_functions",
    "function_threads": "objc_functions",
    "grid_sample": "objc_mps_filters",
    "lanczos": "objc_mps_filters",
    "load_weights": "cpp_engine_values",
    "masked_sum_at_once": "cpp_engine_fusion",
    "masked_sum_moments_at_once": "cpp_engine_fusion",
    "masked_sum_then_moments": "cpp_engine_fusion",
    "moments_of_bfloats": "cpp_engine_plans",
    "normalize_add_at_once": "cpp_engine_fusion",
    "normalize_bfloats": "cpp_engine_plans",
    "normalize_then_add": "cpp_engine_fusion",
    "pixel_copy": "objc_metal_commands",
    "product": "objc_mps_matrix_kernels",
    "random": "objc_mps_matrix_kernels",
    "strided_copy": "objc_mps_ndarray",
    "sum_then_mask": "cpp_engine_fusion",
}

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="openmps is Linux only"),
    only_openmps("an Apple device has other places for images"),
]


def lists() -> dict[str, list[str]]:
    """Return the names of the implementations in each list, by entry; convolutions have their lists elsewhere."""
    found = {}
    for path in CPU.rglob("*.cpp"):
        text = path.read_text()
        names = {
            name: re.findall(r'\{"(\w+)", ', body)
            for name, body in re.findall(r"Implementation<\w+> (k\w+)\[\] = \{(.*?)\};", text, re.DOTALL)
        }
        walked = dict(reversed(pair) for pair in re.findall(r'(?:run|try)_first\("([^"]+)", (k\w+),\s', text))
        assert set(names) == set(walked), path
        found |= {walked[name]: entries for name, entries in names.items()}
    return found


LISTS = {entry: names for entry, names in lists().items() if not entry.startswith("convolve")}
# The last one of any list restricts all other lists to their last ones, so one list is enough.
LAST = LISTS["pool"][-1]
NAMES = [(entry, name) for entry, names in LISTS.items() for name in names if name == LAST or name != names[-1]]


Results = tuple[dict[str, np.ndarray], dict[str, set[str]]]


class Server:
    """A dispatch_rows.py process, with the results for each requested name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = {k: v for k, v in os.environ.items() if not k.startswith("MPSCNN_")}
        command = [sys.executable, str(Path(dispatch_rows.__file__))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, env=settings, **pipes)

    def run(self, name: str = "-") -> Results:
        """Return arrays, and the implementations used by each entry; without a name, with all implementations."""
        assert self.process.stdin
        assert self.process.stdout
        path = self.folder / name
        if not path.with_suffix(".npz").exists():
            print(name, path, file=self.process.stdin, flush=True)
            status = self.process.stdout.readline().strip()
            assert status == "0", path.with_suffix(".trace").read_text()[-3000:]
        with np.load(path.with_suffix(".npz")) as file:
            return dict(file), took(path.with_suffix(".trace").read_text())

    def left_out(self) -> set[str]:
        """Return the implementations that the processor or the build lacks (a sanitized build has one of a loop)."""
        self.run()
        trace = (self.folder / "-.trace").read_text()
        return set(re.findall(r"^mpscnn dispatch: [\w, ]+: (\w+) declines: the processor", trace, re.MULTILINE))

    def needs(self, entry: str) -> None:
        """Skip lists that no plan for this processor uses."""
        if entry.startswith("quantized") and "avx512_vnni" not in PROCESSOR:
            pytest.skip("the processor does not multiply bytes")
        if entry in ("chain", "gated") and "avx2" not in PROCESSOR:
            pytest.skip("the processor has no AVX2")

    def close(self) -> None:
        self.process.communicate(timeout=60)


def took(trace: str) -> dict[str, set[str]]:
    result: dict[str, set[str]] = {}
    for entry, name in re.findall(r"^mpscnn dispatch: ([\w, ]+): (\w+)$", trace, re.MULTILINE):
        result.setdefault(entry, set()).add(name)
    return result


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("dispatch"))
    yield started
    started.close()


def test_every_family_has_a_list() -> None:
    """Every run(problem) has a list, or uses that of another one."""
    problems = set()
    for path in CPU.rglob("*.cpp"):
        problems |= set(re.findall(r"^void run\(const (\w+Problem)&", path.read_text(), re.MULTILINE))
    listed = (ROOT / "csrc/openmps/engine/problem/fwd.hpp").read_text()
    assert problems == set(re.findall(r"\w+Problem\b", listed.partition("using Problem")[2]))
    assert len(lists()) >= len(problems) - 1, "no list for some problem"


def test_names_are_unique() -> None:
    """Except for convolutions, whose lists use the same name for the same method."""
    names = [name for each in LISTS.values() for name in each]
    assert len(set(names)) == len(names)
    assert not set(names) & {name for entry, each in lists().items() if entry.startswith("convolve") for name in each}


def test_the_page_has_every_list() -> None:
    page = (ROOT / "docs/engine.md").read_text()
    section = page.partition("\n## How the CPU engine decides\n")[2].partition("\n## ")[0]
    described = {}
    for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
        if rows[0][1:] == ["name", "takes"]:
            entry = ""
            for first, name, takes in rows[2:]:
                entry = first.strip("`") or entry
                assert takes
                described.setdefault(entry, []).append(name.strip("`"))
    assert described == LISTS


def test_the_page_has_every_implementation_of_cuda() -> None:
    page = (ROOT / "docs/engine.md").read_text()
    section = page.partition("\n### Implementations\n")[2].partition("\n### ")[0]
    code = "".join(path.read_text() for path in (CPU.parent / "cuda").glob("*.cpp"))
    assert set(re.findall(r"`(cuda_\w+)`", section)) == set(re.findall(r'\{"(cuda_\w+)",', code))


@pytest.mark.parametrize("entry", LISTS)
def test_each_is_reached(entry: str, server: Server) -> None:
    server.needs(entry)
    names = {name for name in LISTS[entry] if name not in OF_PROGRAMS}
    assert server.run()[1].get(entry, set()) >= names - server.left_out()


@pytest.mark.skipif(FOLDER is None, reason="MPSCNN_CPP_TESTS is not set")
@pytest.mark.parametrize("name", OF_PROGRAMS)
def test_each_is_reached_by_a_program(name: str) -> None:
    program = ROOT / str(FOLDER) / OF_PROGRAMS[name]
    settings = os.environ | {"MPSCNN_TRACE": "dispatch"}
    done = subprocess.run([program], capture_output=True, text=True, timeout=600, env=settings, check=True)
    if re.search(f": {name} declines: the processor", done.stderr):
        pytest.skip("the processor lacks the instructions")
    assert name in set().union(*took(done.stderr).values())


@pytest.mark.parametrize(("entry", "name"), NAMES, ids=[name for _, name in NAMES])
def test_one_implementation(entry: str, name: str, server: Server) -> None:
    """With only this implementation and the last of every list, all results are the same."""
    server.needs(entry)
    if name in server.left_out():
        pytest.skip("the processor, or the build, lacks the instructions")
    results, took_part = server.run(name)
    for each, names in LISTS.items():
        assert took_part.get(each, set()) <= {names[-1], name}, each
    assert name in OF_PROGRAMS or name in took_part[entry]
    plain, _ = server.run()
    assert results.keys() == plain.keys()
    for key, right in plain.items():
        found = results[key]
        assert (found.shape, found.dtype) == (right.shape, right.dtype)
        if right.dtype.kind == "u":
            assert np.abs(found.astype(int) - right.astype(int)).max(initial=0) <= 1, key
            continue
        finite = right[np.isfinite(right)]
        most = np.abs(finite).max(initial=0).astype(np.float64)
        rounding = 4 * np.finfo(right.dtype).eps if right.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(found, right, rtol=rounding, atol=rounding * most, err_msg=key)


def test_a_name_in_no_list_fails() -> None:
    program = "import mpscnn, numpy; mpscnn.NeuronReLU()(numpy.ones((1, 2, 2, 4), numpy.float32))"
    environment = os.environ | {"MPSCNN_IMPL": "zz"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode != 0
    assert re.search(r"MPSCNN_IMPL \(zz\) names no implementation \(.*\bpool_blocks\b.*\)", done.stderr)


def test_the_trace_says_what_was_computed() -> None:
    program = "import mpscnn, numpy; mpscnn.PoolingMax(2)(numpy.ones((1, 4, 4, 16), numpy.float32))"
    environment = os.environ | {"MPSCNN_TRACE": "dispatch,steps"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True)
    described = (
        r" +PoolProblem src=a 1x4x4x16 float32 dst=b 1x\dx\dx16 float32 type=0 window=\{kernel_h=2 kernel_w=2 .*$"
    )
    assert re.search("^mpscnn dispatch:" + described, done.stderr, re.MULTILINE)
    assert re.search("^mpscnn steps:" + described, done.stderr, re.MULTILINE)
    declined = "mpscnn dispatch: pool: pool_bytes declines: not unorm8\n"
    assert f"{declined}mpscnn dispatch: pool: pool_columns\n" in done.stderr

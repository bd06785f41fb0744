# SPDX-License-Identifier: Apache-2.0
"""How the CUDA engine chooses plans of cuDNN and cuBLASLt, and what it does when their calls fail: on cuda-host, with
the libraries of tests/cpp/fake_*.cpp.
"""

from __future__ import annotations

import os
import re
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

from rows import engine_convolution, row_file
from support import ENGINE, only_openmps

FOLDER = os.environ.get("MPSCNN_CPP_TESTS")

pytestmark = [
    only_openmps("openmps has the engine"),
    pytest.mark.skipif(ENGINE != "cpu", reason="the tests choose the engine"),
    pytest.mark.skipif(FOLDER is None, reason="MPSCNN_CPP_TESTS is not set: run by make test, dev-test or test-asan"),
]

# Rows of FOLLOWED in rows/engine_convolution.py.
PRODUCT, CONVOLUTION = "followed 0, relu 0.0 after the sum, float32", "followed 2, relun 0.0 after the sum, float32"
# Large enough for our own kernels; with a stride, and so no product.
LARGE, STRIDED = "one chunk of terms, many rows, no sum", "windows: taps of less than a chunk, stride 2, no sum"
ALIGNED = "windows: another activation, no sum"  # with gaps of whole 16 bytes
USABLE = ("with workspace", "direct")  # engines for float32
NO_CUDNN, NO_CUBLASLT = ",".join(USABLE), "algorithms"


@lru_cache(maxsize=1)
def large() -> list[row_file.Row]:
    """Return rows for which our own kernels are candidates. The libraries round the bias to float16, too."""
    rows = [*engine_convolution.products(), *engine_convolution.windows()]
    return [row for row in rows if row.name.removeprefix("Conv ") in (LARGE, STRIDED, ALIGNED)]


class Ran:
    """A process that computed rows."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.failures = re.findall(r"^FAIL (.*)$", done.stdout, re.MULTILINE)
        self.passed = done.returncode == 0
        self.implementations = set(re.findall(r"^mpscnn dispatch: convolve: (cuda_\w+)$", done.stderr, re.MULTILINE))
        self.calls = re.findall(r"^fake (.*)$", done.stderr, re.MULTILINE)
        self.candidates = set(re.findall(r"^mpscnn dispatch: candidate (\S+):", done.stderr, re.MULTILINE))
        self.kernels = {
            name for name, count in re.findall(r"^kernel (\w+) (\d+)$", done.stdout, re.MULTILINE) if int(count) > 0
        }
        self.refuses = "because it writes between the pixels" in done.stderr
        self.text = done.stdout[-3000:] + done.stderr[-3000:]

    def plans(self) -> set[str]:
        return {call.removeprefix("cuDNN plans ") for call in self.calls if call.startswith("cuDNN plans ")}


def compute(
    folder: Path, *names: str, fails: str = "", libraries: Path | None = None, fallback: str = "0", **more: str
) -> Ran:
    """Run rows; choices are kept in the folder. `fails`: calls of the libraries that fail."""
    assert FOLDER is not None
    programs = Path(__file__).resolve().parent.parent / FOLDER
    known = (*engine_convolution.followed(), *large(), *engine_convolution.without_strides())
    rows = {row.name.removeprefix("Conv "): row for row in known}
    folder.mkdir(exist_ok=True)
    path = folder / "rows"
    row_file.write(path, [rows[name] for name in names])
    environment = {
        "MPSCNN_CUDA_FALLBACK": fallback,
        "MPSCNN_CUDA_PATH": str(libraries or programs / "cuda"),
        "MPSCNN_TRACE": "dispatch",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "FAKE_FAILS": fails,
        "FAKE_TRACE": "1",
    }
    done = subprocess.run(
        [programs / "cpp_engine_rows", path, "cuda-host"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment | more,
        check=False,
    )
    return Ran(done)


def is_complaint_of_roles(failure: str) -> bool:
    """Few rows do not use every field."""
    return "has the role" in failure


def assert_correct(ran: Ran, implementation: str = "cuda_conv_tuned") -> None:
    assert [failure for failure in ran.failures if not is_complaint_of_roles(failure)] == [], ran.text
    assert ran.implementations == {implementation}


# ------------------------------------------------------------------------------------------------------------ choices


def test_engines_that_are_candidates(tmp_path: Path) -> None:
    """No plan is made of those that are inexact, compile or change between runs."""
    ran = compute(tmp_path, CONVOLUTION)
    assert_correct(ran)
    assert ran.plans() == {*USABLE, "too large"}  # whose workspace is known from its plan


def test_one_engine_that_compiles_if_there_is_no_other(tmp_path: Path) -> None:
    ran = compute(tmp_path, CONVOLUTION, fails=NO_CUDNN)
    assert_correct(ran)
    assert ran.plans() == {"compiled", "too large"}


def test_a_plan_that_writes_between_pixels_is_not_chosen(tmp_path: Path) -> None:
    """Plans with workspace keep the gaps."""
    ran = compute(tmp_path, ALIGNED, fails="gaps")
    assert_correct(ran)
    assert ran.refuses
    assert "d" in saved(tmp_path)


@pytest.mark.parametrize("name", [CONVOLUTION, PRODUCT])
def test_a_choice_is_kept_on_disk(name: str, tmp_path: Path) -> None:
    first = compute(tmp_path, name)
    assert_correct(first)
    assert first.plans() != set()
    assert not any("restores" in call for call in first.calls)
    files = sorted((tmp_path / "cache/mpscnn/cuda").glob("plan-*"))
    assert len(files) == 2  # for two kinds of strides
    second = compute(tmp_path, name)
    assert_correct(second)
    restored = {"cuDNN restores with workspace"}
    if name == PRODUCT:  # only without gaps between rows
        restored.add("cuBLASLt restores")
    assert set(second.calls) == restored


@pytest.mark.parametrize("name", [CONVOLUTION, PRODUCT])
def test_a_choice_that_cannot_be_restored_is_made_again(name: str, tmp_path: Path) -> None:
    assert_correct(compute(tmp_path, name))
    ran = compute(tmp_path, name, fails="restore")
    assert_correct(ran)
    assert ran.plans() != set()


@pytest.mark.parametrize("name", [CONVOLUTION, PRODUCT])
def test_a_damaged_choice_is_made_again(name: str, tmp_path: Path) -> None:
    assert_correct(compute(tmp_path, name))
    for file in (tmp_path / "cache/mpscnn/cuda").glob("plan-*"):
        contents = bytearray(file.read_bytes())
        contents[-9] ^= 1
        file.write_bytes(contents)
    ran = compute(tmp_path, name)
    assert_correct(ran)
    assert ran.plans() != set()


def saved(folder: Path) -> set[str]:
    """Return what files of choices begin with: d: a plan of cuDNN, p: a product of cuBLASLt, o: a kernel of ours."""
    files = (folder / "cache/mpscnn/cuda").glob("plan-*")
    return {chr(file.read_bytes().split(b"\n", 2)[2][0]) for file in files}


@pytest.mark.parametrize(
    ("name", "slow", "fails", "winner"),
    [
        (LARGE, "", "", "pd"),  # with gaps, there is no product
        (LARGE, "products", "", "d"),
        (LARGE, "products,execute", "", "o"),
        (LARGE, "", "algorithms,heuristic", "o"),
        (STRIDED, "", "", "d"),
        (STRIDED, "execute", "", "o"),
        (STRIDED, "", "execute", "o"),
    ],
)
def test_each_kind_can_be_the_fastest(name: str, slow: str, fails: str, winner: str, tmp_path: Path) -> None:
    ran = compute(tmp_path, name, fails=fails, FAKE_SLOW=slow)
    assert_correct(ran)
    assert saved(tmp_path) == set(winner)
    own = "cuda_conv_product/" if name == LARGE else "cuda_conv_windows/"
    assert any(candidate.startswith(own) for candidate in ran.candidates)
    again = compute(tmp_path, name, fails="restore" if winner == "o" else "")
    assert_correct(again)
    assert again.candidates == set()  # the choice was read


@pytest.mark.parametrize(("fails", "winners"), [("", "pd"), ("execute", "po")])
def test_sums_of_the_results_of_a_convolution(fails: str, winners: str, tmp_path: Path) -> None:
    """Plans of cuDNN, and the two steps one after the other, whose convolution is a product."""
    assert FOLDER is not None
    programs = Path(__file__).resolve().parent.parent / FOLDER
    environment = {
        "MPSCNN_CUDA_PATH": str(programs / "cuda"),
        "MPSCNN_TRACE": "dispatch",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "FAKE_FAILS": fails,
    }
    done = subprocess.run(
        [programs / "cpp_engine_groups"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "mpscnn dispatch: convolve, batch_moments: cuda_conv_moments\n" in done.stderr
    assert "mpscnn dispatch: candidate apart:" in done.stderr
    assert saved(tmp_path) == set(winners)


def test_a_gradient_as_a_forward_convolution(tmp_path: Path) -> None:
    """Of float32 without strides. It is chosen if it is faster, here because the other plans fail."""
    names = [row.name for row in engine_convolution.without_strides()]
    ran = compute(tmp_path, *names, fails="data")
    assert [failure for failure in ran.failures if not is_complaint_of_roles(failure)] == [], ran.text
    assert ran.candidates == {"cuDNN/turned"}
    assert saved(tmp_path) == {"t"}
    again = compute(tmp_path, *names)
    assert [failure for failure in again.failures if not is_complaint_of_roles(failure)] == [], again.text
    assert again.candidates == set()
    assert set(again.calls) == {"cuDNN restores with workspace"}
    both = compute(tmp_path / "other", *names)
    assert both.candidates == {"cuDNN", "cuDNN/turned"}


def test_a_kernel_that_is_no_candidate_is_not_chosen(tmp_path: Path) -> None:
    """A file may name a kernel of another version."""
    assert_correct(compute(tmp_path, STRIDED, FAKE_SLOW="execute"))
    written = {file: file.read_bytes() for file in (tmp_path / "cache/mpscnn/cuda").glob("plan-*")}
    assert written
    for file, known in written.items():
        magic, header, contents = known.split(b"\n", 2)
        other = contents[:-1] + bytes([contents[-1] ^ 1])
        value = 14695981039346656037
        for byte in other:  # FNV-1a, as disk_cache.cpp
            value = (value ^ byte) * 1099511628211 % 2**64
        file.write_bytes(b"\n".join([magic, b" ".join([*header.split(b" ")[:3], b"%016x" % value]), other]))
    ran = compute(tmp_path, STRIDED, FAKE_SLOW="execute")
    assert_correct(ran)
    assert ran.candidates != set()
    assert {file: file.read_bytes() for file in written} == written


KERNELS_SOURCE = Path(__file__).resolve().parent.parent / "csrc/openmps/engine/cuda/conv_product.cpp"
OWN = re.findall(r'^    \{"(cuda_conv_\w+/\w+)", ([\w:]+),', KERNELS_SOURCE.read_text(), re.MULTILINE)


def test_all_kernels_are_alternatives() -> None:
    folder = KERNELS_SOURCE.parent / "kernels"
    files = ("conv_product", "conv_windows", "conv_stem", "conv_few_inputs", "conv_few_outputs")
    texts = [(folder / f"{file}.hpp").read_text() for file in files]
    kernels = re.findall(r"^MPSCNN_\w+_KERNEL\((\w+),", "".join(texts), re.MULTILINE)
    assert {kernel.rpartition("::")[2] for _, kernel in OWN} == set(kernels) - {"pack_weights"}


@pytest.mark.parametrize(("name", "kernel"), OWN)
def test_each_kernel(name: str, kernel: str, tmp_path: Path) -> None:
    """MPSCNN_IMPL lets it alone compute all rows that it can."""
    assert FOLDER is not None
    programs = Path(__file__).resolve().parent.parent / FOLDER
    made = re.search("windows|few_inputs|few_outputs", name)
    rows = getattr(engine_convolution, made[0] if made else "products")()
    row_file.write(tmp_path / "rows", list(rows))
    settings = {"MPSCNN_IMPL": name, "MPSCNN_CUDA_FALLBACK": "0", "MPSCNN_CUDA_PATH": ""}
    done = subprocess.run(
        [programs / "cpp_engine_rows", tmp_path / "rows", "cuda-host"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | settings,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    launched = re.search(rf"^kernel {kernel.rpartition('::')[2]} (\d+)$", done.stdout, re.MULTILINE)
    assert launched is not None
    assert int(launched[1]) >= 4


# ----------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("fails", "planned"),
    [
        ("with workspace", {"direct", "too large"}),
        ("too large", set(USABLE)),
        ("algorithms", {*USABLE, "too large"}),
        ("products", {*USABLE, "too large"}),
    ],
)
def test_the_next_candidate_computes(fails: str, planned: set[str], tmp_path: Path) -> None:
    ran = compute(tmp_path, CONVOLUTION, PRODUCT, fails=fails)
    assert_correct(ran)
    assert ran.plans() == planned


@pytest.mark.parametrize("fails", ["heuristic,algorithms", "execute,products", "heuristic,products"])
def test_our_own_kernel_computes(fails: str, tmp_path: Path) -> None:
    ran = compute(tmp_path, CONVOLUTION, PRODUCT, fails=fails)
    assert_correct(ran, "cuda_conv_loop")
    assert "cuda_conv_tuned declines: no library supports it" in ran.text
    assert not list((tmp_path / "cache/mpscnn/cuda").glob("plan-*"))


@pytest.mark.parametrize(
    ("name", "fails", "sentence"),
    [
        (
            CONVOLUTION,
            "execute",
            "cuDNN, cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED, FAKE_FAILS has execute.",
        ),
        (PRODUCT, "products", "cuBLASLt, cublasLtMatmul: status 13."),
    ],
)
def test_a_plan_that_fails_later_is_an_error(name: str, fails: str, sentence: str, tmp_path: Path) -> None:
    assert_correct(compute(tmp_path, name))
    ran = compute(tmp_path, name, fails=fails)
    errors = [failure for failure in ran.failures if not is_complaint_of_roles(failure)]
    assert len(errors) == (2 if name == CONVOLUTION else 1)  # with gaps, the product is one of cuDNN
    assert all(error.endswith(sentence) for error in errors), errors


# ---------------------------------------------------------------------------------------------------------- libraries


def test_without_cublaslt(tmp_path: Path) -> None:
    assert FOLDER is not None
    found = Path(__file__).resolve().parent.parent / FOLDER / "cuda"
    (tmp_path / "libraries").mkdir()
    (tmp_path / "libraries/libcudnn.so.9").symlink_to(found / "libcudnn.so.9")
    ran = compute(tmp_path, PRODUCT, libraries=tmp_path / "libraries")
    assert_correct(ran)
    assert ran.plans() == {*USABLE, "too large"}
    again = compute(tmp_path, PRODUCT, libraries=tmp_path / "libraries")
    assert_correct(again)
    assert set(again.calls) == {"cuDNN restores with workspace"}


def test_without_libraries(tmp_path: Path) -> None:
    ran = compute(tmp_path, PRODUCT, MPSCNN_CUDA_PATH="")
    assert_correct(ran, "cuda_conv_loop")
    assert "cuda_conv_tuned declines: no cuDNN on the host" in ran.text


def test_a_library_for_gpus_is_left_alone(tmp_path: Path) -> None:
    """Without the symbol that says where it computes."""
    assert FOLDER is not None
    found = Path(__file__).resolve().parent.parent / FOLDER / "cuda"
    (tmp_path / "libraries").mkdir()
    contents = (found / "libcudnn.so.9").read_bytes()
    other = contents.replace(b"mpscnn_computes_on_host\0", b"mpscnn_computes_on_a_gp\0")
    assert other != contents
    (tmp_path / "libraries/libcudnn.so.9").write_bytes(other)
    ran = compute(tmp_path, CONVOLUTION, libraries=tmp_path / "libraries")
    assert_correct(ran, "cuda_conv_loop")
    assert ran.calls == []

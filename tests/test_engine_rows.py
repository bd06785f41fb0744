# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of the engine: cpp_engine_rows runs rows of tests/rows/engine_*.py through the fields of each problem, on
the engine that MPSCNN_ENGINE names or the CPU engine; with single implementations; and on the CUDA engine, whose
kernels the engine cuda-host runs on the CPU.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

from rows import ONLY_CPU, engine_convolution, row_file
from support import ENGINE, PROCESSOR, only_openmps

ROOT = Path(__file__).resolve().parent.parent
FOLDER = os.environ.get("MPSCNN_CPP_TESTS")
SOURCES = sorted((ROOT / "tests" / "rows").glob("engine_*.py"))
# The lists in docs/engine.md.
IMPLEMENTATIONS = {
    "convolve": "nothing_seen multiplier matrix_vector pointwise tiles inner_product taps depthwise_vectors few_outputs"
    " winograd primitive materialized apart depthwise_loop loop",
    "convolve_transpose": "subpixel primitive stuffed loop",
    "convolve_gradient, data": "depthwise taps narrow winograd primitive patches",
    "convolve_gradient, weights": "taps in_place winograd primitive depthwise patches",
    "convolve_gradient, data, bfloat16": "winograd primitive_of_bfloats",
    "convolve_gradient, weights, bfloat16": "winograd products_of_bfloats primitive_of_bfloats",
}
IN_VECTORS = ("depthwise_vectors", "few_outputs", "matrix_vector", "pointwise", "winograd")  # with AVX-512 or AVX2
# Of 8-bit numbers, and the entries of their lists.
QUANTIZED = {
    "quantized_depthwise": "quantized_convolve",
    "quantized_products": "quantized_convolve",
    "quantized_primitive": "quantized_convolve",
    "quantized_materialized": "quantized_convolve",
    "quantized_activated": "quantized_convolve",
    "quantized_floats": "quantized_convolve",
    "quantized_sum": "quantized_sum",
    "quantized_product_in_vectors": "quantized_product",
    "quantized_product": "quantized_product",
    "quantized_pixel_sum_in_vectors": "quantized_pixel_sum",
    "quantized_pixel_sum": "quantized_pixel_sum",
    "quantized_map_in_vectors": "quantized_map",
    "quantized_map": "quantized_map",
    "pool_bytes": "pool",
}
NAMES = sorted({name for names in IMPLEMENTATIONS.values() for name in names.split()})
# Files of csrc/openmps/engine/cuda/kernels with the kernels of each family.
KERNELS = {
    "engine_convolution": "convolution conv_stem_pool conv_depthwise"
    " conv_depthwise_5x5 conv_depthwise_any conv_depthwise_weights conv_weights_3x3 conv_weights_stem",
    "engine_loss": "loss",
    "engine_matrices": "matrix_product random",
    "engine_normalization": "lrn normalization normalize_images",
    "engine_optimizer": "optimizer",
    "engine_places": "pointwise resampling reshape",
    "engine_pointwise": "pointwise",
    "engine_pooling": "pooling max_pool_gradient",
    "engine_reduction": "reduction softmax",
}
PLACES = ("copy", "pixel_copy", "strided_copy")  # of pointwise.hpp
# test_cuda_libraries.py runs each of their kernels.
ALTERNATIVES = "conv_product conv_windows conv_stem conv_few_inputs conv_few_outputs"
OF_LIBRARIES = "layout"  # used only together with cuDNN and cuBLASLt
OF_GRAPHS = {"zero_words"}  # replaces nodes of a GPU's graphs
OF_GROUPS = "normalize_pool"  # cpp_engine_groups runs each of its kernels
# Of normalization.hpp; cpp_engine_groups and test_cuda_libraries.py run them.
GROUPED = {"moments_of_sums", "normalize_both_add_rows", "sum_sampled_gradients"}
SMALL = 1 << 20  # bytes of a row for every implementation
MIN_TAKEN = 5  # problems per implementation

pytestmark = [
    pytest.mark.skipif(sys.platform == "darwin", reason="the program tries openmps, which is not built on macOS"),
    only_openmps("the program tries openmps itself"),
    pytest.mark.skipif(FOLDER is None, reason="MPSCNN_CPP_TESTS is not set: run by make test, dev-test or test-asan"),
]


@lru_cache(maxsize=1)  # rows of convolutions are large, and every implementation uses them
def rows_of(family: str) -> list[row_file.Row]:
    return list(importlib.import_module(f"rows.{family}").rows())


def run(path: Path, rows: list[row_file.Row], *engines: str, **environment: str) -> subprocess.CompletedProcess[str]:
    assert FOLDER is not None
    row_file.write(path, rows)
    program = ROOT / FOLDER / "cpp_engine_rows"
    assert program.exists(), f"{program} was not built"
    done = subprocess.run(
        [program, path, *engines],
        capture_output=True,
        text=True,
        timeout=1800,
        env=os.environ | environment,
        check=False,
    )
    path.unlink()
    return done


@pytest.mark.parametrize("family", [path.stem for path in SOURCES])
def test_rows(family: str, tmp_path: Path) -> None:
    done = run(tmp_path / "rows", rows_of(family))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize("family", [path.stem for path in SOURCES if path.stem != "engine_convolution"])
def test_last_implementations(family: str, tmp_path: Path) -> None:
    """With only the last of each list, which accepts everything; "loop" is in a list of the convolutions."""
    done = run(tmp_path / "rows", rows_of(family), MPSCNN_IMPL="loop")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def libraries(folder: Path) -> dict[str, str]:
    """Return the environment for the libraries of tests/cpp, whose choices are kept in the folder."""
    assert FOLDER is not None
    return {
        "MPSCNN_CUDA_FALLBACK": "0",
        "MPSCNN_CUDA_PATH": str(ROOT / FOLDER / "cuda"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


def is_small(row: row_file.Row) -> bool:
    return "weights" in row.arrays and sum(array.nbytes for array in row.arrays.values()) <= SMALL


def kernels_in(file: str) -> list[str]:
    text = (ROOT / "csrc/openmps/engine/cuda/kernels" / f"{file}.hpp").read_text()
    found = re.findall(r"^MPSCNN(?:_\w+)?_KERNEL\((\w+)", text, re.MULTILINE)
    assert found, f"{file}.hpp has no kernel"
    return found


def kernels_of(family: str) -> set[str]:
    names = set()
    for file in KERNELS[family].split():
        found = kernels_in(file)
        names |= {
            name for name in found if file != "pointwise" or name.startswith(PLACES) == (family == "engine_places")
        }
    return names - GROUPED


def assert_launched(kernels: set[str], done: subprocess.CompletedProcess[str]) -> None:
    launches = {name: int(count) for name, count in re.findall(r"^kernel (\w+) (\d+)$", done.stdout, re.MULTILINE)}
    assert kernels <= launches.keys()
    assert {name for name in kernels if launches[name] == 0} == set()


@pytest.mark.skipif(ENGINE != "cpu", reason="the test chooses the engine")
@pytest.mark.parametrize("family", KERNELS)
def test_cuda(family: str, tmp_path: Path) -> None:
    """Every row without the CPU engine; and every kernel computes some of them."""
    rows = rows_of(family)
    if family == "engine_convolution":  # one thread computes them, without blocks
        rows = [row for row in rows if is_small(row)]
    done = run(tmp_path / "rows", rows, "cuda-host", MPSCNN_CUDA_FALLBACK="0")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert_launched(kernels_of(family), done)


@pytest.mark.skipif(ENGINE != "cpu", reason="the test chooses the engine")
def test_cuda_with_libraries(tmp_path: Path) -> None:
    """Every row with the libraries of tests/cpp in place of cuDNN and cuBLASLt. They compute some of them for each
    implementation that asks them, with every kernel that prepares operands."""
    small = [row for row in rows_of("engine_convolution") if is_small(row)]
    rows = engine_convolution.for_libraries(small)
    done = run(tmp_path / "rows", rows, "cuda-host", **libraries(tmp_path), MPSCNN_TRACE="dispatch", FAKE_TRACE="1")
    assert done.returncode == 0, done.stdout[-4000:]
    assert_launched(set(kernels_in(OF_LIBRARIES)) - OF_GRAPHS, done)
    sources = "".join(path.read_text() for path in (ROOT / "csrc/openmps/engine/cuda").glob("*.cpp"))
    names = set(re.findall(r'\{"(cuda_\w+_tuned)", ', sources))
    assert len(names) >= 3
    taken = Counter(re.findall(r"^mpscnn dispatch: .*: (\w+_tuned)$", done.stderr, re.MULTILINE))
    assert {name for name in names if taken[name] < MIN_TAKEN} == set()
    planned = Counter(re.findall(r"^fake cuDNN plans (.*)$", done.stderr, re.MULTILINE))
    assert planned.keys() == {"with workspace", "tensor cores", "winograd", "direct", "too large"}
    failures = set(re.findall(r"^fake cu\w+ fails: (.*)$", done.stderr, re.MULTILINE))
    assert failures == {"the engine does not support the graph"}


def test_every_cuda_kernel_has_a_family() -> None:
    folder = ROOT / "csrc/openmps/engine/cuda/kernels"
    with_kernels = {
        path.stem for path in folder.glob("*.hpp") if re.search(r"^MPSCNN(_\w+)?_KERNEL\(", path.read_text(), re.M)
    }
    assert with_kernels == set(" ".join([*KERNELS.values(), ALTERNATIVES]).split()) | {OF_LIBRARIES, OF_GROUPS}
    assert KERNELS.keys() == {path.stem for path in SOURCES} - ONLY_CPU


@pytest.mark.parametrize("name", NAMES)
def test_one_implementation(name: str, tmp_path: Path) -> None:
    """With only this implementation and the last of each list: same results, and it computes some of the rows."""
    if name in IN_VECTORS and "avx2" not in PROCESSOR:
        pytest.skip("the processor has no AVX2")
    if (name == "tiles" or name.endswith("_of_bfloats")) and "avx512_bf16" not in PROCESSOR:
        pytest.skip("the processor has no products of bfloat16")
    check_one_implementation(name, tmp_path)


@pytest.mark.parametrize("name", IN_VECTORS)
def test_one_implementation_with_avx2(name: str, tmp_path: Path) -> None:
    if "avx512dq" not in PROCESSOR:
        pytest.skip("test_one_implementation uses AVX2 on this processor")
    check_one_implementation(name, tmp_path, ONEDNN_MAX_CPU_ISA="AVX2")


def check_one_implementation(name: str, tmp_path: Path, **environment: str) -> None:
    rows = [row for row in rows_of("engine_convolution") if is_small(row)]
    done = run(tmp_path / "rows", rows, MPSCNN_IMPL=name, MPSCNN_TRACE="dispatch", **environment)
    assert done.returncode == 0, done.stdout[-4000:]
    lines = Counter(re.findall(r"^mpscnn dispatch: (.*): (\w+)$", done.stderr, re.MULTILINE))
    multiplies_bfloats = "avx512_bf16" in PROCESSOR and not environment
    for entry, names in IMPLEMENTATIONS.items():
        if name in names.split() and (multiplies_bfloats or not entry.endswith("bfloat16")):
            assert lines[entry, name] >= MIN_TAKEN, f"{entry}: {name} has taken {lines[entry, name]} problems"


@pytest.mark.parametrize("isa", ["SSE41", "AVX", "AVX2", "AVX512_CORE"])
def test_convolutions_with_one_instruction_set(isa: str, tmp_path: Path) -> None:
    """oneDNN has other implementations and reorders for each, and ours are other copies."""
    rows = [row for row in rows_of("engine_convolution") if is_small(row)]
    done = run(tmp_path / "rows", rows, ONEDNN_MAX_CPU_ISA=isa)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize("name", QUANTIZED)
def test_one_quantized_implementation(name: str, tmp_path: Path) -> None:
    needs = {"quantized_primitive": "avx512_vnni", "quantized_materialized": "avx512_vnni"}
    needs |= {
        "quantized_depthwise": "avx512_vnni",
        "quantized_products": "avx512_vnni",
        "quantized_activated": "avx512_vnni",
        "quantized_map_in_vectors": "avx512vbmi",
    }
    needs |= dict.fromkeys(("quantized_product_in_vectors", "quantized_pixel_sum_in_vectors"), "avx512bw")
    if needs.get(name, "") not in {"", *PROCESSOR}:
        pytest.skip(f"the processor has no {needs[name]}")
    # Processors with AMX multiply tiles instead.
    without = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"} if name == "quantized_products" else {}
    done = run(tmp_path / "rows", rows_of("engine_quantized"), MPSCNN_IMPL=name, MPSCNN_TRACE="dispatch", **without)
    assert done.returncode == 0, done.stdout[-4000:]
    taken = re.findall(rf"^mpscnn dispatch: {QUANTIZED[name]}: {name}$", done.stderr, re.MULTILINE)
    assert len(taken) >= MIN_TAKEN


def test_every_kind_of_problem_has_rows() -> None:
    problem = (ROOT / "csrc" / "openmps" / "engine" / "problem" / "fwd.hpp").read_text()
    variant = re.search(r"std::variant<(.*?)>", problem, re.DOTALL)
    assert variant
    kinds = set(re.findall(r"(\w+)Problem", variant[1]))
    text = "".join(path.read_text() for path in SOURCES)
    assert len(kinds) > 30
    # LoadWeights has no result of its own: cpp_engine_values reads the weights. Functions of programs:
    # test_metal_functions.py.
    assert {kind for kind in kinds if f'"{kind}"' not in text} == {"LoadWeights", "Function"}

# SPDX-License-Identifier: Apache-2.0
"""docs/differences_from_apple.md: each row names existing tests; and tests of rows that are visible from Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import mpscnn
from support import PROCESSOR, assert_close, conv2d, random, run_python

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "differences_from_apple.md"
OWN = ("differences_test.mm", "test_differences.py")

NOT_TESTED: set[str] = set()
"""First cells of the rows that cannot be tested on Linux; their last cell gives the reason."""


class Row(NamedTuple):
    subject: str
    where: str
    test: str


def rows(text: str) -> list[Row]:
    found = []
    for line in text.splitlines():
        if not line.startswith("|") or re.fullmatch(r"[|-]+", line):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == 6, f"{len(cells)} cells, expected 6: {line}"
        if cells[0] != "class or function":
            found.append(Row(cells[0], *cells[4:]))
    return found


ROWS = rows(PAGE.read_text())


def functions(file: Path) -> dict[str, str]:
    """Return the bodies of the tests in a file, by name."""
    text = file.read_text()
    if file.suffix == ".py":
        return dict(re.findall(r"^def (test_\w+)(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL))
    bodies = dict(re.findall(r"^void (test_\w+)\(\)(.*?^\})", text, re.MULTILINE | re.DOTALL))
    run = text[text.index("int main(") :]
    return {name: body for name, body in bodies.items() if re.search(rf"\b{name}\b", run)}


def problems(row: Row) -> list[str]:
    """Return errors in the last cell: a list of `file::function`, each followed by names of its checks in quotes."""
    if row.subject in NOT_TESTED:
        return [] if row.test.startswith("none: ") else [f"{row.test!r} does not give the reason"]
    found = []
    named = re.findall(r"`([\w.]+)::(\w+)`((?: \"[^\"]+\",?)*)", row.test)
    if not named or re.sub(r"`[\w.]+::\w+`|\"[^\"]+\"|[, ]", "", row.test):
        found.append(f"{row.test!r} is no list of tests")
    for name, function, checks in named:
        # Files in errors/ may have the name of another file.
        files = [file for file in (ROOT / "tests").rglob(name) if file.is_file() and file.parent.name != "errors"]
        if len(files) != 1:
            found.append(f"{name} is not one file of tests/")
            continue
        body = functions(files[0]).get(function)
        if body is not None and name.endswith("_rows.py"):  # checks are names of rows
            kind = name.removeprefix("test_").removesuffix("_rows.py")
            body += "".join(file.read_text() for file in sorted((ROOT / "tests" / "rows").glob(f"{kind}_*.py")))
        if body is None:
            found.append(f"{name} runs no {function}")
        else:
            found += [f"{function} has no {check}" for check in re.findall(r"\"[^\"]+\"", checks) if check not in body]
    return found


# -------------------------------------------------------------------------------------------------------- the table


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.subject)
def test_row_names_its_test(row: Row) -> None:
    assert problems(row) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.subject)
def test_row_says_where_it_stands(row: Row) -> None:
    paths = re.findall(r"`([^`]+)`", row.where)
    assert paths
    for path in paths:
        assert (ROOT / "csrc" / "openmps" / path).exists() or (ROOT / path).exists(), path


def test_rows_have_names_of_their_own() -> None:
    assert len({row.subject for row in ROWS}) == len(ROWS) > 30
    assert {row.subject for row in ROWS} >= NOT_TESTED


def test_tests_of_the_table_are_in_it() -> None:
    """Tests for rows that no longer exist."""
    text = " ".join(row.test for row in ROWS)
    about_the_table = {"test_row_names_its_test", "test_row_says_where_it_stands", "test_rows_have_names_of_their_own"}
    about_the_table |= {"test_tests_of_the_table_are_in_it", "test_a_wrong_name_is_noticed"}
    for name in OWN:
        (file,) = (ROOT / "tests").rglob(name)
        assert {test for test in functions(file) if f"`{name}::{test}`" not in text} - about_the_table == set()


@pytest.mark.parametrize(
    ("test", "complaint"),
    [
        ("", "no list of tests"),
        ("somewhere", "no list of tests"),
        ("`mps_test.mm::test_padding` and more", "no list of tests"),
        ("`missing_test.mm::test_padding`", "not one file"),
        ("`mps_test.mm::test_nothing`", "runs no test_nothing"),
        ('`mps_test.mm::test_padding` "not there"', "has no"),
        ("none: no reason counts for a row that is not listed", "no list of tests"),
    ],
)
def test_a_wrong_name_is_noticed(test: str, complaint: str) -> None:
    (found, *_) = problems(Row("a row", "`mps`", test))
    assert complaint in found


# ------------------------------------------------------------------------------------------------------------- rows


def test_pooling_of_nan() -> None:
    x = np.zeros((1, 2, 4, 40), np.float32)
    x[0, 1, 1, [3, 37]] = np.nan
    y = mpscnn.PoolingMax(2)(x)
    assert np.argwhere(np.isnan(y)).tolist() == [[0, 0, 0, 3], [0, 0, 0, 37]]


def test_clamped_taps_of_dilated_pooling() -> None:
    """Two taps, three pixels apart, around pixel 0 of three: -2 and 1, the first of which clamps to pixel 0."""
    x = np.array([5.0, 1.0, 2.0], np.float32).reshape(1, 1, 3, 1)
    pool = mpscnn.DilatedPoolingMax(
        (1, 2), (1, 3), stride=1, padding=(0, 2), offset=(0, 0), clip_rect=((0, 0, 0), (1, 1, 1))
    )
    assert pool(x, out=np.zeros((1, 1, 1, 1), np.float32)).item() == 5.0


def test_clamped_taps_of_the_l2_norm() -> None:
    x = np.array([3.0, 4.0], np.float32).reshape(1, 1, 2, 1)
    assert mpscnn.PoolingL2Norm((1, 3), padding=(0, 1), edge_mode="clamp")(x).item() == np.float32(np.sqrt(9 + 9 + 16))


def column(*values: float) -> np.ndarray:
    """Return one row of pixels with one channel."""
    return np.array(values, np.float32).reshape(1, 1, -1, 1)


def channels(*values: float) -> np.ndarray:
    """Return one pixel."""
    return np.array(values, np.float32).reshape(1, 1, 1, -1)


def test_softmax_of_large_values() -> None:
    x = channels(1000.0, 1001.0).astype(np.float16)
    np.testing.assert_allclose(mpscnn.SoftMax()(x, dtype="float32").ravel(), [0.26894143, 0.7310586], rtol=1e-6)
    np.testing.assert_allclose(mpscnn.LogSoftMax()(x, dtype="float32").ravel(), [-1.3132617, -0.31326166], rtol=1e-6)


def test_softmax_outside_of_the_source() -> None:
    x = random((1, 1, 1, 4))
    assert mpscnn.SoftMax(offset=(1, 0))(x).ravel().tolist() == [0.25] * 4
    moved = mpscnn.SoftMax(offset=(1, 0), edge_mode="clamp")
    np.testing.assert_array_equal(moved(x), mpscnn.SoftMax()(x))


def test_offset_of_upsampling() -> None:
    x = column(1, 2, 3)
    assert mpscnn.UpsamplingNearest((1, 2), offset=(0, 1))(x).ravel().tolist() == [2, 2, 3, 3, 0, 0]
    bilinear = mpscnn.UpsamplingBilinear((1, 2), offset=(0, 1), edge_mode="clamp")
    assert bilinear(x).ravel().tolist() == [2, 2.5, 3, 3, 3, 3]
    clipped = mpscnn.ResizeBilinear((1, 6), clip_rect=((0, 2, 0), (1, 3, 1)))
    assert clipped(x, out=np.zeros((1, 1, 6, 1), np.float32)).ravel().tolist() == [0, 0, 1, 1.5, 2, 0]


def test_aligned_corners_of_one_pixel() -> None:
    assert mpscnn.ResizeBilinear((1, 1), align_corners=True)(column(1, 2, 3)).item() == 1
    assert mpscnn.UpsamplingBilinear(1, align_corners=True)(column(5)).item() == 5


def test_positions_of_a_resize() -> None:
    assert mpscnn.ResizeBilinear((1, 2))(column(0, 1, 2, 3)).ravel().tolist() == [0, 2]
    assert mpscnn.ResizeBilinear((1, 4))(column(0, 1)).ravel().tolist() == [0, 0.5, 1, 1]


def test_positions_in_a_region() -> None:
    x = column(0, 1, 2, 3, 4)
    assert mpscnn.CropAndResizeBilinear((1, 3), [[0, 0.25, 1, 0.5]])(x).ravel().tolist() == [1, 2, 3]
    assert mpscnn.CropAndResizeBilinear((1, 1), [[0, 0.25, 1, 0.75]])(x).item() == 2.5


def test_regions_beyond_the_source() -> None:
    x = column(1, 2, 3, 4, 5)
    assert mpscnn.CropAndResizeBilinear((1, 4), [[0, 0.625, 1, 0.75]])(x).ravel().tolist() == [3.5, 4.5, 0, 0]


def test_order_of_regions() -> None:
    x = np.arange(4, dtype=np.float32).reshape(2, 1, 2, 1)
    crop = mpscnn.CropAndResizeBilinear(1, [[0, 0, 0, 0], [0, 1, 0, 0]])
    assert crop(x).ravel().tolist() == [0, 1, 2, 3]


def test_sizes_of_reductions() -> None:
    x = random((2, 5, 7, 6))
    rect = ((1, 2, 0), (3, 4, 1))
    assert mpscnn.ReduceRowMax(clip_rect_source=rect)(x).shape == (1, 3, 1, 6)
    assert mpscnn.ReduceColumnMax(clip_rect_source=rect)(x).shape == (1, 1, 4, 6)
    assert mpscnn.ReduceFeatureChannelsMax(clip_rect_source=rect)(x).shape == (1, 3, 4, 1)


def test_reductions_of_nan() -> None:
    x = random((1, 3, 4, 50))
    x[0, 1, 2, 40] = np.nan
    for kernel in (mpscnn.ReduceRowMax, mpscnn.ReduceRowMin):
        assert np.argwhere(np.isnan(kernel()(x))).tolist() == [[0, 1, 0, 40]]
    for kernel in (mpscnn.ReduceFeatureChannelsMax, mpscnn.ReduceFeatureChannelsMin):
        assert np.argwhere(np.isnan(kernel()(x))).tolist() == [[0, 1, 2, 0]]


@pytest.mark.parametrize("more", [0, 50])  # few and many channels have different implementations
def test_arguments_of_ties_and_nan(more: int) -> None:
    greatest, least = mpscnn.ReduceFeatureChannelsArgumentMax(), mpscnn.ReduceFeatureChannelsArgumentMin()
    assert greatest(channels(1, 3, 2, 3, *[0] * more)).item() == 1
    assert least(channels(4, -3, 2, -3, *[0] * more)).item() == 1
    for kernel in (greatest, least):
        assert kernel(channels(9, -9, np.nan, np.nan, *[0] * more)).item() == 2


def test_arguments_in_bytes() -> None:
    x = np.array([0, 3, 200, 7], np.uint8).reshape(1, 1, 1, 4)
    greatest = mpscnn.ReduceFeatureChannelsArgumentMax()
    assert greatest(x).item() == 255
    assert greatest(x, dtype="float32").item() == 2


def test_weights_of_0_alone() -> None:
    kernel = mpscnn.ReduceFeatureChannelsAndWeightsSum(by_nonzero_weights=True)
    assert kernel(channels(1, 2, 3), channels(0, 0, 0)).item() == 0
    assert kernel(channels(1, 2, 3), channels(0, 4, 2)).item() == 7


def test_order_of_a_reshape() -> None:
    x = np.arange(2 * 3 * 4, dtype=np.float32).reshape(1, 2, 3, 4)
    assert mpscnn.Reshape((1, 1, 24))(x).ravel().tolist() == list(range(24))


def test_first_channel_of_a_slice() -> None:
    with pytest.raises(ValueError, match="not a multiple of 4"):
        mpscnn.Slice(source_feature_channel_offset=2)


def test_mirror_of_one_pixel() -> None:
    assert mpscnn.Pad((0, 2), edge_mode="mirror")(column(7)).ravel().tolist() == [7] * 5


def test_neuron_defaults_of_python() -> None:
    x = np.abs(random((1, 3, 4, 5))) + 0.5
    np.testing.assert_array_equal(mpscnn.NeuronPower()(x), x)
    assert_close(mpscnn.NeuronExponential()(x), np.exp(x.astype(np.float64)), 1e-6)
    assert_close(mpscnn.NeuronLogarithm()(x), np.log(x.astype(np.float64)), 1e-6)


def test_no_dilated_transpose_in_python() -> None:
    with pytest.raises(TypeError, match="dilation"):
        mpscnn.ConvolutionTranspose(random((4, 3, 2, 2)), dilation=2)  # type: ignore[call-arg]


def reduced(permission: bool) -> tuple[np.ndarray, np.ndarray]:
    x, weight = random((1, 24, 24, 64)), random((64, 64, 3, 3), seed=1) / np.float32(24)
    return mpscnn.Convolution(weight, padding=1, allow_reduced_precision=permission)(x), conv2d(x, weight, padding=1)


def test_reduced_precision_is_bfloat16_at_most() -> None:
    """Products of two 8-bit numbers, and only with permission."""
    assert_close(*reduced(False), relative=2e-6)
    assert_close(*reduced(True), relative=2**-7)


def test_reduced_precision_is_asked_for() -> None:
    """Convolutions read bfloat16 on processors that multiply it, and only with permission."""
    program = """
        import os
        os.environ["ONEDNN_VERBOSE"] = "1"
        import numpy as np, mpscnn
        x, weight = np.ones((1, 24, 24, 64), np.float32), np.ones((64, 64, 3, 3), np.float32)
        for permission in (False, True):
            print("permission", permission, flush=True)
            mpscnn.Convolution(weight, padding=1, allow_reduced_precision=permission)(x)
    """
    _, without, allowed = run_python(program, MPSCNN_WINOGRAD="0").split("permission")
    assert "exec,cpu,convolution" in without
    assert "bf16" not in without.split("exec", 1)[1]
    assert ("src_bf16" in allowed) == ("avx512_bf16" in PROCESSOR)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        (mpscnn.NeuronReLU(), (0.0, 0.0, np.inf)),
        (mpscnn.NeuronReLUN(0.0, 6.0), (0.0, 0.0, 6.0)),
        (mpscnn.NeuronHardSigmoid(0.2, 0.5), (1.0, 0.0, 1.0)),
        (mpscnn.NeuronReLU(0.25), (np.nan, -np.inf, np.inf)),
        (mpscnn.NeuronReLUN(0.25, 6.0), (np.nan, -np.inf, 6.0)),
        (mpscnn.NeuronSigmoid(), (np.nan, 0.0, 1.0)),
        (mpscnn.NeuronTanH(), (np.nan, -1.0, 1.0)),
        (mpscnn.NeuronAbsolute(), (np.nan, np.inf, np.inf)),
        (mpscnn.NeuronELU(1.0), (np.nan, -1.0, np.inf)),
        (mpscnn.NeuronSoftPlus(), (np.nan, 0.0, np.inf)),
    ],
    ids=lambda value: getattr(type(value), "__name__", "") if not isinstance(value, tuple) else "",
)
def test_nan_before_fused_activations(activation: Any, expected: tuple[float, ...]) -> None:
    """NaN, -inf and inf through a convolution and its activation, and through the activation by itself."""
    weight = np.ones((16, 16, 1, 1), np.float32)
    alone = [np.nan if np.isnan(v) else e for v, e in zip((np.nan, -np.inf, np.inf), expected, strict=True)]
    for value, fused, single in zip((np.nan, -np.inf, np.inf), expected, alone, strict=True):
        x = np.full((1, 8, 8, 16), value, np.float32)
        np.testing.assert_array_equal(activation(x), np.full_like(x, single))
        y = mpscnn.Convolution(weight, activation=activation)(x)
        if np.isnan(value) and not np.isnan(fused):
            assert (np.isnan(y) | (y == fused)).all()
        else:
            np.testing.assert_array_equal(y, np.full_like(x, fused))

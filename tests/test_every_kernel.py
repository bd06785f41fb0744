# SPDX-License-Identifier: Apache-2.0
"""Common to all kernels of the table, on their own cases: positions of results, parts of sources, shared memory. New
rows are included automatically; the few exceptions are listed with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import mpscnn
from cases import Case, all_cases, make, viewed
from conftest import Guarded
from mpscnn import _core
from test_forward import STATES, build

# Parameters that plain cases do not have.
PLACING = ("offset", "clip_rect", "clip_rect_source", "source_clip_rect", "channel_offset", "channel_max_count")
ROWS: dict[str, dict[str, Any]] = {row["name"]: row for row in _core.kernel_table()}
# Tested in test_every_gradient.py, with states of their forward kernels.
GRADIENTS = {name for name, row in ROWS.items() if row["sources"][0] == "grad_y" and name != "NeuronGradient"}


def is_plain(case: Case) -> bool:
    return (
        "float32" in case.dtypes
        and case.out is None
        and (case.x_view, case.second_view, case.second_dtype, case.result_dtype) == ("dense", "dense", None, None)
        and not any(name.endswith(PLACING) for name in case.params)
    )


def plain_cases() -> Iterator[Case]:
    """Yield the first and the last plain case of each kernel."""
    for name in sorted(set(ROWS) - GRADIENTS):
        cases = [case for case in all_cases() if case.kernel == name and is_plain(case)]
        assert cases, f"{name} has no plain case"
        cases = [case for case in cases if not case.values] or cases
        yield from dict.fromkeys([cases[0], cases[-1]])


CASES = list(plain_cases())
IMAGES = [case for case in CASES if case.kernel not in STATES]


# Kernels for which a clipped result is not a corner of the whole result.
SIZED_BY_DESTINATION = {
    "BinaryFullyConnected": "has one pixel",
    "Dropout": "has a mask as large as what is written",
    "FullyConnected": "has one pixel",
    "Reshape": "has as many values as the source, wherever they are put",
}
# Kernels whose results differ between calls.
SEQUENCES = {"Dropout": "its masks follow each other"}


class Tried:
    """A kernel, its sources and its plain result."""

    def __init__(self, case: Case, dtype: str = "float32") -> None:
        self.case, self.row = case, ROWS[case.kernel]
        inputs = make(case, dtype)
        self.kernel = build(case, inputs)
        self.sources = inputs.sources
        self.prefixes = ["primary_", "secondary_"] if len(self.sources) == 2 else [""]
        self.whole = self.kernel(*self.sources)
        self.kernel = build(case, inputs)  # each mask of a Dropout is used once

    def into(self, out: Guarded, written: tuple[slice, ...]) -> np.ndarray:
        """Return the written part; check that nothing else has changed."""
        self.kernel(*self.sources, out=out.array)
        out.check(written)
        return out.array[written]

    def may(self, name: str) -> bool:
        """Return whether the row allows setting this attribute."""
        spec = next(spec for spec in self.row["params"] + _common(self.row) if spec["name"] == name)
        return spec["attribute"] and not (spec["min"] == spec["max"] == 0)


# Sums whose order depends on the source's memory layout, or on the size of the result.
SUMS = ("ConvolutionTranspose", "FullyConnected", "ReduceColumnMean", "ReduceColumnSum")


def assert_same(found: np.ndarray, tried: Tried, wanted: np.ndarray) -> None:
    if tried.case.kernel in SUMS:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max(initial=0.0))
    else:
        np.testing.assert_array_equal(found, wanted)


def skip_sequences(case: Case) -> None:
    if case.kernel in SEQUENCES:
        pytest.skip(SEQUENCES[case.kernel])


def _common(row: dict[str, Any]) -> list[dict[str, Any]]:
    return _core.common_params(len(row["sources"]))


def test_every_kernel_is_tried() -> None:
    assert {case.kernel for case in CASES} == set(ROWS) - GRADIENTS


# ------------------------------------------------------------------------------------------------ destinations


@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_channels_of_a_wider_destination(case: Case) -> None:
    """destinationFeatureChannelOffset: concatenation without a copy."""
    tried = Tried(case)
    n, h, w, c = tried.whole.shape
    tried.kernel.destination_feature_channel_offset = 8
    behind = 0 if case.kernel == "Reshape" else 3  # writes all channels from the offset on
    out = Guarded((n, h, w, 8 + c + behind), "float32")
    written = (slice(None), slice(None), slice(None), slice(8, 8 + c))
    np.testing.assert_array_equal(tried.into(out, written), tried.whole)
    assert tried.kernel.result_shape(*(source.shape for source in tried.sources)) == (n, h, w, 8 + c)


def _rectangle(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return a size below the whole one if there is more than one pixel."""
    return max(1, shape[1] - 1), max(1, shape[2] - 1)


@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_a_rectangle_of_the_destination(case: Case) -> None:
    """clipRect: its first pixel is the first pixel of a whole result [MPSCNNKernel.h]."""
    tried = Tried(case)
    n, h, w, c = tried.whole.shape
    height, width = (h, w) if case.kernel in SIZED_BY_DESTINATION else _rectangle(tried.whole.shape)
    tried.kernel.clip_rect = ((2, 1, 0), (height, width, n))
    out = Guarded((n, h + 3, w + 2, c), "float32")
    written = (slice(None), slice(2, 2 + height), slice(1, 1 + width))
    assert_same(tried.into(out, written), tried, tried.whole[:, :height, :width])
    with pytest.raises(ValueError, match="clip_rect needs a destination"):
        tried.kernel(*tried.sources)
    with pytest.raises(ValueError, match=r"clip_rect reaches \d+ along the height of out"):
        tried.kernel(*tried.sources, out=np.zeros((n, height + 1, w + 2, c), np.float32))


@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_images_of_a_longer_destination(case: Case) -> None:
    """clipRect.origin.z and .size.depth."""
    tried = Tried(case)
    n, h, w, c = tried.whole.shape
    per_source = n // max(len(source) for source in tried.sources)  # regions of a crop are not separated
    tried.kernel.clip_rect = ((0, 0, per_source), (h, w, per_source))
    out = Guarded((n + 2 * per_source, h, w, c), "float32")
    written = tried.into(out, (slice(per_source, 2 * per_source),))
    np.testing.assert_array_equal(written, tried.whole[:per_source])


@pytest.mark.parametrize("view", ["nchw", "channels", "steps", "reversed"])
@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_destinations_of_any_strides(case: Case, view: str) -> None:
    tried = Tried(case)
    out = Guarded(tried.whole.shape, "float32", view)
    np.testing.assert_array_equal(tried.into(out, (slice(None),)), tried.whole)


# ----------------------------------------------------------------------------------------------------- sources


@pytest.mark.parametrize("view", ["nchw", "channels", "steps", "reversed", "read-only"])
@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_sources_of_any_strides(case: Case, view: str) -> None:
    tried = Tried(case)
    sources = [viewed(source, view) for source in tried.sources]
    assert_same(tried.kernel(*sources), tried, tried.whole)


@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_channels_of_a_wider_source(case: Case) -> None:
    """sourceFeatureChannelOffset and sourceFeatureChannelMaxCount, with NaN in the neighbouring channels."""
    tried = Tried(case)
    sources = []
    for source, prefix in zip(tried.sources, tried.prefixes, strict=True):
        wide = np.full((*source.shape[:3], source.shape[3] + 13), np.nan, np.float32)
        wide[..., 8 : 8 + source.shape[3]] = source
        sources.append(wide)
        setattr(tried.kernel, f"{prefix}source_feature_channel_offset", 8)
        setattr(tried.kernel, f"{prefix}source_feature_channel_max_count", source.shape[3])
    assert_same(tried.kernel(*sources), tried, tried.whole)


def _window(case: Case) -> tuple[int, int]:
    """Return the position of the first window of a plain case, in rows and columns."""
    params = case.params
    if case.kernel == "Pad":
        pad = params.get("padding", 0)
        return (-pad, -pad) if isinstance(pad, int) else (-pad[0][0], -pad[1][0])
    if case.kernel in ("ConvolutionTranspose", "FullyConnected", "BinaryFullyConnected"):
        return 0, 0
    if case.weight and case.layout != "HWIO":
        kernel = case.weight[1:3] if case.layout == "OHWI" else case.weight[2:4]
    elif case.weight:
        kernel = case.weight[:2]
    elif ROWS[case.kernel]["family"] == "pooling":
        kernel = case.pair("kernel_size")
    else:
        return 0, 0
    pad = params.get("padding", 0)
    assert not isinstance(pad, str)
    first = pad if isinstance(pad, int) else [side if isinstance(side, int) else side[0] for side in pad]
    top, left = (first, first) if isinstance(first, int) else first
    dilation = case.pair("dilation")
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    return extents[0] // 2 - top, extents[1] // 2 - left


@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_images_of_a_longer_source(case: Case) -> None:
    """offset.z: the first image that is read."""
    if isinstance(case.params.get("padding"), str):
        pytest.skip("a padding policy sets the offset")
    tried = Tried(case)
    if not tried.may(f"{tried.prefixes[0]}offset"):
        pytest.skip("the kernel has no offset")
    if case.kernel == "Dropout":
        pytest.skip("images have masks of their own, by their place in the source")
    longer = []
    for source, prefix in zip(tried.sources, tried.prefixes, strict=True):
        longer.append(np.concatenate([np.full_like(source, np.nan), source]))
        setattr(tried.kernel, f"{prefix}offset", (*_window(case), len(source)))
    np.testing.assert_array_equal(tried.kernel(*longer), tried.whole)


@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_images_are_independent(case: Case) -> None:
    """A batch gives the results of its single images."""
    if case.kernel == "Dropout":
        pytest.skip("each image has a mask of its own, by its place in the batch")
    tried = Tried(case)
    n = max(len(source) for source in tried.sources)
    batch = [np.concatenate([source] * 3) if len(source) == n else source for source in tried.sources]
    assert_same(tried.kernel(*batch), tried, np.concatenate([tried.whole] * 3))
    ones = [
        tried.kernel(*(source[i : i + 1] if len(source) == n else source for source in tried.sources)) for i in range(n)
    ]
    assert_same(np.concatenate(ones), tried, tried.whole)


# ---------------------------------------------------------------------------------------------- shared memory


@pytest.mark.parametrize("source", [0, 1])
@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_a_result_over_its_source(case: Case, source: int) -> None:
    """Refused, unless the source is copied first: no result depends on itself."""
    tried = Tried(case)
    if source >= len(tried.sources):
        pytest.skip("the kernel has one source")
    n, h, w, c = (max(a, b) for a, b in zip(tried.whole.shape, tried.sources[source].shape, strict=True))
    memory = np.full((n, h, w, c), np.nan, np.float32)
    shape = tried.sources[source].shape
    over = memory[: shape[0], : shape[1], : shape[2], : shape[3]]
    over[:] = tried.sources[source]
    out = memory[: tried.whole.shape[0], : tried.whole.shape[1], : tried.whole.shape[2], : tried.whole.shape[3]]
    sources = [*tried.sources]
    sources[source] = over
    try:
        tried.kernel(*sources, out=out)
    except ValueError as error:
        assert "share memory" in str(error)  # noqa: PT017
        return
    np.testing.assert_array_equal(out, tried.whole)


@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_an_image_is_not_both(case: Case) -> None:
    tried = Tried(case)
    if tried.whole.shape != tried.sources[0].shape:
        pytest.skip("the result has another shape")
    images = [mpscnn.Image.from_array(source) for source in tried.sources]
    buffer = mpscnn.CommandBuffer()
    with pytest.raises(ValueError, match=r"out|same image|destination"):
        tried.kernel.encode(buffer, *images, out=images[0])
    buffer.commit()
    buffer.wait()


# -------------------------------------------------------------------------------------------------- data types


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_the_result_may_have_another_type(case: Case, dtype: str) -> None:
    """Equal results, stored in another type."""
    skip_sequences(case)
    other = {"float16": "float32", "float32": "float16"}[dtype]
    tried = Tried(case, dtype)
    wide = tried.kernel(*tried.sources, dtype="float32")
    narrow = tried.kernel(*tried.sources, dtype="float16")
    assert tried.whole.dtype == dtype
    np.testing.assert_array_equal(tried.whole, {"float16": narrow, "float32": wide}[dtype])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(narrow, wide.astype(np.float16), strict=True)
    out = np.empty(tried.whole.shape, other)
    tried.kernel(*tried.sources, out=out)
    np.testing.assert_array_equal(out, {"float16": narrow, "float32": wide}[other])


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_unsigned_sources_are_fractions(case: Case, dtype: str) -> None:
    """The result for bytes is that for the floats that they represent."""
    skip_sequences(case)
    tried = Tried(case, dtype)
    most = np.float32(np.iinfo(dtype).max)
    floats = [source.astype(np.float32) / most for source in tried.sources]
    wanted = tried.kernel(*floats)
    found = tried.kernel(*tried.sources, dtype="float32")
    scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5 * scale)


# ------------------------------------------------------------------------------------------------- all the rest


@pytest.mark.parametrize("case", CASES, ids=str)
def test_four_threads(case: Case) -> None:
    """One kernel; each thread has its own command buffer."""
    skip_sequences(case)
    inputs = make(case, "float32")
    kernel = build(case, inputs)

    def run(_: int) -> Any:
        result = kernel(*inputs.sources)
        return [result.mean, result.variance] if case.kernel in STATES else [result]

    wanted = run(0)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(run, range(16)):
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", IMAGES, ids=str)
def test_several_encodes_on_one_command_buffer(case: Case) -> None:
    """Attributes are read when a kernel is encoded; results are ready when the buffer has completed."""
    skip_sequences(case)
    tried = Tried(case)
    images = [mpscnn.Image.from_array(source) for source in tried.sources]
    with mpscnn.CommandBuffer() as buffer:
        first = tried.kernel.encode(buffer, *images)
        tried.kernel.destination_feature_channel_offset = 4
        second = tried.kernel.encode(buffer, *images)
        tried.kernel.destination_feature_channel_offset = 0
    np.testing.assert_array_equal(first.numpy(), tried.whole)
    np.testing.assert_array_equal(second.numpy()[..., 4:], tried.whole)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_memory_is_kept(case: Case, no_leak: Any) -> None:
    inputs = make(case, "float32")

    def once() -> None:
        build(case, inputs)(*inputs.sources)

    once()
    with no_leak():
        for _ in range(3):
            once()

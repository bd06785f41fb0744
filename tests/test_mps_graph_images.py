# SPDX-License-Identifier: Apache-2.0
"""mpscnn.MPSNNGraph: results and exported images in images of the program."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import numpy as np
import pytest

import mpscnn
from mpscnn import nodes

X = np.random.default_rng(0).normal(size=(3, 4, 6, 8)).astype(np.float32)


class Own:
    """Allocates from a list, or new images."""

    def __init__(self, *images: Any) -> None:
        self.images, self.asked = list(images), []  # type: ignore[var-annotated]

    def __call__(self, shape: tuple[int, int, int, int], dtype: str) -> Any:
        self.asked.append((shape, dtype))
        return self.images.pop(0) if self.images else mpscnn.Image(shape, dtype)


def two_layers() -> tuple[nodes.FilterNode, nodes.FilterNode]:
    first = nodes.NeuronLinearNode(nodes.ImageNode("x"), 2.0, 0.0)
    return first, nodes.PoolingAverageNode(first, 2, padding=0)


def pooled(x: np.ndarray) -> np.ndarray:
    n, h, w, c = x.shape
    return 2 * x.reshape(n, h // 2, 2, w // 2, 2, c).mean((2, 4))


@pytest.mark.parametrize("images", [1, 3])
def test_results_in_own_images(images: int) -> None:
    _, last = two_layers()
    graph = mpscnn.MPSNNGraph(last, format="float32")
    assert graph.image_allocator is None
    mine = [mpscnn.Image((images, 2, 3, 8), "float32") for _ in range(2)]
    graph.image_allocator = own = Own(*mine)
    assert graph.image_allocator is own
    x = X[:images]
    with mpscnn.CommandBuffer() as commands:
        results = [graph.encode(commands, mpscnn.Image.from_array(x + i))[0] for i in range(2)]
        assert results[0] is mine[0]
        with pytest.raises(RuntimeError, match="has not completed"):
            mine[0].numpy()
    for i, image in enumerate(mine):
        np.testing.assert_allclose(image.numpy(), pooled(x + i), atol=1e-6)
    assert own.asked == [((images, 2, 3, 8), "float32")] * 2
    np.testing.assert_allclose(graph(x), pooled(x), atol=1e-6)
    assert len(own.asked) == 3
    graph.image_allocator = None
    graph(x)
    assert len(own.asked) == 3
    assert graph.image_allocator is None


def test_results_in_an_array() -> None:
    """On devices that share memory."""
    _, last = two_layers()
    graph = mpscnn.MPSNNGraph(last, format="float32")
    array = mpscnn.empty((3, 2, 3, 8), np.float32)
    try:
        image = mpscnn.Image.from_array(array, copy=False)
    except BufferError:
        pytest.skip("the device does not share the memory of arrays")
    graph.image_allocator = Own(image)
    graph(X)
    np.testing.assert_allclose(array, pooled(X), atol=1e-6)


def test_exported_images_and_several_results() -> None:
    first, last = two_layers()
    own, of_graph = Own(), Own()
    image = first.result_image
    image.image_allocator = own
    assert image.image_allocator is own
    image.export_from_graph = True
    assert image.image_allocator is own
    image.format = "float16"
    sums = nodes.ReductionFeatureChannelsSumNode(last)
    graph = mpscnn.MPSNNGraph(last, sums, format="float32")
    graph.image_allocator = of_graph
    result, exported, summed = graph(X)
    np.testing.assert_allclose(exported, (2 * X).astype(np.float16), rtol=1e-3)
    np.testing.assert_allclose(result, pooled(X), rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(summed, result.sum(3, keepdims=True), atol=1e-5)
    assert own.asked == [((3, 4, 6, 8), "float16")]
    assert of_graph.asked == [((3, 2, 3, 8), "float32"), ((3, 2, 3, 1), "float32")]
    image.image_allocator = None
    assert image.image_allocator is None
    np.testing.assert_array_equal(mpscnn.MPSNNGraph(last, format="float32")(X)[1], exported)
    assert len(own.asked) == 1


def test_images_between_kernels() -> None:
    """A node's allocator also without an export."""
    first, last = two_layers()
    mine = mpscnn.Image(X.shape, "float32")
    first.result_image.image_allocator = Own(mine)
    graph = mpscnn.MPSNNGraph(last, format="float32")
    np.testing.assert_allclose(graph(X), pooled(X), atol=1e-6)
    np.testing.assert_array_equal(mine.numpy(), 2 * X)
    first.result_image.image_allocator = None
    again = mpscnn.MPSNNGraph(last, format="float32")
    np.testing.assert_allclose(again(X), pooled(X), atol=1e-6)


def test_execute_async_into_own_images() -> None:
    _, last = two_layers()
    graph = mpscnn.MPSNNGraph(last, format="float32")
    mine = mpscnn.Image((3, 2, 3, 8), "float32")
    graph.image_allocator = Own(mine)
    assert graph.execute_async(mpscnn.Image.from_array(X)).result() is mine
    np.testing.assert_allclose(mine.numpy(), pooled(X), atol=1e-6)


def raising(shape: Any, dtype: Any) -> Any:
    raise OSError("disk")


def temporary(shape: Any, dtype: Any) -> Any:
    return mpscnn.NeuronReLU().encode(mpscnn.CommandBuffer(), mpscnn.Image(shape, dtype), temporary=True)


SHAPE = "MPSNNGraph: image_allocator returned an image of shape "
ROWS: list[tuple[Any, type[Exception], str]] = [
    (raising, OSError, "disk"),
    (lambda *_: None, TypeError, "MPSNNGraph: what image_allocator returned (NoneType) is not an Image."),
    (lambda shape, dtype: np.empty(shape, dtype), TypeError,
     "MPSNNGraph: what image_allocator returned (ndarray) is not an Image."),
    (lambda shape: None, TypeError, "takes 1 positional argument but 2 were given"),
    (lambda shape, dtype: mpscnn.Image((2, *shape[1:]), dtype), ValueError,
     SHAPE + "(2, 2, 3, 8); the result has (3, 2, 3, 8)."),
    (lambda shape, dtype: mpscnn.Image((3, 3, 2, 8), dtype), ValueError, SHAPE + "(3, 3, 2, 8)"),
    (lambda shape, dtype: mpscnn.Image(shape, "float16"), TypeError,
     "MPSNNGraph: image_allocator returned an image of float16; the result has float32."),
    (temporary, ValueError, "MPSNNGraph: image_allocator returned a temporary image."),
]  # fmt: skip


@pytest.mark.parametrize(("allocate", "kind", "text"), ROWS, ids=range(len(ROWS)))
@pytest.mark.parametrize("images", [1, 3])
def test_errors(allocate: Any, kind: type[Exception], text: str, images: int) -> None:
    first, last = two_layers()
    graph = mpscnn.MPSNNGraph(last, format="float32")
    graph.image_allocator = allocate
    text = text.replace("(3, 2, 3, 8)", f"({images}, 2, 3, 8)")
    with pytest.raises(kind, match=re.escape(text)):
        graph(X[:images])
    graph.image_allocator = None
    np.testing.assert_allclose(graph(X), pooled(X), atol=1e-6)
    first.result_image.image_allocator = allocate
    with pytest.raises(kind):
        mpscnn.MPSNNGraph(last, format="float32")(X[:images])


def test_images_of_other_use() -> None:
    first, _ = two_layers()
    relu = nodes.NeuronReLUNode(first)
    graph = mpscnn.MPSNNGraph(relu, nodes.NeuronAbsoluteNode(first), format="float32")
    image = mpscnn.Image(X.shape, "float32")
    graph.image_allocator = lambda *_: image
    with pytest.raises(ValueError, match="returned an image that has another result of the encode"):
        graph(X)
    source = mpscnn.Image.from_array(X)
    graph.image_allocator = lambda *_: source
    with pytest.raises(ValueError, match="MPSNNGraph: image_allocator returned a source of the graph"):
        graph(source)
    read_only = X.copy()
    read_only.flags.writeable = False
    shared = mpscnn.Image.from_array(read_only)
    graph.image_allocator = Own(shared)
    if shared.numpy(copy=None).flags.writeable is False:
        with pytest.raises(ValueError, match="MPSNNGraph: image_allocator returned a read-only image"):
            graph(X)


def test_callbacks_that_call_the_graph() -> None:
    """They raise, instead of waiting for themselves; other graphs may be called."""
    _, last = two_layers()
    graph, other = (mpscnn.MPSNNGraph(last, format="float32") for _ in range(2))
    calls = [lambda: graph(X), graph.reload_from_data_sources, lambda: graph.execute_async(X), lambda: other(X)]

    def allocate(shape: Any, dtype: Any) -> Any:
        calls[0]()
        return mpscnn.Image(shape, dtype)

    graph.image_allocator = allocate
    while len(calls) > 1:
        with pytest.raises(RuntimeError, match="MPSNNGraph: a callback of the graph calls the graph itself"):
            graph(X)
        del calls[0]
    np.testing.assert_allclose(graph(X), pooled(X), atol=1e-6)


def test_wrong_properties() -> None:
    _, last = two_layers()
    graph = mpscnn.MPSNNGraph(last)
    with pytest.raises(TypeError, match=r"MPSNNGraph: image_allocator \(int\) is not callable\."):
        graph.image_allocator = 3  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"ImageNode: image_allocator \(str\) is not callable\."):
        last.result_image.image_allocator = "no"  # type: ignore[assignment]


def test_freed() -> None:
    _, last = two_layers()
    graph = mpscnn.MPSNNGraph(last, format="float32")
    own = Own()
    graph.image_allocator = own
    graph(X)
    gone = weakref.ref(own)
    del own, graph
    gc.collect()
    assert gone() is None

# SPDX-License-Identifier: Apache-2.0
"""Metal functions as layers of networks: results for any batch, images, plans, tables, copies, and what is refused."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from mpscnn import plotting
from mpscnn.graph import Value
from mpscnn.verify import verify
from support import ENGINE, only_openmps, random, run_python

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
SWISH = (
    HEAD
    + """
kernel void swish(texture2d_array<float, access::read> x [[texture(0)]],
                  texture2d_array<float, access::write> y [[texture(1)]],
                  constant float& beta [[buffer(0)]],
                  uint3 gid [[thread_position_in_grid]]) {
    float4 v = x.read(gid.xy, gid.z);
    y.write(v / (1.0f + exp(-beta * v)), gid.xy, gid.z);
}
"""
)
# The number of slices is that of one image: wrong for a texture of several.
DEPTH_TO_SPACE = (
    HEAD
    + """
kernel void depth_to_space(texture2d_array<float, access::read> x [[texture(0)]],
                           texture2d_array<float, access::write> y [[texture(1)]],
                           uint3 gid [[thread_position_in_grid]]) {
    uint slices = y.get_array_size(), part = gid.y % 2 * 2 + gid.x % 2;
    y.write(x.read(gid.xy / 2, part * slices + gid.z), gid.xy, gid.z);
}
"""
)
BLEND = (
    HEAD
    + """
struct Params { float2 weights; int rounds; };
kernel void blend(texture2d_array<float, access::read> a [[texture(0)]],
                  texture2d_array<float, access::write> y [[texture(1)]],
                  texture2d_array<float, access::read> b [[texture(2)]],
                  constant Params& params [[buffer(0)]],
                  device const float* table [[buffer(1)]],
                  uint3 gid [[thread_position_in_grid]]) {
    float4 sum = params.weights.x * a.read(gid.xy, gid.z) + params.weights.y * b.read(gid.xy, gid.z);
    for (int i = 0; i < params.rounds; ++i) sum += table[4 * gid.z + i];
    y.write(sum, gid.xy, gid.z);
}
"""
)
FLIP = (
    HEAD
    + """
kernel void flip(texture2d<float, access::read> x [[texture(0)]], texture2d<float, access::write> y [[texture(1)]],
                 uint2 gid [[thread_position_in_grid]]) {
    y.write(x.read(uint2(x.get_width() - 1 - gid.x, gid.y)), gid);
}
"""
)
# A thread for each slice; threads of a group share memory.
MEANS = (
    HEAD
    + """
kernel void means(texture2d_array<float, access::read> x [[texture(0)]],
                  texture2d_array<float, access::write> y [[texture(1)]], threadgroup float4* sums [[threadgroup(0)]],
                  uint3 gid [[thread_position_in_grid]], uint3 size [[threads_per_grid]]) {
    float4 sum = 0.0f;
    for (uint row = gid.y; row < x.get_height(); row += size.y)
        for (uint column = 0; column < x.get_width(); ++column) sum += x.read(uint2(column, row), gid.z);
    sums[gid.y] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (gid.y != 0) return;
    for (uint i = 1; i < size.y; ++i) sum += sums[i];
    y.write(sum / float(x.get_width() * x.get_height()), uint2(0, 0), gid.z);
}
"""
)

Array = NDArray[Any]


def swish_of(x: Array, beta: float) -> Array:
    return x / (1 + np.exp(-beta * x.astype(np.float64)))


def depth_to_space_of(x: Array) -> Array:
    n, h, w, c = x.shape
    parts = x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(n, 2 * h, 2 * w, c // 4)


def doubled(x: tuple[int, ...]) -> tuple[int, ...]:
    return x[0], 2 * x[1], 2 * x[2], x[3] // 4


@pytest.fixture(scope="module")
def swish() -> mpscnn.MetalFunction:
    return mpscnn.metal_function(SWISH, "swish")


@pytest.fixture(scope="module")
def depth_to_space() -> mpscnn.MetalFunction:
    return mpscnn.metal_function(DEPTH_TO_SPACE, "depth_to_space")


def close(y: Any, wanted: Array, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(np.asarray(y), wanted, rtol=tolerance, atol=tolerance)


def network(build: Callable[[mpscnn.Graph, Value], Value], **options: Any) -> mpscnn.Network:
    graph = mpscnn.Graph()
    graph.output(build(graph, graph.input("x")), "y")
    return mpscnn.Network(graph, **options)


WEIGHT = random((16, 6, 1, 1), seed=1)


def between(swish: mpscnn.MetalFunction, **options: Any) -> mpscnn.Network:
    """Two functions between kernels."""

    def build(graph: mpscnn.Graph, x: Value) -> Value:
        y = graph.add("Convolution", x, weight=WEIGHT)
        y = graph.add(swish, graph.add(swish, y, beta=1.0), beta=2)
        return graph.add("NeuronLinear", y, a=2.0, b=1.0)

    return network(build, **options)


def between_of(x: Array) -> Array:
    return 2 * swish_of(swish_of(x.astype(np.float64) @ WEIGHT[:, :, 0, 0].T.astype(np.float64), 1), 2) + 1


@pytest.mark.parametrize("shape", [(1, 1, 1, 6), (3, 5, 7, 6), (2, 33, 20, 6), (7, 3, 2, 6)])
def test_between_kernels(swish: mpscnn.MetalFunction, shape: tuple[int, ...]) -> None:
    net, x = between(swish), random(shape)
    close(net(x), between_of(x), 1e-5)
    assert [image["reads"] for image in net._core.images([shape])] == [1, 0, 1, 1, 1]


def test_every_extent_of_one_network(swish: mpscnn.MetalFunction) -> None:
    net = between(swish)
    for n, h, w in ((1, 4, 4), (5, 4, 4), (2, 9, 1), (1, 4, 4), (3, 1, 17)):
        x = random((n, h, w, 6))
        close(net(x), between_of(x), 1e-5)


@pytest.mark.parametrize("batch", [1, 2, 5, 64])
def test_a_function_that_counts_the_slices_of_its_image(depth_to_space: mpscnn.MetalFunction, batch: int) -> None:
    net = network(lambda graph, x: graph.add(depth_to_space, x, out_shape=doubled))
    x = random((batch, 3, 5, 32))
    np.testing.assert_array_equal(net(x), depth_to_space_of(x))


def test_batches_of_several_chunks(depth_to_space: mpscnn.MetalFunction) -> None:
    def build(graph: mpscnn.Graph, x: Value) -> Value:
        return graph.add("NeuronAbsolute", graph.add(depth_to_space, x, out_shape=doubled))

    net, x = network(build), random((9, 128, 64, 48))
    chunk = net._core.chunk_images([(1, *x.shape[1:])])
    if ENGINE == "cpu":
        assert 1 < chunk < 40
        x = np.concatenate([x] * (chunk // 9 + 2))
    np.testing.assert_array_equal(net(x), np.abs(depth_to_space_of(x)))


def test_two_sources_with_structs_and_arrays() -> None:
    """Sources in the order of the textures, a struct, and a table of more bytes than fit into a command."""
    params = np.zeros(
        (), np.dtype({"names": ["w", "n"], "formats": ["(2,)f4", "i4"], "offsets": [0, 8], "itemsize": 16})
    )
    params["w"], params["n"] = (0.5, -3), 3
    table = random((2048,))
    blend = mpscnn.metal_function(BLEND, "blend")

    def build(graph: mpscnn.Graph, x: Value) -> Value:
        other = graph.add("NeuronAbsolute", x)
        y = graph.add(blend, x, other, params=params, table=table)
        return graph.add(blend, y, y, params=params, table=table)  # one image as both sources

    net, x = network(build), random((3, 4, 6, 7))
    shift = np.repeat([table[4 * s : 4 * s + 3].sum() for s in range(2)], 4)[:7]
    once = 0.5 * x - 3 * np.abs(x) + shift
    close(net(x), -2.5 * once + shift, 1e-5)


@pytest.mark.parametrize("batch", [1, 4])
def test_texture2d(batch: int) -> None:
    """One image of one slice each, for every image of a batch."""
    flip = mpscnn.metal_function(FLIP, "flip")
    net = network(lambda graph, x: graph.add(flip, graph.add("NeuronAbsolute", x)))
    for channels in (1, 3, 4):
        x = random((batch, 3, 5, channels))
        np.testing.assert_array_equal(net(x), np.abs(x)[:, :, ::-1])
    with pytest.raises(ValueError, match=r'node "flip": flip: x is a texture2d, which has one image of at most 4 chan'):
        net(random((batch, 3, 5, 8)))


@pytest.mark.parametrize("batch", [1, 3])
def test_grid_and_threadgroup(batch: int) -> None:
    means = mpscnn.metal_function(MEANS, "means")
    asked: list[tuple[int, ...]] = []

    def grid(shape: tuple[int, ...]) -> tuple[int, ...]:
        asked.append(shape)
        return 1, 8, -(-shape[3] // 4)

    net = network(
        lambda graph, x: graph.add(
            means, x, sums=16 * 8, out_shape=lambda s: (s[0], 1, 1, s[3]), grid=grid, threadgroup=(1, 8, 1)
        )
    )
    x = random((batch, 13, 9, 10))
    close(net(x), x.mean((1, 2), keepdims=True, dtype=np.float64), 1e-6)
    net(x)
    assert asked == [(1, 1, 1, 10)], "once for each plan"


@pytest.mark.parametrize("optimize", [True, False])
def test_in_and_out_of_concatenations(swish: mpscnn.MetalFunction, optimize: bool) -> None:
    """A function reads a part of a concatenation, writes another, and reads the whole, a part of a larger one."""

    def build(graph: mpscnn.Graph, x: Value) -> Value:
        a = graph.add("NeuronAbsolute", x)
        b = graph.add(swish, a, beta=1.0)
        whole = graph.concatenate(a, b, graph.add("NeuronTanH", x))
        return graph.concatenate(graph.add(swish, whole, beta=-1.0), whole, b)

    net, x = network(build, optimize=optimize), random((2, 3, 4, 8))
    a = np.abs(x)
    b = swish_of(a, 1)
    whole = np.concatenate([a, b, np.tanh(x)], 3)
    close(net(x), np.concatenate([swish_of(whole, -1), whole, b], 3), 1e-5)


def test_several_outputs_and_dtypes(swish: mpscnn.MetalFunction) -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", layout="NCHW")
    y = graph.add(swish, x, beta=1.0)
    graph.output(y, "y", layout="NCHW")
    graph.output(graph.add(swish, y, beta=1.0, name="twice"), "z")
    graph.output(x, "same")
    net = mpscnn.Network(graph, dtype="float16")
    given = random((2, 5, 3, 4), "uint8")
    y, z, same = net(given)
    wanted = swish_of(given / 255.0, 1)
    assert [one.dtype for one in (y, z, same)] == [np.float16] * 3
    close(y, wanted, 1e-3)
    close(z, swish_of(wanted, 1).transpose(0, 2, 3, 1), 1e-3)
    close(same, given.transpose(0, 2, 3, 1) / 255.0, 1e-3)


def test_streams_threads_and_out(swish: mpscnn.MetalFunction) -> None:
    net = between(swish)
    batches = [random((1 + i % 3, 4, 5, 6), seed=i) for i in range(9)]
    for x, y in zip(batches, net.stream(batches, in_flight=3), strict=True):
        close(y, between_of(x), 1e-5)
    out = np.empty((1, 4, 5, 16), np.float32)
    assert net(batches[0], out=out) is out
    close(out, between_of(batches[0]), 1e-5)


@pytest.mark.parametrize("batch", [1, 3])
def test_encoded_again_and_again(swish: mpscnn.MetalFunction, batch: int) -> None:
    """The third encode of the same images repeats recorded commands, where the platform has them."""
    net = between(swish)
    image, result = mpscnn.Image((batch, 5, 4, 6)), mpscnn.Image((batch, 5, 4, 16))
    for seed in range(5):
        x = random((batch, 5, 4, 6), seed=seed)
        image.write(x)
        with mpscnn.CommandBuffer() as commands:
            assert net.encode(commands, image, out=result) is result
        close(result.numpy(), between_of(x), 1e-5)
    with mpscnn.CommandBuffer() as commands:
        y = net.encode(commands, image)
        again = net.encode(commands, image)
    np.testing.assert_array_equal(y.numpy(), again.numpy())


@only_openmps("only openmps has the engine")
def test_on_the_cuda_engine(swish: mpscnn.MetalFunction) -> None:
    """On the device's memory, where the function runs on the processor, on copies; recorded and not."""
    program = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parents[1])]!r}
from network import test_metal_layers as tests
import mpscnn
swish = mpscnn.metal_function(tests.SWISH, "swish")
tests.test_between_kernels(swish, (3, 5, 7, 6))
tests.test_encoded_again_and_again(swish, 2)
tests.test_in_and_out_of_concatenations(swish, True)
tests.test_streams_threads_and_out(swish)
print(mpscnn.Device().name)
"""
    assert run_python(program, MPSCNN_ENGINE="cuda-host").strip()


def test_tables_profile_and_plot(swish: mpscnn.MetalFunction, depth_to_space: mpscnn.MetalFunction) -> None:
    def build(graph: mpscnn.Graph, x: Value) -> Value:
        y = graph.add(swish, graph.add("Convolution", x, weight=WEIGHT), beta=1.0)
        return graph.add(depth_to_space, y, out_shape=doubled, name="shuffle")

    net, shape = network(build), (2, 4, 4, 6)
    layer = net.layers(shape)[1]
    assert (layer.name, layer.kernel, layer.detail, layer.family) == ("swish", "MetalFunction", "swish", "function")
    assert (layer.apple_class, layer.parameters, layer.flops) == ("", 0, 0)
    assert [each.output_shape for each in net.layers(shape)] == [(2, 4, 4, 16), (2, 4, 4, 16), (2, 8, 8, 4)]
    assert "MetalFunction  swish" in str(net.layers(shape))
    assert re.search(r"kernels encoded +3\n", net.summary(shape))
    assert repr(net) == "<mpscnn.Network x -> 3 kernels -> y>"
    assert "MetalFunction depth_to_space" in plotting.svg(net, shape)
    x = random(shape)
    with mpscnn.profile() as profile:
        y = net(x)
    executed = [(one.name, one.kernel) for one in profile.events if one.kind == "execute"]
    assert [name for name, kernel in executed if kernel == "MetalFunction"] == ["swish", "shuffle"]
    np.testing.assert_array_equal(y, net(x))
    assert "MetalFunction" in profile.table()


def test_verified_kernel_by_kernel(swish: mpscnn.MetalFunction, depth_to_space: mpscnn.MetalFunction) -> None:
    net = network(lambda graph, x: graph.add(depth_to_space, graph.add(swish, x, beta=1.5), out_shape=doubled))
    found = verify(net, "kernels", {"x": random((2, 3, 4, 16))})
    assert [(row.name, row.kernel) for row in found.rows[:2]] == [
        ("swish", "MetalFunction"),
        ("depth_to_space", "MetalFunction"),
    ]
    assert [(row.shape, row.relative) for row in found.rows[1:]] == [((2, 6, 8, 4), 0)] * 2


def test_copies(swish: mpscnn.MetalFunction) -> None:
    net, x = between(swish), random((2, 3, 4, 6))
    for other in (copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(other(x), net(x))
    source = SWISH.replace("constant float& beta [[buffer(0)]],", "").replace(
        "kernel", "constant float beta [[function_constant(0)]];\nkernel"
    )
    function = mpscnn.metal_function(
        source.replace("1.0f +", "ONE +"), "swish", constants={"beta": 0.5}, macros={"ONE": 2}
    )
    again = pickle.loads(pickle.dumps(function))
    np.testing.assert_array_equal(again(x), function(x))
    close(again(x), x / (2 + np.exp(-0.5 * x.astype(np.float64))))


def test_files_hold_no_programs(swish: mpscnn.MetalFunction, tmp_path: Path) -> None:
    file = tmp_path / "net.mpscnn"
    with pytest.raises(
        TypeError,
        match=r'^node "swish": swish is a Metal function, a program; a model file holds data and never runs code, so',
    ):
        between(swish).save(file)
    assert not file.exists()
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronSigmoid", graph.input("x", channels=4), name="y"))
    mpscnn.Network(graph).save(file)
    file.write_bytes(file.read_bytes().replace(b"NeuronSigmoid", b"MetalFunction"))
    with pytest.raises(mpscnn.InvalidModelError, match=r'there is no kernel "MetalFunction"'):
        mpscnn.load(file)


def test_functions_are_not_trained(swish: mpscnn.MetalFunction) -> None:
    graph = mpscnn.Graph()
    y = graph.add("Convolution", graph.input("x", height=4, width=4, channels=6), weight=WEIGHT)
    graph.output(graph.add(swish, y, beta=1.0), "y")
    with pytest.raises(NotImplementedError, match=r'"swish" \(the Metal function swish, which has no gradient\)'):
        mpscnn.Trainer(graph, loss="mean_squared_error")


INOUT = HEAD + (
    "kernel void f(texture2d_array<float, access::read> x [[texture(0)]], {} [[texture(1)]],"
    " texture2d_array<float, access::write> y [[texture(2)]], {} uint3 gid [[thread_position_in_grid]])"
    " {{ y.write(x.read(gid.xy, gid.z), gid.xy, gid.z); }}"
)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (INOUT.format("texture2d<float, access::read_write> z", ""), "z is a read_write texture"),
        (INOUT.format("texture2d<float, access::write> z", ""), r"textures with access::write \(2\) is not 1"),
        (
            INOUT.format("texture2d<float, access::read> z", "device float* sums [[buffer(0)]],"),
            "sums is a buffer that",
        ),
        (HEAD + "kernel void f(texture2d<float, access::write> y) {}", "no texture is read"),
        (HEAD + "kernel void f(texture2d<float, access::read> x) {}", r"textures with access::write \(0\) is not 1"),
    ],
)
def test_functions_that_are_no_layers(source: str, message: str) -> None:
    f = mpscnn.metal_function(source, "f")
    graph = mpscnn.Graph()
    x = graph.input("x")
    values = {"sums": mpscnn.Buffer(4)} if "sums" in source else {}
    graph.output(graph.add(f, *[x] * len(f._sources), **values), "y")
    with pytest.raises(TypeError, match=rf'^node "f": f: .*{message}'):
        mpscnn.Network(graph)


@pytest.mark.parametrize(
    ("sources", "given", "error", "message"),
    [
        (1, {}, TypeError, r"^swish: the argument beta is missing\.$"),
        (1, {"beta": 1, "gamma": 1}, TypeError, r'^swish: "gamma" is not one of its arguments \(x, beta\)\.$'),
        (1, {"beta": 1, "x": 1}, TypeError, r"^swish: x is a texture: give the values of the graph in their order\.$"),
        (2, {"beta": 1}, TypeError, r"^swish: the number of sources \(2\) is not 1 \(x\)\.$"),
        (0, {"beta": 1}, TypeError, r"^swish: the number of sources \(0\) is not 1 \(x\)\.$"),
        (1, {"beta": 1, "out_shape": (1, 2)}, TypeError, r"^swish: out_shape \(tuple\) is not a function of shapes\.$"),
        (1, {"beta": 1, "name": "x"}, ValueError, r'^name \("x"\) is taken'),
    ],
)
def test_wrong_nodes(
    swish: mpscnn.MetalFunction, sources: int, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    graph = mpscnn.Graph()
    x = graph.input("x")
    with pytest.raises(error, match=message):
        graph.add(swish, *[x] * sources, **given)
    assert len(graph) == 0


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"beta": "1"}, TypeError, r'^node "swish": swish: beta \(str\) is not a number or an array\.$'),
        ({"beta": np.zeros(3, np.uint8)}, TypeError, r'^node "swish": swish: beta\.dtype \(uint8\) is not float32'),
        ({"threadgroup": (0,)}, ValueError, r'^node "swish": threadgroup\[0\] \(0\) is less than the minimum \(1\)\.$'),
        (
            {"out_shape": lambda x: x[:3]},
            ValueError,
            r"^swish: the result of out_shape \(1, 2, 3\) is not a shape \(N, H",
        ),
        (
            {"out_shape": lambda x: (5, *x[1:])},
            ValueError,
            r'^node "swish": swish: out_shape returned \(5, 2, 3, 4\) for 1 images; it must keep their number\.$',
        ),
        (
            {"out_shape": lambda x: (*x[:3], 9000)},
            ValueError,
            r'^node "swish": swish: out_shape returned .*, whose number of channels is not from 1 to 8192\.$',
        ),
        ({"out_shape": lambda x: (x[0], 0, *x[2:])}, ValueError, "whose height is not from 1 to 16384"),
        ({"out_shape": lambda x: "abcd"}, TypeError, r"swish: the result of out_shape"),
        ({"out_shape": lambda x: 1 / 0}, ZeroDivisionError, "division by zero"),
        ({"grid": lambda x: (1, 1, 1, 1)}, ValueError, r"^len\(swish: the result of grid\) \(4\) is not 1, 2 or 3"),
        ({"threadgroup": (2048,)}, ValueError, r'node "swish": swish: a threadgroup of 2048 x 1 x 1 threads is beyond'),
    ],
)
def test_wrong_networks(
    swish: mpscnn.MetalFunction, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.compile(message)):
        network(lambda graph, x: graph.add(swish, x, **{"beta": 1.0, **given}))(np.ones((1, 2, 3, 4), np.float32))


def test_source_and_result_are_one_image(swish: mpscnn.MetalFunction) -> None:
    net, image = network(lambda graph, x: graph.add(swish, x, beta=1.0)), mpscnn.Image((1, 2, 3, 4))
    commands = mpscnn.CommandBuffer()
    with pytest.raises(ValueError, match=r'^node "swish": swish: x and out are the same image; they share memory\.$'):
        net.encode(commands, image, out=image)


def test_other_devices(swish: mpscnn.MetalFunction, null_device: mpscnn.Device) -> None:
    with pytest.raises(ValueError, match=r'^Network: node "swish" is on another device\.$'):
        network(lambda graph, x: graph.add(swish, x, beta=1.0), device=null_device)

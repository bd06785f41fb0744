# SPDX-License-Identifier: Apache-2.0
"""The CUDA engine on a driver that allocates host memory, and its errors without a GPU."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mpscnn
from support import ENGINE, assert_close, only_openmps, random, run_python

pytestmark = [
    only_openmps("openmps has the engine"),
    pytest.mark.skipif(ENGINE != "cpu", reason="the tests choose the engine"),
]

TESTS = Path(__file__).parent
ON_HOST = {"MPSCNN_ENGINE": "cuda-host", "MPSCNN_CUDA_FALLBACK": "0"}  # without the processor's engine
PROGRAMS = (
    *(f"cpp_engine_{name}" for name in ("plans", "threads", "values", "dropout", "convolution")),
    "objc_metal_commands",
    "objc_metal_resources",
    "objc_mps_rnn",
)
FILES = ("test_images.py", "test_loss.py", "test_optimizer.py", "network/test_network.py")


def test_two_devices_in_one_process(cuda_host: mpscnn.Device) -> None:
    """The same numbers but for rounding, in memory that images of the other device do not use."""
    gpu, x = cuda_host, random((2, 9, 7, 4))
    assert gpu == mpscnn.Device("cuda-host") != mpscnn.Device()
    assert (gpu.name, gpu.shares_images) == ("CUDA on the host", False)
    gc.collect()
    before = gpu.allocated_bytes  # tests before this one in the same process may have left objects
    weight = random((8, 4, 3, 3))
    y = mpscnn.Convolution(weight, padding=1, device=gpu)(x)
    assert_close(y, mpscnn.Convolution(weight, padding=1)(x))  # sums in another order
    image = mpscnn.Image.from_array(x, device=gpu)
    assert gpu.allocated_bytes >= x.nbytes
    with pytest.raises(ValueError, match="device"):
        mpscnn.NeuronReLU()(image)
    del image
    end = time.monotonic() + 30  # the queue's thread frees the memory of the convolution, a moment later
    while gpu.allocated_bytes > before and time.monotonic() < end:
        time.sleep(0.001)
    assert gpu.allocated_bytes <= before
    assert gpu.cached_bytes > 0
    gpu.free_cached_bytes()
    assert gpu.cached_bytes == 0


def test_batches_are_copied_while_steps_are_encoded(cuda_host: mpscnn.Device) -> None:
    """Each step reads its own batch, which is large enough for another thread."""
    shape = (2, 3, 256, 256)
    layers = [
        ("pool", "AdaptiveAvgPool2d", {"output_size": 1}),
        ("flat", "Flatten"),
        ("fc", "Linear", {"in_features": 3, "out_features": 4}),
    ]
    batches = [(i + 1) * random(shape, seed=i) + i for i in range(4)]
    assert batches[0].size > 1 << 18
    losses = []
    for device in (mpscnn.Device(), cuda_host):
        optimizer = mpscnn.OptimizerStochasticGradientDescent(0.1, device=device)
        trainer = mpscnn.Trainer(layers, input_shapes=shape, optimizer=optimizer, seed=1, device=device)
        steps = [trainer.step(batch, np.array([1, 2])) for batch in batches]
        losses.append([step.loss for step in steps])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert len(set(losses[0])) == len(batches)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda:x", 'The device cuda:x cannot be made: cuda:x is not "cuda:" and the number of a GPU.'),
        ("tpu", 'Device: name ("tpu") is not one of ".+", "null device".'),
    ],
)
def test_devices_that_do_not_exist(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{message}$".replace("(", r"\(").replace(")", r"\)")):
        mpscnn.Device(name)


def test_without_a_driver() -> None:
    """The message has the reason, and other devices still work."""
    program = """
import ctypes, mpscnn
try:
    ctypes.CDLL("libcuda.so.1")
except OSError:
    try:
        mpscnn.Device("cuda:0")
    except ValueError as error:
        print(error)
else:
    print(mpscnn.Device("cuda:0").name != "")
print(mpscnn.NeuronReLU()(mpscnn.empty((1, 1, 1, 1))).shape)
"""
    assert run_python(program).splitlines() in (
        [
            "The device cuda:0 cannot be made: libcuda.so.1 cannot be opened: NVIDIA's driver is not installed.",
            "(1, 1, 1, 1)",
        ],
        ["True", "(1, 1, 1, 1)"],
    )


def test_a_build_without_kernels_for_the_host() -> None:
    """Tests of cuda-host are then skipped with this reason; wheels are built so."""
    message = ""
    try:
        mpscnn.Device("cuda-host")
    except ValueError as error:
        message = str(error)
    assert message in (
        "",
        "The device cuda-host cannot be made: this build has no kernels for it. It is for tests: set"
        " MPSCNN_CUDA_HOST=ON in CMake.",
    )


def test_wheels_have_no_kernels_for_the_host() -> None:
    """The option's default is that of the tests, which are off unless a build asks for them."""
    cmake, project = ((TESTS.parent / name).read_text() for name in ("CMakeLists.txt", "pyproject.toml"))
    assert re.search(r"option\(MPSCNN_CUDA_HOST .* \$\{MPSCNN_BUILD_TESTS\}\)", cmake)
    assert re.search(r"option\(MPSCNN_BUILD_TESTS .* OFF\)", cmake)
    assert "MPSCNN_BUILD_TESTS" not in project
    assert "MPSCNN_CUDA_HOST" not in project


def test_devices_have_no_engine_under_apples_rules() -> None:
    program = """
import mpscnn
try:
    mpscnn.Device("cuda-host")
except ValueError as error:
    print(error)
"""
    sentence = r'Device: name \("cuda-host"\) is not one of ".+"\.'
    assert re.fullmatch(sentence, run_python(program, MPSCNN_DEVICE="apple").strip())


def test_the_driver_is_not_opened_before_it_is_needed() -> None:
    def is_opened(call: str) -> bool:
        """Whether the dynamic linker looks for libcuda [ld.so(8), LD_DEBUG]."""
        program = f"import contextlib, mpscnn\nwith contextlib.suppress(ValueError): {call}"
        environment = os.environ | {"LD_DEBUG": "libs"}
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=True)
        return b"libcuda" in result.stderr

    assert not is_opened("mpscnn.NeuronReLU()(mpscnn.empty((1, 1, 1, 1)))")
    assert not is_opened("mpscnn.Device('null')")
    assert is_opened("mpscnn.Device('cuda:0')")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("cuda_host")
def test_programs(name: str) -> None:
    folder = os.environ.get("MPSCNN_CPP_TESTS")
    if folder is None:
        pytest.skip("MPSCNN_CPP_TESTS is not set: run by make test, dev-test or test-asan")
    environment = os.environ | ON_HOST
    program = TESTS.parent / folder / name
    result = subprocess.run([program], capture_output=True, text=True, env=environment, check=False)
    assert re.search(r"^\d+ passed, 0 failed$", result.stdout, re.MULTILINE), result.stdout + result.stderr


@pytest.mark.parametrize("name", FILES)
@pytest.mark.usefixtures("cuda_host")
def test_cases(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / name)]
    environment = os.environ | ON_HOST | {"MPSCNN_TIER": "quick"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS.parent, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^\d+ passed", result.stdout, re.MULTILINE)


# ---------------------------------------------------------------------------------------------------------- dispatch


def output(program: str, *arguments: str, **environment: str) -> tuple[str, str]:
    """Return what a program prints and traces on cuda-host; it can import the tests' modules."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(TESTS)!r})\n{program}", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | ON_HOST | environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def implementations() -> set[str]:
    """Return the names in all lists of the CUDA engine."""
    folder = TESTS.parent / "csrc" / "openmps" / "engine" / "cuda"
    lists = "".join(path.read_text() for path in folder.glob("*.cpp"))
    names = set(re.findall(r'\{"(cuda_\w+)", ', lists))
    assert len(names) > 40
    return names


def test_the_trace_names_implementations_of_the_gpu() -> None:
    program = """
import numpy as np, mpscnn
x = np.ones((1, 8, 8, 8), np.float32)
mpscnn.PoolingMax(2)(x)
mpscnn.NeuronReLU()(x)
mpscnn.SoftMax()(x)
mpscnn.Convolution(np.ones((4, 8, 3, 3), np.float32))(x)
"""
    _, trace = output(program, MPSCNN_TRACE="dispatch")
    taken = dict(re.findall(r"^mpscnn dispatch: ([\w, ]+): (\w+)$", trace, re.MULTILINE))
    assert {"pool", "neuron", "softmax", "convolve"} <= taken.keys()
    assert set(taken.values()) <= implementations()
    assert taken["pool"] == "cuda_pool_vectors"


# ------------------------------------------------------------------------------------------------------------ graphs

NETWORK = """
import numpy as np, mpscnn
from network.graphs import residual

net = mpscnn.Network(residual())


def batch(n, h, w, seed):
    return np.random.default_rng(seed).standard_normal((n, 3, h, w)).astype(np.float32)


"""


def computed(tmp_path: Path, program: str) -> tuple[list[np.ndarray], str]:
    """Return the arrays that the program adds to `kept`, and the trace with graphs. Without graphs, and on the CPU up
    to roundings, it computes the same.
    """
    text = f"{NETWORK}kept = []\n{program}\nnp.savez(sys.argv[1], *[np.copy(each) for each in kept])\n"
    found, traces = [], []
    for name, environment in {
        "graphs": {"MPSCNN_CUDA_GRAPH": "1"},
        "plain": {"MPSCNN_CUDA_GRAPH": "0"},
        "cpu": {"MPSCNN_ENGINE": "cpu"},
    }.items():
        path = tmp_path / f"{name}.npz"
        traces.append(output(text, str(path), MPSCNN_TRACE="dispatch", **environment)[1])
        with np.load(path) as arrays:
            found.append([arrays[f"arr_{i}"] for i in range(len(arrays.files))])
    with_graphs, plain, cpu = found
    assert len(with_graphs) == len(plain) == len(cpu) > 0
    for a, b, c in zip(with_graphs, plain, cpu, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=2e-4, atol=2e-5)
    assert len(re.findall("dispatch", traces[0])) < len(re.findall("dispatch", traces[1])), "no list became a graph"
    return with_graphs, traces[0]


def test_runs_of_a_network_are_equal(tmp_path: Path) -> None:
    """The first run is plain, the second is recorded, later ones launch a graph."""
    program = """
for run in range(5):
    print("run", run, file=sys.stderr, flush=True)
    kept += net(batch(2, 9, 7, 1))
for run in range(3):
    kept += net(batch(2, 9, 7, 2))
"""
    results, trace = computed(tmp_path, program)
    for run in range(1, 5):
        for first, later in zip(results[:2], results[2 * run : 2 * run + 2], strict=True):
            np.testing.assert_array_equal(first, later)
    assert not np.array_equal(results[0], results[10])
    launches = [part.count("dispatch: convolve: cuda") for part in trace.split("run ")[1:]]
    assert launches[0] == launches[1] > 0
    assert sum(launches[3:]) == 0, launches


def test_sizes_that_alternate(tmp_path: Path) -> None:
    """Each size has its graph; a dozen sizes have more than are kept."""
    program = """
for run in range(5):
    for n, h, w in ((1, 9, 7), (3, 9, 7), (2, 16, 5)):
        kept += net(batch(n, h, w, run))
for run in range(3):
    for n in range(1, 13):
        kept += net(batch(n, 4, 4, run))
"""
    computed(tmp_path, program)


def test_calls_in_flight(tmp_path: Path) -> None:
    """A graph is launched again before its last launch is done; results go to other images."""
    program = """
batches = [batch(2, 9, 7, seed) for seed in range(9)]
for y, features in net.stream(batches, in_flight=3):
    kept += [y, features]
for _ in range(2):
    for each in batches:
        kept += net(each)
"""
    results, _ = computed(tmp_path, program)
    for i in range(18):
        np.testing.assert_array_equal(results[i], results[18 + i])
        np.testing.assert_array_equal(results[i], results[36 + i])


RECORDED = """
x, y, features = mpscnn.Image((2, 9, 7, 3)), mpscnn.Image((2, 9, 7, 10)), mpscnn.Image((2, 9, 7, 16))


def encode(commands):
    net.encode(commands, x, out=[y, features])


def run(seed):
    x.write(batch(2, 9, 7, seed), "NCHW")
    with mpscnn.CommandBuffer() as commands:
        encode(commands)
    kept.extend((y.numpy(copy=True), features.numpy(copy=True)))


"""


def test_encodes_of_the_same_images(tmp_path: Path) -> None:
    """The commands of the second encode are encoded again by later ones, and become a graph."""
    program = f"""
{RECORDED}
for seed in range(8):
    print("run", seed, file=sys.stderr, flush=True)
    run(seed)
"""
    results, trace = computed(tmp_path, program)
    assert not np.array_equal(results[0], results[2])
    launches = [part.count("dispatch: convolve: cuda") for part in trace.split("run ")[1:]]
    assert launches[0] > 0
    assert sum(launches[4:]) == 0, launches


def test_recorded_commands_among_others(tmp_path: Path) -> None:
    """In one command buffer twice, behind other commands and before them, and behind command buffers in flight."""
    program = f"""
{RECORDED}
relu, z, w = mpscnn.NeuronReLU(), mpscnn.Image((2, 9, 7, 10)), mpscnn.Image((2, 9, 7, 10))
for seed in range(4):
    run(seed)
for seed in range(3):
    x.write(batch(2, 9, 7, 10 + seed), "NCHW")
    with mpscnn.CommandBuffer() as commands:
        encode(commands)
        relu.encode(commands, y, out=z)
        encode(commands)
    with mpscnn.CommandBuffer() as commands:
        relu.encode(commands, x, out=mpscnn.Image((2, 9, 7, 3)))
        encode(commands)
    kept += [y.numpy(copy=True), z.numpy(copy=True)]
for seed in range(3):
    x.write(batch(2, 9, 7, 20 + seed), "NCHW")
    started = []
    for other in (z, w) * 3:
        for work in (encode, lambda commands: relu.encode(commands, y, out=other)):
            started.append(mpscnn.CommandBuffer())
            work(started[-1])
            started[-1].commit()
    for commands in started:
        commands.wait()
    kept += [y.numpy(copy=True), z.numpy(copy=True), w.numpy(copy=True)]
"""
    results, _ = computed(tmp_path, program)
    for first in (14, 17, 20):
        y, z, w = results[first : first + 3]
        np.testing.assert_array_equal(z, np.maximum(y, 0))
        np.testing.assert_array_equal(w, z)


def test_recorded_commands_in_flight(tmp_path: Path) -> None:
    """More than a device has room for, started by the queue's thread and by those that commit; on the engine "split",
    whose work takes its time.
    """
    program = """
import sys, threading
import numpy as np, mpscnn
graph = mpscnn.Graph()
value, rng = graph.input("x", channels=3), np.random.default_rng(0)
for channels in (3, 32, 32):
    weight = rng.standard_normal((32, channels, 3, 3)).astype(np.float32) / channels
    value = graph.add("Convolution", value, weight=weight, padding=1)
graph.output(value, "y")
net, relu = mpscnn.Network(graph), mpscnn.NeuronReLU()
x = mpscnn.Image.from_array(rng.standard_normal((2, 64, 64, 3)).astype(np.float32))
y, z = mpscnn.Image((2, 64, 64, 32)), mpscnn.Image((2, 64, 64, 32))


def work(number):
    for i in range(50):
        commands = mpscnn.CommandBuffer()
        net.encode(commands, x, out=y)
        if i % 10 == number:
            relu.encode(commands, y, out=z)
        commands.commit()
    commands.wait()


for _ in range(5):
    work(-1)
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
np.savez(sys.argv[1], y.numpy(), z.numpy())
"""
    found = []
    for engine in ("split", "cpu"):
        path = tmp_path / f"{engine}.npz"
        output(program, str(path), MPSCNN_ENGINE=engine)
        with np.load(path) as arrays:
            found.append([arrays[name] for name in arrays.files])
    (y, z), (expected, _) = found
    assert_close(y, expected)
    np.testing.assert_array_equal(z, np.maximum(y, 0))


def test_recorded_commands_of_several_threads(tmp_path: Path) -> None:
    """Threads commit the same commands; some wait and some do not."""
    program = f"""
import threading
{RECORDED}
run(1)


def work(number):
    for i in range(20):
        commands = mpscnn.CommandBuffer()
        encode(commands)
        commands.commit()
        if (i + number) % 3 == 0:
            commands.wait()
    commands.wait()


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
kept.extend((y.numpy(copy=True), features.numpy(copy=True)))
run(1)
"""
    results, _ = computed(tmp_path, program)
    for i in range(2, 6):
        np.testing.assert_array_equal(results[i], results[i % 2])


def test_recorded_commands_of_kernels_that_change(tmp_path: Path) -> None:
    """Attributes and weights that change later are those of the next encode; an open command buffer keeps its own."""
    program = """
from mpscnn import _core
from support import Source
descriptor = mpscnn.ConvolutionDescriptor(3, in_channels=4, out_channels=6)
rng = np.random.default_rng(0)
source = Source(descriptor, rng.standard_normal((6, 3, 3, 4)).astype(np.float32), np.zeros(6, np.float32))
convolution = mpscnn.Convolution(source)
net = _core._Network([("x", None, None, 4, "")], [("conv", convolution, [0], "")], [1], "float32", mpscnn.Device(), 0)
x, y = mpscnn.Image.from_array(rng.standard_normal((1, 8, 8, 4)).astype(np.float32)), mpscnn.Image((1, 6, 6, 6))


def run(change=None):
    with mpscnn.CommandBuffer() as commands:
        net.encode(commands, [x], [y])
        if change:
            change()
    kept.append(y.numpy(copy=True))


def reload():
    source.weights = source.weights * np.float32(1.5) + np.float32(0.25)
    convolution.reload()


def shift():
    convolution.offset = (1, 2) if convolution.offset is None else None


for change in (reload, shift, reload, shift):
    for _ in range(4):
        run()
    run(change)
run()
"""
    results, _ = computed(tmp_path, program)
    for step in range(4):
        for i in range(1, 5):
            np.testing.assert_array_equal(results[5 * step], results[5 * step + i])
    assert not np.array_equal(results[0], results[5])
    assert not np.array_equal(results[9], results[10])


def test_recorded_commands_of_kernels_that_read_states(tmp_path: Path) -> None:
    """Weights, gamma, beta and statistics that a command buffer loads are those of the next encode."""
    program = """
from mpscnn import _core
rng = np.random.default_rng(0)


def numbers(*shape):
    return rng.uniform(0.5, 1.5, shape).astype(np.float32)


convolution = mpscnn.Convolution(numbers(6, 4, 1, 1))
normalization = mpscnn.BatchNormalization(numbers(6), numbers(6), numbers(6), numbers(6))
nodes = [("conv", convolution, [0], ""), ("norm", normalization, [1], "")]
net = _core._Network([("x", None, None, 4, "")], nodes, [2], "float32", mpscnn.Device(), 0)
x, y = mpscnn.Image.from_array(numbers(1, 5, 3, 4)), mpscnn.Image((1, 5, 3, 6))
states = [
    (convolution, mpscnn.ConvolutionWeightsAndBiasesState(numbers(6, 1, 1, 4), numbers(6))),
    (normalization, mpscnn.NormalizationGammaAndBetaState(numbers(6), numbers(6))),
    (normalization, mpscnn.NormalizationMeanAndVarianceState(numbers(6), numbers(6))),
]
for kernel, state in [(None, None), *states]:
    if kernel:
        with mpscnn.CommandBuffer() as commands:
            kernel.reload(commands, state)
    for _ in range(4):
        with mpscnn.CommandBuffer() as commands:
            net.encode(commands, [x], [y])
        kept.append(y.numpy(copy=True))
    kept.append(normalization(convolution(x)).numpy())
"""
    results, _ = computed(tmp_path, program)
    for first in range(0, 20, 5):
        for i in range(1, 5):
            np.testing.assert_allclose(results[first + i], results[first], rtol=1e-6)
        assert first == 0 or not np.allclose(results[first], results[first - 1])


def test_weights_that_change(tmp_path: Path) -> None:
    """A list that uses other weights, or the same memory with other values, is not the one that was recorded."""
    program = """
from support import Source
descriptor = mpscnn.ConvolutionDescriptor(3, in_channels=4, out_channels=6)
rng = np.random.default_rng(0)
source = Source(descriptor, rng.standard_normal((6, 3, 3, 4)).astype(np.float32), np.zeros(6, np.float32))
convolution = mpscnn.Convolution(source)
x, y = mpscnn.Image.from_array(rng.standard_normal((1, 8, 8, 4)).astype(np.float32)), mpscnn.Image((1, 6, 6, 6))


def run():
    with mpscnn.CommandBuffer() as commands:
        convolution.encode(commands, x, out=y)
    kept.append(y.numpy(copy=True))


for step in range(4):
    for _ in range(3):
        run()
    source.weights = source.weights * np.float32(1.5) + np.float32(0.25)
    source.bias = source.bias + np.float32(1)
    convolution.reload()
run()
"""
    results, _ = computed(tmp_path, program)
    for step in range(4):
        np.testing.assert_array_equal(results[3 * step], results[3 * step + 2])
        assert not np.array_equal(results[3 * step], results[3 * step + 3])


STEPS = """
import numpy as np, mpscnn

layers = [
    ("conv", "Conv2d", {"in_channels": 3, "out_channels": 16, "kernel_size": 3, "padding": 1}),
    ("norm", "BatchNorm2d", {"num_features": 16}),
    ("relu", "ReLU"),
    ("deep", "Conv2d", {"in_channels": 16, "out_channels": 32, "kernel_size": 3, "padding": 1, "bias": False}),
    ("relu2", "ReLU"),
    ("drop", "Dropout", {"p": 0.25}),
    ("pool", "AdaptiveAvgPool2d", {"output_size": 1}),
    ("flat", "Flatten"),
    ("fc", "Linear", {"in_features": 32, "out_features": 10}),
]
rng = np.random.default_rng(1)
x, labels = rng.standard_normal((48, 3, 8, 8)).astype(np.float32), rng.integers(0, 10, 48)
kept, dtype, optimizer, options = [], sys.argv[2], getattr(mpscnn, sys.argv[3]), eval(sys.argv[4])
trainer = mpscnn.Trainer(layers, input_shapes=(1, 3, 8, 8), optimizer=optimizer(**options), dtype=dtype, seed=3)


def step(i):
    print("step", i, file=sys.stderr, flush=True)
    first = i % 3 * 16
    return trainer.step(x[first : first + 16], labels[first : first + 16])


def keep():
    kept.extend(np.copy(each) for each in trainer.state_dict().values())


for i in range(64):
    trainer.optimizer.learning_rate = 0.01 / (1 + i)
    one = step(i)
    if i % 2 or i >= 28:
        kept.append(one.loss)  # waits
    if i in (14, 15):
        kept += trainer.evaluate(x, labels)
        keep()
    if i == 20:  # the same kernels compute something else: their weights are asked for in other forms
        kept.append(trainer.network()(x[:2]))
trainer.wait()
print("step end", file=sys.stderr, flush=True)
keep()
np.savez(sys.argv[1], *kept)
"""


@pytest.mark.parametrize(
    ("optimizer", "options", "dtype"),
    [
        ("OptimizerStochasticGradientDescent", {"learning_rate": 0.01, "momentum_scale": 0.9}, "float16"),
        ("OptimizerAdam", {"learning_rate": 0.01}, "float32"),
    ],
)
def test_steps_become_graphs(tmp_path: Path, optimizer: str, options: dict[str, float], dtype: str) -> None:
    """Weights are loaded in place, and the optimizer's numbers and the dropout's seed change in the graph."""
    found, traces = [], []
    for graphs in "01":
        path = tmp_path / f"{graphs}.npz"
        arguments = (str(path), dtype, optimizer, repr(options))
        traces.append(output(STEPS, *arguments, MPSCNN_CUDA_GRAPH=graphs, MPSCNN_TRACE="dispatch")[1])
        with np.load(path) as arrays:
            found.append([arrays[f"arr_{i}"] for i in range(len(arrays.files))])
    plain, with_graphs = found
    assert len(plain) == len(with_graphs) > 60
    for a, b in zip(plain, with_graphs, strict=True):
        np.testing.assert_array_equal(a, b)
    # Inputs and results alternate between a few blocks of memory: each combination is recorded on its second run.
    last = [trace.split("step 40\n")[1].split("step end")[0] for trace in traces]
    convolutions = [trace.count("dispatch: convolve") for trace in last]
    assert convolutions[1] < convolutions[0] / 2, convolutions


RESIDUAL = """
import mpscnn, numpy as np, torch


def layer(inputs, outputs, stride=1):
    return torch.nn.Sequential(torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False), torch.nn.BatchNorm2d(outputs))


class Block(torch.nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first, self.second = layer(inputs, 16), layer(16, outputs, stride)
        self.shortcut = layer(inputs, outputs, stride) if stride > 1 else torch.nn.Identity()

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


module = torch.nn.Sequential(
    layer(3, 32), torch.nn.ReLU(), Block(32, 32, 1), Block(32, 64, 2), torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(), torch.nn.Linear(64, 10)
).train()
trainer = mpscnn.Trainer(module, input_shapes=(2, 3, 8, 8), dtype="float16")
trainer.step(np.ones((2, 3, 8, 8), np.float32), np.arange(2)).wait()
"""


def test_groups_of_a_residual_network() -> None:
    """A step of training has the commands that the engine solves together, next to each other or not."""
    _, trace = output(RESIDUAL, MPSCNN_TRACE="dispatch")
    taken = set(re.findall(r"^mpscnn dispatch: ([\w, ]+: \w+)$", trace, re.MULTILINE))
    assert "normalize, normalize_add: cuda_normalize_both_add" in taken
    assert "convolve_gradient, masked_sum_moments: cuda_sampled_sum" in taken, "zeros are stored and read"


def test_weights_of_lists_that_come_later(tmp_path: Path) -> None:
    """Reloaded weights do not take the memory of weights that a command buffer uses that is committed after them."""
    program = """
rng = np.random.default_rng(0)
make = lambda: mpscnn.Convolution(rng.standard_normal((6, 4, 3, 3)).astype(np.float32), np.ones(6, np.float32))
sources = [make() for _ in range(3)]
states = []
for source in sources:
    with mpscnn.CommandBuffer() as commands:
        states.append(source.export_weights(commands))
kernel = make()
x = mpscnn.Image.from_array(rng.standard_normal((1, 8, 8, 4)).astype(np.float32))
results = [mpscnn.Image((1, 6, 6, 6)) for _ in range(2)]
for i in range(30):
    late, is_late = mpscnn.CommandBuffer(), i % 3 and i < 15
    if is_late:
        kernel.encode(late, x, out=results[0])
    with mpscnn.CommandBuffer() as commands:
        kernel.encode(commands, x, out=results[1])
        kernel.reload(commands, states[i % 3])
        kernel.encode(commands, x, out=results[1])
        exported = kernel.export_weights(commands) if i == 3 else None  # by the host, in the list
    late.commit()
    late.wait()
    if is_late:
        kept.append(results[0].numpy(copy=True))
    if exported:
        kept += [exported.weights, exported.biases]
    kept.append(results[1].numpy(copy=True))
"""
    computed(tmp_path, program)


def test_training(tmp_path: Path) -> None:
    """Steps of the digits example: the same losses and parameters as on the CPU, within float tolerance."""
    program = """
import importlib.util
path = sys.argv[2]
spec = importlib.util.spec_from_file_location("train_example", path)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
rng = np.random.default_rng(1)
x, labels = rng.random((64, 1, 8, 8), np.float32), rng.integers(0, 10, 64)
trainer = mpscnn.Trainer(
    example.LAYERS, input_shapes=(1, 1, 8, 8), optimizer=mpscnn.OptimizerAdam(0.003), seed=3
)
losses = [trainer.step(x[first : first + 16], labels[first : first + 16]).loss for first in (0, 16, 32, 48) * 3]
parameters = trainer.state_dict()
np.savez(sys.argv[1], losses=losses, **{name: np.asarray(parameters[name]) for name in parameters})
"""
    example = TESTS.parent / "examples" / "train.py"
    found = []
    for name, environment in {
        "plain": {"MPSCNN_CUDA_GRAPH": "0"},
        "graphs": {"MPSCNN_CUDA_GRAPH": "1"},
        "cpu": {"MPSCNN_ENGINE": "cpu"},
    }.items():
        path = tmp_path / f"{name}.npz"
        output("import numpy as np, mpscnn\n" + program, str(path), str(example), **environment)
        with np.load(path) as arrays:
            found.append(dict(arrays))
    plain, graphs, cpu = found
    assert plain.keys() == graphs.keys() == cpu.keys()
    assert plain["losses"][-1] < plain["losses"][0]
    for name, values in plain.items():
        np.testing.assert_array_equal(values, graphs[name], err_msg=name)
        np.testing.assert_allclose(values, cpu[name], rtol=1e-3, atol=1e-4, err_msg=name)

# SPDX-License-Identifier: Apache-2.0
"""mpscnn.MPSNNGraph: training of gamma and beta, moving means and variances; against PyTorch in float64."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import mpscnn
from mpscnn import nodes
from support import Values

LOSS = mpscnn.Loss("mean_squared_error", reduction="sum", weight=0.05)
CHANNELS = 8


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


GAMMA, BETA = normal(CHANNELS) ** 2 + 0.5, normal(CHANNELS, seed=1)
MEAN, VARIANCE = normal(CHANNELS, seed=2), normal(CHANNELS, seed=3) ** 2 + 0.2
OPTIMIZERS: dict[str, tuple[Any, Any]] = {
    "SGD": (lambda: mpscnn.OptimizerStochasticGradientDescent(0.05), lambda p: torch.optim.SGD(p, lr=0.05)),
    "momentum": (lambda: mpscnn.OptimizerStochasticGradientDescent(0.02, momentum_scale=0.9),
                 lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9)),
    "Adam": (lambda: mpscnn.OptimizerAdam(0.02), lambda p: torch.optim.Adam(p, lr=0.02)),
}  # fmt: skip


def batch(step: int, images: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return the source and the target of a step, whose extents change."""
    shape = (images, 5 + step % 2, 6, 4)
    return 1 + 2 * normal(*shape, seed=10 + step), normal(*shape[:3], CHANNELS, seed=30 + step)


def to_torch(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array.transpose(0, 3, 1, 2)).astype(np.float64))


class Model:
    """A convolution, a normalization and a sum of squares: as nodes, and in PyTorch with float64."""

    def __init__(self, kind: str, make: Any, theirs: Any, **options: Any) -> None:
        weight = 0.4 * normal(CHANNELS, 4, 1, 1, seed=4)
        momentum = options.get("momentum", 0.1)
        ours, layer = {
            "batch": (nodes.BatchNormalizationNode, torch.nn.BatchNorm2d(CHANNELS, momentum=momentum)),
            "instance": (nodes.InstanceNormalizationNode, torch.nn.InstanceNorm2d(CHANNELS, affine=True)),
            "group": (nodes.GroupNormalizationNode, torch.nn.GroupNorm(2, CHANNELS)),
        }[kind]  # fmt: skip
        self.kind: Any = ours
        statistics = (MEAN, VARIANCE) if kind == "batch" else ()
        self.own = {"groups": 2} if kind == "group" else {}
        self.x = nodes.ImageNode("x")
        self.conv = nodes.ConvolutionNode(self.x, weight, optimizer=make())
        self.norm = ours(self.conv, GAMMA, BETA, *statistics, **self.own, epsilon=1e-5, optimizer=make(), **options)
        self.layer: Any = layer.double()
        self.weight = torch.tensor(weight.astype(np.float64), requires_grad=True)
        with torch.no_grad():
            self.layer.weight.copy_(torch.from_numpy(GAMMA))
            self.layer.bias.copy_(torch.from_numpy(BETA))
            if kind == "batch":
                self.layer.running_mean.copy_(torch.from_numpy(MEAN))
                self.layer.running_var.copy_(torch.from_numpy(VARIANCE))
        self.optimizer: Any = theirs([self.weight, *self.layer.parameters()])

    def graph(self) -> mpscnn.MPSNNGraph:
        def single(gradient: Any, *_: Any) -> None:
            gradient.result_image.format = "float32"

        loss = nodes.ForwardLossNode(self.norm, nodes.ImageNode("y"), LOSS)
        last = nodes.InitialGradientNode(loss).training_graph(node_handler=single)
        return mpscnn.MPSNNGraph(*last, results_are_needed=False, format="float32")

    def forward(self, x: np.ndarray) -> torch.Tensor:
        return self.layer(torch.conv2d(to_torch(x), self.weight))

    def step(self, x: np.ndarray, y: np.ndarray) -> None:
        self.optimizer.zero_grad()
        (0.05 * ((self.forward(x) - to_torch(y)) ** 2).sum()).backward()
        self.optimizer.step()

    def check(self) -> None:
        values = self.norm.values
        found = [values.gamma, values.beta, self.conv.weights.weight.transpose(0, 3, 1, 2)]
        wanted = [self.layer.weight, self.layer.bias, self.weight]
        if isinstance(self.layer, torch.nn.BatchNorm2d):
            found += [values.mean, values.variance]
            wanted += [self.layer.running_mean, self.layer.running_var]
        else:
            assert values.mean is values.variance is None
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other.detach().numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["batch", "instance", "group"])
def test_training_against_torch(kind: str, name: str) -> None:
    model = Model(kind, *OPTIMIZERS[name])
    training = model.graph()
    inference = mpscnn.MPSNNGraph(model.norm, format="float32")
    # The same values in other nodes.
    again = nodes.ConvolutionNode(nodes.ImageNode("x"), model.conv.weights)
    other = mpscnn.MPSNNGraph(model.kind(again, model.norm.values), format="float32")
    assert model.norm.values.is_trained is False
    with pytest.raises(RuntimeError, match=r"values: no optimizer has changed them yet\."):
        _ = model.norm.values.gamma
    model.layer.eval()
    x, _ = batch(0)
    np.testing.assert_allclose(inference(x).transpose(0, 3, 1, 2), model.forward(x).detach().numpy(), atol=1e-4)
    model.layer.train()
    for step in range(6):
        x, y = batch(step, images=1 + step % 3)
        training({"x": x, "y": y})
        model.step(x, y)
        model.check()
    model.layer.eval()
    wanted = model.forward(x).detach().numpy()
    before = inference(x)
    for graph in (inference, other, mpscnn.MPSNNGraph(model.norm, format="float32")):
        graph.reload_from_data_sources()
        np.testing.assert_allclose(graph(x).transpose(0, 3, 1, 2), wanted, rtol=1e-4, atol=1e-4)
    assert np.abs(before - inference(x)).max() > 1e-2


@pytest.mark.parametrize("momentum", [0, 0.5, 1.0])
def test_momentum(momentum: float) -> None:
    model = Model("batch", *OPTIMIZERS["SGD"], momentum=momentum)
    training = model.graph()
    for step in range(3):
        x, y = batch(step)
        training({"x": x, "y": y})
        model.step(x, y)
    model.check()


def test_several_steps_in_one_command_buffer() -> None:
    model = Model("batch", *OPTIMIZERS["Adam"])
    training = model.graph()
    with mpscnn.CommandBuffer() as commands:
        for step in range(3):
            x, y = batch(step)
            training.encode(commands, {"x": mpscnn.Image.from_array(x), "y": mpscnn.Image.from_array(y)})
            model.step(x, y)
        with pytest.raises(RuntimeError, match="values: the command buffer that writes it has not completed"):
            _ = model.norm.values.mean
        with pytest.raises(RuntimeError, match="values: the command buffer that writes it has not completed"):
            training.reload_from_data_sources()
    model.check()


@pytest.mark.parametrize("kind", ["batch", "instance"])
def test_steps_by_several_threads(kind: str) -> None:
    """The command buffers of steps run in the order of their encodes."""
    x, y = batch(0)
    found = []
    for threads in (1, 6):
        model = Model(kind, *OPTIMIZERS["Adam"])
        training = model.graph()

        def step(i: int, graph: mpscnn.MPSNNGraph = training) -> None:
            if i % 2:
                graph.execute_async({"x": x, "y": y}).result(60)
            else:
                graph({"x": x, "y": y})

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(step, range(100)))
        found.append(model.norm.values.gamma)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_frozen_statistics() -> None:
    """flags="never": gamma and beta are trained, by the moving mean and variance, which do not change."""
    model = Model("batch", *OPTIMIZERS["SGD"])
    model.norm.flags = "never"
    assert model.norm.flags == "never"
    training = model.graph()
    model.layer.eval()
    for step in range(2):
        x, y = batch(step)
        training({"x": x, "y": y})
        model.step(x, y)
    values = model.norm.values
    assert values.mean is values.variance is None
    np.testing.assert_allclose(values.gamma, model.layer.weight.detach().numpy(), rtol=1e-4)
    model.norm.flags = "automatic"
    training = model.graph()
    model.layer.train()
    training({"x": x, "y": y})
    model.step(x, y)
    model.check()


def test_training_style() -> None:
    model = Model("batch", *OPTIMIZERS["SGD"])
    assert model.norm.training_style == "gpu"
    model.norm.training_style = "none"
    x, y = batch(0)
    model.graph()({"x": x, "y": y})
    assert model.norm.values.is_trained is False
    assert model.conv.weights.is_trained is True


# ----------------------------------------------------------------------------------------- updates of a data source


class OnDevice(Values):
    """Steps of an optimizer; mean and variance are those of the last batch."""

    def __init__(self, **members: Any) -> None:
        super().__init__(GAMMA, beta=BETA, channels=CHANNELS, epsilon=1e-5, **members)
        self.optimizer = mpscnn.OptimizerStochasticGradientDescent(0.05)
        self.given: list[Any] = []
        self.seen: list[Any] = []
        self.state: Any = None

    def update(self, command_buffer: Any, gradient_state: Any, source_state: Any) -> Any:
        self.given.append((gradient_state, source_state))
        if self.state is None:
            self.state = self.optimizer.state_for(source_state)
        self.optimizer.encode(command_buffer, gradient_state, self.state)
        return self.state.values


class WithStatistics(OnDevice):
    def update_mean_and_variance(self, command_buffer: Any, state: Any) -> Any:
        self.seen.append((command_buffer, state, state.count))
        return mpscnn.NormalizationMeanAndVarianceState(np.zeros(CHANNELS), np.ones(CHANNELS))


class OnCpu(Values):
    """Gradient descent in NumPy."""

    def __init__(self, **members: Any) -> None:
        super().__init__(GAMMA, beta=BETA, channels=CHANNELS, epsilon=1e-5, **members)
        self.given: list[Any] = []

    def update_on_cpu(self, gradient_state: Any, source_state: Any) -> Any:
        self.given.append(gradient_state)
        np.testing.assert_array_equal(source_state.gamma, self.gamma)
        self.gamma = source_state.gamma - 0.05 * gradient_state.grad_gamma
        self.beta = source_state.beta - 0.05 * gradient_state.grad_beta
        return None


def own_model(kind: str, source: Any, **options: Any) -> Model:
    model = Model(kind, *OPTIMIZERS["SGD"])
    model.norm = model.kind(model.conv, source)
    for name, value in options.items():
        setattr(model.norm, name, value)
    return model


@pytest.mark.parametrize("kind", ["batch", "instance", "group"])
def test_update_on_the_device(kind: str) -> None:
    members: dict[str, Any] = {"groups": 2} if kind == "group" else {}
    if kind == "batch":
        members = {"mean": MEAN, "variance": VARIANCE}
    source: Any = (WithStatistics if kind == "batch" else OnDevice)(**members)
    model = own_model(kind, source)
    training = model.graph()
    for step in range(3):
        x, y = batch(step)
        training({"x": x, "y": y})
        if step:
            np.testing.assert_allclose(source.given[-1][1].gamma, model.layer.weight.detach().numpy(), atol=1e-4)
        model.step(x, y)
        np.testing.assert_allclose(source.state.values.gamma, model.layer.weight.detach().numpy(), atol=1e-4)
        np.testing.assert_allclose(source.state.values.beta, model.layer.bias.detach().numpy(), atol=1e-4)
    assert len(source.given) == 3
    assert model.norm.values.is_trained is False
    if kind == "batch":
        assert [count for _, _, count in source.seen] == [4 * 5 * 6, 4 * 6 * 6, 4 * 5 * 6]
        assert source.seen[0][1].channels == CHANNELS
        with pytest.raises(RuntimeError, match="which is in temporary memory of a graph; export_from_graph"):
            _ = source.seen[0][1].mean
        with (
            mpscnn.CommandBuffer() as commands,
            pytest.raises(RuntimeError, match=r"of an update\(\) that has returned"),
        ):
            source.optimizer.encode(commands, source.given[0][0], source.state)


def test_exported_statistics() -> None:
    source = WithStatistics(mean=MEAN, variance=VARIANCE)
    model = own_model("batch", source)
    state: Any = model.norm.result_state
    state.export_from_graph = True
    x, y = batch(0)
    with mpscnn.CommandBuffer() as commands:
        images = {"x": mpscnn.Image.from_array(x), "y": mpscnn.Image.from_array(y)}
        _, _, (left,) = model.graph().encode(commands, images)
        seen = source.seen[0][1]
        with pytest.raises(RuntimeError, match="has not completed"):
            _ = seen.mean
    hidden = torch.conv2d(to_torch(x), torch.tensor(0.4 * normal(CHANNELS, 4, 1, 1, seed=4)).double()).numpy()
    np.testing.assert_allclose(seen.mean, hidden.mean((0, 2, 3)), atol=1e-4)
    np.testing.assert_allclose(seen.variance, hidden.var((0, 2, 3)), rtol=1e-4)
    np.testing.assert_array_equal(seen.grad_gamma, left["grad_gamma"].numpy("float32"))


@pytest.mark.parametrize("kind", ["batch", "instance", "group"])
def test_update_on_the_cpu(kind: str) -> None:
    members: dict[str, Any] = {"groups": 2} if kind == "group" else {}
    if kind == "batch":
        members = {"mean": MEAN, "variance": VARIANCE}
    source = OnCpu(**members)
    model = own_model(kind, source, training_style="cpu")
    training = model.graph()
    for step in range(3):
        x, y = batch(step)
        training({"x": x, "y": y})
        model.step(x, y)
        np.testing.assert_allclose(source.gamma, model.layer.weight.detach().numpy(), atol=1e-4)
        np.testing.assert_allclose(source.beta, model.layer.bias.detach().numpy(), atol=1e-4)
    assert source.calls.count("load") == source.calls.count("purge")
    if kind == "batch":
        np.testing.assert_allclose(source.given[-1].count, 4 * 5 * 6)
        assert source.given[-1].mean.shape == (CHANNELS,)


# -------------------------------------------------------------------------------------------------------------- errors


def failing(name: str, answer: Any) -> Any:
    def method(self: Any, *_: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    kind = type("Failing", (Values,), {name: method})
    return kind(GAMMA, beta=BETA, channels=CHANNELS, mean=MEAN, variance=VARIANCE, epsilon=1e-5)


SHORT = np.ones(CHANNELS - 1)
ROWS: list[tuple[str, Any, type[Exception], str]] = [
    ("update", OSError("disk"), OSError, "disk"),
    ("update", 3, TypeError, "update() returned 3, which is not a NormalizationGammaAndBetaState or None."),
    ("update", lambda: mpscnn.NormalizationGammaAndBetaState(SHORT, np.ones(CHANNELS)), ValueError,
     "data source: gamma of the state has 28 bytes; 8 channels need 32."),
    ("update_mean_and_variance", OSError("disk"), OSError, "disk"),
    ("update_mean_and_variance", lambda: mpscnn.NormalizationGammaAndBetaState(GAMMA, BETA), TypeError,
     "which is not a NormalizationMeanAndVarianceState or None."),
    ("update_mean_and_variance", lambda: mpscnn.NormalizationMeanAndVarianceState(np.ones(CHANNELS), SHORT), ValueError,
     "data source: variance of the state has 28 bytes; 8 channels need 32."),
    ("update_on_cpu", OSError("disk"), OSError, "disk"),
    ("update_on_cpu", 3, TypeError, "update_on_cpu() returned 3, which is not True, False or None."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer", "kind", "text"), ROWS, ids=range(len(ROWS)))
def test_errors_of_updates(name: str, answer: Any, kind: type[Exception], text: str) -> None:
    model = own_model("batch", failing(name, answer), training_style="cpu" if name == "update_on_cpu" else "gpu")
    training = model.graph()
    x, y = batch(0)
    for _ in range(2):
        with pytest.raises(kind, match=re.escape(text)):
            training({"x": x, "y": y})
    assert np.abs(model.conv.weights.weight).max() > 0.1


def test_channels_that_change() -> None:
    class Grows(Values):
        def update_on_cpu(self, *_: Any) -> Any:
            self.channels, self.gamma, self.beta = 9, np.ones(9, np.float32), None
            self.mean = self.variance = np.ones(9, np.float32)

    source = Grows(GAMMA, channels=CHANNELS, mean=MEAN, variance=VARIANCE)
    training = own_model("batch", source, training_style="cpu").graph()
    x, y = batch(0)
    with pytest.raises(ValueError, match=r"channels \(9\) is not that of the kernel \(8\)"):
        training({"x": x, "y": y})


def test_one_value_in_a_channel() -> None:
    model = Model("batch", *OPTIMIZERS["SGD"])
    x, y = batch(0)
    with pytest.raises(ValueError, match="BatchNormalizationNode: the batch has 1 value in each channel; the unbiased"):
        model.graph()({"x": x[:1, :1, :1], "y": y[:1, :1, :1]})


def test_wrong_arguments() -> None:
    x, adam = nodes.ImageNode("x"), mpscnn.OptimizerAdam()
    values = nodes.InstanceNormalizationNode(x, GAMMA).values
    own = failing("update", None)
    batch_node = nodes.BatchNormalizationNode
    for call, kind, text in (
        (lambda: batch_node(x, GAMMA, momentum=0.5), ValueError,
         "BatchNormalizationNode: momentum (0.5) was given without optimizer."),
        (lambda: batch_node(x, GAMMA, optimizer=adam, momentum=1.5), ValueError,
         "BatchNormalizationNode: momentum (1.5) is not between 0 and 1."),
        (lambda: batch_node(x, GAMMA, optimizer=adam, momentum="no"), TypeError,  # type: ignore[arg-type]
         "BatchNormalizationNode: momentum (str) is not a number."),
        (lambda: batch_node(x, GAMMA, optimizer=3), TypeError,  # type: ignore[arg-type]
         "BatchNormalizationNode: optimizer (int) is not an Optimizer."),
        (lambda: batch_node(x, values), ValueError,
         "BatchNormalizationNode: gamma has the values of a InstanceNormalizationNode."),
        (lambda: nodes.InstanceNormalizationNode(x, values, BETA), ValueError,
         "InstanceNormalizationNode: beta was given together with NormalizationValues, which have it."),
        (lambda: nodes.InstanceNormalizationNode(x, values, optimizer=adam), ValueError,
         "InstanceNormalizationNode: optimizer was given together with NormalizationValues, which have it."),
        (lambda: batch_node(x, own, optimizer=adam), ValueError,
         "BatchNormalizationNode: optimizer was given with a data source that has update(), which updates the values."),
        (lambda: nodes.NormalizationValues(), TypeError, "NormalizationValues cannot be made"),
    ):  # fmt: skip
        with pytest.raises(kind, match=re.escape(text)):
            call()


def test_source_that_fails_to_load() -> None:
    class Fails(Values):
        def load(self) -> bool:
            if self.calls.count("load") == 1:
                raise OSError("disk")
            return super().load()

    node = nodes.InstanceNormalizationNode(nodes.ImageNode(), Fails(GAMMA, channels=CHANNELS))
    with pytest.raises(OSError, match="disk"):
        mpscnn.MPSNNGraph(node)

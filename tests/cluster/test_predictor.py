# SPDX-License-Identifier: Apache-2.0
"""mpscnn.adapters.Predictor without a cluster: kinds of batches, pickles, copies, errors that name the row."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mpscnn
from mpscnn import adapters
from mpscnn.adapters import Predictor

from .conftest import classifier, of_two_inputs


def images(count: int = 4, height: int = 6, width: int = 7) -> np.ndarray:
    return np.random.default_rng(1).random((count, 3, height, width), np.float32)


@pytest.fixture(autouse=True)
def _no_networks_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_networks", type(adapters._networks)())


# ---- models


@pytest.mark.parametrize("given", ["path", "network"])
def test_a_pickle_computes_the_same(net: mpscnn.Network, model: Path, given: str) -> None:
    predictor = Predictor(model if given == "path" else net, keep=["id"])
    batch = {"id": np.arange(4), "x": images()}
    twin = pickle.loads(pickle.dumps(predictor))
    for one in (predictor, twin, pickle.loads(pickle.dumps(twin))):
        found = one(batch)
        assert list(found) == ["id", "scores"]
        assert found["id"] is batch["id"]
        np.testing.assert_array_equal(found["scores"], net(images()))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_protocols_of_pickle(net: mpscnn.Network, protocol: int) -> None:
    predictor = Predictor(net)
    for _ in range(2):
        predictor = pickle.loads(pickle.dumps(predictor, protocol))
        adapters._networks.clear()
        np.testing.assert_array_equal(predictor({"x": images()})["scores"], net(images()))


def test_weights_are_out_of_band() -> None:
    """A library that shares memory between processes has the weights there once; networks read them in place."""
    graph = mpscnn.Graph()
    weight = np.random.default_rng(0).random((64, 3, 3, 3), np.float32)
    x = graph.input("x", channels=3, layout="NCHW")
    graph.output(graph.add("Convolution", x, weight=weight, padding=1), "y", layout="NCHW")
    net, predictor = mpscnn.Network(graph), Predictor(mpscnn.Network(graph))
    for _ in range(2):  # also of a predictor that was pickled
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(predictor, 5, buffer_callback=buffers.append)
        assert len(pickled) < 4000
        assert sum(buffer.raw().nbytes for buffer in buffers) == weight.nbytes
        shared = [memoryview(bytearray(buffer.raw())).toreadonly() for buffer in buffers]
        predictor = pickle.loads(pickled, buffers=shared)
        adapters._networks.clear()
        np.testing.assert_array_equal(predictor({"x": images()})["y"], net(images()))
        (node,) = [node for node in predictor.network.graph.nodes if "weight" in node.arguments]
        assert np.shares_memory(node.arguments["weight"], np.frombuffer(shared[0], np.uint8))


def test_in_another_process(net: mpscnn.Network, tmp_path: Path) -> None:
    """In a new process, which has imported nothing; both ways to give a model."""
    net.save(tmp_path / "net.mpscnn")
    np.save(tmp_path / "x.npy", images())
    given = {"path": Predictor(tmp_path / "net.mpscnn"), "network": Predictor(net)}
    (tmp_path / "predictors").write_bytes(pickle.dumps(given))
    program = """
        import pickle, sys, numpy as np, os
        os.chdir(sys.argv[1])
        for name, predictor in pickle.load(open("predictors", "rb")).items():
            np.save(name, predictor({"x": np.load("x.npy")})["scores"])
    """
    program = "\n".join(
        line.strip() if "np.save" not in line else "    " + line.strip() for line in program.splitlines()
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program, str(tmp_path)], check=True, timeout=120)
    for name in given:
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), net(images()))


def test_a_module_of_pytorch() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU()).eval()
    predictor = pickle.loads(pickle.dumps(Predictor(module, input_shapes=(1, 3, 6, 7), outputs={"output": "y"})))
    with torch.no_grad():
        expected = module(torch.from_numpy(images())).numpy()
    np.testing.assert_allclose(predictor({"picture": images()})["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_file_of_onnx(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Sigmoid()).eval()
    path = tmp_path / "net.onnx"
    torch.onnx.export(module, (torch.from_numpy(images()),), path, input_names=["x"], output_names=["y"], dynamo=False)
    expected = onnxruntime.InferenceSession(path).run(None, {"x": images()})[0]
    found = pickle.loads(pickle.dumps(Predictor(path, dtype="float32")))({"x": images()})
    np.testing.assert_allclose(found["y"], expected, rtol=1e-5, atol=1e-5)


def test_weights_are_loaded_once_in_a_process(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries unpickle a predictor for each task. A replaced file is another model."""
    loaded: list[Any] = []
    load = adapters.load
    monkeypatch.setattr(adapters, "load", lambda path, **options: loaded.append(path) or load(path, **options))
    pickled = pickle.dumps(Predictor(model))
    for _ in range(3):
        pickle.loads(pickled)({"x": images()})
    assert len(loaded) == 1
    assert pickle.loads(pickled).network is pickle.loads(pickled).network
    pickle.loads(pickle.dumps(Predictor(model, dtype="float16")))({"x": images()})
    assert len(loaded) == 2
    classifier(6, 7).save(model)
    pickle.loads(pickled)({"x": images()})
    assert len(loaded) == 3


def test_a_network_is_unpickled_once_in_a_process(net: mpscnn.Network) -> None:
    pickled = pickle.dumps(Predictor(net))
    assert pickle.loads(pickled).network is pickle.loads(pickled).network
    assert Predictor(net).network is net


def test_few_networks_are_kept(net: mpscnn.Network) -> None:
    predictors = [pickle.loads(pickle.dumps(Predictor(net))) for _ in range(6)]
    for predictor in predictors:
        predictor({"x": images()})
    assert len(adapters._networks) == adapters._MAX_NETWORKS
    assert predictors[0]({"x": images()})["scores"].shape == (4, 5)


# ---- kinds of batches


def test_the_only_column_is_the_only_input(net: mpscnn.Network) -> None:
    np.testing.assert_array_equal(Predictor(net)({"data": images()})["scores"], net(images()))
    found = Predictor(net, keep=["id"])({"data": images(), "id": np.arange(4)})
    np.testing.assert_array_equal(found["scores"], net(images()))


def test_two_inputs_and_outputs() -> None:
    a, b = np.random.default_rng(0).random((2, 3, 2, 4, 5), np.float32)
    predictor = Predictor(of_two_inputs(), inputs={"a": "left", "b": "right"}, outputs={"sum": "total"})
    found = predictor({"right": b, "left": a, "other": np.arange(3)})
    np.testing.assert_allclose(found["total"], a + b, atol=1e-6)
    np.testing.assert_allclose(found["difference"], a - b, atol=1e-6)
    assert list(found) == ["total", "difference"]


def test_rows_of_objects(net: mpscnn.Network) -> None:
    """Ray Data and pandas have columns of arrays."""
    rows = np.empty(4, object)
    rows[:] = list(images())
    for column in (rows, list(images())):
        np.testing.assert_array_equal(Predictor(net)({"x": column})["scores"], net(images()))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_pandas(net: mpscnn.Network, dtype: str) -> None:
    pandas = pytest.importorskip("pandas")
    x = (images() * 255).astype(dtype) if dtype == "uint8" else images().astype(dtype)
    frame = pandas.DataFrame({"id": [7, 8, 9, 10], "x": list(x)}, index=list("abcd"))
    found = Predictor(net, keep=["id"])(frame)
    assert list(found.columns) == ["id", "scores"]
    assert list(found.index) == list("abcd")
    np.testing.assert_array_equal(np.stack(found["scores"]), net(x))


def test_pandas_of_flat_rows(net: mpscnn.Network) -> None:
    """Spark's columns are of type array<float>; so are its results."""
    pandas = pytest.importorskip("pandas")
    flat = list(images().reshape(4, -1))
    frames = iter([pandas.DataFrame({"x": flat[:3]}), pandas.DataFrame({"x": flat[3:]})])
    predictor = Predictor(net, shapes={"x": (3, 6, 7)})
    found = pandas.concat(list(predictor.map(frames)))
    np.testing.assert_allclose(np.stack(found["scores"]), net(images()), rtol=1e-6)
    # Fixed extents need no shapes.
    found = Predictor(classifier(6, 7))(pandas.DataFrame({"x": flat}))
    np.testing.assert_array_equal(np.stack(found["scores"]), net(images()))


@pytest.mark.parametrize("form", ["tensor", "list", "large_list", "fixed_list", "nested"])
@pytest.mark.parametrize("kind", ["Table", "RecordBatch"])
def test_arrow(net: mpscnn.Network, form: str, kind: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    x = images(5)
    flat = list(x.reshape(5, -1))
    column = {
        "tensor": lambda: arrow.FixedShapeTensorArray.from_numpy_ndarray(x),
        "list": lambda: arrow.array(flat, arrow.list_(arrow.float32())),
        "large_list": lambda: arrow.array(flat, arrow.large_list(arrow.float32())),
        "fixed_list": lambda: arrow.array(flat, arrow.list_(arrow.float32(), 126)),
        "nested": lambda: arrow.array(x.tolist(), arrow.list_(arrow.list_(arrow.list_(arrow.float32())))),
    }[form]()
    batch = getattr(arrow, kind).from_arrays([arrow.array(range(5)), column], names=["id", "x"])
    predictor = Predictor(net, keep=["id"], shapes={"x": (3, 6, 7)})
    found = predictor(batch)
    assert type(found) is type(batch)
    assert found.schema.names == ["id", "scores"]
    np.testing.assert_array_equal(np.array(found.column("scores").to_pylist()), net(x))
    # A slice begins within its buffers.
    part = predictor(batch.slice(1, 3))
    assert part.column("id").to_pylist() == [1, 2, 3]
    np.testing.assert_allclose(np.array(part.column("scores").to_pylist()), net(x[1:4]), rtol=1e-6)
    if kind == "Table":  # of several chunks
        chunks = arrow.concat_tables([batch.slice(0, 2), batch.slice(2)])
        np.testing.assert_array_equal(np.array(predictor(chunks).column("scores").to_pylist()), net(x))


def test_arrow_images_are_tensors_or_flat_lists_as_the_input() -> None:
    arrow = pytest.importorskip("pyarrow")
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronReLU", graph.input("x", channels=3, layout="NCHW")), "y", layout="NCHW")
    predictor = Predictor(mpscnn.Network(graph), shapes={"x": (3, 6, 7)})
    tensors = arrow.table({"x": arrow.FixedShapeTensorArray.from_numpy_ndarray(images())})
    np.testing.assert_array_equal(predictor(tensors).column("y").chunk(0).to_numpy_ndarray(), images())
    lists = arrow.table({"x": arrow.array(list(images().reshape(4, -1)))})
    found = predictor(lists).column("y")
    assert found.type == arrow.list_(arrow.float32())
    np.testing.assert_array_equal(np.array(found.to_pylist(), np.float32), images().reshape(4, -1))


@pytest.mark.parametrize("form", ["dict", "tensor", "list", "fixed_list"])
def test_columns_are_used_in_place(net: mpscnn.Network, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = images()
    batch: Any = {"x": x}
    address = x.ctypes.data
    if form != "dict":
        arrow = pytest.importorskip("pyarrow")
        values = arrow.array(x.reshape(-1))
        address = values.buffers()[1].address
        column = {
            "tensor": lambda: arrow.FixedShapeTensorArray.from_numpy_ndarray(x),
            "list": lambda: arrow.ListArray.from_arrays(np.arange(5, dtype=np.int32) * 126, values),
            "fixed_list": lambda: arrow.FixedSizeListArray.from_arrays(values, 126),
        }[form]()
        batch = arrow.table({"x": column})
    seen = []
    call = mpscnn.Network.__call__
    monkeypatch.setattr(
        mpscnn.Network, "__call__", lambda self, **given: seen.append(given["x"].ctypes.data) or call(self, **given)
    )
    Predictor(net, shapes={"x": (3, 6, 7)})(batch)
    assert seen == [address]


def test_no_rows(net: mpscnn.Network) -> None:
    """The last partition of a data set may be empty."""
    assert Predictor(net)({"x": images(0)})["scores"].shape == (0, 5)
    predictor = Predictor(net, shapes={"x": (3, 6, 7)})
    assert predictor({"x": np.empty(0, object)})["scores"].shape == (0, 5)
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    assert len(predictor(pandas.DataFrame({"x": []}))) == 0
    empty = predictor(arrow.table({"x": arrow.array([], arrow.list_(arrow.float32()))}))
    assert empty.column("scores").type == arrow.list_(arrow.float32())
    assert len(empty) == 0


def test_function_for_spark(net: mpscnn.Network) -> None:
    import inspect

    predict = pickle.loads(pickle.dumps(Predictor(net, shapes={"x": (3, 6, 7)}))).make_predict_fn()
    assert len(inspect.signature(predict).parameters) == 1
    np.testing.assert_array_equal(predict(images()), net(images()))
    np.testing.assert_array_equal(predict(images().reshape(4, -1)), net(images()))
    a, b = np.random.default_rng(0).random((2, 3, 2, 4, 5), np.float32)
    predict = Predictor(of_two_inputs(), outputs={"sum": "total"}).make_predict_fn()
    assert len(inspect.signature(predict).parameters) == 2
    found = predict(a, b)
    np.testing.assert_allclose(found["total"], (a + b).reshape(3, -1), atol=1e-6)


# ---- errors


def rows_with(row: int, value: Any) -> list[Any]:
    found = list(images())
    found[row] = value
    return found


BATCHES = [
    ({"y": images(), "z": 1}, KeyError, 'there is no column "x"; there are id, y, z: name it with inputs= or keep=.'),
    ({"x": images().astype("float64")}, TypeError, 'column "x": its dtype (float64) is not float32, float16, uint8'),
    ({"x": images(height=6)[:, :2]}, ValueError, 'rows 0 to 3: input "x": its number of channels (2) is not 3.'),
    ({"x": images().reshape(4, -1)}, ValueError, 'give their shape with shapes={"x": (...)}'),
    ({"x": rows_with(2, None)}, ValueError, 'column "x", row 2 (id=12) is None.'),
    ({"x": rows_with(3, images()[0, :, :5])}, ValueError, 'column "x", row 3 (id=13): its shape (3, 5, 7) is not'),
    (
        {"x": rows_with(1, images()[0].astype("uint8"))},
        TypeError,
        "row 1 (id=11): its dtype (uint8) is not that of row 0",
    ),
    ({"x": rows_with(0, images()[0].astype("float64"))}, TypeError, "row 0 (id=10): its dtype (float64) is not"),
    ({"x": rows_with(2, "cat")}, TypeError, 'column "x", row 2 (id=12): str is not an array of numbers.'),
    ({"x": rows_with(2, [[1, 2], [3]])}, TypeError, 'column "x", row 2 (id=12): list is not an array of numbers.'),
]


@pytest.mark.parametrize(("batch", "error", "message"), BATCHES, ids=[message[:40] for _, _, message in BATCHES])
def test_errors_name_the_row(net: mpscnn.Network, batch: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        Predictor(net, keep=["id"])({"id": np.arange(10, 14), **batch})


def test_errors_of_pandas_and_arrow_name_the_row(net: mpscnn.Network) -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    predictor = Predictor(net, keep=["path"], shapes={"x": (3, 6, 7)})
    paths = [f"{i}.png" for i in range(4)]
    flat: list[Any] = list(images().reshape(4, -1))
    floats = arrow.list_(arrow.float32())
    bad = [(None, "row 2 (path=2.png) is null"), (flat[0][:-1], "row 2 (path=2.png): its length (125) is not"),
           ([None] * 126, "row 2 (path=2.png) has values that are null")]  # fmt: skip
    for value, message in bad:
        rows = [*flat[:2], value, flat[3]]
        with pytest.raises(ValueError, match=re.escape(message)):
            predictor(arrow.table({"path": paths, "x": arrow.array(rows, floats)}))
    with pytest.raises(
        ValueError, match=re.escape("row 1 (path=1.png): its shape (125,) is not that of row 0, (126,)")
    ):
        predictor(pandas.DataFrame({"path": paths, "x": [flat[0], flat[1][:-1], *flat[2:]]}))
    with pytest.raises(ValueError, match=re.escape("number of values (125) is not 126, of the shape (3, 6, 7)")):
        predictor(pandas.DataFrame({"path": paths, "x": [row[:-1] for row in flat]}))
    with pytest.raises(TypeError, match="Arrow's struct<"):
        predictor(arrow.table({"path": paths, "x": arrow.array([{"a": 1}] * 4)}))


ARGUMENTS = [
    ({"inputs": {"z": "image"}}, ValueError, 'inputs: there is no input "z"; there are x.'),
    ({"outputs": {"z": "image"}}, ValueError, 'outputs: there is no output "z"; there are scores.'),
    ({"shapes": {"z": (1,)}}, ValueError, 'shapes: there is no input "z"; there are x.'),
    ({"shapes": {"x": (0,)}}, ValueError, 'shapes["x"][0] (0) is less than the minimum (1).'),
    ({"keep": "id"}, TypeError, "keep (str) is not a sequence of str."),
    ({"threads": 0}, ValueError, "threads (0) is less than the minimum (1)."),
    ({"device": 0}, TypeError, "device (int) is not a str."),
    ({"dtype": "float16"}, TypeError, "dtype was given; networks take no options of load()."),
]


@pytest.mark.parametrize(
    ("arguments", "error", "message"), ARGUMENTS, ids=[message[:40] for _, _, message in ARGUMENTS]
)
def test_wrong_arguments(net: mpscnn.Network, arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        Predictor(net, **arguments)


def test_other_errors(net: mpscnn.Network, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.mpscnn"):
        Predictor(tmp_path / "missing.mpscnn")({"x": images()})
    with pytest.raises(TypeError, match=re.escape("batch (list) is not a dict of arrays")):
        Predictor(net)([images()])
    with pytest.raises(ValueError, match=re.escape('keep: "scores" is the name of an output, too')):
        Predictor(net, keep=["scores"])({"x": images(), "scores": np.arange(4)})
    with pytest.raises(ValueError, match=re.escape("different numbers of rows (a: 1, b: 2)")):
        Predictor(of_two_inputs())({"a": np.zeros((1, 2, 3, 3), "f4"), "b": np.zeros((2, 2, 3, 3), "f4")})
    with pytest.raises(ValueError, match='name \\("abacus"\\) is not one of'):
        Predictor(net, device="abacus")({"x": images()})


# ---- devices and threads


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": ""}, None),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, None),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, None),
        ({"CUDA_VISIBLE_DEVICES": "3,4"}, "cuda:0"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1a2b"}, "cuda:0"),
        ({"CUDA_VISIBLE_DEVICES": "3", "MPSCNN_ENGINE": "cpu"}, None),
    ],
    ids=str,
)
def test_device_of_the_process(
    environment: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "MPSCNN_ENGINE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert adapters._device_name(None) == expected
    assert adapters._device_name("cuda:1") == "cuda:1"


def test_on_another_device(net: mpscnn.Network, model: Path) -> None:
    """A network and a file on a device that is not the default one."""
    others = [one.name for one in mpscnn.Device.all()[1:]]
    if not others:
        pytest.skip("there is one device")
    for given in (net, model):
        predictor = pickle.loads(pickle.dumps(Predictor(given, device=others[0])))
        assert predictor.network.device.name == others[0]
        assert predictor({"x": images()})["scores"].shape == (4, 5)
        assert Predictor(given).network.device == mpscnn.Device()


def test_threads_of_the_process(model: Path) -> None:
    program = (
        "import json, pickle, sys, numpy as np, mpscnn\n"
        "before = mpscnn.get_num_threads()\n"
        "pickle.loads(bytes.fromhex(sys.argv[1]))({'x': np.zeros((1, 3, 6, 7), 'f4')})\n"
        "print(json.dumps([before, mpscnn.get_num_threads()]))"
    )
    try:
        processors = mpscnn.get_num_threads()
    except NotImplementedError:
        pytest.skip("the device has no number of threads")
    for threads, environment, expected in ((1, {}, 1), (None, {}, processors), (2, {"OMP_NUM_THREADS": "1"}, 2)):
        environment = {**{k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}, **environment}
        pickled = pickle.dumps(Predictor(model, threads=threads)).hex()
        done = subprocess.run(
            [sys.executable, "-c", program, pickled], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)[1] == min(expected, len(os.sched_getaffinity(0)))

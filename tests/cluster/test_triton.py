# SPDX-License-Identifier: Apache-2.0
"""examples/triton_server with a stand-in for triton_python_backend_utils. It was not run inside Triton."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpscnn

from .conftest import classifier, of_two_inputs
from .servers import image

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "triton_server"


class Tensor:
    def __init__(self, name: str, array: np.ndarray) -> None:
        assert isinstance(array, np.ndarray)
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array


@dataclass
class TritonError:
    text: str

    def message(self) -> str:
        return self.text


@dataclass
class InferenceResponse:
    output_tensors: list[Tensor] = field(default_factory=list)
    error: TritonError | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        assert self.error is None, self.error
        return {tensor.name(): tensor.as_numpy() for tensor in self.output_tensors}


@dataclass
class Request:
    inputs: dict[str, np.ndarray]
    outputs: list[str]

    def requested_output_names(self) -> list[str]:
        return self.outputs


def input_by_name(request: Request, name: str) -> Tensor | None:
    return Tensor(name, request.inputs[name]) if name in request.inputs else None


def module(path: Path) -> Any:
    specification = importlib.util.spec_from_file_location(f"triton_{path.stem}", path)
    assert specification is not None
    assert specification.loader is not None
    made = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(made)
    return made


@pytest.fixture
def utils(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = types.ModuleType("triton_python_backend_utils")
    vars(stand_in).update(
        Tensor=Tensor, TritonError=TritonError, InferenceResponse=InferenceResponse,
        get_input_tensor_by_name=input_by_name,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", stand_in)


def started(network: mpscnn.Network, folder: Path, **config: Any) -> Any:
    """Return the backend of a repository made by make_repository.py."""
    network.save(folder / "net.mpscnn")
    command = [sys.executable, str(EXAMPLES / "make_repository.py"), str(folder / "net.mpscnn"), str(folder / "models")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, str(folder / "models" / "net")), done.stderr
    backend = module(folder / "models" / "net" / "1" / "model.py").TritonPythonModel()
    arguments = {
        "model_repository": str(folder / "models" / "net"),
        "model_version": "1",
        "model_name": "net",
        "model_instance_kind": "CPU",
        "model_instance_device_id": "0",
        "model_config": json.dumps(config),
    }
    backend.initialize(arguments)
    return backend


@pytest.mark.usefixtures("utils")
def test_requests_are_computed_together(net: mpscnn.Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call for each shape and type; each request gets its own rows."""
    backend = started(net, tmp_path)
    calls = []
    compute = backend.network

    class Counting:
        outputs = compute.outputs

        def __call__(self, **arrays: np.ndarray) -> Any:
            calls.append({name: array.shape for name, array in arrays.items()})
            return compute(**arrays)

    monkeypatch.setattr(backend, "network", Counting())
    inputs = [image(2, seed=0), image(1, 7, 7, seed=1), image(3, seed=2), image(1, seed=3).astype(np.float16)]
    responses = backend.execute([Request({"x": x}, ["scores"]) for x in inputs])
    assert calls == [{"x": (5, 3, 5, 6)}, {"x": (1, 3, 7, 7)}, {"x": (1, 3, 5, 6)}]
    for x, response in zip(inputs, responses, strict=True):
        found = response.arrays()["scores"]
        assert found.flags.c_contiguous
        np.testing.assert_allclose(found, net(x), rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("utils")
def test_errors_are_of_their_requests(net: mpscnn.Network, tmp_path: Path) -> None:
    backend = started(net, tmp_path)
    requests = [
        Request({"x": image()}, ["scores"]),
        Request({}, ["scores"]),
        Request({"x": np.zeros((1, 4, 5, 6), np.float32)}, ["scores"]),
        Request({"x": image().astype(str)}, ["scores"]),
        Request({"x": image(seed=1)}, ["scores"]),
    ]
    first, missing, channels, strings, last = backend.execute(requests)
    assert missing.error.message() == "no data is given for x."
    assert "4" in channels.error.message()
    assert strings.error is not None
    for response, seed in ((first, 0), (last, 1)):
        np.testing.assert_allclose(response.arrays()["scores"], net(image(seed=seed)), rtol=1e-4)


@pytest.mark.usefixtures("utils")
def test_two_inputs_and_requested_outputs(tmp_path: Path) -> None:
    backend = started(of_two_inputs(), tmp_path, parameters={"threads": {"string_value": "1"}})
    assert mpscnn.get_num_threads() == 1
    a, b = np.random.default_rng(0).random((2, 2, 2, 3, 4), np.float32)
    both, one = backend.execute(
        [Request({"b": b, "a": a}, ["sum", "difference"]), Request({"a": a, "b": b}, ["difference"])]
    )
    assert list(one.arrays()) == ["difference"]
    np.testing.assert_array_equal(one.arrays()["difference"], a - b)
    np.testing.assert_array_equal(both.arrays()["sum"], a + b)


@pytest.fixture(autouse=True)
def threads() -> Any:
    before = mpscnn.get_num_threads()
    yield
    mpscnn.set_num_threads(before)


def test_configuration(net: mpscnn.Network) -> None:
    configuration = module(EXAMPLES / "make_repository.py").configuration
    assert configuration(net, "net", max_batch=4, max_delay=0.5, threads=2) == (
        'name: "net"\n'
        'backend: "python"\n'
        "max_batch_size: 4\n"
        "dynamic_batching { max_queue_delay_microseconds: 500 }\n"
        "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
        'input {\n  name: "x"\n  data_type: TYPE_FP32\n  dims: [ 3, -1, -1 ]\n}\n'
        'output {\n  name: "scores"\n  data_type: TYPE_FP32\n  dims: [ -1 ]\n}\n'
        'parameters { key: "threads" value { string_value: "2" } }\n'
    )
    text = configuration(classifier(32, 48), "net", datatype="UINT8", gpus=[0, 1])
    assert "count: 1 kind: KIND_GPU gpus: [ 0, 1 ]" in text
    assert "data_type: TYPE_UINT8\n  dims: [ 3, 32, 48 ]" in text
    assert len(re.findall(r"^(?:input|output) \{", configuration(of_two_inputs(), "two"), re.MULTILINE)) == 4


# ---- the container


def instructions() -> dict[str, list[str]]:
    text = (EXAMPLES.parent / "cluster" / "Containerfile").read_text()
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    found: dict[str, list[str]] = {}
    for line in filter(None, lines):
        name, _, rest = line.partition(" ")
        found.setdefault(name, []).append(rest)
    return found


def test_instructions_of_the_container_file() -> None:
    """The file was not built here: this checks what its instructions say."""
    found = instructions()
    assert set(found) == {
        "ARG", "FROM", "COPY", "RUN", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}  # fmt: skip
    (base,) = found["FROM"]
    # glibc 2.36; the wheel needs 2.34.
    assert re.fullmatch(r"docker\.io/library/python:\$\{PYTHON\}-slim-bookworm", base)
    assert found["COPY"] == ["dist/mpscnn-*.whl /wheels/"]
    assert '"$wheel[serve]"' in found["RUN"][0]
    (user,) = found["USER"]
    assert int(user) > 0
    assert f"--uid {user} " in found["RUN"][1]
    ports = [str(port) for port in json.loads(found["ENTRYPOINT"][0]) if port.isdigit()]
    assert found["EXPOSE"] == [" ".join(ports)]
    lines = list(found)
    assert lines.index("RUN") < lines.index("USER") < lines.index("ENTRYPOINT")


def test_commands_of_the_container_file(model: Path) -> None:
    """Its command serves a model, and its health check succeeds until the server ends."""
    for package in ("uvicorn", "httptools", "starlette", "prometheus_client", "typer", "rich", "grpc"):
        pytest.importorskip(package)
    found = instructions()
    command = [*json.loads(found["ENTRYPOINT"][0]), *json.loads(found["CMD"][0])]
    assert command[0] == "mpscnn"
    replaced = {"/models/model.mpscnn": str(model), "8080": "0", "8081": "0", "0.0.0.0": "127.0.0.1"}
    assert set(replaced) <= set(command)
    arguments = [sys.executable, "-m", "mpscnn", *(replaced.get(one, one) for one in command[1:])]
    check = json.loads(found["HEALTHCHECK"][0].partition("CMD ")[2])
    assert check[:2] == ["python", "-c"]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+) and grpc://", line)
        assert port, line
        health = [sys.executable, "-c", check[2].replace(":8080/", f":{port[1]}/")]
        assert health[2] != check[2]
        assert subprocess.run(health, capture_output=True, timeout=30, check=False).returncode == 0
        process.terminate()
        assert process.wait(30) == 0
        assert subprocess.run(health, capture_output=True, timeout=30, check=False).returncode != 0
    finally:
        process.kill()
        process.communicate()

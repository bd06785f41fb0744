# SPDX-License-Identifier: Apache-2.0
"""A network in Triton's Python backend: NAME/1/model.py of a model repository, beside NAME/1/model.mpscnn.

make_repository.py makes such a folder, with the configuration (NAME/config.pbtxt). Requests that Triton passes together
are computed in one call if their shapes are equal, otherwise in one call for each shape.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

import mpscnn


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        threads = config.get("parameters", {}).get("threads", {}).get("string_value")
        if threads:
            mpscnn.set_num_threads(int(threads))
        path = Path(args["model_repository"]) / args["model_version"] / "model.mpscnn"
        is_gpu = args["model_instance_kind"] == "GPU"
        device = mpscnn.Device(f"cuda:{args['model_instance_device_id']}") if is_gpu else None
        self.network = mpscnn.load(path, device=device)
        self.inputs = list(self.network.inputs)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return a response for each request."""
        responses: list[Any] = [None] * len(requests)
        by_shape: dict[Any, list[int]] = {}
        arrays = []
        for i, request in enumerate(requests):
            given = {name: pb_utils.get_input_tensor_by_name(request, name) for name in self.inputs}
            missing = [name for name, tensor in given.items() if tensor is None]
            if missing:
                arrays.append({})
                responses[i] = _error(f"no data is given for {', '.join(missing)}.")
                continue
            arrays.append({name: tensor.as_numpy() for name, tensor in given.items()})
            shapes = tuple((array.dtype, array.shape[1:]) for array in arrays[i].values())
            by_shape.setdefault(shapes, []).append(i)
        for together in by_shape.values():
            try:
                results = self._compute([arrays[i] for i in together])
            except (ValueError, TypeError, RuntimeError, MemoryError) as error:
                results = [error] * len(together)
            for i, result in zip(together, results, strict=True):
                is_error = isinstance(result, Exception)
                responses[i] = _error(str(result)) if is_error else _response(requests[i], result)
        return responses

    def _compute(self, requests: list[dict[str, np.ndarray]]) -> list[Any]:
        """Compute requests of equal shapes in one call; return the outputs of each."""
        rows = [len(next(iter(arrays.values()))) for arrays in requests]
        if len(requests) == 1:
            batch = requests[0]
        else:
            batch = {name: np.concatenate([arrays[name] for arrays in requests]) for name in self.inputs}
        found = self.network(**batch)
        outputs = dict(zip(self.network.outputs, found if isinstance(found, tuple) else (found,), strict=True))
        ends = np.cumsum(rows)
        return [
            {name: np.asarray(array)[end - count : end] for name, array in outputs.items()}
            for count, end in zip(rows, ends, strict=True)
        ]


def _response(request: Any, outputs: dict[str, np.ndarray]) -> Any:
    requested = request.requested_output_names()
    return pb_utils.InferenceResponse(
        output_tensors=[pb_utils.Tensor(name, array) for name, array in outputs.items() if name in requested]
    )


def _error(message: str) -> Any:
    return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(message))

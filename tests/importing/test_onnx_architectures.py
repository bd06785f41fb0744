# SPDX-License-Identifier: Apache-2.0
"""Known networks exported to ONNX, against onnxruntime and PyTorch, at other sizes and batches than exported."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx_support import assert_same, reference

import mpscnn
from architectures import build_small, example
from mpscnn.importing import onnx as importer

# Opset, and whether heights and widths are free. The other sizes must be possible for the network.
ROWS = [
    ("resnet18", 13, True),
    ("resnet50", 9, False),
    ("mobilenet_v2", 11, True),
    ("vgg11_bn", 13, False),
    ("squeezenet1_1", 10, True),
    pytest.param("densenet121", 17, True, marks=pytest.mark.slow),
    pytest.param("inception_v3", 16, False, marks=pytest.mark.slow),
    ("unet", 11, True),
    ("yolo_tiny", 12, True),
    ("espcn", 15, True),
    ("style_transfer", 17, True),
]


def exported(module: torch.nn.Module, x: torch.Tensor, opset: int, free: bool) -> onnx.ModelProto:
    file = io.BytesIO()
    axes = {0: "n", 2: "h", 3: "w"} if free else {0: "n"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (x,), file, input_names=["x"], opset_version=opset, dynamo=False, dynamic_axes={"x": axes}
        )
    return onnx.load_model_from_string(file.getvalue())


@pytest.mark.parametrize(("name", "opset", "free"), ROWS)
def test_known_networks(name, opset, free):
    module = build_small(name)
    x = example(name, size=(224, 224) if name == "vgg11_bn" else None)  # averages need windows of whole pixels
    proto = exported(module, x, opset, free)
    graph = importer.read(proto, input_shapes={"x": tuple(x.shape)})
    assert bool(graph.inputs["x"].fixed_by) == (name == "vgg11_bn")
    networks = [mpscnn.Network(graph), mpscnn.Network(graph, optimize=False)]
    sizes = [(2, *x.shape[1:]), (1, x.shape[1], 96, 64)][: 1 + free]
    for size in sizes:
        feed = np.random.default_rng(3).standard_normal(size).astype(np.float32)
        with torch.no_grad():
            results = module(torch.from_numpy(feed))
        results = [r.numpy() for r in (results if isinstance(results, tuple) else (results,))]
        expected = reference(proto, {"x": feed})
        for network in networks:
            found = network(feed)
            found = [found] if isinstance(found, np.ndarray) else list(found)
            for one, ours, theirs in zip(found, expected, results, strict=True):
                assert_same(one, ours, 1e-3)
                assert_same(one, theirs, 1e-3)

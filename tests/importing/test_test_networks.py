# SPDX-License-Identifier: Apache-2.0
"""Checks on the networks used by tests of importers."""

from __future__ import annotations

import pytest
import torch

from architectures import ARCHITECTURES, NAMES, build, build_small, example

# Published by torchvision with its weights ("num_params" of each model).
PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnext50_32x4d": 25_028_904,
    "wide_resnet50_2": 68_883_240,
    "mobilenet_v2": 3_504_872,
    "vgg11": 132_863_336,
    "vgg13": 133_047_848,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "vgg11_bn": 132_868_840,
    "vgg13_bn": 133_053_736,
    "vgg16_bn": 138_365_992,
    "vgg19_bn": 143_678_248,
    "squeezenet1_0": 1_248_424,
    "squeezenet1_1": 1_235_496,
    "densenet121": 7_978_856,
    "inception_v3": 27_161_264
    - 3_326_696,  # the auxiliary classifier: 98,304 + 2 * 128 + 2,457,600 + 2 * 768 + 769,000
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_as_many_parameters_as_published(name: str) -> None:
    with torch.device("meta"):
        module = ARCHITECTURES[name].make()
    assert sum(parameter.numel() for parameter in module.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", NAMES)
def test_activations_stay_in_range(name: str) -> None:
    module = build_small(name)
    assert not module.training
    with torch.no_grad():
        results = module(example(name, seed=1, batch=2))
    for result in results if isinstance(results, tuple) else (results,):
        assert result.isfinite().all()
        assert 0.2 < float(result.square().mean().sqrt()) < 5
        assert float(result.std()) > 0.05
        assert float((result[0] - result[1]).std()) > 0.02  # other inputs give other results


def test_weights_are_seeded() -> None:
    first, again, other = (build_small("mobilenet_v2", seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["features.0.0.weight"], other["features.0.0.weight"])
    assert not torch.equal(first["features.0.1.running_var"], other["features.0.1.running_var"])


def test_another_name() -> None:
    with pytest.raises(KeyError):
        build("resnet19")

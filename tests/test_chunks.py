# SPDX-License-Identifier: Apache-2.0
"""Batches that one MPSImage cannot hold, on a device whose images have at most 2048 slices, like Apple's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import APPLE

TESTS = Path(__file__).parent
FILES = ("test_batches.py", "test_gradient_in_parts.py", "test_crops_in_parts.py", "training/test_training_parts.py")


@pytest.mark.skipif(APPLE or sys.platform == "darwin", reason="this device has the limit: the files run as they are")
@pytest.mark.parametrize("name", [*FILES, "network/test_network.py"])
def test_with_the_limit(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / name)]
    environment = os.environ | {"MPSCNN_DEVICE": "apple"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS.parent, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^\d+ passed", result.stdout, re.MULTILINE)
    assert "any number of slices" not in result.stdout

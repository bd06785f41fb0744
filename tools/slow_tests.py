#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/slow.txt, the tests that `make check` skips, from the times of all tests on a quiet machine.

    make test ARGS=--junitxml=build/tests.xml && tools/slow_tests.py build/tests.xml

A test is slow if the cases that `make check` would run take at least LIMIT seconds each on average.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
LIMIT = 0.25
QUICK_CASES = 3  # as in tests/conftest.py


def main(report: str, limit: float) -> None:
    seconds = defaultdict(list)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        file = case.get("classname", "").replace(".", "/") + ".py"
        seconds[f"{file}::{case.get('name', '').partition('[')[0]}"].append(float(case.get("time", 0)))
    slow = []
    for test, cases in seconds.items():
        n = min(QUICK_CASES, len(cases))
        if sum(cases[i * len(cases) // n] for i in range(n)) >= limit * n:
            slow.append(test)
    (TESTS / "slow.txt").write_text("".join(f"{test}\n" for test in sorted(slow)))
    print(f"{len(slow)} of {len(seconds)} tests are slow")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else LIMIT)

# SPDX-License-Identifier: Apache-2.0
"""Rows of problems: one file for each family, which programs run on any engine."""

ONLY_CPU = frozenset({"engine_quantized"})
"""Families of problems that plans of other engines do not have."""

# SPDX-License-Identifier: Apache-2.0
"""Importers from other frameworks to a Graph. Each reader is imported on first use."""

from ..loading import read

__all__ = ["read"]

# SPDX-License-Identifier: Apache-2.0
"""Importers of models of other frameworks as a Graph. Each reader is imported on first use."""

from ..loading import read

__all__ = ["read"]

# SPDX-License-Identifier: Apache-2.0
"""From models of other frameworks to a Graph. Each reader is imported when it is first asked for."""

from ..loading import read

__all__ = ["read"]

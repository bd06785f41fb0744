# SPDX-License-Identifier: Apache-2.0
"""Compiler and linker flags for Objective-C and Objective-C++ programs: ``python -m mpscnn.config``.

On Linux the package contains ``libopenmps.so`` and its headers. The flags printed here compile and link a program
written for Apple's Metal Performance Shaders::

    clang++-19 $(python -m mpscnn.config --objcflags) program.mm -o program $(python -m mpscnn.config --libs)

With ``-include openmps/compat.h`` before the program's name it also finds macros and functions that macOS provides
without an ``#include``. On macOS the flags name Apple's frameworks. The extension module is not imported.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["cflags", "compat_dir", "config", "include_dir", "lib_dir", "libs", "objcflags"]

# No resolve(): in a build folder this file is a link into the sources, and the libraries are beside the link.
_PACKAGE = Path(__file__).parent.absolute()
_RUNTIME_FLAGS = (
    "-fobjc-runtime=gcc",
    "-fblocks",
    "-fobjc-exceptions",
    "-fexceptions",
    "-fconstant-string-class=NSConstantString",
    "-DGNUSTEP",
    "-DGNUSTEP_BASE_LIBRARY=1",
    "-D_NATIVE_OBJC_EXCEPTIONS=1",
)


def _is_macos() -> bool:
    return sys.platform == "darwin"


def include_dir() -> Path | None:
    """Return the folder of ``<Metal/...>`` and ``<MetalPerformanceShaders/...>``; None on macOS, which has Apple's."""
    return None if _is_macos() else _PACKAGE / "openmps" / "include"


def compat_dir() -> Path | None:
    """Return the folder of ``<openmps/compat.h>`` and of other macOS headers that Linux lacks; None on macOS."""
    return None if _is_macos() else _PACKAGE / "openmps" / "compat"


def lib_dir() -> Path | None:
    """Return the folder of ``libopenmps.so``; None on macOS."""
    return None if _is_macos() else _PACKAGE / "openmps" / "lib"


def _runtime_library(name: str) -> str:
    """Return ``-l<name>``, or the path of the copy in the wheel, because a process must not load both."""
    bundled = sorted((_PACKAGE.parent / "mpscnn.libs").glob(f"lib{name}-*.so*"))
    return str(bundled[0]) if bundled else f"-l{name}"


def _gcc_dir() -> Path:
    """Return the newest GCC folder of this machine's architecture with ``include/objc/objc.h``."""

    def version(header: Path) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", header.parents[2].name))

    headers = Path("/usr/lib/gcc").glob(f"{platform.machine()}-*/*/include/objc/objc.h")
    newest = max(headers, key=version, default=None)
    if newest is None:
        raise FileNotFoundError(
            "GCC's <objc/objc.h> is in no folder /usr/lib/gcc/*/*/include (Debian 12: apt-get install libobjc-12-dev)."
        )
    return newest.parents[2]


def cflags() -> list[str]:
    """Return the preprocessor flags, with the folders of the headers.

    Raises
    ------
    FileNotFoundError
        On Linux, if the headers of GCC's Objective-C runtime are not installed.
    """
    if _is_macos():
        return []
    # -idirafter: the system's headers, such as libdispatch's, take precedence over those of compat_dir(), and clang's
    # <stddef.h> and intrinsics over GCC's.
    folders = (str(compat_dir()), str(_gcc_dir() / "include"))
    last = [flag for folder in folders for flag in ("-idirafter", folder)]
    return [f"-I{include_dir()}", "-isystem", "/usr/include/GNUstep", *last]


def objcflags() -> list[str]:
    """Return the flags for compiling Objective-C and Objective-C++: ``cflags()`` and those of the runtime.

    Raises
    ------
    FileNotFoundError
        On Linux, if the headers of GCC's Objective-C runtime are not installed.
    """
    if _is_macos():
        return ["-fno-objc-arc"]
    return [*_RUNTIME_FLAGS, *cflags()]


def libs() -> list[str]:
    """Return the linker flags, including an rpath to the present folders of the libraries.

    Raises
    ------
    FileNotFoundError
        On Linux, if GCC's Objective-C runtime is not installed.
    """
    if _is_macos():
        # CoreGraphics: without it there may be no default device [Apple's documentation, MTLCreateSystemDefaultDevice].
        frameworks = ("Foundation", "Metal", "MetalPerformanceShaders", "CoreGraphics")
        return [flag for framework in frameworks for flag in ("-framework", framework)]
    folders = [
        folder for folder in (lib_dir(), _PACKAGE.parent / "mpscnn.libs") if folder is not None and folder.exists()
    ]
    return [
        *(f"-L{folder}" for folder in (*folders, _gcc_dir())),
        *(f"-Wl,-rpath,{folder}" for folder in folders),
        "-Wl,--no-as-needed",  # classes may be looked up by name only
        "-lopenmps",
        *(_runtime_library(name) for name in ("BlocksRuntime", "gnustep-base", "objc")),
    ]


def config() -> dict[str, object]:
    """Return all values that ``--json`` prints."""
    return {
        "platform": sys.platform,
        "include_dir": None if include_dir() is None else str(include_dir()),
        "compat_dir": None if compat_dir() is None else str(compat_dir()),
        "lib_dir": None if lib_dir() is None else str(lib_dir()),
        "compiler": "clang++" if _is_macos() else "clang++-19",
        "cflags": cflags(),
        "objcflags": objcflags(),
        "libs": libs(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``python -m mpscnn.config`` and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m mpscnn.config",
        description="Print the flags that build an Objective-C or Objective-C++ program against mpscnn's libraries.",
    )
    parser.add_argument("--objcflags", action="store_true", help="flags for compiling Objective-C(++)")
    parser.add_argument("--cflags", action="store_true", help="where the headers are, without the runtime's flags")
    parser.add_argument("--libs", action="store_true", help="flags for linking")
    parser.add_argument("--json", action="store_true", help="all of it, as JSON")
    chosen = parser.parse_args(arguments)

    if not (chosen.objcflags or chosen.cflags or chosen.libs or chosen.json):
        parser.error("one of --objcflags, --cflags, --libs, --json is needed")
    try:
        if chosen.json:
            print(json.dumps(config(), indent=2))
        flags: list[str] = []
        flags += objcflags() if chosen.objcflags else cflags() if chosen.cflags else []
        flags += libs() if chosen.libs else []
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    if flags:
        print(shlex.join(flags))
    return 0


if __name__ == "__main__":
    sys.exit(main())

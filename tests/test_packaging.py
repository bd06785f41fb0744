# SPDX-License-Identifier: Apache-2.0
"""The installed package: building against it, exported symbols, import time."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import mpscnn
from mpscnn import config
from support import SANITIZED

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(mpscnn.__file__).parent
ordinary_build = pytest.mark.skipif(SANITIZED, reason="a sanitized library needs the runtime and exports its names")

on_linux = pytest.mark.skipif(sys.platform == "darwin", reason="openmps is Linux only")


def run(*command: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, env=env, timeout=300)


def without_preload() -> dict[str, str]:
    """Return the environment without a sanitizer's runtime, for other programs."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


# ------------------------------------------------------------------------------------------ python -m mpscnn.config


def test_config_needs_neither_the_extension_nor_other_packages():
    result = run(sys.executable, "-I", "-S", PACKAGE / "config.py", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == config.config()


def test_config_module_prints_shell_words():
    result = run(sys.executable, "-m", "mpscnn.config", "--objcflags", "--libs")
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [*config.objcflags(), *config.libs()]


def test_config_without_an_option_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as error:
        config.main([])
    assert error.value.code == 2
    assert "--objcflags" in capsys.readouterr().err


@on_linux
def test_config_names_existing_paths():
    include, lib = config.include_dir(), config.lib_dir()
    assert include is not None
    assert lib is not None
    assert (include / "Metal" / "Metal.h").is_file()
    assert (include / "MetalPerformanceShaders" / "MetalPerformanceShaders.h").is_file()
    compat = config.compat_dir()
    assert compat is not None
    assert (compat / "openmps" / "compat.h").is_file()
    assert (lib / "libopenmps.so").is_file()
    assert list(lib.glob("libdnnl.so.*"))


def test_config_on_macos_names_the_frameworks_that_cmake_links(monkeypatch):
    monkeypatch.setattr(config.sys, "platform", "darwin")
    assert (config.include_dir(), config.compat_dir(), config.lib_dir(), config.cflags()) == (None, None, None, [])
    linked = re.findall(r"find_library\(MPSCNN_\w+ (\w+) REQUIRED\)", (ROOT / "cmake" / "ObjCXX.cmake").read_text())
    assert set(config.libs()) == {"-framework", *linked}
    assert "CoreGraphics" in linked


@on_linux
def test_config_without_gccs_objc_headers_names_the_package(monkeypatch, capsys):
    monkeypatch.setattr(config.platform, "machine", lambda: "no-such-machine")
    assert config.main(["--objcflags"]) == 1
    assert "libobjc-12-dev" in capsys.readouterr().err


@on_linux
@ordinary_build
def test_what_the_build_misses_is_said_before_anything_is_compiled(tmp_path):
    cmake = Path(sys.executable).parent / "cmake"
    if not cmake.exists():
        pytest.skip(f"{cmake} is not there: the dependency group build is not installed")
    absent = ("-DMPSCNN_CLANGXX=", "-DMPSCNN_BLOCKS_RUNTIME=")
    result = run(cmake, "-S", ROOT, "-B", tmp_path, f"-DPython_EXECUTABLE={sys.executable}", *absent)
    assert result.returncode != 0
    assert "Debian packages are missing: apt-get install clang-19 libblocksruntime-dev\n" in result.stderr


@ordinary_build
def test_objective_c_example_builds_with_these_flags_and_runs(tmp_path):
    compiler = shutil.which("clang++" if sys.platform == "darwin" else "clang++-19") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no clang++ here")
    program = tmp_path / "convolution"
    source = ROOT / "examples" / "objc" / "convolution.mm"
    # The printed words, as passed by a shell.
    compiled = run(
        compiler, "-Wall", "-Wextra", "-Werror", *config.objcflags(), source, "-o", program, *config.libs(),
        env=without_preload(),
    )  # fmt: skip
    assert compiled.returncode == 0, compiled.stderr
    result = run(program)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "autorelease called without pool" not in result.stderr
    assert len(result.stdout.splitlines()) == 5  # four rows of pixels and the result of the check
    assert "max difference from plain loops" in result.stdout


# ------------------------------------------------------------------------------------------------- the binaries


def exported(library: Path) -> set[str]:
    result = run("nm", "-D", "--defined-only", library)
    assert result.returncode == 0, result.stderr
    return {line.split()[-1].split("@")[0] for line in result.stdout.splitlines() if line}


@ordinary_build
@on_linux
def test_extension_exports_nothing_but_its_entry_point():
    (extension,) = PACKAGE.glob("_core*.so")
    # Every Objective-C object exports the compiler's own names for classes and selectors.
    names = {name for name in exported(extension) if not re.match(r"[._]*objc_", name, re.IGNORECASE)}
    # Every C++ object exports inline templates of the standard library, which is harmless.
    ours = {name for name in names if "mpscnn" in name or not name.startswith("_Z")}
    assert ours - {"_init", "_fini", "_edata", "_end", "__bss_start"} == {"PyInit__core"}


@on_linux
def test_openmps_exports_no_cpp():
    """Neither its own functions nor templates, which other libraries could bind to."""
    library = config.lib_dir()
    assert library is not None
    names = exported(library / "libopenmps.so")
    assert names
    assert not [name for name in names if name.startswith("_Z")]


@on_linux
def test_gnu_openmp_is_neither_needed_nor_loaded():
    """oneDNN is linked without it; our functions replace it (cmake/OneDNN.cmake)."""
    (onednn,) = (PACKAGE / "openmps" / "lib").glob("libdnnl.so.*")
    dynamic = run("readelf", "-W", "-d", "-V", onednn).stdout
    assert "libstdc++.so.6" in dynamic
    assert "libgomp" not in dynamic
    program = """
        import numpy, mpscnn
        x, weight = numpy.ones((1, 9, 9, 8), numpy.float32), numpy.ones((8, 8, 3, 3), numpy.float32)
        mpscnn.Convolution(weight, layout="OIHW")(x)
        print("libdnnl" in open("/proc/self/maps").read(), "libgomp" in open("/proc/self/maps").read())
    """
    assert run(sys.executable, "-c", textwrap.dedent(program)).stdout == "True False\n"


@on_linux
def test_a_library_whose_versions_are_used_is_not_dropped(tmp_path):
    (onednn,) = (PACKAGE / "openmps" / "lib").glob("libdnnl.so.*")
    shutil.copy(onednn, tmp_path)
    before = (tmp_path / onednn.name).read_bytes()
    result = run(sys.executable, ROOT / "cmake" / "trim_library.py", tmp_path / onednn.name, "libm.so.6")
    assert result.returncode == 1
    assert re.search(r"ValueError: A symbol still has the version GLIBC_2\.\S+ of libm\.so\.6\.", result.stderr)
    assert (tmp_path / onednn.name).read_bytes() == before


@on_linux
def test_exceptions_pass_through_a_library_without_an_unwinding_index(tmp_path):
    """As with oneDNN: exceptions thrown below it are caught above it, and objects in its frames are destroyed."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    (tmp_path / "library.cpp").write_text(
        "struct Count { int& n; ~Count() { ++n; } };\n"
        "void through(void (*call)(), int& destroyed) { Count count{destroyed}; call(); }\n"
    )
    (tmp_path / "program.cpp").write_text(
        "#include <stdexcept>\nvoid through(void (*)(), int&);\n"
        'void fail() { throw std::runtime_error("thrown"); }\n'
        "int main() {\n  int n = 0;\n  try { through(fail, n); } catch (const std::runtime_error&) { return n - 1; }\n"
        "  return 2;\n}\n"
    )
    library, program = tmp_path / "library.so", tmp_path / "program"
    for command in (
        ["g++", "-O2", "-shared", "-fPIC", tmp_path / "library.cpp", "-o", library],
        ["g++", tmp_path / "program.cpp", library, f"-Wl,-rpath,{tmp_path}", "-o", program],
        [sys.executable, ROOT / "cmake" / "trim_library.py", library, "libgomp.so.1"],
    ):
        result = run(*command, env=without_preload())
        assert result.returncode == 0, result.stderr
    header = run("readelf", "-W", "-x", ".eh_frame_hdr", library).stdout
    assert re.search(r"011bffff \w{8} 0{8} 0{8}", header), header
    assert run(program, env=without_preload()).returncode == 0


@ordinary_build
@on_linux
def test_binaries_ask_for_no_newer_libstdcxx_than_gcc_11s():
    """csrc/common/libstdcxx_11.cpp; wheels are tagged manylinux_2_34."""
    for binary in (*PACKAGE.glob("_core*.so"), PACKAGE / "openmps" / "lib" / "libopenmps.so"):
        versions = re.findall(r"Name: GLIBCXX_3\.4\.(\d+)", run("readelf", "-W", "-V", binary).stdout)
        assert versions
        assert max(map(int, versions)) <= 29, binary


@on_linux
def test_openmps_exports_apples_names():
    names = exported(PACKAGE / "openmps" / "lib" / "libopenmps.so")
    assert {"MTLCreateSystemDefaultDevice", "MPSSupportsMTLDevice"} <= names
    classes = {name for name in names if "MPSCNNConvolution" in name}
    assert any(name.endswith("_MPSCNNConvolution") for name in classes), sorted(classes)


@on_linux
def test_libraries_are_found_relative_to_the_package():
    (extension,) = PACKAGE.glob("_core*.so")
    for library in (extension, PACKAGE / "openmps" / "lib" / "libopenmps.so"):
        dynamic = run("readelf", "-d", library).stdout
        paths = re.findall(r"(?:RPATH|RUNPATH)\)\s+Library r(?:un)?path: \[(.*)\]", dynamic)
        assert paths, f"{library.name} has no run path"
        for path in paths[0].split(":"):
            assert path.startswith("$ORIGIN"), f"{library.name} looks in {path}"


# ---------------------------------------------------------------------------------------------------- the package


def test_version_stands_in_one_place():
    line = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert line is not None
    assert mpscnn.__version__ == line[1]
    if PACKAGE.parent.name == "site-packages":
        assert importlib.metadata.version("mpscnn") == line[1]


def test_package_is_typed():
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.skipif(SANITIZED, reason="a sanitized build is slow on purpose")
def test_import_takes_less_than_that_of_numpy():
    """Processor time of the importing thread: the clock includes other programs, and NumPy's threads spin. A ratio,
    because processors, and those beside busy neighbours, differ by 2; it is 0.35 to 0.7. Half of it is the dynamic
    linker's, whose share has grown from 0.4 to 0.6 on one machine within a day, for old libraries as for new ones.
    """
    program = """
from time import thread_time
begin = thread_time()
import numpy
middle = thread_time()
import mpscnn
print((thread_time() - middle) / (middle - begin))
"""
    ratios = [float(run(sys.executable, "-c", program).stdout) for _ in range(7)]
    assert min(ratios) < 0.8, f"the fastest of 7 imports took {min(ratios):.2f} of the time of NumPy's"


def test_import_reads_what_kernels_need_and_no_more():
    """Networks and readers of models are imported on first use."""
    program = "import numpy, sys; before = set(sys.modules); import mpscnn; print(*sorted(set(sys.modules) - before))"
    modules = {name for name in run(sys.executable, "-c", program).stdout.split() if name.startswith("mpscnn.")}
    kernels = {
        "_checks",
        "_core",
        "_docs",
        "_interrupts",
        "_public",
        "buffer",
        "data_source",
        "descriptors",
        "device",
        "device_array",
    }
    kernels |= {"image", "kernels", "matrix", "padding_policy", "states", "weights"}
    assert modules == {f"mpscnn.{name}" for name in kernels}


@pytest.mark.parametrize("name", sorted(mpscnn._LAZY))
def test_what_is_imported_later_is_there_from_the_beginning(name):
    program = f"import mpscnn, sys; assert '{name}' in dir(mpscnn); mpscnn.{name}; print('torch' in sys.modules)"
    result = run(sys.executable, "-c", program)
    assert (result.stdout, result.stderr) == ("False\n", "")


@pytest.mark.parametrize("supported", [True, False])
def test_smoke_test_of_wheels_computes_where_the_device_can(supported):
    replaced = """
        class Device:
            name, is_supported = "virtual", False
        mpscnn.Device, mpscnn.Convolution = Device, None
    """
    program = (
        f"import mpscnn, runpy, sys\n{'' if supported else textwrap.dedent(replaced)}\nrunpy.run_path(sys.argv[1])"
    )
    # Skip check_libraries(): this package loads the system's GNUstep, a wheel its own.
    program = "from pathlib import Path; Path.exists = lambda path: False\n" + program
    result = run(sys.executable, "-c", program, ROOT / "tests" / "wheel_smoke.py")
    assert result.returncode == 0, result.stderr
    assert ("convolution: " in result.stdout) == supported
    assert ("virtual has no Metal Performance Shaders: nothing was computed." in result.stdout) != supported


def test_dir_has_the_documented_names_alone():
    """The names of __all__ and the modules of the reference, also after other imports; each exists."""
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    named = set(re.findall(r"^::: mpscnn\.(\w+)", pages, re.MULTILINE))
    modules = {name for name in named if (PACKAGE / f"{name}.py").is_file() or (PACKAGE / name).is_dir()}
    program = "import mpscnn; names = dir(mpscnn); import mpscnn.loading, mpscnn.benchmarking, mpscnn.training.step"
    check = "assert dir(mpscnn) == names; assert all(hasattr(mpscnn, name) for name in names); print(*names)"
    result = run(sys.executable, "-c", f"{program}; {check}")
    assert result.stderr == ""
    assert result.stdout.split() == sorted({*mpscnn.__all__, *modules})
    assert {"layers", "memory", "training"} <= modules


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'mpscnn' has no attribute 'Netwrok'"):
        mpscnn.Netwrok  # noqa: B018


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_macos_check_refuses_a_folder_that_is_no_sdk(tmp_path):
    result = run(ROOT / "tools" / "check_macos.sh", tmp_path)
    assert result.returncode == 2
    assert "Foundation.framework" in result.stderr


def test_groups_are_as_the_extras_of_the_same_name():
    """Extras `mpscnn[name]` and dependency groups of the make targets are equal."""
    text = (ROOT / "pyproject.toml").read_text()
    tables = ("project.optional-dependencies", "dependency-groups")
    extras, groups = (text.partition(f"\n[{table}]\n")[2].partition("\n[")[0] for table in tables)
    for name in ("cli", "serve", "train"):
        of_each = [re.search(rf"^{name} = (\[.*\])$", table, re.MULTILINE) for table in (extras, groups)]
        assert of_each[0] is not None
        assert of_each[1] is not None
        assert of_each[0][1] == of_each[1][1], name


def test_packages_named_in_messages_exist():
    """mpscnn is on no package index: messages name the packages themselves, as pip and our extras do."""
    known = set(re.findall(r'"([A-Za-z][\w.-]*)\[?[>=<"]', (ROOT / "pyproject.toml").read_text()))
    missing = []
    for folder in ("python", "examples", "docs", "tools", "bench", "csrc"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix not in (".py", ".md", ".cpp", ".mm") or "build" in file.parts:
                continue
            text = file.read_text()
            where = file.relative_to(ROOT)
            assert not re.search(r"install [\"']?mpscnn\b", text), where
            if folder == "python":
                for call in re.findall(r"MissingPackageError\((.*?)\) from", text, re.DOTALL):
                    missing.append(re.findall(r'"([\w.-]+)"', call)[-1])
    assert not re.search(r"install [\"']?mpscnn\b", (ROOT / "README.md").read_text())
    assert len(missing) > 8
    assert set(missing) <= known

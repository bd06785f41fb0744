#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Make dist/mpscnn-*.whl: build with pip, bundle all libraries (auditwheel), check (tools/check_wheel.py), then try it
# in a new environment without compiler and GNUstep.
#   tools/make_wheel.sh VENV PYTHON
set -eu -o pipefail

venv=$1 python=$2
work=build/wheel
rm -rf "$work" && mkdir -p "$work/raw" dist
rm -f dist/mpscnn-*.whl

if [ "$(uname -s)" = Darwin ]; then
    "$venv/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation -Cbuild-dir=build/release -w dist .
    "$venv/bin/python" tools/check_wheel.py dist/mpscnn-*.whl
else
    foundation=$(tools/make_foundation.sh build/foundation)
    "$venv/bin/python" tools/bundle.py "$foundation" "$work/bundle"
    echo "== building the wheel"
    # CMake's cache of build/release may have the options of a build for tests.
    "$venv/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation -Cbuild-dir=build/release "-Cbuild.targets=_core;package" \
        -Ccmake.define.MPSCNN_CUDA_HOST=OFF -Ccmake.define.MPSCNN_BUNDLE="$PWD/$work/bundle" -w "$work/raw" .
    tools/repair_wheel.sh "$venv/bin" "$foundation" "$work"/raw/*.whl dist
fi

echo "== trying it out"
wheel=$(ls dist/mpscnn-*.whl)
rm -rf "$work/venv"
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet "$wheel"
cp tests/wheel_smoke.py "$work/"
# LD_BIND_NOW: resolve all functions that a library calls, also those that the programs below do not call.
try() { (cd "$work" && env -i PATH="$PWD/venv/bin" HOME="$PWD" LANG=C.UTF-8 LD_BIND_NOW=1 venv/bin/python "$@"); }
try wheel_smoke.py
"$work/venv/bin/python" -m pip install --quiet "$wheel[demo]"
cp -r examples "$work/"
try examples/upscale.py --images 20

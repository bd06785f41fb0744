#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Check the macOS package without a Mac, with the caller's macOS SDK: the core, the bindings and the Objective-C example
# compile for arm64-apple-macos13, CMake configures its macOS branch, and the extension links against the SDK's stubs.
#   tools/check_macos.sh SDK [PYTHON]
# SDK has Apple's layout (usr/include, usr/lib, System/Library/Frameworks) or a flat one (include, lib, Frameworks). It
# must contain Foundation and Metal; without MPS headers ours are used, and nothing is linked. PYTHON needs pybind11, and
# CMake and Ninja in its folder. Prints each file that fails or warns, then a table; fails if any step failed.
set -u

sdk=$(cd "${1:-/nonexistent}" 2>/dev/null && pwd)
python=$(command -v "${2:-python3}")
include=$sdk/usr/include lib=$sdk/usr/lib frameworks=$sdk/System/Library/Frameworks
[ -e "$frameworks" ] || { include=$sdk/include lib=$sdk/lib frameworks=$sdk/Frameworks; }
if [ -z "$sdk" ] || [ ! -e "$frameworks/Foundation.framework" ] || [ ! -e "$frameworks/Metal.framework" ]; then
    echo "The SDK folder (${1:-}) has no Frameworks/Foundation.framework and Frameworks/Metal.framework." >&2
    exit 2
fi
[ -n "$python" ] && python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
cd "$(dirname "$0")/.." || exit 2
clang=$(command -v clang++-19 || command -v clang++) || { echo "clang++ is missing (Debian 12: apt-get install clang-19)." >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mps=$frameworks/MetalPerformanceShaders.framework
stands_in=
mkdir "$work/ours"
if [ ! -e "$mps" ]; then
    # Only the MPS folders: <Metal/...> must be the SDK's. Our MPS headers import one of our Metal headers. Only its
    # macros are needed: the types are the SDK's.
    for folder in csrc/openmps/include/MPS* csrc/openmps/include/MetalPerformanceShaders; do
        ln -s "$PWD/$folder" "$work/ours/"
    done
    mkdir "$work/ours/Metal"
    {
        echo '#pragma once'
        echo '#import <CoreGraphics/CoreGraphics.h>'
        echo '#import <Foundation/Foundation.h>'
        grep -E '^#(define|ifdef|else|endif)' csrc/openmps/include/Metal/OpenMPSSupport.h
        [ -e "$include/simd/vector_types.h" ] && echo '#include <simd/vector_types.h>' ||
            grep 'ext_vector_type' csrc/openmps/include/Metal/OpenMPSSupport.h
    } >"$work/ours/Metal/OpenMPSSupport.h"
    stands_in=", MPS headers: ours"
fi

flags=(
    -target arm64-apple-macos13 -fno-objc-arc -std=c++20 -fobjc-exceptions -fexceptions -O0
    -nostdinc++ -nostdlibinc -isystem "$include/c++/v1" -isystem "$include" -iframework "$frameworks"
    -isystem "$work/ours" -Icsrc/include -Icsrc/table -Icsrc
    -fvisibility=hidden -fvisibility-inlines-hidden
    -Wall -Wextra -Wno-missing-designated-field-initializers -Wno-nullability-completeness
    -Wno-unused-command-line-argument
    -Werror=objc-property-implementation -Werror=incomplete-implementation -Werror=protocol -Werror=objc-missing-super-calls
    -Werror=unused-result -Werror=unguarded-availability-new
)

rows=() status=0
row() {  # STEP FILES RESULT
    rows+=("$(printf '%-10s %5s  %s' "$@")")
}

compile() {  # STEP FLAG... -- FILE...
    local step=$1 total=0 failed=0 warned=0 extra=() file output
    shift
    while [ "$1" != -- ]; do extra+=("$1"); shift; done
    shift
    mkdir -p "$work/$step"
    for file in "$@"; do
        total=$((total + 1))
        if ! output=$("$clang" "${flags[@]}" ${extra[@]+"${extra[@]}"} -c "$file" -o "$work/$step/${file//\//_}.o" 2>&1); then
            failed=$((failed + 1))
            echo "FAILED  $file"
            printf '%s\n' "$output" | grep -E -A4 'error:' | head -n 24 | sed 's/^/        /'
        elif [ -n "$output" ]; then
            warned=$((warned + 1))
            echo "warned  $file"
            printf '%s\n' "$output" | head -n 12 | sed 's/^/        /'
        fi
    done
    [ "$total" -gt 0 ] && [ "$failed" -eq 0 ] || status=1
    row "$step" "$total" "$((total - failed)) compile for arm64-apple-macos13, $warned with warnings$stands_in"
}

# shellcheck disable=SC2046  # names without spaces
compile core -- $(find csrc/core csrc/table csrc/common \( -name '*.mm' -o -name '*.cpp' \) | sort)
compile example -- examples/objc/*.mm

if pybind11=$([ -n "$python" ] && "$python" -c 'import pybind11; print(pybind11.get_include())' 2>/dev/null); then
    headers_of_python=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    compile bindings -isystem "$headers_of_python" -isystem "$pybind11" '-DMPSCNN_VERSION="0"' -- csrc/bindings/*.cpp
else
    row bindings - "not done: ${python:-python3} has no pybind11 (make .venv/stamps/group-build)"
fi

# ------------------------------------------------------------------------------------------------------- configure
cmake=$(PATH=$(dirname "${python:-/nonexistent}"):$PATH command -v cmake)
if [ -z "$pybind11" ] || [ -z "$cmake" ]; then
    row configure - "not done: it needs CMake and pybind11"
else
    cat >"$work/darwin.cmake" <<EOF
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_OSX_ARCHITECTURES arm64)
set(CMAKE_OSX_SYSROOT "$sdk")
set(CMAKE_C_COMPILER "${clang/clang++/clang}")
set(CMAKE_INSTALL_NAME_TOOL "$(command -v true)")
foreach(language IN ITEMS C CXX OBJCXX)
  set(CMAKE_\${language}_COMPILER_TARGET arm64-apple-macos)
  set(CMAKE_\${language}_COMPILER_WORKS ON)
  set(CMAKE_\${language}_ABI_COMPILED ON)
endforeach()
set(CMAKE_CXX_COMPILER "$clang")
set(CMAKE_OBJCXX_COMPILER "$clang")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_HAVE_LIBC_PTHREAD ON)  # nothing is linked here
set(CMAKE_FRAMEWORK_PATH "$frameworks")
set(CMAKE_FIND_FRAMEWORK FIRST)
EOF
    if env -u MACOSX_DEPLOYMENT_TARGET PATH="$(dirname "$python"):$PATH" "$cmake" -S . -B "$work/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$work/darwin.cmake" \
        -DPython_EXECUTABLE="$python" -DMPSCNN_BUILD_TESTS=ON -DMPSCNN_WERROR=ON ${stands_in:+-DMPSCNN_MPS="$mps"} \
        >"$work/configure.log" 2>&1; then
        commands=$work/build/compile_commands.json
        files=$(grep -c '"file":' "$commands")
        if grep -q 'csrc/openmps' "$commands"; then
            row configure "$files" "FAILED: openmps is among the files"
            status=1
        elif [ "$(grep -c -- '-mmacosx-version-min=13.0\|-macos13.0' "$commands")" -ne "$files" ]; then
            row configure "$files" "FAILED: some commands have another deployment target than 13.0"
            status=1
        else
            row configure "$files" "CMake generates the branch for macOS, for 13.0"
        fi
    else
        tail -n 24 "$work/configure.log" | sed 's/^/        /'
        row configure - "FAILED"
        status=1
    fi
fi

# ------------------------------------------------------------------------------------------------------------ link
lld=$(command -v ld64.lld-19 || command -v ld64.lld)
if [ -z "$lld" ]; then
    row link - "not done: ld64.lld is missing (Debian 12: apt-get install lld-19)"
elif [ ! -e "$mps" ] || ! ls "$lib"/libSystem*.tbd >/dev/null 2>&1; then
    row link - "not done: the SDK has no stubs (MetalPerformanceShaders.framework, libSystem.tbd)"
elif [ ! -d "$work/bindings" ]; then
    row link - "not done: there are no bindings"
elif [ "$status" -eq 0 ]; then
    # Apple's SDK re-exports libobjc and the frameworks below MPS; copies of the SDK may not.
    libraries=(-lobjc -lc++ -lSystem -L"$lib" -F"$frameworks" -F"$mps/Frameworks")
    for name in Foundation CoreFoundation Metal CoreGraphics MetalPerformanceShaders MPSCore MPSImage MPSMatrix MPSNeuralNetwork; do
        libraries+=(-framework "$name")
    done
    objects=("$work"/core/*.o "$work"/bindings/*.o)
    root=$sdk
    if [ ! -e "$sdk/usr/lib" ]; then  # stubs refer to each other by paths in Apple's SDK
        root=$work/root
        mkdir -p "$root/System/Library/Frameworks/CoreFoundation.framework/Versions" "$root/usr"
        ln -s "$frameworks/CoreFoundation.framework" "$root/System/Library/Frameworks/CoreFoundation.framework/Versions/A"
        ln -s "$lib" "$root/usr/lib"
    fi
    link=("$lld" -arch arm64 -platform_version macos 13.0 13.0 -syslibroot "$root" -bundle --error-limit=0
        "${objects[@]}" "${libraries[@]}" -o "$work/_core.so")
    # Python's symbols are in the interpreter. Link once without them, to list all undefined symbols.
    "${link[@]}" 2>&1 | sed -n 's/.*undefined symbol: //p' | sort -u >"$work/undefined"
    grep -Ev '^_?_Py' "$work/undefined" | sed 's/^/        undefined: /' >"$work/unknown"
    if ! "${link[@]}" -undefined dynamic_lookup >"$work/link.log" 2>&1 || [ -s "$work/unknown" ]; then
        head -n 24 "$work/unknown"
        grep 'error:' "$work/link.log" | head -n 12 | sed 's/^/        /'
        row link "${#objects[@]}" "FAILED"
        status=1
    else
        row link "${#objects[@]}" "the extension links; undefined are $(wc -l <"$work/undefined") names, all of Python's"
    fi
else
    row link - "not done: something before failed"
fi

echo
printf '%-10s %5s  %s\n' step files result
printf '%s\n' "${rows[@]}"
exit "$status"

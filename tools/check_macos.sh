#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compiles every file of the core, and the Objective-C example, for arm64-apple-macos13, without linking, against a macOS SDK that the caller has.
#   tools/check_macos.sh SDK
# SDK holds include/ (with c++/v1) and Frameworks/. Foundation and Metal must come from it; where it has no MPS
# headers, ours stand in. Prints one line for each file that fails, then the counts; fails if any file failed.
set -u

sdk=${1:-}
if [ -z "$sdk" ] || [ ! -e "$sdk/Frameworks/Foundation.framework" ] || [ ! -e "$sdk/Frameworks/Metal.framework" ]; then
    echo "The SDK folder ($sdk) has no Frameworks/Foundation.framework and Frameworks/Metal.framework." >&2
    exit 2
fi
cd "$(dirname "$0")/.." || exit 2
clang=$(command -v clang++-19 || command -v clang++) || { echo "clang++ is missing (Debian 12: apt-get install clang-19)." >&2; exit 2; }

ours=$(mktemp -d)
trap 'rm -rf "$ours"' EXIT
stands_in=""
if [ ! -e "$sdk/Frameworks/MetalPerformanceShaders.framework" ]; then
    # Only the MPS folders: <Metal/...> has to come from the SDK. Of the one header of ours which they import from
    # there, only the macros are wanted: the types are the SDK's own.
    for folder in csrc/openmps/include/MPS* csrc/openmps/include/MetalPerformanceShaders; do
        ln -s "$PWD/$folder" "$ours/"
    done
    mkdir "$ours/Metal"
    {
        echo '#pragma once'
        echo '#import <CoreGraphics/CoreGraphics.h>'
        echo '#import <Foundation/Foundation.h>'
        grep -E '^#(define|ifdef|else|endif)' csrc/openmps/include/Metal/OpenMPSSupport.h
        [ -e "$sdk/include/simd/vector_types.h" ] && echo '#include <simd/vector_types.h>' ||
            grep 'ext_vector_type' csrc/openmps/include/Metal/OpenMPSSupport.h
    } >"$ours/Metal/OpenMPSSupport.h"
    stands_in=" (MPS headers: ours)"
fi

flags=(
    -target arm64-apple-macos13 -fno-objc-arc -std=c++20 -fsyntax-only -fobjc-exceptions -fexceptions
    -nostdinc++ -nostdlibinc -isystem "$sdk/include/c++/v1" -isystem "$sdk/include" -iframework "$sdk/Frameworks"
    -isystem "$ours" -Icsrc/core -Icsrc/include -Icsrc/table
    -Wall -Wextra -Wno-missing-designated-field-initializers -Wno-nullability-completeness
    -Wno-unused-command-line-argument
    -Werror=objc-property-implementation -Werror=incomplete-implementation -Werror=protocol -Werror=objc-missing-super-calls
    -Werror=unused-result -Werror=unguarded-availability-new
)

total=0 failed=0
while IFS= read -r file; do
    total=$((total + 1))
    if ! output=$("$clang" "${flags[@]}" "$file" 2>&1); then
        failed=$((failed + 1))
        echo "FAILED  $file"
        printf '%s\n' "$output" | grep -E -A4 'error:' | head -n 24 | sed 's/^/        /'
    elif [ -n "$output" ]; then
        echo "warned  $file"
        printf '%s\n' "$output" | head -n 12 | sed 's/^/        /'
    fi
done < <(find csrc/core csrc/table examples/objc \( -name '*.mm' -o -name '*.cpp' \) | sort)

echo "$((total - failed)) of $total files compile for arm64-apple-macos13$stands_in"
[ "$total" -gt 0 ] && [ "$failed" -eq 0 ]

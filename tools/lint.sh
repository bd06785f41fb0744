#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run all checks that need no build; continue after a failure.
#   tools/lint.sh BIN [fix]     BIN: where ruff, mypy and clang-format are
bin=$1
failed=0

step() {
    name=$1
    shift
    if output=$("$@" 2>&1); then
        echo "ok      $name"
    else
        echo "FAILED  $name"
        echo "$output" | head -n 60 | sed 's/^/        /'
        failed=$((failed + 1))
    fi
}

cpp=$(git ls-files --cached --others --exclude-standard -- 'csrc/*.cpp' 'csrc/*.hpp' 'csrc/*.mm' 'csrc/*.hh' |
    grep -vE '^csrc/openmps/include/|not_implemented\.mm$')

# Print the names of unformatted files.
files_to_format() {
    # shellcheck disable=SC2086
    ! "$bin/clang-format" --dry-run --Werror $cpp 2>&1 | sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error:.*/\1/p' | sort -u | grep .
}

# shellcheck disable=SC2086  # one word per file
if [ "${2:-}" = fix ]; then
    "$bin/ruff" check --quiet --fix .
    "$bin/ruff" format --quiet .
    "$bin/clang-format" -i $cpp
else
    step "ruff check" "$bin/ruff" check --quiet --output-format=concise .
    step "ruff format" "$bin/ruff" format --check --quiet --diff .
    step "clang-format" files_to_format
fi
step "mypy" "$bin/mypy"
step "house rules" tools/house_rules.sh
[ "$failed" -eq 0 ] || { echo "$failed of the checks failed"; exit 1; }

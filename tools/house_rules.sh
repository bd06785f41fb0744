#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Check the language rules that a text search can check (CONTRIBUTING.md, "Language rules"). Print all violations; fail
# if there are any.
cd "$(dirname "$0")/.." || exit 1
breaches=0

# forbid WHAT PATTERN FILES...: report lines, except comments, that match an extended regular expression.
forbid() {
    what=$1 pattern=$2
    shift 2
    [ $# -gt 0 ] || return 0
    found=$(grep -nE "$pattern" "$@" /dev/null | grep -vE '^[^:]*:[0-9]+: *(//|\*|/\*)')
    if [ -n "$found" ]; then
        echo "$what:"
        echo "$found" | sed 's/^/    /'
        breaches=$((breaches + 1))
    fi
}
sources() { git ls-files --cached --others --exclude-standard -- "$@"; }

objective_c=$(sources 'csrc/*.mm' 'csrc/*.hh' | grep -v 'not_implemented\.mm$')
plain=$(sources 'csrc/*.cpp' 'csrc/*.hpp')
core=$(sources 'csrc/core/*' 'csrc/bindings/*' 'csrc/table/*' 'csrc/include/*')

# shellcheck disable=SC2086
{
    forbid "catch in Objective-C++ aborts; it belongs in a .cpp" '(^|[^@[:alnum:]_])(try[[:space:]]*\{|catch[[:space:]]*\()' $objective_c
    forbid "@YES, @NO and @autoreleasepool: write @(YES), @(NO), Pool" '@(YES|NO|autoreleasepool)\b' $objective_c
    forbid "Objective-C in plain C++" '^[[:space:]]*(#[[:space:]]*import|@(interface|implementation|protocol|class|selector))' $plain
    forbid "enums narrower than 32 bits are passed differently by g++ and clang" 'enum class .*: *std::u?int(8|16)_t' $(sources 'csrc/include/*')
    # (__unix__ || __APPLE__ tests for POSIX, which both have.)
    forbid "#if for the platform in the core" '^[[:space:]]*#[[:space:]]*(if|ifdef|ifndef|elif)[^u]*(__APPLE__|__linux__|TARGET_OS_|GNUSTEP)' $core
}

for file in $(sources 'csrc/*' 'python/*.py' 'python/*.pyi' 'tests/*.py' 'tools/*.py' 'tools/*.sh' 'cmake/*' 'bench/*.py' 'examples/*.py' 'examples/*.mm'); do
    case $file in *.json | *.md | *.typed | */py.typed) continue ;; esac
    [ -s "$file" ] || continue
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || {
        echo "$file: no SPDX line in the first three lines"
        breaches=$((breaches + 1))
    }
done

[ "$breaches" -eq 0 ] || { echo "$breaches kinds of violations"; exit 1; }

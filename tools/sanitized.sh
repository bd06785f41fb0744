#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run a command with clang's sanitizer runtime preloaded, for builds of the presets asan and tsan.
#   tools/sanitized.sh asan|tsan COMMAND...
# libstdc++ is preloaded too: Python does not link it, and the runtime looks up __cxa_throw on start.
set -eu

case $1 in asan | tsan) kind=$1 ;; *) echo "The first argument ($1) is not asan or tsan." >&2; exit 2 ;; esac
shift
runtime=$(clang-19 -print-file-name=libclang_rt.$kind-x86_64.so)
[ -e "$runtime" ] || runtime=$(clang-19 -print-file-name=libclang_rt.$kind.so)
[ -e "$runtime" ] || { echo "clang's $kind runtime is missing (Debian 12: apt-get install libclang-rt-19-dev)." >&2; exit 1; }

# pytest loses captured output if the process ends during a test. So write reports to files, and print them at the end.
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT

# The runtime does not find the symbolizer, which gives names of functions and lines, by itself.
symbolizer=external_symbolizer_path=$(command -v llvm-symbolizer || command -v addr2line || true)

# Python and its packages keep memory until the process ends, so leak detection is off; the tests count objects instead.
# The SIGBUS handler is the package's own, and is tested.
common="detect_leaks=0:abort_on_error=0:allocator_may_return_null=1:handle_sigbus=0"
export ASAN_OPTIONS="$common:$symbolizer:log_path=$reports/asan:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:$symbolizer:log_path=$reports/ubsan:${UBSAN_OPTIONS:-}"
export TSAN_OPTIONS="halt_on_error=0:$symbolizer:suppressions=$(cd "$(dirname "$0")" && pwd)/tsan_suppressions.txt:log_path=$reports/tsan:${TSAN_OPTIONS:-}"
status=0
env LD_PRELOAD="$runtime:$(g++ -print-file-name=libstdc++.so.6)" "$@" || status=$?
# AddressSanitizer warns when a process switches stacks. Threads of Metal functions that wait at a barrier do.
find "$reports" -type f -exec sed -i "/WARNING: ASan doesn't fully support makecontext/d" {} +
find "$reports" -type f -empty -delete
# Reports of programs that the tests start also make the run fail.
if [ -n "$(find "$reports" -type f)" ]; then
  find "$reports" -type f -exec cat {} + >&2
  [ "$status" -ne 0 ] || status=1
fi
exit "$status"

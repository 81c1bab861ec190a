#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# All tests. Ends with what was skipped, the sum of the test runner's summaries, and its status.
#
# Many tests start processes and wait for them, and up to one test per core runs at a time. What
# fails in that company is run once more by itself; a test that passes then is named, since it
# either leans on time or has a rare fault that deserves a look.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

log=$(mktemp)
again=$(mktemp)
trap 'rm -f -- "$log" "$again"' EXIT

run_tests() {
    # With the output of tests that pass: some say in it that they skipped.
    "$CARGO" test --workspace --no-fail-fast "$@" 2>&1
}

failed_tests() {
    sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$1" | sed 's/ - should panic$//' | sort -u
}

passed_count() {
    awk '/^test result:/ { passed += $4 } END { print passed + 0 }' "$1"
}

# Whether test programs, or what is not a test by name (documentation), failed as a whole.
has_other_failures() {
    grep -Eq '\(signal: |could not compile|^error: doctest failed' "$1" || [[ -z $(failed_tests "$1") ]]
}

scripts/check-core.sh
find_root || say "no root here: tests that need network namespaces or raw sockets will skip"

status=0
run_tests -- --show-output | tee "$log" || status=$?

if [[ $status -ne 0 ]] && ! has_other_failures "$log"; then
    mapfile -t failed < <(failed_tests "$log")
    say "once more, one at a time: ${failed[*]}"
    if run_tests --lib --bins --tests -- --show-output --test-threads 1 --exact "${failed[@]}" |
        tee "$again" && [[ $(passed_count "$again") -ge ${#failed[@]} ]]; then
        status=0
        say "UNSTEADY, failed among others and passed alone: ${failed[*]}"
    fi
fi

if grep -q 'SKIPPED' "$log"; then
    say "skipped on this machine:"
    grep 'SKIPPED' "$log" | sort -u
fi
awk '/^test result:/ { suites++; passed += $4; failed += $6; ignored += $8 }
     END { printf "test: %d passed; %d failed; %d ignored in %d suites\n",
                  passed, failed, ignored, suites }' "$log"
exit "$status"

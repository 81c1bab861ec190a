#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs all tests. Ends with the skipped tests, the sum of the test runner's summaries, and its
# status.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

log=$(mktemp)
trap 'rm -f -- "$log"' EXIT

scripts/check-core.sh
find_root || say "no root here: tests that need network namespaces or raw sockets will skip"

status=0
# Show the output of passed tests, because some report in it that they skipped.
"$CARGO" test --workspace --no-fail-fast -- --show-output 2>&1 | tee "$log" || status=$?
scripts/test-python.sh 2>&1 | tee -a "$log" || status=$?
scripts/instructions.sh --if-built 2>&1 | tee -a "$log" || status=$?

if grep -q 'SKIPPED' "$log"; then
    say "skipped on this machine:"
    grep 'SKIPPED' "$log" | sort -u
fi
awk '/^test result:/ { suites++; passed += $4; failed += $6; ignored += $8 }
     END { printf "test: %d passed; %d failed; %d ignored in %d suites\n",
                  passed, failed, ignored, suites }' "$log"
exit "$status"

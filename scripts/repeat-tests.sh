#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs all tests repeatedly, on the machine as it is or next to two spinning processes. A test that
# fails rarely depends on timing, or has found a rare fault. Prints a row for each run, and keeps
# the logs of failed runs. Exits with 1 if one failed.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

usage="usage: scripts/repeat-tests.sh [--loaded] [--runs N] [-p CRATE [--test NAME]]...
  --loaded       beside two processes that spin
  --runs N       so many times (10)
  -p, --test     what to run, as for cargo test; without, the whole workspace"

runs=10
spinners=0
what=()
while (($#)); do
    case $1 in
    --loaded) spinners=2 ;;
    --runs) runs=${2:-} && shift ;;
    -p | --test) what+=("$1" "${2:?"$1 names nothing; $usage"}") && shift ;;
    -h | --help) echo "$usage" && exit 0 ;;
    *) die "$1 is no option; $usage" ;;
    esac
    shift || die "$usage"
done
[[ $runs =~ ^[1-9][0-9]*$ ]] || die "--runs takes a number from 1 up, not '$runs'"
((${#what[@]})) || what=(--workspace)

logs=$(mktemp -d)
pids=()
stop_spinners() {
    ((${#pids[@]})) && kill "${pids[@]}" 2>/dev/null
    # Remove the directory if it is empty, that is, if no run has failed.
    rmdir -- "$logs" 2>/dev/null
    true
}
end_with stop_spinners

"$CARGO" test "${what[@]}" --no-run --quiet || die "the tests cannot be built"

for ((i = 0; i < spinners; i++)); do
    (while :; do :; done) &
    pids+=($!)
done

# Prints the sum of field $1 of the test runner's summaries in the log $2.
sum() {
    awk -v field="$1" '/^test result:/ { sum += $field } END { print sum + 0 }' "$2"
}

# Prints the failures in the log $1: tests by name, or else suites that ended without naming a test.
failures() {
    local named
    named=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$1" | sort -u)
    if [[ -z $named ]]; then
        named=$(sed -n 's/^error: test failed, to rerun pass //p' "$1" | tr -d '`' | sort -u)
    fi
    paste -sd, <<<"${named:-see the log}"
}

load="a quiet machine"
((spinners)) && load="beside $spinners spinning processes"
say "${what[*]}, $runs times, $load, $(nproc) cores"
printf '| %3s | %6s | %6s | %7s | %7s | %s\n' run passed failed skipped seconds failures
printf '| --: | -----: | -----: | ------: | ------: | :--\n'
failed_runs=0
for ((run = 1; run <= runs; run++)); do
    log=$logs/run-$run.log
    begin=$SECONDS
    status=0
    # Show the output of passed tests, because some report in it that they skipped.
    "$CARGO" test "${what[@]}" --no-fail-fast -- --show-output >"$log" 2>&1 || status=$?
    skips=$(grep -c SKIPPED "$log" || true)
    names=
    ((status == 0)) || names=$(failures "$log")
    printf '| %3d | %6d | %6d | %7d | %7d | %s\n' \
        "$run" "$(sum 4 "$log")" "$(sum 6 "$log")" "$skips" $((SECONDS - begin)) "$names"
    if ((status == 0)); then
        rm -- "$log"
    else
        ((failed_runs += 1))
    fi
done

if ((failed_runs)); then
    say "$failed_runs of $runs runs failed; logs: $logs"
    exit 1
fi
say "all $runs runs passed"

# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Runs the benchmark that compares every byte, and the test suite of mpi4py. Part of
# scripts/test-mpi.sh.

# Time limit in seconds for the benchmark on a busy machine.
bench_limit=300

read -r -a sizes <<<"${SIZES:-1 2 4}"
suite_limit=${LIMIT:-1800}
read -r -a more_options <<<"${OPTIONS:-}"

# fetch_tests: downloads the sources of mpi4py, of which only the tests are used.
fetch_tests() {
    python3 -m venv "$work_dir/fetch"
    "$work_dir/fetch/bin/pip" download -q --no-deps --no-binary mpi4py -d "$work_dir" mpi4py
    mkdir "$work_dir/tests"
    tar -xzf "$work_dir"/mpi4py-*.tar.gz -C "$work_dir/tests" --strip-components=1
}

# skips MPI PLACE: prints the options that exclude tests there.
skips() {
    local name=$1
    [[ ${LEFT_OUT:-} != run ]] || return 0
    [[ $1 != openmpi4 ]] || name+=-$([[ $component == true ]] && echo btl || echo ofi)
    awk -v mpi="$name" -v there="$name/${2// /-}" '$1 == mpi || $1 == there { printf "%s %s ", $2, $3 }' \
        scripts/mpi/mpi4py-skip.txt
}

# check NAME LIMIT COMMAND…
check() {
    local name=$1 problem=
    shift
    logged "$@" || problem="status $?"
    verdict "$name" "$problem"
    if [[ -z $problem ]]; then
        grep -E '^(Ran [0-9]+ tests|OK)' "$work_dir/log" | sort -u | sed 's/^/    /' || true
    else
        grep -E '^(FAIL|ERROR):|panicked|not offered' "$work_dir/log" | sort | uniq -c |
            head -n 40 || true
    fi
}

# suite MPI: runs the benchmark on two processes, and the suite on each number of processes.
suite() {
    local mpi=$1 place size options
    build "$mpi" bench/mpi/mpibench.c
    for size in "${sizes[@]}"; do
        for place in "${places[@]}"; do
            [[ $size -gt 1 || $place == "one host" ]] || continue
            across "$place"
            read -r -a options <<<"$(skips "$mpi" "$place")"
            if [[ $size -eq 2 ]]; then
                check "$mpi, $place, mpibench" "$bench_limit" "${job[@]}" 2 \
                    "$work_dir/$mpi/mpibench" latency -c -i 20 -m 1:1048576
            fi
            check "$mpi, $place, mpi4py on $size" "$suite_limit" "${job[@]}" "$size" \
                "$python" "$work_dir/tests/test/main.py" "${options[@]}" "${more_options[@]}"
        done
    done
}

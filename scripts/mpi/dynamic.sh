# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Dynamic windows: many long operations are in flight in both directions, every byte is compared. Part of
# scripts/test-mpi.sh.

# Seconds after which a job counts as hanging. It takes some seconds on a busy machine.
dynamic_limit=180
# Rounds of a job, and jobs for each setting.
dynamic_rounds=4
dynamic_jobs=${RUNS:-3}

dynamic() {
    local mpi=$1 place stream number problem
    build "$mpi" scripts/mpi/dynamic.c
    for place in "${places[@]}"; do
        if [[ $mpi == openmpi4 && $place == "two hosts" ]]; then
            skipped "$mpi, $place: Open MPI 4 has no dynamic windows between hosts that work"
            continue
        fi
        across "$place"
        for stream in auto on off; do
            problem=''
            for ((number = 1; number <= dynamic_jobs && ${#problem} == 0; number++)); do
                logged "$dynamic_limit" env PORTOLAN_STREAM="$stream" "${job[@]}" 2 \
                    "$work_dir/$mpi/dynamic" "$dynamic_rounds" || problem="job $number: status $?"
                [[ $(grep -c 'rank [01]: 0 wrong' "$work_dir/log") -eq 2 ]] ||
                    problem+=" not both ranks report 0 wrong bytes"
            done
            verdict "$mpi, $place, dynamic windows, stream=$stream, $dynamic_jobs jobs" "$problem"
        done
    done
}

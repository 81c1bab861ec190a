# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# A rank is stopped for some seconds in the middle of a job, as a busy system, a debugger or swapping
# may do: the job is late, and right. Part of scripts/test-mpi.sh.

# Seconds for the job on a busy machine; and how long the rank is stopped: several times the patience
# of `portolan run`'s jobs.
stopped_limit=300
stopped_for=3

stopped() {
    local mpi=$1 place problem begun
    build "$mpi" scripts/mpi/stop.c
    for place in "${places[@]}"; do
        across "$place"
        problem='' begun=$SECONDS
        logged "$stopped_limit" "${job[@]}" 4 "$work_dir/$mpi/stop" "$stopped_for" ||
            problem="status $?"
        [[ $(grep -c 'rank [0-3]: 0 wrong' "$work_dir/log") -eq 4 ]] ||
            problem+=" not all ranks say that all was right"
        [[ $((SECONDS - begun)) -ge $stopped_for ]] || problem+=" nobody was stopped"
        verdict "$mpi, $place, a stopped rank" "$problem"
    done
}

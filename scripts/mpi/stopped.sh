# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Stops a rank for some seconds in the middle of a job, like a busy system, a debugger or swapping:
# the job must be late but correct. Part of scripts/test-mpi.sh.

# Time limit in seconds for the job on a busy machine, and the time for which the rank is stopped:
# several times the peer timeout of `portolan run`.
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

# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Tests that messages arrive while their sender computes for long. Part of scripts/test-mpi.sh.

# Time limit in seconds for the job on a busy machine. Patience is the time that the sender waits,
# without an MPI call, for the receiver's report; both ranks get to run many times in it.
asleep_limit=180
asleep_patience=60
# More messages than leave one by one; the long ones also exceed the credit of a lane.
asleep_count=200

asleep() {
    local mpi=$1 place len problem
    build "$mpi" scripts/mpi/asleep.c
    for place in "${places[@]}"; do
        across "$place"
        for len in 8 4096; do
            problem=''
            rm -f "$work_dir/arrived"
            logged "$asleep_limit" "${job[@]}" 2 "$work_dir/$mpi/asleep" "$work_dir/arrived" \
                "$asleep_patience" "$len" "$asleep_count" || problem="status $?"
            [[ $(grep -c 'rank [01]: 0 wrong' "$work_dir/log") -eq 2 ]] ||
                problem+=" not both ranks say that all was right"
            verdict "$mpi, $place, $asleep_count messages of $len bytes, then nothing" "$problem"
        done
    done
}

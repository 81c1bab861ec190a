# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Who has sent and then computes for long: all of it arrives meanwhile. Part of scripts/test-mpi.sh.

# Seconds for the job on a busy machine; and how long the sender waits, without a call, for the
# receiver to say that it has all: long after both have had their turns.
asleep_limit=180
asleep_patience=60
# More messages than leave one by one; the longer ones are more than the credit of a lane, too.
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

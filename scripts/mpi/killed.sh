# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Kills a rank in the middle of a job: the job must end, report the rank, and leave nothing behind.
# Part of scripts/test-mpi.sh.

# Time limits in seconds for the end of the job on a busy machine, and then for the end of its
# processes.
killed_limit=120
gone_limit=20

# is_named: succeeds if the launcher (by rank or process id) or the provider reported the dead
# process.
is_named() {
    local pid
    pid=$(sed -n 's/.*rank 1 is process //p' "$work_dir/log")
    grep -qE "process rank 1 |PID $pid RUNNING AT|process $pid on .* failed" "$work_dir/log"
}

# remains PROGRAM: prints the processes of a program, and the files in shared memory.
remains() {
    pgrep -f "^$1( |\$)" || true
    find /dev/shm -newer "$work_dir/before" -name '*portolan*' 2>/dev/null || true
}

killed() {
    local mpi=$1 place problem status begun tenth program=$work_dir/$1/die
    build "$mpi" scripts/mpi/die.c
    for place in "${places[@]}"; do
        across "$place"
        problem='' status=0 begun=$SECONDS
        touch "$work_dir/before"
        logged "$killed_limit" "${job[@]}" 4 "$program" || status=$?
        [[ $status -ne 0 ]] || problem="the job ends as if nothing had happened"
        [[ $((SECONDS - begun)) -lt $killed_limit ]] || problem="the job goes on for ever"
        is_named || problem+=" nobody says who died"
        for ((tenth = 0; tenth < gone_limit * 10; tenth++)); do
            [[ -n $(remains "$program") ]] || break
            sleep 0.1
        done
        [[ -z $(remains "$program") ]] || problem+=" left behind: $(remains "$program" | tr '\n' ' ')"
        verdict "$mpi, $place, a killed rank" "$problem"
    done
}

# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Tests that the progress thread of a computing process serves accesses to its memory. Part of
# scripts/test-mpi.sh.

# Time limit in seconds for the job on a busy machine. Patience is the time that the target waits,
# without an MPI call, for the report of the other rank.
passive_limit=180
passive_patience=100
# Rounds of a put and a get.
passive_count=10000

passive() {
    local mpi=$1 place problem env=(PORTOLAN_PROGRESS=thread)
    # Open MPI's component does not serve memory outside MPI calls.
    local component=false
    # By default Open MPI sends messages to the target's MPI, which only handles them in MPI calls.
    [[ $mpi == mpich ]] || env+=(OMPI_MCA_osc=rdma "OMPI_MCA_btl=ofi,self")
    build "$mpi" scripts/mpi/passive.c
    for place in "${places[@]}"; do
        across "$place"
        problem=''
        rm -f "$work_dir/served"
        logged "$passive_limit" env "${env[@]}" "${job[@]}" 2 "$work_dir/$mpi/passive" "$work_dir/served" \
            "$passive_patience" "$passive_count" || problem="status $?"
        [[ $(grep -c 'rank [01]: 0 wrong' "$work_dir/log") -eq 2 ]] ||
            problem+=" not both ranks say that all was right"
        verdict "$mpi, $place, $(grep -o '[0-9]* rounds in .*' "$work_dir/log"), the target computes" \
            "$problem"
    done
}

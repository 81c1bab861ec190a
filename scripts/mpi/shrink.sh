# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Kills a process of a job that tolerates this, with Open MPI 5 and its component. Part of scripts/test-mpi.sh.

# Time limit in seconds on a busy machine.
shrink_limit=120

shrink() {
    local mpi=$1 place problem
    if [[ $component != true ]] || ! "$launcher" --version | grep -q 'Open MPI) 5'; then
        skipped "$mpi: only Open MPI 5 with its component continues without a failed process"
        return
    fi
    build "$mpi" scripts/mpi/shrink.c
    # `lab mpirun` takes no options of the launcher, so the launcher gets its hosts here.
    local hosts=(--host "$lab-h0:2,$lab-h1:2" --map-by node --bind-to none)
    # Open MPI does not revoke the communicators of coll/han.
    local settings=(OMPI_MCA_coll=^han "PRTE_MCA_plm_ssh_agent=$portolan lab rsh --name $lab")
    for place in "${places[@]}"; do
        problem=''
        job=(mpirun --mpi "$launcher" --via btl --with-ft ulfm -n 4)
        [[ $place == "one host" ]] ||
            job=(lab exec --name "$lab" 0 -- "$portolan" "${job[@]}" "${hosts[@]}")
        # The launcher's status is that of the killed process.
        logged "$shrink_limit" env "${settings[@]}" "${run[@]}" "${job[@]}" "$work_dir/$mpi/shrink" || true
        [[ $(grep -c 'rank [0-2]: 0 wrong after the failure' "$work_dir/log") -eq 3 ]] ||
            problem="not all others continued"
        verdict "$mpi, $place, a job that continues without a killed rank" "$problem"
    done
}

# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Runs Debian's NetPIPE, HPCC and LAMMPS under portolan profile. The counts must match the programs'
# own output, or known invariants. NetPIPE also runs with Debian's MPICH, for which Debian has no
# builds of the other two. Part of scripts/test-mpi.sh; apps.sh has the programs.

# Iterations of each of NetPIPE's sizes, up to the given bytes, without intermediate sizes.
np_count=10
np_most=100000

# profiled COMMAND…: sets job to COMMAND under portolan profile. COMMAND begins with run, whose last
# word is portolan.
profiled() {
    rm -f "$work_dir/profile.json"
    job=("${run[@]}" profile --json "$work_dir/profile.json" -- "$portolan" "${@:${#run[@]}+1}")
}

# counts_wrong COUNT [LOG TIMES]: prints errors in the profile of COUNT processes.
counts_wrong() {
    python3 scripts/mpi/profile-counts.py "$work_dir/profile.json" "$@" 2>&1 || true
}

# np_job MPI PROGRAM: runs NetPIPE with job.
np_job() {
    local problem=''
    logged "$app_limit" "${job[@]}" 2 "$2" -i -p 0 -n "$np_count" -u "$np_most" -o "$work_dir/np.out" ||
        problem="status $?"
    problem+=$(counts_wrong 2 "$work_dir/log" "$np_count")
    verdict "NetPIPE under profile, $1" "$problem"
}

profile_hpcc() {
    local problem='' dir=$work_dir/hpcc
    rm -rf "$dir"
    mkdir "$dir"
    hpcc_input "$dir"
    (cd "$dir" && logged "$app_limit" "${job[@]}" 4 hpcc) || problem="status $?"
    problem+=$(wrong_hpcc "$dir/hpccoutf.txt" 2>&1)
    problem+=$(counts_wrong 4)
    verdict "HPCC under profile, $1" "$problem"
}

profile_lammps() {
    local problem=''
    logged "$app_limit" "${job[@]}" 4 lmp -in scripts/mpi/melt.in -log none || problem="status $?"
    [[ $(thermo | wc -l) -eq 12 ]] || problem+=" no table of 11 lines"
    problem+=$(counts_wrong 4)
    verdict "LAMMPS under profile, $1" "$problem"
}

profile_apps() {
    # Keep the built profiling library with the other files that are removed at the end.
    local place app mpich cached=(env XDG_CACHE_HOME="$work_dir/cache" "${run[@]:1}")
    local run=()
    run=("${cached[@]}")
    for app in netpipe hpcc lammps; do
        if ! install "${app/netpipe/netpipe-openmpi}"; then
            skipped "$app could not be installed"
            continue
        fi
        for place in "${places[@]}"; do
            across "$place"
            profiled "${job[@]}"
            case $app in
                netpipe) np_job "Open MPI, $place" NPopenmpi ;;
                *) "profile_$app" "Open MPI, $place" ;;
            esac
        done
    done
    if ! install mpich libmpich-dev netpipe-mpich2; then
        skipped "Debian's MPICH could not be installed"
        return
    fi
    mpich=$(command -v mpirun.mpich)
    # Debian's MPICH uses UCX, and is profiled unchanged.
    job=("${run[@]::${#run[@]}-1}" "$portolan" profile --json "$work_dir/profile.json" -- "$mpich" -n)
    rm -f "$work_dir/profile.json"
    np_job "MPICH, one host, as it is" NPmpich2
}

# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Tests HPCC, NetPIPE and LAMMPS from Debian, with its Open MPI. Part of scripts/test-mpi.sh.

# Time limit in seconds for one program on a busy machine: HPCC runs a dozen benchmarks.
app_limit=1200

# Sets HPL's order and block, and the grid of processes. They are small, because only correctness
# counts.
hpcc_input() {
    sed -e 's/^1000 /200 /' /usr/share/doc/hpcc/examples/_hpccinf.txt >"$1/hpccinf.txt"
}

# wrong_hpcc FILE: prints errors in the results of HPCC.
wrong_hpcc() {
    local line
    for line in 'Success=1' 'PTRANS_residual=0' 'MPIRandomAccess_Errors=0' \
        'MPIRandomAccess_LCG_Errors=0' ' *1 tests completed and passed residual checks,'; do
        grep -qx -- "$line" "$1" || echo " no line '$line'"
    done
    grep -E 'FAILED|[1-9][0-9]* tests completed and failed' "$1" || true
}

hpcc_on() {
    local place=$1 dir=$work_dir/hpcc problem=''
    rm -rf "$dir"
    mkdir "$dir"
    hpcc_input "$dir"
    across "$place"
    (cd "$dir" && logged "$app_limit" "${job[@]}" 4 hpcc) || problem="status $?"
    problem+=$(wrong_hpcc "$dir/hpccoutf.txt" 2>&1)
    verdict "HPCC, $place" "$problem"
}

netpipe_on() {
    local problem=''
    across "$1"
    logged "$app_limit" "${job[@]}" 2 NPopenmpi -i -p 3 -n 10 -u 1500000 -o "$work_dir/np.out" ||
        problem="status $?"
    # Check the last size: 1 MiB plus the perturbation.
    grep -qE '^ *[0-9]+: +1048580 bytes ' "$work_dir/log" || problem+=" it did not come to 1 MiB"
    ! grep -E ' bytes .* times ' "$work_dir/log" | grep -v 'Integrity check passed' ||
        problem+=" data differ"
    verdict "NetPIPE, $1" "$problem"
}

# thermo: prints the table of temperature, energies and pressure.
thermo() {
    sed -n '/^Step/,/^Loop/ { /^Loop/d; p }' "$work_dir/log"
}

lammps_on() {
    local input=scripts/mpi/melt.in problem='' ours
    across "$1"
    logged "$app_limit" "${job[@]}" 4 lmp -in "$input" -log none || problem="status $?"
    ours=$(thermo)
    # Run at the same place with Open MPI's own network.
    across "$1" --plain
    logged "$app_limit" "${job[@]}" 4 env OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self \
        lmp -in "$input" -log none || problem+=" over TCP: status $?"
    [[ $(wc -l <<<"$ours") -eq 12 ]] || problem+=" no table of 11 lines"
    [[ $ours == "$(thermo)" ]] || problem+=" another table than over TCP"
    verdict "LAMMPS, $1" "$problem"
}

apps() {
    local place app
    for app in hpcc netpipe lammps; do
        if ! install "${app/netpipe/netpipe-openmpi}"; then
            skipped "$app could not be installed"
            continue
        fi
        for place in "${places[@]}"; do
            "${app}_on" "$place"
        done
    done
}

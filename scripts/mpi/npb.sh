# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Runs the programs of examples/npb, which verify their results. Part of scripts/test-mpi.sh.

# Time limit in seconds for one program on a busy machine; class A takes up to a minute on a quiet one.
npb_limit=1800

# npb MPI
npb() {
    local mpi=$1 place program problem
    local programs=$work_dir/$mpi/npb
    make -s -C examples/npb "MPICC=$compiler" "OUT=$programs" || die "examples/npb cannot be built for $mpi"
    for place in "${places[@]}"; do
        across "$place"
        for program in ep is cg mg ft lu sp bt; do
            problem=''
            logged "$npb_limit" "${job[@]}" 4 "$programs/$program" A || problem="status $?"
            grep -q ' class=A processes=4 .* verification=passed$' "$work_dir/log" ||
                problem+=" not verified"
            verdict "$mpi, NPB $program, $place" "$problem"
        done
    done
}

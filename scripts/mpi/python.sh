# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Runs the tests of mpi4py.futures, and transforms by mpi4py-fft. Part of scripts/test-mpi.sh.

# Time limit in seconds on a busy machine.
python_limit=600

# futures MPI: needs the sources of mpi4py (fetch_tests).
futures() {
    local place problem tests=$work_dir/tests/demo/futures/test_futures.py
    if [[ $1 == openmpi4 && $component != true ]]; then
        skipped "mpi4py.futures probes for synchronous sends, for which Open MPI 4.1 hangs over libfabric"
        return
    fi
    for place in "${places[@]}"; do
        problem=''
        across "$place"
        logged "$python_limit" "${job[@]}" 4 "$python" -m mpi4py.futures "$tests" || problem="status $?"
        grep -qx OK "$work_dir/log" || problem+=" not all tests passed"
        verdict "$1, $place, mpi4py.futures" "$problem"
    done
}

# Only with Debian's Open MPI, for which mpi4py-fft is a package.
fft() {
    local place size problem
    if ! install python3-mpi4py-fft python3-numpy; then
        skipped "mpi4py-fft could not be installed"
        return
    fi
    if [[ $component != true ]]; then
        skipped "mpi4py-fft needs MPI_Alltoallw of types at an offset, which is wrong in Open MPI 4.1 over libfabric"
        return
    fi
    for size in 2 4; do
        for place in "${places[@]}"; do
            problem=''
            across "$place"
            logged "$python_limit" "${job[@]}" "$size" /usr/bin/python3 scripts/mpi/fft.py || problem="status $?"
            grep -qE "^fft ranks=$size .* wrong=0\$" "$work_dir/log" || problem+=" wrong elements"
            verdict "mpi4py-fft on $size, $place" "$problem"
        done
    done
}

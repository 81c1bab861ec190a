#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# MPI programs over Portolan: a benchmark that compares every byte, and the test suite of mpi4py, under
# Open MPI 4 (Debian), and Open MPI 5 and MPICH (PyPI); on one host and, as root, on a lab of two.
# Takes long. What it makes it removes again, but for Debian's packages.
#
#   scripts/test-mpi.sh [openmpi4|openmpi5|mpich]…
#
# Environment: PROFILE (release, or debug) says which build is tested; SIZES, on how many processes
# (default: 1 2 4); LIMIT, seconds that a run of mpi4py may take (default: 1800).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

build_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}/${PROFILE:-release}")
portolan=$build_dir/portolan
mpis=("$@")
[[ ${#mpis[@]} -gt 0 ]] || mpis=(openmpi4 openmpi5 mpich)
read -r -a sizes <<<"${SIZES:-1 2 4}"
limit=${LIMIT:-1800}
# How long the benchmark may take, in seconds, on a busy machine.
bench_limit=300
lab=mpi$(($$ % 100000))
lab_is_up=no
work_dir=$(mktemp -d)
failed=()

cleanup() {
    if [[ $lab_is_up == yes ]]; then
        "$portolan" lab down --name "$lab" || say "the lab is still up: portolan lab down --name $lab"
    fi
    rm -rf -- "$work_dir"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

check_build() {
    [[ -x $portolan && -e $build_dir/libportolan_fi.so ]] ||
        die "$portolan or libportolan_fi.so beside it does not exist; run 'make build' first"
    mkdir "$work_dir/provider"
    ln -s "$build_dir/libportolan_fi.so" "$work_dir/provider/libportolan-fi.so"
}

# fetch_tests: the sources of mpi4py, of which only the tests are used.
fetch_tests() {
    python3 -m venv "$work_dir/fetch"
    "$work_dir/fetch/bin/pip" download -q --no-deps --no-binary mpi4py -d "$work_dir" mpi4py
    mkdir "$work_dir/tests"
    tar -xzf "$work_dir"/mpi4py-*.tar.gz -C "$work_dir/tests" --strip-components=1
}

# prepare MPI: sets launcher, compiler, python, and what python needs to find the MPI.
prepare() {
    local mpi=$1 packages=(mpi4py numpy) library
    launcher_env=()
    case $mpi in
        openmpi4)
            if ! command -v mpirun.openmpi >/dev/null || ! command -v mpicc.openmpi >/dev/null; then
                find_root || return 1
                "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
                    openmpi-bin libopenmpi-dev >/dev/null || return 1
            fi
            launcher=$(command -v mpirun.openmpi) compiler=$(command -v mpicc.openmpi)
            for library in /usr/lib/*/libmpi.so.40; do
                # Without matched probes in plain receives: see mpi4py-skip.txt.
                launcher_env=(MPI4PY_MPIABI=openmpi "MPI4PY_LIBMPI=$library"
                    MPI4PY_RC_RECV_MPROBE=0)
            done
            ;;
        openmpi5)
            packages+=(openmpi)
            launcher_env=("MPI4PY_LIBMPI=$work_dir/$mpi/lib/libmpi.so.40")
            ;;
        mpich)
            packages+=(mpich)
            # Within a host, too, what is tested is the provider.
            launcher_env=("MPI4PY_LIBMPI=$work_dir/$mpi/lib/libmpi.so.12" MPIR_CVAR_NOLOCAL=1)
            ;;
        *) die "no MPI is called $mpi; there are openmpi4, openmpi5 and mpich" ;;
    esac
    python3 -m venv "$work_dir/$mpi"
    "$work_dir/$mpi/bin/pip" install -q "${packages[@]}" || return 1
    python=$work_dir/$mpi/bin/python
    if [[ $mpi != openmpi4 ]]; then
        launcher=$work_dir/$mpi/bin/mpirun compiler=$work_dir/$mpi/bin/mpicc
    fi
    "$compiler" -std=gnu11 -O2 -o "$work_dir/$mpi/mpibench" bench/mpi/mpibench.c
}

# skips MPI: the options that leave tests out.
skips() {
    awk -v mpi="$1" '$1 == "all" || $1 == mpi { printf "%s %s ", $2, $3 }' scripts/mpi4py-skip.txt
}

# check NAME LIMIT COMMAND…
check() {
    local name=$1 seconds=$2 log=$work_dir/log
    shift 2
    if timeout --kill-after=10 "$seconds" "$@" >"$log" 2>&1; then
        say "$name: passed"
        grep -E '^(Ran [0-9]+ tests|OK)' "$log" | sort -u | sed 's/^/    /' || true
    else
        say "$name: FAILED"
        grep -E '^(FAIL|ERROR):|panicked|not offered' "$log" | sort | uniq -c | head -n 40 || true
        tail -n 15 "$log" | sed 's/^/    /'
        failed+=("$name")
    fi
}

# suite WHERE MPI SIZE COMMAND…: the benchmark on two, the suite on SIZE processes.
suite() {
    local where=$1 mpi=$2 size=$3 options
    shift 3
    read -r -a options <<<"$(skips "$mpi")"
    if [[ $size -eq 2 ]]; then
        check "$mpi, $where, mpibench" "$bench_limit" "${run[@]}" "$@" -n 2 \
            "$work_dir/$mpi/mpibench" latency -c -i 20 -m 1:1048576
    fi
    check "$mpi, $where, mpi4py on $size" "$limit" "${run[@]}" "$@" -n "$size" \
        "$python" "$work_dir/tests/test/main.py" "${options[@]}"
}

check_build
fetch_tests
if [[ $EUID -eq 0 ]]; then
    "$portolan" lab up --hosts 2 --name "$lab" && lab_is_up=yes
else
    skipped "no root: nothing is run across the hosts of a lab"
fi
for mpi in "${mpis[@]}"; do
    if ! prepare "$mpi"; then
        skipped "$mpi could not be installed"
        continue
    fi
    run=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
        "${launcher_env[@]}" "$portolan")
    for size in "${sizes[@]}"; do
        suite "one host" "$mpi" "$size" \
            mpirun --mpi "$launcher" --provider-dir "$work_dir/provider"
        if [[ $lab_is_up == yes && $size -gt 1 ]]; then
            suite "two hosts" "$mpi" "$size" \
                lab mpirun --name "$lab" --mpi "$launcher" --provider-dir "$work_dir/provider"
        fi
    done
done
if [[ ${#failed[@]} -gt 0 ]]; then
    printf 'test-mpi: FAILED: %s\n' "${failed[@]}" >&2
    exit 1
fi
say "all passed"

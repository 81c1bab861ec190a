#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Compares collective operations over Portolan with the MPI's own transports: Open MPI's TCP between
# two hosts of a lab (as root) and its shared memory within one; for many ranks that access the
# memory of one rank, MPICH over libfabric's tcp provider. Prints a table. For an idle machine.
#
#   scripts/mpi/compare.sh
#
# Environment: PROFILE and CARGO_TARGET_DIR select the build; ROUNDS of each operation (default:
# 2000). Each line names its system; the columns are those of bench/mpi/collbench.c.
set -euo pipefail
cd "$(dirname "$0")/../.."
# The parts of test-mpi.sh expect this directory.
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
# Open MPI's component would leave messages within a host to Open MPI.
VIA=ofi
source scripts/mpi/common.sh

# Time limit in seconds for one operation: a hundred times the duration on a quiet machine.
compare_limit=120
rounds=${ROUNDS:-2000}

# cases MPI PLACE: prints ranks, operation and bytes of cases that were once several times slower
# than similar ones. Open MPI 4 has no windows across hosts.
cases() {
    case "$1, $2" in
        "openmpi4, one host")
            printf '%s\n' "4 iallreduce 16" "4 iallreduce 256" "4 reduce_scatter 128" \
                "32 alltoall 1024" "64 alltoall 1024" "32 barrier 0" "64 barrier 0"
            ;;
        "openmpi4, two hosts")
            printf '%s\n' "2 iallreduce 8192" "2 ibcast 16384" "2 ibcast 32768" \
                "2 iallgather 8192" "4 iallreduce 8192" "4 iallgather 8192"
            ;;
        "mpich, two hosts") printf '%s\n' "8 put 1024" "8 get 1024" "8 lock 1024" ;;
    esac
}

# line NAME COMMAND…: prints the result of a run, or that there is none.
line() {
    local name=$1 result=
    shift
    if logged "$compare_limit" "$@"; then
        result=$(grep -E '^[a-z_]+ +[0-9]+ +[0-9]+ +[0-9]' "$work_dir/log" || true)
    fi
    printf '%-10s%s\n' "$name" "${result:-none: $(tail -n 1 "$work_dir/log")}"
}

# plain PLACE: sets job to the command that runs a program there with the MPI's own transport.
plain() {
    across "$1" --plain
    case "$mpi, $1" in
        "openmpi4, one host") job=(env OMPI_MCA_pml=ob1 'OMPI_MCA_btl=vader,self' "${job[@]}") ;;
        "openmpi4, two hosts") job=(env OMPI_MCA_pml=ob1 'OMPI_MCA_btl=tcp,vader,self' "${job[@]}") ;;
        *) job=(env FI_PROVIDER=tcp MPIR_CVAR_CH4_NETMOD=ofi "${job[@]}") ;;
    esac
}

# compare PLACE RANKS OPERATION LEN
compare() {
    local place=$1 what=("$2" "$work_dir/$mpi/collbench" "${@:3}" "$rounds")
    across "$place"
    line portolan "${job[@]}" "${what[@]}"
    plain "$place"
    line "$mpi" "${job[@]}" "${what[@]}"
}

check_build
lab_up
printf '%-10s%-15s%10s%6s%14s%14s%10s%10s\n' over operation bytes ranks us 'used us' slept lost
for mpi in openmpi4 mpich; do
    if ! prepare "$mpi"; then
        skipped "$mpi could not be installed"
        continue
    fi
    build "$mpi" bench/mpi/collbench.c
    for place in "${places[@]}"; do
        while read -r -a words; do
            compare "$place" "${words[@]}"
        done < <(cases "$mpi" "$place")
    done
done

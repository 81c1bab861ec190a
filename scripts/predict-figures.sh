#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Compares predictions for the programs of examples/npb with their measured times, with Open MPI
# (about ten minutes on a quiet machine, as root for the lab). Each program is profiled once over
# shared memory. From that profile it is predicted for shared memory, and for two hosts of a lab:
# over Portolan by raw Ethernet and by UDP, and over TCP, on the bare veth pair and with shaped
# wires. Renews docs/results/tables/predict.txt.
#
#   scripts/predict-figures.sh [DIRECTORY]      default: target/predict-figures
#
# Environment: PROGRAMS (default: is cg mg), CLASS (W), WIRES in gigabits per second (0.1 1), RUNS
# of each, whose median counts (5).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

out=${1:-target/predict-figures}
class=${CLASS:-W}
runs=${RUNS:-5}
read -r -a programs <<<"${PROGRAMS:-is cg mg}"
read -r -a wires <<<"${WIRES:-0.1 1}"
table=docs/results/tables/predict.txt
portolan=("$release_dir/portolan")
lab=pred$(($$ % 100000))
# Time limit in seconds for one run; the predicted programs take two at most.
limit=120

[[ -x ${portolan[0]} ]] || die "${portolan[0]} is not there: run 'make build' first"
[[ $EUID -eq 0 ]] || die "labs need root: run this script with sudo"
command -v mpirun.openmpi >/dev/null || die "there is no mpirun.openmpi: install openmpi-bin and libopenmpi-dev"
end_with take_lab_down
mkdir -p "$out"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# shape GBPS: creates a lab with such a wire between its hosts; 0 for bare veth.
shape() {
    local link=()
    [[ $1 == 0 ]] || link=(--link "rate=$1g,queue=2m")
    take_lab_down
    lab_options=("${link[@]}")
    bring_lab_up >/dev/null || die "no lab with a wire of $1 Gb/s can be made here"
}

# mpi OVER PLACE: sets job to the command that runs a program there; append the program.
mpi() {
    local with=(--mpi "$(command -v mpirun.openmpi)")
    case $1 in
        tcp) with+=(--plain) ;;
        # Open MPI's component would leave messages within a host to Open MPI.
        shm) with+=(--via ofi) ;;
        *) ;;
    esac
    case $2 in
        lab) job=(lab mpirun --name "$lab" -n 2 "${with[@]}") ;;
        *) job=(mpirun "${with[@]}" -n 2) ;;
    esac
}

# profile OVER PLACE FILE OPTION… -- PROGRAM: writes the seconds from MPI_Init to MPI_Finalize to
# FILE.
profile() {
    local over=$1 place=$2 file=$3 options=()
    shift 3
    while [[ $1 != -- ]]; do options+=("$1") && shift; done
    shift
    mpi "$over" "$place"
    case $over in
        tcp) export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self ;;
        *) unset OMPI_MCA_pml OMPI_MCA_btl && export PORTOLAN_PATH=$over ;;
    esac
    timeout "$limit" "${portolan[@]}" profile --json "$file" "${options[@]}" -- "${portolan[0]}" \
        "${job[@]}" "$@" >"$out/log" 2>&1 || { tail -n 5 "$out/log" >&2 && die "$over, $place: $* failed"; }
}

seconds_in() {
    sed -n 's/^      "seconds": \([0-9.e-]*\),*$/\1/p' "$1" | head -n 1
}

median() {
    sort -g | awk '{ all[NR] = $1 } END { print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'
}

# measured OVER PROGRAM: prints the median of the runs.
measured() {
    local run place=lab
    [[ $1 != shm ]] || place=here
    for ((run = 0; run < runs; run++)); do
        profile "$1" "$place" "$out/run.json" -- "$out/$2" "$class"
        seconds_in "$out/run.json"
    done | median
}

# predicted PROGRAM NETWORK HOSTS: prints the prediction of portolan predict.
predicted() {
    awk -v name="$2" -v hosts="$3" '
        { gsub(/,$/, "") }
        /"network":/ { is_network = index($0, "\"" name "\"") }
        /"hosts":/ { is_it = is_network && $2 == hosts }
        is_it && /"seconds":/ { print $2; exit }
    ' "$out/$1-predicted.json"
}

row() {
    awk -v program="$1" -v over="$2" -v wire="$3" -v p="$4" -v m="$5" 'BEGIN {
        printf "%-7s  %-6s  %-8s  %11.4f  %10.4f  %+4.0f %%\n", program, over,
            over == "shm" ? "" : wire == 0 ? "veth" : wire " Gb/s", p, m, (p / m - 1) * 100
    }'
}

make -s -C examples/npb MPICC=mpicc.openmpi OUT="$(realpath "$out")" || die "examples/npb cannot be built"
"${portolan[@]}" bench logp --path shm,packet,udp --vs tcp --size 8,256,1k,4k,16k,64k,256k \
    --seconds 2 --repeat 5 --json "$out/logp.json" >"$out/logp.txt" || die "bench logp failed: see $out/logp.txt"
for program in "${programs[@]}"; do
    rm -rf "$out/$program-records"
    profile shm here "$out/$program.json" --events 10000000 --keep "$out/$program-records" -- \
        "$out/$program" "$class"
    "${portolan[@]}" predict "$out/$program-records" --measured "$out/logp.json" \
        --wire "$(IFS=, && echo "${wires[*]}")" --hosts 1,2 --json "$out/$program-predicted.json" >"$out/$program.txt"
done
{
    echo 'program  over    wire      predicted s  measured s   error'
    for program in "${programs[@]}"; do
        # On one host the network between hosts has no effect.
        row "$program" shm 0 "$(predicted "$program" tcp 1)" "$(measured shm "$program")"
    done
    for wire in 0 "${wires[@]}"; do
        shape "$wire"
        for program in "${programs[@]}"; do
            for over in packet udp tcp; do
                name="portolan, $over"
                [[ $over != tcp ]] || name=tcp
                [[ $wire == 0 ]] || name+=" over $wire Gb/s"
                row "$program" "$over" "$wire" "$(predicted "$program" "$name" 2)" \
                    "$(measured "$over" "$program")"
            done
        done
    done
} | tee "$table"
say "renewed $table"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The yardsticks of `portolan bench` beside programs of others that do the same work, in rounds in
# alternation, as root (it makes labs): limit and TCP rows of ping-pong beside sockperf, TCP's stream
# beside iperf3. Prints medians and their ratio, and judges nothing: on a quiet machine they differ by less
# than a tenth. Installs sockperf and iperf3 where it can.
#
#   scripts/cross-check.sh
#
# Environment: ROUNDS (5), SECONDS_EACH of a measurement (2), SIZES of ping-pongs (64 1024), PROFILE (release, or
# debug) of the build.
#
# Without a counterpart, and so not here: limit rows of raw Ethernet and of shared memory, which neither
# program has, and of streams by UDP, which hand the kernel many datagrams at once, as iperf3 does not.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

rounds=${ROUNDS:-5}
seconds=${SECONDS_EACH:-2}
read -r -a sizes <<<"${SIZES:-64 1024}"
stream_size=1048576
portolan=("${CARGO_TARGET_DIR:-target}/${PROFILE:-release}/portolan")
lab=cross$(($$ % 100000))
# Of the second host of a lab.
server=10.77.0.2
# Seconds that something may take besides.
grace=30
work=$(mktemp -d)

# shellcheck disable=SC2317  # called when the script ends
clean() {
    [[ ! -e $work/server ]] || kill "$(<"$work/server")" 2>/dev/null || true
    take_lab_down
    rm -rf -- "$work"
}
end_with clean

[[ -x ${portolan[0]} ]] || die "${portolan[0]} is not there: run 'make build' first"
[[ $EUID -eq 0 ]] || die "labs need root: run this script with sudo"
for tool in sockperf iperf3; do
    command -v "$tool" >/dev/null ||
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$tool" >/dev/null ||
        die "$tool is not there, and cannot be installed"
done

# note NAME VALUE: a round's figure.
note() {
    [[ -n $2 ]] || die "no figure of $1: see above"
    echo "$2" >>"$work/$1"
}

median() {
    sort -g "$work/$1" | awk '{ all[NR] = $1 } END { print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'
}

# bench METRIC SIZES: as a person runs it; the ends are pinned to the first two cores.
bench() {
    "${portolan[@]}" bench "$1" --path udp --vs tcp --limits --size "$2" --seconds "$seconds" --repeat 1 \
        --json "$work/$1.json" >"$work/log" || { cat "$work/log" >&2 && die "bench $1 failed"; }
}

# of_bench FILE SYSTEM SIZE FIELD
of_bench() {
    awk -v system_name="\"$2\"" -v size="$3" -v field="\"$4\":" '
        { gsub(/,$/, "") }
        /"slower_variants"/ { exit }
        $1 == "\"system\":" { is_it = $2 == system_name }
        $1 == "\"size\":" { is_it = is_it && $2 == size }
        is_it && $1 == field { sub(/^[^:]*: */, ""); gsub(/"/, ""); print; exit }
    ' "$work/$1.json"
}

# on HOST COMMAND…: sets job, COMMAND in the lab, on the core that the bench gives that end.
on() {
    local host=$1
    shift
    job=("${portolan[@]}" lab exec --name "$lab" "h$host" -- taskset -c "$host" "$@")
}

# serve COMMAND…: on host 1, until stop.
serve() {
    on 1 "$@"
    "${job[@]}" >"$work/served" 2>&1 &
    echo $! >"$work/server"
    # No port can be asked whether it is served without using it.
    sleep 1
}

stop() {
    kill "$(<"$work/server")" 2>/dev/null || true
    wait "$(<"$work/server")" 2>/dev/null || true
    rm "$work/server"
}

# sockperf_rtt NAME SIZE OPTION…: half round trips; both ends spin, as the bench's do.
sockperf_rtt() {
    local name=$1 size=$2 spin=(--nonblocked)
    shift 2
    serve sockperf server -i "$server" "${spin[@]}" "$@"
    on 0 timeout $((seconds + grace)) sockperf ping-pong -i "$server" -m "$size" -t "$seconds" "${spin[@]}" "$@"
    "${job[@]}" >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "sockperf failed"; }
    stop
    note "$name" "$(awk '/percentile 50\.000/ { print $NF }' "$work/log")"
}

# iperf_stream NAME CONGESTION: MB a second that arrive.
iperf_stream() {
    serve iperf3 -s -1 -B "$server"
    on 0 timeout $((seconds + grace)) iperf3 -c "$server" -l "$stream_size" -t "$seconds" -C "$2" -f m
    "${job[@]}" >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "iperf3 failed"; }
    stop
    note "$1" "$(awk '/receiver/ { print $(NF - 2) / 8 }' "$work/log")"
}

row() {
    local ours theirs
    ours=$(median "$2-bench")
    theirs=$(median "$2-other")
    awk -v what="$1" -v ours="$ours" -v theirs="$theirs" -v unit="$3" -v other="$4" 'BEGIN {
        printf "| %s | %.2f %s | %s %.2f %s | %.2f |\n", what, ours, unit, other, theirs, unit, ours / theirs
    }'
}

bring_lab_up || die "no lab can be made here"
for ((round = 1; round <= rounds; round++)); do
    say "round $round of $rounds"
    bench pingpong "$(IFS=, && echo "${sizes[*]}")"
    for size in "${sizes[@]}"; do
        note "udp-$size-bench" "$(of_bench pingpong limit "$size" p50_us)"
        sockperf_rtt "udp-$size-other" "$size"
        note "tcp-$size-bench" "$(of_bench pingpong tcp "$size" p50_us)"
        sockperf_rtt "tcp-$size-other" "$size" --tcp
    done
    bench stream "$stream_size"
    note stream-bench "$(of_bench stream tcp "$stream_size" mbytes_per_s)"
    variant=$(of_bench stream tcp "$stream_size" variant)
    iperf_stream stream-other "${variant##* }"
done
echo "| what | portolan bench | the other | ratio |"
echo "| --- | ---: | ---: | ---: |"
for size in "${sizes[@]}"; do
    row "limit, UDP, half round trip, $size B" "udp-$size" us sockperf
    row "TCP, half round trip, $size B" "tcp-$size" us sockperf
done
row "TCP, stream" stream MB/s iperf3

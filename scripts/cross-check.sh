#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Compares the reference rows of `portolan bench` with other programs that do the same work, in
# alternating rounds, as root (it creates labs): limit and TCP rows of ping-pong with sockperf,
# TCP's stream with iperf3. Prints a table of medians with their ratio, and a verdict for each: on a
# quiet machine the ratio is within 10 %. Exits with 1 if a ratio is not, or a figure is missing.
# Installs sockperf and iperf3 if possible.
#
#   scripts/cross-check.sh
#
# Environment: ROUNDS (3), SECONDS_EACH of a measurement (1, whole seconds), SIZES of ping-pongs (64
# 1024), LIMIT_S after which it stops and prints the results so far (60, and 80 more per round and
# second), PROFILE (release, or debug) of the build.
#
# Both sides have the same settings: ends pinned to the first two cores. Ping-pongs spin; TCP
# sockets have TCP_NODELAY and the default congestion control, UDP passes an address in each call.
# The stream blocks, in calls of 1 MB, with the fastest congestion control of the bench and buffers
# tuned by the kernel.
#
# Rows without a counterpart are not compared: limit rows of raw Ethernet and of shared memory,
# which neither program has, and UDP streams, which pass many datagrams to the kernel per call,
# unlike iperf3.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

rounds=${ROUNDS:-3}
seconds=${SECONDS_EACH:-1}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "ROUNDS is $rounds: a whole number from 1 on"
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "SECONDS_EACH is $seconds: whole seconds from 1 on, as sockperf has them"
read -r -a sizes <<<"${SIZES:-64 1024}"
stream_size=1048576
portolan=("${CARGO_TARGET_DIR:-target}/${PROFILE:-release}/portolan")
lab=cross$(($$ % 100000))
# Address of the second host of a lab.
server=10.77.0.2
# Ports of sockperf and iperf3.
sockperf_port=11111
iperf_port=5201
# Share by which two figures of the same work may differ.
tolerance=0.1
limit_s=${LIMIT_S:-$((60 + 80 * rounds * seconds))}
deadline=$((SECONDS + limit_s))
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

# bounded COMMAND…: runs it until the deadline; its output is shown if it fails.
bounded() {
    local left=$((deadline - SECONDS)) status=0
    if ((left <= 0)); then
        say "the $limit_s seconds of LIMIT_S are over"
        return 1
    fi
    timeout -k 5 "$left" "$@" >"$work/log" 2>&1 </dev/null || status=$?
    case $status in
        0) return 0 ;;
        124 | 137) say "the $limit_s seconds of LIMIT_S were over in: $*" ;;
        *) cat "$work/log" >&2 && say "failed: $*" ;;
    esac
    return 1
}

# note NAME VALUE: records a figure of a round.
note() {
    if [[ -z $2 ]]; then
        cat "$work/log" >&2
        say "no figure of $1: see above"
        return 1
    fi
    echo "$2" >>"$work/$1"
}

median() {
    sort -g "$work/$1" | awk '{ all[NR] = $1 } END { print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'
}

# bench METRIC SIZES OPTION…: runs the bench as a user would; the ends are pinned to the first two
# cores.
bench() {
    local metric=$1 list=$2
    shift 2
    bounded "${portolan[@]}" bench "$metric" --path udp --vs tcp --size "$list" --seconds "$seconds" --repeat 1 \
        --json "$work/$metric.json" "$@"
}

# of_bench FILE SYSTEM SIZE FIELD VARIANT: prints a field of the fastest matching row, the file's
# first one.
of_bench() {
    awk -v system_name="\"$2\"" -v size="$3" -v field="\"$4\":" -v wanted="$5" '
        { gsub(/,$/, "") }
        $1 == "\"system\":" { is_it = $2 == system_name }
        $1 == "\"size\":" { is_it = is_it && $2 == size }
        $1 == "\"variant\":" { is_it = is_it && $0 ~ wanted }
        is_it && $1 == field { sub(/^[^:]*: */, ""); gsub(/"/, ""); print; exit }
    ' "$work/$1.json"
}

# fastest_stream: prints MB/s and congestion control of the fastest blocking TCP stream.
fastest_stream() {
    awk '
        { gsub(/,$/, "") }
        $1 == "\"system\":" { is_it = $2 == "\"tcp\""; control = "" }
        $1 == "\"variant\":" && is_it && /blocking/ { control = $NF; gsub(/"/, "", control) }
        $1 == "\"mbytes_per_s\":" && control != "" && $2 + 0 > best { best = $2 + 0; with = control }
        END { if (best > 0) print best, with }
    ' "$work/stream.json"
}

# on HOST COMMAND…: sets job to COMMAND in the lab, on the core that the bench assigns to that end.
on() {
    local host=$1
    shift
    job=("${portolan[@]}" lab exec --name "$lab" "h$host" -- taskset -c "$host" "$@")
}

# serve PORT COMMAND…: runs it on host 1 until stop; returns when it listens.
serve() {
    local port=$1
    shift
    on 1 timeout -k 5 "$limit_s" "$@"
    "${job[@]}" >"$work/served" 2>&1 </dev/null &
    echo $! >"$work/server"
    for ((try = 0; try < 100; try++)); do
        "${portolan[@]}" lab exec --name "$lab" h1 -- ss -Hlntu "sport = :$port" | grep -q . && return 0
        kill -0 "$(<"$work/server")" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/served" >&2
    say "does not listen: $*"
    return 1
}

stop() {
    kill "$(<"$work/server")" 2>/dev/null || true
    wait "$(<"$work/server")" 2>/dev/null || true
    rm "$work/server"
}

# sockperf_rtt NAME SIZE OPTION…: measures half round trips; both ends spin, as in the bench.
sockperf_rtt() {
    local name=$1 size=$2 same=(-i "$server" -p "$sockperf_port" --nonblocked)
    shift 2
    serve "$sockperf_port" sockperf server "${same[@]}" "$@" || return 1
    on 0 sockperf ping-pong "${same[@]}" -m "$size" -t "$seconds" "$@"
    bounded "${job[@]}" || return 1
    stop
    note "$name" "$(awk '/percentile 50\.000/ { print $NF }' "$work/log")"
}

# iperf_stream NAME CONGESTION: measures received MB per second, and as NAME-again TCP's
# retransmissions.
iperf_stream() {
    serve "$iperf_port" iperf3 -s -1 -B "$server" -p "$iperf_port" || return 1
    on 0 iperf3 -c "$server" -p "$iperf_port" -l "$stream_size" -t "$seconds" -C "$2" -f m
    bounded "${job[@]}" || return 1
    stop
    note "$1-again" "$(awk '/sender$/ { print $(NF - 1) }' "$work/log")" || return 1
    note "$1" "$(awk '/receiver/ { print $(NF - 2) / 8 }' "$work/log")"
}

# measure: runs one round.
measure() {
    local size best with
    bench pingpong "$(IFS=, && echo "${sizes[*]}")" --limits || return 1
    for size in "${sizes[@]}"; do
        note "udp-$size-bench" "$(of_bench pingpong limit "$size" p50_us '"unconnected"')" || return 1
        sockperf_rtt "udp-$size-other" "$size" || return 1
        note "tcp-$size-bench" "$(of_bench pingpong tcp "$size" p50_us "spinning.* $usual\"")" || return 1
        sockperf_rtt "tcp-$size-other" "$size" --tcp || return 1
    done
    bench stream "$stream_size" || return 1
    read -r best with < <(fastest_stream) || true
    note stream-bench "${best:-}" || return 1
    controls+=" $with"
    iperf_stream stream-other "$with"
}

# row WHAT NAME UNIT OTHER: prints a line of the table. Counts rows in judged, and rows beyond the
# tolerance or without figures in off.
row() {
    judged=$((judged + 1))
    if [[ ! -e $work/$2-bench || ! -e $work/$2-other ]]; then
        echo "| $1 | - | - | - | not measured |"
        off=$((off + 1))
        return
    fi
    awk -v what="$1" -v ours="$(median "$2-bench")" -v theirs="$(median "$2-other")" -v unit="$3" -v other="$4" \
        -v tolerance="$tolerance" 'BEGIN {
        ratio = ours / theirs
        within = ratio >= 1 - tolerance && ratio <= 1 + tolerance
        printf "| %s | %.2f %s | %s %.2f %s | %.2f | %s |\n", what, ours, unit, other, theirs, unit, ratio,
            within ? "within a tenth" : "differs"
        exit !within
    }' || off=$((off + 1))
}

bring_lab_up || die "no lab can be made here"
# The default congestion control, as used by sockperf's sockets.
usual=$("${portolan[@]}" lab exec --name "$lab" h0 -- cat /proc/sys/net/ipv4/tcp_congestion_control)
say "$rounds rounds of about $((25 + 20 * seconds)) s; ends after $limit_s s at the latest"
controls=""
done_rounds=0
for ((round = 1; round <= rounds; round++)); do
    say "round $round of $rounds"
    measure || break
    done_rounds=$round
done
judged=0
off=0
echo "| what | portolan bench | the other | ratio | |"
echo "| --- | ---: | ---: | ---: | --- |"
for size in "${sizes[@]}"; do
    row "limit, UDP, half round trip, $size B" "udp-$size" us sockperf
    row "TCP, half round trip, $size B" "tcp-$size" us sockperf
done
row "TCP, stream (congestion control:${controls:- none})" stream MB/s iperf3
# iperf3 sends on one core, and acknowledgements trigger sends on the other. On a veth pair each
# core has a queue of its own, so packets overtake each other and count as lost. The bench waits at
# the end of each window and loses less in this way.
again=0
[[ ! -e $work/stream-other-again ]] || again=$(median stream-other-again)
((${again%.*} == 0)) ||
    say "iperf3's TCP sent $again segments again, the median of a round: packets of its two cores overtake one another"
((done_rounds == rounds)) || say "$done_rounds of $rounds rounds were done"
if ((off > 0)); then
    say "$off of $judged rows differ by more than a tenth or are missing; on a quiet machine none should"
    exit 1
fi
say "all $judged rows agree within a tenth"

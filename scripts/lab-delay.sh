#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures the time that a delay of a lab's wires adds beyond the requested value, as root (it
# creates labs). Compares round trips of UDP datagrams between two hosts over bare veth and with
# each delay; half the difference is the actual delay. Prints medians of rounds, and the number of
# late frames. Needs python3.
#
#   scripts/lab-delay.sh
#
# Environment: DELAYS (50us 200us 1ms 10ms), COUNT of round trips (1000), BY (line; netem), PROFILE (release, or
# debug) of the build.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

read -r -a delays <<<"${DELAYS:-50us 200us 1ms 10ms}"
count=${COUNT:-1000}
by=${BY:-line}
portolan=${CARGO_TARGET_DIR:-target}/${PROFILE:-release}/portolan
lab=delay$(($$ % 100000))

# shellcheck disable=SC2317  # called when the script ends
clean() {
    "$portolan" lab down --name "$lab" 2>/dev/null || true
}
end_with clean

[[ -x $portolan ]] || die "$portolan is not there: run 'make build' first"
[[ $EUID -eq 0 ]] || die "labs need root: run this script with sudo"
command -v python3 >/dev/null || die "python3 is missing: apt install python3"

answer='
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 7))
print("ready", flush=True)
while True:
    data, at = s.recvfrom(100)
    if data == b"end":
        break
    s.sendto(data, at)
'
ask='
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("10.77.0.2", 7))
s.settimeout(60)
times = []
for at in range(int(sys.argv[1])):
    begun = time.perf_counter()
    s.send(b"x" * 64)
    s.recv(100)
    times.append((time.perf_counter() - begun) * 1e6)
s.send(b"end")
times.sort()
print("%.0f %.0f %.0f" % (times[0], times[len(times) // 2], times[len(times) * 99 // 100]))
'

# Prints the shortest, median and 99th percentile of round trips, in microseconds.
round_trips() {
    local ready answerer
    exec {ready}< <(exec "$portolan" lab exec --name "$lab" h1 -- python3 -c "$answer")
    answerer=$!
    read -r -u "$ready" _
    "$portolan" lab exec --name "$lab" h0 -- python3 -c "$ask" "$count"
    wait "$answerer"
    exec {ready}<&-
}

"$portolan" lab up --name "$lab" >/dev/null
read -r bare_min bare bare_p99 < <(round_trips)
"$portolan" lab down --name "$lab"
printf '%-8s %9s %9s %9s %9s  %s\n' delay 'min us' 'p50 us' 'p99 us' 'way us' 'counts'
printf '%-8s %9s %9s %9s\n' none "$bare_min" "$bare" "$bare_p99"
for delay in "${delays[@]}"; do
    "$portolan" lab up --name "$lab" --link "delay=$delay,by=$by" >/dev/null
    read -r min median p99 < <(round_trips)
    counts=$("$portolan" lab list | sed -n "s/^$lab .* passed/passed/p")
    "$portolan" lab down --name "$lab"
    printf '%-8s %9s %9s %9s %9s  %s\n' "$delay" "$min" "$median" "$p99" \
        $(((median - bare) / 2)) "$counts"
done

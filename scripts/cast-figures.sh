#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# One file to several hosts of a lab whose wires are shaped: portolan cast beside what people use. As root.
#
#   scripts/cast-figures.sh [RATE [MEGABYTES [HOSTS...]]]      default: 1gbit 256 1 2 4 8
#
# Each host's NIC sends RATE at most (tc tbf). Source and copies are in memory (/dev/shm). Prints seconds and the
# rate to each host; what is missing on this machine is said and left out. SYSTEMS names some of them.
set -euo pipefail
rate=${1:-1gbit}
megabytes=${2:-256}
shift $(($# < 2 ? $# : 2))
counts=("$@")
[ ${#counts[@]} -gt 0 ] || counts=(1 2 4 8)
portolan=${PORTOLAN:-target/release/portolan}
lab=castfig
directory=$(mktemp -d -p /dev/shm)
most=0
for count in "${counts[@]}"; do ((count > most)) && most=$count; done

finish() {
    "$portolan" lab down --name "$lab" >/dev/null 2>&1 || true
    rm -rf "$directory"
}
trap finish EXIT

on() { # HOST COMMAND...
    local host=$1
    shift
    ip netns exec "$lab-h$host" "$@"
}

address() { echo "10.77.0.$(($1 + 1))"; }

# Waits until somebody listens on a host's TCP port.
await() {
    local left=200
    until on "$1" ss -Hltn "sport = :$2" | grep -q . || ((left-- == 0)); do sleep 0.02; done
}

with_portolan() {
    "$portolan" cast "$directory/source" "$directory/%h" --lab "$lab" --first "$1" >/dev/null
}

# A chain of nc and tee: what a shell does in the way of Dolly.
with_nc_chain() {
    local host
    for ((host = $1; host >= 1; host--)); do
        if ((host == $1)); then
            on "$host" sh -c "nc -l -p 9000 > $directory/$lab-h$host" &
        else
            on "$host" sh -c "nc -l -p 9000 | tee $directory/$lab-h$host | nc -N $(address $((host + 1))) 9000" &
        fi
        await "$host" 9000
    done
    on 0 sh -c "nc -N $(address 1) 9000 < $directory/source"
    wait
}

# One host after the other: what scp and rsync in a loop do, without what ssh costs.
with_nc_loop() {
    local host
    for ((host = 1; host <= $1; host++)); do
        on "$host" sh -c "nc -l -p 9000 > $directory/$lab-h$host" &
        await "$host" 9000
        on 0 sh -c "nc -N $(address "$host") 9000 < $directory/source"
        wait
    done
}

with_rsync_loop() {
    local host
    printf 'use chroot = no\nuid = 0\ngid = 0\n[x]\npath = %s\nread only = no\n' "$directory" >"$directory/rsyncd"
    for ((host = 1; host <= $1; host++)); do
        # Not by `on`: the number of a function in the background is that of a shell, which does not end it.
        ip netns exec "$lab-h$host" rsync --daemon --no-detach --config="$directory/rsyncd" --port=8730 &
        local pid=$!
        await "$host" 8730
        on 0 rsync -W --inplace "$directory/source" "rsync://$(address "$host"):8730/x/$lab-h$host"
        kill "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null || true
    done
}

"$portolan" lab up --name "$lab" --hosts $((most + 1)) >/dev/null
for ((host = 0; host <= most; host++)); do
    on "$host" tc qdisc add dev eth0 root tbf rate "$rate" burst 256k limit 4m
done
head -c "$((megabytes * 1000000))" /dev/urandom >"$directory/source"
echo "| system | hosts | seconds | MB/s to each |"
echo "| --- | --- | --- | --- |"
for system in ${SYSTEMS:-portolan nc_chain nc_loop rsync_loop}; do
    case $system in
    nc_*) program=nc ;;
    rsync_loop) program=rsync ;;
    *) program=ip ;;
    esac
    if ! command -v "$program" >/dev/null; then
        echo "SKIPPED: $system: $program is not installed" >&2
        continue
    fi
    for count in "${counts[@]}"; do
        rm -f "$directory/$lab-h"*
        begin=$(date +%s.%N)
        "with_$system" "$count"
        end=$(date +%s.%N)
        for ((host = 1; host <= count; host++)); do
            cmp -s "$directory/source" "$directory/$lab-h$host" || echo "WRONG: $system: the copy of host $host of $count" >&2
        done
        awk -v s="$system" -v n="$count" -v b="$begin" -v e="$end" -v m="$megabytes" \
            'BEGIN { printf "| %s | %d | %.2f | %.0f |\n", s, n, e - b, m / (e - b) }'
    done
done

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Copies one file to several hosts of a lab with shaped wires: portolan cast next to other tools. As
# root.
#
#   scripts/cast-figures.sh [RATE [MEGABYTES [HOSTS...]]]      default: 1gbit 256 1 2 4 8
#
# Each wire passes RATE (portolan lab up --link). Source and copies are in memory (/dev/shm). Prints
# the seconds, and the rate to each host, for each of RUNS (1) runs. Systems that are missing on
# this machine are reported and left out.
#
# Environment:
# - SYSTEMS: names of the systems to run (default: all but portolan_copied and portolan_placed,
#   which also print the rate that the model predicts).
# - LOSS=N: each host loses N of 10,000 incoming frames.
# - DISCARD=1: copies are read by cat and discarded, by systems that support it, if memory or disk
#   is too small for them.
# - JSON=FILE: writes the figures, for portolan plot.
#
# scp needs openssh-server, udpcast the package of that name, tar_chain and the nc_ ones
# netcat-openbsd.
set -euo pipefail
rate=${1:-1gbit}
megabytes=${2:-256}
shift $(($# < 2 ? $# : 2))
counts=("$@")
[ ${#counts[@]} -gt 0 ] || counts=(1 2 4 8)
portolan=${PORTOLAN:-target/release/portolan}
lab=castfig
loss=${LOSS:-0}
discard=${DISCARD:-}
json=${JSON:-}
directory=$(mktemp -d -p /dev/shm)
most=0
for count in "${counts[@]}"; do ((count > most)) && most=$count; done

finish() {
    [ -z "${servers[*]:-}" ] || kill "${servers[@]}" 2>/dev/null || true
    "$portolan" lab down --name "$lab" >/dev/null 2>&1 || true
    rm -rf "$directory"
    [ -z "${made:-}" ] || rmdir "$made"
}
trap finish EXIT

on() { # HOST COMMAND...
    local host=$1
    shift
    ip netns exec "$lab-h$host" "$@"
}

# Prints the path of the copy on host $1.
copy() {
    if [ -n "$discard" ]; then echo /dev/null; else echo "$directory/$lab-h$1"; fi
}

address() { echo "10.77.0.$(($1 + 1))"; }

# Waits until a process listens on a host's TCP port.
await() {
    local left=200
    until on "$1" ss -Hltn "sport = :$2" | grep -q . || ((left-- == 0)); do sleep 0.02; done
}

with_portolan() { # COUNT [ARGUMENTS]
    local target=("$directory/%h")
    [ -z "$discard" ] || target=(--pipe 'cat >/dev/null')
    "$portolan" cast "$directory/source" "${target[@]}" --lab "$lab" --first "$@" >/dev/null
}

with_portolan_chain() { with_portolan "$1" --shape chain; }

# The chain of the paper's Table 4, with the model's rate: payload is copied from receive buffers, or
# received in place.
with_model() { # COUNT PLACEMENT
    local target=("$directory/%h")
    [ -z "$discard" ] || target=(--pipe 'cat >/dev/null')
    "$portolan" cast "$directory/source" "${target[@]}" --lab "$lab" --first "$1" --shape chain --path udp \
        --option stream=off --option "placement=$2" --explain >"$directory/said" 2>&1 || return
    predicted=$(sed -n 's/^predicted .* s, \(.*\) MB\/s; took .*/\1/p' "$directory/said")
}
with_portolan_copied() { with_model "$1" bounce; }
with_portolan_placed() { with_model "$1" speculative; }
with_portolan_tree() { with_portolan "$1" --shape tree:2; }
# Fail if the cast falls back to the chain because multicast does not reach all hosts.
with_portolan_multicast() {
    local said status=0
    said=$(with_portolan "$1" --shape multicast 2>&1) || status=$?
    [[ $said != *"no multicast"* ]] || status=1
    ((status == 0)) || echo "$said" >&2
    return "$status"
}

# Looks for receivers every 100 ms; by default it finds them two seconds later. Uses a group,
# because receivers search for the sender at the interface's broadcast address, which lab interfaces
# lack.
with_udpcast() {
    local host options=(--interface eth0 --nokbd --mcast-rdv-address 239.255.77.1 --ttl 1)
    for ((host = 1; host <= $1; host++)); do
        on "$host" timeout 300 udp-receiver "${options[@]}" --file "$(copy "$host")" >/dev/null 2>&1 &
    done
    on 0 timeout 300 udp-sender "${options[@]}" --full-duplex --min-receivers "$1" --rexmit-hello-interval 100 \
        --file "$directory/source" >/dev/null 2>&1
    wait_for_jobs
}

# One ssh server per host, with keys and settings of its own.
servers=()
made=
start_ssh() {
    local host
    # The directory for privilege separation, without which the server does not start.
    if [ ! -d /run/sshd ]; then
        mkdir /run/sshd
        made=/run/sshd
    fi
    ssh-keygen -q -t ed25519 -N '' -f "$directory/key"
    printf '%s\n' "HostKey $directory/key" "AuthorizedKeysFile $directory/key.pub" 'Port 2222' 'PidFile none' \
        'StrictModes no' 'UsePAM no' 'PermitRootLogin yes' "Subsystem sftp internal-sftp" >"$directory/sshd"
    for ((host = 1; host <= most; host++)); do
        ip netns exec "$lab-h$host" /usr/sbin/sshd -D -f "$directory/sshd" &
        servers+=($!)
        await "$host" 2222
    done
}

with_scp_loop() {
    local host
    for ((host = 1; host <= $1; host++)); do
        on 0 scp -q -P 2222 -i "$directory/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
            -o LogLevel=ERROR "$directory/source" "root@$(address "$host"):$directory/$lab-h$host"
    done
}

# A chain of nc and tee: a shell version of Dolly.
with_nc_chain() {
    local host
    for ((host = $1; host >= 1; host--)); do
        if ((host == $1)); then
            on "$host" sh -c "nc -l -p 9000 > $(copy "$host")" &
        else
            on "$host" sh -c "nc -l -p 9000 | tee $(copy "$host") | nc -N $(address $((host + 1))) 9000" &
        fi
        await "$host" 9000
    done
    on 0 sh -c "nc -N $(address 1) 9000 < $directory/source"
    wait_for_jobs
}

# The same with tar at both ends.
with_tar_chain() {
    local host extract
    for ((host = $1; host >= 1; host--)); do
        extract="tar -x -C $directory --transform s/source/$lab-h$host/"
        [ -z "$discard" ] || extract='tar -x -O >/dev/null'
        if ((host == $1)); then
            on "$host" sh -c "nc -l -p 9000 | $extract" &
        else
            on "$host" bash -c "nc -l -p 9000 | tee >(nc -N $(address $((host + 1))) 9000) | $extract" &
        fi
        await "$host" 9000
    done
    on 0 sh -c "tar -c -C $directory source | nc -N $(address 1) 9000"
    wait_for_jobs
}

# ssh servers are also jobs, but do not end.
wait_for_jobs() {
    local job
    for job in $(jobs -p); do
        [[ " ${servers[*]} " == *" $job "* ]] || wait "$job" || true
    done
}

# One host after the other: like scp and rsync in a loop, without the cost of ssh.
with_nc_loop() {
    local host
    for ((host = 1; host <= $1; host++)); do
        on "$host" sh -c "nc -l -p 9000 > $(copy "$host")" &
        await "$host" 9000
        on 0 sh -c "nc -N $(address "$host") 9000 < $directory/source"
        wait_for_jobs
    done
}

with_rsync_loop() {
    local host
    printf 'use chroot = no\nuid = 0\ngid = 0\n[x]\npath = %s\nread only = no\n' "$directory" >"$directory/rsyncd"
    for ((host = 1; host <= $1; host++)); do
        # Do not use `on`: in the background its process is a shell, and killing that does not end
        # rsync.
        ip netns exec "$lab-h$host" rsync --daemon --no-detach --config="$directory/rsyncd" --port=8730 &
        local pid=$!
        await "$host" 8730
        on 0 rsync -W --inplace "$directory/source" "rsync://$(address "$host"):8730/x/$lab-h$host"
        kill "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null || true
    done
}

# The scheduler places the processes of the other systems, so it also places Portolan's.
"$portolan" lab up --name "$lab" --hosts $((most + 1)) --cores all \
    --link "rate=$rate,queue=4m,loss=$(awk -v l="$loss" 'BEGIN { print l / 100 }')%" >/dev/null
head -c "$((megabytes * 1000000))" /dev/urandom >"$directory/source"
# Prints the program that a system needs.
program_of() {
    case $1 in
    nc_* | tar_*) echo nc ;;
    rsync_loop) echo rsync ;;
    scp_loop) echo /usr/sbin/sshd ;;
    udpcast) echo udp-sender ;;
    *) echo ip ;;
    esac
}

# Succeeds if a system can discard copies.
can_discard() { [[ $1 != rsync_loop && $1 != scp_loop ]]; }

measure() { # SYSTEM COUNT
    local host begin end predicted=
    rm -f "$directory/$lab-h"*
    begin=$(date +%s.%N)
    "with_$1" "$2" || echo "FAILED: $1: status $?" >&2
    end=$(date +%s.%N)
    for ((host = 1; host <= $2; host++)); do
        [ -n "$discard" ] || cmp -s "$directory/source" "$directory/$lab-h$host" || echo "WRONG: $1: the copy of host $host of $2" >&2
    done
    awk -v s="$1" -v n="$2" -v b="$begin" -v e="$end" -v m="$megabytes" -v p="$predicted" \
        'BEGIN { printf "| %s | %d | %.2f | %.0f | %s |\n", s, n, e - b, m / (e - b), p }' | tee -a "$directory/rows"
}

# Writes the rows as JSON. tc reports rates in bytes per second.
write_json() {
    local work="$megabytes MB from memory to memory, wires of $rate" wire
    [ -z "$discard" ] || work="$megabytes MB from memory, thrown away; wires of $rate"
    wire=$(on 0 tc -j qdisc show dev eth0 root | jq '.[0].options.rate / 1e6')
    jq -R -n --arg work "$work" --argjson wire "$wire" '{work: $work, wire_mbytes_per_s: $wire, casts: [inputs | split(" | ")
        | {system: .[0] | ltrimstr("| ") | gsub("_"; " "), hosts: .[1] | tonumber, seconds: .[2] | tonumber,
            mbytes_per_s: .[3] | tonumber, predicted_mbytes_per_s: (.[4] | rtrimstr(" |") | tonumber? // null)}]}' \
        <"$directory/rows" >"$json"
}

[ -z "$json" ] || command -v jq >/dev/null || { echo "JSON= needs jq: install it" >&2 && exit 2; }
systems=()
for system in ${SYSTEMS:-portolan_chain portolan_tree portolan_multicast udpcast tar_chain nc_chain nc_loop rsync_loop scp_loop}; do
    [ -z "$discard" ] || can_discard "$system" || continue
    program=$(program_of "$system")
    if command -v "$program" >/dev/null; then
        systems+=("$system")
    else
        echo "SKIPPED: $system: $program is not installed" >&2
    fi
done
[[ " ${systems[*]} " != *" scp_loop "* ]] || start_ssh
echo "| system | hosts | seconds | MB/s to each | predicted |"
echo "| --- | --- | --- | --- | --- |"
for ((run = 0; run < ${RUNS:-1}; run++)); do
    for count in "${counts[@]}"; do
        # Systems alternate, so that other load on the machine affects them alike.
        for system in "${systems[@]}"; do
            measure "$system" "$count"
        done
    done
done
[ -z "$json" ] || write_json

# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Runs libfabric's own fi_pingpong, which compares every byte. Part of scripts/test-mpi.sh.

# Time limits in seconds for one run of all sizes, 64 bytes to 1 MiB, on a busy machine, and for the
# server to listen.
pingpong_limit=300
listen_limit=60

# via HOST: sets on to the prefix of a command that runs on this host of the lab; - is the machine.
via() {
    on=(env)
    [[ $1 == - ]] || on=("$portolan" lab exec --name "$lab" "$1" -- env)
}

# wait_for_port PORT: waits until a process listens there, on the host of `on`.
wait_for_port() {
    local tenth
    for ((tenth = 0; tenth < listen_limit * 10; tenth++)); do
        ! "${on[@]}" ss -Hltn "sport = :$1" | grep -q . || return 0
        sleep 0.1
    done
    return 1
}

# pingpong_once NAME ADDRESS SERVER-HOST CLIENT-HOST KIND PROVIDER
pingpong_once() {
    local name=$1 address=$2 server_host=$3 client_host=$4 kind=$5 provider=$6
    local port=$((20000 + RANDOM % 10000)) problem='' pid
    local words=("FI_PROVIDER_PATH=$provider_dir" "FI_PROVIDER=$provider" fi_pingpong -p "$provider" -e rdm -c -m "$kind")
    via "$server_host"
    timeout "$pingpong_limit" "${on[@]}" "${words[@]}" -B "$port" >"$work_dir/server" 2>&1 &
    pid=$!
    wait_for_port "$port" || problem="nobody listens"
    via "$client_host"
    logged "$pingpong_limit" "${on[@]}" "${words[@]}" -P "$port" "$address" ||
        problem+=" the client ends with status $?"
    [[ -z $problem ]] || kill "$pid" 2>/dev/null || true
    wait "$pid" || problem+=" the server ends with status $?"
    grep -q '^1m .*=10 ' "$work_dir/log" || problem+=" no result for 1 MiB"
    verdict "fi_pingpong, $provider, $kind, $name" "$problem"
}

pingpong() {
    local kind provider
    if ! install libfabric-bin iproute2; then
        skipped "fi_pingpong could not be installed (Debian: libfabric-bin)"
        return
    fi
    # The second uses connected endpoints below libfabric's layer ofi_rxm.
    for provider in portolan 'portolan;ofi_rxm'; do
        for kind in msg tagged; do
            pingpong_once "one host" 127.0.0.1 - - "$kind" "$provider"
            [[ $lab_is_up == no ]] || pingpong_once "two hosts" 10.77.0.1 h0 h1 "$kind" "$provider"
        done
    done
}

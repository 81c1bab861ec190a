# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Tests an ordinary user's MPI job over raw Ethernet, with a broker on each host of the lab. Part of
# scripts/test-mpi.sh.
#
# The launcher also runs as the user. It may enter the lab's hosts (CAP_SYS_ADMIN), in place of ssh;
# the ranks have no privileges.

# Time limit in seconds for one short job on a busy machine.
broker_limit=120
# A user that owns nothing here.
broker_user=65533

# broker_files: creates scripts for launcher and ranks in $work_dir/broker, which the user may
# enter.
broker_files() {
    local directory=$work_dir/broker host
    mkdir -p "$directory/bin"
    chmod 755 "$work_dir" "$directory" "$provider_dir"
    cp -L "$portolan" "$directory/portolan"
    cp -L "$build_dir/libportolan_fi.so" "$directory/bin/libportolan-fi.so"
    cp /etc/hosts "$directory/hosts"
    for host in 0 1; do echo "10.77.0.$((host + 1)) $lab-h$host" >>"$directory/hosts"; done
    cat >"$directory/broker.toml" <<'END'
socket = '@portolan-broker'
[[nic]]
interface = 'eth0'
groups = ['*']
END
    cat >"$directory/agent" <<'END'
#!/bin/sh
# [-x] HOST COMMAND...: as ssh
[ "$1" != -x ] || shift
host=$1
shift
exec nsenter "--net=/run/netns/$host" unshare --uts sh -c \
    'hostname "$1"; shift; exec sh -c "$*"' sh "$host" "$@"
END
    cat >"$directory/rank" <<'END'
#!/bin/sh
exec setpriv --inh-caps -all --ambient-caps -all --bounding-set -all \
    sh -c 'grep CapEff /proc/self/status; exec "$@"' sh "$@"
END
    chmod 755 "$directory/agent" "$directory/rank"
}

# broker_start HOST: starts a broker and adds its process to pids.
broker_start() {
    local said=$work_dir/broker/said$1
    via "$1"
    "${on[@]}" RUST_LOG=portolan_broker=info "$work_dir/broker/portolan" broker --foreground \
        --config "$work_dir/broker/broker.toml" >"$said" 2>&1 &
    pids+=($!)
    for _ in $(seq 100); do
        ! grep -q 'serving at' "$said" || return 0
        sleep 0.1
    done
    return 1
}

# broker_watch: prints a line for each of our whole frames that arrives at its host, until it is
# killed.
broker_watch='
import socket
every = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
every.bind(("eth0", 3))
while True:
    frame = every.recv(2048)
    if frame[12:14] == b"\x88\xb5":
        print(frame[:18].hex(), flush=True)
'

# broker_job WORD…: runs an ordinary user's `portolan mpirun` on host 0; WORD… is for the launcher.
broker_job() {
    local directory=$work_dir/broker may=-all,+sys_admin
    # shellcheck disable=SC2016 # The inner shell expands them.
    logged "$broker_limit" "$portolan" lab exec --name "$lab" h0 -- unshare --uts --mount sh -c \
        'hostname "$1"; mount --bind "$2" /etc/hosts; shift 2; exec "$@"' sh "$lab-h0" "$directory/hosts" \
        setpriv --reuid "$broker_user" --regid "$broker_user" --clear-groups --inh-caps "$may" \
        --ambient-caps "$may" --bounding-set "$may" env --chdir=/ HOME=/ "${launcher_env[@]}" \
        PORTOLAN_BROKER=@portolan-broker "$directory/portolan" mpirun \
        --provider-dir "$directory/bin" --mpi "$@"
}

broker() {
    local directory=$work_dir/broker pids=() problem='' words
    if [[ $lab_is_up == no ]]; then
        skipped "no lab: no broker is tried"
        return
    fi
    broker_files
    build "$1" scripts/mpi-ring.c
    cp "$work_dir/$1/mpi-ring" "$directory/mpi-ring"
    chmod -R a+rX "$work_dir/$1"
    case $1 in
        mpich) words=("$launcher" -launcher-exec "$directory/agent" -hosts "$lab-h0,$lab-h1") ;;
        *) words=("$launcher" --host "$lab-h0,$lab-h1" --mca plm_rsh_agent "$directory/agent") ;;
    esac
    words+=(-n 2 "$directory/rank" "$directory/mpi-ring")
    if ! broker_start h0 || ! broker_start h1; then
        problem="the brokers do not start: $(tail -n 1 "$directory/saidh0")"
    else
        via h1
        "${on[@]}" python3 -c "$broker_watch" >"$directory/frames" &
        pids+=($!)
        broker_job "${words[@]}" || problem="it ends with status $?"
        grep -q 'mpi-ring: 2 ranks, sum 1' "$work_dir/log" || problem+=" a wrong sum"
        [[ $(grep -c 'CapEff:.*0000000000000000' "$work_dir/log") == 2 ]] ||
            problem+=" the ranks have privileges"
        grep -q "user $broker_user has endpoint" "$directory/saidh0" || problem+=" no socket of h0's"
        grep -q "user $broker_user has endpoint" "$directory/saidh1" || problem+=" no socket of h1's"
        # Each of the 200 turns of the ring is one message each way.
        [[ $(wc -l <"$directory/frames") -ge 200 ]] || problem+=" it went another way"
    fi
    kill "${pids[@]}" 2>/dev/null || true
    wait "${pids[@]}" 2>/dev/null || true
    verdict "$1, an ordinary user by a broker" "$problem"
}

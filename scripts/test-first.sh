#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Follows the first screen of README.md like a new user: runs its first block of commands unchanged,
# as an ordinary user on a fresh checkout. Two hosts of a lab, each with an sshd, stand for two
# machines with a common home directory. Then `portolan run` and `portolan cast` reach both hosts.
#
# Needs root, and Debian's packages openssh-server, openssh-client, openmpi-bin, libopenmpi-dev and
# git. The user and the mounts exist only in a mount namespace of this script, and leave nothing
# behind.
#
# Environment: CARGO_PROFILE_… and CARGO_NET_OFFLINE, as for any build. TARGET names a directory of
# an earlier build for CARGO_TARGET_DIR. LIMIT is the time limit of one step in seconds (7200).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

user=newcomer
# User ids above those that Debian assigns to users and services.
uid=$((61184 + $$ % 1000))
lab=f$(($$ % 100000))
hosts=("$lab-h0" "$lab-h1")
# Limit of one step in seconds; the build is the longest.
limit=${LIMIT:-7200}
sshds=()

check_needs() {
    local command missing=()
    [[ $EUID -eq 0 ]] || missing+=("root")
    for command in /usr/sbin/sshd ssh ssh-keygen mpicc mpirun git ip unshare setpriv; do
        command -v "$command" >/dev/null || missing+=("$command")
    done
    if [[ ${#missing[@]} -gt 0 ]]; then
        skipped "the first screen: missing here: ${missing[*]}"
        exit 0
    fi
}

# Enters a mount namespace; all mounts below end with this script.
enter_namespace() {
    [[ ${IN_NAMESPACE:-} == yes ]] && return
    check_needs
    IN_NAMESPACE=yes exec unshare --mount --propagation private "$BASH" scripts/test-first.sh
}

cleanup() {
    local pid
    for pid in "${sshds[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    take_lab_down
    umount -l "$home/.cargo" "$home/.rustup" 2>/dev/null || true
    rm -rf --one-file-system -- "$work_dir"
}

make_user() {
    mkdir -p "$home/.ssh"
    { cat /etc/passwd; echo "$user:x:$uid:$uid::$home:/bin/bash"; } >"$work_dir/passwd"
    { cat /etc/group; echo "$user:x:$uid:"; } >"$work_dir/group"
    mount --bind "$work_dir/passwd" /etc/passwd
    mount --bind "$work_dir/group" /etc/group
    # Network namespaces of this script are visible to this script only.
    mkdir -p /run/netns
    mount -t tmpfs tmpfs /run/netns
    ssh-keygen -q -t ed25519 -N '' -f "$home/.ssh/id_ed25519"
    cp "$home/.ssh/id_ed25519.pub" "$home/.ssh/authorized_keys"
    chown -R "$uid:$uid" "$home"
    chmod 700 "$home/.ssh"
}

# Gives the user a copy-on-write view of the toolchain of this script.
lend_toolchain() {
    local cargo_home=${CARGO_HOME:-$HOME/.cargo} rustup_home=${RUSTUP_HOME:-$HOME/.rustup}
    [[ -d $cargo_home ]] || return 0
    mkdir -p "$work_dir/cargo/upper" "$work_dir/cargo/work" "$home/.cargo" "$home/.rustup"
    chown "$uid:$uid" "$work_dir/cargo/upper" "$home/.cargo" "$home/.rustup"
    mount -t overlay overlay "$home/.cargo" \
        -o "lowerdir=$cargo_home,upperdir=$work_dir/cargo/upper,workdir=$work_dir/cargo/work"
    # Read-only, also for the removal at the end.
    [[ ! -d $rustup_home ]] || mount -o bind,ro "$rustup_home" "$home/.rustup"
}

# Fills as_user with the prefix of a command of the user: the environment of a login, and the
# settings of a build.
become_user() {
    local name kept=()
    while IFS= read -r name; do
        kept+=("$name=${!name}")
    done < <(compgen -e | grep -E '^(CARGO_PROFILE_|CARGO_BUILD_|CARGO_NET_OFFLINE$)' || true)
    [[ -z ${TARGET:-} ]] || kept+=("CARGO_TARGET_DIR=$TARGET")
    as_user=(setpriv --reuid "$uid" --regid "$uid" --clear-groups --inh-caps=-all --bounding-set=-all
        env -i "HOME=$home" "USER=$user" "LOGNAME=$user" SHELL=/bin/bash
        "PATH=$home/.cargo/bin:/usr/local/bin:/usr/bin:/bin" "${kept[@]}")
}

# Prints the commands of README.md's first block.
first_block() {
    awk '/^```sh$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' README.md
}

check_out() {
    # As root, so that the directory of the repository need not be readable for the user.
    git -c safe.directory='*' clone --quiet --no-hardlinks "$repository" "$checkout"
    cp scripts/mpi-ring.c "$checkout/program.c"
    printf '%s slots=2\n' "${hosts[@]}" >"$checkout/hosts"
    chown -R "$uid:$uid" "$checkout"
}

start_sshd() {
    local host=$1
    # shellcheck disable=SC2016  # for the shell that becomes sshd
    ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$host" \
        /usr/sbin/sshd -D -e -f /dev/null -h "$work_dir/host_key" -o UsePAM=no -o PidFile=none \
        >"$work_dir/$host.log" 2>&1 </dev/null &
    sshds+=($!)
}

# Creates two hosts that can resolve each other's names, each with its sshd.
make_hosts() {
    local host
    portolan=("$home/.local/bin/portolan")
    bring_lab_up >"$work_dir/addresses" || die "no lab can be made here"
    { cat /etc/hosts; awk '{ print $2, $1 }' "$work_dir/addresses"; } >"$work_dir/hosts"
    mount --bind "$work_dir/hosts" /etc/hosts
    ssh-keygen -q -t ed25519 -N '' -f "$work_dir/host_key"
    # The privilege separation directory of sshd; it exists where the package's service runs.
    mkdir -p /run/sshd
    for host in "${hosts[@]}"; do
        echo "$host $(cut -d' ' -f1,2 "$work_dir/host_key.pub")" >>"$home/.ssh/known_hosts"
        start_sshd "$host"
    done
    for host in "${hosts[@]}"; do
        wait_for "$host"
    done
}

# log_in HOST COMMAND…: runs it from the first host through ssh.
log_in() {
    ip netns exec "${hosts[0]}" "${as_user[@]}" timeout "$limit" ssh -o BatchMode=yes "$@"
}

wait_for() {
    for _ in {1..100}; do
        ! log_in "$1" true 2>/dev/null || return 0
        sleep 0.2
    done
    cat "$work_dir/$1.log"
    die "sshd on $1 does not let the user in"
}

# Runs the lines that begin with `make`. They need no lab, and a lab has no network access for
# crates.
build() {
    first_block | grep '^make ' >"$work_dir/build.sh"
    say "$(cat "$work_dir/build.sh")"
    (cd "$checkout" && timeout "$limit" "${as_user[@]}" bash -e "$work_dir/build.sh") ||
        die "README's make does not work on a fresh checkout"
}

# check NAME WORDS COMMAND…: the output of the command on the first host must match each line of
# WORDS.
check() {
    local name=$1 words=$2 word out=$work_dir/out
    shift 2
    log_in "${hosts[0]}" "$@" >"$out" 2>&1 </dev/null || { cat "$out"; die "$name: fails"; }
    cat "$out"
    while IFS= read -r word; do
        grep -qE -- "$word" "$out" || die "$name: prints no line '$word'"
    done <<<"$words"
    say "ok: $name"
}

# Prints the line that scripts/mpi-ring.c prints for each `portolan mpirun -n N` of the block.
results() {
    local ranks
    sed -nE 's/^portolan mpirun -n ([0-9]+) .*/\1/p' "$home/first.sh" | while read -r ranks; do
        echo "^mpi-ring: $ranks ranks, sum $((ranks * (ranks - 1) / 2))$"
    done
}

walk() {
    { echo 'cd portolan'; first_block | grep -v '^make '; } >"$home/first.sh"
    cat "$home/first.sh"
    check "README's first block" "$(results)" bash -e first.sh
    # A shell started by ssh does not have ~/.local/bin in its PATH; hosts must still be reached.
    # shellcheck disable=SC2016  # for the user's shell
    local command='PATH=~/.local/bin:$PATH; cd portolan;'
    check "portolan run --hosts" "$(printf '^%s$\n' "${hosts[@]}")" \
        "$command portolan run -n 4 --hosts hosts -- hostname"
    check "portolan cast --hosts" "$(printf '^%s: [0-9.]+ [kM]B in\n' "${hosts[@]}")" \
        "$command portolan cast --hosts hosts program ~/copy-of-%h && cmp program ~/copy-of-${hosts[1]}"
}

enter_namespace
repository=$PWD
work_dir=$(mktemp -d)
chmod 755 "$work_dir"
home=$work_dir/home
checkout=$home/portolan
end_with cleanup
make_user
lend_toolchain
become_user
check_out
build
make_hosts
walk
say "done: README's first screen works for an ordinary user on two hosts"

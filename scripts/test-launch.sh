#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests one native program and one MPI program under every available launcher: `portolan run`, Open
# MPI's mpirun and MPICH's mpiexec on a lab, and a Slurm cluster of two hosts that is created in the
# lab from Debian's packages. On the cluster it also tests `portolan cast`, and an ordinary user's
# job over raw Ethernet with a broker on each host. Needs root. Removes everything that it creates,
# however it ends.
#
# Environment: PROFILE (release, or debug) selects the build under test.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

packages=(openmpi-bin libopenmpi-dev mpich libpmix2 slurmctld slurmd slurm-client libpmi0 munge)
ranks=4
build_dir=${CARGO_TARGET_DIR:-target}/${PROFILE:-release}
portolan=$(realpath -m "$build_dir/portolan")
heat=$(realpath -m "$build_dir/heat")
lab=launch$(($$ % 100000))
work_dir=$(mktemp -d)
daemons=()
failed=()
# An ordinary user of Debian without files. Slurm starts no jobs for a user without a name.
user=games
# Time limit in seconds for one job on a busy machine.
limit=120

cleanup() {
    local pid
    # Newest first: slurmd ends before its controller, and munged last.
    for ((i = ${#daemons[@]} - 1; i >= 0; i--)); do
        pid=${daemons[i]}
        kill "$pid" 2>/dev/null || continue
        for _ in {1..50}; do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -9 "$pid" 2>/dev/null || true
    done
    take_lab_down
    rm -rf -- "$work_dir"
}
end_with cleanup

install_packages() {
    local package missing=()
    command -v apt-get >/dev/null || return 0
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    say "installing ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" >/dev/null || say "not all could be installed; what needs them is skipped"
}

# check NAME WORDS [not] COMMAND…: runs a job, which must fail after `not`. All of WORDS must appear
# in its output.
check() {
    local name=$1 words=$2 out=$work_dir/out word
    shift 2
    local ok=yes
    local fails=no status=0
    if [[ $1 == not ]]; then
        fails=yes
        shift
    fi
    timeout "$limit" "$@" >"$out" 2>&1 </dev/null || status=$?
    # Status 124: it did not end within the limit.
    case $fails-$status in
        no-0) ;;
        no-* | yes-0 | yes-124) ok="status $status" ;;
    esac
    while IFS= read -r word; do
        grep -qE -- "$word" "$out" || ok="$ok, no '$word'"
    done <<<"$words"
    if [[ $ok == yes ]]; then
        say "ok: $name"
        return
    fi
    say "FAILED: $name ($ok): $*"
    sed 's/^/    /' "$out"
    failed+=("$name")
}

solved="^processes +$ranks,
equal the sequential solution"

native() {
    local how=$1 found=$2
    shift 2
    check "native program, $how" "$solved"$'\n'"$found" env PORTOLAN_VERBOSE=1 "$@"
}

native_jobs() {
    "$heat" --make-input 64 48 "$work_dir/initial.pgm" >/dev/null
    heat_job=("$heat" "$work_dir/initial.pgm" --steps 50 --check)
    native "portolan run" "portolan run; rank 1 of $ranks; .* 2 hosts" \
        "$portolan" run -n "$ranks" --lab "$lab" --map-by node -- "${heat_job[@]}"
    local mpi
    for mpi in openmpi mpich; do
        local launcher=mpirun.$mpi
        command -v "$launcher" >/dev/null || {
            skipped "$launcher is not installed"
            continue
        }
        native "$launcher" "rank 1 of $ranks; 0 of 2 on this host; 2 hosts" \
            "$portolan" lab mpirun --name "$lab" --plain --mpi "$mpi" -n "$ranks" "${heat_job[@]}"
    done
}

# start NAME COMMAND…: starts a daemon that this shell can end.
start() {
    local name=$1
    shift
    "$@" >"$work_dir/$name.log" 2>&1 </dev/null &
    daemons+=($!)
}

# Sets the prefixes of command lines that run on a host of the lab.
use_lab() {
    on_h0=("$portolan" lab rsh --name "$lab" h0)
    on_h1=("$portolan" lab rsh --name "$lab" h1)
}

write_slurm_conf() {
    local host
    cat >"$work_dir/slurm.conf" <<-END
		ClusterName=$lab
		SlurmctldHost=$lab-h0(10.77.0.1)
		SlurmUser=root
		SlurmdUser=root
		AuthType=auth/munge
		AuthInfo=socket=$work_dir/munge.socket
		CredType=cred/munge
		StateSaveLocation=$work_dir/state
		SlurmdSpoolDir=$work_dir/spool-%n
		SlurmctldPidFile=$work_dir/slurmctld.pid
		SlurmdPidFile=$work_dir/slurmd-%n.pid
		TmpFS=$work_dir/tmp-%n
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/none
		AccountingStorageType=accounting_storage/none
		SelectType=select/cons_tres
		MpiDefault=none
		ReturnToService=2
		SlurmdParameters=config_overrides
		KillWait=5
		PartitionName=all Nodes=ALL Default=YES State=UP
	END
    for host in 0 1; do
        echo "NodeName=$lab-h$host NodeAddr=10.77.0.$((host + 1)) CPUs=$ranks State=UNKNOWN" \
            >>"$work_dir/slurm.conf"
    done
    # Control groups belong to the machine, not to the lab; no option that needs them is set.
    echo 'CgroupPlugin=cgroup/v1' >"$work_dir/cgroup.conf"
}

# Starts two hosts with a slurmd each, the controller on the first. Munge's socket is a file and
# serves both.
start_slurm() {
    local conf=$work_dir/slurm.conf
    mkdir -p "$work_dir/state" "$work_dir/spool-$lab-h0" "$work_dir/spool-$lab-h1" \
        "$work_dir/tmp-$lab-h0" "$work_dir/tmp-$lab-h1"
    chmod 755 "$work_dir"
    write_slurm_conf
    dd if=/dev/urandom of="$work_dir/munge.key" bs=128 count=1 status=none
    chmod 600 "$work_dir/munge.key"
    start munged munged --foreground --force --key-file="$work_dir/munge.key" \
        --socket="$work_dir/munge.socket" --pid-file="$work_dir/munged.pid" \
        --seed-file="$work_dir/munged.seed" --log-file="$work_dir/munged.log"
    start slurmctld "${on_h0[@]}" "exec slurmctld -D -i -f $conf"
    start slurmd-h0 "${on_h0[@]}" "exec slurmd -D -N $lab-h0 -f $conf"
    start slurmd-h1 "${on_h1[@]}" "exec slurmd -D -N $lab-h1 -f $conf"
    for _ in {1..300}; do
        if "${on_h0[@]}" "SLURM_CONF=$conf sinfo -h -t idle -o %D" 2>/dev/null | grep -qx 2; then
            return 0
        fi
        sleep 0.2
    done
    tail -n 20 "$work_dir"/*.log
    return 1
}

slurm_jobs() {
    local mpi srun=("${on_h0[@]}" env SLURM_CONF="$work_dir/slurm.conf" 
        srun -N 2 -n "$ranks" --ntasks-per-node 2)
    for mpi in pmix pmi2 none; do
        native "srun --mpi=$mpi" "rank 1 of $ranks; 1 of 2 on this host; 2 hosts" \
            "${srun[@]}" --mpi="$mpi" "${heat_job[@]}"
    done
    command -v mpicc.openmpi >/dev/null || {
        skipped "mpicc.openmpi is not installed: no MPI job under Slurm"
        return
    }
    mpicc.openmpi -O -o "$work_dir/mpi-ring" scripts/mpi-ring.c
    check "MPI program, srun --mpi=pmix, as it is" "mpi-ring: $ranks ranks" \
        "${srun[@]}" --mpi=pmix env OMPI_MCA_btl=self,vader,tcp \
        OMPI_MCA_pml=ob1 "$work_dir/mpi-ring"
    local provider=$build_dir/libportolan_fi.so
    [[ -f $provider ]] || {
        skipped "$provider is not built: no MPI job over Portolan"
        return
    }
    # The name that libfabric expects.
    mkdir "$work_dir/provider"
    ln -s "$(realpath "$provider")" "$work_dir/provider/libportolan-fi.so"
    check "MPI program, srun --mpi=pmix, over Portolan" "mpi-ring: $ranks ranks" \
        "${srun[@]}" --mpi=pmix env FI_PROVIDER=portolan \
        FI_PROVIDER_PATH="$work_dir/provider" OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi \
        "$work_dir/mpi-ring"
    # shellcheck disable=SC2016 # The inner shell expands them.
    check "MPI program, by the batch script of examples/slurm" "mpi-ring: $ranks ranks" \
        sh -c '"$@"; status=$?; cat "$0"; exit $status' "$work_dir/batch.out" \
        "${on_h0[@]}" env SLURM_CONF="$work_dir/slurm.conf" FI_PROVIDER_PATH="$work_dir/provider" \
        sbatch --wait --quiet -N 2 --ntasks-per-node 2 --output "$work_dir/batch.out" \
        examples/slurm/mpi.sbatch "$work_dir/mpi-ring"
}

# Casts a file to all nodes of an allocation: this one reads it, srun starts the other nodes.
slurm_cast() {
    local cast=("${on_h0[@]}" env SLURM_CONF="$work_dir/slurm.conf" salloc -N 2 --quiet
        "$portolan" cast "$work_dir/cast-source")
    head -c 3000000 /dev/urandom >"$work_dir/cast-source"
    check "portolan cast, in an allocation of Slurm's" "^$lab-h1: 3.0 MB" \
        "${cast[@]}" "$work_dir/%h.copy" --explain --remote-program "$portolan"
    # shellcheck disable=SC2016 # The inner shell expands them.
    check "what came is what was cast" "the same" \
        sh -c 'cmp "$1" "$2" && echo the same' sh "$work_dir/cast-source" "$work_dir/$lab-h1.copy"
    check "portolan cast, to a node where portolan is not" "srun does not start portolan on node $lab-h1" \
        not "${cast[@]}" "$work_dir/%h.other" --remote-program /no/portolan
}

# start_brokers: starts one broker on each host, for all users.
start_brokers() {
    local host
    cat >"$work_dir/broker.toml" <<-END
		socket = '@portolan-broker'
		[[nic]]
		interface = 'eth0'
		groups = ['*']
	END
    for host in h0 h1; do
        start "broker-$host" "$portolan" lab rsh --name "$lab" "$host" "exec env \
            RUST_LOG=portolan_broker=info $portolan broker --foreground --config $work_dir/broker.toml"
        for _ in {1..100}; do
            grep -qs 'serving at' "$work_dir/broker-$host.log" && continue 2
            sleep 0.1
        done
        sed 's/^/    /' "$work_dir/broker-$host.log"
        return 1
    done
}

# Runs jobs of a user without privileges, before and after srun: over `packet` if a broker opens a
# socket for the user, which the paths must show, and otherwise not at all.
slurm_jobs_by_broker() {
    local none='CapEff:.*0000000000000000' host heat_job
    start_brokers || {
        failed+=("starting the brokers")
        return
    }
    # A directory that an ordinary user may enter.
    cp "$heat" "$work_dir/heat"
    cat >"$work_dir/rank" <<-'END'
		#!/bin/sh
		grep CapEff /proc/self/status
		exec "$@"
	END
    chmod 755 "$work_dir/rank"
    heat_job=("$work_dir/rank" "$work_dir/heat" "$work_dir/initial.pgm" --steps 50 --check --paths)
    local srun=("${on_h0[@]}" env SLURM_CONF="$work_dir/slurm.conf" PORTOLAN_PATH=packet
        PORTOLAN_BROKER=@portolan-broker setpriv --reuid "$user" --regid "$user" --clear-groups
        --inh-caps=-all --ambient-caps=-all --bounding-set=-all
        srun --chdir=/ -N 2 -n "$ranks" --ntasks-per-node 2)
    check "an ordinary user by a broker, srun --mpi=pmix" "$solved
$none
^rank 0 to 2: packet: up, by the broker, .*(small|all) messages
^rank 2 to 0: packet: up, by the broker, .*(small|all) messages" "${srun[@]}" --mpi=pmix "${heat_job[@]}"
    for host in h0 h1; do
        check "the broker of $host lent $user a socket" "user $(id -u "$user") has endpoint" \
            cat "$work_dir/broker-$host.log"
    done
    check "an ordinary user without one, srun --mpi=pmix" "$none
CAP_NET_RAW" not "${srun[@]}" --mpi=pmix env PORTOLAN_BROKER=off "${heat_job[@]}"
}

[[ $EUID -eq 0 ]] || {
    skipped "labs need root: run this with sudo"
    exit 0
}
[[ -x $portolan && -x $heat ]] || die "$portolan or heat is not there: run 'make build' first"
install_packages
use_lab
bring_lab_up >/dev/null || {
    skipped "no lab can be made here, for the reason above"
    exit 0
}
native_jobs
if ! command -v slurmctld >/dev/null || ! command -v slurmd >/dev/null ||
    ! command -v munged >/dev/null; then
    skipped "Slurm or munge is not installed"
elif start_slurm; then
    slurm_jobs
    slurm_cast
    slurm_jobs_by_broker
else
    failed+=("starting Slurm")
fi
if [[ ${#failed[@]} -gt 0 ]]; then
    printf 'test-launch: FAILED: %s\n' "${failed[@]}" >&2
    exit 1
fi
say "all jobs ran"

# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What the parts of scripts/test-mpi.sh share: the build under test, the MPIs, a lab, one run and its
# verdict. Sourced after lib.sh.

build_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}/${PROFILE:-release}")
portolan=$build_dir/portolan
work_dir=$(mktemp -d)
# With libportolan-fi.so: what libfabric finds beside its own providers.
provider_dir=$work_dir/provider
lab=mpi$(($$ % 100000))
failed=()

cleanup() {
    take_lab_down
    rm -rf -- "$work_dir"
}
end_with cleanup

check_build() {
    [[ -x $portolan && -e $build_dir/libportolan_fi.so ]] ||
        die "$portolan or libportolan_fi.so beside it does not exist; run 'make build' first"
    mkdir "$provider_dir"
    ln -s "$build_dir/libportolan_fi.so" "$provider_dir/libportolan-fi.so"
}

# lab_up: makes the lab; places says where programs are run.
lab_up() {
    places=("one host")
    if [[ $EUID -ne 0 ]]; then
        skipped "no root: nothing is run across the hosts of a lab"
        return
    fi
    if ! bring_lab_up; then
        skipped "no lab can be made here, for the reason above: nothing is run across hosts"
        return
    fi
    places+=("two hosts")
}

# install PACKAGE…: those of Debian's packages that are not there.
install() {
    local package missing=()
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    find_root || return 1
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends "${missing[@]}" >/dev/null
}

# prepare MPI: sets launcher, compiler, python, what python needs to find the MPI (launcher_env), and
# the beginning of each run of Portolan's command (run).
prepare() {
    local mpi=$1 packages=(mpi4py numpy) library
    launcher_env=()
    case $mpi in
        openmpi4)
            install openmpi-bin libopenmpi-dev || return 1
            launcher=$(command -v mpirun.openmpi) compiler=$(command -v mpicc.openmpi)
            for library in /usr/lib/*/libmpi.so.40; do
                # Without matched probes in plain receives: see mpi4py-skip.txt.
                launcher_env=(MPI4PY_MPIABI=openmpi "MPI4PY_LIBMPI=$library"
                    MPI4PY_RC_RECV_MPROBE=0)
            done
            ;;
        openmpi5)
            packages+=(openmpi)
            launcher_env=("MPI4PY_LIBMPI=$work_dir/$mpi/lib/libmpi.so.40")
            ;;
        mpich)
            packages+=(mpich)
            # Within a host, too, what is tested is the provider.
            launcher_env=("MPI4PY_LIBMPI=$work_dir/$mpi/lib/libmpi.so.12" MPIR_CVAR_NOLOCAL=1)
            ;;
        *) die "no MPI is called $mpi; there are openmpi4, openmpi5 and mpich" ;;
    esac
    python3 -m venv "$work_dir/$mpi"
    "$work_dir/$mpi/bin/pip" install -q "${packages[@]}" || return 1
    python=$work_dir/$mpi/bin/python
    if [[ $mpi != openmpi4 ]]; then
        launcher=$work_dir/$mpi/bin/mpirun compiler=$work_dir/$mpi/bin/mpicc
    fi
    run=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
        "${launcher_env[@]}")
    case ${OVER:-portolan} in
        portolan) ;;
        tcp)
            # Under Open MPI, whose variables reach other hosts, its own lists of providers decide.
            run+=(FI_PROVIDER=tcp MPIR_CVAR_CH4_NETMOD=ofi OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi
                OMPI_MCA_mtl_ofi_provider_include=tcp OMPI_MCA_opal_common_ofi_provider_include=tcp)
            ;;
        *) die "OVER is portolan or tcp, not $OVER" ;;
    esac
    run+=("$portolan")
}

# build MPI SOURCE: compiles a program of ours; it lies in the MPI's directory then.
build() {
    "$compiler" -std=gnu11 -O2 -o "$work_dir/$1/$(basename "$2" .c)" "$2"
}

# across PLACE [OPTION]: sets job, the command which runs an MPI program there; a count of processes
# follows.
across() {
    local with=(--mpi "$launcher" --provider-dir "$provider_dir" "${@:2}")
    [[ ${OVER:-portolan} == portolan ]] || with+=(--plain)
    case $1 in
        "one host") job=("${run[@]}" mpirun "${with[@]}" -n) ;;
        "two hosts") job=("${run[@]}" lab mpirun --name "$lab" "${with[@]}" -n) ;;
    esac
}

# logged LIMIT COMMAND…: runs it; what it prints is in $work_dir/log.
logged() {
    timeout --kill-after=10 "$@" >"$work_dir/log" 2>&1 </dev/null
}

# verdict NAME PROBLEM: notes a test that is over; it has passed if there is no problem.
verdict() {
    if [[ -z $2 ]]; then
        say "$1: passed"
        return
    fi
    say "$1: FAILED: $2"
    [[ ! -e $work_dir/log ]] || tail -n 15 "$work_dir/log" | sed 's/^/    /'
    failed+=("$1")
}

# finish: tells how all went, by the status, too.
finish() {
    if [[ ${#failed[@]} -gt 0 ]]; then
        printf 'test-mpi: FAILED: %s\n' "${failed[@]}" >&2
        exit 1
    fi
    say "all passed"
}

# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Code shared by the parts of scripts/test-mpi.sh: the build under test, the MPIs, a lab, a single
# run and its verdict. Sourced after lib.sh.

build_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}/${PROFILE:-release}")
portolan=$build_dir/portolan
work_dir=$(mktemp -d)
# Directory of libportolan-fi.so, which libfabric searches in addition to its own providers.
provider_dir=$work_dir/provider
lab=mpi$(($$ % 100000))
# Library that Open MPI 4 uses: its component (btl) or the libfabric provider (ofi).
via=${VIA:-btl}
failed=()

cleanup() {
    take_lab_down
    rm -rf -- "$work_dir"
}
end_with cleanup

check_build() {
    local built=("$build_dir"/openmpi-*/mca_btl_portolan.so)
    [[ $via == btl || $via == ofi ]] || die "VIA is btl or ofi, not $via"
    if [[ $via == btl && ! -e ${built[0]} ]]; then
        skipped "there is no component for Open MPI beside $portolan: VIA=ofi is used"
        via=ofi
    fi
    [[ -x $portolan && -e $build_dir/libportolan_fi.so ]] ||
        die "$portolan or libportolan_fi.so beside it does not exist; run 'make build' first"
    mkdir "$provider_dir"
    ln -s "$build_dir/libportolan_fi.so" "$provider_dir/libportolan-fi.so"
}

# lab_up: creates the lab, and sets places to the list of places for programs.
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

# install PACKAGE…: installs the Debian packages that are missing.
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

# prepare MPI: sets launcher, compiler, python, the variables by which python finds the MPI
# (launcher_env), the beginning of each command of Portolan (run), and component (true or false),
# whether the component of Open MPI carries the messages.
prepare() {
    local mpi=$1 packages=(mpi4py numpy) library
    launcher_env=()
    component=false
    [[ $mpi != openmpi4 || $via != btl || ${OVER:-portolan} != portolan ]] || component=true
    case $mpi in
        openmpi4)
            install openmpi-bin libopenmpi-dev || return 1
            launcher=$(command -v mpirun.openmpi) compiler=$(command -v mpicc.openmpi)
            for library in /usr/lib/*/libmpi.so.40; do
                launcher_env=(MPI4PY_MPIABI=openmpi "MPI4PY_LIBMPI=$library")
            done
            # No matched probes in plain receives: see mpi4py-skip.txt.
            [[ $component == true ]] || launcher_env+=(MPI4PY_RC_RECV_MPROBE=0)
            ;;
        openmpi5)
            packages+=(openmpi)
            launcher_env=("MPI4PY_LIBMPI=$work_dir/$mpi/lib/libmpi.so.40")
            ;;
        mpich)
            packages+=(mpich)
            # Test the provider within a host, too.
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
            # Open MPI passes only its own variables to other hosts, so use its lists of providers.
            run+=(FI_PROVIDER=tcp MPIR_CVAR_CH4_NETMOD=ofi OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi
                OMPI_MCA_mtl_ofi_provider_include=tcp OMPI_MCA_opal_common_ofi_provider_include=tcp)
            ;;
        *) die "OVER is portolan or tcp, not $OVER" ;;
    esac
    run+=("$portolan")
}

# build MPI SOURCE: compiles one of our programs into the MPI's directory.
build() {
    "$compiler" -std=gnu11 -O2 -o "$work_dir/$1/$(basename "$2" .c)" "$2"
}

# across PLACE [OPTION]: sets job to the command that runs an MPI program there; append a process
# count.
across() {
    local with=(--mpi "$launcher")
    if [[ ${OVER:-portolan} != portolan ]]; then
        with+=(--plain)
    elif [[ $component == true ]]; then
        with+=(--via btl)
    else
        with+=(--provider-dir "$provider_dir")
    fi
    with+=("${@:2}")
    case $1 in
        "one host") job=("${run[@]}" mpirun "${with[@]}" -n) ;;
        "two hosts") job=("${run[@]}" lab mpirun --name "$lab" "${with[@]}" -n) ;;
    esac
}

# logged LIMIT COMMAND…: runs it with its output in $work_dir/log.
logged() {
    timeout --kill-after=10 "$@" >"$work_dir/log" 2>&1 </dev/null
}

# verdict NAME PROBLEM: records a finished test, which passed if PROBLEM is empty.
verdict() {
    if [[ -z $2 ]]; then
        say "$1: passed"
        return
    fi
    say "$1: FAILED: $2"
    [[ ! -e $work_dir/log ]] || tail -n 15 "$work_dir/log" | sed 's/^/    /'
    failed+=("$1")
}

# finish: prints the failed tests, and sets the exit status.
finish() {
    if [[ ${#failed[@]} -gt 0 ]]; then
        printf 'test-mpi: FAILED: %s\n' "${failed[@]}" >&2
        exit 1
    fi
    say "all passed"
}

# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Tests that an MPI behaves as without the provider if it is installed but not requested. Part of
# scripts/test-mpi.sh.

# Time limit in seconds for one short job on a busy machine.
unasked_limit=120

# bare DIRECTORY COMMAND…: runs it with nothing of Portolan except the library, in libfabric's
# directory.
bare() {
    env -u FI_PROVIDER -u PORTOLAN_FABRIC FI_PROVIDER_PATH="$1" OMPI_ALLOW_RUN_AS_ROOT=1 \
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "${@:2}"
}

# choices FILE: prints the MPI's reported choices, without parts that differ between any two runs.
choices() {
    grep -E 'selected|[Ss]electing|netmod Capability|mtl:ofi:prov|libfabric provider: ' "$1" | grep -v '^libfabric:' |
        sed -E 's/\[[^]]*:[0-9]+\]//g; s/(0x)?[0-9a-f]{6,}//g; s/:[0-9]+$//' | sort -u
}

# unasked_run DIRECTORY NAME [SETTING…]: runs two short jobs. The output of the first is in NAME.out
# and NAME.err, the choices of the second in NAME.chosen.
unasked_run() {
    local file=$work_dir/$2 with=("${@:3}" "$launcher" -n 2 "$program")
    local ask=(OMPI_MCA_pml_base_verbose=10 OMPI_MCA_mtl_base_verbose=10 MPIR_CVAR_DEBUG_SUMMARY=1)
    bare "$1" timeout "$unasked_limit" env "${with[@]}" >"$file.out" 2>"$file.err" </dev/null ||
        return 1
    bare "$1" timeout "$unasked_limit" env FI_LOG_LEVEL=info "${ask[@]}" "${with[@]}" \
        >"$work_dir/log" 2>&1 </dev/null || return 1
    choices "$work_dir/log" >"$file.chosen"
}

# unasked_once NAME [SETTING…]: compares jobs with and without the provider.
unasked_once() {
    local name=$1 problem='' kind
    shift
    unasked_run "$work_dir/nothing" without "$@" || problem="it fails without the provider"
    unasked_run "$provider_dir" with "$@" || problem+=" it fails with the provider"
    if [[ -z $problem ]]; then
        for kind in out err chosen; do
            diff "$work_dir/without.$kind" "$work_dir/with.$kind" || problem+=" another $kind"
        done
        ! grep -i portolan "$work_dir/log" | grep -v '<info>' || problem+=" the provider speaks"
    fi
    verdict "$name, not asked for" "$problem"
}

# Tests the MPI with its defaults, and forced to use libfabric, which then loads the provider.
unasked() {
    local program=$work_dir/$1/mpi-ring problem=''
    mkdir -p "$work_dir/nothing"
    build "$1" scripts/mpi-ring.c
    unasked_once "$1"
    unasked_once "$1 over libfabric" OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi \
        OMPI_MCA_mtl_ofi_provider_exclude=shm OMPI_MCA_opal_common_ofi_provider_exclude=shm \
        MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1
    grep -q 'registering provider: portolan' "$work_dir/log" || problem="it is not loaded"
    grep -q 'provider portolan returned -61' "$work_dir/log" || problem+=" it does not say no data"
    verdict "$1, not asked for, libfabric's log" "$problem"
}

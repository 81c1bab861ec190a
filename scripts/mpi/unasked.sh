# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# The provider is installed and nobody asks for it: an MPI behaves as if it were not there. Part of
# scripts/test-mpi.sh.

# Seconds for one short job on a busy machine.
unasked_limit=120

# bare DIRECTORY COMMAND…: without anything of Portolan's but the library, in libfabric's directory.
bare() {
    env -u FI_PROVIDER -u PORTOLAN_FABRIC FI_PROVIDER_PATH="$1" OMPI_ALLOW_RUN_AS_ROOT=1 \
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "${@:2}"
}

# choices FILE: what the MPI says that it chooses, without what differs in any two runs.
choices() {
    grep -E 'selected|[Ss]electing|netmod Capability|mtl:ofi:prov|libfabric provider: ' "$1" | grep -v '^libfabric:' |
        sed -E 's/\[[^]]*:[0-9]+\]//g; s/(0x)?[0-9a-f]{6,}//g; s/:[0-9]+$//' | sort -u
}

# unasked_run DIRECTORY NAME [SETTING…]: two short jobs; what the first prints is in NAME.out and
# NAME.err, what the second chooses in NAME.chosen.
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

# As the MPI is, and where it is made to use libfabric, which then does load the provider.
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

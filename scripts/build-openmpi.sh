#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the component btl/portolan for the Open MPI whose internal headers are installed:
# openmpi-VERSION/mca_btl_portolan.so in target/release. Without such headers it prints a note and
# does nothing.
#
#   scripts/build-openmpi.sh [ARCHIVE FOLDER]
#
# With arguments, links ARCHIVE (the static library of the crate portolan-openmpi) and writes below
# FOLDER instead.
#
# Environment: OPENMPI_MPICC, the compiler of the Open MPI to build for (default: mpicc.openmpi,
# else mpicc).
set -euo pipefail
# Warnings are errors in tests only, because users may have another compiler.
strict=(${1:+-Werror})
archive=${1:+$(realpath "$1")}
folder=${2:+$(realpath "$2")}
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

# Prints the compiler of an Open MPI.
compiler() {
    local name
    for name in ${OPENMPI_MPICC:-mpicc.openmpi mpicc}; do
        if command -v "$name" >/dev/null && "$name" --showme:version 2>/dev/null | grep -q 'Open MPI'; then
            echo "$name"
            return
        fi
    done
    return 1
}

if [[ -n ${EMULATOR:-} && -z ${OPENMPI_MPICC:-} ]]; then
    skipped "OPENMPI_MPICC names no compiler for $CARGO_BUILD_TARGET: Open MPI's component is not built"
    exit 0
fi
if ! mpicc=$(compiler); then
    skipped "there is no mpicc of an Open MPI: its component is not built"
    exit 0
fi
read -r -a dirs < <("$mpicc" --showme:incdirs)
flags=()
for dir in "${dirs[@]}"; do
    flags+=(-I "$dir" -I "$dir/openmpi")
done
# Open MPI 5 includes the headers of PMIx and does not install all of its own (see component/absent).
for dir in $(pkg-config --variable=includedir pmix 2>/dev/null || true) /usr/lib/*/pmix2/include; do
    [[ ! -e $dir/pmix.h ]] || flags+=(-I "$dir")
done
flags+=(-idirafter interfaces/openmpi/component/absent)
# Open MPI's lists exchange 16 bytes atomically, which gcc does not assume for every such processor.
[[ $(uname -m) != x86_64 ]] || flags+=(-mcx16)
version=$("$mpicc" --showme:version | sed -n 's/.*Open MPI \([0-9.]*\).*/\1/p' | head -n 1)

# has_btl CONDITION: succeeds if the internal headers exist and the preprocessor condition holds.
has_btl() {
    printf '#include <opal_config.h>\n#include <opal/mca/btl/btl.h>\n#if !(%s)\n#error\n#endif\n' "$1" |
        cc "${flags[@]}" -x c -fsyntax-only - 2>/dev/null
}

if ! has_btl 1; then
    skipped "Open MPI $version has no internal headers here (Debian: libopenmpi-dev): its component is not built"
    exit 0
fi
if ! has_btl 'BTL_VERSION == 310 || BTL_VERSION == 330'; then
    skipped "Open MPI $version has another BTL interface than 3.1 (4.1) and 3.3 (5.0): its component is not built"
    exit 0
fi
if [[ -z $archive ]]; then
    "$CARGO" build --release --package portolan-openmpi
    archive=$release_dir/libportolan_openmpi.a
    folder=$release_dir
fi
# Programs such as Python load Open MPI without offering its symbols to other libraries, so the
# component names the library that defines them.
read -r -a library_dirs < <("$mpicc" --showme:libdirs)
library=("${library_dirs[@]/#/-L}" "-Wl,--no-as-needed" -lopen-pal)
echo 'int main(void) { return 0; }' | cc -x c - "${library[@]}" -o /dev/null 2>/dev/null || library=()
out=$folder/openmpi-$version
install -d -- "$out"
# Only the component is visible; Open MPI defines the symbols that are undefined here. The component
# is never unloaded, because threads of the library may still run their destructors when Open MPI
# closes it.
if ! cc -O2 -g -std=gnu11 -fPIC -shared -Wall -Wextra "${strict[@]}" "${flags[@]}" \
    -I interfaces/openmpi/include interfaces/openmpi/component/*.c "$archive" \
    -Wl,--version-script=interfaces/openmpi/component/exports.map -Wl,--gc-sections -Wl,-z,nodelete \
    "${library[@]}" -o "$out/mca_btl_portolan.so" -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc; then
    rm -f -- "$out/mca_btl_portolan.so"
    [[ -z ${strict[*]} ]] || die "the component for Open MPI $version does not compile"
    skipped "the component for Open MPI $version does not compile: the libfabric provider works without it"
    exit 0
fi
say "the component for Open MPI $version is $out/mca_btl_portolan.so"

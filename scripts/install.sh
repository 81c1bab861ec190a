#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Installs the programs below the directory given.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

prefix=${1:?usage: install.sh PREFIX}
programs=(portolan portolan-sim)

for program in "${programs[@]}"; do
    [[ -x $release_dir/$program ]] ||
        die "$release_dir/$program does not exist; run 'make build' first"
done
install -d -- "$prefix/bin" || die "cannot write below $prefix; choose another PREFIX or run as root"
install -m 755 -t "$prefix/bin" -- "${programs[@]/#/$release_dir/}"
say "${programs[*]} are in $prefix/bin"

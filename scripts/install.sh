#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Installs the programs below the given directory, with manual pages and completions, the broker's
# service, and the dissector for Wireshark.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

prefix=${1:?usage: install.sh PREFIX [PREFIX-LATER]}
# Final prefix of the programs, if the files below PREFIX are moved later.
installed_prefix=${2:-$prefix}
programs=(portolan portolan-sim)

# Checks also the programs that install-libraries.sh installs after this script.
is_built() {
    local program
    for program in "${programs[@]}"; do
        [[ -x $release_dir/$program ]] || return
    done
    [[ -e $release_dir/libraries/libportolan.so.0 ]]
}

if ! is_built; then
    say "not all of it is built; 'make build' does that first"
    "${MAKE:-make}" build
fi
install -d -- "$prefix/bin" || die "cannot write below $prefix; choose another PREFIX or run as root"
install -m 755 -t "$prefix/bin" -- "${programs[@]/#/$release_dir/}"

# The broker's service, started by `systemctl enable --now portolan-broker.socket`.
units=$prefix/lib/systemd/system
install -d -- "$units"
install -m 644 -t "$units" -- scripts/systemd/portolan-broker.socket
sed "s|@PREFIX@|${installed_prefix}|" scripts/systemd/portolan-broker.service > "$units/portolan-broker.service"
chmod 644 "$units/portolan-broker.service"
"${emulator[@]}" "$release_dir/portolan" write-pages "$prefix/share"
install -D -m 644 -t "$prefix/share/portolan" -- core/wire/wireshark/portolan.lua
install -m 644 -- packaging/grafana/portolan.json "$prefix/share/portolan/grafana.json"
install -d -- "$prefix/share/man/man8"
install -m 644 -t "$prefix/share/man/man8" -- tools/cli/man/portolan-broker.8
say "${programs[*]} are in $prefix/bin"

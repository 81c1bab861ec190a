# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Shared by the other scripts, which source it first. Leaves the shell in the root of the repository.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

CARGO=${CARGO:-cargo}
# Where the shell of a fresh machine does not look for it yet.
if ! command -v "$CARGO" >/dev/null && [[ -x ${HOME:-}/.cargo/bin/cargo ]]; then
    PATH="$HOME/.cargo/bin:$PATH"
    export PATH
fi

# Where cargo leaves the release binaries.
# shellcheck disable=SC2034  # used by the scripts that source this file
release_dir=${CARGO_TARGET_DIR:-target}/release

# Interfaces of other systems: a crate, a library, a header and a page of section 7 has each name.
# shellcheck disable=SC2034  # used by the scripts that source this file
heritage=(gamma bip gm vipl)

say() {
    printf '%s: %s\n' "$(basename "$0" .sh)" "$*"
}

# A check that cannot be made here is never left out in silence.
skipped() {
    printf '%s: SKIPPED: %s\n' "$(basename "$0" .sh)" "$*"
}

die() {
    printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2
    exit 2
}

# Fills the array as_root with what must stand before a command that needs root; fails when there
# is no way to become root without asking.
find_root() {
    as_root=()
    if [[ $EUID -eq 0 ]]; then
        return 0
    fi
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        # shellcheck disable=SC2034  # used by the scripts that source this file
        as_root=(sudo -n)
        return 0
    fi
    return 1
}

# The sysroot of the compiler in use holds the standard library of target $1.
has_target() {
    [[ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ]]
}

# end_with COMMAND: runs it when the script ends, by a signal, too.
end_with() {
    # shellcheck disable=SC2064  # the command is known now
    trap "$1" EXIT
    # Turns a signal into an ordinary end, so that the command runs once.
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

lab_is_up=no

# More options of `lab up`.
lab_options=()

# bring_lab_up: makes the lab $lab of two hosts by $portolan. The name must be short: those of
# interfaces (15 characters) carry it and a host's number.
# shellcheck disable=SC2154  # lab and portolan are the script's
bring_lab_up() {
    # Before the attempt: half a lab must go down, too.
    lab_is_up=yes
    if "${portolan[@]}" lab up --hosts 2 --name "$lab" "${lab_options[@]}"; then
        return 0
    fi
    # Nothing to report when nothing was made.
    "${portolan[@]}" lab down --name "$lab" >/dev/null 2>&1 || true
    lab_is_up=no
    return 1
}

take_lab_down() {
    [[ $lab_is_up == yes ]] || return 0
    lab_is_up=no
    "${portolan[@]}" lab down --name "$lab" || say "the lab is still up: portolan lab down --name $lab"
}

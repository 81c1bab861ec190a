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

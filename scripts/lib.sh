# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Shared code that the other scripts source first. Changes to the root of the repository.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

CARGO=${CARGO:-cargo}
# Use rustup's default directory, which a new machine's PATH may lack.
if ! command -v "$CARGO" >/dev/null && [[ -x ${HOME:-}/.cargo/bin/cargo ]]; then
    PATH="$HOME/.cargo/bin:$PATH"
    export PATH
fi

# Directory of cargo's release binaries. scripts/arm.sh sets the target, the emulator of its programs
# and its tools.
# shellcheck disable=SC2034  # used by the scripts that source this file
release_dir=${CARGO_TARGET_DIR:-target}/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}release
# shellcheck disable=SC2034
read -r -a emulator <<<"${EMULATOR:-}"
# shellcheck disable=SC2034
STRIP=${STRIP:-strip}

# Interfaces of other systems; each has a crate, a library, a header and a man page in section 7.
# shellcheck disable=SC2034  # used by the scripts that source this file
heritage=(gamma bip gm vipl treadmarks)

# Prints the name of the library, header and manual page of crate $1.
library_of() {
    case $1 in
        treadmarks) echo tmk ;;
        *) echo "$1" ;;
    esac
}

# Succeeds if programs for 64-bit Arm can be built here: by a compiler with its C library, and Rust's
# target.
has_arm() {
    has_target aarch64-unknown-linux-gnu &&
        aarch64-linux-gnu-gcc -E -include stdint.h -x c /dev/null >/dev/null 2>&1
}

say() {
    printf '%s: %s\n' "$(basename "$0" .sh)" "$*"
}

# Reports a check that cannot be made here.
skipped() {
    printf '%s: SKIPPED: %s\n' "$(basename "$0" .sh)" "$*"
}

die() {
    printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2
    exit 2
}

# Fills the array as_root with the prefix for a command that needs root. Fails if root is not
# available without a password.
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

# Succeeds if the compiler's sysroot contains the standard library of target $1.
has_target() {
    [[ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ]]
}

# end_with COMMAND: runs it when the script ends, also by a signal.
end_with() {
    # shellcheck disable=SC2064  # the command is known now
    trap "$1" EXIT
    # Convert a signal to an ordinary exit, so that the command runs once.
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

lab_is_up=no

# Additional options of `lab up`.
lab_options=()

# bring_lab_up: creates the lab $lab of two hosts with $portolan. The name must be short, because
# names of interfaces (15 characters) contain it and a host's number.
# shellcheck disable=SC2154  # lab and portolan are the script's
bring_lab_up() {
    # Set before the attempt, so that a partial lab is removed, too.
    lab_is_up=yes
    if "${portolan[@]}" lab up --hosts 2 --name "$lab" "${lab_options[@]}"; then
        return 0
    fi
    # Ignore the output, because there may be no lab to remove.
    "${portolan[@]}" lab down --name "$lab" >/dev/null 2>&1 || true
    lab_is_up=no
    return 1
}

take_lab_down() {
    [[ $lab_is_up == yes ]] || return 0
    lab_is_up=no
    "${portolan[@]}" lab down --name "$lab" || say "the lab is still up: portolan lab down --name $lab"
}

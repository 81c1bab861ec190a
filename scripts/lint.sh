#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs all checks that do not run the program. Runs every check, then fails if one of them failed.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

failed=()

check() {
    local name=$1
    shift
    say "$name"
    "$@" || failed+=("$name")
}

check_documentation() {
    RUSTDOCFLAGS='-D warnings' "$CARGO" doc --quiet --workspace --no-deps
}

# Checks for the SPDX line: the first line, or the second after '#!'.
check_spdx() {
    local file status=0
    while IFS= read -r file; do
        if ! head -n 2 "$file" | grep -q 'SPDX-License-Identifier: MIT OR Apache-2.0'; then
            say "$file: the SPDX line is missing"
            status=1
        fi
    done < <(find Makefile .ci/run core interfaces heritage tools verify examples scripts \
        -name target -prune -o -type f \( -name '*.rs' -o -name '*.sh' -o -name '*.[ch]' \
        -o -name Makefile -o -name run \) -print)
    return "$status"
}

check_scripts() {
    local script status=0
    for script in scripts/*.sh scripts/mpi/*.sh .ci/run; do
        bash -n "$script" || status=1
    done
    if command -v shellcheck >/dev/null; then
        shellcheck --external-sources --check-sourced scripts/*.sh .ci/run || status=1
    else
        skipped "shellcheck is not installed ('apt-get install shellcheck'): only the scripts' syntax was checked"
    fi
    return "$status"
}

# Builds with the oldest supported Rust, because clippy checks only std items, not the language.
check_oldest_rust() {
    local oldest
    oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    if ! cargo "+$oldest" --version >/dev/null 2>&1; then
        skipped "Rust $oldest is not installed ('rustup toolchain install $oldest'): only clippy's MSRV lint was run"
        return 0
    fi
    CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/oldest cargo "+$oldest" check --quiet --workspace
}

# Checks the crates that depend on the processor, and those that they use.
check_arm() {
    if ! has_arm; then
        skipped "no compiler or no Rust target for 64-bit Arm ('scripts/arm.sh true' says what is missing): nothing was checked for it"
        return 0
    fi
    scripts/arm.sh "$CARGO" check --quiet -p portolan-capi -p portolan-sockets -p portolan-treadmarks
}

check_dependencies() {
    if ! "$CARGO" deny --version >/dev/null 2>&1; then
        skipped "cargo-deny is not installed ('cargo install --locked cargo-deny'): licences and advisories were not checked"
        return 0
    fi
    "$CARGO" deny --workspace check bans licenses sources || return 1
    if "$CARGO" deny fetch db >/dev/null 2>&1; then
        "$CARGO" deny --workspace check advisories
    else
        skipped "the advisory database cannot be fetched from here"
    fi
}

check "formatting" "$CARGO" fmt --all --check
check "clippy" "$CARGO" clippy --quiet --workspace --all-targets -- -D warnings
check "documentation" check_documentation
check "oldest Rust" check_oldest_rust
check "64-bit Arm" check_arm
check "licence lines" check_spdx
check "scripts" check_scripts
check "dependencies" check_dependencies

if [[ ${#failed[@]} -gt 0 ]]; then
    printf 'lint: FAILED: %s\n' "${failed[@]}" >&2
    exit 1
fi
say "all clean"

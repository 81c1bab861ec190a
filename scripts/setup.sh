#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Installs the missing packages on a Debian machine that has a Rust toolchain. If nothing is
# missing, it does nothing and prints only that.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

check_rust() {
    command -v "$CARGO" >/dev/null ||
        die "no Rust toolchain: '$CARGO' is not found; install one by rustup: https://rustup.rs"
    local wanted have
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    have=$(rustc --version | awk '{ print $2 }')
    if [[ $(printf '%s\n' "$wanted" "${have%%-*}" | sort -V | head -n 1) != "$wanted" ]]; then
        if command -v rustup >/dev/null; then
            die "Rust $have is too old, $wanted is needed; run 'rustup update stable'"
        fi
        die "Rust $have is too old, $wanted is needed; install it by rustup: https://rustup.rs"
    fi
}

# Prints the packages of missing commands.
missing_packages() {
    # The linker of every Rust program, and the C library's startup files.
    command -v cc >/dev/null || echo gcc libc6-dev
    # `portolan lab` and the tests manage namespaces with it.
    command -v ip >/dev/null || [[ -x /usr/sbin/ip || -x /sbin/ip ]] || echo iproute2
}

# Prints missing packages that only some tests need, which skip without them: nftables, by which
# tests drop frames; libfabric's own programs and headers, and UCX's headers; tshark, which runs the
# dissector.
optional_packages() {
    command -v nft >/dev/null || [[ -x /usr/sbin/nft || -x /sbin/nft ]] || echo nftables
    command -v fi_info >/dev/null || echo libfabric-bin
    [[ -e /usr/include/rdma/fabric.h ]] || echo libfabric-dev
    [[ -e /usr/include/ucp/api/ucp.h ]] || echo libucx-dev
    command -v tshark >/dev/null || echo tshark
}

install_packages() {
    local list=$*
    command -v apt-get >/dev/null ||
        die "missing: $list; this is no Debian, install the same with your package manager"
    find_root || die "missing: $list; run 'apt-get install $list' as root"
    say "installing $list"
    # A new image has no package lists, without which apt finds nothing.
    if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
        say "updating the package lists"
        "${as_root[@]}" apt-get update -qq
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@"
}

# Adds the bare target. It only makes one check of `make test` stricter, so its absence is no
# failure.
add_bare_target() {
    local target=x86_64-unknown-none
    if has_target "$target" || ! command -v rustup >/dev/null; then
        return 0
    fi
    say "adding the target $target, for the proof that the core needs no operating system"
    timeout 120 rustup target add "$target" >/dev/null 2>&1 ||
        say "could not add it; 'make test' will use the other proof"
}

add_components() {
    local component
    for component in clippy rustfmt; do
        if "$CARGO" "${component/rustfmt/fmt}" --version >/dev/null 2>&1; then
            continue
        fi
        if command -v rustup >/dev/null; then
            say "adding the component $component, for 'make lint'"
            rustup component add "$component" || say "could not add it; 'make lint' will fail"
        fi
    done
}

check_rust
read -r -d '' -a packages < <(missing_packages) || true
if [[ ${#packages[@]} -gt 0 ]]; then
    install_packages "${packages[@]}"
fi
read -r -d '' -a packages < <(optional_packages) || true
if [[ ${#packages[@]} -gt 0 ]]; then
    # Run in a subshell, because a failure is not fatal: tests report what they skip.
    (install_packages "${packages[@]}") || say "without ${packages[*]}; some tests will skip"
fi
add_components
add_bare_target
say "everything needed is here"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds everything for 64-bit Arm, runs the unit tests of the core under QEMU's emulation, and
# builds the Debian package and the wheel. Where the kernel starts programs for Arm by itself
# (binfmt_misc), a program in C then exchanges messages by shared memory and UDP with the library of
# the package.
#
# Environment: PARTS, of "tests packages" (default: both).
set -euo pipefail
if [[ -z ${EMULATOR:-} ]]; then
    exec "$(dirname "$0")/arm.sh" "$(realpath "$0")" "$@"
fi
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

command -v "${emulator[0]}" >/dev/null ||
    die "${emulator[0]} is not installed; run 'apt-get install qemu-user-static' as root"

# Tests of what QEMU 7.2 does not emulate: process_vm_readv and process_vm_writev, ethtool's ioctls,
# counts of dropped datagrams, and mincore. The last test measures memory, of which the emulator takes
# more.
excluded=(
    vm_read::tests
    ethtool::tests::features_of_loopback_are_read_by_name
    ethtool::tests::missing_interfaces_are_errors
    net::options::tests::full_receive_buffer_counts_drops
    udp::tests::overflow_is_reported_frame_by_frame
    pages::tests::pages_are_present_from_the_start
    meeting::tests::idle_client_costs_a_server_what_the_documents_state
)

run_tests() {
    local test
    for test in "${excluded[@]}"; do
        skipped "$test: not under emulation"
    done
    "$CARGO" test --lib -p portolan-wire -p portolan-proto -p portolan-sys -p portolan-link -p portolan \
        --no-fail-fast -- "${excluded[@]/#/--skip=}"
}

build() {
    "$CARGO" build --release -p portolan-cli -p portolan-sim
    scripts/build-libraries.sh
    scripts/build-openmpi.sh
}

# try_package DEB: runs a program that is linked with the package's library, by shared memory and UDP.
try_package() {
    local root=$work/root lib path
    dpkg-deb --extract "$1" "$root"
    lib=$root/usr/lib/aarch64-linux-gnu
    "$CC" -O2 -I "$root/usr/include" examples/cookbook/ring.c -L "$lib" -lportolan -o "$work/ring"
    "${emulator[@]}" "$root/usr/bin/portolan" --version
    export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
    if ! "$root/usr/bin/portolan" --version >/dev/null 2>&1; then
        skipped "the package's programs: the kernel starts no programs for Arm here"
        return
    fi
    for path in shm udp; do
        say "ring by $path"
        LD_LIBRARY_PATH=$lib timeout 120 "$root/usr/bin/portolan" run -n 2 --path "$path" -- "$work/ring"
    done
}

parts=${PARTS:-tests packages}
work=$(mktemp -d)
end_with "rm -rf -- $work"
for part in $parts; do
    case $part in
        tests) run_tests ;;
        packages)
            build
            scripts/build-packages.sh deb
            version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
            try_package "$release_dir/../packages/portolan_$version-1_arm64.deb"
            scripts/build-wheel.sh
            ;;
        *) die "PARTS=$part: take tests or packages" ;;
    esac
done

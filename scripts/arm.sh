#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs a command with the environment of a build for 64-bit Arm on another processor: cargo, the C
# compiler and strip are those of the target, and QEMU emulates its programs.
#
#   scripts/arm.sh COMMAND [ARGUMENT...]
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

[[ $# -gt 0 ]] || die "usage: arm.sh COMMAND [ARGUMENT...]"
target=aarch64-unknown-linux-gnu
tools=aarch64-linux-gnu

has_arm || die "the compiler or Rust's target is missing; run 'rustup target add $target', and as root \
'apt-get install gcc-$tools libc6-dev-arm64-cross qemu-user-static'"

export CARGO_BUILD_TARGET=$target
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$tools-gcc
export CC=$tools-gcc STRIP=$tools-strip DEB_HOST_ARCH=arm64
# The crate `cc` builds C code of dependencies; CC would also be the compiler of build scripts.
export CC_aarch64_unknown_linux_gnu=$tools-gcc HOST_CC=cc
# Programs of the target find its C library there.
export EMULATOR="qemu-aarch64-static -L /usr/$tools"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$EMULATOR
exec "$@"

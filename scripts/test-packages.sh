#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests the packages of scripts/build-packages.sh in a clean root of Debian: installs each, runs the
# commands of README.md as an ordinary user, removes it, and compares the files. Also runs lintian and
# rpmlint. What cannot be done here is skipped with a note.
#
# Needs root, mmdebstrap and Debian's archive; rpm for the rpm. The root is kept as
# target/packages/root.tar for the next run. Environment: SUITE, Debian's release (default: the one of
# this machine).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

user=sailor
chroot=$(command -v chroot || echo /usr/sbin/chroot)
uid=61300
packages=$(realpath -m "$release_dir/../packages")
suite=${SUITE:-$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)}
# Packages that the commands of README.md need.
needs=gcc,libc6-dev,pkg-config,cmake,make,openmpi-bin,libopenmpi-dev,libfabric-bin,bash-completion,man-db

check_needs() {
    local command missing=()
    [[ $EUID -eq 0 ]] || missing+=("root")
    for command in mmdebstrap unshare chroot setpriv; do
        command -v "$command" >/dev/null || missing+=("$command")
    done
    if [[ ${#missing[@]} -eq 0 ]] && ! unshare --mount --pid --fork true 2>/dev/null; then
        missing+=("mount and process namespaces")
    fi
    if [[ ${#missing[@]} -gt 0 ]]; then
        skipped "packages in a clean root: missing here: ${missing[*]}"
        exit 0
    fi
}

# Mounts end with this script, and so do the processes of the root.
enter_namespace() {
    [[ ${IN_NAMESPACE:-} == yes ]] && return
    check_needs
    IN_NAMESPACE=yes exec unshare --mount --pid --fork --kill-child --propagation private "$BASH" scripts/test-packages.sh
}

make_root_archive() {
    [[ -e $packages/root-$suite.tar ]] && return
    say "making a root of Debian $suite"
    mmdebstrap --quiet --variant=apt --include="$needs" "$suite" "$packages/root-$suite.new.tar" ||
        { skipped "packages in a clean root: Debian $suite cannot be fetched from here"; exit 0; }
    mv -- "$packages/root-$suite.new.tar" "$packages/root-$suite.tar"
}

make_root() {
    root=$work/root
    mkdir -- "$root"
    mount -t tmpfs -o mode=755 tmpfs "$root"
    tar -C "$root" -xpf "$packages/root-$suite.tar"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
    # Its home is outside of the compared files.
    mkdir -- "$root/tmp/$user"
    echo "$user:x:$uid:$uid::/tmp/$user:/bin/bash" >>"$root/etc/passwd"
    echo "$user:x:$uid:" >>"$root/etc/group"
    cp -- README.md interfaces/capi/man/portolan.7 "$root/tmp/$user/"
    chown -R "$uid:$uid" "$root/tmp/$user"
}

drop_root() {
    umount -lR "$root"
    rmdir -- "$root"
}

in_root() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        "$chroot" "$root" "$@"
}

# Runs a script in the root as the ordinary user.
as_user() {
    env -i PATH=/usr/bin:/bin HOME="/tmp/$user" LC_ALL=C.UTF-8 PKG_CONFIG_PATH="${pkg_config_path:-}" \
        CMAKE_PREFIX_PATH="${cmake_prefix_path:-}" \
        "$chroot" --userspec="$uid:$uid" "$root" bash -euo pipefail -c "cd /tmp/$user; $1"
}

# Lists the files of the root, except what the package managers and the loader keep for themselves.
list() {
    (cd "$root" && find . -xdev ! -path './tmp/*' ! -path './proc/*' ! -path './dev/*' \
        ! -path './var/lib/dpkg/*' ! -path './var/lib/rpm*' ! -path './var/log/*' ! -path './var/cache/*' \
        ! -path './root/*' ! -path './etc/ld.so.cache' | sort)
}

# The commands of README.md, and what else the package offers to a user.
use() {
    as_user 'cat >program.c <<C
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("sum of %d ranks: %d\\n", size, sum);
    MPI_Finalize();
    return 0;
}
C
mpicc -O2 -o program program.c
portolan mpirun -n 2 ./program | tee out; grep -q "sum of 2 ranks: 1" out
portolan mpirun --via ofi -n 2 ./program | tee out; grep -q "sum of 2 ranks: 1" out
portolan profile --events 1000000 --keep records -- mpirun --oversubscribe -n 4 ./program >out
portolan predict records >out
portolan doctor >out; portolan info >out; portolan sockets -- true'
    # The example of portolan(7) is the program in C that README.md refers to.
    # shellcheck disable=SC2016  # expanded in the root
    as_user 'sed -n "/^.SH EXAMPLE/,/^.fi/p" portolan.7 | sed "1,2d; \$d; s/^\.PP$//; s/\\\\e/\\\\/g" >ahoy.c
cc ahoy.c -o ahoy $(pkg-config --cflags --libs portolan)
portolan run -n 4 --env "LD_LIBRARY_PATH=${PKG_CONFIG_PATH%/pkgconfig}" -- ./ahoy | tee out
test "$(grep -c "ahoy from" out)" = 4'
    # shellcheck disable=SC2016  # expanded in the root
    as_user 'mkdir -p cmake; cat >cmake/CMakeLists.txt <<C
cmake_minimum_required(VERSION 3.18)
project(ahoy C)
find_package(portolan 0.1 REQUIRED)
add_executable(ahoy ../ahoy.c)
target_link_libraries(ahoy portolan::portolan)
C
{ cmake -S cmake -B build && cmake --build build; } >out || { cat out; exit 1; }
LD_LIBRARY_PATH="${PKG_CONFIG_PATH%/pkgconfig}" ldd build/ahoy >out; grep "libportolan.so.0 => /" out'
    # shellcheck disable=SC2016  # expanded in the root
    as_user 'set +u; source /usr/share/bash-completion/bash_completion
# Status 124: loaded, try again.
_completion_loader portolan || [[ $? == 124 ]]
COMP_WORDS=(portolan do); COMP_CWORD=1; COMP_LINE="portolan do"; COMP_POINT=11
_portolan portolan do portolan; [[ ${COMPREPLY[*]} == *doctor* ]]
for page in portolan.1 portolan-lab-capture.1 portolan.7 portolan_send.3 fi_portolan.7; do
    ls /usr/share/man/man*/$page.gz >out
done'
}

# check_provider [DIRECTORY]: libfabric finds the provider by itself, or in DIRECTORY, and uses another
# one unless it is named.
check_provider() {
    as_user "export FI_PROVIDER_PATH=${1:-}; [[ -n \$FI_PROVIDER_PATH ]] || unset FI_PROVIDER_PATH; "'fi_info -p portolan >out; grep -m 1 "provider: portolan" out
fi_info >out; ! grep "provider: portolan" out'
}

compare() {
    list >"$work/after"
    diff "$work/before" "$work/after" || die "the $1 left files behind, or removed others"
}

test_deb() {
    local deb=$1
    make_root
    # Directories that the first installed package makes are not this one's.
    list >"$work/before"
    cp -- "$deb" "$root/tmp/portolan.deb"
    in_root dpkg --install /tmp/portolan.deb >"$work/log" || { cat "$work/log"; return 1; }
    use
    check_provider
    in_root dpkg --purge portolan >"$work/log"
    compare deb
    drop_root
    say "the deb: installed, used by an ordinary user, removed: nothing is left"
}

test_rpm() {
    local rpm=$1
    make_root
    list >"$work/before"
    # The root has no database of packages, so dependencies cannot be checked.
    rpm --root "$root" --initdb
    rpm --root "$root" --install --nodeps --noscripts "$rpm"
    # Debian's tools do not search lib64.
    pkg_config_path=/usr/lib64/pkgconfig
    cmake_prefix_path=/usr/lib64/cmake
    use
    check_provider /usr/lib64/libfabric
    pkg_config_path=
    cmake_prefix_path=
    rpm --root "$root" --erase --noscripts portolan
    compare rpm
    drop_root
    say "the rpm: installed, used by an ordinary user, removed: nothing is left"
}

lint_packages() {
    if command -v lintian >/dev/null; then
        lintian --fail-on error --display-level '>=error' "$1" || die "lintian reports errors"
        say "lintian: no errors"
    else
        skipped "lintian is not installed"
    fi
    if command -v rpmlint >/dev/null && [[ -n ${2:-} ]]; then
        rpmlint --config packaging/rpmlint.toml "$2" || die "rpmlint reports errors"
        say "rpmlint: no errors"
    else
        skipped "rpmlint is not installed, or there is no rpm"
    fi
}

enter_namespace
work=$(mktemp -d)
end_with "umount -lR $work/root 2>/dev/null || true; rm -rf --one-file-system -- $work"
[[ -n $(compgen -G "$packages/portolan_*.deb") ]] || scripts/build-packages.sh
make_root_archive
deb=$(compgen -G "$packages/portolan_*.deb" | tail -n 1)
rpm=$(compgen -G "$packages/portolan-*.rpm" | tail -n 1) || rpm=
lint_packages "$deb" "$rpm"
test_deb "$deb"
if [[ -n $rpm ]]; then
    test_rpm "$rpm"
else
    skipped "there is no rpm"
fi

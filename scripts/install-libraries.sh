#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Installs the C libraries, their headers, files for pkg-config and CMake, and manual pages below
# DESTDIR/PREFIX.
#
#   scripts/install-libraries.sh PREFIX [DESTDIR]
#
# Environment: LIBRARIES, the directory of the libraries (default: the output of `make build`).
# LIBDIR, the directory below PREFIX for libraries (default: lib). With another one, what the
# command loads is in lib/portolan, and a link in LIBDIR/libfabric leads there.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

prefix=${1:?usage: install-libraries.sh PREFIX [DESTDIR]}
root=${2:-}$prefix
libraries=${LIBRARIES:-$release_dir/libraries}
libdir=${LIBDIR:-lib}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

# install_library NAME FOLDER DESCRIPTION: installs lib$NAME.so.0, lib$NAME.a if built, header and
# .pc
install_library() {
    local name=$1 folder=$2 description=$3
    [[ -e $libraries/lib$name.so.0 ]] ||
        die "$libraries/lib$name.so.0 does not exist; run 'make build' first"
    install -m 755 -t "$root/$libdir" -- "$libraries/lib$name.so.0"
    ln -sf "lib$name.so.0" "$root/$libdir/lib$name.so"
    if [[ -e $libraries/lib$name.a ]]; then
        install -m 644 -t "$root/$libdir" -- "$libraries/lib$name.a"
    fi
    install -m 644 -t "$root/include" -- "$folder/include/$name.h"
    # The run path lets programs find the library even outside the loader's directories. The static
    # library additionally needs only parts of the C library.
    cat >"$root/$libdir/pkgconfig/$name.pc" <<PC
prefix=$prefix
libdir=\${prefix}/$libdir
includedir=\${prefix}/include

Name: $name
Description: $description
Version: $version
Libs: -L\${libdir} -Wl,-rpath,\${libdir} -l$name
Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
Cflags: -I\${includedir}
PC
}

install -d -- "$root"/{"$libdir"/pkgconfig,"$libdir"/cmake/portolan,include,share/man/man3,share/man/man7} ||
    die "cannot write below $root; choose another PREFIX or run as root"
install_library portolan interfaces/capi "Fast messages between the processes of parallel programs"
install_library gamma heritage/gamma "The programming interface of GAMMA on Portolan"
install_library bip heritage/bip "The programming interface of BIP on Portolan"
install_library gm heritage/gm "The programming interface of Myricom's GM on Portolan"
install_library vipl heritage/vipl "The programming interface of the VI Architecture on Portolan"
install_library tmk heritage/treadmarks "The programming interface of TreadMarks on Portolan"
# The name of the original.
ln -sf tmk.h "$root/include/Tmk.h"
install -m 644 -t "$root/share/man/man7" -- interfaces/capi/man/portolan.7
scripts/man-pages.sh interfaces/capi/include/portolan.h "$version" "$root/share/man/man3" \
    examples/cookbook/*.c examples/c/*.c interfaces/capi/tests/c/*.c
shopt -s nullglob # some have no example
for name in "${heritage[@]}"; do
    library=$(library_of "$name")
    install -m 644 -t "$root/share/man/man7" -- "heritage/$name/man/$library.7"
    scripts/man-pages.sh "heritage/$name/include/$library.h" "$version" "$root/share/man/man3" \
        examples/*/"$library"*.c "heritage/$name"/tests/c/*.c
done
install -m 644 -t "$root/$libdir/cmake/portolan" -- interfaces/capi/cmake/portolan-config.cmake
cat >"$root/$libdir/cmake/portolan/portolan-config-version.cmake" <<CMAKE
set(PACKAGE_VERSION "$version")
if("\${PACKAGE_FIND_VERSION}" VERSION_EQUAL "$version")
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
if(NOT "\${PACKAGE_FIND_VERSION}" VERSION_GREATER "$version")
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
CMAKE
# The provider is inactive unless a program or its user names it, so libfabric may find it by
# default.
if [[ -e $libraries/libportolan-fi.so ]]; then
    if [[ $libdir == lib ]]; then
        install -D -m 755 -t "$root/lib/libfabric" -- "$libraries/libportolan-fi.so"
    else
        install -D -m 755 -t "$root/lib/portolan" -- "$libraries/libportolan-fi.so"
        install -d -- "$root/$libdir/libfabric"
        ln -sfr "$root/lib/portolan/libportolan-fi.so" "$root/$libdir/libfabric/libportolan-fi.so"
    fi
    install -m 644 -t "$root/share/man/man7" -- interfaces/fabric/man/fi_portolan.7
else
    skipped "$libraries/libportolan-fi.so was not built: the libfabric provider is not installed"
fi
# The dynamic loader ignores it unless `portolan sockets` names it.
if [[ -e $libraries/libportolan-sockets.so ]]; then
    install -D -m 755 -t "$root/lib/portolan" -- "$libraries/libportolan-sockets.so"
else
    skipped "$libraries/libportolan-sockets.so was not built: \`portolan sockets\` is not usable"
fi
# Open MPI does not search this directory itself: `portolan mpirun` or the user names it.
for component in "$release_dir"/openmpi-*/mca_btl_portolan.so; do
    if [[ -e $component ]]; then
        name=$(basename "$(dirname "$component")")
        install -D -m 755 -t "$root/lib/portolan/$name" -- "$component"
    else
        skipped "the component for Open MPI was not built"
    fi
done
say "libraries, headers and manual pages are below $root"
if [[ $prefix != /usr && $prefix != /usr/local ]]; then
    say "for other programs: export PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig MANPATH=$prefix/share/man:"
fi

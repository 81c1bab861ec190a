#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the packages of what `make build` has built, below target/packages. They hold the files
# that `make install` places.
#
#   scripts/build-packages.sh [deb] [rpm]
#
# Without arguments it builds the packages for which the tools are installed. Environment: MAINTAINER, a
# name and an address.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
maintainer=${MAINTAINER:-The Portolan contributors <portolan@example.org>}
out=$(realpath -m "$release_dir/../packages")
work=$(mktemp -d)
end_with "rm -rf -- $work"
summary="Fast messages between the processes of parallel programs"

# stage LIBDIR: makes the tree $stage of an installation in /usr.
stage() {
    stage=$work/root
    rm -rf -- "$stage"
    scripts/install.sh "$stage/usr" /usr >"$work/log" || { cat "$work/log" >&2; return 1; }
    LIBDIR=$1 scripts/install-libraries.sh /usr "$stage" >"$work/log"
    grep SKIPPED "$work/log" || true
    # A package's files have no other users' directories in their run paths: the loader finds these.
    # shellcheck disable=SC2016  # of pkg-config
    sed -i 's/ -Wl,-rpath,${libdir}//' "$stage/usr/$1"/pkgconfig/*.pc
    "$STRIP" --strip-unneeded "$stage"/usr/bin/* "$stage/usr/$1"/*.so.0
    find "$stage/usr/lib/portolan" -name '*.so' -exec "$STRIP" --strip-unneeded {} +
    "$STRIP" --strip-debug "$stage/usr/$1"/*.a
    find "$stage/usr/share/man" -type f -exec gzip -9n {} +
    chmod -R u=rwX,go=rX "$stage"
}

# Prints the packages that own the libraries which the files need.
needed_libraries() {
    install -d -- "$work/shlibs/debian"
    printf 'Source: portolan\n\nPackage: portolan\nArchitecture: any\n' >"$work/shlibs/debian/control"
    (cd "$work/shlibs" && dpkg-shlibdeps -O --ignore-missing-info "$@") >"$work/needed" 2>"$work/log" ||
        { cat "$work/log" >&2; return 1; }
    # A cross-compiler's C library has the name of its own package.
    sed -n 's/^shlibs:Depends=//p' "$work/needed" | sed "s/-$(dpkg-architecture -qDEB_HOST_ARCH)-cross//g"
}

write_control() {
    local control=$1 depends=$2
    cat >"$control" <<CONTROL
Package: portolan
Version: $version-1
Architecture: $(dpkg-architecture -qDEB_HOST_ARCH)
Maintainer: $maintainer
Installed-Size: $(du -sk "$stage" | cut -f 1)
Depends: $depends
Recommends: libfabric1
Suggests: openmpi-bin, wireshark | tshark
Section: net
Priority: optional
Description: $(tr '[:upper:]' '[:lower:]' <<<"${summary:0:1}")${summary:1}
 Portolan moves messages between the processes of parallel programs on Linux,
 over plain Ethernet and shared memory.
 .
 This package has the command, the C libraries with their headers, a libfabric
 provider for MPI, and a component for Open MPI. The provider is inactive until
 a program or its user names it.
CONTROL
}

build_deb() {
    local triplet deb control
    triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
    stage "lib/$triplet"
    chmod 644 "$stage/usr/lib/$triplet"/*.so.0
    local doc=$stage/usr/share/doc/portolan
    install -D -m 644 -t "$doc" -- packaging/copyright README.md
    gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
    printf 'portolan (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
        "$version" "$maintainer" "$(LC_ALL=C git log -1 --format=%cD 2>/dev/null || date -R)" |
        gzip -9n >"$doc/changelog.Debian.gz"
    control=$stage/DEBIAN
    install -d -- "$control"
    needed_libraries "$stage/usr/bin/portolan" "$stage/usr/lib/$triplet"/*.so.0 >"$work/depends"
    write_control "$control/control" "$(<"$work/depends")"
    for library in "$stage/usr/lib/$triplet"/*.so.0; do
        echo "$(basename "$library" .so.0) 0 portolan (>= $version)"
    done >"$control/shlibs"
    echo 'activate-noawait ldconfig' >"$control/triggers"
    install -m 755 -t "$control" -- packaging/prerm packaging/postrm
    (cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$control/md5sums"
    chmod 644 "$control"/{control,shlibs,triggers,md5sums}
    deb=$out/portolan_$version-1_$(dpkg-architecture -qDEB_HOST_ARCH).deb
    dpkg-deb --root-owner-group --build "$stage" "$deb" >"$work/log"
    say "$(ls -s -h "$deb")"
}

build_rpm() {
    stage lib64
    install -D -m 644 -t "$stage/usr/share/doc/portolan" -- README.md CHANGELOG.md
    install -D -m 644 -t "$stage/usr/share/licenses/portolan" -- LICENSE-MIT LICENSE-APACHE
    # All directories except those of every system, which its package of directories owns, and files.
    (
        cd "$stage"
        find usr -mindepth 2 -type d ! -regex 'usr/lib/systemd\(/system\)?\|usr/share/\(doc\|man\(/man.\)?\)' \
            -printf '%%dir /%p\n'
        find usr ! -type d -path 'usr/share/doc/*' -printf '%%doc /%p\n'
        find usr ! -type d ! -path 'usr/share/doc/*' -printf '"/%p"\n'
    ) >"$work/files"
    rpmbuild -bb --quiet --define "_topdir $work/rpm" --define "_rpmdir $out" \
        --define '_rpmfilename %{name}-%{version}-%{release}.%{arch}.rpm' \
        --define "portolan_version $version" --define "portolan_stage $stage" \
        --define "portolan_files $work/files" --define "portolan_maintainer $maintainer" \
        --define "portolan_date $(LC_ALL=C date '+%a %b %d %Y')" packaging/portolan.spec
    say "$(ls -s -h "$out"/portolan-"$version"-*.rpm)"
}

wanted=("$@")
if [[ ${#wanted[@]} -eq 0 ]]; then
    command -v dpkg-deb >/dev/null && wanted+=(deb)
    command -v rpmbuild >/dev/null && wanted+=(rpm)
fi
[[ ${#wanted[@]} -gt 0 ]] || die "neither dpkg-deb nor rpmbuild is installed: install dpkg-dev or rpm"
install -d -- "$out"
for kind in "${wanted[@]}"; do
    case $kind in
        deb) build_deb ;;
        rpm) build_rpm ;;
        *) die "$kind: take deb or rpm" ;;
    esac
done

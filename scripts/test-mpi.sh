#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests MPI programs over Portolan, with Open MPI 4 (Debian), and Open MPI 5 and MPICH (PyPI); on
# one host and, as root, on a lab of two. Takes long. Removes everything that it creates, except
# Debian's packages.
#
#   scripts/test-mpi.sh [openmpi4|openmpi5|mpich]…
#
# Environment: PARTS, the parts to run (default: all):
# - pingpong: libfabric's own test;
# - unasked: nothing changes without a request for the provider;
# - killed: a process dies;
# - shrink: a process dies, and the job continues (Open MPI 5 with its component);
# - stopped: a process is stopped for a while;
# - asleep: a process sends and then makes no calls;
# - passive: memory of a process is accessed while it makes no calls;
# - dynamic: windows with memory that is attached later (RUNS jobs for each setting, default 3);
# - flood: a million unexpected messages;
# - broker: an ordinary user over raw Ethernet;
# - npb: the programs of examples/npb;
# - apps: HPCC, NetPIPE and LAMMPS of Debian, with its Open MPI;
# - futures: the tests of mpi4py.futures;
# - fft: transforms by mpi4py-fft, with Debian's Open MPI;
# - profile-apps: the same under portolan profile, and NetPIPE also with Debian's MPICH;
# - mpi4py: its test suite.
# PROFILE (release, or debug) selects the build under test; VIA (btl, the default, or ofi) the
# library that Open MPI 4 uses. On one host the component leaves the messages to Open MPI's shared
# memory, so VIA=ofi is the test of Portolan's.
#
# For mpi4py: SIZES, the numbers of processes (default: 1 2 4); LIMIT, the time limit of one run in
# seconds (default: 1800); OPTIONS, words for its main.py, such as '-i test_rma'; LEFT_OUT=run, to
# include the tests that mpi4py-skip.txt excludes; OVER=tcp, to run everything over libfabric's tcp
# provider, for comparison.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

mpis=("$@")
[[ ${#mpis[@]} -gt 0 ]] || mpis=(openmpi4 openmpi5 mpich)
read -r -a parts <<<"${PARTS:-pingpong unasked killed shrink stopped asleep passive dynamic flood broker npb apps futures fft profile-apps mpi4py}"

source scripts/mpi/common.sh
# Listed one by one, so that shellcheck follows.
source scripts/mpi/pingpong.sh
source scripts/mpi/unasked.sh
source scripts/mpi/killed.sh
source scripts/mpi/shrink.sh
source scripts/mpi/stopped.sh
source scripts/mpi/asleep.sh
source scripts/mpi/passive.sh
source scripts/mpi/dynamic.sh
source scripts/mpi/flood.sh
source scripts/mpi/broker.sh
source scripts/mpi/npb.sh
source scripts/mpi/apps.sh
source scripts/mpi/python.sh
source scripts/mpi/profile-apps.sh
source scripts/mpi/mpi4py.sh

is_wanted() {
    [[ " ${parts[*]} " == *" $1 "* ]]
}

check_build
lab_up
if is_wanted pingpong; then pingpong; fi
if is_wanted mpi4py || is_wanted futures; then fetch_tests; fi
for mpi in "${mpis[@]}"; do
    if ! prepare "$mpi"; then
        skipped "$mpi could not be installed"
        continue
    fi
    if is_wanted unasked; then unasked "$mpi"; fi
    if is_wanted killed; then killed "$mpi"; fi
    if is_wanted shrink; then shrink "$mpi"; fi
    if is_wanted stopped; then stopped "$mpi"; fi
    if is_wanted asleep; then asleep "$mpi"; fi
    if is_wanted passive; then passive "$mpi"; fi
    if is_wanted dynamic; then dynamic "$mpi"; fi
    if is_wanted flood; then flood "$mpi"; fi
    if is_wanted broker; then broker "$mpi"; fi
    if is_wanted npb; then npb "$mpi"; fi
    if is_wanted apps && [[ $mpi == openmpi4 ]]; then apps; fi
    if is_wanted futures; then futures "$mpi"; fi
    if is_wanted fft && [[ $mpi == openmpi4 ]]; then fft; fi
    if is_wanted profile-apps && [[ $mpi == openmpi4 ]]; then profile_apps; fi
    if is_wanted mpi4py; then suite "$mpi"; fi
done
finish

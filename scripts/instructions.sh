#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Counts the user-space instructions of one message of 8 bytes with callgrind: within a host by
# shared memory, and as root between two hosts of a lab by raw Ethernet and UDP. Compares the counts
# with scripts/instructions/figures.txt, and fails if a count is more than 5 % above its figure.
# With --update it writes the new counts as figures: a change that lowers a count lowers the figure.
# With --if-built it skips if the release build is missing or older than the sources.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

figures=scripts/instructions/figures.txt
portolan=$release_dir/portolan
library=$release_dir/libraries/libportolan.so.0
# Counts are exact within a host. Between hosts they vary by 2 %: acknowledgements and timers depend on
# time. A rise of 5 % is a change of the code.
tolerance_percent=5
# The difference of two runs cancels one-time work. Each burst has 32 messages.
few=20 many=60 burst_len=32

command -v valgrind >/dev/null || { skipped "valgrind is not installed"; exit 0; }
if [[ ${1:-} == --if-built ]]; then
    [[ -x $portolan && -e $library ]] || { skipped "no release build: run 'make build'"; exit 0; }
    newer=$(find core interfaces/capi interfaces/ffi -name '*.rs' -newer "$library" -print -quit)
    [[ -z $newer ]] || { skipped "$newer is newer than the release build: run 'make build'"; exit 0; }
fi
for file in "$portolan" "$library"; do
    [[ -e $file ]] || die "$file is not there: run 'make build' first"
done
scratch=$(mktemp -d)
end_with "rm -rf '$scratch'"
cp "$library" "$scratch/libportolan.so.0"
ln -s libportolan.so.0 "$scratch/libportolan.so"
cc -O2 -Iinterfaces/capi/include scripts/instructions/burst.c -L"$scratch" -lportolan \
    -Wl,-rpath,"$scratch" -o "$scratch/burst"

# count PATH CASE FUNCTION BURSTS: prints the instructions of FUNCTION, which one of the ranks
# calls.
count() {
    local lab=()
    [[ $1 == shm ]] || lab=(--new-lab 2)
    rm -f "$scratch"/counted.*
    head -c 4096 /dev/zero >"$scratch/sent"
    PORTOLAN_PEER_TIMEOUT=100s timeout 120 "$portolan" run -n 2 "${lab[@]}" --path "$1" -- \
        valgrind --tool=callgrind --callgrind-out-file="$scratch/counted.%p" \
        --toggle-collect="$3" "$scratch/burst" "$scratch/sent" "$4" "$2" >"$scratch/log" 2>&1 ||
        { tail -5 "$scratch/log" >&2; die "counting $1 '$2' failed"; }
    awk '/^totals:/ { sum += $2 } END { print sum }' "$scratch"/counted.*
}

# per_message PATH CASE FUNCTION
per_message() {
    local first last
    first=$(count "$@" $few)
    last=$(count "$@" $many)
    echo $(((last - first) / ((many - few) * burst_len)))
}

paths=(shm packet udp)
if [[ $EUID -ne 0 ]]; then
    skipped "packet and udp: a lab needs root"
    paths=(shm)
fi
for path in "${paths[@]}"; do
    echo "$path receive-held $(per_message "$path" held take_burst)"
    echo "$path receive-ring $(per_message "$path" ring take_burst)"
    echo "$path send $(per_message "$path" ring send_burst)"
    echo "$path isend-copy $(per_message "$path" isend send_burst)"
done >"$scratch/counts"

if [[ ${1:-} == --update ]]; then
    for path in shm packet udp; do
        grep "^$path " "$scratch/counts" || grep "^$path " "$figures" || true
    done >"$scratch/figures"
    cp "$scratch/figures" "$figures"
    cat "$figures"
    exit 0
fi
status=0
while read -r path what count; do
    figure=$(awk -v path="$path" -v what="$what" '$1 == path && $2 == what { print $3 }' "$figures")
    [[ -n $figure ]] || die "$figures has no figure for $path $what: run '$0 --update'"
    say "$path $what: $count instructions a message, $figure are kept"
    if ((count * 100 > figure * (100 + tolerance_percent))); then
        say "$path $what: more than $tolerance_percent % above $figures"
        status=1
    elif ((count * 100 < figure * (100 - tolerance_percent))); then
        say "$path $what: lower than kept; run '$0 --update' and commit the figures"
    fi
done <"$scratch/counts"
exit $status

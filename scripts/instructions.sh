#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Counts the user-space instructions of one message of 8 bytes within a host, by callgrind, and compares
# them with scripts/instructions/figures.txt. Fails when a count is more than 5 % above its figure. With
# --update it writes the figures instead: a change that lowers a count lowers the figure. With
# --if-built it skips when the release build is missing or older than the sources.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

figures=scripts/instructions/figures.txt
portolan=$release_dir/portolan
library=$release_dir/libraries/libportolan.so.0
# Counts are exact but for a turn now and then; a rise of 5 % is a change of the code.
tolerance_percent=5
# The difference of two runs leaves out what is done once. Each burst has 32 messages.
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

# count CASE FUNCTION BURSTS: prints the instructions of FUNCTION, which one of the ranks calls.
count() {
    rm -f "$scratch"/counted.*
    head -c 4096 /dev/zero >"$scratch/sent"
    PORTOLAN_PEER_TIMEOUT=100s timeout 120 "$portolan" run -n 2 --path shm -- \
        valgrind --tool=callgrind --callgrind-out-file="$scratch/counted.%p" \
        --toggle-collect="$2" "$scratch/burst" "$scratch/sent" "$3" "$1" >"$scratch/log" 2>&1 ||
        { tail -5 "$scratch/log" >&2; die "counting '$1' failed"; }
    awk '/^totals:/ { sum += $2 } END { print sum }' "$scratch"/counted.*
}

# per_message CASE FUNCTION
per_message() {
    local first last
    first=$(count "$1" "$2" $few)
    last=$(count "$1" "$2" $many)
    echo $(((last - first) / ((many - few) * burst_len)))
}

{
    echo "shm receive-held $(per_message held take_burst)"
    echo "shm receive-ring $(per_message ring take_burst)"
    echo "shm send $(per_message ring send_burst)"
} >"$scratch/counts"

if [[ ${1:-} == --update ]]; then
    cp "$scratch/counts" "$figures"
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

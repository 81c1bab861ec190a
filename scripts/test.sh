#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# All tests. Ends with the test runner's summary and status.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

scripts/check-core.sh
if ! find_root; then
    say "no root here: tests that make network namespaces will say that they skip"
fi
exec "$CARGO" test --workspace --no-fail-fast

#!/usr/bin/env bash
# Runs tests, and says at the end which of them were skipped, and why.
#
#   scripts/skipped.sh COMMAND...
set -euo pipefail
FIRSTLIGHT_SKIPPED=$(mktemp)
export FIRSTLIGHT_SKIPPED
trap 'rm -f "$FIRSTLIGHT_SKIPPED"' EXIT
status=0
"$@" || status=$?
if [ -s "$FIRSTLIGHT_SKIPPED" ]; then
    echo "$(sort -u "$FIRSTLIGHT_SKIPPED" | wc -l) tests or parts of them were skipped:" >&2
    sort -u "$FIRSTLIGHT_SKIPPED" >&2
else
    echo "no test was skipped" >&2
fi
exit "$status"

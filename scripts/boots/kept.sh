#!/usr/bin/env bash
# Runs a command with records of boots in reach, and says how many were used.
#
#   scripts/boots/kept.sh COMMAND...
#
# Boots on the instruction clock are told from FIRSTLIGHT_KEPT_BOOTS (~/.cache/firstlight/boots) where the same boot was
# made before, scripts/boots/qemu.sh. Machines with UEFI are resumed from there, scripts/boots/uefi.sh. With CI_ALL=1 all are
# made from the start. Tests that two boots are the same make both.
set -euo pipefail
[ -z "${CI_ALL:-}" ] || exec "$@"
export FIRSTLIGHT_KEPT_BOOTS=${FIRSTLIGHT_KEPT_BOOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/firstlight/boots}
mkdir -p "$FIRSTLIGHT_KEPT_BOOTS"
# What nobody requested for a month is of an image that is gone, and what is new for a day of a boot that was ended.
find "$FIRSTLIGHT_KEPT_BOOTS" -mindepth 1 -maxdepth 1 \( -mtime +30 -o -name 'new.*' -mtime +0 \) -exec rm -rf {} +
# `real_qemu` of the tests knows the folder by this name.
links=$(mktemp -d)/kept-qemu
trap 'rm -rf "$(dirname "$links")"' EXIT
mkdir "$links"
script=$(realpath "$(dirname "$0")/qemu.sh")
for name in qemu-system-x86_64 qemu-system-aarch64 qemu-system-riscv64; do
    # A test without its QEMU has to see that.
    ! command -v "$name" >/dev/null || ln -s "$script" "$links/$name"
done
export FIRSTLIGHT_BOOTS_LOG=$links/log
: >"$FIRSTLIGHT_BOOTS_LOG"
status=0
PATH=$links:$PATH "$@" || status=$?
count() { grep -c "$1" "$FIRSTLIGHT_BOOTS_LOG" || true; }
echo "boots on the instruction clock: $(count made) made, $(count told) told from records of boots before;" \
    "by UEFI: $(count started) started, $(count resumed) resumed at the first look at the stick" >&2
exit "$status"

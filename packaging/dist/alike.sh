#!/usr/bin/env bash
# Programs of another processor do what those of this one do.
#
#   packaging/dist/alike.sh FOLDER OTHER EMULATOR
#
# FOLDER and OTHER have `firstlight`, `firstlight-pool` and `firstlight-kubernetes`; EMULATOR runs those of OTHER (Debian: qemu-user-static).
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# = 3 ] || { echo "alike.sh: two folders and an emulator are expected" >&2; exit 2; }
folder=$1
other=$2
emulator=$3
command -v "$emulator" >/dev/null || scripts/setup.sh debian qemu-user-static

logs=testdata/golden/logs
failed=0
# alike PROGRAM WORD...: the same output, and the same exit code.
alike() {
    local program=$1 here there code=0 other_code=0
    shift
    here=$("$folder/$program" "$@" 2>&1) || code=$?
    there=$("$emulator" "$other/$program" "$@" 2>&1) || other_code=$?
    if [ "$here" != "$there" ] || [ "$code" != "$other_code" ] || [ -z "$here" ]; then
        echo "alike.sh: not alike: $program $* ($code and $other_code)" >&2
        diff <(echo "$here") <(echo "$there") >&2 || true
        failed=1
    fi
}
alike firstlight --version
alike firstlight --help
alike firstlight-pool --version
alike firstlight-kubernetes --version
alike firstlight-kubernetes driver --help
# An apiserver that is none, and a folder that can't be made.
alike firstlight-kubernetes driver --node node1 --apiserver ftp://127.0.0.1:1
alike firstlight-kubernetes plugin --links /proc/none
alike firstlight doctor "$logs/A_6.1_4G_n1_c4.log" "$logs/A_6.1_256G_n1_c4.log"
alike firstlight doctor "$logs/A_6.1_4G_n1_c4.log" --json
alike firstlight layout "$logs/A_6.1_256G_n1_c4.log" --json
alike firstlight blocks "$logs/A_6.1_256G_n1_c4.log" --json
alike firstlight predict --shape memory=4T,nodes=8,cpus=256
alike firstlight doctor /nowhere
alike firstlight-pool check --config pool/nowhere.toml
# The engine itself: the machine of a log, brought up in the process.
there=$("$emulator" "$other/firstlight" up --shape memory=64G,nodes=2,cpus=4 --json)
grep -q '"schema": "firstlight.run/1"' <<<"$there" || { echo "alike.sh: firstlight up: $there" >&2; failed=1; }
exit $failed

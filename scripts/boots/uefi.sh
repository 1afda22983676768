#!/usr/bin/env bash
# Starts a machine with UEFI where firmware first reads its stick, once a machine of the same shape has come there.
#
#   scripts/boots/uefi.sh QEMU ARGUMENTS...
#
# What firmware does until then is the same for each stick, and takes as long as all that follows. So a machine with a
# stick that fails at the first read stops there and is saved, by the hash of all that it depends on: this file, QEMU and its
# firmware, the arguments without names of files, the content of firmware's variables. Each stick is resumed from there; what
# firmware wrote to the ports before is not told. Each machine adds a line, `started` or `resumed`, to FIRSTLIGHT_BOOTS_LOG.
set -euo pipefail
real=$1
shift
kept=$FIRSTLIGHT_KEPT_BOOTS
scratch=$(mktemp -d "$kept/new.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# The arguments of the machine that is saved, with names that stand for the same in all: ports lead nowhere.
shape=()
variables=/dev/null
{
    cat "$0"
    stat -L -c '%n %s %Y' "$real" /usr/share/qemu/* 2>/dev/null || true
    for word in "$@"; do
        case $word in
        file,id=* | null,id=* | socket,id=* | pipe,id=*)
            port=${word#*,id=}
            word=null,id=${port%%,*}
            ;;
        if=none,id=stick,format=raw,file=*)
            file=${word#*,file=}
            stick=${file%,readonly=on}
            word=if=none,id=stick${file#"$stick"},rerror=stop,driver=raw,file.driver=blkdebug,file.config=FAILS
            word+=,file.image.driver=null-co,file.image.size=$(stat -c %s "$stick")
            ;;
        if=pflash,format=raw,file=*)
            file=${word#*,file=}
            variables=${file%,readonly=on}
            word=if=pflash,format=raw,file=VARIABLES${file#"$variables"}
            sha256sum <"$variables"
            ;;
        if=pflash,readonly=on,format=raw,file=*) sha256sum "${word#*,file=}" ;;
        esac
        shape+=("$word")
        printf 'word %s\n' "$word"
    done
} >"$scratch/inputs"
entry=$kept/uefi-$(sha256sum <"$scratch/inputs" | cut -c 1-32)

# Starts the machine, until it stops at its stick's first read, and saves it.
save() {
    local line="" stopped="" saved="" machine_PID
    cp "$variables" "$scratch/variables"
    printf '[inject-error]\nevent = "none"\niotype = "read"\n' >"$scratch/fails"
    shape=("${shape[@]//file=VARIABLES/file=$scratch/variables}")
    shape=("${shape[@]//file.config=FAILS/file.config=$scratch/fails}")
    shape+=(-chardev stdio,id=saver -mon chardev=saver,mode=control)
    coproc machine { exec setpriv --pdeathsig KILL "$real" "${shape[@]}" 2>/dev/null; }
    local pid=$machine_PID from=${machine[0]} to=${machine[1]}
    echo '{"execute": "qmp_capabilities"}' >&"$to"
    while [ -z "$saved" ] && read -r -t 300 line <&"$from"; do
        case $line in
        *'"BLOCK_IO_ERROR"'*) stopped=1 ;;
        *'"STOP"'*)
            [ -n "$stopped" ] || break
            echo '{"execute": "migrate-set-capabilities", "arguments": {"capabilities": [{"capability": "events", "state": true}]}}
                {"execute": "migrate", "arguments": {"uri": "exec:cat >\"'"$scratch"'/part\" && mv \"'"$scratch"'/part\" \"'"$scratch"'/machine\""}}' >&"$to"
            ;;
        *'"MIGRATION"'*'"completed"'*) saved=1 ;;
        *'"MIGRATION"'*'"failed"'*) break ;;
        esac
    done
    # What QEMU wrote is still read by the other program, which ends when there is no more.
    for _ in {1..300}; do
        [ -n "$saved" ] && [ ! -e "$scratch/machine" ] || break
        sleep 0.1
    done
    [ -e "$scratch/machine" ] || saved=""
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    # Saved as one that stopped at an error, it would not go on.
    [ -n "$saved" ] && perl -0777 -pi -e '$n += s/(globalstate.{1,40}?)io-error/$1running\0/s; END { exit !$n }' \
        "$scratch/machine" || saved=""
    # Whoever saved the same meanwhile has the same.
    [ -z "$saved" ] || mv -T "$scratch" "$entry" 2>/dev/null || [ -d "$entry" ]
}

said=resumed
if [ ! -d "$entry" ]; then
    # The next one of this shape waits, instead of doing the same.
    exec {lock}>"$FIRSTLIGHT_BOOTS_LOG.${entry##*/}"
    flock "$lock"
    [ -d "$entry" ] || { said=started && save; }
    exec {lock}>&-
fi
rm -rf "$scratch"
echo "$said" >>"$FIRSTLIGHT_BOOTS_LOG"
# One that comes to no stick starts as it would, and says what it says.
[ -d "$entry" ] || exec "$real" "$@"
touch "$entry"
cp "$entry/variables" "$variables"
exec "$real" "$@" -incoming "exec:cat \"$entry/machine\""

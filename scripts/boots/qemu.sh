#!/usr/bin/env bash
# QEMU as tests find it under `scripts/boots/kept.sh`, which links its name to this.
#
# A boot on the instruction clock is the same every time. So what QEMU wrote in one that ended by itself, on each of its
# ports, is kept there with its exit status, by the hash of all that it depends on: this file, QEMU and its firmware, all
# arguments, the content of the files that they name. It is told again where the same boot is requested. All else is
# QEMU itself: a clock on the wall, a drive or a socket, whose other end is not kept, and files that QEMU writes. Each
# such boot adds a line, `made` or `told`, to FIRSTLIGHT_BOOTS_LOG. Machines with UEFI and a stick: scripts/boots/uefi.sh.
set -euo pipefail
own=$(realpath "$0")
name=${0##*/}
# The next one in PATH: what stands before this one there has called it.
real=""
while read -r -d : folder; do
    [ -x "$folder/$name" ] || continue
    if [ "$(realpath "$folder/$name")" = "$own" ]; then
        real=""
    elif [ -z "$real" ]; then
        real=$folder/$name
    fi
done <<<"$PATH:"
[ -n "$real" ] || { echo "$name: not found" >&2; exit 127; }

kept=${FIRSTLIGHT_KEPT_BOOTS:-}
[ -z "$kept" ] || mkdir -p "$kept"
case " $* " in
*" -incoming "* | *" -S "*) ;;
*" if=none,id=stick,"*) [ -z "$kept" ] || exec "${own%/*}/uefi.sh" "$real" "$@" ;;
esac
case " $* " in
*" -drive "* | *socket,* | *unix:* | *file:* | *share=on* | *dumpdtb* | *" -D "* | *" -incoming "* | *" -S "*) kept="" ;;
*" -icount "*) ;;
*) kept="" ;;
esac
[ -n "$kept" ] || exec "$real" "$@"

# The content of a file; of a program what QEMU loads of it: the rest names the folder that it was built in.
content() {
    if [ "$(head -c 4 "$1" | tr -d '\0')" = $'\x7fELF' ] && readelf --wide --file-header --segments "$1" >"$scratch/segments" 2>/dev/null; then
        {
            grep -E '^ +(Machine:|Entry point|[A-Z_]+ +0x)' "$scratch/segments"
            while read -r kind offset _ _ bytes _; do
                [ "$kind" != LOAD ] || head -c $((offset + bytes)) "$1" | tail -c $((bytes))
            done <"$scratch/segments"
        } | sha256sum
        return
    fi
    sha256sum <"$1"
}

scratch=$(mktemp -d "$kept/new.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
list=("$@")
ports=()
{
    cat "$0"
    stat -L -c '%n %s %Y' "$real" /usr/share/qemu/* /usr/share/seabios/* 2>/dev/null || true
    for at in "${!list[@]}"; do
        word=${list[at]}
        if [[ $word =~ ^file,id=([a-z]+),path=(/dev/fd/[0-9]+)$ ]]; then
            echo "port ${BASH_REMATCH[1]}"
            continue
        fi
        printf 'word '
        # A command line is the guest's: the paths in it are none of this host.
        if [ "$at" != 0 ] && [ "${list[at - 1]}" = -append ]; then
            printf '%s\n' "$word"
            continue
        fi
        parts=("$word")
        [ -f "$word" ] || IFS=, read -r -d '' -a parts <<<"$word" || true
        for part in "${parts[@]}"; do
            part=${part%$'\n'}
            path=$part
            [ -f "$path" ] || path=${part#*=}
            if [ -f "$path" ]; then
                echo "${part%"$path"*} $(content "$path")"
            else
                printf '%s\n' "$part"
            fi
        done
    done
} >"$scratch/inputs"
entry=$kept/$(sha256sum <"$scratch/inputs" | cut -c 1-32)
for at in "${!list[@]}"; do
    if [[ ${list[at]} =~ ^file,id=([a-z]+),path=(/dev/fd/[0-9]+)$ ]]; then
        ports+=("${BASH_REMATCH[1]} ${BASH_REMATCH[2]}")
        list[at]+=,logfile=$scratch/${BASH_REMATCH[1]}
    fi
done

if [ -d "$entry" ]; then
    touch "$entry"
    echo told >>"$FIRSTLIGHT_BOOTS_LOG"
    for port in "${ports[@]}"; do
        cat "$entry/${port% *}" >"${port#* }"
    done
    cat "$entry/said" >&2
    exit "$(cat "$entry/status")"
fi
echo made >>"$FIRSTLIGHT_BOOTS_LOG"
set +e
# QEMU does not outlive this.
setpriv --pdeathsig KILL "$real" "${list[@]}" </dev/null |& tee "$scratch/said" >&2
status=${PIPESTATUS[0]}
set -e
echo "$status" >"$scratch/status"
# A signal is nobody's result, and 1 is how QEMU refuses. Whoever made the same boot meanwhile has kept the same.
[ "$status" = 1 ] || [ "$status" -ge 128 ] || mv -T "$scratch" "$entry" 2>/dev/null || true
exit "$status"

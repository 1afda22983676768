#!/usr/bin/env bash
# Guests of a real Cloud Hypervisor on a pool of their own, both ways of docs/pool-vmms.md, then how
# long a start of 4 GiB takes beside its own ways.
#
#   scripts/cloud-hypervisor.sh PATH    of cloud-hypervisor; ch-remote is beside it
#
# Needs root, /dev/kvm, 8 GiB for huge pages that are given back, and 4 GiB besides. A guest need not get
# far: what is looked at is the VMM.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "firstlight: $*" >&2
    exit 1
}

vmm=${1:-}
[ -x "$vmm" ] || fail "expected the path of cloud-hypervisor, got ${vmm:-none}: make cloud-hypervisor CH=PATH"
vmm=$(realpath "$vmm")
remote=$(dirname "$vmm")/ch-remote
[ -x "$remote" ] || fail "expected ch-remote beside $vmm"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
pool=$target/release/firstlight-pool
kernel=$target/linux/6.12/vmlinuz
pages=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
bytes=$((4 << 30))
rounds=7

folder=$(mktemp -d)
before=$(<$pages)
guest="" daemon="" mounted=false
clean() {
    for process in $guest $daemon; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    echo "$before" >$pages
    if $mounted; then umount /dev/hugepages; fi
    rm -rf "$folder"
}
trap clean EXIT
# Where the VMM asks what its own huge pages are.
if ! mountpoint -q /dev/hugepages; then
    mkdir -p /dev/hugepages
    mount -t hugetlbfs none /dev/hugepages
    mounted=true
fi

echo $((before + 4096)) >$pages
cat >"$folder/pool.toml" <<CONFIGURATION
socket = "$folder/pool.sock"
directory = "$folder/pool"
fill = { rate = "0", nice = 0 }
[[class]]
size = "4G"
slabs = 1
CONFIGURATION
export FIRSTLIGHT_POOL=$folder/pool.sock
"$pool" serve --config "$folder/pool.toml" 2>"$folder/pool.log" &
daemon=$!

until_clean() {
    for _ in {1..1200}; do
        if "$pool" status 2>/dev/null | grep -q ': 4 GiB clean'; then return; fi
        sleep 0.1
    done
    fail "expected 4 GiB clean after two minutes: $(cat "$folder/pool.log")"
}

# Waits until this holds of the guest, half a minute at most.
until_it() {
    for _ in {1..300}; do
        if "$@" 2>/dev/null; then return; fi
        kill -0 "$guest" 2>/dev/null || fail "expected the VMM to go on until $*: it has ended"
        sleep 0.1
    done
    fail "expected within 30 s: $*"
}

ask() {
    timeout 30 "$remote" --api-socket "$folder/vm.sock" "$@"
}

# All of the guest's memory is one shared mapping, or several, of the file of this process' lease.
check() {
    local info file inode mapped=0 range mode numbers name
    info=$(ask info)
    [[ $info == *'"state":"Running"'* ]] || fail "expected a guest that runs: $info"
    file=$(sed -n 's/.*"file":"\/proc\/self\/\(fd\/[0-9]*\)".*/\1/p' <<<"$info")
    inode=$(stat -L -c %i "/proc/$guest/$file")
    while read -r range mode _ _ numbers name; do
        if [[ $numbers == "$inode" && $mode == rw-s ]]; then
            mapped=$((mapped + 16#${range#*-} - 16#${range%-*}))
        fi
    done <"/proc/$guest/maps"
    [ $mapped = $bytes ] || fail "expected $bytes bytes of the slab in the guest, got $mapped: $name"
    "$pool" status --json | tr -d ' \n' | grep -q "\"pid\":$guest," || fail "expected a lease of $guest"
    echo "$1: Running, $mapped bytes of the pool's file"
}

end() {
    kill -9 "$guest"
    wait "$guest" 2>/dev/null || true
    guest=""
    rm -f "$folder/vm.sock" "$folder/vm.sock.lock"
}

of_guest=(--kernel "$kernel" --cpus "boot=1" --console off --serial null)
until_clean
"$pool" run --require -- "$vmm" --api-socket "$folder/vm.sock" "${of_guest[@]}" --memory size=4G &
guest=$!
runs() { ask info | grep -q Running; }
until_it runs
check "by its command line"
end

until_clean
cat >"$folder/in.json" <<BODY
{"cpus":{"boot_vcpus":1,"max_vcpus":1},"memory":{"size":$bytes},"payload":{"kernel":"$kernel"},
 "serial":{"mode":"Null"},"console":{"mode":"Off"}}
BODY
"$pool" run --require --vm-config "$folder/in.json" "$folder/out.json" -- "$vmm" --api-socket "$folder/vm.sock" &
guest=$!
until_it test -S "$folder/vm.sock"
ask create "$folder/out.json"
ask boot
check "by its API"
end

# Microseconds from the command to the event that the guest is booted.
mkfifo "$folder/events"
exec {events}<>"$folder/events"
start() {
    local begin line end_at
    begin=${EPOCHREALTIME/./}
    "$@" --event-monitor path="$folder/events" "${of_guest[@]}" 2>"$folder/said" &
    guest=$!
    while read -r -t 60 -u $events line; do
        if [[ $line == *booted* ]]; then break; fi
    done
    end_at=${EPOCHREALTIME/./}
    [[ $line == *booted* ]] || fail "expected an event that the guest is booted: $(cat "$folder/said")"
    echo $((end_at - begin)) >>"$folder/$name.us"
    end
    # What else it said is of no start to come.
    while read -r -t 0.05 -u $events line; do :; done
}
names=(pool plain prefault huge-prefault)
for _ in $(seq $rounds); do
    until_clean
    name=pool start "$pool" run --require -- "$vmm" --memory size=4G
    until_clean
    name=plain start "$vmm" --memory size=4G
    name=prefault start "$vmm" --memory size=4G,prefault=on
    name=huge-prefault start "$vmm" --memory size=4G,hugepages=on,prefault=on
done
"$vmm" --version | head -1
for name in "${names[@]}"; do
    sort -n "$folder/$name.us" | awk -v name="$name" -v middle=$(((rounds + 1) / 2)) '
        NR == 1 { least = $1 } NR == middle { median = $1 } { most = $1 }
        END { printf "%-14s %7.1f ms (%.1f to %.1f)\n", name, median / 1000, least / 1000, most / 1000 }'
done

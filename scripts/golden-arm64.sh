#!/usr/bin/env bash
# Boots one of Debian's arm64 kernels in many shapes under emulation and records what it says.
#
#   scripts/golden-arm64.sh KERNEL FOLDER [NAME...]   all shapes, or those named
#
# KERNEL is 6.1-arm64, 6.12-arm64 or 6.12-arm64-16k, as scripts/linux.sh names them.
# Leaves FOLDER/NAME.log, the serial log with what /init prints of zones and memory
# blocks at its end: how each folder of testdata/golden/arm64/ was made. Needs the packages
# qemu-system-arm, qemu-efi-aarch64, device-tree-compiler and cpio. A log that is
# there already stays. All together take a quarter of an hour, and the host 5 GiB for
# the descriptors of the largest. 512 GiB are left out: emulated, the kernel's check of what
# is writable had not ended after 20 minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "firstlight: $*" >&2
    exit 1
}

[ $# -gt 1 ] || fail "which kernel, and where to? scripts/golden-arm64.sh KERNEL FOLDER [NAME...]"
kernel=$1 out=$2
shift 2
only=" $* "
mkdir -p "$out"
linux=$(realpath -m "${CARGO_TARGET_DIR:-target}")/linux
scripts/linux.sh arm64 >&2
[ -r "$linux/$kernel/vmlinuz" ] || fail "no kernel '$kernel' in $linux"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A file system with one shell, whose script prints what the tests compare.
initrd() {
    mkdir -p "$work/root/bin" "$work/root/proc" "$work/root/sys" "$work/root/dev"
    cp "$linux/busybox-arm64/bin/busybox" "$work/root/bin/"
    cat >"$work/root/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
exec >/dev/console 2>&1
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
echo @@BEGIN
for file in /proc/version /proc/cmdline /proc/meminfo; do
    echo "@@FILE $file"
    $b cat $file
done
echo "@@ZONES node zone start_pfn spanned present managed"
$b awk '
    /^Node/ { node = $2; sub(",", "", node); zone = $4 }
    $1 == "spanned" || $1 == "present" || $1 == "managed" { at[$1] = $2 }
    $1 == "start_pfn:" && at["spanned"] > 0 {
        print "@Z", node, zone, $2, at["spanned"], at["present"], at["managed"]
    }' /proc/zoneinfo
memory=/sys/devices/system/memory
read -r size <$memory/block_size_bytes
echo "@@block_size_bytes $size"
# Blocks by number, those in a row that differ in nothing else in one line.
count=0 first= last= same=
for at in $(for path in $memory/memory[0-9]*; do echo "${path##*/memory}"; done | $b sort -n); do
    block=$memory/memory$at
    read -r state <$block/state
    read -r zones <$block/valid_zones || zones=none
    nodes=
    for node in $block/node[0-9]*; do nodes="$nodes${node##*/},"; done
    this="state=$state zones='$zones' nodes=$nodes"
    count=$((count + 1))
    if [ "$this" != "$same" ] || [ "$at" != $((last + 1)) ]; then
        [ -z "$same" ] || echo "@B $first-$last $same"
        first=$at same=$this
    fi
    last=$at
done
echo "@B $first-$last $same"
echo "@@memblocks count=$count"
echo @@END
$b poweroff -f
INIT
    chmod +x "$work/root/init"
    (cd "$work/root" && find . | cpio --quiet -o -H newc | gzip -9) >"$work/initrd.gz"
}

# Boots one shape: its name, words for the command line, then QEMU's.
boot() {
    local name=$1 words=$2 log=$out/$1.log
    shift 2
    [ "$only" = "  " ] || [[ $only == *" $name "* ]] || return 0
    [ ! -e "$log" ] || return 0
    echo "firstlight: $name" >&2
    # The first screens are the firmware's, with codes for a terminal.
    timeout 1800 qemu-system-aarch64 -display none -serial stdio -no-reboot -nic none \
        -kernel "$linux/$kernel/vmlinuz" -initrd "$work/initrd.gz" \
        -append "console=ttyAMA0 earlycon ignore_loglevel panic=-1 $words" "$@" \
        </dev/null 2>&1 | tr -d '\r' | sed -n '/Booting Linux on/,$p' >"$work/log" || true
    grep -q '^@@END' "$work/log" || fail "$name: did not come to its end: $(tail -n 3 "$work/log")"
    mv "$work/log" "$log"
}

# Nodes of these sizes, each with one CPU; without reserving what is not touched.
nodes() {
    local at=0 other size
    args=(-smp $#)
    for size in "$@"; do
        args+=(-object "memory-backend-ram,id=m$at,size=$size,reserve=off"
            -numa "node,nodeid=$at,memdev=m$at,cpus=$at")
        at=$((at + 1))
    done
    for ((other = 1; other < $#; other++)); do
        for ((at = 0; at < other; at++)); do
            args+=(-numa "dist,src=$at,dst=$other,val=$((20 + at + other))")
        done
    done
}

# One node of this size.
one() {
    args=(-smp 1 -m "$1" -machine memory-backend=m0 -object "memory-backend-ram,id=m0,size=$1,reserve=off")
}

# A tree of a machine, with lines of source added to its root.
tree() {
    local file=$work/$1
    shift
    local lines=$1
    shift
    qemu-system-aarch64 -display none "$@" -machine dumpdtb="$file.base" >/dev/null 2>&1
    dtc -q -I dtb -O dts "$file.base" >"$file.dts"
    echo "/ { $lines };" >>"$file.dts"
    dtc -q -I dts -O dtb -o "$file" "$file.dts"
}

initrd
# A processor of that time has no pages of 16 KiB; newer kernels check pointers, which is slow emulated.
case $kernel in
6.1-*) cpu=cortex-a57 newest=max ;;
*) cpu=max,pauth-impdef=on newest=$cpu ;;
esac
virt=(-M virt -cpu "$cpu")
max=(-M "virt,gic-version=3" -cpu "$newest")

one 512M && boot 512M_n1 "" "${virt[@]}" "${args[@]}"
one 700M && boot 700M_n1 "" "${virt[@]}" "${args[@]}"
one 2G && boot 2G_n1 "" "${virt[@]}" "${args[@]}"
one 3G && boot 3G_n1 "" "${virt[@]}" "${args[@]}"
one 4097M && boot 4097M_n1 "" "${virt[@]}" "${args[@]}"
one 8G && boot 8G_n1_gicv3 "" "${max[@]}" "${args[@]}"
one 64G && boot 64G_n1 "" "${max[@]}" "${args[@]}"
one 2G && boot 2G_n1_highmem_off "" -M virt,highmem=off -cpu "$cpu" "${args[@]}"
one 4G && boot 4G_n1_mem_1G "mem=1G" "${virt[@]}" "${args[@]}"
one 6G && boot 6G_n1_kernelcore_2G "kernelcore=2G" "${virt[@]}" "${args[@]}"
one 6G && boot 6G_n1_movablecore_1500M "movablecore=1500M" "${virt[@]}" "${args[@]}"

nodes 1G 1G && boot 2G_n2 "" "${virt[@]}" -m 2G "${args[@]}"
nodes 3G 5G && boot 8G_n2_3_5 "" "${max[@]}" -m 8G "${args[@]}"
nodes 1000M 3096M && boot 4G_n2_unaligned "" "${virt[@]}" -m 4G "${args[@]}"
nodes 2G 1G 3G && boot 6G_n3 "" "${virt[@]}" -m 6G "${args[@]}"
nodes 2G 2G 2G 2G && boot 8G_n4 "" "${max[@]}" -m 8G "${args[@]}"
nodes 16G 16G 16G 16G && boot 64G_n4 "" "${max[@]}" -m 64G "${args[@]}"
nodes 4G 4G && boot 8G_n2_kernelcore_half "kernelcore=50%" "${virt[@]}" -m 8G "${args[@]}"
nodes 2G 2G && boot 4G_n2_numa_off "numa=off" "${virt[@]}" -m 4G "${args[@]}"
nodes 2G 2G && boot 4G_n2_hashdist_off "hashdist=0" "${virt[@]}" -m 4G "${args[@]}"

# Memory without CPUs, and CPUs without memory.
args=(-m 4G -smp 2 -object memory-backend-ram,id=m0,size=1G -object memory-backend-ram,id=m1,size=3G
    -numa node,nodeid=0,memdev=m0,cpus=0-1 -numa node,nodeid=1,memdev=m1)
boot 4G_n2_cpus_on_0 "" "${virt[@]}" "${args[@]}"
args=(-m 4G -smp 3 -object memory-backend-ram,id=m0,size=3G -object memory-backend-ram,id=m1,size=1G
    -numa node,nodeid=0,memdev=m0,cpus=0 -numa node,nodeid=1,cpus=1 -numa node,nodeid=2,memdev=m1,cpus=2)
boot 4G_n3_memory_on_2 "" "${virt[@]}" "${args[@]}"

# Devices that reach less than 4 GiB, by the tree: 31 bits, 30 (which is below all memory), 33.
for bits in 30 31 33; do
    one 6G
    size=$(printf '0x%x 0x%x' $(((1 << bits) >> 32)) $(((1 << bits) & 0xffffffff)))
    bus="narrow { #address-cells = <2>; #size-cells = <2>; ranges; dma-ranges = <0 0 0 0 $size>; };"
    tree "dma$bits" "$bus" "${virt[@]}" "${args[@]}"
    boot "6G_n1_dma_$bits" "" "${virt[@]}" "${args[@]}" -dtb "$work/dma$bits"
done
# Holes: of two nodes and of one only what `usable-memory-range` leaves.
nodes 4G 4G
usable='chosen { linux,usable-memory-range = <0 0x40000000 0 0x7a345000 1 0x23456000 0 0x99abc000>; };'
tree holes2 "$usable" "${virt[@]}" -m 8G "${args[@]}"
boot 8G_n2_hole "" "${virt[@]}" -m 8G "${args[@]}" -dtb "$work/holes2"
one 4G
usable='chosen { linux,usable-memory-range = <0 0x40000000 0 0x40700000 0 0xa0123000 0 0x21000000>; };'
tree holes1 "$usable" "${virt[@]}" "${args[@]}"
boot 4G_n1_hole "" "${virt[@]}" "${args[@]}" -dtb "$work/holes1"
# A window that must not be mapped, in the middle of memory.
one 4G
secure='reserved-memory { #address-cells = <2>; #size-cells = <2>; ranges; secure@7f000000 { reg = <0 0x7f000000 0 0x2345000>; no-map; }; };'
tree secure "$secure" "${virt[@]}" "${args[@]}"
boot 4G_n1_no_map "" "${virt[@]}" "${args[@]}" -dtb "$work/secure"

# By EFI and ACPI.
efi=(-M virt,acpi=on,gic-version=3 -cpu "$newest" -bios /usr/share/qemu-efi-aarch64/QEMU_EFI.fd)
one 1G && boot 1G_n1_efi "" "${efi[@]}" "${args[@]}"
one 6G && boot 6G_n1_efi "" "${efi[@]}" "${args[@]}"
nodes 3G 5G && boot 8G_n2_efi "" "${efi[@]}" -m 8G "${args[@]}"

nodes 64G 64G 64G 64G && boot 256G_n4 "" "${max[@]}" -m 256G "${args[@]}"

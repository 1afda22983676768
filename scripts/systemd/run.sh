#!/usr/bin/env bash
# The package under a real systemd: a small Debian boots in an emulated machine, installs it,
# upgrades it and purges it: by the commands of docs/pool-operator.md, then step by step, with
# those of docs/pool-doors.md for OpenStack on the way (guest.sh says what is looked at).
#
#   scripts/systemd/run.sh [FOLDER]    FOLDER has the programs; built where left out
#
# Needs QEMU, mmdebstrap, cpio, binutils, and the kernel that scripts/linux.sh fetches. The
# file system without the package is kept in target/systemd; FRESH=1 makes another.
set -euo pipefail
cd "$(dirname "$0")/../.."
built=$(realpath -m "${CARGO_TARGET_DIR:-target}")
folder=$built/systemd
kernel=$built/linux/6.12/vmlinuz
mkdir -p "$folder"

# Root in the archive, not on this machine: the tree is unpacked by the user that runs this.
if [ "$0" -nt "$folder/root.tar" ] || [ -n "${FRESH:-}" ]; then
    echo "firstlight: a Debian with systemd, by mmdebstrap (a minute)" >&2
    mmdebstrap --quiet --variant=minbase --include=systemd-sysv,dbus,jq,apparmor,curl,qemu-system-x86,libvirt-daemon-system,libvirt-clients \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/zoneinfo/*' \
        bookworm "$folder/new.tar" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >&2
    mv "$folder/new.tar" "$folder/root.tar"
    touch "$folder/root.tar"
fi

packaging/debian/build.sh "$@" >/dev/null
package=$(ls -t target/debian/firstlight-pool_*.deb | head -1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root/packages"
tar -xf "$folder/root.tar" -C "$work/root" --exclude='./dev/*'
cp "$package" "$work/root/packages/old.deb"
cp "$(ls -t target/debian/firstlight_*.deb | head -1)" "$work/root/packages/lab.deb"
# What had the pool before it was a package of its own.
mkdir -p "$work/before/DEBIAN" "$work/before/usr/bin"
printf '#!/bin/sh\n' >"$work/before/usr/bin/firstlight-pool"
printf '%s\n' 'Package: firstlight' 'Version: 0.1.0' 'Architecture: all' 'Maintainer: none' \
    'Description: the package of before' >"$work/before/DEBIAN/control"
dpkg-deb --root-owner-group -b "$work/before" "$work/root/packages/before.deb" >/dev/null
# The same under a later version is what it is upgraded to.
dpkg-deb -R "$package" "$work/newer"
sed -i 's/^Version: .*/&+later/' "$work/newer/DEBIAN/control"
dpkg-deb --root-owner-group -b "$work/newer" "$work/root/packages/new.deb" >/dev/null

# The commands of two pages, a file for each block; where the operator's are run, both packages lie.
for page in operator doors; do
    mkdir -p "$work/root/page/$page"
    awk -v into="$work/root/page/$page" '/^```sh$/ { file = into "/" ++blocks; next } /^```$/ { file = "" }
        file { print >file }' "docs/pool-$page.md"
done
mkdir "$work/root/page/operator/newer"
cp "$package" "$work/root/page/operator/"
cp "$work/root/packages/new.deb" "$work/root/page/operator/newer/$(basename "$package")"
# On a terminal apt asks whether it may.
echo 'APT::Get::Assume-Yes "true";' >"$work/root/etc/apt/apt.conf.d/yes"

install -m755 scripts/systemd/guest.sh "$work/root/usr/local/sbin/guest"
cat >"$work/root/etc/systemd/system/guest.service" <<UNIT
[Unit]
Description=The test
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/guest
ExecStopPost=/bin/systemctl --no-block poweroff
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
UNIT
mkdir -p "$work/root/etc/systemd/system/default.target.wants"
ln -s /etc/systemd/system/guest.service "$work/root/etc/systemd/system/default.target.wants/"
# Nothing asks for a password, and no console but the one that is read.
ln -sf /dev/null "$work/root/etc/systemd/system/serial-getty@.service"
ln -sf /dev/null "$work/root/etc/systemd/system/getty@.service"
ln -sf /lib/systemd/systemd "$work/root/init"
(cd "$work/root" && find . | cpio --quiet -o -H newc) | gzip -1 >"$work/initrd"

echo "firstlight: a Debian with systemd boots" >&2
# What an earlier run left there says nothing of this one.
rm -f "$folder/console"
ended=0
# Two nodes with a CPU each; Debian's kernel measures pressure only on request. On a busy host it finds its clock
# unstable and patches itself, where QEMU 7.2 was seen to run an instruction that was half patched.
timeout 2400 qemu-system-x86_64 -machine q35 -accel tcg -cpu max -smp 2 -m 6G -nodefaults -display none \
    -object memory-backend-ram,id=a,size=3G -numa node,nodeid=0,cpus=0,memdev=a \
    -object memory-backend-ram,id=b,size=3G -numa node,nodeid=1,cpus=1,memdev=b \
    -no-reboot -serial file:"$folder/console" -kernel "$kernel" -initrd "$work/initrd" \
    -append "console=ttyS0 quiet systemd.log_level=warning systemd.show_status=0 psi=1 tsc=reliable panic=-1" || ended=$?
if [ -e "$folder/console" ]; then
    tr -d "\r" <"$folder/console" | grep -a "^\(ok\|FAILED\|  \) " || true
fi
if [ "$ended" != 0 ]; then
    echo "firstlight: QEMU ended with $ended (124: after 2400 s); $folder/console has what was printed" >&2
    exit 1
fi
if ! grep -aq '^all is well' "$folder/console"; then
    echo "firstlight: failed; $folder/console has everything" >&2
    exit 1
fi

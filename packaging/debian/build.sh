#!/usr/bin/env bash
# Makes a Debian package of the command and the pool's service:
#
#   packaging/debian/build.sh [BINARY]     writes target/debian/firstlight_VERSION_ARCH.deb
#
# Without BINARY it builds one first. Needs dpkg-deb and binutils.
set -euo pipefail
cd "$(dirname "$0")/../.."

binary=${1:-}
if [ -z "$binary" ]; then
    cargo build --release --quiet -p firstlight-cli
    binary=${CARGO_TARGET_DIR:-target}/release/firstlight
fi
version=$("$binary" --version | awk '{print $2}')
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

install -Dm755 "$binary" "$root/usr/bin/firstlight"
strip --strip-unneeded "$root/usr/bin/firstlight"
install -Dm644 pool/example.toml "$root/etc/firstlight/pool.toml"
install -Dm644 -t "$root/lib/systemd/system" packaging/systemd/firstlight-pool{,-export}.service packaging/systemd/firstlight-pool.socket
install -Dm644 packaging/systemd/firstlight-pool.sysusers "$root/usr/lib/sysusers.d/firstlight-pool.conf"
install -Dm644 -t "$root/usr/share/doc/firstlight" docs/pool.md docs/pool-protocol.md docs/pool-safety.md CHANGELOG.md
install -Dm644 LICENSE-MIT "$root/usr/share/doc/firstlight/copyright"

# The least C library whose symbols the program asks for.
libc=$(objdump -T "$root/usr/bin/firstlight" | grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -1)
mkdir -p "$root/DEBIAN"
echo /etc/firstlight/pool.toml >"$root/DEBIAN/conffiles"
install -m755 -t "$root/DEBIAN" packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm
cat >"$root/DEBIAN/control" <<CONTROL
Package: firstlight
Version: $version
Architecture: $architecture
Maintainer: The Firstlight authors <firstlight@localhost>
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1
Suggests: qemu-system-x86
Section: admin
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Description: large memory usable the moment a machine starts
 Brings up a machine's memory map and shows how fast, boots machines to measure
 them, and keeps memory zeroed beforehand for virtual machines, which then start
 in milliseconds (firstlight pool). The service is not enabled on installation:
 huge pages have to be set aside first.
CONTROL

mkdir -p target/debian
package=target/debian/firstlight_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"

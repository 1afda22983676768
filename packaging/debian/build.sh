#!/usr/bin/env bash
# Makes two Debian packages:
#
#   firstlight-pool    the pool: daemon, units, configuration, what its users run
#   firstlight         the command with the laboratory and the benches, and its images
#
#   packaging/debian/build.sh [FOLDER]     writes target/debian/*_VERSION_ARCH.deb
#
# FOLDER has the programs `firstlight` and `firstlight-pool`; without one they are built
# first, and so are the images. Needs dpkg-deb and binutils.
set -euo pipefail
cd "$(dirname "$0")/../.."

built=${CARGO_TARGET_DIR:-target}
programs=${1:-}
if [ -z "$programs" ]; then
    cargo build --release --quiet -p firstlight-cli -p firstlight-pool-cli
    programs=$built/release
fi
# Bare-metal programs: QEMU or the loader starts them, nothing runs them here.
declare -A images=(
    [firstlight-image]=x86_64-unknown-none
    [firstlight-image-aarch64]=aarch64-unknown-none
    [firstlight-image-riscv64]=riscv64gc-unknown-none-elf
)
declare -A loaders=(
    [firstlight-image-uefi.efi]=x86_64-unknown-uefi
    [firstlight-image-uefi-aarch64.efi]=aarch64-unknown-uefi
)
for target in "${images[@]}"; do
    scripts/setup.sh target "$target"
    cargo build --release --quiet -p firstlight-image --target "$target"
done
for target in "${loaders[@]}"; do
    scripts/setup.sh target "$target"
    cargo build --release --quiet -p firstlight-image-uefi --target "$target"
done
# The pool was in `firstlight` up to the packages without a revision.
revision=2
version=$("$programs/firstlight-pool" --version | awk '{print $2}')-$revision
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p target/debian

# manual PROGRAM FOLDER: its manual pages and completions, written by itself.
manual() {
    local into=$work/manual-$1 share=$2/usr/share
    "$programs/$1" manual --into "$into"
    gzip -9n "$into"/man1/*
    install -Dm644 -t "$share/man/man1" "$into"/man1/*
    install -Dm644 "$into/bash/$1.bash" "$share/bash-completion/completions/$1"
    install -Dm644 -t "$share/zsh/vendor-completions" "$into/zsh/_$1"
    install -Dm644 -t "$share/fish/vendor_completions.d" "$into/fish/$1.fish"
}

# A program into its package.
program() {
    install -Dm755 "$programs/$1" "$2/usr/bin/$1"
    strip --strip-unneeded "$2/usr/bin/$1"
}

# package NAME SECTION-OF-CONTROL: the package of what lies in $work/NAME.
package() {
    local name=$1 root=$work/$1 libc
    # The least C library whose symbols the programs ask for; static ones ask for none.
    libc=$(objdump -T "$root"/usr/bin/* 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -1) || true
    mkdir -p "$root/DEBIAN"
    cat >"$root/DEBIAN/control" - <<CONTROL
Package: $name
Version: $version
Architecture: $architecture
Maintainer: The Firstlight authors <firstlight@localhost>
${libc:+Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1
}Section: admin
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
$2
CONTROL
    dpkg-deb --root-owner-group --build "$root" "target/debian/${name}_${version}_$architecture.deb" >/dev/null
    echo "target/debian/${name}_${version}_$architecture.deb"
}

pool=$work/firstlight-pool
program firstlight-pool "$pool"
# The same file, so that AppArmor sees the name it was started with.
ln "$pool/usr/bin/firstlight-pool" "$pool/usr/bin/firstlight-qemu-system-x86_64"
# The package has the group of the exporter's unit, so that both meet as they are installed.
observers='observers = "firstlight-observers"'
grep -q "^# $observers\$" pool/example.toml
# One command name in all of it: `firstlight pool` is what a checkout has.
mkdir "$work/text"
cp docs/pool*.md CHANGELOG.md pool/client.toml "$work/text"
sed "s/^# $observers\$/$observers/" pool/example.toml >"$work/text/pool.toml"
sed -i -z -E 's/firstlight([ \n])pool ([a-z])/firstlight-pool\1\2/g; s/firstlight bench([ \n])pool/firstlight-pool\1bench/g' "$work"/text/*
install -Dm644 -t "$pool/etc/firstlight" "$work"/text/{pool,client}.toml
install -Dm644 packaging/systemd/firstlight-pool.sysctl "$pool/etc/sysctl.d/firstlight-pool.conf"
install -Dm644 packaging/apparmor/firstlight-pool "$pool/etc/apparmor.d/abstractions/firstlight-pool"
install -Dm644 -t "$pool/lib/systemd/system" packaging/systemd/firstlight-pool{,-export}.service packaging/systemd/firstlight-pool.socket
install -Dm644 packaging/systemd/firstlight-pool.sysusers "$pool/usr/lib/sysusers.d/firstlight-pool.conf"
install -Dm644 -t "$pool/usr/share/doc/firstlight-pool" "$work"/text/*.md
install -Dm644 LICENSE-MIT "$pool/usr/share/doc/firstlight-pool/copyright"
install -Dm644 -t "$pool/usr/share/firstlight-pool" packaging/prometheus/firstlight-pool.{rules.yml,grafana.json}
manual firstlight-pool "$pool"
gzip -9n "$work"/manual-firstlight-pool/man5/*
install -Dm644 -t "$pool/usr/share/man/man5" "$work"/manual-firstlight-pool/man5/*
mkdir -p "$pool/DEBIAN"
printf '%s\n' /etc/firstlight/{pool,client}.toml /etc/sysctl.d/firstlight-pool.conf /etc/apparmor.d/abstractions/firstlight-pool >"$pool/DEBIAN/conffiles"
install -m644 packaging/debian/firstlight-pool/triggers "$pool/DEBIAN/triggers"
install -m755 -t "$pool/DEBIAN" packaging/debian/firstlight-pool/{postinst,prerm,postrm}
package firstlight-pool "Suggests: qemu-system-x86
Breaks: firstlight (<< 0.1.0-2)
Replaces: firstlight (<< 0.1.0-2)
Description: memory zeroed beforehand for virtual machines
 A daemon keeps memory zeroed and allocates it to unmodified QEMU, which then starts
 in milliseconds. The service is not enabled on installation: huge pages have to be
 set aside first."

lab=$work/firstlight
program firstlight "$lab"
manual firstlight "$lab"
# `firstlight pool` has the pages of `firstlight-pool`, which are in that package.
rm "$lab"/usr/share/man/man1/firstlight-pool*
for name in "${!images[@]}"; do
    install -Dm644 "$built/${images[$name]}/release/firstlight-image" "$lab/usr/lib/firstlight/$name"
done
# The binutils of this processor read no other's files.
strip --strip-debug "$lab/usr/lib/firstlight/firstlight-image"
for name in "${!loaders[@]}"; do
    install -Dm644 "$built/${loaders[$name]}/release/firstlight-image-uefi.efi" "$lab/usr/lib/firstlight/$name"
done
install -Dm644 -t "$lab/usr/share/firstlight/schemas" schemas/*
install -Dm644 -t "$lab/usr/share/doc/firstlight" README.md docs/{schemas,up,boot,image,stick,lab,measurements}.md docs/picture.svg CHANGELOG.md
install -Dm644 LICENSE-MIT "$lab/usr/share/doc/firstlight/copyright"
package firstlight "Suggests: firstlight-pool, qemu-system-x86, qemu-system-arm, qemu-system-misc, ovmf
Description: large memory usable the moment a machine starts
 Brings up a machine's memory map and shows how fast, boots machines to measure
 them (its images for x86-64, aarch64 and riscv64 are included), reads kernel logs, and compares."

#!/usr/bin/env bash
# Makes the package for Fedora and openSUSE of the files of Debian's, with a SELinux module, and looks at it.
#
#   packaging/rpm/build.sh [DEB]     writes target/rpm/firstlight-pool-VERSION.ARCH.rpm
#
# DEB is the newest firstlight-pool of target/debian where left out. Needs dpkg-deb, rpm, checkpolicy and semodule-utils.
set -euo pipefail
cd "$(dirname "$0")/../.."

deb=${1:-$(ls -t target/debian/firstlight-pool_*.deb | head -1)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
files=$work/files
dpkg-deb -x "$deb" "$files"
field() { dpkg-deb -f "$deb" "$1"; }
version=$(field Version)

# Where these have other places.
rm -r "$files/etc/apparmor.d"
mkdir -p "$files"/usr/{lib/systemd,share/zsh,share/licenses/firstlight-pool,share/selinux/packages}
mv "$files/lib/systemd/system" "$files/usr/lib/systemd/"
rm -r "${files:?}/lib"
mv "$files/usr/share/zsh/vendor-completions" "$files/usr/share/zsh/site-functions"
rm "$files/usr/share/doc/firstlight-pool/copyright"
cp LICENSE-MIT LICENSE-APACHE "$files/usr/share/licenses/firstlight-pool/"
# SELinux labels files, not names: the emulator of libvirt's domains is one of its own.
cp --remove-destination "$files/usr/bin/firstlight-pool" "$files/usr/bin/firstlight-qemu-system-x86_64"
checkmodule -M -m -o "$work/firstlight_pool.mod" packaging/selinux/firstlight_pool.te
semodule_package -o "$files/usr/share/selinux/packages/firstlight_pool.pp" -m "$work/firstlight_pool.mod" \
    -f packaging/selinux/firstlight_pool.fc

case $(field Architecture) in
amd64) architecture=x86_64 ;;
arm64) architecture=aarch64 ;;
esac
mkdir -p target/rpm
rpmbuild -bb --quiet --target "$architecture" --define "_topdir $work/rpm" --define "_rpmdir $PWD/target/rpm" \
    --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
    --define "pool_files $files" --define "pool_version ${version%-*}" --define "pool_release ${version#*-}" \
    packaging/rpm/firstlight-pool.spec >/dev/null
rpm=$PWD/target/rpm/firstlight-pool-$version.$architecture.rpm

# It is whole, has each file that was laid out, and is installed and removed without a trace.
rpm -K "$rpm" >/dev/null
diff <(cd "$files" && find . -type f | sed 's/^\.//' | sort) \
    <(rpm -qlp --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$rpm" | sed -n 's/^-[^ ]* //p' | sort -u)
for script in POSTIN PREUN POSTUN; do
    rpm -qp --qf "%{$script}" "$rpm" >"$work/$script"
    sh -n "$work/$script"
done
root=$work/root
mkdir "$root"
# Debian's rpm says each time that packages are dpkg's here.
into() { rpm --root "$root" "$@" 2> >(grep -v '^rpm: ' >&2); }
into --initdb
into -i --nodeps --noscripts --notriggers "$rpm"
if { diff -r "$files" "$root" || true; } | grep -v "^Only in ${root}[:/]" >&2; then
    echo "build.sh: what is installed differs" >&2
    exit 1
fi
"$root/usr/bin/firstlight-pool" --version >/dev/null
into -V --nodeps --noscripts firstlight-pool
into -e --noscripts --notriggers firstlight-pool
left=$(find "$root/etc" "$root/usr" -type f 2>/dev/null || true)
[ -z "$left" ] || { echo "build.sh: left after removal: $left" >&2; exit 1; }
echo "target/rpm/${rpm##*/}"

#!/usr/bin/env bash
# Fetches Debian's cloud kernels to compare with, and unpacks them; installs nothing.
#
#   scripts/linux.sh          6.1 and 6.12 under target/linux/
#   scripts/linux.sh arm64    6.1 and 6.12 for arm64, 6.12 with pages of 16 KiB too, and a shell that needs no library
#
# Leaves target/linux/6.1/vmlinuz and target/linux/6.12/vmlinuz, links that stay
# the same when a kernel gets newer, or target/linux/6.1-arm64/vmlinuz and
# target/linux/busybox-arm64/bin/busybox. apt works in a folder of its own there, so it
# needs no root and the system's own sources stay as they are. What is there
# already is not fetched again; FRESH=1 looks for newer ones.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "firstlight: $*" >&2
    exit 1
}

folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/linux
keys=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
security=${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security}

architecture=${1:-amd64}
# Folder, its version, and where its meta package may be, the newest first.
case $architecture in
amd64)
    apt=$folder/apt
    kernels=(
        "6.1 6.1 bookworm:linux-image-cloud-amd64"
        "6.12 6.12 bookworm:linux-image-6.12-cloud-amd64 trixie:linux-image-cloud-amd64 backports:linux-image-cloud-amd64"
    )
    ;;
arm64)
    apt=$folder/apt-arm64
    kernels=(
        "6.1-arm64 6.1 bookworm:linux-image-cloud-arm64"
        "6.12-arm64 6.12 backports:linux-image-cloud-arm64 trixie:linux-image-cloud-arm64"
        "6.12-arm64-16k 6.12 backports:linux-image-arm64-16k trixie:linux-image-arm64-16k"
    )
    ;;
*) fail "no kernels for '$architecture': amd64 or arm64 expected" ;;
esac

# On a terminal apt shows how far a download is.
quiet=(-qq)
[ ! -t 2 ] || quiet=()

# apt with nothing of the system's but its proxy settings.
ours() {
    local suite=$1 program=$2
    shift 2
    "$program" "${quiet[@]}" \
        -o Dir::Etc::SourceList="$apt/$suite.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
        -o Dir::State="$apt/$suite" -o Dir::State::Status=/dev/null \
        -o Dir::Cache="$apt/$suite/cache" \
        -o APT::Architecture="$architecture" -o APT::Architectures::="$architecture" \
        -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none "$@"
}

# Asks a suite what it has, once.
look() {
    local suite=$1
    [ ! -e "$apt/$suite.asked" ] || return 0
    mkdir -p "$apt/$suite/lists/partial" "$apt/$suite/cache/archives/partial"
    local source="deb [signed-by=$keys]"
    case $suite in
    backports) echo "$source $mirror bookworm-backports main" ;;
    *)
        echo "$source $mirror $suite main"
        echo "$source $security $suite-security main"
        ;;
    esac >"$apt/$suite.list"
    echo "firstlight: asking $mirror for $suite" >&2
    ours "$suite" apt-get update >&2 || return 1
    # apt calls it a warning if nobody answered.
    compgen -G "$apt/$suite/lists/*Packages*" >/dev/null || return 1
    touch "$apt/$suite.asked"
}

# The image that a suite's meta package stands for, if it is of this version.
image() {
    local suite=$1 meta=$2 version=$3
    ours "$suite" apt-cache depends "$meta" 2>/dev/null |
        sed -n "s/^ *Depends: \(linux-image-${version//./\\.}\.[^ ]*\)$/\1/p" | head -n 1
}

# Fetches a package of a suite, unless it is there.
download() {
    local suite=$1 package=$2 packages=$folder/packages
    mkdir -p "$packages"
    compgen -G "$packages/${package}_*_$architecture.deb" >/dev/null && return
    echo "firstlight: fetching $package" >&2
    (cd "$packages" && ours "$suite" apt-get download "$package" >&2)
}

# The file of a package that was fetched.
fetched() {
    compgen -G "$folder/packages/$1_*_$architecture.deb" | tail -n 1
}

# Finds, fetches and unpacks one kernel.
kernel() {
    local name=$1 version=$2 place package
    shift 2
    for place in "$@"; do
        look "${place%%:*}" || continue
        package=$(image "${place%%:*}" "${place#*:}" "$version")
        [ -n "$package" ] || continue
        download "${place%%:*}" "$package" || continue
        unpack "$name" "$(fetched "$package")"
        return
    done
    return 1
}

# Unpacks a package beside the old one and then takes its place.
unpack() {
    local name=$1 package=$2 image
    rm -rf "$folder/$name.new"
    dpkg -x "$package" "$folder/$name.new"
    image=$(cd "$folder/$name.new" && compgen -G "boot/vmlinuz-*" | head -n 1)
    [ -n "$image" ] || fail "$package has no boot/vmlinuz-*"
    ln -s "$image" "$folder/$name.new/vmlinuz"
    rm -rf "${folder:?}/$name"
    mv "$folder/$name.new" "$folder/$name"
    echo "$folder/$name/vmlinuz: $(basename "$image")"
}

missing=()
for line in "${kernels[@]}"; do
    [ -z "${FRESH:-}" ] && [ -r "$folder/${line%% *}/vmlinuz" ] || missing+=("$line")
done
[ ${#missing[@]} -gt 0 ] || exit 0

for program in apt-get apt-cache dpkg; do
    command -v "$program" >/dev/null ||
        fail "$program is missing: kernels to compare with are Debian's packages, fetched with Debian's tools;" \
            "any other goes to firstlight by --kernel FILE"
done
[ -r "$keys" ] || fail "$keys is missing (Debian, Ubuntu: the package debian-archive-keyring): without it nobody knows whether a kernel is Debian's"
[ -z "${FRESH:-}" ] || rm -f "$apt"/*.asked

failed=0
if [ "$architecture" = arm64 ]; then
    shell=$folder/busybox-arm64
    look bookworm && download bookworm busybox-static && dpkg -x "$(fetched busybox-static)" "$shell" || failed=1
fi
for line in "${missing[@]}"; do
    # Words on purpose: folder, version, places.
    # shellcheck disable=SC2086
    kernel $line || {
        echo "firstlight: no Linux ${line%% *} to be had: $mirror does not answer, or has none" \
            "(DEBIAN_MIRROR names another; a kernel of your own goes to firstlight by --kernel FILE)" >&2
        failed=1
    }
done
exit $failed

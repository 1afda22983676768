#!/usr/bin/env bash
# Makes sure that what a build needs is there, and installs what is missing.
#
#   scripts/setup.sh                     toolchain, linker
#   scripts/setup.sh target TRIPLE       and the standard library for TRIPLE
#   scripts/setup.sh toolchain NAME [COMPONENT...]   and another toolchain
#   scripts/setup.sh tool CRATE [BINARY] and a cargo-installed tool
#   scripts/setup.sh debian PACKAGE...   and Debian packages
#   scripts/setup.sh qemu [PROCESSOR...] and QEMU, Debian's or whichever there is: for x86_64, or for these
#   scripts/setup.sh ovmf [PROCESSOR...] and UEFI for QEMU's machines, likewise
#   scripts/setup.sh browser             and a browser, likewise
#
# Says nothing and changes nothing when all is there. Debian packages are
# installed by apt when root; otherwise one line says what to install.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

# One after the other: apt and rustup refuse to run beside themselves, and steps of CI run beside each other. What is
# installed does not inherit the lock: it may be a service that stays.
if [ -z "${FIRSTLIGHT_SETUP:-}" ] && command -v flock >/dev/null; then
    locks=${XDG_CACHE_HOME:-$HOME/.cache}/firstlight
    mkdir -p "$locks"
    FIRSTLIGHT_SETUP=1 exec flock --close --timeout 1800 "$locks/setup" scripts/setup.sh "$@"
fi

fail() {
    echo "firstlight: $*" >&2
    exit 1
}

debian() {
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "firstlight: installing $* (apt-get)" >&2
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq >&2 || true
        apt-get install -qq -y --no-install-recommends "$@" >&2
    else
        fail "please install $* first (Debian, Ubuntu: sudo apt-get install $*)"
    fi
}

linker() {
    command -v cc >/dev/null || debian gcc libc6-dev
}

rust() {
    if cargo --version >/dev/null 2>&1; then
        return
    fi
    local channel
    channel=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
    if ! command -v rustup >/dev/null; then
        command -v curl >/dev/null || debian curl ca-certificates
        echo "firstlight: installing rustup into ${CARGO_HOME:-$HOME/.cargo}" >&2
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
            sh -s -- -y --quiet --no-modify-path --profile minimal --default-toolchain none >&2
    fi
    echo "firstlight: installing Rust $channel (rustup)" >&2
    rustup toolchain install "$channel" --profile minimal --component rustfmt --component clippy >&2
}

has_rustup() {
    command -v rustup >/dev/null || fail "rustup is needed to install $1: https://rustup.rs"
}

linker
rust
case "${1:-}" in
"") ;;
target)
    has_rustup "$2"
    rustup target list --installed | grep -qx "$2" || rustup target add "$2" >&2
    ;;
toolchain)
    name=$2
    shift 2
    has_rustup "$name"
    installed=$(rustup component list --installed --toolchain "$name" 2>/dev/null || true)
    missing=""
    components=()
    for component in cargo "$@"; do
        grep -q "^$component" <<<"$installed" || missing=1
        components+=(--component "$component")
    done
    if [ -n "$missing" ]; then
        echo "firstlight: installing Rust $name $* (rustup)" >&2
        rustup toolchain install "$name" --profile minimal "${components[@]}" >&2
    fi
    ;;
tool)
    # Not optimised: it is built more often than it takes time.
    command -v "${3:-$2}" >/dev/null ||
        CARGO_PROFILE_DEV_DEBUG=0 cargo install --debug --locked --quiet "$2" >&2
    ;;
qemu)
    shift
    missing=()
    for processor in "${@:-x86_64}"; do
        case "$processor" in
        x86_64) package=qemu-system-x86 ;;
        aarch64) package=qemu-system-arm ;;
        riscv64) package=qemu-system-misc ;;
        *) fail "scripts/setup.sh: unknown processor '$processor'" ;;
        esac
        command -v "qemu-system-$processor" >/dev/null || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] || debian "${missing[@]}"
    ;;
ovmf)
    shift
    for processor in "${@:-x86_64}"; do
        case "$processor" in
        x86_64)
            [ -e /usr/share/OVMF/OVMF_CODE_4M.fd ] || [ -e /usr/share/OVMF/OVMF_CODE.fd ] ||
                [ -d /usr/share/edk2 ] || debian ovmf
            ;;
        aarch64) [ -e /usr/share/AAVMF/AAVMF_CODE.fd ] || [ -d /usr/share/edk2/aarch64 ] || debian qemu-efi-aarch64 ;;
        *) fail "scripts/setup.sh: no UEFI for '$processor'" ;;
        esac
    done
    ;;
browser)
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
        command -v google-chrome >/dev/null || debian chromium fonts-dejavu-core
    ;;
debian)
    shift
    missing=()
    for package in "$@"; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] || debian "${missing[@]}"
    ;;
*) fail "scripts/setup.sh: unknown request '$1'" ;;
esac

#!/usr/bin/env bash
# Prints the path of the prover, Verus; builds it from its sources the first time, in a quarter of an hour.
#
#   FIRSTLIGHT_VERUS=FILE            is the program `verus`, which is used as it is
#   FIRSTLIGHT_VERUS_SOURCES=FOLDER  has what is fetched otherwise: git repositories `verus` and `getopts`, and the
#                                    program `z3`
#
# What is built is kept for the next clone, in the folder `firstlight/verus` of the user's cache.
set -euo pipefail

# What verified.txt names: another version may prove less, or want other hints.
commit=eb66c53654961660265dceaf9183e081b07c6a72
z3=4.16.0

fail() {
    echo "firstlight: $*" >&2
    exit 1
}

if [ -n "${FIRSTLIGHT_VERUS:-}" ]; then
    [ -x "$FIRSTLIGHT_VERUS" ] || fail "FIRSTLIGHT_VERUS=$FIRSTLIGHT_VERUS is no program"
    echo "$FIRSTLIGHT_VERUS"
    exit
fi

kept=${XDG_CACHE_HOME:-$HOME/.cache}/firstlight/verus/${commit:0:9}
if [ -x "$kept/verus" ]; then
    echo "$kept/verus"
    exit
fi

missing() {
    fail "no prover: $1
  Verus is built from its repository https://github.com/verus-lang/verus (commit $commit)
  and https://github.com/utaal/getopts (branch parse-partial), and runs Z3 $z3
  (bin/z3 of https://github.com/Z3Prover/z3/releases, or of the Python package z3-solver).
  Without a network: clone both (git clone --mirror) as FOLDER/verus and FOLDER/getopts, put z3 there as FOLDER/z3, and say
      make verify FIRSTLIGHT_VERUS_SOURCES=FOLDER
  A prover that is there already: make verify FIRSTLIGHT_VERUS=.../verus"
}

command -v rustup >/dev/null || missing "rustup, which installs the compiler that Verus is part of, is not installed"
work=$(mktemp -d "${TMPDIR:-/tmp}/verus.XXXXXX")
trap 'rm -rf "$work"' EXIT
sources=${FIRSTLIGHT_VERUS_SOURCES:-}
export CARGO_NET_GIT_FETCH_WITH_CLI=true CARGO_TARGET_DIR=
unset CARGO_TARGET_DIR RUSTUP_TOOLCHAIN RUSTFLAGS
if [ -n "$sources" ]; then
    sources=$(realpath "$sources")
    git clone --quiet "$sources/verus" "$work/verus" || missing "$sources/verus is no repository"
    # Verus names getopts by its address.
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.$sources/getopts.insteadOf"
    export GIT_CONFIG_VALUE_0=https://github.com/utaal/getopts.git
    cp "$sources/z3" "$work/z3" || missing "$sources/z3 is not there"
else
    echo "firstlight: fetching Verus" >&2
    git clone --quiet https://github.com/verus-lang/verus "$work/verus" || missing "its repository can't be cloned"
    command -v pip >/dev/null || missing "pip, which brings Z3, is not installed"
    pip download --quiet --no-deps --dest "$work" "z3-solver==$z3.0" >&2 || missing "Z3 can't be downloaded"
    python3 - "$work" <<'END'
import glob, shutil, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/z3_solver-*.whl")[0])
name = next(name for name in wheel.namelist() if name.endswith("/bin/z3"))
with wheel.open(name) as program, open(sys.argv[1] + "/z3", "wb") as out:
    shutil.copyfileobj(program, out)
END
fi
chmod +x "$work/z3"
"$work/z3" --version | grep -q "version $z3" || missing "z3 is $("$work/z3" --version), not $z3"
export VERUS_Z3_PATH=$work/z3
cd "$work/verus"
git -c advice.detachedHead=false checkout --quiet "$commit" || missing "the repository of Verus does not have the commit"
toolchain=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
echo "firstlight: building Verus ${commit:0:9} with Rust $toolchain (a quarter of an hour)" >&2
rustup toolchain install "$toolchain" --profile minimal -c rustc-dev -c llvm-tools -c rustfmt >&2 ||
    missing "Rust $toolchain can't be installed"
# A branch that was rebased: its commit of today.
if [ -n "$sources" ]; then
    now=$(git -C "$sources/getopts" rev-parse parse-partial)
    sed -i "s/\(getopts.git?branch=parse-partial#\)[0-9a-f]*/\1$now/" source/Cargo.lock
fi
(cd tools/vargo && cargo build --quiet --release) >&2 || missing "its build tool does not build"
(cd source && PATH=$work/verus/tools/vargo/target/release:$PATH vargo build --release) >&2 || missing "it does not build"
mkdir -p "$(dirname "$kept")"
rm -rf "$kept.new"
mkdir "$kept.new"
cd source/target-verus/release
find . -maxdepth 1 -type f -exec cp {} "$kept.new" \;
cp "$work/z3" "$kept.new/z3"
mv "$kept.new" "$kept"
echo "$kept/verus"

#!/usr/bin/env bash
# Which steps of continuous integration wake when a crate changes: in a copy of the last commit, a line is added to a file
# of each crate in turn, and the steps whose inputs have another hash then are compared with what is written here.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

expected="cli: slurm
bench: slurm counts
figures: slurm counts msrv fuzz bare features
image: slurm msrv fuzz bare features
image-uefi: fuzz bare
wire: slurm msrv fuzz bare features
host: slurm counts fuzz
lab: slurm fuzz
pool: slurm fuzz
pool-cli: slurm
workloads: slurm counts msrv fuzz bare features
engine/frames: slurm counts ports msrv loom miri semver features bare fuzz
engine: slurm counts ports msrv loom miri semver features bare fuzz
fuzz: fuzz
ports/c: ports
ports/hello: ports
ports/small: ports
packaging: rules
docs:"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git clone --quiet --shared --no-tags . "$copy"
# What is looked at is the script as it is, not as it was committed.
cp scripts/steps.sh "$copy/scripts/steps.sh"
cp .ci/steps "$copy/.ci/steps"
cp Makefile "$copy/Makefile"
cd "$copy"
commit() { git -c user.name=steps -c user.email=steps@localhost commit --quiet --all --allow-empty --message "$1"; }
commit base
base=$(git rev-parse HEAD)
commits=()
while IFS=: read -r folder _; do
    echo >>"$(git ls-files "$folder" | grep -E '\.(rs|md|yml|sh|service)$' | head -n 1)"
    commit "$folder"
    commits+=("$(git rev-parse HEAD)")
    git reset --quiet --hard "$base"
done <<<"$expected"
all=$(scripts/steps.sh --inputs .ci/steps "$base" "${commits[@]}")
of() { sed -n "s/^$1 //p" <<<"$all" | sort; }
wrong=0
at=0
while IFS=: read -r folder steps; do
    woken=$(comm -13 <(of "$base") <(of "${commits[at]}") | cut -d ' ' -f 1 | sort | xargs)
    at=$((at + 1))
    if [ "$woken" != "$(xargs -n 1 <<<"$steps" | sort | xargs)" ]; then
        echo "a change of $folder wakes '$woken', not '${steps# }'" >&2
        wrong=1
    fi
done <<<"$expected"

# Where cargo can't say what a step needs, no step counts as passed.
mkdir "$copy/broken"
printf '#!/bin/sh\nexit 101\n' >"$copy/broken/cargo"
chmod +x "$copy/broken/cargo"
if PATH=$copy/broken:$PATH scripts/steps.sh --inputs .ci/steps >/dev/null 2>&1; then
    echo "steps have inputs though cargo fails" >&2
    wrong=1
fi
# Of what was built, what is kept for any clone is of outside crates, and all that belongs to each.
export FIRSTLIGHT_BUILT=$copy/kept
cd "$root"
outside="debug/.fingerprint/serde_core-00ff00ff00ff00ff/lib debug/build/serde_core-00ff00ff00ff00ff/output
    debug/deps/libserde_core-00ff00ff00ff00ff.rlib debug/deps/serde_core-00ff00ff00ff00ff.d
    x/release/.fingerprint/log-1111222233334444/lib x/release/deps/liblog-1111222233334444.rmeta"
own="debug/.fingerprint/firstlight-pool-0123456789abcdef/lib debug/deps/libfirstlight_pool-0123456789abcdef.rlib
    debug/deps/it-aaaabbbbccccdddd debug/firstlight y/release/.fingerprint/firstlight-0123456789abcdef/lib"
for file in $outside $own; do
    mkdir -p "$copy/from/$(dirname "$file")"
    echo "$file" >"$copy/from/$file"
done
env -u CI_ALL CARGO_TARGET_DIR="$copy/from" scripts/built.sh keep
# Another clone built more.
mkdir -p "$copy/more/debug/.fingerprint/log-5555666677778888"
touch "$copy/more/debug/.fingerprint/log-5555666677778888/lib"
outside+=" debug/.fingerprint/log-5555666677778888/lib"
env -u CI_ALL CARGO_TARGET_DIR="$copy/more" scripts/built.sh keep
env -u CI_ALL CARGO_TARGET_DIR="$copy/to" scripts/built.sh take
if [ "$(cd "$copy/to" && find . -type f | sort)" != "$(printf './%s\n' $outside | sort)" ]; then
    echo "kept of what was built: $(cd "$copy/to" && find . -type f -exec echo {} +)" >&2
    wrong=1
fi

# The next clone in the same folder builds what has changed since, and no more: also what a run in between did not build.
mkdir -p "$copy/first/scripts" "$copy/first/kind/src" "$copy/first/said/src"
cp scripts/built.sh "$copy/first/scripts/"
cd "$copy/first"
printf '[workspace]\nmembers = ["kind", "said"]\nresolver = "3"\n' >Cargo.toml
printf '[package]\nname = "kind"\nedition = "2024"\n' >kind/Cargo.toml
printf '[package]\nname = "said"\nedition = "2024"\n' >said/Cargo.toml
echo 'pub fn kind() -> u32 { 1 }' >kind/src/lib.rs
echo 'fn main() { print!("{}", include_str!("text")) }' >said/src/main.rs
echo first >said/src/text
echo target >.gitignore
cargo generate-lockfile --quiet --offline
git init --quiet
git add .
commit first
# Clones what is committed into the folder, and builds these packages there: which of them cargo compiled.
next_clone() {
    rm -rf "$copy/clone"
    git clone --quiet "$copy/first" "$copy/clone"
    cd "$copy/clone"
    env -u CI_ALL -u CARGO_TARGET_DIR scripts/built.sh take
    # Dates that are kept have no parts of seconds.
    sleep 1.1
    cargo_of_clone build --offline "$@" 2>&1 | sed -n 's/^ *Compiling \([a-z]*\).*/\1/p' | sort | xargs
    env -u CI_ALL -u CARGO_TARGET_DIR scripts/built.sh keep
}
cargo_of_clone() { env -u CARGO_TARGET_DIR -u CARGO_INCREMENTAL cargo "$@"; }
expect() {
    [ "$1" = "$2" ] || { echo "$3: '$1', not '$2'" >&2; wrong=1; }
}
expect "$(next_clone --workspace)" "kind said" "the first clone compiles"
expect "$(next_clone --workspace)" "" "a clone without a change compiles"
echo second >"$copy/first/said/src/text"
cd "$copy/first"
commit second
expect "$(next_clone -p kind)" "" "a clone that builds only what did not change compiles"
expect "$(next_clone --workspace)" "said" "the clone after it compiles"
expect "$(cd "$copy/clone" && cargo_of_clone run --quiet --offline -p said)" second "what was built says"
exit "$wrong"

#!/usr/bin/env bash
# The interface of each of the engine's crates beside that of the commit that gave it its version, or of the one named:
# what breaks it since then needs another version in its Cargo.toml. Types of another crate are looked at there.
#
#   scripts/semver.sh "CRATE..." [COMMIT]
set -euo pipefail
cd "$(dirname "$0")/.."

for package in $1; do
    folder=$(cargo pkgid -p "$package" | sed "s|.*$PWD/||; s|#.*||")
    base=${2:-$(git log -1 --format=%H -G'^version = ' -- "$folder/Cargo.toml")}
    git cat-file -e "$base:$folder/Cargo.toml" 2>/dev/null || { echo "$package was not there at $base"; continue; }
    echo "the interface of $package since $(git log -1 --format='%h, %s' "$base")"
    # All features, but a size of pages, of which there is one.
    features=$(awk '/^\[/ { on = $0 == "[features]" } on && /^[a-z0-9_-]+ *=/ && !/^(default|page-)/ { print $1 }' "$folder/Cargo.toml")
    # shellcheck disable=SC2086
    cargo semver-checks -p "$package" --baseline-rev "$base" --only-explicit-features ${features:+--features ${features//$'\n'/,}}
done

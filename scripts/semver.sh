#!/usr/bin/env bash
# The engine's interface beside that of the commit that gave it its version, or of the one named:
# what breaks it since then needs another version in engine/Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/.."

base=${1:-$(git log -1 --format=%H -G'^version = ' -- engine/Cargo.toml)}
echo "the engine's interface since $(git log -1 --format='%h, %s' "$base")"
cargo semver-checks -p firstlight --baseline-rev "$base"

#!/usr/bin/env bash
# image.sh OUTPUT NAME PATH=FILE...: a container image with these programs and nothing else, each a static one, as an
# archive that `ctr images import`, `podman load` and `docker load` read. ENTRYPOINT is a list of words in JSON, or none;
# ARCHITECTURE is the programs', in Debian's words, this machine's where it is not said.
# It needs tar and sha256sum.
set -euo pipefail
output=$(realpath -m "$1") name=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root" "$work/image"
for pair in "$@"; do
    install -D -m 0755 "${pair#*=}" "$work/root/${pair%%=*}"
done
# Folders that others are mounted over, and one to write to.
mkdir -p "$work/root"/{dev,etc,proc,run,sys,usr,var}
install -d -m 1777 "$work/root/tmp"
tar="tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0"
$tar -C "$work/root" -cf "$work/image/layer.tar" .
layer=$(sha256sum < "$work/image/layer.tar" | cut -d ' ' -f 1)
case ${ARCHITECTURE:-$(uname -m)} in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; *) architecture=${ARCHITECTURE:-$(uname -m)} ;; esac
cat > "$work/config" <<JSON
{"architecture": "$architecture", "os": "linux", "config": {"Entrypoint": ${ENTRYPOINT:-null}, "Env": ["PATH=/usr/bin:/bin:/"], "WorkingDir": "/"},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]}}
JSON
config=$(sha256sum < "$work/config" | cut -d ' ' -f 1).json
mv "$work/config" "$work/image/$config"
echo "[{\"Config\": \"$config\", \"RepoTags\": [\"$name\"], \"Layers\": [\"layer.tar\"]}]" > "$work/image/manifest.json"
$tar -C "$work/image" -cf "$output" manifest.json "$config" layer.tar

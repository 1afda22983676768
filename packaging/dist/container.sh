#!/usr/bin/env bash
# An OCI archive with both static programs and nothing else.
#
#   packaging/dist/container.sh FOLDER ARCHITECTURE VERSION ARCHIVE
#
# Needs buildah and no daemon; no command is run in the image, so any processor's can be made.
set -euo pipefail
[ $# = 4 ] || { echo "container.sh: a folder, an architecture, a version, an archive are expected" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
install -Dm755 -t "$work/context/usr/bin" "$1/firstlight" "$1/firstlight-pool"
cat >"$work/Containerfile" <<'FILE'
FROM scratch
COPY usr/ /usr/
ENV PATH=/usr/bin
ENTRYPOINT ["/usr/bin/firstlight"]
FILE
# Its storage is its own, and gone afterwards.
own=(buildah --storage-driver vfs --root "$work/root" --runroot "$work/run")
image=$("${own[@]}" build --quiet --isolation chroot --platform "linux/$2" --timestamp "${SOURCE_DATE_EPOCH:-0}" \
    --label org.opencontainers.image.title=firstlight --label "org.opencontainers.image.version=$3" \
    --label "org.opencontainers.image.licenses=MIT OR Apache-2.0" \
    --file "$work/Containerfile" "$work/context")
"${own[@]}" push --quiet "$image" "oci-archive:$4:firstlight:$3"

#!/usr/bin/env bash
# Makes what a release consists of, in target/dist:
#
#   firstlight-VERSION-TARGET.tar.gz       static programs, images, manual pages, completions; for two processors
#   firstlight_VERSION_ARCH.deb            and firstlight-pool: Debian packages
#   firstlight-VERSION-stick.img.gz        a USB stick, docs/stick.md
#   firstlight-VERSION-container-ARCH.tar  an OCI archive with firstlight and firstlight-pool and nothing else
#   firstlight-VERSION-kubernetes-ARCH.tar what a node of Kubernetes runs: an image for `ctr images import`
#   firstlight-pool-chart-VERSION.tgz      the chart of Helm, for that image
#   firstlight-VERSION.cdx.json            what the programs are made of: a CycloneDX bill of materials
#   SHA256SUMS
#
#   packaging/dist/build.sh           makes them
#   packaging/dist/build.sh --names   says what they are called
#
# Nothing but Rust's own linker is needed for the programs; buildah for the container images, dpkg-deb for the packages,
# qemu-aarch64-static to try the programs of the other processor.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version *= *"\(.*\)"/\1/p' Cargo.toml)
targets=(x86_64-unknown-linux-musl aarch64-unknown-linux-musl)
revision=$(sed -n 's/^revision=//p' packaging/debian/build.sh)

# Debian's and OCI's name of a target's processor.
architecture() {
    case $1 in
    x86_64-*) echo amd64 ;;
    aarch64-*) echo arm64 ;;
    esac
}

names() {
    local target
    for target in "${targets[@]}"; do
        echo "firstlight-$version-$target.tar.gz"
        echo "firstlight-$version-container-$(architecture "$target").tar"
        echo "firstlight-$version-kubernetes-$(architecture "$target").tar"
    done
    echo "firstlight-pool-chart-$version.tgz"
    echo "firstlight_$version-${revision}_amd64.deb"
    echo "firstlight-pool_$version-${revision}_amd64.deb"
    echo "firstlight-$version-stick.img.gz"
    echo "firstlight-$version.cdx.json"
    echo SHA256SUMS
}

case ${1:-} in
--names)
    names
    exit
    ;;
"") ;;
*)
    echo "build.sh: --names or nothing is expected, not '$1'" >&2
    exit 2
    ;;
esac

built=$(realpath -m "${CARGO_TARGET_DIR:-target}")
dist=$built/dist
rm -rf "$dist"
mkdir -p "$dist"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The same files make the same archives.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
say() { echo "firstlight: $*" >&2; }

# Programs without an operating system are the same whichever host has them.
images=$work/images
mkdir "$images"
say "the images"
for target in x86_64-unknown-none aarch64-unknown-none riscv64gc-unknown-none-elf; do
    scripts/setup.sh target "$target"
    cargo build --release --quiet --locked -p firstlight-image --target "$target"
    name=firstlight-image
    [ "$target" = x86_64-unknown-none ] || name=$name-${target%%[-g]*}
    # Line tables are no use without the sources.
    cp "$built/$target/release/firstlight-image" "$images/$name"
done
for processor in x86_64 aarch64; do
    target=$processor-unknown-uefi
    scripts/setup.sh target "$target"
    cargo build --release --quiet --locked -p firstlight-image-uefi --target "$target"
    name=firstlight-image-uefi
    [ "$processor" = x86_64 ] || name=$name-$processor
    cp "$built/$target/release/firstlight-image-uefi.efi" "$images/$name.efi"
done

# The linker and the C library that come with Rust: no compiler for C of either processor.
for target in "${targets[@]}"; do
    say "the programs for $target"
    scripts/setup.sh target "$target"
    upper=$(tr a-z- A-Z_ <<<"$target")
    # The second is a workspace of its own.
    for packages in "-p firstlight-cli -p firstlight-pool-cli" "--manifest-path kubernetes/plugin/Cargo.toml"; do
        # shellcheck disable=SC2086
        env "CARGO_TARGET_${upper}_LINKER=rust-lld" \
            "CARGO_TARGET_${upper}_RUSTFLAGS=-C link-self-contained=yes -C target-feature=+crt-static" \
            CARGO_PROFILE_RELEASE_STRIP=symbols \
            cargo build --release --quiet --locked $packages --target "$target" --target-dir "$built"
    done
done
native=$built/${targets[0]}/release
other=$built/${targets[1]}/release

say "the programs for ${targets[1]} under qemu-aarch64-static"
packaging/dist/alike.sh "$native" "$other" qemu-aarch64-static

# archive TARGET: a folder that works wherever it is unpacked; `bin/firstlight` finds the images in `lib/firstlight`.
archive() {
    local name=firstlight-$version-$1 program
    local root=$work/$name
    install -Dm755 -t "$root/bin" "$built/$1/release"/firstlight{,-pool,-kubernetes}
    install -Dm644 -t "$root/lib/firstlight" "$images"/*
    for program in firstlight firstlight-pool; do
        "$native/$program" manual --into "$work/manual"
    done
    install -Dm644 -t "$root/share/man/man1" "$work"/manual/man1/*
    install -Dm644 -t "$root/share/man/man5" "$work"/manual/man5/*
    install -Dm644 -t "$root/share/bash-completion/completions" "$work"/manual/bash/*
    install -Dm644 -t "$root/share/zsh/site-functions" "$work"/manual/zsh/*
    install -Dm644 -t "$root/share/fish/vendor_completions.d" "$work"/manual/fish/*
    install -Dm644 -t "$root/share/firstlight/schemas" schemas/*
    install -Dm644 -t "$root/share/firstlight" pool/example.toml pool/client.toml
    # As docs/kubernetes.md has them.
    cp -r --parents packaging/kubernetes packaging/kubernetes-claims "$root/share/firstlight"
    install -Dm644 -t "$root/share/doc/firstlight" README.md CHANGELOG.md LICENSE-*
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" "$name" |
        gzip -9n >"$dist/$name.tar.gz"
}
for target in "${targets[@]}"; do archive "$target"; done

say "the packages"
packaging/debian/build.sh "$native"
mv target/debian/*"_$version-${revision}_amd64.deb" "$dist/"

say "the stick"
"$work/firstlight-$version-${targets[0]}/bin/firstlight" stick --output "$work/stick.img" >&2
gzip -9n <"$work/stick.img" >"$dist/firstlight-$version-stick.img.gz"

say "the container images"
command -v buildah >/dev/null || scripts/setup.sh debian buildah
for target in "${targets[@]}"; do
    packaging/dist/container.sh "$built/$target/release" "$(architecture "$target")" "$version" \
        "$dist/firstlight-$version-container-$(architecture "$target").tar"
done

for target in "${targets[@]}"; do
    ARCHITECTURE=$(architecture "$target") packaging/kubernetes/image.sh \
        "$dist/firstlight-$version-kubernetes-$(architecture "$target").tar" "localhost/firstlight-kubernetes:$version" \
        "firstlight-pool=$built/$target/release/firstlight-pool" \
        "firstlight-kubernetes=$built/$target/release/firstlight-kubernetes"
done

say "the chart"
for file in packaging/kubernetes/helm/values.yaml packaging/kubernetes/pool.yaml packaging/kubernetes/driver/pool.yaml packaging/kubernetes/metrics/pool.yaml; do
    wrong=$(grep -n "localhost/firstlight-kubernetes:" "$file" | grep -v ":$version$" || true)
    [ -z "$wrong" ] || { echo "build.sh: $file is for another version's image: $wrong" >&2; exit 1; }
done
cp -r packaging/kubernetes/helm "$work/firstlight-pool"
sed -i "s/^version: .*/version: $version/; s/^appVersion: .*/appVersion: $version/" "$work/firstlight-pool/Chart.yaml"
tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" firstlight-pool |
    gzip -9n >"$dist/firstlight-pool-chart-$version.tgz"

say "the bill of materials"
packaging/dist/sbom.py "$version" >"$dist/firstlight-$version.cdx.json"

(cd "$dist" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
diff <(names | sort) <(cd "$dist" && printf '%s\n' * | sort)
(cd "$dist" && du -h -- *)

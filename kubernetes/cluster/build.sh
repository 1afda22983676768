#!/usr/bin/env bash
# build.sh FOLDER: what a cluster of one node is made of, once, into FOLDER/bin: Kubernetes from its published Go
# modules as one program, Helm on the same modules; containerd, runc, etcd and the network plugins from Debian, unpacked
# and not installed. In FOLDER/newer are a containerd and a runc that know CDI and user namespaces, from their modules.
# About 27 minutes on two cores where Go's cache is empty, a second where all is there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
version=1.34.4
helm=3.19.5
containerd=2.2.9
runc=1.3.4
export CGO_ENABLED=0 GOFLAGS="-p=${JOBS:-2} -trimpath -buildvcs=false -mod=mod"
packages="containerd runc etcd-server containernetworking-plugins busybox-static libseccomp2 libseccomp-dev"
mkdir -p bin debian newer source

if [ "$(cat debian/complete 2>/dev/null)" != "$packages" ]; then
    (cd debian && apt-get download $packages)
    for package in debian/*.deb; do dpkg-deb -x "$package" debian/root; done
    for program in containerd containerd-shim-runc-v2 ctr etcd busybox runc; do
        found=$(find debian/root -path "*bin/$program" -type f | head -1)
        [ -n "$found" ] || { echo "build.sh: no program $program in Debian's packages ($packages)" >&2; exit 1; }
        ln -sf "../$found" "bin/$program"
    done
    echo "$packages" > debian/complete
fi

if [ "$(cat source/built 2>/dev/null)" != "$version $(sha256sum < "$here/main.go")" ]; then
    command -v go >/dev/null || { echo "build.sh: no Go compiler: Kubernetes is built from its modules" >&2; exit 1; }
    cp "$here/main.go" source/
    cd source
    # Its staging modules are folders inside of it, which a module does not have: each is the release of that number.
    if [ ! -e go.sum ] || ! grep -q "k8s.io/kubernetes v$version" go.mod; then
        rm -f go.mod go.sum
        mod=$(go mod download -json "k8s.io/kubernetes@v$version" | jq -r .GoMod)
        {
            printf 'module kubernetes\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$version"
            grep -oE 'k8s.io/[a-z-]+ => ./staging' "$mod" | while read -r name _; do
                printf '\t%s => %s v0.%s\n' "$name" "$name" "${version#1.}"
            done
            echo ')'
        } > go.mod
        go mod tidy
    fi
    set_version="-X k8s.io/component-base/version"
    nice -n 10 go build -o kubernetes -ldflags \
        "-s -w $set_version.gitVersion=v$version $set_version.gitMajor=1 $set_version.gitMinor=34" .
    cd ..
    for name in kubectl kubelet kube-apiserver kube-controller-manager kube-scheduler; do
        ln -sf ../source/kubernetes "bin/$name"
    done
    echo "$version $(sha256sum < "$here/main.go")" > source/built
fi

if [ "$(cat helm/built 2>/dev/null)" != "$helm on $version" ]; then
    mkdir -p helm && cd helm
    printf '//go:build tools\n\npackage helm\n\nimport _ "helm.sh/helm/v3/cmd/helm"\n' > helm.go
    {
        printf 'module helm\n\ngo 1.24.0\n\nrequire helm.sh/helm/v3 v%s\n\nreplace (\n' "$helm"
        grep -oE '^.k8s.io/[a-z-]+ => k8s.io/[a-z-]+ v0.*' ../source/go.mod
        echo ')'
    } > go.mod
    go mod tidy
    nice -n 10 go build -o helm -ldflags "-s -w" helm.sh/helm/v3/cmd/helm
    cd ..
    ln -sf ../helm/helm bin/helm
    echo "$helm on $version" > helm/built
fi

if [ "$(cat newer/built 2>/dev/null)" != "$containerd $runc" ]; then
    for program in gcc pkg-config; do
        command -v "$program" >/dev/null || { echo "build.sh: no program $program, which runc is built with" >&2; exit 1; }
    done
    export GOBIN=$PWD/newer GOFLAGS="-p=${JOBS:-2} -trimpath -buildvcs=false"
    for program in containerd containerd-shim-runc-v2; do
        nice -n 10 go install -tags no_btrfs,no_devmapper,no_zfs -ldflags "-s -w" \
            "github.com/containerd/containerd/v2/cmd/$program@v$containerd"
    done
    # Its filter of system calls is by a library for C, from Debian's package, linked into it.
    folder=$(dirname "$(find "$PWD/debian/root" -name libseccomp.pc)")
    CGO_ENABLED=1 PKG_CONFIG_PATH=$folder PKG_CONFIG_SYSROOT_DIR=$PWD/debian/root nice -n 10 go install \
        -tags seccomp,netgo,osusergo -ldflags "-s -w -extldflags -static" "github.com/opencontainers/runc@v$runc"
    echo "$containerd $runc" > newer/built
fi

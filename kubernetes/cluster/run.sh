#!/usr/bin/env bash
# A real Kubernetes of one node on this machine, and pods on slabs of the pool: `make kubernetes`.
#
#   run.sh                    what stands in checks.sh and claims.sh, with ROUNDS (5) kills at random moments in each
#   PARTS=checks run.sh       one of them
#   PARTS=times run.sh        how long pods take until their machines of GIB (2) GiB greet
#   CONTAINERD=debian run.sh  with Debian's containerd, which knows no claims and no user namespaces
#   KEEP=1 run.sh             leaves the folder with all logs
#
# All of it runs in mount, network and process namespaces of its own, without a way to the network, and ends with
# them. Of the machine it takes 112 huge pages of 2 MiB and cgroups, and gives them back. It needs root, Go for the first
# time (27 minutes of two cores), QEMU and jq. What was built is in FIRSTLIGHT_KUBERNETES (~/.cache/firstlight/kubernetes).
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${FIRSTLIGHT_KUBERNETES:-${XDG_CACHE_HOME:-$HOME/.cache}/firstlight/kubernetes}
# 96 for slabs, and some to spare: other programs of the machine use huge pages too. To be timed, a slab and a machine
# of that size without one.
pages=112
case ${PARTS:-} in *times*) pages=$((${GIB:-2} * 1024 + 112)) ;; esac
fail() { echo "kubernetes: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "root makes the namespaces"
for program in qemu-system-x86_64 jq openssl unshare ip; do
    command -v "$program" >/dev/null || fail "no program $program"
done
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [ ! -e "$hierarchy/kubepods" ] || fail "$hierarchy/kubepods is there: a kubelet runs on this machine, or one was killed"
done

kubernetes/cluster/build.sh "$cache"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
musl=$(uname -m)-unknown-linux-musl
scripts/setup.sh target "$musl"
cargo build --quiet --release --target "$musl" -p firstlight-pool-cli --bin firstlight-pool
cargo build --quiet --release --target "$musl" --manifest-path kubernetes/plugin/Cargo.toml --locked --target-dir "$target"

work=$(mktemp -d /tmp/kubernetes.XXXXXX)
taken=0
end() {
    local tree
    if [ -s "$work/init" ]; then
        kill -9 "$(cat "$work/init")" 2>/dev/null || true
        wait 2>/dev/null || true
    fi
    # Groups of processes are the machine's. One goes when its last process has.
    for tree in /sys/fs/cgroup/kubepods /sys/fs/cgroup/*/kubepods; do
        for _ in $(seq 50); do
            [ -d "$tree" ] || break
            find "$tree" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
        done
        [ ! -d "$tree" ] || echo "kubernetes: $tree is left over" >&2
    done
    if [ "$taken" != 0 ]; then
        echo $(($(cat /proc/sys/vm/nr_hugepages) - taken)) >/proc/sys/vm/nr_hugepages
    fi
    if [ -n "${KEEP:-}" ]; then echo "kubernetes: logs are in $work/log"; else rm -rf "$work"; fi
}
trap end EXIT
trap 'exit 130' INT TERM

# All that change the number of huge pages, tests of this project too, meet at a lock on the kernel's file.
exec 8</sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
flock 8
before=$(cat /proc/sys/vm/nr_hugepages)
echo $((before + pages)) >/proc/sys/vm/nr_hugepages
taken=$(($(cat /proc/sys/vm/nr_hugepages) - before))
[ "$taken" -ge "$pages" ] || fail "$taken of $pages huge pages could be had"

mkdir -p "$work"/{log,etc,root,image}
# Images: the pool's, and one for pods with a shell, whose QEMU is this machine's own.
programs=(firstlight-pool="$target/$musl/release/firstlight-pool" firstlight-kubernetes="$target/$musl/release/firstlight-kubernetes")
packaging/kubernetes/image.sh "$work/image/pool.tar" localhost/firstlight-kubernetes:0.1.0 "${programs[@]}"
box=bin/busybox=$(realpath "$cache/bin/busybox")
packaging/kubernetes/image.sh "$work/image/box.tar" localhost/box:1 "$box"
# A pod's first process only has to be there.
ENTRYPOINT='["/bin/busybox", "sleep", "2147483647"]' packaging/kubernetes/image.sh "$work/image/pause.tar" localhost/pause:1 "$box"

unshare --mount --net --pid --fork --kill-child --mount-proc \
    env PROGRAMS="$target/$musl/release" bash kubernetes/cluster/node.sh "$work" "$cache" 8<&- &
unshare=$!
for _ in $(seq 50); do
    pgrep -P "$unshare" >"$work/init" && break
    sleep 0.1
done
wait "$unshare"

#!/usr/bin/env bash
# node.sh FOLDER CACHE: the first process of the namespaces that run.sh made: a node with its control plane, then what is
# checked or measured there. What it starts is started again when it ends, as a service manager would.
set -euo pipefail
work=$1 cache=$2
here=$(cd "$(dirname "$0")" && pwd)
# The newer containerd knows CDI and user namespaces, Debian's does not.
containerd=${CONTAINERD:-newer}
export PATH=$cache/bin:$PATH KUBECONFIG=$work/etc/kubeconfig
[ "$containerd" = debian ] || PATH=$cache/newer:$PATH
fail() { echo "kubernetes: $*" >&2; exit 1; }

# Mounts: what kubelet and containerd write is in the folder, whatever there is on this machine.
mount --make-rprivate /
mount --make-rshared /
for folder in /run /var/lib /var/log; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
for folder in var/lib/kubelet var/lib/containerd var/lib/cni var/lib/firstlight var/log/pods var/log/containers; do
    mkdir -p "$work/root/$folder" "/$folder"
    mount --bind "$work/root/$folder" "/$folder"
done
mount --make-rshared /var/lib/kubelet
if [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then
    # Version 1, with the controller of huge pages, which not every machine mounts.
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for controller in cpu cpuacct cpuset memory devices freezer blkio pids hugetlb; do
        mkdir "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller"
    done
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
fi
ip link set lo up
ip link add br0 type bridge
ip addr add 10.9.0.1/24 dev br0
ip link set br0 up
# Where pods have the apiserver: there is no proxy of services.
ip addr add 10.7.0.1/32 dev br0

if [ "$containerd" = debian ]; then
    cat >"$work/etc/containerd.toml" <<CONFIG
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  disable_hugetlb_controller = false
  tolerate_missing_hugetlb_controller = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$cache/debian/root/usr/lib/cni"
    conf_dir = "$work/etc/cni"
CONFIG
else
    cat >"$work/etc/containerd.toml" <<CONFIG
version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  cdi_spec_dirs = ["/var/run/cdi"]
  restrict_oom_score_adj = true
  disable_hugetlb_controller = false
  tolerate_missing_hugetlb_controller = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["$cache/debian/root/usr/lib/cni"]
    conf_dir = "$work/etc/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "$cache/newer/runc"
      SystemdCgroup = false
CONFIG
fi
mkdir -p "$work/etc/cni"
cat >"$work/etc/cni/10-pods.conflist" <<CONFIG
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
 "ipam": {"type": "host-local", "subnet": "10.8.0.0/24",
 "routes": [{"dst": "0.0.0.0/0"}]}}]}
CONFIG
cat >"$work/etc/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failSwapOn: false
failCgroupV1: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
address: 10.9.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 99
imageGCLowThresholdPercent: 98
volumePluginDir: $work/volume-plugins
resolvConf: ""
syncFrequency: 5s
# What is killed again and again here is started again within a second.
featureGates: {KubeletCrashLoopBackOffMax: true}
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
CONFIG
openssl genrsa -out "$work/etc/sa.key" 2048 2>/dev/null
token=$(openssl rand -hex 16)
echo "$token,admin,admin,system:masters" >"$work/etc/tokens.csv"
cat >"$work/etc/kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:443", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: "$token"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
CONFIG

# service NAME COMMAND...: its log is log/NAME.
service() {
    local name=$1
    shift
    (
        while :; do
            "$@" || true
            echo "-- $name ended, it starts again"
            sleep 0.2
        done
    ) >>"$work/log/$name" 2>&1 </dev/null &
}
# patiently SECONDS COMMAND...: until it succeeds.
patiently() {
    local seconds=$1 begin=$SECONDS
    shift
    until "$@" >/dev/null 2>&1; do
        [ $((SECONDS - begin)) -lt "$seconds" ] || { echo "kubernetes: for $seconds s no success: $*" >&2; return 1; }
        sleep 0.3
    done
}

service containerd containerd --config "$work/etc/containerd.toml"
service etcd etcd --data-dir "$work/etcd" --unsafe-no-fsync --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 \
    --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster default=http://127.0.0.1:2380
service apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --secure-port=443 \
    --advertise-address=10.9.0.1 --cert-dir="$work/etc/apiserver" --token-auth-file="$work/etc/tokens.csv" \
    --authorization-mode=RBAC --service-account-key-file="$work/etc/sa.key" \
    --service-account-signing-key-file="$work/etc/sa.key" --service-account-issuer=https://k \
    --service-cluster-ip-range=10.7.0.0/24 --endpoint-reconciler-type=none --allow-privileged=true \
    --kubelet-preferred-address-types=InternalIP
patiently 60 ctr version
for image in pool box pause; do ctr --namespace k8s.io images import "$work/image/$image.tar" >/dev/null; done
patiently 120 kubectl get --raw /readyz
service controllers kube-controller-manager --kubeconfig="$KUBECONFIG" --leader-elect=false --bind-address=127.0.0.1 \
    --service-account-private-key-file="$work/etc/sa.key" --root-ca-file="$work/etc/apiserver/apiserver.crt"
service scheduler kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false --bind-address=127.0.0.1
service kubelet unshare --mount --propagation unchanged bash "$here/kubelet.sh" --config="$work/etc/kubelet.yaml" \
    --kubeconfig="$KUBECONFIG" --hostname-override=node1 --node-ip=10.9.0.1 --v=2
patiently 120 kubectl wait --for=condition=Ready node/node1 --timeout=1s
patiently 60 kubectl get serviceaccount default
echo "kubernetes: a node of Kubernetes $(kubectl version -o json | jq -r .serverVersion.gitVersion) is ready after $SECONDS s"
echo "kubernetes: $(containerd --version | cut -d ' ' -f 1,3)"
# shellcheck source=kubernetes/cluster/common.sh
source "$here/common.sh"
for part in ${PARTS:-checks claims}; do
    if [ "$part" = claims ] && [ "$containerd" = debian ]; then
        echo "kubernetes: no claims and no user namespaces with Debian's containerd"
        continue
    fi
    # shellcheck disable=SC1090
    source "$here/$part.sh"
done

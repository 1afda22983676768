# shellcheck shell=bash disable=SC2154,SC2034
# What is checked of the pool as a resource of pods; sourced by node.sh after common.sh.
# The commands of docs/kubernetes.md.
kubectl label node node1 firstlight.dev/pool= >/dev/null
kubectl apply -k kubernetes/cluster/node >/dev/null
kubectl apply -k packaging/kubernetes --dry-run=server >/dev/null || wrong "the apiserver takes the manifests"
kubectl create -f packaging/kubernetes/vm.yaml --dry-run=server >/dev/null || wrong "the apiserver takes the pod"
ok "the apiserver takes the manifests"
patiently 90 kubectl -n firstlight rollout status ds/firstlight-pool --timeout=1s || wrong "the pool does not start"
patiently 60 allocatable 3 || wrong "the node does not have 3 of $resource"
ok "the node has 3 of $resource"
patiently 30 status '.pools[0].clean_slabs == 3' || wrong "no 3 clean slabs"

for n in 1 2 3; do vm "vm-$n"; done
for n in 1 2 3; do patiently 90 greets "vm-$n" || wrong "vm-$n does not start"; done
ok "3 pods run QEMU, each on a slab"
labels=$(pool status --json | jq -r '[.grants[].label] | sort | join(", ")')
[ "$labels" = "$(printf 'k8s 2m-64m/any-%d default/vm-%d, ' 0 1 1 2 2 3 | sed 's/, $//')" ] ||
    [ "$(tr ',' '\n' <<<"$labels" | sed 's/.* //' | sort | xargs)" = "default/vm-1 default/vm-2 default/vm-3" ] || wrong "grants are $labels"
ok "grants: $labels"
for pid in $(machines); do
    grep -q '^Uid:.1000.1000.1000.1000' "/proc/$pid/status" || wrong "QEMU $pid is not user 1000"
    grep -q '^CapPrm:.0000000000000000' "/proc/$pid/status" || wrong "QEMU $pid has capabilities"
    grep -q '^CapBnd:.0000000000000000' "/proc/$pid/status" || wrong "QEMU $pid could have capabilities"
    grep -q '^Seccomp:.2' "/proc/$pid/status" || wrong "QEMU $pid has no seccomp filter"
    grep -q '^NoNewPrivs:.1' "/proc/$pid/status" || wrong "QEMU $pid may get privileges"
done
ok "they are user 1000, without capabilities, under the default seccomp profile"

vm vm-4
sleep 3
is_phase vm-4 Pending || wrong "a 4th pod on 3 slabs is not pending"
kubectl get events | grep -q "Insufficient $resource" || wrong "no event says what a 4th pod waits for"
gone vm-2
patiently 90 greets vm-4 || wrong "the 4th pod does not start after another has gone"
ok "a 4th pod on 3 slabs waits, and starts when another has gone"

gone vm-1
try_all

if [ "$containerd" = newer ]; then
    vm vm-user '.spec.hostUsers = false'
    patiently 90 greets vm-user || wrong "a pod in a user namespace does not start"
    in_user_namespace || wrong "no machine is in a user namespace"
    gone vm-user
    ok "a pod in a user namespace of its own has its slab"
fi

# A socket of a pod that is gone serves nothing, whatever still has its folder.
vm vm-5
patiently 90 greets vm-5 || wrong "vm-5 does not start"
stale=/run/firstlight/grants/$(pool status --json | jq -r '.grants[] | select(.label | endswith("default/vm-5")) | .grant')/mount
mkdir -p /run/stale
mount --bind "$stale" /run/stale
gone vm-5
patiently 30 status '[.grants[] | select(.label | endswith("default/vm-5"))] == []' || wrong "the right of a pod that is gone does not end"
if FIRSTLIGHT_POOL=/run/stale/pool.sock pool status >/dev/null 2>&1; then wrong "the socket of a pod that is gone serves"; fi
umount /run/stale
ok "the right of a pod that is gone ends, also for what still has its folder"

# The pool is upgraded under running pods: other pods of the daemon and the plugin take over.
vm vm-6
patiently 90 greets vm-6 || wrong "vm-6 does not start"
before=$(machines)
kubectl -n firstlight rollout restart ds/firstlight-pool >/dev/null
patiently 120 kubectl -n firstlight rollout status ds/firstlight-pool --timeout=1s || wrong "the pool is not upgraded"
patiently 60 allocatable 3 || wrong "the node does not have 3 of $resource after an upgrade"
[ "$(machines)" = "$before" ] || wrong "an upgrade of the pool ended machines: $before, $(machines)"
patiently 60 status '(.leases | length) == 3' || wrong "leases are lost by an upgrade"
ok "an upgrade of the pool leaves 3 machines and their leases alone"

# A node is drained for repairs, and taken up again.
kubectl drain node1 --ignore-daemonsets --force --timeout=60s >/dev/null 2>&1 || wrong "the node is not drained"
patiently 60 status '.pools[0].clean_slabs == 3 and .grants == [] and .leases == []' || wrong "a drained node has slabs out"
kubectl uncordon node1 >/dev/null
for n in 7 8 9; do vm "vm-$n"; done
for n in 7 8 9; do patiently 90 greets "vm-$n" || wrong "vm-$n does not start on a node that was drained"; done
ok "a node that is drained has all slabs clean, and pods again after that"

kills "${ROUNDS:-5}"

# shellcheck disable=SC2046
gone $(names)
patiently 120 status '.pools[0].clean_slabs == 3 and .grants == [] and .leases == []' || wrong "a slab is lost"
ok "after all pods have gone 3 slabs are clean, and no right is left"
kubectl delete -k kubernetes/cluster/node --wait=true >/dev/null
patiently 60 allocatable 0 || wrong "the node has slabs without a pool"
ok "without the pool the node has none"

# The chart comes to the manifests, and is installed.
helm lint packaging/kubernetes/helm >/dev/null || wrong "helm lint"
spec() { kubectl create --dry-run=client -o json -f - | jq -S '(.items // [.])[] | select(.kind == "DaemonSet").spec.template.spec
    | del(.volumes[] | select(.name == "config")) | .containers[].command -= ["--absent=30"]'; }
[ "$(helm template --kube-version 1.34 firstlight-pool packaging/kubernetes/helm | spec)" = "$(kubectl kustomize packaging/kubernetes | spec)" ] ||
    wrong "the chart is for other pods than the manifests: helm template packaging/kubernetes/helm"
helm install firstlight-pool packaging/kubernetes/helm --namespace firstlight --create-namespace \
    --set hugepages.hugepages-2Mi=192Mi --set-file config=kubernetes/cluster/small/pool.toml >/dev/null || wrong "helm install"
patiently 90 allocatable 3 || wrong "the node does not have 3 of $resource by helm"
vm "vm-$next"
patiently 90 greets "vm-$next" || wrong "vm-$next does not start on a pool by helm"
gone "vm-$next"
# After the 30 s of `--absent`. A plugin that ends earlier leaves the right, and the next part serves this pool another way.
patiently 90 status '.grants == []' || wrong "the right of a pod that is gone does not end before the chart is removed"
helm uninstall firstlight-pool --namespace firstlight --wait >/dev/null || wrong "helm uninstall"
ok "the chart is for the same pods, and is installed and removed by helm"

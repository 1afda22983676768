# shellcheck shell=bash
# What is checked on a node that is ready; sourced by node.sh, whose `patiently` and `fail` are used. What was seen is
# printed, one line a check; the first that does not hold ends all.
resource=firstlight.dev/2m-64m
ok() { echo "ok  $(printf '%4d' "$SECONDS") s  $*"; }
# So that a failure says where the node was.
wrong() {
    echo "kubernetes: $*" >&2
    {
        kubectl get pods --all-namespaces -o wide
        kubectl get events --all-namespaces --sort-by=.lastTimestamp | tail -15
        kubectl -n firstlight logs ds/firstlight-pool -c daemon --tail 15
        kubectl -n firstlight logs ds/firstlight-pool -c plugin --tail 15
        pool status
    } >&2 || true
    exit 1
}
pool() { /var/lib/firstlight/firstlight-pool "$@"; }
status() { pool status --json | jq -e "$1"; }
allocatable() { kubectl get node node1 -o json | jq -e --arg r "$resource" --arg n "$1" '.status.allocatable[$r] == $n'; }

# vm NAME [JQ]: a virtual machine as packaging/kubernetes has it, whose QEMU is this machine's.
vm() {
    kubectl create -f packaging/kubernetes/vm.yaml --dry-run=client -o json |
        jq --arg name "$1" --arg r "$resource" --rawfile tries kubernetes/cluster/tries.sh '
            .metadata.name = $name | .metadata.namespace = "default"
            | .spec.containers[0] |= (
                .image = "localhost/box:1" | .imagePullPolicy = "Never"
                | .command |= map(if . == "2G" then "64M" else . end)
                | .resources.limits = {($r): "1", memory: "512Mi", cpu: "100m"}
                | .resources.requests = {cpu: "10m", memory: "64Mi"}
                | .volumeMounts = [["usr", "lib", "lib64"][] | {name: ., mountPath: ("/" + .), readOnly: true}])
            | .spec.volumes = [["usr", "lib", "lib64"][] | {name: ., hostPath: {path: ("/" + .)}}]
            | '"${2:-.}" | kubectl apply -f - >/dev/null
}
# Whether a pod's machine has said what it is, since its container started last.
greets() { kubectl logs "$1" | grep -q '"QMP": {"version"'; }
is_phase() { [ "$(kubectl get pod "$1" -o jsonpath='{.status.phase}')" = "$2" ]; }
# The processes of machines.
machines() { { pgrep -x qemu-system-x86 || true; } | sort -n; }
gone() { kubectl delete pod --now "$@" >/dev/null 2>&1 || kubectl delete pod --now --ignore-not-found "$@" >/dev/null; }

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
vm tries '.spec.restartPolicy = "Never" | .spec.containers[0].command = ["/bin/busybox", "sh", "-c", $tries]'
patiently 90 is_phase tries Succeeded || wrong "a pod that tries what it may not does not end: $(kubectl logs tries)"
tried=$(kubectl logs tries | grep -v ^firstlight-pool: || true)
[ "$(tail -n 1 <<<"$tried")" = "it tried" ] || wrong "a pod that tries what it may not did not try all: $tried"
got=$(grep '^got: ' <<<"$tried" || true)
[ -z "$got" ] || wrong "a pod has more than its slab: $got"
ok "a pod that tries gets no second and no larger slab, changes nothing of the pool, and sees no other pod"
gone tries

# A socket of a pod that is gone serves nothing, whatever still has its folder.
vm vm-5
patiently 90 greets vm-5 || wrong "vm-5 does not start"
stale=/run/firstlight/grants/$(pool status --json | jq -r '.grants[] | select(.label | endswith("default/vm-5")) | .grant')
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

# Kills. After each: all machines but those that were killed are the processes they were, each pod has its slab.
names() { kubectl get pods -o jsonpath='{.items[*].metadata.name}'; }
refused=0
is_whole() {
    local pods pod
    # kubelet fails a pod for good that it admits in the moment before it knows the plugin again: one that comes then, and
    # where both were killed one that runs. A Deployment makes another.
    for pod in $(kubectl get pods -o json | jq -r '.items[] | select(.status.phase == "Failed" or .status.phase == "Succeeded") | .metadata.name'); do
        refused=$((refused + 1))
        gone "$pod"
        vm "$pod"
    done
    pods=$(names)
    [ "$(wc -w <<<"$pods")" = 3 ] || return 1
    for pod in $pods; do is_phase "$pod" Running || return 1; done
    [ "$(machines | wc -l)" = 3 ] || return 1
    allocatable 3 >/dev/null || return 1
    # By name: of each pod one grant, of each grant one lease.
    pool status --json | jq -e --arg pods "$pods" '
        ([.grants[].label | split("default/")[1]] | sort) == ($pods | split(" ") | sort)
        and ([.leases[].lease] | unique | length) == 3 and (.leases | length) == 3
        and all(.grants[]; .charged_slabs == 1)' >/dev/null
}
# The memory of each machine, by its file: never one for two.
memories() {
    local pid
    for pid in $(machines); do
        find "/proc/$pid/fd" -lname '/memfd:*' -exec stat -L -c '%d:%i' {} + 2>/dev/null | sort -u
    done
}
victim() {
    case $1 in
    qemu) machines | shuf -n 1 ;;
    kubelet) pgrep -x kubelet ;;
    containerd) pgrep -x containerd ;;
    daemon) pgrep -f '^/firstlight-pool serve' ;;
    plugin) pgrep -f '^/firstlight-kubernetes plugin' ;;
    esac | xargs || true
}
patiently 60 is_whole || wrong "the node is not whole before the kills"
next=10
for round in $(seq "${ROUNDS:-5}"); do
    before=$(machines)
    spared=""
    # Half of the time a pod goes and another comes meanwhile.
    if [ $((RANDOM % 2)) = 0 ]; then
        left=$(names | tr ' ' '\n' | shuf -n 1)
        kubectl delete pod --now --wait=false "$left" >/dev/null
        vm "vm-$next"
        next=$((next + 1))
        spared="$left gone"
    fi
    sleep "0.$((RANDOM % 10))"
    of=$(printf '%s\n' qemu kubelet daemon plugin containerd | shuf -n $((1 + RANDOM % 2)) | xargs)
    killed=""
    for one in $of; do
        pid=$(victim "$one")
        # One that starts just now isn't there.
        [ -z "$pid" ] || { kill -9 $pid 2>/dev/null && killed+=" $pid"; } || true
        sleep "0.$((RANDOM % 10))"
    done
    patiently 180 is_whole || wrong "round $round: after kill -9 of $of${spared:+ and $spared} the node is not whole"
    # Machines that are not what they were: killed ones, and that of a pod that went.
    lost=$(comm -23 <(sort <<<"$before") <(machines | sort) | wc -l)
    may=$(($(grep -cw qemu <<<"$of" || true) + $([ -n "$spared" ] && echo 1 || echo 0)))
    case $of in *kubelet*plugin* | *plugin*kubelet*) may=3 ;; esac
    [ "$lost" -le "$may" ] || wrong "round $round: kill -9 of $of${spared:+ and $spared} ended $lost machines"
    [ "$(memories | sort | uniq -d)" = "" ] || wrong "round $round: two machines have one memory"
    ok "round $round: kill -9 of $of${spared:+, $spared meanwhile}"
done

# shellcheck disable=SC2046
gone $(names)
patiently 120 status '.pools[0].clean_slabs == 3 and .grants == [] and .leases == []' || wrong "a slab is lost"
[ "$refused" = 0 ] || ok "$refused times kubelet failed a pod that it admitted before it knew the plugin again: it was made again"
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
    --set hugepages.hugepages-2Mi=192Mi --set-file config=kubernetes/cluster/node/pool.toml >/dev/null || wrong "helm install"
patiently 90 allocatable 3 || wrong "the node does not have 3 of $resource by helm"
vm "vm-$next"
patiently 90 greets "vm-$next" || wrong "vm-$next does not start on a pool by helm"
gone "vm-$next"
helm uninstall firstlight-pool --namespace firstlight --wait >/dev/null || wrong "helm uninstall"
ok "the chart is for the same pods, and is installed and removed by helm"

# shellcheck shell=bash
# What checks of a node that is ready have in common; sourced by node.sh, whose `patiently` is used. What was seen is
# printed, one line a check; the first that does not hold ends all.
# How pods get slabs: plugin or driver.
way=plugin
resource=firstlight.dev/2m-64m
ok() { echo "ok  $(printf '%4d' "$SECONDS") s  $*"; }
# So that a failure says where the node was.
wrong() {
    echo "kubernetes: $*" >&2
    {
        kubectl get pods --all-namespaces -o wide
        kubectl get events --all-namespaces --sort-by=.lastTimestamp | tail -25
        kubectl -n firstlight logs ds/firstlight-pool -c daemon --tail 15
        kubectl -n firstlight logs ds/firstlight-pool -c "$way" --tail 15
        pool status
    } >&2 || true
    exit 1
}
pool() { /var/lib/firstlight/firstlight-pool "$@"; }
status() { pool status --json | jq -e "$1"; }
allocatable() { kubectl get node node1 -o json | jq -e --arg r "$resource" --arg n "$1" '.status.allocatable[$r] == $n'; }

# What pods may have in all, by the node's resource or by slices.
offers() {
    case $way in
    plugin) allocatable "$1" ;;
    driver) kubectl get resourceslices -o json | jq -e --argjson n "$1" '[.items[].spec.devices // [] | length] | add // 0 | . == $n' ;;
    esac
}

# vm NAME [JQ]: a virtual machine as packaging/kubernetes has it, whose QEMU is this machine's.
vm() {
    local from=packaging/kubernetes/vm.yaml
    [ "$way" = plugin ] || from=packaging/kubernetes/vm-claim.yaml
    kubectl create -f "$from" --dry-run=client -o json |
        jq --arg name "$1" --arg r "$resource" --arg way "$way" --rawfile tries kubernetes/cluster/tries.sh '
            (.items // [.])[] | select(.kind == "Pod") | .metadata.name = $name | .metadata.namespace = "default"
            | .spec.containers[0] |= (
                .image = "localhost/box:1" | .imagePullPolicy = "Never"
                | .command |= map(if . == "2G" then "64M" else . end)
                | .resources.limits = {memory: "512Mi", cpu: "100m"}
                | .resources.requests = {cpu: "10m", memory: "64Mi"}
                | if $way == "plugin" then .resources.limits[$r] = "1" else . end
                | .volumeMounts = [["usr", "lib", "lib64"][] | {name: ., mountPath: ("/" + .), readOnly: true}])
            | .spec.volumes = [["usr", "lib", "lib64"][] | {name: ., hostPath: {path: ("/" + .)}}]
            | '"${2:-.}" | kubectl apply -f - >/dev/null
}
# Whether a pod's machine has said what it is, since its container started last.
greets() { kubectl logs "$1" | grep -q '"QMP": {"version"'; }
is_phase() { [ "$(kubectl get pod "$1" -o jsonpath='{.status.phase}')" = "$2" ]; }
# The processes of machines.
machines() { { pgrep -x qemu-system-x86 || true; } | sort -n; }
# Whether one of these is user 1000 of a user namespace, and another one of the machine.
in_user_namespace() {
    local pid
    for pid in $(machines); do
        [ "$(awk '{print ($2 >= 65536); exit}' "/proc/$pid/uid_map")" != 1 ] ||
            [ "$(awk '/^Uid:/ {print $2 % 65536}' "/proc/$pid/status")" != 1000 ] || return 0
    done
    return 1
}
# A pod tries what it may not.
try_all() {
    local tried got
    vm tries '.spec.restartPolicy = "Never" | .spec.containers[0].command = ["/bin/busybox", "sh", "-c", $tries]'
    patiently 90 is_phase tries Succeeded || wrong "a pod that tries what it may not does not end: $(kubectl logs tries)"
    tried=$(kubectl logs tries | grep -v ^firstlight-pool: || true)
    [ "$(tail -n 1 <<<"$tried")" = "it tried" ] || wrong "a pod that tries what it may not did not try all: $tried"
    got=$(grep '^got: ' <<<"$tried" || true)
    [ -z "$got" ] || wrong "a pod has more than its slab: $got"
    gone tries
    ok "a pod that tries gets no second and no larger slab, changes nothing of the pool, and sees no other pod"
}
gone() { kubectl delete pod --now "$@" >/dev/null 2>&1 || kubectl delete pod --now --ignore-not-found "$@" >/dev/null; }

# Kills. After each: all machines but those that were killed are the processes they were, each pod has its slab.
names() { kubectl get pods -o jsonpath='{.items[*].metadata.name}'; }
is_whole() {
    local pods pod
    # kubelet fails a pod for good that it admits in the moment before it knows the plugin again: one that comes then, and
    # where both were killed one that runs. A Deployment makes another. One that goes may be seen like that too.
    for pod in $(kubectl get pods -o json | jq -r '.items[] | select(.metadata.deletionTimestamp == null)
        | select(.status.phase == "Failed" or .status.phase == "Succeeded") | .metadata.name'); do
        refused=$((refused + 1))
        gone "$pod"
        vm "$pod"
    done
    pods=$(names)
    [ "$(wc -w <<<"$pods")" = 3 ] || return 1
    for pod in $pods; do is_phase "$pod" Running || return 1; done
    [ "$(machines | wc -l)" = 3 ] || return 1
    offers 3 >/dev/null || return 1
    # By name: of each pod one grant, of each grant one lease.
    pool status --json | jq -e --arg pods "$pods" '
        ([.grants[].label | split("default/")[1] | sub("-slab-.*"; "")] | sort) == ($pods | split(" ") | sort)
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
    plugin) pgrep -f "^/firstlight-kubernetes $way" ;;
    esac | xargs || true
}
# kills ROUNDS: on a node with three machines.
next=10
kills() {
    local round before spared left of killed one pid lost may
    patiently 60 is_whole || wrong "the node is not whole before the kills"
    refused=0
    for round in $(seq "$1"); do
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
        case $way:$of in plugin:*kubelet*plugin* | plugin:*plugin*kubelet*) may=3 ;; esac
        [ "$lost" -le "$may" ] || wrong "round $round: kill -9 of $of${spared:+ and $spared} ended $lost machines"
        [ "$(memories | sort | uniq -d)" = "" ] || wrong "round $round: two machines have one memory"
        ok "round $round: kill -9 of $of${spared:+, $spared meanwhile}"
    done
    [ "$refused" = 0 ] || ok "$refused times kubelet failed a pod that it admitted before it knew the plugin again: it was made again"
}

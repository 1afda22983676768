# shellcheck shell=bash disable=SC2154,SC2034
# What is checked of the pool for claims; sourced by node.sh after common.sh.
way=driver
# By the operator of Prometheus, of which there is nothing here but what it calls a monitor.
kubectl apply -f - >/dev/null <<'CRD'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {plural: podmonitors, singular: podmonitor, kind: PodMonitor}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
CRD
patiently 30 kubectl get podmonitors

kubectl label node node1 firstlight.dev/pool= --overwrite >/dev/null
kubectl apply -k kubernetes/cluster/driver >/dev/null
kubectl apply -k packaging/kubernetes-claims --dry-run=server >/dev/null || wrong "the apiserver takes the driver's manifests"
patiently 90 kubectl -n firstlight rollout status ds/firstlight-pool --timeout=1s || wrong "the pool does not start"
patiently 60 offers 3 || wrong "no 3 devices are in slices"
patiently 30 status '.pools[0].clean_slabs == 3' || wrong "no 3 clean slabs"
generation() { kubectl get resourceslices -o json | jq -c '[.items[] | [.metadata.name, .spec.pool.generation]]'; }
before=$(generation)
sleep 3
[ "$(generation)" = "$before" ] || wrong "slices are written again and again"
kubectl create -f packaging/kubernetes/vm-claim.yaml --dry-run=server >/dev/null || wrong "the apiserver takes the pod with a claim"
ok "3 devices are published: $(kubectl get resourceslices -o json | jq -c '.items[0].spec.devices[0]')"

# What the driver may say of another node, of another pool, and for another driver: nothing.
kubectl config view --raw -o json | jq '.users[0].user += {as: "system:serviceaccount:firstlight:firstlight-pool",
    "as-user-extra": {"authentication.kubernetes.io/node-name": ["node1"]}}' >"$work/etc/driver"
# says JQ: makes, and does not keep, the slice that there is with this change, as the driver.
says() {
    kubectl get resourceslices -o json | jq ".items[0] | $1"' | .metadata = {name: "another"}' >"$work/slice.json"
    KUBECONFIG=$work/etc/driver kubectl create --dry-run=server -f "$work/slice.json" 2>&1
}
said=$(says .) || wrong "a driver may not publish its own devices: $said"
for change in '.spec.nodeName = "node2"' '.spec.pool.name = "node2"' '.spec.driver = "gpu.example.com"'; do
    if said=$(says "$change"); then wrong "a driver publishes what is not its own: $change"; fi
    grep -q "devices of that node only" <<<"$said" || wrong "a slice with $change is refused otherwise: $said"
done
ok "a driver that publishes devices of another node, pool or driver is refused"

address=$(kubectl -n firstlight get pods -o jsonpath='{.items[0].status.podIP}')
busybox wget -q -O - "http://$address:9464/metrics" | grep -q '^firstlight_pool_clean_slabs.* 3$' || wrong "no metrics at the pod's address"
kubectl -n firstlight get podmonitor firstlight-pool >/dev/null || wrong "there is no monitor"
ok "metrics are at the pod's own address, and a monitor names them"

# The claim of packaging/kubernetes/vm-claim.yaml, for the sizes here.
kubectl create -f packaging/kubernetes/vm-claim.yaml --dry-run=client -o json |
    jq '(.items // [.])[] | select(.kind == "ResourceClaimTemplate") | .metadata.namespace = "default"
        | .spec.spec.devices.requests[0].exactly.selectors[0].cel.expression |= sub("2Gi"; "64Mi")' >"$work/template.json"
kubectl apply -f "$work/template.json" >/dev/null
for n in 1 2 3; do vm "vm-$n"; done
for n in 1 2 3; do patiently 90 greets "vm-$n" || wrong "vm-$n does not start by a claim"; done
[ "$(memories | sort | uniq -d)" = "" ] || wrong "two machines have one memory"
ok "3 pods run QEMU by claims: $(pool status --json | jq -r '[.grants[].label] | sort | join(", ")')"
claimed=$(kubectl get resourceclaims -o json | jq -c '[.items[].status.allocation.devices.results[].device] | unique | length')
[ "$claimed" = 3 ] || wrong "3 claims have $claimed devices"

vm vm-4
sleep 3
is_phase vm-4 Pending || wrong "a 4th claim on 3 slabs is not pending"
kubectl get events | grep vm-4 | grep -q "cannot allocate all claims" || wrong "no event says what a 4th claim waits for"
gone vm-2
patiently 90 greets vm-4 || wrong "the 4th pod does not start after another has gone"
ok "a 4th claim on 3 slabs waits, and its pod starts when another has gone"

# What no slab is: pages of 1 GiB, by the same class.
gone vm-1
jq '.metadata.name = "slab-1g" | .spec.spec.devices.requests[0].exactly.selectors[0].cel.expression |= sub("2m"; "1g")' \
    "$work/template.json" | kubectl apply -f - >/dev/null
vm vm-1g '.spec.resourceClaims[0].resourceClaimTemplateName = "slab-1g"'
sleep 3
is_phase vm-1g Pending || wrong "a claim for pages that there are none of is not pending"
gone vm-1g
ok "a claim that chooses pages of 1 GiB, of which there are none, waits"
# Of alternatives that which there is.
jq '.metadata.name = "slab-any" | .spec.spec.devices.requests[0] |= {name, firstAvailable: [
    (.exactly | .name = "giant" | .selectors[0].cel.expression |= sub("2m"; "1g")), (.exactly | .name = "huge")]}' \
    "$work/template.json" | kubectl apply -f - >/dev/null
vm vm-any '.spec.resourceClaims[0].resourceClaimTemplateName = "slab-any"'
patiently 90 greets vm-any || wrong "a pod whose claim has alternatives does not start"
kubectl get resourceclaims -o json | jq -e '[.items[].status.allocation.devices.results[].request] | index("memory/huge")' >/dev/null ||
    wrong "no claim has an alternative"
gone vm-any
ok "a claim for pages of 1 GiB, or of 2 MiB, has these"

try_all

vm vm-user '.spec.hostUsers = false'
patiently 90 greets vm-user || wrong "a pod with a claim in a user namespace does not start"
in_user_namespace || wrong "no machine is in a user namespace"
before=$(machines)
ok "a pod in a user namespace of its own has its slab by a claim"

# One way at a time.
code=0
text=$("$PROGRAMS/firstlight-kubernetes" plugin 2>&1) || code=$?
[ "$code" = 5 ] && grep -q "another firstlight-kubernetes serves this pool" <<<"$text" || wrong "a plugin beside the driver: $code, $text"
kubectl -n firstlight rollout restart ds/firstlight-pool >/dev/null
patiently 120 kubectl -n firstlight rollout status ds/firstlight-pool --timeout=1s || wrong "the pool is not upgraded"
patiently 60 offers 3 || wrong "no 3 devices are in slices after an upgrade"
[ "$(machines)" = "$before" ] || wrong "an upgrade of the pool ended machines"
patiently 60 status '(.leases | length) == 3 and (.grants | length) == 3' || wrong "leases or grants are lost by an upgrade"
ok "a device plugin beside the driver is refused; an upgrade leaves 3 machines and their claims alone"

# A claim without a pod, of which kubelet was told while no driver ran.
kubectl delete pod --now --wait=false vm-user >/dev/null
kill -9 $(pgrep -f '^/firstlight-kubernetes driver')
patiently 60 status '.pools[0].clean_slabs == 1 and (.grants | length) == 2' || wrong "a claim that went while the driver was killed has its slab still"
gone vm-user
ok "what a pod had that went while the driver was killed is clean again"

vm vm-9
patiently 90 greets vm-9 || wrong "vm-9 does not start"
kills "${ROUNDS:-5}"

# shellcheck disable=SC2046
gone $(names)
patiently 120 status '.pools[0].clean_slabs == 3 and .grants == [] and .leases == []' || wrong "a slab is lost"
[ "$(find /var/run/cdi -name 'firstlight*')" = "" ] || wrong "files of claims are left: $(ls /var/run/cdi)"
ok "after all pods have gone 3 slabs are clean, and no right and no file of a claim is left"

spec() { kubectl create --dry-run=client -o json -f - | jq -S '
    (.items // [.])[] | select(.kind | IN("DaemonSet", "Role", "ClusterRole", "ValidatingAdmissionPolicy", "DeviceClass", "PodMonitor"))
    | if .kind != "DaemonSet" then .spec // .rules
        else .spec.template.spec | del(.volumes[] | select(.name == "config")) | .containers |= sort_by(.name) | .volumes |= sort_by(.name) end'; }
sorted() { jq -sS 'sort_by(tostring)'; }
[ "$(helm template --kube-version 1.34 --namespace firstlight --set way=driver --set metrics=true firstlight-pool packaging/kubernetes/helm | spec | sorted)" = \
    "$( (kubectl kustomize kubernetes/cluster/driver | sed 's/hugepages-2Mi: 192Mi/hugepages-2Mi: 8Gi/') | spec | sorted)" ] ||
    wrong "the chart is for another driver than the manifests"
if helm template --set way=both firstlight-pool packaging/kubernetes/helm >/dev/null 2>&1; then wrong "the chart takes both ways"; fi
ok "the chart with way=driver and metrics=true is the driver's manifests"
kubectl delete -k kubernetes/cluster/driver --wait=true >/dev/null

# shellcheck shell=bash disable=SC2154,SC2034
# How long it takes from a pod's creation until its machine of GIB (2) GiB greets: on a slab, and on huge pages that QEMU
# zeroes; and how much of that is Kubernetes's own, by a pod that says a line. TIMES (5) of each, in turn. It judges nothing.
gib=${GIB:-2}
resource=firstlight.dev/2m-${gib}g
mkdir "$work/times"
from=$(realpath --relative-to="$work/times" packaging)
for file in kubernetes/cluster/times/*; do
    sed "s|[./]*/packaging|$from|; s/\b2Gi\b/${gib}Gi/; s/\"2G\"/\"${gib}G\"/" "$file" >"$work/times/${file##*/}"
done
kubectl label node node1 firstlight.dev/pool= --overwrite >/dev/null
kubectl apply -k "$work/times" >/dev/null
patiently 90 kubectl -n firstlight rollout status ds/firstlight-pool --timeout=1s || wrong "the pool does not start"
patiently 60 allocatable 1 || wrong "the node does not have a slab of $gib GiB"

# As vm.yaml has it, of that size and with a processor of its own.
size=".spec.restartPolicy = \"Never\" | .spec.containers[0].resources.limits.cpu = \"1\" | .spec.containers[0].command |= map(if . == \"64M\" then \"${gib}G\" else . end)"
bare='| del(.spec.containers[0].resources.limits[$r])'
declare -A change=(
    [slab]=$size
    [prealloc]="$size $bare | .spec.containers[0].resources.limits[\"hugepages-2Mi\"] = \"${gib}Gi\"
        | .spec.containers[0].command = [\"qemu-system-x86_64\", \"-m\", \"${gib}G\", \"-object\",
            \"memory-backend-memfd,id=m,size=${gib}G,hugetlb=on,hugetlbsize=2M,share=on,prealloc=on\"]
        | .spec.containers[0].args |= (.[1:] | map(if . == \"q35\" then \"q35,memory-backend=m\" else . end))"
    [nothing]="$size $bare | .spec.containers[0].command = [\"/bin/busybox\", \"echo\", \"QMP\"] | .spec.containers[0].args = []"
)
says() { kubectl logs --timestamps "$1" 2>/dev/null | grep -m 1 QMP; }
for round in $(seq "${TIMES:-5}"); do
    for kind in nothing slab prealloc; do
        patiently 60 status '.pools[0].clean_slabs == 1' || wrong "no clean slab"
        begin=$(date +%s%N)
        vm "$kind-$round" "${change[$kind]}"
        patiently 90 says "$kind-$round" || wrong "$kind-$round says nothing: $(kubectl logs "$kind-$round")"
        end=$(date -d "$(says "$kind-$round" | cut -d ' ' -f 1)" +%s%N)
        echo "$kind $(((end - begin) / 1000000))" >>"$work/took"
        gone "$kind-$round"
    done
done
for kind in nothing slab prealloc; do
    ok "$kind, ms: $(sed -n "s/^$kind //p" "$work/took" | sort -n | xargs)"
done
kubectl delete -k "$work/times" --wait=true >/dev/null

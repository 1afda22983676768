#!/usr/bin/env bash
# kubelet.sh OPTIONS...: kubelet, which at each start sets sysctls of the whole machine. Here it finds them set, in files
# that are mounted over them in a mount namespace of its own: in that of containers /proc must be whole.
set -euo pipefail
mount --make-rprivate /proc
mkdir -p /run/sysctl
for pair in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=/run/sysctl/$(tr / - <<<"${pair%=*}")
    echo "${pair#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${pair%=*}"
done
exec kubelet "$@"

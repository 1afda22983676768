# shellcheck shell=bash
# A host with a real libvirtd, for one test: its own mounts and processes, all of which end
# with this bash, process 1 of its name space. Arguments: a folder, the command firstlight-pool.
set -eu
own=$1 command=$2

# What is written below these is gone with the test.
for folder in etc var usr/bin; do
    mkdir -p "$own/$folder/upper" "$own/$folder/work"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$own/$folder/upper,workdir=$own/$folder/work" "/$folder"
done
mount -t tmpfs tmpfs /run
# Nothing else of this machine's files is changed: not by libvirt, not by a test.
for folder in /root /home /opt /srv /usr; do
    if [ -d "$folder" ]; then
        mount --rbind "$folder" "$folder"
        mount -o remount,bind,ro "$folder"
    fi
done

# All devices but /dev/kvm: where it opens and runs no guest, as on a virtual machine without
# nested virtualization, each start of a domain tries it for 4 s.
mkdir "$own/dev"
for device in /dev/*; do
    name=${device##*/}
    if [ "$name" = kvm ]; then
        continue
    elif [ -L "$device" ]; then
        cp -a "$device" "$own/dev/"
    elif [ -d "$device" ]; then
        mkdir "$own/dev/$name"
        mount --rbind "$device" "$own/dev/$name"
    else
        touch "$own/dev/$name"
        mount --bind "$device" "$own/dev/$name"
    fi
done
mount --rbind "$own/dev" /dev
mkdir -p /dev/hugepages
mount -t hugetlbfs hugetlbfs /dev/hugepages

# As the package has them.
cp "$command" /usr/bin/firstlight-pool
ln /usr/bin/firstlight-pool /usr/bin/firstlight-qemu-system-x86_64
mkdir -p /etc/firstlight /run/elsewhere

rm -rf /var/cache/libvirt/qemu /etc/libvirt/qemu/*.xml
virtlogd -d >/dev/null 2>&1
echo ready
exec >/dev/null 3<&0
# Until the test closes its end; bash meanwhile reaps processes that others left behind.
cat <&3 &
wait $!

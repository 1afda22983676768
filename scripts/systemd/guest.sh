#!/bin/bash
# Runs as root in the Debian that run.sh boots: the package from install to purge, once by the
# operator's page, once in all detail. Each step is a function; the first that fails ends the run,
# with the journal.
set -eEuo pipefail

step=begin
profile=/etc/apparmor.d/local/abstractions/libvirt-qemu
failed() {
    echo "FAILED $step, line $1: $BASH_COMMAND"
    journalctl -b --no-pager -o cat -u 'firstlight*' -n 30 | sed 's/^/   /' || true
    dmesg | grep 'apparmor="DENIED"' | tail -5 | sed 's/^/   /' || true
    systemctl --no-pager status firstlight-pool.service firstlight-pool.socket | sed 's/^/   /' || true
    firstlight-pool status | sed 's/^/   /' || true
    sed "s/^/   said: /" /run/said || true
    grep Huge /proc/meminfo | sed 's/^/   /'
}
trap 'failed $LINENO' ERR

# Waits for something that must come.
until_so() {
    local left=600
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 0.1
    done
}

# Whether a figure of the pool's status, named as jq names it, is so.
has() { [ "$(firstlight-pool status --json | jq "$1")" = "$2" ]; }
clean() { has '.pools[0].clean_slabs' "$1"; }
allocated() { has '.pools[0].allocated_slabs' "$1"; }
state() { [ "$(systemctl show -P ActiveState "firstlight-pool.$1")" = "$2" ]; }
said() { journalctl -q --no-pager -o cat -u "$1" | grep -q "$2"; }
pid() { systemctl show -P MainPID firstlight-pool.service; }
free_pages() { [ "$(awk '/HugePages_Free/ { print $2 }' /proc/meminfo)" = "$1" ]; }

has_memory() {
    local start
    start=$(systemctl show -P InvocationID "$1")
    journalctl -q --no-pager -o cat "_SYSTEMD_INVOCATION_ID=$start" | grep -q 'from the pool'
}

# A machine in the VMM's place: it holds a slab until it is killed.
machine() {
    systemd-run --quiet --unit="$1" -p Type=exec \
        firstlight-pool run --require "${@:2}" --memory 32M -- sh -c 'exec sleep 1000 <{memory}'
    until_so has_memory "$1"
}
end_machine() {
    systemctl stop "$1"
}

config() {
    cat >/etc/firstlight/pool.toml <<CONFIG
keep_on_stop = true
[access]
group = "kvm"
observers = "firstlight-observers"
[fill]
rate = "$2"
pause_at_pressure = 0
batch = "2M"
[[class]]
page = "2M"
size = "32M"
slabs = $1
CONFIG
}

# The commands of docs/pool-operator.md as they stand there, from install to nothing, and what
# each step of it has brought.
blocks=0
page() {
    blocks=$((blocks + 1))
    [ "$blocks" = "$1" ]
    commands operator "$1"
}
# commands PAGE N: runs its N-th block.
commands() { (cd "/page/$1" && bash -eu -o pipefail -v "$2") >/run/said 2>&1; }
domain() { [ "$(virsh domstate demo | head -1)" = "$1" ]; }
warned() { firstlight-pool check --config /etc/firstlight/pool.toml | grep 'after a reboot'; }
walked_as_the_page_says() {
    local daemon guest
    virsh define /dev/stdin >/dev/null <<DOMAIN
<domain type='qemu'><name>demo</name><memory unit='GiB'>1</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type='usb' model='none'/></devices></domain>
DOMAIN
    page 1
    state service inactive
    state socket inactive
    grep -qv '^#' /etc/sysctl.d/firstlight-pool.conf && return 1
    warned >/dev/null
    page 2
    free_pages 1024
    page 3
    page 4
    grep -q '1 pool, 2 slabs of 2 GiB in all' /run/said
    warned && return 1
    page 5
    until_so clean 2
    page 6
    domain running
    grep -q 'runs on 1 GiB of the pool' /run/said
    sed 's/^/   /' /run/said
    page 7
    grep -q '^firstlight_pool_up 1$' /run/said
    daemon=$(pid)
    guest=$(cat /run/libvirt/qemu/demo.pid)
    page 8
    [ "$(pid)" != "$daemon" ]
    [ "$(cat /run/libvirt/qemu/demo.pid)" = "$guest" ]
    grep -q 'runs on 1 GiB of the pool' /run/said
    until_so clean 1
    has '.counters.zeroed_bytes' 0
    page 9
    [ ! -e "/page/operator/$((blocks + 1))" ]
    free_pages 0
    [ ! -e /etc/sysctl.d/firstlight-pool.conf ]
    nothing_is_left
    # The domain starts as it did before.
    virsh start demo >/dev/null
    domain running
    virsh destroy demo >/dev/null
    virsh undefine demo >/dev/null
    mv /usr/bin/qemu-system-x86_64 /usr/bin/other-qemu
    echo 64 >/proc/sys/vm/nr_hugepages
    free_pages 64
}

# Over the package of before, when one had the pool and the rest.
installed() {
    # The administrator's, whose last line has no end.
    mkdir -p "${profile%/*}"
    printf '# mine' >"$profile"
    dpkg -i /packages/before.deb >/dev/null
    dpkg --auto-deconfigure -i /packages/old.deb /packages/lab.deb >/dev/null
    dpkg -S /usr/bin/firstlight-pool | grep -q '^firstlight-pool:'
    dpkg --purge firstlight >/dev/null
    [ "$(cat "$profile")" = "$(printf '# mine\ninclude if exists <abstractions/firstlight-pool>')" ]
    state service inactive
    state socket inactive
    # What the exporter's unit is a member of may see all, without a word of the administrator's.
    grep -q '^observers = "firstlight-observers"$' /etc/firstlight/pool.toml
    getent group firstlight-observers >/dev/null
    [ "$(stat -c %h /usr/bin/firstlight-qemu-system-x86_64)" = 2 ]
}

# The first client starts the daemon, and waits for its first memory.
activated_by_the_first_client() {
    config 2 16M
    systemctl enable --now firstlight-pool.socket
    state service inactive
    machine first
    state service active
    until_so allocated 1
    until_so clean 1
}

restarted_with_a_lease() {
    local before
    before=$(pid)
    systemctl restart firstlight-pool.service
    [ "$(pid)" != "$before" ]
    until_so allocated 1
    # The clean slab came along, so nothing is zeroed.
    clean 1
    has '.counters.zeroed_bytes' 0
    has '.pools[0].unknown_slabs' 0
}

killed_with_a_lease() {
    local before
    before=$(pid)
    kill -KILL "$before"
    until_so allocated 1
    [ "$(pid)" != "$before" ]
    clean 1
    has '.pools[0].unknown_slabs' 0
}

reloaded() {
    local before
    before=$(pid)
    config 1 16M
    systemctl reload firstlight-pool.service
    until_so has '.pools[0].wanted_slabs' 1
    echo nonsense >/etc/firstlight/pool.toml
    systemctl reload firstlight-pool.service && return 1
    until_so said firstlight-pool.service 'line 1'
    has '.pools[0].wanted_slabs' 1
    config 2 16M
    systemctl reload firstlight-pool.service
    until_so clean 1
    [ "$(pid)" = "$before" ]
    allocated 1
}

# Both units as installed: the exporter's user reads the status, before the daemon is there too.
exported() {
    systemctl start firstlight-pool-export.service
    until_so shows 'firstlight_pool_up 1'
    systemctl stop firstlight-pool.service
    # Connecting starts it again.
    until_so shows 'firstlight_pool_up 1'
    # The exporter's group is in its list; where there are no lists, any user may connect.
    [[ "$(stat -c %a /run/firstlight/pool.sock)" =~ ^66[06]$ ]]
    systemctl stop firstlight-pool.socket firstlight-pool.service
    shows 'firstlight_pool_up 0'
    said firstlight-pool-export.service 'no pool answers'
    systemctl start firstlight-pool.socket
    until_so shows 'firstlight_pool_up 1'
    systemctl stop firstlight-pool-export.service
    # With the service systemd lets go of the memory: what the machine has is unknown until it ends.
    until_so clean 1
    has '.pools[0].unknown_slabs' 1
    end_machine first
    until_so clean 2
    machine first
    until_so clean 1
    allocated 1
}
shows() {
    exec 3<>/dev/tcp/127.0.0.1/9464
    printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n' >&3
    grep -q "^$1" <&3
}

upgraded_with_a_lease_while_a_slab_is_half_filled() {
    local before
    before=$(pid)
    config 2 256K
    systemctl reload firstlight-pool.service
    machine second
    end_machine second
    # The slab that came back is emptied; another takes two minutes to fill.
    until_so has '.pools[0].filling_slabs' 1
    allocated 1
    dpkg -i /packages/new.deb >/dev/null
    [ "$(pid)" != "$before" ]
    until_so allocated 1
    has '.pools[0].clean_slabs' 0
    # The half that was zeroed is nowhere: a lease of 16 pages, the rest is free or being filled.
    config 2 0
    systemctl reload firstlight-pool.service
    until_so clean 1
    until_so free_pages 32
    end_machine first
    until_so clean 2
    until_so free_pages 32
    has '.pools[0].unknown_slabs' 0
}

# With a wrong configuration the package is installed, and the earlier daemon goes on.
installed_again_with_a_wrong_configuration() {
    local before
    before=$(pid)
    echo nonsense >/etc/firstlight/pool.toml
    echo '# mine' >"$profile"
    dpkg -i /packages/new.deb 2>/run/said >/dev/null
    grep -q 'the earlier version goes on' /run/said
    [ "$(dpkg-query -W -f '${db:Status-Status}' firstlight-pool)" = installed ]
    [ "$(pid)" = "$before" ]
    # The administrator took the line out, so it stays out, until libvirt comes.
    [ "$(cat "$profile")" = '# mine' ]
    dpkg-trigger --no-await --by-package=apparmor /etc/apparmor.d/abstractions/libvirt-qemu
    dpkg --triggers-only firstlight-pool
    grep -q '^include if exists <abstractions/firstlight-pool>$' "$profile"
    config 2 0
    systemctl reload firstlight-pool.service
}

watched() {
    local before
    mkdir -p /run/systemd/system/firstlight-pool.service.d
    printf '[Service]\nWatchdogSec=3\n' >/run/systemd/system/firstlight-pool.service.d/watchdog.conf
    systemctl daemon-reload
    systemctl restart firstlight-pool.service
    machine first
    before=$(pid)
    kill -STOP "$before"
    until_so test ! -e "/proc/$before"
    until_so allocated 1
    [ "$(pid)" != "$before" ]
    systemctl show -P NRestarts firstlight-pool.service | grep -qx 1
    rm -r /run/systemd/system/firstlight-pool.service.d
    systemctl daemon-reload
    end_machine first
    until_so clean 2
}

# A stopped daemon is started by the next client, as the socket listens; a drained one is not.
stopped() {
    systemctl stop firstlight-pool.service
    free_pages 64
    state socket active
    machine first
    state service active
    until_so allocated 1
}

# A VMM under the confinement that libvirt gives its domains: the package's part of the profile
# lets it have slabs both ways, and without that part it has none.
confined_by_apparmor() {
    local part kind
    end_machine first
    until_so clean 2
    # It finds its file or makes one, and touches it.
    cat >/usr/bin/qemu-system-x86_64 <<'PERL'
#!/usr/bin/perl
my ($path) = "@ARGV" =~ /mem-path=([^,]*)/;
my ($file, $name, $none) = (undef, "memory", 0);
if ($path) {
    open($file, "+<", $path) or die "$path: $!";
} else {
    my $made = syscall(319, $name, $none);
    open($file, "+<&=", $made) or die "memfd: $!";
    truncate($file, 32 << 20) or die "length: $!";
}
print "pages of ", (stat $file)[11], "\n";
PERL
    chmod 755 /usr/bin/qemu-system-x86_64
    for part in '' 'include <abstractions/firstlight-pool>'; do
        cat >/run/guest.profile <<PROFILE
include <tunables/global>
profile guest flags=(attach_disconnected) {
  include <abstractions/base>
  include <abstractions/consoles>
  $part
  /usr/bin/{qemu-system-x86_64,perl} rmix,
  @{PROC}/@{pid}/** r,
}
PROFILE
        apparmor_parser --replace --skip-cache /run/guest.profile
        for kind in ram memfd; do
            aa-exec -p guest -- /usr/bin/firstlight-qemu-system-x86_64 -m 32 -machine q35,memory-backend=m \
                -object "memory-backend-$kind,id=m,size=32M,share=on" >/run/said 2>&1 || true
            sed "s/^/   $kind: /" /run/said
            [ -n "$part" ] || { grep -q 'Permission denied' /run/said; continue; }
            grep -q 'from the pool' /run/said
            grep -q 'pages of 2097152' /run/said
            until_so clean 2
        done
    done
    rm /usr/bin/qemu-system-x86_64
    machine first
}

# QEMU diverted, as docs/pool-doors.md has it for OpenStack: a domain that names no emulator, and is gone when it ends.
diverted() {
    end_machine first
    until_so clean 2
    mv /usr/bin/other-qemu /usr/bin/qemu-system-x86_64
    commands doors 1
    virsh create /dev/stdin >/dev/null <<DOMAIN
<domain type='qemu'><name>nova</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
<devices><controller type='usb' model='none'/></devices></domain>
DOMAIN
    [ "$(virsh domstate nova | head -1)" = running ]
    allocated 1
    [ "$(readlink "/proc/$(cat /run/libvirt/qemu/nova.pid)/exe")" = /usr/libexec/qemu-system-x86_64 ]
    virsh dumpxml nova | grep -q '<emulator>/usr/bin/qemu-system-x86_64</emulator>'
    virsh destroy nova >/dev/null
    until_so clean 2
    commands doors 2
    /usr/bin/qemu-system-x86_64 --version >/dev/null
    [ ! -e /usr/libexec/qemu-system-x86_64 ]
    mv /usr/bin/qemu-system-x86_64 /usr/bin/other-qemu
    machine first
}

drained() {
    local before
    before=$(pid)
    firstlight-pool drain
    [ "$(pid)" = "$before" ]
    firstlight-pool run --require --memory 32M -- true '{memory}' && return 1
    end_machine first
    until_so state service inactive
    until_so state socket inactive
    firstlight-pool status && return 1
    sleep 1
    state service inactive
    free_pages 64
    systemctl start firstlight-pool.socket
    until_so clean 2
}

wrongly_configured() {
    systemctl stop firstlight-pool.service
    echo 'sise = 5' >/etc/firstlight/pool.toml
    for _ in 1 2 3 4 5 6 7 8; do
        firstlight-pool run --require --memory 32M -- true '{memory}' && return 1
    done
    until_so state service failed
    [ "$(systemctl show -P ExecMainStatus firstlight-pool.service)" = 9 ]
    [ "$(systemctl show -P NRestarts firstlight-pool.service)" = 0 ]
    state socket active
    # Once it is right, the next client is served.
    config 2 0
    machine first
    state service active
    end_machine first
}

# A daemon that fails for another reason is started again once a second, no sooner, and comes
# back when the reason is gone: systemd before 254 knows no steps between two starts.
failing() {
    local before after
    systemctl stop firstlight-pool.socket firstlight-pool.service
    config 2 0
    # Others could have it mount anywhere.
    mkdir -p /run/firstlight/pool
    chmod 777 /run/firstlight/pool
    systemctl start firstlight-pool.socket
    firstlight-pool status && return 1
    until_so restarted_at_least 2
    before=$(restarts)
    sleep 10
    after=$(restarts)
    echo "   starts in 10 s: $((after - before))"
    [ $((after - before)) -le 11 ]
    chmod 700 /run/firstlight/pool
    until_so state service active
    until_so clean 2
    state socket active
}
restarts() { systemctl show -P NRestarts firstlight-pool.service; }
restarted_at_least() { [ "$(restarts)" -ge "$1" ]; }

# Two nodes: each is filled by a thread of its own, on its CPU, at a rate of its own, and a class
# without a node takes pages of both in turn.
spread_over_nodes() {
    local node thread
    [ "$(node_pages 0) $(node_pages 1)" = "16 16" ]
    config 2 4M
    for node in 0 1; do
        printf '[[class]]\npage = "2M"\nsize = "16M"\nslabs = 1\nnode = %s\n' $node
    done >>/etc/firstlight/pool.toml
    systemctl reload firstlight-pool.service
    until_so has '[.pools[] | select(.node != null) | .filling_slabs] == [1, 1]' true
    for node in 0 1; do
        thread=$(grep -lx "fill-$node" /proc/"$(pid)"/task/*/comm)
        grep -q "^Cpus_allowed_list:[[:space:]]*$node\$" "${thread%comm}status"
    done
    until_so has '[.pools[] | select(.node != null) | .clean_slabs] == [1, 1]' true
    [ "$(node_pages 0) $(node_pages 1)" = "8 8" ]
    # What a guest gets is of the node that it names.
    systemd-run --quiet --unit=bound -p Type=exec firstlight-pool run --require --memory 16M@1 -- \
        sh -c 'exec sleep 1000 <{memory}'
    until_so has '[.pools[] | select(.node != null) | .allocated_slabs] == [0, 1]' true
    systemctl stop bound
    config 2 0
    systemctl reload firstlight-pool.service
    until_so free_pages 32
}
node_pages() { cat "/sys/devices/system/node/node$1/hugepages/hugepages-2048kB/free_hugepages"; }

# A cgroup that waits for its own limit pauses nothing, though the machine's figure counts it.
filled_beside_a_throttled_cgroup() {
    config 0 4M
    sed -i 's/^pause_at_pressure.*/pause_at_pressure = 10/' /etc/firstlight/pool.toml
    systemctl restart firstlight-pool.service
    systemd-run --quiet --unit=throttled -p MemoryHigh=16M perl -e \
        'my @m; while (1) { push @m, "x" x 65536; splice @m, 0, 1 if @m > 1024; }'
    until_so pressed
    sed -i 's/^slabs.*/slabs = 2/' /etc/firstlight/pool.toml
    systemctl reload firstlight-pool.service
    until_so has '.pools[0].filling_slabs' 1
    until_so clean 2
    has '.gauges.paused' false
    pressed
    sed 's/^/   /' /proc/pressure/memory
    systemctl stop throttled
}
pressed() { [ "$(sed -n 's/^some avg10=\([0-9]*\).*/\1/p' /proc/pressure/memory)" -ge 10 ]; }

# Where all CPUs are busy an ordinary thread of the least weight gets on.
filled_on_busy_cpus() {
    local cpu begin
    for cpu in 0 1 2; do
        systemd-run --quiet --unit="busy-$cpu" sh -c 'while :; do :; done'
    done
    config 0 0
    sed -i 's/^rate.*/&\nnice = 19/' /etc/firstlight/pool.toml
    systemctl restart firstlight-pool.service
    sed -i 's/^slabs.*/slabs = 2/' /etc/firstlight/pool.toml
    begin=$SECONDS
    systemctl reload firstlight-pool.service
    until_so clean 2
    echo "   64 MiB in $((SECONDS - begin)) s"
    systemctl stop 'busy-*'
    config 2 0
    systemctl restart firstlight-pool.service
    until_so clean 2
    machine first
}

removed_and_purged() {
    dpkg --remove firstlight-pool
    state service inactive
    state socket inactive
    # A machine that runs keeps its memory, and nothing else is left.
    until_so free_pages 48
    [ -e /etc/firstlight/pool.toml ]
    end_machine first
    until_so free_pages 64
    dpkg --purge firstlight-pool
    [ "$(cat "$profile")" = '# mine' ]
    nothing_is_left
}
nothing_is_left() {
    [ ! -e /etc/firstlight ]
    [ ! -e /run/firstlight ]
    [ ! -e /etc/systemd/system/sockets.target.wants/firstlight-pool.socket ]
    [ -z "$(systemctl list-units --all --plain --no-legend 'firstlight*')" ]
    ! grep -q 'hugetlbfs.*firstlight' /proc/mounts || return 1
}

groupadd --system kvm 2>/dev/null || true
for step in walked_as_the_page_says installed activated_by_the_first_client restarted_with_a_lease killed_with_a_lease \
    reloaded exported upgraded_with_a_lease_while_a_slab_is_half_filled installed_again_with_a_wrong_configuration watched stopped confined_by_apparmor diverted drained \
    wrongly_configured failing spread_over_nodes filled_beside_a_throttled_cgroup filled_on_busy_cpus removed_and_purged; do
    begin=$SECONDS
    $step
    echo "ok $step, $((SECONDS - begin)) s"
done
echo "all is well"

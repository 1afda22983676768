//! Starts that the pool has nothing for, and questions that are none.

use crate::libvirt::kit::{Domain, EMULATOR, Host, QEMU};

const MIB: u64 = 128;

fn domain<'d>(name: &'d str, memory: &'d str) -> Domain<'d> {
    Domain {
        name,
        emulator: EMULATOR,
        mib: MIB,
        memory,
    }
}

/// Starts a domain that gets nothing of the pool; what its log says.
fn ordinary(host: &Host, name: &str, memory: &str) -> String {
    host.define(domain(name, memory));
    host.virsh(&["start", name]);
    assert_eq!(host.leases(), [0; 0], "{name}");
    let log = host.log(name);
    host.virsh(&["destroy", name]);
    log
}

#[test]
fn the_kernels_memory_where_a_slab_would_be_wrong() {
    let Some(host) = Host::new(MIB) else { return };
    host.start_pool(MIB, 1);
    let file = "<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>";
    let log = ordinary(&host, "file", file);
    assert!(
        log.contains(
            "memory backend pc.ram: its file /var/lib/libvirt/qemu/ram/1-file/pc.ram is for others"
        ),
        "{log}"
    );
    assert!(
        log.contains("; starting the ordinary way, on the kernel's memory"),
        "{log}"
    );

    let spread = "<numatune><memory mode='interleave' nodeset='0'/></numatune>";
    let log = ordinary(&host, "spread", spread);
    assert!(
        log.contains("policy=interleave spreads the memory"),
        "{log}"
    );
}

#[test]
fn without_memory_or_daemon_a_domain_starts_as_before() {
    let Some(host) = Host::new(MIB) else { return };
    host.start_pool(MIB, 1);
    host.define(domain("first", ""));
    host.define(domain("second", ""));
    host.virsh(&["start", "first"]);
    host.virsh(&["start", "second"]);
    assert_eq!(host.leases(), [MIB]);
    let log = host.log("second");
    assert!(log.contains("the pool refuses (empty)"), "{log}");
    host.virsh(&["destroy", "second"]);

    host.settings("[emulator]\nrequire = true\n");
    host.does_not_start("second", "the pool refuses (empty)");

    host.settings("[emulator]\nrequire = 5\n");
    host.virsh(&["destroy", "first"]);
    host.stop_pool();
    // It may say that the pool is required.
    let why = "client.toml, line 3: invalid type: integer `5`";
    host.does_not_start("second", why);

    host.settings("[emulator]\nrequire = false\n");
    host.virsh(&["start", "second"]);
    let log = host.log("second");
    assert!(
        log.contains("no pool answers at /run/elsewhere/pool.sock"),
        "{log}"
    );
}

#[test]
fn domains_that_are_not_enabled_have_huge_pages_as_without_the_pool() {
    let Some(host) = Host::new(2 * MIB) else {
        return;
    };
    host.start_pool(MIB, 1);
    // libvirt looks for mounts when it starts.
    host.stop_libvirtd();
    host.start_libvirtd();
    host.define(Domain {
        emulator: QEMU,
        ..domain("other", "<memoryBacking><hugepages/></memoryBacking>")
    });
    host.virsh(&["start", "other"]);
    assert_eq!(host.virsh(&["domstate", "other"]).trim(), "running");
    assert_eq!(host.leases(), [0; 0]);
}

#[test]
fn a_domain_waits_for_memory_where_the_settings_say_so() {
    let Some(host) = Host::new(MIB) else { return };
    host.settings("[emulator]\nrequire = true\nwait_s = 60\n");
    host.start_pool(MIB, 1);
    host.define(domain("first", ""));
    host.define(domain("second", ""));
    host.virsh(&["start", "first"]);
    let mut waits = host.command(&["virsh", "start", "second"]).spawn().unwrap();
    host.until("the second is refused once", |host| {
        host.pool()["counters"]["misses"]["empty"].as_u64().unwrap() > 0
    });
    host.virsh(&["destroy", "first"]);
    assert!(waits.wait().unwrap().success());
    assert_eq!(host.state("second")["pool_bytes"], MIB << 20);
}

#[test]
fn what_libvirt_wants_to_know_is_qemus_own_answer() {
    let Some(host) = Host::new(2) else { return };
    let capabilities = |emulator| {
        let text = host.virsh(&[
            "domcapabilities",
            "--emulatorbin",
            emulator,
            "--virttype",
            "qemu",
        ]);
        text.replace(emulator, "QEMU")
    };
    assert_eq!(capabilities(EMULATOR), capabilities(QEMU));
    for words in [["-version"], ["-help"], ["-machine=help"]] {
        assert_eq!(
            host.try_run(&[&[EMULATOR], &words[..]].concat()).1,
            host.try_run(&[&[QEMU], &words[..]].concat()).1
        );
    }
}

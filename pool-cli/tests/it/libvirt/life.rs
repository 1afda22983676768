//! A domain's life on memory of the pool, from define to destroy.

use crate::libvirt::kit::{Domain, EMULATOR, Host};

/// MiB of each guest.
const MIB: u64 = 128;

const HUGE: &str = "<memoryBacking><hugepages/></memoryBacking>";
const SHARED: &str =
    "<memoryBacking><hugepages/><source type='memfd'/><access mode='shared'/></memoryBacking>";
const CELLS: &str = "<maxMemory slots='4' unit='MiB'>1024</maxMemory>\
    <numatune><memnode cellid='0' mode='strict' nodeset='0'/></numatune>\
    <memoryBacking><hugepages/></memoryBacking>\
    <cpu><numa><cell id='0' cpus='0' memory='128' unit='MiB' memAccess='private'/></numa></cpu>";

fn domain<'d>(name: &'d str, memory: &'d str) -> Domain<'d> {
    Domain {
        name,
        emulator: EMULATOR,
        mib: MIB,
        memory,
    }
}

/// A host with a pool of two slabs, and huge pages for nothing else.
fn host() -> Option<Host> {
    let host = Host::new(2 * MIB)?;
    host.start_pool(MIB, 2);
    Some(host)
}

#[test]
fn every_kind_of_backing_gets_the_pools_memory() {
    let Some(host) = host() else { return };
    let private = SHARED.replace("shared", "private");
    let anonymous =
        "<memoryBacking><source type='anonymous'/><allocation mode='immediate'/></memoryBacking>";
    for (name, memory, note, beside) in [
        ("plain", "", "", false),
        ("huge", HUGE, "", false),
        ("memfd", SHARED, "", true),
        (
            "private",
            &private,
            "share=off of pc.ram becomes share=on",
            false,
        ),
        ("anonymous", anonymous, "", false),
        (
            "cells",
            CELLS,
            "share=off of ram-node0 becomes share=on",
            false,
        ),
    ] {
        host.define(domain(name, memory));
        host.virsh(&["start", name]);
        assert_eq!(host.leases(), [MIB], "{name}");
        assert_eq!(host.state(name)["pool_bytes"], MIB << 20, "{name}");
        let files = host.shared_files(name);
        assert!(
            matches!(files.as_slice(), [(file, MIB)] if file.starts_with("/any-")),
            "{name}: {files:?}"
        );
        let log = host.log(name);
        assert!(
            log.contains("128 MiB from the pool: 2M pages"),
            "{name}: {log}"
        );
        assert!(log.contains(note), "{name}: {log}");
        let injector = host.try_run(&["pgrep", "-f", "^firstlight.* injector$"]).0;
        assert_eq!(injector, beside, "{name}");

        host.virsh(&["destroy", name]);
        host.until_clean(2);
        assert_eq!(
            host.leases(),
            [0; 0],
            "{name}: the lease ended with the guest"
        );
        host.until("nothing is left beside it", |host| {
            !host.try_run(&["pgrep", "-f", "^firstlight.* injector$"]).0
        });
        host.virsh(&["undefine", name]);
    }
}

#[test]
fn two_cells_get_two_slabs() {
    let Some(host) = host() else { return };
    let memory = "<memoryBacking><hugepages/></memoryBacking><cpu><numa>\
        <cell id='0' cpus='0' memory='128' unit='MiB'/><cell id='1' memory='128' unit='MiB'/>\
        </numa></cpu>";
    host.define(Domain {
        mib: 2 * MIB,
        ..domain("two", memory)
    });
    host.virsh(&["start", "two"]);
    assert_eq!(host.leases(), [MIB, MIB]);
    assert_eq!(host.state("two")["pool_bytes"], (2 * MIB) << 20);
    host.virsh(&["destroy", "two"]);
    host.until_clean(2);
}

#[test]
fn memory_that_is_plugged_in_is_the_kernels_until_the_next_start() {
    let Some(host) = host() else { return };
    let small = CELLS.replace("<memoryBacking><hugepages/></memoryBacking>", "");
    host.define(domain("dimm", &small));
    host.virsh(&["start", "dimm"]);
    let dimm =
        "<memory model='dimm'><target><size unit='MiB'>128</size><node>0</node></target></memory>";
    host.write("/run/dimm.xml", dimm);
    host.virsh(&[
        "attach-device",
        "dimm",
        "/run/dimm.xml",
        "--live",
        "--config",
    ]);
    assert_eq!(host.leases(), [MIB], "{}", host.log("dimm"));
    let notes = host.state("dimm")["notes"].to_string();
    assert!(
        notes.contains("memory devices (DIMMs) have the kernel's memory"),
        "{notes}"
    );

    // The next start has the DIMM on its command line: it is from the pool, too.
    host.virsh(&["destroy", "dimm"]);
    host.until_clean(2);
    host.virsh(&["start", "dimm"]);
    assert_eq!(host.leases(), [MIB, MIB], "{}", host.log("dimm"));
}

/// The guest's first MiB: tables and data of its firmware.
fn first_mib(host: &Host, name: &str) -> Vec<u8> {
    let file = "/var/lib/libvirt/qemu/first";
    let save = format!("pmemsave 0 0x100000 \"{file}\"");
    host.run(&["rm", "-f", file]);
    host.virsh(&["qemu-monitor-command", name, "--hmp", &save]);
    host.command(&["cat", file]).output().unwrap().stdout
}

#[test]
fn a_guest_that_is_saved_comes_back_on_other_slabs_with_its_memory() {
    let Some(host) = host() else { return };
    for (name, memory) in [("saved", HUGE), ("injected", SHARED)] {
        host.define(domain(name, memory));
        host.virsh(&["start", name]);
        host.until("its firmware has run", |host| {
            let first = first_mib(host, name);
            first.iter().filter(|byte| **byte != 0).count() > 100
        });
        host.virsh(&["suspend", name]);
        let before = first_mib(&host, name);

        host.virsh(&["save", name, "/var/lib/libvirt/state"]);
        host.until_clean(2);
        host.virsh(&["restore", "/var/lib/libvirt/state", "--paused"]);
        assert_eq!(host.leases(), [MIB], "{name}");
        assert!(first_mib(&host, name) == before, "{name}: other memory");

        host.virsh(&["managedsave", name]);
        host.until_clean(2);
        host.virsh(&["start", name, "--paused"]);
        assert_eq!(host.leases(), [MIB], "{name}");
        assert!(first_mib(&host, name) == before, "{name}: other memory");
        host.virsh(&["resume", name]);
        host.virsh(&["destroy", name]);
        host.until_clean(2);
    }
}

#[test]
fn a_guest_runs_on_while_libvirtd_is_restarted() {
    let Some(host) = host() else { return };
    for (name, memory) in [("huge", HUGE), ("memfd", SHARED)] {
        host.define(domain(name, memory));
        host.virsh(&["start", name]);
        host.stop_libvirtd();
        host.start_libvirtd();
        assert_eq!(host.virsh(&["domstate", name]).trim(), "running");
        assert_eq!(host.state(name)["pool_bytes"], MIB << 20);
        host.virsh(&["qemu-monitor-command", name, "--hmp", "info status"]);
        host.virsh(&["destroy", name]);
        host.until_clean(2);
    }
}

#[test]
fn a_guest_runs_on_while_the_pool_is_restarted() {
    let Some(host) = host() else { return };
    host.define(domain("guest", HUGE));
    host.virsh(&["start", "guest"]);
    host.stop_pool();
    host.start_pool_again();
    assert_eq!(host.virsh(&["domstate", "guest"]).trim(), "running");
    // Without a service manager to keep it, the slab is known to exist and no more.
    assert_eq!(host.pool()["pools"][0]["unknown_slabs"], 1);
    first_mib(&host, "guest");
    host.define(domain("another", ""));
    host.until_clean(1);
    host.virsh(&["start", "another"]);
    assert_eq!(host.state("another")["pool_bytes"], MIB << 20);
    host.virsh(&["destroy", "guest"]);
    host.virsh(&["destroy", "another"]);
    host.until_clean(2);
    assert_eq!(host.pool()["pools"][0]["unknown_slabs"], 0);
}

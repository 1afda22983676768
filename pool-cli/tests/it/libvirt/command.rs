//! `firstlight-pool libvirt`: what becomes of a domain's definition.

use crate::libvirt::kit::{Domain, EMULATOR, Host, QEMU};

fn domain<'d>(emulator: &'d str, memory: &'d str) -> Domain<'d> {
    Domain {
        name: "demo",
        emulator,
        mib: 64,
        memory,
    }
}

fn libvirt(word: &str) -> [&str; 4] {
    ["firstlight-pool", "libvirt", word, "demo"]
}

fn definition(host: &Host) -> String {
    host.virsh(&["dumpxml", "--inactive", "--security-info", "demo"])
}

#[test]
fn a_domain_is_enabled_and_is_as_it_was_when_disabled() {
    let Some(host) = Host::new(128) else { return };
    host.start_pool(64, 2);
    let graphics = "<memoryBacking><hugepages/></memoryBacking><description>a &lt; b</description>";
    host.define(domain(QEMU, graphics));
    let before = definition(&host);
    assert_eq!(host.state("demo")["enabled"], false);

    let said = host.run(&libvirt("enable"));
    assert_eq!(said, format!("demo: enabled, {QEMU} became {EMULATOR}\n"));
    assert_eq!(definition(&host), before.replace(QEMU, EMULATOR));
    assert_eq!(
        host.run(&libvirt("enable")),
        format!("demo: enabled, {EMULATOR}\n")
    );
    host.virsh(&["start", "demo"]);
    let said = host.run(&libvirt("status"));
    assert_eq!(
        said,
        format!("demo: enabled, {EMULATOR}\n  runs on 64 MiB of the pool\n")
    );

    let said = host.run(&libvirt("disable"));
    assert!(
        said.contains("it runs on as it is; its next start uses this"),
        "{said}"
    );
    assert_eq!(definition(&host), before);
    host.virsh(&["managedsave", "demo"]);
    let said = host.run(&libvirt("enable"));
    assert!(
        said.contains("note: its saved state starts with the emulator"),
        "{said}"
    );
}

#[test]
fn a_definition_that_is_not_understood_stays_as_it_is() {
    let Some(host) = Host::new(2) else { return };
    host.run(&["cp", "-a", QEMU, "/usr/bin/my-qemu"]);
    host.run(&["cp", "-a", QEMU, "/run/qemu-system-x86_64"]);
    for (emulator, memory, reason) in [
        (
            QEMU,
            "<memoryBacking><source type='file'/></memoryBacking>",
            "<source type='file'/> keeps its memory",
        ),
        (
            QEMU,
            "<numatune><memory mode='interleave' nodeset='0'/></numatune>",
            "spreads memory over nodes",
        ),
        (
            "/usr/bin/my-qemu",
            "",
            "its emulator is /usr/bin/my-qemu, expected a qemu-system-...",
        ),
        (
            "/run/qemu-system-x86_64",
            "",
            "there is no /run/firstlight-qemu-system-x86_64",
        ),
    ] {
        host.define(domain(emulator, memory));
        let before = definition(&host);
        let (done, _, stderr) = host.try_run(&libvirt("enable"));
        assert!(
            !done && stderr.contains("demo is left as it is: "),
            "{stderr}"
        );
        assert!(stderr.contains(reason), "{stderr}");
        assert_eq!(definition(&host), before);
        host.virsh(&["undefine", "demo"]);
    }
    let error = host.fails(&libvirt("enable"));
    assert!(
        error.contains("virsh: failed to get domain 'demo'"),
        "{error}"
    );
}

#[test]
fn a_domain_without_a_definition_is_left_alone() {
    let Some(host) = Host::new(2) else { return };
    host.define(domain(QEMU, ""));
    host.virsh(&["start", "demo"]);
    host.virsh(&["undefine", "demo"]);
    let error = host.fails(&libvirt("enable"));
    assert!(error.contains("it is gone when it ends"), "{error}");
    assert_eq!(
        host.virsh(&["list", "--all", "--name", "--persistent"])
            .trim(),
        ""
    );
}

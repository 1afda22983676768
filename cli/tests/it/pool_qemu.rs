//! `firstlight pool run` with real QEMU on real files: the VMM uses the
//! pool's memory and no other, the guest can use all of it, and the lease ends
//! with the VMM. Skipped with a line where there is no QEMU, or there are no
//! huge pages.

use crate::common;
use crate::common::guest;
use crate::common::stand_in;

use firstlight_pool::launch::{Backing, Plan};
use firstlight_pool::os::hugepages;
use firstlight_pool::os::need::skip;
use firstlight_pool::protocol::PageSize;
use guest::{QEMU, Qmp, image, qemu_is_here};
use serde_json::{Value, json};
use stand_in::StandIn;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const HUGE: u64 = 2 * MIB;

/// `pool run` with QEMU, its arguments separated by blanks.
fn command(daemon: &StandIn, options: &str, qemu: &str) -> Command {
    let socket = daemon.socket();
    let socket = socket.to_str().expect("a plain name");
    let mut arguments = vec!["pool", "run", "--require", "--socket", socket];
    arguments.extend(options.split_whitespace());
    arguments.extend(["--", QEMU, "-display", "none", "-nodefaults"]);
    arguments.extend(qemu.split_whitespace());
    common::command(&arguments)
}

/// The backends of a stopped guest, by name: size, shared, touched beforehand; and
/// QEMU's mappings.
fn backends(
    daemon: &StandIn,
    options: &str,
    qemu: &str,
) -> (Vec<(String, u64, bool, bool)>, String) {
    let mut qmp = Qmp::start(&mut command(
        daemon,
        options,
        &format!("-S -qmp stdio {qemu}"),
    ));
    let Value::Array(rows) = qmp.ask("query-memdev") else {
        panic!("no rows");
    };
    let mut backends: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["id"].as_str().expect("a name").to_owned(),
                row["size"].as_u64().expect("a size"),
                row["share"] == json!(true),
                row["prealloc"] == json!(true),
            )
        })
        .collect();
    backends.sort();
    let maps = qmp.maps();
    assert_eq!(qmp.quit(), 0);
    (backends, maps)
}

#[test]
fn qemu_uses_the_files_however_its_memory_was_described() {
    if !qemu_is_here() {
        return;
    }
    let json = r#"-object {"qom-type":"memory-backend-memfd","id":"pc.ram","size":67108864,"share":true} -machine memory-backend=pc.ram"#;
    let nodes = "-smp 2 -object memory-backend-ram,id=a,size=32M -object memory-backend-ram,id=b,size=32M \
                 -numa node,memdev=a -numa node,memdev=b";
    let table = [
        ("--memory 64M", "", vec!["pc.ram"]),
        ("", "-m 64 -mem-path /dev/shm -mem-prealloc", vec!["pc.ram"]),
        ("", "-machine microvm -m 64", vec!["microvm.ram"]),
        ("", json, vec!["pc.ram"]),
        ("", &format!("-m 64M {nodes}"), vec!["a", "b"]),
        (
            "--memory 32M --memory 32M@0",
            "-smp 2",
            vec!["firstlight0", "firstlight1"],
        ),
        (
            "--memory 32M --memory 32M",
            "-smp 2 -numa node -numa node",
            vec!["firstlight0", "firstlight1"],
        ),
    ];
    for (options, qemu, ids) in table {
        let daemon = StandIn::new(PageSize::Transparent, ids.len(), 0);
        let size = 64 * MIB / ids.len() as u64;
        let expected: Vec<_> = ids
            .iter()
            .map(|id| ((*id).to_owned(), size, true, false))
            .collect();
        let (rows, maps) = backends(&daemon, options, qemu);
        assert_eq!(rows, expected, "{options} {qemu}");
        let allocated = daemon.allocated();
        assert_eq!(allocated.len(), ids.len());
        for one in allocated {
            assert_eq!(
                one.mapped_bytes(&maps),
                size,
                "QEMU mapped this file: {options} {qemu}"
            );
            assert!(one.ended_within(30), "the lease ends with QEMU");
        }
    }
}

#[test]
fn a_slab_may_be_larger_than_the_guest() {
    if !qemu_is_here() {
        return;
    }
    let daemon = StandIn::new(PageSize::Transparent, 1, 64 * MIB);
    let (rows, _) = backends(&daemon, "", "-m 65");
    assert_eq!(rows, [("pc.ram".to_owned(), 65 * MIB, true, false)]);
}

/// Waits until the migration of a stopped guest is done.
fn migrated(qmp: &mut Qmp) {
    for _ in 0..600 {
        let state = qmp.ask("query-migrate")["status"].clone();
        if state == "completed" {
            return;
        }
        assert_ne!(state, "failed");
        thread::sleep(Duration::from_millis(50));
    }
    panic!("the migration takes more than 30 s");
}

#[test]
fn what_is_saved_on_the_pool_loads_without_it_and_back() {
    if !qemu_is_here() {
        return;
    }
    for qemu in [
        "-m 32",
        "-M pc-i440fx-3.1 -m 32",
        "-M q35 -m 32M,slots=2,maxmem=1G",
        "-M q35 -m 32 -object memory-backend-ram,id=a,size=32M -machine memory-backend=a",
    ] {
        let daemon = StandIn::new(PageSize::Transparent, 2, 0);
        let saved = daemon.folder().join("saved");
        let saved = saved.to_str().expect("a plain name");
        let qemu = format!("-S -qmp stdio {qemu}");
        let start = |on_pool: bool, more: &[&str]| {
            let mut command = if on_pool {
                command(&daemon, "", &qemu)
            } else {
                let mut ordinary = Command::new(QEMU);
                ordinary.args(["-display", "none", "-nodefaults"]);
                ordinary.args(qemu.split_whitespace());
                ordinary
            };
            Qmp::start(command.args(more))
        };
        for on_pool in [true, false] {
            let mut source = start(on_pool, &[]);
            let uri = json!({"uri": format!("exec:cat > {saved}")});
            source.ask_with("migrate", &uri);
            migrated(&mut source);
            assert_eq!(source.quit(), 0);
            let mut target = start(!on_pool, &["-incoming", &format!("exec:cat {saved}")]);
            migrated(&mut target);
            assert_eq!(target.quit(), 0);
        }
        assert_eq!(
            daemon.allocated().len(),
            2,
            "one of each pair had the pool's"
        );
    }
}

#[test]
fn memory_has_the_name_that_each_machine_gives_it() {
    let mut known = 0;
    for processor in [
        "x86_64",
        "i386",
        "aarch64",
        "arm",
        "riscv64",
        "riscv32",
        "s390x",
        "ppc64",
        "loongarch64",
    ] {
        let program = format!("qemu-system-{processor}");
        if Command::new(&program).arg("--version").output().is_err() {
            continue;
        }
        let probe = ["-machine", "none", "-display", "none", "-qmp", "stdio"];
        let mut qmp = Qmp::start(Command::new(&program).args(probe));
        let machines = qmp.ask("query-machines");
        assert_eq!(qmp.quit(), 0);
        for machine in machines.as_array().expect("rows") {
            let name = machine["name"].as_str().expect("a name");
            let arguments = ["-M", name, "-m", "64"].map(Into::into);
            let plan = Plan::new(program.as_ref(), &arguments, &[], &|_| false);
            let backing = Backing {
                path: "/proc/self/fd/3".into(),
                align_bytes: None,
            };
            let line = plan.expect(name).with_memory(&[backing]);
            let line = line.join(" ".as_ref()).into_string().expect("text");
            let (_, named) = line.split_once("memory-backend=").expect("it is named");
            if named == "firstlight0" {
                assert!(
                    !["pc", "q35", "virt", "microvm"].contains(&name),
                    "{program} {name}"
                );
            } else {
                assert_eq!(named, machine["default-ram-id"], "{program} {name}");
                known += 1;
            }
        }
    }
    if known == 0 {
        skip("qemu", "no QEMU is installed");
    }
}

/// The image's self-test: every CPU writes to and checks memory of every node.
const SELF_TEST: &str = "-cpu max -no-reboot -append selftest \
                         -device isa-debug-exit,iobase=0xf4,iosize=4 -serial null -kernel";
/// QEMU's exit code when the self-test found nothing wrong.
const PASSED: Option<i32> = Some(85);

#[test]
fn a_guest_can_use_all_of_its_memory() {
    if !qemu_is_here() {
        return;
    }
    let Some(image) = image() else { return };
    let daemon = StandIn::new(PageSize::Transparent, 2, 0);
    let qemu = format!("-smp 2 {SELF_TEST} {image}");
    let status = command(&daemon, "--memory 96M --memory 64M", &qemu).status();
    assert_eq!(status.expect("it ran").code(), PASSED);
    assert!(daemon.allocated().iter().all(|one| one.ended_within(30)));
}

#[test]
fn a_guest_can_use_huge_pages_filled_beforehand() {
    if !qemu_is_here() {
        return;
    }
    let Some(image) = image() else { return };
    let _pages = match hugepages::SetAside::new(HUGE, 128) {
        Ok(pages) => pages,
        Err(error) => return skip("hugepages", error),
    };
    let daemon = StandIn::new(PageSize::Huge, 1, 0);
    let qemu = format!("-m 256M {SELF_TEST} {image}");
    let status = command(&daemon, "", &qemu).status();
    assert_eq!(status.expect("it ran").code(), PASSED);
    let allocated = daemon.allocated();
    assert!(allocated[0].ended_within(30));
    assert_eq!(
        allocated[0].held_bytes(),
        256 * MIB,
        "QEMU gave nothing back of its own"
    );
    let mut start = vec![0; 1 << 20];
    rustix::io::pread(&allocated[0].file, &mut start, MIB).expect("it can be read");
    assert!(
        start.iter().any(|byte| *byte != 0),
        "the guest wrote to this file"
    );
}

#[test]
fn a_lease_ends_with_a_daemonized_vmm_not_with_its_launcher() {
    if !qemu_is_here() {
        return;
    }
    let daemon = StandIn::new(PageSize::Transparent, 1, 0);
    let pid_file = daemon.folder().join("pid");
    let pid_file_name = pid_file.to_str().expect("a plain name");
    let qemu = format!("-m 64M -S -daemonize -pidfile {pid_file_name}");
    let status = command(&daemon, "", &qemu).status().expect("it ran");
    assert!(status.success());
    let allocated = daemon.allocated();
    assert!(
        !allocated[0].ended_within(1),
        "the daemonized VMM has the memory"
    );
    let pid = fs::read_to_string(&pid_file).expect("QEMU wrote its number");
    let killed = Command::new("kill").args(["-KILL", pid.trim()]).status();
    assert!(killed.expect("kill is there").success());
    assert!(allocated[0].ended_within(30), "no process has it any more");
}

/// Whether calls can be watched here; run in a process of its own, because a
/// filter stays.
fn injection_works(daemon: &StandIn) -> bool {
    let socket = daemon.socket();
    let socket = socket.to_str().expect("a plain name");
    let arguments = ["pool", "run", "--inject", "--require", "--socket", socket];
    let mut command = common::command(&arguments);
    let output = command.args(["--memory", "2M", "--", "true"]).output();
    let output = output.expect("the command runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        skip("seccomp", told);
    }
    output.status.success()
}

#[test]
fn a_memfd_of_an_unmodified_command_line_is_served() {
    let daemon = StandIn::new(PageSize::Transparent, 9, 0);
    if !qemu_is_here() || !injection_works(&daemon) {
        return;
    }
    let Some(image) = image() else { return };
    daemon.allocated();
    let memory = "-object memory-backend-memfd,id=a,size=96M -object memory-backend-memfd,id=x,size=2M \
                  -object memory-backend-memfd,id=b,size=64M,prealloc=on \
                  -m 160M -smp 2 -numa node,memdev=a -numa node,memdev=b";
    let qemu = format!("{memory} {SELF_TEST} {image}");
    let status = command(&daemon, "--inject", &qemu).status();
    assert_eq!(status.expect("it ran").code(), PASSED);
    let allocated = daemon.allocated();
    let asked: Vec<u64> = allocated.iter().map(|one| one.take.bytes).collect();
    assert_eq!(
        asked,
        [96 * MIB, 64 * MIB],
        "the third is not the guest's memory"
    );
    for one in &allocated {
        assert!(one.ended_within(30), "the lease ends with QEMU");
    }
    assert_eq!(
        allocated[1].held_bytes(),
        64 * MIB,
        "QEMU touched all of it"
    );
    let mut start = vec![0; 1 << 20];
    rustix::io::pread(&allocated[0].file, &mut start, MIB).expect("it can be read");
    assert!(
        start.iter().any(|byte| *byte != 0),
        "the guest wrote to this file"
    );
}

#[test]
fn a_larger_slab_is_injected_whole_and_daemonizing_is_no_hindrance() {
    let daemon = StandIn::new(PageSize::Transparent, 9, 32 * MIB);
    if !qemu_is_here() || !injection_works(&daemon) {
        return;
    }
    daemon.allocated();
    let pid_file = daemon.folder().join("pid");
    let name = pid_file.to_str().expect("a plain name");
    let qemu = format!(
        "-object memory-backend-memfd,id=a,size=64M,prealloc=on -machine memory-backend=a \
         -S -daemonize -pidfile {name}"
    );
    let status = command(&daemon, "--inject", &qemu)
        .status()
        .expect("it ran");
    assert!(status.success());
    let allocated = daemon.allocated();
    assert!(
        !allocated[0].ended_within(1),
        "the daemonized VMM has the memory"
    );
    assert_eq!(allocated[0].held_bytes(), 64 * MIB);
    let length = rustix::fs::fstat(&allocated[0].file).expect("ours").st_size;
    assert_eq!(length, 96 << 20, "the file keeps its size");
    let pid = fs::read_to_string(&pid_file).expect("QEMU wrote its number");
    let killed = Command::new("kill").args(["-KILL", pid.trim()]).status();
    assert!(killed.expect("kill is there").success());
    assert!(allocated[0].ended_within(30), "no process has it any more");
}

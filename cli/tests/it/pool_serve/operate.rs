//! What an operator changes while a daemon serves.

use super::kit::{Daemon, M, another_user, huge_pages, is_root, take, until};
use crate::common::schema;
use crate::fake_qemu;
use firstlight_pool::client::{Client, ClientError};
use firstlight_pool::os::hugepages;
use firstlight_pool::protocol::{FillChange, GrantRequest, Label, PageSize, RefusalCode, Resize};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const CLASS: &str = "[[class]] # ours\npage = \"thp\"\nsource = \"memfd\"\nsize = \"4M\"\n";

fn pool(daemon: &Daemon, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstlight"));
    let command = command.arg("pool").args(arguments);
    command
        .env("FIRSTLIGHT_POOL", daemon.socket())
        .output()
        .unwrap()
}

#[test]
fn a_new_size_stays_only_where_it_is_written_and_only_if_the_daemon_takes_it() {
    let daemon = Daemon::start(&format!("{CLASS}slabs = 1 # one\n"));
    daemon.until_clean(1);
    let path = daemon.path().join("pool.toml");
    let file = path.to_str().unwrap();
    let before = fs::read_to_string(&path).unwrap();
    let resize = ["resize", "--page", "thp", "--slabs", "2", "--size"];
    let refused = pool(
        &daemon,
        &[&resize[..], &["4M@999", "--persist", file]].concat(),
    );
    assert_eq!(refused.status.code(), Some(8), "{refused:?}");
    let volatile = pool(&daemon, &[&resize[..], &["4M"]].concat());
    assert!(volatile.status.success(), "{volatile:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    let kept = pool(&daemon, &[&resize[..], &["4M", "--persist", file]].concat());
    assert!(kept.status.success(), "{kept:?}");
    let expected = before.replace("slabs = 1 # one", "slabs = 2 # one");
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    let missing = pool(
        &daemon,
        &[&resize[..], &["4M", "--persist", "/nonexistent"]].concat(),
    );
    assert_eq!(missing.status.code(), Some(9), "{missing:?}");
    let left = fs::read_dir(daemon.path()).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        names
            .iter()
            .all(|name| !name.to_str().unwrap().starts_with(".tmp")),
        "{names:?}"
    );
}

/// Where the pool has all huge pages, one that fits no slab finds none, beside clean slabs.
#[test]
fn a_guest_whose_huge_pages_are_in_clean_slabs_is_told_which_command_gives_them_back() {
    let Some(_pages) = huge_pages(8) else { return };
    let daemon = Daemon::start("[[class]]\nsize = \"4M\"\nslabs = 4\n");
    daemon.until_clean(4);
    let free_pages = || {
        let seen = hugepages::counts(Path::new(hugepages::SYS), 2 << 20, None);
        let seen = seen.unwrap().unwrap();
        seen.available_pages()
    };
    let qemu = daemon.path().join("qemu-system-x86_64");
    fake_qemu::executable(&qemu, "#!/bin/sh\nexit 7\n");
    let before = free_pages();
    let start = |pages: u64, kind: &str| {
        let size = format!("{}M", (before + pages) * 2);
        let object = format!("{kind},id=m,size={size}");
        let qemu = qemu.to_str().unwrap();
        let line = [
            "run",
            "--topup",
            "0",
            "--",
            qemu,
            "-m",
            &size,
            "-machine",
            "memory-backend=m",
        ];
        let output = pool(&daemon, &[&line[..], &["-object", &object]].concat());
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let huge = "memory-backend-memfd,hugetlb=on";
    let said = start(3, huge);
    let expected = "huge pages of 2 MiB by itself, 6 MiB more than are free; 16 MiB of them are in \
                    clean slabs: `firstlight pool resize --size 4M --slabs 2` gives 2 slabs back";
    assert!(said.contains(expected), "{said}");
    assert!(start(100, huge).contains("too few: set more aside"));
    assert!(!start(3, "memory-backend-memfd").contains("clean slabs"));

    let resized = pool(&daemon, &["resize", "--size", "4M", "--slabs", "2"]);
    assert!(resized.status.success(), "{resized:?}");
    until("two slabs are given back", || free_pages() == before + 4);
    assert!(!start(3, huge).contains("clean slabs"), "enough are free");
}

#[test]
fn filling_is_turned_off_and_on_by_its_owner() {
    let daemon = Daemon::start(&format!("fill = {{ rate = \"0\" }}\n{CLASS}slabs = 0\n"));
    assert!(pool(&daemon, &["fill", "off"]).status.success());
    let resize = ["resize", "--page", "thp", "--size", "4M", "--slabs", "1"];
    assert!(pool(&daemon, &resize).status.success());
    until("the reason", || {
        let pools = daemon.status().pools;
        pools[0].trouble.as_deref() == Some("filling is turned off")
    });
    assert_eq!(daemon.status().pools[0].clean_bytes, 0);
    let on = pool(&daemon, &["fill", "on", "--rate", "1G", "--json"]);
    let on = schema::document(&on.stdout);
    assert_eq!(
        (&on["on"], &on["rate"]),
        (&true.into(), &(1_u64 << 30).into())
    );
    daemon.until_clean(1);
    assert_eq!(pool(&daemon, &["fill"]).status.code(), Some(2));
}

#[test]
fn a_drain_says_what_the_daemon_waits_for() {
    let mut daemon = Daemon::start(&format!("fill = {{ rate = \"0\" }}\n{CLASS}slabs = 2\n"));
    daemon.until_clean(2);
    let allocated = daemon.connect().take(take(1)).unwrap();
    let drained = pool(&daemon, &["drain"]);
    assert_eq!(
        String::from_utf8(drained.stdout).unwrap(),
        "4 MiB given back, 1 slab still allocated: the daemon ends with the last lease\n"
    );
    drop(allocated);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn an_observer_changes_nothing() {
    const OBSERVER: u32 = 65_032;
    if !is_root() {
        return;
    }
    let daemon = Daemon::start(&format!(
        "access = {{ observers = \"{OBSERVER}\" }}\n{CLASS}slabs = 1\n"
    ));
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(daemon.path(), open).unwrap();
    let socket = daemon.socket();
    let grant = || GrantRequest {
        page: PageSize::Transparent,
        node: None,
        size_class_bytes: 4 * M,
        uses: 1,
        label: Some(Label::new("shop/vm")),
    };
    let there = daemon.connect().grant(grant()).unwrap();
    another_user(OBSERVER, || {
        let mut open = Client::connect(&socket).unwrap();
        let fill = open.fill(FillChange {
            on: Some(false),
            rate: None,
        });
        let resize = open.resize(Resize {
            page: PageSize::Transparent,
            node: None,
            size_class_bytes: 4 * M,
            slabs: 0,
        });
        let grant = open.grant(grant());
        let revoke = open.revoke(there.grant);
        for refused in [
            fill.map(drop),
            resize.map(drop),
            grant.map(drop),
            revoke.map(drop),
        ] {
            let Err(ClientError::Refused(refusal)) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(refusal.code, RefusalCode::Denied);
        }
        let seen = open.status().unwrap().grants;
        let label = seen[0].label.as_ref().map(Label::as_str);
        assert_eq!((seen[0].grant, label), (there.grant, Some("shop/vm")));
    });
    assert_eq!(daemon.status().grants.len(), 1, "it is there");
}

/// Each slab that a client keeps open after its lease is a descriptor of the daemon's: others stay connected.
#[test]
fn memory_that_is_kept_open_shuts_nobody_out() {
    let daemon = Daemon::start(
        "fill = { rate = \"0\" }\n\
         [[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"2M\"\nslabs = 4\n",
    );
    let most = Rlimit {
        current: Some(256),
        maximum: Some(256),
    };
    let pid = Pid::from_raw(daemon.pid().cast_signed());
    prlimit(pid, Resource::Nofile, most).unwrap();
    let mut kept = Vec::new();
    let mut client = daemon.connect();
    until("nothing is filled any more", || {
        if let Ok(allocated) = client.take(take(1)) {
            client.give(allocated.lease.lease.clone()).unwrap();
            kept.push(allocated.memory);
        }
        let trouble = client.status().unwrap().pools[0].trouble.clone();
        trouble.is_some_and(|why| why.contains("LimitNOFILE="))
    });
    assert!(kept.len() > 64, "{}", kept.len());
    assert!(daemon.connect().status().is_ok(), "a connection is left");
    kept.clear();
    daemon.until_clean(4);
}

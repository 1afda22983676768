//! What the daemon does for clients that keep to the protocol.

use super::kit::{
    Daemon, M, another_user, fails, free_pages, huge_pages, is_root, mapped, take, take_soon,
    until, write_config,
};
use firstlight_pool::client::{Allocated, Client, ClientError};
use firstlight_pool::os::need::skip;
use firstlight_pool::protocol::{PageSize, RefusalCode, Resize, Take};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;

const TENANT: u32 = 65_031;

const SMALL: &str = "
    fill = { rate = \"0\" }
    [[class]]
    page = \"thp\"
    source = \"memfd\"
    size = \"4M\"
    slabs = 2
";

fn refused<T>(result: Result<T, ClientError>) -> RefusalCode {
    match result {
        Err(ClientError::Refused(refusal)) => refusal.code,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[test]
fn allocates_takes_back_and_fills_again() {
    let daemon = Daemon::start(SMALL);
    daemon.until_clean(2);
    let mut pool = daemon.connect();
    let allocated = pool.take(take(3 * M)).unwrap();
    assert_eq!(
        (allocated.lease.bytes, allocated.lease.topped_up_bytes),
        (4 * M, 0)
    );
    let mut memory = mapped(&allocated.memory, 4 * M);
    assert_eq!(memory.first_nonzero(), None);
    memory.write(7, b"mine");
    let row = daemon.status().pools[0].clone();
    assert_eq!(
        (row.allocated_slabs, row.clean_slabs, row.wanted_slabs),
        (1, 1, 2)
    );
    let status = daemon.status();
    assert_eq!(status.leases[0].pid, std::process::id());
    drop(memory);
    // The lease outlives the connection, and ends with its lease pipe.
    drop(pool);
    assert_eq!(daemon.status().leases.len(), 1);
    drop(allocated.lease_pipe);
    until("the lease ends", || daemon.status().leases.is_empty());
    drop(allocated.memory);
    daemon.until_clean(2);
    assert_eq!(daemon.status().counters.returns, 1);
}

#[test]
fn another_process_of_the_same_user_ends_a_lease_by_its_pipe_alone_and_reads_no_name() {
    if !super::kit::is_root() {
        return;
    }
    let daemon = Daemon::start(&format!(
        "{SMALL}[[quota]]\nuid = {TENANT}\nbytes = \"64M\"\n"
    ));
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(daemon.path(), open).unwrap();
    daemon.until_clean(1);
    let socket = daemon.socket();
    let connect = || another_user(TENANT, || Client::connect(&socket).unwrap());
    let (mut first, mut second) = (connect(), connect());
    let taken = first.take(take(1)).unwrap();
    let name = taken.lease.lease.clone();
    let seen = |pool: &mut Client| pool.status().unwrap().leases.remove(0).lease;
    assert_eq!(seen(&mut first), Some(name.clone()));
    assert_eq!(seen(&mut second), None);
    assert_eq!(seen(&mut daemon.connect()), Some(name.clone()));
    let code = refused(second.give(name.clone()));
    assert_eq!(code, RefusalCode::UnknownLease);
    assert_eq!(
        mapped(&taken.memory, taken.lease.bytes).first_nonzero(),
        None
    );
    rustix::io::write(&taken.lease_pipe, b"x").unwrap();
    until("the lease is over", || daemon.status().leases.is_empty());
}

#[test]
fn a_lease_ends_by_giving_it_back_once() {
    let daemon = Daemon::start(SMALL);
    daemon.until_clean(1);
    let mut pool = daemon.connect();
    let allocated = pool.take(take(1)).unwrap();
    let id = allocated.lease.lease.clone();
    pool.give(id.clone()).unwrap();
    assert_eq!(refused(pool.give(id)), RefusalCode::UnknownLease);
    until("a slab is back", || {
        daemon.status().pools[0].allocated_slabs == 0
    });
}

#[test]
fn the_daemon_says_when_it_listens_and_when_it_is_full() {
    let (_daemon, said) = Daemon::that_says(SMALL);
    assert_eq!(
        said.until("listening"),
        "firstlight pool: listening; 0 clean, 8M to be filled"
    );
    assert_eq!(said.until("filled: "), "firstlight pool: filled: 8M clean");
}

#[test]
fn what_is_not_there_is_refused_or_topped_up() {
    let daemon = Daemon::start(SMALL);
    daemon.until_clean(2);
    let mut pool = daemon.connect();
    assert_eq!(refused(pool.take(take(6 * M))), RefusalCode::Empty);
    let patient = Take {
        max_topup_ms: 20_000,
        ..take(5 * M)
    };
    let mostly_missing = Take {
        topup_if_faster: true,
        max_topup_ms: 20_000,
        ..take(10 * M)
    };
    assert_eq!(refused(pool.take(mostly_missing)), RefusalCode::Empty);
    let allocated = pool.take(patient).unwrap();
    assert_eq!(
        (allocated.lease.bytes, allocated.lease.topped_up_bytes),
        (6 * M, 2 * M)
    );
    let memory = mapped(&allocated.memory, 6 * M);
    assert_eq!(memory.first_nonzero(), None);
    assert_eq!(daemon.status().counters.top_ups, 1);
    for wrong in [
        Take {
            node: Some(999),
            ..take(1)
        },
        Take {
            page: Some(PageSize::Giant),
            ..take(1)
        },
    ] {
        assert_eq!(refused(pool.take(wrong)), RefusalCode::Empty);
    }
}

/// A client with all the time there is, and much to zero, makes no other wait; what is zeroed for
/// one that hung up comes back at once.
#[test]
fn no_client_waits_for_what_another_has_zeroed() {
    let daemon = Daemon::start(
        "fill = { rate = \"0\", batch = \"2M\" }\n\
         [[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"2M\"\nslabs = 2\n",
    );
    daemon.until_clean(2);
    let slow = std::thread::scope(|scope| {
        let socket = daemon.socket();
        let topped_up = |bytes| firstlight_pool::protocol::Take {
            max_topup_ms: u32::MAX,
            ..take(bytes)
        };
        let end = super::flood::connect(&socket);
        let mut first = Client::new(end.try_clone().unwrap());
        let mut second = Client::connect(&socket).unwrap();
        let waits = scope.spawn(move || first.take(topped_up(4 << 30)));
        until("a slab is topped up", || {
            daemon.status().pools[0].allocated_slabs == 1
        });
        assert!(second.take(topped_up(4 * M)).is_ok());
        rustix::net::shutdown(&end, rustix::net::Shutdown::Both).unwrap();
        // Not at the end of its 4 GiB: then it would have been allocated, and given back.
        until("it is taken back", || {
            let status = daemon.status();
            status.pools[0].allocated_slabs == 0 && status.counters.misses.top_up == 1
        });
        waits.join().unwrap()
    });
    assert!(slow.is_err(), "4 GiB were zeroed before 2 MiB");
}

#[test]
fn grows_shrinks_and_drains_at_run_time() {
    let mut daemon = Daemon::start(SMALL);
    let mut pool = daemon.connect();
    let resize = |slabs| Resize {
        page: PageSize::Transparent,
        node: None,
        size_class_bytes: 4 * M,
        slabs,
    };
    assert_eq!(pool.resize(resize(5)).unwrap().before_slabs, 2);
    daemon.until_clean(5);
    pool.resize(resize(1)).unwrap();
    assert_eq!(daemon.status().pools[0].clean_slabs, 1);
    let allocated = pool.take(take(1)).unwrap();
    assert_eq!(pool.drain().unwrap().allocated_slabs, 1);
    assert_eq!(refused(pool.take(take(1))), RefusalCode::Draining);
    drop(allocated);
    assert_eq!(daemon.wait(), 0, "it ends when the last lease is back");
}

#[test]
fn a_quota_counts_what_is_allocated_and_strangers_get_nothing() {
    if !super::kit::is_root() {
        return;
    }
    // A quota of a cgroup lets any user connect.
    let quota = format!(
        "{SMALL}\n[[quota]]\nuid = 65533\nbytes = \"4M\"\n\
         [[quota]]\ncgroup = \"/no such cgroup\"\nbytes = \"4M\"\n"
    );
    let daemon = Daemon::start(&quota);
    daemon.until_clean(2);
    std::os::unix::fs::chown(daemon.path(), Some(65533), None).unwrap();
    let ask = |uid: u32, turned_away: Option<&str>| {
        let script = "import json,os,socket,sys
p = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
p.connect(sys.argv[1])
if len(sys.argv) > 3:
    print(json.loads(p.recv(4096))['code'], p.recv(4096))
    sys.exit()
for _ in range(2):
    p.send(json.dumps({'v': 2, 'op': 'take', 'bytes': 1}).encode())
    print(json.loads(socket.recv_fds(p, 131072, 2)[0]).get('code', 'ok'))
p.send(json.dumps({'v': 2, 'op': 'drain'}).encode())
print(json.loads(p.recv(4096))['code'])";
        let output = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(daemon.socket())
            .arg(uid.to_string())
            .args(turned_away)
            .output();
        match output {
            Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
            Err(error) => {
                skip("python", error);
                None
            }
        }
    };
    let Some(said) = ask(65533, None) else { return };
    assert_eq!(said, "ok\nquota\ndenied\n");
    // Its process is gone, and with it all it held.
    until("it is back", || {
        daemon.status().pools[0].allocated_slabs == 0
    });
    std::fs::set_permissions(
        daemon.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let stranger = ask(65532, Some("turned away")).unwrap();
    assert_eq!(stranger, "denied b''\n");
}

#[test]
fn a_start_waits_for_memory_as_long_as_it_is_told() {
    let daemon = Daemon::start(&SMALL.replace("slabs = 2", "slabs = 1"));
    daemon.until_clean(1);
    let allocated = daemon.connect().take(take(1)).unwrap();
    let run = |wait: &str| {
        std::process::Command::new(env!("CARGO_BIN_EXE_firstlight"))
            .args([
                "pool",
                "run",
                "--require",
                "--wait",
                wait,
                "--memory",
                "4M",
                "--socket",
            ])
            .arg(daemon.socket())
            .args(["--", "stat", "-L", "-c", "%s", "{memory}"])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let output = run("0").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(8), "{output:?}");
    let misses = daemon.status().counters.misses.empty;
    let waiting = run("60");
    until("it has been refused twice", || {
        daemon.status().counters.misses.empty > misses + 1
    });
    drop(allocated);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "4194304\n");
}

#[test]
fn a_start_waits_for_a_connection_of_its_own_accord() {
    let limits = "limits = { connections = 2 }";
    let daemon = Daemon::start(&format!("{limits}\n{SMALL}"));
    daemon.until_clean(1);
    // Root may have all of them, and has: the status is asked over the first.
    let accepted = || {
        let mut connection = None;
        until("a connection", || {
            let mut pool = daemon.connect();
            let served = pool.status().is_ok();
            connection = served.then_some(pool);
            served
        });
        connection.unwrap()
    };
    let (mut first, second) = (accepted(), accepted());
    let before = first.status().unwrap().counters.turned_away;
    let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_firstlight"))
        .args(["pool", "run", "--require", "--memory", "4M", "--socket"])
        .arg(daemon.socket())
        .args(["--", "stat", "-L", "-c", "%s", "{memory}"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("it has been turned away twice", || {
        first.status().unwrap().counters.turned_away > before + 1
    });
    drop(second);
    assert!(run.wait().unwrap().success());
}

#[test]
fn a_configuration_is_checked_without_a_daemon() {
    let check = |config: &str| {
        let folder = tempfile::tempdir().unwrap();
        write_config(folder.path(), config);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_firstlight"))
            .args(["pool", "check", "--json", "--config"])
            .arg(folder.path().join("pool.toml"))
            .output()
            .unwrap();
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "a check makes nothing");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = check("[[class]]\nslabs = 3\npage = \"thp\"\nsize = \"4MiB\"\n");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\"firstlight.pool-check/1\""), "{text}");
    assert!(text.contains("\"bytes\": 12582912"), "{text}");
    for (config, said) in [
        (
            "[[class]]\nslabs = 1\nsize = \"4M\"\nnode = 999\n",
            "no node 999",
        ),
        (
            "access = { observers = \"no such\" }",
            "no group \"no such\"",
        ),
        ("socket = 7", "line 3"),
    ] {
        let (code, text) = check(config);
        assert_eq!(code, Some(9), "{config}: {text}");
        assert!(text.contains(said), "{config}: {text}");
    }
    // Far more than any machine has: valid, and said.
    let (code, text) = check("[[class]]\nslabs = 1000\nsize = \"64T\"\n");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("such pages are set aside"), "{text}");
    let command = "`echo 33554432000 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`";
    assert!(text.contains(command), "{text}");
}

#[test]
fn what_keeps_it_from_starting_is_one_message() {
    let class = "[[class]]\nslabs = 1\nsize = \"4M\"\n";
    for (config, said) in [
        ("slab = 1", "line 3: unknown field `slab`"),
        (
            &*format!("{class}node = 999\n"),
            "this machine has no node 999",
        ),
        (
            "access = { group = \"no such group\" }",
            "this machine has no group \"no such group\"",
        ),
        ("[limits]\nunread_s = -1", "invalid value"),
    ] {
        let (code, text) = fails(config);
        assert_eq!(code, 9, "{config}: {text}");
        assert!(text.contains(said), "{config}: {text}");
    }
    let first = Daemon::start(SMALL);
    let config = std::fs::read_to_string(first.path().join("pool.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pool.toml"), config).unwrap();
    let output = super::kit::serve(folder.path())
        .stderr(std::process::Stdio::piped())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5));
    assert!(text.contains("belongs to another daemon"), "{text}");
}

#[test]
fn too_few_huge_pages_are_told_and_everything_goes_back_at_the_end() {
    let Some(_pages) = huge_pages(4) else { return };
    let free = free_pages();
    let wants = free / 2 + 2;
    let mut daemon = Daemon::start(&format!(
        "fill = {{ rate = \"0\" }}\n[[class]]\nsize = \"4M\"\nslabs = {wants}\n"
    ));
    until("it says what it lacks", || {
        let status = daemon.status();
        let trouble = status.pools[0].trouble.as_deref().unwrap_or_default();
        trouble.contains("a slab needs 2 huge pages of 2M") && trouble.contains("nr_hugepages")
    });
    let allocated = take_soon(&daemon, 4 * M);
    assert_eq!(mapped(&allocated.memory, 4 * M).first_nonzero(), None);
    assert_eq!(daemon.stop(), 0);
    // The client goes on, and gives back by ending.
    assert_eq!(free - free_pages(), 2);
    drop(allocated);
    assert_eq!(free_pages(), free);
}

#[test]
fn without_a_reader_of_its_output_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    super::kit::write_config(folder.path(), SMALL);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut daemon = super::kit::serve(folder.path())
        .stderr(writer)
        .spawn()
        .unwrap();
    let socket = folder.path().join("pool.sock");
    until("it answers", || {
        assert_eq!(daemon.try_wait().unwrap(), None, "it ended");
        Client::connect(&socket).is_ok_and(|mut pool| pool.status().is_ok())
    });
    Client::connect(&socket).unwrap().drain().unwrap();
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
}

#[test]
fn a_drain_keeps_nothing_of_what_is_being_filled() {
    let Some(_pages) = huge_pages(12) else { return };
    let free = free_pages();
    // A slab takes weeks, and its first pages are there at once.
    let mut daemon = Daemon::start(
        "keep_on_stop = true\nfill = { rate = \"1\", batch = \"2M\", pause_at_pressure = 0 }\n\
         [[class]]\nsize = \"8M\"\nslabs = 1\nsource = \"mount\"\n",
    );
    until("it is being filled", || free_pages() < free);
    daemon.connect().drain().unwrap();
    assert_eq!(daemon.wait(), 0);
    assert_eq!(
        free_pages(),
        free,
        "huge pages stay in a file that is not filled"
    );
}

#[test]
fn trusted_slabs_are_zeroed_in_place_and_allocated_again() {
    let Some(_pages) = huge_pages(2) else { return };
    let config = "fill = { rate = \"0\" }\n[[class]]\nsize = \"4M\"\nslabs = 1\ntrusted = true\n";
    let daemon = Daemon::start(config);
    let inode = |allocated: &Allocated| rustix::fs::fstat(&allocated.memory).unwrap().st_ino;
    let mut last = None;
    // Another test that starts a process just then holds the descriptors for a
    // moment too, and a slab that is held is replaced: so more than one try.
    until("a slab that is allocated again", || {
        let allocated = take_soon(&daemon, 4 * M);
        let mut memory = mapped(&allocated.memory, 4 * M);
        assert_eq!(memory.first_nonzero(), None);
        memory.write(1_000_000, b"mine");
        last.replace(inode(&allocated)) == Some(inode(&allocated))
    });
    // One that is still held somewhere is not.
    let kept = take_soon(&daemon, 4 * M);
    daemon.connect().give(kept.lease.lease.clone()).unwrap();
    let next = take_soon(&daemon, 4 * M);
    assert_ne!(inode(&next), inode(&kept));
}

/// A cgroup with less memory than a slab: the daemon is not killed for want of it, and says what
/// is in the way.
#[test]
fn a_slab_larger_than_the_cgroup_may_use_is_not_begun() {
    if !is_root() {
        return;
    }
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let memory = own
        .lines()
        .find_map(|line| Some(line.split_once(":memory:")?.1));
    let unified = own.lines().find_map(|line| line.strip_prefix("0::"));
    let (folder, limit) = match memory {
        Some(path) => (
            format!("/sys/fs/cgroup/memory{path}"),
            "memory.limit_in_bytes",
        ),
        None => (
            format!("/sys/fs/cgroup{}", unified.unwrap_or("/")),
            "memory.max",
        ),
    };
    let folder = std::path::PathBuf::from(folder).join(format!("pool-{}", std::process::id()));
    let made = std::fs::create_dir(&folder);
    let made = made.and_then(|()| std::fs::write(folder.join(limit), "67108864"));
    if let Err(error) = made {
        let _ = std::fs::remove_dir(&folder);
        return skip("cgroups", error);
    }
    let (mut daemon, said) = Daemon::that_says("fill = { rate = \"0\" }\n");
    std::fs::write(folder.join("cgroup.procs"), daemon.pid().to_string()).unwrap();
    // It looks in which one it is when it starts, and now.
    daemon.signal(Signal::HUP);
    said.until("configuration read again");
    let resized = daemon.connect().resize(Resize {
        page: PageSize::Transparent,
        node: None,
        size_class_bytes: 256 * M,
        slabs: 1,
    });
    let trouble = || daemon.status().pools[0].trouble.clone();
    assert!(resized.is_ok());
    until("a reason is given", || trouble().is_some());
    let said = trouble().unwrap();
    assert!(
        said.contains("of the 64 MiB that") && said.contains("MemoryMax="),
        "{said}"
    );
    daemon.kill();
    until("the cgroup is empty", || {
        std::fs::remove_dir(&folder).is_ok()
    });
}

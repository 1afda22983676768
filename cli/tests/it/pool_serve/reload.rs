//! A configuration that is read again while the daemon serves.

use super::kit::{Daemon, another_user, is_root, take, until, write_config};
use firstlight_pool::client::Client;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

const SMALL: &str = "
    fill = { rate = \"0\" }
    [[class]]
    page = \"thp\"
    source = \"memfd\"
    size = \"4M\"
    slabs = 2
";

#[test]
fn a_configuration_is_read_again_on_request() {
    let daemon = Daemon::start(SMALL);
    daemon.until_clean(2);
    let allocated = daemon.connect().take(take(1)).unwrap();
    let reload = |config: &str| {
        write_config(daemon.path(), config);
        daemon.signal(Signal::HUP);
    };
    let more = SMALL.replace("slabs = 2", "slabs = 4");
    reload(&format!(
        "{more}\n[[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"2M\"\nslabs = 1\n"
    ));
    daemon.until_clean(3);
    until("the new pool is full", || {
        let pools = daemon.status().pools;
        pools.get(1).is_some_and(|pool| pool.clean_slabs == 1)
    });
    // What is wrong, or not on this machine, changes nothing.
    reload("slab = 1");
    reload(&more.replace("size = \"4M\"", "size = \"4M\"\nnode = 999"));
    reload(&format!(
        "{SMALL}\n[[quota]]\nuid = 65041\nbytes = \"4M\"\n"
    ));
    until("both pools have shrunk", || {
        let pools = daemon.status().pools;
        pools[0].clean_slabs == 1 && pools[1].clean_slabs == 0
    });
    assert_eq!(daemon.status().leases.len(), 1, "what is allocated stays");
    if is_root() {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(daemon.path(), open).unwrap();
        let socket = daemon.socket();
        let taken = another_user(65041, || Client::connect(&socket)?.take(take(1)));
        assert!(taken.is_ok(), "{taken:?}");
    }
    drop(allocated);
}

/// The third class needs a mount, for which the daemon has no descriptor left: what comes
/// before it is not changed either.
#[test]
fn a_configuration_that_fails_half_way_changes_nothing() {
    if !is_root() {
        return;
    }
    let quota = "[[quota]]\nuid = 65042\nbytes = \"2M\"\n";
    let old = "fill = { rate = \"1G\" }\n[[class]]\npage = \"thp\"\nsource = \"memfd\"\n\
               size = \"2M\"\nslabs = 1\n";
    let new = old.replace("1G", "2G").replace("slabs = 1", "slabs = 2");
    let new = format!(
        "{new}[[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"4M\"\nslabs = 1\n\
         [[class]]\npage = \"thp\"\nsource = \"mount\"\nsize = \"6M\"\nslabs = 1\n{quota}"
    );
    let (daemon, said) = Daemon::that_says(old);
    daemon.until_clean(1);
    let mut client = daemon.connect();
    let spare: Vec<_> = (0..8).map(|_| daemon.connect()).collect();
    client.status().unwrap();
    until("all are accepted", || {
        client.status().unwrap().gauges.connections == 9
    });
    // One more descriptor, for each file that is read; a mount needs two at once.
    let open = |number: u64| std::fs::exists(format!("/proc/{}/fd/{number}", daemon.pid()));
    let free = (0..).find(|number| !open(*number).unwrap()).unwrap();
    let pid = Pid::from_raw(daemon.pid().cast_signed());
    let limit = |descriptors| Rlimit {
        current: Some(descriptors),
        maximum: Some(descriptors),
    };
    prlimit(pid, Resource::Nofile, limit(free + 1)).unwrap();
    write_config(daemon.path(), &new);
    daemon.signal(Signal::HUP);
    let line = said.until("configuration not read again");
    assert!(line.contains("Too many open files"), "{line}");
    let status = client.status().unwrap();
    assert_eq!(status.pools.len(), 1);
    assert_eq!(status.pools[0].wanted_slabs, 1);
    assert_eq!(status.gauges.fill.map(|fill| fill.rate), Some(1 << 30));
    // With descriptors for it all of it is applied: a thread of the daemon's closes them.
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).map(Iterator::count);
    let most = descriptors().unwrap() - spare.len();
    drop(spare);
    let mut all_are_closed = || {
        until("all are closed", || {
            client.status().unwrap().gauges.connections == 1 && descriptors().unwrap() <= most
        });
    };
    all_are_closed();
    let may = |allowed: bool| {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(daemon.path(), open).unwrap();
        let socket = daemon.socket();
        let seen = another_user(65042, || Client::connect(&socket)?.status());
        assert_eq!(seen.is_ok(), allowed, "{seen:?}");
    };
    may(false);
    all_are_closed();
    daemon.signal(Signal::HUP);
    said.until("configuration read again");
    let status = client.status().unwrap();
    assert_eq!(status.pools.len(), 3);
    assert_eq!(status.pools[0].wanted_slabs, 2);
    assert_eq!(status.gauges.fill.map(|fill| fill.rate), Some(2 << 30));
    may(true);
}

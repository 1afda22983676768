//! Folders of grants that others may list or change, as an administrator may have left them, or as in `/tmp`.

use super::grants::{HOLDER, REQUEST, container, daemon, grant, refusal};
use super::kit::{is_root, until};
use firstlight_pool::client::Client;
use firstlight_pool::protocol::{GrantId, Granted, RefusalCode};
use rustix::fs::Mode;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// That of a grant, in that of all.
fn own_folder(granted: &Granted) -> PathBuf {
    Path::new(&granted.folder).parent().unwrap().to_owned()
}

/// A folder that is none of a grant, with all that one may have.
struct Others(TempDir);

impl Others {
    fn new() -> Self {
        let folder = container();
        std::fs::create_dir(folder.path().join("mount")).unwrap();
        let others = Self(folder);
        for file in others.files() {
            std::fs::write(file, "").unwrap();
        }
        others
    }

    fn files(&self) -> [PathBuf; 2] {
        ["pool.sock", "mount/pool.sock"].map(|file| self.0.path().join(file))
    }

    /// A link to it, as the folder of a grant that there is not: the daemon of `granted` would remove it when it starts.
    fn plant(&self, all: &Path, granted: &Granted, number: u64) {
        let id = GrantId {
            number,
            ..granted.grant
        };
        symlink(self.0.path(), all.join(id.to_string())).unwrap();
    }

    fn are_there(&self) -> bool {
        self.files().iter().all(|file| file.exists())
    }
}

/// A process that passes it reaches grants, and one that lists it keeps all waiting that make one.
#[test]
fn a_folder_of_grants_that_is_open_to_others_is_closed() {
    let mut daemon = daemon();
    let all = daemon.path().join("grants");
    let open = |mode| rustix::fs::chmod(&all, Mode::from_raw_mode(mode)).unwrap();
    let granted = grant(&daemon, 1);
    let others = Others::new();
    for opened in [0o755, 0o777] {
        daemon.kill();
        open(opened);
        others.plant(&all, &granted, opened.into());
        daemon.start_again();
        daemon.until_it_answers();
        assert_eq!(mode(&all), 0o700, "{opened:o}");
        Client::connect(Path::new(&granted.socket)).unwrap();
    }
    // While the daemon runs.
    open(0o777);
    let another = grant(&daemon, 1);
    assert_eq!(mode(&all), 0o700);
    assert_eq!(mode(&own_folder(&another)), 0o700);
    assert_eq!(mode(Path::new(&another.folder)), 0o711);
    assert_eq!(mode(Path::new(&another.socket)), 0o666);
    // By threads, as what was planted before it would be.
    daemon.connect().revoke(another.grant).unwrap();
    until("it is removed", || !own_folder(&another).exists());
    assert!(others.are_there());
}

/// A process that may list the socket's folder keeps all waiting that make something there.
#[test]
fn a_grant_makes_nothing_in_the_socket_s_folder() {
    let daemon = daemon();
    let changed = || {
        let folder = std::fs::metadata(daemon.path()).unwrap();
        folder.modified().unwrap()
    };
    assert_eq!(mode(&daemon.path().join("grants")), 0o700, "at the start");
    let before = changed();
    grant(&daemon, 1);
    assert_eq!(changed(), before);
}

#[test]
fn a_folder_of_another_user_is_no_place_for_grants() {
    if !is_root() {
        return;
    }
    let mut daemon = daemon();
    let granted = grant(&daemon, 1);
    let all = daemon.path().join("grants");
    let others = Others::new();
    daemon.kill();
    std::fs::rename(&all, daemon.path().join("moved")).unwrap();
    std::fs::create_dir(&all).unwrap();
    others.plant(&all, &granted, 999);
    chown(&all, Some(HOLDER), None).unwrap();
    daemon.start_again();
    daemon.until_it_answers();
    let refused = refusal(daemon.connect().grant(REQUEST));
    assert_eq!(refused.code, RefusalCode::Internal);
    assert!(refused.message.contains("another user's"), "{refused:?}");
    daemon.connect().revoke(granted.grant).unwrap();
    // Threads of the daemon's would have removed them by now.
    std::thread::sleep(Duration::from_millis(500));
    assert!(others.are_there());
    std::fs::remove_dir_all(&all).unwrap();
    let made = daemon.connect().grant(REQUEST).unwrap();
    assert_eq!(mode(&all), 0o700);
    Client::connect(Path::new(&made.socket)).unwrap();
}

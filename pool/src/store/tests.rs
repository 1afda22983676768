//! Files of slabs on this machine's own tmpfs and huge pages.

use super::slab::mode;
use super::*;
use crate::config::Source;
use crate::os::hugepages::{self, SetAside};
use crate::os::mapping::Mapping;
use crate::os::need::skip;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};

const SLAB_BYTES: u64 = 4 << 20;

fn spec(page: PageSize, source: Source, wanted: u32) -> Spec {
    Spec {
        wanted,
        source,
        ..Spec::none(Key {
            page,
            node: None,
            bytes: SLAB_BYTES,
        })
    }
}

/// Files without a name, which need no privileges.
fn small() -> (tempfile::TempDir, Files) {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(PageSize::Transparent, Source::Memfd, 1);
    let (files, found) = Files::open(folder.path(), &[spec], None).unwrap();
    assert!(found.clean.is_empty());
    (folder, files)
}

/// A clean slab, filled as a worker does.
fn filled(files: &mut Files, id: u64, spec: &Spec) -> SlabId {
    let slab = files.create(SlabId(id), spec).unwrap();
    match spec.key.page {
        PageSize::Transparent => {
            let bytes = usize::try_from(SLAB_BYTES).unwrap();
            memory_file::populate(slab, 0, bytes).unwrap();
        }
        _ => memory_file::allocate(slab, 0, SLAB_BYTES).unwrap(),
    }
    files.mark_clean(SlabId(id)).unwrap();
    SlabId(id)
}

const THP: fn() -> Spec = || spec(PageSize::Transparent, Source::Memfd, 1);

/// Reserved huge pages for `slabs`, or a line that says why not.
fn huge_pages(slabs: u64) -> Option<SetAside> {
    if !rustix::process::geteuid().is_root() {
        skip("root", "only root may mount huge pages");
        return None;
    }
    SetAside::new(2 << 20, slabs * 2)
        .inspect_err(|error| skip("hugepages", error))
        .ok()
}

fn free_pages() -> u64 {
    let sys = Path::new(hugepages::SYS);
    hugepages::counts(sys, 2 << 20, None)
        .unwrap()
        .unwrap()
        .free_pages
}

/// The mounts, as a service manager keeps them.
fn left(files: &Files) -> Left {
    let mounts = files.mounts();
    mounts
        .map(|(page, mount)| (page, mount.try_clone_to_owned().unwrap()))
        .collect()
}

type Left = Vec<(PageSize, OwnedFd)>;

fn mounted(folder: &Path, left: Left) -> (Files, Found) {
    let spec = spec(PageSize::Huge, Source::Mount, 6);
    Files::open(folder, &[spec], Some(left)).unwrap()
}

#[test]
fn the_mark_on_an_unnamed_file_cannot_be_taken_off() {
    let (_folder, mut files) = small();
    let id = filled(&mut files, 1, &THP());
    let theirs = files.get_mut(id).unwrap().allocate().unwrap();
    assert!(memory_file::is_sealed(&theirs).unwrap());
    assert!(memory_file::set_length(&theirs, SLAB_BYTES * 2).is_err());
    // A daemon that is handed the very file does not take it for a clean one.
    drop(theirs);
    let slab = files.remove(id).unwrap();
    assert!(slab.is_ours_alone().unwrap());
    let file = slab.file().try_clone().unwrap();
    drop(slab);
    assert!(!files.adopt_clean(SlabId(2), THP().key, file));
}

#[test]
fn a_clean_file_kept_over_a_restart_is_adopted_if_it_is_whole_and_no_other_process_has_it() {
    let (_folder, mut files) = small();
    let key = THP().key;
    let make = |bytes| {
        let file = memory_file::unnamed(c"test", None).unwrap();
        memory_file::set_length(&file, bytes).unwrap();
        memory_file::populate(&file, 0, usize::try_from(bytes).unwrap()).unwrap();
        file
    };
    let mut adopt = |file| files.adopt_clean(SlabId(1), key, file);
    assert!(!adopt(make(SLAB_BYTES / 2)), "too short");
    let holed = make(SLAB_BYTES);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&holed, flags, 0, 4096).unwrap();
    assert!(!adopt(holed), "lacks a page");
    let held = make(SLAB_BYTES);
    let other = memory_file::reopen(&held).unwrap();
    assert!(!adopt(held), "held by another");
    assert_eq!(memory_file::held_bytes(&other).unwrap(), 0, "and emptied");
    // As earlier versions kept it, and as this one does; the manager has both for as long as they last.
    let theirs = make(SLAB_BYTES);
    assert!(adopt(theirs.try_clone().unwrap()));
    let kept = files.get(SlabId(1)).unwrap().as_fd();
    let kept = kept.try_clone_to_owned().unwrap();
    drop(files.remove(SlabId(1)));
    assert!(files.adopt_clean(SlabId(2), key, kept.try_clone().unwrap()));
    let slab = files.get(SlabId(2)).unwrap();
    assert!(slab.is_ours_alone().unwrap());
    let other = memory_file::reopen(slab).unwrap();
    assert!(!slab.is_ours_alone().unwrap());
    drop((other, kept, theirs));
}

/// A process that closes any descriptor of a file loses its locks of it, all of which the kernel walks then: a client
/// may have as many as it likes.
#[test]
fn a_look_at_a_file_without_a_name_closes_nothing() {
    let (_folder, mut files) = small();
    let id = filled(&mut files, 1, &THP());
    let theirs = files.get_mut(id).unwrap().allocate().unwrap();
    // Of this process, as all that the daemon opens would be.
    let kind = FlockOperation::NonBlockingLockExclusive;
    rustix::fs::fcntl_lock(&theirs, kind).unwrap();
    let inode = format!(":{} ", rustix::fs::fstat(&theirs).unwrap().st_ino);
    let is_locked = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let mut locks = locks.lines();
        locks.any(|lock| lock.contains("POSIX") && lock.contains(&inode))
    };
    assert!(is_locked());
    assert!(!files.get(id).unwrap().is_ours_alone().unwrap());
    assert!(is_locked());
}

#[test]
fn one_daemon_a_folder_and_only_nodes_that_exist() {
    let (folder, _files) = small();
    let error = Files::open(folder.path(), &[], None).unwrap_err();
    assert!(matches!(error, StoreError::Taken(_)), "{error}");
    let mut spec = THP();
    spec.key.node = Some(1000);
    let other = tempfile::tempdir().unwrap();
    let error = Files::open(other.path(), &[spec], None).unwrap_err();
    assert!(error.to_string().contains("no node 1000"), "{error}");
}

#[test]
fn after_a_crash_only_what_is_known_clean_is_kept() {
    let Some(_pages) = huge_pages(6) else { return };
    let folder = tempfile::tempdir().unwrap();
    let free = free_pages();
    let (mut files, found) = mounted(folder.path(), Vec::new());
    let spec = found.specs[0];
    let ids: Vec<_> = (0..6).map(|id| filled(&mut files, id, &spec)).collect();
    assert_eq!(free - free_pages(), 12);
    let theirs = files.get_mut(ids[5]).unwrap().allocate().unwrap();
    let mut guest = Mapping::new(&theirs, 0, 4096).unwrap();
    guest.write(0, b"guest");
    // A daemon killed between mark and allocating, one while it filled, one whose
    // file lost a page, and something that is no slab at all.
    for (id, mode) in [(ids[4], mode::ALLOCATED), (ids[0], mode::FILLING)] {
        let slab = files.get(id).unwrap();
        rustix::fs::fchmod(slab, Mode::from_raw_mode(mode)).unwrap();
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let holed = files.get(ids[1]).unwrap();
    rustix::fs::fallocate(holed, flags, 2 << 20, 2 << 20).unwrap();
    let kept = left(&files);
    let flags = OFlags::CREATE | OFlags::WRONLY;
    rustix::fs::openat(&kept[0].1, "rubbish", flags, Mode::RUSR).unwrap();
    drop(files);

    let (mut files, found) = mounted(folder.path(), kept);
    let mut why: Vec<_> = found.emptied.iter().map(|(_, why)| *why).collect();
    why.sort_unstable();
    let mut clean: Vec<_> = found.clean.iter().map(|(id, _)| *id).collect();
    clean.sort_unstable();
    assert_eq!(clean, ids[2..4]);
    assert_eq!(
        why,
        [
            "lacks pages",
            "no name of a slab",
            "was being allocated",
            "was being filled"
        ]
    );
    // What runs goes on, and holds its pages; all others are clean or free.
    let mut seen = [0; 5];
    guest.read(0, &mut seen);
    assert_eq!(&seen, b"guest");
    assert_eq!(free - free_pages(), 3 * 2);
    drop((guest, theirs));
    assert_eq!(
        free - free_pages(),
        2 * 2,
        "the kernel itself takes it back"
    );
    for id in clean {
        files.remove(id).unwrap().discard().unwrap();
    }
    let kept = left(&files);
    drop(files);
    let (files, found) = mounted(folder.path(), kept);
    assert!(found.clean.is_empty() && found.emptied.is_empty());
    drop(files);
    assert_eq!(free_pages(), free);
}

#[test]
fn a_file_of_a_mount_loses_its_name_before_it_leaves() {
    let Some(_pages) = huge_pages(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut files, found) = mounted(folder.path(), Vec::new());
    let id = filled(&mut files, 1, &found.specs[0]);
    let theirs = files.get_mut(id).unwrap().allocate().unwrap();
    let stat = rustix::fs::fstat(&theirs).unwrap();
    assert_eq!((stat.st_nlink, stat.st_mode & 0o777), (0, mode::ALLOCATED));
    let mount = &left(&files)[0].1;
    let mut names = rustix::fs::Dir::read_from(mount).unwrap();
    assert!(names.all(|entry| entry.unwrap().file_name().to_bytes().starts_with(b".")));
    let slab = files.remove(id).unwrap();
    assert!(!slab.is_ours_alone().unwrap());
    drop(theirs);
    assert!(slab.is_ours_alone().unwrap());
    slab.discard().unwrap();
}

#[test]
fn a_slab_that_was_allocated_is_not_touched_by_the_next_daemon() {
    let (_folder, mut files) = small();
    let id = filled(&mut files, 1, &THP());
    let kept = memory_file::reopen(files.get(id).unwrap()).unwrap();
    let memory = files.get_mut(id).unwrap().allocate().unwrap();
    let mut guest = Mapping::new(&memory, 0, 4096).unwrap();
    guest.write(7, b"running");
    // A daemon that was killed before the manager heard of it.
    let (_folder, mut next) = small();
    assert!(!next.adopt_clean(SlabId(1), THP().key, kept));
    assert_eq!(guest.first_nonzero(), Some(7), "its memory was taken away");
}

#[test]
fn the_folder_is_the_daemons_alone_and_those_above_can_be_passed() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let above = folder.path().join("run");
    let own = above.join("pool");
    let mask = rustix::process::umask(Mode::from_raw_mode(0o077));
    drop(Files::open(&own, &[], None).unwrap());
    rustix::process::umask(mask);
    assert_eq!(mode(&own), 0o700);
    assert_eq!(
        mode(&above),
        0o711,
        "clients reach the socket, and list nothing"
    );
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o770)).unwrap();
    let error = Files::open(&own, &[], None).unwrap_err().to_string();
    assert!(error.contains("others may write to it"), "{error}");
}

#[test]
fn a_slab_larger_than_the_memory_there_is_is_not_begun() {
    let (_folder, files) = small();
    let error = files.has_room(THP().key, 1 << 50, std::iter::empty());
    let error = error.unwrap_err();
    assert!(error.contains("keep fewer or smaller slabs"), "{error}");
}

#[test]
fn a_slab_for_which_there_are_no_pages_is_not_begun() {
    let Some(_pages) = huge_pages(2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (files, found) = mounted(folder.path(), Vec::new());
    let key = found.specs[0].key;
    let beside = |bytes| files.has_room(key, 4 << 20, [(key, bytes)].into_iter());
    let free = free_pages() * (2 << 20);
    assert_eq!(beside(free - (4 << 20)), Ok(()));
    let error = beside(free - (2 << 20)).unwrap_err();
    assert!(error.contains("set more aside"), "{error}");
    assert!(error.contains("for slabs that are being filled"), "{error}");
}

/// With any number of clean slabs a look at the mounts costs as much as those that clients have.
#[test]
fn what_is_clean_is_counted_without_a_look() {
    let Some(_pages) = huge_pages(4) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(PageSize::Huge, Source::Mount, 6);
    let (mut files, found) = Files::open(folder.path(), &[spec], Some(Vec::new())).unwrap();
    let spec = found.specs[0];
    let [a, b, c] = [1, 2, 3].map(|id| filled(&mut files, id, &spec));
    assert_eq!((files.looked_at(), files.stray_bytes()), (0, 0));
    let theirs = files.get_mut(a).unwrap().allocate().unwrap();
    assert_eq!((files.looked_at(), files.stray_bytes()), (1, 0));
    // A client gives a page back, and draws one beside the file.
    let page = 2 << 20;
    memory_file::punch(&theirs, 0, page).unwrap();
    assert_eq!(files.stray_bytes(), 0);
    let file = files.get(b).unwrap().file();
    files.get_mut(b).unwrap();
    memory_file::set_length(&*file, 0).unwrap();
    assert_eq!((files.looked_at(), files.stray_bytes()), (2, 0));
    let gone = files.remove(c).unwrap();
    assert_eq!((files.looked_at(), files.stray_bytes()), (3, 0));
    gone.discard().unwrap();
    assert_eq!((files.looked_at(), files.stray_bytes()), (2, 0));
    // What an earlier daemon left is as clean.
    files.remove(b).unwrap().discard().unwrap();
    filled(&mut files, 4, &spec);
    let left = left(&files);
    drop((files, file, theirs));
    let (mut files, found) = mounted(folder.path(), left);
    assert_eq!(found.clean.len(), 1);
    assert_eq!((files.looked_at(), files.stray_bytes()), (0, 0));
}

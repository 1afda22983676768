//! Files of slabs on this machine's own tmpfs and huge pages.

use super::slab::mode;
use super::*;
use crate::config::Source;
use crate::fill::{self, Done, Job, Policy, Refill, Work};
use crate::os::hugepages::{self, SetAside};
use crate::os::mapping::Mapping;
use crate::os::memory_file;
use crate::os::need::skip;
use crate::protocol::PageSize;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

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
    let (files, _) = Files::open(folder.path(), &[spec], false).unwrap();
    (folder, files)
}

/// A clean slab, filled as a worker does.
fn filled(files: &mut Files, id: u64, spec: &Spec) -> SlabId {
    let slab = files.new_slab(SlabId(id), spec).make().unwrap();
    let slab = files.insert(slab);
    match spec.key.page {
        PageSize::Transparent => {
            let bytes = usize::try_from(SLAB_BYTES).unwrap();
            memory_file::populate(slab, 0, bytes).unwrap();
        }
        _ => memory_file::allocate(slab, 0, SLAB_BYTES).unwrap(),
    }
    files.get(SlabId(id)).unwrap().mark_clean().unwrap();
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

/// All slabs, as a service manager keeps them.
fn left(files: &Files) -> Vec<(SlabId, OwnedFd)> {
    let slabs = files.slabs.values();
    let kept = slabs.filter_map(|slab| Some((slab.id(), slab.kept()?)));
    kept.map(|(id, file)| (id, file.try_clone().unwrap()))
        .collect()
}

/// In a mount each, which outlives the daemon.
fn mounted(folder: &Path) -> (Files, Spec) {
    let spec = spec(PageSize::Huge, Source::Mount, 6);
    let (files, found) = Files::open(folder, &[spec], true).unwrap();
    (files, found.specs[0])
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
    let error = Files::open(folder.path(), &[], false).unwrap_err();
    assert!(matches!(error, StoreError::Taken(_)), "{error}");
    let mut spec = THP();
    spec.key.node = Some(1000);
    let other = tempfile::tempdir().unwrap();
    let error = Files::open(other.path(), &[spec], false).unwrap_err();
    assert!(error.to_string().contains("no node 1000"), "{error}");
}

#[test]
fn after_a_crash_only_what_is_known_clean_is_kept() {
    let Some(_pages) = huge_pages(6) else { return };
    let folder = tempfile::tempdir().unwrap();
    let free = free_pages();
    let (mut files, spec) = mounted(folder.path());
    let ids: Vec<_> = (0..6).map(|id| filled(&mut files, id, &spec)).collect();
    assert_eq!(free - free_pages(), 12);
    // The manager has not heard that it is allocated.
    let kept = left(&files);
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
    let flags = OFlags::CREATE | OFlags::WRONLY;
    rustix::fs::openat(&kept[3].1, "rubbish", flags, Mode::RUSR).unwrap();
    drop(files);

    let (mut files, _) = mounted(folder.path());
    let adopted = kept.into_iter().map(|(id, mount)| {
        let key = files.adopt_mount(id, mount);
        key.map_err(|error| error.to_string())
    });
    let why = |why: &str| Err(why.to_owned());
    assert_eq!(
        adopted.collect::<Vec<_>>(),
        [
            why("was being filled"),
            why("lacks pages"),
            Ok(spec.key),
            why("it has another file than a slab's, or more than one"),
            why("was being allocated"),
            why("it has no file: the slab was allocated"),
        ]
    );
    let clean = [ids[2]];
    // What runs goes on, and holds its pages; all others are clean or free.
    let mut seen = [0; 5];
    guest.read(0, &mut seen);
    assert_eq!(&seen, b"guest");
    assert_eq!(free - free_pages(), 2 * 2);
    drop((guest, theirs));
    assert_eq!(free - free_pages(), 2, "the kernel itself takes it back");
    for id in clean {
        files.remove(id).unwrap().discard().unwrap();
    }
    assert!(left(&files).is_empty());
    drop(files);
    assert_eq!(free_pages(), free);
}

#[test]
fn a_file_of_a_mount_loses_its_name_before_it_leaves() {
    let Some(_pages) = huge_pages(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut files, spec) = mounted(folder.path());
    let id = filled(&mut files, 1, &spec);
    let mount = &left(&files)[0].1;
    let theirs = files.get_mut(id).unwrap().allocate().unwrap();
    assert!(left(&files).is_empty());
    let stat = rustix::fs::fstat(&theirs).unwrap();
    assert_eq!((stat.st_nlink, stat.st_mode & 0o777), (0, mode::ALLOCATED));
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
    drop(Files::open(&own, &[], false).unwrap());
    rustix::process::umask(mask);
    assert_eq!(mode(&own), 0o700);
    assert_eq!(
        mode(&above),
        0o711,
        "clients reach the socket, and list nothing"
    );
}

#[test]
fn a_folder_that_others_may_list_is_closed_if_nothing_else_is_in_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let own = &*folder.path().join("own");
    std::fs::create_dir(own).unwrap();
    let mode = || std::fs::metadata(own).unwrap().permissions().mode() & 0o777;
    let opened = |mode| {
        std::fs::set_permissions(own, PermissionsExt::from_mode(mode)).unwrap();
        Files::open(own, &[], false).map(|(_, found)| found.notes)
    };
    // Empty, then a daemon's.
    for open in [0o777, 0o755, 0o711] {
        let notes = opened(open).unwrap();
        assert!(notes[0].contains(&format!("mode {open:o}")), "{notes:?}");
        assert_eq!(mode(), 0o700);
    }
    let refused = |mode| {
        let error = opened(mode).unwrap_err().to_string();
        assert!(error.contains(&format!("its mode is {mode:o}")), "{error}");
    };
    for file in ["leases", "leases.new"] {
        std::fs::write(own.join(file), "").unwrap();
    }
    let pipe = own.join("lease-7");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, Mode::RWXU, 0).unwrap();
    opened(0o755).unwrap();
    // What is in it may be another's.
    refused(0o770);
    // Another program's, which locks a file of the name.
    for foreign in ["status", "lease-8"] {
        let foreign = own.join(foreign);
        std::fs::write(&foreign, "").unwrap();
        refused(0o2755);
        assert_eq!(
            std::fs::metadata(own).unwrap().permissions().mode() & 0o7777,
            0o2755
        );
        std::fs::remove_file(foreign).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        // Not ours, and a mode that this thread could not give back.
        std::fs::write(own.join("status"), "").unwrap();
        std::os::unix::fs::chown(own, None, Some(65_063)).unwrap();
        std::fs::set_permissions(own, PermissionsExt::from_mode(0o2755)).unwrap();
        let opened = std::thread::scope(|scope| {
            let open = || {
                let mut all = rustix::thread::capabilities(None).unwrap();
                all.effective.remove(rustix::thread::CapabilitySet::FSETID);
                rustix::thread::set_capabilities(None, all).unwrap();
                Files::open(own, &[], false).is_ok()
            };
            scope.spawn(open).join().unwrap()
        });
        let mode = std::fs::metadata(own).unwrap().permissions().mode() & 0o7777;
        assert_eq!((opened, mode), (false, 0o2755));
        std::fs::remove_file(own.join("status")).unwrap();
    }
    std::fs::remove_file(&pipe).unwrap();
    std::os::unix::fs::symlink("lock", &pipe).unwrap();
    refused(0o755);
    assert_eq!(mode(), 0o755);
    assert!(opened(0o700).unwrap().is_empty());
}

#[test]
fn the_folder_is_found_by_a_link_of_ours_and_by_none_of_a_strangers() {
    use std::os::unix::fs::{lchown, symlink};
    let folder = tempfile::tempdir().unwrap();
    let [own, link] = ["own", "link"].map(|name| folder.path().join(name));
    std::fs::create_dir(&own).unwrap();
    symlink(&own, &link).unwrap();
    // With a slash behind it, too.
    for path in [link.clone(), link.join("")] {
        drop(Files::open(&path, &[], false).unwrap());
    }
    assert!(own.join("lock").exists());
    if rustix::process::geteuid().is_root() {
        lchown(&link, Some(65_061), None).unwrap();
        let opened = Files::open(&link, &[], false).map(drop);
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("link is user 65061's"), "{error}");
    }
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
    let (files, spec) = mounted(folder.path());
    let key = spec.key;
    let beside = |bytes| files.has_room(key, 4 << 20, [(key, bytes)].into_iter());
    let free = free_pages() * (2 << 20);
    assert_eq!(beside(free - (4 << 20)), Ok(()));
    let error = beside(free - (2 << 20)).unwrap_err();
    assert!(error.contains("set more aside"), "{error}");
    assert!(
        error.contains("for slabs that are being filled or replaced"),
        "{error}"
    );
}

/// What one client pins, draws or reserves, and what Linux counts for good where it finds no page, is counted in its
/// own slab's mount, and in no other.
#[test]
fn what_a_mount_counts_is_its_own_slabs() {
    let Some(pages) = huge_pages(3) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (mut files, spec) = mounted(folder.path());
    let [a, b] = [1, 2].map(|id| filled(&mut files, id, &spec));
    let theirs = files.get_mut(a).unwrap().allocate().unwrap();
    assert_eq!(
        [a, b].map(|id| files.used_bytes(id)),
        [SLAB_BYTES, SLAB_BYTES]
    );
    // Reserved behind the end, and drawn.
    memory_file::reserve(&theirs, SLAB_BYTES, 2 << 20).unwrap();
    memory_file::punch(&theirs, 0, 2 << 20).unwrap();
    assert_eq!(files.used_bytes(a), SLAB_BYTES);
    memory_file::set_length(&theirs, 0).unwrap();
    assert_eq!(files.used_bytes(a), 0);
    let others = free_pages();
    for _ in 0..3 {
        let bytes = (others + 1) * (2 << 20);
        memory_file::allocate(&theirs, 0, bytes).unwrap_err();
        memory_file::set_length(&theirs, 0).unwrap();
    }
    assert_eq!(files.used_bytes(b), SLAB_BYTES);
    let c = filled(&mut files, 3, &spec);
    assert_eq!(files.used_bytes(c), SLAB_BYTES);
    for id in [b, c] {
        files.remove(id).unwrap().discard().unwrap();
    }
    // No more than the machine has in use.
    assert_eq!(files.used_bytes(a), 0);
    drop(pages);
}

/// Nor does the daemon's own filling make a mount count what there is not.
#[test]
fn where_no_page_is_free_nothing_is_counted_of_what_is_reserved() {
    let Some(_pages) = huge_pages(2) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (mut files, spec) = mounted(folder.path());
    let slab = files.new_slab(SlabId(1), &spec).make().unwrap();
    let slab = files.insert(slab);
    let hog = memory_file::unnamed(c"hog", Some(2 << 20)).unwrap();
    memory_file::allocate(&hog, 0, free_pages() * (2 << 20)).unwrap();
    for _ in 0..3 {
        let error = memory_file::reserve(slab, 0, 2 << 20).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    }
    assert_eq!(slab.used_bytes().unwrap(), 0);
    // What was reserved is there, whatever others take.
    memory_file::set_length(&hog, 0).unwrap();
    memory_file::reserve(slab, 0, SLAB_BYTES).unwrap();
    memory_file::allocate(&hog, 0, (free_pages() - 2) * (2 << 20)).unwrap();
    memory_file::allocate(&hog, 1 << 40, 2 << 20).unwrap_err();
    memory_file::allocate(slab, 0, SLAB_BYTES).unwrap();
    assert_eq!(slab.used_bytes().unwrap(), SLAB_BYTES);
    assert_eq!(slab.length().unwrap(), SLAB_BYTES);
}

/// Filling, and putting back, where others have all pages: tried again and again, it costs the mount none.
#[test]
fn work_that_finds_no_page_leaves_nothing_counted() {
    let Some(_pages) = huge_pages(2) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (files, spec) = mounted(folder.path());
    let slab = files.new_slab(SlabId(1), &spec).make().unwrap();
    let hog = memory_file::unnamed(c"hog", Some(2 << 20)).unwrap();
    memory_file::allocate(&hog, 0, free_pages() * (2 << 20)).unwrap();
    let page = PageSize::Huge;
    let fill = Work::Fill {
        page,
        start: 0,
        end: SLAB_BYTES,
        deadline: None,
    };
    let refill = Work::Refill(Refill {
        page,
        bytes: SLAB_BYTES,
        reserve: Vec::new(),
        most_pages: 2,
        new_pages: 2,
        tenure: Arc::default(),
        scan: Arc::default(),
    });
    let jobs = [fill, refill].map(|work| Job::new((), slab.file(), work));
    let report = |done: Done<()>| {
        let error = done.result.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    };
    // The thread behaves as a worker from then on.
    let work = move || fill::serve(jobs, &Policy::default(), &report);
    std::thread::spawn(work).join().unwrap();
    assert_eq!(slab.used_bytes().unwrap(), 0);
}

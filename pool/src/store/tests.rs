//! The store on real memory files: without privileges where `memfd` is enough,
//! on a real mount of reserved huge pages where the machine allows it.

use super::slab::mode;
use super::*;
use crate::config::Source;
use crate::os::hugepages::Borrowed;
use crate::os::mapping::Mapping;
use crate::os::need::skip;
use rustix::fs::{FallocateFlags, Mode, OFlags};

const SLAB_BYTES: u64 = 4 << 20;

fn spec(page: PageSize, source: Source, wanted: u32) -> Spec {
    let key = Key {
        page,
        node: None,
        bytes: SLAB_BYTES,
    };
    Spec {
        floor: None,
        key,
        wanted,
        source,
        trusted: false,
        refill_bytes: 0,
    }
}

fn want(bytes: u64) -> Want {
    Want {
        bytes,
        node: None,
        page: None,
        top_up: Duration::ZERO,
        if_faster: false,
    }
}

/// Fills what the store orders, until it orders no more; how many it was.
fn fill_all(store: &mut Store) -> u32 {
    let mut filled = 0;
    while let Some(order) = store.begin_fill(None, Instant::now()) {
        let bytes = usize::try_from(order.key.bytes).unwrap();
        Mapping::new(&order.file, 0, bytes)
            .unwrap()
            .populate()
            .unwrap();
        let id = order.id;
        drop(order);
        assert!(store.filled(id, Ok(()), Instant::now()).is_some());
        filled += 1;
    }
    filled
}

/// A store of unnamed files that needs no privileges.
fn small(wanted: u32) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(PageSize::Transparent, Source::Memfd, wanted);
    let (store, found) = Store::open(folder.path(), &[spec], None).unwrap();
    assert_eq!(found.kept, 0);
    (folder, store)
}

/// Reserved huge pages for `slabs`, or a line that says why not.
fn huge_pages(slabs: u64) -> Option<Borrowed> {
    if !rustix::process::geteuid().is_root() {
        skip("root", "only root may mount huge pages");
        return None;
    }
    Borrowed::new(2 << 20, slabs * 2)
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

/// The kind of files a test runs on.
fn mounted(folder: &Path, wanted: u32, left: Left) -> (Store, Found) {
    let spec = spec(PageSize::Huge, Source::Mount, wanted);
    Store::open(folder, &[spec], Some(left)).unwrap()
}

type Left = Vec<(PageSize, OwnedFd)>;

/// The mounts, as a service manager keeps them.
fn left(store: &Store) -> Left {
    let mounts = store.mounts();
    mounts
        .map(|(page, mount)| (page, mount.try_clone_to_owned().unwrap()))
        .collect()
}

#[test]
fn under_pressure_clean_slabs_go_one_by_one_down_to_the_floor() {
    let (_folder, mut store) = small(3);
    assert_eq!(fill_all(&mut store), 3);
    assert!(
        store.above_the_floor().is_empty(),
        "without a floor all stay"
    );
    let floor = Spec {
        floor: Some(1),
        ..spec(PageSize::Transparent, Source::Memfd, 3)
    };
    let prepared = store.prepare(&[floor]).unwrap();
    assert!(store.apply(prepared).is_empty());
    assert_eq!(store.above_the_floor().len(), 1);
    assert_eq!(store.above_the_floor().len(), 1);
    assert!(store.above_the_floor().is_empty());
    assert_eq!(store.rows()[0].clean_slabs, 1);
}

#[test]
fn a_slab_that_is_being_filled_says_what_it_lacks() {
    let (_folder, mut store) = small(1);
    assert_eq!(
        store.lacking_bytes(&want(1)),
        None,
        "nothing is being filled"
    );
    let order = store.begin_fill(None, Instant::now()).unwrap();
    order.done_bytes.store(1 << 20, Ordering::Relaxed);
    assert_eq!(store.lacking_bytes(&want(1)), Some(3 << 20));
    assert_eq!(
        store.lacking_bytes(&want(SLAB_BYTES + 1)),
        None,
        "too small"
    );
}

fn taken(store: &mut Store) -> Option<(Key, Slab)> {
    let pick = store.choose(&want(1), 0)?;
    Some((pick.key, store.take(&pick)?))
}

#[test]
fn no_slab_is_lent_twice_and_none_before_it_is_filled() {
    let (_folder, mut store) = small(3);
    assert!(taken(&mut store).is_none());
    let order = store.begin_fill(None, Instant::now()).unwrap();
    assert!(taken(&mut store).is_none(), "being filled");
    assert!(store.filled(order.id, Ok(()), Instant::now()).is_some());
    assert_eq!(fill_all(&mut store), 2);
    let mut seen = Vec::new();
    while let Some((_, slab)) = taken(&mut store) {
        assert!(!seen.contains(&slab.id()));
        seen.push(slab.id());
    }
    assert_eq!(seen.len(), 3);
    assert_eq!(store.lent_slabs(), 3);
    assert!(
        store.begin_fill(None, Instant::now()).is_none(),
        "lent ones count"
    );
    assert!(!store.came_back(seen[0]));
    assert!(!store.came_back(seen[0]), "it can come back once only");
    assert_eq!(store.rows()[0].dirty_bytes, SLAB_BYTES);
    store.cleaned(
        &spec(PageSize::Transparent, Source::Memfd, 0).key,
        SLAB_BYTES,
        None,
    );
    assert_eq!(store.rows()[0].dirty_bytes, 0);
    assert_eq!(fill_all(&mut store), 1);
}

#[test]
fn the_mark_on_an_unnamed_file_cannot_be_taken_off() {
    let (_folder, mut store) = small(2);
    fill_all(&mut store);
    let (key, mut slab) = taken(&mut store).unwrap();
    let theirs = slab.lend().unwrap();
    assert!(memory_file::is_sealed(&theirs).unwrap());
    assert!(memory_file::set_length(&theirs, SLAB_BYTES * 2).is_err());
    // A daemon that is handed the very file does not take it for a clean one.
    store.came_back(slab.id());
    drop(theirs);
    assert!(slab.is_ours_alone().unwrap());
    let file = slab.file().try_clone().unwrap();
    drop(slab);
    assert!(store.adopt(key, file).is_none());
}

#[test]
fn a_clean_file_kept_over_a_restart_is_adopted_if_it_is_whole_and_nobodys() {
    let (_folder, mut store) = small(2);
    let key = spec(PageSize::Transparent, Source::Memfd, 0).key;
    let make = |bytes| {
        let file = memory_file::unnamed(c"test", None).unwrap();
        memory_file::set_length(&file, bytes).unwrap();
        memory_file::populate(&file, 0, usize::try_from(bytes).unwrap()).unwrap();
        file
    };
    assert!(
        store.adopt(key, make(SLAB_BYTES / 2)).is_none(),
        "too short"
    );
    let holed = make(SLAB_BYTES);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&holed, flags, 0, 4096).unwrap();
    assert!(store.adopt(key, holed).is_none(), "lacks a page");
    let held = make(SLAB_BYTES);
    let other = memory_file::reopen(&held).unwrap();
    assert!(store.adopt(key, held).is_none(), "held by somebody");
    assert_eq!(memory_file::held_bytes(&other).unwrap(), 0, "and emptied");
    assert!(store.adopt(key, make(SLAB_BYTES)).is_some());
    assert!(store.adopt(key, make(SLAB_BYTES)).is_some());
    assert!(
        store.adopt(key, make(SLAB_BYTES)).is_none(),
        "two are wanted"
    );
    assert_eq!(store.rows()[0].clean_slabs, 2);
}

#[test]
fn growing_and_shrinking_at_run_time() {
    let (_folder, mut store) = small(1);
    fill_all(&mut store);
    let key = spec(PageSize::Transparent, Source::Memfd, 0).key;
    let (before, excess) = store.resize(key, 3).unwrap();
    assert_eq!((before, excess.len()), (1, 0));
    assert_eq!(fill_all(&mut store), 2);
    let order = {
        store.resize(key, 4).unwrap();
        store.begin_fill(None, Instant::now()).unwrap()
    };
    let (before, excess) = store.resize(key, 1).unwrap();
    assert_eq!((before, excess.len()), (4, 2));
    assert!(
        order.cancel.load(Ordering::Relaxed),
        "nobody wants it any more"
    );
    assert!(store.filled(order.id, Ok(()), Instant::now()).is_none());
    assert_eq!(store.rows()[0].clean_slabs, 1);
    let other = Key {
        bytes: 2 << 20,
        ..key
    };
    store.resize(other, 1).unwrap();
    assert_eq!(store.rows().len(), 2);
    assert_eq!(store.drain().len(), 1);
    assert!(taken(&mut store).is_none());
    assert!(store.begin_fill(None, Instant::now()).is_none());
}

#[test]
fn other_classes_are_applied_as_a_whole_or_not_at_all() {
    let (_folder, mut store) = small(2);
    fill_all(&mut store);
    let old = spec(PageSize::Transparent, Source::Memfd, 1);
    let of = |bytes, node| Spec {
        key: Key {
            bytes,
            node,
            ..old.key
        },
        ..old
    };
    let rows = |store: &Store| {
        let rows = store.rows().into_iter();
        rows.map(|row| (row.size_class_bytes, row.wanted_slabs, row.clean_slabs))
            .collect::<Vec<_>>()
    };
    let before = rows(&store);
    // The last of them cannot be had.
    let wrong = [old, of(2 << 20, None), of(2 << 20, Some(1023))];
    assert!(store.prepare(&wrong).is_err());
    assert_eq!(rows(&store), before);
    // A class that is named no more keeps no slab, another one begins.
    let prepared = store.prepare(&[of(2 << 20, None)]).unwrap();
    assert_eq!(rows(&store), before);
    assert_eq!(store.apply(prepared).len(), 2);
    assert_eq!(rows(&store), [(SLAB_BYTES, 0, 0), (2 << 20, 1, 0)]);
    assert_eq!(fill_all(&mut store), 1);
}

#[test]
fn what_cannot_be_filled_is_told_and_tried_again_later() {
    let (_folder, mut store) = small(1);
    let now = Instant::now();
    let order = store.begin_fill(None, now).unwrap();
    let full = io::Error::from(io::ErrorKind::StorageFull);
    assert!(store.filled(order.id, Err(full), now).is_none());
    assert!(
        store.rows()[0]
            .trouble
            .as_deref()
            .unwrap()
            .starts_with("filling stopped")
    );
    assert!(store.begin_fill(None, now).is_none());
    assert!(store.begin_fill(None, now + RETRY_AFTER).is_some());
}

#[test]
fn one_daemon_a_folder_and_only_nodes_that_exist() {
    let (folder, _store) = small(0);
    let error = Store::open(folder.path(), &[], None).unwrap_err();
    assert!(matches!(error, StoreError::Taken(_)), "{error}");
    let mut spec = spec(PageSize::Transparent, Source::Memfd, 1);
    spec.key.node = Some(1000);
    let other = tempfile::tempdir().unwrap();
    let error = Store::open(other.path(), &[spec], None).unwrap_err();
    assert!(error.to_string().contains("no node 1000"), "{error}");
}

#[test]
fn after_a_crash_only_what_is_known_clean_is_kept() {
    let Some(_pages) = huge_pages(6) else { return };
    let folder = tempfile::tempdir().unwrap();
    let free = free_pages();
    let (mut store, _) = mounted(folder.path(), 6, Vec::new());
    assert_eq!(fill_all(&mut store), 6);
    assert_eq!(free - free_pages(), 12);
    let (key, mut lent) = taken(&mut store).unwrap();
    let theirs = lent.lend().unwrap();
    let mut guest = Mapping::new(&theirs, 0, 4096).unwrap();
    guest.write(0, b"guest");
    // A daemon killed between mark and allocating, one while it filled, one whose
    // file lost a page, and something that is no slab at all.
    let (_, marked) = taken(&mut store).unwrap();
    let modes = [mode::LENT, mode::FILLING];
    for (slab, mode) in [&marked, &store.classes[0].clean[0]].into_iter().zip(modes) {
        rustix::fs::fchmod(slab, Mode::from_raw_mode(mode)).unwrap();
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&store.classes[0].clean[1], flags, 2 << 20, 2 << 20).unwrap();
    let kept = left(&store);
    let flags = OFlags::CREATE | OFlags::WRONLY;
    rustix::fs::openat(&kept[0].1, "rubbish", flags, Mode::RUSR).unwrap();
    drop((store, marked, lent));

    let (mut store, found) = mounted(folder.path(), 6, kept);
    let mut why: Vec<_> = found.emptied.iter().map(|(_, why)| *why).collect();
    why.sort_unstable();
    assert_eq!(found.kept, 2);
    assert_eq!(
        why,
        [
            "lacks pages",
            "no name of a slab",
            "was being filled",
            "was being lent"
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
    assert_eq!(
        fill_all(&mut store),
        4,
        "the number of a kept slab is not used again"
    );
    // Wanted no more: what is too much is given back at once.
    let kept = left(&store);
    drop(store);
    let (store, found) = mounted(folder.path(), 1, kept);
    assert_eq!((found.kept, found.emptied.len()), (1, 5));
    assert_eq!(free - free_pages(), 2);
    let kept = left(&store);
    for slab in { store }.drain() {
        slab.discard().unwrap();
    }
    assert_eq!(key.bytes, SLAB_BYTES);
    let (store, found) = mounted(folder.path(), 0, kept);
    assert_eq!((found.kept, found.emptied.len()), (0, 0));
    drop(store);
    assert_eq!(free_pages(), free);
}

#[test]
fn a_file_of_a_mount_loses_its_name_before_it_leaves() {
    let Some(_pages) = huge_pages(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = mounted(folder.path(), 1, Vec::new());
    fill_all(&mut store);
    let (_, mut slab) = taken(&mut store).unwrap();
    let theirs = slab.lend().unwrap();
    let stat = rustix::fs::fstat(&theirs).unwrap();
    assert_eq!((stat.st_nlink, stat.st_mode & 0o777), (0, mode::LENT));
    let mount = &left(&store)[0].1;
    let mut names = rustix::fs::Dir::read_from(mount).unwrap();
    assert!(names.all(|entry| entry.unwrap().file_name().to_bytes().starts_with(b".")));
    assert!(!slab.is_ours_alone().unwrap());
    drop(theirs);
    assert!(slab.is_ours_alone().unwrap());
    slab.discard().unwrap();
}

#[test]
fn a_slab_that_was_lent_is_let_alone_whoever_still_keeps_it() {
    let (_folder, mut store) = small(1);
    fill_all(&mut store);
    let (key, mut slab) = taken(&mut store).unwrap();
    let kept = memory_file::reopen(&slab).unwrap();
    let memory = slab.lend().unwrap();
    let mut guest = Mapping::new(&memory, 0, 4096).unwrap();
    guest.write(7, b"running");
    // A daemon that was killed before the manager heard of it.
    let (_folder, mut next) = small(1);
    assert!(next.adopt(key, kept).is_none());
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
    drop(Store::open(&own, &[], None).unwrap());
    rustix::process::umask(mask);
    assert_eq!(mode(&own), 0o700);
    assert_eq!(mode(&above), 0o755, "clients do not reach the socket");
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o770)).unwrap();
    let error = Store::open(&own, &[], None).unwrap_err().to_string();
    assert!(error.contains("others may write to it"), "{error}");
}

#[test]
fn a_slab_larger_than_the_memory_there_is_is_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = spec(PageSize::Transparent, Source::Memfd, 1);
    spec.key.bytes = 1 << 50;
    let (mut store, _) = Store::open(folder.path(), &[spec], None).unwrap();
    assert!(store.begin_fill(None, Instant::now()).is_none());
    let trouble = store.rows()[0].trouble.clone().unwrap();
    assert!(trouble.contains("keep fewer or smaller slabs"), "{trouble}");
}

#[test]
fn a_slab_is_not_enlarged_where_there_are_no_pages_for_it() {
    let Some(_pages) = huge_pages(2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut store, _) = mounted(folder.path(), 1, Vec::new());
    fill_all(&mut store);
    let patient = Want {
        top_up: Duration::from_secs(1 << 30),
        ..want(1 << 50)
    };
    assert!(store.choose(&patient, 1).is_none());
    let free = free_pages();
    assert_eq!(store.rows()[0].clean_slabs, 1, "it is lent to others");
    assert!(taken(&mut store).is_some());
    assert_eq!(free_pages(), free);
}

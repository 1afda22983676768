//! Files that are memory: made, filled by the kernel, sealed, emptied.
//!
//! A memory file is a `memfd`, or a file of a hugetlbfs or tmpfs mount. The
//! kernel zeroes every page it puts into one. What each call can promise about
//! an earlier holder of a descriptor is said where it is promised.

use crate::os::mapping::Mapping;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// A new memory file without a name, of no bytes. `huge_page_bytes` asks for
/// reserved huge pages of 2 MiB or 1 GiB.
///
/// # Errors
/// `InvalidInput` for another page size; the operating system's refusal.
pub fn unnamed(name: &CStr, huge_page_bytes: Option<u64>) -> io::Result<OwnedFd> {
    let pages = match huge_page_bytes {
        None => MemfdFlags::empty(),
        Some(0x20_0000) => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        Some(0x4000_0000) => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
        Some(_) => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | pages;
    Ok(rustix::fs::memfd_create(name, flags)?)
}

/// The file through a new opening of its own, readable and writable, as
/// if by path: only openings of this kind are seen by [`has_no_other_holder`], and not the
/// descriptor that [`unnamed`] makes.
///
/// # Errors
/// The operating system's refusal; `/proc` must be mounted.
pub fn reopen(file: impl AsFd) -> io::Result<OwnedFd> {
    opening(file, OFlags::empty())
}

fn opening(file: impl AsFd, more: OFlags) -> io::Result<OwnedFd> {
    let name = file.as_fd().as_raw_fd().to_string();
    let flags = OFlags::RDWR | OFlags::CLOEXEC | more;
    Ok(rustix::fs::openat(
        descriptors()?,
        name,
        flags,
        Mode::empty(),
    )?)
}

/// The folder of this process's descriptors, looked up once: any process can keep all waiting that look for it.
pub(crate) fn descriptors() -> io::Result<BorrowedFd<'static>> {
    static FOLDER: Mutex<Option<(u32, &'static OwnedFd)>> = Mutex::new(None);
    let mut folder = FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    // A child of this process has another one.
    if let Some((of, folder)) = *folder
        && of == process
    {
        return Ok(folder.as_fd());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open("/proc/self/fd", flags, Mode::empty())?;
    let opened: &OwnedFd = Box::leak(Box::new(opened));
    *folder = Some((process, opened));
    Ok(opened.as_fd())
}

/// What an opening of the daemon's own is told by, whatever process has kept it meanwhile: nothing reads the
/// times of such a file.
const OWN: OFlags = OFlags::NOATIME;

/// The opening that the daemon keeps of a file without a name: a new one as by [`reopen`], or the very
/// same where `file` is one already.
///
/// # Errors
/// The operating system's refusal; `/proc` must be mounted.
pub fn own_opening(file: impl AsFd) -> io::Result<OwnedFd> {
    if rustix::fs::fcntl_getfl(&file)?.contains(OWN) {
        return file.as_fd().try_clone_to_owned();
    }
    opening(file, OWN)
}

/// Whether `file`, opened by path, by [`reopen`] or by [`own_opening`], is the only such opening of
/// its memory: no other descriptor, in whichever process, and no mapping made
/// from one. Pages pinned for device transfers do not count.
///
/// # Errors
/// The operating system's refusal: the file is another user's, for example.
pub fn has_no_other_holder(file: impl AsFd) -> io::Result<bool> {
    let file = file.as_fd().as_raw_fd();
    // SAFETY: F_SETLEASE with an integer touches no memory of this process. The
    // kernel grants a write lease only where no other process has the file open.
    let answer = unsafe { libc::fcntl(file, libc::F_SETLEASE, libc::F_WRLCK) };
    if answer == 0 {
        // SAFETY: as above; it takes the lease off again.
        let _ = unsafe { libc::fcntl(file, libc::F_SETLEASE, libc::F_UNLCK) };
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Ok(false),
        _ => Err(error),
    }
}

/// Whether the kernel answers [`has_no_other_holder`] for such files: from Linux 7.0 on hugetlbfs has no leases.
#[must_use]
pub fn tells_holders(huge_page_bytes: Option<u64>) -> bool {
    let probe =
        || has_no_other_holder(own_opening(unnamed(c"firstlight-probe", huge_page_bytes)?)?);
    // Whatever else is in the way says nothing.
    !matches!(probe(), Err(error) if error.raw_os_error() == Some(libc::EINVAL))
}

/// From now on no process can make the file larger by asking for it, and none can
/// seal it any further; neither can be undone. Making it smaller stays possible.
///
/// # Errors
/// `PermissionDenied` for a file of a mount, which cannot be sealed.
pub fn seal_against_growth(file: impl AsFd) -> io::Result<()> {
    rustix::fs::fcntl_add_seals(file, SealFlags::GROW | SealFlags::SEAL)?;
    Ok(())
}

/// Whether the file was sealed for good.
///
/// # Errors
/// The operating system's refusal.
pub fn is_sealed(file: impl AsFd) -> io::Result<bool> {
    Ok(rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SEAL))
}

/// Whether it is a file without a name that was [sealed against growth](seal_against_growth).
#[must_use]
pub fn is_sealed_against_growth(file: impl AsFd) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::GROW))
}

/// Reserves huge pages for a range: an [`allocate`] or a [`refill`] of it finds them, whatever others take meanwhile (of a
/// thread that takes memory from one node, as long as that has some; the reservation stays then). Without, Linux (seen with 6.18) counts a page of a mount as used for good each time one of these finds none. The
/// file becomes no longer by it. Waits for the file's lock with that of this process' address space: of a client's file
/// a [`Mapper`](crate::fill::Mapper) does it.
///
/// # Errors
/// `StorageFull` where no huge pages are left for it; the operating system's refusal.
pub fn reserve(file: impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
    let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    let reserved = Mapping::without_access(file, start, bytes);
    reserved
        .map(drop)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOMEM) => io::Error::from_raw_os_error(libc::ENOSPC),
            _ => error,
        })
}

/// From now on only the file's owner can open it once more. A process that kept no more than
/// a descriptor that names the file (`O_PATH`), which no count of openings shows,
/// could make a whole one of it otherwise.
///
/// # Errors
/// The operating system's refusal: the file is another user's, for example.
pub fn close_to_others(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, Mode::RUSR | Mode::WUSR)?)
}

/// Makes the file `bytes` long. A shorter file loses its pages at once, also
/// for processes that map it: they get SIGBUS. Pinned pages stay with their pinner
/// and never come back into a file.
///
/// # Errors
/// The operating system's refusal.
pub fn set_length(file: impl AsFd, bytes: u64) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| {
        rustix::fs::ftruncate(&file, bytes)
    })?)
}

/// Lets the kernel put zeroed pages where the range has none. Of hugetlbfs this
/// is enough; for tmpfs see [`populate`].
///
/// # Errors
/// `StorageFull` where there are no huge pages left; the operating system's refusal.
pub fn allocate(file: impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), start, bytes)
    })?)
}

/// [`allocate`] that never makes the file longer, even if a client made it shorter
/// meanwhile. A page that another process touches at the same moment is zeroed once,
/// by the first of them; a byte that is there never changes.
///
/// # Errors
/// As [`allocate`].
pub fn refill(file: impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| {
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, start, bytes)
    })?)
}

/// Gives a range of pages back, as a VMM does with what its guest reports
/// to be free: the next touch gets zeros.
///
/// # Errors
/// The operating system's refusal.
pub fn punch(file: impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::io::retry_on_intr(|| {
        rustix::fs::fallocate(&file, flags, start, bytes)
    })?)
}

/// Whether some of the range has no page: of tmpfs only, since hugetlbfs says
/// of all of a file that it is there.
///
/// # Errors
/// The operating system's refusal.
pub fn has_hole(file: impl AsFd, start: u64, bytes: u64) -> io::Result<bool> {
    let hole = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start))?;
    Ok(hole < start.saturating_add(bytes))
}

/// [`allocate`] by touching: tmpfs zeroes a page when it is first written, not when
/// it is allocated.
///
/// # Errors
/// The operating system's refusal, for example of memory.
pub fn populate(file: impl AsFd, start: u64, bytes: usize) -> io::Result<()> {
    Mapping::new(file, start, bytes)?.populate()
}

/// Length of the file now.
///
/// # Errors
/// The operating system's refusal.
pub fn length(file: impl AsFd) -> io::Result<u64> {
    let length = rustix::fs::fstat(file)?.st_size;
    Ok(u64::try_from(length).unwrap_or(0))
}

/// Bytes of pages the file holds now.
///
/// # Errors
/// The operating system's refusal.
pub fn held_bytes(file: impl AsFd) -> io::Result<u64> {
    let blocks = rustix::fs::fstat(file)?.st_blocks;
    Ok(u64::try_from(blocks).unwrap_or(0).saturating_mul(512))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> OwnedFd {
        let file = unnamed(c"test", None).unwrap();
        set_length(&file, 1 << 20).unwrap();
        file
    }

    #[test]
    fn an_opening_is_noticed_and_so_is_what_it_left_behind() {
        let file = small();
        let ours = reopen(&file).unwrap();
        assert!(has_no_other_holder(&ours).unwrap());
        let theirs = reopen(&file).unwrap();
        assert!(!has_no_other_holder(&ours).unwrap());
        let copy = theirs.try_clone().unwrap();
        drop(theirs);
        assert!(!has_no_other_holder(&ours).unwrap(), "a dup is an opening");
        let mapping = Mapping::new(&copy, 0, 4096).unwrap();
        drop(copy);
        assert!(!has_no_other_holder(&ours).unwrap(), "so is a mapping");
        drop(mapping);
        assert!(has_no_other_holder(&ours).unwrap());
    }

    #[test]
    fn a_sealed_file_shrinks_and_never_grows() {
        let file = small();
        assert!(!is_sealed(&file).unwrap());
        seal_against_growth(&file).unwrap();
        assert!(is_sealed(&file).unwrap());
        seal_against_growth(&file).unwrap_err();
        set_length(&file, 0).unwrap();
        set_length(&file, 4096).unwrap_err();
        allocate(&file, 0, 4096).unwrap_err();
    }

    #[test]
    fn populated_pages_are_held_and_leave_with_the_length() {
        let file = small();
        populate(&file, 4096, 8192).unwrap();
        assert_eq!(held_bytes(&file).unwrap(), 8192);
        set_length(&file, 0).unwrap();
        assert_eq!(held_bytes(&file).unwrap(), 0);
    }

    #[test]
    fn holes_are_seen_and_filled_and_the_length_stays() {
        let file = small();
        assert!(has_hole(&file, 0, 1 << 20).unwrap());
        populate(&file, 0, 1 << 20).unwrap();
        assert!(!has_hole(&file, 0, 1 << 20).unwrap());
        punch(&file, 8192, 4096).unwrap();
        assert!(has_hole(&file, 0, 1 << 20).unwrap());
        assert!(!has_hole(&file, 0, 8192).unwrap());
        assert!(!has_hole(&file, 12_288, 4096).unwrap());
        refill(&file, 8192, 4096).unwrap();
        assert_eq!(held_bytes(&file).unwrap(), 1 << 20);
        refill(&file, 1 << 20, 4096).unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 1 << 20);
        // What lies behind the end leaves with the rest.
        set_length(&file, 0).unwrap();
        assert_eq!(held_bytes(&file).unwrap(), 0);
    }

    /// Why nothing else is asked where the holes of huge pages are.
    #[test]
    fn of_huge_pages_only_their_number_is_told() {
        let Ok(_set_aside) = crate::os::hugepages::SetAside::new(2 << 20, 2) else {
            crate::os::need::skip("hugepages", "none can be set aside");
            return;
        };
        let file = unnamed(c"test", Some(2 << 20)).unwrap();
        set_length(&file, 4 << 20).unwrap();
        allocate(&file, 0, 4 << 20).unwrap();
        punch(&file, 2 << 20, 2 << 20).unwrap();
        assert_eq!(held_bytes(&file).unwrap(), 2 << 20);
        assert!(!has_hole(&file, 0, 4 << 20).unwrap(), "hugetlbfs tells now");
        refill(&file, 0, 2 << 20).unwrap();
        assert_eq!(held_bytes(&file).unwrap(), 2 << 20, "it was there");
        refill(&file, 2 << 20, 2 << 20).unwrap();
        assert_eq!(held_bytes(&file).unwrap(), 4 << 20);
        // Also behind the end, and that is taken away again.
        set_length(&file, 0).unwrap();
        refill(&file, 0, 2 << 20).unwrap();
        set_length(&file, 0).unwrap();
        assert_eq!(held_bytes(&file).unwrap(), 0);
    }

    #[test]
    fn files_of_other_pages_tell_who_has_them() {
        assert!(tells_holders(None));
        assert!(tells_holders(Some(4096)), "there are no such files");
    }

    #[test]
    fn only_page_sizes_that_exist() {
        assert!(unnamed(c"test", Some(4096)).is_err());
    }
}

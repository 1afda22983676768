//! A thread that is out of everybody's way, and takes memory from one node.
//!
//! Both settings are of the calling thread only.

use std::io;

/// The weight of a thread that all clients wait for.
const FIRST: libc::c_int = -10;

/// The least weight there is among ordinary threads.
const LAST: libc::c_int = 19;

/// Runs from now on only where a CPU has nothing else to do (`SCHED_IDLE`), and with the
/// least weight should it come back.
///
/// # Errors
/// The operating system's refusal.
pub fn run_when_idle() -> io::Result<()> {
    // SAFETY: integers only; 0 names the calling thread. What it answers does not matter:
    // everybody may take less weight.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LAST) };
    schedule(libc::SCHED_IDLE)
}

/// Runs from now on with more weight than other threads: for one that many clients wait
/// for, and that never works for long.
///
/// # Errors
/// The operating system's refusal: without `CAP_SYS_NICE` only where `RLIMIT_NICE` allows it.
pub fn run_before_others() -> io::Result<()> {
    weigh(FIRST)
}

/// Runs from now on as other threads do, with this weight: 0 the usual one, 19 the least.
///
/// # Errors
/// The operating system's refusal.
pub fn run_nicely(nice: u8) -> io::Result<()> {
    weigh(nice.into())
}

fn weigh(nice: libc::c_int) -> io::Result<()> {
    // SAFETY: integers only; 0 names the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs from now on as other threads do, if it was out of the way with the least weight:
/// it gets on, however busy the CPUs are, but a thread that wakes up beside it need not wait.
///
/// # Errors
/// The operating system's refusal: a thread that is out of the way may come back only with
/// `CAP_SYS_NICE`, or where `RLIMIT_NICE` allows for it.
pub fn run_as_usual() -> io::Result<()> {
    schedule(libc::SCHED_OTHER)
}

/// Whether a thread of this process that got out of the way may come back.
#[must_use]
pub fn may_come_back() -> bool {
    let try_it = || run_when_idle().and_then(|()| run_as_usual()).is_ok();
    std::thread::spawn(try_it).join().unwrap_or(false)
}

fn schedule(policy: libc::c_int) -> io::Result<()> {
    // SAFETY: integers, for which zero is valid; there are more of them with some C libraries.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the parameter is a valid structure the kernel only reads; thread 0
    // names the caller.
    let answer = unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bits in one word of the kernel's node mask.
const WORD_BITS: usize = libc::c_ulong::BITS as usize;
/// The kernel's largest node number and one.
const MOST_NODES: usize = 1 << 10;

/// Memory this thread makes the kernel take comes from `node` only, or from
/// anywhere again (`None`).
///
/// # Errors
/// `InvalidInput` for a node that cannot exist; the operating system's refusal
/// of one that has no memory, or may not be used.
pub fn take_memory_from(node: Option<u32>) -> io::Result<()> {
    match node {
        None => policy(libc::MPOL_DEFAULT, &[]),
        Some(node) => policy(libc::MPOL_BIND, &[node]),
    }
}

/// Memory this thread makes the kernel take comes from these nodes in turn, page by page.
///
/// # Errors
/// As [`take_memory_from`].
pub fn take_memory_in_turn_from(nodes: &[u32]) -> io::Result<()> {
    policy(libc::MPOL_INTERLEAVE, nodes)
}

fn policy(mode: libc::c_int, nodes: &[u32]) -> io::Result<()> {
    let mut mask = [0 as libc::c_ulong; MOST_NODES / WORD_BITS];
    for node in nodes {
        let node = usize::try_from(*node).unwrap_or(usize::MAX);
        let word = mask
            .get_mut(node / WORD_BITS)
            .ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node % WORD_BITS);
    }
    let (pointer, bits) = if nodes.is_empty() {
        (std::ptr::null(), 0)
    } else {
        // The kernel reads one bit less than it is told.
        (mask.as_ptr(), MOST_NODES + 1)
    };
    // SAFETY: the kernel reads `bits - 1` bits of the mask, which has as many.
    let answer = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits) };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_step_back_and_bind_itself() {
        std::thread::spawn(|| {
            run_when_idle().unwrap();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let policy = stat.rsplit(')').next().unwrap().split_whitespace().nth(38);
            assert_eq!(policy, Some("5"), "SCHED_IDLE is policy 5: {stat}");
            assert_eq!(run_as_usual().is_ok(), may_come_back());
            take_memory_from(None).unwrap();
            take_memory_from(Some(1023)).unwrap_err();
            take_memory_from(Some(u32::MAX)).unwrap_err();
            take_memory_in_turn_from(&[0]).unwrap();
            let maps = std::fs::read_to_string("/proc/thread-self/numa_maps");
            assert!(
                maps.map_or(true, |maps| maps.contains(" interleave:0 ")),
                "the kernel says so where it can"
            );
            take_memory_from(None).unwrap();
            run_nicely(19).unwrap();
        })
        .join()
        .unwrap();
    }
}

//! Owners of files and of processes that are trusted: root, and this process's user.
//!
//! In a user namespace all users that have no number there show as one, the machine's root among them.

use std::fs;
use std::sync::OnceLock;

/// This process's user.
#[must_use]
pub fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The number of all users that this process's user namespace has none for; `None` where it has one for each, and where
/// there is no `/proc`.
#[must_use]
pub fn unmapped() -> Option<u32> {
    static NUMBER: OnceLock<Option<u32>> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let map = fs::read_to_string("/proc/self/uid_map").ok()?;
        let number = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
        unmapped_by(&map, &number)
    })
}

fn unmapped_by(map: &str, number: &str) -> Option<u32> {
    let maps_all = map.split_whitespace().eq(["0", "0", "4294967295"]);
    let number = number.trim().parse().ok()?;
    (!maps_all).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_for_others_only_where_some_have_none() {
        let of = |map| unmapped_by(map, "65534\n");
        assert_eq!(of("         0          0 4294967295\n"), None);
        assert_eq!(of("         0       1000          1\n"), Some(65_534));
        assert_eq!(
            of("         0          0          1\n         1     100000      65536\n"),
            Some(65_534)
        );
        assert_eq!(of(""), Some(65_534));
    }
}

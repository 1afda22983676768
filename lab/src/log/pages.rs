//! How large a kernel's pages are: [`PageSize`].

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::kernel_log::KernelLog;
use super::kernel_rows::PageSize;
use super::line::Line;
use super::rows::Scan;

/// Reads `line` if it shows the size of a page: a table of so many bytes has 2^order pages.
pub(super) fn read(line: &Line, log: &mut KernelLog) -> bool {
    const NAME: &str = " hash table entries: ";
    // Made once: every line is looked at.
    static SEARCH: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(NAME));
    let Some(at) = SEARCH.find(line.text.as_bytes()) else {
        return false;
    };
    let row = line.text.get(at + NAME.len()..).unwrap_or_default();
    // The first is the kernel's own; of a multiple of 3 pages an order says nothing.
    log.page_size = log.page_size.or_else(|| of_table(row));
    true
}

/// `131072 (order: 6, 1048576 bytes, linear)`; the order of less than a page is negative.
fn of_table(row: &str) -> Option<PageSize> {
    let (_, row) = row.split_once("(order: ")?;
    let (order, row) = row.split_once(", ")?;
    let bytes = Scan::new(row).decimal().ok()?;
    let order: i64 = order.parse().ok()?;
    let shift = i64::from(bytes.checked_ilog2()?).checked_sub(order)?;
    let known = PageSize::ALL
        .into_iter()
        .find(|size| i64::from(size.shift()) == shift);
    known.filter(|_| bytes.is_power_of_two())
}

/// What a release such as `6.12.95+deb12-arm64-16k` says.
pub(super) fn of_release(release: &str) -> Option<PageSize> {
    let mut words = release.split(['-', '.', '_', '+']);
    words.find_map(|word| match word {
        "16k" => Some(PageSize::Kib16),
        "64k" => Some(PageSize::Kib64),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::read;

    #[test]
    fn pages_are_known_by_tables_or_by_the_release() {
        let table = |rest: &str| format!("Dentry cache hash table entries: 4096 ({rest}, linear)");
        for (text, expected) in [
            (table("order: 3, 32768 bytes"), Some(PageSize::Kib4)),
            (table("order: 7, 2097152 bytes"), Some(PageSize::Kib16)),
            (table("order: 5, 2097152 bytes"), Some(PageSize::Kib64)),
            (table("order: -1, 32768 bytes"), Some(PageSize::Kib64)),
            (table("order: 2, 49152 bytes"), None),
            (table("order: 0, 8192 bytes"), None),
            (table("order: 9223372036854775807, 1 bytes"), None),
            (table("order: -9223372036854775808, 1 bytes"), None),
            (table("order: 0, 0 bytes"), None),
            (
                "Linux version 6.12.0-55.el10.aarch64+64k (x@y) #1 SMP".into(),
                Some(PageSize::Kib64),
            ),
            (
                "Linux version 6.12.95+deb12-arm64 (x@y) #1 SMP".into(),
                None,
            ),
        ] {
            assert_eq!(read(text.as_bytes()).page_size, expected, "{text}");
        }
        let text = format!(
            "Linux version 6.12.95+deb12-arm64-16k (x@y)\n{}\n{}",
            table("order: 0, 49152 bytes"),
            table("order: 5, 2097152 bytes"),
        );
        assert_eq!(read(text.as_bytes()).page_size, Some(PageSize::Kib64));
        let text = "Linux version 6.12.95+deb12-arm64-16k (x@y)";
        assert_eq!(read(text.as_bytes()).page_size, Some(PageSize::Kib16));
    }
}

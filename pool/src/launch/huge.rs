//! Whether a command line takes huge pages of the host by itself: those are not there where the pool
//! has all of them.

use super::qemu;
use crate::config::Size;
use crate::os::hugepages::HUGETLBFS;
use rustix::fs::statfs;
use std::ffi::OsString;
use std::path::Path;

/// What turns them on, without spaces and quotes.
const SWITCHES: [&str; 6] = [
    "hugetlb=on",
    "hugetlb=true",
    "hugetlb:true",
    "hugepages=on",
    "hugepages=true",
    "hugepages:true",
];

/// Bytes of the huge pages that `arguments` and `body`, a guest's over an API, take: those of the
/// mount that they name, else those of 2 MiB; `None` where they take none.
#[must_use]
pub fn huge_page_bytes(arguments: &[OsString], body: Option<&str>) -> Option<u64> {
    let mut words = arguments.to_vec();
    words.extend(qemu::readconfig::memory(arguments).unwrap_or_default());
    words.extend(body.map(OsString::from));
    let texts = words.iter().filter_map(|word| word.to_str());
    let texts: Vec<String> = texts
        .map(|text| text.replace(|one: char| one.is_whitespace() || one == '"', ""))
        .collect();
    let parts = || texts.iter().flat_map(|text| text.split([',', '{', '}']));
    let paths = parts().flat_map(|part| part.split(['=', ':']));
    let mut sizes = paths
        .filter(|path| path.starts_with('/'))
        .filter_map(mounted);
    let is_on = || parts().any(|part| SWITCHES.contains(&part));
    let named = || {
        let said = parts().filter_map(|part| part.split_once(['=', ':']));
        let mut said = said.filter(|(name, _)| ["hugetlbsize", "hugepage_size"].contains(name));
        said.find_map(|(_, size)| size.parse::<Size>().ok())
    };
    let on = || is_on().then(|| named().map_or(2 << 20, Size::bytes));
    sizes.next().or_else(on)
}

/// The page size of the mount of huge pages in which `path` is, or would be.
fn mounted(path: &str) -> Option<u64> {
    let path = Path::new(path);
    // A file of its own is not there yet.
    let known = statfs(path).or_else(|_| statfs(path.parent().unwrap_or(path)));
    let known = known.ok()?;
    let magic = u64::try_from(known.f_type).ok()?;
    (magic == HUGETLBFS).then(|| u64::try_from(known.f_bsize).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_takes_huge_pages_says_so() {
        let of = |line: &str, body| {
            let words: Vec<OsString> = line.split('~').map(OsString::from).collect();
            huge_page_bytes(&words, body)
        };
        for line in [
            "-object~memory-backend-memfd,id=m,hugetlb=on,size=1G",
            r#"-object~{"qom-type":"memory-backend-memfd","id":"m","hugetlb":true}"#,
            "--memory~size=1G,hugepages=on",
            "--memory-zone~id=a,size=1G,hugepages=true",
        ] {
            assert_eq!(of(line, None), Some(2 << 20), "{line}");
        }
        assert_eq!(
            of(
                "--api-socket~s",
                Some("{\"memory\": {\n\"hugepages\": true}}")
            ),
            Some(2 << 20)
        );
        for (line, body) in [
            (
                "-object~memory-backend-memfd,id=m,hugetlb=on,hugetlbsize=1G",
                None,
            ),
            (
                "-s",
                Some("{\"memory\":{\t\"hugepages\":\ttrue,\r\n\"hugepage_size\": 1073741824}}"),
            ),
        ] {
            assert_eq!(of(line, body), Some(1 << 30), "{line}");
        }
        for line in [
            "-m~1G~-mem-path~/dev/shm",
            "-object~memory-backend-memfd,id=hugetlb,hugetlb=off",
            "-append~hugepages",
            "--memory~size=1G,hugepages=off",
            "",
        ] {
            assert_eq!(
                of(line, Some(r#"{"memory":{"hugepages":false}}"#)),
                None,
                "{line}"
            );
        }
    }
}

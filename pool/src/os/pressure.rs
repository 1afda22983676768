//! Memory pressure, as the kernel measures it (`/proc/pressure/memory`).
//!
//! Background work reads how much of the last ten seconds somebody waited for
//! memory, and steps back. A kernel without these figures is one without
//! pressure, as far as anybody can tell: the caller gets `None`.

use std::fs;
use std::io;
use std::path::Path;

/// Where the figures are.
pub const MEMORY: &str = "/proc/pressure/memory";

/// Percent of the last ten seconds in which at least one task waited.
///
/// # Errors
/// The file is there and cannot be read, or says something else.
pub fn some_percent_10s(path: &Path) -> io::Result<Option<f64>> {
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).map(Some).ok_or_else(|| {
            let text = format!("{}: no line \"some avg10=...\"", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        }),
        // Without the feature there is no file, or one that may not be opened.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let value = line
        .split(' ')
        .find_map(|word| word.strip_prefix("avg10="))?;
    let percent: f64 = value.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_lines_and_refuses_others() {
        for (text, percent) in [
            (
                "some avg10=1.23 avg60=0.00 avg300=0.00 total=9\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=0\n",
                Some(1.23),
            ),
            (
                "full avg10=9.00 avg60=0 avg300=0 total=0\nsome avg10=0.00 avg60=1",
                Some(0.0),
            ),
            ("some avg60=1.0", None),
            ("some avg10=NaN", None),
            ("some avg10=-1", None),
            ("", None),
        ] {
            assert_eq!(parse(text), percent, "{text}");
        }
    }

    #[test]
    fn a_kernel_without_the_file_has_no_figure() {
        assert_eq!(
            some_percent_10s(Path::new("/proc/pressure/none")).unwrap(),
            None
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        fs::write(&path, "rubbish\n").unwrap();
        assert!(some_percent_10s(&path).is_err());
    }
}

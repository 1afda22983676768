//! Numbers and tables in the file, none of which is trusted.

use super::ElfError;

/// The number of `N` bytes, the lowest first.
pub(super) fn number<const N: usize>(file: &[u8], at: usize) -> Option<u64> {
    let bytes = file.get(at..)?.first_chunk::<N>()?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    )
}

/// Bytes of the file; `what` they are is for the error.
pub(super) fn part<'f>(
    file: &'f [u8],
    what: &'static str,
    offset: u64,
    bytes: u64,
) -> Result<&'f [u8], ElfError> {
    let range = || {
        let start = usize::try_from(offset).ok()?;
        file.get(start..start.checked_add(usize::try_from(bytes).ok()?)?)
    };
    range().ok_or(ElfError::Cut {
        what,
        offset,
        bytes,
    })
}

/// The rows of a table, `ROW` bytes each.
pub(super) fn rows<'f, const ROW: usize>(
    file: &'f [u8],
    what: &'static str,
    [offset, row_bytes, count, most]: [u64; 4],
) -> Result<&'f [[u8; ROW]], ElfError> {
    if count > most {
        return Err(ElfError::Many {
            what,
            seen: count,
            most,
        });
    }
    if count > 0 && row_bytes != ROW as u64 {
        return Err(ElfError::Format);
    }
    Ok(part(file, what, offset, count * ROW as u64)?.as_chunks().0)
}

/// A field of 8 bytes of a row, which has it.
pub(super) fn field(row: &[u8], at: usize) -> u64 {
    number::<8>(row, at).unwrap_or_default()
}

/// A field of 4 bytes of a row, which has it.
pub(super) fn short(row: &[u8], at: usize) -> u64 {
    number::<4>(row, at).unwrap_or_default()
}

/// Name, kind and content of each note; what is cut ends them.
pub(super) fn notes(mut bytes: &[u8]) -> impl Iterator<Item = (&[u8], u64, &[u8])> {
    core::iter::from_fn(move || {
        let head = bytes.first_chunk::<12>()?;
        let kind = short(head, 8);
        bytes = bytes.get(12..)?;
        let [name, content] = [short(head, 0), short(head, 4)].map(|count| {
            let count = usize::try_from(count).ok()?;
            let taken = bytes.get(..count)?;
            // To a multiple of 4, which the last one may leave out.
            let next = count.checked_next_multiple_of(4)?;
            bytes = bytes.get(next..).unwrap_or_default();
            Some(taken)
        });
        Some((name?, kind, content?))
    })
}

//! Numbers out of byte slices: checked, unaligned, in either byte order.

/// `N` bytes at `offset`, if the slice goes that far.
pub(crate) fn array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    let end = offset.checked_add(N)?;
    bytes.get(offset..end)?.try_into().ok()
}

pub(crate) fn u16_le(bytes: &[u8], offset: usize) -> Option<u16> {
    array(bytes, offset).map(u16::from_le_bytes)
}

pub(crate) fn u32_le(bytes: &[u8], offset: usize) -> Option<u32> {
    array(bytes, offset).map(u32::from_le_bytes)
}

pub(crate) fn u64_le(bytes: &[u8], offset: usize) -> Option<u64> {
    array(bytes, offset).map(u64::from_le_bytes)
}

pub(crate) fn u32_be(bytes: &[u8], offset: usize) -> Option<u32> {
    array(bytes, offset).map(u32::from_be_bytes)
}

pub(crate) fn u64_be(bytes: &[u8], offset: usize) -> Option<u64> {
    array(bytes, offset).map(u64::from_be_bytes)
}

/// The bytes of a short text up to its NUL, one at a time; `None` when there is none.
pub(crate) fn until_nul(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    bytes.get(..end)
}

/// A length on the wire as an index; absurd ones saturate and so fail the next
/// bounds check.
pub(crate) fn index(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// An index as the number an error prints.
pub(crate) fn number(index: usize) -> u64 {
    u64::try_from(index).unwrap_or(u64::MAX)
}

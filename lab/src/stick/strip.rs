//! The image without what only debuggers read, which is most of it: firmware reads slowly.

/// Fields of an ELF file of 64 bits.
const X86_64: u64 = 62;
const SECTION_TABLE: usize = 40;
const HEAD_BYTES: usize = 64;
const ROW_BYTES: usize = 64;
const WITH_ADDENDS: u64 = 4;
const ALLOCATED: u64 = 2;

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut word = [0; 8];
    word.get_mut(..N)?
        .copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(word))
}

fn index<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(word::<N>(bytes, at)?).ok()
}

/// The file with its segments, and of its sections only the relocations of what is loaded, by
/// which the image can be placed elsewhere; `None` if it is no ELF file for x86-64.
pub(super) fn stripped(file: &[u8]) -> Option<Vec<u8>> {
    if !file.starts_with(b"\x7fELF\x02\x01") || word::<2>(file, 18) != Some(X86_64) {
        return None;
    }
    let (first, rows) = (index::<8>(file, 32)?, index::<2>(file, 56)?);
    let mut end = first.checked_add(rows.checked_mul(56)?)?;
    let headers = file.get(first..end)?;
    end = end.max(HEAD_BYTES);
    for row in headers.chunks_exact(56) {
        end = end.max(index::<8>(row, 8)?.checked_add(index::<8>(row, 32)?)?);
    }
    let mut kept = file.get(..end)?.to_vec();
    let (first, rows) = (index::<8>(file, SECTION_TABLE)?, index::<2>(file, 60)?);
    let table = file.get(first..first.checked_add(rows.checked_mul(ROW_BYTES)?)?)?;
    let mut sections = table.to_vec();
    for section in sections.chunks_exact_mut(ROW_BYTES) {
        let of = index::<4>(section, 44)?.checked_mul(ROW_BYTES)?;
        let target = table.get(of..).filter(|rest| rest.len() >= ROW_BYTES);
        let loaded =
            target.is_some_and(|target| word::<8>(target, 8).unwrap_or(0) & ALLOCATED != 0);
        if word::<4>(section, 4)? == WITH_ADDENDS && loaded {
            let (start, bytes) = (index::<8>(section, 24)?, index::<8>(section, 32)?);
            kept.resize(kept.len().next_multiple_of(8), 0);
            let at = kept.len() as u64;
            kept.extend(file.get(start..start.checked_add(bytes)?)?);
            section[24..32].copy_from_slice(&at.to_le_bytes());
        } else if word::<8>(section, 8)? & ALLOCATED == 0 {
            section.fill(0);
        }
    }
    kept.resize(kept.len().next_multiple_of(8), 0);
    let at = kept.len() as u64;
    kept[SECTION_TABLE..SECTION_TABLE + 8].copy_from_slice(&at.to_le_bytes());
    // Names of sections are gone.
    kept[62..64].fill(0);
    kept.extend(sections);
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_no_image() {
        let mut head = b"\x7fELF\x02\x01".to_vec();
        assert_eq!(stripped(&head), None);
        head.resize(64, 0xff);
        assert_eq!(stripped(&head), None);
        assert_eq!(stripped(b"MZ"), None);
        head[6..].fill(0);
        head[18] = 243;
        assert_eq!(stripped(&head), None, "of another processor");
        head[18] = 62;
        // No segments, no sections: nothing but the head.
        assert_eq!(stripped(&head).map(|file| file.len()), Some(64));
    }
}

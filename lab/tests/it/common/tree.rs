//! Device trees as QEMU makes them, for tests that change them.

/// Where `pattern` is, which is there once.
pub(crate) fn place(tree: &[u8], pattern: &[u8]) -> usize {
    let found = |part: &&[u8]| *part == pattern;
    let windows = || tree.windows(pattern.len());
    assert_eq!(windows().filter(found).count(), 1, "{pattern:?}");
    windows().position(|part| part == pattern).unwrap()
}

/// Where the value of `name` is, a property of the node of that name or of one after it.
pub(crate) fn property(tree: &[u8], node: &[u8], name: &[u8]) -> usize {
    let strings = &tree[word(tree, 12) as usize..];
    // It may be the end of a longer one.
    let offset = strings.windows(name.len()).position(|part| part == name);
    let offset = u32::try_from(offset.unwrap()).unwrap();
    let node = place(tree, node) & !3;
    let tokens = (node..tree.len() - 12).step_by(4);
    let is_it = |at: &usize| word(tree, *at) == 3 && word(tree, at + 8) == offset;
    tokens.into_iter().find(is_it).unwrap() + 12
}

/// Puts the memory or the registers of `node` elsewhere.
pub(crate) fn region(tree: &mut [u8], node: &[u8], start: u64, bytes: u64) {
    let at = property(tree, node, b"reg\0");
    tree[at..at + 16].copy_from_slice(&[start.to_be_bytes(), bytes.to_be_bytes()].concat());
}

/// The number at `at`.
pub(crate) fn word(tree: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(tree[at..at + 4].try_into().unwrap())
}

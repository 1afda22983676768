//! `regress=`: what made Linux slow once, [`Regression`].

/// A regression that Linux had, brought back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Regression {
    /// All ranges but the last of a node's last zone are described before the boot goes on.
    EagerZones,
    /// The node of every page is looked up.
    NodeRanges,
    /// A large hash table is initialised bucket by bucket.
    HashBuckets,
    /// Memory blocks are small and looked for in a list.
    SmallBlocks,
    /// Deferred descriptors are written by one CPU.
    OneThread,
}

impl Regression {
    pub(super) const NAMES: [(&'static [u8], Self); 5] = [
        (b"eager-zones", Self::EagerZones),
        (b"node-ranges", Self::NodeRanges),
        (b"hash-buckets", Self::HashBuckets),
        (b"small-blocks", Self::SmallBlocks),
        (b"one-thread", Self::OneThread),
    ];

    /// A list of names between commas, a bit each.
    pub(super) fn bits(text: &[u8]) -> Option<u8> {
        text.split(|&byte| byte == b',').try_fold(0, |all, name| {
            let mut names = Self::NAMES.into_iter();
            let (_, regression) = names.find(|(known, _)| *known == name)?;
            Some(all | regression.bit())
        })
    }

    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

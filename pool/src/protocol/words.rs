//! The words of the protocol: page sizes, names of leases, reasons to refuse.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What backs a slab, by the size of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PageSize {
    /// Reserved huge pages of 2 MiB.
    #[serde(rename = "2M")]
    Huge,
    /// Reserved huge pages of 1 GiB.
    #[serde(rename = "1G")]
    Giant,
    /// Transparent huge pages of a tmpfs: nothing is reserved, mappings must
    /// be aligned to 2 MiB.
    #[serde(rename = "thp")]
    Transparent,
}

impl PageSize {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Huge, Self::Giant, Self::Transparent];

    /// Its word in messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Huge => "2M",
            Self::Giant => "1G",
            Self::Transparent => "thp",
        }
    }

    /// Bytes of one page: what sizes are a multiple of.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Huge | Self::Transparent => 2 << 20,
            Self::Giant => 1 << 30,
        }
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for PageSize {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let page = Self::ALL.into_iter().find(|page| page.word() == word);
        page.ok_or_else(|| format!("{word:?} is no page size, expected 2M, 1G or thp"))
    }
}

/// The daemon's name for a lease: 1 to 64 of `A-Z a-z 0-9 . _ -`.
///
/// ```
/// use firstlight_pool::protocol::LeaseId;
/// assert!(LeaseId::new("17-3").is_ok());
/// assert!(LeaseId::new("../17").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct LeaseId(String);

impl LeaseId {
    /// Longest name, in bytes.
    pub const MOST_BYTES: usize = 64;

    /// A name, if it is one.
    ///
    /// # Errors
    /// What the name should have been.
    pub fn new(name: impl Into<String>) -> Result<Self, String> {
        let name = name.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > Self::MOST_BYTES || !name.bytes().all(plain) {
            let most = Self::MOST_BYTES;
            return Err(format!(
                "no lease has this name; expected 1 to {most} letters, digits, '.', '_' or '-'"
            ));
        }
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LeaseId {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::new(name)
    }
}

impl From<LeaseId> for String {
    fn from(id: LeaseId) -> Self {
        id.0
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What a client calls the guest of a lease: its own words for people to read, which prove nothing.
///
/// At most 64 bytes. A character that a terminal, a page or JSON could read as more than
/// itself is `?` here, whatever either end sent, and so is a letter that cannot be seen.
///
/// ```
/// use firstlight_pool::protocol::Label;
/// assert_eq!(Label::new("web-1").as_str(), "web-1");
/// assert_eq!(Label::new("\x1b[2J\"").as_str(), "?[2J?");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "String", into = "String")]
pub struct Label(String);

impl Label {
    /// Longest label, in bytes.
    pub const MOST_BYTES: usize = 64;

    /// The label that `text` becomes: its beginning, without what is not to be shown.
    #[must_use]
    pub fn new(text: &str) -> Self {
        // Letters without a shape, the only ones: fillers of Hangul syllables.
        let blank = |one| matches!(one, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}');
        let letter = |one: char| one.is_alphanumeric() && !blank(one);
        let shown = |one: char| letter(one) || " !#%()*+,-./:;=?@[]^_{|}~".contains(one);
        let mut label = String::new();
        for one in text.chars() {
            let one = if shown(one) { one } else { '?' };
            if label.len() + one.len_utf8() > Self::MOST_BYTES {
                break;
            }
            label.push(one);
        }
        Self(label)
    }

    /// The label.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Label {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0
    }
}

impl FromStr for Label {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(text))
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Why the daemon did not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RefusalCode {
    /// No slab is ready that fits, and none could be topped up in time.
    Empty,
    /// The client holds, or can still reach, as much as it may.
    Quota,
    /// The client may not do this at all.
    Denied,
    /// The request is no request, or asks for what makes no sense.
    BadRequest,
    /// No such lease, or not this client's.
    UnknownLease,
    /// No such grant.
    UnknownGrant,
    /// Too many connections or requests; again later.
    Busy,
    /// The daemon is on its way out and allocates no more.
    Draining,
    /// The daemon's own fault.
    Internal,
    /// A word of a later daemon.
    #[serde(other)]
    Unknown,
}

impl RefusalCode {
    /// Its word in messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Quota => "quota",
            Self::Denied => "denied",
            Self::BadRequest => "bad-request",
            Self::UnknownLease => "unknown-lease",
            Self::UnknownGrant => "unknown-grant",
            Self::Busy => "busy",
            Self::Draining => "draining",
            Self::Internal => "internal",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

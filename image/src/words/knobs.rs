//! `zeroing.KNOB=` and `reporting.KNOB=`: knobs that the command line sets, [`Setting`].

use firstlight::background::knobs::Knob;
use firstlight::cmdline::{CommandLine, Word};
use firstlight::{reporting, zeroing};

use super::values::size;

/// A knob that the command line sets: `zeroing.delay_ms=10`, `reporting.budget_one_in=0`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting<K> {
    /// The knob.
    pub knob: K,
    /// A value that it accepts.
    pub value: u64,
}

/// Knobs that have words.
pub trait Prefixed: Knob {
    /// What their words begin with.
    const PREFIX: &str;
}

impl Prefixed for zeroing::Knob {
    const PREFIX: &str = "zeroing.";
}

impl Prefixed for reporting::Knob {
    const PREFIX: &str = "reporting.";
}

impl<K: Prefixed> Setting<K> {
    /// The setting that a word is, if it is one and valid.
    ///
    /// ```
    /// use firstlight::cmdline::CommandLine;
    /// use firstlight::reporting::Knob;
    /// use firstlight_image::words::Setting;
    /// let line = CommandLine::new(b"reporting.budget_one_in=0 reporting.order=19");
    /// let mut settings = line.words().map(|word| Setting::of(&word));
    /// let setting = Setting { knob: Knob::BudgetOneIn, value: 0 };
    /// assert_eq!(settings.next(), Some(Some(setting)));
    /// assert_eq!(settings.next(), Some(None));
    /// ```
    #[must_use]
    pub fn of(word: &Word<'_>) -> Option<Self> {
        let name = core::str::from_utf8(knob(word.name, K::PREFIX)?).ok()?;
        let value = size(word.value?)?;
        let knob = K::named(name)?;
        knob.row().check(value).ok()?;
        Some(Self { knob, value })
    }
}

/// What `line` sets a knob to, if it does.
#[must_use]
pub fn setting<K: Prefixed>(line: CommandLine<'_>, knob: K) -> Option<u64> {
    let settings = line.words().filter_map(|word| Setting::<K>::of(&word));
    let of_this = settings.filter(|setting| setting.knob == knob);
    of_this.last().map(|setting| setting.value)
}

/// What follows `prefix` in a word's name.
pub(super) fn knob<'n>(name: &'n [u8], prefix: &str) -> Option<&'n [u8]> {
    name.strip_prefix(prefix.as_bytes())
}

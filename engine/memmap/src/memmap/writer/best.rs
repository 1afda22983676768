//! The writer without a choice: [`Writer::default`].

use super::Writer;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::x86_64;

impl Default for Writer {
    /// The best that every CPU of this architecture has.
    fn default() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return x86_64::words();
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        return Self::plain();
    }
}

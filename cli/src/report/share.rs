//! Parts of a whole, for a person.

/// How many of so many parts of `of` this is, to the nearest.
pub(crate) fn parts(this: u64, of: u64, parts: u64) -> u128 {
    let of = u128::from(of.max(1));
    (u128::from(this) * u128::from(parts) + of / 2) / of
}

/// A share of `all`: `12.3 %`.
pub(crate) fn share(this: u64, all: u64) -> String {
    let tenths = parts(this, all, 1000);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

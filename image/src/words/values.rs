//! Values that words have.

use firstlight::addr::Order;
use firstlight::cmdline::{parse_number, parse_size};
use firstlight_wire::MOST_THREADS;

/// A whole word that is a number.
pub(crate) fn number(text: &[u8]) -> Option<u32> {
    let (number, rest) = parse_number(text).ok()?;
    u32::try_from(number).ok().filter(|_| rest.is_empty())
}

/// A whole word that is a size.
pub(super) fn size(text: &[u8]) -> Option<u64> {
    let (size, rest) = parse_size(text).ok()?;
    rest.is_empty().then_some(size)
}

/// A size of at least a huge frame.
pub(super) fn blocks(text: &[u8]) -> Option<u64> {
    size(text).filter(|bytes| *bytes >= Order::HUGE.bytes())
}

/// `on` or `off`.
pub(super) fn switch(text: &[u8]) -> Option<bool> {
    match text {
        b"on" => Some(true),
        b"off" => Some(false),
        _ => None,
    }
}

/// A list of numbers between commas, none of them 0.
pub(super) fn threads(text: &[u8]) -> Option<[u32; MOST_THREADS]> {
    let mut list = [0; MOST_THREADS];
    let mut slots = list.iter_mut();
    for item in text.split(|&byte| byte == b',') {
        *slots.next()? = number(item).filter(|&count| count > 0)?;
    }
    Some(list)
}

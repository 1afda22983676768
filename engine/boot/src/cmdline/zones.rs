//! `kernelcore=`, `movablecore=` and `movable_node`: which memory is movable.

use crate::addr::PAGE_SHIFT;
use crate::layout::{CoreSize, LayoutPolicy};

use super::{BadWord, CommandLine, Fault, Word, parse_number, parse_size};

impl<'a> CommandLine<'a> {
    /// `base` with the command line's parameters of movable memory. The last amount
    /// counts; `kernelcore=mirror` and `movable_node` hold from then on.
    ///
    /// ```
    /// use firstlight_boot::cmdline::CommandLine;
    /// use firstlight_frames::layout::{CoreSize, LayoutPolicy};
    /// let line = CommandLine::new(b"kernelcore=2G kernelcore=50% movablecore=lots");
    /// let mut bad = 0;
    /// let policy = line.layout_policy(LayoutPolicy::DEFAULT, &mut |_| bad += 1);
    /// assert_eq!(policy.kernelcore, Some(CoreSize::Percent(50)));
    /// assert_eq!((policy.movablecore, bad), (None, 1));
    /// ```
    pub fn layout_policy(
        &self,
        base: LayoutPolicy,
        report: &mut dyn FnMut(BadWord<'a>),
    ) -> LayoutPolicy {
        let mut policy = base;
        for word in self.words() {
            if word.is("movable_node") {
                policy.movable_node = true;
            } else if word.is("kernelcore") {
                let items = word.value.unwrap_or_default().split(|&byte| byte == b',');
                if items.into_iter().any(|item| item == b"mirror") {
                    policy.kernelcore_mirror = true;
                } else {
                    take_core(word, &mut policy.kernelcore, report);
                }
            } else if word.is("movablecore") {
                take_core(word, &mut policy.movablecore, report);
            }
        }
        policy
    }
}

fn take_core<'a>(word: Word<'a>, core: &mut Option<CoreSize>, report: &mut dyn FnMut(BadWord<'a>)) {
    let mut bad = |fault| {
        report(BadWord {
            word: word.text,
            fault,
        })
    };
    let Some(value) = word.value else {
        return bad(Fault::NoValue);
    };
    match read_core(value) {
        Ok((size, fault)) => {
            *core = Some(size);
            fault.into_iter().for_each(bad);
        }
        Err(fault) => bad(fault),
    }
}

/// An amount or a percentage, and a fault that does not prevent it.
fn read_core(value: &[u8]) -> Result<(CoreSize, Option<Fault>), Fault> {
    let (number, rest) = parse_number(value).map_err(Fault::Number)?;
    if let Some(rest) = rest.strip_prefix(b"%") {
        let percent = u32::try_from(number).unwrap_or(u32::MAX);
        let fault = match rest {
            _ if percent > 100 => Some(Fault::Percent),
            [] => None,
            _ => Some(Fault::Trailing),
        };
        return Ok((CoreSize::Percent(percent), fault));
    }
    let (bytes, rest) = parse_size(value).map_err(Fault::Number)?;
    let fault = (!rest.is_empty()).then_some(Fault::Trailing);
    Ok((CoreSize::Frames(bytes >> PAGE_SHIFT), fault))
}

//! Logs, and boots of real machines, of both sides up to one end: [`to_one`].

use crate::log::End;
use crate::records::LeftOut;
use crate::run::Run;

/// Logs and boots of real machines up to the latest end of a boot that all of them show; one that shows none, where
/// others do, was cut off and is left out. Boots of the lab are whole.
pub(super) fn to_one(sides: [Vec<Run>; 2], left_out: &mut Vec<LeftOut>) -> [Vec<Run>; 2] {
    if sides.iter().flatten().any(|run| !run.may_be_cut()) {
        return sides;
    }
    let lines: Vec<_> = sides.iter().flatten().map(Run::lines).collect();
    let lines: Vec<_> = lines.iter().map(Vec::as_slice).collect();
    let Some(end) = End::common(&lines) else {
        return sides;
    };
    let mut whole = |run: Run| {
        let ended = run.ended(end);
        if ended.is_none() {
            left_out.push(LeftOut {
                file: run.file,
                why: "it ends before the kernel hands over, as other logs show; expected all of a boot"
                    .into(),
            });
        }
        ended
    };
    sides.map(|runs| runs.into_iter().filter_map(&mut whole).collect())
}

//! A range for a request for zeros: [`take`].
//!
//! *A request that fails leaves what is known as it was.* Content is known of whole huge frames, and is lost once a part
//! is taken. So where an end of the range is a part of one whose content is known, all of that is taken ([`Edges`]): the
//! rest of it goes back when the range is zero, or with it, as it was. Until then no other request finds that rest.

use crate::addr::FrameRange;
use crate::frames::request::Request;
use crate::frames::search::probe::probe;
use crate::frames::segment::Segment;
use crate::frames::word::geometry::{Block, HUGE_ORDER, blocks, unit};
use crate::frames::word::{Content, IS_KEPT, Purpose};
use crate::frames::zone::Nodes;
use crate::frames::zone::zeroed::ZeroedFrames;

/// Why a range is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untaken {
    /// A block of it is not free.
    InUse,
    /// A block of it is not zero, and the kernel does not zero it.
    NotZeroed,
}

/// A huge frame of known content, of which the range has a part.
#[derive(Debug)]
pub(crate) struct Edge {
    huge: Block,
    /// What all of it holds if it is given back.
    content: Content,
}

/// The one that the range begins in, and the one that it ends in.
#[derive(Debug, Default)]
pub(crate) struct Edges([Option<Edge>; 2]);

impl Edges {
    fn holds(&self, block: Block) -> bool {
        let mut edges = self.0.iter().flatten();
        edges.any(|edge| edge.huge.range().covers(block.range()))
    }

    /// Takes the huge frame that `block`, a block of the range, is a part of, if that is free and of known content.
    pub(crate) fn take(
        &mut self,
        online: &Segment<'_>,
        block: Block,
        purpose: Purpose<'_>,
    ) -> Option<&mut Edge> {
        if !IS_KEPT || block.order >= HUGE_ORDER || !probe(online, block.start, |_| false).known {
            return None;
        }
        let huge = Block {
            start: unit(block.start.get() >> HUGE_ORDER, HUGE_ORDER).start(),
            order: HUGE_ORDER,
        };
        let place = self.0.iter_mut().find(|edge| edge.is_none())?;
        online.take_at(huge, purpose).ok()?;
        let content = purpose
            .known
            .map_or(Content::Unknown, |known| known.content(0));
        Some(place.insert(Edge { huge, content }))
    }

    /// Gives back what does not belong to the range, of which nothing is known any more.
    pub(crate) fn give_rest(&self, online: &Segment<'_>, range: FrameRange) {
        for Edge { huge, .. } in self.0.iter().flatten() {
            let (all, part) = (huge.range(), huge.range().intersect(range));
            for (start, end) in [(all.start(), part.start()), (part.end(), all.end())] {
                let rest = FrameRange::new(start.get(), end.get()).unwrap_or_default();
                blocks(rest).for_each(|block| give(online, block, Content::Unknown));
            }
        }
    }

    /// Gives back all, with what is known.
    fn give_all(&self, online: &Segment<'_>) {
        let edges = self.0.iter().flatten();
        edges.for_each(|edge| give(online, edge.huge, edge.content));
    }
}

fn give(online: &Segment<'_>, block: Block, content: Content) {
    // An error: another call freed what it did not have.
    let _ = online.give_with(block, content);
}

/// All of `range`, in one segment, or nothing: what does not hold zeros is zeroed, block by block. Of a range that is not
/// taken, huge frames that were zeroed before that was seen are known to be zero.
pub(crate) fn take(nodes: &Nodes<'_>, range: FrameRange, request: &Request) -> Result<(), Untaken> {
    let segment = nodes.segments.at(range.start());
    let (segment, online) = segment
        .and_then(|segment| Some((segment, segment.online()?)))
        .ok_or(Untaken::InUse)?;
    // What edges hold besides is hidden from searches.
    let mut call = nodes.segments.range_calls.begin();
    let mut edges = Edges::default();
    let (mut served, mut of_edges) = (ZeroedFrames::default(), ZeroedFrames::default());
    let mut take = |block| {
        if edges.holds(block) {
            return Ok(());
        }
        let known = nodes.known();
        let purpose = Purpose {
            mobility: request.mobility(),
            known: Some(&known),
        };
        if let Some(edge) = edges.take(online, block, purpose) {
            let content = edge.content;
            for piece in blocks(edge.huge.range().intersect(range)) {
                known.note_all(content);
                let made = nodes.make_zero(piece, &known);
                let is_written = made.is_ok_and(|more| more.missed > 0);
                // Written to, or believed to be zero, which it is not.
                if is_written || made.is_err() && known.is_zero(content) {
                    edge.content = Content::Unknown;
                }
                of_edges += made.map_err(|_| Untaken::NotZeroed)?;
            }
        } else {
            online.take_at(block, purpose).map_err(|_| Untaken::InUse)?;
            served += nodes.make_zero(block, &known).map_err(|not_zeroed| {
                nodes.give_back(block, &known, not_zeroed);
                Untaken::NotZeroed
            })?;
        }
        Ok(())
    };
    let failed = blocks(range).find_map(|block| take(block).err().map(|why| (block, why)));
    let Some((failed, why)) = failed else {
        served += of_edges;
        segment.zeroed.add(served);
        if edges.0[0].is_some() {
            edges.give_rest(online, range);
            call.undo();
        }
        return Ok(());
    };
    let taken = blocks(range).take_while(|block| block.start < failed.start);
    for block in taken.filter(|block| !edges.holds(*block)) {
        give(online, block, Content::Zero);
    }
    edges.give_all(online);
    call.undo();
    segment
        .zeroed
        .add_made(served.reported + served.missed + of_edges.missed);
    Err(why)
}

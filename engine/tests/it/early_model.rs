//! EarlyMemory against a plain model: one slot a page, everything done page by page.

use firstlight::addr::{PAGE_BYTES, PhysAddr, PhysRange};
use firstlight::early::{
    Allocation, Direction, EarlyError, EarlyFlags, EarlyMemory, EarlyRegion, EarlyRequest, EarlySet,
};
use firstlight::node::NodeId;
use proptest::prelude::*;

const PAGES: usize = 40;

/// Memory that is never allocated.
const BANNED: EarlyFlags = EarlyFlags::NOMAP
    .with(EarlyFlags::DRIVER_MANAGED)
    .with(EarlyFlags::UNACCEPTED);

/// What is known of a page that is memory, or reserved.
type Page = (Option<NodeId>, EarlyFlags);

/// What each page is.
#[derive(Clone)]
struct Model {
    memory: Vec<Option<Page>>,
    reserved: Vec<Option<Page>>,
    direction: Direction,
    movable_node: bool,
}

#[derive(Clone, Debug)]
enum Op {
    Add(usize, usize, EarlyFlags),
    Remove(usize, usize),
    Reserve(usize, usize, bool),
    Preserve(usize, usize),
    Free(usize, usize),
    SetNode(usize, usize, u16),
    SetFlags(usize, usize, EarlyFlags),
    ClearFlags(usize, usize, EarlyFlags),
    SetReservedFlags(usize, usize, EarlyFlags),
    Allocate(Wanted),
}

#[derive(Clone, Debug)]
struct Wanted {
    pages: usize,
    align: usize,
    min: usize,
    max: Option<usize>,
    node: Option<u16>,
    exact: bool,
    soft_min: bool,
    freeable: bool,
}

fn bytes(from: usize, to: usize) -> PhysRange {
    PhysRange::new(from as u64 * PAGE_BYTES, to as u64 * PAGE_BYTES).unwrap()
}

/// The regions that a page vector is, merged.
fn regions(pages: &[Option<Page>]) -> Vec<EarlyRegion> {
    let mut out: Vec<EarlyRegion> = Vec::new();
    for (at, page) in pages.iter().enumerate() {
        let Some((node, flags)) = *page else { continue };
        let here = bytes(at, at + 1);
        match out.last_mut() {
            Some(last)
                if last.range.end() == here.start() && (last.node, last.flags) == (node, flags) =>
            {
                last.range = PhysRange::new(last.range.start().get(), here.end().get()).unwrap();
            }
            _ => out.push(EarlyRegion {
                range: here,
                node,
                flags,
            }),
        }
    }
    out
}

impl Model {
    /// Whether `wanted` may start at `start` under one attempt's terms.
    fn fits(&self, wanted: &Wanted, start: usize, terms: (usize, bool, Option<u16>)) -> bool {
        let (min, mirror, node) = terms;
        let end = start + wanted.pages;
        let max = wanted.max.unwrap_or(PAGES).min(PAGES);
        if start < min.max(1) || end > max || !start.is_multiple_of(wanted.align) {
            return false;
        }
        let Some((home, flags)) = self.memory[start] else {
            return false;
        };
        (start..end).all(|at| self.memory[at] == self.memory[start] && self.reserved[at].is_none())
            && !flags.intersects(BANNED)
            && !(self.movable_node && flags.contains(EarlyFlags::HOTPLUG))
            && (!mirror || flags.contains(EarlyFlags::MIRROR))
            && node.is_none_or(|node| home == Some(NodeId(node)))
    }

    /// The best address by trying all of them: the highest, or the lowest.
    fn allocate(&self, wanted: &Wanted) -> Option<usize> {
        let mirrored = self
            .memory
            .iter()
            .flatten()
            .any(|page| page.1.contains(EarlyFlags::MIRROR));
        let mins = if wanted.soft_min {
            vec![wanted.min, 0]
        } else {
            vec![wanted.min]
        };
        let mirrors = if mirrored {
            vec![true, false]
        } else {
            vec![false]
        };
        let nodes = if wanted.exact {
            vec![wanted.node]
        } else {
            vec![wanted.node, None]
        };
        for &min in &mins {
            for &mirror in &mirrors {
                for &node in &nodes {
                    let mut starts =
                        (0..PAGES).filter(|&at| self.fits(wanted, at, (min, mirror, node)));
                    let found = match self.direction {
                        Direction::TopDown => starts.next_back(),
                        Direction::BottomUp => starts.next(),
                    };
                    if found.is_some() {
                        return found;
                    }
                }
            }
        }
        None
    }
}

/// Does `op` to both and checks that they agree on whether it worked.
fn step(early: &mut EarlyMemory<'_>, model: &mut Model, op: &Op) {
    let state = |early: &EarlyMemory<'_>| {
        (
            early.memory().to_vec(),
            early.reserved().to_vec(),
            early.owners().to_vec(),
        )
    };
    let before = state(early);
    let mut after = model.clone();
    let plain = (None, EarlyFlags::NONE);
    let for_boot = (None, EarlyFlags::FREEABLE);
    let outcome = match *op {
        Op::Add(from, to, flags) => {
            after.memory[from..to]
                .iter_mut()
                .for_each(|p| *p = p.or(Some((None, flags))));
            early.add(bytes(from, to), flags)
        }
        Op::Remove(from, to) => {
            after.memory[from..to].fill(None);
            early.remove(bytes(from, to))
        }
        Op::Reserve(from, to, true) => {
            after.reserved[from..to]
                .iter_mut()
                .for_each(|p| *p = p.or(Some(for_boot)));
            early.reserve_freeable(bytes(from, to), "for boot")
        }
        Op::Reserve(from, to, false) => {
            // For ever wins over for boot, which is reserved anew.
            let stays = |p: &Page| !p.1.contains(EarlyFlags::FREEABLE);
            after.reserved[from..to]
                .iter_mut()
                .for_each(|p| *p = p.filter(stays).or(Some(plain)));
            early.reserve(bytes(from, to), "named")
        }
        Op::Preserve(from, to) => {
            let outcome = early.preserve(bytes(from, to), "preserved");
            let flags = |page: &Option<Page>| page.map(|(_, flags)| flags);
            let memory: Option<Vec<_>> = model.memory[from..to].iter().map(flags).collect();
            let usable = |flags: &EarlyFlags| !flags.intersects(BANNED);
            let refused = match (&memory, outcome) {
                (None, Err(EarlyError::NotMemory { .. })) => true,
                (Some(all), Err(EarlyError::Unusable { .. })) => !all.iter().all(usable),
                (_, Err(EarlyError::InUse { .. })) => {
                    model.reserved[from..to].iter().any(Option::is_some)
                }
                // Half of the slots are for others.
                (_, Err(EarlyError::Full { full, .. })) => {
                    full.needed == 2 * (before.1.len() + 1) && full.needed > full.capacity
                }
                _ => false,
            };
            assert_eq!(refused, outcome.is_err(), "{outcome:?}");
            if refused {
                assert_eq!(state(early), before);
                return;
            }
            assert!(memory.is_some_and(|all| all.iter().all(usable)));
            assert!(model.reserved[from..to].iter().all(Option::is_none));
            let kind = EarlyFlags::FREEABLE | EarlyFlags::PRESERVED;
            after.reserved[from..to].fill(Some((None, kind)));
            outcome
        }
        Op::Free(from, to) => {
            let whole = after.reserved[from..to].iter().all(Option::is_some);
            let outcome = early.free(bytes(from, to));
            let refused = matches!(outcome, Err(EarlyError::NotReserved { .. }));
            assert_eq!(refused, !whole);
            if refused {
                return;
            }
            after.reserved[from..to].fill(None);
            outcome
        }
        Op::SetNode(from, to, node) => {
            after.memory[from..to]
                .iter_mut()
                .flatten()
                .for_each(|p| p.0 = Some(NodeId(node)));
            early.set_node(bytes(from, to), NodeId(node))
        }
        Op::SetFlags(from, to, flags) => {
            after.memory[from..to]
                .iter_mut()
                .flatten()
                .for_each(|p| p.1 |= flags);
            early.set_flags(bytes(from, to), flags)
        }
        Op::ClearFlags(from, to, flags) => {
            after.memory[from..to]
                .iter_mut()
                .flatten()
                .for_each(|p| p.1 = p.1.without(flags));
            early.clear_flags(bytes(from, to), flags)
        }
        Op::SetReservedFlags(from, to, flags) => {
            after.reserved[from..to]
                .iter_mut()
                .flatten()
                .for_each(|p| p.1 |= flags);
            early.set_reserved_flags(bytes(from, to), flags)
        }
        Op::Allocate(ref wanted) => {
            let outcome = early.allocate(&request(wanted));
            let Some(start) = model.allocate(wanted) else {
                assert!(
                    matches!(outcome, Err(EarlyError::NoSpace { .. })),
                    "{outcome:?}"
                );
                return;
            };
            let kind = if wanted.freeable { for_boot } else { plain };
            after.reserved[start..start + wanted.pages].fill(Some(kind));
            if let Ok(range) = outcome {
                assert_eq!(range, bytes(start, start + wanted.pages), "{wanted:?}");
            }
            outcome.map(|_| ())
        }
    };
    match outcome {
        Ok(()) => *model = after,
        Err(EarlyError::Full { set, full, .. }) => {
            assert_eq!(state(early), before, "a refused change changed something");
            assert!(full.needed > full.capacity);
            let wanted = match set {
                EarlySet::Memory => regions(&after.memory).len(),
                EarlySet::Reserved => regions(&after.reserved).len(),
            };
            assert_eq!(full.needed, wanted);
        }
        Err(other) => panic!("{op:?}: {other}"),
    }
}

fn request(wanted: &Wanted) -> EarlyRequest {
    let pages = |count: usize| count as u64 * PAGE_BYTES;
    EarlyRequest {
        min: PhysAddr::new(pages(wanted.min)),
        max: wanted.max.map(|max| PhysAddr::new(pages(max))),
        node: wanted.node.map(NodeId),
        exact_node: wanted.exact,
        soft_min: wanted.soft_min,
        freeable: wanted.freeable,
        ..EarlyRequest::new(pages(wanted.pages), pages(wanted.align), "wanted")
    }
}

/// What must hold after every step.
fn check(early: &EarlyMemory<'_>, model: &Model) {
    assert_eq!(early.memory(), regions(&model.memory));
    assert_eq!(early.reserved(), regions(&model.reserved));
    let mut seen = vec![None; PAGES];
    for region in early.free_ranges() {
        let frames = region.range.inner_frames();
        for page in frames.start().get()..frames.end().get() {
            seen[page as usize] = Some((region.node, region.flags));
        }
    }
    // Every reserved page has an owner, and no free one has.
    assert_eq!(early.untracked(), 0);
    for (at, page) in seen.iter().enumerate() {
        assert_eq!(
            *page,
            model.memory[at].filter(|_| model.reserved[at].is_none())
        );
        let here = PhysAddr::new(at as u64 * PAGE_BYTES);
        let owned = early
            .owners()
            .iter()
            .any(|reserved| reserved.range.contains(here));
        assert_eq!(owned, model.reserved[at].is_some(), "page {at}");
    }
}

fn span() -> impl Strategy<Value = (usize, usize)> {
    (0..=PAGES, 0..=PAGES).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn some_flags() -> impl Strategy<Value = EarlyFlags> {
    prop_oneof![
        4 => Just(EarlyFlags::NONE),
        1 => Just(EarlyFlags::HOTPLUG),
        1 => Just(EarlyFlags::MIRROR),
        1 => Just(EarlyFlags::NOMAP),
        1 => Just(EarlyFlags::DRIVER_MANAGED),
        1 => Just(EarlyFlags::UNACCEPTED),
        1 => Just(EarlyFlags::HOTPLUG | EarlyFlags::MIRROR),
    ]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let bounds = (
        prop_oneof![Just(0), 0..PAGES],
        prop::option::of(0..PAGES + 8),
    );
    let node = prop::option::of(0..3u16);
    (1..6usize, 0..4u32, bounds, node, any::<[bool; 3]>()).prop_map(
        |(pages, align, (min, max), node, [exact, soft_min, freeable])| Wanted {
            pages,
            align: 1 << align,
            min,
            max,
            node,
            exact,
            soft_min,
            freeable,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (span(), some_flags()).prop_map(|((a, b), f)| Op::Add(a, b, f)),
        1 => span().prop_map(|(a, b)| Op::Remove(a, b)),
        3 => (span(), any::<bool>()).prop_map(|((a, b), f)| Op::Reserve(a, b, f)),
        1 => span().prop_map(|(a, b)| Op::Preserve(a, b)),
        2 => span().prop_map(|(a, b)| Op::Free(a, b)),
        3 => (span(), 0..3u16).prop_map(|((a, b), n)| Op::SetNode(a, b, n)),
        2 => (span(), some_flags()).prop_map(|((a, b), f)| Op::SetFlags(a, b, f)),
        1 => (span(), some_flags()).prop_map(|((a, b), f)| Op::ClearFlags(a, b, f)),
        1 => (span(), any::<bool>()).prop_map(|((a, b), f)| {
            let flags = if f { EarlyFlags::NO_INIT } else { EarlyFlags::FREEABLE };
            Op::SetReservedFlags(a, b, flags)
        }),
        6 => wanted().prop_map(Op::Allocate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 1500 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_step_does_what_the_page_model_does(
        ops in prop::collection::vec(op(), 1..40),
        slots in 1..24usize,
        bottom_up: bool,
        movable_node: bool,
    ) {
        let mut memory = vec![EarlyRegion::EMPTY; slots];
        let mut reserved = vec![EarlyRegion::EMPTY; slots];
        let mut owners = vec![Allocation::EMPTY; 4096];
        let mut early = EarlyMemory::new(&mut memory, &mut reserved, &mut owners);
        let direction = if bottom_up { Direction::BottomUp } else { Direction::TopDown };
        early.set_direction(direction);
        early.set_movable_node(movable_node);
        let empty = vec![None; PAGES];
        let mut model = Model { memory: empty.clone(), reserved: empty, direction, movable_node };
        for op in &ops {
            step(&mut early, &mut model, op);
            check(&early, &model);
        }
    }
}

"""Mistakes that the prover must refuse: a file, words that are in it once, and what stands there instead."""

WORD = "engine/src/frames/word/"

MISTAKES = {
    "a reservation is subtracted one bit too low, from the neighbour of the count": (
        WORD + "giant.rs",
        "Some(Self(self.0 - FREE.of(count)))",
        "Some(Self(self.0 - (FREE.of(count) >> 1)))",
    ),
    "a reservation takes one more than there is": (
        WORD + "giant.rs",
        "self.is_split() && self.free() >= count",
        "self.is_split() && self.free() + 1 >= count",
    ),
    "a count of partly free huge frames may go one beyond its bits": (
        WORD + "giant.rs",
        "unmovable > UNMOVABLE.most()",
        "unmovable > UNMOVABLE.most() + 1",
    ),
    "a change may count more free huge frames than there are": (
        WORD + "giant.rs",
        "if free > HUGES ||",
        "if free > HUGES + 1 ||",
    ),
    "a giant frame merges while one of its huge frames is partly free": (
        WORD + "giant.rs",
        "const COUNTS: u64 = FREE.mask() | UNMOVABLE.mask() | MOVABLE.mask();",
        "const COUNTS: u64 = FREE.mask() | UNMOVABLE.mask();",
    ),
    "a merge forgets what is known of the content": (
        WORD + "giant.rs",
        "let merged = self.0 & (CONTENT | RAISES.mask())",
        "let merged = self.0 & RAISES.mask()",
    ),
    "a count that is raised carries into the next field": (
        WORD + "giant.rs",
        "RAISES.of(1) | FREE.of(count)",
        "RAISES.of(1) | FREE.of(count) << 1",
    ),
    "two fields of a giant word share a bit": (
        WORD + "giant.rs",
        "const FREE: Field = OPENED.then(10);",
        "const FREE: Field = STATE.then(10);",
    ),
    "a giant frame that was taken with contents is not stale": (
        WORD + "giant.rs",
        "let is_stale = self.is_stale() || self.was_opened() && self.known() > 0;",
        "let is_stale = self.was_opened() && self.known() > 0;",
    ),
    "a field is set without its old number taken out": (
        WORD + "field.rs",
        "word & !self.mask() | self.of(number)",
        "word | self.of(number)",
    ),
    "a huge frame that is isolated counts as free": (
        WORD + "huge.rs",
        "self.is_only(HugeState::Free, ISOLATED.mask())",
        "self.is_only(HugeState::Free, PINNED.mask())",
    ),
    "a bound of a huge frame is lowered where it is to be raised": (
        WORD + "huge.rs",
        "if self.max_order() < max_order {",
        "if self.max_order() > max_order + 1 {",
    ),
}

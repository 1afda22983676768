"""Mistakes that the prover must refuse: a file, words that are in it once, and what stands there instead."""

WORD = "engine/frames/src/frames/word/"

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
    "a block of a bitmap may start anywhere": (
        WORD + "bitmap.rs",
        "clear &= STARTS[order as usize];\n    if clear == 0 {\n        None",
        "clear &= STARTS[0];\n    if clear == 0 {\n        None",
    ),
    "the mask of a row is one page short": (
        WORD + "bitmap.rs",
        "(!0 >> (64 - count)) << at",
        "(!0 >> (65 - count)) << at",
    ),
    "a page that is taken clears the pages below it": (
        WORD + "bitmap.rs",
        "let new = seen | seen.wrapping_add(1);",
        "let new = seen ^ seen.wrapping_add(1);",
    ),
    "a block that is taken frees the others of its word": (
        WORD + "bitmap.rs",
        "let new = seen | mask(at, count);",
        "let new = mask(at, count);",
    ),
    "given pages are taken where only some of them are free": (
        WORD + "bitmap.rs",
        "|word| {\n            if word & bits == 0 {",
        "|word| {\n            if word & bits != bits {",
    ),
    "a row that is not had gives back a word that it never took": (
        WORD + "bitmap.rs",
        "self.untake(pages.at, at);",
        "self.untake(pages.at, next);",
    ),
    "of pages that two CPUs want at once both get all": (
        WORD + "bitmap.rs",
        "(wanted & !old, old | wanted == !0)",
        "(wanted, old | wanted == !0)",
    ),
    "pages are given back the wrong way round": (
        WORD + "bitmap.rs",
        "|word| {\n            if word & bits == bits {\n                Some(word & !bits)",
        "|word| {\n            if word & bits == bits {\n                Some(word & bits)",
    ),
    "blocks of 128 pages are looked for at every word": (
        WORD + "bitmap.rs",
        "at += 1 << order;",
        "at += 64;",
    ),
    "a huge frame that can't be merged keeps the pages that were taken for it": (
        WORD + "bitmap.rs",
        "self.untake(0, index as u32 * 64);",
        "self.untake(0, 0);",
    ),
    "a huge frame opens with the other pages of a word free": (
        WORD + "bitmap.rs",
        "bits ^= those;",
        "bits = those;",
    ),
    "a huge frame opens with none of its words' other pages given out": (
        WORD + "bitmap.rs",
        "let others = if inside { 0 } else { !0 };",
        "let others = !0;",
    ),
    "the owner of pages is refused": (
        WORD + "bitmap.rs",
        "let wanted = if allocated { bits } else { 0 };",
        "let wanted = if allocated { !0 } else { 0 };",
    ),
    "pages that are free already are given back once more": (
        WORD + "bitmap.rs",
        "if word & bits == bits {",
        "if word & bits != 0 {",
    ),
    "pages of a row are given back before it is seen that others of it are free": (
        WORD + "bitmap.rs",
        "if !self.all_set(pages) {",
        "if !self.all_set(Pages { count: 1, ..pages }) {",
    ),
    "a call that is refused is told that pages were given back that were not": (
        WORD + "bitmap.rs",
        "let given = at - pages.at;",
        "let given = next - pages.at;",
    ),
    "pages that were free count as given back": (
        WORD + "bitmap.rs",
        "(old & bits, given)",
        "(bits, given)",
    ),
    "a call takes more pages of a word than it wants": (
        WORD + "bitmap.rs",
        "let wanted = lowest(!word.load(Ordering::Acquire), most);",
        "let wanted = !word.load(Ordering::Acquire);",
    ),
    "the lowest of some bits are one more than were wanted": (
        WORD + "bitmap.rs",
        "for _ in 0..count {",
        "for _ in 0..=count {",
    ),
    "the block around pages that are given back counts as no larger than they are": (
        WORD + "bitmap.rs",
        "return around;",
        "return order;",
    ),
    "a word counts as empty while pages of it are taken": (
        WORD + "bitmap.rs",
        "self.word == 0",
        "self.word != !0",
    ),
    "a page is looked for at the bit after its own": (
        WORD + "bitmap.rs",
        "word >> (at % 64) & 1 != 0",
        "word >> (at % 64) & 2 != 0",
    ),
    "a bitmap counts as full while a page of it is free": (
        WORD + "bitmap.rs",
        "if recheck_u64(&self.0[index]) != !0 {",
        "if recheck_u64(&self.0[index]) == 0 {",
    ),
    "a bitmap counts as empty while a page of it is taken": (
        WORD + "bitmap.rs",
        "if recheck_u64(&self.0[index]) != 0 {",
        "if recheck_u64(&self.0[index]) == !0 {",
    ),
    "the last word of a bitmap that is not full is looked at for its largest block, and no other": (
        WORD + "bitmap.rs",
        "if here > beyond {",
        "if here > 0 {",
    ),
    "a block that is one order larger than the largest so far is passed over": (
        WORD + "bitmap.rs",
        "if here > beyond {",
        "if here > beyond + 1 {",
    ),
    "a bitmap with no clear row of words says that it has one": (
        WORD + "bitmap.rs",
        "while order > WORD_ORDER && !self.has_block(order) {",
        "while order > WORD_ORDER && self.has_block(order) {",
    ),
    "a block of several words is looked for among those that are taken": (
        WORD + "bitmap.rs",
        "if self.all_are(Pages { at, count }, false) {",
        "if self.all_are(Pages { at, count }, true) {",
    ),
    "of the blocks of several words only the first half is looked at": (
        WORD + "bitmap.rs",
        "let count = 1 << order;\n            let mut at = 0;",
        "let count = 64 << (order / 8);\n            let mut at = 0;",
    ),
    "pages that are taken are counted as free": (
        WORD + "bitmap.rs",
        "free += (!word).count_ones();",
        "free += word.count_ones();",
    ),
    "the largest block of a word is as large as two that are not side by side": (
        WORD + "bitmap.rs",
        "clear &= clear >> (1u32 << order);",
        "clear &= clear >> (2u32 << order);",
    ),
    "pages that are given back count as a block that they are not": (
        WORD + "bitmap.rs",
        "if count.is_power_of_two() && at % count == 0 => {",
        "if count.is_power_of_two() => {",
    ),
    "the tests' model allocates what another call has": (
        "engine/frames/src/frames/tests/owners.rs",
        "let are_free = self.are(from, to, NO_ONE);",
        "let are_free = self.are(from, from, NO_ONE);",
    ),
    "the tests' model frees what is partly free": (
        "engine/frames/src/frames/tests/owners.rs",
        "let are_allocated = self.are_allocated(from, to);",
        "let are_allocated = !self.are(from, to, NO_ONE);",
    ),
    "a huge frame is taken without a reservation": (
        WORD + "steps.rs",
        "if !lower_free(giant, 1) {",
        "if !lower_free(giant, 0) {",
    ),
    "a reservation that is undone is counted twice": (
        WORD + "steps.rs",
        "raise_free(giant, 1);",
        "raise_free(giant, 2);",
    ),
    "a huge frame that is not free is taken": (
        WORD + "steps.rs",
        "if swap_huge(huge, seen, to) {",
        "if swap_huge(huge, to, seen) {",
    ),
    "what gives back a huge frame takes it": (
        WORD + "steps.rs",
        "seen.is_allocated() && swap_huge(word, seen, Huge::FREE)",
        "seen.is_allocated() && swap_huge(word, Huge::FREE, seen)",
    ),
    "a giant frame that is split becomes free as one block before all of it is": (
        WORD + "steps.rs",
        "if seen.is_complete() {",
        "if seen.is_split() {",
    ),
    "a giant frame opens with more huge frames free than are": (
        WORD + "steps.rs",
        "from.opened_with(free).bits()",
        "from.opened_with(512).bits()",
    ),
    "what was counted while a giant frame opened is counted out again": (
        WORD + "steps.rs",
        "let (opening, opened) = (from.opening().bits(),",
        "let (opening, opened) = (from.bits(),",
    ),
    "two calls may open a giant frame at once": (
        WORD + "steps.rs",
        "swap_u64(word, from.bits(), from.opening().bits())",
        "swap_u64(word, from.bits(), from.bits())",
    ),
    "a call that wants several huge frames reserves fewer": (
        WORD + "steps.rs",
        "lowered_free(count)",
        "lowered_free(count / 2)",
    ),
    "a change that another CPU was faster than counts as made": (
        "engine/frames/src/sync.rs",
        "Err(now) => old = now,",
        "Err(_) => return Ok((old, new)),",
    ),
}

//@ file engine/frames/src/frames/word/field.rs
// Fields of a word: what is read of one is what was set, and no field has a bit of another.

//@ fn Field::new
    requires
        at < 64,
        width < 32,
        at + width <= 64,
    ensures
        out.wf(),
        out.at() == at,
        out.width() == width,

//@ fn Field::then
    requires
        self.wf(),
        self.at() + self.width() < 64,
        width < 32,
        self.at() + self.width() + width <= 64,
    ensures
        out.wf(),
        out.at() == self.at() + self.width(),
        out.width() == width,

//@ fn Field::most
    requires
        self.wf(),
    ensures
        out == most(self.width()),

//@ fn Field::most, before: (1 << self.width)
        proof {
            let width = self.width;
            assert(width < 32 ==> (1u32 << width) >= 1) by (bit_vector);
        }

//@ fn Field::mask
    requires
        self.wf(),
    ensures
        out == mask(self.at(), self.width()),

//@ fn Field::mask, before: self.of(
        proof {
            let (at, width) = (self.at, self.width);
            assert(at < 64 && width == 0 ==> (sub(1u32 << width, 1) as u64) << at == 0) by (bit_vector);
        }

//@ fn Field::of
    requires
        self.wf(),
        number <= most(self.width()),
    ensures
        out == (number as u64) << self.at(),

//@ fn Field::of, before: debug_assert!
        proof {
            let (at, width) = (self.at, self.width);
            assert(at < 64 && width == 0 && number <= sub(1u32 << width, 1) ==> (number as u64) << at == 0) by (bit_vector);
        }

//@ fn Field::get
    requires
        self.wf(),
    ensures
        out == part(word, self.at(), self.width()),

//@ fn Field::set
    requires
        self.wf(),
        number <= most(self.width()),
    ensures
        out == put(word, self.at(), self.width(), number),

//@ items
impl Field {
    pub closed spec fn at(self) -> u32 { self.at }
    pub closed spec fn width(self) -> u32 { self.width }
    /// It lies in a word.
    pub open spec fn wf(self) -> bool { self.at() < 64 && self.width() < 32 && self.at() + self.width() <= 64 }
}

/// The largest number of so many bits.
pub open spec fn most(width: u32) -> u32 { sub(1u32 << width, 1) }

/// The bits of a field.
pub open spec fn mask(at: u32, width: u32) -> u64 { (most(width) as u64) << at }

/// The number in `width` bits from bit `at` on.
pub open spec fn part(word: u64, at: u32, width: u32) -> u32 { (word >> at) as u32 & most(width) }

/// A word with another number there.
pub open spec fn put(word: u64, at: u32, width: u32, number: u32) -> u64 {
    word & !mask(at, width) | (number as u64) << at
}

/// What is set is read back, and no other field changes: of any two fields that share no bit, wherever
/// they lie, of every word.
pub broadcast proof fn theorem_a_field_overflows_into_no_other(word: u64, at: u32, width: u32, number: u32, at2: u32, width2: u32)
    requires
        at < 64, width < 32, at + width <= 64,
        at2 < 64, width2 < 32, at2 + width2 <= 64,
        number <= most(width),
    ensures
        at == at2 && width == width2 ==> #[trigger] part(put(word, at, width, number), at2, width2) == number,
        at + width <= at2 || at2 + width2 <= at ==> part(put(word, at, width, number), at2, width2) == part(word, at2, width2),
{
    assert(at < 64 && width < 32 && add(at, width) <= 64 && number <= sub(1u32 << width, 1) ==>
        ((word & !((sub(1u32 << width, 1) as u64) << at) | (number as u64) << at) >> at) as u32 & sub(1u32 << width, 1) == number) by (bit_vector);
    assert(at < 64 && width < 32 && at2 < 64 && width2 < 32 && add(at, width) <= 64 && add(at2, width2) <= 64
        && number <= sub(1u32 << width, 1) && (add(at, width) <= at2 || add(at2, width2) <= at) ==>
        ((word & !((sub(1u32 << width, 1) as u64) << at) | (number as u64) << at) >> at2) as u32 & sub(1u32 << width2, 1)
            == (word >> at2) as u32 & sub(1u32 << width2, 1)) by (bit_vector);
}

//@ file engine/frames/src/frames/word/content.rs

//@ const IS_KEPT
    ensures IS_KEPT,
//@ fn Content::of_bits
    ensures out == content_of(bits),
//@ fn Content::of_bits, before: match
        proof { assert(bits & 3 == bits % 4) by (bit_vector); }
//@ fn Content::is_known
    ensures out == (self != Content::Unknown),
//@ external impl fmt::Display for Content
//@ external struct Known
//@ external impl Known
//@ external struct Purpose
//@ external impl From<super::Mobility> for Purpose
//@ external const WORDS

//@ items
/// What two bits of a word say.
pub open spec fn content_of(bits: u32) -> Content {
    if bits % 4 == 1 { Content::Zero } else if bits % 4 == 2 { Content::Reported } else { Content::Unknown }
}

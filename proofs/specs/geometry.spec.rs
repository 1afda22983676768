//@ file engine/frames/src/frames/word/geometry.rs
//@ external fn units
//@ external fn unit
//@ external struct Block
//@ external impl Block
//@ external fn Pages::of
//@ external fn is_in_one_huge
//@ external fn blocks
//@ external fn blocks_up_to
//@ external fn largest_order
//@ fn Pages::is_in_one_word
    requires self.count <= 512,
    ensures out == (self.at % 64 + self.count <= 64),

//@ items
/// The sizes that everything here is proven for.
pub(crate) proof fn sizes()
    ensures HUGES == 512, HUGE_FRAMES == 512, LARGEST_PAGES == 8, BITMAP_WORDS == 8,
{
    assert(HUGES == 512) by (compute_only);
    assert(HUGE_FRAMES == 512) by (compute_only);
    assert(LARGEST_PAGES == 8) by (compute_only);
    assert(BITMAP_WORDS == 8) by (compute_only);
}

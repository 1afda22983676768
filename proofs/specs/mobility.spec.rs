//@ file engine/frames/src/frames/word/mobility.rs

//@ external const MOBILITIES
//@ fn Mobility::other
//@ fn Mobility::of_content
    ensures out == (if can_be_moved { Mobility::Movable } else { Mobility::Unmovable }),
//@ fn Mobility::is_movable
    ensures out == (self != Mobility::Unmovable),

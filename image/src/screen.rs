//! Text and a QR code on a screen of pixels: [`Screen`]. Pixels are written, never read:
//! reading video memory is slow.

use font8x8::legacy::BASIC_LEGACY;
use qrcodegen_no_heap::{QrCode, QrCodeEcc, Version};

const INK: u32 = 0x00d0_d0d0;
const PAPER: u32 = 0;
const WHITE: u32 = 0x00ff_ffff;
/// Rows and columns of the font; each of its rows is shown twice.
const GLYPH: u32 = 8;
/// A screen as wide as this shows letters of twice the size.
const WIDE: u32 = 2560;
/// The largest QR code: more modules than this, and a photo of a small screen is not sharp.
const LARGEST: Version = Version::new(30);
/// Bytes that the largest QR code has.
pub const CODE_BYTES: usize = 1732;
/// White modules around a code.
const BORDER: u32 = 4;

/// Where pixels go.
pub trait Pixels {
    /// Pixels a row, and rows.
    fn size(&self) -> (u32, u32);
    /// Sets one of them; `color` has 8 bits each of red, green and blue.
    fn set(&mut self, x: u32, y: u32, color: u32);
}

/// A screen that shows lines.
#[derive(Debug)]
pub struct Screen<P> {
    pixels: P,
    /// Where the next letter goes, in letters.
    at: (u32, u32),
    is_clear: bool,
    /// Columns of pixels at the right border that a code has.
    code: u32,
}

impl<P: Pixels> Screen<P> {
    /// Nothing is written before the first line.
    pub const fn new(pixels: P) -> Self {
        Self {
            pixels,
            at: (0, 0),
            is_clear: false,
            code: 0,
        }
    }

    fn scale(&self) -> u32 {
        1 + u32::from(self.pixels.size().0 >= WIDE)
    }

    /// Columns of pixels that text may use.
    fn width(&self) -> u32 {
        self.pixels.size().0 - self.code
    }

    /// Letters a row, and rows.
    fn letters(&self) -> (u32, u32) {
        let size = GLYPH * self.scale();
        (self.width() / size, self.pixels.size().1 / (2 * size))
    }

    fn fill(&mut self, from: (u32, u32), to: (u32, u32), color: u32) {
        for y in from.1..to.1 {
            (from.0..to.0).for_each(|x| self.pixels.set(x, y, color));
        }
    }

    /// Shows `text` and begins a new line. At the bottom it goes on at the top, so that nothing
    /// has to be read and moved; the row after the last line is empty.
    pub fn line(&mut self, text: &str) {
        if let Some(rows) = self.begin(text) {
            self.next_row(rows);
        }
    }

    /// Shows `text`, which more text follows; how many rows there are, if text fits the screen.
    pub fn begin(&mut self, text: &str) -> Option<u32> {
        let size = self.pixels.size();
        if !self.is_clear {
            self.is_clear = true;
            self.fill((0, 0), size, PAPER);
        }
        let (columns, rows) = self.letters();
        if columns == 0 || rows < 2 {
            return None;
        }
        for byte in text.bytes() {
            if self.at.0 >= columns {
                self.next_row(rows);
            }
            self.letter(byte);
            self.at.0 += 1;
        }
        Some(rows)
    }

    fn next_row(&mut self, rows: u32) {
        self.at = (0, (self.at.1 + 1) % rows);
        let height = 2 * GLYPH * self.scale();
        for row in [self.at.1, (self.at.1 + 1) % rows] {
            let top = row * height;
            self.fill((0, top), (self.width(), top + height), PAPER);
        }
    }

    fn letter(&mut self, byte: u8) {
        let glyph = BASIC_LEGACY.get(usize::from(byte)).unwrap_or(&[0; 8]);
        let scale = self.scale();
        let (left, top) = (self.at.0 * GLYPH * scale, self.at.1 * 2 * GLYPH * scale);
        for (row, bits) in (0..).zip(glyph) {
            for column in 0..GLYPH {
                let color = if bits >> column & 1 == 1 { INK } else { PAPER };
                let from = (left + column * scale, top + row * 2 * scale);
                self.fill(from, (from.0 + scale, from.1 + 2 * scale), color);
            }
        }
    }

    /// Shows `text`, at most [`CODE_BYTES`], as a QR code at the right border; whether it fits
    /// there.
    pub fn code(&mut self, text: &[u8], buffers: &mut CodeBuffers) -> bool {
        let CodeBuffers { data, code } = buffers;
        let Some(slot) = data.get_mut(..text.len()) else {
            return false;
        };
        slot.copy_from_slice(text);
        let made = QrCode::encode_binary(
            data,
            text.len(),
            code,
            QrCodeEcc::Low,
            Version::MIN,
            LARGEST,
            None,
            true,
        );
        let Ok(code) = made else { return false };
        let (width, height) = self.pixels.size();
        let modules = code.size().unsigned_abs() + 2 * BORDER;
        let scale = width.min(height) / modules;
        if scale == 0 {
            return false;
        }
        let left = width - modules * scale;
        self.code = modules * scale;
        self.fill((left, 0), (width, modules * scale), WHITE);
        for row in 0..modules {
            for column in 0..modules {
                let [x, y] = [column, row].map(|at| at.cast_signed() - BORDER.cast_signed());
                if code.get_module(x, y) {
                    let from = (left + column * scale, row * scale);
                    self.fill(from, (from.0 + scale, from.1 + scale), PAPER);
                }
            }
        }
        true
    }
}

/// Memory to make a QR code in.
#[derive(Debug)]
pub struct CodeBuffers {
    data: [u8; LARGEST.buffer_len()],
    code: [u8; LARGEST.buffer_len()],
}

impl Default for CodeBuffers {
    fn default() -> Self {
        Self::new()
    }
}

impl CodeBuffers {
    /// Unused ones.
    pub const fn new() -> Self {
        Self {
            data: [0; LARGEST.buffer_len()],
            code: [0; LARGEST.buffer_len()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::String;
    use std::vec;
    use std::vec::Vec;

    struct Memory {
        width: u32,
        height: u32,
        pixels: Vec<u32>,
    }

    impl Memory {
        fn screen(width: u32, height: u32) -> Screen<Self> {
            let pixels = vec![0x1234; (width * height) as usize];
            Screen::new(Self {
                width,
                height,
                pixels,
            })
        }
    }

    impl Pixels for Memory {
        fn size(&self) -> (u32, u32) {
            (self.width, self.height)
        }
        fn set(&mut self, x: u32, y: u32, color: u32) {
            assert!(x < self.width && y < self.height, "{x}, {y}");
            self.pixels[(y * self.width + x) as usize] = color;
        }
    }

    impl Screen<Memory> {
        /// The text in a row of letters, read by its shapes.
        fn row(&self, row: u32) -> String {
            let scale = self.scale();
            let ink = |x: u32, y: u32| {
                let at = y * self.pixels.width + x;
                self.pixels.pixels[at as usize] == INK
            };
            let columns = self.pixels.width / (GLYPH * scale);
            let letters = (0..columns).map(|column| {
                let shape: [u8; 8] = core::array::from_fn(|y| {
                    let y = (row * 2 * GLYPH + 2 * u32::try_from(y).unwrap()) * scale;
                    (0..GLYPH).fold(0, |bits, x| {
                        bits | u8::from(ink((column * GLYPH + x) * scale, y)) << x
                    })
                });
                let known = BASIC_LEGACY
                    .iter()
                    .skip(32)
                    .position(|known| *known == shape);
                let letter = known.map(|letter| letter + 32);
                char::from(u8::try_from(letter.expect("a letter")).unwrap())
            });
            letters.collect::<String>().trim_end().into()
        }
    }

    #[test]
    fn lines_are_shown_wrapped_and_over_and_over() {
        for scale in [1, 2] {
            let mut screen = Memory::screen(1280 * scale, 80 * scale);
            screen.line("[    0.000001] first");
            screen.begin("[    0.000002] ");
            screen.line("second");
            assert_eq!(screen.row(0), "[    0.000001] first");
            assert_eq!(screen.row(1), "[    0.000002] second");
            assert!(!screen.pixels.pixels.contains(&0x1234), "all is cleared");
            let long = "x".repeat(165);
            screen.line(&long);
            assert_eq!(screen.row(2), "x".repeat(160));
            assert_eq!(screen.row(3), "xxxxx");
            // At the bottom now: the next lines are empty.
            assert_eq!((screen.row(4), screen.row(0)), Default::default());
            assert_eq!(screen.row(1), "[    0.000002] second");
            screen.line("fifth");
            screen.line("over");
            assert_eq!(
                (screen.row(4).as_str(), screen.row(0).as_str()),
                ("fifth", "over")
            );
        }
    }

    #[test]
    fn a_code_is_read_and_text_leaves_it_alone() {
        let mut text =
            "{\"event\":\"milestone\",\"name\":\"entry\",\"ticks\":2665340878}\n".repeat(40);
        text.truncate(1700);
        for (width, height) in [(800, 600), (1280, 800), (2560, 1440)] {
            let mut screen = Memory::screen(width, height);
            screen.line("before");
            assert!(screen.code(text.as_bytes(), &mut CodeBuffers::new()));
            (0..50).for_each(|_| {
                screen.line("after, and long enough to come near to the code: 0123456789")
            });
            let gray = |x: usize, y: usize| {
                let pixel = screen.pixels.pixels[y * width as usize + x];
                if pixel == WHITE { 255 } else { 0 }
            };
            let mut image =
                rqrr::PreparedImage::prepare_from_greyscale(width as usize, height as usize, gray);
            let codes = image.detect_grids();
            assert_eq!(codes.len(), 1, "{width}");
            assert_eq!(codes[0].decode().unwrap().1, text);
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let mut buffers = CodeBuffers::new();
        assert!(!Memory::screen(800, 600).code(&[b'x'; 1733], &mut buffers));
        assert!(Memory::screen(800, 600).code(&[b'x'; CODE_BYTES], &mut buffers));
        assert!(!Memory::screen(140, 600).code(&[b'x'; CODE_BYTES], &mut buffers));
        assert!(!Memory::screen(800, 600).code(&[0; 9999], &mut buffers));
        for (width, height) in [(1, 1), (7, 100), (100, 16), (0, 0)] {
            Memory::screen(width, height).line("no space for a letter");
        }
    }
}

//! Names of lines that differ in nothing but numbers: [`alike`].

/// The start of a message, numbers taken out.
///
/// ```
/// use firstlight_lab::log::alike;
/// assert_eq!(alike("Normal zone: 893 pages"), "Normal zone: # pages");
/// ```
#[must_use]
pub fn alike(text: &str) -> String {
    const MOST_CHARS: usize = 48;
    let mut name = String::new();
    let mut number = false;
    for c in text.chars().take(MOST_CHARS) {
        let hex = number && (c.is_ascii_hexdigit() || c == 'x');
        if c.is_ascii_digit() || hex {
            if !number {
                name.push('#');
            }
            number = true;
        } else {
            number = false;
            name.push(c);
        }
    }
    name.trim_end().to_owned()
}

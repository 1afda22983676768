//! Events as JSON: [`line()`].

use firstlight_wire::Event;

/// An event as the image writes it.
pub type Outgoing<'a> = Event<&'a str, &'a [u8]>;

/// Enough for one event.
pub const EVENT_BYTES: usize = 4096;

/// The event as a line in `buffer`; `None` if it does not fit.
///
/// ```
/// use firstlight_image::json::{EVENT_BYTES, line};
/// use firstlight_wire::Event;
/// let event = Event::Milestone { name: "layout", ticks: 12, source: None };
/// let mut buffer = [0; EVENT_BYTES];
/// let text = line(&event, &mut buffer).unwrap();
/// assert_eq!(text, b"{\"event\":\"milestone\",\"name\":\"layout\",\"ticks\":12}\n");
/// ```
pub fn line<'b>(event: &Outgoing<'_>, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let len = serde_json_core::to_slice(event, buffer).ok()?;
    *buffer.get_mut(len)? = b'\n';
    buffer.get(..=len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_events_fit() {
        let mut buffer = [0; EVENT_BYTES];
        let distances = [255; 512];
        let node = Event::Node {
            node: u16::MAX,
            domain: u32::MAX,
            cpus: u64::MAX,
            start_frame: u64::MAX,
            end_frame: u64::MAX,
            present_frames: u64::MAX,
            distances: &distances[..],
        };
        assert!(line(&node, &mut buffer).is_some());
        let text = core::str::from_utf8(&[b'\n'; 1500]).map(|text| Event::Note { text });
        assert!(line(&text.unwrap(), &mut buffer).is_some());
        assert!(line(&node, &mut buffer[..100]).is_none());
    }

    #[test]
    fn quotes_and_control_characters_are_escaped() {
        let mut buffer = [0; 256];
        let text = line(
            &Event::Note {
                text: "a \"b\" \\ \u{1}\n",
            },
            &mut buffer,
        )
        .unwrap();
        assert_eq!(
            text,
            b"{\"event\":\"note\",\"text\":\"a \\\"b\\\" \\\\ \\u0001\\n\"}\n"
        );
    }
}

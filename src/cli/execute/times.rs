//! Times as text for people.

/// Formats a time in a suitable unit.
pub(super) fn format_milliseconds(time: f64) -> String {
    if time >= 1000.0 {
        format!("{:.2} s", time / 1000.0)
    } else if time >= 1.0 {
        format!("{time:.2} ms")
    } else {
        format!("{:.1} µs", time * 1000.0)
    }
}

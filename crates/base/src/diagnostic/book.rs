//! Addresses of the book's pages.

/// Base URL of the book.
pub const BOOK: &str = "https://pkgtool.dev/docs/";

/// Returns the URL of a page, such as `serve/limits`.
#[must_use]
pub fn page(name: &str) -> String {
    format!("{BOOK}{name}/")
}

/// Returns the end of a command's help: `text`, then a link to a page.
#[must_use]
pub fn help(text: &str, page: &str) -> String {
    let url = match page {
        "" => BOOK.to_owned(),
        page => self::page(page),
    };
    format!("{text}\n\nMore: {url}")
}

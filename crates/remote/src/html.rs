//! Parses directory listings in HTML, and returns their links.
//!
//! Apache, nginx, lighttpd, Caddy, `python -m http.server` and others write an `<a href>` for each
//! file.

/// Texts in the titles of directory listings.
const TITLES: [&str; 3] = ["index of", "directory listing for", "directory: /"];
/// Number of bytes of a page that are searched for its title.
const HEAD: usize = 4096;

/// Returns whether a page is a directory listing.
pub(super) fn is_listing(page: &str) -> bool {
    let head = &page[..page.floor_char_boundary(HEAD)];
    let head = head.to_ascii_lowercase();
    TITLES.iter().any(|title| head.contains(title))
}

/// Returns the targets of a page's links, with HTML escapes decoded.
pub(super) fn links(page: &str) -> impl Iterator<Item = String> {
    page.split('<').skip(1).filter_map(|tag| {
        let rest = tag.strip_prefix(['a', 'A'])?;
        // Distinguish `<a` from tags such as `<abbr`.
        let rest = rest
            .starts_with(|c: char| c.is_ascii_whitespace())
            .then_some(rest)?;
        let end = rest.find('>').unwrap_or(rest.len());
        let rest = &rest[..end];
        let at = rest.to_ascii_lowercase().find("href")?;
        let value = rest[at + 4..].trim_start().strip_prefix('=')?.trim_start();
        let quote = value.chars().next()?;
        let target = match quote {
            '"' | '\'' => value[1..].split(quote).next()?,
            _ => value.split_ascii_whitespace().next()?,
        };
        Some(unescaped(target))
    })
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"")
        .replace("&#x27;", "'")
        .replace("&#39;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_as_servers_write_them() {
        let page = "<html><title>Index of /m/</title><a href=\"../\">../</a><A class=x HREF='a&amp;b.pte'>a</A>\
                    <a href=c%20d/>c</a><abbr href=\"no\"><a name=n>";
        assert!(is_listing(page));
        assert_eq!(
            links(page).collect::<Vec<_>>(),
            ["../", "a&b.pte", "c%20d/"]
        );
        assert!(!is_listing("<html><title>Welcome</title>"));
        assert_eq!(
            links("<a href=").count() + links("<a").count() + links("").count(),
            0
        );
    }
}

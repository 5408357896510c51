//! `{% generation %}` … `{% endgeneration %}`, with which templates mark an assistant's words for
//! training.
//!
//! The library refuses tags that it does not know, so they become a scope of their own, which is all
//! they are when rendering. Invariant: the text keeps its length and its lines, so that errors point to
//! the right place; nothing but these tags is changed.

use std::borrow::Cow;

/// As long as `generation`.
const OPEN: &str = "with      ";
/// As long as `endgeneration`.
const CLOSE: &str = "endwith      ";

/// The template without these tags.
pub(super) fn replaced(template: &str) -> Cow<'_, str> {
    let mut tags = tags(template).peekable();
    if tags.peek().is_none() {
        return template.into();
    }
    let mut text = String::with_capacity(template.len());
    let mut copied = 0;
    for (at, new) in tags {
        text.push_str(&template[copied..at]);
        text.push_str(new);
        copied = at + new.len();
    }
    text.push_str(&template[copied..]);
    text.into()
}

/// Where such names stand, and what takes their place.
fn tags(template: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let mut rest = Reader { template, at: 0 };
    std::iter::from_fn(move || {
        loop {
            let tag = rest.next_tag()?;
            match rest.template.get(tag.clone()) {
                Some("generation") => return Some((tag.start, OPEN)),
                Some("endgeneration") => return Some((tag.start, CLOSE)),
                Some("raw") => rest.skip_raw(),
                _ => {}
            }
        }
    })
}

struct Reader<'t> {
    template: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.template[self.at..]
    }

    /// The place of the next tag's name; the reader stands after the tag.
    fn next_tag(&mut self) -> Option<std::ops::Range<usize>> {
        loop {
            let rest = self.rest();
            self.at += rest.find('{')?;
            let rest = self.rest();
            if rest.starts_with("{#") {
                self.at += rest.find("#}")? + 2;
            } else if rest.starts_with("{{") {
                self.at += 2;
                self.skip_code("}}")?;
            } else if rest.starts_with("{%") {
                self.at += 2;
                let name = self.name();
                self.skip_code("%}")?;
                return Some(name);
            } else {
                self.at += 1;
            }
        }
    }

    fn name(&self) -> std::ops::Range<usize> {
        let rest = self.rest();
        let inner = rest.strip_prefix(['-', '+']).unwrap_or(rest).trim_start();
        let start = self.at + rest.len() - inner.len();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = inner.find(|c| !is_part(c)).unwrap_or(inner.len());
        start..start + length
    }

    /// Goes past the end of a tag, which does not stand within a string.
    fn skip_code(&mut self, end: &str) -> Option<()> {
        let mut quote = None;
        let mut escaped = false;
        for (at, c) in self.rest().char_indices() {
            match quote {
                None if self.rest()[at..].starts_with(end) => {
                    self.at += at + end.len();
                    return Some(());
                }
                None if c == '"' || c == '\'' => quote = Some(c),
                Some(_) if escaped => escaped = false,
                Some(_) if c == '\\' => escaped = true,
                Some(open) if c == open => quote = None,
                None | Some(_) => {}
            }
        }
        None
    }

    /// Goes to the tag that ends a raw text; to the end if none does.
    fn skip_raw(&mut self) {
        loop {
            let Some(found) = self.rest().find("{%") else {
                self.at = self.template.len();
                return;
            };
            self.at += found + 2;
            if self.template.get(self.name()) == Some("endraw") {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_become_a_scope_and_the_text_keeps_its_length() {
        let template = "a{%- generation -%}\nb{{ generation }}{% endgeneration %}c";
        let new = replaced(template);
        assert_eq!(
            new,
            "a{%- with       -%}\nb{{ generation }}{% endwith       %}c"
        );
        assert_eq!(new.len(), template.len());
    }

    #[test]
    fn what_only_looks_like_a_tag_stays() {
        for template in [
            "{# {% generation %} #}",
            "{% raw %}{% generation %}{% endraw %}",
            "{%- raw -%}{% generation %}",
            "{{ '{% generation %}' }}",
            "{% if add_generation_prompt %}{% endif %}",
            "{% generations %}",
            "{% generation",
            "{ {% generation",
            "{% if x == '\\'%}{% generation %}' %}",
        ] {
            assert_eq!(replaced(template), template);
        }
        assert_eq!(
            replaced("{% raw %}{% endraw %}{% generation %}"),
            "{% raw %}{% endraw %}{% with       %}"
        );
    }
}

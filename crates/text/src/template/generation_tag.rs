//! Replaces the tags `{% generation %}` … `{% endgeneration %}`, with which templates mark an
//! assistant's words for training.
//!
//! The Jinja library rejects unknown tags. So these tags become a plain scope, which is all they
//! mean when rendering. Invariant: the text keeps its length and its lines, so that errors point to
//! the right place. Nothing else is changed.

use std::borrow::Cow;

/// Replacement with the length of `generation`.
const WITH_TAG: &str = "with      ";
/// Replacement with the length of `endgeneration`.
const ENDWITH_TAG: &str = "endwith      ";

/// Returns the template with these tags replaced.
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

/// Iterates over the positions of the tags' names and their replacements.
fn tags(template: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let mut rest = TagReader { template, at: 0 };
    std::iter::from_fn(move || {
        loop {
            let tag = rest.next_tag()?;
            match rest.template.get(tag.clone()) {
                Some("generation") => return Some((tag.start, WITH_TAG)),
                Some("endgeneration") => return Some((tag.start, ENDWITH_TAG)),
                Some("raw") => rest.skip_raw(),
                _ => {}
            }
        }
    })
}

struct TagReader<'t> {
    template: &'t str,
    at: usize,
}

impl TagReader<'_> {
    fn rest(&self) -> &str {
        &self.template[self.at..]
    }

    /// Returns the range of the next tag's name, and moves the reader past the tag.
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

    /// Moves past the end of a tag, ignoring string literals.
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

    /// Moves to the tag that ends a raw block, or to the end of the text.
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

//! Methods of Python's values that the Jinja library lacks, or that behave differently there.
//!
//! Invariant: all other methods come from the library (`minijinja_contrib::pycompat`).

use std::borrow::Cow;

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Calls a method that the value has in Python.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => of_text(value.as_str().unwrap_or_default(), method, arguments)?,
        ValueKind::Seq if method == "index" => Some(index_in(value, arguments)?),
        ValueKind::Seq | ValueKind::Map if method == "copy" => Some(value.clone()),
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => unknown_method_callback(state, value, method, arguments),
    }
}

/// The filter `trim`: strips the value's text of Python's white space.
pub(super) fn trim(value: &Value, characters: Option<&str>) -> String {
    stripped(&text_of(value), characters, TrimSide::Both).to_owned()
}

/// The filter `replace` with a count, which the library's filter lacks.
pub(super) fn replace(value: &Value, old: &str, new: &str, count: Option<i64>) -> String {
    let text = text_of(value);
    match count.map(usize::try_from) {
        Some(Ok(count)) => text.replacen(old, new, count),
        _ => text.replace(old, new),
    }
}

fn text_of(value: &Value) -> Cow<'_, str> {
    match value.as_str() {
        Some(text) => text.into(),
        None => value.to_string().into(),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum TrimSide {
    Left,
    Right,
    Both,
}

fn of_text(text: &str, method: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    let side = match method {
        "strip" => TrimSide::Both,
        "lstrip" => TrimSide::Left,
        "rstrip" => TrimSide::Right,
        _ => return of_text_beyond_strip(text, method, arguments),
    };
    let (characters,): (Option<&str>,) = from_args(arguments)?;
    Ok(Some(stripped(text, characters, side).into()))
}

fn of_text_beyond_strip(
    text: &str,
    method: &str,
    arguments: &[Value],
) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(arguments)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(arguments)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            python_partition(text, separator, method == "rpartition")?
        }
        "rsplit" => split(text, arguments, true)?,
        "split" => split(text, arguments, false)?,
        "title" => {
            let () = from_args(arguments)?;
            title(text).into()
        }
        "casefold" => {
            let () = from_args(arguments)?;
            text.to_lowercase().into()
        }
        "index" => {
            let (part,): (&str,) = from_args(arguments)?;
            let at = text
                .find(part)
                .ok_or_else(|| wrong("substring not found"))?;
            text[..at].chars().count().into()
        }
        _ => return Ok(None),
    }))
}

fn stripped<'t>(text: &'t str, characters: Option<&str>, side: TrimSide) -> &'t str {
    let goes = |c: char| match characters {
        Some(characters) => characters.contains(c),
        None => is_space(c),
    };
    let text = if side == TrimSide::Right {
        text
    } else {
        text.trim_start_matches(goes)
    };
    if side == TrimSide::Left {
        text
    } else {
        text.trim_end_matches(goes)
    }
}

/// Python also treats record and file separators as white space.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Capitalises each letter that follows a non-letter, and lowercases all others.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut within = false;
    for c in text.chars() {
        if within {
            titled.extend(c.to_lowercase());
        } else {
            titled.extend(c.to_uppercase());
        }
        within = c.is_lowercase() || c.is_uppercase();
    }
    titled
}

fn python_partition(text: &str, separator: &str, last: bool) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(wrong("empty separator"));
    }
    let found = if last {
        text.rsplit_once(separator)
    } else {
        text.split_once(separator)
    };
    let parts = match found {
        Some((before, after)) => [before, separator, after],
        None if last => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Tuple::from(parts.map(Value::from)).into())
}

/// `split(sep=none, maxsplit=-1)`, from either end.
fn split(text: &str, arguments: &[Value], from_end: bool) -> Result<Value, Error> {
    let (separator, most, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(arguments)?;
    let separator = match separator {
        None => kwargs.get::<Option<Value>>("sep")?,
        given => given,
    };
    let most = match most {
        None => kwargs.get::<Option<i64>>("maxsplit")?,
        given => given,
    };
    kwargs.assert_all_used()?;
    let separator = separator.filter(|value| !value.is_none());
    let most = most.and_then(|most| usize::try_from(most).ok());
    let pieces = match &separator {
        None => words(text, most, from_end),
        Some(separator) => {
            let separator = separator.as_str();
            let separator = separator.ok_or_else(|| wrong("the separator must be a string"))?;
            if separator.is_empty() {
                return Err(wrong("empty separator"));
            }
            let most = most.map_or(usize::MAX, |most| most.saturating_add(1));
            if from_end {
                let mut pieces: Vec<&str> = text.rsplitn(most, separator).collect();
                pieces.reverse();
                pieces
            } else {
                text.splitn(most, separator).collect()
            }
        }
    };
    Ok(pieces.into_iter().map(Value::from).collect())
}

/// Splits at runs of white space; the ends are stripped.
fn words(text: &str, most: Option<usize>, from_end: bool) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = stripped(text, None, TrimSide::Both);
    while !rest.is_empty() {
        let whole = most.is_some_and(|most| words.len() >= most);
        let cut = if whole {
            None
        } else if from_end {
            rest.rfind(is_space)
        } else {
            rest.find(is_space)
        };
        let Some(cut) = cut else {
            words.push(rest);
            break;
        };
        let width = rest[cut..].chars().next().map_or(1, char::len_utf8);
        let (before, after) = (&rest[..cut], &rest[cut + width..]);
        if from_end {
            words.push(after);
            rest = stripped(before, None, TrimSide::Right);
        } else {
            words.push(before);
            rest = stripped(after, None, TrimSide::Left);
        }
    }
    if from_end {
        words.reverse();
    }
    words
}

fn index_in(list: &Value, arguments: &[Value]) -> Result<Value, Error> {
    let (wanted,): (&Value,) = from_args(arguments)?;
    for (place, item) in list.try_iter()?.checked().enumerate() {
        if item? == *wanted {
            return Ok(place.into());
        }
    }
    Err(wrong("the value is not in the list"))
}

fn wrong(detail: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_pythons() {
        assert_eq!(words("  a  b c ", None, false), ["a", "b", "c"]);
        assert_eq!(words("  a  b c ", Some(1), false), ["a", "b c"]);
        assert_eq!(words("  a  b c ", Some(1), true), ["a  b", "c"]);
        assert_eq!(words(" \u{1d} ", None, false), [""; 0]);
        assert_eq!(words(" a b ", Some(0), false), ["a b"]);
    }
}

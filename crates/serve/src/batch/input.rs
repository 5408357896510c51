//! Reads the input of a batch: one request per line, in JSON.
//!
//! Invariant: at most one line is in memory, and a longer one than allowed never is.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::record::{BatchEndpoint, LineFault};

/// Maximum number of faults that are listed.
const MAX_FAULTS: usize = 100;

/// Maximum length of a user's name of a request, in bytes.
const MAX_CUSTOM_ID_BYTES: usize = 512;

/// Limits of an input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputLimits {
    /// Maximum number of requests.
    pub(crate) lines: u64,
    /// Maximum size of a line, in bytes.
    pub(crate) line_bytes: usize,
}

/// The lines of an input that are not blank, with their numbers.
pub(crate) struct InputLines<R> {
    reader: BufReader<R>,
    number: u64,
    most: usize,
}

/// A line of an input.
pub(crate) enum InputLine {
    Text(Vec<u8>),
    TooLong,
}

/// A request of a batch.
pub(crate) struct LineRequest<'l> {
    pub(crate) custom_id: String,
    /// The body, as a single request would have it.
    pub(crate) body: &'l str,
}

/// The fields of a line.
#[derive(Deserialize)]
struct LineFields<'l> {
    custom_id: Option<Value>,
    method: Option<Value>,
    url: Option<Value>,
    #[serde(borrow)]
    body: Option<&'l RawValue>,
}

/// The field of a body that a batch cannot have.
#[derive(Deserialize)]
struct StreamField {
    stream: Option<Value>,
}

impl<R: Read> InputLines<R> {
    pub(crate) fn new(input: R, limits: InputLimits) -> Self {
        Self {
            reader: BufReader::new(input),
            number: 0,
            most: limits.line_bytes,
        }
    }

    /// Reads a line; `None` at the end.
    fn read(&mut self) -> io::Result<Option<InputLine>> {
        let mut text = Vec::new();
        let most = self.most as u64 + 1;
        let read = self
            .reader
            .by_ref()
            .take(most)
            .read_until(b'\n', &mut text)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if text.len() <= self.most || text.ends_with(b"\n") {
            return Ok(Some(InputLine::Text(text)));
        }
        drop(text);
        self.reader.skip_until(b'\n')?;
        Ok(Some(InputLine::TooLong))
    }
}

impl<R: Read> Iterator for InputLines<R> {
    type Item = io::Result<(u64, InputLine)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            return match self.read() {
                Ok(None) => None,
                Ok(Some(InputLine::Text(text))) if text.trim_ascii().is_empty() => continue,
                Ok(Some(line)) => Some(Ok((self.number, line))),
                Err(error) => Some(Err(error)),
            };
        }
    }
}

impl<'l> LineRequest<'l> {
    /// Reads a line.
    pub(crate) fn read(text: &'l [u8], endpoint: BatchEndpoint) -> Result<Self, LineFault> {
        let fields: LineFields<'l> = serde_json::from_slice(text)
            .map_err(|error| fault("invalid_json_line", "", &format!("invalid JSON: {error}")))?;
        let Some(custom_id) = fields.custom_id else {
            return Err(missing("custom_id"));
        };
        let custom_id = match custom_id {
            Value::String(text) if (1..=MAX_CUSTOM_ID_BYTES).contains(&text.len()) => text,
            _ => {
                let expected = format!("expected a text of 1 to {MAX_CUSTOM_ID_BYTES} bytes");
                return Err(fault("invalid_custom_id", "custom_id", &expected));
            }
        };
        let method = fields.method.ok_or_else(|| missing("method"))?;
        if method != "POST" {
            return Err(fault("invalid_method", "method", "expected \"POST\""));
        }
        let url = fields.url.ok_or_else(|| missing("url"))?;
        if url != endpoint.path() {
            let expected = format!("expected \"{}\", the batch's endpoint", endpoint.path());
            return Err(fault("invalid_url", "url", &expected));
        }
        let body = fields.body.ok_or_else(|| missing("body"))?.get();
        let stream = serde_json::from_str::<StreamField>(body);
        let stream = stream.map_err(|_| fault("invalid_request", "body", "expected an object"))?;
        if stream.stream == Some(Value::Bool(true)) {
            let expected = "a batch has no streams; omit `stream`";
            return Err(fault("invalid_request", "body.stream", expected));
        }
        Ok(Self { custom_id, body })
    }
}

/// Checks an input, and returns its number of requests or its faults.
pub(crate) fn check(
    input: impl Read,
    endpoint: BatchEndpoint,
    limits: InputLimits,
) -> io::Result<Result<u64, Vec<LineFault>>> {
    let mut faults = Vec::new();
    let mut names = HashSet::new();
    let mut count = 0;
    for line in InputLines::new(input, limits) {
        let (number, line) = line?;
        count += 1;
        if count > limits.lines {
            let message = format!("the file has more than {} requests", limits.lines);
            faults.push(fault("too_many_requests", "", &message));
            return Ok(Err(faults));
        }
        let request = match &line {
            InputLine::TooLong => {
                let message = format!("the line has more than {} bytes", limits.line_bytes);
                Err(fault("line_too_long", "", &message))
            }
            InputLine::Text(text) => LineRequest::read(text, endpoint).and_then(|request| {
                // The names of many requests need less memory as sums.
                let sum: [u8; 32] = Sha256::digest(request.custom_id.as_bytes()).into();
                if names.insert(sum) {
                    return Ok(());
                }
                let message = "another line has the same `custom_id`";
                Err(fault("duplicate_custom_id", "custom_id", message))
            }),
        };
        if let Err(fault) = request {
            let line = Some(number);
            faults.push(LineFault { line, ..fault });
            if faults.len() >= MAX_FAULTS {
                return Ok(Err(faults));
            }
        }
    }
    if count == 0 {
        faults.push(fault("empty_file", "", "the file has no requests"));
    }
    Ok(if faults.is_empty() {
        Ok(count)
    } else {
        Err(faults)
    })
}

fn missing(field: &str) -> LineFault {
    fault("missing_required_parameter", field, "the field is missing")
}

fn fault(code: &str, field: &str, message: &str) -> LineFault {
    let param = (!field.is_empty()).then(|| field.to_owned());
    let message = match &param {
        Some(field) => format!("`{field}`: {message}"),
        None => message.to_owned(),
    };
    LineFault {
        code: code.to_owned(),
        line: None,
        message,
        param,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: InputLimits = InputLimits {
        lines: 5,
        line_bytes: 200,
    };

    fn line(id: &str, body: &str) -> String {
        format!(r#"{{"custom_id":"{id}","method":"POST","url":"/v1/embeddings","body":{body}}}"#)
    }

    /// Code, line and field of a fault.
    type ShortFault = (String, Option<u64>, Option<String>);

    fn checked(input: &str) -> Result<u64, Vec<ShortFault>> {
        let checked = check(input.as_bytes(), BatchEndpoint::Embeddings, LIMITS);
        let checked = checked.expect("a text can be read");
        let short = |it: LineFault| (it.code, it.line, it.param);
        checked.map_err(|faults| faults.into_iter().map(short).collect())
    }

    #[test]
    fn requests_are_counted_and_blank_lines_skipped() {
        let input = format!(
            "{}\n\n  \r\n{}",
            line("a", "{}"),
            line("b", "{\"stream\":false}")
        );
        assert_eq!(checked(&input), Ok(2));
    }

    #[test]
    fn faults_have_their_lines_and_fields() {
        let long = line("x", &format!("{{\"input\":\"{}\"}}", "y".repeat(300)));
        let cases = [
            ("{", "invalid_json_line", None),
            ("[1]", "invalid_json_line", None),
            ("{}", "missing_required_parameter", Some("custom_id")),
            (r#"{"custom_id":1}"#, "invalid_custom_id", Some("custom_id")),
            (
                r#"{"custom_id":""}"#,
                "invalid_custom_id",
                Some("custom_id"),
            ),
            (
                r#"{"custom_id":"a","method":"GET"}"#,
                "invalid_method",
                Some("method"),
            ),
            (
                r#"{"custom_id":"a","method":"POST","url":"/v1/x"}"#,
                "invalid_url",
                Some("url"),
            ),
            (&line("a", "[]"), "invalid_request", Some("body")),
            (
                &line("a", "{\"stream\":true}"),
                "invalid_request",
                Some("body.stream"),
            ),
            (&long, "line_too_long", None),
        ];
        for (text, code, param) in cases {
            let faults = checked(&format!(
                "{}\n{text}\n{}\n",
                line("1", "{}"),
                line("2", "{}")
            ));
            let expected = (code.to_owned(), Some(2), param.map(str::to_owned));
            assert_eq!(faults, Err(vec![expected]), "{text}");
        }
        let twice = format!("{}\n{}\n", line("a", "{}"), line("a", "{}"));
        let expected = (
            "duplicate_custom_id".to_owned(),
            Some(2),
            Some("custom_id".to_owned()),
        );
        assert_eq!(checked(&twice), Err(vec![expected]));
    }

    #[test]
    fn an_input_is_neither_empty_nor_endless() {
        for empty in ["", "\n\n  \n"] {
            let faults = checked(empty).expect_err("it has no requests");
            assert_eq!(faults[0].0, "empty_file");
        }
        let many: Vec<String> = (0..6)
            .map(|number| line(&number.to_string(), "{}"))
            .collect();
        let faults = checked(&many.join("\n")).expect_err("it has too many");
        assert_eq!(faults[0].0, "too_many_requests");
    }
}

//! Reads a dataset row by row, as JSON lines or CSV.
//!
//! Invariant: at most one row is in memory, and at most the allowed size of a row that is too long.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use super::row::{
    Columns, DatasetFault, DatasetRow, LABEL_KEY, LABELS_KEY, parse_line, parse_record,
};
use super::{ContentKind, DatasetFormat, DatasetLimits};
use crate::service::json;

/// Size of one read, in bytes.
const READ_BYTES: usize = 64 << 10;

/// Errors of reading a row.
#[derive(Debug)]
pub enum RowError {
    /// This row is invalid; reading can continue.
    Row(DatasetFault),
    /// Reading cannot continue.
    End(DatasetFault),
    /// The bytes could not be read.
    Read(io::Error),
}

/// The rows of a dataset.
pub struct Rows<R> {
    bounds: DatasetLimits,
    source: RowSource<R>,
    /// Number of rows read so far, valid or not.
    count: u64,
    /// JSON type of the labels, once the first one was read.
    labels: Option<&'static str>,
    ended: bool,
}

enum RowSource<R> {
    Lines {
        reader: BufReader<Bounded<R>>,
        line: u64,
        buffer: Vec<u8>,
    },
    Records {
        reader: Box<csv::Reader<BufReader<Bounded<R>>>>,
        place: Rc<ReadPosition>,
        columns: Columns,
        record: csv::ByteRecord,
    },
}

/// Bytes read so far, and the limit for the current row.
#[derive(Debug, Default)]
struct ReadPosition {
    read: Cell<u64>,
    allowed: Cell<u64>,
    /// Number of blank lines before the first record.
    blank: Cell<u64>,
    stopped: Cell<Option<ExceededLimit>>,
}

#[derive(Debug, Clone, Copy)]
enum ExceededLimit {
    Row,
    All,
}

/// A reader that fails when a limit is exceeded.
struct Bounded<R> {
    inner: R,
    bytes: u64,
    place: Rc<ReadPosition>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.place.read.get();
        let stop = if read > self.bytes {
            Some(ExceededLimit::All)
        } else if read > self.place.allowed.get() {
            Some(ExceededLimit::Row)
        } else {
            None
        };
        if stop.is_some() {
            self.place.stopped.set(stop);
            return Err(io::Error::other("a size limit was exceeded"));
        }
        let count = self.inner.read(buffer)?;
        self.place.read.set(read + count as u64);
        Ok(count)
    }
}

impl<R: Read> Rows<R> {
    /// Starts to read rows. The format is JSON lines if the first non-space character is `{` or
    /// `[`, otherwise CSV.
    pub fn new(inner: R, bounds: DatasetLimits) -> Result<Self, RowError> {
        let place = Rc::new(ReadPosition::default());
        place.allowed.set(bounds.row_bytes as u64);
        let bounded = Bounded {
            inner,
            bytes: bounds.bytes,
            place: Rc::clone(&place),
        };
        let mut reader = BufReader::with_capacity(READ_BYTES, bounded);
        let blank = skip_start(&mut reader)?;
        let first = peek(&mut reader)?.first().copied();
        let source = if matches!(first, Some(b'{' | b'[')) || first.is_none() {
            RowSource::Lines {
                reader,
                line: blank,
                buffer: Vec::new(),
            }
        } else {
            place.blank.set(blank);
            let ends_with_return = ends_with_return(peek(&mut reader)?);
            records(reader, (place, ends_with_return), bounds)?
        };
        Ok(Self {
            bounds,
            source,
            count: 0,
            labels: None,
            ended: false,
        })
    }

    /// Returns the detected format.
    pub fn format(&self) -> DatasetFormat {
        match &self.source {
            RowSource::Lines { .. } => DatasetFormat::Jsonl,
            RowSource::Records { .. } => DatasetFormat::Csv,
        }
    }

    fn read(&mut self) -> Result<Option<DatasetRow>, RowError> {
        let read = match &mut self.source {
            RowSource::Lines {
                reader,
                line,
                buffer,
            } => next_line(reader, line, buffer, self.bounds)?
                .then(|| parse_line(buffer, *line, &mut self.labels)),
            RowSource::Records {
                reader,
                place,
                columns,
                record,
            } => next_record(reader, place, record, self.bounds)?
                .map(|line| parse_record(record, line, *columns)),
        };
        let Some(read) = read else { return Ok(None) };
        self.count += 1;
        if self.count > self.bounds.rows {
            let most = self.bounds.rows;
            return Err(RowError::End(DatasetFault::of_dataset(format!(
                "the dataset exceeds the limit of {most} rows; remove some"
            ))));
        }
        read.map(Some).map_err(RowError::Row)
    }
}

impl<R: Read> Iterator for Rows<R> {
    type Item = Result<DatasetRow, RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let read = self.read();
        self.ended = matches!(&read, Ok(None) | Err(RowError::End(_) | RowError::Read(_)));
        read.transpose()
    }
}

fn peek<R: Read>(reader: &mut BufReader<R>) -> Result<&[u8], RowError> {
    reader.fill_buf().map_err(RowError::Read)
}

/// Skips the UTF-8 byte order mark and blank lines; returns the number of blank lines.
fn skip_start<R: Read>(reader: &mut BufReader<Bounded<R>>) -> Result<u64, RowError> {
    let start = peek(reader)?;
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        return Err(RowError::End(DatasetFault::at(
            1,
            "invalid encoding: expected UTF-8, got UTF-16; save the file as UTF-8",
        )));
    }
    if start.starts_with(&[0xef, 0xbb, 0xbf]) {
        reader.consume(3);
    }
    let mut lines = 0;
    loop {
        let there = peek(reader)?;
        let spaces = there.iter().take_while(|it| it.is_ascii_whitespace());
        let count = spaces.count();
        for byte in &there[..count] {
            lines += u64::from(*byte == b'\n');
        }
        if count == 0 || count < there.len() {
            reader.consume(count);
            return Ok(lines);
        }
        reader.consume(count);
        let place = Rc::clone(&reader.get_ref().place);
        // Blank lines do not count as a row, so only the limit of the whole file applies.
        place.allowed.set(place.read.get() + READ_BYTES as u64);
    }
}

fn too_long(line: u64, bounds: DatasetLimits) -> RowError {
    let most = bounds.row_bytes;
    RowError::End(DatasetFault::at(
        line,
        format!("the row exceeds the limit of {most} bytes"),
    ))
}

fn too_large(bounds: DatasetLimits) -> RowError {
    let most = bounds.bytes;
    RowError::End(DatasetFault::of_dataset(format!(
        "the dataset exceeds the limit of {most} bytes"
    )))
}

/// Converts an error of the bounded reader.
fn read_error(
    error: io::Error,
    place: &ReadPosition,
    line: u64,
    bounds: DatasetLimits,
) -> RowError {
    match place.stopped.get() {
        Some(ExceededLimit::Row) => too_long(line, bounds),
        Some(ExceededLimit::All) => too_large(bounds),
        None => RowError::Read(error),
    }
}

/// Reads the next non-blank line; `false` at the end.
fn next_line<R: Read>(
    reader: &mut BufReader<Bounded<R>>,
    line: &mut u64,
    buffer: &mut Vec<u8>,
    bounds: DatasetLimits,
) -> Result<bool, RowError> {
    let place = Rc::clone(&reader.get_ref().place);
    loop {
        buffer.clear();
        *line += 1;
        place
            .allowed
            .set(place.read.get() + bounds.row_bytes as u64);
        loop {
            let found = reader.fill_buf();
            let there = found.map_err(|error| read_error(error, &place, *line, bounds))?;
            if there.is_empty() {
                break;
            }
            let end = there.iter().position(|it| *it == b'\n');
            let taken = end.map_or(there.len(), |end| end + 1);
            if buffer.len() + taken > bounds.row_bytes {
                return Err(too_long(*line, bounds));
            }
            buffer.extend_from_slice(&there[..taken]);
            reader.consume(taken);
            if end.is_some() {
                break;
            }
        }
        if buffer.is_empty() {
            return if place.read.get() > bounds.bytes {
                Err(too_large(bounds))
            } else {
                Ok(false)
            };
        }
        if !buffer.trim_ascii().is_empty() {
            return Ok(true);
        }
    }
}

/// Returns whether the first line ends with CR LF.
fn ends_with_return(start: &[u8]) -> bool {
    let end = start.iter().position(|byte| *byte == b'\n');
    end.is_some_and(|end| end > 0 && start[end - 1] == b'\r')
}

/// Reads the header of a CSV file.
fn records<R: Read>(
    reader: BufReader<Bounded<R>>,
    (place, ends_with_return): (Rc<ReadPosition>, bool),
    bounds: DatasetLimits,
) -> Result<RowSource<R>, RowError> {
    let mut builder = csv::ReaderBuilder::new();
    builder.has_headers(false).flexible(true);
    let mut reader = Box::new(builder.from_reader(reader));
    let mut record = csv::ByteRecord::new();
    let found = next_record(&mut reader, &place, &mut record, bounds)?;
    let line = found.unwrap_or(1);
    // The CSV library ends a record at the carriage return and counts its line feed to the next
    // record.
    place
        .blank
        .set(place.blank.get() + u64::from(ends_with_return));
    let wrong = |reason: String| Err(RowError::End(DatasetFault::at(line, reason)));
    let mut names = Vec::with_capacity(record.len());
    for field in &record {
        let Ok(name) = std::str::from_utf8(field) else {
            let reason = "the header is invalid UTF-8; save the file as UTF-8";
            return wrong(reason.to_owned());
        };
        names.push(name.trim());
    }
    let find = |wanted: &str| -> Result<Option<usize>, RowError> {
        let mut places = names
            .iter()
            .enumerate()
            .filter(|(_, name)| **name == wanted);
        let first = places.next().map(|(place, _)| place);
        if places.next().is_some() {
            let reason = format!("the header has two columns `{wanted}`");
            return Err(RowError::End(DatasetFault::at(line, reason)));
        }
        Ok(first)
    };
    let (text, image) = (find("text")?, find("image_base64")?);
    let (holds, content) = match (text, image) {
        (Some(place), None) => (ContentKind::Text, place),
        (None, Some(place)) => (ContentKind::Image, place),
        (Some(_), Some(_)) => {
            return wrong(
                "the header has both `text` and `image_base64`; expected one of them".to_owned(),
            );
        }
        (None, None) => {
            return wrong(format!(
                "unsupported format: expected JSON lines or a CSV header with the columns `text` (or \
                 `image_base64`) and `label` (or `labels`), got {}",
                json::shown(&names.join(","))
            ));
        }
    };
    let (labels, is_several) = match (find(LABEL_KEY)?, find(LABELS_KEY)?) {
        (Some(place), None) => (place, false),
        (None, Some(place)) => (place, true),
        (Some(_), Some(_)) => {
            return wrong(
                "the header has both `label` and `labels`; expected one of them".to_owned(),
            );
        }
        (None, None) => {
            return wrong(format!(
                "the header lacks the column `label` (or `labels`), got {}",
                json::shown(&names.join(","))
            ));
        }
    };
    let columns = Columns {
        holds,
        content,
        labels,
        is_several,
        count: record.len(),
    };
    Ok(RowSource::Records {
        reader,
        place,
        columns,
        record,
    })
}

/// Reads the next record. Returns the line where it begins, or `None` at the end.
fn next_record<R: Read>(
    reader: &mut csv::Reader<BufReader<Bounded<R>>>,
    place: &ReadPosition,
    record: &mut csv::ByteRecord,
    bounds: DatasetLimits,
) -> Result<Option<u64>, RowError> {
    place
        .allowed
        .set(place.read.get() + bounds.row_bytes as u64);
    let blank = place.blank.get();
    let before = blank + reader.position().line();
    match reader.read_byte_record(record) {
        Ok(false) if place.read.get() > bounds.bytes => Err(too_large(bounds)),
        Ok(false) => Ok(None),
        Ok(true) => Ok(Some(
            record.position().map_or(before, |it| blank + it.line()),
        )),
        Err(error) => match error.into_kind() {
            csv::ErrorKind::Io(error) => Err(read_error(error, place, before, bounds)),
            other => Err(RowError::End(DatasetFault::at(
                before,
                format!("invalid CSV: {other:?}"),
            ))),
        },
    }
}

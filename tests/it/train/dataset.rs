//! Tests of datasets: accepted ones, and the error messages of rejected ones.

use std::io::{self, Read};

use pkgtool_serve::train::dataset::{
    ContentKind, DatasetError, DatasetFormat, DatasetLimits, DatasetSummary, Rows, check,
};
use proptest::prelude::*;

const SMALL: DatasetLimits = DatasetLimits {
    bytes: 1 << 20,
    rows: 50,
    row_bytes: 1000,
};

fn read(bytes: impl AsRef<[u8]>) -> Result<DatasetSummary, String> {
    check(bytes.as_ref(), SMALL).map_err(|error| error.to_string())
}

/// Fails unless the dataset is rejected with a message that contains all of these words.
#[track_caller]
fn refused(bytes: impl AsRef<[u8]>, words: &[&str]) {
    let told = read(bytes).expect_err("it is wrong");
    for word in words {
        assert!(told.contains(word), "{told}: no `{word}`");
    }
}

fn lines(rows: &[(&str, &str)]) -> String {
    let line = |(text, label): &(&str, &str)| {
        serde_json::json!({"text": text, "label": label}).to_string() + "\n"
    };
    rows.iter().map(line).collect()
}

#[test]
fn both_forms_are_read() {
    let rows = [("a b", "x"), ("c, \"d\"\ne", "y"), ("é", "x")];
    let jsonl = read(lines(&rows)).expect("it is right");
    assert_eq!(
        (jsonl.format, jsonl.holds, jsonl.rows),
        (DatasetFormat::Jsonl, ContentKind::Text, 3)
    );
    assert_eq!(
        jsonl.labels.into_iter().collect::<Vec<_>>(),
        [("x".to_owned(), 2), ("y".to_owned(), 1)]
    );
    let csv = "\u{feff}\n\nlabel,id,text\r\nx,1,a b\r\ny,2,\"c, \"\"d\"\"\ne\"\r\nx,3,é\r\n";
    let read = read(csv).expect("it is right");
    assert_eq!(
        (read.format, read.rows, read.labels["x"]),
        (DatasetFormat::Csv, 3, 2)
    );
    let rows: Vec<_> = Rows::new(csv.as_bytes(), SMALL)
        .expect("a header")
        .map(|row| row.expect("a row"))
        .collect();
    assert_eq!(rows[1].content, "c, \"d\"\ne");
    let places: Vec<u64> = rows.iter().map(|row| row.line).collect();
    assert_eq!(places, [4, 5, 7]);
}

#[test]
fn pictures_and_labels_of_other_kinds_are_read() {
    let images = "{\"image_base64\": \"AA==\", \"label\": true}\n\n{\"image_base64\": \"AAA=\", \"label\": false}\n";
    let summary = read(images).expect("it is right");
    assert_eq!((summary.holds, summary.rows), (ContentKind::Image, 2));
    assert!(summary.labels.contains_key("true"));
    let numbers =
        "{\"text\": \"a\", \"label\": 1, \"more\": [1, {}]}\n{\"text\": \"b\", \"label\": 2}";
    assert!(read(numbers).expect("it is right").labels.contains_key("1"));
}

#[test]
fn what_cannot_be_trained_on_is_refused() {
    refused("", &["the dataset is empty"]);
    refused(" \n\n", &["the dataset is empty"]);
    refused("text,label\n", &["the dataset is empty"]);
    refused(lines(&[("a", "x")]), &["only one row"]);
    refused(
        lines(&[("a", "x"), ("b", "x")]),
        &["all 2 rows have the label `x`"],
    );
}

#[test]
fn every_fault_has_its_line() {
    let good = "{\"text\": \"a\", \"label\": \"x\"}\n";
    for (line, words) in [
        ("{\"text\": \"a\"}", "no `label`"),
        ("{\"label\": \"x\"}", "neither `text` nor `image_base64`"),
        ("{\"text\": 1, \"label\": \"x\"}", "`text`: "),
        ("{\"text\": \"\", \"label\": \"x\"}", "`text` is empty"),
        (
            "{\"text\": \"a\", \"label\": 1}",
            "a number, but a string in the rows before",
        ),
        ("{\"text\": \"a\", \"label\": null}", "`label` is null"),
        ("{\"text\": \"a\", \"label\": 1.5}", "a whole number"),
        ("{\"text\": \"a\", \"label\": \" \"}", "`label` is empty"),
        ("{\"text\": \"a\", \"label\": \"x\\u0000\"}", "control"),
        (
            "{\"image_base64\": \"AA==\", \"label\": \"x\"}",
            "line 1 has `text`",
        ),
        (
            "{\"text\": \"a\", \"image_base64\": \"\", \"label\": \"x\"}",
            "has both",
        ),
        ("{\"text\": \"a\" \"label\": \"x\"}", "expected an object"),
        (
            "{\"text\": \"a\", \"text\": \"b\", \"label\": \"x\"}",
            "duplicate key",
        ),
        ("[]", "unexpected array"),
        ("nothing", "line 3: "),
    ] {
        let text = format!("{good}\n{line}\n{good}");
        refused(&text, &["line 3: ", words]);
    }
    refused(
        b"{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"\xff\", \"label\": \"y\"}\n",
        &["line 2: ", "UTF-8"],
    );
    refused(b"\xff\xfe{\0}\0", &["line 1: ", "UTF-16"]);
    refused("text,label\na,x\nb,c,y\n", &["line 3: ", "3 fields", "2"]);
    refused(b"text,label\na,x\n\xe9,y\n", &["line 3: ", "UTF-8"]);
    refused("text,tag\na,x\n", &["line 1: ", "lacks the column `label`"]);
    refused(
        "a;b\n",
        &["line 1: ", "expected JSON lines or a CSV header"],
    );
    refused("text,text,label\n", &["two columns `text`"]);
    refused("text,image_base64,label\n", &["both"]);
}

#[test]
fn ten_faults_are_told_and_the_rest_counted() {
    let wrong = "{\"text\": \"a\"}\n".repeat(13);
    let Err(DatasetError::Wrong { faults, more }) = check(wrong.as_bytes(), SMALL) else {
        panic!("it is wrong");
    };
    assert_eq!((faults.len(), more), (10, 3));
    assert_eq!(faults[9].line, Some(10));
}

/// An endless reader that counts the bytes read.
struct Endless {
    head: &'static [u8],
    read: u64,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for byte in buffer.iter_mut() {
            *byte = self.head.first().copied().unwrap_or(b'x');
            self.head = self.head.get(1..).unwrap_or_default();
        }
        self.read += buffer.len() as u64;
        Ok(buffer.len())
    }
}

#[test]
fn a_row_without_end_is_read_no_further_than_its_bound() {
    for (head, line) in [
        (
            &b"{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"a"[..],
            "line 2: ",
        ),
        (b"text,label\na,x\n\"", "line 3: "),
        (b"{", "line 1: "),
    ] {
        let mut endless = Endless { head, read: 0 };
        let told = check(&mut endless, SMALL)
            .expect_err("it has no end")
            .to_string();
        assert!(
            told.contains(line) && told.contains("exceeds the limit of 1000 bytes"),
            "{told}"
        );
        assert!(endless.read < 300_000, "{} bytes were read", endless.read);
    }
}

#[test]
fn bounds_of_all_of_it_hold() {
    let many = "{\"text\": \"a\", \"label\": \"x\"}\n".repeat(51);
    refused(many, &["exceeds the limit of 50 rows"]);
    let bounds = DatasetLimits {
        bytes: 100,
        ..SMALL
    };
    let long = "{\"text\": \"a\", \"label\": \"x\"}\n".repeat(10);
    let told = check(long.as_bytes(), bounds)
        .expect_err("it is too long")
        .to_string();
    assert!(told.contains("exceeds the limit of 100 bytes"), "{told}");
    let csv = format!("text,label\n{}", "a,x\n".repeat(40));
    let told = check(csv.as_bytes(), bounds)
        .expect_err("it is too long")
        .to_string();
    assert!(told.contains("exceeds the limit of 100 bytes"), "{told}");
}

proptest! {
    #[test]
    fn whatever_the_bytes_are_the_result_is_told(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes);
        let _ = read([b"{\"text\": \"".as_slice(), &bytes].concat());
        let _ = read([b"text,label\n".as_slice(), &bytes].concat());
    }

    #[test]
    fn what_is_written_is_read_back(
        rows in prop::collection::vec((".{0,40}", "[a-c]"), 2..30),
    ) {
        let rows: Vec<(String, String)> = rows
            .into_iter()
            .map(|(text, label)| (format!("t{text}"), label))
            .collect();
        let (mut json, mut csv) = (String::new(), String::from("text,label\n"));
        for (text, label) in &rows {
            json += &serde_json::json!({"label": label, "text": text}).to_string();
            json.push('\n');
            csv += &["\"", &text.replace('"', "\"\""), "\",", label, "\n"].concat();
        }
        for text in [json, csv] {
            let read: Vec<(String, String)> = Rows::new(text.as_bytes(), SMALL)
                .expect("it begins well")
                .map(|row| row.expect("a row"))
                .map(|row| (row.content, row.labels.all()[0].clone()))
                .collect();
            prop_assert_eq!(&read, &rows);
        }
    }
}

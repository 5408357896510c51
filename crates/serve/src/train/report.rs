//! The report of a training as a page: quality by label, confusion, the worst rows, and hints.
//!
//! Invariant: texts of the dataset never become markup. The page loads nothing.

use std::fmt::Write as _;

use serde_json::Value;

/// Maximum number of labels in the matrix.
const MAX_MATRIX_LABELS: usize = 40;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#1b1f24;background:#fff}table{border-collapse:collapse;margin:1rem 0}th,td{padding:.2rem .6rem;\
border-bottom:1px solid #d8dee4;text-align:right}th:first-child,td:first-child{text-align:left}\
td.hit{background:#dafbe1}td.miss{background:#ffebe9}";

/// Renders a report from the metrics of a training.
pub fn html(name: &str, metrics: &Value) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut page, name, metrics);
    page
}

fn write(page: &mut String, name: &str, metrics: &Value) -> std::fmt::Result {
    let name = escaped(name);
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Training of {name}</title>\
         <style>{STYLE}</style></head><body>\n<h1>Training of {name}</h1>\n"
    )?;
    let whole = |key: &str| metrics[key].as_u64().unwrap_or(0);
    writeln!(
        page,
        "<p>{} training rows, {} held-out rows, vectors of {} numbers, method {}.</p>",
        whole("training_rows"),
        whole("validation_rows"),
        whole("dimensions"),
        text(&metrics["method"]),
    )?;
    let validation = &metrics["validation"];
    if validation.is_object() {
        writeln!(
            page,
            "<p>On held-out rows: accuracy {}, macro F1 {}.</p>",
            number(&validation["accuracy"]),
            number(&validation["macro_f1"])
        )?;
    }
    let abstention = &metrics["abstention"];
    if abstention.is_object() {
        writeln!(
            page,
            "<p>Answers with a probability of at least {} are right in {} of the cases; {} of the rows have one.</p>",
            number(&abstention["threshold"]),
            number(&abstention["accuracy"]),
            number(&abstention["coverage"])
        )?;
    }
    list(page, "What would help", &metrics["hints"])?;
    list(page, "Warnings", &metrics["warnings"])?;
    labels(page, validation)?;
    matrix(page, validation)?;
    let columns = [
        ("Training rows", "rows"),
        ("Accuracy", "accuracy"),
        ("Macro F1", "macro_f1"),
    ];
    table(
        page,
        "Quality by number of rows",
        &metrics["curve"],
        &columns,
    )?;
    let columns = [
        ("Line of the dataset", "line"),
        ("Label", "label"),
        ("Answer", "predicted"),
        ("Its probability", "score"),
        ("Probability of the label", "label_score"),
    ];
    table(
        page,
        "Wrong answers, the surest first",
        &metrics["worst"],
        &columns,
    )?;
    writeln!(page, "</body></html>")
}

fn labels(page: &mut String, validation: &Value) -> std::fmt::Result {
    let columns = [
        ("Label", "label"),
        ("Precision", "precision"),
        ("Recall", "recall"),
        ("F1", "f1"),
        ("Rows", "support"),
    ];
    table(page, "Labels", &validation["labels"], &columns)
}

fn matrix(page: &mut String, validation: &Value) -> std::fmt::Result {
    let (Some(labels), Some(rows)) = (
        validation["labels"].as_array(),
        validation["confusion_matrix"].as_array(),
    ) else {
        return Ok(());
    };
    if labels.len() > MAX_MATRIX_LABELS {
        return Ok(());
    }
    write!(
        page,
        "<h2>Confusion</h2>\n<p>Rows are labels, columns are answers.</p>\n<table><tr><th></th>"
    )?;
    for label in labels {
        write!(page, "<th>{}</th>", text(&label["label"]))?;
    }
    writeln!(page, "</tr>")?;
    for (at, (label, row)) in labels.iter().zip(rows).enumerate() {
        write!(page, "<tr><th>{}</th>", text(&label["label"]))?;
        for (column, count) in row.as_array().into_iter().flatten().enumerate() {
            let class = match count.as_u64() {
                Some(0) | None => "",
                Some(_) if at == column => " class=\"hit\"",
                Some(_) => " class=\"miss\"",
            };
            write!(page, "<td{class}>{}</td>", number(count))?;
        }
        writeln!(page, "</tr>")?;
    }
    writeln!(page, "</table>")
}

/// Writes a table of the members of objects; nothing for an empty list.
fn table(
    page: &mut String,
    title: &str,
    rows: &Value,
    columns: &[(&str, &str)],
) -> std::fmt::Result {
    let Some(rows) = rows.as_array().filter(|rows| !rows.is_empty()) else {
        return Ok(());
    };
    write!(page, "<h2>{title}</h2>\n<table><tr>")?;
    for (head, _) in columns {
        write!(page, "<th>{head}</th>")?;
    }
    writeln!(page, "</tr>")?;
    for row in rows {
        write!(page, "<tr>")?;
        for (_, key) in columns {
            write!(page, "<td>{}</td>", text(&row[key]))?;
        }
        writeln!(page, "</tr>")?;
    }
    writeln!(page, "</table>")
}

fn list(page: &mut String, title: &str, texts: &Value) -> std::fmt::Result {
    let Some(texts) = texts.as_array().filter(|texts| !texts.is_empty()) else {
        return Ok(());
    };
    writeln!(page, "<h2>{title}</h2>\n<ul>")?;
    for one in texts {
        writeln!(page, "<li>{}</li>", text(one))?;
    }
    writeln!(page, "</ul>")
}

/// Returns a number with at most three decimals, or a text.
fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if value.is_f64() => format!("{number:.3}"),
        _ => escaped(&value.to_string()),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| number(value), escaped)
}

/// Replaces the characters of markup.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Names of labels may have control characters, which no page shows.
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_cannot_become_markup() {
        let hostile = "</td><script>alert('x')</script>\u{0}\"&";
        let metrics = json!({
            "training_rows": 3, "method": "logistic",
            "validation": {
                "accuracy": 0.5, "macro_f1": 0.25,
                "labels": [{"label": hostile, "precision": 1.0, "recall": 0.5, "f1": 0.1, "support": 2}],
                "confusion_matrix": [[2]],
            },
            "hints": [hostile], "warnings": [hostile],
            "curve": [{"rows": 2, "accuracy": 0.1, "macro_f1": 0.2}],
            "worst": [{"line": 3, "label": hostile, "predicted": "a", "score": 0.5, "label_score": 0.1}],
            "abstention": {"threshold": 0.5, "coverage": 1.0, "accuracy": 1.0},
        });
        let page = html(hostile, &metrics);
        assert!(
            !page.contains("<script") && !page.contains('\u{0}'),
            "{page}"
        );
        assert_eq!(
            page.matches("&lt;script&gt;alert(&#39;x&#39;)").count(),
            8,
            "{page}"
        );
        assert!(
            page.contains("<td class=\"hit\">2</td>") && page.contains("macro F1 0.250"),
            "{page}"
        );
        assert!(html("a", &json!({})).contains("</html>"));
    }
}

//! A profile as a table and as a part of a JSON document.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use serde::Serialize;

use super::super::times::format_milliseconds;
use crate::cli::report::file_size;
use pkgtool_base::diagnostic::{Align, TextTable};
use pkgtool_base::package::DType;
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::{Profile, ProfiledNode, Provider};

/// Maximum number of rows per table.
const MAX_OPERATORS: usize = 12;
const MAX_NODES: usize = 8;
/// Minimum share of the run's time of an operator that a remark names.
const MIN_NOTABLE_SHARE: f64 = 0.005;
/// Maximum length of a node's name in the table, in characters.
const MAX_NAME: usize = 60;

/// The time of each operator and node of a model. Times are means per run.
#[derive(Debug, Serialize)]
pub(in super::super) struct ProfileReport {
    /// Number of recorded runs.
    runs: usize,
    /// Time of a run.
    run_ms: f64,
    /// Time of all nodes in a run.
    nodes_ms: f64,
    /// Time between nodes in a run: passing inputs and outputs, scheduling, and recording.
    between_nodes_ms: f64,
    /// Operators, the slowest first.
    pub(in super::super) operators: Vec<ProfileRow>,
    /// Nodes, the slowest first.
    nodes: Vec<NodeRow>,
    /// Operators that did not run on the requested provider; empty for the CPU.
    off_provider: Vec<ProfileRow>,
    /// Operators of a model with 8-bit nodes that computed in floating point, other than
    /// conversions.
    in_floating_point: Vec<ProfileRow>,
    #[serde(skip)]
    provider: Provider,
}

/// The nodes of an operator on a provider.
#[derive(Debug, Clone, Serialize)]
pub(in super::super) struct ProfileRow {
    /// The operator.
    operator: String,
    /// The provider that ran it.
    provider: String,
    /// Number of nodes.
    nodes: u64,
    /// Time of these nodes in a run.
    pub(in super::super) time_ms: f64,
    /// Share of the run's time, 0 to 1.
    share: f64,
    /// Bytes that these nodes read and write in a run, if known.
    bytes: Option<u64>,
}

/// A node.
#[derive(Debug, Serialize)]
struct NodeRow {
    name: String,
    operator: String,
    provider: String,
    dtype: Option<&'static str>,
    time_ms: f64,
    share: f64,
    bytes: Option<u64>,
}

impl ProfileReport {
    /// Creates the report of a model that was to run on this provider.
    pub(super) fn of(profile: &Profile, provider: Provider) -> Self {
        let run_ms = profile.mean_nanoseconds() / 1e6;
        let nodes_ms = profile.mean_nodes_nanoseconds() / 1e6;
        let means: Vec<f64> = profile.node_means().iter().map(|it| it / 1e6).collect();
        let timed: Vec<(&ProfiledNode, f64)> = profile.nodes.iter().zip(means).collect();
        let rows = |keep: &dyn Fn(&ProfiledNode) -> bool| {
            let kept = timed.iter().filter(|(node, _)| keep(node));
            by_operator(kept.copied(), run_ms)
        };
        let is_quantised = profile.nodes.iter().any(computes_in_bytes);
        let mut nodes: Vec<NodeRow> = timed
            .iter()
            .map(|(node, time)| NodeRow::of(node, *time, run_ms))
            .collect();
        nodes.sort_by(|a, b| b.time_ms.total_cmp(&a.time_ms));
        Self {
            runs: profile.runs.len(),
            run_ms,
            nodes_ms,
            between_nodes_ms: (run_ms - nodes_ms).max(0.0),
            operators: rows(&|_| true),
            nodes,
            off_provider: rows(&|node| {
                provider != Provider::Cpu && !provider.is_named(&node.provider)
            }),
            in_floating_point: rows(&|node| {
                let is_float = node.dtype.is_some_and(DType::is_float);
                is_quantised && is_float && !converts(node)
            }),
            provider,
        }
    }

    /// Writes the tables, indented.
    pub(in super::super) fn write(&self, text: &mut String) -> fmt::Result {
        let share = part(self.nodes_ms, self.run_ms);
        writeln!(
            text,
            "   profile of {} runs: {} each, {} of it in {} nodes",
            self.runs,
            format_milliseconds(self.run_ms),
            percent(share),
            self.nodes.len()
        )?;
        let mut table = TextTable::new([
            Align::Left,
            Align::Left,
            Align::Right,
            Align::Right,
            Align::Right,
            Align::Right,
        ]);
        table.row(["operator", "provider", "nodes", "time", "share", "tensors"]);
        for row in self.operators.iter().take(MAX_OPERATORS) {
            table.row(row.cells());
        }
        if let Some(rest) = rest(&self.operators) {
            table.row(rest);
        }
        table.row([
            "between nodes".to_owned(),
            String::new(),
            String::new(),
            format_milliseconds(self.between_nodes_ms),
            percent(part(self.between_nodes_ms, self.run_ms)),
        ]);
        indent(text, &table)?;
        let mut table = TextTable::new([Align::Left, Align::Left, Align::Right, Align::Right]);
        table.row(["slowest nodes", "dtype", "time", "share"]);
        for row in self.nodes.iter().take(MAX_NODES) {
            table.row(row.cells());
        }
        indent(text, &table)?;
        self.remarks()
            .iter()
            .try_for_each(|remark| writeln!(text, "   {remark}"))
    }

    /// Returns the operators that ran elsewhere than intended, one line per reason.
    pub(in super::super) fn remarks(&self) -> Vec<String> {
        let line = |what: String, rows: &[ProfileRow]| {
            let notable: Vec<&ProfileRow> = rows
                .iter()
                .filter(|row| row.share >= MIN_NOTABLE_SHARE)
                .collect();
            (!notable.is_empty()).then(|| format!("{what}: {}", list(&notable)))
        };
        let off = line(format!("not on {}", self.provider), &self.off_provider);
        let floats = "in floating point, not in bytes".to_owned();
        let floats = line(floats, &self.in_floating_point);
        off.into_iter().chain(floats).collect()
    }
}

fn indent(text: &mut String, table: &TextTable) -> fmt::Result {
    for line in table.to_string().lines() {
        writeln!(text, "   {line}")?;
    }
    Ok(())
}

/// Sums the nodes of each operator on each provider. The slowest is first.
fn by_operator<'n>(
    nodes: impl Iterator<Item = (&'n ProfiledNode, f64)>,
    run_ms: f64,
) -> Vec<ProfileRow> {
    let mut places: HashMap<(&str, &str), usize> = HashMap::new();
    let mut rows: Vec<ProfileRow> = Vec::new();
    for (node, time_ms) in nodes {
        let key = (node.operator.as_str(), node.provider.as_str());
        let place = *places.entry(key).or_insert_with(|| {
            rows.push(ProfileRow {
                operator: node.operator.clone(),
                provider: node.provider.clone(),
                nodes: 0,
                time_ms: 0.0,
                share: 0.0,
                bytes: Some(0),
            });
            rows.len() - 1
        });
        let row = &mut rows[place];
        row.nodes += 1;
        row.time_ms += time_ms;
        row.bytes = row
            .bytes
            .zip(node.bytes)
            .map(|(sum, bytes)| sum.saturating_add(bytes));
    }
    for row in &mut rows {
        row.share = part(row.time_ms, run_ms);
    }
    rows.sort_by(|a, b| b.time_ms.total_cmp(&a.time_ms));
    rows
}

/// Returns the row of the operators beyond the first ones.
fn rest(rows: &[ProfileRow]) -> Option<[String; 6]> {
    let rest = rows.get(MAX_OPERATORS..)?;
    if rest.is_empty() {
        return None;
    }
    let sum = |of: fn(&ProfileRow) -> f64| rest.iter().map(of).sum::<f64>();
    let nodes: u64 = rest.iter().map(|row| row.nodes).sum();
    Some([
        format!("{} others", rest.len()),
        String::new(),
        nodes.to_string(),
        format_milliseconds(sum(|row| row.time_ms)),
        percent(sum(|row| row.share)),
        String::new(),
    ])
}

/// Formats rows on one line: `Softmax (2 nodes, 12 %), Resize (1 node, 3 %)`.
fn list(rows: &[&ProfileRow]) -> String {
    let texts = rows.iter().take(MAX_OPERATORS).map(|row| {
        let nodes = if row.nodes == 1 { "node" } else { "nodes" };
        let share = percent(row.share);
        format!(
            "{} ({} {nodes}, {share})",
            defuse_line(&row.operator),
            row.nodes
        )
    });
    let mut texts: Vec<String> = texts.collect();
    if let Some(more) = rows
        .len()
        .checked_sub(MAX_OPERATORS)
        .filter(|more| *more > 0)
    {
        texts.push(format!("{more} more"));
    }
    texts.join(", ")
}

/// Returns whether a node computes with 8-bit numbers.
fn computes_in_bytes(node: &ProfiledNode) -> bool {
    matches!(node.dtype, Some(DType::Int8 | DType::Uint8)) && !converts(node)
}

/// Returns whether a node only converts between dtypes.
fn converts(node: &ProfiledNode) -> bool {
    let operator = node.operator.to_lowercase();
    ["quantize", "cast", "convert", "source"]
        .iter()
        .any(|word| operator.contains(word))
}

fn part(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

impl ProfileRow {
    /// Returns the cells of its row.
    pub(in super::super) fn cells(&self) -> [String; 6] {
        [
            defuse_line(&self.operator),
            defuse_line(&self.provider),
            self.nodes.to_string(),
            format_milliseconds(self.time_ms),
            percent(self.share),
            self.bytes.map_or_else(|| "-".to_owned(), file_size),
        ]
    }
}

impl NodeRow {
    fn of(node: &ProfiledNode, time_ms: f64, run_ms: f64) -> Self {
        Self {
            name: node.name.clone(),
            operator: node.operator.clone(),
            provider: node.provider.clone(),
            dtype: node.dtype.map(DType::name),
            time_ms,
            share: part(time_ms, run_ms),
            bytes: node.bytes,
        }
    }

    fn cells(&self) -> [String; 4] {
        let name = defuse_line(&self.name);
        let name = match name.char_indices().rev().nth(MAX_NAME - 1) {
            Some((from, _)) if from > 0 => format!("…{}", &name[from..]),
            _ => name,
        };
        [
            name,
            self.dtype.unwrap_or("-").to_owned(),
            format_milliseconds(self.time_ms),
            percent(self.share),
        ]
    }
}

#[cfg(test)]
mod tests {
    use pkgtool_engine::{NodeSpan, ProfiledRun};

    use super::*;

    fn profile(nodes: &[(&str, &str, Option<DType>, u64)]) -> Profile {
        let spans = (0..).zip(nodes).map(|(node, (.., nanoseconds))| NodeSpan {
            node,
            start: 0,
            nanoseconds: *nanoseconds,
        });
        Profile {
            nodes: nodes
                .iter()
                .map(|(operator, provider, dtype, _)| ProfiledNode {
                    name: format!("{operator}_1"),
                    operator: (*operator).to_owned(),
                    provider: (*provider).to_owned(),
                    dtype: *dtype,
                    bytes: Some(4),
                })
                .collect(),
            runs: vec![ProfiledRun {
                nanoseconds: 1_000_000,
                spans: spans.collect(),
            }],
        }
    }

    #[test]
    fn operators_off_the_provider_are_listed() {
        let profile = profile(&[
            ("Conv", "QNNExecutionProvider", None, 700_000),
            ("Resize", "CPUExecutionProvider", None, 100_000),
            ("Resize", "CPUExecutionProvider", None, 50_000),
        ]);
        let report = ProfileReport::of(&profile, Provider::Qnn);
        assert_eq!(report.remarks(), ["not on qnn: Resize (2 nodes, 15 %)"]);
        assert!(
            ProfileReport::of(&profile, Provider::Cpu)
                .off_provider
                .is_empty()
        );
        let mut text = String::new();
        report.write(&mut text).expect("a string takes everything");
        assert!(
            text.contains("profile of 1 runs: 1.00 ms each, 85 % of it in 3 nodes"),
            "{text}"
        );
        assert!(text.contains("not on qnn: Resize"), "{text}");
    }

    #[test]
    fn operators_that_left_bytes_are_listed() {
        let (bytes, float) = (Some(DType::Int8), Some(DType::Float32));
        let mut nodes = vec![
            ("QuantizeLinear", "tract", bytes, 1),
            ("LeakyRelu", "tract", float, 500_000),
            ("DequantizeLinear", "tract", float, 1),
        ];
        let float_only = ProfileReport::of(&profile(&nodes), Provider::Cpu);
        assert!(float_only.in_floating_point.is_empty());
        nodes.push(("Conv", "tract", bytes, 1));
        let report = ProfileReport::of(&profile(&nodes), Provider::Cpu);
        let expected = "in floating point, not in bytes: LeakyRelu (1 node, 50 %)";
        assert_eq!(report.remarks(), [expected]);
    }

    #[test]
    fn many_operators_share_a_row() {
        let names: Vec<String> = (0..15).map(|place| format!("Op{place}")).collect();
        let nodes: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), "cpu", None, 10_000))
            .collect();
        let report = ProfileReport::of(&profile(&nodes), Provider::Cpu);
        let row = rest(&report.operators).expect("there are more");
        assert_eq!(
            (row[0].as_str(), row[2].as_str(), row[4].as_str()),
            ("3 others", "3", "3 %")
        );
    }
}

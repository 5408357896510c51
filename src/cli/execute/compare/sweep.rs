//! Chooses sizes of dynamic dimensions for `pkgtool compare --sizes`.

use std::collections::BTreeSet;

use crate::cli::exit::Failure;
use pkgtool_engine::tensor::input::OpenDim;

/// Maximum number of combinations of sizes in one comparison.
const MAX_COMBINATIONS: usize = 96;
/// Largest power of two that is tried, unless it is a bound.
const MAX_POWER_OF_TWO: u64 = 4096;
/// Largest size that is tried for a dimension without an upper bound.
const MAX_UNBOUNDED_SIZE: u64 = 129;

/// The sizes to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SizeSweep {
    /// The smallest size and the next one, the largest, and those around powers of two.
    Edges,
    /// The given sizes.
    Of(Vec<u64>),
}

/// Parses the value of the option, which may be empty.
pub(super) fn parse(text: &str) -> Result<SizeSweep, String> {
    if text.is_empty() {
        return Ok(SizeSweep::Edges);
    }
    let sizes = text.split(',').map(|size| {
        let size = size.trim();
        let number = size.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| format!("invalid size `{size}`: expected an integer from 1"))
    });
    sizes.collect::<Result<_, _>>().map(SizeSweep::Of)
}

/// Returns combinations of sizes for all dynamic dimensions, as values of `--dim`. The first one
/// has the default sizes of a run.
pub(super) fn combinations(
    open: &[OpenDim],
    sweep: &SizeSweep,
) -> Result<Vec<Vec<String>>, Failure> {
    if open.is_empty() {
        return Err(Failure::Other(
            "--sizes needs a dynamic dimension without a given size, but the inputs have none"
                .to_owned(),
        ));
    }
    let sizes = match sweep {
        SizeSweep::Edges => combinations_of_edges(open),
        SizeSweep::Of(sizes) => combinations_of_list(open, sizes)?,
    };
    let mut seen = BTreeSet::new();
    let sizes = sizes.into_iter().filter(|sizes| seen.insert(sizes.clone()));
    let combinations = sizes.take(MAX_COMBINATIONS).map(|sizes| {
        let pairs = open.iter().zip(sizes);
        pairs
            .map(|(dim, size)| format!("{}={size}", dim.label))
            .collect()
    });
    Ok(combinations.collect())
}

/// Returns a combination per listed size. A dimension that cannot have the size gets the nearest
/// smaller one.
fn combinations_of_list(open: &[OpenDim], sizes: &[u64]) -> Result<Vec<Vec<u64>>, Failure> {
    let combinations = sizes.iter().map(|size| {
        if !open.iter().any(|dim| dim.takes(*size)) {
            let names: Vec<String> = open.iter().map(|dim| format!("`{}`", dim.label)).collect();
            return Err(Failure::Other(format!(
                "--sizes: no dynamic dimension allows the size {size}; dynamic dimensions: {}",
                names.join(", ")
            )));
        }
        Ok(open
            .iter()
            .map(|dim| largest_size_up_to(dim, *size))
            .collect())
    });
    combinations.collect()
}

/// Returns three kinds of combinations: the default sizes of a run, the edge sizes of each group
/// while all others have their smallest size, and the edge sizes of all dimensions together.
fn combinations_of_edges(open: &[OpenDim]) -> Vec<Vec<u64>> {
    let least: Vec<u64> = open.iter().map(smallest_size).collect();
    let mut combinations = vec![open.iter().map(default_size).collect::<Vec<u64>>()];
    let groups = groups(open);
    for group in &groups {
        for size in edge_sizes(&open[group[0]]) {
            let mut sizes = least.clone();
            for at in group {
                sizes[*at] = size;
            }
            combinations.push(sizes);
        }
    }
    if groups.len() > 1 {
        let all: BTreeSet<u64> = open.iter().flat_map(edge_sizes).collect();
        let together = all.into_iter().map(|size| {
            let sizes = open.iter().map(|dim| largest_size_up_to(dim, size));
            sizes.collect()
        });
        combinations.extend(together);
    }
    combinations
}

/// Groups dimensions that probably share a size: those with the same bounds. A dimension without a
/// bound is alone in its group, since its name distinguishes it.
fn groups(open: &[OpenDim]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, dim) in open.iter().enumerate() {
        let twins = groups.iter_mut().find(|group| {
            let first = &open[group[0]];
            dim.bound.is_some() && (first.bound, &first.allowed) == (dim.bound, &dim.allowed)
        });
        match twins {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// Returns the sizes of a dimension that are tried, in order.
fn edge_sizes(dim: &OpenDim) -> BTreeSet<u64> {
    let least = smallest_size(dim);
    let most = dim.largest().unwrap_or(MAX_UNBOUNDED_SIZE);
    let powers = (0..).map(|power| 1_u64 << power);
    let around = powers
        .take_while(|power| *power <= MAX_POWER_OF_TWO)
        .flat_map(|power| [power - 1, power, power + 1]);
    let candidates = [least, least + 1, most].into_iter().chain(around);
    let inside = candidates.filter(|size| (least..=most).contains(size));
    inside.map(|size| largest_size_up_to(dim, size)).collect()
}

/// Returns the smallest size of a dimension.
fn smallest_size(dim: &OpenDim) -> u64 {
    let least = dim.allowed.iter().map(|allowed| allowed.smallest().max(1));
    least.max().unwrap_or(1)
}

/// Returns the default size of a dimension in a run.
fn default_size(dim: &OpenDim) -> u64 {
    dim.largest().unwrap_or(1)
}

/// Returns the largest allowed size of a dimension up to `size`, otherwise its smallest size.
fn largest_size_up_to(dim: &OpenDim, size: u64) -> u64 {
    let size = dim.largest().map_or(size, |most| size.min(most));
    let below = dim
        .allowed
        .iter()
        .filter_map(|allowed| allowed.at_most(size));
    let size = below.min().unwrap_or(size);
    if dim.takes(size) {
        size
    } else {
        smallest_size(dim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pkgtool_model::Allowed;

    fn dim(label: &str, bound: Option<u64>, allowed: impl Into<Option<Allowed>>) -> OpenDim {
        OpenDim {
            label: label.to_owned(),
            bound,
            allowed: allowed.into().into_iter().collect(),
        }
    }

    fn range(least: u64, most: u64, step: u64) -> Allowed {
        Allowed::Range { least, most, step }
    }

    #[test]
    fn edges_are_the_ends_and_what_lies_around_powers_of_two() {
        let found = edge_sizes(&dim("n", Some(20), range(2, 20, 1)));
        let expected = [2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20];
        assert_eq!(found, BTreeSet::from(expected));
        let found = edge_sizes(&dim("n", Some(64), range(32, 64, 16)));
        assert_eq!(found, BTreeSet::from([32, 48, 64]));
        let choices = Some(Allowed::Choices(vec![1, 2, 4]));
        let found = edge_sizes(&dim("n", Some(4), choices));
        assert_eq!(found, BTreeSet::from([1, 2, 4]));
        let found = edge_sizes(&dim("n", None, None));
        assert_eq!(found.last(), Some(&129));
        assert_eq!(found.first(), Some(&1));
    }

    #[test]
    fn dimensions_of_the_same_bounds_vary_together() {
        let open = [
            dim("ids[1]", Some(4), range(2, 4, 1)),
            dim("mask[1]", Some(4), range(2, 4, 1)),
        ];
        let found = combinations(&open, &SizeSweep::Edges).expect("sizes");
        let label = |size: u64| vec![format!("ids[1]={size}"), format!("mask[1]={size}")];
        assert_eq!(found, [label(4), label(2), label(3)]);
    }

    #[test]
    fn others_vary_alone_and_together_within_a_limit() {
        let open = [dim("batch", None, None), dim("length", None, None)];
        let found = combinations(&open, &SizeSweep::Edges).expect("sizes");
        let has = |sizes: [&str; 2]| found.contains(&sizes.map(str::to_owned).to_vec());
        assert_eq!(found[0], ["batch=1", "length=1"]);
        assert!(has(["batch=7", "length=1"]) && has(["batch=1", "length=7"]));
        assert!(has(["batch=7", "length=7"]) && !has(["batch=2", "length=7"]));
        assert!(found.len() <= MAX_COMBINATIONS);
    }

    #[test]
    fn listed_sizes_are_taken_where_they_may_be() {
        let open = [
            dim("batch", Some(8), range(1, 8, 1)),
            dim("length", Some(128), range(2, 128, 1)),
        ];
        let list = parse("1,7, 100").expect("sizes");
        let found = combinations(&open, &list).expect("they are taken");
        let expected = [
            ["batch=1", "length=2"],
            ["batch=7", "length=7"],
            ["batch=8", "length=100"],
        ];
        assert_eq!(found, expected);
        assert!(combinations(&open, &SizeSweep::Of(vec![129])).is_err());
        assert!(combinations(&[], &SizeSweep::Edges).is_err());
        assert!(parse("0").is_err() && parse("1,x").is_err());
    }
}

//! Reads the file system in a Core ML payload: file contents, then a JSON listing whose bytes are
//! reversed.
//!
//! Format: `inmemoryfs` of ExecuTorch 1.5:
//! `{"nodes":[{"name","kind","dataRegion":{"offset","size"},"children"}]}`, with the root last.
//! Invariant: every file lies inside the payload, and a folder's children precede it, so walks
//! terminate.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::storage::ByteRange;
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::Pages;

/// Number of bytes first read for the listing; multiplied by four until the listing is complete.
const FIRST_LISTING_READ_BYTES: u64 = 1 << 14;
/// Maximum size of the listing, in bytes.
const MAX_LISTING_BYTES: u64 = 1 << 20;
/// Maximum number of files and folders.
const MAX_NODES: usize = 1 << 12;

/// The files of a payload.
#[derive(Debug)]
pub(super) struct PayloadFiles {
    nodes: Vec<PayloadNode>,
    payload: ByteRange,
}

#[derive(Debug, Deserialize)]
struct Listing {
    nodes: Vec<PayloadNode>,
}

/// A file or a folder.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(expecting = "struct Node")]
struct PayloadNode {
    data_region: Option<Region>,
    #[serde(default)]
    children: Option<BTreeMap<String, usize>>,
}

#[derive(Debug, Deserialize)]
struct Region {
    offset: u64,
    size: u64,
}

impl Listing {
    /// Reads the listing from this many bytes at a payload's end.
    fn read(
        pages: &Pages<'_>,
        start: u64,
        size: u64,
    ) -> Result<Result<Self, serde_json::Error>, FormatError> {
        let mut bytes = vec![0; usize::try_from(size).expect("at most a mebibyte")];
        pages
            .read(start, &mut bytes)
            .map_err(|error| FieldPosition::new("Core ML payload", start).unreadable(&error))?;
        bytes.reverse();
        // Bytes of the preceding file may follow the listing in reversed order.
        Ok(Self::deserialize(
            &mut serde_json::Deserializer::from_slice(&bytes),
        ))
    }
}

/// Returns two files that overlap.
fn overlap(nodes: &[PayloadNode]) -> Option<(usize, usize)> {
    let regions = nodes.iter().enumerate().filter_map(|(at, node)| {
        let region = node.data_region.as_ref()?;
        let end = region.offset.saturating_add(region.size);
        (region.size > 0).then_some((region.offset, end, at))
    });
    let mut regions: Vec<(u64, u64, usize)> = regions.collect();
    regions.sort_unstable();
    let mut pairs = regions.windows(2);
    let pair = pairs.find(|pair| pair[1].0 < pair[0].1)?;
    Some((pair[0].2, pair[1].2))
}

impl PayloadFiles {
    /// Reads the listing at a payload's end.
    pub(super) fn read(pages: &Pages<'_>, payload: ByteRange) -> Result<Self, FormatError> {
        let mut size = payload.size.min(FIRST_LISTING_READ_BYTES);
        let (start, listing) = loop {
            let start = payload.offset + (payload.size - size);
            let listing = Listing::read(pages, start, size)?;
            let more = payload.size.min(MAX_LISTING_BYTES);
            match listing {
                // The listing may begin further ahead.
                Err(error) if error.is_eof() && size < more => size = (4 * size).min(more),
                listing => break (start, listing),
            }
        };
        let fail =
            |found: String| FieldPosition::new("Core ML payload listing", start).listing(found);
        let listing = listing.map_err(|error| fail(error.to_string()))?;
        let nodes = listing.nodes;
        if nodes.is_empty() || nodes.len() > MAX_NODES {
            return Err(fail(format!("{} nodes", nodes.len())));
        }
        for (at, node) in nodes.iter().enumerate() {
            let mut children = node.children.iter().flat_map(BTreeMap::values);
            if let Some(child) = children.find(|child| **child >= at) {
                return Err(fail(format!("node {at} with node {child} in it")));
            }
            let region = node.data_region.as_ref();
            let end = region.map_or(Some(0), |region| region.offset.checked_add(region.size));
            if end.is_none_or(|end| end > payload.size) {
                return Err(fail(format!("node {at} beyond the payload's end")));
            }
        }
        if let Some((first, second)) = overlap(&nodes) {
            return Err(fail(format!("node {first} over node {second}")));
        }
        Ok(Self { nodes, payload })
    }

    /// Returns the file at a path from the root, if it exists.
    pub(super) fn find(&self, path: &[&str]) -> Option<ByteRange> {
        let region = self.node(path)?.data_region.as_ref()?;
        Some(ByteRange {
            offset: self.payload.offset + region.offset,
            size: region.size,
        })
    }

    /// Returns whether a path exists.
    pub(super) fn has(&self, path: &[&str]) -> bool {
        self.node(path).is_some()
    }

    fn node(&self, path: &[&str]) -> Option<&PayloadNode> {
        let root = self.nodes.last();
        path.iter().try_fold(root?, |node, name| {
            let child = node.children.as_ref()?.get(*name)?;
            self.nodes.get(*child)
        })
    }
}

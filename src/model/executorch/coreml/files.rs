//! The file system in a payload: contents one after another, then a JSON object whose bytes are reversed.
//!
//! `inmemoryfs` of ExecuTorch 1.5: `{"nodes":[{"name","kind","dataRegion":{"offset","size"},"children"}]}`, the
//! root last. Invariant: every file lies inside the payload, and a folder's children stand before it, so walks
//! end.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::error::{Error, Place};
use super::super::storage::ByteRange;
use crate::source::Pages;

/// Longest description.
const MAX_JSON: u64 = 1 << 20;
/// Most files and folders.
const MAX_NODES: usize = 1 << 12;

/// The files of a payload.
#[derive(Debug)]
pub(super) struct Files {
    nodes: Vec<Node>,
    payload: ByteRange,
}

#[derive(Debug, Deserialize)]
struct Listing {
    nodes: Vec<Node>,
}

/// A file or a folder.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    data_region: Option<Region>,
    #[serde(default)]
    children: Option<BTreeMap<String, usize>>,
}

#[derive(Debug, Deserialize)]
struct Region {
    offset: u64,
    size: u64,
}

impl Files {
    /// Reads the listing at a payload's end.
    pub(super) fn read(pages: &Pages<'_>, payload: ByteRange) -> Result<Self, Error> {
        let size = payload.size.min(MAX_JSON);
        let start = payload.offset + (payload.size - size);
        let fail = |found: String| Error::Listing {
            place: Place {
                path: "Core ML payload listing".to_owned(),
                offset: start,
            },
            found,
        };
        let mut bytes = vec![0; usize::try_from(size).expect("at most a mebibyte")];
        pages.read(start, &mut bytes).map_err(|error| Error::Read {
            place: Place {
                path: "Core ML payload".to_owned(),
                offset: start,
            },
            error,
        })?;
        bytes.reverse();
        let mut values = serde_json::Deserializer::from_slice(&bytes).into_iter::<Listing>();
        let listing = match values.next() {
            Some(Ok(listing)) => listing,
            Some(Err(error)) => return Err(fail(error.to_string())),
            None => return Err(fail("nothing".to_owned())),
        };
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
        Ok(Self { nodes, payload })
    }

    /// The file at a path from the root, if there is one.
    pub(super) fn find(&self, path: &[&str]) -> Option<ByteRange> {
        let region = self.node(path)?.data_region.as_ref()?;
        Some(ByteRange {
            offset: self.payload.offset + region.offset,
            size: region.size,
        })
    }

    /// Whether something stands at a path.
    pub(super) fn has(&self, path: &[&str]) -> bool {
        self.node(path).is_some()
    }

    fn node(&self, path: &[&str]) -> Option<&Node> {
        let root = self.nodes.last();
        path.iter().try_fold(root?, |node, name| {
            let child = node.children.as_ref()?.get(*name)?;
            self.nodes.get(*child)
        })
    }
}

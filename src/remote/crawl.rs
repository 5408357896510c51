//! Listing a directory of a web server, page by page.
//!
//! Invariant: only what lies directly below a page is taken from it, on the page's own origin; the
//! number of pages and their depth are bounded. A server without listings is no error.

use std::collections::VecDeque;

use reqwest::Url;
use serde::Deserialize;

use super::RemoteError;
use super::html;
use super::listing::{Entry, Tree};
use super::name;
use super::web::{Web, plain};
use super::weights::{is_json, is_model};
use crate::package::{config, model_file};

/// Largest page, in bytes.
const MAX_PAGE: u64 = 4 << 20;
/// Most directories of a source.
const MAX_DIRECTORIES: usize = 500;
/// How deep directories may lie.
const MAX_DEPTH: usize = 12;

/// An entry of nginx's `autoindex_format json`.
#[derive(Debug, Deserialize)]
struct Item {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    size: Option<u64>,
    mtime: Option<String>,
}

/// What one page names, directly below it.
struct Child {
    name: String,
    is_directory: bool,
    size: Option<u64>,
    mark: Option<String>,
    url: Url,
}

/// What a web server has at a URL.
pub(super) fn tree(web: &Web, url: &Url) -> Result<Tree, RemoteError> {
    let wrong = |reason: &str| RemoteError::Address {
        address: plain(url),
        reason: reason.to_owned(),
    };
    let segments = url.path_segments().into_iter().flatten();
    let names: Option<Vec<String>> = segments
        .filter(|segment| !segment.is_empty())
        .map(|segment| name::decoded(segment).filter(|name| name::is_safe_segment(name)))
        .collect();
    let names = names.ok_or_else(|| wrong("its path has parts that cannot be names of files"))?;
    let last = names.last().map_or("", String::as_str);
    let is_file = !url.path().ends_with('/')
        && (is_json(last) || model_file::has_extension(last) && !model_file::is_bundle(last));
    let mut origin = url.clone();
    origin.set_path("/");
    origin.set_query(None);
    let mut tree = Tree::new(url.origin().ascii_serialization(), names.join("/"));
    // As on disk: two levels above the config's directory.
    let levels = names.len().saturating_sub(if is_file { 3 } else { 2 });
    tree.border = names[..levels].join("/");
    tree.origin = Some(origin);
    if is_file || is_model(last) && !url.path().ends_with('/') && !model_file::is_bundle(last) {
        tree.is_listed = false;
        tree.add(Entry {
            path: tree.start.clone(),
            size: None,
            sha256: None,
            mark: None,
            url: url.clone(),
        })?;
        return Ok(tree);
    }
    let mut directory = url.clone();
    if !directory.path().ends_with('/') {
        directory.set_path(&format!("{}/", url.path()));
    }
    if !list(web, &directory, &mut tree)? {
        (tree.is_listed, tree.is_guessed) = (false, true);
        tree.start = match tree.start.as_str() {
            "" => config::FILE_NAME.to_owned(),
            start => format!("{start}/{}", config::FILE_NAME),
        };
    }
    Ok(tree)
}

/// Adds the files below the directory at `url`, which ends with `/`; says whether the server lists it.
fn list(web: &Web, url: &Url, tree: &mut Tree) -> Result<bool, RemoteError> {
    let mut ahead = VecDeque::from([(url.clone(), tree.start.clone(), 0)]);
    let mut read = 0;
    while let Some((url, path, depth)) = ahead.pop_front() {
        read += 1;
        if read > MAX_DIRECTORIES {
            return Err(RemoteError::Listing {
                url: plain(&url),
                reason: format!("more than {MAX_DIRECTORIES} directories; name one below"),
            });
        }
        let Some(children) = children(web, &url)? else {
            if depth == 0 {
                return Ok(false);
            }
            continue;
        };
        for child in children {
            let below = match path.as_str() {
                "" => child.name,
                path => format!("{path}/{}", child.name),
            };
            if !child.is_directory {
                tree.add(Entry {
                    path: below,
                    size: child.size,
                    sha256: None,
                    mark: child.mark,
                    url: child.url,
                })?;
            } else if depth < MAX_DEPTH && name::is_safe(&below) {
                ahead.push_back((child.url, below, depth + 1));
            }
        }
    }
    Ok(true)
}

/// What the page at `url` lists; `None` if it is no listing.
fn children(web: &Web, url: &Url) -> Result<Option<Vec<Child>>, RemoteError> {
    let (base, kind, body) = match web.body(url, MAX_PAGE) {
        Ok(Some(page)) => page,
        // A server without listings forbids them, or has none.
        Ok(None)
        | Err(RemoteError::Status {
            status: 400..=499, ..
        }) => return Ok(None),
        Err(error) => return Err(error),
    };
    if base.origin() != url.origin() {
        return Ok(None);
    }
    let page = String::from_utf8_lossy(&body);
    if kind.contains("json") {
        let items: Result<Vec<Item>, _> = serde_json::from_str(&page);
        return Ok(items.ok().map(|items| {
            items
                .into_iter()
                .filter_map(|item| item.child(&base))
                .collect()
        }));
    }
    if !kind.contains("html") || !html::is_listing(&page) {
        return Ok(None);
    }
    Ok(Some(
        html::links(&page)
            .filter_map(|link| child(&base, &link))
            .collect(),
    ))
}

impl Item {
    fn child(self, base: &Url) -> Option<Child> {
        if !name::is_safe_segment(&self.name) {
            return None;
        }
        let is_directory = self.kind == "directory";
        let mut url = base.clone();
        url.set_query(None);
        url.path_segments_mut()
            .ok()?
            .pop_if_empty()
            .push(&self.name);
        if is_directory {
            url.path_segments_mut().ok()?.push("");
        }
        Some(Child {
            name: self.name,
            is_directory,
            size: self.size.filter(|_| !is_directory),
            mark: self.mtime,
            url,
        })
    }
}

/// What a link of a page leads to, if that lies directly below the page.
fn child(base: &Url, link: &str) -> Option<Child> {
    let mut url = base.join(link).ok()?;
    // Servers put the columns of a listing in order by a query.
    if url.origin() != base.origin() || url.query().is_some() {
        return None;
    }
    url.set_fragment(None);
    let below = url.path().strip_prefix(base.path())?;
    let (name, is_directory) = match below.strip_suffix('/') {
        Some(name) => (name, true),
        None => (below, false),
    };
    let name = name::decoded(name).filter(|name| name::is_safe_segment(name))?;
    Some(Child {
        name,
        is_directory,
        size: None,
        mark: None,
        url,
    })
}

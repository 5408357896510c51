//! Lists a directory of a web server, page by page.
//!
//! Invariant: only links to direct children of a page on its own origin are followed. The number of
//! pages and their depth are limited. A server without listings is not an error.

use std::collections::VecDeque;

use reqwest::Url;
use serde::Deserialize;

use super::RemoteError;
use super::html;
use super::listing::{SourceFile, SourceTree};
use super::name;
use super::web::{HttpClient, without_query};
use super::weights::{is_json, is_model};
use pkgtool_base::package::{config, model_file};

/// Maximum size of a page, in bytes.
const MAX_PAGE_BYTES: u64 = 4 << 20;
/// Maximum number of directories per source.
const MAX_DIRECTORIES: usize = 500;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 12;

/// An entry of nginx's `autoindex_format json`.
#[derive(Debug, Deserialize)]
struct IndexItem {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    size: Option<u64>,
    mtime: Option<String>,
}

/// A file or directory that a page lists.
struct Child {
    name: String,
    is_directory: bool,
    size: Option<u64>,
    mark: Option<String>,
    url: Url,
}

/// Lists the files of a web server at a URL.
pub(super) fn tree(web: &HttpClient, url: &Url) -> Result<SourceTree, RemoteError> {
    let wrong = |reason: &str| RemoteError::Address {
        address: without_query(url),
        reason: reason.to_owned(),
    };
    let segments = url.path_segments().into_iter().flatten();
    let names: Option<Vec<String>> = segments
        .filter(|segment| !segment.is_empty())
        .map(|segment| name::decoded(segment).filter(|name| name::is_safe_segment(name)))
        .collect();
    let names =
        names.ok_or_else(|| wrong("its path has segments that are not valid file names"))?;
    let last = names.last().map_or("", String::as_str);
    let is_file = !url.path().ends_with('/')
        && (is_json(last) || model_file::has_extension(last) && !model_file::is_bundle(last));
    let mut origin = url.clone();
    origin.set_path("/");
    origin.set_query(None);
    let mut tree = SourceTree::new(url.origin().ascii_serialization(), names.join("/"));
    // As on disk, references may go up to two levels above the config's directory.
    let levels = names.len().saturating_sub(if is_file { 3 } else { 2 });
    tree.border = names[..levels].join("/");
    tree.origin = Some(origin);
    if is_file || is_model(last) && !url.path().ends_with('/') && !model_file::is_bundle(last) {
        tree.is_listed = false;
        tree.add(SourceFile {
            path: tree.start.clone(),
            size: None,
            sha256: None,
            version_marker: None,
            url: url.clone(),
        })?;
        return Ok(tree);
    }
    let mut directory = url.clone();
    if !directory.path().ends_with('/') {
        directory.set_path(&format!("{}/", url.path()));
    }
    if !list(web, &directory, &mut tree)? {
        (tree.is_listed, tree.is_start_guessed) = (false, true);
        tree.start = match tree.start.as_str() {
            "" => config::FILE_NAME.to_owned(),
            start => format!("{start}/{}", config::FILE_NAME),
        };
    }
    Ok(tree)
}

/// Adds the files below the directory at `url`, which ends with `/`. Returns whether the server
/// lists it.
fn list(web: &HttpClient, url: &Url, tree: &mut SourceTree) -> Result<bool, RemoteError> {
    let mut ahead = VecDeque::from([(url.clone(), tree.start.clone(), 0)]);
    let mut read = 0;
    while let Some((url, path, depth)) = ahead.pop_front() {
        read += 1;
        if read > MAX_DIRECTORIES {
            return Err(RemoteError::Listing {
                url: without_query(&url),
                reason: format!(
                    "more than {MAX_DIRECTORIES} directories; name a directory below it"
                ),
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
                tree.add(SourceFile {
                    path: below,
                    size: child.size,
                    sha256: None,
                    version_marker: child.mark,
                    url: child.url,
                })?;
            } else if depth < MAX_DEPTH && name::is_safe(&below) {
                ahead.push_back((child.url, below, depth + 1));
            }
        }
    }
    Ok(true)
}

/// Returns the entries of the page at `url`, or `None` if it is not a listing.
fn children(web: &HttpClient, url: &Url) -> Result<Option<Vec<Child>>, RemoteError> {
    let (base, kind, body) = match web.body(url, MAX_PAGE_BYTES) {
        Ok(Some(page)) => page,
        // Servers without listings answer that the page is forbidden or missing.
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
        let items: Result<Vec<IndexItem>, _> = serde_json::from_str(&page);
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

impl IndexItem {
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

/// Returns the child that a link of a page leads to. Returns `None` if the target is not directly
/// below the page.
fn child(base: &Url, link: &str) -> Option<Child> {
    let mut url = base.join(link).ok()?;
    // Links with a query only sort the columns of a listing.
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

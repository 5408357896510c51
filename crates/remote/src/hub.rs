//! Lists a repository of a hub with Hugging Face's protocol.
//!
//! See <https://huggingface.co/docs/hub/api>. `GET
//! /api/models/{repo}/tree/{revision}?recursive=true` returns files with their sizes, and for LFS
//! files their SHA-256. A `Link` header names the next page. The content of a file is at
//! `/{repo}/resolve/{revision}/{path}`, usually with a redirect to another origin.

use reqwest::Url;
use serde::Deserialize;

use super::RemoteError;
use super::address::HubAddress;
use super::listing::{self, SourceFile, SourceTree};
use super::web::{HttpClient, RequestParams, without_query};

/// Maximum size of a page of a listing, in bytes.
const MAX_PAGE_BYTES: usize = 8 << 20;
/// Maximum number of pages.
const MAX_PAGES: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(expecting = "struct Item")]
struct HubItem {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    size: Option<u64>,
    oid: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Debug, Deserialize)]
struct Lfs {
    oid: Option<String>,
    size: Option<u64>,
}

/// Lists the repository. The tree starts at the path in the address.
pub(super) fn list(
    web: &HttpClient,
    endpoint: &Url,
    address: &HubAddress,
) -> Result<SourceTree, RemoteError> {
    let mut tree = SourceTree::new(address.shown(), address.path.clone());
    let mut page = Some(below(endpoint, &["api", "models"], &address.repository));
    if let Some(url) = &mut page {
        push(url, &["tree", &address.revision]);
        url.set_query(Some("recursive=true"));
    }
    let mut pages = 0;
    while let Some(url) = page {
        pages += 1;
        if pages > MAX_PAGES {
            return Err(RemoteError::Listing {
                url: without_query(&url),
                reason: format!("more than {MAX_PAGES} pages"),
            });
        }
        let (items, next) = read_page(web, &url)?;
        for item in items.into_iter().filter(|item| item.kind == "file") {
            tree.add(item.entry(endpoint, address))?;
        }
        page = next;
    }
    if tree.entries.is_empty() {
        return Err(RemoteError::Nothing {
            url: address.shown(),
            reason: "the repository has no files".to_owned(),
        });
    }
    if !tree
        .entries
        .iter()
        .any(|entry| tree.is_below_start(&entry.path))
    {
        return Err(RemoteError::Nothing {
            url: address.shown(),
            reason: format!("the repository has no `{}`", address.path),
        });
    }
    Ok(tree)
}

impl HubItem {
    fn entry(self, endpoint: &Url, address: &HubAddress) -> SourceFile {
        let mut url = below(endpoint, &[], &address.repository);
        push(&mut url, &["resolve", &address.revision]);
        let segments: Vec<&str> = self.path.split('/').collect();
        push(&mut url, &segments);
        let lfs = self.lfs.as_ref();
        SourceFile {
            size: lfs.and_then(|lfs| lfs.size).or(self.size),
            sha256: lfs.and_then(|lfs| listing::sha256(lfs.oid.as_deref()?)),
            version_marker: self.oid,
            path: self.path,
            url,
        }
    }
}

fn read_page(web: &HttpClient, url: &Url) -> Result<(Vec<HubItem>, Option<Url>), RemoteError> {
    let unusable = |reason: String| RemoteError::Listing {
        url: without_query(url),
        reason,
    };
    let mut answer = web.get(url, &RequestParams::default())?;
    if answer.status != 200 {
        return Err(answer.refused());
    }
    let next = answer.header("link").and_then(|link| next_page(&link, url));
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk()? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_PAGE_BYTES {
            return Err(unusable(format!(
                "page too large: at most {MAX_PAGE_BYTES} bytes are supported"
            )));
        }
    }
    let items = serde_json::from_slice(&body).map_err(|error| unusable(error.to_string()))?;
    Ok((items, next))
}

/// Returns the next page, if there is one on the same origin.
fn next_page(link: &str, url: &Url) -> Option<Url> {
    let next = link.split(',').find(|one| one.contains("rel=\"next\""))?;
    let target = next.split_once('<')?.1.split_once('>')?.0;
    let next = url.join(target).ok()?;
    (next.origin() == url.origin()).then_some(next)
}

fn below(endpoint: &Url, folders: &[&str], repository: &str) -> Url {
    let mut url = endpoint.clone();
    push(&mut url, folders);
    let parts: Vec<&str> = repository.split('/').collect();
    push(&mut url, &parts);
    url
}

fn push(url: &mut Url, segments: &[&str]) {
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
}

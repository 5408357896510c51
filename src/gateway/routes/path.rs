//! A path: its handlers, what the document says of them, and its answer to other methods.

use std::sync::Arc;

use axum::routing::MethodRouter;
use utoipa::openapi::path::{PathItem, Paths};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use super::super::Gateway;
use super::super::error::Error;

/// Routes with what the document says of them.
pub(super) type Routes = OpenApiRouter<Arc<Gateway>>;

/// The handlers of a path, likewise.
pub(super) type Handlers = UtoipaMethodRouter<Arc<Gateway>>;

/// A path of the document, which says what methods it takes if it is asked with another.
pub(super) fn only((schemas, paths, handlers): Handlers) -> Handlers {
    let methods = methods(&paths);
    (schemas, paths, taking(handlers, &methods))
}

/// The methods that the handlers of a path take.
fn methods(paths: &Paths) -> String {
    let of = |has: fn(&PathItem) -> bool| paths.paths.values().any(has);
    let all = [
        (of(|item| item.get.is_some()), "GET, HEAD"),
        (of(|item| item.post.is_some()), "POST"),
        (of(|item| item.put.is_some()), "PUT"),
        (of(|item| item.patch.is_some()), "PATCH"),
        (of(|item| item.delete.is_some()), "DELETE"),
    ];
    let methods = all.iter().filter(|(is_there, _)| *is_there);
    let names: Vec<&str> = methods.map(|(_, name)| *name).collect();
    names.join(", ")
}

/// A path that is only read, and not in the document.
pub(super) fn reading(handlers: MethodRouter<Arc<Gateway>>) -> MethodRouter<Arc<Gateway>> {
    taking(handlers, "GET, HEAD")
}

/// A path that takes these methods and says so, if it is asked with another.
pub(super) fn taking(
    handlers: MethodRouter<Arc<Gateway>>,
    methods: &str,
) -> MethodRouter<Arc<Gateway>> {
    let methods: Arc<str> = methods.into();
    handlers.fallback(async move || Error::no_method(&methods))
}

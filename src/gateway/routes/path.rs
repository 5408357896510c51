//! A path: its handlers, what the document says of them, and its answer to other methods.

use std::sync::Arc;

use axum::routing::MethodRouter;
use utoipa::openapi::path::{PathItem, Paths};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use super::super::Gateway;
use super::super::error::Error;

/// A router, with what the document says of its paths.
pub(super) type Router = OpenApiRouter<Arc<Gateway>>;

/// The handlers of a path, likewise.
pub(super) type Handlers = UtoipaMethodRouter<Arc<Gateway>>;

/// Paths with their handlers, to be had under any prefix.
pub(super) struct Routes(Vec<Handlers>);

impl Routes {
    /// None.
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// These, and one more path.
    pub(super) fn routes(mut self, handlers: Handlers) -> Self {
        self.0.push(handlers);
        self
    }

    /// A router with these paths under a prefix; the document has them. A router that is nested in
    /// another would make every request a new URI.
    pub(super) fn described(self, prefix: &str, router: Router) -> Router {
        let all = self.0.into_iter();
        all.fold(router, |router, (schemas, mut paths, handlers)| {
            let below = std::mem::take(&mut paths.paths).into_iter();
            paths.paths = below
                .map(|(path, item)| (format!("{prefix}{path}"), item))
                .collect();
            router.routes((schemas, paths, handlers))
        })
    }

    /// The same, without a word in the document.
    pub(super) fn undescribed(self, prefix: &str, router: Router) -> Router {
        let all = self.0.into_iter();
        all.fold(router, |router, (_, paths, handlers)| {
            let paths = paths.paths.into_keys();
            paths.fold(router, |router, path| {
                router.route(&format!("{prefix}{path}"), handlers.clone())
            })
        })
    }
}

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

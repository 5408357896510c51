//! A path: its handlers, what the document says of them, and its answer to other methods.

use std::sync::Arc;

use axum::routing::MethodRouter;
use utoipa::openapi::path::{PathItem, Paths};
use utoipa::openapi::{RefOr, Schema};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use super::super::Gateway;
use super::super::error::Error;

/// A router, with what the document says of its paths.
pub(super) type Router = OpenApiRouter<Arc<Gateway>>;

/// The handlers of a path, likewise.
pub(super) type Handlers = UtoipaMethodRouter<Arc<Gateway>>;

/// Paths with their handlers, to be had under any prefix.
pub(super) struct Routes(Vec<Route>);

/// Where handlers are reached, and what the document says of them.
struct Route {
    paths: Vec<String>,
    handlers: MethodRouter<Arc<Gateway>>,
    described: Paths,
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl Routes {
    /// None.
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// These, and one more path.
    pub(super) fn routes(self, handlers: Handlers) -> Self {
        let paths = handlers.1.paths.keys().cloned().collect();
        self.and(paths, handlers)
    }

    /// These, and handlers whose path the document writes in another way.
    pub(super) fn routes_at(self, path: &str, handlers: Handlers) -> Self {
        self.and(vec![path.to_owned()], handlers)
    }

    /// These, and a path that is not in the document.
    pub(super) fn route(self, path: &str, handlers: MethodRouter<Arc<Gateway>>) -> Self {
        let handlers = (Vec::new(), Paths::new(), handlers);
        self.and(vec![path.to_owned()], handlers)
    }

    fn and(mut self, paths: Vec<String>, (schemas, described, handlers): Handlers) -> Self {
        self.0.push(Route {
            paths,
            handlers,
            described,
            schemas,
        });
        self
    }

    /// These and others.
    pub(super) fn merge(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// The same, without a word in the document.
    pub(super) fn undescribed(mut self) -> Self {
        for route in &mut self.0 {
            route.described = Paths::new();
            route.schemas.clear();
        }
        self
    }

    /// A router with these paths under a prefix. One that is nested in another would make every request
    /// a new URI.
    pub(super) fn under(self, prefix: &str, mut router: Router) -> Router {
        for route in self.0 {
            for path in &route.paths {
                router = router.route(&format!("{prefix}{path}"), route.handlers.clone());
            }
            let document = router.get_openapi_mut();
            let described = route.described.paths.into_iter();
            let described = described.map(|(path, item)| (format!("{prefix}{path}"), item));
            document.paths.paths.extend(described);
            let components = document.components.get_or_insert_default();
            components.schemas.extend(route.schemas);
        }
        router
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

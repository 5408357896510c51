//! Tables of routes: paths with their handlers, their OpenAPI description, and their answer to
//! unsupported methods.

use std::sync::Arc;

use axum::routing::MethodRouter;
use utoipa::openapi::path::{PathItem, Paths};
use utoipa::openapi::{RefOr, Schema};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use super::super::Gateway;
use super::super::error::Error;

/// A router with the OpenAPI description of its paths.
pub(super) type Router = OpenApiRouter<Arc<Gateway>>;

/// The handlers of a path with their OpenAPI description.
pub(super) type Handlers = UtoipaMethodRouter<Arc<Gateway>>;

/// Paths with their handlers, which can be mounted under any prefix.
pub(super) struct Routes(Vec<RouteEntry>);

/// The handlers of a path, and their OpenAPI description.
struct RouteEntry {
    paths: Vec<String>,
    handlers: MethodRouter<Arc<Gateway>>,
    described: Paths,
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl Routes {
    /// Creates an empty table.
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a path.
    pub(super) fn routes(self, handlers: Handlers) -> Self {
        let paths = handlers.1.paths.keys().cloned().collect();
        self.and(paths, handlers)
    }

    /// Adds handlers at a path that the OpenAPI document spells differently.
    pub(super) fn routes_at(self, path: &str, handlers: Handlers) -> Self {
        self.and(vec![path.to_owned()], handlers)
    }

    /// Adds a path that the OpenAPI document omits.
    pub(super) fn route(self, path: &str, handlers: MethodRouter<Arc<Gateway>>) -> Self {
        let handlers = (Vec::new(), Paths::new(), handlers);
        self.and(vec![path.to_owned()], handlers)
    }

    fn and(mut self, paths: Vec<String>, (schemas, described, handlers): Handlers) -> Self {
        self.0.push(RouteEntry {
            paths,
            handlers,
            described,
            schemas,
        });
        self
    }

    /// Adds all routes of another table.
    pub(super) fn merge(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Removes all routes from the OpenAPI document.
    pub(super) fn undescribed(mut self) -> Self {
        for route in &mut self.0 {
            route.described = Paths::new();
            route.schemas.clear();
        }
        self
    }

    /// Adds the routes to a router under a prefix. This avoids nested routers, which make a new URI
    /// for every request.
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

/// Makes a documented path answer unsupported methods with the list of its methods.
pub(super) fn only((schemas, paths, handlers): Handlers) -> Handlers {
    let methods = methods(&paths);
    (schemas, paths, with_methods(handlers, &methods))
}

/// Returns the methods that the handlers of a path support.
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

/// Makes an undocumented, read-only path answer unsupported methods with the list of its methods.
pub(super) fn read_only(handlers: MethodRouter<Arc<Gateway>>) -> MethodRouter<Arc<Gateway>> {
    with_methods(handlers, "GET, HEAD")
}

/// Makes a path answer unsupported methods with this list.
pub(super) fn with_methods(
    handlers: MethodRouter<Arc<Gateway>>,
    methods: &str,
) -> MethodRouter<Arc<Gateway>> {
    let methods: Arc<str> = methods.into();
    handlers.fallback(async move || Error::no_method(&methods))
}

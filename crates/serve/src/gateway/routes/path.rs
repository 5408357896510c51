//! Tables of routes: paths with their handlers, their OpenAPI description, and their answer to
//! unsupported methods.

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodRouter;
use utoipa::openapi::path::PathItem;
use utoipa::openapi::{OpenApi, SecurityRequirement};

use super::super::Gateway;
use super::super::error::GatewayError;
use super::operation::{RouteOperation, Schemas};

/// A router, and the OpenAPI document of its paths.
pub(super) struct Api {
    pub(super) router: Router<Arc<Gateway>>,
    pub(super) document: OpenApi,
}

/// Paths with their handlers, which can be mounted under any prefix.
pub(super) struct Routes {
    tag: &'static str,
    security: Option<Vec<SecurityRequirement>>,
    entries: Vec<RouteEntry>,
}

/// The handlers of a path, and their OpenAPI description.
struct RouteEntry {
    path: &'static str,
    handlers: MethodRouter<Arc<Gateway>>,
    methods: Vec<&'static str>,
    /// The path as the OpenAPI document spells it, and its operations.
    described: Option<(&'static str, PathItem)>,
    schemas: Schemas,
}

impl Api {
    /// Creates a router without paths, and its document.
    pub(super) fn new(document: OpenApi) -> Self {
        Self {
            router: Router::new(),
            document,
        }
    }
}

impl Routes {
    /// Creates an empty table whose operations need a key in one of these schemes. An empty name
    /// stands for no key.
    pub(super) fn new(tag: &'static str, schemes: &[&str]) -> Self {
        let requirement = |scheme: &&str| match *scheme {
            "" => SecurityRequirement::default(),
            scheme => SecurityRequirement::new(scheme, [""; 0]),
        };
        Self {
            tag,
            security: (!schemes.is_empty()).then(|| schemes.iter().map(requirement).collect()),
            entries: Vec::new(),
        }
    }

    /// Adds an operation.
    pub(super) fn add(self, operation: RouteOperation) -> Self {
        let path = operation.path;
        self.add_at(path, operation)
    }

    /// Adds operations.
    pub(super) fn add_all(self, operations: impl IntoIterator<Item = RouteOperation>) -> Self {
        operations.into_iter().fold(self, Self::add)
    }

    /// Adds an operation at a path that the OpenAPI document spells differently.
    pub(super) fn add_at(mut self, path: &'static str, operation: RouteOperation) -> Self {
        let method = operation.method_name();
        let described = operation.described.tag(self.tag);
        let described = described.securities(self.security.clone());
        let item = PathItem::new(operation.method, described);
        let at = self.entries.iter().position(|known| known.path == path);
        let Some(at) = at else {
            self.entries.push(RouteEntry {
                path,
                handlers: operation.handler,
                methods: vec![method],
                described: Some((operation.path, item)),
                schemas: operation.schemas,
            });
            return self;
        };
        let entry = &mut self.entries[at];
        entry.handlers = std::mem::take(&mut entry.handlers).merge(operation.handler);
        entry.methods.push(method);
        if let Some((_, known)) = &mut entry.described {
            known.merge_operations(item);
        }
        entry.schemas.extend(operation.schemas);
        self
    }

    /// Adds an operation at a second path, which the OpenAPI document omits.
    pub(super) fn add_undescribed(mut self, path: &'static str, operation: RouteOperation) -> Self {
        self.entries.push(RouteEntry {
            path,
            methods: vec![operation.method_name()],
            handlers: operation.handler,
            described: None,
            schemas: Schemas::new(),
        });
        self
    }

    /// Adds all routes of another table.
    pub(super) fn merge(mut self, others: Self) -> Self {
        self.entries.extend(others.entries);
        self
    }

    /// Removes all routes from the OpenAPI document.
    pub(super) fn undescribed(mut self) -> Self {
        for entry in &mut self.entries {
            entry.described = None;
        }
        self
    }

    /// Adds the routes to a router under a prefix. This avoids nested routers, which make a new URI
    /// for every request.
    pub(super) fn under(self, prefix: &str, mut api: Api) -> Api {
        for entry in self.entries {
            let handlers = with_methods(entry.handlers, &entry.methods.join(", "));
            api.router = api
                .router
                .route(&format!("{prefix}{}", entry.path), handlers);
            if let Some((path, item)) = entry.described {
                let document = &mut api.document;
                document.paths.paths.insert(format!("{prefix}{path}"), item);
                let components = document.components.get_or_insert_default();
                components.schemas.extend(entry.schemas);
            }
        }
        api
    }
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
    handlers.fallback(async move || GatewayError::no_method(&methods))
}

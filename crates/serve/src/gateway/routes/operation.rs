//! Operations of the API: a handler with its method, its path, and its description in the OpenAPI
//! document.

use std::sync::Arc;

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter};
use serde_json::Value;
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{
    ArrayBuilder, KnownFormat, ObjectBuilder, OneOfBuilder, SchemaFormat, Type,
};
use utoipa::openapi::{Content, HttpMethod, Ref, RefOr, Required, ResponseBuilder, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::super::Gateway;
use super::super::error::ErrorBody;

/// The media type of most bodies.
const JSON: &str = "application/json";

/// Description of the errors of a client.
pub(super) const REFUSED: &str = "The request was refused";

/// Named schemas of the document.
pub(super) type Schemas = Vec<(String, RefOr<Schema>)>;

/// An operation: its handler and its description.
pub(super) struct RouteOperation {
    pub(super) method: HttpMethod,
    pub(super) path: &'static str,
    pub(super) handler: MethodRouter<Arc<Gateway>>,
    pub(super) described: OperationBuilder,
    /// Named schemas that the description refers to.
    pub(super) schemas: Schemas,
}

/// The schema of a body, and the named schemas that it refers to.
pub(super) struct BodySchema {
    schema: RefOr<Schema>,
    named: Schemas,
}

impl BodySchema {
    /// Describes a type that has a name in the document.
    pub(super) fn of<T: ToSchema>() -> Self {
        let mut named = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut named);
        Self {
            schema: Ref::from_schema_name(T::name()).into(),
            named,
        }
    }

    /// Describes a list of a named type.
    pub(super) fn list<T: ToSchema>() -> Self {
        let Self { schema, named } = Self::of::<T>();
        Self {
            schema: ArrayBuilder::new().items(schema).into(),
            named,
        }
    }

    /// Describes a value of a named type, or null.
    pub(super) fn optional<T: ToSchema>() -> Self {
        let Self { schema, named } = Self::of::<T>();
        let null = ObjectBuilder::new().schema_type(Type::Null);
        Self {
            schema: OneOfBuilder::new().item(schema).item(null).into(),
            named,
        }
    }

    /// Describes bytes.
    pub(super) fn bytes() -> Self {
        let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
        let bytes = ObjectBuilder::new().schema_type(Type::String);
        Self {
            schema: bytes.format(Some(format)).into(),
            named: Schemas::new(),
        }
    }

    /// Describes a type without a name.
    pub(super) fn plain<T: PartialSchema>() -> Self {
        Self {
            schema: T::schema(),
            named: Schemas::new(),
        }
    }
}

impl RouteOperation {
    /// Creates an operation that reads.
    pub(super) fn get<H, T>(path: &'static str, id: &str, handler: H) -> Self
    where
        H: Handler<T, Arc<Gateway>>,
        T: 'static,
    {
        Self::new(HttpMethod::Get, MethodFilter::GET, (path, id), handler)
    }

    /// Creates an operation that sends a request.
    pub(super) fn post<H, T>(path: &'static str, id: &str, handler: H) -> Self
    where
        H: Handler<T, Arc<Gateway>>,
        T: 'static,
    {
        Self::new(HttpMethod::Post, MethodFilter::POST, (path, id), handler)
    }

    /// Creates an operation that deletes.
    pub(super) fn delete<H, T>(path: &'static str, id: &str, handler: H) -> Self
    where
        H: Handler<T, Arc<Gateway>>,
        T: 'static,
    {
        Self::new(
            HttpMethod::Delete,
            MethodFilter::DELETE,
            (path, id),
            handler,
        )
    }

    fn new<H, T>(
        method: HttpMethod,
        filter: MethodFilter,
        (path, id): (&'static str, &str),
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<Gateway>>,
        T: 'static,
    {
        Self {
            method,
            path,
            handler: MethodRouter::new().on(filter, handler),
            described: OperationBuilder::new().operation_id(Some(id)),
            schemas: Schemas::new(),
        }
    }

    /// Returns the methods that answer, as a client reads them.
    pub(super) fn method_name(&self) -> &'static str {
        match self.method {
            HttpMethod::Get => "GET, HEAD",
            HttpMethod::Delete => "DELETE",
            _ => "POST",
        }
    }

    /// Sets the summary.
    pub(super) fn about(self, summary: &str) -> Self {
        self.describe(|it| it.summary(Some(summary)))
    }

    /// Adds the parameters of a type.
    pub(super) fn with<P: IntoParams>(self) -> Self {
        let parameters = P::into_params(|| None);
        self.describe(|it| parameters.into_iter().fold(it, OperationBuilder::parameter))
    }

    /// Adds a part of the path.
    pub(super) fn named<T: PartialSchema>(self, name: &str, description: &str) -> Self {
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(description))
            .schema(Some(T::schema()));
        self.describe(|it| it.parameter(parameter))
    }

    /// Sets the body, which is JSON.
    pub(super) fn takes<T: ToSchema>(self) -> Self {
        self.takes_any_of(Some(Required::True), None, [(JSON, BodySchema::of::<T>())])
    }

    /// Sets the body, which may be missing.
    pub(super) fn may_take(self, description: Option<&str>, body: BodySchema) -> Self {
        self.takes_any_of(None, description, [(JSON, body)])
    }

    /// Sets a body of one of several media types.
    pub(super) fn takes_any_of<const N: usize>(
        mut self,
        required: Option<Required>,
        description: Option<&str>,
        bodies: [(&str, BodySchema); N],
    ) -> Self {
        let mut request = RequestBodyBuilder::new();
        for (media, body) in bodies {
            request = request.content(media, self.content(body));
        }
        let request = request.required(required).description(description);
        self.describe(|it| it.request_body(Some(request.build())))
    }

    /// Describes the success, with a JSON body.
    pub(super) fn answers(self, description: &str, body: BodySchema) -> Self {
        self.responds("200", description, [(JSON, body)])
    }

    /// Describes the success, without a body.
    pub(super) fn succeeds(self, description: &str) -> Self {
        self.responds("200", description, [])
    }

    /// Describes the success, with the body of a service: JSON or another media type.
    pub(super) fn answers_as_service(self, description: &str) -> Self {
        self.responds("200", description, of_service())
    }

    /// Describes the successes that only a proxy's upstream has.
    pub(super) fn answers_as_upstream(self) -> Self {
        let empty = "The service answered without a body, which a proxy's upstream may do";
        self.responds("204", empty, []).responds(
            "2XX",
            "Another success of a proxy's upstream",
            of_service(),
        )
    }

    /// Describes the errors of a client, and of the server.
    pub(super) fn fails(self, server: &str) -> Self {
        self.refuses(REFUSED).breaks(server)
    }

    /// Describes the errors of a client.
    pub(super) fn refuses(self, description: &str) -> Self {
        self.responds("4XX", description, [(JSON, BodySchema::of::<ErrorBody>())])
    }

    /// Describes the errors of the server.
    pub(super) fn breaks(self, description: &str) -> Self {
        self.responds("5XX", description, [(JSON, BodySchema::of::<ErrorBody>())])
    }

    /// Describes an answer of a status, or of a class of statuses.
    pub(super) fn responds<const N: usize>(
        mut self,
        status: &str,
        description: &str,
        bodies: [(&str, BodySchema); N],
    ) -> Self {
        let mut response = ResponseBuilder::new().description(description);
        for (media, body) in bodies {
            response = response.content(media, self.content(body));
        }
        self.describe(|it| it.response(status, response))
    }

    fn content(&mut self, body: BodySchema) -> Content {
        self.schemas.extend(body.named);
        Content::new(Some(body.schema))
    }

    fn describe(self, change: impl FnOnce(OperationBuilder) -> OperationBuilder) -> Self {
        Self {
            described: change(self.described),
            ..self
        }
    }
}

/// The bodies of services.
fn of_service() -> [(&'static str, BodySchema); 2] {
    [
        (JSON, BodySchema::plain::<Value>()),
        ("*/*", BodySchema::plain::<String>()),
    ]
}

//! The frame of the OpenAPI document; the routes add their paths.

use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "pkgtool gateway",
        description = "Models of device packages as services: synchronous and asynchronous predict, \
            predict configs, the registry. `/api/mlpgateway`, `/api/mlpgate` and `/api/mlpcore` are \
            spellings of one prefix: every operation answers under all three. Every response carries \
            `Z-requestId`. Each service defines the format of its \
            `data` and `config`: `/openapi.json?service=ACCOUNT/NAME` is this document with the exact \
            schemas of one service.",
    ),
    modifiers(&Keys),
    tags(
        (name = "tasks", description = "Asynchronous predict: accepted now, answered later"),
        (name = "predict", description = "Synchronous predict"),
        (name = "services", description = "Services and their predict configs"),
        (name = "training", description = "Datasets, services derived from others, and their training: derive, fit, poll the job until its status is SUCCESS, predict"),
        (name = "usage", description = "Usage of an account through the chat adapters"),
        (name = "adapters", description = "Services through the common chat-completion interface. `/v1` may follow the base; `openai` and `openai-direct` are spellings of `compat` and `compat-direct`. The key is sent in `Authorization`"),
        (name = "registry", description = "Providers and models: without a key the public and listed ones, with a key also those that it may use"),
        (name = "health", description = "Health of the server; needs no key"),
    ),
)]
struct OpenApiFrame;

struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let header = ApiKey::Header(ApiKeyValue::new("MLP-API-KEY"));
        components.add_security_scheme("key", SecurityScheme::ApiKey(header));
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    }
}

/// Returns the document without paths.
pub(super) fn frame() -> utoipa::openapi::OpenApi {
    OpenApiFrame::openapi()
}

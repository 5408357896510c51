//! Routes of the registry: providers, their models, and the models' parameters. They need no key;
//! with a key they also show the models that it may use.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::super::Gateway;
use super::super::auth::Viewer;
use super::super::error::GatewayError;
use super::super::extract::InPath;
use super::super::visible::{self, VisibleService, visible};
use super::operation::{BodySchema, RouteOperation};
use super::path::Routes;
use crate::database::Timestamp;
use crate::service::{Description, Device, ServiceKind};
use pkgtool_media::recipe::ParameterKind;
use pkgtool_text::embedding::Pooling;

/// Display names of the backends.
const DISPLAY_NAMES: [(&str, &str); 5] = [
    ("xnnpack", "XNNPACK"),
    ("coreml", "Core ML"),
    ("vulkan", "Vulkan"),
    ("qnn", "Qualcomm AI Engine Direct"),
    ("mlx", "MLX"),
];

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let provider =
        |operation: RouteOperation| operation.named::<String>("provider", "The provider's name");
    let operations = [
        RouteOperation::get("/providers", "listProviders", providers)
            .about("List the providers of models.")
            .answers("Providers", BodySchema::of::<Providers>()),
        provider(RouteOperation::get(
            "/providers/{provider}/models",
            "listModels",
            models,
        ))
        .about("List the models of a provider.")
        .answers(
            "Public and listed models, and with a key those that it may use",
            BodySchema::of::<Models>(),
        )
        .refuses("Unknown provider"),
        provider(RouteOperation::get(
            "/providers/{provider}/models/{model}",
            "readModel",
            model,
        ))
        .about("Read a model of a provider.")
        .named::<String>(
            "model",
            "The model's name; `ACCOUNT/NAME` for one of an account",
        )
        .answers("The model", BodySchema::of::<Model>())
        .refuses("Unknown model"),
    ];
    Routes::new("registry", &["", "key"]).add_all(operations)
}

/// A provider of models: a backend that serves a model here, or an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ModelProvider {
    /// Unique identifier.
    name: String,
    /// Display name.
    display_name: String,
}

/// All providers.
#[derive(Debug, Serialize, ToSchema)]
struct Providers {
    providers: Vec<ModelProvider>,
}

/// The models of a provider.
#[derive(Debug, Serialize, ToSchema)]
struct Models {
    models: Vec<Model>,
}

/// A model of a provider.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Model {
    /// Identifier unique within the provider.
    name: String,
    /// Display name.
    display_name: String,
    provider: ModelProvider,
    /// `true` if an engine can run it with this provider; requests are rejected otherwise.
    is_active: bool,
    /// The reason why it is inactive with this provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    inactive_reason: Option<String>,
    parameters: Parameters,
    /// ISO 8601, UTC.
    #[schema(format = DateTime)]
    created_at: String,
    /// ISO 8601, UTC.
    #[schema(format = DateTime)]
    updated_at: String,
}

/// The properties of a model, and the variables that a predict config may set.
#[derive(Debug, Default, Serialize, ToSchema)]
struct Parameters {
    /// Each has `type`, `name`, `value`.
    #[schema(value_type = Vec<Object>)]
    constants: Vec<Value>,
    /// Each has `type`, `name`, and bounds by its type.
    #[schema(value_type = Vec<Object>)]
    variables: Vec<Value>,
}

async fn providers(State(gateway): State<Arc<Gateway>>, viewer: Viewer) -> Json<Providers> {
    let mut providers: Vec<ModelProvider> = Vec::new();
    let visible = visible(&gateway, viewer);
    // If a backend and an upstream share a name, the backend is shown.
    let (devices, proxies): (Vec<_>, Vec<_>) =
        visible.iter().partition(|seen| seen.device().is_some());
    for seen in devices.into_iter().chain(proxies) {
        for provider in providers_of(seen) {
            if providers.iter().all(|known| known.name != provider.name) {
                providers.push(provider);
            }
        }
    }
    providers.sort_by(|a, b| a.name.cmp(&b.name));
    Json(Providers { providers })
}

async fn models(
    State(gateway): State<Arc<Gateway>>,
    viewer: Viewer,
    InPath(provider): InPath<String>,
) -> Result<Json<Models>, GatewayError> {
    let visible = visible(&gateway, viewer);
    let offered = of_provider(&visible, &provider)?.into_iter();
    let models = offered.map(|(seen, provider)| of_service(seen, provider));
    Ok(Json(Models {
        models: models.collect(),
    }))
}

async fn model(
    State(gateway): State<Arc<Gateway>>,
    viewer: Viewer,
    InPath((provider, model)): InPath<(String, String)>,
) -> Result<Json<Model>, GatewayError> {
    let visible = visible(&gateway, viewer);
    let mut offered = of_provider(&visible, &provider)?.into_iter();
    let named = visible::named(&visible, &model);
    let found = named.and_then(|named| offered.find(|(seen, _)| std::ptr::eq(*seen, named)));
    match found {
        Some((seen, provider)) => Ok(Json(of_service(seen, provider))),
        None => Err(GatewayError::no_entity("model", &model)),
    }
}

/// Returns the models of a provider.
fn of_provider<'v>(
    visible: &'v [VisibleService],
    provider: &str,
) -> Result<Vec<(&'v VisibleService, ModelProvider)>, GatewayError> {
    let offers = |seen: &'v VisibleService| {
        let mut providers = providers_of(seen).into_iter();
        let found = providers.find(|found| found.name == provider);
        found.map(|found| (seen, found))
    };
    let offered: Vec<_> = visible.iter().filter_map(offers).collect();
    if offered.is_empty() {
        return Err(GatewayError::no_entity("provider", provider));
    }
    Ok(offered)
}

fn providers_of(seen: &VisibleService) -> Vec<ModelProvider> {
    let own = match &seen.service.kind {
        ServiceKind::Proxy(upstream) => Some(upstream.display_name()),
        ServiceKind::Attached(_) => Some(&*seen.service.name),
        ServiceKind::Device(_) | ServiceKind::Untrained(_) => None,
    };
    if let Some(display_name) = own {
        return vec![ModelProvider {
            name: seen.name.clone(),
            display_name: display_name.to_owned(),
        }];
    }
    let backends = seen
        .device()
        .map_or(&[][..], |it| &it.description().backends[..]);
    backends
        .iter()
        .map(|backend| ModelProvider {
            name: backend.clone(),
            display_name: DISPLAY_NAMES
                .iter()
                .find(|(name, _)| name == backend)
                .map_or_else(|| backend.clone(), |(_, shown)| (*shown).to_owned()),
        })
        .collect()
}

fn of_service(seen: &VisibleService, provider: ModelProvider) -> Model {
    let name = seen.name.clone();
    match &seen.service.kind {
        ServiceKind::Device(device) => {
            let description = device.description();
            let inactive_reason = device.inactive_reason(Some(&provider.name));
            Model {
                display_name: display_name(description),
                is_active: inactive_reason.is_none(),
                inactive_reason,
                parameters: parameters(device, &provider.name),
                created_at: description.created_at.to_iso(),
                updated_at: description.updated_at.to_iso(),
                name,
                provider,
            }
        }
        ServiceKind::Untrained(untrained) => Model {
            display_name: name.clone(),
            is_active: false,
            inactive_reason: seen.service.inactive_reason(),
            parameters: seen.device().map_or_else(Parameters::default, |device| {
                parameters(device, &provider.name)
            }),
            created_at: untrained.since.to_iso(),
            updated_at: untrained.since.to_iso(),
            name,
            provider,
        },
        ServiceKind::Proxy(upstream) => of_other_process(seen, provider, upstream.since()),
        ServiceKind::Attached(attached) => of_other_process(seen, provider, attached.since()),
    }
}

/// Describes a service of another process, whose inputs are not known here.
fn of_other_process(seen: &VisibleService, provider: ModelProvider, since: Timestamp) -> Model {
    Model {
        display_name: provider.display_name.clone(),
        is_active: seen.service.is_active(),
        inactive_reason: seen.service.inactive_reason(),
        parameters: Parameters::default(),
        created_at: since.to_iso(),
        updated_at: since.to_iso(),
        name: seen.name.clone(),
        provider,
    }
}

fn display_name(description: &Description) -> String {
    match &description.size {
        Some(size) => format!("{} {size}", description.family),
        None => description.family.clone(),
    }
}

fn parameters(device: &Device, backend: &str) -> Parameters {
    let description = device.description();
    let text = |name: &str, value: &str| json!({"type": "string", "name": name, "value": value});
    let list = |name: &str, value: Vec<&str>| json!({"type": "enum", "name": name, "value": value});
    let mut constants = vec![text("family", &description.family)];
    if let Some(size) = &description.size {
        constants.push(text("size", size));
    }
    if let Some(license) = &description.license {
        constants.push(text("license", license));
    }
    constants.push(list("capabilities", texts(&description.capabilities)));
    constants.push(json!({
        "type": "integer", "name": "size_bytes", "value": description.size_bytes
    }));
    let here = description.precisions_of(backend);
    let quantized = here.iter().filter(|(_, quantized)| *quantized);
    constants.push(list(
        "quantized_precisions",
        quantized.map(|(name, _)| name.as_str()).collect(),
    ));
    if let Some(reading) = device.reading(backend) {
        constants.push(text("reading", &reading.to_string()));
    }
    if let Some(sums) = device.byte_sums(backend) {
        constants.push(text("byte_sums", sums.name()));
    }
    if let Some(sandbox) = device.sandbox(backend) {
        constants.push(text("sandbox", &sandbox.to_string()));
    }
    if !description.labels.is_empty() {
        constants.push(list("labels", texts(&description.labels)));
    }
    let mut variables = Vec::new();
    let mut choice = |name: &str, values: Vec<&str>, default: Option<&str>| {
        if values.is_empty() {
            return;
        }
        let default = default.filter(|default| values.contains(default));
        let mut variable = json!({
            "type": "enum", "name": name, "values": values, "required": false
        });
        if let Some(default) = default {
            variable["default"] = json!(default);
        }
        variables.push(variable);
    };
    let backends = texts(&description.backends);
    choice("backend", backends, description.default_backend.as_deref());
    let precisions = here.iter().map(|(name, _)| name.as_str()).collect();
    choice(
        "precision",
        precisions,
        description.default_precision.as_deref(),
    );
    choice("component", texts(&description.components), None);
    let methods = texts(&description.methods);
    let only = if let [only] = methods[..] {
        Some(only)
    } else {
        None
    };
    choice("method", methods, only);
    let labels = description.labels.len();
    if description.embeds_texts {
        variables.extend(of_embeddings(device));
    } else if labels > 0 && description.takes.is_none() {
        variables.extend(of_embeddings(device).into_iter().take(2));
    }
    if labels > 0 {
        variables.push(json!({
            "type": "integer", "name": "top_k", "min": 1, "default": labels, "required": false
        }));
    }
    for (name, recipe) in ["recipe", "line_recipe"]
        .iter()
        .zip(device.recipes(Some(backend)))
    {
        let fitted = &recipe.fitted;
        let about = format!("{}: {} ({})", fitted.name, fitted.summary, fitted.source);
        constants.push(text(name, &about));
        for variable in recipe.settings().filter_map(of_recipe) {
            if variables
                .iter()
                .all(|known| known["name"] != variable["name"])
            {
                variables.push(variable);
            }
        }
    }
    Parameters {
        constants,
        variables,
    }
}

/// Returns the variable for a value of a recipe; `None` for a list of numbers, which the registry cannot describe.
fn of_recipe((name, value, kind): (&str, &Value, ParameterKind)) -> Option<Value> {
    let mut variable = match kind {
        ParameterKind::Number(least, most) => json!({"type": "number", "min": least, "max": most}),
        ParameterKind::Whole(least, most) => json!({"type": "integer", "min": least, "max": most}),
        ParameterKind::Choice(words) => json!({"type": "enum", "values": words}),
        ParameterKind::Flag => json!({"type": "boolean"}),
        ParameterKind::Channels if value.is_number() => json!({"type": "number"}),
        ParameterKind::Channels => return None,
        ParameterKind::Labels | ParameterKind::Word | ParameterKind::Text => {
            json!({"type": "string"})
        }
    };
    variable["name"] = json!(name);
    variable["required"] = json!(false);
    if kind != ParameterKind::Labels {
        variable["default"] = value.clone();
    }
    Some(variable)
}

/// Returns the variables of a predict config for text embeddings.
fn of_embeddings(device: &Device) -> [Value; 4] {
    let ways = Pooling::ALL.map(|(_, name)| name);
    let meant = device.method_index(None).ok();
    let takes = meant.and_then(|method| device.takes(method)?.texts);
    let mut length = json!({"type": "integer", "name": "max_length", "min": 1, "required": false});
    if let Some(takes) = takes {
        length["default"] = json!(takes.tokens);
        if let Some(most) = takes.most {
            length["max"] = json!(most);
        }
    }
    [
        json!({"type": "boolean", "name": "truncate", "default": false, "required": false}),
        length,
        json!({"type": "enum", "name": "pooling", "values": ways, "required": false}),
        json!({"type": "boolean", "name": "normalize", "required": false}),
    ]
}

fn texts(values: &[String]) -> Vec<&str> {
    values.iter().map(String::as_str).collect()
}

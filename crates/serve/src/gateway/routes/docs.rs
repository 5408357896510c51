//! The OpenAPI document of the API, in full or for one service.

use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

use super::super::Gateway;
use super::super::auth::Viewer;
use super::super::error::GatewayError;
use super::super::takes::{self, BodySchemas};
use super::super::visible::{self, visible};
use crate::service::{Service, ServiceKind};
use pkgtool_media::MediaKind;
use pkgtool_media::answer::TypedAnswerKind;
use pkgtool_media::recipe::ModelRecipe;

/// The part that all paths of a service share.
const SERVICE_PATH: &str = "/account/{account}/model/{model}";

/// Ends of the paths of predict requests.
const PREDICTS: [&str; 3] = ["predict", "predict-with-config", "predict-with-config-v2"];

/// Parameters of the document.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DocsParameters {
    /// A service by owner and name, or by its name in the registry. The document then describes the
    /// exact requests of that service.
    service: Option<String>,
}

/// Returns the OpenAPI document.
pub(super) async fn document(
    document: &Arc<OpenApi>,
    gateway: &Arc<Gateway>,
    viewer: Viewer,
    parameters: DocsParameters,
) -> Result<Response, GatewayError> {
    let Some(name) = parameters.service else {
        return Ok(Json(&**document).into_response());
    };
    let seen = visible(gateway, viewer);
    let service = visible::named(&seen, &name);
    let service = service.ok_or_else(|| GatewayError::no_entity("service", &name))?;
    let service = Arc::clone(&service.service);
    let stored = gateway.configs.list(service.id).await?;
    let document = Arc::clone(document);
    let narrow = move || {
        let bodies = takes::body_schemas(&service, &stored);
        let mut document = serde_json::to_value(&*document)?;
        restrict_to_service(&mut document, &service, bodies.as_ref());
        Ok(document)
    };
    let failed = |error: &dyn std::fmt::Display| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        GatewayError::new(
            status,
            "DOCUMENT_FAILED",
            "the document cannot be generated",
        )
        .because(error)
    };
    // It reads the models' files.
    let narrowed = tokio::task::spawn_blocking(narrow).await;
    let narrowed: Result<Value, serde_json::Error> = narrowed.map_err(|error| failed(&error))?;
    Ok(Json(narrowed.map_err(|error| failed(&error))?).into_response())
}

/// Restricts the document to one service.
fn restrict_to_service(document: &mut Value, service: &Service, bodies: Option<&BodySchemas>) {
    let Some(Value::Object(paths)) = document.get_mut("paths") else {
        return;
    };
    let recipes = match &service.kind {
        ServiceKind::Device(device) => device.recipes(None),
        _ => Vec::new(),
    };
    let labelled = service.device().and_then(|it| it.labelled_schema());
    for (path, item) in paths
        .iter_mut()
        .filter(|(path, _)| path.contains(SERVICE_PATH))
    {
        for operation in item
            .as_object_mut()
            .into_iter()
            .flat_map(|it| it.values_mut())
        {
            restrict_parameters(operation, service, bodies);
            if let Some(schema) = &labelled {
                add_answer(operation, path, schema);
            }
            if let Some(bodies) = bodies {
                restrict_body(operation, path, bodies);
            }
            add_media(operation, path, &recipes);
        }
    }
}

/// Restricts the body of an operation to what the service takes.
fn restrict_body(operation: &mut Value, path: &str, bodies: &BodySchemas) {
    let schema = match path.rsplit('/').next() {
        Some("predict") => &bodies.raw,
        Some("predict-with-config") => &bodies.whole,
        Some("predict-with-config-v2") => &bodies.texts,
        Some("predict-config") => &stored_config(&bodies.config),
        _ => return,
    };
    if let Some(body) = operation.get_mut("requestBody") {
        body["required"] = json!(true);
        body["content"]["application/json"]["schema"] = schema.clone();
    }
}

/// Describes pictures or sounds and typed answers, if a recipe of the service gives them.
fn add_media(operation: &mut Value, path: &str, recipes: &[&ModelRecipe]) {
    let Some(recipe) = recipes.first() else {
        return;
    };
    let (takes, kind) = (recipe.fitted.takes, recipe.fitted.answer);
    let keys: &[&str] = match takes {
        MediaKind::Picture => &["image"],
        MediaKind::Sound => &["audio"],
        MediaKind::Text if kind == TypedAnswerKind::Picture => &["text"],
        MediaKind::Text => &["text", "phonemes"],
    };
    let is_text = takes == MediaKind::Text;
    let forms = kind.media_types();
    let file = json!({"type": "string", "format": "binary"});
    let end = path.rsplit('/').next().unwrap_or_default();
    if let Some(answers) = add_answer(operation, path, &kind.schema()) {
        for format in forms.iter().filter(|form| **form != TypedAnswerKind::JSON) {
            answers[format] = json!({"schema": file});
        }
    }
    let Some(body) = operation
        .get_mut("requestBody")
        .filter(|_| end == "predict")
    else {
        return;
    };
    let settings = recipes.iter().flat_map(|recipe| recipe.settings());
    let settings = settings.map(|(name, _, kind)| (name.to_owned(), kind.schema()));
    let mut fields: serde_json::Map<String, Value> = settings.collect();
    let settings = json!({"type": "object", "properties": fields, "additionalProperties": false});
    let content = &mut body["content"];
    let given = if is_text {
        json!({"type": "string", "minLength": 1})
    } else {
        json!({"type": "string", "contentEncoding": "base64"})
    };
    let whole = keys.iter().map(|key| {
        json!({
            "type": "object",
            "required": [key],
            "properties": {(*key): given, "settings": settings, "answer": {"enum": forms}},
            "additionalProperties": false,
        })
    });
    let tensors = content["application/json"]["schema"].take();
    let forms_of_body: Vec<Value> = std::iter::once(tensors).chain(whole).collect();
    content["application/json"]["schema"] = json!({"anyOf": forms_of_body});
    let (field, whole) = if is_text {
        (keys[0], given.clone())
    } else {
        ("file", file)
    };
    fields.insert(field.to_owned(), whole.clone());
    fields.insert("answer".to_owned(), json!({"enum": forms}));
    let form = json!({"type": "object", "required": [field], "properties": fields});
    content["multipart/form-data"] = json!({"schema": form});
    content[takes.media_range()] = json!({"schema": whole});
}

/// Adds the schema of a typed answer to an operation that answers at once. Returns the answers by media type.
fn add_answer<'o>(operation: &'o mut Value, path: &str, schema: &Value) -> Option<&'o mut Value> {
    let end = path.rsplit('/').next().unwrap_or_default();
    // The answer to an asynchronous request is a task.
    let answers_at_once = PREDICTS.contains(&end) && !path.contains("/async/");
    let answers = operation.pointer_mut("/responses/200/content");
    let answers = answers.filter(|_| answers_at_once)?;
    let others = answers["application/json"]["schema"].take();
    answers["application/json"]["schema"] = json!({"anyOf": [schema, others]});
    Some(answers)
}

/// Restricts the parameters of an operation to the service's names and to the configs that match.
fn restrict_parameters(operation: &mut Value, service: &Service, bodies: Option<&BodySchemas>) {
    let Some(Value::Array(parameters)) = operation.get_mut("parameters") else {
        return;
    };
    for parameter in parameters.iter_mut() {
        let named = match parameter["name"].as_str() {
            Some("account") => &service.owner_name,
            Some("model") => &service.name,
            _ => continue,
        };
        parameter["schema"] = json!({"type": "string", "enum": [named]});
    }
    let Some(bodies) = bodies else { return };
    if bodies.config_ids.is_empty() {
        parameters.retain(|parameter| parameter["name"] != "configId");
    }
    let of_config = |parameter: &&mut Value| parameter["name"] == "configId";
    if let Some(parameter) = parameters.iter_mut().find(of_config) {
        parameter["schema"] = json!({"type": "integer", "enum": bodies.config_ids});
    }
}

/// Returns the schema of the body that stores a predict config.
fn stored_config(config: &Value) -> Value {
    json!({
        "type": "object",
        "required": ["name", "config"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "\\S"},
            "isDefault": {"type": "boolean"},
            "config": config,
        },
    })
}

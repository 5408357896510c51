//! Tests of the service registry, health, metrics and the API document.

use serde_json::{Value, json};

use super::{PREFIXES, examples};
use crate::support::gateway::Setup;
use crate::support::http::Upstream;

#[test]
fn providers_and_models_are_public_and_complete() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .packages(examples())
        .settings(&format!(
            "[[proxies]]\nname = \"echo\"\nupstream = \"{}\"\ndisplay_name = \"The Echo\"",
            upstream.url("/echo")
        ))
        .start();
    let get = |path: &str| gateway.bare("GET", path, &[]);
    let providers = get("/api/mlpcore/providers").expect(200).json();
    for prefix in PREFIXES {
        assert_eq!(
            get(&format!("{prefix}/providers")).expect(200).json(),
            providers
        );
    }
    let listed = providers["providers"].as_array().expect("a list");
    let names: Vec<&str> = listed.iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["coreml", "echo", "mlx", "qnn", "vulkan", "xnnpack"]);
    assert!(listed.contains(&json!({"name": "echo", "displayName": "The Echo"})));
    for name in &names {
        let path = format!("/api/mlpcore/providers/{name}/models");
        let models = get(&path).expect(200).json();
        for model in models["models"].as_array().expect("a list") {
            check_model(model, name);
            let one = format!("{path}/{}", model["name"].as_str().expect("a name"));
            assert_eq!(get(&one).expect(200).json(), *model);
        }
        get(&format!("{path}/nosuch")).expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    }
    get("/api/mlpcore/providers/nosuch/models").expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    get("/api/mlpcore/providers/nosuch/models/x").expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
}

fn check_model(model: &Value, provider: &str) {
    assert_eq!(model["provider"]["name"], provider);
    for at in ["createdAt", "updatedAt"] {
        let text = model[at].as_str().expect("a moment");
        assert!(text.len() == 24 && text.ends_with('Z'), "{text}");
    }
    for constant in model["parameters"]["constants"].as_array().expect("a list") {
        let value = &constant["value"];
        let fits = match constant["type"].as_str().expect("a type") {
            "integer" => value.is_u64(),
            "string" => value.is_string(),
            "enum" => value
                .as_array()
                .is_some_and(|all| all.iter().all(Value::is_string)),
            other => panic!("{other}"),
        };
        assert!(fits, "{constant}");
    }
    for variable in model["parameters"]["variables"].as_array().expect("a list") {
        let default = &variable["default"];
        let fits = match variable["type"].as_str().expect("a type") {
            "enum" => {
                let values = variable["values"].as_array().expect("an enum's values");
                !values.is_empty() && (default.is_null() || values.contains(default))
            }
            "boolean" => default.is_null() || default.is_boolean(),
            "number" => {
                let least = variable["min"].as_f64().unwrap_or(f64::NEG_INFINITY);
                default.as_f64().is_some_and(|default| default >= least)
            }
            "string" => default.is_null() || default.is_string(),
            "integer" => default.is_null() || default.as_u64() >= variable["min"].as_u64(),
            other => panic!("{other}"),
        };
        assert!(fits, "{variable}");
    }
}

#[test]
fn service_info_has_all_that_a_client_insists_on() {
    let gateway = Setup::new().packages(examples()).start();
    let info = gateway
        .get("/api/mlpgateway/account/local/model/glimpse")
        .expect(200)
        .json();
    for pointer in [
        "/id/accountId",
        "/id/modelId",
        "/modelName",
        "/isActive",
        "/imageAccountId",
        "/composite",
        "/fittable",
        "/favorite",
        "/restrictedImageAccess",
        "/hostingType",
        "/persistentVolumes",
        "/dataImageMounts",
        "/timeouts/podStartTimeoutSec",
        "/timeouts/predictTimeoutSec",
        "/resourceLimits/cpuRequest",
        "/resourceLimits/memoryLimit",
        "/resourceLimits/ephemeralDiskLimit",
        "/resourceLimits/gpuRequested",
        "/retriesConfig/maxRetries",
        "/retriesConfig/timeoutsMs",
        "/batchesConfig/batchSize",
        "/batchesConfig/timeWaitMs",
        "/caching/enabled",
        "/caching/mongoUri",
        "/caching/collectionName",
        "/caching/recordsLimit",
        "/priorityQueue/enabled",
        "/priorityQueue/concurrencyLevel",
        "/autoScalingConfiguration/minInstanceCount",
        "/autoScalingConfiguration/active",
        "/publicSettings",
        "/billingSettings/isBillingEnabled",
        "/httpSettings/isHttpEnabled",
        "/archiveSettings/enabled",
        "/archiveSettings/numberOfArchivedRequests",
        "/archiveSettings/encryptionEnabled",
    ] {
        assert!(
            info.pointer(pointer).is_some_and(|it| !it.is_null()),
            "{pointer} in {info}"
        );
    }
    for pointer in ["cpuRequest", "memoryLimit", "ephemeralDiskLimit"] {
        assert!(info["resourceLimits"][pointer].is_string());
    }
    assert_eq!(info["resourceLimits"]["gpuRequested"], json!(false));
    let unknown = gateway.get("/api/mlpgateway/account/local/model/nosuch");
    unknown.expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
}

#[test]
fn health_metrics_and_the_document_need_no_key() {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    let task = gateway.create("echo", "{}");
    gateway.wait_for(&task, "COMPLETED");
    let get = |path: &str| gateway.bare("GET", path, &[]).expect(200);
    assert_eq!(get("/healthz").json()["status"], "ok");
    assert_eq!(get("/readyz").json()["services"], 1);
    let metrics = get("/metrics");
    assert_eq!(
        metrics.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    for line in [
        "pkgtool_tasks_created_total 1",
        "pkgtool_services 1",
        "pkgtool_requests_total{method=\"POST\",route=\"/api/mlpgateway/account/{account}/model/{model}/async/predict\",status=\"200\"} 1",
    ] {
        assert!(
            metrics.text().contains(line),
            "{line} in {}",
            metrics.text()
        );
    }
    let document = get("/openapi.json").json();
    assert!(
        document["openapi"]
            .as_str()
            .is_some_and(|version| version.starts_with("3."))
    );
    let paths = document["paths"].as_object().expect("paths");
    for path in [
        "/api/mlpgateway/account/{account}/model/{model}/async/predict",
        "/api/mlpgateway/account/{account}/model/{model}/async/predict-with-config",
        "/api/mlpgateway/account/{account}/model/{model}/async/predict-with-config-v2",
        "/api/mlpgateway/account/{account}/async/task/{task}",
        "/api/mlpgateway/account/{account}/async/task/{task}/response",
        "/api/mlpgateway/account/{account}/async/task/{task}/cancel",
        "/api/mlpcore/providers/{provider}/models/{model}",
    ] {
        assert!(paths.contains_key(path), "{path}");
    }
    assert!(get("/docs").text().contains("vendor/rapidoc.js"));
}

//! Tests of devices (the loaded variants) of example packages: selection by config, rejected
//! requests, and answers.

use pkgtool_engine::tensor::DType;
use pkgtool_media::MediaKind;
use pkgtool_serve::service::{Answer, CallError, Device, Request};
use serde_json::{Value, json};

use super::packages::{OWNER, device, examples, find, start, zeros};

/// Calls `call` with the device of an example.
async fn with<T>(name: &str, call: impl AsyncFnOnce(&Device) -> T) -> T {
    let catalog = start(&[&examples()]);
    let service = find(&catalog, name);
    let result = call(device(&service)).await;
    catalog.stop().await;
    result
}

async fn check(name: &str, config: Value) -> Result<(), (String, String)> {
    with(name, async |device| {
        match device.check_config(&config.to_string()) {
            Ok(()) => Ok(()),
            Err(CallError::Refused(refusal)) => {
                Err((refusal.place.expect("a config has places"), refusal.message))
            }
            Err(other) => panic!("{other}"),
        }
    })
    .await
}

fn request(body: &Value, config: Option<&Value>) -> Request {
    Request {
        body: body.to_string().into(),
        config: config.map(Value::to_string),
        ..Request::default()
    }
}

async fn refused(name: &str, config: Value, place: &str, message: &str) {
    let (at, said) = check(name, config.clone()).await.expect_err("refused");
    assert_eq!(at, place, "{config}: {said}");
    assert!(said.contains(message), "{config}: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn configs_are_held_against_the_package() {
    for config in [
        json!({}),
        json!({"backend": "qnn"}),
        json!({"backend": null, "precision": "int8", "method": "forward"}),
        // This machine has no engine for the config, although the config is valid.
        json!({"backend": "coreml", "precision": "fp16"}),
    ] {
        check("glimpse", config).await.expect("it is right");
    }
    let there = "`xnnpack`, `coreml`, `vulkan`, `qnn`, `mlx`";
    refused(
        "glimpse",
        json!({"backend": "cuda"}),
        "$.config.backend",
        there,
    )
    .await;
    refused(
        "glimpse",
        json!({"precision": "fp23"}),
        "$.config.precision",
        "did you mean `fp32`?",
    )
    .await;
    let other = json!({"backend": "qnn", "precision": "fp32"});
    refused(
        "glimpse",
        other,
        "$.config.precision",
        "with backend `qnn`; available: `int8`",
    )
    .await;
    refused(
        "glimpse",
        json!({"methods": "forward"}),
        "$.config.methods",
        "did you mean `method`?",
    )
    .await;
    refused(
        "glimpse",
        json!({"method": 1}),
        "$.config.method",
        "got a number",
    )
    .await;
    refused("glimpse", json!([]), "$.config", "expected an object").await;
    refused(
        "glimpse",
        json!({"component": "a"}),
        "$.config.component",
        "none is available",
    )
    .await;
    refused(
        "scribe_tiny_en",
        json!({"backend": "mlx"}),
        "$.config.component",
        "`encoder`, `decoder`",
    )
    .await;
    refused(
        "scribe_tiny_en",
        json!({}),
        "$.config.method",
        "`decode`, `encode`",
    )
    .await;
    check("scribe_tiny_en", json!({"component": "decoder"}))
        .await
        .expect("it is right");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_description_tells_what_there_is() {
    with("glimpse", async |device| {
        let it = device.description();
        assert_eq!(
            (it.model.as_str(), it.family.as_str()),
            ("glimpse", "glimpse")
        );
        assert_eq!(it.backends, ["xnnpack", "coreml", "vulkan", "qnn", "mlx"]);
        assert_eq!(
            it.default_backend.as_deref(),
            Some("xnnpack"),
            "the first that runs anywhere"
        );
        assert_eq!(it.default_precision.as_deref(), Some("fp32"));
        let precisions = [("fp32", false), ("fp16", false), ("int8", true)];
        assert_eq!(
            it.precisions,
            precisions.map(|(name, is)| (name.to_owned(), is))
        );
        assert_eq!(it.methods, ["forward"]);
        assert!(it.takes == Some(MediaKind::Picture) && it.runnable);
        assert_eq!(it.license.as_deref(), Some("bsd-3-clause"));
        let model = examples().join("glimpse/xnnpack/glimpse_xnnpack_fp32.pte");
        assert_eq!(it.size_bytes, model.metadata().expect("an example").len());
        assert!(it.created_at <= it.updated_at);
        let runs: Vec<&str> = it
            .signatures
            .iter()
            .filter(|method| method.not_runnable.is_none())
            .map(|method| method.backend.as_str())
            .collect();
        let everywhere = [
            "xnnpack", "xnnpack", "xnnpack", "coreml", "vulkan", "vulkan", "qnn", "mlx",
        ];
        assert_eq!(runs, everywhere);
        assert!(it.signatures.iter().all(|method| method.inputs.len() == 1));
    })
    .await;
    with("parlor_tts_82m", async |device| {
        let it = device.description();
        assert_eq!(
            (it.family.as_str(), it.size.as_deref()),
            ("parlor", Some("82m"))
        );
        let model = examples().join("parlor-tts/82m/xnnpack/parlor_tts_82m_xnnpack_fp32.onnx");
        let data = model.with_extension("onnx.data");
        let sizes = [model, data].map(|path| path.metadata().expect("an example").len());
        assert_eq!(it.size_bytes, sizes.iter().sum::<u64>());
        assert_eq!(it.takes, Some(MediaKind::Text));
    })
    .await;
    with("pocket_diffusion", async |device| {
        let it = device.description();
        assert_eq!(
            it.components,
            ["text_encoder", "unet", "vae"],
            "models only"
        );
        assert!(it.runnable);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_for_core_ml_have_instances_anywhere() {
    let body = json!({"inputs": []});
    with("mosaic_nano", async |device| {
        let refused = device.prepare(&request(&body, None)).await;
        let refused = refused.expect_err("the inputs are missing");
        assert!(!matches!(refused, CallError::NoInstances(_)), "{refused}");
        device.warm().await.expect("it is loaded");
    })
    .await;
    with("glimpse", async |device| {
        let config = json!({"backend": "coreml"});
        let refused = device.prepare(&request(&body, Some(&config))).await;
        let refused = refused.expect_err("the inputs are missing");
        assert!(!matches!(refused, CallError::NoInstances(_)), "{refused}");
    })
    .await;
}

async fn call(device: &Device, body: &Value, config: Option<&Value>) -> Result<Answer, CallError> {
    let prepared = device.prepare(&request(body, config)).await?;
    prepared.predict(OWNER, None).await
}

async fn whole(answer: Answer) -> Value {
    let body = answer.body.whole().await.expect("it is there");
    serde_json::from_slice(&body).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_has_the_outputs_of_the_signature() {
    with("murmur_vad", async |device| {
        let mut body = zeros(device);
        let plain = call(device, &body, None).await.expect("it runs");
        assert_eq!(plain.content_type, "application/json");
        let plain: Value = whole(plain).await;
        let config = json!({"backend": "xnnpack", "precision": "fp32"});
        body["encoding"] = json!("base64");
        let other = call(device, &body, Some(&config)).await.expect("it runs");
        let other: Value = whole(other).await;
        assert_eq!(device.endpoints().count(), 1, "both mean the same method");
        let outputs = plain["outputs"].as_array().expect("outputs");
        let methods = &device.description().signatures;
        let method = methods.iter().find(|it| it.not_runnable.is_none());
        assert_eq!(outputs.len(), method.expect("it runs here").outputs.len());
        for (plain, other) in outputs
            .iter()
            .zip(other["outputs"].as_array().expect("outputs"))
        {
            assert_eq!(plain["name"], other["name"]);
            assert_eq!(plain["shape"], other["shape"]);
            assert_eq!(other["encoding"], "base64");
            assert_eq!(plain["dtype"], DType::Float32.name());
            assert!(!plain["data"].as_array().expect("an array").is_empty());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_device_takes_nothing_more() {
    with("murmur_vad", async |device| {
        let body = zeros(device);
        let prepared = device.prepare(&request(&body, None)).await;
        let prepared = prepared.expect("it is right");
        device.drain().await;
        let late = prepared.predict(OWNER, None).await;
        assert!(matches!(late, Err(CallError::Stopped)), "{late:?}");
    })
    .await;
    with("murmur_vad", async |device| {
        let body = zeros(device);
        device.drain().await;
        let late = device.prepare(&request(&body, None)).await;
        assert!(matches!(late, Err(CallError::Stopped)), "{late:?}");
        assert_eq!(device.endpoints().count(), 0);
    })
    .await;
}

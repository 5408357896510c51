//! Tests of chats about pictures. The answers must equal those of `transformers` with the same weights, in both shapes
//! of the example, also after other conversations.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::adapters::{ask, content, post, read_until};
use super::examples;
use crate::support::fixture;
use crate::support::gateway::{Gateway, Setup};

const PATH: &str = "/api/adapters/compat/chat/completions";

fn start() -> Gateway {
    Setup::new().packages(examples().join("lookout")).start()
}

/// Returns the conversations of the fixture: the messages up to the last question, the last answer, and numbers of
/// tokens.
fn conversations() -> Vec<(Vec<Value>, Value)> {
    let text = fs::read_to_string(fixture("text").join("lookout.json")).expect("a fixture");
    let truth: Value = serde_json::from_str(&text).expect("it is JSON");
    let all = truth["conversations"].as_array().expect("a list");
    assert!(all.len() >= 10);
    let of_one = |one: &Value| {
        let turns = one["turns"].as_array().expect("a list");
        let mut messages = Vec::new();
        for turn in turns {
            let mut parts = Vec::new();
            if let Some(place) = turn["picture"].as_u64() {
                let place = usize::try_from(place).expect("a place");
                let picture = truth["pictures"][place].as_str().expect("base64");
                let url = format!("data:image/png;base64,{picture}");
                parts.push(json!({"type": "image_url", "image_url": {"url": url}}));
            }
            parts.push(json!({"type": "text", "text": turn["question"]}));
            messages.push(json!({"role": "user", "content": parts}));
            messages.push(json!({"role": "assistant", "content": turn["answer"]}));
        }
        messages.pop();
        (messages, one.clone())
    };
    all.iter().map(of_one).collect()
}

fn request(messages: &[Value]) -> Value {
    json!({"model": "local/lookout", "messages": messages, "temperature": 0})
}

#[test]
fn both_shapes_say_what_is_known_about_pictures() {
    let gateway = start();
    for backend in ["xnnpack", "mlx"] {
        gateway.choose_backend("lookout", backend);
        // The second time, what earlier conversations left is used again.
        for round in 0..2 {
            for (place, (messages, one)) in conversations().into_iter().enumerate() {
                let what = format!("{backend}, round {round}, conversation {place}");
                let reply = post(&gateway, PATH, &request(&messages).to_string());
                let reply = reply.expect(200).json();
                let turns = one["turns"].as_array().expect("a list");
                let expected = &turns.last().expect("a turn")["answer"];
                let said = &reply["choices"][0]["message"]["content"];
                assert_eq!(said, expected, "{what}");
                let usage = &reply["usage"];
                assert_eq!(usage["prompt_tokens"], one["prompt_tokens"], "{what}");
                assert_eq!(
                    usage["completion_tokens"], one["completion_tokens"],
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn a_conversation_goes_on_from_its_pictures_and_no_other() {
    let gateway = start();
    gateway.choose_backend("lookout", "xnnpack");
    let pictured = conversations().into_iter().map(|(messages, _)| messages);
    let questions: Vec<Value> = pictured
        .map(|messages| messages[0]["content"][0].clone())
        .filter(|part| part["type"] == "image_url")
        .collect();
    let [first, second] = [&questions[0], &questions[1]];
    assert_ne!(first, second);
    let asked = |picture: &Value| {
        let text = json!({"type": "text", "text": "Describe the picture."});
        let messages = [json!({"role": "user", "content": [picture, text]})];
        let reply = post(&gateway, PATH, &request(&messages).to_string());
        let reply = reply.expect(200).json();
        let cached = &reply["usage"]["prompt_tokens_details"]["cached_tokens"];
        let said = reply["choices"][0]["message"]["content"].clone();
        (said, cached.as_u64().expect("a number"))
    };
    let (one, _) = asked(first);
    let (again, cached) = asked(first);
    assert!(again == one && cached > 16, "{again} {one} {cached}");
    let (other, cached) = asked(second);
    assert!(other != one && cached < 16, "{other} {one} {cached}");
    assert_eq!(asked(first).0, one);

    let stream = json!({"model": "local/lookout", "stream": true, "temperature": 0, "messages": [
        {"role": "user", "content": [first, {"type": "text", "text": "Describe the picture."}]},
    ]});
    let events = read_until(&mut ask(&gateway, PATH, &stream.to_string()), "[DONE]");
    assert_eq!(content(&events), one.as_str().expect("a text"));
}

#[test]
fn a_picture_alone_is_answered() {
    let gateway = start();
    let picture = fs::read(examples().join("lookout/shapes.png")).expect("a picture");
    let said = gateway
        .post("/p/local/lookout", picture.clone())
        .expect(200)
        .json();
    assert_eq!(said, json!({"text": "A blue star and a red circle."}));
    let sent = json!({"image": BASE64.encode(&picture), "settings": {"prompt": "How many shapes are there?"}});
    let said = gateway
        .post("/p/local/lookout", sent.to_string())
        .expect(200)
        .json();
    assert_eq!(said["text"], "Two shapes.");
    let task = gateway.create("lookout", sent.to_string());
    gateway.wait_for(&task, "COMPLETED");
    assert_eq!(gateway.result(&task).expect(200).json(), said);
}

#[test]
fn what_is_wrong_with_a_picture_has_its_place() {
    let gateway = start();
    let url = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let picture = fs::read(examples().join("lookout/shapes.png")).expect("a picture");
    let good = url(&format!(
        "data:image/png;base64,{}",
        BASE64.encode(&picture)
    ));
    let place = "messages[0].content[0].image_url.url";
    for (content, place, words) in [
        (
            json!([url("https://example.com/a.png")]),
            place,
            "the server fetches nothing",
        ),
        (
            json!([url("data:image/png;base64,?")]),
            place,
            "invalid base64",
        ),
        (
            json!([url("data:image/png;base64,AAAA")]),
            place,
            "neither PNG",
        ),
        (
            json!([{"type": "image_url"}]),
            "messages[0].content[0].image_url",
            "a string",
        ),
        (
            json!([{"type": "input_audio"}]),
            "messages[0].content[0].type",
            "audio",
        ),
        (
            json!([good, {"type": "text", "text": "Is <image> here?"}]),
            "messages[0].content",
            "a text without `<image>`",
        ),
        (
            json!(vec![good.clone(); 17]),
            "messages[0].content[16].image_url.url",
            "at most 16",
        ),
        (
            json!(vec![good.clone(); 16]),
            "prompt",
            "the model's context",
        ),
    ] {
        let body = request(&[json!({"role": "user", "content": content})]);
        let refused = post(&gateway, PATH, &body.to_string()).expect(400).json();
        assert_eq!(refused["error"]["param"], place, "{refused}");
        let message = refused["error"]["message"].as_str().expect("a text");
        assert!(message.contains(words), "{message}");
    }
    let blind = Setup::new().packages(examples().join("jackdaw")).start();
    let body = json!({"model": "local/jackdaw", "messages": [{"role": "user", "content": [good]}]});
    let refused = post(&blind, PATH, &body.to_string()).expect(400).json();
    let message = refused["error"]["message"].as_str().expect("a text");
    assert!(
        message.contains("this model does not read pictures"),
        "{message}"
    );
}

/// A text encoder and a denoiser have the shapes of an embedding and a decoder, but chat about nothing.
#[test]
fn other_packages_with_embeddings_keep_their_components() {
    let gateway = Setup::new()
        .packages(examples().join("pocket-diffusion"))
        .start();
    let refused = gateway.post("/p/local/pocket_diffusion", r#"{"inputs": []}"#);
    let refused = refused.expect(400).text();
    assert!(refused.contains("several components"), "{refused}");
    let body =
        json!({"model": "local/pocket_diffusion", "messages": [{"role": "user", "content": "Hi"}]});
    let refused = post(&gateway, PATH, &body.to_string());
    assert!((400..500).contains(&refused.status), "{}", refused.text());
}

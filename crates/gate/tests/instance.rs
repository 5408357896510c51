//! An instance at gates that behave well, badly, and not at all.

mod gate;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pkgtool_gate::instance::{
    AnswerParts, Asks, GateRequest, Handler, InstanceSettings, InstanceToken, LastAnswer, Security,
    serve,
};
use pkgtool_gate::protocol::service_to_gate_proto::Body;
use pkgtool_gate::protocol::{
    BatchPayloadResponseProto, BatchResponseProto, CancelProto, ClusterUpdateProto, HeartBeatProto,
    PartialPredictResponseProto, PayloadProto, PredictRequestProto, PredictResponseProto,
    ServiceDescriptorProto, ServiceInfoProto, StatusRequestProto, StopServingProto,
    batch_payload_response_proto, code, gate_to_service_proto as from_gate, payload_proto,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use gate::{Gate, Instance};

/// Answers `wait` never, `slow` after a tenth of a second, `panic` with a panic, and everything else with itself.
struct Echo;

impl Handler for Echo {
    async fn answer(&self, request: GateRequest, parts: AnswerParts) -> LastAnswer {
        let body = match request.asks {
            Asks::Predict(asked) => {
                let data = asked.data.expect("it has data");
                match text_of(&data) {
                    "wait" => std::future::pending().await,
                    "slow" => tokio::time::sleep(Duration::from_millis(100)).await,
                    "panic" => panic!("as asked"),
                    _ => {}
                }
                Body::Predict(PredictResponseProto { data: Some(data) })
            }
            Asks::PartialPredict(asked) => {
                for at in 0..3 {
                    let part = PartialPredictResponseProto {
                        data: Some(json(&at.to_string())),
                        start: Some(at == 0),
                        finish: Some(false),
                    };
                    assert!(parts.send(Body::PartialPredict(part)).await);
                }
                Body::PartialPredict(PartialPredictResponseProto {
                    data: asked.data,
                    start: Some(false),
                    finish: Some(true),
                })
            }
            Asks::Batch(asked) => {
                let each = asked.data.into_iter().map(|one| BatchPayloadResponseProto {
                    request_id: one.request_id,
                    headers: HashMap::new(),
                    body: Some(batch_payload_response_proto::Body::Predict(
                        PredictResponseProto { data: one.data },
                    )),
                });
                Body::Batch(BatchResponseProto {
                    data: each.collect(),
                })
            }
            Asks::Fit(_) | Asks::Ext(_) => unreachable!("no test asks for it"),
        };
        let headers = HashMap::from([("Z-Server-Time".to_owned(), "1".to_owned())]);
        LastAnswer { body, headers }
    }
}

fn json(text: &str) -> PayloadProto {
    PayloadProto {
        data_type: None,
        body: Some(payload_proto::Body::Json(text.to_owned())),
    }
}

fn text_of(payload: &PayloadProto) -> &str {
    match &payload.body {
        Some(payload_proto::Body::Json(text)) => text,
        other => panic!("expected JSON, got {other:?}"),
    }
}

fn predict(text: &str) -> from_gate::Body {
    from_gate::Body::Predict(PredictRequestProto {
        data: Some(json(text)),
        config: None,
    })
}

/// A running instance.
struct Attached {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Attached {
    fn to(gates: &[&Gate]) -> Self {
        Self::by(gates, Security::Plain)
    }

    fn by(gates: &[&Gate], security: Security) -> Self {
        let settings = InstanceSettings {
            gates: gates.iter().map(|gate| gate.address.clone()).collect(),
            token: InstanceToken::new("account.model.secret".to_owned()),
            descriptor: ServiceDescriptorProto {
                name: "echo".to_owned(),
                ..ServiceDescriptorProto::default()
            },
            hostname: Some("desk".to_owned()),
            image: None,
            worker: None,
            security,
            in_flight: 4,
            grace: Duration::from_secs(2),
        };
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(serve(settings, Arc::new(Echo), stopped));
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        let ended = tokio::time::timeout(Duration::from_secs(10), self.task).await;
        ended.expect("it ends in time").expect("it does not panic");
    }
}

/// Accepts an instance, as a gate does.
async fn accepted(gate: &mut Gate, extensions: &[&str]) -> Instance {
    let instance = gate.instance().await;
    assert_eq!(instance.start.connection_token, "account.model.secret");
    assert_eq!(instance.start.version, Some(2));
    assert_eq!(instance.start.hostname.as_deref(), Some("desk"));
    let info = ServiceInfoProto {
        model_name: "echo".to_owned(),
        extensions: extensions.iter().map(|it| (*it).to_owned()).collect(),
        ..ServiceInfoProto::default()
    };
    instance.send(0, from_gate::Body::ServiceInfo(info)).await;
    instance
}

/// Returns how many requests more the instance accepts.
async fn credit(instance: &mut Instance) -> u32 {
    match instance.answer().await.body {
        Some(Body::Credit(credit)) => credit.requests,
        other => panic!("expected a credit, got {other:?}"),
    }
}

#[tokio::test]
async fn requests_get_their_answers_in_any_order() {
    let mut gate = Gate::start().await;
    let attached = Attached::to(&[&gate]);
    let mut instance = accepted(&mut gate, &[]).await;
    // Three rounds, with a slow request between the others.
    for round in 0..3 {
        instance.send(10 + round, predict("slow")).await;
        instance.send(20 + round, predict("\"a\"")).await;
        let first = instance.answer().await;
        assert_eq!(first.request_id, 20 + round);
        assert_eq!(first.headers["Z-Server-Time"], "1");
        let Some(Body::Predict(answer)) = first.body else {
            panic!("expected an answer, got {:?}", first.body);
        };
        assert_eq!(text_of(&answer.data.expect("it has data")), "\"a\"");
        assert_eq!(instance.answer().await.request_id, 10 + round);
    }
    instance
        .send(5, from_gate::Body::Status(StatusRequestProto {}))
        .await;
    let Some(Body::Status(status)) = instance.answer().await.body else {
        panic!("expected a status");
    };
    assert_eq!(status.connected_gates, [gate.address.to_string()]);
    assert!(status.connected_to_all_gates);
    attached.stop().await;
    assert!(matches!(
        instance.answer().await.body,
        Some(Body::StopServing(_))
    ));
}

#[tokio::test]
async fn answers_come_in_parts_and_in_batches() {
    let mut gate = Gate::start().await;
    let attached = Attached::to(&[&gate]);
    let mut instance = accepted(&mut gate, &[]).await;
    let asked = pkgtool_gate::protocol::PartialPredictRequestProto {
        data: Some(json("end")),
        ..Default::default()
    };
    instance
        .send(1, from_gate::Body::PartialPredict(asked))
        .await;
    let mut parts = Vec::new();
    for at in 0..4 {
        let answer = instance.answer().await;
        let Some(Body::PartialPredict(part)) = answer.body else {
            panic!("expected a part, got {:?}", answer.body);
        };
        assert_eq!((answer.request_id, part.finish), (1, Some(at == 3)));
        parts.push(text_of(&part.data.expect("it has data")).to_owned());
    }
    assert_eq!(parts, ["0", "1", "2", "end"]);
    let batch = pkgtool_gate::protocol::BatchRequestProto {
        data: [7, 8]
            .map(|id| pkgtool_gate::protocol::BatchPayloadProto {
                request_id: id,
                data: Some(json(&id.to_string())),
            })
            .to_vec(),
        config: None,
    };
    instance.send(2, from_gate::Body::Batch(batch)).await;
    let Some(Body::Batch(batch)) = instance.answer().await.body else {
        panic!("expected a batch");
    };
    let ids: Vec<i64> = batch.data.iter().map(|one| one.request_id).collect();
    assert_eq!(ids, [7, 8]);
    attached.stop().await;
}

#[tokio::test]
async fn an_instance_keeps_its_limits_and_survives_its_handler() {
    let mut gate = Gate::start().await;
    let attached = Attached::to(&[&gate]);
    let mut instance = accepted(&mut gate, &["cancel", "credits"]).await;
    assert_eq!(credit(&mut instance).await, 4);
    for id in 1..=4 {
        instance.send(id, predict("wait")).await;
    }
    instance.send(5, predict("more")).await;
    assert_eq!(
        instance.error().await,
        (5, code::TOO_MANY_REQUESTS.to_owned())
    );
    let cancel = || from_gate::Body::Cancel(CancelProto {});
    // Those that were never asked are ignored.
    for id in [1, 1, 77] {
        instance.send(id, cancel()).await;
    }
    assert_eq!(credit(&mut instance).await, 1);
    instance.send(2, predict("again")).await;
    assert_eq!(
        instance.error().await,
        (2, code::REPEATED_REQUEST.to_owned())
    );
    instance.send(1, predict("now")).await;
    assert_eq!(instance.answer().await.request_id, 1);
    assert_eq!(credit(&mut instance).await, 1);
    instance.send(6, predict("panic")).await;
    assert_eq!(instance.error().await, (6, code::FAILED.to_owned()));
    assert_eq!(credit(&mut instance).await, 1);
    for id in 2..=4 {
        instance.send(id, cancel()).await;
    }
    attached.stop().await;
}

#[tokio::test]
async fn what_runs_is_finished_before_the_end() {
    let mut gate = Gate::start().await;
    let attached = Attached::to(&[&gate]);
    let mut instance = accepted(&mut gate, &[]).await;
    instance.send(1, predict("slow")).await;
    instance.send(2, predict("\"b\"")).await;
    assert_eq!(instance.answer().await.request_id, 2);
    attached.stop().await;
    assert!(matches!(
        instance.answer().await.body,
        Some(Body::StopServing(_))
    ));
    assert_eq!(instance.answer().await.request_id, 1);

    // A gate may ask for the end, too. The instance comes back for the next one.
    let attached = Attached::to(&[&gate]);
    let mut instance = accepted(&mut gate, &[]).await;
    instance.send(3, predict("slow")).await;
    let stop = StopServingProto { reason: None };
    instance.send(0, from_gate::Body::StopServing(stop)).await;
    assert!(matches!(
        instance.answer().await.body,
        Some(Body::StopServing(_))
    ));
    assert_eq!(instance.answer().await.request_id, 3);
    let mut next = accepted(&mut gate, &[]).await;
    next.send(4, predict("c")).await;
    assert_eq!(next.answer().await.request_id, 4);
    attached.stop().await;
}

#[tokio::test]
async fn requests_that_were_on_their_way_are_refused() {
    let mut gate = Gate::start().await;
    for extensions in [&[][..], &["cancel", "credits"]] {
        let attached = Attached::to(&[&gate]);
        let mut instance = accepted(&mut gate, extensions).await;
        if !extensions.is_empty() {
            credit(&mut instance).await;
        }
        let stopping = tokio::spawn(attached.stop());
        assert!(matches!(
            instance.answer().await.body,
            Some(Body::StopServing(_))
        ));
        // The gate sent them before it knew.
        for id in 1..=3 {
            instance.send(id, predict("late")).await;
            let refused = (id, code::TOO_MANY_REQUESTS.to_owned());
            assert_eq!(instance.error().await, refused);
        }
        let stop = StopServingProto { reason: None };
        instance.send(0, from_gate::Body::StopServing(stop)).await;
        stopping.await.expect("it ends");
    }
}

#[tokio::test]
async fn a_gate_that_falls_silent_is_left_and_tried_again() {
    let mut gate = Gate::start().await;
    let attached = Attached::to(&[&gate]);
    let mut instance = accepted(&mut gate, &[]).await;
    let beat = HeartBeatProto {
        status: "Ok".to_owned(),
        interval: 100,
    };
    instance.send(0, from_gate::Body::HeartBeat(beat)).await;
    for _ in 0..2 {
        assert!(matches!(
            instance.any().await.body,
            Some(Body::HeartBeat(_))
        ));
    }
    // The gate says nothing more: three intervals and a second later there is a new connection.
    let mut next = accepted(&mut gate, &[]).await;
    next.send(1, predict("a")).await;
    assert_eq!(next.answer().await.request_id, 1);
    attached.stop().await;
}

#[tokio::test]
async fn connections_that_are_cut_or_refused_are_made_again() {
    let mut gate = Gate::start().await;
    let attached = Attached::to(&[&gate]);
    for round in 0..5 {
        let mut instance = accepted(&mut gate, &[]).await;
        instance.send(round, predict("a")).await;
        assert_eq!(instance.answer().await.request_id, round);
        drop(instance);
    }
    let refused = gate.instance().await;
    let error = pkgtool_gate::protocol::error(
        code::TOKEN_NOT_FOUND,
        pkgtool_gate::protocol::SimpleStatusProto::NotFound,
        "no such token".to_owned(),
    );
    let before = tokio::time::Instant::now();
    refused.send(0, from_gate::Body::Error(error)).await;
    let mut instance = accepted(&mut gate, &[]).await;
    assert!(before.elapsed() >= Duration::from_secs(1));
    instance.send(1, predict("a")).await;
    assert_eq!(instance.answer().await.request_id, 1);
    attached.stop().await;
}

#[tokio::test]
async fn an_instance_follows_its_cluster() {
    let (mut first, mut second) = (Gate::start().await, Gate::start().await);
    let attached = Attached::to(&[&first]);
    let mut instance = accepted(&mut first, &[]).await;
    let cluster = |gates: &[&Gate], current: &Gate| {
        from_gate::Body::Cluster(ClusterUpdateProto {
            servers: gates.iter().map(|gate| gate.address.to_string()).collect(),
            current_server: current.address.to_string(),
        })
    };
    // Invalid addresses and an empty list change nothing.
    for servers in [vec![], vec!["not an address".to_owned()]] {
        let update = ClusterUpdateProto {
            servers,
            current_server: String::new(),
        };
        instance.send(0, from_gate::Body::Cluster(update)).await;
    }
    instance.send(0, cluster(&[&first, &second], &first)).await;
    let mut other = accepted(&mut second, &[]).await;
    instance.send(1, predict("slow")).await;
    // The first gate leaves; what runs there is finished.
    other.send(0, cluster(&[&second], &second)).await;
    assert!(matches!(
        instance.answer().await.body,
        Some(Body::StopServing(_))
    ));
    assert_eq!(instance.answer().await.request_id, 1);
    other.send(2, predict("a")).await;
    assert_eq!(other.answer().await.request_id, 2);
    attached.stop().await;
}

/// A number is free again when its answer arrives, and when a request failed.
#[tokio::test]
async fn numbers_may_be_used_again_at_once() {
    let mut gate = Gate::start().await;
    let attached = Attached::to(&[&gate]);
    let mut instance = accepted(&mut gate, &[]).await;
    for round in 0..200 {
        let text = if round % 50 == 7 { "panic" } else { "a" };
        instance.send(1, predict(text)).await;
        let answer = instance.answer().await;
        match answer.body {
            Some(Body::Predict(_)) => assert_eq!(text, "a"),
            Some(Body::Error(error)) => assert_eq!((text, &*error.code), ("panic", code::FAILED)),
            other => panic!("expected an answer, got {other:?}"),
        }
    }
    attached.stop().await;
}

fn certificate(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/");
    std::fs::read(format!("{folder}{name}.pem")).expect("a fixture")
}

/// The certificate is for `localhost`.
#[tokio::test]
async fn a_gate_is_believed_by_its_certificate() {
    let identity =
        tonic::transport::Identity::from_pem(certificate("certificate"), certificate("key"));
    let secured = || {
        let tls = tonic::transport::ServerTlsConfig::new().identity(identity.clone());
        let server = tonic::transport::Server::builder().tls_config(tls);
        server.expect("the fixture is valid")
    };
    let mut gate = Gate::start_as("localhost", secured()).await;
    let attached = Attached::by(&[&gate], Security::Tls(Some(certificate("authority"))));
    let mut instance = accepted(&mut gate, &[]).await;
    instance.send(1, predict("a")).await;
    assert_eq!(instance.answer().await.request_id, 1);
    attached.stop().await;

    let other = Security::Tls(Some(certificate("other_authority")));
    refused(&mut gate, other).await;
    let mut renamed = Gate::start_as("127.0.0.1", secured()).await;
    let right = Security::Tls(Some(certificate("authority")));
    for security in [right, Security::Tls(None), Security::Plain] {
        refused(&mut renamed, security).await;
    }
}

/// An instance that is protected this way does not announce itself.
async fn refused(gate: &mut Gate, security: Security) {
    let attached = Attached::by(&[gate], security);
    let comes = tokio::time::timeout(Duration::from_millis(500), gate.instance());
    assert!(comes.await.is_err(), "it is not believed");
    attached.stop().await;
}

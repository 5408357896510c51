//! A gate with instances that behave well, badly, and not at all.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pkgtool_gate::host::{
    Arrival, CallEvent, CallLost, GateHost, GateSocket, HostSettings, InstanceCall, InstanceState,
    NoPlace, RemoteInstance, serve,
};
use pkgtool_gate::instance::{
    self, AnswerParts, Asks, GateRequest, Handler, InstanceSettings, InstanceToken, LastAnswer,
    Security,
};
use pkgtool_gate::protocol::gate_client::GateClient;
use pkgtool_gate::protocol::service_to_gate_proto::Body;
use pkgtool_gate::protocol::{
    ApiErrorProto, ContentRequestProto, GateToServiceProto, HeartBeatProto,
    PartialPredictRequestProto, PartialPredictResponseProto, PayloadProto, PredictRequestProto,
    PredictResponseProto, ServiceDescriptorProto, ServiceInfoProto, ServiceToGateProto,
    SimpleStatusProto, StartServingProto, code, error, gate_to_service_proto as from_gate,
    payload_proto,
};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Endpoint;

const PATIENCE: Duration = Duration::from_secs(10);
const TOKEN: &str = "acme.echo.secret";

/// Keeps the instances of one service.
#[derive(Default)]
struct OneService {
    instances: Mutex<Vec<Arc<RemoteInstance>>>,
    reasons: Mutex<Vec<String>>,
    freed: Arc<Notify>,
}

impl GateHost for OneService {
    type Ticket = ();

    async fn admit(&self, arrival: &Arrival) -> Result<(ServiceInfoProto, ()), ApiErrorProto> {
        if arrival.start.connection_token != TOKEN {
            let message = "unknown token".to_owned();
            return Err(error(
                code::TOKEN_NOT_FOUND,
                SimpleStatusProto::NotFound,
                message,
            ));
        }
        Ok((ServiceInfoProto::default(), ()))
    }

    fn joined(&self, instance: &Arc<RemoteInstance>, (): ()) -> Result<Arc<Notify>, ApiErrorProto> {
        self.instances
            .lock()
            .expect("no panic")
            .push(Arc::clone(instance));
        Ok(Arc::clone(&self.freed))
    }

    async fn content(&self, request: ContentRequestProto) -> Result<PathBuf, ApiErrorProto> {
        match &*request.sha256 {
            "here" => Ok(PathBuf::from("tests/host.rs")),
            _ => Err(error(
                code::TOKEN_NOT_FOUND,
                SimpleStatusProto::NotFound,
                "no such file".to_owned(),
            )),
        }
    }

    fn left(&self, instance: &Arc<RemoteInstance>, reason: &str) {
        let mut instances = self.instances.lock().expect("no panic");
        instances.retain(|known| !Arc::ptr_eq(known, instance));
        self.reasons
            .lock()
            .expect("no panic")
            .push(reason.to_owned());
    }
}

/// A gate that runs until it is dropped.
struct Running {
    host: Arc<OneService>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let incoming = TcpListenerStream::new(listener).map(|stream| {
            let stream = stream?;
            let peer = stream.peer_addr()?;
            Ok(GateSocket::new(stream, peer, ()))
        });
        let settings = HostSettings {
            heartbeat: Duration::from_millis(100),
            in_flight: 2,
            strangers: 2,
            grace: Duration::from_secs(2),
        };
        let host = Arc::new(OneService::default());
        let (stop, stopped) = watch::channel(false);
        let serving = serve(Arc::clone(&host), settings, incoming, stopped);
        let task = tokio::spawn(async move { serving.await.expect("it serves") });
        Self {
            host,
            address,
            stop,
            task,
        }
    }

    /// Waits until so many instances are attached, and returns the first.
    async fn attached(&self, count: usize) -> Option<Arc<RemoteInstance>> {
        let come = async {
            loop {
                let instances = self.host.instances.lock().expect("no panic").clone();
                if instances.len() == count {
                    return instances.first().cloned();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, come).await.expect("they come in time")
    }

    fn reason(&self) -> String {
        let reasons = self.host.reasons.lock().expect("no panic");
        reasons.last().cloned().unwrap_or_default()
    }

    /// Attaches an instance of this crate, which accepts so many requests.
    fn attach(&self, in_flight: usize) -> watch::Sender<bool> {
        let (stop, stopped) = watch::channel(false);
        let settings = InstanceSettings {
            gates: vec![self.address.to_string().parse().expect("an address")],
            token: InstanceToken::new(TOKEN.to_owned()),
            descriptor: ServiceDescriptorProto::default(),
            hostname: Some("desk".to_owned()),
            image: None,
            worker: None,
            security: Security::Plain,
            in_flight,
            grace: Duration::from_secs(2),
        };
        tokio::spawn(instance::serve(settings, Arc::new(Echo), stopped));
        stop
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers `wait` never, and everything else with itself.
struct Echo;

impl Handler for Echo {
    async fn answer(&self, request: GateRequest, parts: AnswerParts) -> LastAnswer {
        let body = match request.asks {
            Asks::Predict(asked) => {
                if text_of(asked.data.as_ref()) == "wait" {
                    std::future::pending::<()>().await;
                }
                Body::Predict(PredictResponseProto { data: asked.data })
            }
            Asks::PartialPredict(asked) => {
                let count: i32 = text_of(asked.data.as_ref()).parse().expect("a number");
                for at in 0..count {
                    parts.send(part(&at.to_string(), false)).await;
                }
                part("end", true)
            }
            Asks::Batch(_) | Asks::Fit(_) | Asks::Ext(_) => unreachable!("no test asks for it"),
        };
        LastAnswer {
            body,
            headers: HashMap::new(),
        }
    }
}

fn part(text: &str, finish: bool) -> Body {
    Body::PartialPredict(PartialPredictResponseProto {
        data: Some(json(text)),
        start: None,
        finish: Some(finish),
    })
}

fn json(text: &str) -> PayloadProto {
    PayloadProto {
        data_type: None,
        body: Some(payload_proto::Body::Json(text.to_owned())),
    }
}

fn text_of(payload: Option<&PayloadProto>) -> &str {
    match payload.and_then(|payload| payload.body.as_ref()) {
        Some(payload_proto::Body::Json(text)) => text,
        other => panic!("expected JSON, got {other:?}"),
    }
}

fn predict(text: &str) -> Asks {
    Asks::Predict(PredictRequestProto {
        data: Some(json(text)),
        config: None,
    })
}

fn call(instance: &Arc<RemoteInstance>, text: &str) -> Result<InstanceCall, NoPlace> {
    instance.call(predict(text), HashMap::new())
}

/// Sends a request, as soon as there is a place.
async fn called(instance: &Arc<RemoteInstance>, text: &str) -> InstanceCall {
    let send = async {
        loop {
            if let Ok(call) = call(instance, text) {
                return call;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, send)
        .await
        .expect("a place is free in time")
}

/// Waits until the instance has sent so many answers to no request.
async fn strays(instance: &RemoteInstance, count: u64) {
    let counted = async {
        while instance.activity().strays < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, counted).await.expect("they are counted");
}

async fn next(call: &mut InstanceCall) -> Result<CallEvent, CallLost> {
    timeout(PATIENCE, call.next())
        .await
        .expect("it comes in time")
}

async fn answered(mut call: InstanceCall) -> String {
    match next(&mut call).await {
        Ok(CallEvent::Answer(answer)) => match *answer {
            Body::Predict(answer) => text_of(answer.data.as_ref()).to_owned(),
            other => panic!("expected an answer, got {other:?}"),
        },
        other => panic!("expected an answer, got {other:?}"),
    }
}

/// An instance that sends what a test says.
struct Raw {
    to_gate: mpsc::Sender<ServiceToGateProto>,
    from_gate: tonic::Streaming<GateToServiceProto>,
    beats: Option<tokio::task::AbortHandle>,
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.beats.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl Raw {
    async fn connect(gate: &Running, first: ServiceToGateProto) -> Self {
        let url = format!("http://{}", gate.address);
        let endpoint = Endpoint::from_shared(url).expect("it is a URL");
        let channel = endpoint.connect().await.expect("it connects");
        let mut client = GateClient::new(channel);
        let (to_gate, messages) = mpsc::channel(64);
        to_gate.send(first).await.expect("it is open");
        let opened = client.process_async(ReceiverStream::new(messages)).await;
        Self {
            to_gate,
            from_gate: opened.expect("it is opened").into_inner(),
            beats: None,
        }
    }

    /// Announces an instance without additions, which beats so often.
    async fn announced(gate: &Running, beats: Option<Duration>) -> Self {
        let mut raw = Self::connect(gate, start(TOKEN)).await;
        if let Some(every) = beats {
            let to_gate = raw.to_gate.clone();
            let beats = tokio::spawn(async move {
                let beat = HeartBeatProto::default();
                while to_gate
                    .send(message(0, Body::HeartBeat(beat.clone())))
                    .await
                    .is_ok()
                {
                    tokio::time::sleep(every).await;
                }
            });
            raw.beats = Some(beats.abort_handle());
        }
        raw
    }

    async fn send(&self, id: i64, body: Body) {
        self.to_gate
            .send(message(id, body))
            .await
            .expect("it is open");
    }

    async fn next(&mut self) -> Option<GateToServiceProto> {
        let next = timeout(PATIENCE, self.from_gate.message()).await;
        next.expect("it comes in time").ok().flatten()
    }

    /// Returns the number of the next request.
    async fn request(&mut self) -> i64 {
        loop {
            let message = self.next().await.expect("the gate is there");
            if let Some(from_gate::Body::Predict(_)) = message.body {
                return message.request_id;
            }
        }
    }

    /// Returns the code of the error that ends the connection.
    async fn refusal(&mut self) -> Option<String> {
        while let Some(message) = self.next().await {
            if let Some(from_gate::Body::Error(error)) = message.body {
                assert!(self.next().await.is_none(), "the connection ends");
                return Some(error.code);
            }
        }
        None
    }
}

fn start(token: &str) -> ServiceToGateProto {
    let start = StartServingProto {
        connection_token: token.to_owned(),
        ..StartServingProto::default()
    };
    message(0, Body::StartServing(start))
}

fn message(request_id: i64, body: Body) -> ServiceToGateProto {
    ServiceToGateProto {
        request_id,
        body: Some(body),
        headers: HashMap::new(),
    }
}

fn answer(text: &str) -> Body {
    Body::Predict(PredictResponseProto {
        data: Some(json(text)),
    })
}

#[tokio::test]
async fn requests_are_answered_up_to_the_number_that_the_instance_accepts() {
    let gate = Running::start().await;
    let stop = gate.attach(3);
    let instance = gate.attached(1).await.expect("it attached");
    assert_eq!(instance.arrival.start.hostname.as_deref(), Some("desk"));
    assert!(instance.arrival.start.connection_token.is_empty());
    for round in 0..3 {
        let mut waiting = Vec::new();
        for _ in 0..3 {
            waiting.push(called(&instance, "wait").await);
        }
        assert_eq!(call(&instance, "more").err(), Some(NoPlace));
        assert_eq!(instance.load(), None);
        assert_eq!(instance.activity().in_flight, 3);
        // A call that is dropped is cancelled, and frees its place.
        waiting.pop();
        assert_eq!(
            answered(called(&instance, &round.to_string()).await).await,
            round.to_string()
        );
        assert_eq!(instance.activity().answered, round + 1);
    }
    stop.send_replace(true);
    gate.attached(0).await;
    assert_eq!(call(&instance, "late").err(), Some(NoPlace));
    assert_eq!(instance.activity().state, InstanceState::Gone);
    assert_eq!(instance.activity().strays, 0);
}

#[tokio::test]
async fn no_request_is_lost_when_an_instance_leaves() {
    let gate = Running::start().await;
    for _ in 0..50 {
        let stop = gate.attach(3);
        let instance = gate.attached(1).await.expect("it attached");
        let until_refused = |instance: Arc<RemoteInstance>| async move {
            while instance.state() == InstanceState::Serving {
                let Ok(mut call) = call(&instance, "now") else {
                    tokio::task::yield_now().await;
                    continue;
                };
                call.next().await.expect("it is answered");
            }
        };
        let callers: Vec<_> = (0..2)
            .map(|_| tokio::spawn(until_refused(Arc::clone(&instance))))
            .collect();
        drop(called(&instance, "first").await);
        stop.send_replace(true);
        for caller in callers {
            caller.await.expect("no request is lost");
        }
        gate.attached(0).await;
    }
}

#[tokio::test]
async fn an_answer_comes_in_parts_unless_they_are_read_too_slowly() {
    let gate = Running::start().await;
    let _stop = gate.attach(4);
    let instance = gate.attached(1).await.expect("it attached");
    drop(called(&instance, "first").await);
    let partial = |text: &str| {
        let asks = Asks::PartialPredict(PartialPredictRequestProto {
            data: Some(json(text)),
            ..PartialPredictRequestProto::default()
        });
        instance
            .call(asks, HashMap::new())
            .expect("a place is free")
    };
    let mut call = partial("500");
    for at in 0..500 {
        let Ok(CallEvent::Part(part)) = next(&mut call).await else {
            panic!("expected a part");
        };
        assert_eq!(text_of(part.data.as_ref()), at.to_string());
    }
    let Ok(CallEvent::Answer(last)) = next(&mut call).await else {
        panic!("expected the last part");
    };
    assert!(matches!(*last, Body::PartialPredict(_)), "{last:?}");
    // An instance that floods a caller who does not read.
    let mut raw = Raw::announced(&gate, None).await;
    gate.attached(2).await;
    let flooding = gate.host.instances.lock().expect("no panic")[1].clone();
    let mut slow = called(&flooding, "slow").await;
    let id = raw.request().await;
    let large = "x".repeat(1 << 20);
    for _ in 0..20 {
        raw.send(id, part(&large, false)).await;
    }
    raw.send(-1, answer("x")).await;
    strays(&flooding, 1).await;
    let mut parts = 0;
    while let Ok(CallEvent::Part(_)) = next(&mut slow).await {
        parts += 1;
    }
    assert!((10..20).contains(&parts), "{parts}");
}

#[tokio::test]
async fn calls_of_an_instance_that_leaves_are_lost() {
    let gate = Running::start().await;
    for round in 0..3 {
        let mut raw = Raw::announced(&gate, Some(Duration::from_millis(50))).await;
        let instance = gate.attached(1).await.expect("it attached");
        let mut first = called(&instance, "a").await;
        let second = called(&instance, "b").await;
        assert_eq!(
            call(&instance, "c").err(),
            Some(NoPlace),
            "it gets two at once"
        );
        let (_, id) = (raw.request().await, raw.request().await);
        raw.send(id, answer("b")).await;
        assert_eq!(answered(second).await, "b", "{round}");
        drop(raw);
        assert_eq!(next(&mut first).await.err(), Some(CallLost));
        gate.attached(0).await;
    }
}

#[tokio::test]
async fn an_instance_that_is_silent_is_lost_and_what_it_says_later_is_refused() {
    let gate = Running::start().await;
    let mut frozen = Raw::announced(&gate, None).await;
    let instance = gate.attached(1).await.expect("it attached");
    let mut given = called(&instance, "a").await;
    let id = frozen.request().await;
    assert_eq!(next(&mut given).await.err(), Some(CallLost));
    assert!(gate.reason().contains("sent nothing"), "{}", gate.reason());
    // It wakes: neither the old nor a new connection takes its answer.
    let _ = frozen.to_gate.send(message(id, answer("late"))).await;
    let mut again = Raw::announced(&gate, Some(Duration::from_millis(50))).await;
    let instance = gate.attached(1).await.expect("it attached");
    let new = called(&instance, "b").await;
    let new_id = again.request().await;
    again.send(id, answer("late")).await;
    again.send(new_id, answer("new")).await;
    again.send(new_id, answer("twice")).await;
    again.send(-7, answer("wrong")).await;
    assert_eq!(answered(new).await, "new");
    strays(&instance, 3).await;
}

#[tokio::test]
async fn an_instance_that_cannot_cancel_keeps_its_place_until_it_answers() {
    let gate = Running::start().await;
    let mut raw = Raw::announced(&gate, Some(Duration::from_millis(50))).await;
    let instance = gate.attached(1).await.expect("it attached");
    drop(called(&instance, "a").await);
    drop(called(&instance, "b").await);
    assert_eq!(call(&instance, "c").err(), Some(NoPlace));
    let id = raw.request().await;
    raw.send(id, answer("a")).await;
    let third = called(&instance, "c").await;
    let _ = raw.request().await;
    let id = raw.request().await;
    raw.send(id, answer("c")).await;
    assert_eq!(answered(third).await, "c");
    assert_eq!(instance.activity().strays, 0);
}

#[tokio::test]
async fn strangers_are_refused() {
    let gate = Running::start().await;
    for _ in 0..3 {
        let mut raw = Raw::connect(&gate, start("other")).await;
        assert_eq!(raw.refusal().await.as_deref(), Some(code::TOKEN_NOT_FOUND));
        let mut raw = Raw::connect(&gate, message(1, answer("x"))).await;
        assert_eq!(raw.refusal().await.as_deref(), Some(code::NOT_ANNOUNCED));
        let mut raw = Raw::connect(&gate, start(&"x".repeat(5 << 20))).await;
        assert_eq!(raw.refusal().await, None, "it is too long to be read");
    }
    // Those that say nothing take no places of others.
    let (silent, _keep) = mpsc::channel::<ServiceToGateProto>(1);
    drop(silent);
    assert!(gate.host.instances.lock().expect("no panic").is_empty());
    let _stop = gate.attach(1);
    gate.attached(1).await;
}

#[tokio::test]
async fn operators_drain_instances_and_cut_them() {
    let gate = Running::start().await;
    let mut raw = Raw::announced(&gate, Some(Duration::from_millis(50))).await;
    let instance = gate.attached(1).await.expect("it attached");
    let first = called(&instance, "a").await;
    instance.drain(true);
    assert_eq!(call(&instance, "b").err(), Some(NoPlace));
    let id = raw.request().await;
    raw.send(id, answer("a")).await;
    assert_eq!(answered(first).await, "a", "what is in flight ends");
    instance.drain(false);
    let mut second = called(&instance, "b").await;
    let revoked = "the token was revoked".to_owned();
    instance.cut(error(
        code::TOKEN_REVOKED,
        SimpleStatusProto::BadRequest,
        revoked,
    ));
    assert_eq!(next(&mut second).await.err(), Some(CallLost));
    assert_eq!(raw.refusal().await.as_deref(), Some(code::TOKEN_REVOKED));
    gate.attached(0).await;
}

#[tokio::test]
async fn a_gate_that_stops_lets_requests_end() {
    let gate = Running::start().await;
    let mut raw = Raw::announced(&gate, Some(Duration::from_millis(50))).await;
    let instance = gate.attached(1).await.expect("it attached");
    let first = called(&instance, "a").await;
    let id = raw.request().await;
    gate.stop.send_replace(true);
    loop {
        let message = raw.next().await.expect("the gate is there");
        if let Some(from_gate::Body::StopServing(_)) = message.body {
            break;
        }
    }
    raw.send(id, answer("a")).await;
    assert_eq!(answered(first).await, "a");
    gate.attached(0).await;
    assert_eq!(raw.next().await, None);
}

#[tokio::test]
async fn files_are_fetched_from_any_place() {
    let gate = Running::start().await;
    let address = gate.address.to_string().parse().expect("an address");
    let whole = std::fs::read("tests/host.rs").expect("this file");
    let fetched = async |sha256: &str, offset: u64| {
        let request = ContentRequestProto {
            connection_token: TOKEN.to_owned(),
            sha256: sha256.to_owned(),
            offset,
        };
        let mut content = instance::fetch(&Security::Plain, &address, request).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = content.next().await? {
            bytes.extend(piece);
        }
        Ok::<_, instance::FetchError>(bytes)
    };
    let length = whole.len() as u64;
    for offset in [0, 1, length - 1, length, length + 1] {
        let start = usize::try_from(offset)
            .expect("it is short")
            .min(whole.len());
        assert_eq!(
            fetched("here", offset).await.expect("it is there"),
            whole[start..]
        );
    }
    let error = fetched("other", 0).await.expect_err("it is not there");
    assert_eq!(error.to_string(), "no such file");
    drop(gate);
    assert!(fetched("here", 0).await.is_err());
}

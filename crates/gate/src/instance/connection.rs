//! One connection to a gate.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, Id as TaskId, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use super::{
    Additions, AnswerParts, Asks, GateRequest, Handler, InstanceSettings, LastAnswer, Security,
};
use crate::address::GateAddress;
use crate::protocol::gate_client::GateClient;
use crate::protocol::{
    ApiErrorProto, ClusterUpdateProto, CreditProto, GateToServiceProto, HeartBeatProto,
    MAX_MESSAGE_BYTES, OK, ServiceToGateProto, SimpleStatusProto, StartServingProto,
    StatusResponseProto, StopServingProto, code, error, extension,
    gate_to_service_proto as from_gate, longest_silence, service_to_gate_proto::Body,
};
use pkgtool_base::causes::with_causes;

/// Maximum time to connect, and for each answer until the service is announced.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Maximum time for the gate to read the last answers.
const CLOSING_TIME: Duration = Duration::from_secs(2);
/// Maximum time for the gate to learn that the service leaves. A gate that knows additions says that it has.
const FAREWELL_TIME: Duration = Duration::from_secs(5);
const SILENT_FAREWELL_TIME: Duration = Duration::from_millis(500);
/// Number of messages that wait until the gate reads them.
const WAITING_MESSAGES: usize = 256;
/// Intervals of heartbeats, in milliseconds, that a gate may set.
const INTERVALS: std::ops::RangeInclusive<i32> = 100..=3_600_000;
/// The version of the protocol.
const VERSION: i64 = 2;

/// An order to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionOrder {
    /// Answer requests.
    Serve,
    /// Accept no more requests, finish those in flight, and end.
    Leave,
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum ConnectionEnd {
    /// It was ordered to leave.
    Left,
    /// The gate accepts no more answers, or asked the service to stop.
    Stopped,
    /// The gate refuses the service.
    Refused(ApiErrorProto),
    /// The gate does not answer, or the connection was cut.
    Lost(String),
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("it left"),
            Self::Stopped => f.write_str("the gate stopped it"),
            Self::Refused(error) => {
                write!(f, "the gate refuses it: {}: {}", error.code, error.message)
            }
            Self::Lost(reason) => f.write_str(reason),
        }
    }
}

/// A report of a connection to its pool.
#[derive(Debug)]
pub(super) enum PoolNews {
    /// The gate accepted the service.
    Accepted(GateAddress),
    /// The connection ended.
    Lost(GateAddress),
    /// The gates of the cluster.
    Cluster(GateAddress, ClusterUpdateProto),
}

/// The parts that all connections of an instance share.
pub(super) struct SharedParts<H> {
    pub(super) settings: InstanceSettings,
    pub(super) handler: Arc<H>,
    pub(super) news: mpsc::Sender<PoolNews>,
    /// The gates that accepted the service, and whether they are all.
    pub(super) accepted: watch::Receiver<(Vec<GateAddress>, bool)>,
}

/// Connects to a gate and answers its requests until the connection ends. Also returns whether the gate accepted the
/// service.
pub(super) async fn run<H: Handler>(
    shared: &Arc<SharedParts<H>>,
    address: &GateAddress,
    orders: watch::Receiver<ConnectionOrder>,
) -> (ConnectionEnd, bool) {
    let opened = timeout(CONNECT_TIME, open(&shared.settings, address)).await;
    let opened = opened.unwrap_or_else(|_| Err("the gate does not answer".to_owned()));
    let (to_gate, mut requests) = match opened {
        Ok(opened) => opened,
        Err(reason) => return (ConnectionEnd::Lost(reason), false),
    };
    let mut connection = Connection {
        shared: Arc::clone(shared),
        address: address.clone(),
        to_gate,
        running: HashMap::new(),
        tasks: JoinSet::new(),
        interval: None,
        accepted: false,
        additions: Additions::default(),
    };
    let end = connection.serve(&mut requests, orders).await;
    let accepted = connection.accepted;
    drop(connection);
    if let ConnectionEnd::Left | ConnectionEnd::Stopped = end {
        // The gate reads the last answers, and closes the connection.
        let closed = async { while let Ok(Some(_)) = requests.message().await {} };
        let _ = timeout(CLOSING_TIME, closed).await;
    }
    (end, accepted)
}

/// Connects, and announces the service.
async fn open(
    settings: &InstanceSettings,
    address: &GateAddress,
) -> Result<
    (
        mpsc::Sender<ServiceToGateProto>,
        Streaming<GateToServiceProto>,
    ),
    String,
> {
    let channel = connected(&settings.security, address).await?;
    let mut client = GateClient::new(channel)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let failed = |status: tonic::Status| format!("{:?}: {}", status.code(), status.message());
    let health = client.health_check(heartbeat(0)).await.map_err(failed)?;
    let status = health.into_inner().status;
    if !status.eq_ignore_ascii_case(OK) {
        return Err(format!(
            "the gate accepts no connections: its status is `{status}`"
        ));
    }
    let (to_gate, messages) = mpsc::channel(WAITING_MESSAGES);
    let start = StartServingProto {
        connection_token: settings.token.reveal().to_owned(),
        service_descriptor: Some(settings.descriptor.clone()),
        hostname: settings.hostname.clone(),
        version: Some(VERSION),
        image: settings.image.clone(),
        extensions: extensions(settings),
        worker: settings.worker.clone(),
    };
    let first = message(0, Body::StartServing(start));
    to_gate
        .send(first)
        .await
        .map_err(|error| error.to_string())?;
    let opened = client.process_async(ReceiverStream::new(messages)).await;
    Ok((to_gate, opened.map_err(failed)?.into_inner()))
}

/// Returns the additions that this end knows.
fn extensions(settings: &InstanceSettings) -> Vec<String> {
    let mut known = vec![extension::CANCEL, extension::CREDITS];
    known.extend(settings.worker.as_ref().map(|_| extension::PACKAGES));
    known.extend(settings.descriptor.fittable.then_some(extension::TRAINING));
    known.into_iter().map(str::to_owned).collect()
}

pub(super) async fn connected(
    security: &Security,
    address: &GateAddress,
) -> Result<Channel, String> {
    let scheme = match security {
        Security::Plain => "http",
        Security::Tls(_) => "https",
    };
    let endpoint = Endpoint::from_shared(address.url(scheme));
    let mut endpoint = endpoint
        .map_err(|error| error.to_string())?
        .connect_timeout(CONNECT_TIME)
        .tcp_nodelay(true);
    if let Security::Tls(authority) = security {
        let tls = ClientTlsConfig::new().domain_name(address.host());
        let tls = match authority {
            Some(certificate) => tls.ca_certificate(Certificate::from_pem(certificate)),
            None => tls.with_native_roots(),
        };
        endpoint = endpoint
            .tls_config(tls)
            .map_err(|error| with_causes(&error))?;
    }
    endpoint
        .connect()
        .await
        .map_err(|error| with_causes(&error))
}

fn message(request_id: i64, body: Body) -> ServiceToGateProto {
    ServiceToGateProto {
        request_id,
        body: Some(body),
        headers: HashMap::new(),
    }
}

fn heartbeat(interval: i32) -> HeartBeatProto {
    HeartBeatProto {
        status: OK.to_owned(),
        interval,
    }
}

/// The end of a connection that takes no more requests.
struct Leaving {
    end: ConnectionEnd,
    /// The latest end: requests in flight have until then, and without any the gate, to learn that the service leaves.
    until: Instant,
    /// The gate sends no more requests.
    is_heard: bool,
}

/// A request whose last answer is ready.
struct FinishedRequest {
    id: i64,
    answer: ServiceToGateProto,
    /// The place of the answer among the messages to the gate; `None` if the connection is lost.
    place: Option<mpsc::OwnedPermit<ServiceToGateProto>>,
}

struct Connection<H> {
    shared: Arc<SharedParts<H>>,
    address: GateAddress,
    to_gate: mpsc::Sender<ServiceToGateProto>,
    /// Requests in flight.
    running: HashMap<i64, AbortHandle>,
    /// Their tasks.
    tasks: JoinSet<FinishedRequest>,
    /// The time between two heartbeats, once the gate has named it.
    interval: Option<Duration>,
    accepted: bool,
    additions: Additions,
}

impl<H: Handler> Connection<H> {
    async fn serve(
        &mut self,
        requests: &mut Streaming<GateToServiceProto>,
        mut orders: watch::Receiver<ConnectionOrder>,
    ) -> ConnectionEnd {
        let mut heard = Instant::now();
        let mut beat = heard;
        let mut leaving: Option<Leaving> = None;
        if *orders.borrow() == ConnectionOrder::Leave {
            leaving = Some(self.leave(ConnectionEnd::Left));
        }
        loop {
            if let Some(leaving) = &mut leaving
                && self.running.is_empty()
            {
                if leaving.is_heard {
                    break;
                }
                // Requests that are on their way are refused.
                let time = if self.additions.credits {
                    FAREWELL_TIME
                } else {
                    SILENT_FAREWELL_TIME
                };
                leaving.until = leaving.until.min(Instant::now() + time);
            }
            let far = Instant::now() + Duration::from_hours(1);
            let next_beat = self.interval.map_or(far, |interval| beat + interval);
            let silent = self
                .interval
                .map_or(far, |interval| heard + longest_silence(interval));
            let until = leaving.as_ref().map_or(far, |leaving| leaving.until);
            let outcome = tokio::select! {
                received = requests.message() => match received {
                    Ok(Some(received)) => {
                        heard = Instant::now();
                        self.received(received, leaving.is_some()).await
                    }
                    Ok(None) => Err(ConnectionEnd::Lost("the gate closed the connection".to_owned())),
                    Err(status) => Err(ConnectionEnd::Lost(format!("{:?}: {}", status.code(), status.message()))),
                },
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
                Ok(()) = orders.changed(), if leaving.is_none() => {
                    if *orders.borrow_and_update() == ConnectionOrder::Leave {
                        leaving = Some(self.leave(ConnectionEnd::Left));
                    }
                    Ok(())
                }
                () = sleep_until(next_beat) => {
                    beat = Instant::now();
                    self.tell(0, Body::HeartBeat(heartbeat(self.milliseconds())))
                }
                () = sleep_until(silent) => Err(ConnectionEnd::Lost(format!(
                    "the gate sent nothing for {} ms", heard.elapsed().as_millis()
                ))),
                () = sleep_until(until) => break,
            };
            match outcome {
                Ok(()) => {}
                Err(ConnectionEnd::Stopped) => {
                    let leaving = leaving.get_or_insert_with(|| self.leave(ConnectionEnd::Stopped));
                    leaving.is_heard = true;
                }
                // Unfinished requests are lost with the connection.
                Err(end) => return leaving.map_or(end, |leaving| leaving.end),
            }
        }
        leaving.map_or(ConnectionEnd::Left, |leaving| leaving.end)
    }

    /// Tells the gate that no more requests are accepted.
    fn leave(&self, end: ConnectionEnd) -> Leaving {
        // If the gate does not read it, the connection is lost at the end.
        let _ = self.tell(0, Body::StopServing(StopServingProto { reason: None }));
        Leaving {
            end,
            until: Instant::now() + self.shared.settings.grace,
            is_heard: false,
        }
    }

    fn milliseconds(&self) -> i32 {
        let interval = self.interval.unwrap_or_default();
        i32::try_from(interval.as_millis()).unwrap_or(i32::MAX)
    }

    /// Sends a message at once.
    fn tell(&self, request_id: i64, body: Body) -> Result<(), ConnectionEnd> {
        let sent = self.to_gate.try_send(message(request_id, body));
        sent.map_err(|_| ConnectionEnd::Lost("the gate does not read answers".to_owned()))
    }

    async fn received(
        &mut self,
        received: GateToServiceProto,
        leaving: bool,
    ) -> Result<(), ConnectionEnd> {
        let id = received.request_id;
        let asks = match received.body {
            Some(from_gate::Body::Predict(asked)) => Asks::Predict(asked),
            Some(from_gate::Body::PartialPredict(asked)) => Asks::PartialPredict(asked),
            Some(from_gate::Body::Batch(asked)) => Asks::Batch(asked),
            Some(from_gate::Body::Fit(asked)) => Asks::Fit(Box::new(asked)),
            Some(from_gate::Body::Ext(asked)) => Asks::Ext(asked),
            Some(other) => return self.told(id, other).await,
            // A body that a later version of the protocol has.
            None => return Ok(()),
        };
        if leaving {
            // The gate sent it before it knew.
            let message = "the instance is stopping".to_owned();
            return self.refuse(id, code::TOO_MANY_REQUESTS, message);
        }
        let limit = self.shared.settings.in_flight;
        if self.running.len() >= limit {
            let message =
                format!("{limit} requests are in flight, as many as the instance accepts");
            return self.refuse(id, code::TOO_MANY_REQUESTS, message);
        }
        if self.running.contains_key(&id) {
            let message = format!("the request {id} is in flight");
            return self.refuse(id, code::REPEATED_REQUEST, message);
        }
        let request = GateRequest {
            asks,
            headers: received.headers,
        };
        self.start(id, request);
        Ok(())
    }

    fn start(&mut self, id: i64, request: GateRequest) {
        let handler = Arc::clone(&self.shared.handler);
        let to_gate = self.to_gate.clone();
        let parts = AnswerParts {
            request_id: id,
            additions: self.additions,
            to_gate: to_gate.clone(),
        };
        let task = self.tasks.spawn(async move {
            let LastAnswer { body, headers } = handler.answer(request, parts).await;
            FinishedRequest {
                id,
                answer: ServiceToGateProto {
                    request_id: id,
                    body: Some(body),
                    headers,
                },
                place: to_gate.reserve_owned().await.ok(),
            }
        });
        self.running.insert(id, task);
    }

    fn refuse(&self, id: i64, code: &str, message: String) -> Result<(), ConnectionEnd> {
        let error = error(code, SimpleStatusProto::InternalServerError, message);
        self.tell(id, Body::Error(error))
    }

    /// Handles a message that asks for no answer of the service.
    async fn told(&mut self, id: i64, body: from_gate::Body) -> Result<(), ConnectionEnd> {
        match body {
            from_gate::Body::HeartBeat(beat) if INTERVALS.contains(&beat.interval) => {
                let interval = u64::from(beat.interval.unsigned_abs());
                self.interval = Some(Duration::from_millis(interval));
            }
            from_gate::Body::ServiceInfo(info) => {
                self.accepted = true;
                let news = PoolNews::Accepted(self.address.clone());
                let _ = self.shared.news.send(news).await;
                self.shared.handler.attached(&self.address);
                let knows = |name: &str| info.extensions.iter().any(|it| it == name);
                self.additions = Additions {
                    credits: knows(extension::CREDITS),
                    training: knows(extension::TRAINING),
                };
                self.credit(self.shared.settings.in_flight)?;
            }
            from_gate::Body::Cluster(update) => {
                let news = PoolNews::Cluster(self.address.clone(), update);
                let _ = self.shared.news.send(news).await;
            }
            from_gate::Body::Assignment(assignment) => {
                self.shared.handler.assigned(&self.address, assignment);
            }
            from_gate::Body::StopServing(_) => return Err(ConnectionEnd::Stopped),
            from_gate::Body::Status(_) => {
                let (gates, all) = self.shared.accepted.borrow().clone();
                let status = StatusResponseProto {
                    connected_gates: gates.iter().map(ToString::to_string).collect(),
                    connected_to_all_gates: all,
                };
                self.tell(id, Body::Status(status))?;
            }
            from_gate::Body::Cancel(_) => {
                if let Some(task) = self.running.remove(&id) {
                    task.abort();
                    self.credit(1)?;
                }
            }
            from_gate::Body::Error(error) if id == 0 => return Err(ConnectionEnd::Refused(error)),
            // An error about one request, which has its answer; what was never asked for.
            _ => {}
        }
        Ok(())
    }

    /// Sends the last answer of a request, unless it was cancelled. The gate may use its number again as soon as it
    /// has the answer, or has cancelled it.
    fn ended(
        &mut self,
        ended: Result<(TaskId, FinishedRequest), JoinError>,
    ) -> Result<(), ConnectionEnd> {
        match ended {
            Ok((task, FinishedRequest { id, answer, place })) => {
                if self
                    .running
                    .get(&id)
                    .is_none_or(|running| running.id() != task)
                {
                    return Ok(());
                }
                self.running.remove(&id);
                if let Some(place) = place {
                    place.send(answer);
                }
                self.credit(1)
            }
            Err(error) if error.is_cancelled() => Ok(()),
            Err(error) => {
                let failed = self
                    .running
                    .iter()
                    .find(|(_, task)| task.id() == error.id());
                let Some(id) = failed.map(|(id, _)| *id) else {
                    return Ok(());
                };
                self.running.remove(&id);
                self.refuse(
                    id,
                    code::FAILED,
                    "the instance failed at this request".to_owned(),
                )?;
                self.credit(1)
            }
        }
    }

    /// Accepts so many requests more, if the gate counts them.
    fn credit(&self, requests: usize) -> Result<(), ConnectionEnd> {
        if !self.additions.credits {
            return Ok(());
        }
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        self.tell(0, Body::Credit(CreditProto { requests }))
    }
}

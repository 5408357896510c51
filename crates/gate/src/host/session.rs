//! One connection of an instance, from its announcement to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Streaming;

use super::remote::{CallEvent, RemoteInstance, ToService};
use super::{Arrival, GateHost, HostSettings};
use crate::protocol::{
    ApiErrorProto, GateToServiceProto, HeartBeatProto, OK, ServiceToGateProto, SimpleStatusProto,
    StopServingProto, code, error, gate_to_service_proto as to_service, longest_silence,
    service_to_gate_proto::Body,
};

/// Maximum time until an instance announces itself.
const ANNOUNCEMENT_TIME: Duration = Duration::from_secs(10);
/// Maximum time until an instance reads why its connection ends.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);

/// The call of an instance.
pub(super) struct OpenedSession {
    pub(super) answers: Streaming<ServiceToGateProto>,
    pub(super) to_service: ToService,
    pub(super) peer: Option<SocketAddr>,
    /// Held until the instance is admitted.
    pub(super) stranger: OwnedSemaphorePermit,
    /// Becomes true when the instance is admitted.
    pub(super) is_known: Arc<AtomicBool>,
    /// Becomes true when the gate stops.
    pub(super) stop: watch::Receiver<bool>,
}

fn not_announced(message: &str) -> ApiErrorProto {
    let status = SimpleStatusProto::BadRequest;
    error(code::NOT_ANNOUNCED, status, message.to_owned())
}

/// Serves an instance until its connection ends.
pub(super) async fn run<H: GateHost>(host: &H, settings: &HostSettings, opened: OpenedSession) {
    let OpenedSession {
        mut answers,
        to_service,
        peer,
        stranger,
        is_known,
        stop,
    } = opened;
    let refuse = |error: ApiErrorProto| async {
        let message = GateToServiceProto {
            body: Some(to_service::Body::Error(error)),
            ..GateToServiceProto::default()
        };
        // It may have left.
        let _ = timeout(LAST_WORDS_TIME, to_service.send(Box::new(message))).await;
    };
    let start = match timeout(ANNOUNCEMENT_TIME, answers.message()).await {
        Ok(Ok(Some(ServiceToGateProto {
            body: Some(Body::StartServing(start)),
            ..
        }))) => start,
        Ok(Ok(Some(_))) => {
            return refuse(not_announced("expected startServing as the first message")).await;
        }
        Ok(Ok(None) | Err(_)) => return,
        Err(_) => return refuse(not_announced("no startServing came in time")).await,
    };
    let mut arrival = Arrival { start, peer };
    let (mut info, ticket) = match host.admit(&arrival).await {
        Ok(admitted) => admitted,
        Err(error) => {
            tracing::warn!(
                peer = peer.map(tracing::field::display),
                code = error.code,
                "refused an instance"
            );
            return refuse(error).await;
        }
    };
    drop(stranger);
    is_known.store(true, Release);
    // The token is needed no more.
    arrival.start.connection_token = String::new();
    let instance = RemoteInstance::new(arrival, to_service.clone(), settings.in_flight);
    let instance = Arc::new(instance);
    info.extensions = instance.extensions();
    let interval = i32::try_from(settings.heartbeat.as_millis()).unwrap_or(i32::MAX);
    let beat = HeartBeatProto {
        status: OK.to_owned(),
        interval,
    };
    instance.tell(to_service::Body::ServiceInfo(info));
    instance.tell(to_service::Body::HeartBeat(beat.clone()));
    let freed = match host.joined(&instance, ticket) {
        Ok(freed) => freed,
        Err(error) => return refuse(error).await,
    };
    let mut session = InstanceSession {
        instance: &instance,
        settings,
        beat,
        freed: &freed,
        stop,
        stopping: None,
    };
    let reason = session.serve(&mut answers).await;
    instance.end();
    host.left(&instance, &reason);
    freed.notify_waiters();
    freed.notify_one();
}

struct InstanceSession<'s> {
    instance: &'s RemoteInstance,
    settings: &'s HostSettings,
    beat: HeartBeatProto,
    freed: &'s Notify,
    /// Becomes true when the gate stops.
    stop: watch::Receiver<bool>,
    /// The time by which a stopping connection ends.
    stopping: Option<Instant>,
}

impl InstanceSession<'_> {
    /// Returns why the connection ended.
    async fn serve(&mut self, answers: &mut Streaming<ServiceToGateProto>) -> String {
        let interval = self.settings.heartbeat;
        let (mut cuts, mut stop) = (self.instance.cuts(), self.stop.clone());
        let (mut heard, mut next_beat) = (Instant::now(), Instant::now() + interval);
        loop {
            if self.stopping.is_some() && self.instance.is_idle() {
                return "it was asked to stop".to_owned();
            }
            let far = Instant::now() + Duration::from_hours(1);
            tokio::select! {
                received = answers.message() => match received {
                    Ok(Some(message)) => {
                        heard = Instant::now();
                        self.instance.heard();
                        self.received(message);
                    }
                    Ok(None) => return "it closed the connection".to_owned(),
                    Err(status) => return format!("{:?}: {}", status.code(), status.message()),
                },
                () = sleep_until(next_beat) => {
                    next_beat = Instant::now() + interval;
                    self.instance.forget_abandoned();
                    self.freed.notify_one();
                    if !self.instance.tell(to_service::Body::HeartBeat(self.beat.clone())) {
                        return "it does not read requests".to_owned();
                    }
                }
                () = sleep_until(heard + longest_silence(interval)) => {
                    return format!("it sent nothing for {} ms", heard.elapsed().as_millis());
                }
                () = sleep_until(self.stopping.unwrap_or(far)) => {
                    return "it did not finish in time".to_owned();
                }
                cut = cuts.wait_for(Option::is_some) => {
                    let error = cut.ok().and_then(|error| error.clone()).unwrap_or_default();
                    let reason = error.message.clone();
                    self.instance.tell(to_service::Body::Error(error));
                    return reason;
                }
                // The sender lives as long as the process.
                Ok(_) = stop.wait_for(|stop| *stop), if self.stopping.is_none() => {
                    self.stop_requests();
                    self.stopping = Some(Instant::now() + self.settings.grace);
                }
            }
        }
    }

    /// Sends no more requests, and says so.
    fn stop_requests(&self) {
        self.instance.drain(true);
        let last = StopServingProto { reason: None };
        self.instance.tell(to_service::Body::StopServing(last));
    }

    fn received(&self, message: ServiceToGateProto) {
        let (instance, id) = (self.instance, message.request_id);
        match message.body {
            None | Some(Body::HeartBeat(_) | Body::StartServing(_) | Body::Status(_)) => return,
            // The platform's SDKs expect no answer.
            Some(Body::StopServing(_)) if instance.is_of_platform() => return instance.drain(true),
            // It waits until no more requests are on their way.
            Some(Body::StopServing(_)) => return self.stop_requests(),
            Some(Body::Credit(credit)) => instance.credit(credit.requests),
            Some(Body::PartialPredict(part)) if part.finish != Some(true) => {
                return instance.part(id, CallEvent::Part(part));
            }
            Some(Body::FitStatus(status)) => {
                return instance.part(id, CallEvent::Progress(status.percentage));
            }
            Some(body) => instance.answer(id, body),
        }
        self.freed.notify_one();
    }
}
